package geoskip;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.catalog.CatalogStatistics;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.execution.datasources.*;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import @SparkSession@;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.Some;
import scala.collection.immutable.Nil$;
import @Seq@;
import scala.math.BigInt;
import scala.runtime.AbstractFunction1;

/** Spark's builder of the rule; called once for each query, so it only allocates. */
class RuleBuilder extends AbstractFunction1 {
    public Object apply(Object session) {
        try {
            Geoskip.listen((SparkSession) session);
            WatchedScans.install((SparkSession) session);
        } catch (RuntimeException failure) {
            LoggerFactory.getLogger("geoskip").warn("geoskip cannot listen to this session", failure);
        }
        return new GeoskipRule((SparkSession) session);
    }
}

/** A rule that leaves a plan as it was if it fails. */
abstract class GuardedRule extends Rule {
    private static final Logger LOG = LoggerFactory.getLogger("geoskip");

    abstract LogicalPlan changed(LogicalPlan plan) throws Exception;

    public org.apache.spark.sql.catalyst.trees.TreeNode apply(org.apache.spark.sql.catalyst.trees.TreeNode plan) {
        try {
            return changed((LogicalPlan) plan);
        } catch (InterruptedException cancelled) {
            Thread.currentThread().interrupt();
        } catch (Exception failure) {
            LOG.warn("geoskip left a query as it was", failure);
        } catch (LinkageError failure) {
            LOG.warn("geoskip does not fit this Spark", failure);
        } catch (StackOverflowError deep) {
            LOG.warn("geoskip left a query as it was: its plan is nested too deeply");
        }
        return plan;
    }

    /** True for the queries of a session's user, and not for those that geoskip itself plans. */
    static boolean isOfUser(SparkSession session) {
        return PlannedScan.recording.get() == null && Geoskip.planning.get() == null && Geoskip.owns(session);
    }

    /** True if the files of a session's queries are chosen. */
    static boolean isOn(SparkSession session) {
        return isOfUser(session) && SupportedRelations.enabled(session.sessionState().conf());
    }
}

/** Removes the files that cannot match from the scans of a plan. */
class GeoskipRule extends GuardedRule {
    private static final Logger LOG = LoggerFactory.getLogger("geoskip");
    private final SparkSession session;

    GeoskipRule(SparkSession session) { this.session = session; }

    public org.apache.spark.sql.catalyst.trees.TreeNode apply(org.apache.spark.sql.catalyst.trees.TreeNode plan) {
        return Geoskip.captured.get() != null ? capture((LogicalPlan) plan) : super.apply(plan);
    }

    LogicalPlan changed(LogicalPlan plan) throws Exception {
        List recorded = (List) PlannedScan.recording.get();
        List logged = isOfUser(session) ? WorkloadLog.recorded(session.sessionState().conf()) : null;
        if (logged != null) {
            rewrite(plan, locations(plan, false), NeededRows.ALL, logged);
        }
        if (recorded == null && !(isOn(session) && concerns(plan))) {
            return plan;
        }
        List originals = locations(plan, false); // before partition pruning replaces some of them
        LogicalPlan pruned = plan;
        for (Object original : originals) {
            if (original instanceof CatalogFileIndex) { // the rule is slow, and does not change other indexes
                pruned = (LogicalPlan) PruneFileSourcePartitions$.MODULE$.apply(pruned);
                break;
            }
        }
        return rewrite(withSubqueries(pruned, recorded), originals, NeededRows.ALL, recorded);
    }

    /** Records the expressions of the topmost projection, over the columns of the relation below. */
    private static LogicalPlan capture(LogicalPlan plan) {
        LogicalPlan node = plan;
        List expressions = null;
        while (node instanceof Project) {
            Project project = (Project) node;
            List below = new ArrayList();
            if (expressions == null) {
                for (Object item : ScalaInterop.list(project.projectList())) {
                    below.add(item instanceof Alias ? ((Alias) item).child() : item);
                }
            } else {
                below = through(project, expressions);
            }
            expressions = below;
            node = project.child();
        }
        if (expressions != null && (node instanceof LogicalRelation || node instanceof DataSourceV2Relation || node instanceof Range)) {
            Names names = new Names(node);
            for (Expression expression : expressions) {
                ((List) Geoskip.captured.get()).add(ExpressionJson.expression(expression, names, null));
                if (Geoskip.parts.get() != null) {
                    ((List) Geoskip.parts.get()).add(expression);
                }
            }
        }
        return plan;
    }

    private boolean concerns(LogicalPlan plan) {
        for (FileIndex location : locations(plan, true)) {
            if (!indexed(location).isEmpty()) {
                return true;
            }
        }
        for (LogicalPlan subquery : subqueries(plan)) {
            if (concerns(subquery)) {
                return true;
            }
        }
        return TableScan.concerns(plan, session);
    }

