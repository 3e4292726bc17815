package geoskip;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import @SparkSession@;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.optimizer.PushDownLeftSemiAntiJoin$;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys;
import org.apache.spark.sql.catalyst.planning.ExtractSingleColumnNullAwareAntiJoin;
import org.apache.spark.sql.catalyst.plans.*;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.Option;
import scala.Tuple8;
import @Seq@;

/**
 * Filters on the scans below a join with a small other side, by its rows, which are known when a plan is run.
 *
 * A row without a partner is not needed in an inner join, on the side of a semi or outer join that is not preserved, and
 * on the left of a semi join. If Spark broadcasts the other side by the keys of the join, the filter is that of dynamic
 * partition pruning: the scan waits for the broadcast, and if there is none after all, the filter is TRUE. For other
 * conditions, such as those of spatial joins, a subquery collects the rows. See AnsweredScan for what follows.
 */
class DynamicFilePruning extends GuardedRule {
    static final DynamicFilePruning RULE = new DynamicFilePruning(true);
    private static final PushDownLeftSemiAntiJoin$ SELECTION = PushDownLeftSemiAntiJoin$.MODULE$;
    private static final int TIMES_SMALLER = 10; // a side that is run twice
    static final String LATER = "the other side of a join is known when the query runs: files are chosen by it then";

    private final boolean collects; // the rows of small sides, by subqueries

    private DynamicFilePruning(boolean collects) { this.collects = collects; }

    LogicalPlan changed(LogicalPlan plan) throws Exception {
        boolean isOn = plan.containsPattern(TreePattern.JOIN()) && conf().dynamicPartitionPruningEnabled()
                && conf().exchangeReuseEnabled() && isOn(SparkSession.active());
        boolean isOfOther = plan instanceof Subquery; // of a query whose optimization merges or joins it
        return isOn && !isOfOther && !plan.isStreaming() ? pruned(withSubqueries(plan)) : plan;
    }

    private LogicalPlan pruned(LogicalPlan plan) throws Exception {
        return pruned(plan, new ArrayList(), new ArrayList());
    }

    /**
     * A plan with the joins in its scalar subqueries pruned, without more subqueries within these: all of them are run in
     * the same few threads, so that they must not wait for each other.
     */
    private LogicalPlan withSubqueries(LogicalPlan plan) {
        return plan.containsPattern(TreePattern.CTE()) ? plan : (LogicalPlan) plan.transformAllExpressions(new Replacement() {
            Object of(Object node) {
                LogicalPlan inner = node instanceof ScalarSubquery ? (LogicalPlan) ((ScalarSubquery) node).plan() : null;
                try {
                    LogicalPlan changed = inner == null ? null : new DynamicFilePruning(false).pruned(inner);
                    return changed == inner ? null : ((ScalarSubquery) node).withNewPlan(changed);
                } catch (Exception failure) {
                    throw new IllegalStateException(failure);
                }
            }
        });
    }

    /**
     * A plan of which no row is needed that fails one of these filters, or one of the conditions, which its filters and
     * those above it contain.
     */
    private LogicalPlan pruned(LogicalPlan plan, List filters, List conditions) throws Exception {
        boolean isCopied = plan instanceof CTERelationDef; // for each reference, in which Spark renames columns
        if (isCopied || filters.isEmpty() && !plan.containsPattern(TreePattern.JOIN())) {
            return plan;
        }
        if (plan instanceof LogicalRelation) {
            return filtered((LogicalRelation) plan, filters);
        }
        if (plan instanceof Join && !isOfNearest((Join) plan)) {
            return joined((Join) plan, filters, conditions);
        }
        List filtersBelow = new ArrayList();
        List below = new ArrayList();
        if (plan instanceof Filter) {
            filtersBelow = filters;
            below.addAll(conditions);
            below.addAll(Decision.ownOf(Collections.singletonList(((Filter) plan).condition())));
        } else if (GeoskipRule.computed(plan) != null && ScalaInterop.deterministic(plan.expressions())) {
            filtersBelow = over((LogicalPlan) plan.children().head(), GeoskipRule.through(plan, filters));
            below = GeoskipRule.through(plan, conditions);
        }
        List children = ScalaInterop.list(plan.children());
        boolean any = false;
        for (int i = 0; i < children.size(); i++) {
            any |= replace(children, i, filtersBelow, below);
        }
        return any ? (LogicalPlan) plan.withNewChildren(ScalaInterop.seq(children)) : plan;
    }

