package geoskip;

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.BitSet;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.FileSourceOptions;
import org.apache.spark.sql.catalyst.catalog.BucketSpec;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.MaxBy;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.expressions.aggregate.MinBy;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.RightOuter$;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The rows of a node that a plan needs: those that satisfy conditions, and of these perhaps only the first of an order.
 *
 * Conditions are pushed through filters and deterministic projections, and end at every other node: the optimizer has
 * already pushed filters through all nodes that permit it. Below `GlobalLimit 10, Offset 5, LocalLimit 15, Sort x`, the
 * first 15 rows by x are needed: the global limit is remembered until its local one, and that one until the sort.
 */
class NeededRows {
    static final NeededRows ALL = new NeededRows(new ArrayList(), new ArrayList(), new ArrayList(), -1, -1);

    final List conditions;
    final List barriers; // reasons why conditions ended
    final List first; // of TopK, each of which needs its first rows; empty if all rows are needed
    private final int limit; // the number of the node's first rows that are needed; -1 for all of them
    private final int globalLimit; // of a global limit above, whose local one follows; else -1

    private NeededRows(List conditions, List barriers, List first, int limit, int globalLimit) {
        this.conditions = conditions;
        this.barriers = barriers;
        this.first = first;
        this.limit = limit;
        this.globalLimit = globalLimit;
    }

    boolean hasConditions() { return !(conditions.isEmpty() && barriers.isEmpty()); }

    /** The rows that are needed of a node's child, by its number. */
    NeededRows below(LogicalPlan plan, int child) {
        if (plan instanceof Filter) {
            List more = new ArrayList(conditions);
            more.add(((Filter) plan).condition());
            return new NeededRows(more, barriers, first, -1, -1);
        }
        boolean isProjection = plan instanceof Project;
        if (isProjection && ScalaInterop.deterministic(((Project) plan).projectList())) {
            List orders = new ArrayList();
            for (TopK order : first) {
                List by = GeoskipRule.through(plan, Collections.singletonList(order.by));
                orders.add(order.over((Expression) by.get(0)));
            }
            return new NeededRows(GeoskipRule.through(plan, conditions), barriers, orders, limit, globalLimit);
        }
        String barrier = conditions.isEmpty() || plan.children().size() != 1 ? null
                : isProjection ? "a non-deterministic projection" : SupportedRelations.barrier(plan);
        List reasons = barriers;
        if (barrier != null) {
            reasons = new ArrayList(barriers);
            reasons.add("a filter above " + barrier + " proves nothing about the files below, so it is not used");
        }
        int global = plan instanceof GlobalLimit ? number(((GlobalLimit) plan).limitExpr())
                : plan instanceof Offset ? globalLimit : -1;
        int local = plan instanceof LocalLimit && globalLimit > 0 ? number(((LocalLimit) plan).limitExpr()) : -1;
        List orders = plan instanceof Join || plan instanceof Union ? firstOf(plan, child) : firstBelow(plan);
        return new NeededRows(new ArrayList(), reasons, orders, local < globalLimit ? -1 : local, global);
    }

    private static int number(Object limit) {
        return limit instanceof Literal ? ((Integer) ((Literal) limit).value()).intValue() : -1;
    }

    /**
     * The orders over the columns of a node's child, if each of the child's rows gives rows of the node with the same
     * values: those of a union, and of the side of an outer join that keeps all its rows.
     */
    private List firstOf(LogicalPlan plan, int child) {
        LogicalPlan side = (LogicalPlan) plan.children().apply(child);
        Object type = plan instanceof Join ? ((Join) plan).joinType() : null;
        boolean isKept = type == LeftOuter$.MODULE$ && child == 0 || type == RightOuter$.MODULE$ && child == 1;
        if (!conditions.isEmpty() || type != null && (!isKept || DynamicFilePruning.isOfNearest((Join) plan))) {
            return new ArrayList();
        }
        List columns = ScalaInterop.list(plan.output());
        final Map own = new HashMap(); // the child's columns by the ids of the union's
        for (int i = 0; type == null && i < columns.size(); i++) {
            own.put(((Attribute) columns.get(i)).exprId(), side.output().apply(i));
        }
        boolean isUnclear = type == null && own.size() < columns.size();
        List found = new ArrayList();
        for (TopK order : first) {
            Expression by = (Expression) order.by.transform(new Replacement() {
                Object of(Object node) {
                    return node instanceof AttributeReference ? own.get(((AttributeReference) node).exprId()) : null;
                }
            });
            if (isUnclear || !by.references().subsetOf(side.outputSet())) {
                return new ArrayList();
            }
            found.add(order.over(by));
        }
        return found;
    }