    /**
     * The plans of all subqueries in a plan with scans that a table format has just prepared, since these are prepared
     * with the whole query. Spark's own scans were rewritten when each subquery was optimized separately.
     */
    private static List subqueries(LogicalPlan plan) {
        List found = new ArrayList();
        if (TableFormat.isEmpty() || !plan.containsPattern(TreePattern.PLAN_EXPRESSION())) {
            return found;
        }
        for (LogicalPlan subquery : ScalaInterop.list(plan.subqueriesAll())) {
            for (FileIndex location : locations(subquery, true)) {
                if (TableFormat.of(location) != null) {
                    found.add(subquery);
                    break;
                }
            }
        }
        return found;
    }

    /** A plan with the subqueries of its expressions rewritten; the same plan if none changes. */
    private LogicalPlan withSubqueries(LogicalPlan plan, final List recorded) {
        final List concerned = subqueries(plan);
        return concerned.isEmpty() ? plan : (LogicalPlan) plan.transformAllExpressions(new Replacement() {
            Object of(Object node) {
                if (!(node instanceof SubqueryExpression)) {
                    return null;
                }
                LogicalPlan inner = (LogicalPlan) ((SubqueryExpression) node).plan();
                List originals = locations(inner, false);
                LogicalPlan changed = inner;
                try {
                    changed = rewrite(withSubqueries(inner, recorded), originals, NeededRows.ALL, recorded);
                } catch (Exception failure) {
                    LOG.warn("geoskip left a subquery as it was", failure);
                }
                return changed == inner ? null : ((SubqueryExpression) node).withNewPlan(changed);
            }
        });
    }

    /** The datasets from which a relation's file index reads. */
    private List indexed(FileIndex location) { return MetadataLocator.datasets(ScalaInterop.rootPaths(location), session); }

    /** The file indexes of a plan in its order, or only those of supported relations. */
    private static List locations(LogicalPlan plan, boolean touched) {
        List found = new ArrayList();
        for (LogicalPlan leaf : ScalaInterop.list(plan.collectLeaves())) {
            LogicalRelation relation = leaf instanceof LogicalRelation ? (LogicalRelation) leaf : null;
            if (relation != null && relation.relation() instanceof HadoopFsRelation
                    && (!touched || SupportedRelations.mayTouch(relation))) {
                found.add(((HadoopFsRelation) relation.relation()).location());
            }
        }
        return found;
    }

    /**
     * The plan with its file relations replaced, if only some of its rows are needed. If there is a list to record the
     * scans in, nothing is replaced.
     */
    private LogicalPlan rewrite(LogicalPlan plan, List originals, NeededRows needed, List recorded) throws Exception {
        if (plan instanceof LogicalRelation) {
            LogicalRelation relation = (LogicalRelation) plan;
            FileIndex original =
                    relation.relation() instanceof HadoopFsRelation ? (FileIndex) originals.remove(0) : null;
            List first = recorded != null || !TopK.areFound(needed.first, relation) ? new ArrayList() : needed.first;
            boolean isNarrowed = needed.hasConditions() || !first.isEmpty();
            if (!isNarrowed || !SupportedRelations.mayTouch(relation)) {
                return plan;
            }
            if (recorded != null) {
                new PlannedScan(relation, original, needed.conditions, session).record(recorded);
                return plan;
            }
            List datasets = indexed(original);
            return datasets.isEmpty() ? plan : skip(relation, original, datasets, needed, first);
        }
        if (plan instanceof DataSourceV2Relation && recorded != null) {
            PlannedTable.record((DataSourceV2Relation) plan, needed.conditions);
        } else if (plan instanceof DataSourceV2Relation) {
            return TableScan.narrowed((DataSourceV2Relation) plan, needed.conditions, needed.barriers, session);
        }
        List changed = new ArrayList();
        boolean any = false;
        for (LogicalPlan child : ScalaInterop.list(plan.children())) {
            LogicalPlan rewritten = rewrite(child, originals, needed.below(plan, changed.size()), recorded);
            any |= rewritten != child;
            changed.add(rewritten);
        }
        return any ? (LogicalPlan) plan.withNewChildren(ScalaInterop.seq(changed)) : plan;
    }

