package geoskip;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.spark.Dependency;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.CollectList;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.datasources.CatalogFileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.collection.immutable.Nil$;
import @Seq@;

/**
 * A filter on one side of a join: rows without a partner among the rows of the other side are not needed.
 *
 * The rows of the other side are collected by a scalar subquery. Once they are known, the filter is a disjunction, of
 * the join's condition with the values of each row.
 */
class JoinedRows {
    static final int MOST = 500; // the rows of the other side; of more, none are used
    private static final int MOST_BYTES = 16 << 20; // of all their values, which become text
    private final Expression condition;
    private final List columns = new ArrayList(); // of the other side, in the condition
    private final ScalarSubquery subquery;

    JoinedRows(Exists partner, LogicalPlan relation) throws Exception {
        condition = (Expression) partner.joinCond().head();
        LogicalPlan other = (LogicalPlan) partner.plan();
        boolean isWhole = readsRecords(other);
        for (Attribute column : ScalaInterop.list(other.output())) {
            if (isWhole || condition.references().contains(column)) {
                columns.add(column);
            }
        }
        // Spark may run one scan instead of two with equal filters, so that these depend on the whole condition
        List fields = new ArrayList();
        fields.add(text("condition"));
        fields.add(new Literal(Long.valueOf(numberOf(relation)), DataTypes.LongType));
        for (Attribute column : columns) {
            fields.add(text(column.name()));
            fields.add(column);
        }
        LogicalPlan few = (LogicalPlan) Limit$.MODULE$.apply(
                Literal$.MODULE$.apply(MOST + 1), new Project(ScalaInterop.seq(columns), other));
        Expression rows = new CollectList(new CreateNamedStruct(ScalaInterop.seq(fields))).toAggregateExpression();
        Alias named = new Alias(
                rows, "rows", NamedExpression$.MODULE$.newExprId(), (Seq) Nil$.MODULE$, Option.empty(), (Seq) Nil$.MODULE$);
        subquery = (ScalarSubquery) ScalaInterop.made(ScalarSubquery.class,
                ScalaInterop.made(Aggregate.class, Nil$.MODULE$, ScalaInterop.seq(Collections.singletonList(named)), few));
    }

    private static Literal text(String text) { return new Literal(UTF8String.fromString(text), DataTypes.StringType); }

    /** The same number for the same condition, over the columns of a relation and of the other side, in this query. */
    private long numberOf(LogicalPlan relation) {
        Map places = QueryDecisions.places(relation);
        for (int i = 0; i < columns.size(); i++) {
            places.put(((Attribute) columns.get(i)).exprId(), -1 - i);
        }
        return QueryDecisions.current().number(QueryDecisions.placed(condition, places));
    }

    /** True if a plan reads files of text, whose records depend on the columns that are read. */
    private static boolean readsRecords(LogicalPlan plan) {
        for (LogicalPlan leaf : ScalaInterop.list(plan.collectLeaves())) {
            Object files = leaf instanceof LogicalRelation ? ((LogicalRelation) leaf).relation() : null;
            if (files instanceof HadoopFsRelation && SupportedRelations.readsRecords((HadoopFsRelation) files)) {
                return true;
            }
        }
        return false;
    }

    /** The condition that a row has a partner among those of a plan. */
    static Exists partner(LogicalPlan other, Expression condition) throws Exception {
        return (Exists) ScalaInterop.made(
                Exists.class, other, Nil$.MODULE$, null, ScalaInterop.seq(Collections.singletonList(condition)));
    }

