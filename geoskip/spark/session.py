"""Sessions: geoskip switched on, off, or brought along.

``enable`` installs one optimizer rule in the live session (:mod:`geoskip.spark.rule.compile`). The rule cannot be taken
out again, and sessions made by ``newSession`` share it; what switches it is the session's conf
``spark.geoskip.enabled``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import PandasUDFType, pandas_udf

from geoskip.errors import EnvironmentProblem
from geoskip.registry import lasting
from geoskip.spark.catalog import KEYS, DatasetCatalog
from geoskip.spark.launch import start
from geoskip.spark.rule.bridge import Bridge
from geoskip.spark.rule.compile import JvmBridge, jvm_of
from geoskip.stores.keyring import KeyKeeper

__all__ = [
    "ENABLED",
    "check_session",
    "configure",
    "disable",
    "disabled",
    "enable",
    "is_enabled",
    "known",
    "register_functions",
    "session",
]

ENABLED = "spark.geoskip.enabled"

known = DatasetCatalog()
bridge = Bridge(known)


def java(spark: SparkSession) -> JvmBridge:
    """The Java side of this session's driver."""
    return jvm_of(spark, bridge.answer)


def session(
    app_name: str = "geoskip", *, sedona: bool | None = None, config: Mapping[str, Any] | None = None
) -> SparkSession:
    """A session with geoskip enabled and the right worker Python; an existing one is used where there is one.

    ``sedona=True`` brings Sedona's jar and registers its functions; ``None`` uses Sedona where its jar is there, else
    registers the shapely-backed ``ST_`` functions; ``False`` does neither. ``config`` maps Spark's keys to values.
    """
    builder = SparkSession.builder.appName(app_name)
    for key, value in (config or {}).items():
        builder = builder.config(key, str(value).lower() if isinstance(value, bool) else value)
    return configure(builder, sedona=sedona).getOrCreate()


