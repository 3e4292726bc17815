package geoskip;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.ref.SoftReference;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import @SparkSession@;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.UTF8String;
import scala.runtime.AbstractFunction0;

/**
 * Evaluates parts of a query's conditions for single values, in the driver and without a job (geoskip/spark/rule/evaluator.py).
 *
 * The conditions of a decision are kept while Python decides. A part is identified by its path: the condition's number,
 * then at each level the position among the children as written by ExpressionJson. Values are sent as blocks (Block).
 */
class Evaluation {
    private static final int BLOCKS = 32;
    private static final int CHECKED_EVERY = 64;
    private static final byte TRUE = 1;
    private static final byte FALSE = 2;
    private static final byte NULL = 4;
    private static final byte ANY = 7;
    private static final byte VALUE = 8;
    private static final AtomicLong numbers = new AtomicLong();
    private static final ConcurrentHashMap held = new ConcurrentHashMap();
    private static final Map blocks = Collections.synchronizedMap(new LinkedHashMap(16, 0.75f, true) {
        protected boolean removeEldestEntry(Map.Entry eldest) { return size() > BLOCKS; }
    });

    private final SQLConf conf;
    private final List conditions;

    private Evaluation(List conditions, SparkSession session) {
        this.conditions = conditions;
        this.conf = session.sessionState().conf();
    }

    /** Keeps the conditions of a decision until they are released; returns a number that identifies them. */
    static long hold(List conditions, SparkSession session) {
        long number = numbers.incrementAndGet();
        held.put(Long.valueOf(number), new Evaluation(conditions, session));
        return number;
    }

    /** Makes Spark load its tables for strings: the first `upper` takes a second, and much longer on a busy machine. */
    static void warm() {
        try {
            new Upper(new Literal(UTF8String.fromString("a"), DataTypes.StringType)).eval(null);
        } catch (Throwable unneeded) {
            return;
        }
    }

    static void release(long number) { held.remove(Long.valueOf(number)); }

    /** Stores values under a name; they may be dropped when memory is short. */
    static void put(String name, byte[] block) { blocks.put(name, new SoftReference(new Block(block))); }

    /**
     * Evaluates a part. The result is a letter with data: `o` and one byte of outcomes for each value, `v` and a type's
     * name, a line feed and a block, `m` and the name of a missing block, or `d` and the reason why nothing was
     * evaluated. `paths` has the part first, then others that Python considers equal, which is checked: two closures of
     * one class are not. `bindings` are lines `name path path ...`: the blocks that replace the parts at these paths.
     */
    static byte[] evaluate(
            long number, final String paths, final String bindings, final boolean values, final long budgetMs) {
        final Evaluation evaluation = (Evaluation) held.get(Long.valueOf(number));
        if (evaluation == null) {
            return said('d', "the decision is over");
        }
        try {
            return (byte[]) SQLConf$.MODULE$.withExistingConf(evaluation.conf, new AbstractFunction0() {
                public Object apply() { return evaluation.answer(paths.split(" "), bindings, values, budgetMs); }
            });
        } catch (StackOverflowError deep) {
            return said('d', "it is nested too deeply");
        } catch (LinkageError unfit) {
            return said('d', String.valueOf(unfit));
        }
    }

    private byte[] answer(String[] paths, String bindings, boolean values, long budgetMs) {
        long deadline = System.nanoTime() + budgetMs * 1000000L;
        Expression part = at(paths[0]);
        for (int i = 1; i < paths.length; i++) {
            if (!part.semanticEquals(at(paths[i]))) {
                return said('d', "two functions of the query look the same");
            }
        }
        String[] lines = bindings.split("\n");
        Block[] sources = new Block[lines.length];
        LinkedHashMap places = new LinkedHashMap();
        for (int i = 0; i < lines.length; i++) {
            String[] words = lines[i].split(" ");
            SoftReference known = (SoftReference) blocks.get(words[0]);
            sources[i] = known == null ? null : (Block) known.get();
            if (sources[i] == null) {
                return said('m', words[0]);
            }
            for (int w = 1; w < words.length; w++) {
                places.put(words[w], i);
            }
        }
        DataType[] types = new DataType[lines.length];
        Expression bound = bind(part, paths[0], places, types);
        String unfit = unfit(bound);
        if (unfit != null) {
            return said('d', unfit);
        }
        Object[][] columns = new Object[lines.length][];
        for (int i = 0; i < lines.length; i++) {
            columns[i] = types[i] == null ? new Object[sources[i].count] : sources[i].values(types[i]);
            if (columns[i] == null) {
                return said('d', "values of " + types[i].catalogString() + " are not taken");
            }
        }
        return evaluated(bound, columns, values, deadline);
    }

