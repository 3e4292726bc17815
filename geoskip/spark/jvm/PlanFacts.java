package geoskip;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import @SparkSession@;
import org.apache.spark.sql.catalyst.plans.logical.CommandResult;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.CommandResultExec;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.LeafExecNode;
import org.apache.spark.sql.execution.LocalTableScanExec;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.ReusedSubqueryExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SubqueryAdaptiveBroadcastExec;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.FileScan;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import org.apache.spark.sql.util.QueryExecutionListener;

/** Facts on the scans of an executed (or planned) query, and notes on its other leaves. */
class PlanFacts {
    final List scans = new ArrayList(); // of ScanFacts
    final List notes = new ArrayList(); // reasons why leaves that are not scans of files were left alone
    private final List found = new ArrayList(); // of FileSourceScanExec, and of BatchScanExec of table formats
    private final List subqueries = new ArrayList();
    private final List adaptive = new ArrayList(); // the plans that adaptive execution has changed
    private final HashSet met = new HashSet(); // ids of cached plans
    private final SparkSession session;
    private QueryExecution execution; // while facts are collected
    private final boolean isAgain; // true if it has run before, and has filled its caches then
    private final String sql; // the query's text; null if it was created by DataFrame methods
    private final WeakReference analyzed; // the plan; weak, since it may keep much in memory
    private final Json settings; // geoskip's settings that are set

    /** The queries that filled caches, by the ids of the cached plans; the last ones. */
    private static final LinkedHashMap filled = new LinkedHashMap() {
        protected boolean removeEldestEntry(Map.Entry eldest) { return size() > 10000; }
    };

    PlanFacts(QueryExecution execution, boolean isAgain) {
        this.execution = execution;
        this.isAgain = isAgain;
        session = execution.sparkSession();
        sql = textOf(execution.logical());
        analyzed = new WeakReference(execution.analyzed());
        settings = SupportedRelations.own(session.sessionState().conf());
        if (execution.commandExecuted() instanceof CommandResult) { // of a frame for an INSERT
            collect(((CommandResult) execution.commandExecuted()).commandPhysicalPlan());
        } else {
            collect(execution.executedPlan());
        }
        for (SparkPlan initial : adaptive) {
            dropped(initial);
        }
        this.execution = null;
        found.clear(); // plans refer to the data that they read, created and broadcast
        subqueries.clear();
        adaptive.clear();
    }

    private void collect(SparkPlan plan) {
        if (plan instanceof AdaptiveSparkPlanExec) {
            collect(((AdaptiveSparkPlanExec) plan).executedPlan());
            adaptive.add(((AdaptiveSparkPlanExec) plan).initialPlan());
        } else if (plan instanceof QueryStageExec) {
            collect(((QueryStageExec) plan).plan());
        } else if (plan instanceof CommandResultExec) {
            collect(((CommandResultExec) plan).commandPhysicalPlan());
        } else if (!(plan instanceof ReusedExchangeExec)) { // its plan occurs once elsewhere
            leaf(plan);
            for (SparkPlan subquery : ScalaInterop.list(plan.subqueries())) {
                boolean isReused = subquery instanceof ReusedSubqueryExec; // in a filter and in the scan below it runs once
                SparkPlan run = isReused ? ((ReusedSubqueryExec) subquery).child() : subquery;
                boolean isOfJoin = run instanceof SubqueryAdaptiveBroadcastExec; // the plan of the join's other side
                if (!isOfJoin && ScalaInterop.isNew(run, subqueries)) {
                    collect(run);
                }
            }
            for (SparkPlan child : ScalaInterop.list(plan.children())) {
                collect(child);
            }
        }
    }

