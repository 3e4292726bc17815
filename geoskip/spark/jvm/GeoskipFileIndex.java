package geoskip;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import @Seq@;

/** A relation's file index without the files that cannot match. Its name is what EXPLAIN shows. */
class GeoskipFileIndex implements FileIndex {
    final FileIndex inner;
    final FileIndex original; // before Spark's partition pruning
    final Decision decision;
    boolean isUnreported; // read by geoskip itself, not by a query of the user's
    final long files; // of the whole listing
    private long bytes = -1; // of what is kept, once somebody has asked
    private double share;

    GeoskipFileIndex(FileIndex inner, FileIndex original, Decision decision, List directories) {
        this.inner = inner;
        this.original = original;
        this.decision = decision;
        long count = 0;
        for (PartitionDirectory directory : directories) {
            count += directory.files().size();
        }
        this.files = count;
    }

    private GeoskipFileIndex(GeoskipFileIndex other) {
        inner = other.inner;
        original = other.original;
        decision = other.decision;
        files = other.files;
    }

    /** The same files, for a query that reports leave out. */
    GeoskipFileIndex unreported() {
        GeoskipFileIndex same = new GeoskipFileIndex(this);
        same.isUnreported = true;
        return same;
    }

    /** How much of all the files is kept, by size. */
    double share() {
        weigh();
        return share;
    }

    /** Looks up every listed file, which a query without a join spares: of most partitions it lists none. */
    private synchronized void weigh() {
        if (bytes >= 0) {
            return;
        }
        long all = 0;
        long left = 0;
        for (PartitionDirectory directory : ScalaInterop.list(ScalaInterop.unpruned(inner))) {
            all += ScalaInterop.bytes(directory);
            left += ScalaInterop.bytes(kept(directory));
        }
        share = all == 0 ? 1.0 : (double) left / all;
        bytes = left;
    }

    private PartitionDirectory kept(PartitionDirectory directory) {
        try {
            return decision.keep(directory);
        } catch (Exception failure) {
            return directory;
        }
    }

    /** The files of a partition that are not kept. */
    List skipped(PartitionDirectory directory) {
        List skipped = ScalaInterop.list(directory.files());
        skipped.removeAll(new HashSet(ScalaInterop.list(kept(directory).files())));
        return skipped;
    }

    public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
        List kept = new ArrayList();
        for (PartitionDirectory directory : ScalaInterop.list(inner.listFiles(partitionFilters, dataFilters))) {
            kept.add(kept(directory));
        }
        return ScalaInterop.seq(kept);
    }

    public Seq rootPaths() { return inner.rootPaths(); }

    public String[] inputFiles() { return inner.inputFiles(); }

    public void refresh() { inner.refresh(); }

    public synchronized long sizeInBytes() {
        weigh();
        return Math.max(1, bytes);
    }

    public StructType partitionSchema() { return inner.partitionSchema(); }

    public Option metadataOpsTimeNs() { return inner.metadataOpsTimeNs(); }

    public boolean equals(Object other) {
        return other instanceof GeoskipFileIndex && inner.equals(((GeoskipFileIndex) other).inner)
                && decision.equals(((GeoskipFileIndex) other).decision);
    }

    public int hashCode() { return inner.hashCode(); }

    public String toString() { return "GeoskipFileIndex(" + inner + ")"; }
}
