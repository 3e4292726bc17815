"""Sedona's jar: which packages bring it, whether it is there, how its functions are registered."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from geoskip.errors import EnvironmentProblem

__all__ = ["candidates", "is_there", "register", "release"]

_LINES = ("3.4", "3.5", "4.0")
_RELEASES: dict[str, tuple[tuple[str, ...], str | None]] = {
    "1.9.1": ((*_LINES, "4.1"), None),  # from 1.9 on only rasters need GeoTools
    "1.9.0": ((*_LINES, "4.1"), None),
    "1.8.1": (_LINES, "1.8.1-33.1"),
    "1.8.0": (_LINES, "1.8.0-33.1"),
}
"""Releases of Sedona, newest first: the Sparks that have a jar, and the GeoTools that ST_Transform needs beside it."""


def candidates() -> tuple[tuple[str, ...], ...]:
    """Maven coordinates of Sedona for the installed PySpark, those to be tried first coming first.

    The jar of the installed apache-sedona's own release goes first, then older ones that have a jar for this Spark; one
    newer than the Python package is never asked for. A package newer than the table is taken at its word.
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
    scala = "2.12" if line.startswith("3.") else "2.13"  # of the Spark within PySpark
    shaded = [f"org.apache.sedona:sedona-spark-shaded-{line}_{scala}:{release}" for release in fitting]
    tools = [releases.get(release) for release in fitting]
    return tuple(
        (jar, f"org.datasyslab:geotools-wrapper:{tool}") if tool else (jar,)
        for jar, tool in zip(shaded, tools, strict=True)
    )


def release(spark: SparkSession) -> str:
    """The release of the jar that a session asked Maven for; "" where it came otherwise."""
    asked = re.search(r"sedona-spark-shaded-[^:]+:([^,]+)", spark.conf.get("spark.jars.packages", None) or "")
    return asked[1] if asked else ""


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
    """Are Sedona's classes on this session's class path?"""
    jvm: Any = spark._jvm
    try:
        jvm.org.apache.spark.util.Utils.classForName("org.apache.sedona.spark.SedonaContext", True, False)
    except Exception:
        return False
    return True


def register(spark: SparkSession) -> None:
    """Register Sedona's functions, types and optimizer rules in this session."""
    from sedona.spark import SedonaContext

    SedonaContext.create(spark)
