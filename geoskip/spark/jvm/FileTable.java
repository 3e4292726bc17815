package geoskip;

import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Paths;
import java.nio.file.attribute.FileTime;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;

/**
 * The files of one snapshot: path to number, with the fingerprint that they were indexed under.
 *
 * A fingerprint is size and modification time, and the etag where the file system says one with a listing (those of
 * object stores do, and Spark hands it on where spark.sql.sources.ignoreDataLocality is true). It differs with a file's
 * content even where size and time are the same. Where one side has none, the other two decide.
 *
 * Files travel as lines `size time path` or `size time:etag path`, a line feed in a path as \\0.
 */
class FileTable {
    private static final String ETAGS_AVAILABLE = "fs.capability.etags.available";
    private static final int MOST_FOLDERS = 20;
    final String snapshot;
    final String root;
    private final HashMap numbers;
    private final long[] sizes;
    private final long[] times;
    private final String[] etags; // null where no file has one

    FileTable(String root, String lines, String snapshot) {
        this.root = root;
        this.snapshot = snapshot;
        String prefix = root.endsWith("/") ? root : root + "/";
        String[] files = lines.split("\n");
        numbers = new HashMap(files.length * 2);
        sizes = new long[files.length];
        times = new long[files.length];
        String[] tags = null;
        for (int number = 0; number < files.length; number++) {
            String[] words = files[number].split(" ", 3);
            if (words.length == 3) {
                int colon = words[1].indexOf(':');
                if (colon >= 0) {
                    tags = tags == null ? new String[files.length] : tags;
                    tags[number] = plain(words[1].substring(colon + 1));
                }
                sizes[number] = Long.parseLong(words[0]);
                times[number] = Long.parseLong(colon >= 0 ? words[1].substring(0, colon) : words[1]);
                numbers.put(words[2].indexOf(":/") > 0 ? words[2] : prefix + words[2], number);
            }
        }
        etags = tags;
    }

    int size() { return sizes.length; }

    /** The number of a file, as Spark or a table lists it, or -1 when it is not in the snapshot as it is now. */
    int number(Object listed) {
        if (listed instanceof TableFile) {
            return number(((TableFile) listed).path, ((TableFile) listed).size, ((TableFile) listed).time);
        }
        FileStatusWithMetadata file = (FileStatusWithMetadata) listed;
        int number = number(file.getPath().toString(), file.getLen(), file.getModificationTime());
        return number < 0 || etags == null || agree(etags[number], etag(file.fileStatus())) ? number : -1;
    }

    private int number(String path, long size, long time) {
        Integer number = (Integer) numbers.get(path);
        return number != null && sizes[number] == size && times[number] == time ? number : -1;
    }

    /** Is a local file another one now than when it was indexed? False for one that is gone or has no etag. */
    boolean isWritten(int number, Path path) {
        if (etags == null || etags[number] == null) {
            return false;
        }
        try {
            Map now = Files.readAttributes(Paths.get(path.toUri().getPath()), "unix:size,ctime,ino");
            long changed = ((FileTime) now.get("ctime")).to(TimeUnit.NANOSECONDS);
            return !etags[number].equals(now.get("size") + "-" + changed + "-" + now.get("ino"));
        } catch (NoSuchFileException gone) {
            return false;
        } catch (Exception unknown) { // so it is read
            return true;
        }
    }

    /** May two etags be of one content? */
    static boolean agree(String one, String other) { return one == null || other == null || one.equals(other); }

    /** What a file system says of a file's content, null where it says nothing. */
    static String etag(FileStatus file) {
        String etag = file instanceof EtagSource ? plain(((EtagSource) file).getEtag()) : null;
        if (etag == null || etag.isEmpty()) {
            return null;
        }
        for (int i = 0; i < etag.length(); i++) {
            if (etag.charAt(i) <= ' ') {
                return null; // it would not travel in a line
            }
        }
        return etag;
    }

    /** An etag without the quotes that HTTP puts around it: some clients leave them out, of some it depends on their age. */
    private static String plain(String etag) {
        boolean isQuoted = etag != null && etag.length() > 1 && etag.startsWith("\"") && etag.endsWith("\"");
        return isQuoted ? etag.substring(1, etag.length() - 1) : etag;
    }

    /** The lines of listed files, those without an etag with that of what is `known` by the path, size and time. */
    static String lines(List files, Map known) {
        StringBuilder lines = new StringBuilder();
        for (FileStatusWithMetadata file : files) {
            String path = file.getPath().toString();
            String etag = etag(file.fileStatus());
            FileStatus same = (FileStatus) known.get(path);
            if (etag == null && same != null && same.getLen() == file.getLen()
                    && same.getModificationTime() == file.getModificationTime()) {
                etag = etag(same);
            }
            lines.append(file.getLen()).append(' ').append(file.getModificationTime());
            lines.append(etag == null ? " " : ":" + etag + " ").append(path.replace('\n', '\0')).append('\n');
        }
        return lines.toString();
    }

    /**
     * Statuses with etags by path, of files of which Spark's listing says none: with data locality it makes statuses of
     * its own, which have none. Empty where there are none to be had cheaply.
     *
     * A build or a refresh asks for them where there are few folders, a request each. A query does not: it has what its
     * listing has.
     */
    static Map etags(List files, Configuration conf) {
        HashMap found = new HashMap();
        if (files.isEmpty()) {
            return found;
        }
        FileStatusWithMetadata first = (FileStatusWithMetadata) files.get(0);
        LinkedHashSet folders = new LinkedHashSet();
        for (FileStatusWithMetadata file : files) {
            folders.add(file.getPath().getParent());
        }
        try {
            FileSystem system = first.getPath().getFileSystem(conf);
            if (folders.size() <= MOST_FOLDERS && etag(first.fileStatus()) == null
                    && system.hasPathCapability(first.getPath(), ETAGS_AVAILABLE)) {
                for (Path folder : folders) {
                    for (FileStatus listed : system.listStatus(folder)) {
                        found.put(listed.getPath().toString(), listed);
                    }
                }
            }
            return found;
        } catch (Exception unreachable) { // or a folder of another file system than the first one's
            return Collections.emptyMap();
        }
    }

    /** The same snapshot of the same dataset, whoever fetched it. */
    public boolean equals(Object other) {
        return other instanceof FileTable && snapshot.equals(((FileTable) other).snapshot)
                && root.equals(((FileTable) other).root);
    }

    public int hashCode() { return snapshot.hashCode(); }
}
