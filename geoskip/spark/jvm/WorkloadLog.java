package geoskip;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import @Dataset@;
import @SparkSession@;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The conditions of the queries that a session has planned while spark.geoskip.workload is `on` or `literals`, and has
 * run: the newest different ones, with how often they were run and what they read.
 *
 * A condition is kept as its shape alone, without a literal (geoskip/advisor/condition_shape.py), unless literals are
 * allowed. Then its expressions are kept too, so that it can be planned again over the same files read anew; no listing
 * and no plan is.
 */
class WorkloadLog {
    private static final Logger LOG = LoggerFactory.getLogger("geoskip");
    private static final String SETTING = "spark.geoskip.workload";
    private static final int MOST = 1000;
    private static final int LONGEST = 2000;
    private static final long ANSWER_MS = 5000;

    /** What is known of one condition. */
    private static class Entry {
        String root;
        String text;
        long count;
        final long[] amounts = new long[4]; // see ScanFacts: sums over the runs
        long first;
        long last;
        SeenCondition seen; // null unless literals are allowed
    }

    private final LinkedHashMap entries = new LinkedHashMap(16, 0.75f, true) { // by root and text
        protected boolean removeEldestEntry(Map.Entry eldest) { return size() > MOST; }
    };

    /** Writes down what the session wants kept of the query that this thread plans: by the time it ends that may change. */
    static void plan(SparkSession session) {
        String text = session.sessionState().conf().getConfString(SETTING, "off").trim().toLowerCase(Locale.ROOT);
        if (text.equals("on") || text.equals("true") || text.equals("literals")) {
            QueryDecisions.current().keepsLiterals = Boolean.valueOf(text.equals("literals"));
        }
    }

    /** Takes in what a query read, if that was wanted when it was planned; in the thread of Spark's listeners. */
    void consider(QueryExecution execution, PlanFacts facts) {
        Boolean literals = QueryDecisions.of(execution.tracker()).keepsLiterals;
        if (literals == null) {
            return;
        }
        try {
            List left = new ArrayList(facts.scans());
            for (Object scan : PlannedScan.of(execution.analyzed(), execution.sparkSession())) {
                ScanFacts read = taken(left, (PlannedScan) scan);
                if (read != null) { // or it was cached, the same as another one, or not needed any more
                    add((PlannedScan) scan, read, literals.booleanValue());
                }
            }
        } catch (Exception failure) {
            LOG.warn("geoskip did not log the conditions of a query", failure);
        } catch (LinkageError unfit) {
            LOG.warn("geoskip did not log the conditions of a query", unfit);
        } catch (StackOverflowError deep) {
            LOG.warn("geoskip did not log the conditions of a query: they are nested too deeply");
        }
    }

    /**
     * The facts about a planned scan, taken out of a list: of the same conditions, else of the same files. Of a scan that
     * a plan has twice, as in a filter of partitions, one has read the files.
     */
    private static ScanFacts taken(List facts, PlannedScan scan) {
        ScanFacts found = null;
        for (int pass = 0; pass < 2 && found == null; pass++) {
            for (ScanFacts read : facts) {
                if ((pass == 0 ? read.isOf(scan) : read.mayBeOf(scan))
                        && (found == null || read.amounts()[2] > found.amounts()[2])) {
                    found = read;
                }
            }
        }
        facts.remove(found);
        return found;
    }

    private void add(PlannedScan scan, ScanFacts read, boolean literals) throws Exception {
        String text = literals ? scan.sortedCondition() : Geoskip.ask("shape " + scan.question(), ANSWER_MS);
        if (text == null || !literals && text.startsWith("{")) { // Python did not answer, or failed
            return;
        }
        long[] amounts = read.amounts();
        synchronized (this) {
            List key = Arrays.asList(new Object[] {scan.root(), text, literals});
            Entry entry = (Entry) entries.get(key);
            if (entry == null) {
                entry = new Entry();
                entry.root = scan.root();
                entry.text = text.length() <= LONGEST ? text : text.substring(0, LONGEST - 1) + "…";
                entry.first = System.currentTimeMillis();
                entries.put(key, entry);
            }
            entry.seen = literals ? new SeenCondition(scan) : null;
            entry.last = System.currentTimeMillis();
            entry.count++;
            for (int i = 0; i < amounts.length; i++) {
                entry.amounts[i] += amounts[i];
            }
        }
    }

    /** The conditions as JSON, the one seen last at the end. */
    synchronized String json() {
        List found = new ArrayList();
        for (Object entry : entries.values()) {
            Entry one = (Entry) entry;
            found.add(new Json().with("dataset", one.root).with("condition", one.text).with("count", one.count)
                    .with("amounts", one.amounts).with("first", one.first).with("last", one.last)
                    .with("read", one.seen == null ? null : one.seen.reader()));
        }
        return Json.text(found);
    }

    /** The condition at a place of `json`, if its literals were kept. */
    synchronized SeenCondition seen(int place) { return ((Entry) new ArrayList(entries.values()).get(place)).seen; }

}

/** The expressions of a condition, and how to read what they are over. */
class SeenCondition {
    private final List conditions; // bottom first
    private final Map names = new HashMap(); // of columns, by the ids that the conditions have
    private final Json reader;

    SeenCondition(PlannedScan scan) {
        conditions = scan.ownConditions();
        LogicalRelation relation = scan.relation;
        for (Attribute column : ScalaInterop.list(relation.output())) {
            names.put(column.exprId(), column.name());
        }
        HadoopFsRelation files = (HadoopFsRelation) relation.relation();
        Object format = files.fileFormat();
        reader = new Json().with("format", format instanceof DataSourceRegister
                        ? ((DataSourceRegister) format).shortName() : format.getClass().getName())
                .with("options", new Json().withAll(files.options())).with("schema", files.schema().json())
                .with("roots", scan.roots()).with("table", relation.catalogTable().isEmpty() ? null
                        : ((CatalogTable) relation.catalogTable().get()).identifier().quotedString());
    }

    /** Format, options, schema and roots, or the table. */
    Json reader() { return reader; }

    /** The scan of a frame that reads the files anew; null where it has not got all columns any more. */
    PlannedScan over(Dataset frame) {
        final Map columns = new HashMap();
        LogicalPlan plan = frame.queryExecution().analyzed();
        for (Attribute column : ScalaInterop.list(plan.output())) {
            columns.put(column.name(), column);
        }
        List renewed = new ArrayList();
        for (Expression condition : conditions) {
            for (Object read : ScalaInterop.list(condition.references().toSeq())) {
                if (!columns.containsKey(names.get(((Attribute) read).exprId()))) {
                    return null;
                }
            }
            renewed.add(condition.transform(new Replacement() {
                Object of(Object node) {
                    return node instanceof AttributeReference
                            ? columns.get(names.get(((AttributeReference) node).exprId())) : null;
                }
            }));
        }
        List scans = PlannedScan.of(Decision.filtered(plan, renewed), frame.sparkSession());
        return scans.size() == 1 ? (PlannedScan) scans.get(0) : null;
    }
}
