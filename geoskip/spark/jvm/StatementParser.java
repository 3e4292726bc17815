package geoskip;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Pattern;
import org.apache.spark.sql.Encoders;
import @SparkSession@;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.connector.ExternalCommandRunner;
import org.apache.spark.sql.execution.command.ExternalCommandExecutor;
import org.apache.spark.sql.internal.SessionState;
import org.apache.spark.sql.internal.VariableSubstitution;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import @Seq@;
import scala.Function1;
import scala.runtime.AbstractFunction2;

/**
 * A session's parser that handles the statements on skipping indexes (geoskip/statements) and passes everything else,
 * including errors, to the parser that the session had: Spark's, or that of Delta, Iceberg or another extension.
 *
 * It is a proxy for all interfaces of the other parser, so that it works with every Spark, and with extensions that
 * cast the parser to their own interface. A statement becomes a command of Spark, which runs once, when Spark executes
 * it. It is the whole plan, since a Spark Connect server would run a command below a projection twice.
 */
class StatementParser implements InvocationHandler {
    private static volatile Pattern statements = Pattern.compile("(?!)");

    private static volatile SparkSession shared; // the session with functions for all sessions

    private final SparkSession session;
    private final ParserInterface parser;
    private SparkSession given; // the session with functions that this one has got

    private StatementParser(SparkSession session, ParserInterface parser) {
        this.session = session;
        this.parser = parser;
    }

    /** Sets the pattern for the beginning of statements. */
    static void recognise(String pattern) { statements = Pattern.compile(pattern); }

    static void share(SparkSession session) { shared = session; }

    static ParserInterface over(SparkSession session, ParserInterface parser) {
        if (isOver(parser)) {
            return parser;
        }
        Set interfaces = new LinkedHashSet();
        for (Class kind = parser.getClass(); kind != null; kind = kind.getSuperclass()) {
            interfaces.addAll(Arrays.asList(kind.getInterfaces()));
        }
        Class[] all = (Class[]) interfaces.toArray(new Class[0]);
        ClassLoader loader = StatementParser.class.getClassLoader();
        try {
            return (ParserInterface) Proxy.newProxyInstance(loader, all, new StatementParser(session, parser));
        } catch (IllegalArgumentException hidden) { // an interface that this loader does not see
            Class[] one = new Class[] {ParserInterface.class};
            return (ParserInterface) Proxy.newProxyInstance(loader, one, new StatementParser(session, parser));
        }
    }

    private static boolean isOver(ParserInterface parser) {
        return Proxy.isProxyClass(parser.getClass()) && Proxy.getInvocationHandler(parser) instanceof StatementParser;
    }

    /**
     * Replaces the parser of a running session, once. If Java or this Spark does not allow it, spark.sql is not
     * changed, and the result is a message about this; else it is null.
     */
    static String install(SparkSession session) {
        SessionState state = session.sessionState();
        if (isOver(state.sqlParser())) {
            return null;
        }
        try {
            Field field = SessionState.class.getDeclaredField("sqlParser");
            field.setAccessible(true);
            field.set(state, over(session, state.sqlParser()));
            return null;
        } catch (Exception refused) {
            return "spark.sql of this session does not know CREATE SKIPPING INDEX and the like, since its parser cannot "
                    + "be replaced (" + refused + "): geoskip.sql(spark, text) does";
        }
    }

    public Object invoke(Object self, Method method, Object[] arguments) throws Throwable {
        if (method.getName().startsWith("parsePlan") && arguments[0] instanceof String) {
            String text = (String) arguments[0];
            SparkSession source = shared;
            if (source != given) {
                given = source;
                takeFunctions(source.sessionState().functionRegistry(), session.sessionState().functionRegistry());
            }
            if (isStatement(text)) {
                return plan(new VariableSubstitution().substitute(text));
            }
        }
        try {
            return method.invoke(parser, arguments);
        } catch (InvocationTargetException failure) {
            throw throwable(failure.getCause(), method);
        }
    }

