// The JVM part of geoskip: one optimizer rule, compiled in the driver by Janino when a session is enabled
// (geoskip/spark/session.py). Hence the plain Java: Janino has no lambdas, no `var` and no catch of several types,
// generics are raw, and the names between at signs are replaced for the running Spark. Unlike javac, Janino casts in
// `for (Type item : rawList)`.
//
// The rule decides nothing itself. It finds filters above file relations of supported classes, writes them as JSON,
// requests from Python (geoskip/spark/rule/bridge.py) the files of the dataset's snapshot that cannot match, and wraps
// the relation's FileIndex in one that leaves these out of listFiles. After any failure every file is read.
package geoskip;

import java.io.IOException;
import java.lang.ref.WeakReference;
import java.lang.reflect.Field;
import java.net.Socket;
import java.net.SocketException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Instant;
import java.time.zone.ZoneOffsetTransition;
import java.time.zone.ZoneRules;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import @Dataset@;
import @SparkSession@;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.util.ThreadUtils;
import org.slf4j.LoggerFactory;
import py4j.ClientServerConnection;
import py4j.DefaultGatewayServerListener;
import py4j.GatewayServer;
import py4j.Py4JPythonClient;
import py4j.Py4JPythonClientPerThread;
import py4j.Py4JServerConnection;
import scala.runtime.AbstractFunction0;

/** The entry points for Python, and the state shared by all sessions of the driver. */
public final class Geoskip {
    private static final long MOST_FILES = 2000000; // in all tables except the last one used, some 250 bytes each
    private static final long CLOCKS_UNTIL = 7258118400L; // the year 2200, as most time zones have transitions forever

    private static volatile java.util.function.Function bridge;
    private static volatile Py4JPythonClient carrier; // sends the requests to Python
    private static final Map installed = Collections.synchronizedMap(new WeakHashMap());
    private static final String me = Integer.toHexString(System.identityHashCode(Geoskip.class));
    private static volatile boolean second; // this process does not decide for sessions of another one
    private static final Map listened = Collections.synchronizedMap(new WeakHashMap());
    private static final LinkedHashMap tables = new LinkedHashMap(16, 0.75f, true); // by root, in order of last use
    static final ThreadLocal planning = new ThreadLocal();
    static final ThreadLocal captured = new ThreadLocal(); // a List of Json while an index is analysed
    static final ThreadLocal parts = new ThreadLocal(); // a List of the expressions themselves, if they are kept

    /** Threads for concurrent requests. They never end, since Py4J never closes a thread's connection to Python. */
    private static final ExecutorService workers = new ThreadPoolExecutor(
            0, Integer.MAX_VALUE, Integer.MAX_VALUE, TimeUnit.DAYS, new SynchronousQueue(),
            ThreadUtils.namedThreadFactory("geoskip-planning"));

    /**
     * The JVM property with the Python process that decides for a session, or for sessions with the same extensions
     * that no process has enabled. A property is used since each process has its own classes, without shared state.
     */
    private static String owner(Object of) { return "geoskip.owner." + Integer.toHexString(System.identityHashCode(of)); }

    /** Does this Python process decide which files the queries of a session read? */
    static boolean owns(SparkSession session) {
        String own = System.getProperty(owner(session));
        return me.equals(own != null ? own : System.getProperty(owner(session.extensions())));
    }

    /** From now on do not decide for sessions for which another Python process of the driver has installed the rule. */
    public void leaveToOthers() { second = true; }

    /** Connects Python: a function from a request to an answer, both text, and Py4J's server that transports them. */
    public void connect(java.util.function.Function python, GatewayServer server) {
        carrier = server.getCallbackClient();
        bridge = python;
        server.addListener(new DefaultGatewayServerListener() {
            public void connectionStarted(Py4JServerConnection connection) { hasten(connection.getSocket()); }
        });
        try {
            Field connections = GatewayServer.class.getDeclaredField("connections");
            connections.setAccessible(true);
            for (Py4JServerConnection connection : (List) connections.get(server)) {
                hasten(connection.getSocket());
            }
        } catch (Exception changed) { // another version of Py4J, or a connection that begins meanwhile
            return;
        }
    }

    /**
     * Sets TCP_NODELAY. Py4J sends more than 8 KB (listings, large polygons, Python functions) in pieces, and the
     * system delays the second until the first is acknowledged, which takes 40 ms.
     */
    private static void hasten(Socket socket) {
        try {
            socket.setTcpNoDelay(true);
        } catch (SocketException closed) { // Py4J opens another
            return;
        }
    }

    /** Hastens this thread's connection. */
    private static void hasten(java.util.function.Function python) {
        if (carrier instanceof Py4JPythonClientPerThread) {
            Py4JPythonClientPerThread client = (Py4JPythonClientPerThread) carrier;
            if (client.getPerThreadConnection() == null) {
                python.apply(""); // connects
            }
            ClientServerConnection connection = client.getPerThreadConnection();
            if (connection != null) {
                hasten(connection.getSocket());
            }
        }
    }

