package geoskip;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.util.RawValue;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Product;
import scala.Some;

/** A JSON object with ordered members. Bytes are written as Base64. */
class Json extends LinkedHashMap {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    Json with(String name, Object value) {
        put(name, value);
        return this;
    }

    Json withAll(scala.collection.Map members) {
        for (scala.Tuple2 member : ScalaInterop.list(members)) {
            put(member._1(), member._2());
        }
        return this;
    }

    /** A text that is JSON already. */
    static Object raw(String json) { return new RawValue(json); }

    /** Maps, lists, texts, bytes and numbers as JSON. */
    static String text(Object value) {
        try {
            return MAPPER.writeValueAsString(value);
        } catch (JsonProcessingException unfit) {
            throw new IllegalArgumentException(unfit);
        }
    }

    public String toString() { return text(this); }
}

/** Catalyst expressions as JSON: class, name, type, children and further arguments; literals with their types. */
class ExpressionJson {
    static Json expression(Expression expression, Names names, Slots slots) {
        if (expression instanceof Literal) {
            return literal(((Literal) expression).value(), expression.dataType());
        }
        Json json = new Json();
        int slot = slots == null ? -1 : slots.slot(expression);
        if (slot >= 0) {
            json.put("slot", slot);
            slots = null; // the whole expression is evaluated, so its parts need not be
        }
        json.with("class", expression.getClass().getName()).with("type", type(expression.dataType()));
        Json inFiles = expression instanceof GetStructField ? names.inFiles(expression) : null;
        if (inFiles != null) {
            return inFiles;
        }
        boolean chain = expression instanceof And || expression instanceof Or; // other operands may still be usable
        String column = expression instanceof AttributeReference ? names.of((AttributeReference) expression) : null;
        if (column != null) {
            return Names.named(json, "column", column, names.logical((AttributeReference) expression))
                    .with("nullable", expression.nullable());
        }
        if (expression instanceof PlanExpression || expression instanceof AttributeReference
                || !expression.deterministic() && !chain || isOfClient(expression)) {
            List columns = new ArrayList();
            for (NamedExpression read : ScalaInterop.list(expression.references().toSeq())) {
                columns.add(read.name());
            }
            json.with("opaque", names.numbered(expression.toString())).with("columns", columns);
            return names.hasOtherFields(expression) ? json.with("renamed", true) : json;
        }
        if (expression instanceof GetStructField) {
            GetStructField field = (GetStructField) expression;
            json.put("field", ((StructType) field.child().dataType()).fieldNames()[field.ordinal()]);
        } else if (!(expression instanceof InSet)) {
            call(json, expression);
        }
        List children = new ArrayList();
        for (Expression child : operands(expression)) {
            children.add(expression(child, names, slots));
        }
        json.put("children", children);
        if (expression instanceof InSet) {
            InSet in = (InSet) expression;
            json.put("values", literals(ScalaInterop.list(in.hset()).toArray(), in.child().dataType()));
        }
        return json;
    }

    /**
     * True for a Python function of a client of Spark Connect: its bytes are not unpickled in the driver, whose modules
     * and environment may differ from those that the client's workers get. Functions of the driver have an environment.
     */
    private static boolean isOfClient(Expression expression) {
        return expression instanceof PythonUDF && ((PythonUDF) expression).func().envVars().isEmpty();
    }

    private static void call(Json json, Expression expression) {
        if (expression instanceof PythonUDF) {
            PythonUDF udf = (PythonUDF) expression;
            json.with("name", udf.name()).with("evalType", udf.evalType()).with("python", ScalaInterop.bytes(udf.func()));
        } else if (expression instanceof ScalaUDF) {
            ScalaUDF udf = (ScalaUDF) expression;
            json.put("name", udf.udfName().isDefined() ? udf.udfName().get() : "udf");
            json.with("class", udf.function().getClass().getName()).put("isFunction", true);
        } else {
            json.with("name", expression.prettyName()).with("args", arguments(expression));
            if (isOfUser(expression)) {
                json.put("isFunction", true);
            }
        }
    }

    /** True for a function of a user's class, of which the name does not tell the version. */
    private static boolean isOfUser(Expression expression) {
        boolean isStatic = expression instanceof StaticInvoke;
        String name = (isStatic ? ((StaticInvoke) expression).staticObject() : expression.getClass()).getName();
        return !name.startsWith("org.apache.spark.") && !name.startsWith("java.")
                || name.startsWith("org.apache.spark.sql.hive.");
    }

