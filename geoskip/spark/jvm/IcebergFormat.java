package geoskip;

import java.lang.ref.Cleaner;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.BitSet;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import java.util.function.BinaryOperator;
import org.apache.hadoop.fs.FileSystem;
import org.apache.iceberg.BaseFileScanTask;
import org.apache.iceberg.BaseMetadataTable;
import org.apache.iceberg.BatchScan;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableProperties;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.ResidualEvaluator;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestReader;
import org.apache.iceberg.mapping.MappedField;
import org.apache.iceberg.mapping.NameMapping;
import org.apache.iceberg.mapping.NameMappingParser;
import org.apache.iceberg.spark.ScanTaskSetManager;
import org.apache.iceberg.spark.source.SparkScanBuilder;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
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
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.LoggerFactory;

/**
 * Tables of Apache Iceberg, whose scans geoskip makes again with fewer of their files.
 *
 * Iceberg plans the files of a version (a snapshot, a branch, a tag, a range of snapshots) as tasks, each with the deletes
 * that apply to it. The same scan is made with some of these tasks, by the means with which Iceberg's own filters at run
 * time leave out tasks: whatever reads them is Iceberg's, with its columns by field id, its deletes, and its grouping of
 * data for joins. Both classes are not public, so they are reached by reflection, and only as they are known.
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
            org.apache.spark.sql.connector.catalog.Table table, TableDecision decision) {
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

    /** The URI of a location as Hadoop writes it: some writers leave out the scheme, others write file:///. */
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

    private static volatile String system; // what comes before a path without a scheme
}

/** Removes staged tasks once nothing reads them any more. */
class StagedTasks implements Runnable {
    private final Table table;
    private final String set;

    StagedTasks(Table table, String set) {
        this.table = table;
        this.set = set;
    }

    public void run() { ScanTaskSetManager.get().removeTasks(table, set); }
}

/** A table whose scans read the files that a decision keeps. */
class NarrowedTable extends SparkTable {
    private final SparkTable inner;
    private final TableDecision decision;

    NarrowedTable(SparkTable inner, TableDecision decision) {
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
                && decision.equals(((NarrowedTable) other).decision);
    }

    public int hashCode() { return inner.hashCode(); }
}

