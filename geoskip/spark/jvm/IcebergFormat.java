package geoskip;

import java.lang.ref.Cleaner;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.hadoop.fs.FileSystem;
import org.apache.iceberg.BaseFileScanTask;
import org.apache.iceberg.BaseMetadataTable;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.ResidualEvaluator;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.spark.ScanTaskSetManager;
import org.apache.iceberg.spark.source.SparkScanBuilder;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.LoggerFactory;

/**
 * Tables of Apache Iceberg. geoskip creates copies of their scans with fewer files.
 *
 * Iceberg plans the files of a version (a snapshot, a branch, a tag, a range of snapshots) as tasks, each with its
 * deletes. A copy of the scan gets some of these tasks, in the way in which Iceberg's own runtime filters remove tasks.
 * So everything is read by Iceberg, with columns by field id, deletes, and its grouping of data for joins. The classes
 * are not public, so they are accessed by reflection, and only in known versions.
 */
public class IcebergFormat extends DataSourceV2Format {
    static final String SCAN = "org.apache.iceberg.spark.source.SparkBatchQueryScan";
    private static final String PACKAGE = "org.apache.iceberg.spark.source.";
    static final String OTHER_VERSION = "it is one version or branch of a table of Iceberg: index the table itself, and queries of "
            + "all its versions skip";
    private static final String TASK_SET = "scan-task-set-id";
    private static final List READ_AT = Arrays.asList(
            "snapshot-id", "as-of-timestamp", "branch", "tag", "start-snapshot-id", "end-snapshot-id", "start-timestamp",
            "end-timestamp", TASK_SET);
    private static final Cleaner CLEANER = Cleaner.create();

    static Object call(Object target, String name, Object... arguments) throws Exception {
        for (Class type = target.getClass(); type != null; type = type.getSuperclass()) {
            for (Method method : type.getDeclaredMethods()) {
                if (method.getName().equals(name) && method.getParameterTypes().length == arguments.length) {
                    method.setAccessible(true);
                    return method.invoke(target, arguments);
                }
            }
        }
        throw new NoSuchMethodException(name);
    }

    static Object field(Object target, String name) throws Exception {
        for (Class type = target.getClass(); type != null; type = type.getSuperclass()) {
            try {
                Field field = type.getDeclaredField(name);
                field.setAccessible(true);
                return field.get(target);
            } catch (NoSuchFieldException above) {
                continue;
            }
        }
        throw new NoSuchFieldException(name);
    }

    public String root(org.apache.spark.sql.connector.catalog.Table table) {
        if (table.getClass() != SparkTable.class || ((SparkTable) table).table() instanceof BaseMetadataTable) {
            return null;
        }
        return uri(((SparkTable) table).table().location()).replaceAll("/+$", "");
    }

    public org.apache.spark.sql.connector.catalog.Table narrowed(
            org.apache.spark.sql.connector.catalog.Table table, Decision decision) {
        return new NarrowedTable((SparkTable) table, decision);
    }

    public TableScan scan(Scan scan, org.apache.spark.sql.connector.catalog.Table table) throws Exception {
        if (!scan.getClass().getName().startsWith(PACKAGE)) {
            return null;
        }
        KeptFiles kept = scan.getClass().getName().equals(SCAN) ? KeptFiles.of(scan) : null;
        if (kept != null) {
            return kept.scan;
        }
        IcebergScan found = new IcebergScan(scan, table);
        if (found.reason == null) {
            found.plan();
        }
        return found;
    }

    public TableScan table(DataSourceV2Relation relation, boolean anew) throws Exception {
        if (!relation.table().getClass().getName().startsWith(PACKAGE)) {
            return null;
        }
        IcebergScan found = new IcebergScan(null, relation.table());
        for (Object option : READ_AT) {
            if (found.reason == null && relation.options().containsKey(option)) {
                found.reason = OTHER_VERSION;
            }
        }
        if (found.reason == null && anew) {
            found.table.refresh();
        }
        return found;
    }

