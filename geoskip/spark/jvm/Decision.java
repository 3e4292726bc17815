package geoskip;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.BitSet;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.WeakHashMap;
import @SparkSession@;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.catalyst.QueryPlanningTracker$;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.*;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** Which files of which snapshots are skipped, for each vector of partition values. */
public class Decision {
    final List tables = new ArrayList();
    final List bits = new ArrayList(); // of BitSet[], one a vector: a set bit skips
    private final List changed = new ArrayList(); // of BitSet, one a table: files that are other ones than when listed
    boolean watched; // may skipped files be compared with their fingerprints again?
    final Slots slots;
    String reply = "{}"; // what Python said beside the bits, as JSON: for reports
    long planningNanos;
    LogicalPlan relation; // what was decided on with all of its columns, for those who read the matching rows anew
    public List conditions = Collections.emptyList();

    long bytes; // that the bits take in memory
    private long filesAudited;
    private final LinkedHashSet rowsLost = new LinkedHashSet(); // sentences

    Decision(Slots slots) { this.slots = slots; }

    /** The same for another scan, which has reports and audits of its own. */
    synchronized Decision again() {
        Decision same = new Decision(slots);
        same.tables.addAll(tables);
        same.bits.addAll(bits);
        same.changed.addAll(changed);
        same.watched = watched;
        same.bytes = bytes;
        same.reply = reply;
        return same;
    }

    /** Takes in that skipped files were read again, and what is to be said of lost rows: a line each. */
    synchronized void audited(long files, String said) {
        filesAudited += files;
        if (said != null && !said.isEmpty()) {
            rowsLost.addAll(Arrays.asList(said.split("\n")));
        }
    }

    /** Writes what audits have found. */
    synchronized void writeAudit(Json json) {
        json.with("audited", filesAudited).with("lost", new ArrayList(rowsLost));
    }

    /** Keeps every file, and says why. */
    static Decision none(List reasons) {
        Decision decision = new Decision(new Slots(new StructType(), null));
        decision.reply = new Json().with("reasons", reasons).toString();
        return decision;
    }

    static Decision none(String reason) { return none(Collections.singletonList(reason)); }

    static Decision of(String answer, long budget, List datasets, Slots slots) throws Exception {
        if (answer == null) {
            return none("no decision within the planning budget of " + budget / 1000.0
                    + " s (spark.geoskip.planning.budget): every file is read");
        }
        Decision decision = new Decision(slots);
        String[] lines = answer.split("\n");
        decision.reply = lines[0];
        for (int i = 1; i < lines.length; i++) { // dataset number, snapshot, bits for each vector, "?" and bits of changed
            String[] words = lines[i].split(" ");
            String root = (String) datasets.get(Integer.parseInt(words[0]));
            FileTable table = Geoskip.table(words[1], root, budget);
            if (table != null) {
                HashMap met = new HashMap(); // many vectors have the same bits
                String last = words[words.length - 1];
                boolean tells = last.startsWith("?");
                decision.watched |= tells;
                decision.changed.add(tells ? BitSet.valueOf(Base64.getDecoder().decode(last.substring(1))) : new BitSet());
                BitSet[] sets = new BitSet[words.length - (tells ? 3 : 2)];
                for (int v = 0; v < sets.length; v++) {
                    BitSet same = (BitSet) met.get(words[v + 2]);
                    sets[v] = same != null ? same : BitSet.valueOf(Base64.getDecoder().decode(words[v + 2]));
                    decision.bytes += same != null ? 8 : sets[v].size() / 8;
                    met.put(words[v + 2], sets[v]);
                }
                decision.tables.add(table);
                decision.bits.add(sets);
            }
        }
        return decision;
    }

    /** How many of these files no snapshot that was asked knows as they are: new ones, changed ones, those left out. */
    long unknown(List files) {
        long count = 0;
        for (Object file : files) {
            boolean isKnown = tables.isEmpty();
            for (int t = 0; t < tables.size() && !isKnown; t++) {
                isKnown = number(t, file) >= 0;
            }
            count += isKnown ? 0 : 1;
        }
        return count;
    }

