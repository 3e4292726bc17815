package geoskip;

import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.util.QueryExecutionListener;

/**
 * Remembers what the last queries of a session read. That keeps their listings, which a DataFrame would take along when it
 * goes: so of large ones fewer are remembered.
 */
class Recent implements QueryExecutionListener {
    private static final int MOST = 50;
    static long mostFiles = 200000; // in all listings but those of the last query, some 600 bytes each
    private final List queries = new ArrayList(); // of PlanFacts

    public void onSuccess(String function, QueryExecution execution, long nanos) {
        PlanFacts facts;
        try {
            facts = new PlanFacts(execution);
        } catch (Exception failure) {
            return; // a report is not worth a query
        }
        if (facts.unreported || function.equals("command") && facts.scans.isEmpty()) {
            return; // SET, CREATE VIEW, EXPLAIN: nothing was read
        }
        synchronized (queries) {
            queries.add(facts);
            shorten();
        }
        Audit.consider(facts.scans, execution.sparkSession());
    }

    private void shorten() {
        IdentityHashMap listings = new IdentityHashMap();
        ((PlanFacts) queries.get(queries.size() - 1)).weigh(listings);
        long ofTheLast = sum(listings);
        for (int at = queries.size() - 2; at >= 0; at--) {
            ((PlanFacts) queries.get(at)).weigh(listings);
            if (queries.size() - at > MOST || sum(listings) - ofTheLast > mostFiles) {
                queries.subList(0, at + 1).clear();
                return;
            }
        }
    }

    private static long sum(IdentityHashMap listings) {
        long files = 0;
        for (Iterator i = listings.values().iterator(); i.hasNext();) {
            files += ((Long) i.next()).longValue();
        }
        return files;
    }

    public void onFailure(String function, QueryExecution execution, Exception failure) {}

    List copy() {
        synchronized (queries) {
            return new ArrayList(queries);
        }
    }
}