    private List firstBelow(LogicalPlan plan) {
        List found = new ArrayList();
        if (plan instanceof Sort && ((Sort) plan).global() && limit > 0) {
            SortOrder order = (SortOrder) ((Sort) plan).order().head();
            found.add(TopK.by((Expression) order.child(), order.direction() == Descending$.MODULE$,
                    order.nullOrdering() == NullsFirst$.MODULE$, limit));
        } else if (plan instanceof Aggregate && !((Aggregate) plan).groupingExpressions().isEmpty()) {
            found = firstGroups((Aggregate) plan);
        } else if (plan instanceof Aggregate) {
            List functions = new ArrayList();
            collect(ScalaInterop.list(((Aggregate) plan).aggregateExpressions()), functions);
            for (AggregateExpression called : functions) {
                AggregateFunction function = called.aggregateFunction();
                boolean isLast = function instanceof Max || function instanceof MaxBy;
                boolean isFirst = function instanceof Min || function instanceof MinBy;
                if (!(isLast || isFirst) || called.filter().isDefined()) {
                    return new ArrayList();
                }
                found.add(TopK.by((Expression) function.children().last(), isLast, false, 1));
            }
        }
        for (TopK order : found) {
            if (!order.isUsable()) {
                return new ArrayList();
            }
        }
        return found;
    }

    /** The orders of groups by values that depend only on the expressions which group the rows. */
    private List firstGroups(Aggregate plan) {
        final Map values = new HashMap();
        for (Object item : ScalaInterop.list(plan.aggregateExpressions())) {
            values.put(((NamedExpression) item).exprId(), item instanceof Alias ? ((Alias) item).child() : item);
        }
        List found = new ArrayList();
        for (TopK order : first) {
            Expression by = (Expression) order.by.transform(new Replacement() {
                Object of(Object node) {
                    return node instanceof AttributeReference ? values.get(((AttributeReference) node).exprId()) : null;
                }
            });
            List functions = new ArrayList();
            collect(Collections.singletonList(by), functions);
            if (!conditions.isEmpty() || !functions.isEmpty()) {
                return new ArrayList();
            }
            found.add(order.ofGroups(by));
        }
        return found;
    }

    private static void collect(List expressions, List functions) {
        for (Expression expression : expressions) {
            if (expression instanceof AggregateExpression) {
                functions.add(expression);
            } else {
                collect(ScalaInterop.list(expression.children()), functions);
            }
        }
    }
}

/** An order of which a plan needs only the first rows. */
class TopK {
    private static final int MOST_PARTITIONS = 16;
    final Expression by;
    private final boolean descending;
    private final boolean nullsFirst;
    private final int rows;
    private final boolean isOfGroups; // of rows with equal values

    private TopK(Expression by, boolean descending, boolean nullsFirst, int rows, boolean isOfGroups) {
        this.by = by;
        this.descending = descending;
        this.nullsFirst = nullsFirst;
        this.rows = rows;
        this.isOfGroups = isOfGroups;
    }

    /** An order by a value, or by the first field of a struct, of which NULL is the least value. */
    static TopK by(Expression by, boolean descending, boolean nullsFirst, int rows) {
        return by instanceof CreateNamedStruct
                ? by((Expression) ((CreateNamedStruct) by).valExprs().head(), descending, !descending, rows)
                : new TopK(by, descending, nullsFirst, rows, false);
    }