    public LogicalPlan only(DataSourceV2Relation relation, Set paths) throws Exception {
        Table table = ((SparkTable) relation.table()).table();
        String schema = SchemaParser.toJson(table.schema());
        List tasks = new ArrayList();
        HashSet missing = new HashSet(paths);
        List snapshots = new ArrayList();
        for (Object snapshot : table.snapshots()) {
            snapshots.add(0, snapshot);
        }
        snapshots.add(0, table.currentSnapshot());
        for (Object snapshot : snapshots) { // a rewrite may have replaced a file since it was listed
            if (snapshot != null && !missing.isEmpty()) {
                for (FileScanTask task : planned(table, ((Snapshot) snapshot).snapshotId())) {
                    if (missing.remove(uri(((DataFile) task.file()).location()))) {
                        tasks.add(new BaseFileScanTask(
                                (DataFile) task.file(), new DeleteFile[0], schema, PartitionSpecParser.toJson(task.spec()),
                                ResidualEvaluator.unpartitioned(Expressions.alwaysTrue())));
                    }
                }
            }
        }
        if (!missing.isEmpty()) {
            throw new IllegalStateException("no version of the table has the file " + missing.iterator().next());
        }
        String set = "geoskip-" + UUID.randomUUID();
        ScanTaskSetManager.get().stageTasks(table, set, tasks);
        Map options = new HashMap(relation.options().asCaseSensitiveMap());
        options.put(TASK_SET, set);
        Object chosen = new CaseInsensitiveStringMap(options);
        CLEANER.register(chosen, new StagedTasks(table, set)); // copies of the relation share its options
        return relation.copy(
                relation.table(), relation.output(), relation.catalog(), relation.identifier(),
                (CaseInsensitiveStringMap) chosen);
    }

    /** The tasks of all files of a snapshot. */
    static List planned(Table table, long snapshot) throws Exception {
        List tasks = new ArrayList();
        CloseableIterable planned = table.newScan().useSnapshot(snapshot).planFiles();
        try {
            for (Object task : planned) {
                tasks.add(task);
            }
        } finally {
            planned.close();
        }
        return tasks;
    }

    /** The URI of a location in Hadoop's form: some writers leave out the scheme, others write file:///. */
    static String uri(String location) {
        String path = location.startsWith("file:///") ? "file:" + location.substring(7) : location;
        if (path.startsWith("/")) {
            if (system == null) {
                String named = FileSystem.getDefaultUri(SparkContext.getOrCreate().hadoopConfiguration()).toString();
                system = named.startsWith("file:") ? "file:" : named.replaceAll("/+$", "");
            }
            path = system + path;
        }
        return path;
    }

    private static volatile String system; // the prefix for a path without a scheme
}

/** Removes staged tasks when they are no longer used. */
class StagedTasks implements Runnable {
    private final Table table;
    private final String set;

    StagedTasks(Table table, String set) {
        this.table = table;
        this.set = set;
    }

    public void run() { ScanTaskSetManager.get().removeTasks(table, set); }
}

/** A table with scans that read only the files that a decision keeps. */
class NarrowedTable extends SparkTable {
    private final SparkTable inner;
    private final Decision decision;

    NarrowedTable(SparkTable inner, Decision decision) {
        super(inner.table(), inner.snapshotId(), false);
        this.inner = inner;
        this.decision = decision;
    }

    public String branch() { return inner.branch(); }
    public StructType schema() { return inner.schema(); }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new NarrowedScanBuilder((SparkScanBuilder) inner.newScanBuilder(options), this, decision);
    }

    public boolean equals(Object other) {
        return other instanceof NarrowedTable && inner.equals(((NarrowedTable) other).inner)
                && decision.equals(((NarrowedTable) other).decision)
                && decision.conditions.equals(((NarrowedTable) other).decision.conditions);
    }

    public int hashCode() { return inner.hashCode(); }
}

/** Wraps Iceberg's builder, and replaces the scan that it builds by a copy with the kept files. */
class NarrowedScanBuilder
        implements SupportsPushDownAggregates, SupportsPushDownV2Filters, SupportsPushDownRequiredColumns {
    private final SparkScanBuilder inner;
    private final SparkTable table;
    private final Decision decision;

    NarrowedScanBuilder(SparkScanBuilder inner, SparkTable table, Decision decision) {
        this.inner = inner;
        this.table = table;
        this.decision = decision;
    }

    public Scan build() {
        Scan scan = inner.build();
        try {
            IcebergScan found = new IcebergScan(scan, table);
            if (found.reason != null) {
                return scan;
            }
            found.plan();
            return found.reason == null ? found.narrowed(decision) : scan;
        } catch (Exception failure) {
            LoggerFactory.getLogger("geoskip").warn("geoskip left a scan of Iceberg as it was", failure);
            return scan;
        } catch (LinkageError unfit) {
            LoggerFactory.getLogger("geoskip").warn("geoskip does not fit this version of Iceberg", unfit);
            return scan;
        }
    }

    public Predicate[] pushPredicates(Predicate[] predicates) { return inner.pushPredicates(predicates); }
    public Predicate[] pushedPredicates() { return inner.pushedPredicates(); }
    public void pruneColumns(StructType columns) { inner.pruneColumns(columns); }
    public boolean pushAggregation(Aggregation aggregation) { return inner.pushAggregation(aggregation); }

    public boolean supportCompletePushDown(Aggregation aggregation) {
        return inner.supportCompletePushDown(aggregation);
    }
}