    /** An error that a Java proxy may throw: Spark's interfaces declare few checked exceptions. */
    private static Throwable throwable(Throwable error, Method method) {
        boolean passes = error instanceof RuntimeException || error instanceof Error;
        for (Class declared : method.getExceptionTypes()) {
            passes |= declared.isInstance(error);
        }
        return passes ? error : new IllegalArgumentException(error.getMessage(), error);
    }

    /** Registers the functions of one session in another, except those with existing names. */
    private static void takeFunctions(FunctionRegistry theirs, FunctionRegistry own) {
        for (FunctionIdentifier name : ScalaInterop.list(theirs.listFunction())) {
            if (!own.functionExists(name)) {
                own.registerFunction(name, (ExpressionInfo) theirs.lookupFunction(name).get(),
                        (Function1) theirs.lookupFunctionBuilder(name).get());
            }
        }
    }

    private static boolean isStatement(String text) {
        try {
            return statements.matcher(text).lookingAt();
        } catch (StackOverflowError endless) { // of thousands of comments
            return false;
        }
    }

    private static LogicalPlan plan(String text) throws Exception {
        return new StatementCommand(text, StatementRunner.answer("statement columns\n" + text, "columns"));
    }
}

/** Spark's builder of the parser, for sessions that are created later. */
class StatementParserBuilder extends AbstractFunction2 {
    public Object apply(Object session, Object parser) {
        return StatementParser.over((SparkSession) session, (ParserInterface) parser);
    }
}

/** Spark's command for an external runner, but with the columns of the statement, which have fixed ids. */
class StatementCommand extends ExternalCommandExecutor {
    private final String ddl;
    private final Seq columns;

    StatementCommand(String text, String ddl) { this(text, ddl, DataTypeUtils.toAttributes(StructType.fromDDL(ddl))); }

    private StatementCommand(String text, String ddl, Seq columns) {
        super(new StatementRunner(), text, scala.collection.immutable.Map$.MODULE$.empty());
        this.ddl = ddl;
        this.columns = columns;
    }

    public Seq output() { return columns; }

    public LogicalPlan clone() { return this; } // it has no state, and nodes above it refer to its columns

    /** Spark creates copies to compare a plan with those of cached data. */
    public TreeNode makeCopy(Object[] arguments) { return new StatementCommand(command(), ddl, columns); }

    /** The rows, parsed from JSON by Spark in the driver, without a job. */
    public Seq run(org.apache.spark.sql.SparkSession session) {
        String[] rows = runner().executeCommand(command(), CaseInsensitiveStringMap.empty());
        return ScalaInterop.seq(session.createDataset(Arrays.asList(rows), Encoders.STRING())
                .selectExpr(new String[] {"from_json(value, '" + ddl + "') AS answer"})
                .selectExpr(new String[] {"answer.*"}).collectAsList());
    }
}

/** Runs a statement by Python in the current session; the rows are JSON. */
class StatementRunner implements ExternalCommandRunner {
    private static final Map running = new ConcurrentHashMap(); // sessions by number
    private static final AtomicLong numbers = new AtomicLong();

    public String[] executeCommand(String text, CaseInsensitiveStringMap options) {
        Long number = Long.valueOf(numbers.incrementAndGet());
        running.put(number, SparkSession.active());
        try {
            String rows = answer("statement rows " + number + "\n" + text, "rows");
            return rows.isEmpty() ? new String[0] : rows.split("\n");
        } finally {
            running.remove(number);
        }
    }

    static SparkSession session(long number) { return (SparkSession) running.get(Long.valueOf(number)); }

    /** Python's answer after its first line, which is its kind; throws an error with its position in the text. */
    static String answer(String request, String expected) {
        String answer;
        try {
            answer = Geoskip.ask(request);
        } catch (Exception failure) {
            throw new IllegalStateException("geoskip's Python process does not answer: " + failure, failure);
        }
        String[] parts = answer.split("\n", 2); // without rows there is only the first line
        String rest = parts.length < 2 ? "" : parts[1];
        if (!parts[0].equals(expected)) {
            throw new IllegalArgumentException(rest);
        }
        return rest;
    }
}
