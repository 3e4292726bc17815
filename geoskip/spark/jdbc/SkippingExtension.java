// The jar that enables geoskip only by configuration, for a JVM that was not started by Python: a Thrift server, the
// spark-sql shell, a Scala application. `python -m geoskip.spark.jdbc.extension_jar` compiles it with Janino, hence the
// plain Java. It uses no class that differs between versions of Spark, so that one jar works with all.
//
// At the first session it starts a Python process, as spark-submit does for a Python driver, which attaches itself
// to this JVM (geoskip/spark/jdbc/attach.py) and enables geoskip. The first statement waits for it. If it fails, the
// log has the reason, and SQL works as without this jar.
package geoskip.extension;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.ProcessBuilder.Redirect;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.regex.Pattern;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.python.Py4JServer;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/** The class for spark.sql.extensions. */
public class SkippingExtension extends AbstractFunction1 {
    public Object apply(Object extensions) {
        ((SparkSessionExtensions) extensions).injectParser(new AttachingParserBuilder());
        return BoxedUnit.UNIT;
    }
}

class AttachingParserBuilder extends AbstractFunction2 {
    public Object apply(Object session, Object parser) {
        PythonProcess.start(session);
        Set interfaces = new LinkedHashSet();
        for (Class kind = parser.getClass(); kind != null; kind = kind.getSuperclass()) {
            interfaces.addAll(Arrays.asList(kind.getInterfaces()));
        }
        InvocationHandler handler = new AttachingParser(session, parser);
        ClassLoader loader = parser.getClass().getClassLoader();
        return Proxy.newProxyInstance(loader, (Class[]) interfaces.toArray(new Class[0]), handler);
    }
}

/**
 * A session's parser that waits for Python at the session's first statement, and then lets geoskip put its own parser
 * in front. If Python fails, statements on skipping indexes, which Spark cannot parse, fail with the reason.
 */
class AttachingParser implements InvocationHandler {
    private static final Pattern ON_INDEXES =
            Pattern.compile("\\bskipping\\s+index|\\bexplain\\s+skipping\\b", Pattern.CASE_INSENSITIVE);

    private final Object session;
    private final Object parser;
    private volatile boolean settled;

    AttachingParser(Object session, Object parser) {
        this.session = session;
        this.parser = parser;
    }

    public Object invoke(Object self, Method method, Object[] arguments) throws Throwable {
        Object next = parser;
        boolean isStatement = method.getName().startsWith("parsePlan");
        if (!settled && isStatement && !isOfPython()) {
            Function install = PythonProcess.attached();
            settled = PythonProcess.isSettled();
            if (install != null) {
                next = install.apply(session); // it calls this parser again for all other statements
            }
        }
        try {
            return method.invoke(next, arguments);
        } catch (InvocationTargetException failure) {
            String problem = PythonProcess.problem();
            if (problem == null || !isStatement || !ON_INDEXES.matcher(String.valueOf(arguments[0])).find()) {
                throw failure.getCause();
            }
            throw new IllegalStateException(problem, failure.getCause());
        }
    }

    /** True for calls by the Python process while it attaches, which would wait for itself. */
    private static boolean isOfPython() {
        StackTraceElement[] stack = Thread.currentThread().getStackTrace();
        for (int i = 0; i < stack.length; i++) {
            if (stack[i].getClassName().startsWith("py4j.")) {
                return true;
            }
        }
        return false;
    }
}
