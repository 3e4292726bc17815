package geoskip;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import @SparkSession@;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.optimizer.ConstantFolding$;
import org.apache.spark.sql.catalyst.optimizer.NormalizeNaNAndZero;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.util.TypeUtils$;
import org.apache.spark.sql.execution.InSubqueryExec;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.BinaryType;
import org.slf4j.LoggerFactory;
import scala.Option;

/**
 * A scan that is decided on again when it is first run, by the answers of scalar subqueries in its filters, and by the
 * other sides of joins: see DynamicFilePruning.
 *
 * Spark 4 has filters over such subqueries in its scans, runs the subqueries before it lists the files, and pushes their
 * answers to Parquet's reader, so that rows which fail such a filter are not needed.
 */
class AnsweredScan {
    private static final int MOST_KEYS = 10000; // of a join; of more, the least and the greatest are used
    private final SparkSession session;
    private final LogicalRelation relation;
    private final List directories;
    private final List datasets;
    private final List barriers;
    private final List joined = new ArrayList(); // of JoinedRows
    private long threshold; // of sides that Spark took for small when it optimized the query
    private boolean isOutdated;

    AnsweredScan(SparkSession session, LogicalRelation relation, List directories, List datasets, List barriers) {
        this.session = session;
        this.relation = relation;
        this.directories = directories;
        this.datasets = datasets;
        this.barriers = barriers;
    }

    AnsweredScan copy() { return new AnsweredScan(session, relation, directories, datasets, barriers); }

    /** Filters of joins as they are put into the plan. */
    List planned(List filters) throws Exception {
        List planned = new ArrayList();
        threshold = SQLConf.get().autoBroadcastJoinThreshold();
        for (Expression filter : filters) {
            if (filter instanceof Exists) {
                JoinedRows rows = new JoinedRows((Exists) filter, relation);
                joined.add(rows);
                planned.add(rows.filter());
            } else {
                planned.add(filter);
            }
        }
        return planned;
    }

    /**
     * False if Spark may plan joins otherwise than when it optimized the query, now or at an earlier call: adaptive
     * execution plans the scan again, and knows only the subqueries of the first plan.
     */
    synchronized boolean isCurrent() {
        isOutdated |= !SQLConf.get().dynamicPartitionPruningEnabled()
                || SQLConf.get().autoBroadcastJoinThreshold() != threshold;
        return !isOutdated;
    }

    /** The join from whose other side a filter collects the rows, or null. */
    JoinedRows joinedBy(Expression filter) {
        for (JoinedRows rows : joined) {
            if (rows.isFilter(filter)) {
                return rows;
            }
        }
        return null;
    }

    /** The decision by some conditions, and by orders of which only the first rows are needed, of TopK. */
    Decision decide(List conditions, List first) throws Exception {
        return new ScanQuestion(relation, directories, datasets, conditions, first, barriers, session).decision();
    }

    /**
     * Skips more files by the condition that a row is among the first of one of these orders, if files prove one in what
     * is left of the budget; planning began at a time in nanoseconds.
     */
    void narrow(Decision decision, List first, long began) throws Exception {
        long budget = ScanQuestion.budget(session);
        long left = budget - (System.nanoTime() - began) / 1000000;
        CountedFiles counted = left <= 0 ? null : TopK.proof(first, decision, directories, budget, left);
        if (counted == null) {
            decision.note = TopK.described(first) + " may be in any file: the metadata prove no bound";
            return;
        }
        List conditions = new ArrayList(decision.conditions);
        conditions.add(counted.proved);
        decision.replaceBy(decide(conditions, new ArrayList()), conditions);
        decision.counted = counted;
        decision.note = "only rows with " + PlannedScan.text(counted.proved) + " can be " + TopK.described(first);
    }

    /** True if the answer to one of the subqueries in these conditions may be used. */
    static boolean asks(List conditions) {
        for (Expression condition : conditions) {
            if (isAnswerable(condition)) {
                return true;
            }
        }
        return false;
    }

    private static boolean isAnswerable(Expression condition) {
        boolean found = condition instanceof ScalarSubquery || condition instanceof InSubqueryExec
                || condition instanceof org.apache.spark.sql.execution.ScalarSubquery;
        if (!found && ScalaInterop.holdsPlan(condition)) {
            for (Expression child : ScalaInterop.list(condition.children())) {
                found |= isAnswerable(child);
            }
        }
        return found;
    }

    /** Replaces a decision by one with the answers in a scan's filters, as far as they are known. */
    void decideAgain(Decision first, List filters) {
        long started = System.nanoTime();
        List conditions = new ArrayList();
        try {
            for (Expression filter : filters) {
                Expression answered = isAnswerable(filter) ? answered(filter) : null;
                if (answered != null) {
                    conditions.add(answered);
                }
            }
            if (conditions.isEmpty()) {
                return;
            }
            for (Expression member : ScalaInterop.members(first.usedConditions())) {
                boolean isJoin = member instanceof InSubquery || member instanceof Exists; // Spark has made it one
                if (!isAnswerable(member) && !isJoin) {
                    conditions.add(member);
                }
            }
            first.replaceBy(decide(conditions, new ArrayList()), conditions);
            first.planningNanos += System.nanoTime() - started;
        } catch (InterruptedException cancelled) {
            Thread.currentThread().interrupt();
        } catch (Exception failure) {
            LoggerFactory.getLogger("geoskip").warn("geoskip could not use the answer of a subquery", failure);
        } catch (StackOverflowError deep) {
            LoggerFactory.getLogger("geoskip").warn("geoskip could not use the answer of a subquery: nested too deeply");
        }
    }

    /** The condition that a key is among those of a join's other side; null if they are not known. */
    private static Expression among(Expression filter) {
        Option known = filter instanceof InSubqueryExec ? ((InSubqueryExec) filter).values() : Option.empty();
        if (known.isEmpty()) {
            return null;
        }
        Expression key = ((InSubqueryExec) filter).child();
        while (key instanceof KnownFloatingPointNormalized || key instanceof NormalizeNaNAndZero) {
            key = (Expression) key.children().head(); // whose values compare equally
        }
        Object[] values = (Object[]) known.get();
        if (values.length <= MOST_KEYS) {
            return new InSet(key, ScalaInterop.seq(Arrays.asList(values)).toSet());
        }
        values = Arrays.copyOf(values, values.length);
        Arrays.sort(values, TypeUtils$.MODULE$.getInterpretedOrdering(key.dataType()));
        return new And(new GreaterThanOrEqual(key, new Literal(values[0], key.dataType())),
                new LessThanOrEqual(key, new Literal(values[values.length - 1], key.dataType())));
    }

    /** A filter with the answers of its subqueries as constants; null if one is not known. */
    private Expression answered(Expression filter) {
        try {
            JoinedRows rows = joinedBy(filter);
            Expression known = rows != null ? rows.answered(filter) : (Expression) filter.transform(new Replacement() {
                Object of(Object node) {
                    if (node instanceof DynamicPruningExpression) {
                        return among(((DynamicPruningExpression) node).child());
                    }
                    Expression subquery = (Expression) node;
                    if (!(node instanceof org.apache.spark.sql.execution.ScalarSubquery)
                            || subquery.dataType() instanceof BinaryType) { // Spark's Bloom filters of joins
                        return null;
                    }
                    return Literal$.MODULE$.create(subquery.eval(null), subquery.dataType());
                }
            });
            return known == null || ScalaInterop.holdsPlan(known) ? null
                    : ((Filter) ConstantFolding$.MODULE$.apply(new Filter(known, relation))).condition();
        } catch (IllegalArgumentException unfinished) {
            return null;
        }
    }
}
