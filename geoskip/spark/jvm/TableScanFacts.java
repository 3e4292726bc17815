package geoskip;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.Collections;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.fs.Path;
import @Dataset@;
import @SparkSession@;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;

/** What a scan of a table format read that lists its files itself, and what it could have. */
class TableScanFacts extends ScanFacts {
    private final TableScan table;
    private final Scan scan;
    private final SparkSession session;
    private final boolean enabled;
    private final Decision decision; // null where nothing was decided
    private final List conditions;
    private final Set columns = new HashSet(); // ids

    TableScanFacts(TableScan table, BatchScanExec node, SparkSession session) {
        super(session);
        this.table = table;
        scan = node.scan();
        for (Object column : ScalaInterop.list(node.output())) {
            columns.add(((Attribute) column).exprId());
        }
        this.session = session;
        decision = table.made == null ? null : table.made.decision;
        conditions = table.made == null ? Collections.emptyList() : table.made.conditions;
        enabled = SupportedRelations.enabled(session.sessionState().conf());
    }

    public String summary() {
        long[] amounts = amounts();
        Json json = new Json().with("files_total", amounts[0]).with("bytes_total", amounts[1])
                .with("files_kept", amounts[2]).with("bytes_kept", amounts[3]).with("root", table.root);
        StringBuilder filter = new StringBuilder();
        for (Expression condition : conditions) {
            String text = ScalaInterop.holdsPlan(condition) ? condition.toString() : condition.sql();
            filter.append(filter.length() == 0 ? "" : " AND ").append(text);
        }
        json.put("filter", filter.toString());
        json.put("partitions", partitions());
        if (decision == null) {
            List roots = Collections.singletonList(new Path(table.root));
            return json.with("reason", table.reason != null && enabled ? table.reason : reason(roots, table.root, enabled)).toString();
        }
        json.with("planning_seconds", decision.planningNanos / 1e9).with("unknown", decision.unknown(table))
                .put("report", Json.raw(decision.reply));
        return json.toString();
    }

    private List partitions() {
        try {
            return table.partitionColumns();
        } catch (Exception unknown) { // then indexes over them are suggested too
            return Collections.emptyList();
        }
    }

    String conditionAmong(List planned) throws Exception {
        for (PlannedTable scan : planned) {
            if (scan.has(columns)) {
                return scan.summary(session);
            }
        }
        return null;
    }

    boolean isUndecided() {
        return decision == null && table.reason == null
                && MetadataLocator.datasets(Collections.singletonList(new Path(table.root)), session).isEmpty();
    }

    /** Asked when the report is, since filters at run time may leave out more files than planning did. */
    long[] amounts() {
        BitSet read = table.read(scan);
        long bytes = 0;
        for (int i = read.nextSetBit(0); i >= 0; i = read.nextSetBit(i + 1)) {
            bytes += table.sizes[i];
        }
        long[] all = table.totals();
        return new long[] {all[0], all[1], read.cardinality(), bytes};
    }

    public String paths(boolean wanted) {
        BitSet read = table.read(scan);
        List found = new ArrayList();
        for (int i = 0; i < table.paths.length; i++) {
            if (read.get(i) == wanted) {
                found.add(table.paths[i]);
            }
        }
        if (!wanted) { // beside those that the format's own skipping has left out
            List whole = table.allPaths();
            HashSet left = new HashSet(java.util.Arrays.asList(table.paths));
            for (Object path : whole) {
                if (!left.contains(path)) {
                    found.add(path);
                }
            }
        }
        return String.join("\0", found);
    }

    public String listed() { return decision == null ? "" : decision.listed(table); }

    public Dataset matching() {
        for (Expression condition : conditions) {
            if (ScalaInterop.holdsPlan(condition)) {
                return null;
            }
        }
        return conditions.isEmpty() ? null
                : Dataset.ofRows(session, Decision.filtered(table.made.relation, conditions));
    }

    public long keptBytes() { return amounts()[3]; }

    boolean isOf(PlannedScan scan) { return false; }

    long weigh(IdentityHashMap met) { return met.put(table, Boolean.TRUE) == null ? table.paths.length : 0; }
}
