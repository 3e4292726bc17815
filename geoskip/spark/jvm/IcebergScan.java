package geoskip;

import java.lang.reflect.Constructor;
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
import java.util.Set;
import java.util.TreeMap;
import java.util.function.BinaryOperator;
import org.apache.iceberg.BaseMetadataTable;
import org.apache.iceberg.BatchScan;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableProperties;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestReader;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.mapping.MappedField;
import org.apache.iceberg.mapping.NameMapping;
import org.apache.iceberg.mapping.NameMappingParser;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** A scan of a version of a table, or the table itself. */
class IcebergScan extends TableScan {
    private static final List KNOWN = Arrays.asList(
            "SparkSession", "Table", "Scan", "SparkReadConf", "Schema", "List", "Supplier");
    final Table table;
    private final Scan scan; // null for the table itself
    private Snapshot snapshot; // null if there is none, or several
    private List tasks = new ArrayList(); // of FileScanTask
    private IdentityHashMap numbers; // of data files
    private Object[] whole; // paths and bytes of all files of the snapshot
    private Schema schema;
    private HashMap names; // the first names of fields, by id
    private HashMap taken; // by name, the lowest id of the fields that had it

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

    /**
     * The identity of columns: different columns with one name have different ids, and a renamed column keeps its id.
     * Files without ids are read by a name mapping, which commands can change, also for fields of structs.
     */
    private void identify() throws Exception {
        String mapped = (String) table.properties().get(TableProperties.DEFAULT_NAME_MAPPING);
        NameMapping mapping = mapped == null ? null : NameMappingParser.fromJson(mapped);
        for (Types.NestedField column : schema.columns()) {
            MappedField named = mapping == null ? null : mapping.find(column.fieldId());
            String name = lastingName(column, null).toLowerCase(Locale.ROOT);
            fieldIds.put(name, fieldIds.getOrDefault(name, "") + "" + column.fieldId()
                    + (column.type().isNestedType() ? " " + ids(column) : "")
                    + (named == null ? "" : " in files as " + named) + " of " + table.uuid());
        }
    }

    /** The ids and lasting names of the fields in a column; a first name may be lost with old schemas of the table. */
    private String ids(Types.NestedField above) {
        StringBuilder ids = new StringBuilder();
        for (Types.NestedField field : above.type().asNestedType().fields()) {
            ids.append(field.fieldId()).append('=').append(lastingName(field, above))
                    .append(field.type().isNestedType() ? "(" + ids(field) + ") " : " ");
        }
        return ids.toString().trim();
    }

    /**
     * The first name of a column, or of a field of one. The id is appended if an older field had this name, ignoring
     * case, or if the name contains a #. If two fields have one name, at least one has another id in `fieldIds`, so
     * that soundness does not depend on the existence of old schemas.
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
        Object owner = taken.get((above == null ? "" : above.fieldId() + ".") + first.toLowerCase(Locale.ROOT));
        boolean alone = (owner == null || owner.equals(field.fieldId())) && first.indexOf('#') < 0;
        return alone ? first : first + "#" + field.fieldId();
    }

    private void learn(List fields, String above) {
        for (Types.NestedField field : fields) {
            names.putIfAbsent(field.fieldId(), field.name());
            String name = above + ((String) names.get(field.fieldId())).toLowerCase(Locale.ROOT);
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
            if (field != null) { // else it is not a column of the files
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

    public List partitionColumns() {
        Set ids = null; // of columns with an identity partition transform in every partition spec
        for (PartitionSpec spec : table.specs().values()) {
            HashSet found = new HashSet();
            for (PartitionField field : spec.fields()) {
                if (field.transform().isIdentity()) {
                    found.add(field.sourceId());
                }
            }
            if (ids != null) {
                found.retainAll(ids);
            }
            ids = found;
        }
        List columns = new ArrayList();
        for (Types.NestedField column : table.schema().columns()) {
            if (ids != null && ids.contains(column.fieldId())) {
                columns.add(lastingName(column, null));
            }
        }
        return columns;
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
        List found = new ArrayList();
        for (Object task : tasks) {
            if (!(task instanceof FileScanTask)) {
                reason = "left alone: its tasks are " + task.getClass().getName() + ", which are no data files";
                return;
            }
            DataFile file = (DataFile) ((FileScanTask) task).file();
            long added = file.fileSequenceNumber() == null ? 0 : file.fileSequenceNumber().longValue();
            found.add(new TableFile(IcebergFormat.uri(file.location()), file.fileSizeInBytes(), added));
        }
        files = found;
    }

    /** The same scan over the files that a decision keeps. */
    Scan narrowed(Decision decision) throws Exception {
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
            read.set(0, files.size());
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

/** A filter that is always true; its text distinguishes scans of the same table with different files. */
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
        text = "geoskip keeps " + tasks.size() + " of " + scan.files.size() + " files (" + Base64.getEncoder().encodeToString(sum) + ")";
    }

    /** The filter of this class in a narrowed scan, else null. */
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
