"""JDBC clients of real Thrift servers: Spark's own with the jar of the extension, and ``geoskip thrift-server``."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.protocol import Py4JJavaError

from geoskip.spark.jdbc.extension_jar import EXTENSION, extension_jar
from tests.conftest import four_tens

SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
}
METASTORE = "spark.hadoop.javax.jdo.option.ConnectionURL=jdbc:derby:memory:metastore;create=true"
PATIENCE = 300.0


class Client:
    """A connection of Hive's JDBC driver, in the JVM of the tests."""

    def __init__(self, jvm: Any, port: int) -> None:
        driver = jvm.org.apache.hive.jdbc.HiveDriver()
        self.connection = driver.connect(f"jdbc:hive2://127.0.0.1:{port}/default", jvm.java.util.Properties())
        self.statement = self.connection.createStatement()

    def rows(self, text: str) -> list[tuple[str, ...]]:
        """The rows of a statement's answer, as strings."""
        found = []
        if self.statement.execute(text):
            result = self.statement.getResultSet()
            columns = range(1, result.getMetaData().getColumnCount() + 1)
            while result.next():
                found.append(tuple(result.getString(number) for number in columns))
        return found


@contextmanager
def server(folder: Path, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A server in a process of its own, killed at the end with all that it has started."""
    folder.mkdir()
    config = {**SETTINGS, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    settings = [part for key, value in config.items() for part in ("--conf", f"{key}={value}")]
    place = command.index("{settings}")
    with open(folder / "log.txt", "wb") as log:
        process = subprocess.Popen(
            [*command[:place], *settings, *command[place + 1 :]],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        return int(opened.getsockname()[1])


def connected(jvm: Any, port: int, folder: Path) -> Client:
    """A client as soon as the server listens."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return Client(jvm, port)
        except (OSError, Py4JJavaError):
            if time.monotonic() > until:
                raise AssertionError((folder / "log.txt").read_text(errors="replace")[-3000:]) from None
            time.sleep(0.2)


@pytest.mark.slow
def test_jdbc_clients_create_indexes_and_skip_files(spark: Any, tmp_path: Path) -> None:
    """Both servers start side by side. A second connection has a session of its own, with functions and skipping."""
    jar, home = tmp_path / "geoskip-extension.jar", Path(pyspark.__file__).parent
    extension_jar(jar)
    ports = {"extension": free_port(), "driver": free_port()}
    commands = {
        "extension": [
            *(
                str(home / "bin" / "spark-submit"),
                "--class",
                "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2",
            ),
            *("{settings}", "--jars", str(jar), "--conf", f"spark.sql.extensions={EXTENSION}", "spark-internal"),
            *("--hiveconf", f"hive.server2.thrift.port={ports['extension']}"),
            *("--hiveconf", "hive.server2.thrift.bind.host=127.0.0.1"),
        ],
        "driver": [
            *(sys.executable, "-m", "geoskip", "thrift-server", "{settings}", "--master", "local[2]"),
            *("--conf", "spark.sql.catalogImplementation=hive", "--conf", METASTORE),
            *("--port", str(ports["driver"]), "--host", "127.0.0.1"),
        ],
    }
    with ExitStack() as servers:
        started = {name: servers.enter_context(server(tmp_path / name, each)) for name, each in commands.items()}
        for name, port in ports.items():
            check(spark._jvm, port, tmp_path / name)
        os.killpg(started["driver"].pid, signal.SIGINT)  # as Ctrl-C does
        assert started["driver"].wait(PATIENCE) == 0
        printed = (tmp_path / "driver" / "log.txt").read_text(errors="replace").splitlines()
        assert f"jdbc:hive2://127.0.0.1:{ports['driver']}" in printed
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", ports["driver"]), 1)


def check(jvm: Any, port: int, folder: Path) -> None:
    """Carry out the statements of a day over JDBC."""
    data = four_tens(folder)
    one = connected(jvm, port, folder)
    one.rows(f"CREATE TABLE weather USING parquet LOCATION '{data}'")
    created = one.rows("CREATE SKIPPING INDEX ON weather (temp MINMAX, GEOBOX(temp, id))")
    assert [row[:3] for row in created] == [("minmax(temp)", "4", "40"), ("geobox(temp, id)", "4", "40")]
    other = connected(jvm, port, folder)
    near = "ST_Distance(ST_Point(temp, id), ST_Point(35.0D, 35.0D)) < 2"
    for condition, rows, files in (("temp > 25", "14", "2"), (near, "3", "1")):
        assert other.rows(f"SELECT count(*) FROM weather WHERE {condition}") == [(rows,)]
        ((_, read, total, *_),) = other.rows(f"EXPLAIN SKIPPING SELECT * FROM weather WHERE {condition}")
        assert (read, total) == (files, "4")
    assert {row[4] for row in other.rows("REFRESH SKIPPING INDEX ON weather")} == {"0"}
    assert [row[0] for row in other.rows("DESCRIBE SKIPPING INDEX ON weather")] == ["minmax(temp)", "geobox(temp, id)"]
    with pytest.raises(Py4JJavaError, match=r"got MINMOX \(line 1, position 42\)"):
        other.rows("CREATE SKIPPING INDEX ON weather (temp   MINMOX)")


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        (None, r"cannot be started \(Cannot run program \".*/python\".*No such file or directory\)"),
        ("exit 3", r"has ended with 3 \(.*/python -m geoskip\.spark\.jdbc\.attach; its errors are in the log"),
    ],
    ids=["missing", "broken"],
)
def test_without_its_python_the_jar_answers_statements_by_the_reason(
    spark: Any, tmp_path: Path, python: str | None, expected: str
) -> None:
    """The parser of the jar is called in a thread of Java's, as a server calls it, and not by this Python."""
    jvm, program = spark._jvm, tmp_path / "python"
    if python is not None:
        program.write_text(f"#!/bin/sh\n{python}\n")
        program.chmod(0o755)
    extension_jar(tmp_path / "extension.jar")
    conf = jvm.org.apache.spark.SparkEnv.get().conf()
    conf.set("spark.pyspark.driver.python", str(program))
    try:
        parse = parser_of_jar(spark, tmp_path / "extension.jar")
        assert parse("SELECT 1 AS one").startswith("Project")
        with pytest.raises(Py4JJavaError, match=rf"geoskip's Python process {expected}.*: no file is skipped, and"):
            parse("CREATE SKIPPING INDEX ON t (temp MINMAX)")
        with pytest.raises(Py4JJavaError, match="PARSE_SYNTAX_ERROR"):
            parse("CREATE SKIPING INDEX ON t (temp MINMAX)")
    finally:
        conf.remove("spark.pyspark.driver.python")


