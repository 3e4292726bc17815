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

/** What one scan of files read, and what it could have. */
class ScanFacts {
    private static final int BYTES_A_FILE = 600; // of a listing
    final SparkSession session;
    final boolean enabled;
    private FileIndex location; // null of a scan that finds its files itself: see TableScanFacts
    private GeoskipFileIndex index; // the same, null where it is another's
    private Seq partitionFilters = (Seq) Nil$.MODULE$;
    private Seq dataFilters = (Seq) Nil$.MODULE$;
    private long readFiles;
    private long readBytes;
    private boolean isCounted; // do these say which files were read?
    private String reason;
    private List kept;
    private List all;
    private long unknown = -1; // files that no metadata know, counted once

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
        // files that are reached twice are read twice, and one file each; what a later run read besides is in no metric
        isCounted = ScalaInterop.list(location.rootPaths()).size() == 1 && !(scan instanceof WatchedScan.FileSourceScanExec
                && ((WatchedScan.FileSourceScanExec) scan).hasReadMore());
        reason = index != null ? null : SupportedRelations.reason(scan.relation());
    }

    ScanFacts(FileScan scan, SparkSession session) {
        this(scan.fileIndex(), scan.partitionFilters(), scan.dataFilters(), session);
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
            List late = new ArrayList();
            for (Expression filter : ScalaInterop.list(partitionFilters)) {
                if (ScalaInterop.holdsPlan(filter) && answered(filter)) {
                    late.add(bound(filter));
                }
            }
            Seq directories = location.listFiles(ScalaInterop.fixed(partitionFilters), dataFilters);
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
        decision.writeAudit(json);
        return json.with("planning_seconds", decision.planningNanos / 1e9).with("unknown", unknown())
                .with("report", Json.raw(decision.reply));
    }

    /** What was decided; null where nothing was. */
    Decision decision() { return index == null ? null : index.decision; }

    /** What Spark filters the rows by, in words. */
    String filter() {
        List all = ScalaInterop.list(partitionFilters);
        all.addAll(ScalaInterop.list(dataFilters));
        return ScalaInterop.conjunction(all);
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

    synchronized long unknown() {
        if (unknown < 0) {
            unknown = decision().unknown(all());
        }
        return unknown;
    }

    /** Why a scan that geoskip did not touch was left so. */
    String reason() {
        if (reason == null) {
            reason = reason(ScalaInterop.list(location.rootPaths()));
        }
        return reason;
    }

    /** Why nothing was decided on a scan that geoskip may touch. */
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

    /** Does Spark filter the rows by what geoskip would have been asked about? */
    private boolean isFiltered() {
        for (Object filter : ScalaInterop.list(dataFilters)) {
            if (!ScalaInterop.holdsPlan((Expression) filter)) {
                return true;
            }
        }
        return false;
    }

    String root() { return ScalaInterop.rootOf(location); }

    /**
     * The rows of the kept files that satisfy the conditions which reached them, to be read anew; null
     * where that cannot be told: without conditions, or where one is over a subquery.
     */
    public Dataset matching() {
        List conditions = decision() == null ? new ArrayList() : decision().conditions;
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
