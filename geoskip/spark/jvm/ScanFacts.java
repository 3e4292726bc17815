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
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.InSubqueryExec;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.v2.FileScan;
import org.apache.spark.util.AccumulatorV2;
import scala.Option;
import scala.collection.immutable.Nil$;
import @Seq@;

/** The files that one scan read, and those that it could have read. */
class ScanFacts {
    private static final int BYTES_A_FILE = 600; // of a listing
    final SparkSession session;
    final boolean enabled;
    private FileIndex location; // null for a scan that finds its files itself: see TableScanFacts
    private GeoskipFileIndex index; // the same, null if it is not geoskip's
    private Seq partitionFilters = (Seq) Nil$.MODULE$;
    private Seq dataFilters = (Seq) Nil$.MODULE$;
    private long readFiles;
    private long readBytes;
    private boolean isCounted; // true if these numbers are exact
    private String reason;
    private List kept;
    private List all;
    private long unknown = -1; // number of files without metadata, counted once

    ScanFacts(SparkSession session) {
        this.session = session;
        enabled = SupportedRelations.enabled(session.sessionState().conf());
    }

    private ScanFacts(FileIndex location, Seq partitionFilters, Seq dataFilters, SparkSession session) {
        this(session);
        this.location = location;
        this.partitionFilters = partitionFilters;
        this.dataFilters = dataFilters;
        index = GeoskipFileIndex.of(location);
    }

    ScanFacts(FileSourceScanExec scan, SparkSession session) {
        this(scan.relation().location(), scan.partitionFilters(), scan.dataFilters(), session);
        readFiles = metric(scan, "numFiles");
        readBytes = metric(scan, "filesSize");
        // a file below two roots is read twice but counts once; additional files of a later run are in no metric
        isCounted = ScalaInterop.list(location.rootPaths()).size() == 1 && !(scan instanceof WatchedScan.FileSourceScanExec
                && ((WatchedScan.FileSourceScanExec) scan).hasReadMore());
        reason = index != null ? null : SupportedRelations.reason(scan.relation());
    }

    ScanFacts(FileScan scan, SparkSession session) {
        this(scan.fileIndex(), scan.partitionFilters(), scan.dataFilters(), session);
        reason = "left alone: a DataSource V2 scan, " + scan.getClass().getSimpleName()
                + "; Spark's own readers of files (spark.sql.sources.useV1SourceList) can skip";
    }

    /** The facts of a scan that will not run again: if it has read no files by now, it reads none. */
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
            List late = new ArrayList();
            for (Expression filter : ScalaInterop.list(partitionFilters)) {
                if (ScalaInterop.holdsPlan(filter) && answered(filter)) {
                    late.add(bound(filter));
                }
            }
            Seq filters = ScalaInterop.fixed(partitionFilters);
            Seq directories = index == null ? location.listFiles(filters, dataFilters) : index.kept(filters, dataFilters);
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

    /** True for a dynamic partition filter with available values. */
    private static boolean answered(Expression filter) {
        if (filter instanceof InSubqueryExec) {
            return ((InSubqueryExec) filter).values().isDefined();
        }
        List children = ScalaInterop.list(filter.children());
        return children.size() == 1 && answered((Expression) children.get(0));
    }

    /** A partition filter bound to the partition's values. */
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

    /** The files without duplicates, as from two globs. */
    private List distinct(List files) {
        return ScalaInterop.list(location.rootPaths()).size() == 1 ? files : new ArrayList(new LinkedHashSet(files));
    }

    /** The files of the whole listing to which the decision's clauses apply: see Decision. */
    public String listed() {
        return index == null ? "" : index.decision.listed(ScalaInterop.list(ScalaInterop.whole(index.original)));
    }

    /** Totals, predicate and reasons as JSON, without the paths of files. */
    public String summary() { return json().toString(); }

    Json json() {
        long[] amounts = amounts();
        Json json = new Json().with("files_total", amounts[0]).with("bytes_total", amounts[1])
                .with("files_kept", amounts[2]).with("bytes_kept", amounts[3]).with("root", root())
                .with("filter", filter());
        Decision decision = decision();
        if (decision == null) {
            return json.with("reason", reason());
        }
        if (decision.isRevoked()) {
            return json.with("reason", "a setting changed, or a file, between its planning and its run: plan the query again");
        }
        decision.writeAudit(json);
        List notes = new ArrayList();
        if (index != null && index.awaitsKeys()) {
            notes.add(DynamicFilePruning.LATER);
        }
        if (decision.note != null) {
            notes.add(decision.note);
        }
        json.put("notes", notes);
        return json.with("planning_seconds", decision.planningNanos / 1e9).with("unknown", unknown())
                .with("report", Json.raw(decision.reply));
    }

