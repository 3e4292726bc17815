"""Candidates to check, and synthetic files with their metadata.

A candidate is a mapping, or a function's declared properties, with the indexes that it uses.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.checking import CounterExample, Effect, MappingCheck, UnquotedText
from geoskip.checking.function import FunctionResults, FunctionUnderTest
from geoskip.checking.strategies import physical_value
from geoskip.clauses import KEEP_ALL, Clause, Mask, keep_mask
from geoskip.errors import GeoskipError, InvalidSpecificationError
from geoskip.evaluation import outcomes
from geoskip.evaluation.values import IS_TRUE, CandidateValues, physical
from geoskip.indexes.base import Index, SourceColumn, Summary, index_kinds
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.metricdist.index import MetricDist
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.valuelist import ValueList
from geoskip.metadata import FileMetadata
from geoskip.planner import Labeller
from geoskip.predicates import Call, Column, IsNull, Not, Predicate
from geoskip.registry import FunctionProperties, Registry, current
from geoskip.registry import Mapping as Rule
from geoskip.rules import calls_of

# ---- synthetic files

_PAIRS, _GROUPS = 40, 60


@dataclass(frozen=True)
class IndexedExpression:
    """An expression that an index may be built over: its text, predicate, Spark type and values."""

    text: str
    predicate: Predicate
    kind: str
    values: pa.Array


def expressions_of(subject: FunctionUnderTest, rows: Mapping[str, list[Any]]) -> list[IndexedExpression]:
    """The arguments of a function as expressions for indexes."""
    return [
        IndexedExpression(name, column, column.type or "", pa.array(rows[name], subject.arguments[name].arrow))
        for name, column in subject.columns().items()
    ]


class SyntheticFiles:
    """Files formed from rows: single rows, pairs, groups of neighbouring values, random groups."""

    def __init__(self, expressions: Sequence[IndexedExpression]) -> None:
        self.expressions = {expression.text: expression for expression in expressions}
        length = len(expressions[0].values)
        self.files = list(_files(expressions, length))
        self.members = np.zeros((len(self.files), length), dtype=bool)
        for number, rows in enumerate(self.files):
            self.members[number, rows] = True
        self._metadata: dict[tuple[str, ...], FileMetadata] = {}

    def metadata(self, indexes: Sequence[Index]) -> FileMetadata:
        """The metadata of the files for some indexes, computed on the first call."""
        key = tuple(map(repr, indexes))
        if key not in self._metadata:
            self._metadata[key] = metadata_of(indexes, self.expressions, self.files)
        return self._metadata[key]

    def summaries(self, indexes: Sequence[Index], number: int) -> dict[str, Any]:
        """The metadata of one file, by index."""
        metadata = self.metadata(indexes)
        return {str(index): metadata.column(str(index))[number].as_py() for index in indexes}


def metadata_of(
    indexes: Sequence[Index], expressions: Mapping[str, IndexedExpression], files: Sequence[Sequence[int]]
) -> FileMetadata:
    """Metadata of files given by row numbers; some summaries are merged or come from statistics."""
    table: dict[str, pa.Array] = {"file": pa.array(range(len(files)))}
    for index in indexes:
        over = [expressions[text] for text in index.expressions()]
        stored = _metadata_type(index, over)
        summaries = []
        try:
            for number, rows in enumerate(files):
                columns = [e.values.take(pa.array(rows, pa.int64())) for e in over]
                summaries.append(_summary_of(index, over[0].kind, columns, number))
            table[str(index)] = pa.array(summaries, stored)
        except Exception as error:
            raise InvalidSpecificationError(
                f"{index} cannot summarise the values of files: {type(error).__name__}: {error}"
            ) from error
    return FileMetadata.of(pa.table(table))


def _summary_of(index: Index, kind: str, columns: Sequence[pa.Array], number: int) -> Summary | None:
    """The summary of a file: from statistics for every third file if possible, else for some in two parts."""
    if number % 3 == 2 and len(columns) == 1:
        summary = _summary_of_statistics(index, kind, columns[0])
        if summary is not None:
            return index.for_files([summary], [10**9])[0]
    half = len(columns[0]) // 2 if number % 2 else 0
    parts = [[each[:half] for each in columns], [each[half:] for each in columns]] if half else [columns]
    collected = [index.collect(*part) for part in parts]
    known = [summary for summary in collected if summary is not None]
    merged = None if len(known) < len(parts) else known[0] if len(known) == 1 else index.merge(known)
    return None if merged is None else index.for_files([merged], [number % 2 * 10**9])[0]


def _summary_of_statistics(index: Index, kind: str, column: pa.Array) -> Summary | None:
    """The summary of a row group with these values, from its Parquet statistics, which ignore NaN."""
    values = [value for value in column.to_pylist() if value is not None and value == value]
    low, high = (physical_value(end) for end in ((min(values), max(values)) if values else (None, None)))
    if isinstance(low, str):  # physical values of text are bytes
        low, high = low.encode(), high.encode()
    return index.from_statistics(kind, low, high, column.null_count, len(column))


def source_columns(kind: type[Index], over: Iterable[tuple[str, str, pa.DataType]]) -> list[SourceColumn]:
    """Columns of an index by text, Spark's type and Arrow's; for GeoBox binary columns are geometries."""
    is_spatial = issubclass(kind, GeoBox)
    return [
        SourceColumn(text, "geometry" if is_spatial and name == "binary" else name, arrow) for text, name, arrow in over
    ]


def _metadata_type(index: Index, over: Sequence[IndexedExpression]) -> pa.DataType:
    """Type of an index's summaries; raises GeoskipError for unsupported expressions."""
    return index.metadata_type(*source_columns(type(index), [(e.text, e.kind, e.values.type) for e in over]))


