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
 * The conditions of executed queries that a session has planned while spark.geoskip.workload was `on` or `literals`:
 * the newest distinct ones, with the number of runs and the files and bytes read.
 *
 * Only the shape of a condition is kept, without literals (geoskip/advisor/condition_text.py), unless literals are
 * enabled. Then its expressions are kept too, so that it can be planned again over a new listing of the files. No
 * listing and no plan is kept.
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
     * The list for the scans of the query that this thread plans; null if the log is off. The setting for literals is
     * stored now, since it may change before the query ends.
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

    /** Adds the scans of a query, if the log was on when it was planned; called in the thread of Spark's listeners. */
    void consider(QueryExecution execution, PlanFacts facts) {
        QueryDecisions planned = QueryDecisions.of(execution.tracker());
        if (planned.recorded == null) {
            return;
        }
        try {
            List left = new ArrayList(facts.scans());
            for (PlannedScan scan :
                    PlannedScan.in(execution.optimizedPlan(), planned.recorded, execution.sparkSession())) {
                ScanFacts read = null; // of equal scans, as in a dynamic partition filter, the one that read files
                for (ScanFacts other : left) {
                    if (other.isOf(scan) && (read == null || other.amounts()[2] > read.amounts()[2])) {
                        read = other;
                    }
                }
                if (left.remove(read)) { // else it equals another one, or was not executed
                    add(scan, read.amounts(), planned.keepsLiterals);
                }
            }
        } catch (Exception failure) { // a query must not fail because of the log
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

    /** The conditions as JSON, in order of the last run. */
    synchronized String json() {
        List found = new ArrayList();
        for (SeenCondition one : seen.values()) {
            found.add(one.told);
        }
        return Json.text(found);
    }

    /** The condition with a number of `json`; null if it was dropped for newer ones. */
    synchronized SeenCondition seen(long number) {
        for (SeenCondition one : seen.values()) {
            if (one.number == number) {
                return one;
            }
        }
        return null;
    }
}

/** The log entry of a condition, with its expressions if literals are kept. */
class SeenCondition {
    private static final int LONGEST = 2000;
    final Json told;
    final long number;
    private final long[] amounts = new long[4]; // see ScanFacts: sums over the runs
    private long count;
    private List conditions; // the lowest in the plan first
    private Names names; // of columns, by their ids in the conditions

    SeenCondition(String root, String text, long number) {
        this.number = number;
        String shown = text.length() <= LONGEST ? text : text.substring(0, LONGEST - 1) + "…";
        told = new Json().with("number", number).with("dataset", root).with("condition", shown)
                .with("first", System.currentTimeMillis());
    }

    /** Adds a run; the scan is null if literals are not kept. */
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

    /** The format, options, schema and roots of a scan, and its table if any. */
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

    /** The scan of a frame over the current files. Spark raises an error if it lacks some columns. */
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
