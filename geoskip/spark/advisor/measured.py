"""Indicators measured by running the filters of a query's scans, with rows counted file by file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from geoskip.advisor.indicators import Extent, Indicators, ScanIndicators, Workload
from geoskip.errors import InvalidSpecificationError, MetadataError
from geoskip.sources.listed_files import FileListing, ListedFile, absolute_uri, is_below
from geoskip.spark.advisor.scan_conditions import PlannedScan, ScanCondition, conditions_of
from geoskip.spark.advisor.workload_log import logged_conditions
from geoskip.spark.build.spark_jobs import explain_errors
from geoskip.spark.build.spark_reader import with_path
from geoskip.spark.session import known, switched


def indicators(query: DataFrame | str, *, spark: SparkSession | None = None) -> Indicators:
    """Run the filters of a query and return the paper's indicators, scan by scan.

    For each scan, only the conditions on that relation are run, including those on partitions, before any join, and
    with geoskip on (even if it is off in the session). Row counts of files without a match come from the metadata, or
    else Spark counts them. Reports do not include the queries that are run for this.

    Parameters
    ----------
    query
        A DataFrame, or the SQL text of a query.
    spark
        The session for an SQL text; by default the active one.

    Returns
    -------
    Indicators
        A sequence with one item for each scan in which files can be skipped, and with their sums: ``sigma``,
        ``lambda_``, ``mu`` and ``psi`` as fractions, None if the paper does not define them.

    Raises
    ------
    InvalidSpecificationError
        For a command, a stream, a query that Spark cannot plan, and anything that is not a query.
    GeoskipError
        If Spark cannot run the filters, such as for a damaged file.
    """
    session = _session(query, spark)
    scans = conditions_of(session, query)
    return Indicators(tuple(map(measure, scans)), query if isinstance(query, str) else "")


def workload(queries: Iterable[DataFrame | str] | None = None, *, spark: SparkSession | None = None) -> Workload:
    """Run the filters of several queries and return their indicators with the geometric means.

    Parameters
    ----------
    queries
        DataFrames, or SQL texts of queries. By default the conditions that the session recorded while
        ``spark.geoskip.workload`` was ``literals``, each once.
    spark
        The session for SQL texts and recorded conditions; by default the active one.

    Returns
    -------
    Workload
        A sequence with the :class:`~geoskip.advisor.indicators.Indicators` of each query, and means over those for
        which they are defined.

    Raises
    ------
    InvalidSpecificationError
        As for :func:`indicators`, before any query is run; and if the session has recorded no queries, or no literals.
    """
    if queries is None:
        seen = logged_conditions(_session("workload()", spark))
        return Workload(tuple(Indicators((measure(logged.scan),), logged.scan.condition) for logged in seen))
    if isinstance(queries, str | DataFrame) or not isinstance(queries, Iterable):
        raise InvalidSpecificationError(
            f"workload() takes several queries, got {queries!r}: put one in a list, or see geoskip.indicators"
        )
    asked = list(queries)
    planned = [conditions_of(_session(query, spark), query) for query in asked]
    return Workload(
        tuple(
            Indicators(tuple(map(measure, scans)), query if isinstance(query, str) else "")
            for query, scans in zip(asked, planned, strict=True)
        )
    )


def _session(query: object, spark: SparkSession | None) -> SparkSession:
    if isinstance(query, DataFrame):
        return query.sparkSession
    found = spark or SparkSession.getActiveSession()
    if found is None:
        raise InvalidSpecificationError(
            f"a text needs a session to be understood in, got none with {query!r}: pass spark=, or a DataFrame"
        )
    return found


def measure(scan: ScanCondition) -> ScanIndicators:
    """Run the conditions of a scan, count rows, and return its indicators.

    Conditions over subqueries and nondeterministic ones, which do not depend only on the row, are left out with a note.
    """
    if scan.planned is None:
        raise InvalidSpecificationError(f"the scan of {scan.root} cannot be run again: its plan is not held any more")
    listed = FileListing(scan.planned.scan.listing())
    files = {file.uri: file for file in listed}
    with explain_errors(f"the matching rows of {scan.root} cannot be counted"):
        with switched(scan.planned.spark, "true"):
            by_file, read = _matching_rows(scan.planned, files)
        rows = _rows(scan, scan.planned, files)
    notes = [
        f"not counted among the scan's conditions: {text}, which depends on more than the row's values"
        for text in scan.unsettled
    ]

    def extent(paths: Iterable[str]) -> Extent:
        chosen = list(paths)
        return Extent(len(chosen), sum(rows[path] for path in chosen), sum(files[path].size for path in chosen))

    return ScanIndicators(
        scan.root,
        scan.condition,
        sum(by_file.values()),
        extent(by_file),
        extent(read),
        extent(files),
        tuple(dict.fromkeys(notes)),
    )


def _matching_rows(planned: PlannedScan, files: Mapping[str, Any]) -> tuple[dict[str, int], list[str]]:
    """Number of matching rows of each file that has some, and the files that were read to find them."""
    counted = _by_file(DataFrame(planned.scan.matching(), planned.spark))
    planned.java.leaveOut(counted._jdf)
    rows = counted.collect()
    scans = planned.java.facts(counted._jdf.queryExecution()).scans()
    read = [path for number in range(scans.size()) for path in scans.get(number).paths(True).split("\0") if path]
    return _decode_paths({row[0]: int(row[1]) for row in rows}, files), read


def _by_file(frame: DataFrame) -> DataFrame:
    rows, path = with_path(frame)
    return rows.groupBy(path.alias("path")).count()


def _decode_paths(counts: Mapping[str, int], files: Mapping[str, Any]) -> dict[str, int]:
    """Counts by the paths of a listing; newer versions of Spark percent-encode the file names."""
    plain = {unquote(path): count for path, count in counts.items()}
    return plain if len(plain) == len(counts) and plain.keys() <= files.keys() else dict(counts)


def _rows(scan: ScanCondition, planned: PlannedScan, files: Mapping[str, ListedFile]) -> dict[str, int]:
    """Number of rows of every file: from the metadata of unchanged files, else counted by Spark."""
    found: dict[str, int] = {}
    roots = sorted(scan.roots)  # a file below two roots is read twice, and its rows count twice
    twice = any(is_below(root, roots[:place]) for place, root in enumerate(roots))
    for root in () if twice else scan.datasets:
        found |= _rows_known(root, files)
    unknown = [f"{file.size} {file.mtime} {path}" for path, file in files.items() if path not in found]
    if unknown:
        counted = _by_file(DataFrame(planned.scan.rows("\n".join(unknown)), planned.spark))
        planned.java.leaveOut(counted._jdf)
        found |= _decode_paths({row[0]: int(row[1]) for row in counted.collect()}, files)
    return {path: found.get(path, 0) for path in files}  # a file without rows has no group


def _rows_known(root: str, files: Mapping[str, ListedFile]) -> dict[str, int]:
    """Number of rows of the files that are unchanged in the metadata of a dataset."""
    try:
        snapshot = known.snapshot(root)
    except MetadataError:
        return {}
    if snapshot is None:
        return {}
    columns = (snapshot.files.column(name).to_pylist() for name in ("path", "size", "mtime", "rows"))
    found = {}
    for name, size, time, rows in zip(*columns, strict=True):
        path = absolute_uri(name, root)
        file = files.get(path)
        if rows is not None and file is not None and (file.size, file.mtime) == (size, time):
            found[path] = rows
    return found