    /**
     * The files among these that the clauses speak about, as lines `bits vector dataset`: for each partition values'
     * vector the bits of its files. What no snapshot knows as it is, is not among them.
     */
    String listed(List directories) {
        TreeMap bitsByPlace = new TreeMap();
        for (PartitionDirectory directory : directories) {
            addListed(ScalaInterop.list(directory.files()), slots.number(directory.values()), bitsByPlace);
        }
        return lines(bitsByPlace);
    }

    /** The same of the files of a table, which have no partition values. */
    String listed(TableScan scan) {
        TreeMap bitsByPlace = new TreeMap();
        addListed(scan.files, 0, bitsByPlace);
        return lines(bitsByPlace);
    }

    private void addListed(List files, int vector, TreeMap bitsByPlace) {
        for (int t = 0; t < tables.size() && vector >= 0; t++) {
            String place = vector + " " + ((FileTable) tables.get(t)).root;
            for (Object file : files) {
                int number = number(t, file);
                if (number >= 0) {
                    bitsByPlace.putIfAbsent(place, new BitSet());
                    ((BitSet) bitsByPlace.get(place)).set(number);
                }
            }
        }
    }

    private static String lines(TreeMap bitsByPlace) {
        StringBuilder lines = new StringBuilder();
        for (String place : bitsByPlace.keySet()) {
            byte[] packed = ((BitSet) bitsByPlace.get(place)).toByteArray();
            lines.append(Base64.getEncoder().encodeToString(packed)).append(' ').append(place).append('\n');
        }
        return lines.toString();
    }

    boolean skipsNone() { return tables.isEmpty(); }

    /** Is a file skipped: of Spark's listing, or of a table? */
    boolean skips(Object file, int vector) {
        for (int t = 0; t < tables.size(); t++) {
            BitSet[] sets = (BitSet[]) bits.get(t);
            int number = vector < sets.length ? number(t, file) : -1;
            if (number >= 0 && sets[vector].get(number)) {
                return true;
            }
        }
        return false;
    }

    /** The numbers of the files of a table's scan that are kept. */
    public BitSet kept(TableScan scan) {
        long started = System.nanoTime();
        BitSet kept = new BitSet();
        for (int i = 0; i < scan.files.size(); i++) {
            kept.set(i, !skips(scan.files.get(i), 0));
        }
        planningNanos += System.nanoTime() - started;
        return kept;
    }

    /** The number of a listed file in a table, or -1 where it is another one by now. */
    private int number(int table, Object file) {
        int number = ((FileTable) tables.get(table)).number(file);
        return number >= 0 && ((BitSet) changed.get(table)).get(number) ? -1 : number;
    }

    /** The relation decided on, of the files of another index, under some conditions. */
    LogicalPlan over(GeoskipFileIndex index, List conditions) {
        LogicalRelation files = (LogicalRelation) relation;
        Object relocated = ScalaInterop.relocated(files, TableFormat.narrowed(index), files.catalogTable());
        return filtered((LogicalPlan) relocated, conditions);
    }

    static LogicalPlan filtered(LogicalPlan plan, List conditions) {
        LogicalPlan filtered = plan;
        for (Expression condition : conditions) {
            filtered = new Filter(condition, filtered);
        }
        return filtered;
    }

    /** The members of conditions that a row's values settle: no subquery's answer, nothing that is not deterministic. */
    static List ownOf(List conditions) {
        List found = new ArrayList();
        for (Expression member : ScalaInterop.members(conditions)) {
            if (member.deterministic() && !ScalaInterop.holdsPlan(member)) {
                found.add(member);
            }
        }
        return found;
    }

    /** Is a listed file another one by now? Then it is skipped no more. */
    synchronized boolean isWritten(FileStatusWithMetadata file) {
        boolean found = false;
        for (int i = 0; i < tables.size(); i++) {
            int number = ((FileTable) tables.get(i)).number(file);
            if (number >= 0 && ((FileTable) tables.get(i)).isWritten(number, file.getPath())) {
                BitSet more = (BitSet) ((BitSet) changed.get(i)).clone();
                more.set(number);
                changed.set(i, more);
                found = true;
            }
        }
        return found;
    }

    public boolean equals(Object other) {
        if (!(other instanceof Decision)) {
            return false;
        }
        Decision that = (Decision) other;
        return tables.equals(that.tables) && slots.equals(that.slots)
                && Arrays.deepEquals(bits.toArray(), that.bits.toArray());
    }

    public int hashCode() { return tables.hashCode(); }
}