    /** The part of a condition at a path. */
    private Expression at(String path) {
        String[] steps = path.split("\\.");
        Expression found = (Expression) conditions.get(Integer.parseInt(steps[0]));
        for (int i = 1; i < steps.length; i++) {
            found = (Expression) ExpressionJson.operands(found).get(Integer.parseInt(steps[i]));
        }
        return found;
    }

    /** The expression with the parts at these paths replaced by columns of a row. */
    private static Expression bind(Expression expression, String path, Map places, DataType[] types) {
        Integer number = (Integer) places.get(path);
        if (number != null) {
            types[number] = expression.dataType();
            return new BoundReference(number, expression.dataType(), true);
        }
        List children = ExpressionJson.operands(expression);
        List changed = new ArrayList();
        boolean any = false;
        for (int i = 0; i < children.size(); i++) {
            Expression child = bind((Expression) children.get(i), path + "." + i, places, types);
            any |= child != children.get(i);
            changed.add(child);
        }
        if (!any) {
            return expression;
        }
        if (expression instanceof And || expression instanceof Or) {
            return chain(changed, expression instanceof And);
        }
        return (Expression) expression.withNewChildren(ScalaInterop.seq(changed));
    }

    /** A balanced tree of ANDs or ORs in the given order. */
    private static Expression chain(List members, boolean every) {
        if (members.size() == 1) {
            return (Expression) members.get(0);
        }
        int half = members.size() / 2;
        Expression left = chain(members.subList(0, half), every);
        Expression right = chain(members.subList(half, members.size()), every);
        return every ? (Expression) new And(left, right) : (Expression) new Or(left, right);
    }

    /** The reason why an expression cannot be evaluated here, or null. */
    private static String unfit(Expression expression) {
        return !expression.deterministic() ? "it is not deterministic"
                : !expression.references().isEmpty() ? "it reads other columns too" : unevaluable(expression);
    }

    private static String unevaluable(Expression expression) {
        if (expression.getClass().getSimpleName().equals("ResolvedCollation")) {
            return null; // the name in COLLATE, which is not evaluated
        }
        if (expression instanceof Unevaluable || expression instanceof PlanExpression) {
            return "Spark does not evaluate " + expression.prettyName() + " by itself";
        }
        for (Expression child : ScalaInterop.list(expression.children())) {
            String found = unevaluable(child);
            if (found != null) {
                return found;
            }
        }
        return null;
    }

    /** One byte of outcomes for each value, or the values as a block; exceptions are marked in both. */
    private static byte[] evaluated(Expression expression, Object[][] columns, boolean values, long deadline) {
        char kind = values ? Block.kind(expression.dataType()) : 'o';
        if (kind == '?') {
            return said('d', "values of " + expression.dataType().catalogString() + " are not given back");
        }
        long began = System.nanoTime();
        int count = columns[0].length;
        Object[] found = new Object[values ? count : 0];
        byte[] status = new byte[count];
        Object[] cells = new Object[columns.length];
        GenericInternalRow row = new GenericInternalRow(cells);
        for (int i = 0; i < count; i++) {
            if (i == 1) {
                deadline += System.nanoTime() - began; // the first value does not count, as it loads classes
            }
            if (i % CHECKED_EVERY == 0 && System.nanoTime() > deadline) {
                return said('d', "after " + i + " of " + count + " values the planning budget was spent");
            }
            for (int c = 0; c < columns.length; c++) {
                cells[c] = columns[c][i];
            }
            try {
                Object value = expression.eval(row);
                if (values) {
                    found[i] = value instanceof UTF8String ? ((UTF8String) value).getBytes() : value; // it may be reused
                    status[i] = (byte) (value == null ? 0 : 1);
                } else {
                    status[i] = value == null ? NULL : Boolean.TRUE.equals(value) ? TRUE
                            : value instanceof Boolean ? FALSE : VALUE;
                }
            } catch (Exception thrown) {
                status[i] = values ? (byte) 2 : ANY;
            }
        }
        return values
                ? joined("v" + expression.dataType().catalogString() + "\n", Block.written(kind, found, status))
                : joined("o", status);
    }

    private static byte[] joined(String head, byte[] rest) {
        byte[] name = head.getBytes(StandardCharsets.UTF_8);
        byte[] all = Arrays.copyOf(name, name.length + rest.length);
        System.arraycopy(rest, 0, all, name.length, rest.length);
        return all;
    }

    private static byte[] said(char letter, String text) { return (letter + text).getBytes(StandardCharsets.UTF_8); }
}

/**
 * Values as bytes, decoded to Spark's objects when their type is known.
 *
 * The format is little-endian: the count, a status byte for each value (0 null, 1 a value, 2 thrown), then 8 bytes for
 * each integer or double, 16 for each decimal, and for strings and binary count + 1 offsets before the bytes.
 */
class Block {
    final int count;
    private final ByteBuffer bytes;
    private DataType type;
    private Object[] decoded;

    Block(byte[] block) {
        bytes = ByteBuffer.wrap(block).order(ByteOrder.LITTLE_ENDIAN);
        count = bytes.getInt(0);
    }

