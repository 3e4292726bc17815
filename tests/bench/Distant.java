package geoskip.bench;

import java.io.IOException;
import java.net.URI;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

/** This machine's files as an object store has them: each range of bytes that is read is a request, which takes its time. */
public class Distant extends RawLocalFileSystem {
  public static final URI ROOT = URI.create("distant:///");
  public final AtomicLong requests = new AtomicLong();
  public final AtomicLong bytes = new AtomicLong();
  private volatile long delay = 0;

  /** Serves distant:/// in this JVM from now on. */
  public static Distant serve(Configuration conf) throws Exception {
    Distant made = new Distant();
    made.initialize(ROOT, conf);
    java.lang.reflect.Method add = FileSystem.class.getDeclaredMethod(
        "addFileSystemForTesting", new Class[] {URI.class, Configuration.class, FileSystem.class});
    add.setAccessible(true);
    add.invoke(null, new Object[] {ROOT, conf, made});
    return made;
  }

  /** Milliseconds a request, from now on; counts anew. */
  public void delay(long milliseconds) {
    delay = milliseconds;
    requests.set(0);
    bytes.set(0);
  }

  public long requests() {
    return requests.get();
  }

  public long bytes() {
    return bytes.get();
  }

  public URI getUri() {
    return ROOT;
  }

  public String getScheme() {
    return "distant";
  }

  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    return new FSDataInputStream(new Ranges(super.open(path, bufferSize)));
  }

  private class Ranges extends FSInputStream {
    private final FSDataInputStream inner;
    private long next = -1;

    Ranges(FSDataInputStream inner) {
      this.inner = inner;
    }

    private void request() throws IOException {
      if (inner.getPos() != next) {
        requests.incrementAndGet();
        if (delay > 0) {
          try {
            Thread.sleep(delay);
          } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted");
          }
        }
      }
    }

    public int read() throws IOException {
      request();
      int found = inner.read();
      if (found >= 0) {
        bytes.incrementAndGet();
      }
      next = inner.getPos();
      return found;
    }

    public int read(byte[] into, int at, int length) throws IOException {
      request();
      int count = inner.read(into, at, length);
      if (count > 0) {
        bytes.addAndGet(count);
      }
      next = inner.getPos();
      return count;
    }

    public void seek(long position) throws IOException {
      inner.seek(position);
    }

    public long getPos() throws IOException {
      return inner.getPos();
    }

    public boolean seekToNewSource(long position) throws IOException {
      return false;
    }

    public int available() throws IOException {
      return inner.available();
    }

    public void close() throws IOException {
      inner.close();
    }
  }
}
