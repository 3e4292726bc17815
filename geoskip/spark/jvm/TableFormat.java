package geoskip;

import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.types.StructType;

/**
 * A table format with its own file indexes, such as Delta's.
 *
 * A subclass uses the format's classes. So it is compiled separately, if these exist (geoskip/spark/session.py), and
 * its dependencies in geoskip are public. Without a subclass, relations with such an index are left alone, with a
 * reason.
 */
public abstract class TableFormat {
    private static final List formats = new CopyOnWriteArrayList();
    private static final ConcurrentHashMap problems = new ConcurrentHashMap(); // by the prefix of class names

    /** Adds a format, and clears the reason why it was missing. */
    public static void add(TableFormat format) {
        problems.remove(format.packageName());
        formats.add(format);
    }

    static boolean isEmpty() { return formats.isEmpty(); }

    /** Records the reason why there is no format for the classes of a package. */
    static void missing(String packageName, String reason) { problems.put(packageName, reason); }

    /** The format of a file index, or null. */
    static TableFormat of(FileIndex index) {
        for (TableFormat format : formats) {
            if (format.owns(index)) {
                return format;
            }
        }
        return null;
    }

    /** The recorded reason why there is no format for a class, or null. */
    static String problem(String className) {
        for (Object packageName : problems.keySet()) {
            if (className.startsWith((String) packageName)) {
                return (String) problems.get(packageName);
            }
        }
        return null;
    }

    /** An index of kept files in the form that is needed by the scan of its relation. */
    static FileIndex narrowed(GeoskipFileIndex kept) {
        TableFormat format = of(kept.inner);
        return format == null ? kept : format.narrow(kept);
    }

    /** The format's name in messages and in metadata. */
    public abstract String name();

    /** The prefix of the names of the format's classes. */
    public abstract String packageName();

    public abstract boolean owns(FileIndex index);

    /** The reason why no file of a query's scan of this relation may be skipped, or null. */
    public abstract String reasonOfScan(HadoopFsRelation files);

    /** The reason why a relation is left alone if its files are not read by the `known` class, else null. */
    public static String reasonOfReader(HadoopFsRelation files, String known) {
        String reader = files.fileFormat().getClass().getName();
        return reader.equals(known) ? null : "left alone: geoskip does not know the file format " + reader;
    }

    /** The reason why the table of a relation cannot be indexed, or null. */
    public abstract String reasonOfTable(HadoopFsRelation files);

    /**
     * The files of an index by partition: for a scan, those that the format's own skipping keeps, or with `whole` all
     * of the version; for a table, those of the latest version.
     */
    public abstract List directories(FileIndex index, boolean whole);

    /**
     * The paths of files that only older versions of a table have, as far as the log still names them: these versions
     * may be read or restored.
     */
    public abstract List removed(FileIndex table);

    /** The index of a table, pinned to its latest version, so that a build reads the listed files despite commits. */
    public abstract FileIndex pinned(FileIndex table);

    /** The same scan without the skipped files. */
    public FileIndex narrow(GeoskipFileIndex kept) { return kept; }

    /** The geoskip index from which `narrow` created an index; null for other indexes. */
    public GeoskipFileIndex narrowing(FileIndex index) { return null; }

    /** The schema with the names in files in each field's metadata, under `physicalKey`; null if names are the same. */
    public StructType mappedSchema(HadoopFsRelation files) { return null; }

    public String physicalKey() { return ""; }

    /** True if columns in files are found by ids, and may have any names. */
    public boolean findsById(HadoopFsRelation files) { return false; }
}
