package geoskip;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.Partition;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.BucketingUtils;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.FileSourceStrategy$;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import @SparkSession@;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Nil$;
import @Seq@;

/** Plans the scans of which files are skipped by fingerprints that can be compared again as a {@link WatchedScan}. */
class WatchedScans extends SparkStrategy {

    /** Adds the strategy behind the session's own, unless it is there. */
    static synchronized void install(SparkSession session) {
        ExperimentalMethods methods = session.experimental();
        List strategies = ScalaInterop.list(methods.extraStrategies());
        for (Object strategy : strategies) {
            if (strategy instanceof WatchedScans) {
                return;
            }
        }
        strategies.add(new WatchedScans());
        methods.extraStrategies_$eq(ScalaInterop.seq(strategies));
    }

    public Seq apply(LogicalPlan plan) {
        LogicalPlan leaf = plan;
        while (leaf instanceof Project || leaf instanceof Filter) {
            leaf = (LogicalPlan) leaf.children().head();
        }
        if (!(leaf instanceof LogicalRelation) || !isWatched(((LogicalRelation) leaf).relation())) {
            return (Seq) Nil$.MODULE$;
        }
        List planned = new ArrayList();
        for (SparkPlan part : ScalaInterop.list(FileSourceStrategy$.MODULE$.apply(plan))) {
            planned.add(part.transform(new Replacement() {
                Object of(Object node) {
                    boolean watched = node.getClass() == FileSourceScanExec.class
                            && isWatched(((FileSourceScanExec) node).relation());
                    return watched ? made(WatchedScan.FileSourceScanExec.class, (FileSourceScanExec) node) : null;
                }
            }));
        }
        return ScalaInterop.seq(planned);
    }

    static boolean isWatched(Object relation) {
        if (!(relation instanceof HadoopFsRelation)) {
            return false;
        }
        FileIndex location = ((HadoopFsRelation) relation).location();
        return location instanceof GeoskipFileIndex && ((GeoskipFileIndex) location).decision.isWatched();
    }

    /** The same scan as an instance of another class; itself where that cannot be made. */
    static FileSourceScanExec made(Class other, FileSourceScanExec scan) {
        try {
            return (FileSourceScanExec) other.getConstructors()[0].newInstance(ScalaInterop.fields(scan));
        } catch (ReflectiveOperationException mismatch) {
            LoggerFactory.getLogger("geoskip").warn("geoskip cannot watch the files of a scan", mismatch);
            return scan;
        }
    }
}

/**
 * A scan whose skipped files are compared with their fingerprints whenever the plan is run.
 *
 * Spark lists the files of a physical plan once: a DataFrame that is collected again runs the same RDD over the same
 * partitions. What it does at every run is to serialize each task with its partition, in the driver. So a partition
 * (or, of buckets, each) is one that looks at the skipped files there and then, and travels as a plain FilePartition with
 * those beside that were written since. No class of geoskip leaves the driver. Programs that look for scans in a plan by
 * the simple name of their class find this one too.
 */
public class WatchedScan {
    public static class FileSourceScanExec extends org.apache.spark.sql.execution.FileSourceScanExec {
        private transient RDD watched;
        private transient Watch watch;

        public FileSourceScanExec(@ScanParameters@) { super(@ScanArguments@); }

        public org.apache.spark.sql.execution.FileSourceScanExec copy(@ScanParameters@) {
            return new FileSourceScanExec(@ScanArguments@);
        }

        /** No plain scan is equal, or Spark's rules would take the one for the other. */
        public boolean canEqual(Object other) { return other instanceof FileSourceScanExec; }

        public boolean equals(Object other) { return canEqual(other) && super.equals(other); }

        public int hashCode() { return super.hashCode(); }

        public RDD inputRDD() {
            RDD plain = super.inputRDD();
            synchronized (this) {
                if (watched == null) {
                    watched = plain;
                    if (WatchedScans.isWatched(relation()) && outputOrdering().isEmpty()) {
                        try {
                            watch = new Watch(this);
                            watched = watch.over(plain);
                        } catch (RuntimeException failure) {
                            LoggerFactory.getLogger("geoskip").warn("geoskip cannot watch skipped files", failure);
                        }
                    }
                }
                return watched;
            }
        }

