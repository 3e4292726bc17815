package geoskip;

import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import @SparkSession@;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.optimizer.PushDownLeftSemiAntiJoin$;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys;
import org.apache.spark.sql.catalyst.plans.*;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.Option;
import scala.Tuple8;
import @Seq@;

/**
 * Filters on the scans below a broadcast join, over the keys that are broadcast: Spark's dynamic partition pruning, for
 * files.
 *
 * A row whose key is not among those of the other side has no partner in an inner or left semi join, so that it is not
 * needed. Spark plans these filters as it does for columns of partitions: the scan waits for the broadcast of the join,
 * and if there is none after all, the filter is TRUE. The keys are known when the scan lists its files: see AnsweredScan.
 */
class DynamicFilePruning extends GuardedRule {
    static final DynamicFilePruning RULE = new DynamicFilePruning();
    private static final PushDownLeftSemiAntiJoin$ SELECTION = PushDownLeftSemiAntiJoin$.MODULE$;
    static final String LATER = "the keys of a join are known when the query runs: files are chosen by them then";

    LogicalPlan changed(LogicalPlan plan) throws Exception {
        boolean isOn = plan.containsPattern(TreePattern.JOIN()) && conf().dynamicPartitionPruningEnabled()
                && conf().exchangeReuseEnabled() && isOn(SparkSession.active());
        return isOn ? pruned(plan, new ArrayList()) : plan;
    }

    /** A plan of which no row is needed that fails one of these filters. */
    private LogicalPlan pruned(LogicalPlan plan, List filters) throws Exception {
        if (filters.isEmpty() && !plan.containsPattern(TreePattern.JOIN())) {
            return plan;
        }
        if (plan instanceof LogicalRelation) {
            return filtered((LogicalRelation) plan, filters);
        }
        List children = ScalaInterop.list(plan.children());
        List below = new ArrayList(); // for each child, the filters on its rows
        for (Object child : children) {
            below.add(new ArrayList());
        }
        int broadcast = -1;
        if (plan instanceof Join) {
            Join join = (Join) plan;
            below.set(0, passesLeft(join.joinType()) ? over((LogicalPlan) join.left(), filters) : new ArrayList());
            below.set(1, passesRight(join.joinType()) ? over((LogicalPlan) join.right(), filters) : new ArrayList());
            broadcast = broadcast(join);
        } else if (plan instanceof Filter) {
            below.set(0, filters);
        } else if (plan instanceof Project && ScalaInterop.deterministic(((Project) plan).projectList())) {
            below.set(0, GeoskipRule.through((Project) plan, filters));
        }
        boolean any = false;
        if (broadcast >= 0) { // first, since the filters on the other side contain its plan
            any = replace(children, broadcast, (List) below.get(broadcast));
            ((List) below.get(1 - broadcast)).addAll(keys((Join) plan, broadcast, (LogicalPlan) children.get(broadcast)));
        }
        for (int i = 0; i < children.size(); i++) {
            any |= i != broadcast && replace(children, i, (List) below.get(i));
        }
        return any ? (LogicalPlan) plan.withNewChildren(ScalaInterop.seq(children)) : plan;
    }

