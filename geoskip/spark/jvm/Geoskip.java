// The part of geoskip that lives in the JVM: one optimizer rule, compiled in the driver by Janino when a session is
// enabled (geoskip/spark/session.py). Hence the plain Java: Janino knows no lambdas, no `var` and no catch of
// several types, generics are raw, and the names between @ signs are filled in for the running Spark. Janino casts in
// `for (Type item : rawList)`, as javac would not.
//
// The rule decides nothing itself. It finds filters above file relations that it knows exactly, writes them as JSON,
// asks Python (geoskip/spark/rule/bridge.py) which files of the dataset's snapshot cannot match, and wraps the relation's
// FileIndex in one that leaves those out of listFiles. Whatever goes wrong means that every file is read.
package geoskip;

import java.io.IOException;
import java.lang.ref.WeakReference;
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
import py4j.Py4JPythonClient;
import py4j.Py4JPythonClientPerThread;
import scala.runtime.AbstractFunction0;

/** What Python calls, and the state shared by all sessions of the driver. */
public final class Geoskip {
    private static final long MOST_FILES = 2000000; // in all tables but the last one used, some 250 bytes each
    private static final long CLOCKS_UNTIL = 7258118400L; // the year 2200; most zones go on for ever

    private static volatile java.util.function.Function bridge;
    private static volatile Py4JPythonClient carrier; // of what is asked of Python
    private static final Map installed = Collections.synchronizedMap(new WeakHashMap());
    private static final String me = Integer.toHexString(System.identityHashCode(Geoskip.class));
    private static volatile boolean second; // it leaves alone the sessions of another
    private static final Map listened = Collections.synchronizedMap(new WeakHashMap());
    private static final LinkedHashMap tables = new LinkedHashMap(16, 0.75f, true); // by root, the last used at the end
    static final ThreadLocal planning = new ThreadLocal();
    static final ThreadLocal captured = new ThreadLocal(); // a List of Json while an index is analysed
    static final ThreadLocal parts = new ThreadLocal(); // a List of the expressions themselves, where they are held

    /** As many threads as ever asked at once. They stay: Py4J never closes the connection that each has to Python. */
    private static final ExecutorService workers = new ThreadPoolExecutor(
            0, Integer.MAX_VALUE, Integer.MAX_VALUE, TimeUnit.DAYS, new SynchronousQueue(),
            ThreadUtils.namedThreadFactory("geoskip-planning"));

    /**
     * The JVM's property that says which Python process decides for a session, or for those with the same extensions
     * that no process has enabled itself: each process has classes of its own, which see no other place.
     */
    private static String owner(Object of) { return "geoskip.owner." + Integer.toHexString(System.identityHashCode(of)); }

    /** Does this Python process decide which files the queries of a session read? */
    static boolean owns(SparkSession session) {
        String own = System.getProperty(owner(session));
        return me.equals(own != null ? own : System.getProperty(owner(session.extensions())));
    }

    /** Leaves alone, from now on, the sessions for which another Python process of the driver has installed the rule. */
    public void leaveToOthers() { second = true; }

    /** Connects Python: a function from a request to an answer, both JSON, and Py4J's client that carries them. */
    public void connect(java.util.function.Function python, Py4JPythonClient client) {
        carrier = client;
        bridge = python;
    }

    /**
     * Lets this thread's connection send at once. Py4J writes what is longer than 8 KB in pieces, and the system holds
     * the second back until the first is acknowledged, which takes 40 ms: large polygons, Python functions.
     */
    static void hasten(java.util.function.Function python) {
        if (carrier instanceof Py4JPythonClientPerThread) {
            Py4JPythonClientPerThread client = (Py4JPythonClientPerThread) carrier;
            if (client.getPerThreadConnection() == null) {
                python.apply(""); // connects
            }
            ClientServerConnection connection = client.getPerThreadConnection();
            try {
                if (connection != null) {
                    connection.getSocket().setTcpNoDelay(true);
                }
            } catch (SocketException closed) { // Py4J opens another
                return;
            }
        }
    }

    /** Takes values in that conditions are to be evaluated for, under a name. */
    public void values(String name, byte[] block) { Evaluation.put(name, block); }

    /** The same from a file, which is quicker for many. */
    public void valuesOf(String name, String path) throws IOException {
        Evaluation.put(name, Files.readAllBytes(Paths.get(path)));
    }

