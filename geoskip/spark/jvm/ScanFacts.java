package geoskip;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import org.apache.spark.util.AccumulatorV2;
import org.apache.spark.sql.util.QueryExecutionListener;
import scala.Option;
import @Seq@;

/** What a scan of an executed (or planned) query read, and what it could have. */
class ScanFacts {
    private final FileIndex location;
    private final Seq partitionFilters;
    private final Seq dataFilters;
    private final long readFiles;
    private final long readBytes;
    private final String reason;
    private final String filter;
    private List kept;
    private List all;

    private ScanFacts(FileSourceScanExec scan) {
        location = scan.relation().location();
        List fixed = new ArrayList();
        for (Iterator i = Scala.list(scan.partitionFilters()).iterator(); i.hasNext();) {
            Expression filter = (Expression) i.next();
            if (!Scala.holdsPlan(filter)) {
                fixed.add(filter);
            }
        }
        partitionFilters = Scala.seq(fixed);
        dataFilters = scan.dataFilters();
        readFiles = metric(scan, "numFiles");
        readBytes = metric(scan, "filesSize");
        reason = location instanceof GeoskipFileIndex ? null : Known.reason(scan.relation());
        filter = Scala.conjunction(scan.partitionFilters(), scan.dataFilters());
    }

    private ScanFacts(String reason) {
        location = null;
        partitionFilters = null;
        dataFilters = null;
        readFiles = 0;
        readBytes = 0;
        this.reason = reason;
        filter = "";
        kept = new ArrayList();
        all = kept;
    }

    private static long metric(FileSourceScanExec scan, String name) {
        scala.collection.Map metrics = scan.metrics();
        Option metric = metrics.get(name);
        return metric.isEmpty() ? 0 : ((Long) ((AccumulatorV2) metric.get()).value()).longValue();
    }

    static List of(QueryExecution execution) {
        List found = new ArrayList();
        collect(execution.executedPlan(), found);
        return found;
    }

    private static void collect(SparkPlan plan, List found) {
        if (plan instanceof AdaptiveSparkPlanExec) {
            collect(((AdaptiveSparkPlanExec) plan).executedPlan(), found);
            return;
        }
        if (plan instanceof QueryStageExec) {
            collect(((QueryStageExec) plan).plan(), found);
            return;
        }
        if (plan instanceof ReusedExchangeExec) {
            return; // its scan stands once elsewhere in the plan
        }
        if (plan instanceof FileSourceScanExec) {
            found.add(new ScanFacts((FileSourceScanExec) plan));
        } else if (plan instanceof BatchScanExec) {
            found.add(new ScanFacts("left alone: a DataSource V2 scan, " + ((BatchScanExec) plan).scan().description()));
        } else if (plan instanceof InMemoryTableScanExec) {
            collect(((InMemoryTableScanExec) plan).relation().cachedPlan(), found);
        }
        for (Iterator i = Scala.list(plan.subqueries()).iterator(); i.hasNext();) {
            collect((SparkPlan) i.next(), found);
        }
        for (Iterator i = Scala.list(plan.children()).iterator(); i.hasNext();) {
            collect((SparkPlan) i.next(), found);
        }
    }

    private synchronized List kept() {
        if (kept == null) {
            kept = Scala.files(location.listFiles(partitionFilters, dataFilters));
        }
        return kept;
    }

    private synchronized List all() {
        if (all == null) {
            FileIndex index = location instanceof GeoskipFileIndex ? ((GeoskipFileIndex) location).original : location;
            all = Scala.files(Scala.unpruned(index));
        }
        return all;
    }

    /** Totals, predicate and reasons as JSON; without a path in it. */
    public String summary() throws IOException {
        StringWriter text = new StringWriter();
        JsonGenerator json = Wire.FACTORY.createGenerator(text);
        json.writeStartObject();
        boolean executed = readFiles > 0;
        json.writeNumberField("files_total", all().size());
        json.writeNumberField("bytes_total", Scala.length(all()));
        json.writeNumberField("files_kept", executed ? readFiles : kept().size());
        json.writeNumberField("bytes_kept", executed ? readBytes : Scala.length(kept()));
        json.writeStringField("filter", filter);
        json.writeStringField("reason", reason);
        json.writeStringField("root", location == null ? "" : root());
        if (location instanceof GeoskipFileIndex) {
            Decision decision = ((GeoskipFileIndex) location).decision;
            json.writeNumberField("planning_seconds", decision.planningNanos / 1e9);
            json.writeFieldName("report");
            json.writeRawValue(decision.reply);
        }
        json.writeEndObject();
        json.close();
        return text.toString();
    }

    private String root() {
        List roots = Scala.list(location.rootPaths());
        if (roots.isEmpty()) {
            return "";
        }
        return roots.get(0) + (roots.size() > 1 ? " and " + (roots.size() - 1) + " more" : "");
    }

    /** The kept or the skipped files, as paths joined by NUL characters. */
    public String paths(boolean wanted) {
        HashMap keptPaths = new HashMap();
        for (Iterator i = kept().iterator(); i.hasNext();) {
            keptPaths.put(((FileStatusWithMetadata) i.next()).getPath().toString(), Boolean.TRUE);
        }
        StringBuilder text = new StringBuilder();
        for (Iterator i = all().iterator(); i.hasNext();) {
            String path = ((FileStatusWithMetadata) i.next()).getPath().toString();
            if (keptPaths.containsKey(path) == wanted) {
                text.append(text.length() == 0 ? "" : "\0").append(path);
            }
        }
        return text.toString();
    }
}

/** Remembers the scans of the last queries of a session. */
class Recent implements QueryExecutionListener {
    private static final int MOST = 50;
    private final List queries = new ArrayList();

    public void onSuccess(String function, QueryExecution execution, long nanos) {
        List scans;
        try {
            scans = ScanFacts.of(execution);
        } catch (Exception failure) {
            return; // a report is not worth a query
        }
        synchronized (queries) {
            queries.add(scans);
            if (queries.size() > MOST) {
                queries.remove(0);
            }
        }
    }

    public void onFailure(String function, QueryExecution execution, Exception failure) {}

    List copy() {
        synchronized (queries) {
            return new ArrayList(queries);
        }
    }
}
