package geoskip;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.files.TahoeFileIndex;
import org.apache.spark.sql.delta.files.TahoeFileIndexWithSnapshotDescriptor;
import org.apache.spark.sql.delta.files.TahoeLogFileIndex;
import org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Nil$;
import @Seq@;

/**
 * Tables of Delta Lake. Files of a scan are skipped if Delta has pinned it to a version of the table and has applied
 * its own skipping. Streams, change data and the scans of UPDATE, DELETE and MERGE have file indexes of other classes.
 */
public class DeltaFormat extends TableFormat {
    private static final String FILE_FORMAT = "org.apache.spark.sql.delta.DeltaParquetFileFormat";
    private volatile Object[] last = new Object[] {new WeakReference(null), null}; // a scan's index, its files

    public String name() { return "Delta"; }

    public String packageName() { return "org.apache.spark.sql.delta."; }

    public boolean owns(FileIndex index) { return index instanceof TahoeFileIndex; }

    public String reasonOfScan(HadoopFsRelation files) {
        Class location = files.location().getClass();
        if (location == GeoskipDeltaFileIndex.class) {
            return "already decided";
        }
        if (location == TahoeLogFileIndex.class) {
            return "left alone: Delta has not pinned the scan to a version, as with spark.databricks.delta.stats.skipping=false";
        }
        if (location != PreparedDeltaFileIndex.class) {
            return "left alone: its file index is a " + location.getName() + ", of a stream, of change data or of an update";
        }
        return reasonOfReader(files, FILE_FORMAT);
    }

    public String reasonOfTable(HadoopFsRelation files) {
        if (files.location().getClass() == PinnedDeltaFileIndex.class) {
            return null;
        }
        if (files.location().getClass() != TahoeLogFileIndex.class) {
            return "left alone: its file index is a " + files.location().getClass().getName();
        }
        if (((TahoeLogFileIndex) files.location()).isTimeTravelQuery()) {
            return "this is one version of a table of Delta: index the table itself, and queries of all its versions skip";
        }
        return reasonOfReader(files, FILE_FORMAT);
    }

    public List directories(FileIndex index, boolean whole) {
        List directories = new ArrayList();
        if (index instanceof PreparedDeltaFileIndex && !whole) {
            for (Object[] part : parts((PreparedDeltaFileIndex) index)) {
                directories.add(part[0]);
            }
            return directories;
        }
        FileIndex listed = index instanceof GeoskipDeltaFileIndex ? ((GeoskipDeltaFileIndex) index).prepared : index;
        // without a filter, a scan prepared for a LIMIT would list no more files than its rows need
        Seq every = ScalaInterop.seq(Collections.singletonList(Literal.TrueLiteral()));
        return ScalaInterop.list(listed.listFiles((Seq) Nil$.MODULE$, every));
    }

    /** The files that Delta's own skipping keeps: pairs of a partition and its paths as in the log. */
    List parts(PreparedDeltaFileIndex index) {
        Object[] known = last;
        if (((WeakReference) known[0]).get() == index) {
            return (List) known[1];
        }
        Map files = new LinkedHashMap(); // of AddFile by partition
        for (AddFile file : ScalaInterop.list((Seq) index.preparedScan().files().distinct())) {
            files.putIfAbsent(file.partitionValues(), new ArrayList());
            ((List) files.get(file.partitionValues())).add(file);
        }
        List parts = new ArrayList();
        for (Object values : files.keySet()) {
            List statuses = new ArrayList();
            List paths = new ArrayList();
            for (AddFile file : (List) files.get(values)) {
                statuses.add(index.fileStatusWithMetadataFromAddFile(file));
                paths.add(file.path());
            }
            InternalRow row = index.getPartitionValuesRow((scala.collection.immutable.Map) values);
            parts.add(new Object[] {new PartitionDirectory(row, ScalaInterop.seq(statuses)), paths});
        }
        last = new Object[] {new WeakReference(index), parts};
        return parts;
    }

