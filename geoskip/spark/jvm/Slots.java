package geoskip;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.types.*;

/** Expressions over only partition columns, which Spark evaluates here for each partition's values. */
class Slots {
    private static final int MOST_VECTORS = 1000;
    private final StructType schema;
    private final Names names;
    private final List expressions = new ArrayList();
    private final LinkedHashMap vectors = new LinkedHashMap();

    Slots(StructType schema, Names names) {
        this.schema = schema;
        this.names = names;
    }

    boolean isEmpty() { return expressions.isEmpty(); }

    /** The number of a new slot for an expression, or -1 if it reads more than partition columns. */
    int slot(Expression expression) {
        if (schema.length() == 0 || !expression.deterministic() || expression.references().isEmpty()
                || expression instanceof LambdaFunction) {
            return -1;
        }
        Expression bound = bound(expression);
        if (bound == null || isOpen(expression)) {
            return -1;
        }
        expressions.add(bound);
        return expressions.size() - 1;
    }

    /** True if an expression reads a variable of an enclosing lambda, which has no value here. */
    private static boolean isOpen(Expression expression) {
        HashSet read = new HashSet();
        HashSet own = new HashSet();
        ArrayDeque waiting = new ArrayDeque();
        waiting.push(expression);
        while (!waiting.isEmpty()) {
            Expression part = (Expression) waiting.pop();
            if (part instanceof NamedLambdaVariable) {
                read.add(((NamedLambdaVariable) part).exprId());
            } else if (part instanceof LambdaFunction) {
                for (NamedExpression argument : ScalaInterop.list(((LambdaFunction) part).arguments())) {
                    own.add(argument.exprId());
                }
            }
            for (Expression child : ScalaInterop.list(part.children())) {
                waiting.push(child);
            }
        }
        return !own.containsAll(read);
    }

    private Expression bound(Expression expression) {
        if (expression instanceof AttributeReference) {
            String name = names.logical((AttributeReference) expression);
            if (name == null || !Arrays.asList(schema.fieldNames()).contains(name)) {
                return null;
            }
            return new BoundReference(schema.fieldIndex(name), expression.dataType(), true);
        }
        if (expression instanceof Unevaluable || expression instanceof PlanExpression) {
            return null;
        }
        List children = new ArrayList();
        for (Expression child : ScalaInterop.list(expression.children())) {
            Expression bound = bound(child);
            if (bound == null) {
                return null;
            }
            children.add(bound);
        }
        return children.isEmpty() ? expression : (Expression) expression.withNewChildren(ScalaInterop.seq(children));
    }

    /** Adds the values of a partition before the decision, up to the maximum number of vectors. */
    void add(InternalRow partition) {
        String key = key(partition);
        if (key != null && !vectors.containsKey(key) && vectors.size() < MOST_VECTORS) {
            vectors.put(key, vectors.size());
        }
    }

    /**
     * True if a decimal is not of its column's scale or precision. Spark prunes by the number in the folder's name
     * ({@code 1}), and gives the rows another value of the column's type ({@code 1.00}, or even {@code 0.01}).
     */
    private boolean hasOtherDecimals(InternalRow partition) {
        for (int i = 0; i < schema.length(); i++) {
            if (schema.apply(i).dataType() instanceof DecimalType && !partition.isNullAt(i)) {
                DecimalType type = (DecimalType) schema.apply(i).dataType();
                Decimal value = (Decimal) partition.get(i, type);
                if (value.scale() != type.scale() || value.precision() > type.precision()) {
                    return true;
                }
            }
        }
        return false;
    }

    /**
     * The number of the vector of the slots' values for a partition; -1 if it was not added. Synchronized, since some
     * expressions keep state between rows, and several threads may list the files of one plan.
     */
    synchronized int number(InternalRow partition) {
        return expressions.isEmpty() ? 0 : (Integer) vectors.getOrDefault(key(partition), -1);
    }

    /** The values of the slots, as text; null if the rows may have other values of the columns. */
    private String key(InternalRow partition) {
        if (hasOtherDecimals(partition)) {
            return null;
        }
        List values = new ArrayList();
        for (Expression slot : expressions) {
            Object value;
            try {
                value = slot.eval(partition);
            } catch (Exception thrown) { // the value is unknown
                values.add(null);
                continue;
            }
            values.add(ExpressionJson.literal(value, slot.dataType()));
        }
        return Json.text(values);
    }

    /**
     * True for the same expressions over the same vectors. With other expressions, equal vectors in the same order may
     * belong to other partitions.
     */
    public boolean equals(Object other) {
        return other instanceof Slots && expressions.equals(((Slots) other).expressions)
                && vectors.equals(((Slots) other).vectors);
    }

    public int hashCode() { return vectors.hashCode(); }

    /** The vectors in their order as a JSON list. */
    Object vectors() { return Json.raw(vectors.isEmpty() ? "[[]]" : vectors.keySet().toString()); }
}