    /** The decision, or null. */
    Decision decision() { return index == null ? null : index.decision; }

    /** The filters of Spark's scan as text. */
    String filter() {
        List all = ScalaInterop.list(partitionFilters);
        all.addAll(dataFilters());
        return ScalaInterop.conjunction(all);
    }

    /** The filters on data, without Delta's own one, for deletion vectors. */
    private List dataFilters() {
        List found = new ArrayList();
        for (Object filter : ScalaInterop.list(dataFilters)) {
            if (!filter.toString().contains("__delta_internal_is_row_deleted")) {
                found.add(filter);
            }
        }
        return found;
    }

    /** Files and bytes of the whole listing, files and bytes that were read. */
    long[] amounts() {
        boolean executed = isCounted && readFiles > 0;
        return new long[] {all().size(), ScalaInterop.length(all()), executed ? readFiles : kept().size(),
                executed ? readBytes : ScalaInterop.length(kept())};
    }

    /** True if this is the execution of a planned scan: by its decision, else by its roots or partitions below them. */
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

    /** True for a scan of a table format without a decision, so that its conditions must be determined. */
    boolean isUndecided() { return false; }

    /** The conditions of such a scan as JSON: those of the planned table with its columns, or null. */
    String conditionAmong(List planned) throws Exception { return null; }

    synchronized long unknown() {
        if (unknown < 0) {
            unknown = decision().unknown(all());
        }
        return unknown;
    }

    /** The reason why a scan was left alone. */
    String reason() {
        if (reason == null) {
            reason = reason(ScalaInterop.list(location.rootPaths()));
        }
        return reason;
    }

    /** The reason why there is no decision on a supported scan. */
    String reason(List roots) {
        if (!enabled) {
            String value = session.sessionState().conf().getConfString(SupportedRelations.ENABLED, "false");
            boolean odd = !"false".equalsIgnoreCase(value);
            return "geoskip is switched off in this session (" + SupportedRelations.ENABLED + (odd ? "=" + value : "") + ")";
        }
        if (MetadataLocator.datasets(roots, session).isEmpty()) {
            return "it has no metadata in " + root() + "/_geoskip, nor in a folder above; "
                    + "geoskip.dataset(spark, ...).create_index(...) makes them";
        }
        return isFiltered() ? "the query was planned before geoskip was switched on or before it had metadata: plan it again"
                : "no filter of the query reaches its files";
    }

    /** True if Spark's scan has filters that geoskip could have used. */
    private boolean isFiltered() {
        for (Object filter : dataFilters()) {
            if (!ScalaInterop.holdsPlan((Expression) filter)) {
                return true;
            }
        }
        return false;
    }

    String root() { return ScalaInterop.rootOf(location); }

    /**
     * The rows of the kept files that satisfy the pushed conditions, to be read again; null without conditions, or if
     * one is over a subquery.
     */
    public Dataset matching() {
        List conditions = decision() == null ? new ArrayList() : decision().usedConditions();
        for (Expression condition : conditions) {
            if (ScalaInterop.holdsPlan(condition)) {
                return null;
            }
        }
        return conditions.isEmpty() ? null : Dataset.ofRows(session, rows(conditions));
    }

    /** The rows of the kept files that satisfy some conditions. */
    LogicalPlan rows(List conditions) { return index.decision.over(index, conditions); }

    public long keptBytes() { return amounts()[3]; }

    /** The memory of the listing and of the decision, as a number of listed files. */
    long weigh(IdentityHashMap met) {
        if (index == null) {
            return met.put(location, Boolean.TRUE) == null ? readFiles : 0;
        }
        long files = met.put(index.inner, Boolean.TRUE) == null ? index.files : 0;
        return files + (met.put(index.decision, Boolean.TRUE) == null ? index.decision.bytes / BYTES_A_FILE : 0);
    }

    /** The index that skipped files for a query, or null. */
    GeoskipFileIndex skipping() {
        return index == null || index.decision instanceof Chosen ? null : index;
    }

    /** The kept or the skipped files, as paths joined by NUL characters. */
    public String paths(boolean wanted) {
        HashSet kept = new HashSet(keptPaths());
        List found = new ArrayList();
        for (Object path : allPaths()) {
            if (kept.contains(path) == wanted) {
                found.add(path);
            }
        }
        return String.join("\0", found);
    }

    List keptPaths() { return paths(kept()); }

    List allPaths() { return paths(all()); }

    private static List paths(List files) {
        List paths = new ArrayList();
        for (FileStatusWithMetadata file : files) {
            paths.add(file.getPath().toString());
        }
        return paths;
    }
}
