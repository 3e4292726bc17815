package geoskip;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import @Dataset@;
import @SparkSession@;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.InSubqueryExec;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.v2.FileScan;
import org.apache.spark.util.AccumulatorV2;
import scala.Option;
import @Seq@;

/** What one scan of files read, and what it could have. */
class ScanFacts {
    private static final int BYTES_A_FILE = 600; // of a listing
    private final SparkSession session;
    private final FileIndex location;
    private final GeoskipFileIndex index; // the same, null where it is another's
    private final Seq partitionFilters;
    private final Seq dataFilters;
    private final long readFiles;
    private final long readBytes;
    private final boolean isCounted; // do these say which files were read?
    private final boolean enabled;
    private String reason;
    private List kept;
    private List all;
    private long unknown = -1; // files that no metadata know, counted once

    ScanFacts(FileSourceScanExec scan, SparkSession session) {
        this.session = session;
        location = scan.relation().location();
        index = GeoskipFileIndex.of(location);
        partitionFilters = scan.partitionFilters();
        dataFilters = scan.dataFilters();
        readFiles = metric(scan, "numFiles");
        readBytes = metric(scan, "filesSize");
        // files that are reached twice are read twice, and one file each; what a later run read besides is in no metric
        isCounted = ScalaInterop.list(location.rootPaths()).size() == 1 && !(scan instanceof WatchedScan.FileSourceScanExec
                && ((WatchedScan.FileSourceScanExec) scan).hasReadMore());
        enabled = SupportedRelations.enabled(session.sessionState().conf());
        reason = index != null ? null : SupportedRelations.reason(scan.relation());
    }

    /** Of a scan that finds its files itself: see TableScanFacts. */
    ScanFacts(SparkSession session) {
        this.session = session;
        location = null;
        index = null;
        partitionFilters = null;
        dataFilters = null;
        readFiles = 0;
        readBytes = 0;
        isCounted = false;
        enabled = true;
    }

    ScanFacts(FileScan scan, SparkSession session) {
        this.session = session;
        location = scan.fileIndex();
        index = GeoskipFileIndex.of(location);
        partitionFilters = scan.partitionFilters();
        dataFilters = scan.dataFilters();
        readFiles = 0;
        readBytes = 0;
        isCounted = false;
        enabled = true;
        reason = "left alone: a DataSource V2 scan, " + scan.getClass().getSimpleName()
                + "; Spark's own readers of files (spark.sql.sources.useV1SourceList) can skip";
    }

    /** The facts of a scan that will not run any more: what it has not read by now it does not read. */
    ScanFacts finished() {
        if (readFiles == 0) {
            kept = new ArrayList();
        }
        return this;
    }

    private static long metric(FileSourceScanExec scan, String name) {
        scala.collection.Map metrics = scan.metrics();
        Option metric = metrics.get(name);
        return metric.isEmpty() ? 0 : ((Long) ((AccumulatorV2) metric.get()).value()).longValue();
    }

    private synchronized List kept() {
        if (kept == null) {
            List fixed = new ArrayList();
            List late = new ArrayList();
            for (Expression filter : ScalaInterop.list(partitionFilters)) {
                if (!ScalaInterop.holdsPlan(filter)) {
                    fixed.add(filter);
                } else if (answered(filter)) {
                    late.add(bound(filter));
                }
            }
            Seq directories = location.listFiles(ScalaInterop.seq(fixed), dataFilters);
            kept = new ArrayList();
            for (PartitionDirectory directory : ScalaInterop.list(directories)) {
                if (passes(late, directory.values())) {
                    kept.addAll(ScalaInterop.list(directory.files()));
                }
            }
            kept = distinct(kept);
        }
        return kept;
    }

    /** Is this a dynamic partition filter whose values are there? */
    private static boolean answered(Expression filter) {
        if (filter instanceof InSubqueryExec) {
            return ((InSubqueryExec) filter).values().isDefined();
        }
        List children = ScalaInterop.list(filter.children());
        return children.size() == 1 && answered((Expression) children.get(0));
    }

    /** A partition filter over the partition's values. */
    private Object bound(Expression filter) {
        final String[] names = location.partitionSchema().fieldNames();
        return filter.transform(new Replacement() {
            Object of(Object node) {
                for (int i = 0; node instanceof AttributeReference && i < names.length; i++) {
                    if (names[i].equalsIgnoreCase(((AttributeReference) node).name())) {
                        return new BoundReference(i, ((AttributeReference) node).dataType(), true);
                    }
                }
                return null;
            }
        });
    }

    private static boolean passes(List filters, InternalRow partition) {
        for (Expression filter : filters) {
            if (!Boolean.TRUE.equals(filter.eval(partition))) {
                return false;
            }
        }
        return true;
    }

    private synchronized List all() {
        if (all == null) {
            all = distinct(ScalaInterop.files(ScalaInterop.whole(index != null ? index.original : location)));
        }
        return all;
    }

    /** The files without those that are reached a second time, as by two globs. */
    private List distinct(List files) {
        return ScalaInterop.list(location.rootPaths()).size() == 1 ? files : new ArrayList(new LinkedHashSet(files));
    }

    /** The files of the whole listing that the decision's clauses speak about: see Decision. */
    public String listed() {
        return index == null ? "" : index.decision.listed(ScalaInterop.list(ScalaInterop.whole(index.original)));
    }