    /**
     * True if two runs of a plan return the same rows, by the contracts of Spark: the join and the subquery each run it.
     * Not so for LIMIT, samples, windows and other aggregates, whose results depend on the order of the rows, and for
     * sources that may change meanwhile. A subquery must not wait for others, since Spark runs all of them in the same
     * few threads.
     */
    static boolean isRepeatable(LogicalPlan plan) {
        boolean isKnown = plan instanceof Project || plan instanceof Filter || plan instanceof Aggregate
                || plan instanceof Join || plan instanceof Union || plan instanceof Generate || plan instanceof Sort
                || plan instanceof BaseEvalPython || plan instanceof Range || plan instanceof LocalRelation
                || plan instanceof OneRowRelation
                || plan instanceof InMemoryRelation && ((InMemoryRelation) plan).cacheBuilder().isCachedColumnBuffersLoaded()
                || plan instanceof LogicalRelation && isListed(((LogicalRelation) plan).relation())
                || plan instanceof LogicalRDD && isRepeatable(((LogicalRDD) plan).rdd());
        List inner = ScalaInterop.list(plan.children());
        isKnown &= plan.subqueries().isEmpty();
        for (int i = 0; isKnown && i < inner.size(); i++) {
            isKnown = isRepeatable((LogicalPlan) inner.get(i));
        }
        return isKnown && areRepeatable(ScalaInterop.list(plan.expressions()));
    }

    /** True for a relation whose files Spark has listed when it planned the query. */
    private static boolean isListed(BaseRelation relation) {
        return relation instanceof HadoopFsRelation
                && !(((HadoopFsRelation) relation).location() instanceof CatalogFileIndex);
    }

    /** True for rows that the driver has, or that a checkpoint has stored. */
    private static boolean isRepeatable(RDD rdd) {
        String kind = rdd.getClass().getSimpleName();
        boolean isKnown = kind.equals("ParallelCollectionRDD") || kind.equals("MapPartitionsRDD")
                || kind.equals("PythonRDD") || kind.endsWith("CheckpointRDD");
        List before = ScalaInterop.list(rdd.dependencies());
        for (int i = 0; isKnown && i < before.size(); i++) {
            isKnown = isRepeatable(((Dependency) before.get(i)).rdd());
        }
        return isKnown;
    }

    private static boolean areRepeatable(List expressions) {
        for (Expression expression : expressions) {
            boolean isOrdered = expression instanceof AggregateFunction
                    && !(expression instanceof Min || expression instanceof Max || expression instanceof Count);
            if (isOrdered || !expression.deterministic() || !areRepeatable(ScalaInterop.list(expression.children()))) {
                return false;
            }
        }
        return true;
    }

    /** A filter that is always TRUE, over the subquery. */
    Expression filter() { return new IsNotNull(subquery); }

    /** True for that filter, or for the filter that Spark has planned from it. */
    boolean isFilter(Expression filter) {
        Expression child = filter instanceof IsNotNull ? ((IsNotNull) filter).child() : null;
        return child instanceof PlanExpression && ((PlanExpression) child).exprId().equals(subquery.exprId());
    }

    /** The condition on a row, once Spark has collected the rows of the other side; null if there are too many. */
    Expression answered(Expression filter) {
        ArrayData rows = (ArrayData) ((IsNotNull) filter).child().eval(null);
        List conditions = new ArrayList();
        boolean isLarge = rows instanceof UnsafeArrayData && ((UnsafeArrayData) rows).getSizeInBytes() > MOST_BYTES;
        if (isLarge || rows.numElements() > MOST) {
            return null;
        }
        for (int i = 0; i < rows.numElements(); i++) {
            conditions.add(with(rows.getStruct(i, 1 + columns.size())));
        }
        return conditions.isEmpty() ? Literal$.MODULE$.FalseLiteral() : anyOf(conditions);
    }

    private Expression with(final InternalRow row) {
        return (Expression) condition.transform(new Replacement() {
            Object of(Object node) {
                for (int i = 0; node instanceof AttributeReference && i < columns.size(); i++) {
                    Attribute column = (Attribute) columns.get(i);
                    if (column.exprId().equals(((AttributeReference) node).exprId())) {
                        Object value = row.isNullAt(i + 1) ? null : row.get(i + 1, column.dataType());
                        return new Literal(value, column.dataType());
                    }
                }
                return null;
            }
        });
    }

    /** A balanced tree, since deep ones cannot be transformed. */
    private static Expression anyOf(List conditions) {
        int count = conditions.size();
        return count == 1 ? (Expression) conditions.get(0)
                : new Or(anyOf(conditions.subList(0, count / 2)), anyOf(conditions.subList(count / 2, count)));
    }
}
