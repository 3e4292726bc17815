package geoskip;

import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import @Dataset@;
import @SparkSession@;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import scala.Option;
import scala.collection.immutable.Nil$;
import @Seq@;

/** The question that a scan's conditions put to Python: one line of JSON, then what the query is read under. */
class ScanQuestion {
    final Slots slots;
    final String text;

    ScanQuestion(
            LogicalRelation relation, List directories, List datasets, List conditions, List barriers, long budget,
            QueryDecisions planned, SparkSession session) {
        Names names = new Names(relation);
        slots = new Slots(((HadoopFsRelation) relation.relation()).partitionSchema(), names);
        List written = new ArrayList();
        for (Expression condition : conditions) {
            written.add(ExpressionJson.expression(condition, names, slots));
        }
        for (PartitionDirectory directory : directories) {
            slots.add(directory.values());
        }
        Json asked = new Json().with("datasets", datasets).with("conditions", written).with("vectors", slots.vectors())
                .with("barriers", barriers).with("budget", budget / 1000.0);
        text = asked + "\n" + planned.environment(relation, session);
    }
}

/**
 * A scan of a query that is planned in order to learn its conditions, and is never run. The rule makes one in the place
 * of a decision while a thread is `recording`, so that the conditions are those that a decision would get.
 */
class PlannedScan extends Decision {
    static final ThreadLocal recording = new ThreadLocal();
    private static final String OVER_SUBQUERY = "(a condition over a subquery)";

    private final SparkSession session;
    private final FileIndex original; // before Spark's partition pruning
    private final List directories;
    private final String question;

    PlannedScan(
            ScanQuestion asked, LogicalRelation relation, FileIndex original, List directories, List conditions,
            SparkSession session) {
        super(asked.slots);
        this.relation = relation;
        this.conditions = conditions;
        this.original = original;
        this.directories = directories;
        this.session = session;
        question = asked.text;
    }

    /** The plan of an SQL text, analysed; of a command, which would be run, null. */
    static LogicalPlan analysed(String text, SparkSession session) throws Exception {
        LogicalPlan parsed = session.sessionState().sqlParser().parsePlan(text);
        if (parsed instanceof Command) {
            return null;
        }
        LogicalPlan plan = session.sessionState().analyzer().executeAndCheck(parsed, tracker());
        return isCommand(plan) ? null : plan;
    }

    /** True of a command, and of several in one: FROM a INSERT INTO b SELECT * INSERT INTO c SELECT *. */
    private static boolean isCommand(LogicalPlan plan) {
        boolean found = plan instanceof Command;
        for (LogicalPlan child : ScalaInterop.list(plan.children())) {
            found |= child instanceof Command;
        }
        return found;
    }

    /** A tracker of nothing, which some Sparks let tell a callback. */
    private static QueryPlanningTracker tracker() throws ReflectiveOperationException {
        Constructor made = QueryPlanningTracker.class.getConstructors()[0];
        Object[] none = new Object[made.getParameterTypes().length];
        Arrays.fill(none, Option.empty());
        return (QueryPlanningTracker) made.newInstance(none);
    }

    /** The scans of files in an analysed plan, in its order and as if nothing were cached. */
    static List of(LogicalPlan analysed, SparkSession session) {
        recording.set(Boolean.TRUE);
        LogicalPlan optimized;
        try {
            optimized = Geoskip.optimizedUncached(analysed, session);
        } finally {
            recording.remove();
        }
        List found = new ArrayList();
        visit(optimized, found, new IdentityHashMap(), new ArrayList(), session);
        return found;
    }

    /** A scan that a dynamic partition filter holds too, and a subquery that stands in two filters, count once. */
    private static void visit(
            LogicalPlan plan, List found, IdentityHashMap met, List subqueries, SparkSession session) {
        if (plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof HadoopFsRelation) {
            LogicalRelation relation = (LogicalRelation) plan;
            FileIndex location = ((HadoopFsRelation) relation.relation()).location();
            GeoskipFileIndex index = GeoskipFileIndex.of(location);
            if (index != null && met.put(index, Boolean.TRUE) == null) {
                found.add(index.decision);
            } else if (index == null && SupportedRelations.mayTouch(relation)) {
                found.add(unconditional(relation, location, session));
            }
        }
        for (LogicalPlan subquery : ScalaInterop.list(plan.subqueries())) {
            boolean isNew = true;
            for (LogicalPlan other : subqueries) {
                isNew &= !other.sameResult(subquery);
            }
            if (isNew) {
                subqueries.add(subquery);
                visit(subquery, found, met, subqueries, session);
            }
        }
        for (LogicalPlan child : ScalaInterop.list(plan.children())) {
            visit(child, found, met, subqueries, session);
        }
    }