    /** Totals, predicate and reasons as JSON; without a path in it. */
    public String summary() {
        long[] amounts = amounts();
        Json json = new Json().with("files_total", amounts[0]).with("bytes_total", amounts[1])
                .with("files_kept", amounts[2]).with("bytes_kept", amounts[3]);
        json.put("filter", ScalaInterop.conjunction(partitionFilters, dataFilters));
        json.put("root", root());
        if (index != null) {
            Decision decision = index.decision;
            json.put("planning_seconds", decision.planningNanos / 1e9);
            json.put("unknown", unknown(decision));
            json.put("report", Json.raw(decision.reply));
            decision.writeAudit(json);
        } else {
            json.put("reason", reason());
        }
        return json.toString();
    }

    /** Files and bytes of the whole listing, files and bytes that were read. */
    long[] amounts() {
        boolean executed = isCounted && readFiles > 0;
        return new long[] {all().size(), ScalaInterop.length(all()), executed ? readFiles : kept().size(),
                executed ? readBytes : ScalaInterop.length(kept())};
    }

    /** Is this a planned scan? By what was decided, else by its files, or the partitions that Spark took of them. */
    boolean isOf(PlannedScan scan) {
        if (index != null) {
            return index.original == scan.original && index.decision.conditions.equals(scan.conditions);
        }
        for (Object root : ScalaInterop.list(location.rootPaths())) {
            boolean isBelow = false;
            for (Object above : ScalaInterop.roots(scan.original)) {
                isBelow |= (root + "/").startsWith(above + "/");
            }
            if (!isBelow) {
                return false;
            }
        }
        return true;
    }

    /** Is it a scan of a table format of which nothing was decided, so that its conditions have to be looked for? */
    boolean isUndecided() { return false; }

    /** What such a scan's conditions are, as JSON: those of the planned table that has its columns; null without one. */
    String conditionAmong(List planned) throws Exception { return null; }

    private synchronized long unknown(Decision decision) {
        if (unknown < 0) {
            unknown = decision.unknown(all());
        }
        return unknown;
    }

    /** Why a scan that geoskip did not touch was left so. */
    private String reason() {
        if (reason == null) {
            reason = reason(ScalaInterop.list(location.rootPaths()), root(), enabled);
        }
        return reason;
    }

    /** Why nothing was decided on a scan that geoskip may touch. */
    String reason(List roots, String root, boolean enabled) {
        if (!enabled) {
            String value = session.sessionState().conf().getConfString(SupportedRelations.ENABLED, "false");
            boolean odd = !"false".equalsIgnoreCase(value);
            return "geoskip is switched off in this session (" + SupportedRelations.ENABLED + (odd ? "=" + value : "") + ")";
        }
        if (MetadataLocator.datasets(roots, session).isEmpty()) {
            return "it has no metadata in " + root + "/_geoskip, nor in a folder above; "
                    + "geoskip.dataset(spark, ...).create_index(...) makes them";
        }
        return isFiltered() ? "the query was planned before geoskip was switched on or before it had metadata: plan it again"
                : "no filter of the query reaches its files";
    }

    /** Does Spark filter the rows by what geoskip would have been asked about? */
    private boolean isFiltered() {
        for (Object filter : dataFilters == null ? new ArrayList() : ScalaInterop.list(dataFilters)) {
            if (!ScalaInterop.holdsPlan((Expression) filter)) {
                return true;
            }
        }
        return false;
    }

    private String root() { return ScalaInterop.rootOf(location); }

    /**
     * The rows of the kept files that satisfy the conditions which reached them, to be read anew; null
     * where that cannot be told: without conditions, or where one is over a subquery.
     */
    public Dataset matching() {
        List conditions = index == null ? new ArrayList() : index.decision.conditions;
        if (conditions.isEmpty()) {
            return null;
        }
        for (Expression condition : conditions) {
            if (ScalaInterop.holdsPlan(condition)) {
                return null;
            }
        }
        return Dataset.ofRows(session, index.decision.over(index, conditions));
    }

    public long keptBytes() { return ScalaInterop.length(kept()); }

    /** The files of the listing, and as many as take the space of the decision. */
    long weigh(IdentityHashMap met) {
        if (index == null) {
            return met.put(location, Boolean.TRUE) == null ? readFiles : 0;
        }
        long files = met.put(index.inner, Boolean.TRUE) == null ? index.files : 0;
        return files + (met.put(index.decision, Boolean.TRUE) == null ? index.decision.bytes / BYTES_A_FILE : 0);
    }

    /** The index that skipped files for a query; null where none did. */
    GeoskipFileIndex skipping() {
        return index == null || index.decision instanceof Chosen ? null : index;
    }

    /** The kept or the skipped files, as paths joined by NUL characters. */
    public String paths(boolean wanted) {
        HashSet keptPaths = new HashSet();
        for (FileStatusWithMetadata file : kept()) {
            keptPaths.add(file.getPath().toString());
        }
        StringBuilder text = new StringBuilder();
        for (FileStatusWithMetadata file : all()) {
            String path = file.getPath().toString();
            if (keptPaths.contains(path) == wanted) {
                text.append(text.length() == 0 ? "" : "\0").append(path);
            }
        }
        return text.toString();
    }
}
