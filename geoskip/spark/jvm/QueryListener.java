package geoskip;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.util.QueryExecutionListener;

/**
 * Remembers what the last queries of a session read. That keeps their listings, which a DataFrame would take along when it
 * goes: so of large ones fewer are remembered. It keeps the session too, which the driver's bus of listeners would not: so
 * of many sessions only those are remembered that asked last, or a server that makes one for each user would lose none.
 */
class QueryListener implements QueryExecutionListener {
    private static final int MOST = 50;
    private static final int MOST_SESSIONS = 8;
    static long mostFiles = 200000; // in all listings but those of the last query, some 600 bytes each
    private static final List sessions = new ArrayList(); // of weak references, to who asked last at the end
    private final WeakReference here = new WeakReference(this);
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
        synchronized (sessions) {
            sessions.remove(here);
            sessions.add(here);
            queries.add(facts);
            shorten();
        }
        Audit.consider(facts.scans, execution.sparkSession());
    }

    /** Forgets the oldest queries of each session, and all of those that have not asked for long. */
    private static void shorten() {
        IdentityHashMap met = new IdentityHashMap();
        long files = 0;
        boolean isLast = true;
        for (int s = sessions.size() - 1; s >= 0; s--) {
            QueryListener recent = (QueryListener) ((WeakReference) sessions.get(s)).get();
            boolean stays = recent != null && sessions.size() - s <= MOST_SESSIONS;
            int kept = 0;
            for (int at = stays ? recent.queries.size() - 1 : -1; at >= 0 && kept < MOST; at--) {
                long weight = ((PlanFacts) recent.queries.get(at)).weigh(met);
                files += isLast ? 0 : weight;
                if (files > mostFiles) {
                    break;
                }
                isLast = false;
                kept++;
            }
            if (recent != null) {
                recent.queries.subList(0, recent.queries.size() - kept).clear();
            }
            if (!stays) {
                sessions.remove(s);
            }
        }
    }

    public void onFailure(String function, QueryExecution execution, Exception failure) {}

    List copy() {
        synchronized (sessions) {
            return new ArrayList(queries);
        }
    }
}
