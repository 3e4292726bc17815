package geoskip;

import java.util.ArrayList;
import java.io.IOException;
import java.util.Iterator;
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
    private final long bytes;
    private final double share;

    GeoskipFileIndex(FileIndex inner, FileIndex original, Decision decision, List directories) throws IOException {
        this.inner = inner;
        this.original = original;
        this.decision = decision;
        long count = 0;
        long all = 0;
        long kept = 0;
        for (Iterator i = directories.iterator(); i.hasNext();) {
            PartitionDirectory directory = (PartitionDirectory) i.next();
            count += directory.files().size();
            all += Scala.bytes(directory);
            kept += Scala.bytes(decision.keep(directory));
        }
        this.files = count;
        this.bytes = kept;
        this.share = all == 0 ? 1.0 : (double) kept / all;
    }

    private GeoskipFileIndex(GeoskipFileIndex other) {
        inner = other.inner;
        original = other.original;
        decision = other.decision;
        files = other.files;
        bytes = other.bytes;
        share = other.share;
    }

    /** The same files, for a query that reports leave out. */
    GeoskipFileIndex unreported() {
        GeoskipFileIndex same = new GeoskipFileIndex(this);
        same.isUnreported = true;
        return same;
    }

    double share() { return share; }

    public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
        List kept = new ArrayList();
        Seq listed = inner.listFiles(partitionFilters, dataFilters);
        for (Iterator i = Scala.list(listed).iterator(); i.hasNext();) {
            PartitionDirectory directory = (PartitionDirectory) i.next();
            try {
                kept.add(decision.keep(directory));
            } catch (Exception failure) {
                kept.add(directory);
            }
        }
        return Scala.seq(kept);
    }

    public Seq rootPaths() { return inner.rootPaths(); }

    public String[] inputFiles() { return inner.inputFiles(); }

    public void refresh() { inner.refresh(); }

    public long sizeInBytes() { return Math.max(1, bytes); }

    public StructType partitionSchema() { return inner.partitionSchema(); }

    public Option metadataOpsTimeNs() { return inner.metadataOpsTimeNs(); }

    public boolean equals(Object other) {
        return other instanceof GeoskipFileIndex && inner.equals(((GeoskipFileIndex) other).inner)
                && decision.equals(((GeoskipFileIndex) other).decision);
    }

    public int hashCode() { return inner.hashCode(); }

    public String toString() { return "GeoskipFileIndex(" + inner + ")"; }
}