    private boolean replace(List plans, int at, List filters) throws Exception {
        LogicalPlan plan = (LogicalPlan) plans.get(at);
        plans.set(at, pruned(plan, filters));
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
            if (filter.references().subsetOf(plan.outputSet())) {
                found.add(filter);
            }
        }
        return found;
    }

    /** The side that Spark broadcasts, 0 or 1, if rows of the other side without a partner are not needed; else -1. */
    private int broadcast(Join join) {
        JoinHint hint = join.hint();
        boolean isLeftHinted = SELECTION.hintToBroadcastLeft(hint);
        boolean isRightHinted = SELECTION.hintToBroadcastRight(hint);
        boolean isInner = join.joinType() instanceof InnerLike;
        boolean left = isInner && (isLeftHinted
                || !isRightHinted && !SELECTION.hintToNotBroadcastLeft(hint)
                && SELECTION.canBroadcastBySize((LogicalPlan) join.left(), conf()));
        boolean right = (isInner || join.joinType() == LeftSemi$.MODULE$) && (isRightHinted
                || !isLeftHinted && !SELECTION.hintToNotBroadcastRight(hint)
                && SELECTION.canBroadcastBySize((LogicalPlan) join.right(), conf()));
        boolean isLeftSmaller = left && right && ((LogicalPlan) join.left()).stats().sizeInBytes()
                .$less(((LogicalPlan) join.right()).stats().sizeInBytes());
        return right && !isLeftSmaller ? 1 : left ? 0 : -1;
    }

    /** Filters on one side of a join by the keys of the plan that becomes its other side. */
    private static List keys(Join join, int broadcast, LogicalPlan other) throws Exception {
        List filters = new ArrayList();
        Option found = ExtractEquiJoinKeys.unapply(join);
        if (found.isEmpty()) {
            return filters;
        }
        Tuple8 parts = (Tuple8) found.get();
        Seq sent = (Seq) (broadcast == 0 ? parts._2() : parts._3());
        List keys = ScalaInterop.list((Seq) (broadcast == 0 ? parts._3() : parts._2()));
        for (int i = 0; i < keys.size(); i++) {
            Expression key = (Expression) keys.get(i);
            if (key.deterministic() && !key.references().isEmpty() && !ScalaInterop.holdsPlan(key)) {
                filters.add(filter(key, other, sent, i));
            }
        }
        return filters;
    }

    private static Expression filter(Expression key, LogicalPlan other, Seq sent, int number) throws Exception {
        Constructor made = DynamicPruningSubquery.class.getConstructors()[0];
        Object numbers = made.getParameterTypes()[3] == int.class ? (Object) Integer.valueOf(number)
                : ScalaInterop.seq(Collections.singletonList(Integer.valueOf(number)));
        return (Expression) made.newInstance(new Object[] {
                key, other, sent, numbers, Boolean.TRUE, NamedExpression$.MODULE$.newExprId(), Option.empty()});
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
        boolean isDecided = indexOf(relation) != null;
        LogicalRelation skipping = isDecided ? relation : new GeoskipRule(SparkSession.active()).undecided(relation);
        GeoskipFileIndex index = indexOf(skipping);
        return index != null && index.awaitKeys() ? Decision.filtered(skipping, usable) : relation;
    }

    private static GeoskipFileIndex indexOf(LogicalRelation relation) {
        FileIndex location = ((HadoopFsRelation) relation.relation()).location();
        return location instanceof GeoskipFileIndex ? (GeoskipFileIndex) location : null;
    }

    /** True for such a filter over a relation; Spark's own ones only read columns of partitions. */
    private static boolean isOfFiles(Expression filter, LogicalRelation relation) {
        if (!(filter instanceof DynamicPruningSubquery && relation.relation() instanceof HadoopFsRelation)) {
            return false;
        }
        List partitions = Arrays.asList(((HadoopFsRelation) relation.relation()).partitionSchema().fieldNames());
        boolean found = false;
        for (Attribute column : ScalaInterop.list(filter.references().toSeq())) {
            if (column.metadata().contains("__metadata_col")) {
                return false;
            }
            found |= !partitions.contains(column.name());
        }
        return found;
    }

    /** A plan of Spark's scan without these filters, which are added to a list. */
    static LogicalPlan without(LogicalPlan plan, final LogicalRelation relation, final List filters) {
        return !plan.containsPattern(TreePattern.DYNAMIC_PRUNING_SUBQUERY()) ? plan : (LogicalPlan) plan.transformUp(new Replacement() {
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
            (isOfFiles(member, relation) ? filters : others).add(member);
        }
        LogicalPlan child = (LogicalPlan) node.child();
        return others.size() == members.size() ? null : Decision.filtered(child, others);
    }
}
