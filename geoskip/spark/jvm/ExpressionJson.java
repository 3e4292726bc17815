package geoskip;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.io.StringWriter;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.expressions.ScalaUDF;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.UserDefinedType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Product;
import scala.Some;

/** Catalyst expressions as JSON: class, name, type, children and further arguments; literals with their types. */
class ExpressionJson {
    static final JsonFactory FACTORY = new JsonFactory();

    static void strings(JsonGenerator json, String name, List texts) throws IOException {
        json.writeArrayFieldStart(name);
        for (Iterator i = texts.iterator(); i.hasNext();) {
            json.writeString((String) i.next());
        }
        json.writeEndArray();
    }

    static void map(JsonGenerator json, String name, scala.collection.Map map) throws IOException {
        json.writeObjectFieldStart(name);
        for (scala.collection.Iterator i = map.iterator(); i.hasNext();) {
            scala.Tuple2 entry = (scala.Tuple2) i.next();
            json.writeStringField((String) entry._1(), (String) entry._2());
        }
        json.writeEndObject();
    }

    static void raw(JsonGenerator json, String name, List values) throws IOException {
        json.writeArrayFieldStart(name);
        for (Iterator i = values.iterator(); i.hasNext();) {
            json.writeRawValue((String) i.next());
        }
        json.writeEndArray();
    }

    static String expression(Expression expression, Names names, Slots slots) throws IOException {
        StringWriter text = new StringWriter();
        JsonGenerator json = FACTORY.createGenerator(text);
        write(json, expression, names, slots);
        json.close();
        return text.toString();
    }

    private static void write(JsonGenerator json, Expression expression, Names names, Slots slots) throws IOException {
        int slot = slots == null ? -1 : slots.slot(expression);
        if (expression instanceof Literal) {
            literal(json, ((Literal) expression).value(), expression.dataType());
            return;
        }
        json.writeStartObject();
        if (slot >= 0) {
            json.writeNumberField("slot", slot);
            slots = null; // the whole is evaluated, so its parts need not be
        }
        json.writeStringField("class", expression.getClass().getName());
        json.writeStringField("type", type(expression.dataType()));
        boolean chain = expression instanceof And || expression instanceof Or; // whose other members may still serve
        if (expression instanceof PlanExpression || !expression.deterministic() && !chain) {
            opaque(json, expression, names);
        } else if (expression instanceof AttributeReference) {
            column(json, (AttributeReference) expression, names);
        } else if (expression instanceof GetStructField) {
            GetStructField field = (GetStructField) expression;
            json.writeStringField("field", ((StructType) field.child().dataType()).fieldNames()[field.ordinal()]);
            children(json, expression, names, slots);
        } else if (expression instanceof InSet) {
            inSet(json, (InSet) expression, names, slots);
        } else {
            call(json, expression, names, slots);
        }
        json.writeEndObject();
    }

    private static void opaque(JsonGenerator json, Expression expression, Names names) throws IOException {
        json.writeStringField("opaque", names.numbered(expression.toString()));
        json.writeArrayFieldStart("columns");
        for (Iterator i = ScalaInterop.list(expression.references().toSeq()).iterator(); i.hasNext();) {
            json.writeString(((NamedExpression) i.next()).name());
        }
        json.writeEndArray();
    }

    private static void column(JsonGenerator json, AttributeReference column, Names names) throws IOException {
        String name = names.of(column);
        if (name == null) {
            opaque(json, column, names);
        } else {
            json.writeStringField("column", name);
            json.writeBooleanField("nullable", column.nullable());
        }
    }

    private static void inSet(JsonGenerator json, InSet in, Names names, Slots slots) throws IOException {
        children(json, in, names, slots);
        json.writeArrayFieldStart("values");
        for (scala.collection.Iterator i = in.hset().iterator(); i.hasNext();) {
            literal(json, i.next(), in.child().dataType());
        }
        json.writeEndArray();
    }

    private static void call(JsonGenerator json, Expression expression, Names names, Slots slots) throws IOException {
        if (expression instanceof PythonUDF) {
            PythonUDF udf = (PythonUDF) expression;
            json.writeStringField("name", udf.name());
            json.writeNumberField("evalType", udf.evalType());
            PythonFunction function = udf.func();
            json.writeBinaryField("python", ScalaInterop.bytes(function));
        } else if (expression instanceof ScalaUDF) {
            ScalaUDF udf = (ScalaUDF) expression;
            json.writeStringField("name", udf.udfName().isDefined() ? (String) udf.udfName().get() : "udf");
            json.writeStringField("class", udf.function().getClass().getName());
        } else {
            json.writeStringField("name", expression.prettyName());
            arguments(json, expression);
        }
        children(json, expression, names, slots);
    }