        /** Has a run read files that were skipped at first, which are in no metric of Spark's? */
        synchronized boolean hasReadMore() { return watch != null && watch.hasRead(); }

        /** What executors get where a closure of Spark's holds the scan. */
        Object writeReplace() { return WatchedScans.made(org.apache.spark.sql.execution.FileSourceScanExec.class, this); }
    }
}

/** The skipped files of one scan, and which of them were found to be written since. */
class Watch {
    private final FileSourceScanExec scan;
    private final GeoskipFileIndex index;
    private final List skipped = new ArrayList(); // of FileStatusWithMetadata
    private final List written = new ArrayList(); // of FileStatusWithMetadata, taken out of `skipped`
    private Partition[] added = new Partition[0]; // the partitions of a scan of what was written
    private int buckets; // 0 where a scan is not by buckets

    Watch(FileSourceScanExec scan) {
        this.scan = scan;
        index = (GeoskipFileIndex) scan.relation().location();
        Seq listed = index.inner.listFiles(ScalaInterop.fixed(scan.partitionFilters()), scan.dataFilters());
        for (PartitionDirectory directory : ScalaInterop.list(listed)) {
            skipped.addAll(index.skipped(directory));
        }
    }

    /** The RDD with partitions that look at the skipped files: of no partition, another with one for them. */
    RDD over(RDD plain) {
        if (skipped.isEmpty()) {
            return plain;
        }
        RDD rdd = plain;
        Partition[] partitions = rdd.partitions(); // the array that Spark takes tasks from
        if (partitions.length == 0) {
            rdd = scanOf(skipped.subList(0, 1)).inputRDD();
            partitions = rdd.partitions();
            for (int i = 0; i < partitions.length; i++) {
                partitions[i] = new FilePartition(i, new PartitionedFile[0]);
            }
        }
        buckets = scan.bucketedScan() ? partitions.length : 0;
        for (int i = buckets > 0 ? 0 : partitions.length - 1; i < partitions.length; i++) {
            partitions[i] = new WatchedPartition(i, ((FilePartition) partitions[i]).files(), this);
        }
        return rdd;
    }

    /** What a partition reads at this run. */
    synchronized PartitionedFile[] files(FilePartition partition) {
        List changed = new ArrayList();
        for (FileStatusWithMetadata file : skipped) {
            if (isOf(partition, file) && index.decision.isWritten(file)) {
                changed.add(file);
            }
        }
        if (!changed.isEmpty()) {
            skipped.removeAll(changed);
            written.addAll(changed);
            added = scanOf(written).inputRDD().partitions();
        }
        List files = new ArrayList(Arrays.asList(partition.files()));
        for (int i = 0; i < added.length; i++) {
            if (buckets == 0 || i == partition.index()) {
                files.addAll(Arrays.asList(((FilePartition) added[i]).files()));
            }
        }
        return (PartitionedFile[]) files.toArray(new PartitionedFile[0]);
    }

    synchronized boolean hasRead() { return !written.isEmpty(); }

    private boolean isOf(FilePartition partition, FileStatusWithMetadata file) {
        Option bucket = buckets == 0 ? null : BucketingUtils.getBucketId(file.getPath().getName());
        return bucket == null || bucket.isEmpty()
                || ((Integer) bucket.get()).intValue() % buckets == partition.index();
    }

    /** The same scan of some of the files alone, as they were listed: Spark cuts and packs them. */
    private FileSourceScanExec scanOf(List files) {
        GeoskipFileIndex chosen = new GeoskipFileIndex(index.inner, index.original, new Chosen(files), new ArrayList());
        Object[] arguments = ScalaInterop.fields(scan);
        arguments[0] = ScalaInterop.relocated(scan.relation(), chosen);
        return (FileSourceScanExec) scan.makeCopy(arguments);
    }
}

/** A partition that is serialized as what it reads at that moment. */
class WatchedPartition extends FilePartition {
    private final transient Watch watch;

    WatchedPartition(int index, PartitionedFile[] files, Watch watch) {
        super(index, files);
        this.watch = watch;
    }

    Object writeReplace() {
        try {
            return new FilePartition(index(), watch.files(this));
        } catch (RuntimeException failure) {
            LoggerFactory.getLogger("geoskip").warn("geoskip cannot look at skipped files again", failure);
            return new FilePartition(index(), files());
        }
    }
}
