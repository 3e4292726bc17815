package geoskip;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.BitSet;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.Unevaluable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import @Seq@;

/** Which files of which snapshots are skipped, for each vector of partition values. */
class Decision {
    final List tables = new ArrayList();
    final List bits = new ArrayList(); // of BitSet[], one a vector: a set bit skips
    private final List changed = new ArrayList(); // of BitSet, one a table: files that are other ones than when listed
    private boolean watched; // may skipped files be compared with their fingerprints again?
    final Slots slots;
    String reply = "{}"; // what Python said beside the bits, as JSON: for reports
    long planningNanos;
    LogicalRelation relation; // what was decided on, for those who read the matching rows anew
    List conditions = Collections.emptyList();

    private long bytes; // of the bits
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

    /** What its bits take in memory. */
    long bytes() { return bytes; }

    /** Takes in that skipped files were read again, and what is to be said of lost rows: a line each. */
    synchronized void audited(long files, String said) {
        filesAudited += files;
        String[] lines = said == null ? new String[0] : said.split("\n");
        for (int i = 0; i < lines.length; i++) {
            if (!lines[i].isEmpty()) {
                rowsLost.add(lines[i]);
            }
        }
    }

    /** Writes what audits have found. */
    synchronized void writeAudit(JsonGenerator json) throws IOException {
        json.writeNumberField("audited", filesAudited);
        ExpressionJson.strings(json, "lost", new ArrayList(rowsLost));
    }

    /** Keeps every file, and says why. */
    static Decision none(List reasons) throws IOException {
        Decision decision = new Decision(new Slots(new StructType(), null));
        StringWriter text = new StringWriter();
        JsonGenerator json = ExpressionJson.FACTORY.createGenerator(text);
        json.writeStartObject();
        ExpressionJson.strings(json, "reasons", reasons);
        json.writeEndObject();
        json.close();
        decision.reply = text.toString();
        return decision;
    }

    static Decision none(String reason) throws IOException { return none(Collections.singletonList(reason)); }

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

    /** The kept files of a partition. */
    PartitionDirectory keep(PartitionDirectory directory) throws IOException {
        int vector = slots.isEmpty() ? 0 : slots.number(directory.values());
        if (vector < 0 || tables.isEmpty()) {
            return directory;
        }
        List kept = new ArrayList();
        for (Iterator i = ScalaInterop.list(directory.files()).iterator(); i.hasNext();) {
            FileStatusWithMetadata file = (FileStatusWithMetadata) i.next();
            if (!skips(file, vector)) {
                kept.add(file);
            }
        }
        return new PartitionDirectory(directory.values(), ScalaInterop.seq(kept));
    }

    /** How many of these files no snapshot that was asked knows as they are: new ones, changed ones, those left out. */
    long unknown(List files) {
        long count = 0;
        for (Iterator i = files.iterator(); i.hasNext() && !tables.isEmpty();) {
            FileStatusWithMetadata file = (FileStatusWithMetadata) i.next();
            boolean isKnown = false;
            for (int t = 0; t < tables.size() && !isKnown; t++) {
                int number = ((FileTable) tables.get(t)).number(file);
                isKnown = number >= 0 && !((BitSet) changed.get(t)).get(number);
            }
            count += isKnown ? 0 : 1;
        }
        return count;
    }

    /**
     * The files among these that the clauses speak about, as lines `bits vector dataset`: for each partition values'
     * vector the bits of its files. What no snapshot knows as it is, is not among them.
     */
    String listed(List directories) throws IOException {
        TreeMap bitsByPlace = new TreeMap();
        for (Iterator i = directories.iterator(); i.hasNext();) {
            PartitionDirectory directory = (PartitionDirectory) i.next();
            int vector = slots.isEmpty() ? 0 : slots.number(directory.values());
            for (Iterator f = ScalaInterop.list(directory.files()).iterator(); f.hasNext() && vector >= 0;) {
                FileStatusWithMetadata file = (FileStatusWithMetadata) f.next();
                for (int t = 0; t < tables.size(); t++) {
                    FileTable table = (FileTable) tables.get(t);
                    int number = table.number(file);
                    if (number >= 0 && !((BitSet) changed.get(t)).get(number)) {
                        String place = vector + " " + table.root;
                        if (!bitsByPlace.containsKey(place)) {
                            bitsByPlace.put(place, new BitSet());
                        }
                        ((BitSet) bitsByPlace.get(place)).set(number);
                    }
                }
            }
        }
        StringBuilder lines = new StringBuilder();
        for (Iterator i = bitsByPlace.keySet().iterator(); i.hasNext();) {
            String place = (String) i.next();
            byte[] packed = ((BitSet) bitsByPlace.get(place)).toByteArray();
            lines.append(Base64.getEncoder().encodeToString(packed)).append(' ').append(place).append('\n');
        }
        return lines.toString();
    }

    private boolean skips(FileStatusWithMetadata file, int vector) {
        for (int i = 0; i < tables.size(); i++) {
            BitSet[] sets = (BitSet[]) bits.get(i);
            int number = ((FileTable) tables.get(i)).number(file);
            if (number >= 0 && vector < sets.length && sets[vector].get(number)
                    && !((BitSet) changed.get(i)).get(number)) {
                return true;
            }
        }
        return false;
    }

