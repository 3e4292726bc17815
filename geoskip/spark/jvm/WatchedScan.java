package geoskip;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import org.apache.spark.Partition;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.ExperimentalMethods;
import @SparkSession@;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.*;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Nil$;
import @Seq@;

/** Plans scans that skip files with comparable fingerprints as a {@link WatchedScan}. */
class WatchedScans extends SparkStrategy {
    private static final WatchedScans STRATEGY = new WatchedScans();

    /** Adds the strategy after the session's extra strategies, and the rule for joins, unless they exist. */
    static synchronized void install(SparkSession session) {
        ExperimentalMethods methods = session.experimental();
        List strategies = ScalaInterop.list(methods.extraStrategies());
        if (strategies.contains(STRATEGY)) {
            return;
        }
        strategies.add(STRATEGY);
        methods.extraStrategies_$eq(ScalaInterop.seq(strategies));
        List rules = ScalaInterop.list(methods.extraOptimizations());
        rules.add(DynamicFilePruning.RULE);
        methods.extraOptimizations_$eq(ScalaInterop.seq(rules));
    }

    public Seq apply(LogicalPlan plan) {
        LogicalPlan leaf = plan;
        while (leaf instanceof Project || leaf instanceof Filter) {
            leaf = (LogicalPlan) leaf.children().head();
        }
        if (!(leaf instanceof LogicalRelation) || !isWatched(((LogicalRelation) leaf).relation())) {
            return (Seq) Nil$.MODULE$;
        }
        final List added = new ArrayList();
        List planned = new ArrayList();
        LogicalPlan other = DynamicFilePruning.without(plan, (LogicalRelation) leaf, added);
        GeoskipFileIndex index = (GeoskipFileIndex) ((HadoopFsRelation) ((LogicalRelation) leaf).relation()).location();
        if (!added.isEmpty() && !index.scan.isCurrent()) {
            added.clear();
        }
        for (SparkPlan part : ScalaInterop.list(FileSourceStrategy$.MODULE$.apply(other))) {
            planned.add(part.transform(new Replacement() {
                Object of(Object node) {
                    boolean watched = node.getClass() == FileSourceScanExec.class
                            && isWatched(((FileSourceScanExec) node).relation());
                    return watched ? made(WatchedScan.FileSourceScanExec.class, (FileSourceScanExec) node, added) : null;
                }
            }));
        }
        return ScalaInterop.seq(planned);
    }

    static boolean isWatched(Object relation) {
        if (!(relation instanceof HadoopFsRelation)) {
            return false;
        }
        FileIndex index = ((HadoopFsRelation) relation).location(); // not a table format's, which plans its own scans
        return index instanceof GeoskipFileIndex && ((GeoskipFileIndex) index).isWatched();
    }

    /** A copy of a scan as an instance of another class, with more filters; the scan itself if this fails. */
    static FileSourceScanExec made(Class other, FileSourceScanExec scan, List filters) {
        try {
            List all = ScalaInterop.list(scan.dataFilters());
            all.addAll(filters);
            Object[] fields = ScalaInterop.fields(scan, scan.partitionFilters(), ScalaInterop.seq(all));
            return (FileSourceScanExec) other.getConstructors()[0].newInstance(fields);
        } catch (Exception mismatch) {
            LoggerFactory.getLogger("geoskip").warn("geoskip cannot watch the files of a scan", mismatch);
            return scan;
        }
    }
}

/**
 * A scan that compares its skipped files with their fingerprints, and the settings, whenever the plan is run.
 *
 * Spark lists the files of a physical plan once: a DataFrame that is collected again runs the same RDD over the same
 * partitions. But at every run it serializes each task with its partition, in the driver. So one partition (or each, if
 * there are buckets) checks the skipped files when it is serialized, and is sent as a plain FilePartition with the
 * changed ones added. No class of geoskip leaves the driver. Programs that search a plan for scans by the simple class
 * name find this one too.
 */
public class WatchedScan {
    public static class FileSourceScanExec extends org.apache.spark.sql.execution.FileSourceScanExec {
        private transient RDD watched;
        private transient Watch watch;

        public FileSourceScanExec(@ScanParameters@) { super(@ScanArguments@); }

        public org.apache.spark.sql.execution.FileSourceScanExec copy(@ScanParameters@) {
            return new FileSourceScanExec(@ScanArguments@);
        }

        /** A plain scan is not equal, so that Spark's rules do not replace one by the other. */
        public boolean canEqual(Object other) { return other instanceof FileSourceScanExec; }

        public boolean equals(Object other) { return canEqual(other) && super.equals(other); }

        public int hashCode() { return super.hashCode(); }

        public RDD inputRDD() {
            if (WatchedScans.isWatched(relation())) {
                ((GeoskipFileIndex) relation().location()).decideAgain(dataFilters());
            }
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

        /** True if a run has read files that were first skipped, which are not in Spark's metrics. */
        synchronized boolean hasReadMore() { return watch != null && watch.hasRead(); }

        /** Executors get a plain scan if a closure of Spark refers to it. */
        Object writeReplace() { return WatchedScans.made(org.apache.spark.sql.execution.FileSourceScanExec.class, this, new ArrayList()); }
    }
}

/** The skipped files of one scan, and those of them that have changed since. */
class Watch {
    private final FileSourceScanExec scan;
    private final GeoskipFileIndex index;
    private final List skipped = new ArrayList(); // of FileStatusWithMetadata
    private final List written = new ArrayList(); // of FileStatusWithMetadata, removed from `skipped`
    private Partition[] added = new Partition[0]; // the partitions of a scan of the changed files
    private int buckets; // 0 for a scan that is not bucketed

    Watch(FileSourceScanExec scan) {
        this.scan = scan;
        index = (GeoskipFileIndex) scan.relation().location();
        Seq listed = index.inner.listFiles(ScalaInterop.fixed(scan.partitionFilters()), scan.dataFilters());
        for (PartitionDirectory directory : ScalaInterop.list(listed)) {
            skipped.addAll(index.skipped(directory));
        }
    }

    /** The RDD with partitions that check the skipped files; if it has no partition, another RDD with one for them. */
    RDD over(RDD plain) {
        if (skipped.isEmpty()) {
            return plain;
        }
        RDD rdd = plain;
        Partition[] partitions = rdd.partitions(); // the array from which Spark creates tasks
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

    /** The files that a partition reads at this run. */
    synchronized PartitionedFile[] files(FilePartition partition) {
        boolean all = index.keepsAll(); // tasks parse text by the settings of this run
        List changed = new ArrayList();
        for (FileStatusWithMetadata file : skipped) {
            if (isOf(partition, file) && (all || index.decision.watched && index.decision.isWritten(file))) {
                changed.add(file);
            }
        }
        if (!changed.isEmpty()) {
            skipped.removeAll(new HashSet(changed));
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

    /** The same scan over only some files, as they were listed: Spark splits and packs them. */
    private FileSourceScanExec scanOf(List files) {
        GeoskipFileIndex chosen = new GeoskipFileIndex(index.inner, index.original, new Chosen(files), new ArrayList());
        Object[] arguments = ScalaInterop.fields(scan);
        arguments[0] = ScalaInterop.relocated(scan.relation(), chosen);
        return (FileSourceScanExec) scan.makeCopy(arguments);
    }
}

/** A partition that is serialized with the files to read at that moment. */
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
