package geoskip;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hudi.HoodieBaseRelation;
import org.apache.hudi.HoodieFileIndex;
import org.apache.hudi.common.model.HoodieTableType;
import org.apache.hudi.common.table.HoodieTableConfig;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import scala.collection.immutable.Nil$;
import @Seq@;

/**
 * Copy-on-write tables of Hudi. Their scans read whole base files, which never change. Hudi's own rule, which finds its
 * index by the class, runs before geoskip's rule, which wraps that index like those of Spark. Incremental queries and
 * change data have indexes of derived classes.
 */
public class HudiFormat extends TableFormat {
    private static final String FILE_FORMAT =
            "org.apache.spark.sql.execution.datasources.parquet.HoodieFileGroupReaderBasedParquetFileFormat";
    private static final String INSTANT = "as.of.instant";
    private static final String PRECOMBINE = "hoodie.datasource.write.precombine.field";

    public String name() { return "Hudi"; }

    public String packageName() { return "org.apache.hudi."; }

    public boolean owns(FileIndex index) { return index instanceof HoodieFileIndex; }

    public String reasonOfScan(HadoopFsRelation files) {
        if (files.location().getClass() != HoodieFileIndex.class) {
            return "left alone: its file index is a " + files.location().getClass().getName()
                    + ", of an incremental query or of change data";
        }
        HoodieFileIndex index = (HoodieFileIndex) files.location();
        HoodieTableConfig table = index.metaClient().getTableConfig();
        if (index.metaClient().getTableType() != HoodieTableType.COPY_ON_WRITE || index.includeLogFiles()) {
            return "left alone: a merge-on-read table of Hudi, whose logs change the rows of its files";
        }
        if (table.getBootstrapBasePath().isPresent()) {
            return "left alone: a bootstrapped table of Hudi, of which some files hold a part of the columns";
        }
        if (HoodieBaseRelation.isSchemaEvolutionEnabledOnRead(index.options(), index.spark())) {
            return "left alone: with hoodie.schema.on.read.enable Hudi finds columns by ids, not by names";
        }
        if (readsPartitionsFromFiles(table, index) && files.partitionSchema().length() > 0) {
            return "left alone: Hudi reads columns of partitions from the files, where their values are others";
        }
        return reasonOfReader(files, FILE_FORMAT);
    }

    /** True if partition values in the listing may differ from the rows', as Hudi decides (partitionColumnsToRead). */
    private static boolean readsPartitionsFromFiles(HoodieTableConfig table, HoodieFileIndex index) {
        String keys = String.valueOf(table.getKeyGeneratorClassName());
        List partitions = new ArrayList();
        if (table.getPartitionFields().isPresent()) {
            partitions = Arrays.asList((Object[]) table.getPartitionFields().get());
        }
        return keys.matches(".*(TimestampBased|Custom)(Avro)?KeyGenerator")
                || partitions.contains(table.getPreCombineField())
                || index.options().contains(PRECOMBINE) && partitions.contains(index.options().apply(PRECOMBINE));
    }

    public String reasonOfTable(HadoopFsRelation files) {
        if (files.location().getClass() == PinnedHudiFileIndex.class) {
            return null;
        }
        String reason = reasonOfScan(files);
        return reason == null && ((HoodieFileIndex) files.location()).options().contains(INSTANT)
                ? "this is one instant of a table of Hudi: index the table itself, and queries of all its instants skip"
                : reason;
    }

    /**
     * All files, listed by another index than the query's: an index that has listed all partitions prunes them by
     * values, and before by paths, with another result if these contain a percent sign.
     */
    public List directories(FileIndex index, boolean whole) {
        FileIndex all = index instanceof PinnedHudiFileIndex ? index : pinned(index);
        return ScalaInterop.list(all.listFiles((Seq) Nil$.MODULE$, (Seq) Nil$.MODULE$));
    }

    /** Replaced base files that Hudi's cleaner has not removed yet, which queries of earlier instants read. */
    public List removed(FileIndex table) {
        HashSet latest = new HashSet(Arrays.asList(table.inputFiles()));
        List paths = new ArrayList();
        HoodieFileIndex index = (HoodieFileIndex) table;
        Path root = new Path(index.metaClient().getBasePath().toString());
        try {
            FileSystem system = root.getFileSystem(index.spark().sessionState().newHadoopConf());
            for (RemoteIterator files = system.listFiles(root, true); files.hasNext();) {
                String path = ((LocatedFileStatus) files.next()).getPath().toString();
                if (path.endsWith(".parquet") && !latest.contains(path)) {
                    paths.add(path);
                }
            }
        } catch (IOException unreachable) {
            throw new UncheckedIOException(unreachable);
        }
        return paths;
    }

    public FileIndex pinned(FileIndex table) { return new PinnedHudiFileIndex((HoodieFileIndex) table); }
}

/** A separate index with its own timeline, which is not refreshed by others. */
class PinnedHudiFileIndex extends HoodieFileIndex {
    PinnedHudiFileIndex(HoodieFileIndex table) {
        super(table.spark(), HoodieTableMetaClient.reload(table.metaClient()), table.schemaSpec(), table.options(),
                table.fileStatusCache(), table.includeLogFiles(), table.shouldEmbedFileSlices());
    }
}
