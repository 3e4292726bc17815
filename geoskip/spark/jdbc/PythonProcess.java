package geoskip.extension;

/** The Python process of this JVM, which ends with it: its standard input closes. */
public class PythonProcess implements Runnable {
    private static final Logger LOG = LoggerFactory.getLogger("geoskip");
    private static final long SECONDS = 120;

    private static PythonProcess started;
    private static volatile Function install;
    private final Object session;
    private final CountDownLatch ready = new CountDownLatch(1);

    private PythonProcess(Object session) { this.session = session; }

    static synchronized void start(Object session) {
        if (started == null) {
            started = new PythonProcess(session);
            Thread thread = new Thread(started, "geoskip-python");
            thread.setDaemon(true);
            thread.setContextClassLoader(PythonProcess.class.getClassLoader());
            thread.start();
        }
    }

    /** The first session, which Python is to wrap. */
    public static Object session() { return started.session; }

    /** Takes in what puts geoskip's parser in front of a session's, and returns it. */
    public static void connect(Function function) { install = function; }

    /** The same, as soon as Python is there; null where it does not come. */
    static Function attached() throws InterruptedException {
        if (!started.ready.await(SECONDS, TimeUnit.SECONDS)) {
            LOG.warn("geoskip's Python process is not ready after " + SECONDS + " s: no file is skipped until it is");
        }
        return install;
    }

    public void run() {
        try {
            SparkConf conf = SparkEnv.get().conf();
            Py4JServer server = new Py4JServer(conf);
            server.start();
            String python = python(conf);
            ProcessBuilder builder = new ProcessBuilder(
                    Arrays.asList(new Object[] {python, "-m", "geoskip.spark.jdbc.attach"}));
            Map environment = builder.environment();
            environment.put("PYSPARK_GATEWAY_PORT", String.valueOf(server.getListeningPort()));
            environment.put("PYSPARK_GATEWAY_SECRET", server.secret());
            environment.put("PYTHONUNBUFFERED", "YES");
            environment.put("PYSPARK_PYTHON", conf.get("spark.pyspark.python", workers(python)));
            String path = (String) environment.get("PYTHONPATH");
            String own = PythonUtils.sparkPythonPath();
            environment.put("PYTHONPATH", path == null ? own : path + File.pathSeparator + own);
            builder.redirectError(Redirect.INHERIT);
            Process process = builder.start();
            BufferedReader lines = new BufferedReader(new InputStreamReader(process.getInputStream(), "UTF-8"));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                LOG.info("geoskip's Python process: " + line);
                ready.countDown(); // it says when it is ready
            }
            LOG.warn("geoskip's Python process has ended with " + process.waitFor() + ": " + python
                    + " -m geoskip.spark.jdbc.attach; no file is skipped, and statements on skipping indexes fail."
                    + " spark.pyspark.driver.python names a Python with geoskip");
        } catch (Throwable failure) {
            LOG.warn("geoskip's Python process cannot be started: no file is skipped", failure);
        } finally {
            ready.countDown();
        }
    }

    private static String python(SparkConf conf) {
        String named = System.getenv("PYSPARK_DRIVER_PYTHON");
        String python = conf.get("spark.pyspark.driver.python", named == null ? "" : named);
        return python.isEmpty() ? conf.get("spark.pyspark.python", workers("python3")) : python;
    }

    private static String workers(String otherwise) {
        String named = System.getenv("PYSPARK_PYTHON");
        return named == null || named.isEmpty() ? otherwise : named;
    }
}