    /** Stores values for which conditions will be evaluated, under a name. */
    public void values(String name, byte[] block) { Evaluation.put(name, block); }

    /** Stores values from a file, which is faster for many. */
    public void valuesOf(String name, String path) throws IOException {
        Evaluation.put(name, Files.readAllBytes(Paths.get(path)));
    }

    /** Evaluates a part of a decision's conditions for such values: see Evaluation. */
    public byte[] evaluate(long number, String path, String bindings, boolean values, long budgetMs) {
        return Evaluation.evaluate(number, path, bindings, values, budgetMs);
    }

    /**
     * The transitions of a time zone from the tables that Spark uses (geoskip/bounds/time_zones.py): the end of the
     * list, the first offset from UTC, then `time:offset` for each transition, all in seconds.
     */
    public String clocks(String zone) {
        ZoneRules rules;
        try {
            rules = DateTimeUtils.getZoneId(zone).getRules();
        } catch (RuntimeException unknown) {
            return null;
        }
        ZoneOffsetTransition next = rules.nextTransition(Instant.MIN);
        int first = (next == null ? rules.getOffset(Instant.EPOCH) : next.getOffsetBefore()).getTotalSeconds();
        StringBuilder text = new StringBuilder().append(CLOCKS_UNTIL).append(' ').append(first);
        while (next != null && next.toEpochSecond() < CLOCKS_UNTIL) {
            text.append(' ').append(next.toEpochSecond()).append(':').append(next.getOffsetAfter().getTotalSeconds());
            next = rules.nextTransition(next.getInstant());
        }
        return text.toString();
    }

    /** The facts about recently executed queries, oldest first. */
    public List recent(SparkSession session) {
        QueryListener found = listener(session);
        return found == null ? new ArrayList() : found.copy();
    }

    private static QueryListener listener(SparkSession session) {
        WeakReference recent = (WeakReference) listened.get(session);
        return recent == null ? null : (QueryListener) recent.get();
    }

    /** The conditions that a session has logged, as JSON: see WorkloadLog. */
    public String workload(SparkSession session) {
        QueryListener found = listener(session);
        return found == null ? "[]" : found.workload.json();
    }

    /** The logged condition with a number of `workload`; null if it has been dropped. */
    public SeenCondition seen(SparkSession session, long number) { return listener(session).workload.seen(number); }

    /** The scan of a condition that was logged with its literals, over a frame of its files. */
    public PlannedScan planned(SeenCondition seen, Dataset frame) { return seen.over(frame); }

    /** Listens to a session once. A weak reference, since facts refer to the session, which keeps the listener. */
    static void listen(SparkSession session) {
        synchronized (listened) {
            if (!listened.containsKey(session)) {
                QueryListener recent = new QueryListener();
                listened.put(session, new WeakReference(recent));
                session.listenerManager().register(recent);
            }
        }
    }

    /** Registers a dataset with metadata that are found through Python, not by a `_geoskip` folder. */
    public void register(String root) { MetadataLocator.register(root); }

    /** Clears the cache of lookups after an index was created or dropped. */
    public void forget() { MetadataLocator.forget(); }

    /** Sends Python a long request, such as a build; in another thread, so that the caller may be interrupted. */
    static String ask(final String request) throws Exception {
        return (String) workers.submit(new Callable() {
            public Object call() throws Exception {
                hasten(bridge);
                return bridge.apply(request);
            }
        }).get();
    }

    /** Sends Python a request; null if there is no answer within the budget. */
    static String ask(final String request, long budgetMs) throws Exception {
        final java.util.function.Function python = bridge;
        Future answer = workers.submit(new Callable() {
            public Object call() {
                planning.set(Boolean.TRUE);
                try {
                    hasten(python);
                    return python.apply(request);
                } finally {
                    planning.remove();
                }
            }
        });
        try {
            return (String) answer.get(budgetMs, TimeUnit.MILLISECONDS);
        } catch (TimeoutException late) {
            return null;
        }
    }

    /** The files of a snapshot by path, fetched once from Python; those of a root's older snapshots are dropped. */
    static FileTable table(String snapshot, String root, long budgetMs) throws Exception {
        FileTable table;
        synchronized (tables) {
            table = (FileTable) tables.get(root);
        }
        if (table == null || !table.snapshot.equals(snapshot)) {
            String lines = ask("files " + snapshot, budgetMs);
            if (lines == null || lines.isEmpty()) {
                return null;
            }
            table = new FileTable(root, lines, snapshot);
            synchronized (tables) {
                tables.put(root, table);
                long files = 0;
                for (FileTable known : tables.values()) {
                    files += known.size();
                }
                for (Iterator i = tables.values().iterator(); files > MOST_FILES && tables.size() > 1;) {
                    files -= ((FileTable) i.next()).size();
                    i.remove();
                }
            }
        }
        return table;
    }