    public FileIndex narrow(GeoskipFileIndex kept) {
        return kept.inner.getClass() == PreparedDeltaFileIndex.class ? new GeoskipDeltaFileIndex(kept, this) : kept;
    }

    public GeoskipFileIndex narrowing(FileIndex index) {
        return index instanceof GeoskipDeltaFileIndex ? ((GeoskipDeltaFileIndex) index).kept : null;
    }

    public StructType mappedSchema(HadoopFsRelation files) {
        TahoeFileIndex index = (TahoeFileIndex) files.location();
        return index.metadata().columnMappingMode().name().equals("none") ? null : index.metadata().schema();
    }

    public String physicalKey() { return "delta.columnMapping.physicalName"; }

    public boolean findsById(HadoopFsRelation files) {
        return ((TahoeFileIndex) files.location()).metadata().columnMappingMode().name().equals("id");
    }

    public FileIndex pinned(FileIndex table) { return new PinnedDeltaFileIndex((TahoeLogFileIndex) table); }

    public List removed(FileIndex table) {
        List paths = new ArrayList();
        for (Object row : ((TahoeLogFileIndex) table).getSnapshot().tombstones().toDF().select("path").collectAsList()) {
            paths.add(((TahoeLogFileIndex) table).absolutePath(((Row) row).getString(0)).toString());
        }
        return paths;
    }
}

/** A table's index, pinned to its current version. */
class PinnedDeltaFileIndex extends TahoeLogFileIndex {
    PinnedDeltaFileIndex(TahoeLogFileIndex table) {
        super(table.spark(), table.deltaLog(), table.path(), table.getSnapshot(), table.catalogTableOpt(),
                table.partitionFilters(), true);
    }
}

/**
 * A scan's index without the files that cannot match. Delta treats it as one of its own, and so applies deletion
 * vectors and column mapping. It is not a subclass of the prepared one, since `equals` of that considers subclasses
 * equal to it.
 */
class GeoskipDeltaFileIndex extends TahoeFileIndexWithSnapshotDescriptor {
    final PreparedDeltaFileIndex prepared;
    final GeoskipFileIndex kept;
    private final DeltaFormat format;
    private HashSet skipped; // paths as in the log

    GeoskipDeltaFileIndex(GeoskipFileIndex kept, DeltaFormat format) {
        super(((PreparedDeltaFileIndex) kept.inner).spark(), ((PreparedDeltaFileIndex) kept.inner).deltaLog(),
                ((PreparedDeltaFileIndex) kept.inner).path(),
                ((PreparedDeltaFileIndex) kept.inner).preparedScan().scannedSnapshot());
        this.prepared = (PreparedDeltaFileIndex) kept.inner;
        this.kept = kept;
        this.format = format;
    }

    /** The skipped files among those that Delta's own skipping keeps; others are read if requested. */
    private synchronized HashSet skipped() {
        if (skipped == null) {
            HashSet found = new HashSet();
            for (Object[] part : format.parts(prepared)) {
                List paths = (List) part[1];
                boolean[] marks = kept.marks((PartitionDirectory) part[0]);
                for (int i = 0; i < marks.length; i++) {
                    if (marks[i]) {
                        found.add(paths.get(i));
                    }
                }
            }
            skipped = found;
        }
        return skipped;
    }

    public Seq matchingFiles(Seq partitionFilters, Seq dataFilters) {
        HashSet without = kept.keepsAll() ? new HashSet() : skipped();
        List files = new ArrayList();
        for (AddFile file : ScalaInterop.list(prepared.matchingFiles(partitionFilters, dataFilters))) {
            if (!without.contains(file.path())) {
                files.add(file);
            }
        }
        return ScalaInterop.seq(files);
    }

    public String[] inputFiles() { return prepared.inputFiles(); }
    public void refresh() { prepared.refresh(); }
    public long sizeInBytes() { return kept.sizeInBytes(); }

    public boolean equals(Object other) {
        return other instanceof GeoskipDeltaFileIndex && kept.equals(((GeoskipDeltaFileIndex) other).kept);
    }

    public int hashCode() { return kept.hashCode(); }
    public String toString() { return kept.toString(); }
}