def parser_of_jar(spark: Any, jar: Path) -> Callable[[str], str]:
    """Parser that the extension of a jar puts before Spark's, which returns a plan as text."""
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    java = jvm.java.lang

    def array(kind: Any, *items: Any) -> Any:
        made = gateway.new_array(kind, len(items))
        for place, item in enumerate(items):
            made[place] = item
        return made

    urls = array(jvm.java.net.URL, jvm.java.io.File(str(jar)).toURI().toURL())
    loader = jvm.java.net.URLClassLoader(urls, spark._jsparkSession.getClass().getClassLoader())
    made = loader.loadClass("geoskip.extension.AttachingParserBuilder").getDeclaredConstructor(array(java.Class))
    made.setAccessible(True)
    plain = jvm.org.apache.spark.sql.execution.SparkSqlParser()
    # by reflection, since Py4J keeps a class's methods by its name, and each jar has its own
    apply = next(each for each in java.Class.forName("scala.Function2").getMethods() if each.getName() == "apply")
    parser = apply.invoke(made.newInstance(array(java.Object)), array(java.Object, spark._jsparkSession, plain))
    interface = java.Class.forName("org.apache.spark.sql.catalyst.parser.ParserInterface")
    method = interface.getMethod("parsePlan", array(java.Class, java.Class.forName("java.lang.String")))
    handle = java.invoke.MethodHandles.publicLookup().unreflect(method).bindTo(parser)
    threads = jvm.java.util.concurrent.Executors.newSingleThreadExecutor()

    def parse(text: str) -> str:
        bound = java.invoke.MethodHandles.insertArguments(handle, 0, array(java.Object, text))
        kind = java.Class.forName("java.util.concurrent.Callable")
        return str(threads.submit(java.invoke.MethodHandleProxies.asInterfaceInstance(kind, bound)).get())

    return parse


DRIVER = """
import sys, time
from pyspark.errors import ParseException
from pyspark.sql import SparkSession
import geoskip
from geoskip.spark.session import JvmBridge
from threading import Thread

spark = SparkSession.builder.getOrCreate()
for attempt in range(600):
    try:
        spark.sql(f"CREATE SKIPPING INDEX ON '{sys.argv[1]}' (temp MINMAX)").collect()
        break
    except ParseException:  # the other process is not there yet
        time.sleep(0.2)
hot = lambda degrees: spark.read.parquet(sys.argv[1]).where(f"temp > {degrees}")
print(hot(25).count(), hot(25)._jdf.queryExecution().toString().count("GeoskipFileIndex"))
for degrees in (35, 36):
    geoskip.enable(spark)
    few = hot(degrees)
    print(few.count(), geoskip.report(few).files_kept, geoskip.report(few).files_total)
others = [spark.newSession() for _ in range(3)]
def enabled_by_another():  # in a thread of its own, since Py4J keeps a class's methods by its name
    JvmBridge(spark, lambda request, java: "").geoskip.install(others[0]._jsparkSession, True)


thread = Thread(target=enabled_by_another)
thread.start()
thread.join()
geoskip.indicators(hot(35))
geoskip.enable(others[2])
print(*map(geoskip.is_enabled, [spark, *others]), geoskip.report(hot(37)).files_kept)
"""


@pytest.mark.slow
def test_a_driver_of_python_takes_over_from_the_process_of_the_jar(tmp_path: Path) -> None:
    """Processes of one JVM have a rule each: that of the last one that enabled a session decides there, and reports."""
    extension_jar(tmp_path / "extension.jar")
    (tmp_path / "driver.py").write_text(DRIVER)
    settings = {"jars": tmp_path / "extension.jar", "sql.extensions": EXTENSION, "ui.enabled": "false"}
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    for name, value in settings.items():
        command += ["--conf", f"spark.{name}={value}"]
    command += [str(tmp_path / "driver.py"), str(four_tens(tmp_path))]
    root = str(Path(__file__).parents[2])
    environment = {
        **os.environ,
        "PYTHONPATH": root,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.stdout.splitlines() == ["14 1", "4 1 4", "3 1 4", "True False True True 1"], done.stderr[-3000:]
