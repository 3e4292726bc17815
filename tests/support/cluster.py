"""A standalone cluster of one master and two workers, in separate JVMs on the loopback address."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import pyspark
import venv_pack  # type: ignore[import-untyped]

import geoskip
import udf_mappings
from geoskip.spark.worker_archive import distributions_for_workers

SPARK_HOME = Path(pyspark.__file__).parent
OPENED = ("java.lang", "java.lang.invoke", "java.io", "java.net", "java.nio", "java.util", "java.util.concurrent")
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
PATIENCE = 300


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """Start the daemons, wait until both workers are registered, and yield the master's address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        log = folder / "master.log"
        stack.enter_context(
            _daemon(log, "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        )
        _wait_for(log, "Starting Spark master", 1)
        for number in range(2):
            place = folder / f"worker-{number}"
            place.mkdir()
            size = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0")
            stack.enter_context(
                _daemon(folder / f"worker-{number}.log", "worker.Worker", *size, "--work-dir", str(place), address)
            )
        _wait_for(log, "Registering worker", 2)
        yield address


@contextmanager
def _daemon(log: Path, name: str, *arguments: str) -> Iterator[None]:
    java = Path(os.environ["JAVA_HOME"], "bin/java") if "JAVA_HOME" in os.environ else "java"
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    small = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    scala = re.search(r"scala-library-(\d+\.\d+)", " ".join(os.listdir(SPARK_HOME / "jars")))
    assert scala is not None
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
    environment |= {"SPARK_HOME": str(SPARK_HOME), "SPARK_SCALA_VERSION": scala[1], "SPARK_LOCAL_IP": "127.0.0.1"}
    main = f"org.apache.spark.deploy.{name}"
    command = [str(java), *opened, *small, "-cp", f"{SPARK_HOME}/jars/*", main, *arguments]
    with log.open("wb") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=printed, env=environment, cwd=log.parent)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _wait_for(log: Path, text: str, times: int) -> None:
    end = time.monotonic() + PATIENCE
    while log.read_text("utf-8", "replace").count(text) < times:
        if time.monotonic() > end:
            raise TimeoutError(f"no {text!r} in:\n{log.read_text('utf-8', 'replace')[-3000:]}")
        time.sleep(0.1)


@contextmanager
def session_on(address: str, python: str | Path, config: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Open a session on a cluster with a given worker Python; sessions share the driver's JVM in sequence."""
    before = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = str(python)
    settings = {
        "spark.master": address,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",  # with few rows, compiling code takes longer than it saves
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.session.timeZone": "UTC",
        "spark.geoskip.planning.budget": "120",
    }
    try:
        spark = geoskip.session("geoskip-clusters", sedona=False, config={**settings, **(config or {})})
        spark.sparkContext.setLogLevel("OFF")
        try:
            yield spark
        finally:
            spark.stop()
    finally:
        os.environ.pop("PYSPARK_PYTHON")
        if before is not None:
            os.environ["PYSPARK_PYTHON"] = before


def python_with(folder: Path, packages: Iterable[str] = ()) -> Path:
    """Create an environment of the driver's Python version, with links to some of its distributions."""
    venv.create(folder, symlinks=True)
    _take(folder, map(distribution, packages), lambda here, there: there.symlink_to(here))
    return folder / "bin" / "python"


def packed_environment(folder: Path) -> Path:
    """Create an environment with geoskip and the packages that its tasks need, packed by venv-pack."""
    venv.create(folder / "env", symlinks=True)
    site = _take(folder / "env", distributions_for_workers(), _copy)
    for package in (geoskip, udf_mappings):
        root = Path(str(package.__file__)).parent
        shutil.copytree(root, site / root.name, ignore=shutil.ignore_patterns("__pycache__"))
    packed = folder / "env.tar.gz"
    venv_pack.pack(str(folder / "env"), output=str(packed), compress_level=1)
    return packed


def _take(folder: Path, distributions: Iterable[Distribution], take: Callable[[Path, Path], object]) -> Path:
    """Give an environment some of the driver's distributions; return the folder with them."""
    site = folder / "lib" / "python{}.{}".format(*sys.version_info[:2]) / "site-packages"
    for found in distributions:
        tops = {Path(file).parts[0] for file in found.files or ()} - {"..", "__pycache__", "lib64"}
        for top in tops:
            if not (site / top).exists():
                take(Path(str(found.locate_file(top))), site / top)
    return site


def _copy(here: Path, there: Path) -> None:
    (shutil.copytree if here.is_dir() else shutil.copy)(here, there)


def zip_of_geoskip(path: Path, *files: Path) -> Path:
    """Create a zip of geoskip, the mappings and some modules, for ``--py-files``."""
    with zipfile.ZipFile(path, "w") as archive:
        for package in (geoskip, udf_mappings):
            root = Path(str(package.__file__)).parent
            for file in root.rglob("*"):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(root.parent))
        for file in files:
            archive.write(file, file.name)
    return path


def jobs_of(spark: Any, run: Any) -> tuple[Any, int]:
    """Return the result of a call, or its exception, and the number of jobs that it ran."""
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    spark.sparkContext.setJobGroup("counted", "counted")
    before = len(tracker.getJobIdsForGroup("counted"))
    try:
        found = run()
    except Exception as error:
        found = error
    return found, len(tracker.getJobIdsForGroup("counted")) - before
