"""The ``ST_`` functions of a session: Sedona's if its jar is present, else shapely-backed ones.

After the registration Spark's ``lit`` accepts shapely geometries: ``call_function("ST_Contains", lit(polygon), ...)``.
A Py4J converter turns a geometry into a literal ``Column`` of its WKB, with Sedona's constructor around it if Sedona's
jar is present; the shapely-backed functions take WKB.
"""

from __future__ import annotations

import re
import warnings
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pyspark
import shapely
from py4j.java_gateway import JavaClass
from py4j.protocol import register_input_converter
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import PandasUDFType, pandas_udf
from shapely.geometry.base import BaseGeometry

from geoskip.errors import EnvironmentProblem
from geoskip.registry.installed import offered_functions
from geoskip.spark.workers import lack_of_functions

_FUNCTIONS = "org.apache.spark.sql.functions"
_LINES = ("3.4", "3.5", "4.0")
_RELEASES: dict[str, tuple[tuple[str, ...], str | None]] = {
    "1.9.1": ((*_LINES, "4.1"), None),  # from 1.9 on only rasters need GeoTools
    "1.9.0": ((*_LINES, "4.1"), None),
    "1.8.1": (_LINES, "1.8.1-33.1"),
    "1.8.0": (_LINES, "1.8.0-33.1"),
}
"""Releases of Sedona, newest first: the versions of Spark with a jar, and of GeoTools that ST_Transform needs."""


def register_functions(spark: SparkSession, *, sedona: bool | None = None) -> None:
    """Register the ``ST_`` functions: Sedona's, or without its jar the shapely-backed ones.

    ``sedona=True`` requires the jar. If Spark (4.1 and later) has a geometry function of the same name, the
    shapely-backed one gets a prefix, as in ``shapely_ST_GeomFromWKB``, unless Spark's are switched off. The functions
    of installed libraries (cells, user agents, distances, ...) are registered too, unless the session already has a
    function of that name. Spark's ``lit`` then accepts shapely geometries.

    On a cluster a small job checks the workers for the packages that the functions import; a warning lists missing
    ones.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise EnvironmentProblem(f"register_functions() takes a SparkSession whose driver is here, got {spark!r}")
    _register_literals()
    by_the_jar = sedona is not False and is_there(spark)
    if by_the_jar:
        from sedona.spark import SedonaContext

        SedonaContext.create(spark)
    elif sedona:
        raise EnvironmentProblem(
            "Sedona's jar is not in this session; make it with geoskip.session(sedona=True), or give Spark "
            f"spark.jars.packages={','.join(candidates()[0])}"
        )
    registered: dict[str, Any] = {}
    for function in offered_functions():
        if function.vectorised is None:
            if not spark._jsparkSession.catalog().functionExists(function.name):
                registered[function.name] = spark.udf.register(function.name, function.function, function.returns)
        elif not by_the_jar:
            name = f"shapely_{function.name}" if _is_builtin(spark, function.name) else function.name
            registered[name] = spark.udf.register(name, _pandas_udf(function))
    if (why := lack_of_functions(spark, registered)) is not None:
        warnings.warn(why, stacklevel=2)


def _is_builtin(spark: SparkSession, name: str) -> bool:
    """Test whether Spark has an enabled built-in geometry function of this name."""
    jvm: Any = spark._jvm
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name.lower())
    if not jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin().functionExists(identifier):
        return False
    return spark.conf.get("spark.sql.geospatial.enabled") != "false"


def _pandas_udf(function: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # asks for type hints, which variadic functions lack
        warnings.simplefilter("ignore", FutureWarning)  # on pandas 3, with which these functions are tested
        return pandas_udf(function.vectorised, function.returns, PandasUDFType.SCALAR)


# --- Sedona's jar -----------------------------------------------------------------------------------------------------


def candidates() -> tuple[tuple[str, ...], ...]:
    """Maven coordinates of Sedona for the installed PySpark, in the order of trial.

    The jar of the installed apache-sedona's own release comes first, then older ones that have a jar for this Spark,
    never one newer than the Python package. A package newer than the table is assumed to have a jar.
    """
    try:
        installed = version("apache-sedona")
    except PackageNotFoundError:
        raise EnvironmentProblem(
            "sedona=True needs the Python package apache-sedona: pip install 'geoskip[sedona]'"
        ) from None
    line = ".".join(pyspark.__version__.split(".")[:2])
    releases = {release: tools for release, (lines, tools) in _RELEASES.items() if line in lines}
    fitting = [release for release in releases if _numbers(release) <= _numbers(installed)]
    if _numbers(installed) > _numbers(next(iter(_RELEASES))):
        fitting.insert(0, installed)
    if not fitting:
        raise EnvironmentProblem(_no_jar(line, installed, tuple(releases)))
    scala = "2.12" if line.startswith("3.") else "2.13"  # of PySpark's Spark
    shaded = [f"org.apache.sedona:sedona-spark-shaded-{line}_{scala}:{release}" for release in fitting]
    tools = [releases.get(release) for release in fitting]
    return tuple(
        (jar, f"org.datasyslab:geotools-wrapper:{tool}") if tool else (jar,)
        for jar, tool in zip(shaded, tools, strict=True)
    )


def release(spark: SparkSession) -> str:
    """Release of Sedona in the session's ``spark.jars.packages``; "" if it is not listed there."""
    requested = re.search(r"sedona-spark-shaded-[^:]+:([^,]+)", spark.conf.get("spark.jars.packages", None) or "")
    return requested[1] if requested else ""


def _no_jar(line: str, installed: str, releases: tuple[str, ...]) -> str:
    sparks = ", ".join(next(iter(_RELEASES.values()))[0])
    reason = (
        f"Sedona has a jar for Spark {line} from {releases[-1]} on, and apache-sedona {installed} is installed: "
        f"pip install 'apache-sedona=={releases[0]}'"
        if releases
        else f"Sedona has no jar for Spark {line} in the releases known here ({', '.join(_RELEASES)}, of apache-sedona "
        f"{installed}), only for Spark {sparks}: pip install 'pyspark=={sparks.rpartition(', ')[2]}.*'"
    )
    return f"{reason}; without sedona=True geoskip registers shapely-backed ST_ functions instead"


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release)[:3])


def is_there(spark: SparkSession) -> bool:
    """Test whether Sedona's classes are on the session's class path."""
    jvm: Any = spark._jvm
    try:
        jvm.org.apache.spark.util.Utils.classForName("org.apache.sedona.spark.SedonaContext", True, False)
    except Exception:
        return False
    return True


# --- geometries as literals -------------------------------------------------------------------------------------------


class _Converter:
    """A Py4J converter of geometries to literal columns."""

    def can_convert(self, value: Any) -> bool:
        return isinstance(value, BaseGeometry)

    def convert(self, value: BaseGeometry, client: Any) -> Any:
        functions = JavaClass(_FUNCTIONS, client)
        literal = functions.lit(bytes(shapely.to_wkb(value, include_srid=True)))
        spark = SparkSession.getActiveSession()
        if spark is None or not is_there(spark):
            return literal
        gateway: Any = spark.sparkContext._gateway
        arguments = gateway.new_array(JavaClass("org.apache.spark.sql.Column", client), 1)
        arguments[0] = literal
        return functions.call_function("ST_GeomFromEWKB" if shapely.get_srid(value) else "ST_GeomFromWKB", arguments)


_converter = _Converter()


def _register_literals() -> None:
    """Make Spark's functions accept shapely geometries, once for each process."""
    global _registered
    if not _registered:
        register_input_converter(_converter, prepend=True)
        _registered = True


_registered = False
