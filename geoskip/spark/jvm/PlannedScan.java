package geoskip;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import @Dataset@;
import @SparkSession@;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.CommandExecutionMode;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Nil$;
import @Seq@;

/**
 * A scan over files in a plan, with the conditions that reach it. The rule records those that have some, as it would
 * decide on them, for queries that are planned for advice and never run, and for the log of the workload.
 */
class PlannedScan {
    static final ThreadLocal recording = new ThreadLocal(); // a List of PlannedScan while nothing is to be decided
    private static final String OVER_SUBQUERY = "(a condition over a subquery)";

    final LogicalRelation relation; // as the rule met it
    final FileIndex original; // before Spark's partition pruning
    final List conditions;
    private final SparkSession session;

    PlannedScan(LogicalRelation relation, FileIndex original, List conditions, SparkSession session) {
        this.relation = relation;
        this.original = original;
        this.conditions = conditions;
        this.session = session;
    }

    /** The scans of an SQL text's query; of a command, which would be run, null. */
    static List of(String text, SparkSession session) throws Exception {
        LogicalPlan parsed = session.sessionState().sqlParser().parsePlan(text);
        if (parsed instanceof Command) {
            return null;
        }
        LogicalPlan plan = session.sessionState().executePlan(parsed, CommandExecutionMode.SKIP()).analyzed();
        return isCommand(plan) ? null : of(plan, session);
    }

    /** True of a command, and of several in one: FROM a INSERT INTO b SELECT * INSERT INTO c SELECT *. */
    private static boolean isCommand(LogicalPlan plan) {
        boolean found = plan instanceof Command;
        for (LogicalPlan child : ScalaInterop.list(plan.children())) {
            found |= child instanceof Command;
        }
        return found;
    }

    /** The scans of files in an analysed plan, in its order and as if nothing were cached. */
    static List of(LogicalPlan analysed, SparkSession session) {
        List recorded = new ArrayList();
        recording.set(recorded);
        try {
            return in(Geoskip.optimizedUncached(analysed, session), recorded, session);
        } finally {
            recording.remove();
        }
    }

    /** The scans in an optimized plan, of which those with conditions were recorded. */
    static List in(LogicalPlan optimized, List recorded, SparkSession session) {
        List found = new ArrayList();
        visit(optimized, recorded, found, new ArrayList(), session);
        return found;
    }

    /** A scan that a dynamic partition filter holds too, and a subquery that stands in two filters, count once. */
    private static void visit(LogicalPlan plan, List recorded, List found, List subqueries, SparkSession session) {
        if (plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof HadoopFsRelation) {
            LogicalRelation relation = (LogicalRelation) plan;
            PlannedScan scan = among(recorded, relation);
            if (scan == null && SupportedRelations.mayTouch(relation)) {
                FileIndex location = ((HadoopFsRelation) relation.relation()).location();
                scan = new PlannedScan(relation, location, new ArrayList(), session);
            }
            if (scan != null && !found.contains(scan)) {
                found.add(scan);
            }
        }
        for (LogicalPlan subquery : ScalaInterop.list(plan.subqueries())) {
            if (ScalaInterop.isNew(subquery, subqueries)) {
                visit(subquery, recorded, found, subqueries, session);
            }
        }
        for (LogicalPlan child : ScalaInterop.list(plan.children())) {
            visit(child, recorded, found, subqueries, session);
        }
    }

    /** Records a scan, unless it was when a plan was optimized that this one's is a part of by now. */
    void record(List recorded) {
        if (among(recorded, relation) == null) {
            recorded.add(this);
        }
    }

    /** The scan of the same columns, by their ids, which each mention of a relation has of its own; null without one. */
    private static PlannedScan among(List recorded, LogicalRelation relation) {
        for (PlannedScan scan : recorded) {
            if (!scan.relation.outputSet().intersect(relation.outputSet()).isEmpty()) {
                return scan;
            }
        }
        return null;
    }

    /**
     * As JSON: roots, condition in SQL, the members of it that a row's values do not settle, files and bytes of the whole
     * listing, the datasets with metadata; the question as the bridge parses it, without number and datasets; and for each
     * folder of a partition that Spark's own pruning leaves the number of its vector of partition values.
     */
    public String summary() {
        HadoopFsRelation files = (HadoopFsRelation) relation.relation();
        List directories = ScalaInterop.list(ScalaInterop.unpruned(files.location()));
        List none = new ArrayList();
        ScanQuestion asked =
                new ScanQuestion(relation, directories, none, conditions, none, 0, new QueryDecisions(), session);
        List unsettled = new ArrayList();
        for (Expression member : ScalaInterop.members(conditions)) {
            if (Decision.ownOf(Collections.singletonList(member)).isEmpty()) {
                unsettled.add(text(member));
            }
        }
        Map folders = new LinkedHashMap();
        for (PartitionDirectory directory : directories) {
            if (files.partitionSchema().length() > 0) {
                for (FileStatusWithMetadata file : ScalaInterop.list(directory.files())) {
                    folders.put(file.getPath().getParent().toString(), asked.slots.number(directory.values()));
                }
            }
        }
        return new Json().with("roots", ScalaInterop.roots(original)).with("condition", String.join(" AND ", members()))
                .with("unsettled", unsettled).with("files", listed().size())
                .with("bytes", ScalaInterop.length(listed()))
                .with("datasets", MetadataLocator.datasets(ScalaInterop.list(original.rootPaths()), session))
                .with("question", asked.text).with("folders", folders).toString();
    }