    /** The arguments of a node that are not children: ANSI mode, time zone, format, escape character, ... */
    private static List arguments(Expression expression) {
        List arguments = new ArrayList();
        for (Object value : ScalaInterop.fields((Product) expression)) {
            if (value instanceof Some) {
                value = ((Some) value).get();
            }
            if (!(value instanceof Expression || ScalaInterop.holdsExpressions(value))) {
                arguments.add(value instanceof DataType ? type((DataType) value) : String.valueOf(value));
            }
        }
        return arguments;
    }

    /** The children; for a chain of ANDs or ORs, which may have thousands of operands, all of these. */
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

    private static List literals(Object[] values, DataType type) {
        List found = new ArrayList();
        for (Object value : values) {
            found.add(literal(value, type));
        }
        return found;
    }

    static Json literal(Object value, DataType type) {
        Json json = new Json().with("type", type(type));
        if (value instanceof Double || value instanceof Float) { // a float is converted to a double exactly
            return json.with("bits", Double.doubleToRawLongBits(((Number) value).doubleValue()));
        }
        if (value instanceof Decimal) {
            return json.with("decimal", ((Decimal) value).toJavaBigDecimal().toPlainString());
        }
        if (value == null || value instanceof Boolean || value instanceof Number) {
            return json.with("literal", value);
        }
        if (value instanceof UTF8String) {
            return json.with("utf8", ((UTF8String) value).getBytes());
        }
        if (value instanceof byte[]) {
            return json.with("bytes", value);
        }
        if (type(type).startsWith("geometry")) {
            return geometry(json, value);
        }
        if (value instanceof ArrayData && ((ArrayData) value).numElements() <= 10000) {
            DataType element = ((ArrayType) type).elementType();
            return json.with("array", literals(((ArrayData) value).toObjectArray(element), element));
        }
        if (value instanceof MapData && ((MapData) value).numElements() <= 1000) {
            MapData map = (MapData) value;
            MapType kinds = (MapType) type;
            return json.with("keys", literal(map.keyArray(), new ArrayType(kinds.keyType(), false)))
                    .with("values", literal(map.valueArray(), new ArrayType(kinds.valueType(), true)));
        }
        if (value instanceof InternalRow && type instanceof StructType) {
            StructField[] fields = ((StructType) type).fields();
            List values = new ArrayList();
            for (int i = 0; i < fields.length; i++) {
                values.add(literal(((InternalRow) value).get(i, fields[i].dataType()), fields[i].dataType()));
            }
            return json.with("struct", values);
        }
        return json.with("opaque", String.valueOf(value));
    }

    /** A built-in geometry of Spark, since 4.1: its SRID and WKB, from a class with another name in each release. */
    private static Json geometry(Json json, Object value) {
        try {
            return json.with("bytes", value.getClass().getMethod("getBytes", new Class[0]).invoke(value, new Object[0]));
        } catch (ReflectiveOperationException otherwise) {
            return json.with("opaque", String.valueOf(value));
        }
    }
}

/** The names of a relation's columns by expression id: as in the relation, not as spelled in a query. */
class Names {
    private static final Pattern ID = Pattern.compile("#\\d+");
    private final LinkedHashMap names = new LinkedHashMap();
    private final HashMap mapped = new HashMap(); // to the field of a table's schema, if files have other names
    private String key; // key in a field's metadata of its name in the files
    private final HashMap ids = new HashMap(); // Spark's ids to those of this request

    Names(LogicalPlan relation) {
        for (Attribute column : ScalaInterop.list(relation.output())) {
            if (!column.metadata().contains("__metadata_col")) {
                names.put(column.exprId(), column.name());
            }
        }
        boolean ofFiles = relation instanceof LogicalRelation
                && ((LogicalRelation) relation).relation() instanceof HadoopFsRelation;
        HadoopFsRelation files = ofFiles ? (HadoopFsRelation) ((LogicalRelation) relation).relation() : null;
        TableFormat format = ofFiles ? TableFormat.of(files.location()) : null;
        StructType schema = relation instanceof DataSourceV2Relation ? TableScan.lastingNames((DataSourceV2Relation) relation)
                : format == null ? null : format.mappedSchema(files);
        for (Object id : schema == null ? new ArrayList() : new ArrayList(names.keySet())) {
            key = format == null ? TableScan.LASTING_NAME : format.physicalKey();
            if (Arrays.asList(schema.fieldNames()).contains(names.get(id))) {
                mapped.put(id, schema.apply((String) names.get(id)));
            }
        }
    }

