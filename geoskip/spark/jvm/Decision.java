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
import java.util.Objects;
import java.util.TreeMap;
import java.util.WeakHashMap;
import java.util.concurrent.atomic.AtomicLong;
import @SparkSession@;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.catalyst.QueryPlanningTracker$;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.*;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** The files of snapshots that are skipped, for each vector of partition values. */
public class Decision {
    final List tables = new ArrayList();
    final List bits = new ArrayList(); // of BitSet[], one for each vector: a set bit skips
    private final List changed = new ArrayList(); // of BitSet, one for each table: files changed since the listing
    boolean watched; // true if skipped files can be compared with their fingerprints again
    CountedFiles counted; // by which files are skipped; null without an order of which only the first rows are needed
    String note; // about the first rows of an order, for reports; or null
    Slots slots;
    String reply = "{}"; // Python's answer without the bits, as JSON: for reports
    long planningNanos;
    LogicalPlan relation; // the relation with all of its columns, for reading the matching rows again
    public List conditions = Collections.emptyList();
    private List answered; // the conditions with the answers of subqueries; null if they are not known

    long bytes; // memory of the bits
    private volatile boolean revoked;
    private long filesAudited;
    private final LinkedHashSet rowsLost = new LinkedHashSet(); // sentences

    Decision(Slots slots) { this.slots = slots; }

    /** A copy for another scan, with its own reports and audits. */
    synchronized Decision again() {
        Decision same = new Decision(slots);
        same.take(this);
        return same;
    }

    /** A copy for another scan of the same relation, planned in the same way. */
    synchronized Decision copy() {
        Decision same = again();
        same.counted = counted;
        same.note = note;
        same.planningNanos = planningNanos;
        same.relation = relation;
        same.conditions = conditions;
        return same;
    }

    private void take(Decision other) {
        tables.addAll(other.tables);
        bits.addAll(other.bits);
        changed.addAll(other.changed);
        slots = other.slots; // its bits are for the vectors of its own conditions
        watched = other.watched;
        bytes = other.bytes;
        reply = other.reply;
    }

    /** Takes the files to skip from a decision by conditions with the answers of subqueries. */
    synchronized void replaceBy(Decision other, List conditions) {
        if (other.tables.isEmpty() && !tables.isEmpty()) {
            return; // it took too long
        }
        tables.clear();
        bits.clear();
        changed.clear();
        take(other);
        answered = conditions;
    }

    /** The conditions by which files are skipped. */
    synchronized List usedConditions() { return answered != null ? answered : conditions; }

    /** Adds the result of an audit: the number of skipped files that were read, and lines about lost rows. */
    synchronized void audited(long files, String said) {
        filesAudited += files;
        if (said != null && !said.isEmpty()) {
            rowsLost.addAll(Arrays.asList(said.split("\n")));
        }
    }

    /** Writes the results of audits. */
    synchronized void writeAudit(Json json) {
        json.with("audited", filesAudited).with("lost", new ArrayList(rowsLost));
    }

    /** A decision that keeps every file, with reasons. */
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

