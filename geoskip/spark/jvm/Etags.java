package geoskip;

import java.io.IOException;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;

/**
 * Etags of files of which Spark's listing says none: with data locality it makes statuses of its own, which have none.
 *
 * A build or a refresh asks for them where there are few folders, a request each. A query does not: it has what its
 * listing has.
 */
class Etags {
    private static final String AVAILABLE = "fs.capability.etags.available";
    private static final int MOST_FOLDERS = 20;

    /** Statuses with etags by path; empty where there are none to be had cheaply. */
    static Map of(List files, Configuration conf) {
        if (files.isEmpty()) {
            return Collections.emptyMap();
        }
        FileStatusWithMetadata first = (FileStatusWithMetadata) files.get(0);
        try {
            FileSystem system = first.getPath().getFileSystem(conf);
            if (FileTable.etag(first.fileStatus()) != null || !system.hasPathCapability(first.getPath(), AVAILABLE)) {
                return Collections.emptyMap();
            }
            LinkedHashSet folders = new LinkedHashSet();
            for (Iterator i = files.iterator(); i.hasNext() && folders.size() <= MOST_FOLDERS;) {
                folders.add(((FileStatusWithMetadata) i.next()).getPath().getParent());
            }
            HashMap found = new HashMap();
            for (Iterator i = folders.iterator(); i.hasNext() && folders.size() <= MOST_FOLDERS;) {
                FileStatus[] listed = system.listStatus((Path) i.next());
                for (int n = 0; n < listed.length; n++) {
                    found.put(listed[n].getPath().toString(), listed[n]);
                }
            }
            return found;
        } catch (IOException unreachable) {
            return Collections.emptyMap();
        } catch (RuntimeException otherSystem) { // a folder of another file system than the first one's
            return Collections.emptyMap();
        }
    }

    private Etags() {}
}
