"""geoskip: data skipping for Apache Spark, without a change to query, data or layout.

>>> import geoskip
>>> str(geoskip.MinMax("temp"))
'minmax(temp)'

Modules are imported at the first use of a name, so that the core works without Spark and imports quickly.

Architecture
------------
Imports point downwards only; import-linter checks it.

* ``predicates``, ``types``, ``clauses``: the condition of a query as a tree, Spark's types, and boolean conditions on
  the metadata of one file. ``geometry``, ``metrics`` and ``evaluation`` handle shapes, distances and single values.
* ``conditions``: comparisons in clauses as data, which numpy evaluates, and which are printed and translated for search
  servers and Arrow.
* ``registry``: declarations about functions, bound to implementations; ``fingerprint`` identifies functions.
* ``bounds``, ``rewrite``, ``indexes``: intervals of expressions in every file, rules that rewrite conditions, and the
  index types with their summaries and clauses.
* ``rules``, ``planner``: guarded calls of indexes and mappings, clauses for each vertex of the tree, and the decision
  on the files to keep.
* ``metadata``, ``stores``, ``lifecycle``: the table of files with its header, the storage of snapshots, and the
  operations that change them under concurrent writers.
* ``layout``: orders of rows in files that let queries skip more files: ranks of columns, keys and file cuts fitted to a
  sample, and measures of clustering.
* ``advisor``: the paper's indicators, estimates with intervals from a sample, candidate indexes from conditions, and
  their selection within a budget.
* ``sources``: files without Spark: listings and fingerprints, readers of Parquet and its footers, and the conditions
  under which summaries hold.
* ``engines``: the same metadata without Spark: conditions from SQL text, Arrow and polars, builds, and readers for
  DuckDB, polars, pyarrow and GeoPandas over the kept files.
* ``statements``: the grammar of SQL statements on indexes, such as ``CREATE SKIPPING INDEX``.
* ``rendering``, ``report``, ``diagnosis``, ``plotting``, ``checking``, ``cli``: tables as text and HTML, reports,
  explanations of kept files, maps, the search for wrong mappings, the command line.
* ``spark``: the only package that imports PySpark. ``spark.rule`` connects the optimizer rule (``spark/jvm``, Java that
  Janino compiles in the driver) with the planner, ``spark.build`` collects summaries, ``spark.dataset`` is the handle,
  ``spark.dataset.write`` and ``rewrite_files`` write data in a layout, ``spark.advisor`` plans queries without running
  them, samples files and rows, and applies the planner to these samples.
* ``udf_mappings``, beside this package: mappings of function libraries, found by entry point.

Modules that a query passes through, ``SELECT * FROM t WHERE city > 'D'``::

    spark/jvm/GeoskipRule.java      the optimizer rule finds a filter over files and sends it as JSON
    spark/rule/bridge.py            handles the request: one decision for each dataset and partition
    spark/catalog.py                finds the dataset's store and its latest snapshot
    stores/parquet.py               reads the log; columns of the snapshot are read when needed
    spark/rule/translate.py         translates Catalyst's expression to a predicate
    sources/dependencies.py         excludes indexes that were built under other settings
    planner.py                      builds a clause for each vertex, merges them, evaluates the result for all files
    rewrite/__init__.py             rewrites conditions into forms that indexes support
    indexes/minmax.py               returns the clause for one vertex: max(city) > 'D'
    conditions.py                   compares the literal with a column of the index's units
    bounds/interval.py              the bounds of all files, as keys with the order of Spark's values
    spark/jvm/GeoskipFileIndex.java drops the skipped files from the listing

Modules that a build passes through, ``geoskip.dataset(spark, path).create_index(MinMax("city"))``::

    spark/dataset/handle.py         the methods of a dataset
    spark/dataset/create_refresh.py the operations that read data
    spark/dataset/source.py         the files of the handle, as Spark lists them
    spark/analysis.py               the indexed expressions, as Spark resolves them
    sources/dependencies.py         the settings under which the summaries are valid
    sources/build_verbs.py          the steps of every engine: compare with the log, read, commit, report
    spark/build/job.py              one Spark job for all files and all indexes
    sources/sampled_values.py       parameters of indexes from a sample
    lifecycle/refresh.py            compares snapshot and listing, and merges new summaries into the snapshot
    lifecycle/transaction.py        one operation: an entry in the log, attempts, a commit
    sources/built_rows.py           rows of the file table, with fingerprints taken before and compared after
    metadata/file_table.py          the table with a row for each file and a column for each index
    stores/part_files.py            writes it as a part of the next snapshot

Modules that a build without Spark passes through, ``geoskip.build(path, MinMax("place.city"))``::

    engines/build.py                the operations, and the threads that read files
    engines/parquet_dataset.py      paths, files, partitions and columns, as Spark finds them
    engines/folder_listing.py       the files of a folder with their fingerprints
    sources/parquet_schema.py       columns of Parquet files, as Spark names their types
    sources/dependencies.py         how the files are read, and the settings under which the summaries are valid
    engines/index_texts.py          the indexed expressions that need no Spark
    sources/build_verbs.py          the steps of every engine, as above
    sources/built_rows.py           rows of the file table
    engines/parquet_values.py       values that Arrow reads differently from Spark, and Python functions
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from geoskip.errors import GeoskipError
from geoskip.report import Report, Scan  # imported early: a later import of the module would hide the function

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
"""The module of each public name, imported at the first use of the name."""


def _import(module: str, name: str) -> Any:
    """Import a module of geoskip for a public name; without PySpark raise MissingPackageError for that.

    Only ``geoskip.spark`` imports PySpark: all other names are available without it.
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
    """Report the files that a DataFrame's query reads; see :func:`geoskip.spark.reports.report`.

    For a dataset or frame from :func:`pyarrow_dataset` or :func:`scan_polars`, report the skipped files.
    """
    if type(df).__module__.partition(".")[0] in ("polars", "pyarrow"):
        return import_module("geoskip.engines.scan_reports").report_of(df)  # type: ignore[no-any-return]
    found: Report = _import("spark.reports", "report").report(df)  # annotated, since geoskip.report is a module too
    return found


def why_not(df: Any, file: str | None = None) -> WhyNot:
    """Explain which index supports which part of a query's conditions, and why a file is read.

    Parameters
    ----------
    df
        A DataFrame before or after it was run, a report, one of its scans, or a result of :func:`files`,
        :func:`pyarrow_dataset` or :func:`scan_polars`.
    file
        A file of the query: its path, its name, or a part of the path. The result then shows which clause skips it, or
        the stored values for which each clause keeps it.

    Raises
    ------
    InvalidSpecificationError
        For another object, and if no file or several files of the query match ``file``.
    """
    maker = type(df).__module__.partition(".")[0]
    found = df if maker == "pyspark" else getattr(df, "report", df)
    if isinstance(found, Scan):
        found = Report((found,))
    elif not isinstance(found, Report):
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
"""Subpackages available as attributes without an import statement of their own."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(_import(_MODULES[name], name), name)
    if name in _PACKAGES:
        return import_module(f"geoskip.{name}")
    raise AttributeError(f"module 'geoskip' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