    /** The values of this type, null for NULL; null for an unsupported type. */
    synchronized Object[] values(DataType wanted) {
        if (decoded == null || !wanted.equals(type)) {
            char kind = kind(wanted);
            if (kind == '?') {
                return null;
            }
            Object[] found = new Object[count];
            for (int i = 0; i < count; i++) {
                found[i] = bytes.get(4 + i) == 1 ? value(kind, wanted, i) : null;
            }
            decoded = found;
            type = wanted;
        }
        return decoded;
    }

    private Object value(char kind, DataType wanted, int i) {
        int start = 4 + count;
        if (kind == 's') {
            int base = start + 4 * (count + 1);
            int from = bytes.getInt(start + 4 * i);
            int to = bytes.getInt(start + 4 * i + 4);
            byte[] text = Arrays.copyOfRange(bytes.array(), base + from, base + to);
            return wanted instanceof StringType ? (Object) UTF8String.fromBytes(text) : (Object) text;
        }
        if (kind == 'm') {
            byte[] big = new byte[16];
            for (int b = 0; b < 16; b++) {
                big[15 - b] = bytes.get(start + 16 * i + b);
            }
            DecimalType decimal = (DecimalType) wanted;
            if (decimal.precision() <= Decimal.MAX_LONG_DIGITS()) { // the form in rows, on which casts depend
                return Decimal.createUnsafe(new BigInteger(big).longValue(), decimal.precision(), decimal.scale());
            }
            BigDecimal exact = new BigDecimal(new BigInteger(big), decimal.scale());
            return Decimal.apply(exact, decimal.precision(), decimal.scale());
        }
        long whole = bytes.getLong(start + 8 * i);
        if (kind == 'd') {
            double real = Double.longBitsToDouble(whole);
            return wanted instanceof FloatType ? (Object) Float.valueOf((float) real) : (Object) Double.valueOf(real);
        }
        if (wanted instanceof BooleanType) {
            return Boolean.valueOf(whole != 0);
        }
        if (wanted instanceof ByteType) {
            return Byte.valueOf((byte) whole);
        }
        if (wanted instanceof ShortType) {
            return Short.valueOf((short) whole);
        }
        if (wanted instanceof IntegerType || wanted instanceof DateType || wanted instanceof YearMonthIntervalType) {
            return Integer.valueOf((int) whole);
        }
        return Long.valueOf(whole);
    }

    /** The encoding of values of a type: `s` bytes, `m` decimals, `d` doubles, `l` integers, `?` unsupported. */
    static char kind(DataType type) {
        if (type instanceof StringType || type instanceof BinaryType) {
            return 's';
        }
        if (type instanceof DecimalType) {
            return 'm';
        }
        if (type instanceof DoubleType || type instanceof FloatType) {
            return 'd';
        }
        boolean whole = type instanceof BooleanType || type instanceof ByteType || type instanceof ShortType
                || type instanceof IntegerType || type instanceof LongType || type instanceof DateType
                || type instanceof TimestampType || type instanceof TimestampNTZType
                || type instanceof YearMonthIntervalType || type instanceof DayTimeIntervalType;
        return whole ? 'l' : '?';
    }

    static byte[] written(char kind, Object[] values, byte[] status) {
        try {
            ByteArrayOutputStream data = new ByteArrayOutputStream();
            DataOutputStream out = new DataOutputStream(data);
            out.writeInt(Integer.reverseBytes(values.length));
            out.write(status);
            int offset = 0;
            for (int i = 0; kind == 's' && i <= values.length; i++) {
                out.writeInt(Integer.reverseBytes(offset));
                offset += i < values.length && values[i] != null ? ((byte[]) values[i]).length : 0;
            }
            for (int i = 0; i < values.length; i++) {
                write(out, kind, values[i]);
            }
            return data.toByteArray();
        } catch (IOException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static void write(DataOutputStream out, char kind, Object value) throws IOException {
        if (kind == 's') {
            out.write(value == null ? new byte[0] : (byte[]) value);
        } else if (kind == 'm') {
            byte[] little = new byte[16];
            if (value != null) {
                byte[] big = ((Decimal) value).toJavaBigDecimal().unscaledValue().toByteArray();
                Arrays.fill(little, (byte) (big[0] < 0 ? -1 : 0));
                for (int b = 0; b < big.length; b++) {
                    little[b] = big[big.length - 1 - b];
                }
            }
            out.write(little);
        } else {
            long whole = 0;
            if (value instanceof Boolean) {
                whole = ((Boolean) value).booleanValue() ? 1 : 0;
            } else if (kind == 'd' && value != null) {
                whole = Double.doubleToRawLongBits(((Number) value).doubleValue());
            } else if (value != null) {
                whole = ((Number) value).longValue();
            }
            out.writeLong(Long.reverseBytes(whole));
        }
    }
}