    boolean isWatched() { return watched; }

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
        if (!tables.equals(that.tables) || !slots.equals(that.slots)) {
            return false;
        }
        for (int i = 0; i < bits.size(); i++) {
            if (!Arrays.equals((BitSet[]) bits.get(i), (BitSet[]) that.bits.get(i))) {
                return false;
            }
        }
        return true;
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

    PartitionDirectory keep(PartitionDirectory directory) {
        List kept = new ArrayList();
        for (Iterator i = ScalaInterop.list(directory.files()).iterator(); i.hasNext();) {
            FileStatusWithMetadata file = (FileStatusWithMetadata) i.next();
            if (files.number(file) >= 0) {
                kept.add(file);
            }
        }
        return new PartitionDirectory(directory.values(), ScalaInterop.seq(kept));
    }

    public boolean equals(Object other) { return this == other; }

    public int hashCode() { return System.identityHashCode(this); }
}

/** Expressions over partition columns alone: evaluated here, by Spark, for each partition's values. */
class Slots {
    private static final int MOST_VECTORS = 1000;
    private final StructType schema;
    private final Names names;
    private final List expressions = new ArrayList();
    private final LinkedHashMap vectors = new LinkedHashMap();

    Slots(StructType schema, Names names) {
        this.schema = schema;
        this.names = names;
    }

    boolean isEmpty() { return expressions.isEmpty(); }

    /** The number of a slot for an expression, or -1 when it reads more than partition columns. */
    int slot(Expression expression) {
        if (schema.length() == 0 || !expression.deterministic() || expression.references().isEmpty()) {
            return -1;
        }
        Expression bound = bound(expression);
        if (bound == null) {
            return -1;
        }
        expressions.add(bound);
        return expressions.size() - 1;
    }

    private Expression bound(Expression expression) {
        if (expression instanceof Unevaluable && !(expression instanceof AttributeReference)
                || expression instanceof PlanExpression) {
            return null;
        }
        if (expression instanceof AttributeReference) {
            String name = names.of((AttributeReference) expression);
            if (name == null || !Arrays.asList(schema.fieldNames()).contains(name)) {
                return null;
            }
            return new BoundReference(schema.fieldIndex(name), expression.dataType(), true);
        }
        List children = new ArrayList();
        for (Iterator i = ScalaInterop.list(expression.children()).iterator(); i.hasNext();) {
            Expression child = bound((Expression) i.next());
            if (child == null) {
                return null;
            }
            children.add(child);
        }
        return children.isEmpty() ? expression : (Expression) expression.withNewChildren(ScalaInterop.seq(children));
    }

    /** Takes a partition's values in, up to the most vectors; before the decision. */
    void add(InternalRow partition) throws IOException {
        String key = key(partition);
        if (!vectors.containsKey(key) && vectors.size() < MOST_VECTORS) {
            vectors.put(key, Integer.valueOf(vectors.size()));
        }
    }

    /**
     * The number of the vector of values that the slots take for a partition; -1 when it was not taken in. One at a time:
     * some expressions keep what they made for the row before, and several threads may list the files of one plan.
     */
    synchronized int number(InternalRow partition) throws IOException {
        Integer number = (Integer) vectors.get(key(partition));
        return number == null ? -1 : number.intValue();
    }

    private String key(InternalRow partition) throws IOException {
        StringWriter text = new StringWriter();
        JsonGenerator json = ExpressionJson.FACTORY.createGenerator(text);
        json.writeStartArray();
        for (Iterator i = expressions.iterator(); i.hasNext();) {
            Expression slot = (Expression) i.next();
            Object value;
            try {
                value = slot.eval(partition);
            } catch (Exception thrown) { // true, false and null at once
                json.writeNull();
                continue;
            }
            ExpressionJson.literal(json, value, slot.dataType());
        }
        json.writeEndArray();
        json.close();
        return text.toString();
    }

    /**
     * The same expressions over the same partitions. Others may take the same vectors of values, in the same order, and
     * take another one for some partition.
     */
    public boolean equals(Object other) {
        return other instanceof Slots && expressions.equals(((Slots) other).expressions)
                && vectors.equals(((Slots) other).vectors);
    }

    public int hashCode() { return vectors.hashCode(); }

    List vectors() {
        return vectors.isEmpty() ? Collections.singletonList("[]") : new ArrayList(vectors.keySet());
    }
}

/** The columns of a relation by their identity: their names as the relation has them, not as a query spells them. */
class Names {
    private static final Pattern ID = Pattern.compile("#\\d+");
    private final HashMap names = new HashMap();
    private final HashMap ids = new HashMap(); // as Spark gave them, to those of this question

    Names(LogicalPlan relation) {
        for (Iterator i = ScalaInterop.list(relation.output()).iterator(); i.hasNext();) {
            Attribute column = (Attribute) i.next();
            if (!column.metadata().contains("__metadata_col")) {
                names.put(column.exprId(), column.name());
            }
        }
    }

    /** A text of Spark's with its ids numbered anew, as they are met: the same question is written the same. */
    String numbered(String text) {
        Matcher matcher = ID.matcher(text);
        StringBuffer numbered = new StringBuffer();
        while (matcher.find()) {
            String id = (String) ids.get(matcher.group());
            if (id == null) {
                id = "#" + (ids.size() + 1);
                ids.put(matcher.group(), id);
            }
            matcher.appendReplacement(numbered, id);
        }
        return matcher.appendTail(numbered).toString();
    }

    /** A column's name, or null for what is no column of the files: `_metadata`, or another relation's. */
    String of(AttributeReference column) { return (String) names.get(column.exprId()); }
}