    /** A part of a decision's conditions for these values: see Evaluation. */
    public byte[] evaluate(long number, String path, String bindings, boolean values, long budgetMs) {
        return Evaluation.evaluate(number, path, bindings, values, budgetMs);
    }

    /**
     * When the clocks of a time zone are set, by the tables that Spark itself uses (geoskip/bounds/time_zones.py): until
     * when they are told of, how far ahead of UTC they were first, then `time:ahead` for each change; in seconds.
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

    /** The newest facts about executed queries, oldest first. */
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

    /** What was kept of the condition with a number of `workload`; null where it is not kept any more. */
    public SeenCondition seen(SparkSession session, long number) { return listener(session).workload.seen(number); }

    /** The scan of a condition that was seen with its literals, over a frame of its files. */
    public PlannedScan planned(SeenCondition seen, Dataset frame) { return seen.over(frame); }

    /** Listens to a session once. The session keeps the listener: facts lead to it, so a strong value would pin it. */
    static void listen(SparkSession session) {
        synchronized (listened) {
            if (!listened.containsKey(session)) {
                QueryListener recent = new QueryListener();
                listened.put(session, new WeakReference(recent));
                session.listenerManager().register(recent);
            }
        }
    }

    /** Says that a dataset's metadata are reached through Python, not through a `_geoskip` folder. */
    public void register(String root) { MetadataLocator.register(root); }

    /** Forgets what was looked up: after an index was created or dropped. */
    public void forget() { MetadataLocator.forget(); }

    /** Asks Python for what takes its time, such as a build; in the caller's stead, so that it may be interrupted. */
    static String ask(final String request) throws Exception {
        return (String) workers.submit(new Callable() {
            public Object call() throws Exception {
                hasten(bridge);
                return bridge.apply(request);
            }
        }).get();
    }

    /** Asks Python within a budget; null when it does not answer in time. */
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

    /** The files of a snapshot by path, fetched once from Python; those of a root's older snapshots are forgotten. */
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
     * Installs the rule for a session and those made from it by newSession, once, and the parser of statements: the
     * answer says why it could not be installed, null where it was. Of several Python processes the last one that
     * `claims` a session decides for it, and one that does not where there is no other.
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

    /** Takes in how statements on skipping indexes begin, as a regular expression. */
    public void recognise(String statements) { StatementParser.recognise(statements); }

    /** Lets all sessions of the driver have the functions of one, as those of JDBC clients: from their first statement. */
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

    /** Takes in what touches the tables of a format. */
    public void add(TableFormat format) { TableFormat.add(format); }

    /** The same of a format whose scans are those of DataSource V2. */
    public void add(DataSourceV2Format format) { TableScan.add(format); }

    /** Says why relations of classes with a beginning of their names are left alone. */
    public void missing(String packageName, String reason) { TableFormat.missing(packageName, reason); }

    /** Is the rule installed for a session, and does it decide there? */
    public boolean installed(SparkSession session) { return installed.containsKey(session.extensions()) && owns(session); }

    /** The expressions that a frame projects, as the rule would meet them in a filter: JSON. */
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

    /** An analysed plan, optimized as if nothing of it were cached: what is cached has no files any more. */
    static LogicalPlan optimizedUncached(final LogicalPlan plan, final SparkSession session) {
        return (LogicalPlan) SQLConf$.MODULE$.withExistingConf(session.sessionState().conf(), new AbstractFunction0() {
            public Object apply() { return session.sessionState().optimizer().execute((LogicalPlan) plan.clone()); }
        });
    }

    /** The same, held for `evaluate` until they are released: their number, a line feed, JSON. */
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

    /** Waits until the skipped files that were to be audited are read; false if that took too long. */
    public boolean audited(long budgetMs) throws InterruptedException { return Audit.finished(budgetMs); }

    /** The scans of files that an SQL text's query would read; null for a command. */
    public List scansOf(String text, SparkSession session) throws Exception { return PlannedScan.of(text, session); }

    /** The scans of files that a frame's query would read. */
    public List scansOf(Dataset frame) {
        return PlannedScan.of(frame.queryExecution().analyzed(), frame.sparkSession());
    }

    /** For each scan of `facts` the conditions that are in no report, as JSON: of a table without metadata; else null. */
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

    /** Leaves a frame's query out of reports, of which one is still made by `facts`. */
    public void leaveOut(Dataset frame) { QueryListener.leaveOut(frame.queryExecution()); }

    /** What a query's plan reads, planned now if it was not yet. */
    public PlanFacts facts(QueryExecution execution) { return new PlanFacts(execution, false); }
}
