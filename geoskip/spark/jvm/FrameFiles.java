package geoskip;

import java.util.Collections;
import java.util.List;
import java.util.Map;
import @Dataset@;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.text.TextFileFormat;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** The files of frames over one relation, which a build lists and reads. */
public final class FrameFiles {
    /** The only file relation that a frame reads, as JSON with the facts that an index needs; null without one. */
    public String relation(Dataset frame) throws Exception {
        LogicalPlan read = onlyRelation(frame.queryExecution().analyzed());
        if (read instanceof DataSourceV2Relation) {
            Map session = SupportedRelations.ofSession(frame.sparkSession().sessionState().conf());
            return TableScan.relation((DataSourceV2Relation) read, session);
        }
        LogicalRelation relation = (LogicalRelation) read;
        if (relation == null) {
            return null;
        }
        HadoopFsRelation files = (HadoopFsRelation) relation.relation();
        Map settings = SupportedRelations.ofSession(frame.sparkSession().sessionState().conf());
        TableFormat format = TableFormat.of(files.location());
        return SupportedRelations.environment(files, settings, frame.sparkSession())
                .with("reason", relation.isStreaming() ? "it is a stream" : SupportedRelations.reasonOfDataset(files))
                .with("roots", ScalaInterop.roots(files.location())).with("partitions", files.partitionSchema().fieldNames())
                .with("schema", files.dataSchema().json()).with("table", format == null ? null : format.name())
                .with("names", new Names(relation).inFiles())
                .with("byId", format != null && format.findsById(files)).toString();
    }

    /** The same frame pinned to the latest version of its table; null if there is no table that can be indexed. */
    public Dataset pinned(Dataset frame) throws Exception {
        LogicalPlan read = onlyRelation(frame.queryExecution().analyzed());
        LogicalRelation relation = read instanceof LogicalRelation ? (LogicalRelation) read : null;
        HadoopFsRelation files = relation == null ? null : (HadoopFsRelation) relation.relation();
        TableFormat format = files == null ? null : TableFormat.of(files.location());
        if (format == null || relation.isStreaming() || format.reasonOfTable(files) != null) {
            return null;
        }
        return over(frame, relation, ScalaInterop.relocated(
                relation, format.pinned(files.location()), relation.catalogTable()));
    }

    /** The same frame with its relation replaced. */
    private static Dataset over(Dataset frame, final LogicalPlan read, final Object other) {
        LogicalPlan plan = frame.queryExecution().analyzed();
        return Dataset.ofRows(frame.sparkSession(), (LogicalPlan) plan.transformDown(new Replacement() {
            Object of(Object node) { return node == read ? other : null; }
        }));
    }

    /** The paths of files that only older versions of a table have, joined by line feeds. */
    public String removed(Dataset frame) throws Exception {
        LogicalPlan read = onlyRelation(frame.queryExecution().analyzed());
        if (read instanceof DataSourceV2Relation) {
            return String.join("\n", TableScan.removed((DataSourceV2Relation) read));
        }
        FileIndex location = ((HadoopFsRelation) ((LogicalRelation) read).relation()).location();
        return String.join("\n", TableFormat.of(location).removed(location));
    }

    /** The relation with the same rows as the plan, or null: a view may rename columns, but not select rows. */
    private static LogicalPlan onlyRelation(LogicalPlan plan) {
        if (plan instanceof LogicalRelation) {
            return ((LogicalRelation) plan).relation() instanceof HadoopFsRelation ? plan : null;
        }
        if (plan instanceof DataSourceV2Relation) {
            return plan;
        }
        boolean keepsRows = plan instanceof Project || plan instanceof SubqueryAlias || plan instanceof View;
        List children = ScalaInterop.list(plan.children());
        return keepsRows && children.size() == 1 ? onlyRelation((LogicalPlan) children.get(0)) : null;
    }

    /** The files that a frame reads, listed again or as before, as lines: see FileTable. */
    public String listing(Dataset frame, boolean anew) throws Exception {
        LogicalPlan read = onlyRelation(frame.queryExecution().analyzed());
        if (read instanceof DataSourceV2Relation) {
            return TableScan.listing((DataSourceV2Relation) read, anew);
        }
        FileIndex location = ((HadoopFsRelation) ((LogicalRelation) read).relation()).location();
        if (anew) {
            location.refresh();
        }
        List files = ScalaInterop.files(ScalaInterop.unpruned(location));
        boolean mayChange = TableFormat.of(location) == null;
        return FileTable.lines(files, mayChange
                ? FileTable.etags(files, frame.sparkSession().sessionState().newHadoopConf()) : Collections.emptyMap());
    }

    /**
     * The same frame over only some of its files, given as lines like those of `listing`. The query fails for a missing
     * or corrupt file, whatever the options and settings, so that no file is read incompletely. For JSON there is an
     * additional column `_geoskip_bad` with the records that could not be parsed or converted.
     */
    public Dataset only(Dataset frame, String lines) throws Exception {
        LogicalPlan read = onlyRelation(frame.queryExecution().analyzed());
        if (read instanceof DataSourceV2Relation) {
            return over(frame, read, TableScan.only((DataSourceV2Relation) read, lines));
        }
        LogicalRelation relation = (LogicalRelation) read;
        HadoopFsRelation files = (HadoopFsRelation) relation.relation();
        Object chosen = ScalaInterop.relocated(
                relation, chosen(files, lines), relation.catalogTable(), complete(files),
                files.fileFormat().getClass().getName().endsWith(".JsonFileFormat") ? "_geoskip_bad" : null);
        return over(frame, read, chosen);
    }

    /** The lines of some files of text, given as for `only`, as a column `_geoskip_line` beside `_metadata`. */
    public Dataset lines(Dataset frame, String lines) {
        HadoopFsRelation files = (HadoopFsRelation) ((LogicalRelation) onlyRelation(
                frame.queryExecution().analyzed())).relation();
        StructType schema = new StructType().add("_geoskip_line", DataTypes.StringType);
        return frame.sparkSession().baseRelationToDataFrame(new HadoopFsRelation(
                chosen(files, lines), files.partitionSchema(), schema, files.bucketSpec(), new TextFileFormat(),
                ScalaInterop.options(complete(files), "false", "wholetext"), files.sparkSession()));
    }

    private static FileIndex chosen(HadoopFsRelation files, String lines) {
        List listed = ScalaInterop.list(ScalaInterop.unpruned(files.location()));
        return new GeoskipFileIndex(files.location(), files.location(), new Chosen(lines), listed);
    }

    /** Options of a relation with which a query fails for a file that it cannot read. */
    private static scala.collection.immutable.Map complete(HadoopFsRelation files) {
        return ScalaInterop.options(files.options(), "false", "ignoreCorruptFiles", "ignoreMissingFiles");
    }
}
