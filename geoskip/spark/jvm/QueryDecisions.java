package geoskip;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.io.StringWriter;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.QueryPlanningTracker$;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import @SparkSession@;
import scala.Function1;
import scala.Option;
import scala.runtime.AbstractPartialFunction;

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

    /** That of the query which this thread plans; an empty one where Spark tracks none. */
    static QueryDecisions current() {
        Option tracker = QueryPlanningTracker$.MODULE$.get();
        if (tracker.isEmpty()) {
            return new QueryDecisions();
        }
        synchronized (queries) {
            QueryDecisions planned = (QueryDecisions) queries.get(tracker.get());
            if (planned == null) {
                planned = new QueryDecisions();
                queries.put(tracker.get(), planned);
            }
            return planned;
        }
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
    static List scan(String question, List conditions, LogicalRelation relation) {
        final Map places = new HashMap();
        for (Iterator i = ScalaInterop.list(relation.output()).iterator(); i.hasNext();) {
            places.put(((AttributeReference) i.next()).exprId(), Integer.valueOf(places.size()));
        }
        List scan = new ArrayList();
        scan.add(question);
        for (Iterator i = conditions.iterator(); i.hasNext();) {
            Expression condition = (Expression) i.next();
            if (ScalaInterop.holdsPlan(condition)) {
                return null;
            }
            scan.add(((Expression) condition.transform(new AbstractPartialFunction() {
                public boolean isDefinedAt(Object node) {
                    return node instanceof AttributeReference
                            && places.containsKey(((AttributeReference) node).exprId());
                }

                public Object applyOrElse(Object node, Function1 otherwise) {
                    if (!isDefinedAt(node)) {
                        return otherwise.apply(node);
                    }
                    AttributeReference column = (AttributeReference) node;
                    int place = ((Integer) places.get(column.exprId())).intValue();
                    return new BoundReference(place, column.dataType(), column.nullable());
                }
            })).canonicalized());
        }
        return scan;
    }

    /** What a relation is read under, as JSON: format, options, schema where it counts, settings. */
    synchronized String environment(LogicalRelation relation, SparkSession session) throws IOException {
        HadoopFsRelation files = (HadoopFsRelation) relation.relation();
        for (int i = 0; i < environments.size(); i++) {
            Object[] known = (Object[]) environments.get(i);
            if (((WeakReference) known[0]).get() == files) {
                return (String) known[1];
            }
        }
        String made = written(files, session);
        environments.add(new Object[] {new WeakReference(files), made}); // files lead to their session
        return made;
    }

    private String written(HadoopFsRelation files, SparkSession session) throws IOException {
        if (settings == null) {
            settings = SupportedRelations.ofSession(session.sessionState().conf());
        }
        StringWriter text = new StringWriter();
        JsonGenerator json = ExpressionJson.FACTORY.createGenerator(text);
        json.writeStartObject();
        json.writeStringField("format", files.fileFormat().getClass().getName());
        ExpressionJson.map(json, "options", files.options());
        if (SupportedRelations.byPosition(files)) {
            json.writeStringField("schema", files.dataSchema().json());
        }
        SupportedRelations.settings(json, settings, files.dataSchema());
        json.writeEndObject();
        json.close();
        return text.toString();
    }
}