    /** The same order, expressed over other columns. */
    TopK over(Expression by) { return new TopK(by, descending, nullsFirst, rows, isOfGroups); }

    /** The same order of groups, expressed over the columns of their rows. */
    TopK ofGroups(Expression by) { return new TopK(by, descending, nullsFirst, rows, true); }

    /** True for an order by a number, date, time or text that depends only on a row's values. */
    boolean isUsable() {
        DataType type = by.dataType();
        boolean isOrdered = type instanceof NumericType || type instanceof DateType || type instanceof TimestampType
                || type instanceof TimestampNTZType || type instanceof StringType;
        return isOrdered && by.deterministic() && !by.references().isEmpty() && !ScalaInterop.holdsPlan(by);
    }

    /** The references of this order to columns of partitions, or to others. */
    private boolean reads(LogicalRelation relation, boolean ofPartitions) {
        List columns = Arrays.asList(((HadoopFsRelation) relation.relation()).partitionSchema().fieldNames());
        for (Attribute column : ScalaInterop.list(by.references().toSeq())) {
            if (columns.contains(column.name()) == ofPartitions) {
                return true;
            }
        }
        return false;
    }

    /** True if the first rows may be found in a relation; groups are only found by the values of its partitions. */
    static boolean areFound(List orders, LogicalRelation relation) {
        for (TopK order : orders) {
            if (order.isOfGroups && order.reads(relation, false)) {
                return false;
            }
        }
        return !orders.isEmpty() && isCountable(relation);
    }

    /**
     * True if Spark reads all rows of a relation's files, and the files are compared again at each run. Some readers of
     * text drop malformed records, depending on the columns, and a table format drops deleted rows. Scans of sorted
     * buckets are not watched.
     */
    private static boolean isCountable(LogicalRelation relation) {
        if (!(relation.relation() instanceof HadoopFsRelation)) {
            return false;
        }
        HadoopFsRelation files = (HadoopFsRelation) relation.relation();
        FileSourceOptions options = new FileSourceOptions(files.options());
        boolean isSorted = files.bucketSpec().isDefined()
                && !((BucketSpec) files.bucketSpec().get()).sortColumnNames().isEmpty();
        return TableFormat.of(files.location()) == null && !isSorted
                && !options.ignoreCorruptFiles() && !options.ignoreMissingFiles()
                && !SupportedRelations.readsRecords(files);
    }

    /**
     * True if one of these orders is over columns of many partitions and others. It is another order in each of them, so
     * that the time of the search grows with their number.
     */
    static boolean isLongSearch(List orders, LogicalRelation relation, int partitions) {
        boolean found = false;
        for (TopK order : orders) {
            found |= order.reads(relation, true) && order.reads(relation, false);
        }
        return found && partitions > MOST_PARTITIONS;
    }

    /** These orders as text: `the first 3 rows by temp DESC`. */
    static String described(List orders) {
        List texts = new ArrayList();
        for (TopK order : orders) {
            String what = order.isOfGroups ? " group" : " row";
            String rows = order.rows == 1 ? "the first" + what : "the first " + order.rows + what + "s";
            texts.add(rows + " by " + PlannedScan.text(order.by) + (order.descending ? " DESC" : "")
                    + (order.nullsFirst ? " NULLS FIRST" : " NULLS LAST"));
        }
        return String.join(" or ", texts);
    }

    Json json(Names names, Slots slots) {
        return new Json().with("by", ExpressionJson.expression(by, names, slots)).with("descending", descending)
                .with("nulls_first", nullsFirst).with("rows", rows)
                .with("groups", isOfGroups);
    }

    /** The condition that a row comes no later than a value, given as text in base64. */
    private Expression until(String value) {
        Literal bound = literal(Base64.getDecoder().decode(value), by.dataType());
        Expression compared =
                descending ? (Expression) new GreaterThanOrEqual(by, bound) : new LessThanOrEqual(by, bound);
        return nullsFirst ? new Or(compared, new IsNull(by)) : compared;
    }