    /** Adds scans that adaptive execution removed from its plan, since they or the other side of a join were empty. */
    private void dropped(SparkPlan plan) {
        for (SparkPlan leaf : ScalaInterop.list(plan.collectLeaves())) {
            if (leaf instanceof FileSourceScanExec && ScalaInterop.isNew(fixed((FileSourceScanExec) leaf), found)) {
                scans.add(new ScanFacts((FileSourceScanExec) leaf, session).finished());
            } else if (leaf instanceof BatchScanExec && !isFound(((BatchScanExec) leaf).scan())) {
                isOfTable((BatchScanExec) leaf);
            }
        }
    }

    /** A scan without filters over subqueries, which Spark plans anew when it changes a plan. */
    private static FileSourceScanExec fixed(FileSourceScanExec scan) {
        return (FileSourceScanExec) scan.makeCopy(ScalaInterop.fields(
                scan, ScalaInterop.fixed(scan.partitionFilters()), ScalaInterop.fixed(scan.dataFilters())));
    }

    /** True if there is a node with this scan. Nodes are not compared, since storage-partitioned joins change them. */
    private boolean isFound(Scan scan) {
        for (Object node : found) {
            if (node instanceof BatchScanExec && ((BatchScanExec) node).scan() == scan) {
                return true;
            }
        }
        return false;
    }

    private void leaf(SparkPlan plan) {
        if (plan instanceof FileSourceScanExec) {
            found.add(fixed((FileSourceScanExec) plan));
            scans.add(new ScanFacts((FileSourceScanExec) plan, session));
        } else if (plan instanceof InMemoryTableScanExec) {
            SparkPlan cached = ((InMemoryTableScanExec) plan).relation().cachedPlan();
            if (met.add(cached.id())) {
                if (isFilledBefore(((InMemoryTableScanExec) plan).relation())) {
                    notes.add("left alone: cached data, of which no file is read again");
                } else {
                    collect(cached);
                }
            }
        } else if (plan instanceof BatchScanExec && ((BatchScanExec) plan).scan() instanceof FileScan) {
            scans.add(new ScanFacts((FileScan) ((BatchScanExec) plan).scan(), session));
        } else if (plan instanceof BatchScanExec && isOfTable((BatchScanExec) plan)) {
            found.add(plan);
        } else if (plan instanceof BatchScanExec) {
            String problem = TableFormat.problem(((BatchScanExec) plan).scan().getClass().getName());
            notes.add("left alone: " + (problem != null ? problem
                    : "a DataSource V2 scan, " + ((BatchScanExec) plan).scan().description()));
        } else if (plan instanceof LeafExecNode && plan.getClass().getName().startsWith("org.apache.spark.sql.")
                && !plan.nodeName().startsWith("Execute ") && !isEmpty(plan)) {
            notes.add("left alone: " + plan.nodeName() + " reads no files that geoskip knows");
        }
    }

    /** Adds the facts of a scan of a table format; false for another scan. */
    private boolean isOfTable(BatchScanExec plan) {
        TableScan table = TableScan.of(plan.scan(), plan.table());
        if (table != null && table.reason != null && table.files.isEmpty()) {
            notes.add(table.reason);
        } else if (table != null) {
            scans.add(new TableScanFacts(table, plan, session));
        }
        return table != null;
    }

    /** True if a cache was filled by another query: by the first query that was seen with the filled cache. */
    private boolean isFilledBefore(InMemoryRelation relation) {
        if (!relation.cacheBuilder().isCachedColumnBuffersLoaded()) {
            return false;
        }
        Integer plan = Integer.valueOf(relation.cachedPlan().id());
        synchronized (filled) {
            filled.putIfAbsent(plan, new WeakReference(execution));
            return isAgain || ((WeakReference) filled.get(plan)).get() != execution;
        }
    }

    private static boolean isEmpty(SparkPlan plan) {
        return plan.nodeName().equals("EmptyRelation")
                || plan instanceof LocalTableScanExec && ((LocalTableScanExec) plan).rows().isEmpty();
    }