    /**
     * Installs the rule, once, for a session and those created from it by newSession, and the parser of statements.
     * Returns the reason why the parser could not be installed, or null. Of several Python processes the last one that
     * `claims` a session decides for it; a process that does not claim it decides only if there is no other.
     */
    public String install(SparkSession session, boolean claims) {
        synchronized (installed) {
            Object first = System.getProperties().putIfAbsent(owner(session.extensions()), me);
            if (claims && !second) {
                System.setProperty(owner(session.extensions()), me);
                System.setProperty(owner(session), me);
            } else if (second && first != null && !first.equals(me)) {
                return null;
            }
            if (installed.put(session.extensions(), Boolean.TRUE) == null) {
                session.extensions().injectPreCBORule(new RuleBuilder());
                session.extensions().injectParser(new StatementParserBuilder());
                workers.execute(new Runnable() {
                    public void run() { Evaluation.warm(); }
                });
            }
        }
        return StatementParser.install(session);
    }

    /** Sets the regular expression for the beginning of statements on skipping indexes. */
    public void recognise(String statements) { StatementParser.recognise(statements); }

    /** Copies the functions of one session to all others, such as those of JDBC clients, at their next statement. */
    public void share(SparkSession session) { StatementParser.share(session); }

    /** A function from a session to its parser, after the rule and the parser were installed for it. */
    public java.util.function.Function installer() {
        return new java.util.function.Function() {
            public Object apply(Object session) {
                String refused = install((SparkSession) session, false);
                if (refused != null) {
                    LoggerFactory.getLogger("geoskip").warn(refused);
                }
                return ((SparkSession) session).sessionState().sqlParser();
            }
        };
    }

    /** The session in which a statement runs. */
    public SparkSession running(long number) { return StatementRunner.session(number); }

    /** Adds support for the tables of a format. */
    public void add(TableFormat format) { TableFormat.add(format); }

    /** Adds support for the tables of a format with DataSource V2 scans. */
    public void add(DataSourceV2Format format) { TableScan.add(format); }

    /** Records the reason why relations of the classes of a package are left alone. */
    public void missing(String packageName, String reason) { TableFormat.missing(packageName, reason); }

    /** True if the rule is installed for a session and this process decides for it. */
    public boolean installed(SparkSession session) { return installed.containsKey(session.extensions()) && owns(session); }

    /** The expressions that a frame projects, as JSON, in the form in which the rule gets them in a filter. */
    public String analyse(Dataset frame) throws Exception {
        captured.set(new ArrayList());
        try {
            frame.queryExecution().optimizedPlan();
            if (((List) captured.get()).isEmpty()) {
                optimizedUncached(frame.queryExecution().analyzed(), frame.sparkSession());
            }
            return Json.text(captured.get());
        } finally {
            captured.remove();
        }
    }

    /** Optimizes an analysed plan as if nothing were cached, since plans of cached data have no file relations. */
    static LogicalPlan optimizedUncached(final LogicalPlan plan, final SparkSession session) {
        return (LogicalPlan) SQLConf$.MODULE$.withExistingConf(session.sessionState().conf(), new AbstractFunction0() {
            public Object apply() { return session.sessionState().optimizer().execute((LogicalPlan) plan.clone()); }
        });
    }

    /** As `analyse`, but also keeps the expressions for `evaluate` until they are released: number, line feed, JSON. */
    public String hold(Dataset frame) throws Exception {
        List held = new ArrayList();
        parts.set(held);
        try {
            String written = analyse(frame);
            return Evaluation.hold(held, frame.sparkSession()) + "\n" + written;
        } finally {
            parts.remove();
        }
    }

    public void release(long number) { Evaluation.release(number); }

    /** The files that frames read. */
    public FrameFiles files() { return new FrameFiles(); }

    /** Waits until the files to be audited are read; false after the timeout. */
    public boolean audited(long budgetMs) throws InterruptedException { return Audit.finished(budgetMs); }

    /** The scans of files that an SQL text's query would read; null for a command. */
    public List scansOf(String text, SparkSession session) throws Exception { return PlannedScan.of(text, session); }

    /** The scans of files that a frame's query would read. */
    public List scansOf(Dataset frame) {
        return PlannedScan.of(frame.queryExecution().analyzed(), frame.sparkSession());
    }

    /** For each scan of `facts`, the conditions as JSON if it reads a table without metadata, else null. */
    public List undecided(Dataset frame) throws Exception {
        List conditions = new ArrayList();
        List planned = null;
        for (ScanFacts scan : facts(frame.queryExecution()).scans()) {
            if (scan.isUndecided() && planned == null) {
                planned = PlannedTable.of(frame.queryExecution().analyzed(), frame.sparkSession());
            }
            conditions.add(scan.isUndecided() ? scan.conditionAmong(planned) : null);
        }
        return conditions;
    }

    /** Leaves a frame's query out of the list of reports; `facts` still returns its report. */
    public void leaveOut(Dataset frame) { QueryListener.leaveOut(frame.queryExecution()); }

    /** Facts on the scans of a query's plan, which is planned now if it was not yet. */
    public PlanFacts facts(QueryExecution execution) { return new PlanFacts(execution, false); }
}
