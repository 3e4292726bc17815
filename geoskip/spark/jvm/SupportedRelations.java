package geoskip;

import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.SparkContext;
import org.apache.spark.internal.config.ConfigEntry;
import @SparkSession@;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.execution.datasources.*;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.types.StructField;

/** The relations that geoskip supports: those of exactly these classes, without subclasses. */
class SupportedRelations {
    static final List SETTINGS = Arrays.asList(
            "spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.caseSensitive",
            "spark.sql.legacy.timeParserPolicy", "spark.sql.parquet.fieldId.read.enabled",
            "spark.sql.parquet.int96RebaseModeInRead", "spark.sql.parquet.datetimeRebaseModeInRead",
            "spark.sql.parquet.binaryAsString", "spark.sql.parquet.int96AsTimestamp",
            "spark.sql.parquet.int96TimestampConversion", "spark.sql.legacy.parquet.nanosAsLong",
            "spark.sql.json.enablePartialResults", "spark.sql.json.enableExactStringParsing",
            "spark.sql.csv.parser.columnPruning.enabled", "spark.sql.columnNameOfCorruptRecord",
            "spark.sql.execution.pythonUDF.arrow.enabled", "spark.sql.execution.pyspark.binaryAsBytes",
            "spark.sql.execution.pyspark.python",
            "spark.sql.files.ignoreCorruptFiles", "spark.sql.avro.datetimeRebaseModeInRead",
            "spark.geoskip.fingerprint.maxRechecks", "spark.geoskip.metadata.cacheSize", "spark.geoskip.metadata.cacheTtl",
            "spark.geoskip.planning.budget", "spark.geoskip.audit", "spark.geoskip.encryption.keyRing");

    static final String ENABLED = "spark.geoskip.enabled";
    private static final List OFF = Arrays.asList("false", "no", "off", "0");

    /** Settings that readers take from Hadoop's configuration if the session does not set them. */
    private static final List OF_HADOOP =
            Arrays.asList("orc.force.positional.evolution", "orc.proleptic.gregorian", "orc.proleptic.gregorian.default",
                    "avro.mapred.ignore.inputs.without.extension", "mapreduce.input.linerecordreader.line.maxlength");

    /** Beginnings of settings that are often changed, and only change how a plan is made or run. */
    private static final List OF_PLANS = Arrays.asList(
            "spark.geoskip.", "spark.sql.adaptive.", "spark.sql.autoBroadcast", "spark.sql.broadcast", "spark.sql.repl.",
            "spark.sql.shuffle.", "spark.sql.ui.");

    private static final List FORMATS = Arrays.asList(
            "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat",
            "org.apache.spark.sql.execution.datasources.orc.OrcFileFormat",
            "org.apache.spark.sql.execution.datasources.csv.CSVFileFormat",
            "org.apache.spark.sql.execution.datasources.json.JsonFileFormat",
            "org.apache.spark.sql.execution.datasources.text.TextFileFormat",
            "org.apache.spark.sql.avro.AvroFileFormat",
            "org.apache.spark.sql.execution.datasources.geoparquet.GeoParquetFileFormat");

    static boolean enabled(SQLConf conf) {
        return !OFF.contains(conf.getConfString(ENABLED, "true").trim().toLowerCase(Locale.ROOT));
    }

    static boolean mayTouch(LogicalRelation relation) {
        return !relation.isStreaming() && relation.relation() instanceof HadoopFsRelation
                && reason((HadoopFsRelation) relation.relation()) == null;
    }

    /** Name of a node at which a condition ends; null for an aggregate, since HAVING always ends there. */
    static String barrier(LogicalPlan node) {
        if (node instanceof Aggregate) {
            return null;
        }
        if (node instanceof GlobalLimit || node instanceof LocalLimit) {
            return "LIMIT";
        }
        return node instanceof Sample ? "SAMPLE" : node instanceof CollectMetrics ? "observe()" : node.nodeName();
    }

    /** The reason why a relation is left alone, or null. */
    static String reason(HadoopFsRelation files) {
        String problem = TableFormat.problem(files.location().getClass().getName());
        if (problem != null) {
            return "left alone: " + problem;
        }
        TableFormat table = TableFormat.of(files.location());
        String why = table == null ? null : table.reasonOfScan(files);
        if (why == null && files.getClass() != HadoopFsRelation.class) {
            return "left alone: it is not a plain relation of files but a " + files.getClass().getName();
        }
        if (table != null) {
            return why;
        }
        Class location = files.location().getClass();
        if (location != InMemoryFileIndex.class && location != CatalogFileIndex.class
                && location != GeoskipFileIndex.class && !isOfSink(location)) {
            return "left alone: its file index is a " + location.getName() + ", which may hold more than files";
        }
        String format = files.fileFormat().getClass().getName();
        if (!FORMATS.contains(format)) {
            return "left alone: geoskip does not know the file format " + format;
        }
        if (location == GeoskipFileIndex.class) {
            return "already decided";
        }
        for (scala.Tuple2 option : ScalaInterop.list(files.options())) {
            if (option._2() == null) {
                return "left alone: its option " + option._1() + " is null";
            }
        }
        return null;
    }

    /** True for the files that the log of a stream's sink names, listed once; its package differs between versions. */
    private static boolean isOfSink(Class location) {
        return location.getName().startsWith("org.apache.spark.sql.execution.streaming.")
                && location.getName().endsWith(".MetadataLogFileIndex");
    }

    /** The reason why the dataset of a handle cannot be indexed, or null. */
    static String reasonOfDataset(HadoopFsRelation files) {
        TableFormat format = TableFormat.of(files.location());
        return format == null ? reason(files) : format.reasonOfTable(files);
    }

