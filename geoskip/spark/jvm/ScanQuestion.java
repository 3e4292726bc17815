package geoskip;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import @SparkSession@;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The request to Python for a scan: its conditions as one line of JSON, then its environment (format, settings). */
class ScanQuestion {
    private static final Logger LOG = LoggerFactory.getLogger("geoskip");
    final Slots slots;
    final String text;
    private final SparkSession session;
    private final LogicalPlan relation;
    private final List datasets;
    private final List conditions;
    private final List expressions; // which differ although their texts are equal, such as functions

    /** On a relation of files; of the orders, of TopK, only the first rows are needed. */
    ScanQuestion(
            LogicalRelation relation, List directories, List datasets, List conditions, List orders, List barriers,
            SparkSession session) {
        this(relation, ((HadoopFsRelation) relation.relation()).partitionSchema(), directories, datasets, conditions,
                orders, barriers, QueryDecisions.current().environment(relation, session), session);
    }

    /** On a relation with this environment. */
    ScanQuestion(
            LogicalPlan relation, StructType partitions, List directories, List datasets, List conditions, List orders,
            List barriers, String environment, SparkSession session) {
        this.relation = relation;
        this.datasets = datasets;
        this.conditions = conditions;
        this.session = session;
        Names names = new Names(relation);
        slots = new Slots(partitions, names);
        List written = new ArrayList();
        for (Expression condition : conditions) {
            written.add(ExpressionJson.expression(condition, names, slots));
        }
        List first = new ArrayList();
        expressions = new ArrayList(conditions);
        for (TopK order : orders) {
            first.add(order.json(names, slots));
            expressions.add(order.by);
        }
        for (PartitionDirectory directory : directories) {
            slots.add(directory.values());
        }
        Json asked = new Json().with("datasets", datasets).with("conditions", written).with("vectors", slots.vectors())
                .with("barriers", barriers).with("budget", budget(session) / 1000.0);
        if (!first.isEmpty()) {
            asked.put("first", first);
        }
        text = asked + "\n" + environment;
    }

    /** The decision on the scan; on failure one that keeps all files, with the reason. */
    Decision decision() throws InterruptedException {
        try {
            return answered();
        } catch (InterruptedException cancelled) {
            throw cancelled;
        } catch (Exception failure) {
            LOG.warn("geoskip could not decide", failure);
            return Decision.none("no decision, so every file is read: " + failure);
        } catch (StackOverflowError deep) {
            return Decision.none("the condition is nested too deeply: every file is read");
        }
    }

    private Decision answered() throws Exception {
        long budget = budget(session);
        QueryDecisions planned = QueryDecisions.current();
        List scan = QueryDecisions.scan(text, expressions, relation);
        Decision first = planned.decision(scan);
        if (first != null) {
            return first;
        }
        long number = Evaluation.hold(conditions, session);
        String answer;
        try {
            Json head = new Json().with("number", number).with("asked", System.currentTimeMillis() / 1000.0);
            answer = Geoskip.ask(head + "\n" + text, budget); // only the head differs each time
        } finally {
            Evaluation.release(number);
        }
        return planned.keep(scan, Decision.of(answer, budget, datasets, slots));
    }

    /** The planning budget in milliseconds, from texts in Spark's format: "5", "5s", "500ms", "1m", "1min". */
    static long budget(SparkSession session) {
        String text = session.sessionState().conf().getConfString("spark.geoskip.planning.budget", "5").trim();
        int unit = text.endsWith("ms") ? 1 : text.endsWith("m") || text.endsWith("min") ? 60000 : 1000;
        try {
            return (long) (unit * Double.parseDouble(text.replaceAll("(ms|s|m|min)$", "")));
        } catch (NumberFormatException wrong) {
            return 5000;
        }
    }
}