    private LogicalPlan joined(Join join, List filters, List conditions) throws Exception {
        JoinType type = join.joinType();
        List sides = ScalaInterop.list(join.children());
        List[] below = {
            passesLeft(type) ? over((LogicalPlan) sides.get(0), filters) : new ArrayList(),
            passesRight(type) ? over((LogicalPlan) sides.get(1), filters) : new ArrayList()
        };
        List met = ScalaInterop.members(ScalaInterop.list(join.condition().toList()));
        met.addAll(type instanceof InnerLike ? conditions : new ArrayList());
        List lasting = type instanceof InnerLike ? met : new ArrayList();
        int small = small(join);
        boolean any = false;
        for (int i = 0; i < 2; i++) {
            if (i == 1 - small) {
                List added = byPartners(join, small, (LogicalPlan) sides.get(small), met);
                below[i].addAll(over((LogicalPlan) sides.get(i), added));
            }
            // the small side stays as it is: the filters contain its plan, as those by which Spark prunes partitions may
            any |= i != small && replace(sides, i, below[i], over((LogicalPlan) sides.get(i), lasting));
        }
        return any ? (LogicalPlan) join.withNewChildren(ScalaInterop.seq(sides)) : join;
    }

    /** True for Sedona's join with the nearest rows, which others would be if rows were missing. */
    static boolean isOfNearest(Join join) {
        boolean found = false;
        for (Expression member : ScalaInterop.members(ScalaInterop.list(join.condition().toList()))) {
            found |= member.getClass().getSimpleName().equals("ST_KNN");
        }
        return found;
    }

    private boolean replace(List plans, int at, List filters, List conditions) throws Exception {
        LogicalPlan plan = (LogicalPlan) plans.get(at);
        plans.set(at, pruned(plan, filters, conditions));
        return plans.get(at) != plan;
    }

    /** True if a row of the left side only leads to rows of the join with its own values. */
    private static boolean passesLeft(JoinType type) {
        return type instanceof InnerLike || type == LeftOuter$.MODULE$ || type == LeftSemi$.MODULE$
                || type == LeftAnti$.MODULE$;
    }

    private static boolean passesRight(JoinType type) {
        return type instanceof InnerLike || type == RightOuter$.MODULE$;
    }

    /** The filters that only read columns of a plan. */
    private static List over(LogicalPlan plan, List filters) {
        List found = new ArrayList();
        for (Expression filter : filters) {
            if (columns(filter).subsetOf(plan.outputSet())) {
                found.add(filter);
            }
        }
        return found;
    }

    /** The columns of the filtered side in a filter. */
    private static AttributeSet columns(Expression filter) {
        return filter instanceof Exists
                ? ((Expression) ((Exists) filter).joinCond().head()).references().$minus$minus(
                        ((LogicalPlan) ((Exists) filter).plan()).outputSet())
                : filter.references();
    }