def configure(builder: SparkSession.Builder, *, sedona: bool | None = None) -> SparkSession.Builder:
    """Prepare one's own ``SparkSession.builder``: the session that it makes is one of :func:`session`.

    Sets the workers' Python to this one, and with ``sedona=True`` the packages and settings of Sedona, beside the
    packages that the builder has already.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    jars: tuple[tuple[str, ...], ...] = ()
    if sedona:
        from geoskip.spark.sedona_jar import candidates

        jars = candidates()
        builder = builder.config("spark.serializer", "org.apache.spark.serializer.KryoSerializer").config(
            "spark.kryo.registrator", "org.apache.sedona.core.serde.SedonaKryoRegistrator"
        )
    make = builder.getOrCreate

    def made_and_enabled() -> SparkSession:
        spark = start(builder, make, jars)
        enable(spark)
        if sedona is not False:
            register_functions(spark, sedona=sedona)
        return spark

    builder.getOrCreate = made_and_enabled  # type: ignore[method-assign]
    return builder


def enable(spark: SparkSession, *, keys: KeyKeeper | None = None) -> None:
    """Switch geoskip on for a live session; once is enough, more does no harm.

    ``keys`` are those that protected metadata are read with, in this driver; without them ``spark.geoskip.keys`` says
    where a key ring is: the path of a file, or ``env:`` and the name of an environment variable. Raises
    EnvironmentProblem for a Spark Connect session, which has no optimizer at hand.
    """
    check_session(spark)
    load_mappings()
    _check_workers(spark)
    place = spark.conf.get(KEYS, None)
    if keys is None:
        known.read_keys(place, anew=True)
    else:
        known.unlock(keys, place)
    java(spark).geoskip.install(spark._jsparkSession)
    spark.conf.set(ENABLED, "true")


def check_session(spark: SparkSession) -> None:
    """Raise EnvironmentProblem for what is no session that has its driver here, and for one that was stopped."""
    if hasattr(spark, "_jsparkSession"):
        if spark.sparkContext._jsc is None:
            raise EnvironmentProblem("this session was stopped: make another, as with geoskip.session()")
        return
    raise EnvironmentProblem(
        f"geoskip takes a SparkSession whose driver is here, got {spark!r} (one of Spark Connect has none; run it in "
        "the server's driver): geoskip.enable(spark) on a classic one, SparkSession.builder.master(...).getOrCreate()"
    )


def disable(spark: SparkSession) -> None:
    """Switch geoskip off for this session. A DataFrame that was already planned keeps its plan."""
    spark.conf.set(ENABLED, "false")


def is_enabled(spark: SparkSession) -> bool:
    """Is geoskip switched on for this session?"""
    if not hasattr(spark, "_jsparkSession"):
        return False
    if not java(spark).geoskip.installed(spark._jsparkSession):
        return False
    return (spark.conf.get(ENABLED, "true") or "true").lower() == "true"


@contextmanager
def disabled(spark: SparkSession) -> Iterator[None]:
    """A block with geoskip off, and then as it was."""
    before = spark.conf.get(ENABLED, None)
    disable(spark)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(ENABLED)
        else:
            spark.conf.set(ENABLED, before)


def register_functions(spark: SparkSession, *, sedona: bool | None = None) -> None:
    """Register the ``ST_`` functions: Sedona's where its jar is there, else the shapely-backed ones.

    ``sedona=True`` insists on the jar. A name under which Spark itself has a function of geometries, since 4.1, is
    not taken, and the shapely-backed one is called ``shapely_ST_GeomFromWKB``; unless Spark's are switched off. The
    plain functions of installed libraries (of cells, user agents, distances, ...) come with them, unless the
    session has one of the name already.
    From then on Spark's ``lit`` takes shapely's geometries.
    """
    from geoskip.spark import sedona_jar as sedona_jar
    from geoskip.spark.literals import register_literals

    register_literals()
    by_the_jar = sedona is not False and sedona_jar.is_there(spark)
    if by_the_jar:
        sedona_jar.register(spark)
    elif sedona:
        raise EnvironmentProblem(
            "Sedona's jar is not in this session; make it with geoskip.session(sedona=True), or give Spark "
            f"spark.jars.packages={','.join(sedona_jar.candidates()[0])}"
        )
    for function in _offered_functions():
        if function.vectorised is None:
            if not spark._jsparkSession.catalog().functionExists(function.name):
                spark.udf.register(function.name, function.function, function.returns)
        elif not by_the_jar:
            prefix = "shapely_" if _is_builtin(spark, function.name) else ""
            spark.udf.register(prefix + function.name, _pandas_udf(function))


def _offered_functions() -> Iterator[Any]:
    """The functions of all libraries that are installed with what they need."""
    for point in entry_points(group="geoskip.functions"):
        try:
            yield from point.load().values()
        except ModuleNotFoundError:
            if not point.extras:
                raise


def _is_builtin(spark: SparkSession, name: str) -> bool:
    """Does Spark itself have a function of geometries of this name, and is it switched on?"""
    jvm: Any = spark._jvm
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name.lower())
    if not jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin().functionExists(identifier):
        return False
    return spark.conf.get("spark.sql.geospatial.enabled") != "false"


def _pandas_udf(function: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it prefers type hints, which a library of any arity has not
        warnings.simplefilter("ignore", FutureWarning)  # of pandas 3, with which these functions are tested
        return pandas_udf(function.vectorised, function.returns, PandasUDFType.SCALAR)


@lru_cache(maxsize=1)
def load_mappings() -> None:
    """Load the UDF mappings of all installed packages, for good; one that fails is left out with a warning."""
    for point in entry_points(group="geoskip.udf_mappings"):
        try:
            with lasting():
                point.load()
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and point.extras:
                continue  # the package that it maps is not installed: nothing is missed
            warnings.warn(f"the UDF mappings {point.value} could not be loaded and are left out: {error}", stacklevel=2)


def _check_workers(spark: SparkSession) -> None:
    python = spark.sparkContext.pythonExec
    found = shutil.which(python) or python
    if os.path.realpath(found) == os.path.realpath(sys.executable) and found == sys.executable:
        return
    why = _missing(found)
    if why:
        warnings.warn(
            f"the session's Python workers run {python}, which {why}; queries skip as they should, but building an "
            "index will fail: set PYSPARK_PYTHON to the Python of this driver before the session is made, or use "
            "geoskip.session()",
            stacklevel=3,
        )


@lru_cache(maxsize=8)
def _missing(python: str) -> str | None:
    probe = "import sys, pyarrow, numpy, shapely, geoskip; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", probe], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"cannot be started ({error})"
    if done.returncode:
        missing = re.search(r"No module named '([^']+)'", done.stderr)
        return f"lacks the package {missing.group(1)}" if missing else "cannot import geoskip"
    here = "{}.{}".format(*sys.version_info[:2])
    return None if done.stdout.strip() == here else f"is Python {done.stdout.strip()}, not {here}"