/** The files chosen by name: what a build or an audit reads. */
class Chosen extends Decision {
    private final FileTable files;

    Chosen(String lines) {
        super(new Slots(new StructType(), null));
        files = new FileTable("", lines, "");
    }

    Chosen(List files) { this(FileTable.lines(files, Collections.emptyMap())); }

    boolean skipsNone() { return false; }

    boolean skips(Object file, int vector) { return files.number(file) < 0; }

    public boolean equals(Object other) { return this == other; }

    public int hashCode() { return System.identityHashCode(this); }
}

/**
 * What was decided while one query is planned: the same scan met again, as of a view that the query names twice or of a
 * subquery, is answered from the first decision.
 *
 * Two scans are the same where their questions are written the same and their conditions are equal to Spark over the
 * places of their columns: two functions may be written alike. A query is what Spark tracks as one.
 */
class QueryDecisions {
    private static final Map queries = Collections.synchronizedMap(new WeakHashMap()); // by Spark's trackers
    private final Map decisions = new HashMap(); // by scan
    private final List environments = new ArrayList(); // pairs of a relation's files and a text
    private Map settings; // of the session, once they are needed
    volatile List recorded; // of PlannedScan, for the log of the workload; null where it is to keep nothing
    volatile boolean keepsLiterals;

    /** That of the query which this thread plans; an empty one where Spark tracks none. */
    static QueryDecisions current() {
        Option tracker = QueryPlanningTracker$.MODULE$.get();
        if (tracker.isEmpty()) {
            return new QueryDecisions();
        }
        synchronized (queries) {
            queries.putIfAbsent(tracker.get(), new QueryDecisions());
            return (QueryDecisions) queries.get(tracker.get());
        }
    }

    /** That of a query that was planned; an empty one where nothing was decided. */
    static QueryDecisions of(QueryPlanningTracker tracker) {
        QueryDecisions found = (QueryDecisions) queries.get(tracker);
        return found == null ? new QueryDecisions() : found;
    }

    /** What was decided for this scan before, null where nothing was. */
    synchronized Decision decision(List scan) {
        Decision first = scan == null ? null : (Decision) decisions.get(scan);
        return first == null ? null : first.again();
    }

    /** Takes in what was decided, as it is before anything is reported of it. */
    synchronized Decision keep(List scan, Decision decision) {
        if (scan != null) {
            decisions.put(scan, decision.again());
        }
        return decision;
    }

    /** Question and conditions; null where a condition holds a plan, which would have to be compared as well. */
    static List scan(String question, List conditions, LogicalPlan relation) {
        final Map places = new HashMap();
        for (Attribute column : ScalaInterop.list(relation.output())) {
            places.put(column.exprId(), places.size());
        }
        List scan = new ArrayList();
        scan.add(question);
        for (Expression condition : conditions) {
            if (ScalaInterop.holdsPlan(condition)) {
                return null;
            }
            scan.add(((Expression) condition.transform(new Replacement() {
                Object of(Object node) {
                    AttributeReference column = node instanceof AttributeReference ? (AttributeReference) node : null;
                    Object place = column == null ? null : places.get(column.exprId());
                    return place == null ? null : new BoundReference((Integer) place, column.dataType(), column.nullable());
                }
            })).canonicalized());
        }
        return scan;
    }

    /** What a table is read under. */
    synchronized String environment(TableScan scan, SparkSession session) {
        if (settings == null) {
            settings = SupportedRelations.ofSession(session.sessionState().conf());
        }
        return scan.environment(settings).toString();
    }

    /** What a relation is read under, as JSON: format, options, schema where it counts, settings. */
    synchronized String environment(LogicalRelation relation, SparkSession session) {
        HadoopFsRelation files = (HadoopFsRelation) relation.relation();
        for (Object[] known : environments) {
            if (((WeakReference) known[0]).get() == files) {
                return (String) known[1];
            }
        }
        if (settings == null) {
            settings = SupportedRelations.ofSession(session.sessionState().conf());
        }
        Json json = SupportedRelations.environment(files, settings);
        if (SupportedRelations.byPosition(files)) {
            json.put("schema", files.dataSchema().json());
        }
        String written = json.toString();
        environments.add(new Object[] {new WeakReference(files), written}); // files lead to their session
        return written;
    }
}
