"""Scans of a query with the conditions that the planner would get, determined without running it.

Spark optimizes the query's plan in the session, with geoskip's rule (``jvm/GeoskipRule.java``) in a mode in which it
only records the scans that it would decide on (``jvm/PlannedScan.java``). So conditions are pushed through projections,
joins and subqueries exactly as for a query that is run; dynamic filters, with values known only at run time, are not
included. Reports and caches of decisions are not affected, no metadata are needed, and geoskip may be switched off. A
scan of cached data counts as a scan of the files from which these were read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from geoskip.clauses import Mask
from geoskip.errors import InvalidSpecificationError
from geoskip.indexes.base import Index
from geoskip.metadata import Snapshot
from geoskip.planner import decide
from geoskip.predicates import And, Predicate
from geoskip.report import shorten
from geoskip.sources.dependencies import renamer
from geoskip.sources.listed_files import absolute_uri, is_below
from geoskip.spark.analysis import sentence, without_error_log
from geoskip.spark.rule.evaluator import Answers, SparkEvaluator
from geoskip.spark.rule.translate import Translator, parts_of
from geoskip.spark.session import with_rule

_LONGEST = 200
_BUDGET = 10.0
"""Time limit in seconds for evaluating conditions for single values, for each scan and set of indexes."""


@dataclass(frozen=True)
class PlannedScan:
    """A scan on the Java side, with Spark's own expressions."""

    java: Any
    scan: Any
    spark: SparkSession

    @contextmanager
    def holding_conditions(self) -> Iterator[int]:
        """Context in which the conditions can be evaluated, under a number."""
        number = int(self.scan.hold())
        try:
            yield number
        finally:
            self.java.release(number)


