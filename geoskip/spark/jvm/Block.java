package geoskip;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DayTimeIntervalType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.types.YearMonthIntervalType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Some values as they came, and as Spark has them once their type is known.
 *
 * They travel little-endian: their count, a status byte each (0 null, 1 a value, 2 thrown), then 8 bytes each of whole
 * numbers and of doubles, 16 of decimals, and of text and binary count + 1 offsets before the bytes.
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

    /** The values of this type, null for null; null for a type that is not taken. */
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
            if (decimal.precision() <= Decimal.MAX_LONG_DIGITS()) { // as a row holds it: casts show which form it has
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

    /** How values of a type travel: `s` bytes, `m` decimals, `d` doubles, `l` whole numbers, `?` not at all. */
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
