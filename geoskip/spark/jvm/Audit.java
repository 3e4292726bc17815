package geoskip;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.FileStatus;
import @Dataset@;
import @SparkSession@;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.util.ThreadUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads some of the files that a query skipped, after the query and in a separate thread, with the conditions by which
 * they were skipped: no row may satisfy these. Its queries reach neither listeners nor the rule. Files that cannot be
 * read or have changed since are ignored.
 */
class Audit implements Runnable {
    private static final Logger LOG = LoggerFactory.getLogger("geoskip");
    private static final int MOST_FILES = 64;
    private static final int MOST_WAITING = 16;
    private static final long ANSWER_MS = 60000;
    private static final Object done = new Object();
    private static int pending;
    private static final ThreadPoolExecutor auditor = new ThreadPoolExecutor(
            1, 1, 10, TimeUnit.SECONDS, new ArrayBlockingQueue(MOST_WAITING),
            ThreadUtils.namedThreadFactory("geoskip-audit"));

    private final SparkSession session;
    private final GeoskipFileIndex index;
    private final double share;

    private Audit(SparkSession session, GeoskipFileIndex index, double share) {
        this.session = session;
        this.index = index;
        this.share = share;
    }

    /** Starts audits of the files that the scans of an executed query skipped, if enabled in the session. */
    static void consider(List scans, SparkSession session) {
        double share = share(session.sessionState().conf());
        if (!(share > 0)) {
            return;
        }
        auditor.allowCoreThreadTimeOut(true);
        HashSet met = new HashSet(); // of decisions: the scans of one relation in several plans have one
        for (ScanFacts scan : scans) {
            GeoskipFileIndex index = scan.skipping();
            if (index != null && !index.decision.tables.isEmpty() && met.add(index)) {
                count(1);
                try {
                    auditor.execute(new Audit(session, index, share));
                } catch (RejectedExecutionException busy) {
                    count(-1); // enough audits are waiting
                }
            }
        }
    }

    private static double share(SQLConf conf) {
        try {
            return Double.parseDouble(conf.getConfString("spark.geoskip.audit", "0"));
        } catch (NumberFormatException wrong) {
            return 0;
        }
    }

    private static void count(int change) {
        synchronized (done) {
            pending += change;
            done.notifyAll();
        }
    }

    /** Waits until all audits are done; false after the timeout. */
    static boolean finished(long budgetMs) throws InterruptedException {
        long deadline = System.currentTimeMillis() + budgetMs;
        synchronized (done) {
            while (pending > 0) {
                long left = deadline - System.currentTimeMillis();
                if (left <= 0) {
                    return false;
                }
                done.wait(left);
            }
        }
        return true;
    }

    public void run() {
        Thread.currentThread().setPriority(Thread.MIN_PRIORITY);
        try {
            session.sparkContext().setJobDescription("geoskip reads skipped files again (spark.geoskip.audit)");
            look();
        } catch (Exception failure) { // the session may have ended
            LOG.debug("geoskip could not audit", failure);
        } catch (LinkageError unfit) {
            LOG.debug("geoskip could not audit", unfit);
        } finally {
            count(-1);
        }
    }

    private void look() throws Exception {
        List conditions = Decision.ownOf(index.decision.usedConditions()); // others depend on more than the files
        List directories = ScalaInterop.list(ScalaInterop.unpruned(index.inner));
        List chosen = conditions.isEmpty() ? new ArrayList() : chosen(directories);
        if (chosen.isEmpty()) {
            return;
        }
        List lost = new ArrayList(); // of JSON: a file, and the number of its lost rows
        long read = chosen.size();
        if (matching(chosen, directories, conditions) != 0) { // rows were lost, or reading failed
            for (FileStatusWithMetadata file : chosen) {
                long rows = matching(Collections.singletonList(file), directories, conditions);
                if (rows > 0 && isUnchanged(file) && !index.isReadOtherwise()) {
                    lost.add(new Json().with("file", file.getPath().toString()).with("rows", rows));
                }
                read -= rows < 0 ? 1 : 0;
            }
        }
        Json request = new Json().with("report", Json.raw(index.decision.reply)).with("lost", lost);
        index.decision.audited(read, lost.isEmpty() ? "" : Geoskip.ask("audit " + request, ANSWER_MS));
    }

    /** A random share of the skipped files, all with the same probability. */
    private List chosen(List directories) {
        List found = new ArrayList();
        for (PartitionDirectory directory : directories) {
            for (Object file : index.skipped(directory)) {
                if (ThreadLocalRandom.current().nextDouble() < share) {
                    found.add(file);
                }
            }
        }
        Collections.shuffle(found);
        return found.size() > MOST_FILES ? new ArrayList(found.subList(0, MOST_FILES)) : found;
    }

    /** The number of rows of some files that satisfy the conditions; -1 if reading fails. */
    private long matching(List files, List directories, List conditions) {
        try {
            GeoskipFileIndex some = new GeoskipFileIndex(index.inner, index.original, new Chosen(files), directories);
            LogicalPlan plan = index.decision.over(some, conditions);
            // toRdd, since a DataFrame action would call listeners
            return Dataset.ofRows(session, plan).queryExecution().toRdd().count();
        } catch (Exception failure) {
            LOG.debug("geoskip could not read skipped files again", failure);
            return -1;
        }
    }

    /** True if a file has not changed since the listing; rows of a changed one are not lost. */
    private boolean isUnchanged(FileStatusWithMetadata file) throws IOException {
        FileStatus now = file.getPath().getFileSystem(session.sessionState().newHadoopConf())
                .getFileStatus(file.getPath());
        return now.getLen() == file.getLen() && now.getModificationTime() == file.getModificationTime()
                && FileTable.agree(FileTable.etag(now), FileTable.etag(file.fileStatus()));
    }
}