    /** The additional memory of these facts, without objects already in `met`, as a number of listed files. */
    long weigh(IdentityHashMap met) {
        long files = 0;
        for (ScanFacts scan : scans) {
            files += scan.weigh(met);
        }
        return files;
    }

    /** The text from which a plan, or the plan below operations with one child, such as count(), was parsed. */
    private static String textOf(LogicalPlan plan) {
        while (plan.origin().sqlText().isEmpty()) {
            if (plan.children().size() != 1) {
                return null;
            }
            plan = (LogicalPlan) plan.children().apply(0);
        }
        return (String) plan.origin().sqlText().get();
    }

    /** The query and its settings as JSON: its text, else its plan while that is in memory. */
    public String context() {
        LogicalPlan plan = sql == null ? (LogicalPlan) analyzed.get() : null;
        return new Json().with("sql", sql).with("plan", plan == null ? null : plan.treeString())
                .with("settings", settings).toString();
    }

    public List scans() { return scans; }
    public List notes() { return notes; }
}

/**
 * Keeps facts on the last queries of a session. They keep file listings in memory, which would otherwise be released
 * with the DataFrame: so fewer queries are kept if listings are large. They also keep the session in memory: so only
 * the sessions with the most recent queries are kept, or a server with a session for each user would release none.
 */
class QueryListener implements QueryExecutionListener {
    private static final int MOST = 50;
    private static final int MOST_SESSIONS = 8;
    static long mostFiles = 200000; // in all listings but those of the last query, some 600 bytes each
    private static final List sessions = new ArrayList(); // of weak references, in order of the last query
    private static final Map ended = new WeakHashMap(); // queries that have run
    private static final Map ownQueries = Collections.synchronizedMap(new WeakHashMap()); // geoskip's
    private final WeakReference here = new WeakReference(this);
    private final List queries = new ArrayList(); // of PlanFacts
    final WorkloadLog workload = new WorkloadLog();

    /** Leaves a query that geoskip itself runs out of reports. */
    static void leaveOut(QueryExecution execution) { ownQueries.put(execution, Boolean.TRUE); }

    public void onSuccess(String function, QueryExecution execution, long nanos) {
        if (ownQueries.containsKey(execution)) {
            return;
        }
        PlanFacts facts;
        try {
            facts = new PlanFacts(execution, ended.put(execution, Boolean.TRUE) != null);
        } catch (Exception failure) {
            return; // a query must not fail because of its report
        }
        if (function.equals("command") && facts.scans.isEmpty()) {
            return; // SET, CREATE VIEW, EXPLAIN: nothing was read
        }
        synchronized (sessions) {
            sessions.remove(here);
            sessions.add(here);
            queries.add(facts);
            shorten();
        }
        workload.consider(execution, facts);
        Audit.consider(facts.scans, execution.sparkSession());
    }

    /** Drops the oldest queries of each session, and all of sessions without recent queries. */
    private static void shorten() {
        IdentityHashMap met = new IdentityHashMap();
        long files = 0;
        boolean isLast = true;
        for (int s = sessions.size() - 1; s >= 0; s--) {
            QueryListener recent = (QueryListener) ((WeakReference) sessions.get(s)).get();
            boolean stays = recent != null && sessions.size() - s <= MOST_SESSIONS;
            int kept = 0;
            for (int at = stays ? recent.queries.size() - 1 : -1; at >= 0 && kept < MOST; at--) {
                long weight = ((PlanFacts) recent.queries.get(at)).weigh(met);
                files += isLast ? 0 : weight;
                if (files > mostFiles) {
                    break;
                }
                isLast = false;
                kept++;
            }
            if (recent != null) {
                recent.queries.subList(0, recent.queries.size() - kept).clear();
            }
            if (!stays) {
                sessions.remove(s);
            }
        }
    }

    public void onFailure(String function, QueryExecution execution, Exception failure) {}

    List copy() {
        synchronized (sessions) {
            return new ArrayList(queries);
        }
    }
}
