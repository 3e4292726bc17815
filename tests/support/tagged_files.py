"""A Hadoop file system with etags in listings, as in object stores: local files under ``tagged:``.

An etag is a digest of the content. The modification time is the same for all files and never changes, so that only the
etag distinguishes files of one size. The class is compiled in the driver, like geoskip's own rule, and added to
Hadoop's cache of file systems; the tasks of a local master run in the same process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["tagged_files"]

SOURCE = """
package tagged;

import java.io.IOException;
import java.math.BigInteger;
import java.net.URI;
import java.nio.file.Files;
import java.security.MessageDigest;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

public class Tagged extends RawLocalFileSystem {
    public static final long TIME = 1700000000000L;
    private final AtomicInteger looks = new AtomicInteger();
    private volatile boolean located;
    private volatile boolean said;
    private volatile boolean interrupted;
    private volatile String quote = "";

    /** Are blocks told with a listing? Few file systems do; to those that do not Spark adds them, and loses etags. */
    public void locate(boolean wanted) { located = wanted; }

    public URI getUri() { return URI.create("tagged:///"); }

    /** Are looks for metadata cut short? */
    public void interrupt(boolean wanted) { interrupted = wanted; }

    /** How often was metadata looked for? */
    public int looks() { return looks.get(); }

    public FileStatus getFileStatus(Path path) throws IOException {
        if (path.getName().equals("_log")) {
            looks.incrementAndGet();
            if (interrupted) {
                throw new java.io.InterruptedIOException("the query is cancelled");
            }
        }
        return tagged(super.getFileStatus(path));
    }

    /** Does it say that it has etags? Then they are asked for where Spark has lost them. */
    public void say(boolean wanted) { said = wanted; }

    public boolean hasPathCapability(Path path, String capability) throws IOException {
        return capability.equals("fs.capability.etags.available") ? said : super.hasPathCapability(path, capability);
    }

    public FileStatus[] listStatus(Path path) throws IOException {
        FileStatus[] found = super.listStatus(path);
        for (int i = 0; i < found.length; i++) {
            found[i] = tagged(found[i]);
        }
        return found;
    }

    /** Are etags told as HTTP writes them, in quotes? */
    public void quote(boolean wanted) { quote = wanted ? "\\"" : ""; }

    private FileStatus tagged(FileStatus file) throws IOException {
        if (file.isDirectory()) {
            return file;
        }
        FileStatus still = new FileStatus(file.getLen(), false, 1, file.getBlockSize(), TIME, file.getPath());
        return located ? (FileStatus) new Located(still, etag(file)) : new Told(still, etag(file));
    }

    private String etag(FileStatus file) throws IOException {
        try {
            byte[] content = Files.readAllBytes(pathToFile(file.getPath()).toPath());
            return quote + new BigInteger(1, MessageDigest.getInstance("MD5").digest(content)).toString(16) + quote;
        } catch (java.security.NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}

class Told extends FileStatus implements EtagSource {
    private final String etag;

    Told(FileStatus file, String etag) throws IOException {
        super(file);
        this.etag = etag;
    }

    public String getEtag() { return etag; }
}

class Located extends LocatedFileStatus implements EtagSource {
    private final String etag;

    Located(FileStatus file, String etag) throws IOException {
        super(file, new BlockLocation[0]);
        this.etag = etag;
    }

    public String getEtag() { return etag; }
}
"""


@contextmanager
def tagged_files(spark: Any) -> Iterator[Any]:
    """Yield the file system, opened under ``tagged:///``."""
    system = _compiled(spark).getConstructors()[0].newInstance(_array(spark))
    with opened(spark, "tagged:///", system):
        yield system


_classes: dict[int, Any] = {}


def _compiled(spark: Any) -> Any:
    """Compile the class once in a driver: Py4J would confuse it with another one of its name."""
    key = id(spark.sparkContext._gateway)
    if key not in _classes:
        compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(spark._jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
        compiler.cook(SOURCE)
        _classes[key] = compiler.getClassLoader().loadClass("tagged.Tagged")
    return _classes[key]


@contextmanager
def opened(spark: Any, uri: str, system: Any, settings: dict[str, str] | None = None) -> Iterator[None]:
    """Make Hadoop find a file system object under its URI; its settings are separate."""
    jvm = spark._jvm
    name = jvm.java.net.URI.create(uri)
    conf = jvm.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
    conf.setClassLoader(system.getClass().getClassLoader())
    for key, value in (settings or {}).items():
        conf.set(key, value)
    system.initialize(name, conf)
    add = next(
        method
        for method in jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileSystem").getDeclaredMethods()
        if method.getName() == "addFileSystemForTesting"
    )
    add.setAccessible(True)
    arguments = _array(spark, name, conf, system)
    add.invoke(None, arguments)
    try:
        yield
    finally:
        system.close()  # removes it from Hadoop's cache


def _array(spark: Any, *values: Any) -> Any:
    gateway = spark.sparkContext._gateway
    found = gateway.new_array(gateway.jvm.java.lang.Object, len(values))
    for number, value in enumerate(values):
        found[number] = value
    return found
