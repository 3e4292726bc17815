package geoskip;

import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
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
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Nil$;
import @Seq@;

/** A relation's file index without the files that cannot match. EXPLAIN shows its name. */
public class GeoskipFileIndex implements FileIndex {
    public final FileIndex inner;
    final FileIndex original; // before Spark's partition pruning
    final Decision decision;
    final long files; // of the whole listing
    private long bytes = -1; // of the kept files; computed when needed
    private double share;
    private ReaderSettings settings; // when the decision was made; null if they need not be compared
    AnsweredScan scan;
    private boolean isOfJoin; // true if the keys of joins filter the scan
    private boolean isUnanswered; // true if filters await answers, until a plan lists the files

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

    /** Skips files only as long as sessions have these settings. */
    void under(ReaderSettings settings) { this.settings = settings; }

    /** Decides again on the first run if conditions are over subqueries. */
    void answeredBy(AnsweredScan scan) {
        this.scan = scan;
        isUnanswered = AnsweredScan.asks(decision.conditions);
    }

    /** Decides again on the first run, by filters over the keys of joins; false if this is so already. */
    synchronized boolean awaitKeys() {
        boolean isFirst = !isOfJoin;
        isOfJoin = true;
        isUnanswered = true;
        return isFirst;
    }

    /** True before the keys of joins are known. */
    synchronized boolean awaitsKeys() { return isOfJoin && isUnanswered; }

    /** True if skipped files can be compared with their fingerprints again, or files may be skipped on the first run. */
    synchronized boolean isWatched() { return decision.watched || isUnanswered; }

    /** The geoskip index of a file index, which may be wrapped by that of a table format; null for other indexes. */
    static GeoskipFileIndex of(FileIndex index) {
        TableFormat format = index instanceof GeoskipFileIndex ? null : TableFormat.of(index);
        return index instanceof GeoskipFileIndex ? (GeoskipFileIndex) index
                : format == null ? null : format.narrowing(index);
    }

    /** The fraction of all files that is kept, by size. */
    double share() {
        weigh();
        return share;
    }

    /** Sums up all listed files. Queries without joins avoid this: they do not list pruned partitions. */
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
        return decision.skipsNone() ? directory
                : new PartitionDirectory(directory.values(), ScalaInterop.seq(marked(directory, false)));
    }

    /** For each file of a partition, in order, true if it is skipped. */
    public boolean[] marks(PartitionDirectory directory) {
        boolean[] marks = new boolean[directory.files().size()];
        try {
            int vector = decision.skipsNone() ? -1 : decision.slots.number(directory.values());
            int i = 0;
            for (FileStatusWithMetadata file : ScalaInterop.list(directory.files())) {
                marks[i++] = vector >= 0 && decision.skips(file, vector);
            }
            return marks;
        } catch (Exception failure) {
            return new boolean[marks.length];
        }
    }

    /** The skipped files of a partition. */
    List skipped(PartitionDirectory directory) { return marked(directory, true); }

    private List marked(PartitionDirectory directory, boolean skipped) {
        boolean[] marks = marks(directory);
        List found = new ArrayList();
        int i = 0;
        for (Object file : ScalaInterop.list(directory.files())) {
            if (marks[i++] == skipped) {
                found.add(file);
            }
        }
        return found;
    }

    /** Lists the files when a plan is run. */
    public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
        keepsAll();
        synchronized (this) {
            isUnanswered = false; // plans that share this index must read the same files
        }
        return kept(partitionFilters, dataFilters);
    }

    /** Decides again, before a plan lists the files for its first run, by the answers of subqueries in its filters. */
    synchronized void decideAgain(Seq filters) {
        if (isUnanswered) {
            scan.decideAgain(decision, ScalaInterop.list(filters));
        }
    }

    /**
     * Keeps all files from now on, and returns true, if the reader's settings have changed. Called whenever a plan is
     * run, since Spark takes these settings then, not when it plans.
     */
    public boolean keepsAll() {
        if (isReadOtherwise()) {
            decision.revoke();
        }
        return decision.isRevoked();
    }

    /** True if the reader's settings are others now than when the decision was made. */
    boolean isReadOtherwise() { return settings != null && settings.haveChanged(); }

    Seq kept(Seq partitionFilters, Seq dataFilters) {
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

/**
 * The settings of the sessions that decide what a scan reads: the one of the relation, from which Spark takes the
 * reader, and the one that runs the query, from which its tasks take the rules for parsing text.
 */
class ReaderSettings {
    private final LinkedHashMap planned = new LinkedHashMap(); // the settings of each session

    ReaderSettings(SparkSession relation, SparkSession query) {
        planned.put(relation, SupportedRelations.ofReader(relation));
        if (query != relation) {
            planned.put(query, SupportedRelations.ofReader(query));
        }
    }

    /** True also if the settings cannot be read. */
    boolean haveChanged() {
        try {
            for (Object session : planned.keySet()) {
                if (!planned.get(session).equals(SupportedRelations.ofReader((SparkSession) session))) {
                    return true;
                }
            }
            return false;
        } catch (RuntimeException failure) {
            return true;
        }
    }
}

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
        if (!SQLConf.get().dynamicPartitionPruningEnabled()) { // switched off since the query was optimized
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

    /** The place of the data filters among a scan's fields: after the output's columns and the partition filters. */
    private static int placeOfFilters(Class[] types) {
        List sequences = new ArrayList();
        for (int i = 0; i < types.length; i++) {
            if (types[i] == Seq.class) {
                sequences.add(Integer.valueOf(i));
            }
        }
        return ((Integer) sequences.get(2)).intValue();
    }

    /** A copy of a scan as an instance of another class, with more filters; the scan itself if this fails. */
    static FileSourceScanExec made(Class other, FileSourceScanExec scan, List filters) {
        try {
            Constructor constructor = other.getConstructors()[0];
            Object[] fields = ScalaInterop.fields(scan);
            if (!filters.isEmpty()) {
                List all = ScalaInterop.list(scan.dataFilters());
                all.addAll(filters);
                fields[placeOfFilters(constructor.getParameterTypes())] = ScalaInterop.seq(all);
            }
            return (FileSourceScanExec) constructor.newInstance(fields);
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
            if (isOf(partition, file) && (all || index.decision.isWritten(file))) {
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