    /** The files of the whole listing, each once. */
    private List listed() {
        return new ArrayList(new LinkedHashSet(ScalaInterop.files(ScalaInterop.whole(original))));
    }

    /** The whole listing, as lines: see FileTable. */
    public String listing() { return FileTable.lines(listed(), Collections.emptyMap()); }

    /** The rows that satisfy the members which they settle, as any query would read them. */
    public Dataset matching() { return Dataset.ofRows(session, Decision.filtered(relation, ownConditions())); }

    /** The rows of some files of the listing, given as lines. */
    public Dataset rows(String lines) {
        GeoskipFileIndex index = new GeoskipFileIndex(original, original, new Chosen(lines), new ArrayList());
        return Dataset.ofRows(session, (LogicalPlan) ScalaInterop.relocated(
                relation, TableFormat.narrowed(index), relation.catalogTable()));
    }

    /** Holds the conditions for `evaluate` until they are released: their number. */
    public long hold() { return Evaluation.hold(conditions, session); }

    /** The conditions that a row's values settle, the lowest of the plan first. */
    List ownConditions() { return Decision.ownOf(bottomFirst()); }

    /** The conditions in SQL, whatever order Spark gave them; the tests for NULL, which it adds, are the last. */
    String sortedCondition() {
        List texts = new ArrayList();
        List presence = new ArrayList();
        for (Object text : new TreeSet(members())) {
            (((String) text).endsWith(" IS NOT NULL)") ? presence : texts).add(text);
        }
        texts.addAll(presence);
        return String.join(" AND ", texts);
    }

    /** The members of the conditions in SQL, the lowest of the plan first. */
    private List members() {
        List texts = new ArrayList();
        for (Expression member : ScalaInterop.members(bottomFirst())) {
            texts.add(text(member));
        }
        return texts;
    }

    private List bottomFirst() {
        List reversed = new ArrayList(conditions);
        Collections.reverse(reversed);
        return reversed;
    }

    /** A condition in SQL, with the columns by their names alone. */
    static String text(Expression condition) {
        return ScalaInterop.holdsPlan(condition) ? OVER_SUBQUERY : ((Expression) condition.transform(new Replacement() {
            Object of(Object node) {
                return node instanceof AttributeReference
                        ? ((AttributeReference) node).withQualifier((Seq) Nil$.MODULE$) : null;
            }
        })).sql();
    }
}

/** A scan of a table format in a plan, with the conditions that reach it: of a query that is planned for advice alone. */
class PlannedTable {
    static final ThreadLocal recording = new ThreadLocal(); // a List of PlannedTable, while scans of files are recorded too

    private final DataSourceV2Relation relation;
    private final List conditions;

    PlannedTable(DataSourceV2Relation relation, List conditions) {
        this.relation = relation;
        this.conditions = conditions;
    }

    /** The scans of table formats in an analysed plan that conditions reach. */
    static List of(LogicalPlan analysed, SparkSession session) {
        List recorded = new ArrayList();
        recording.set(recorded);
        try {
            PlannedScan.of(analysed, session);
            return recorded;
        } finally {
            recording.remove();
        }
    }

    static void record(DataSourceV2Relation relation, List conditions) {
        if (recording.get() != null && !conditions.isEmpty()) {
            ((List) recording.get()).add(new PlannedTable(relation, conditions));
        }
    }

    /** Has it one of these columns? They are of one mention of a table in a query. */
    boolean has(Set columns) {
        for (Object column : ScalaInterop.list(relation.output())) {
            if (columns.contains(((AttributeReference) column).exprId())) {
                return true;
            }
        }
        return false;
    }

    /** As JSON the condition in SQL, and the question as the bridge parses it, without number and datasets. */
    String summary(SparkSession session) throws Exception {
        List texts = new ArrayList();
        for (Expression member : ScalaInterop.members(conditions)) {
            texts.add(PlannedScan.text(member));
        }
        List none = new ArrayList();
        String environment = QueryDecisions.current().environment(TableScan.table(relation, false), session);
        ScanQuestion asked =
                new ScanQuestion(new Names(relation), new StructType(), none, none, conditions, none, 0, environment);
        return new Json().with("condition", String.join(" AND ", texts)).with("question", asked.text).toString();
    }
}
