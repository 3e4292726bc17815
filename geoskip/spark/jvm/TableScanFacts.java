package geoskip;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.Collections;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.fs.Path;
import @SparkSession@;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;

/** The files that a scan of a table format with DataSource V2 read, and those that it could have read. */
class TableScanFacts extends ScanFacts {
    private final TableScan table;
    private final Scan scan;
    private final List roots;
    private final Set columns = new HashSet(); // ids

    TableScanFacts(TableScan table, BatchScanExec node, SparkSession session) {
        super(session);
        this.table = table;
        scan = node.scan();
        roots = Collections.singletonList(new Path(table.root));
        for (Object column : ScalaInterop.list(node.output())) {
            columns.add(((Attribute) column).exprId());
        }
    }

    Json json() { return super.json().with("partitions", partitions()); }

    private List partitions() {
        try {
            return table.partitionColumns();
        } catch (Exception unknown) { // then indexes over them are suggested too
            return Collections.emptyList();
        }
    }

    Decision decision() { return table.made; }

    String filter() { return table.made == null ? "" : ScalaInterop.conjunction(table.made.conditions); }

    String root() { return table.root; }

    long unknown() { return table.made.unknown(table.files); }

    String reason() { return table.reason != null && enabled ? table.reason : reason(roots); }

    LogicalPlan rows(List conditions) { return Decision.filtered(table.made.relation, conditions); }

    String conditionAmong(List planned) throws Exception {
        for (PlannedTable scan : planned) {
            if (scan.has(columns)) {
                return scan.summary(session);
            }
        }
        return null;
    }

    boolean isUndecided() {
        return table.made == null && table.reason == null && MetadataLocator.datasets(roots, session).isEmpty();
    }

    /** The files that are read now, since runtime filters may prune more of them than planning did. */
    private List read() {
        BitSet numbers = table.read(scan);
        List read = new ArrayList();
        for (int i = numbers.nextSetBit(0); i >= 0; i = numbers.nextSetBit(i + 1)) {
            read.add(table.files.get(i));
        }
        return read;
    }

    long[] amounts() {
        List read = read();
        long bytes = 0;
        for (TableFile file : read) {
            bytes += file.size;
        }
        long[] all = table.totals();
        return new long[] {all[0], all[1], read.size(), bytes};
    }

    List keptPaths() {
        List paths = new ArrayList();
        for (TableFile file : read()) {
            paths.add(file.path);
        }
        return paths;
    }

    List allPaths() { return table.allPaths(); }

    public String listed() { return table.made == null ? "" : table.made.listed(table); }

    boolean isOf(PlannedScan scan) { return false; }

    long weigh(IdentityHashMap met) { return met.put(table, Boolean.TRUE) == null ? table.files.size() : 0; }
}