    /** Settings and versions that indexes may depend on, by name, and geoskip's own settings. */
    static Map ofSession(SQLConf conf) { return ofSession(conf, Collections.emptyList()); }

    /** The settings of a session that may change what it reads of files, for comparison. */
    static Map ofReader(SparkSession session) { return ofSession(session.sessionState().conf(), OF_PLANS); }

    private static Map ofSession(SQLConf conf, List without) {
        Map found = new LinkedHashMap();
        for (String key : SETTINGS) {
            if (!beginsWith(key, without)) {
                found.put(key, setting(conf, key));
            }
        }
        found.put("spark.version", org.apache.spark.package$.MODULE$.SPARK_VERSION());
        found.put("java.version", System.getProperty("java.version"));
        found.put("the JVM's time zone", java.time.ZoneId.systemDefault().normalized().getId());
        found.put("spark.sql.*", changed(conf, without));
        for (String key : ScalaInterop.list(conf.getAllConfs().keys())) {
            if (key.startsWith("spark.geoskip.") && !SETTINGS.contains(key) && !beginsWith(key, without)) {
                found.put(key, setting(conf, key));
            }
        }
        for (String key : OF_HADOOP) {
            String set = setting(conf, key);
            found.put(key, set != null ? set : SparkContext.getOrCreate().hadoopConfiguration().get(key));
        }
        return found;
    }

    private static boolean beginsWith(String key, List starts) {
        for (Object start : starts) {
            if (key.startsWith((String) start)) {
                return true;
            }
        }
        return false;
    }

    /** geoskip's settings that are set in a session. */
    static Json own(SQLConf conf) {
        Json found = new Json();
        for (scala.Tuple2 set : ScalaInterop.list(conf.getAllConfs())) {
            if (((String) set._1()).startsWith("spark.geoskip.")) {
                found.put(set._1(), set._2());
            }
        }
        return found;
    }

    /**
     * The environment of a relation: format, options, settings, defaults of columns missing in files, field ids. Spark
     * reads the files under the settings of the relation's own session, in another one through a global temporary view.
     * These are added if they differ.
     */
    static Json environment(HadoopFsRelation files, Map session, SparkSession asking) {
        Json found = environment(files, session);
        if (files.sparkSession() != asking) {
            Map reading = ofSession(files.sparkSession().sessionState().conf());
            if (!reading.equals(session)) {
                found.put("reading", environment(files, reading).get("settings"));
            }
        }
        return found;
    }

    private static Json environment(HadoopFsRelation files, Map session) {
        Json settings = new Json();
        settings.putAll(session);
        boolean byId = "true".equals(session.get("spark.sql.parquet.fieldId.read.enabled"));
        for (StructField column : files.dataSchema().fields()) {
            String name = column.name().toLowerCase(Locale.ROOT);
            String ids = byId ? column.metadata().json() + column.dataType().json() : "";
            if (ids.contains("\"parquet.field.id\"")) { // then Parquet columns are found by id, not by name
                settings.put("field id of " + name, ids);
            }
            if (column.metadata().contains("EXISTS_DEFAULT")) {
                settings.put("default of " + name, column.metadata().getString("EXISTS_DEFAULT"));
            }
        }
        return new Json().with("format", files.fileFormat().getClass().getName())
                .with("options", new Json().withAll(files.options())).with("settings", settings);
    }

    /**
     * Spark's settings with other values than their defaults in this session, as sorted JSON. Settings that fall back
     * to others, and those that Spark does not define, are included whenever they are set; names that begin with one of
     * `without` are left out.
     */
    private static String changed(SQLConf conf, List without) {
        TreeMap found = new TreeMap();
        for (scala.Tuple2 set : ScalaInterop.list(conf.getAllConfs())) {
            String key = (String) set._1();
            boolean mayMatter = key.startsWith("spark.sql.") || key.startsWith("spark.sedona.crs.");
            if (mayMatter && !beginsWith(key, without)) {
                ConfigEntry entry = SQLConf$.MODULE$.getConfigEntry(key);
                String usual = entry == null ? null : entry.defaultValueString();
                boolean same = isOfColumn(key) ? set._2().equals(usual) : ((String) set._2()).equalsIgnoreCase(usual);
                if (!same) {
                    found.put(key, set._2());
                }
            }
        }
        return Json.text(found);
    }

    /** True for a setting whose value is the name of a column, in which case counts. */
    private static boolean isOfColumn(String key) { return key.contains("columnName"); }

    /** The value of a setting; true and false as Spark reads them, in any case and with spaces around. */
    private static String setting(SQLConf conf, String key) {
        String value = written(conf, key);
        String word = value == null || isOfColumn(key) ? "" : value.trim().toLowerCase(Locale.ROOT);
        return word.equals("true") || word.equals("false") ? word : value;
    }

    private static String written(SQLConf conf, String key) {
        if (SQLConf$.MODULE$.getConfigEntry(key) == null) { // Spark would throw, which is slow
            return conf.getConfString(key, null);
        }
        try {
            return conf.getConfString(key); // the default if it is not set
        } catch (java.util.NoSuchElementException unknown) {
            return null;
        }
    }

    /** True if columns may be found by position, for example in ORC files written by Hive. */
    static boolean byPosition(HadoopFsRelation files) {
        return readsRecords(files) || files.fileFormat().getClass().getName().endsWith(".OrcFileFormat");
    }

    /** True for formats of text, whose readers may take records otherwise, or drop them, if other columns are read. */
    static boolean readsRecords(HadoopFsRelation files) {
        return files.fileFormat().getClass().getName().matches(".*\\.(CSV|Json|Text)FileFormat");
    }
}
