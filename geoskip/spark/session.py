"""Create, enable and disable sessions with geoskip.

``enable`` installs one optimizer rule in the running session. The rule cannot be removed, and sessions created by
``newSession`` share it; the session's setting ``spark.geoskip.enabled`` turns it on and off.

The rule is written in Java (``jvm``) and compiled in the driver by Janino, which is part of every Spark distribution.
The parent of its class loader is the loader of the session's jars, so that no class path and no build is needed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from geoskip.errors import EnvironmentProblem, InvalidSpecificationError
from geoskip.registry.installed import load_mappings
from geoskip.spark.catalog import KEYS, DatasetCatalog
from geoskip.spark.rule.bridge import Bridge
from geoskip.spark.st_functions import candidates, register_functions
from geoskip.spark.statistics_function import register_statistics
from geoskip.statements.parser import STATEMENTS
from geoskip.stores.keyring import KeyKeeper

ENABLED = "spark.geoskip.enabled"
_JAVAS = (17, 21)  # Spark 3.5 and 4.0 fail on Java 24 and newer, Spark 4 on 11 and older
_PACKAGES = "spark.jars.packages"
_CONNECT = "pyspark.sql.connect"
"""Module of Spark Connect's sessions, which have their driver in another process."""


known = DatasetCatalog()
bridge = Bridge(known)


_connected: dict[int, tuple[JavaGateway, JvmBridge]] = {}
_lock = threading.Lock()


def java(spark: SparkSession) -> JvmBridge:
    """Java side of the session's driver; compiled and connected once for each driver."""
    gateway = spark.sparkContext._gateway
    with _lock:
        found = _connected.get(id(gateway))
        if found is None or found[0] is not gateway:
            found = _connected[id(gateway)] = (gateway, JvmBridge(spark, bridge.answer))
        return found[1]


def session(
    app_name: str = "geoskip", *, sedona: bool | None = None, config: Mapping[str, Any] | None = None
) -> SparkSession:
    """Return the active session or a new one, with geoskip enabled and the right worker Python.

    Parameters
    ----------
    app_name
        The application's name.
    sedona
        True adds Sedona's jar and registers its functions. None registers Sedona's functions if its jar is on the class
        path, else the shapely-backed ``ST_`` functions. False registers none.
    config
        Spark configuration.
    """
    if not isinstance(app_name, str) or not isinstance(config, Mapping | None):
        raise InvalidSpecificationError(
            f"session() takes a name and config={{'spark.master': 'local[4]'}}, got {app_name!r} and config={config!r}"
        )
    builder = SparkSession.builder.appName(app_name)
    for key, value in (config or {}).items():
        builder = builder.config(key, str(value).lower() if isinstance(value, bool) else value)
    return configure(builder, sedona=sedona).getOrCreate()


def configure(builder: SparkSession.Builder, *, sedona: bool | None = None) -> SparkSession.Builder:
    """Prepare a ``SparkSession.builder`` to create a session as :func:`session` does.

    Sets the workers' Python to this Python. With ``sedona=True`` it also adds the packages and settings of Sedona to
    those of the builder.
    """
    if not isinstance(builder, SparkSession.Builder):
        raise InvalidSpecificationError(f"configure() takes a builder such as SparkSession.builder, got {builder!r}")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    jars: tuple[tuple[str, ...], ...] = ()
    if sedona:
        jars = candidates()
        builder = builder.config("spark.serializer", "org.apache.spark.serializer.KryoSerializer").config(
            "spark.kryo.registrator", "org.apache.sedona.core.serde.SedonaKryoRegistrator"
        )
    make = builder.getOrCreate

    def get_or_create() -> SparkSession:
        spark = start_session(builder, make, jars)
        enable(spark)
        if sedona is not False:
            register_functions(spark, sedona=sedona)
        return spark

    builder.getOrCreate = get_or_create  # type: ignore[method-assign]
    return builder


