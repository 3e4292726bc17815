package geoskip;

import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.types.StructType;

/**
 * A table format whose relations find their files by indexes of the format's own, such as Delta's.
 *
 * A subclass names the format's classes, so it is compiled apart, where these are there (geoskip/spark/session.py), and
 * what it needs is public. Where there is none, relations with such an index are left alone, with the reason.
 */
public abstract class TableFormat {
    private static final List formats = new CopyOnWriteArrayList();
    private static final ConcurrentHashMap problems = new ConcurrentHashMap(); // by the beginning of classes' names

    /** Takes a format in, in place of an older one of the same class. */
    public static void add(TableFormat format) {
        problems.remove(format.packageName());
        formats.add(format);
    }

    static boolean isEmpty() { return formats.isEmpty(); }

    /** Says why there is none for the classes of a package. */
    static void missing(String packageName, String reason) { problems.put(packageName, reason); }

    /** The format that an index is of, null for Spark's own. */
    static TableFormat of(FileIndex index) {
        for (TableFormat format : formats) {
            if (format.owns(index)) {
                return format;
            }
        }
        return null;
    }

    /** Why there is no format for an object of some class; null where nothing is known. */
    static String problem(String className) {
        for (Object packageName : problems.keySet()) {
            if (className.startsWith((String) packageName)) {
                return (String) problems.get(packageName);
            }
        }
        return null;
    }

    /** An index of kept files in the form that the scan of its relation needs. */
    static FileIndex narrowed(GeoskipFileIndex kept) {
        TableFormat format = of(kept.inner);
        return format == null ? kept : format.narrow(kept);
    }

    /** The format's name, for people and in metadata. */
    public abstract String name();

    /** The beginning of the names of the format's classes. */
    public abstract String packageName();

    public abstract boolean owns(FileIndex index);

    /** Why no file is left out of a query's scan of this relation, null where files may be. */
    public abstract String reasonOfScan(HadoopFsRelation files);

    /** Why a relation is left alone whose files are not read by some class, else null. */
    public static String reasonOfReader(HadoopFsRelation files, String known) {
        String reader = files.fileFormat().getClass().getName();
        return reader.equals(known) ? null : "left alone: geoskip does not know the file format " + reader;
    }

    /** Why the table of a relation cannot be indexed, null where it can. */
    public abstract String reasonOfTable(HadoopFsRelation files);

    /**
     * The files of an index by partition. Of a scan those that the format's own skipping has left, unless the whole
     * version of the table is wanted; of a table those of the latest version.
     */
    public abstract List directories(FileIndex index, boolean whole);

    /**
     * The paths of files that the latest version of a table has no more, as far as the log still names them: older versions
     * have them, and may be read or restored.
     */
    public abstract List removed(FileIndex table);

    /** The index of a table, held to its latest version: what is listed is then what a build reads, whoever commits. */
    public abstract FileIndex pinned(FileIndex table);

    /** The same scan without the files that are skipped. */
    public FileIndex narrow(GeoskipFileIndex kept) { return kept; }

    /** What an index of `narrow` was made of; null for another one. */
    public GeoskipFileIndex narrowing(FileIndex index) { return null; }

    /** The columns with their names in the files in each field's metadata, under `physicalKey`; null where names are those. */
    public StructType mappedSchema(HadoopFsRelation files) { return null; }

    public String physicalKey() { return ""; }

    /** Are columns found by ids in the files, which may have any names? */
    public boolean findsById(HadoopFsRelation files) { return false; }
}
