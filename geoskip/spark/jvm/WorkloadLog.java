package geoskip;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import @Dataset@;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The conditions of the queries that a session has planned while spark.geoskip.workload is `on` or `literals`, and has
 * run: the newest different ones, with how often they were run and what they read.
 *
 * A condition is kept as its shape alone, without a literal (geoskip/advisor/condition_text.py), unless literals are
 * allowed. Then its expressions are kept too, so that it can be planned again over the same files read anew; no listing
 * and no plan is.
 */
class WorkloadLog {
    private static final Logger LOG = LoggerFactory.getLogger("geoskip");
    private static final int MOST = 1000;
    private static final long MOST_CHARACTERS = 4000000; // of all conditions, each of which may list many values
    private static final long ANSWER_MS = 5000;

    private final LinkedHashMap seen = new LinkedHashMap(16, 0.75f, true); // SeenCondition by root, text and literals
    private long characters;
    private long numbered;

    /**
     * Where the scans of the query that this thread plans are recorded, null where the session keeps none. Literals are
     * kept as it wants now: by the time the query ends that may change.
     */
    static List recorded(SQLConf conf) {
        String text = conf.getConfString("spark.geoskip.workload", "off").trim().toLowerCase(Locale.ROOT);
        if (!text.equals("on") && !text.equals("true") && !text.equals("literals")) {
            return null;
        }
        QueryDecisions planned = QueryDecisions.current();
        planned.keepsLiterals = text.equals("literals");
        planned.recorded = planned.recorded == null ? new ArrayList() : planned.recorded;
        return planned.recorded;
    }

    /** Takes in what a query read, if that was wanted when it was planned; in the thread of Spark's listeners. */
    void consider(QueryExecution execution, PlanFacts facts) {
        QueryDecisions planned = QueryDecisions.of(execution.tracker());
        if (planned.recorded == null) {
            return;
        }
        try {
            List left = new ArrayList(facts.scans());
            for (PlannedScan scan :
                    PlannedScan.in(execution.optimizedPlan(), planned.recorded, execution.sparkSession())) {
                ScanFacts read = null; // of a scan that a plan has twice, as in a filter of partitions, one read the files
                for (ScanFacts other : left) {
                    if (other.isOf(scan) && (read == null || other.amounts()[2] > read.amounts()[2])) {
                        read = other;
                    }
                }
                if (left.remove(read)) { // else it is the same as another one, or was not needed any more
                    add(scan, read.amounts(), planned.keepsLiterals);
                }
            }
        } catch (Exception failure) { // a log is not worth a query
            LOG.debug("geoskip could not log the conditions of a query", failure);
        } catch (LinkageError unfit) {
            LOG.debug("geoskip could not log the conditions of a query", unfit);
        } catch (StackOverflowError deep) {
            LOG.debug("geoskip could not log the conditions of a query: its plan is nested too deeply");
        }
    }

    private void add(PlannedScan scan, long[] amounts, boolean literals) throws Exception {
        String text = literals ? scan.sortedCondition() : shape(scan);
        if (text == null || !literals && text.startsWith("{")) { // Python did not answer, or failed
            return;
        }
        String root = ScalaInterop.rootOf(scan.original);
        List key = Arrays.asList(new Object[] {root, text, literals});
        synchronized (this) {
            if (seen.get(key) == null) {
                seen.put(key, new SeenCondition(root, text, ++numbered));
                characters += text.length();
            }
            ((SeenCondition) seen.get(key)).add(amounts, literals ? scan : null);
            Iterator eldest = seen.keySet().iterator();
            while (seen.size() > MOST || characters > MOST_CHARACTERS && seen.size() > 1) {
                characters -= ((String) ((List) eldest.next()).get(1)).length();
                eldest.remove();
            }
        }
    }

    private static String shape(PlannedScan scan) throws Exception {
        Names names = new Names(scan.relation);
        List written = new ArrayList();
        for (Expression condition : scan.conditions) {
            written.add(ExpressionJson.expression(condition, names, null));
        }
        return Geoskip.ask("shape " + new Json().with("conditions", written), ANSWER_MS);
    }

    /** The conditions as JSON, the one seen last at the end. */
    synchronized String json() {
        List found = new ArrayList();
        for (SeenCondition one : seen.values()) {
            found.add(one.told);
        }
        return Json.text(found);
    }

    /** The condition with a number of `json`, null where newer ones have taken its room. */
    synchronized SeenCondition seen(long number) {
        for (SeenCondition one : seen.values()) {
            if (one.number == number) {
                return one;
            }
        }
        return null;
    }
}

/** What is told of a condition, and where literals are kept its expressions. */
class SeenCondition {
    private static final int LONGEST = 2000;
    final Json told;
    final long number;
    private final long[] amounts = new long[4]; // see ScanFacts: sums over the runs
    private long count;
    private List conditions; // the lowest of the plan first
    private Names names; // of columns, by the ids that the conditions have

    SeenCondition(String root, String text, long number) {
        this.number = number;
        String shown = text.length() <= LONGEST ? text : text.substring(0, LONGEST - 1) + "…";
        told = new Json().with("number", number).with("dataset", root).with("condition", shown)
                .with("first", System.currentTimeMillis());
    }

    /** Takes in a run; the scan is null without its literals. */
    void add(long[] read, PlannedScan scan) {
        for (int i = 0; i < read.length; i++) {
            amounts[i] += read[i];
        }
        if (scan != null) {
            conditions = scan.ownConditions();
            names = new Names(scan.relation);
        }
        told.with("amounts", amounts).with("count", ++count).with("last", System.currentTimeMillis())
                .with("read", scan == null ? null : reader(scan));
    }

    /** Format, options, schema and roots, or the table. */
    private static Json reader(PlannedScan scan) {
        HadoopFsRelation files = (HadoopFsRelation) scan.relation.relation();
        Object format = files.fileFormat();
        Object table = scan.relation.catalogTable().isEmpty() ? null : scan.relation.catalogTable().get();
        return new Json().with("format", format instanceof DataSourceRegister
                        ? ((DataSourceRegister) format).shortName() : format.getClass().getName())
                .with("options", new Json().withAll(files.options())).with("schema", files.schema().json())
                .with("roots", ScalaInterop.roots(scan.original))
                .with("table", table == null ? null : ((CatalogTable) table).identifier().quotedString());
    }

    /** The scan of a frame that reads the files anew. Spark says so where it has not got all columns any more. */
    PlannedScan over(Dataset frame) {
        final Map columns = new HashMap();
        LogicalPlan plan = frame.queryExecution().analyzed();
        for (Attribute column : ScalaInterop.list(plan.output())) {
            columns.put(column.name(), column);
        }
        List renewed = new ArrayList();
        for (Expression condition : conditions) {
            renewed.add(condition.transform(new Replacement() {
                Object of(Object node) {
                    return node instanceof AttributeReference ? columns.get(names.of((AttributeReference) node)) : null;
                }
            }));
        }
        Dataset filtered = Dataset.ofRows(frame.sparkSession(), Decision.filtered(plan, renewed));
        return (PlannedScan) PlannedScan.of(filtered.queryExecution().analyzed(), frame.sparkSession()).get(0);
    }
}