def enable(spark: SparkSession, *, keys: KeyKeeper | None = None) -> None:
    """Switch geoskip on for a live session, and register ``geoskip_statistics``; idempotent.

    Parameters
    ----------
    spark
        A classic session.
    keys
        The keys for reading encrypted metadata in this driver. Default: the key ring in
        ``spark.geoskip.encryption.keyRing``: the path of a file, or ``env:`` and the name of an environment variable.

    Raises
    ------
    EnvironmentProblem
        For a Spark Connect session, since its optimizer is not in this process.
    """
    check_session(spark)
    load_mappings()
    key_ring = spark.conf.get(KEYS, None)
    if keys is None:
        known.read_keys(key_ring, again=True)
    else:
        known.unlock(keys, key_ring)
    if (refused := java(spark).geoskip.install(spark._jsparkSession, True)) is not None:
        warnings.warn(refused, stacklevel=2)
    register_statistics(spark)
    spark.conf.set(ENABLED, "true")


def check_session(spark: SparkSession) -> None:
    """Raise EnvironmentProblem unless it is a running session with its driver in this process."""
    if hasattr(spark, "_jsparkSession"):
        if spark.sparkContext._jsc is None:
            raise EnvironmentProblem("this session was stopped: make another, as with geoskip.session()")
        return
    if type(spark).__module__.startswith(_CONNECT):
        raise EnvironmentProblem(
            "geoskip takes a SparkSession whose driver is here, got one of Spark Connect, whose queries are planned in "
            "the server. In the server's driver call geoskip.connect_server(spark) on a classic session: then queries "
            "of its clients skip, and their spark.sql(...) takes CREATE SKIPPING INDEX, EXPLAIN SKIPPING and the other "
            "statements on skipping indexes"
        )
    raise EnvironmentProblem(
        f"geoskip takes a SparkSession whose driver is here, got {spark!r}: geoskip.enable(spark) on a classic one, "
        "SparkSession.builder.master(...).getOrCreate()"
    )


def with_rule(spark: SparkSession) -> Any:
    """Return the Java side of a session with the rule installed, switched off unless it was enabled."""
    check_session(spark)
    side = java(spark).geoskip
    if not side.installed(spark._jsparkSession):
        switched = spark.conf.get(ENABLED, None)
        side.install(spark._jsparkSession, False)
        if side.installed(spark._jsparkSession):  # unless another Python process decides for this JVM
            spark.conf.set(ENABLED, "false" if switched is None else switched)
    return side


def disable(spark: SparkSession) -> None:
    """Switch geoskip off for this session. A DataFrame that was already planned keeps its plan."""
    check_session(spark)
    spark.conf.set(ENABLED, "false")


def is_enabled(spark: SparkSession) -> bool:
    """Test whether geoskip is switched on for a session."""
    if type(spark).__module__.startswith(_CONNECT):
        return False
    check_session(spark)
    if not java(spark).geoskip.installed(spark._jsparkSession):
        return False
    return (spark.conf.get(ENABLED, "true") or "true").lower() == "true"


@contextmanager
def disabled(spark: SparkSession) -> Iterator[None]:
    """Context in which geoskip is switched off."""
    check_session(spark)
    with switched(spark, "false"):
        yield