    /** What a node holds beside its children: ANSI mode, time zone, format, escape character, ... */
    private static void arguments(JsonGenerator json, Expression expression) throws IOException {
        json.writeArrayFieldStart("args");
        Product product = (Product) expression;
        for (int i = 0; i < product.productArity(); i++) {
            Object value = product.productElement(i);
            if (value instanceof Some) {
                value = ((Some) value).get();
            }
            if (value instanceof Expression || ScalaInterop.holdsExpressions(value)) {
                continue;
            }
            if (value instanceof DataType) {
                json.writeString(type((DataType) value));
            } else {
                json.writeString(String.valueOf(value));
            }
        }
        json.writeEndArray();
    }

    private static void children(JsonGenerator json, Expression expression, Names names, Slots slots) throws IOException {
        json.writeArrayFieldStart("children");
        for (Iterator i = operands(expression).iterator(); i.hasNext();) {
            write(json, (Expression) i.next(), names, slots);
        }
        json.writeEndArray();
    }

    /** The children; of a chain of ANDs or ORs, which may be thousands long, all of its members. */
    static List operands(Expression expression) {
        if (!(expression instanceof And || expression instanceof Or)) {
            return ScalaInterop.list(expression.children());
        }
        List members = new ArrayList();
        ArrayDeque waiting = new ArrayDeque();
        waiting.push(expression);
        while (!waiting.isEmpty()) {
            Expression part = (Expression) waiting.pop();
            if (part.getClass() == expression.getClass()) {
                waiting.push(part.children().apply(1));
                waiting.push(part.children().apply(0));
            } else {
                members.add(part);
            }
        }
        return members;
    }

    static String type(DataType type) {
        return type instanceof UserDefinedType ? "udt " + type.getClass().getName() : type.catalogString();
    }

    static void literal(JsonGenerator json, Object value, DataType type) throws IOException {
        json.writeStartObject();
        json.writeStringField("type", type(type));
        if (value == null) {
            json.writeNullField("literal");
        } else if (value instanceof Boolean) {
            json.writeBooleanField("literal", ((Boolean) value).booleanValue());
        } else if (value instanceof Double) {
            json.writeNumberField("bits", Double.doubleToRawLongBits(((Double) value).doubleValue()));
        } else if (value instanceof Float) {
            double wide = ((Float) value).doubleValue(); // exact
            json.writeNumberField("bits", Double.doubleToRawLongBits(wide));
        } else if (value instanceof Decimal) {
            json.writeStringField("decimal", ((Decimal) value).toJavaBigDecimal().toPlainString());
        } else if (value instanceof Number) {
            json.writeNumberField("literal", ((Number) value).longValue());
        } else if (value instanceof UTF8String) {
            json.writeBinaryField("utf8", ((UTF8String) value).getBytes());
        } else if (value instanceof byte[]) {
            json.writeBinaryField("bytes", (byte[]) value);
        } else if (type(type).startsWith("geometry")) {
            geometry(json, value);
        } else if (value instanceof ArrayData && ((ArrayData) value).numElements() <= 10000) {
            DataType element = ((ArrayType) type).elementType();
            Object[] elements = ((ArrayData) value).toObjectArray(element);
            json.writeArrayFieldStart("array");
            for (int i = 0; i < elements.length; i++) {
                literal(json, elements[i], element);
            }
            json.writeEndArray();
        } else if (value instanceof MapData && ((MapData) value).numElements() <= 1000) {
            MapType kinds = (MapType) type;
            json.writeFieldName("keys");
            literal(json, ((MapData) value).keyArray(), new ArrayType(kinds.keyType(), false));
            json.writeFieldName("values");
            literal(json, ((MapData) value).valueArray(), new ArrayType(kinds.valueType(), true));
        } else if (value instanceof InternalRow && type instanceof StructType) {
            StructField[] fields = ((StructType) type).fields();
            json.writeArrayFieldStart("struct");
            for (int i = 0; i < fields.length; i++) {
                literal(json, ((InternalRow) value).get(i, fields[i].dataType()), fields[i].dataType());
            }
            json.writeEndArray();
        } else {
            json.writeStringField("opaque", String.valueOf(value));
        }
        json.writeEndObject();
    }

    /** A geometry of Spark's own, since 4.1: its SRID and WKB in a class whose name each release changes. */
    private static void geometry(JsonGenerator json, Object value) throws IOException {
        try {
            json.writeBinaryField("bytes", (byte[]) value.getClass().getMethod("getBytes", new Class[0])
                    .invoke(value, new Object[0]));
        } catch (ReflectiveOperationException otherwise) {
            json.writeStringField("opaque", String.valueOf(value));
        }
    }
}
