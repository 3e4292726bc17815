package geoskip.extension;

/** The Python process of this JVM; it ends with the JVM, which closes its standard input. */
public class PythonProcess implements Runnable {
    private static final Logger LOG = LoggerFactory.getLogger("geoskip");
    private static final String WITHOUT = "no file is skipped, and statements on skipping indexes fail";

    private static PythonProcess started;
    private static volatile Function install;
    private static volatile String problem;
    private static volatile long patience = 120; // seconds
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

    /** The first session, which Python wraps. */
    public static Object session() { return started.session; }

    /** Sets the function that puts geoskip's parser in front of a session's parser and returns it. */
    public static void connect(Function function) {
        install = function;
        problem = null;
    }

    /** That function, after waiting for Python; null if Python failed or is late, which is awaited only once. */
    static Function attached() throws InterruptedException {
        if (!started.ready.await(patience, TimeUnit.SECONDS) && patience > 0) {
            report("is not ready after " + patience + " s", "no file is skipped until it is", null);
            patience = 0;
        }
        return install;
    }

    /** True if Python is ready or has failed. */
    static boolean isSettled() { return started.ready.getCount() == 0; }

    /** The message about a Python process that failed or has ended, or null. */
    static String problem() { return problem; }

    private static void report(String what, String consequence, Throwable failure) {
        problem = "geoskip's Python process " + what + ": " + consequence + ". spark.pyspark.driver.python names a Python "
                + "with geoskip; `geoskip doctor` in it says what it lacks";
        LOG.warn(problem, failure);
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
                ready.countDown(); // it prints a line when it is ready
            }
            report("has ended with " + process.waitFor() + " (" + python + " -m geoskip.spark.jdbc.attach; its errors are "
                    + "in the log of this driver)", WITHOUT, null);
        } catch (Throwable failure) {
            report("cannot be started (" + failure.getMessage() + ")", WITHOUT, failure);
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