@contextmanager
def switched(spark: SparkSession, value: str) -> Iterator[None]:
    """Context with another value of ``spark.geoskip.enabled``, which is restored at its end."""
    before = spark.conf.get(ENABLED, None)
    spark.conf.set(ENABLED, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(ENABLED)
        else:
            spark.conf.set(ENABLED, before)


# --- starting Spark's JVM ---------------------------------------------------------------------------------------------


def start_session(
    builder: SparkSession.Builder, make: Callable[[], SparkSession], sedona: Sequence[tuple[str, ...]] = ()
) -> SparkSession:
    """Create a session with the first of Sedona's packages that can be resolved.

    The JVM resolves packages while it starts, and exits if no repository has one: then Spark is started again with the
    next package. Raises EnvironmentProblem if none can be resolved, or if Java is missing or unsuitable.
    """
    given = getattr(builder, "_options", {}).get(_PACKAGES)
    failure: Exception | None = None
    for packages in sedona or ((),):
        if packages:
            builder.config(_PACKAGES, ",".join(filter(None, (given, *packages))))
        try:
            spark = make()
        except Exception as error:
            if SparkContext._active_spark_context is None and (why := java_problem()):
                raise EnvironmentProblem(f"Spark did not start: {why}") from error
            if not sedona or "JAVA_GATEWAY_EXITED" not in str(error):
                raise
            failure = error
        else:
            if failure is not None:
                warnings.warn(
                    f"Sedona's jar is {packages[0]}, older than the Python package: no repository has {sedona[0][0]}; "
                    f"pip install 'apache-sedona=={packages[0].rpartition(':')[2]}' spares the search",
                    stacklevel=5,
                )
            return spark
    jars = ", ".join(packages[0] for packages in sedona)
    raise EnvironmentProblem(
        f"Spark did not start with Sedona's jar; looked for, in this order: {jars}. What Spark printed says why: where "
        "no repository has one, name another in spark.jars.repositories, install the apache-sedona whose jar is there, "
        "as in pip install 'apache-sedona==1.8.0', or leave out sedona=True for the shapely-backed functions"
    ) from failure


def java_problem() -> str | None:
    """Reason why Spark cannot run on the installed Java, or None."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin/java")) if home else "java"
    needed = "it needs Java 17 or 21"
    way_out = (
        "install one, as with `apt-get install openjdk-17-jre-headless` or `brew install openjdk@17`, and let "
        "JAVA_HOME name its folder"
    )
    if shutil.which(command) is None:
        place = f"there is no {command}, where JAVA_HOME points" if home else "neither JAVA_HOME nor PATH leads to one"
        return f"{needed}, and {place}: {way_out}"
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{needed}, and {command} cannot be run ({error}): {way_out}"
    if done.returncode:
        printed = next(iter((done.stderr + done.stdout).splitlines()), "it prints nothing").strip()
        return f"{needed}, and {command} ends with exit code {done.returncode} ({printed}): {way_out}"
    version = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    if version is None or int(version[1]) in _JAVAS:
        return None
    return f"{needed}, and {command} is Java {version[1]}: {way_out}"


_CLASSES = {
    "Dataset": "org.apache.spark.sql.{classic}Dataset",
    "SparkSession": "org.apache.spark.sql.{classic}SparkSession",
    "Seq": "scala.collection.{immutable}Seq",
}


@dataclass(frozen=True)
class _TableFormat:
    """A table format with its own compilation unit: the files of ``jvm`` that begin with its name."""

    name: str
    package: str
    """Prefix of the names of its classes."""
    version: Callable[[Any], str]
    """Function that returns the version on the class path of a loader; raises Py4JError if there is none."""
    known: tuple[str, ...]
    """Prefixes of the versions that geoskip was tested with."""


def _delta_version(loader: Any) -> str:
    return str(loader.loadClass("io.delta.package$").getField("MODULE$").get(None).VERSION())


def _iceberg_version(loader: Any) -> str:
    loader.loadClass("org.apache.iceberg.spark.source.SparkTable")  # Iceberg may lack its Spark module
    build = loader.loadClass("org.apache.iceberg.IcebergBuild")
    return str(
        build.getMethods()[[method.getName() for method in build.getMethods()].index("version")].invoke(None, None)
    )


def _hudi_version(loader: Any) -> str:
    return str(loader.loadClass("org.apache.hudi.HoodieFileIndex").getPackage().getImplementationVersion())


_TABLE_FORMATS = (
    _TableFormat("Delta", "org.apache.spark.sql.delta.", _delta_version, ("4.0.",)),
    _TableFormat("Iceberg", "org.apache.iceberg.spark.", _iceberg_version, ("1.10.",)),
    _TableFormat("Hudi", "org.apache.hudi.", _hudi_version, ("1.0.2",)),
)


class JvmBridge:
    """The Java side of one driver: an instance of ``geoskip.Geoskip``, connected to a Python function.

    The function takes a request of the rule and this Java instance, and returns the answer.
    """

    def __init__(self, spark: SparkSession, answer: Callable[[str, Any], str]) -> None:
        gateway: Any = spark.sparkContext._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        loader = spark._jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()  # type: ignore[union-attr]
        self.geoskip = _compile(spark, loader, _source(), "Geoskip")
        self.geoskip.recognise(STATEMENTS)
        for table_format in _TABLE_FORMATS:
            _add_format(spark, self.geoskip, table_format)
        self.callback = _JavaFunction(lambda request: answer(request, self.geoskip))
        self.geoskip.connect(self.callback, gateway.java_gateway_server)


class _JavaFunction:
    """A Python function as a ``java.util.function.Function``."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self.answer = answer

    def apply(self, request: str) -> str:
        return self.answer(request) if request else ""

    class Java:
        implements = ["java.util.function.Function"]  # noqa: RUF012 - Py4J's own convention


def _add_format(spark: SparkSession, geoskip: Any, table_format: _TableFormat) -> None:
    """Enable skipping for a table format if its classes exist; if that fails, its tables are left alone."""
    loader = geoskip.getClass().getClassLoader()
    try:
        version = table_format.version(loader)
    except Py4JError:
        return  # it is not on the class path
    name = table_format.name
    if not version.startswith(table_format.known):
        tried = ", ".join(f"{known}*" for known in table_format.known)
        geoskip.missing(table_format.package, f"geoskip knows {name} {tried}, and this is {version}")
        return
    try:
        geoskip.add(_compile(spark, loader, _source(name), f"{name}Format"))
    except Py4JError as error:
        why = str(getattr(error, "java_exception", error)).splitlines()[0]
        geoskip.missing(table_format.package, f"geoskip does not fit {name} {version}: {why}")


def _compile(spark: SparkSession, parent: Any, source: str, simple_name: str) -> Any:
    """Compile Java source and return an instance of a class; ``parent`` is the parent class loader."""
    gateway: Any = spark.sparkContext._gateway
    jvm = gateway.jvm
    old = spark.version.startswith("3.")
    for name, where in _CLASSES.items():
        full = where.format(classic="" if old else "classic.", immutable="" if old else "immutable.")
        source = source.replace(f"@{name}@", full)
    scan = parent.loadClass("org.apache.spark.sql.execution.FileSourceScanExec").getConstructors()[0]
    types = [kind.getName() for kind in scan.getParameterTypes()]  # they depend on Spark's version
    source = source.replace("@ScanParameters@", ", ".join(f"{kind} p{number}" for number, kind in enumerate(types)))
    source = source.replace("@ScanArguments@", ", ".join(f"p{number}" for number in range(len(types))))
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(parent)
    compiler.cook(source)
    made = compiler.getClassLoader().loadClass(f"geoskip.{simple_name}")
    constructor = made.getConstructor(gateway.new_array(jvm.java.lang.Class, 0))
    return constructor.newInstance(gateway.new_array(jvm.java.lang.Object, 0))


def _source(name: str = "") -> str:
    """The Java files as one compilation unit for Janino: those of a table format, or all others."""
    formats = tuple(table_format.name for table_format in _TABLE_FORMATS)
    imports: dict[str, None] = {}
    classes: list[str] = []
    for file in sorted(files("geoskip.spark").joinpath("jvm").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".java") and (file.name.startswith(name) if name else not file.name.startswith(formats)):
            lines = file.read_text("utf-8").splitlines()
            imports.update(dict.fromkeys(line for line in lines if line.startswith("import ")))
            classes.extend(line for line in lines if not line.startswith(("import ", "package ")))
    return "\n".join(["package geoskip;", *imports, *classes])
