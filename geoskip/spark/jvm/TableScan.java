package geoskip;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.fs.Path;
import @SparkSession@;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.StructType;
import org.slf4j.LoggerFactory;

/**
 * A scan of a table format with DataSource V2, which lists and reads its files itself.
 *
 * A format's class is compiled separately, if the format is on the class path, so that its dependencies are public. A
 * data file of such a table never changes: path, size and the sequence number of its addition identify it.
 */
public abstract class TableScan {
    private static volatile DataSourceV2Format format; // there is only one; null if it is not on the class path

    /** The key of a field's lasting name in its metadata. */
    public static final String LASTING_NAME = "geoskip.name";

    public String reason; // why the scan is left alone; null if files may be skipped
    public String root; // the URI of the table's folder
    public List files = new ArrayList(); // of TableFile: those that the format's own skipping keeps
    public final Map fieldIds = new LinkedHashMap(); // by the lasting names of columns in lower case
    public Decision made; // null if there is none

    /** The numbers of the files that a scan reads now, after runtime filters. */
    public abstract BitSet read(Scan scan);

    /** Lists the files. */
    public abstract void plan() throws Exception;

    /** The number and the bytes of all files of the table's version. */
    public abstract long[] totals();

    /** The URIs of all files of the table's version. */
    public abstract List allPaths();

    static void add(DataSourceV2Format added) { format = added; }

    /** The TableScan of a scan, or null if it is not one of the format. */
    static TableScan of(Scan scan, Table table) {
        try {
            return format == null ? null : format.scan(scan, table);
        } catch (Exception failure) {
            LoggerFactory.getLogger("geoskip").warn("geoskip left a table's scan as it was", failure);
        } catch (LinkageError unfit) {
            LoggerFactory.getLogger("geoskip").warn("geoskip does not fit this table format", unfit);
        }
        return null;
    }

    /** True if a plan has a scan of a table with metadata. */
    static boolean concerns(LogicalPlan plan, SparkSession session) {
        for (Object leaf : format == null ? Collections.emptyList() : ScalaInterop.list(plan.collectLeaves())) {
            if (leaf instanceof DataSourceV2Relation && !datasets((DataSourceV2Relation) leaf, session).isEmpty()) {
                return true;
            }
        }
        return false;
    }

    /** The datasets with metadata of a relation's table. */
    private static List datasets(DataSourceV2Relation relation, SparkSession session) {
        String root = format == null ? null : format.root(relation.table());
        return root == null ? Collections.emptyList()
                : MetadataLocator.datasets(Collections.singletonList(new Path(root)), session);
    }

    /**
     * The relation with a table that reads only files that may have a matching row, or the relation itself. At this
     * time Spark has not yet pushed filters to the format: all of them are still in the plan.
     */
    static LogicalPlan narrowed(
            DataSourceV2Relation relation, List conditions, List barriers, SparkSession session) throws Exception {
        boolean isFiltered = !conditions.isEmpty() || !barriers.isEmpty();
        List datasets = isFiltered ? datasets(relation, session) : Collections.emptyList();
        if (datasets.isEmpty()) {
            return relation;
        }
        long started = System.nanoTime();
        Decision decision = conditions.isEmpty() ? Decision.none(barriers)
                : question(relation, datasets, conditions, barriers, session).decision();
        decision.planningNanos = System.nanoTime() - started;
        decision.relation = relation;
        decision.conditions = conditions;
        return (LogicalPlan) ScalaInterop.with(relation, 0, format.narrowed(relation.table(), decision));
    }

    /** The request on a table that its format reads. */
    static ScanQuestion question(
            DataSourceV2Relation relation, List datasets, List conditions, List barriers, SparkSession session)
            throws Exception {
        String environment = QueryDecisions.current().environment(format.table(relation, false), session);
        List none = Collections.emptyList();
        return new ScanQuestion(
                relation, new StructType(), none, datasets, conditions, none, barriers, environment, session);
    }

