package geoskip;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.datasources.*;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;
import scala.Product;
import scala.collection.immutable.Nil$;
import @Seq@;
import scala.runtime.AbstractPartialFunction;

/** Conversions between Scala's collections and Java's, and other helpers for Scala classes. */
public class ScalaInterop {
    public static List list(scala.collection.Iterable items) {
        List found = new ArrayList();
        for (scala.collection.Iterator i = items.iterator(); i.hasNext();) {
            found.add(i.next());
        }
        return found;
    }

    /** The fields of an instance of a case class. */
    static Object[] fields(Product product) { return list(product.productIterator().toList()).toArray(); }

    /** The fields of a scan with other filters, which are its second and third sequences. */
    static Object[] fields(FileSourceScanExec scan, Seq partitionFilters, Seq dataFilters) {
        Object[] fields = fields(scan);
        Class[] types = scan.getClass().getConstructors()[0].getParameterTypes();
        int sequences = 0;
        for (int i = 0; i < types.length; i++) {
            sequences += types[i] == Seq.class ? 1 : 0;
            boolean isFilters = types[i] == Seq.class && (sequences == 2 || sequences == 3);
            fields[i] = !isFilters ? fields[i] : sequences == 2 ? partitionFilters : dataFilters;
        }
        return fields;
    }

    public static Seq seq(List items) {
        scala.collection.immutable.List found = Nil$.MODULE$;
        for (int i = items.size() - 1; i >= 0; i--) {
            found = new scala.collection.immutable.$colon$colon(items.get(i), found);
        }
        return (Seq) found;
    }

    static List files(Seq directories) {
        List found = new ArrayList();
        for (PartitionDirectory directory : list(directories)) {
            found.addAll(list(directory.files()));
        }
        return found;
    }

    static long length(List files) {
        long sum = 0;
        for (FileStatusWithMetadata file : files) {
            sum += file.getLen();
        }
        return sum;
    }

    static long bytes(PartitionDirectory directory) { return length(list(directory.files())); }

