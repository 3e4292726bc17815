"""geoskip: data skipping for Apache Spark, without a change to query, data or layout.

>>> import geoskip
>>> str(geoskip.MinMax("temp"))
'minmax(temp)'

What touches Spark is imported when it is first asked for, so that the core serves without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from geoskip.checking import MappingCheck, check_mapping
from geoskip.errors import GeoskipError
from geoskip.indexes.base import Index, index
from geoskip.indexes.bloom import BloomFilter
from geoskip.indexes.formatted import Formatted
from geoskip.indexes.gaplist import GapList
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.hybrid import Hybrid
from geoskip.indexes.metricdist.index import MetricDist
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.prefix import Prefix
from geoskip.indexes.suffix import Suffix
from geoskip.indexes.valuelist import ValueList
from geoskip.registry import Function, constant, declare, denotes, mappings, maps, quarantined, release
from geoskip.report import Report, Scan
from geoskip.stores.encryption import Encryption
from geoskip.stores.keyring import KeyRing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from geoskip.spark.build.job import BuildReport
    from geoskip.spark.dataset.handle import Dataset, dataset, datasets
    from geoskip.spark.reports import explain, last_report, reports, wait_for_audits
    from geoskip.spark.session import configure, disable, disabled, enable, is_enabled, session
    from geoskip.spark.st_functions import register_functions

__version__ = "0.1.0"
__all__ = [
    "BloomFilter",
    "BuildReport",
    "Dataset",
    "Encryption",
    "Formatted",
    "Function",
    "GapList",
    "GeoBox",
    "GeoskipError",
    "Hybrid",
    "Index",
    "KeyRing",
    "MappingCheck",
    "MetricDist",
    "MinMax",
    "Prefix",
    "Report",
    "Scan",
    "Suffix",
    "ValueList",
    "check_mapping",
    "configure",
    "constant",
    "dataset",
    "datasets",
    "declare",
    "denotes",
    "disable",
    "disabled",
    "enable",
    "explain",
    "index",
    "is_enabled",
    "last_report",
    "mappings",
    "maps",
    "quarantined",
    "register_functions",
    "release",
    "report",
    "reports",
    "session",
    "wait_for_audits",
]

_SPARK = {
    "BuildReport": "build.job",
    **dict.fromkeys(("Dataset", "dataset", "datasets"), "dataset.handle"),
    **dict.fromkeys(("explain", "last_report", "reports", "wait_for_audits"), "reports"),
    **dict.fromkeys(("configure", "disable", "disabled", "enable", "is_enabled", "session"), "session"),
    "register_functions": "st_functions",
}


def report(df: DataFrame) -> Report:
    """What a DataFrame's query read, or is going to read: see :func:`geoskip.spark.reports.report`."""
    found: Report = import_module("geoskip.spark.reports").report(df)  # by hand: geoskip.report is a module too
    return found


def __getattr__(name: str) -> Any:
    if name in _SPARK:
        return getattr(import_module(f"geoskip.spark.{_SPARK[name]}"), name)
    raise AttributeError(f"module 'geoskip' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