    /** What a projection, or a node that calls Python functions, computes by the ids of the results; null for others. */
    static Map computed(LogicalPlan plan) {
        Map computed = new HashMap();
        if (plan instanceof Project) {
            for (Object item : ScalaInterop.list(((Project) plan).projectList())) {
                if (item instanceof Alias) {
                    computed.put(((Alias) item).exprId(), ((Alias) item).child());
                }
            }
            return computed;
        }
        if (!(plan instanceof BaseEvalPython)) {
            return null;
        }
        List results = ScalaInterop.list(((BaseEvalPython) plan).resultAttrs());
        for (int i = 0; i < results.size(); i++) {
            computed.put(((Attribute) results.get(i)).exprId(), ((BaseEvalPython) plan).udfs().apply(i));
        }
        return computed;
    }

    /**
     * Conditions above such a node, expressed over the output of its child. Between two Python functions Spark converts
     * values only if a projection separates them, so that the result of one is then unknown to the other.
     */
    static List through(LogicalPlan plan, List conditions) {
        final Map aliases = computed(plan);
        List below = new ArrayList();
        for (Expression condition : conditions) {
            below.add(condition.transform(new Replacement() {
                Object of(Object node) {
                    if (node instanceof PythonUDF && ((PythonUDF) node).children().size() == 1) {
                        Object argument = ((PythonUDF) node).children().apply(0);
                        boolean isApart = argument instanceof AttributeReference && of(argument) instanceof PythonUDF;
                        return isApart ? ((PythonUDF) node).withNewChildren(ScalaInterop.seq(
                                Collections.singletonList(((AttributeReference) argument).newInstance()))) : null;
                    }
                    return node instanceof AttributeReference ? aliases.get(((AttributeReference) node).exprId()) : null;
                }
            }));
        }
        return below;
    }

    private LogicalPlan skip(
            LogicalRelation relation, FileIndex original, List datasets, NeededRows needed, List orders)
            throws Exception {
        HadoopFsRelation files = (HadoopFsRelation) relation.relation();
        FileIndex listed = files.location();
        if (listed instanceof CatalogFileIndex) { // as PruneFileSourcePartitions does if there is a filter
            listed = ((CatalogFileIndex) listed).filterPartitions((Seq) Nil$.MODULE$);
        }
        List directories = ScalaInterop.list(ScalaInterop.unpruned(listed));
        long started = System.nanoTime();
        ReaderSettings settings = new ReaderSettings((SparkSession) files.sparkSession(), session);
        AnsweredScan scan = new AnsweredScan(session, relation, directories, datasets, needed.barriers);
        boolean isLong = TopK.isLongSearch(needed.first, relation, directories.size());
        List first = isLong ? new ArrayList() : orders;
        Decision decision = needed.conditions.isEmpty() && first.isEmpty() ? Decision.none(needed.barriers)
                : scan.decide(needed.conditions, first);
        decision.relation = relation;
        decision.conditions = needed.conditions;
        if (!first.isEmpty()) {
            scan.narrow(decision, first, started);
        } else if (isLong) {
            decision.note = TopK.described(needed.first) + " may be in any file: it reads columns of many partitions";
        }
        decision.planningNanos = System.nanoTime() - started;
        GeoskipFileIndex index = new GeoskipFileIndex(listed, original, decision, directories);
        index.under(settings, SupportedRelations.readsRecords(files));
        index.answeredBy(scan);
        return (LogicalPlan) ScalaInterop.relocated(
                relation, TableFormat.narrowed(index), table(relation.catalogTable(), index));
    }

    /** A relation whose files are only chosen when a plan is run; itself if geoskip leaves it alone. */
    LogicalRelation undecided(LogicalRelation relation) throws Exception {
        FileIndex location = ((HadoopFsRelation) relation.relation()).location();
        boolean isPlain = TableFormat.of(location) == null && SupportedRelations.mayTouch(relation);
        List datasets = isPlain ? indexed(location) : new ArrayList();
        return datasets.isEmpty() ? relation
                : (LogicalRelation) skip(relation, location, datasets, NeededRows.ALL, NeededRows.ALL.first);
    }

    /** The table with statistics of the kept files, so that small reads can be broadcast. */
    private static Option table(Option catalogTable, GeoskipFileIndex index) {
        if (catalogTable.isEmpty() || ((CatalogTable) catalogTable.get()).stats().isEmpty()) {
            return catalogTable;
        }
        CatalogTable table = (CatalogTable) catalogTable.get();
        CatalogStatistics stats = (CatalogStatistics) table.stats().get();
        double share = index.share();
        BigInt size = BigInt.apply((long) (stats.sizeInBytes().toDouble() * share));
        Object smaller = ScalaInterop.with(stats, 0, size);
        for (int i = 0; i < table.productArity(); i++) {
            if (table.productElement(i) == table.stats()) {
                return new Some(ScalaInterop.with(table, i, new Some(smaller)));
            }
        }
        return catalogTable;
    }
}
