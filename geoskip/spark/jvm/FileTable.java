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
 * The files of one snapshot: numbers by path, with the fingerprints with which they were indexed.
 *
 * A fingerprint is size and modification time, and the etag if the file system has one in listings (object stores have,
 * and Spark passes it on if spark.sql.sources.ignoreDataLocality is true). It changes with a file's content even if
 * size and time are the same. If one of two fingerprints has no etag, only size and time are compared.
 *
 * Files are written as lines `size time path` or `size time:etag path`, with a line feed in a path as \\0.
 */
class FileTable {
    private static final String ETAGS_AVAILABLE = "fs.capability.etags.available";
    private static final int MOST_FOLDERS = 20;
    final String snapshot;
    final String root;
    private final HashMap numbers;
    private final long[] sizes;
    private final long[] times;
    private final String[] etags; // null if no file has one

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

    /** The number of a file listed by Spark or a table; -1 if the snapshot does not have it with this fingerprint. */
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

    /** True if a local file has changed since it was indexed; false for one that is gone or has no etag. */
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

    /** True if two etags may be those of the same content. */
    static boolean agree(String one, String other) { return one == null || other == null || one.equals(other); }

    /** The etag of a file status, or null. */
    static String etag(FileStatus file) {
        String etag = file instanceof EtagSource ? plain(((EtagSource) file).getEtag()) : null;
        if (etag == null || etag.isEmpty()) {
            return null;
        }
        for (int i = 0; i < etag.length(); i++) {
            if (etag.charAt(i) <= ' ') {
                return null; // it cannot be written in a line
            }
        }
        return etag;
    }

    /** An etag without the quotes of HTTP, which some clients, or versions of them, leave out. */
    private static String plain(String etag) {
        boolean isQuoted = etag != null && etag.length() > 1 && etag.startsWith("\"") && etag.endsWith("\"");
        return isQuoted ? etag.substring(1, etag.length() - 1) : etag;
    }

    /** The lines of listed files; missing etags are taken from `known` statuses with the same path, size and time. */
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
            lines.append(line(path, file.getLen(), file.getModificationTime(), etag));
        }
        return lines.toString();
    }

    static String line(String path, long size, long time, String etag) {
        return size + " " + time + (etag == null ? " " : ":" + etag + " ") + path.replace('\n', '\0') + "\n";
    }

    /**
     * Statuses with etags by path, for files without one in Spark's listing: with data locality Spark creates its own
     * statuses without etags. Empty if etags are expensive or unavailable.
     *
     * Used by builds and refreshes if there are few folders, with one request for each. Queries use only the etags of
     * their listing.
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
        } catch (Exception unreachable) { // or a folder on another file system than the first one
            return Collections.emptyMap();
        }
    }

    /** True for the same snapshot of the same dataset. */
    public boolean equals(Object other) {
        return other instanceof FileTable && snapshot.equals(((FileTable) other).snapshot)
                && root.equals(((FileTable) other).root);
    }

    public int hashCode() { return snapshot.hashCode(); }
}
