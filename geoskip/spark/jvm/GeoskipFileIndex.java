package geoskip;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import @SparkSession@;
import org.apache.spark.sql.execution.datasources.*;
import org.apache.spark.sql.types.StructType;
import scala.Option;
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
    private boolean isOfText;
    AnsweredScan scan;
    private boolean isOfJoin; // true if the keys of joins filter the scan
    private boolean isUnanswered; // true if filters await answers, until a plan lists the files

    GeoskipFileIndex(FileIndex inner, FileIndex original, Decision decision, List directories) {
        this(inner, original, decision, count(directories));
    }

    private GeoskipFileIndex(FileIndex inner, FileIndex original, Decision decision, long files) {
        this.inner = inner;
        this.original = original;
        this.decision = decision;
        this.files = files;
    }

    private static long count(List directories) {
        long count = 0;
        for (PartitionDirectory directory : directories) {
            count += directory.files().size();
        }
        return count;
    }

    /** Skips files only as long as sessions have these settings; each run of a scan reads text by those of the run. */
    void under(ReaderSettings settings, boolean isOfText) {
        this.settings = settings;
        this.isOfText = isOfText;
    }

    /** Decides again on the first run if conditions are over subqueries. */
    void answeredBy(AnsweredScan scan) {
        this.scan = scan;
        isUnanswered = AnsweredScan.asks(decision.conditions);
    }

    /** Decides again on the first run, by filters over the keys of joins. */
    synchronized void awaitKeys() {
        isOfJoin = true;
        isUnanswered = true;
    }

    synchronized boolean isOfJoin() { return isOfJoin; }

    /** The same index for one scan alone: Spark may push a scan with its index into both sides of a UNION. */
    synchronized GeoskipFileIndex copy() {
        GeoskipFileIndex copy = new GeoskipFileIndex(inner, original, decision.copy(), files);
        copy.under(settings, isOfText);
        copy.answeredBy(scan.copy());
        return copy;
    }

    /** True before the keys of joins are known. */
    synchronized boolean awaitsKeys() { return isOfJoin && isUnanswered; }

    /** True if skipped files can be compared with their fingerprints again, or files may be skipped on the first run. */
    synchronized boolean isWatched() {
        boolean isUnknown = isUnanswered || isOfJoin; // a plan made later may have the filters of joins, too
        return decision.watched || decision.counted != null || isUnknown || isOfText;
    }

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
     * Keeps all files from now on, and returns true, if the reader's settings have changed, or files whose rows make
     * others unnecessary. Called whenever a plan is run, since Spark takes these settings then, not when it plans.
     */
    public boolean keepsAll() {
        if (isReadOtherwise() || decision.isUnproved()) {
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
