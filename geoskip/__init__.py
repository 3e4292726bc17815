"""geoskip: data skipping for Apache Spark, without a change to query, data or layout.

>>> import geoskip
>>> str(geoskip.MinMax("temp"))
'minmax(temp)'

Modules are imported at the first use of a name, so that the core works without Spark and starts at once.

Architecture
------------
Imports point downwards only; import-linter checks it.

* ``predicates``, ``types``, ``clauses``: the condition of a query as a tree, Spark's types, and boolean conditions on
  the metadata of one file. ``geometry``, ``metrics`` and ``evaluation`` know shapes, distances and single values.
* ``conditions``: what clauses compare, as data: evaluated by numpy, printed, and translated for search servers and
  Arrow.
* ``registry``: what decorators declare about functions, bound to implementations; ``fingerprint`` identifies them.
* ``bounds``, ``rewrite``, ``indexes``: intervals of expressions in every file, rules that rewrite conditions, and the
  index types: what each stores a file, and the clauses that follow from it.
* ``rules``, ``planner``: guarded calls of indexes and mappings, clauses for each vertex of the tree, and the decision
  which files to keep.
* ``metadata``, ``stores``, ``lifecycle``: the table of files with its header, where snapshots are kept, and the verbs
  that change them under concurrent writers.
* ``layout``: orders in which rows are written to files, so that queries skip more of them: ranks of the columns, keys
  and cuts to files fitted to a sample, and how well the files of a dataset cluster.
* ``advisor``: what queries read and what would help them, as numbers: the paper's indicators, estimates from a sample
  with their intervals, candidates from conditions, and selection within a budget.
* ``sources``: files without Spark: listings and fingerprints, readers of Parquet and its footers, and the conditions
  under which summaries hold.
* ``engines``: the same metadata without Spark: conditions of SQL texts, Arrow and polars, builds, and readers of
  DuckDB, polars, pyarrow and GeoPandas over the kept files.
* ``statements``: the grammar of SQL statements on indexes, such as ``CREATE SKIPPING INDEX``.
* ``report``, ``diagnosis``, ``plotting``, ``checking``, ``cli``: reports, why files are kept, maps, the search for
  wrong mappings, the command line.
* ``spark``: the only package that imports PySpark. ``spark.rule`` connects the optimizer rule (``spark/jvm``, Java that
  Janino compiles in the driver) with the planner, ``spark.build`` collects summaries, ``spark.dataset`` is the handle,
  ``spark.dataset.write`` and ``rewrite_files`` write data in a layout, ``spark.advisor`` plans queries without running
  them, samples files and rows, and has the planner itself decide over these samples.
* ``udf_mappings``, beside this package: mappings of function libraries, found by entry point.

The walk of one query, ``SELECT * FROM t WHERE city > 'D'``::

    spark/jvm/GeoskipRule.java      the optimizer rule finds a filter over files and sends it as JSON
    spark/rule/bridge.py            answers the request: one decision for each dataset and partition
    spark/catalog.py                finds the dataset's store and its latest snapshot
    stores/parquet.py               reads the log; columns of the snapshot are read when needed
    spark/rule/translate.py         makes a predicate of Catalyst's expression
    sources/dependencies.py         leaves out indexes that were built under other conditions
    planner.py                      gives each vertex its clause, merged up the tree, and evaluates over all files
    rewrite/__init__.py             brings conditions into the form that indexes serve
    indexes/minmax.py               answers for one vertex: max(city) > 'D'
    conditions.py                   compares the literal with a column of the index's units
    bounds/interval.py              the bounds of all files, as keys that order as Spark's values do
    spark/jvm/GeoskipFileIndex.java drops the skipped files from the listing

The walk of one build, ``geoskip.dataset(spark, path).create_index(MinMax("city"))``::

    spark/dataset/handle.py         the methods of a dataset
    spark/dataset/create_refresh.py the verbs that read data
    spark/dataset/source.py         which files the handle means, as Spark lists them
    spark/analysis.py               the indexed expressions, as Spark resolves them
    sources/dependencies.py         the conditions under which the summaries hold
    sources/build_verbs.py          what every engine does: compare with the log, read, commit, report
    spark/build/job.py              one Spark job for all files and all indexes
    sources/sampled_values.py       parameters of indexes from a sample
    lifecycle/transaction.py        one operation: an entry in the log, attempts, a commit
    lifecycle/refresh.py            compares snapshot and listing, and lays new summaries over the snapshot
    sources/built_rows.py           rows of the file table, with fingerprints taken before and compared after
    metadata/file_table.py          the table with a row a file and a column an index
    stores/parts.py                 writes it as a part of the next snapshot

The walk of one build without Spark, ``geoskip.build(path, MinMax("place.city"))``::

    engines/build.py                the verbs, and the threads that read files
    engines/parquet_dataset.py      paths, files, partitions and columns, as Spark finds them
    engines/folder_listing.py       the files of a folder with their fingerprints
    sources/parquet_schema.py       columns of Parquet files, as Spark names their types
    engines/index_texts.py          the indexed expressions that need no Spark
    sources/dependencies.py         the conditions under which the summaries hold
    sources/build_verbs.py          from here on as above
    sources/built_rows.py           rows of the file table
    engines/parquet_values.py       values that Arrow reads otherwise than Spark, and Python functions
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from geoskip.errors import GeoskipError
from geoskip.report import Report, Scan  # now: a later import of the module would hide the function

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from geoskip.advisor.advice import Advice
    from geoskip.advisor.indicators import Indicators, Workload
    from geoskip.advisor.query_estimates import WhatIf
    from geoskip.checking import MappingCheck, check_index, check_mapping
    from geoskip.diagnosis.explanation import WhyNot
    from geoskip.engines.build import build
    from geoskip.engines.duckdb_connection import duckdb
    from geoskip.engines.files import File, KeptFiles, files, listing
    from geoskip.engines.geoparquet import read_geoparquet
    from geoskip.engines.polars_scan import scan_polars
    from geoskip.engines.pyarrow_dataset import pyarrow_dataset
    from geoskip.engines.statistics import statistics
    from geoskip.indexes.affix import Prefix, Suffix
    from geoskip.indexes.base import Index, index
    from geoskip.indexes.bloom import BloomFilter
    from geoskip.indexes.formatted import Formatted
    from geoskip.indexes.gaplist import GapList
    from geoskip.indexes.geobox.index import GeoBox
    from geoskip.indexes.hybrid import Hybrid
    from geoskip.indexes.metricdist.index import MetricDist
    from geoskip.indexes.minmax import MinMax
    from geoskip.indexes.valuelist import ValueList
    from geoskip.layout.specification import Hilbert, KDTree, Layout, Sort, ZOrder
    from geoskip.registry import Function, constant, declare, denotes, mappings, maps, quarantined, release
    from geoskip.sources.build_verbs import BuildReport
    from geoskip.spark.advisor.measured import indicators, workload
    from geoskip.spark.advisor.recommend import recommend
    from geoskip.spark.advisor.what_if import what_if
    from geoskip.spark.advisor.workload_log import workload_log
    from geoskip.spark.connect_server import connect_server
    from geoskip.spark.dataset.handle import Dataset, dataset
    from geoskip.spark.dataset.verify import datasets
    from geoskip.spark.dataset.write import write
    from geoskip.spark.reports import explain, last_report, reports, wait_for_audits
    from geoskip.spark.session import configure, disable, disabled, enable, is_enabled, session
    from geoskip.spark.st_functions import register_functions
    from geoskip.spark.statement_answers import sql
    from geoskip.spark.worker_archive import worker_archive
    from geoskip.stores.encryption import Encryption
    from geoskip.stores.keyring import KeyRing

__version__ = "0.1.0"
__all__ = [
    "Advice",
    "BloomFilter",
    "BuildReport",
    "Dataset",
    "Encryption",
    "File",
    "Formatted",
    "Function",
    "GapList",
    "GeoBox",
    "GeoskipError",
    "Hilbert",
    "Hybrid",
    "Index",
    "Indicators",
    "KDTree",
    "KeptFiles",
    "KeyRing",
    "Layout",
    "MappingCheck",
    "MetricDist",
    "MinMax",
    "Prefix",
    "Report",
    "Scan",
    "Sort",
    "Suffix",
    "ValueList",
    "WhatIf",
    "WhyNot",
    "Workload",
    "ZOrder",
    "build",
    "check_index",
    "check_mapping",
    "configure",
    "connect_server",
    "constant",
    "dataset",
    "datasets",
    "declare",
    "denotes",
    "disable",
    "disabled",
    "duckdb",
    "enable",
    "explain",
    "files",
    "index",
    "indicators",
    "is_enabled",
    "last_report",
    "listing",
    "mappings",
    "maps",
    "pyarrow_dataset",
    "quarantined",
    "read_geoparquet",
    "recommend",
    "register_functions",
    "release",
    "report",
    "reports",
    "scan_polars",
    "session",
    "sql",
    "statistics",
    "wait_for_audits",
    "what_if",
    "why_not",
    "worker_archive",
    "workload",
    "workload_log",
    "write",
]

_ENGINES = {
    "duckdb": "duckdb_connection",
    **dict.fromkeys(("File", "KeptFiles", "files", "listing"), "files"),
    "read_geoparquet": "geoparquet",
    "pyarrow_dataset": "pyarrow_dataset",
    "scan_polars": "polars_scan",
    "statistics": "statistics",
    "build": "build",
}
_CORE = {
    **dict.fromkeys(("Indicators", "Workload"), "advisor.indicators"),
    **dict.fromkeys(("MappingCheck", "check_index", "check_mapping"), "checking"),
    **dict.fromkeys(("Prefix", "Suffix"), "indexes.affix"),
    **dict.fromkeys(("Index", "index"), "indexes.base"),
    "BloomFilter": "indexes.bloom",
    "Formatted": "indexes.formatted",
    "GapList": "indexes.gaplist",
    "GeoBox": "indexes.geobox.index",
    "Hybrid": "indexes.hybrid",
    "MetricDist": "indexes.metricdist.index",
    "MinMax": "indexes.minmax",
    "ValueList": "indexes.valuelist",
    **dict.fromkeys(("Hilbert", "KDTree", "Layout", "Sort", "ZOrder"), "layout.specification"),
    **dict.fromkeys(("Function", "constant", "declare", "denotes", "mappings", "maps"), "registry"),
    **dict.fromkeys(("quarantined", "release"), "registry"),
    "BuildReport": "sources.build_verbs",
    "WhyNot": "diagnosis.explanation",
    "Encryption": "stores.encryption",
    "KeyRing": "stores.keyring",
}
_SPARK = {
    **dict.fromkeys(("indicators", "workload"), "advisor.measured"),
    "workload_log": "advisor.workload_log",
    **dict.fromkeys(("Dataset", "dataset"), "dataset.handle"),
    "datasets": "dataset.verify",
    "write": "dataset.write",
    **dict.fromkeys(("explain", "last_report", "reports", "wait_for_audits"), "reports"),
    **dict.fromkeys(("configure", "disable", "disabled", "enable", "is_enabled", "session"), "session"),
    "register_functions": "st_functions",
    "sql": "statement_answers",
    "worker_archive": "worker_archive",
    "connect_server": "connect_server",
    **dict.fromkeys(("WhatIf", "what_if"), "advisor.what_if"),
    **dict.fromkeys(("Advice", "recommend"), "advisor.recommend"),
}
_MODULES = {
    **_CORE,
    **{name: f"engines.{module}" for name, module in _ENGINES.items()},
    **{name: f"spark.{module}" for name, module in _SPARK.items()},
}
"""Modules of the public names, imported when a name is first asked for: a process imports what it uses."""


def _import(module: str, name: str) -> Any:
    """Import a module of geoskip for a public name; without PySpark raise MissingPackageError for that.

    Nothing below imports PySpark but ``geoskip.spark``: an environment without it has all the other names.
    """
    try:
        return import_module(f"geoskip.{module}")
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "py4j"):
            raise
        from geoskip.errors import MissingPackageError

        raise MissingPackageError(
            f"geoskip.{name} needs PySpark, which is not installed in {sys.prefix}: pip install 'geoskip[spark]' "
            "(it brings Spark itself; Java 17 or 21 comes from your system). On a cluster, run the Python that has the "
            "cluster's PySpark. geoskip.build, geoskip.files, geoskip.duckdb, geoskip.scan_polars and "
            "geoskip.pyarrow_dataset need no Spark"
        ) from None


def report(df: DataFrame) -> Report:
    """Report what a DataFrame's query read, or will read: see :func:`geoskip.spark.reports.report`.

    Of a dataset or frame that :func:`pyarrow_dataset` or :func:`scan_polars` returned, report what it leaves out.
    """
    if type(df).__module__.partition(".")[0] in ("polars", "pyarrow"):
        return import_module("geoskip.engines.scan_reports").report_of(df)  # type: ignore[no-any-return]
    found: Report = _import("spark.reports", "report").report(df)  # by hand: geoskip.report is a module too
    return found


def why_not(df: Any, file: str | None = None) -> WhyNot:
    """Explain which index serves which part of a query's conditions, and why a file is read.

    Parameters
    ----------
    df
        A DataFrame, whether or not it was run; a report, a scan of one, or what :func:`files`,
        :func:`pyarrow_dataset` or :func:`scan_polars` returned.
    file
        A file of the query: its path, its name, or a part of the path. The answer then says which clause skips it, or
        what is stored of it that each clause keeps it for.

    Raises
    ------
    InvalidSpecificationError
        For another object, and where the query has no such file or several.
    """
    found = getattr(df, "report", df)
    if isinstance(found, Scan):
        found = Report((found,))
    elif not isinstance(found, Report):
        maker = type(df).__module__.partition(".")[0]
        if maker not in ("pyspark", "polars", "pyarrow"):
            raise import_module("geoskip.errors").InvalidSpecificationError(
                "why_not() takes a DataFrame, a report, a scan of one, or what geoskip.files(), pyarrow_dataset() or "
                f"scan_polars() returned, got {df!r}"
            )
        spark = maker == "pyspark"
        found = _import("spark.advisor.bare_scans", "why_not").report_with_conditions(df) if spark else report(df)
    return import_module("geoskip.diagnosis.explanation").why_not_of(found, file)  # type: ignore[no-any-return]


_PACKAGES = (
    *("advisor", "checking", "clauses", "geometry", "indexes", "layout", "metadata", "metrics", "predicates"),
    *("registry", "stores", "types"),
)
"""Modules that are there without being imported by their own names."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(_import(_MODULES[name], name), name)
    if name in _PACKAGES:
        return import_module(f"geoskip.{name}")
    raise AttributeError(f"module 'geoskip' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
