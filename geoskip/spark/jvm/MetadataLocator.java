package geoskip;

import java.io.InterruptedIOException;
import java.nio.file.AccessDeniedException;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.security.AccessControlException;
import @SparkSession@;

/**
 * Finds the indexed datasets that contain paths, by a folder `_geoskip` in one of their parents, or by registration.
 *
 * A lookup is one or two requests to the file system, and is cached for some seconds. If there are many roots, as for a
 * glob over partitions, only their few common parents are searched.
 */
class MetadataLocator {
    private static final long LOCAL_TTL_MS = 5000;
    private static final long REMOTE_TTL_MS = 60000;
    private static final int REMEMBERED = 10000;
    private static final int MOST_AT_A_LEVEL = 32;
    private static final ConcurrentHashMap registered = new ConcurrentHashMap();
    private static final ConcurrentHashMap looked = new ConcurrentHashMap();

    private final SparkSession session;
    private Configuration conf; // created when needed, as it has a thousand entries

    private MetadataLocator(SparkSession session) { this.session = session; }

    static void register(String root) {
        registered.put(root, root);
        looked.clear();
    }

    static void forget() { looked.clear(); }

    /** The indexed datasets that contain these roots, the deepest one for each root. */
    static List datasets(List roots, SparkSession session) {
        MetadataLocator lookups = new MetadataLocator(session);
        LinkedHashSet found = new LinkedHashSet();
        LinkedHashSet level = new LinkedHashSet(roots);
        while (!level.isEmpty()) {
            LinkedHashSet above = new LinkedHashSet();
            boolean few = level.size() <= MOST_AT_A_LEVEL;
            for (Path path : level) {
                String name = path.toString();
                if (registered.containsKey(name) || few && lookups.hasMetadata(path, name)) {
                    found.add(name);
                } else if (path.getParent() != null) {
                    above.add(path.getParent());
                }
            }
            level = above;
        }
        return new ArrayList(found);
    }

    private boolean hasMetadata(Path path, String name) {
        long now = System.currentTimeMillis();
        Object[] known = (Object[]) looked.get(name);
        if (known != null && now < (Long) known[1]) {
            return (Boolean) known[0];
        }
        boolean found;
        boolean isRemote = !"file".equals(path.toUri().getScheme());
        try {
            if (conf == null) {
                conf = session.sessionState().newHadoopConf();
            }
            found = path.getFileSystem(conf).isDirectory(new Path(path, "_geoskip/_log")); // on S3 one request, not two
        } catch (InterruptedIOException cancelled) { // only this query is cancelled
            return false;
        } catch (Exception failure) { // cached for a short time, unless access is denied
            found = false;
            isRemote &= failure instanceof AccessDeniedException || failure instanceof AccessControlException;
        }
        long ttl = isRemote ? REMOTE_TTL_MS : LOCAL_TTL_MS;
        if (looked.size() >= REMEMBERED) {
            looked.clear();
        }
        looked.put(name, new Object[] {found, now + ttl});
        return found;
    }
}