    /** The number of these files that no snapshot has with the same fingerprint: new, changed and excluded ones. */
    synchronized long unknown(List files) {
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
     * The files among these to which the clauses apply, as lines `bits vector dataset` with the bits of the files for
     * each vector of partition values. Files that no snapshot has with the same fingerprint are not among them.
     */
    String listed(List directories) { return listed(directories, false); }

    /** As above; if `once`, for a file of several datasets only in one of them. */
    synchronized String listed(List directories, boolean once) {
        TreeMap bitsByPlace = new TreeMap();
        for (PartitionDirectory directory : directories) {
            addListed(ScalaInterop.list(directory.files()), slots.number(directory.values()), bitsByPlace, once);
        }
        return lines(bitsByPlace);
    }

    /** As above for the files of a table scan, which have no partition values. */
    synchronized String listed(TableScan scan) {
        TreeMap bitsByPlace = new TreeMap();
        addListed(scan.files, 0, bitsByPlace, false);
        return lines(bitsByPlace);
    }

    private void addListed(List files, int vector, TreeMap bitsByPlace, boolean once) {
        for (Object file : vector >= 0 ? files : new ArrayList()) {
            boolean found = false;
            for (int t = 0; t < tables.size() && !(found && once); t++) {
                int number = number(t, file);
                if (number >= 0) {
                    String place = vector + " " + ((FileTable) tables.get(t)).root;
                    bitsByPlace.putIfAbsent(place, new BitSet());
                    ((BitSet) bitsByPlace.get(place)).set(number);
                    found = true;
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

    boolean skipsNone() { return tables.isEmpty() || revoked; }

    /** True if files are skipped because of rows that may be gone. */
    boolean isUnproved() { return counted != null && counted.haveChanged(); }

    /** Keeps all files from now on. */
    void revoke() { revoked = true; }

    boolean isRevoked() { return revoked; }

    /** True if a file of Spark's listing or of a table is skipped. */
    boolean skips(Object file, int vector) {
        for (int t = 0; t < tables.size() && !revoked; t++) {
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

    /** The number of a listed file in a file table, or -1 if it is unknown or has changed. */
    private int number(int table, Object file) {
        int number = ((FileTable) tables.get(table)).number(file);
        return number >= 0 && ((BitSet) changed.get(table)).get(number) ? -1 : number;
    }

    /** The relation of this decision with another file index, filtered by some conditions. */
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

    /** The conjuncts of conditions that depend only on a row's values: deterministic ones without subqueries. */
    static List ownOf(List conditions) {
        List found = new ArrayList();
        for (Expression member : ScalaInterop.members(conditions)) {
            if (member.deterministic() && !ScalaInterop.holdsPlan(member)) {
                found.add(member);
            }
        }
        return found;
    }

    /** True if a listed file has changed; then it is no longer skipped. */
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
        return tables.equals(that.tables) && slots.equals(that.slots) && Objects.equals(counted, that.counted)
                && Arrays.deepEquals(bits.toArray(), that.bits.toArray());
    }

    public int hashCode() { return tables.hashCode(); }
}

/** A decision that keeps the named files, which a build or an audit reads. */
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
 * The decisions made while one query is planned. If the same scan occurs again, such as in a view that the query uses
 * twice or in a subquery, the first decision is reused.
 *
 * Two scans are the same if their requests have the same text, and Spark considers their conditions equal over the
 * positions of their columns, since different functions may have the same text. Queries are identified by Spark's
 * QueryPlanningTracker.
 */
class QueryDecisions {
    private static final Map queries = Collections.synchronizedMap(new WeakHashMap()); // by Spark's trackers
    private static final AtomicLong lastNumber = new AtomicLong();
    private final Map decisions = new HashMap(); // by scan
    private final Map numbers = new HashMap(); // by expression
    private final List environments = new ArrayList(); // pairs of a relation's files and a text
    private Map settings; // of the session, read when they are needed
    volatile List recorded; // of PlannedScan, for the workload log; null if it is off
    volatile boolean keepsLiterals;

    /** The decisions of the query that this thread plans; empty if Spark tracks none. */
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

    /** The decisions of a planned query; empty if there are none. */
    static QueryDecisions of(QueryPlanningTracker tracker) {
        QueryDecisions found = (QueryDecisions) queries.get(tracker);
        return found == null ? new QueryDecisions() : found;
    }

    /** The earlier decision for this scan, or null. */
    synchronized Decision decision(List scan) {
        Decision first = scan == null ? null : (Decision) decisions.get(scan);
        return first == null ? null : first.again();
    }

    /** Stores a copy of a decision before anything is reported of it. */
    synchronized Decision keep(List scan, Decision decision) {
        if (scan != null) {
            decisions.put(scan, decision.again());
        }
        return decision;
    }

    /** Key of a scan: request and conditions; null if a condition contains a plan, which is not compared. */
    static List scan(String question, List conditions, LogicalPlan relation) {
        Map places = places(relation);
        List scan = new ArrayList();
        scan.add(question);
        for (Expression condition : conditions) {
            if (ScalaInterop.holdsPlan(condition)) {
                return null;
            }
            scan.add(placed(condition, places));
        }
        return scan;
    }

    /** The positions of a relation's columns by their ids. */
    static Map places(LogicalPlan relation) {
        Map places = new HashMap();
        for (Attribute column : ScalaInterop.list(relation.output())) {
            places.put(column.exprId(), places.size());
        }
        return places;
    }

    /** An expression with the places of columns, by their ids, in a form that is equal for equal expressions. */
    static Expression placed(Expression expression, final Map places) {
        return ((Expression) expression.transform(new Replacement() {
            Object of(Object node) {
                AttributeReference column = node instanceof AttributeReference ? (AttributeReference) node : null;
                Object place = column == null ? null : places.get(column.exprId());
                return place == null ? null : new BoundReference((Integer) place, column.dataType(), column.nullable());
            }
        })).canonicalized();
    }

    /** A number for an expression, the same for equal ones in this query, and for no other in any query. */
    synchronized long number(Expression expression) {
        numbers.putIfAbsent(expression, lastNumber.incrementAndGet());
        return ((Long) numbers.get(expression)).longValue();
    }

    /** The environment of a table scan as JSON. */
    synchronized String environment(TableScan scan, SparkSession session) {
        return scan.environment(settings(session)).toString();
    }

    private Map settings(SparkSession session) {
        if (settings == null) {
            settings = SupportedRelations.ofSession(session.sessionState().conf());
        }
        return settings;
    }

    /** The environment of a relation as JSON: format, options, settings; the schema if columns go by position. */
    synchronized String environment(LogicalRelation relation, SparkSession session) {
        HadoopFsRelation files = (HadoopFsRelation) relation.relation();
        for (Object[] known : environments) {
            if (((WeakReference) known[0]).get() == files) {
                return (String) known[1];
            }
        }
        Json json = SupportedRelations.environment(files, settings(session), session);
        if (SupportedRelations.byPosition(files)) {
            json.put("schema", files.dataSchema().json());
        }
        String written = json.toString();
        environments.add(new Object[] {new WeakReference(files), written}); // relations refer to their session
        return written;
    }
}
