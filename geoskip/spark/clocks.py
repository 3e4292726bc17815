"""Do Spark's Python workers see the clocks that this process sees?

They do where Spark runs within this machine (``local[..]``) and was started with the time zone that this process has:
the JVM had its environment from here, and workers have theirs from the JVM. Who changes ``TZ`` afterwards, here or for
executors, has other clocks than they; nobody knows those of other machines.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import zoneinfo

from pyspark import SparkContext

__all__ = ["clocks_of_workers"]

_LOCAL = re.compile(r"local(\[.*\])?")
_MACHINE = "/etc/localtime"
_TRIED = tuple(
    int(dt.datetime(year, month, 15, tzinfo=dt.UTC).timestamp())
               for year in (1930, 1965, 1985, 2005, 2025) for month in (1, 7))  # fmt: skip


def clocks_of_workers() -> str | None:
    """Why they may see other clocks than this process does, None where they see the same."""
    context = SparkContext._active_spark_context
    if context is None or not _LOCAL.fullmatch(context.master or ""):
        return "workers on other machines may have other clocks"
    jvm = context._jvm
    if jvm is None or "TZ" in context.environment:
        return "workers are given a time zone of their own"
    zone = os.environ.get("TZ")
    if zone != jvm.java.lang.System.getenv("TZ"):
        return "the time zone of this process was changed after Spark was started"
    if not _is_in_force(zone):
        return f"it is not clear what clocks this process has (TZ={zone})"
    return None


def _is_in_force(name: str | None) -> bool:
    """Does the zone that the environment names say what this process's clocks show?"""
    zone: dt.tzinfo = dt.UTC
    try:
        if name not in (None, "", "UTC"):
            zone = zoneinfo.ZoneInfo(str(name))
        elif name is None and os.path.exists(_MACHINE):
            with open(_MACHINE, "rb") as file:
                zone = zoneinfo.ZoneInfo.from_file(file)
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
        return False
    return all(
        dt.datetime.fromtimestamp(second) == dt.datetime.fromtimestamp(second, zone).replace(tzinfo=None)
        for second in _TRIED
    )
