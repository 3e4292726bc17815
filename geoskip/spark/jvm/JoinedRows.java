package geoskip;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
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
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
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
    private final Expression condition;
    private final List columns = new ArrayList(); // of the other side, in the condition
    private final ScalarSubquery subquery;

    JoinedRows(Exists partner) throws Exception {
        condition = (Expression) partner.joinCond().head();
        LogicalPlan other = (LogicalPlan) partner.plan();
        List fields = new ArrayList();
        for (Attribute column : ScalaInterop.list(condition.references().toSeq())) {
            if (other.outputSet().contains(column)) {
                columns.add(column);
                fields.add(new Literal(UTF8String.fromString(column.name()), DataTypes.StringType));
                fields.add(column);
            }
        }
        LogicalPlan few = (LogicalPlan) Limit$.MODULE$.apply(
                Literal$.MODULE$.apply(MOST + 1), new Project(ScalaInterop.seq(columns), other));
        Expression rows = new CollectList(new CreateNamedStruct(ScalaInterop.seq(fields))).toAggregateExpression();
        Alias named = new Alias(
                rows, "rows", NamedExpression$.MODULE$.newExprId(), (Seq) Nil$.MODULE$, Option.empty(), (Seq) Nil$.MODULE$);
        subquery = (ScalarSubquery) ScalaInterop.made(ScalarSubquery.class,
                ScalaInterop.made(Aggregate.class, Nil$.MODULE$, ScalaInterop.seq(Collections.singletonList(named)), few));
    }

    /** The condition that a row has a partner among those of a plan. */
    static Exists partner(LogicalPlan other, Expression condition) throws Exception {
        return (Exists) ScalaInterop.made(
                Exists.class, other, Nil$.MODULE$, null, ScalaInterop.seq(Collections.singletonList(condition)));
    }

    /**
     * True if two runs of a plan return the same rows, by the contracts of Spark: the join and the subquery each run it.
     * Not so for LIMIT, samples, windows and other aggregates, whose results depend on the order of the rows, and for
     * sources that may change meanwhile.
     */
    static boolean isRepeatable(LogicalPlan plan) {
        boolean isKnown = plan instanceof Project || plan instanceof Filter || plan instanceof Aggregate
                || plan instanceof Join || plan instanceof Union || plan instanceof Generate || plan instanceof Sort
                || plan instanceof BaseEvalPython || plan instanceof Range || plan instanceof LocalRelation
                || plan instanceof OneRowRelation || plan instanceof InMemoryRelation
                || plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof HadoopFsRelation
                || plan instanceof LogicalRDD && ((LogicalRDD) plan).rdd().outputDeterministicLevel().id() < 2;
        List inner = ScalaInterop.list(plan.children());
        inner.addAll(ScalaInterop.list(plan.subqueries()));
        for (int i = 0; isKnown && i < inner.size(); i++) {
            isKnown = isRepeatable((LogicalPlan) inner.get(i));
        }
        return isKnown && areRepeatable(ScalaInterop.list(plan.expressions()));
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
        if (rows.numElements() > MOST) {
            return null;
        }
        for (int i = 0; i < rows.numElements(); i++) {
            conditions.add(with(rows.getStruct(i, columns.size())));
        }
        return conditions.isEmpty() ? Literal$.MODULE$.FalseLiteral() : anyOf(conditions);
    }

    private Expression with(final InternalRow row) {
        return (Expression) condition.transform(new Replacement() {
            Object of(Object node) {
                for (int i = 0; node instanceof AttributeReference && i < columns.size(); i++) {
                    Attribute column = (Attribute) columns.get(i);
                    if (column.exprId().equals(((AttributeReference) node).exprId())) {
                        Object value = row.isNullAt(i) ? null : row.get(i, column.dataType());
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