    static byte[] bytes(PythonFunction function) {
        List command = list(function.command());
        byte[] bytes = new byte[command.size()];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = ((Byte) command.get(i)).byteValue();
        }
        return bytes;
    }

    static boolean deterministic(Seq expressions) {
        for (Expression expression : list(expressions)) {
            if (!expression.deterministic()) {
                return false;
            }
        }
        return true;
    }

    static boolean holdsExpressions(Object value) {
        return value instanceof scala.collection.Iterable && !((scala.collection.Iterable) value).isEmpty()
                && ((scala.collection.Iterable) value).head() instanceof Expression;
    }

    static boolean holdsPlan(Expression expression) {
        return expression.containsPattern(TreePattern.PLAN_EXPRESSION());
    }

    /** The conjuncts of conditions. */
    static List members(List conditions) {
        List found = new ArrayList();
        for (Expression condition : conditions) {
            if (condition instanceof And) {
                found.addAll(ExpressionJson.operands(condition));
            } else {
                found.add(condition);
            }
        }
        return found;
    }

    /** Adds a plan to those met; false if one of them has the same result. */
    static boolean isNew(QueryPlan plan, List met) {
        for (QueryPlan other : met) {
            if (other.sameResult(plan)) {
                return false;
            }
        }
        return met.add(plan);
    }

    static String conjunction(List conditions) {
        List texts = new ArrayList();
        for (Expression condition : conditions) {
            texts.add(holdsPlan(condition) ? condition.toString() : condition.sql());
        }
        return String.join(" AND ", texts);
    }

    /** The filters without subqueries, which a listing can use at any time. */
    static Seq fixed(Seq filters) {
        List fixed = new ArrayList();
        for (Expression filter : list(filters)) {
            if (!holdsPlan(filter) && !(filter instanceof DynamicPruning)) {
                fixed.add(filter);
            }
        }
        return seq(fixed);
    }

    /** All files of an index by partition; for a scan of a table format, those that its own skipping keeps. */
    static Seq unpruned(FileIndex index) { return unpruned(index, false); }

    /** All files of an index by partition, before anything was skipped. */
    static Seq whole(FileIndex index) { return unpruned(index, true); }

    private static Seq unpruned(FileIndex index, boolean whole) {
        TableFormat format = TableFormat.of(index);
        if (format != null) {
            return seq(format.directories(index, whole));
        }
        FileIndex listed = index instanceof CatalogFileIndex
                ? ((CatalogFileIndex) index).filterPartitions((Seq) Nil$.MODULE$) : index;
        return listed.listFiles((Seq) Nil$.MODULE$, (Seq) Nil$.MODULE$);
    }

    /** The URIs of a file index's root paths. */
    static List roots(FileIndex index) {
        List roots = new ArrayList();
        for (Object root : rootPaths(index)) {
            roots.add(root.toString());
        }
        return roots;
    }

    /** The root paths of a file index, with schemes also where a stream's log lists the files. */
    static List rootPaths(FileIndex index) {
        List found = new ArrayList();
        for (Object root : list(index.rootPaths())) {
            Path path = (Path) root;
            try {
                found.add(path.toUri().getScheme() != null ? path
                        : path.getFileSystem(SparkContext.getOrCreate().hadoopConfiguration()).makeQualified(path));
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }
        return found;
    }

    /** The root path of a file index as text; the first one, if there are several. */
    static String rootOf(FileIndex index) {
        List roots = list(index.rootPaths());
        return roots.isEmpty() ? "" : roots.get(0) + (roots.size() > 1 ? " and " + (roots.size() - 1) + " more" : "");
    }

    /** A relation with another file index and table; other fields depend on Spark's version and are copied. */
    static Object relocated(LogicalRelation relation, FileIndex index, Option table) {
        return relocated(relation, index, table, ((HadoopFsRelation) relation.relation()).options(), null);
    }

    /** The same relation with another file index. */
    static HadoopFsRelation relocated(HadoopFsRelation old, FileIndex index) {
        return new HadoopFsRelation(
                index, old.partitionSchema(), old.dataSchema(), old.bucketSpec(), old.fileFormat(), old.options(),
                old.sparkSession());
    }

    /** As above with other options, and with an additional column for malformed records if `bad` names one. */
    static Object relocated(
            LogicalRelation relation, FileIndex index, Option table, scala.collection.immutable.Map options,
            String bad) {
        HadoopFsRelation old = (HadoopFsRelation) relation.relation();
        StructType schema = old.dataSchema();
        Seq output = relation.output();
        if (bad != null) {
            options = options(options, bad, "columnNameOfCorruptRecord");
            schema = schema.add(bad, DataTypes.StringType);
            List columns = list(output);
            columns.add(new AttributeReference(
                    bad, DataTypes.StringType, true, Metadata.empty(), NamedExpression$.MODULE$.newExprId(),
                    (Seq) Nil$.MODULE$));
            output = seq(columns);
        }
        HadoopFsRelation replaced = new HadoopFsRelation(
                index, old.partitionSchema(), schema, old.bucketSpec(), old.fileFormat(), options,
                old.sparkSession());
        Object[] fields = fields(relation);
        for (int i = 0; i < fields.length; i++) {
            Object value = fields[i];
            fields[i] = value == old ? replaced : value == relation.catalogTable() ? table
                    : value == relation.output() ? output : value;
        }
        return relation.makeCopy(fields);
    }

    /** Reader options with some replaced, ignoring the case of their names. */
    static scala.collection.immutable.Map options(scala.collection.immutable.Map old, String value, String... names) {
        scala.collection.immutable.Map options = old;
        for (String name : names) {
            for (String key : list(old.keys())) {
                options = key.equalsIgnoreCase(name) ? (scala.collection.immutable.Map) options.$minus(key) : options;
            }
            options = (scala.collection.immutable.Map) options.$plus(new scala.Tuple2(name, value));
        }
        return options;
    }

    /** A case class with one field replaced. */
    static Object with(Product product, int field, Object value) {
        Object[] fields = fields(product);
        fields[field] = value;
        for (Constructor constructor : product.getClass().getConstructors()) {
            if (constructor.getParameterTypes().length == fields.length) {
                try {
                    return constructor.newInstance(fields);
                } catch (ReflectiveOperationException mismatch) {
                    return product;
                }
            }
        }
        return product;
    }

    /** A node of Spark from its first fields, with the defaults of other fields, whose number depends on the version. */
    static Object made(Class node, Object... first) throws Exception {
        Constructor constructor = node.getConstructors()[0];
        Class[] types = constructor.getParameterTypes();
        Object[] fields = new Object[types.length];
        for (int i = 0; i < types.length; i++) {
            fields[i] = i < first.length && first[i] != null ? first[i]
                    : types[i] == ExprId.class ? NamedExpression$.MODULE$.newExprId()
                    : types[i] == Option.class ? Option.empty() : Nil$.MODULE$;
        }
        return constructor.newInstance(fields);
    }

    private ScalaInterop() {}
}

/** A partial function from nodes of a tree to their replacements. */
abstract class Replacement extends AbstractPartialFunction {
    /** The replacement of a node; null to keep the node. */
    abstract Object of(Object node);

    public boolean isDefinedAt(Object node) { return of(node) != null; }

    public Object applyOrElse(Object node, Function1 otherwise) {
        Object found = of(node);
        return found == null ? otherwise.apply(node) : found;
    }
}