    /**
     * The side, 0 or 1, of few rows, if rows of the other side without a partner are not needed; else -1.
     *
     * Spark must not send the other side, or it would do so once, while the rows of this side may have changed when a
     * DataFrame is run again. Of two small sides it sends the hinted or smaller one, of a left join the right one, and for
     * NOT IN it sends the right side of any size.
     */
    private int small(Join join) {
        JoinType type = join.joinType();
        JoinHint hint = join.hint();
        boolean isLeftHinted = SELECTION.hintToBroadcastLeft(hint);
        boolean isRightHinted = SELECTION.hintToBroadcastRight(hint);
        boolean isLeftSmall = isLeftHinted || !SELECTION.hintToNotBroadcastLeft(hint)
                && SELECTION.canBroadcastBySize((LogicalPlan) join.left(), conf());
        boolean isRightSmall = isRightHinted || !SELECTION.hintToNotBroadcastRight(hint)
                && SELECTION.canBroadcastBySize((LogicalPlan) join.right(), conf());
        if (type instanceof InnerLike) {
            boolean isLeftFirst = isLeftHinted != isRightHinted ? isLeftHinted
                    : ((LogicalPlan) join.left()).stats().sizeInBytes()
                            .$less(((LogicalPlan) join.right()).stats().sizeInBytes());
            return isLeftSmall && (isLeftFirst || !isRightSmall) ? 0 : isRightSmall ? 1 : -1;
        }
        if (type == LeftSemi$.MODULE$ && isRightSmall || type == RightOuter$.MODULE$ && isRightSmall && !isLeftSmall) {
            return 1;
        }
        boolean isLeftKept = type == LeftOuter$.MODULE$ || type == LeftSemi$.MODULE$
                || type == LeftAnti$.MODULE$ && ExtractSingleColumnNullAwareAntiJoin.unapply(join).isEmpty();
        return isLeftKept && isLeftSmall && !isRightSmall ? 0 : -1;
    }

    /** Filters on one side of a join by the rows of its small side, which becomes this plan. */
    private List byPartners(Join join, int small, LogicalPlan other, List conditions) throws Exception {
        Option equalities = ExtractEquiJoinKeys.unapply(join);
        boolean isSent = join.joinType() instanceof InnerLike || join.joinType() == LeftSemi$.MODULE$ && small == 1;
        if (isSent && equalities.isDefined()) {
            return byKeys((Tuple8) equalities.get(), small, other);
        }
        Expression all = null;
        for (Expression condition : Decision.ownOf(conditions)) {
            boolean isShared = !condition.references().intersect(other.outputSet()).isEmpty();
            all = !isShared ? all : all == null ? condition : new And(all, condition);
        }
        boolean isKept = equalities.isDefined() ? isShuffled(other) : !SELECTION.hintToShuffleReplicateNL(join.hint());
        boolean isUsed = collects && all != null && isKept && isWorthTwoRuns(join, small) && JoinedRows.isRepeatable(other);
        return isUsed ? Collections.singletonList(JoinedRows.partner(other, all)) : new ArrayList();
    }

    /**
     * True if Spark shuffles a side, and so keeps its rows for the next run. It does not if the side is partitioned by
     * the key, or if adaptive execution sends the other side while a join within this one still runs.
     */
    private static boolean isShuffled(LogicalPlan side) {
        LogicalPlan leaf = side;
        while (leaf.children().size() == 1) {
            leaf = (LogicalPlan) leaf.children().head();
        }
        if (leaf instanceof InMemoryRelation) {
            return ((InMemoryRelation) leaf).cachedPlan().outputPartitioning() instanceof UnknownPartitioning;
        }
        Object files = leaf instanceof LogicalRelation ? ((LogicalRelation) leaf).relation() : null;
        return leaf.children().isEmpty()
                && !(files instanceof HadoopFsRelation && ((HadoopFsRelation) files).bucketSpec().isDefined());
    }

    /** True if running the small side twice costs little beside the other side. */
    private static boolean isWorthTwoRuns(Join join, int small) {
        LogicalPlan[] sides = {(LogicalPlan) join.left(), (LogicalPlan) join.right()};
        return (small == 0 ? SELECTION.hintToBroadcastLeft(join.hint()) : SELECTION.hintToBroadcastRight(join.hint()))
                || sides[small].stats().sizeInBytes().$times(scala.math.BigInt.apply(TIMES_SMALLER))
                        .$less$eq(sides[1 - small].stats().sizeInBytes());
    }

    private static List byKeys(Tuple8 equalities, int small, LogicalPlan other) throws Exception {
        List filters = new ArrayList();
        Seq sent = (Seq) (small == 0 ? equalities._2() : equalities._3());
        List keys = ScalaInterop.list((Seq) (small == 0 ? equalities._3() : equalities._2()));
        for (int i = 0; i < keys.size(); i++) {
            Expression key = (Expression) keys.get(i);
            if (key.deterministic() && !key.references().isEmpty() && !ScalaInterop.holdsPlan(key)) {
                Expression filter = filter(key, other, sent, i);
                if (filter.resolved()) { // not if fields of structs have other names on the other side
                    filters.add(filter);
                }
            }
        }
        return filters;
    }