    /** A column, or a field of one, by its name in the files as JSON; null if the files have the same names. */
    Json inFiles(Expression expression) {
        StructField field = field(expression);
        if (field == null) {
            return null;
        }
        Json json = new Json().with("class", expression.getClass().getName())
                .with("type", ExpressionJson.type(expression.dataType()));
        if (expression instanceof AttributeReference) {
            return named(json, "column", nameOf(field), field.name()).with("nullable", expression.nullable());
        }
        List children = new ArrayList();
        children.add(inFiles(((GetStructField) expression).child()));
        return named(json, "field", nameOf(field), field.name()).with("children", children);
    }

    /** Adds a name in the files, and that in the table if it is another. */
    static Json named(Json json, String kind, String inFiles, String logical) {
        json.put(kind, inFiles);
        return inFiles.equals(logical) ? json : json.with("shown", logical);
    }

    private StructField field(Expression expression) {
        if (expression instanceof AttributeReference) {
            return (StructField) mapped.get(((AttributeReference) expression).exprId());
        }
        StructField above = expression instanceof GetStructField ? field(((GetStructField) expression).child()) : null;
        if (above == null) {
            return null;
        }
        GetStructField part = (GetStructField) expression;
        String name = ((StructType) part.child().dataType()).fieldNames()[part.ordinal()];
        return ((StructType) above.dataType()).apply(name);
    }

    private String nameOf(StructField field) {
        return field.metadata().contains(key) ? field.metadata().getString(key) : field.name();
    }

    /** For columns and their fields, pairs of the name in the files and in the table, each as a list of parts. */
    List inFiles() {
        List pairs = new ArrayList();
        for (Object id : mapped.keySet()) {
            pairs((StructField) mapped.get(id), new ArrayList(), new ArrayList(), pairs);
        }
        return pairs;
    }

    private void pairs(StructField field, List above, List logical, List pairs) {
        List physical = new ArrayList(above);
        List name = new ArrayList(logical);
        physical.add(nameOf(field));
        name.add(field.name());
        pairs.add(Arrays.asList(new Object[] {physical, name}));
        if (field.dataType() instanceof StructType) {
            for (StructField inner : ((StructType) field.dataType()).fields()) {
                pairs(inner, physical, name, pairs);
            }
        }
    }

    /** A column's name in the table, or null if it is not a column of the files. */
    String logical(AttributeReference column) { return (String) names.get(column.exprId()); }

    /** Renumbers the ids in a text of Spark by occurrence, so that equal requests have the same text. */
    String numbered(String text) {
        Matcher matcher = ID.matcher(text);
        StringBuffer numbered = new StringBuffer();
        while (matcher.find()) {
            ids.putIfAbsent(matcher.group(), "#" + (ids.size() + 1));
            matcher.appendReplacement(numbered, (String) ids.get(matcher.group()));
        }
        return matcher.appendTail(numbered).toString();
    }

    /**
     * A column's name in the files, or null for other columns: `_metadata`, or those of another relation. It is also
     * null for a whole column with fields of other names in the files.
     */
    String of(AttributeReference column) {
        StructField field = (StructField) mapped.get(column.exprId());
        if (field == null) {
            return (String) names.get(column.exprId());
        }
        return hasOtherNames(field.dataType()) ? null : nameOf(field);
    }

    /** True for such a column. */
    boolean hasOtherFields(Expression expression) {
        return expression instanceof AttributeReference && of((AttributeReference) expression) == null
                && mapped.containsKey(((AttributeReference) expression).exprId());
    }

    /** True if fields within a type have other names in the files. */
    private boolean hasOtherNames(DataType type) {
        if (type instanceof ArrayType) {
            return hasOtherNames(((ArrayType) type).elementType());
        }
        if (type instanceof MapType) {
            return hasOtherNames(((MapType) type).keyType()) || hasOtherNames(((MapType) type).valueType());
        }
        for (StructField field : type instanceof StructType ? ((StructType) type).fields() : new StructField[0]) {
            if (!nameOf(field).equals(field.name()) || hasOtherNames(field.dataType())) {
                return true;
            }
        }
        return false;
    }
}