def _files(expressions: Sequence[IndexedExpression], length: int) -> Iterator[list[int]]:
    chance, everything = random.Random(length), list(range(length))
    yield from ([row] for row in everything)
    nulls = [row for row in everything if any(not e.values[row].is_valid for e in expressions)] or everything
    for _ in range(min(_PAIRS, length * (length - 1))):
        yield [chance.choice(everything), chance.choice(nulls)]
    for expression in expressions:
        values = expression.values.to_pylist()
        ordered = sorted(everything, key=lambda row: _sort_key(values[row]))
        for size in (3, 8):
            starts = range(0, length - size + 1, max(1, length * size // _GROUPS))
            yield from (ordered[start : start + size] for start in starts)
    for _ in range(_GROUPS // 3 if length > 2 else 0):
        yield chance.sample(everything, min(length, chance.randint(2, 6)))


def _sort_key(value: Any) -> tuple[bool, bool, Any]:
    """A total order of values of one type: NaN after numbers, NULL last."""
    unordered = value is None or value != value
    return value is None, unordered, "" if unordered and isinstance(value, str) else 0 if unordered else value


# ---- indexes

_SIMPLE = ("minmax", "valuelist", "gaplist", "prefix", "suffix")
"""The indexes to try for a mapping of an abstract index type."""
_SMALL: dict[str, tuple[int, ...]] = {"length": (1, 3), "boxes": (1,), "limit": (2,), "gaps": (1,), "origins": (2,)}
"""Small parameters, which lose more information than the defaults."""
_METRICS = {
    ("string",): ("levenshtein", "hamming"),
    ("bigint",): ("euclidean", "hamming"),
    ("double",): ("euclidean",),
    ("double", "double"): ("euclidean", "manhattan", "chebyshev", "haversine"),
    ("array<string>",): ("jaccard",),
    ("array<double>",): ("angular",),
}


def _indexes_for(kind: type, expressions: Sequence[IndexedExpression]) -> Iterator[Index]:
    """Indexes of a type over some of the expressions, bound to them; some have small parameters."""
    concrete = [kind]
    if getattr(kind, "__abstractmethods__", None):
        concrete = [known for known in index_kinds().values() if issubclass(known, kind) and known.kind in _SIMPLE]
    several = [some for count in (1, 2, 3) for some in itertools.permutations(expressions, count)]
    indexes = (index for kind in concrete for over in several for index in _indexes_over(kind, over))
    return iter({repr(index): index for index in indexes}.values())


def _indexes_over(kind: type[Index], over: Sequence[IndexedExpression]) -> Iterator[Index]:
    texts = [expression.text for expression in over]
    names = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    options: list[dict[str, Any]] = [{}]
    if issubclass(kind, MetricDist):
        options = [{"metric": metric} for metric in _METRICS.get(tuple(e.kind for e in over), ())]
    options += [{name: size, **first} for first in options[:1] for name, sizes in _SMALL.items() if name in names
                for size in sizes]  # fmt: skip
    for option in options:
        with contextlib.suppress(GeoskipError, TypeError):
            index = _prepare_index(kind(*texts, **option), over)
            if index is not None:
                yield index


def _prepare_index(index: Index, over: Sequence[IndexedExpression]) -> Index | None:
    """Bind an index to expressions and prepare it; None if it has other ones. Raises GeoskipError."""
    if list(index.expressions()) != [expression.text for expression in over]:
        return None
    _metadata_type(index, over)
    bound = index.bind([expression.predicate for expression in over])
    return bound.prepare(*(expression.values for expression in over))


# ---- candidates

_MOST_CANDIDATES = 24
_CHECKED = ("metric", "monotone", "null_in_null_out", "inverse")
"""The declared properties that indexes use."""


@dataclass(frozen=True)
class Candidate:
    """A mapping, or the declared properties of a function, together with indexes."""

    name: str
    indexes: tuple[Index, ...]
    ask: Callable[[Predicate], Clause | None]
    rule: Rule | None = None

    @property
    def index_text(self) -> str:
        """The indexes as a text."""
        return ", ".join(map(str, self.indexes))

    def counter_example(
        self,
        query: str,
        rows: Sequence[Mapping[str, Any]],
        lost: Sequence[int],
        summaries: Mapping[str, Any],
        clause: str,
    ) -> CounterExample:
        """Describe a file that the candidate skips.

        Parameters
        ----------
        query, clause
            The condition, and the candidate's clause for it.
        rows, lost
            The rows of the file, and the numbers of those that match.
        summaries
            The metadata of the file, by index.
        """
        said = (UnquotedText("TRUE" if number in lost else "not TRUE") for number in range(len(rows)))
        shown = tuple({**row, "the query says": text} for row, text in zip(rows, said, strict=True))
        why = f"a file that {self.index_text} summarises is skipped, though a row of it matches"
        return CounterExample(self.name, why, query, shown, tuple(lost), summaries, clause)


@dataclass
class Tally:
    """The counts, problems and notes of a check."""

    effects: dict[str, Effect] = field(default_factory=dict)
    problems: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    agreed: dict[str, int] = field(default_factory=dict)
    """By the name of a constant or denotation, the number of values for which it agrees with its function."""

    def effect(self, name: str) -> Effect:
        return self.effects.setdefault(name, Effect(name))

    def agree(self, name: str) -> None:
        self.agreed[name] = self.agreed.get(name, 0) + 1

    def result(self, function: str, counter_example: CounterExample | None, seconds: float) -> MappingCheck:
        """Return the outcome of a check.

        Parameters
        ----------
        function, counter_example, seconds
            The function's name, the counter-example if any, and the time that the check took.
        """
        effects = tuple(self.effects.values())
        return MappingCheck(
            function,
            counter_example,
            trials=sum(effect.trials for effect in effects) + sum(self.agreed.values()),
            skipped=sum(effect.skipped for effect in effects),
            effects=effects,
            problems=tuple(self.problems)[:5],
            notes=(*(f"{name} agrees for {count:,} values" for name, count in self.agreed.items()), *self.notes),
            seconds=seconds,
        )

    def clause(self, candidate: Candidate, node: Predicate, files: int) -> Clause | None:
        """The clause of a candidate for a condition; an exception is recorded as a problem of its mapping.

        As in a query, a rule is called only for conditions with its functions.

        Parameters
        ----------
        candidate, node, files
            The mapping or declaration, the normalised condition, and the number of files on which it is tried.
        """
        effect = self.effect(candidate.name)
        effect.asked += 1
        effect.trials += files
        if candidate.rule is not None and not candidate.rule.concerns(calls_of(node)):
            return None
        try:
            clause = candidate.ask(node)
        except Exception as error:
            problem = f"{candidate.name} raises for {node} over {candidate.index_text}: {type(error).__name__}: {error}"
            self.problems[problem] = None
            return None
        if clause is not None and not isinstance(clause, Clause):
            self.problems[f"{candidate.name} returns {clause!r} for {node} instead of a clause or None"] = None
            return None
        return clause

    def lost_file(self, candidate: Candidate, clause: Clause, files: SyntheticFiles, matching: Mask) -> int | None:
        """The number of the smallest file that a clause skips although a row matches, or None.

        Parameters
        ----------
        candidate, clause
            The mapping or declaration, and its clause.
        files, matching
            The files, and a mask of those with a matching row.
        """
        keep = keep_mask(clause, files.metadata(candidate.indexes))
        effect = self.effect(candidate.name)
        effect.answered += 1
        effect.skipped += int(np.count_nonzero(~keep))
        effect.skippable += int(np.count_nonzero(~matching))
        wrong = np.flatnonzero(matching & ~keep).tolist()
        return min(wrong, key=lambda number: len(files.files[number]), default=None)


def candidates_for(
    call: Call | Column, expressions: Sequence[IndexedExpression], indexes: Sequence[Index], tally: Tally
) -> list[Candidate]:
    """List the candidates of a call: its mappings and its properties, or the indexes of a column.

    Parameters
    ----------
    call, expressions
        The call of the checked function, or a column, and the expressions for indexes, with values.
    indexes, tally
        The user's choice of indexes, empty for all that fit, and the tally in which they are recorded.
    """
    if isinstance(call, Column):
        return [_index_alone(index, call, tally) for index in _chosen(indexes, Index, expressions)]
    candidates: list[Candidate] = []
    registry = current()
    for rule in registry.rules_of(call):
        kinds = [
            _chosen(indexes, kind, expressions) if indexes else list(_indexes_for(kind, expressions))
            for kind in rule.indexes
        ]
        effect = tally.effect(f"mapping {rule.name}")
        for some in itertools.islice(_choices(rule, kinds), _MOST_CANDIDATES):
            given = tuple(index for index in some if index is not None)
            effect.indexes |= dict.fromkeys(map(str, given))
            candidates.append(Candidate(effect.name, given, _rule_over(rule, some), rule))
    properties = registry.properties_of(call)
    if properties is not None and properties.deterministic is not False:
        candidates += _declaration_candidates(call, properties, expressions, tally)
    return candidates


def _index_alone(index: Index, column: Column, tally: Tally) -> Candidate:
    """An index as a candidate for conditions on one of its columns; its exceptions are problems."""
    tally.effect(str(index)).indexes[f"{column.name} {column.type}"] = None
    labeller = Labeller([index], report=lambda problem: tally.problems.setdefault(problem))

    def clause_of(node: Predicate) -> Clause | None:
        clause = labeller.true(node)
        return None if clause is KEEP_ALL else clause

    return Candidate(str(index), (index,), clause_of)


def _chosen(indexes: Sequence[Index], kind: type, expressions: Sequence[IndexedExpression]) -> list[Index]:
    """The user's indexes of a type."""
    by_text = {expression.text: expression for expression in expressions}
    over = ([by_text[text] for text in index.expressions() if text in by_text] for index in indexes)
    bound = [_prepare_index(index, e) for index, e in zip(indexes, over, strict=True) if isinstance(index, kind)]
    return [index for index in bound if index is not None]


def _choices(rule: Rule, kinds: Sequence[Sequence[Index]]) -> Iterator[tuple[Index | None, ...]]:
    if not rule.together:
        return ((index,) for index in {str(i): i for some in kinds for i in some}.values())
    choices = [[*some, *([None] if number in rule.optional else [])] for number, some in enumerate(kinds)]
    return itertools.product(*choices)


def _rule_over(rule: Rule, indexes: Sequence[Index | None]) -> Callable[[Predicate], Clause | None]:
    return lambda node: rule.rule(node, *indexes)


def _declaration_candidates(
    call: Call, properties: FunctionProperties, expressions: Sequence[IndexedExpression], tally: Tally
) -> Iterator[Candidate]:
    """The declared properties with the indexes that use them, without the function's mappings."""
    stated = {name: value for name, value in properties.to_dict().items() if name in _CHECKED and value is not False}
    if not stated:
        return
    shown = (f"{n}={getattr(v, '__name__', '...') if callable(v) else repr(v)}" for n, v in stated.items())
    name = f"declare({call.name}, {', '.join(shown)})"
    effect = tally.effect(name)
    indexes: list[Index | None] = [*_indexes_for(MinMax, expressions), *_indexes_for(ValueList, expressions)]
    if properties.metric:
        half = expressions[: max(1, len(expressions) // 2)]
        try:
            metric = MetricDist(*(e.text for e in half), metric=current().function_of(call))
            indexes.append(_prepare_index(metric, half))
        except GeoskipError as error:
            tally.problems[f"{name}: {error}"] = None
            return
    properties_only = Registry(current())
    properties_only.mappings.clear()
    for index in indexes:
        if index is not None:
            effect.indexes[str(index)] = None
            yield Candidate(name, (index,), Labeller([index], registry=properties_only).true)


def truth_of(condition: Predicate, call: Call | Column, results: FunctionResults) -> Mask:
    """Mask of the rows for which a condition over a call is certainly TRUE."""
    match condition:
        case IsNull(child) if child == call:
            truth = np.asarray(results.values.is_null())
        case Not(IsNull(child)) if child == call:
            truth = np.asarray(results.values.is_valid())
        case _:
            try:
                values = CandidateValues(physical(results.values))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # arrays are not compared here
                return np.zeros(len(results.values), dtype=bool)
            truth = outcomes(condition, call, values) == IS_TRUE
    known: Mask = truth & ~results.thrown
    return known
