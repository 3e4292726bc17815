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
import scala.collection.immutable.Nil$;
import @Seq@;

/**
 * A scan over files in a plan, with the conditions that are pushed down to it. The rule records scans with conditions,
 * instead of a decision, for queries that are planned for advice and not run, and for the workload log.
 */
class PlannedScan {
    static final ThreadLocal recording = new ThreadLocal(); // a List of PlannedScan while scans are only recorded
    private static final String OVER_SUBQUERY = "(a condition over a subquery)";

    final LogicalRelation relation; // as in the rule's plan
    final FileIndex original; // before Spark's partition pruning
    final List conditions;
    private final SparkSession session;

    PlannedScan(LogicalRelation relation, FileIndex original, List conditions, SparkSession session) {
        this.relation = relation;
        this.original = original;
        this.conditions = conditions;
        this.session = session;
    }

    /** The scans of a SQL query; null for a command, which would be run. */
    static List of(String text, SparkSession session) throws Exception {
        LogicalPlan parsed = session.sessionState().sqlParser().parsePlan(text);
        if (parsed instanceof Command) {
            return null;
        }
        LogicalPlan plan = session.sessionState().executePlan(parsed, CommandExecutionMode.SKIP()).analyzed();
        return isCommand(plan) ? null : of(plan, session);
    }

    /** True for a command, and for several in one: FROM a INSERT INTO b SELECT * INSERT INTO c SELECT *. */
    private static boolean isCommand(LogicalPlan plan) {
        boolean found = plan instanceof Command;
        for (LogicalPlan child : ScalaInterop.list(plan.children())) {
            found |= child instanceof Command;
        }
        return found;
    }

    /** The scans of files in an analysed plan, in order, as if nothing were cached. */
    static List of(LogicalPlan analysed, SparkSession session) {
        List recorded = new ArrayList();
        recording.set(recorded);
        try {
            return in(Geoskip.optimizedUncached(analysed, session), recorded, session);
        } finally {
            recording.remove();
        }
    }

    /** The scans in an optimized plan; those with conditions were recorded. */
    static List in(LogicalPlan optimized, List recorded, SparkSession session) {
        List found = new ArrayList();
        visit(optimized, recorded, found, new ArrayList(), session);
        return found;
    }

    /** A scan that also occurs in a dynamic partition filter, and a subquery that occurs in two filters, count once. */
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

    /** Records a scan, unless it was recorded when a plan was optimized that is now a part of this one. */
    void record(List recorded) {
        if (among(recorded, relation) == null) {
            recorded.add(this);
        }
    }

    /** The recorded scan with the same column ids, which differ for each use of a relation in a query; or null. */
    private static PlannedScan among(List recorded, LogicalRelation relation) {
        for (PlannedScan scan : recorded) {
            if (!scan.relation.outputSet().intersect(relation.outputSet()).isEmpty()) {
                return scan;
            }
        }
        return null;
    }

    /**
     * As JSON: roots, condition in SQL, its conjuncts that do not depend only on a row's values, files and bytes of the
     * whole listing, the datasets with metadata, the request as the bridge parses it, without number and datasets, and
     * for each partition folder that Spark does not prune the number of its vector of partition values.
     */
    public String summary() {
        HadoopFsRelation files = (HadoopFsRelation) relation.relation();
        List directories = ScalaInterop.list(ScalaInterop.unpruned(files.location()));
        List none = new ArrayList();
        ScanQuestion asked = new ScanQuestion(relation, directories, none, conditions, none, none, session);
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
        return new Json().with("roots", ScalaInterop.roots(original)).with("condition", joined(members()))
                .with("unsettled", unsettled).with("files", listed().size())
                .with("bytes", ScalaInterop.length(listed()))
                .with("datasets", MetadataLocator.datasets(ScalaInterop.rootPaths(original), session))
                .with("question", asked.text).with("folders", folders).toString();
    }

    /** The files of the whole listing, each once. */
    private List listed() {
        return new ArrayList(new LinkedHashSet(ScalaInterop.files(ScalaInterop.whole(original))));
    }

    /** The whole listing, as lines: see FileTable. */
    public String listing() { return FileTable.lines(listed(), Collections.emptyMap()); }

    /** The rows that satisfy the conjuncts that depend only on their values, read like any query. */
    public Dataset matching() { return Dataset.ofRows(session, Decision.filtered(relation, ownConditions())); }

    /** The rows of some files of the listing, given as lines. */
    public Dataset rows(String lines) {
        GeoskipFileIndex index = new GeoskipFileIndex(original, original, new Chosen(lines), new ArrayList());
        return Dataset.ofRows(session, (LogicalPlan) ScalaInterop.relocated(
                relation, TableFormat.narrowed(index), relation.catalogTable()));
    }

    /** Keeps the conditions for `evaluate` until they are released; returns their number. */
    public long hold() { return Evaluation.hold(conditions, session); }

    /** The conditions that depend only on a row's values, the lowest in the plan first. */
    List ownConditions() { return Decision.ownOf(bottomFirst()); }

    /** The conditions in SQL, sorted, since their order in plans varies. */
    String sortedCondition() { return joined(new TreeSet(members())); }

    /** Conjuncts in SQL as one text; the tests for NULL that Spark adds are the last. */
    static String joined(Iterable conjuncts) {
        List texts = new ArrayList();
        List presence = new ArrayList();
        for (Object text : conjuncts) {
            (((String) text).endsWith(" IS NOT NULL)") ? presence : texts).add(text);
        }
        texts.addAll(presence);
        return String.join(" AND ", texts);
    }

    /** The conjuncts of the conditions in SQL, the lowest in the plan first. */
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

    /** A condition in SQL, with unqualified column names. */
    static String text(Expression condition) {
        return ScalaInterop.holdsPlan(condition) ? OVER_SUBQUERY : ((Expression) condition.transform(new Replacement() {
            Object of(Object node) {
                return node instanceof AttributeReference
                        ? ((AttributeReference) node).withQualifier((Seq) Nil$.MODULE$) : null;
            }
        })).sql();
    }
}

/** A scan of a table format in a plan, with its pushed conditions, for a query that is planned only for advice. */
class PlannedTable {
    static final ThreadLocal recording = new ThreadLocal(); // a List of PlannedTable, in addition to PlannedScan's

    private final DataSourceV2Relation relation;
    private final List conditions;

    PlannedTable(DataSourceV2Relation relation, List conditions) {
        this.relation = relation;
        this.conditions = conditions;
    }

    /** The scans of table formats in an analysed plan with pushed conditions. */
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

    /** True if it has one of these columns, given by the ids of one use of a table in a query. */
    boolean has(Set columns) {
        for (Object column : ScalaInterop.list(relation.output())) {
            if (columns.contains(((AttributeReference) column).exprId())) {
                return true;
            }
        }
        return false;
    }

    /** As JSON: the condition in SQL, and the request as the bridge parses it, without number and datasets. */
    String summary(SparkSession session) throws Exception {
        List texts = new ArrayList();
        for (Expression member : ScalaInterop.members(conditions)) {
            texts.add(PlannedScan.text(member));
        }
        List none = new ArrayList();
        ScanQuestion asked = TableScan.question(relation, none, conditions, none, session);
        return new Json().with("condition", PlannedScan.joined(texts)).with("question", asked.text).toString();
    }
}
