package geoskip;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.CommandResult;
import org.apache.spark.sql.execution.CommandResultExec;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.LeafExecNode;
import org.apache.spark.sql.execution.LocalTableScanExec;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.ReusedSubqueryExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.FileScan;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import @SparkSession@;

/** What the scans of an executed (or planned) query read, and what is to be said of its other leaves. */
class PlanFacts {
    final List scans = new ArrayList(); // of ScanFacts
    final List notes = new ArrayList(); // why leaves that are no scans of files were left alone
    boolean unreported; // a query of geoskip's own
    private final List found = new ArrayList(); // of FileSourceScanExec
    private final List subqueries = new ArrayList();
    private final HashSet met = new HashSet(); // ids of cached plans
    private final SparkSession session;
    private QueryExecution execution; // while facts are collected

    /** The queries that filled caches, by the ids of the cached plans; the last ones. */
    private static final LinkedHashMap filled = new LinkedHashMap() {
        protected boolean removeEldestEntry(Map.Entry eldest) { return size() > 10000; }
    };

    PlanFacts(QueryExecution execution) {
        this.execution = execution;
        session = execution.sparkSession();
        if (execution.commandExecuted() instanceof CommandResult) { // of a frame that stands for an INSERT
            collect(((CommandResult) execution.commandExecuted()).commandPhysicalPlan());
        } else {
            collect(execution.executedPlan());
        }
        this.execution = null;
        found.clear(); // plans lead to what they read, made and broadcast
        subqueries.clear();
    }

    private void collect(SparkPlan plan) {
        if (plan instanceof AdaptiveSparkPlanExec) {
            collect(((AdaptiveSparkPlanExec) plan).executedPlan());
            dropped(((AdaptiveSparkPlanExec) plan).initialPlan());
        } else if (plan instanceof QueryStageExec) {
            collect(((QueryStageExec) plan).plan());
        } else if (plan instanceof CommandResultExec) {
            collect(((CommandResultExec) plan).commandPhysicalPlan());
        } else if (!(plan instanceof ReusedExchangeExec || plan instanceof ReusedSubqueryExec)) {
            // what is reused stands once elsewhere in the plan
            leaf(plan);
            for (Iterator i = ScalaInterop.list(plan.subqueries()).iterator(); i.hasNext();) {
                subquery((SparkPlan) i.next());
            }
            for (Iterator i = ScalaInterop.list(plan.children()).iterator(); i.hasNext();) {
                collect((SparkPlan) i.next());
            }
        }
    }

    /** Scans that adaptive execution took out of its plan when they, or what they meet, had turned out empty. */
    private void dropped(SparkPlan plan) {
        if (plan instanceof FileSourceScanExec) {
            for (Iterator i = found.iterator(); i.hasNext();) {
                if (((SparkPlan) i.next()).sameResult(plan)) {
                    return;
                }
            }
            found.add(plan);
            scans.add(new ScanFacts((FileSourceScanExec) plan, session).finished());
        }
        for (Iterator i = ScalaInterop.list(plan.children()).iterator(); i.hasNext();) {
            dropped((SparkPlan) i.next());
        }
    }

    /** A subquery, once: it stands in a filter and in the scan that the filter was pushed to, and runs once. */
    private void subquery(SparkPlan plan) {
        for (Iterator i = subqueries.iterator(); i.hasNext();) {
            if (((SparkPlan) i.next()).sameResult(plan)) {
                return;
            }
        }
        subqueries.add(plan);
        collect(plan);
    }

    private void leaf(SparkPlan plan) {
        if (plan instanceof FileSourceScanExec) {
            found.add(plan);
            scans.add(new ScanFacts((FileSourceScanExec) plan, session));
            FileIndex location = ((FileSourceScanExec) plan).relation().location();
            unreported |= location instanceof GeoskipFileIndex && ((GeoskipFileIndex) location).isUnreported;
        } else if (plan instanceof InMemoryTableScanExec) {
            SparkPlan cached = ((InMemoryTableScanExec) plan).relation().cachedPlan();
            if (met.add(Integer.valueOf(cached.id()))) {
                if (isFilledBefore(((InMemoryTableScanExec) plan).relation())) {
                    notes.add("left alone: cached data, of which no file is read again");
                } else {
                    collect(cached);
                }
            }
        } else if (plan instanceof BatchScanExec && ((BatchScanExec) plan).scan() instanceof FileScan) {
            scans.add(new ScanFacts((FileScan) ((BatchScanExec) plan).scan(), session));
        } else if (plan instanceof BatchScanExec) {
            notes.add("left alone: a DataSource V2 scan, " + ((BatchScanExec) plan).scan().description());
        } else if (plan instanceof LeafExecNode && plan.getClass().getName().startsWith("org.apache.spark.sql.")
                && !plan.nodeName().startsWith("Execute ") && !isEmpty(plan)) {
            notes.add("left alone: " + plan.nodeName() + " reads no files that geoskip knows");
        }
    }

    /** Is a cache full, and not by this query? The first one that is seen to find it full has filled it. */
    private boolean isFilledBefore(InMemoryRelation relation) {
        if (!relation.cacheBuilder().isCachedColumnBuffersLoaded()) {
            return false;
        }
        Integer plan = Integer.valueOf(relation.cachedPlan().id());
        synchronized (filled) {
            if (!filled.containsKey(plan)) {
                filled.put(plan, new WeakReference(execution));
            }
            return ((WeakReference) filled.get(plan)).get() != execution;
        }
    }

    private static boolean isEmpty(SparkPlan plan) {
        return plan.nodeName().equals("EmptyRelation")
                || plan instanceof LocalTableScanExec && ((LocalTableScanExec) plan).rows().isEmpty();
    }

    /** What holding these facts keeps in memory beside what was met already, as a number of listed files. */
    long weigh(IdentityHashMap met) {
        long files = 0;
        for (Iterator i = scans.iterator(); i.hasNext();) {
            files += ((ScanFacts) i.next()).weigh(met);
        }
        return files;
    }

    public List scans() { return scans; }

    public List notes() { return notes; }
}