    private static PlannedScan unconditional(LogicalRelation relation, FileIndex location, SparkSession session) {
        List directories = ScalaInterop.list(ScalaInterop.unpruned(location));
        List none = new ArrayList();
        ScanQuestion asked =
                new ScanQuestion(relation, directories, none, none, none, 0, new QueryDecisions(), session);
        return new PlannedScan(asked, relation, location, directories, none, session);
    }

    /** The question, as the bridge parses it: no number, no datasets. */
    public String question() { return question; }

    /**
     * Roots, condition in SQL, files and bytes of the whole listing, and for each folder of a partition that Spark's own
     * pruning leaves the number of its vector of partition values, as JSON.
     */
    public String summary() {
        List all = new ArrayList(new LinkedHashSet(ScalaInterop.files(ScalaInterop.unpruned(original))));
        Map folders = new LinkedHashMap();
        for (PartitionDirectory directory : directories) {
            if (((HadoopFsRelation) relation.relation()).partitionSchema().length() > 0) {
                for (FileStatusWithMetadata file : ScalaInterop.list(directory.files())) {
                    folders.put(file.getPath().getParent().toString(), slots.number(directory.values()));
                }
            }
        }
        return new Json().with("roots", roots()).with("condition", condition()).with("files", all.size())
                .with("bytes", ScalaInterop.length(all)).with("folders", folders).toString();
    }

    /** The datasets with metadata that the scan reads of, as JSON. */
    public String datasets() {
        return Json.text(MetadataLocator.datasets(ScalaInterop.list(original.rootPaths()), session));
    }

    /** The whole listing, as lines: see FileTable. */
    public String listing() {
        List all = new ArrayList(new LinkedHashSet(ScalaInterop.files(ScalaInterop.unpruned(original))));
        return FileTable.lines(all, Collections.emptyMap());
    }

    /** Members of the conditions that a row's values do not settle: over subqueries, or not deterministic. */
    public String unsettled() {
        List found = new ArrayList();
        for (Expression member : ScalaInterop.members(conditions)) {
            if (!ownOf(Collections.singletonList(member)).contains(member)) {
                found.add(ScalaInterop.holdsPlan(member) ? OVER_SUBQUERY : unqualified(member).sql());
            }
        }
        return Json.text(found);
    }

    /** The rows that satisfy the other members, as any query would read them. */
    public Dataset matching() {
        return Dataset.ofRows(session, filtered(relation, ownConditions()));
    }

    /** The rows of some files of the listing, given as lines; in no report. */
    public Dataset rows(String lines) {
        List listed = ScalaInterop.list(ScalaInterop.unpruned(original));
        GeoskipFileIndex index = new GeoskipFileIndex(original, original, new Chosen(lines), listed).unreported();
        return Dataset.ofRows(session, over(index, new ArrayList()));
    }

    /** The URIs of what was read. */
    List roots() {
        List roots = new ArrayList();
        for (Object root : ScalaInterop.list(original.rootPaths())) {
            roots.add(root.toString());
        }
        return roots;
    }

    String root() { return ScalaInterop.rootOf(original); }

    FileIndex original() { return original; }

    /** The conditions that a row's values settle, the lowest of the plan first. */
    List ownConditions() {
        List bottomFirst = new ArrayList(conditions);
        Collections.reverse(bottomFirst);
        return ownOf(bottomFirst);
    }

    /** The condition with the columns by their names alone. */
    String condition() { return textOf(conditions); }

    /** The same with its members sorted, which Spark writes in one order or another. */
    String sortedCondition() { return String.join(" AND ", new TreeSet(textsOf(conditions))); }

    static String textOf(List conditions) { return String.join(" AND ", textsOf(conditions)); }

    private static List textsOf(List conditions) {
        List bottomFirst = new ArrayList(conditions);
        Collections.reverse(bottomFirst);
        List texts = new ArrayList();
        for (Expression member : ScalaInterop.members(bottomFirst)) {
            texts.add(ScalaInterop.holdsPlan(member) ? OVER_SUBQUERY : unqualified(member).sql());
        }
        return texts;
    }

    private static Expression unqualified(Expression condition) {
        return (Expression) condition.transform(new Replacement() {
            Object of(Object node) {
                return node instanceof AttributeReference
                        ? ((AttributeReference) node).withQualifier((Seq) Nil$.MODULE$) : null;
            }
        });
    }

    /** Holds the conditions for `evaluate` and `inlined` until they are released: their number. */
    public long hold() { return Evaluation.hold(conditions, session); }
}