@dataclass(frozen=True, eq=False)
class ScanCondition:
    """A scan over files in the plan of a query, with the conditions that are pushed down to it."""

    roots: tuple[str, ...]
    """The URIs that the relation was read from."""
    condition: str
    """The condition in Spark's SQL, over the relation's columns; empty if there is none."""
    files: int
    """Number of files of the whole listing, before Spark's partition pruning."""
    bytes: int
    """Total size of these files."""
    request: Mapping[str, Any] = field(repr=False)
    """The rule's request: conditions, vectors of partition values, format, options and settings."""
    folders: Mapping[str, int] = field(repr=False)
    """For each partition's folder that Spark does not prune, the position of its vector in ``predicates_over``.

    Empty if the relation has no partition columns; -1 beyond the first thousand vectors.
    """
    planned: PlannedScan | None = field(default=None, repr=False)
    """The scan on the Java side, with which Spark evaluates conditions for single values; None without it."""
    unsettled: tuple[str, ...] = ()
    """Conjuncts that do not depend only on the row's values: over a subquery, or not deterministic."""
    datasets: tuple[str, ...] = ()
    """The roots of the datasets with metadata from which the scan reads."""
    _answers: Answers = field(default_factory=dict, repr=False)

    @property
    def root(self) -> str:
        """The first root."""
        return self.roots[0] if self.roots else ""

    @cached_property
    def predicate(self) -> Predicate:
        """The condition as the planner gets it, including partition columns; an empty AND if there is none."""
        return self.predicates_over()[0] if len(self.vectors) == 1 else self._predicate((), _identity)

    @property
    def vectors(self) -> Sequence[Sequence[Mapping[str, Any] | None]]:
        """The distinct vectors of values of the expressions over partition columns."""
        found: Sequence[Sequence[Mapping[str, Any] | None]] = self.request["vectors"]
        return found

    def predicates_over(self, snapshot: Snapshot | None = None) -> tuple[Predicate, ...]:
        """The condition for each vector of partition values, which Spark has evaluated.

        With a snapshot its columns are named as there; the case of names may differ from the query's.
        """
        names = _identity if snapshot is None else renamer(snapshot.header, self.request)
        return tuple(self._predicate(slots, names) for slots in self.vectors)

    def place_of(self, path: str) -> int | None:
        """The position of a file's vector in ``predicates_over``; None if Spark's pruning skips the file.

        Parameters
        ----------
        path
            The whole path of the file in Spark's form.

        Returns
        -------
        int | None
            -1 if the vector is beyond the limit: then the file is read.
        """
        return self.folders.get(path.rpartition("/")[0]) if self.folders else 0

    def keep_mask(self, snapshot: Snapshot, indexes: Sequence[Index] | None = None) -> Mask:
        """The files of a snapshot that the query would read with some of its bound indexes.

        The decision is that of the planner for a query, with all rules and mappings. It is not checked if an index was
        built with other settings or reader options.

        Parameters
        ----------
        snapshot
            Summaries of all files of the dataset, or of a sample.
        indexes
            The indexes that may be used; all of the snapshot's by default.

        Returns
        -------
        Mask
            One value for each file: False if it is skipped, by an index or by Spark's partition pruning.
        """
        places = self.places(snapshot)
        kept: Mask = places == -1
        with self.deciding_files(snapshot) as decide_part:
            for place, predicate in enumerate(self.predicates_over(snapshot)):
                if (of_place := places == place).any():
                    kept |= of_place & decide_part(place, predicate, indexes)
        return kept

    def in_scope(self, snapshot: Snapshot, roots: Sequence[str]) -> Mask:
        """The files of the scan's relation that are not excluded by conditions on partitions.

        ``roots`` are those of the snapshot's dataset; its paths are URIs.
        """
        found = np.ones(len(snapshot.files), dtype=bool)
        if list(self.roots) != list(roots):
            found = np.array([is_below(uri, self.roots) for uri in snapshot.files.paths()], dtype=bool)
        return found & self.keep_mask(snapshot, ()) if self.folders and found.any() else found

    @contextmanager
    def deciding_files(self, snapshot: Snapshot) -> Iterator[Callable[[int, Predicate, Sequence[Index] | None], Mask]]:
        """Context with a function that decides on the files for one part of the query's conditions.

        The function takes the position of a vector of partition values, the condition and the bound indexes that may be
        used (None for all), and returns the mask of the kept files, as the planner does for a query.
        """
        evaluators: dict[int, SparkEvaluator | None] = {}
        with nullcontext(None) if self.planned is None else self.planned.holding_conditions() as number:

            def decide_part(place: int, condition: Predicate, indexes: Sequence[Index] | None) -> Mask:
                if place not in evaluators:
                    evaluators[place] = self._evaluator(snapshot, number, self.vectors[place])
                if (evaluator := evaluators[place]) is not None:
                    evaluator.deadline = time.monotonic() + _BUDGET
                return decide(snapshot, condition, indexes, evaluator=evaluator).keep

            yield decide_part

    def places(self, snapshot: Snapshot) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The position of each file's vector, -1 for unknown ones, -2 for files that Spark's pruning skips."""
        if not self.folders:
            return np.zeros(len(snapshot.files), dtype=np.int64)
        root = snapshot.header.root
        found = (self.place_of(absolute_uri(path, root)) for path in snapshot.files.paths())
        return np.array([-2 if place is None else place for place in found], dtype=np.int64)

    def _evaluator(
        self, snapshot: Snapshot, number: int | None, slots: Sequence[Mapping[str, Any] | None]
    ) -> SparkEvaluator | None:
        if self.planned is None or number is None:
            return None
        return SparkEvaluator(
            self.planned.java,
            {**self.request, "number": number},
            slots=slots,
            names=renamer(snapshot.header, self.request),
            deadline=time.monotonic() + _BUDGET,
            answers=self._answers,
        )

    def _predicate(self, slots: Sequence[Mapping[str, Any] | None], names: Callable[[str], str]) -> Predicate:
        parts = tuple(parts_of(self.request["conditions"], Translator(slots=slots, names=names), []))
        return parts[0] if len(parts) == 1 else And(parts)


def conditions_of(spark: SparkSession, query: str | DataFrame) -> list[ScanCondition]:
    """The scans over files of a query and their conditions; the query is planned, but not run.

    Parameters
    ----------
    spark
        A classic session for a SQL text. A DataFrame is planned in its own session.
    query
        The text of a query in SQL, or a DataFrame.

    Returns
    -------
    list[ScanCondition]
        The scans with files that geoskip could skip, in the plan's order, including both sides of joins, subqueries,
        and scans without a condition.

    Raises
    ------
    InvalidSpecificationError
        For a command, which would have to be run, for a stream, and for anything that is not a query or that Spark
        cannot plan.
    """
    session = query.sparkSession if isinstance(query, DataFrame) else spark
    side = with_rule(session)
    scans = _scans(side, session, query)
    return [condition_of(PlannedScan(side, scans.get(number), session)) for number in range(scans.size())]


def condition_of(planned: PlannedScan) -> ScanCondition:
    """The condition of a scan that the Java side has planned."""
    summary = json.loads(planned.scan.summary())
    asked, _, environment = summary["question"].partition("\n")
    request = {**json.loads(environment), **json.loads(asked), "environment": environment}
    return ScanCondition(
        tuple(summary["roots"]),
        summary["condition"],
        summary["files"],
        summary["bytes"],
        request,
        summary["folders"],
        planned,
        tuple(summary["unsettled"]),
        tuple(summary["datasets"]),
    )


def _scans(geoskip: Any, session: SparkSession, query: str | DataFrame) -> Any:
    """The scans on the Java side, as a Java list."""
    if not isinstance(query, str | DataFrame):
        raise InvalidSpecificationError(
            f"a query is a text in SQL or a DataFrame, got {query!r} of type {type(query).__name__}"
        )
    shown = shorten(query, _LONGEST) if isinstance(query, str) else "the DataFrame"
    if isinstance(query, DataFrame) and query.isStreaming:
        raise InvalidSpecificationError(
            "a query is over files that are there, got a stream; read the same files with spark.read"
        )
    try:
        with without_error_log():
            found = (
                geoskip.scansOf(query, session._jsparkSession)
                if isinstance(query, str)
                else geoskip.scansOf(query._jdf)
            )
    except (PySparkException, Py4JJavaError) as error:
        raise InvalidSpecificationError(
            f"Spark cannot plan the query {shown}: {sentence(error)}; a query is a text that spark.sql takes in "
            "this session, or a DataFrame"
        ) from None
    if found is None:
        raise InvalidSpecificationError(
            f"a query only reads, got the command {shown}, which would have to be run; give the SELECT in it"
        )
    return found


def _identity(name: str) -> str:
    return name