    /** The facts on a relation's table that an index needs, as JSON; null if it is not a table of the format. */
    static String relation(DataSourceV2Relation relation, Map session) throws Exception {
        TableScan table = table(relation, false);
        String problem = table == null ? TableFormat.problem(relation.table().getClass().getName()) : null;
        return problem != null ? new Json().with("reason", "left alone: " + problem).toString()
                : table == null ? null : table.environment(session).with("reason", table.reason)
                .with("roots", Collections.singletonList(table.root)).with("partitions", Collections.emptyList())
                .with("schema", relation.schema().json()).with("table", table.name())
                .with("names", new Names(relation).inFiles()).with("byId", true).toString();
    }

    /** The columns of a relation with their lasting names; null if these are the current names. */
    static StructType lastingNames(DataSourceV2Relation relation) {
        try {
            TableScan table = table(relation, false);
            return table == null ? null : table.lastingNames(relation.schema());
        } catch (Exception unknown) {
            throw new IllegalStateException(unknown);
        }
    }

    static List removed(DataSourceV2Relation relation) throws Exception { return table(relation, true).removed(); }

    static TableScan table(DataSourceV2Relation relation, boolean anew) throws Exception {
        return format == null ? null : format.table(relation, anew);
    }

    /** The files of the table that a relation reads, as lines: see FileTable. */
    static String listing(DataSourceV2Relation relation, boolean anew) throws Exception {
        TableScan table = table(relation, anew);
        table.plan();
        StringBuilder lines = new StringBuilder();
        for (TableFile file : table.files) {
            lines.append(FileTable.line(file.path, file.size, file.time, null));
        }
        return lines.toString();
    }

    /** A relation over some of its table's files, given as lines: see FileTable. */
    static LogicalPlan only(DataSourceV2Relation relation, String lines) throws Exception {
        HashSet paths = new HashSet();
        for (String line : lines.split("\n")) {
            paths.add(line.split(" ", 3)[2].replace('\0', '\n'));
        }
        return format.only(relation, paths);
    }

    /** The environment of the table: see SupportedRelations. */
    Json environment(Map session) {
        Json settings = new Json();
        settings.putAll(session);
        for (Object name : fieldIds.keySet()) {
            settings.put("field id of " + name, fieldIds.get(name));
        }
        return new Json().with("format", format()).with("options", new Json()).with("settings", settings);
    }

    /** The format's name in messages. */
    public abstract String name();

    /** The format's name in metadata. */
    public abstract String format();

    /**
     * The columns with lasting names in each field's metadata: these do not change when columns are renamed, and no
     * later column has them. Null if they are the current names.
     */
    public abstract StructType lastingNames(StructType columns) throws Exception;

    /** The lasting names of identity partition columns, by which the format itself prunes files. */
    public abstract List partitionColumns() throws Exception;

    /** The URIs of files that only older versions of the table have. */
    public abstract List removed() throws Exception;
}

/** A data file of a table. */
public class TableFile {
    public final String path; // its URI
    public final long size;
    public final long time; // the sequence number of its addition

    public TableFile(String path, long size, long time) {
        this.path = path;
        this.size = size;
        this.time = time;
    }
}

/** A table format with DataSource V2 scans. */
public abstract class DataSourceV2Format {
    /** The URI of a table's folder; null for an unsupported table, or of another format. */
    public abstract String root(Table table);

    /** The same table, with scans that read the files that a decision keeps. */
    public abstract Table narrowed(Table table, Decision decision) throws Exception;

    /** The files of a planned scan, or the reason why it was left alone; null for a scan of another format. */
    public abstract TableScan scan(Scan scan, Table table) throws Exception;

    /** The whole table of a relation, or the reason why it cannot be indexed; null for another format. */
    public abstract TableScan table(DataSourceV2Relation relation, boolean anew) throws Exception;

    /** The same relation over some of the table's files, with all of their rows, including deleted ones. */
    public abstract LogicalPlan only(DataSourceV2Relation relation, Set paths) throws Exception;
}