    private static Expression filter(Expression key, LogicalPlan other, Seq sent, int number) throws Exception {
        boolean isSingle = DynamicPruningSubquery.class.getConstructors()[0].getParameterTypes()[3] == int.class;
        Object numbers = Integer.valueOf(number);
        return (Expression) ScalaInterop.made(DynamicPruningSubquery.class, key, other, sent,
                isSingle ? numbers : ScalaInterop.seq(Collections.singletonList(numbers)), Boolean.TRUE);
    }

    /** A relation under the filters that read more than columns of partitions; itself if geoskip leaves it alone. */
    private static LogicalPlan filtered(LogicalRelation relation, List filters) throws Exception {
        List usable = new ArrayList();
        for (Expression filter : filters) {
            if (isOfFiles(filter, relation)) {
                usable.add(filter);
            }
        }
        if (usable.isEmpty()) {
            return relation;
        }
        GeoskipFileIndex decided = indexOf(relation);
        if (decided != null && decided.isOfJoin()) {
            return relation;
        }
        LogicalRelation skipping = decided == null ? new GeoskipRule(SparkSession.active()).undecided(relation)
                : (LogicalRelation) ScalaInterop.relocated(relation, decided.copy(), relation.catalogTable());
        GeoskipFileIndex index = indexOf(skipping);
        if (index == null) {
            return relation;
        }
        index.awaitKeys();
        return Decision.filtered(skipping, index.scan.planned(usable));
    }

    private static GeoskipFileIndex indexOf(LogicalRelation relation) {
        FileIndex location = ((HadoopFsRelation) relation.relation()).location();
        return location instanceof GeoskipFileIndex ? (GeoskipFileIndex) location : null;
    }

    /** True for a filter that reads other columns than those of partitions, which Spark prunes itself. */
    private static boolean isOfFiles(Expression filter, LogicalRelation relation) {
        boolean isCalled = filter instanceof DynamicPruningSubquery // Spark would not call the function
                && ((DynamicPruningSubquery) filter).pruningKey().containsPattern(TreePattern.PYTHON_UDF());
        if (isCalled || !(relation.relation() instanceof HadoopFsRelation)) {
            return false;
        }
        if (filter instanceof Exists && ((HadoopFsRelation) relation.relation()).bucketSpec().isDefined()) {
            return false; // without a shuffle, the next run of a plan reads the small side again
        }
        List partitions = Arrays.asList(((HadoopFsRelation) relation.relation()).partitionSchema().fieldNames());
        boolean found = false;
        for (Attribute column : ScalaInterop.list(columns(filter).toSeq())) {
            if (column.metadata().contains("__metadata_col")) {
                return false;
            }
            found |= !partitions.contains(column.name());
        }
        return found;
    }

    /** A plan of Spark's scan without these filters, which are added to a list. */
    static LogicalPlan without(LogicalPlan plan, final LogicalRelation relation, final List filters) {
        return !plan.containsPattern(TreePattern.PLAN_EXPRESSION()) ? plan : (LogicalPlan) plan.transformUp(new Replacement() {
            Object of(Object node) {
                return node instanceof Filter ? others((Filter) node, relation, filters) : null;
            }
        });
    }

    /** A filter node with only the other conditions; null if it has no such filter. */
    private static LogicalPlan others(Filter node, LogicalRelation relation, List filters) {
        List others = new ArrayList();
        List members = ScalaInterop.members(Collections.singletonList(node.condition()));
        for (Expression member : members) {
            boolean isOwn = member instanceof DynamicPruningSubquery ? isOfFiles(member, relation)
                    : indexOf(relation).scan.joinedBy(member) != null;
            (isOwn ? filters : others).add(member);
        }
        LogicalPlan child = (LogicalPlan) node.child();
        return others.size() == members.size() ? null : Decision.filtered(child, others);
    }
}
