"""The build: one Spark job for all files and all indexes.

There are four readers. Python tasks open local Parquet files and use their footers and Arrow
(:mod:`geoskip.sources.arrow_reader`). Spark's own reader with ``mapInArrow`` is used for everything else: other
formats, geometries, other file systems, and files with values that Arrow would read differently. Expressions over one
column are evaluated by Spark for the values that Arrow has read (:mod:`geoskip.spark.build.distinct_values`); other
expressions need Spark's reader, which then collects all indexes. If the workers of a cluster lack packages for Python
tasks, Spark's aggregates are used for the indexes that they can collect (:mod:`geoskip.spark.build.sql_reader`).

Some indexes first choose their parameters (:mod:`geoskip.sources.sampled_values`) from a sample, which is read by a
separate job, or by the driver if the files are small local Parquet files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa

from geoskip.errors import EnvironmentProblem
from geoskip.indexes.base import Index
from geoskip.metadata import IndexEntry
from geoskip.predicates import Call, walk
from geoskip.sources.arrow_reader import SPARK, FileResult
from geoskip.sources.bound_indexes import FileRelation
from geoskip.sources.built_rows import BuiltRows, build_rows
from geoskip.sources.dependencies import ID_OF
from geoskip.sources.footers import IndexPlan
from geoskip.sources.listed_files import ListedFile
from geoskip.sources.sampled_values import prepare_entries
from geoskip.sources.settings import PARQUET
from geoskip.sources.worker_tasks import tasks_of
from geoskip.spark.analysis import arrow_type, columns_for
from geoskip.spark.build.distinct_values import compute_expressions, expression_plan
from geoskip.spark.build.listing import SourceState
from geoskip.spark.build.spark_reader import read_through_arrow, read_through_spark
from geoskip.spark.build.sql_reader import needs_no_python, read_through_aggregates
from geoskip.spark.workers import is_cluster, packages_of, packages_of_function, worker_python
from geoskip.stores.log_files import local_path

_PARQUET = (PARQUET, "org.apache.spark.sql.delta.DeltaParquetFileFormat")


def build(
    state: SourceState, entries: Sequence[IndexEntry], files: Sequence[ListedFile], *, in_driver: bool = False
) -> BuiltRows:
    """Summaries of some files of a dataset; raises GeoskipError if an index fails on all of them.

    Parameters
    ----------
    state
        The dataset.
    entries
        The indexes to collect for each file.
    files
        The files to read.
    in_driver
        Read the files that Python tasks would open in the driver, without a job.
    """
    reads = partial(read_summaries, state, entries, in_driver=in_driver)
    relist = None if state.relation.table else state.relist
    return build_rows(state.relation.root, entries, files, reads, relist)


def read_summaries(
    state: SourceState, entries: Sequence[IndexEntry], files: Sequence[ListedFile], *, in_driver: bool = False
) -> dict[str, FileResult]:
    """Summaries of files by their URIs; Spark's reader reads the files that the other readers declined.

    Parameters
    ----------
    state, entries, files
        The dataset, the indexes to collect for each file, and the files to read.
    in_driver
        Read the files that Python tasks would open in the driver, without a job.
    """
    summarised: list[FileResult] = []
    if not in_driver and not check_workers(state, entries):
        return {each.path: each for each in read_through_aggregates(state, entries, files)}
    plans = _plans(state.relation, entries, files)
    sensitive = state.relation.is_case_sensitive
    if plans is not None and files and len(plans) == len(entries):
        summarised += read_through_arrow(state.spark, plans, files, case_sensitive=sensitive, in_driver=in_driver)
    elif (
        plans is not None
        and files
        and not state.relation.names  # else columns have other names in the files than in the texts
        and (plan := expression_plan(state.frame, entries, plans, files)) is not None
    ):
        summarised += compute_expressions(state, plan, files, case_sensitive=sensitive) or []
    results = {each.path: each for each in summarised}
    left = [file for file in files if file.uri not in results or results[file.uri].problem == SPARK]
    if left:
        declined = read_through_spark(state, entries, left)
        results |= {each.path: each for each in declined}
    return results


def check_workers(state: SourceState, entries: Sequence[IndexEntry]) -> bool:
    """Test whether the workers can run the tasks of a build; always True in local mode.

    If they cannot, Spark's aggregates collect the indexes instead.

    Raises
    ------
    EnvironmentProblem
        If aggregates cannot collect an index; the message lists these indexes and the missing packages.
    """
    if not is_cluster(state.spark):
        return True
    needed = {entry.name: packages_of(tasks_of(entry.index)) | _packages_of_functions(entry) for entry in entries}
    every: set[str] = set().union(*needed.values())
    there = worker_python(state.spark, every)
    if there.lack_of(every) is None:
        return True
    lacking = [entry for entry in entries if there.lack_of(needed[entry.name])]
    refused = [entry.name for entry in lacking if not needs_no_python(entry.index)]
    if refused:
        packages = set().union(*(needed[name] for name in refused))
        why = f"{there.lack_of(packages)}{there.advice(packages)}"
        raise EnvironmentProblem(
            f"{', '.join(refused)} cannot be built on this cluster: {why}. Without them geoskip "
            "builds minmax(...) and valuelist(...) over columns and SQL expressions"
        )
    return False


def _packages_of_functions(entry: IndexEntry) -> set[str]:
    calls = [vertex for bound in entry.index.bound for vertex in walk(bound) if isinstance(vertex, Call)]
    return set().union(*(packages_of_function(call.implementation or "", call.flags) for call in calls))


def needs_job(state: SourceState, entries: Sequence[IndexEntry], files: Sequence[ListedFile]) -> bool:
    """True unless the driver can open the files itself and collect the summaries of all these indexes."""
    plans = _plans(state.relation, entries, files)
    return plans is None or len(plans) < len(entries)


def _plans(
    relation: FileRelation, entries: Sequence[IndexEntry], files: Sequence[ListedFile]
) -> list[IndexPlan] | None:
    """Plans of the indexes over columns for Python tasks; None if the tasks cannot open the files."""
    by_id = relation.by_id or any(name.startswith(ID_OF) for name in relation.settings)
    if relation.file_format not in _PARQUET or by_id or not all(local_path(file.uri) for file in files):
        return None
    return [plan for entry in entries if (plan := IndexPlan.of(entry.index)) is not None]


def choose_parameters(state: SourceState, entries: Sequence[IndexEntry]) -> list[IndexEntry]:
    """The entries of a build, with indexes that have chosen their parameters."""
    check_workers(state, entries)

    def reads(
        samples: Sequence[IndexEntry], files: Sequence[ListedFile], *, in_process: bool
    ) -> Mapping[str, FileResult]:
        return read_summaries(state, samples, files, in_driver=in_process)

    def types(index: Index) -> list[pa.DataType]:
        fields = state.frame.select(*columns_for(state.frame, state.relation.texts_of(index))).schema.fields
        return [arrow_type(field) for field in fields]

    return prepare_entries(entries, list(state.files), reads, types)