    private static Literal literal(byte[] bytes, DataType type) {
        String text = new String(bytes, StandardCharsets.UTF_8);
        Object value = type instanceof StringType ? (Object) UTF8String.fromBytes(bytes)
                : type instanceof ByteType ? (Object) Byte.valueOf(text)
                : type instanceof ShortType ? (Object) Short.valueOf(text)
                : type instanceof IntegerType || type instanceof DateType ? (Object) Integer.valueOf(text)
                : type instanceof FloatType ? (Object) Float.valueOf(text)
                : type instanceof DoubleType ? (Object) Double.valueOf(text)
                : type instanceof DecimalType ? (Object) Decimal.apply(
                        new BigDecimal(text), ((DecimalType) type).precision(), ((DecimalType) type).scale())
                : (Object) Long.valueOf(text);
        return new Literal(value, type);
    }

    /**
     * The proof, by the rows of some files, that other rows are not among the first of any of these orders; null if
     * there is none. Of the budget for planning only some milliseconds are left.
     */
    static CountedFiles proof(List orders, Decision decision, List directories, long budget, long left)
            throws Exception {
        Json request = new Json().with("report", Json.raw(decision.reply)).with("budget", budget / 1000.0)
                .with("left", left / 1000.0).with("listed", decision.listed(directories, true));
        String answer = Geoskip.ask("first " + request, left);
        if (answer == null || answer.isEmpty()) {
            return null;
        }
        String[] lines = answer.split("\n");
        String[] values = lines[0].split(" ");
        Expression among = ((TopK) orders.get(0)).until(values[0]);
        for (int i = 1; i < values.length; i++) {
            among = new Or(among, ((TopK) orders.get(i)).until(values[i]));
        }
        CountedFiles counted = new CountedFiles(among);
        for (int i = 1; i < lines.length; i++) {
            int space = lines[i].indexOf(' ');
            counted.add(decision, directories, lines[i].substring(space + 1),
                    BitSet.valueOf(Base64.getDecoder().decode(lines[i].substring(0, space))));
        }
        return counted.areMany() || counted.haveChanged() ? null : counted;
    }
}

/** Files whose rows prove a condition on the first rows of an order; if one has changed, they prove nothing. */
class CountedFiles {
    private static final int MOST = 100; // looked at whenever a plan is run
    final Expression proved;
    private final List tables = new ArrayList(); // of FileTable, one for each file
    private final List files = new ArrayList(); // of FileStatusWithMetadata

    CountedFiles(Expression proved) { this.proved = proved; }

    void add(Decision decision, List directories, String root, BitSet numbers) {
        for (FileTable table : decision.tables) {
            for (Object file : ScalaInterop.files(ScalaInterop.seq(directories))) {
                int number = table.root.equals(root) ? table.number(file) : -1;
                if (number >= 0 && numbers.get(number)) {
                    tables.add(table);
                    files.add(file);
                }
            }
        }
    }

    boolean areMany() { return files.size() > MOST; }

    boolean haveChanged() {
        for (int i = 0; i < files.size(); i++) {
            FileTable table = (FileTable) tables.get(i);
            FileStatusWithMetadata file = (FileStatusWithMetadata) files.get(i);
            if (table.isWritten(table.number(file), file.getPath()) || hasOtherStatus(file)) {
                return true;
            }
        }
        return false;
    }

    /** True if a file, perhaps of a remote file system, is not as it was listed. */
    private static boolean hasOtherStatus(FileStatusWithMetadata file) {
        try {
            FileStatus now = file.getPath().getFileSystem(SparkContext.getOrCreate().hadoopConfiguration())
                    .getFileStatus(file.getPath());
            return now.getLen() != file.getLen() || now.getModificationTime() != file.getModificationTime();
        } catch (Exception gone) { // or not to be had
            return true;
        }
    }

    public boolean equals(Object other) {
        return other instanceof CountedFiles && files.equals(((CountedFiles) other).files);
    }

    public int hashCode() { return files.hashCode(); }
}