/** Iceberg's own builder, whose scan is made again with the kept files in the end. */
class NarrowedScanBuilder
        implements SupportsPushDownAggregates, SupportsPushDownV2Filters, SupportsPushDownRequiredColumns {
    private final SparkScanBuilder inner;
    private final SparkTable table;
    private final TableDecision decision;

    NarrowedScanBuilder(SparkScanBuilder inner, SparkTable table, TableDecision decision) {
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

/** A scan of a version of a table, or the table itself. */
class IcebergScan extends TableScan {
    private static final List KNOWN = Arrays.asList(
            "SparkSession", "Table", "Scan", "SparkReadConf", "Schema", "List", "Supplier");
    final Table table;
    private final Scan scan; // null where it is the table itself
    private Snapshot snapshot; // null where there is none, or several
    private List tasks = new ArrayList(); // of FileScanTask
    private IdentityHashMap numbers; // of data files
    private Object[] whole; // paths and bytes of all files of the snapshot
    private Schema schema;
    private HashMap names; // the first ones of fields, by id
    private HashMap taken; // the lowest ids of fields that were called so

    IcebergScan(Scan scan, org.apache.spark.sql.connector.catalog.Table read) throws Exception {
        this.scan = scan;
        if (!(read instanceof SparkTable)) {
            table = null;
            reason = "left alone: the rows that a row-level command of Iceberg changes are found by Iceberg alone";
            return;
        }
        table = ((SparkTable) read).table();
        root = IcebergFormat.uri(table.location()).replaceAll("/+$", "");
        reason = reason((SparkTable) read);
        schema = scan == null ? (Schema) IcebergFormat.call(read, "snapshotSchema") : (Schema) IcebergFormat.call(scan, "expectedSchema");
        identify();
    }

    private String reason(SparkTable read) {
        if (table instanceof BaseMetadataTable) {
            return "left alone: a metadata table of Iceberg";
        }
        if (scan == null) {
            return read.snapshotId() != null || read.branch() != null ? IcebergFormat.OTHER_VERSION : null;
        }
        if (!scan.getClass().getName().equals(IcebergFormat.SCAN)) {
            return "left alone: a " + scan.getClass().getSimpleName() + " of Iceberg";
        }
        List types = new ArrayList();
        for (Class type : scan.getClass().getDeclaredConstructors()[0].getParameterTypes()) {
            types.add(type.getSimpleName());
        }
        return types.equals(KNOWN) ? null : "left alone: geoskip does not know the scans of this version of Iceberg";
    }

    /** The identity of the columns: two of one name have different ids, and one that was renamed has the same. */
    private void identify() throws Exception {
        String mapped = (String) table.properties().get(TableProperties.DEFAULT_NAME_MAPPING);
        NameMapping mapping = mapped == null ? null : NameMappingParser.fromJson(mapped);
        for (Types.NestedField column : schema.columns()) {
            MappedField named = mapping == null ? null : mapping.find(column.fieldId());
            String name = lastingName(column, null).toLowerCase(Locale.ROOT);
            fieldIds.put(name, fieldIds.getOrDefault(name, "") + "" + column.fieldId()
                    + (column.type().isNestedType() ? " " + ids(column.type()) : "")
                    + (named == null ? "" : " in files as " + named.names()) + " of " + table.uuid());
        }
    }

    /** The ids of the fields of a type, in their order. */
    private static String ids(Type type) {
        StringBuilder ids = new StringBuilder();
        for (Types.NestedField field : type.asNestedType().fields()) {
            ids.append(field.fieldId()).append(field.type().isNestedType() ? "(" + ids(field.type()) + ") " : " ");
        }
        return ids.toString().trim();
    }

    /**
     * What a column, or a field of one, was called first; with its id behind where an older one was called so too. Of two
     * fields with one name at least one has another id in `fieldIds`, so that nothing depends on old schemas being there.
     */
    private String lastingName(Types.NestedField field, Types.NestedField above) {
        if (names == null) {
            names = new HashMap();
            taken = new HashMap();
            for (Object old : new TreeMap(table.schemas()).values()) {
                learn(((Schema) old).columns(), "");
            }
        }
        String first = (String) names.getOrDefault(field.fieldId(), field.name());
        Object owner = taken.get((above == null ? "" : above.fieldId() + ".") + first);
        return owner == null || owner.equals(field.fieldId()) ? first : first + "#" + field.fieldId();
    }

    private void learn(List fields, String above) {
        for (Types.NestedField field : fields) {
            names.putIfAbsent(field.fieldId(), field.name());
            String name = above + names.get(field.fieldId());
            taken.merge(name, field.fieldId(), new BinaryOperator() {
                public Object apply(Object one, Object other) { return Math.min((Integer) one, (Integer) other); }
            });
            if (field.type().isStructType()) {
                learn(field.type().asStructType().fields(), field.fieldId() + ".");
            }
        }
    }

    public StructType lastingNames(StructType columns) throws Exception {
        boolean[] differs = new boolean[1];
        StructType named = named(columns, schema.asStruct(), null, differs);
        return differs[0] ? named : null;
    }

    private StructType named(StructType columns, Types.StructType fields, Types.NestedField above, boolean[] differs) {
        StructField[] named = (StructField[]) columns.fields().clone();
        for (int i = 0; i < named.length; i++) {
            Types.NestedField field = fields.field(named[i].name());
            if (field != null) { // else it is no column of the files
                String name = lastingName(field, above);
                differs[0] |= !name.equals(field.name());
                DataType type = named[i].dataType() instanceof StructType && field.type().isStructType()
                        ? named((StructType) named[i].dataType(), field.type().asStructType(), field, differs)
                        : named[i].dataType();
                named[i] = new StructField(named[i].name(), type, named[i].nullable(),
                        new MetadataBuilder().putString(LASTING_NAME, name).build());
            }
        }
        return new StructType(named);
    }

    public List removed() throws Exception {
        HashSet found = new HashSet();
        HashSet known = new HashSet(); // manifests that were read
        Snapshot current = table.currentSnapshot();
        for (Snapshot old : table.snapshots()) {
            for (ManifestFile manifest : old.dataManifests(table.io())) {
                if (known.add(manifest.path())) {
                    addFiles(manifest, found);
                }
            }
        }
        for (ManifestFile manifest : current == null ? new ArrayList() : current.dataManifests(table.io())) {
            HashSet now = new HashSet();
            addFiles(manifest, now);
            found.removeAll(now);
        }
        return new ArrayList(found);
    }

    private void addFiles(ManifestFile manifest, Set paths) throws Exception {
        ManifestReader reader = ManifestFiles.read(manifest, table.io(), table.specs());
        try {
            for (DataFile file : (Iterable) reader.select(Collections.singletonList("file_path"))) {
                paths.add(IcebergFormat.uri(file.location()));
            }
        } finally {
            reader.close();
        }
    }

    public String name() { return "Iceberg"; }

    public String format() { return "iceberg"; }

    public void plan() throws Exception {
        Object planned = scan == null ? null : IcebergFormat.field(scan, "scan");
        if (scan == null) {
            snapshot = table.currentSnapshot();
            tasks = snapshot == null ? new ArrayList() : IcebergFormat.planned(table, snapshot.snapshotId());
        } else {
            snapshot = planned instanceof BatchScan ? ((BatchScan) planned).snapshot() : null;
            tasks = (List) IcebergFormat.call(scan, "tasks");
        }
        paths = new String[tasks.size()];
        sizes = new long[paths.length];
        times = new long[paths.length];
        for (int i = 0; i < paths.length; i++) {
            if (!(tasks.get(i) instanceof FileScanTask)) {
                reason = "left alone: its tasks are " + tasks.get(i).getClass().getName() + ", which are no data files";
                paths = new String[0];
                return;
            }
            DataFile file = (DataFile) ((FileScanTask) tasks.get(i)).file();
            paths[i] = IcebergFormat.uri(file.location());
            sizes[i] = file.fileSizeInBytes();
            times[i] = file.fileSequenceNumber() == null ? 0 : file.fileSequenceNumber().longValue();
        }
    }

    /** The same scan of the files that a decision keeps. */
    Scan narrowed(TableDecision decision) throws Exception {
        BitSet kept = decision.kept(this);
        made = decision;
        List left = new ArrayList();
        for (int i = kept.nextSetBit(0); i >= 0; i = kept.nextSetBit(i + 1)) {
            left.add(tasks.get(i));
        }
        List filters = new ArrayList((List) IcebergFormat.call(scan, "filterExpressions"));
        filters.add(new KeptFiles(this, left));
        Constructor maker = scan.getClass().getDeclaredConstructors()[0];
        maker.setAccessible(true);
        Scan narrowed = (Scan) maker.newInstance(
                IcebergFormat.field(scan, "spark"), table, IcebergFormat.field(scan, "scan"),
                IcebergFormat.field(scan, "readConf"), IcebergFormat.call(scan, "expectedSchema"), filters,
                IcebergFormat.field(scan, "scanReportSupplier"));
        IcebergFormat.call(narrowed, "resetTasks", left);
        return narrowed;
    }

    public BitSet read(Scan scan) {
        BitSet read = new BitSet();
        try {
            List now = (List) IcebergFormat.call(scan, "tasks");
            if (numbers == null) {
                IdentityHashMap found = new IdentityHashMap();
                for (int i = 0; i < tasks.size(); i++) {
                    found.put(tasks.get(i), i);
                }
                numbers = found;
            }
            for (Object task : now) {
                if (numbers.containsKey(task)) {
                    read.set((Integer) numbers.get(task));
                }
            }
        } catch (Exception unknown) {
            read.set(0, paths.length);
        }
        return read;
    }

    public long[] totals() { return new long[] {allPaths().size(), (Long) whole[1]}; }

    public synchronized List allPaths() {
        if (whole == null) {
            List found = new ArrayList();
            long bytes = 0;
            List all = tasks;
            try {
                all = snapshot == null || scan == null ? tasks : IcebergFormat.planned(table, snapshot.snapshotId());
            } catch (Exception gone) { // the snapshot has expired
                all = tasks;
            }
            for (FileScanTask task : all) {
                found.add(IcebergFormat.uri(((DataFile) task.file()).location()));
                bytes += ((DataFile) task.file()).fileSizeInBytes();
            }
            whole = new Object[] {found, bytes};
        }
        return (List) whole[0];
    }
}

/** A member of a scan's filters that is always true, and tells the scan from others of the same table by its files. */
class KeptFiles implements org.apache.iceberg.expressions.Expression {
    final transient IcebergScan scan;
    private final String text;

    KeptFiles(IcebergScan scan, List tasks) throws Exception {
        this.scan = scan;
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        for (FileScanTask task : tasks) {
            digest.update(((DataFile) task.file()).location().getBytes("UTF-8"));
            digest.update((byte) 0);
        }
        byte[] sum = digest.digest();
        text = "geoskip keeps " + tasks.size() + " of " + scan.paths.length + " files (" + Base64.getEncoder().encodeToString(sum) + ")";
    }

    /** That of a scan that was narrowed, else null. */
    static KeptFiles of(Scan scan) throws Exception {
        for (Object filter : (List) IcebergFormat.call(scan, "filterExpressions")) {
            if (filter instanceof KeptFiles) {
                return (KeptFiles) filter;
            }
        }
        return null;
    }

    public org.apache.iceberg.expressions.Expression.Operation op() {
        return org.apache.iceberg.expressions.Expression.Operation.TRUE;
    }

    public org.apache.iceberg.expressions.Expression negate() { return Expressions.alwaysFalse(); }

    public boolean isEquivalentTo(org.apache.iceberg.expressions.Expression other) { return this == other; }

    public String toString() { return text; }
}
