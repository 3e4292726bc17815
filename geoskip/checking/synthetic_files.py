"""Files formed of rows, and what indexes store of them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.errors import GeoskipError
from geoskip.indexes.base import Index, SourceColumn, index_kinds
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.metricdist.index import MetricDist
from geoskip.metadata import FileMetadata
from geoskip.predicates import Predicate

__all__ = ["IndexedExpression", "SyntheticFiles", "indexes_for", "metadata_of"]

_PAIRS, _GROUPS = 40, 60


@dataclass(frozen=True)
class IndexedExpression:
    """What an index may be over: its text, the predicate that it is, Spark's type, and its value for each row."""

    text: str
    predicate: Predicate
    kind: str
    values: pa.Array


class SyntheticFiles:
    """Rows and files of them: each row alone, each with another, some that lie close together, some at random."""

    def __init__(self, expressions: Sequence[IndexedExpression], chance: random.Random) -> None:
        self.expressions = {expression.text: expression for expression in expressions}
        self.length = len(expressions[0].values)
        self.files = list(_files(expressions, self.length, chance))
        self.members = np.zeros((len(self.files), self.length), dtype=bool)
        for number, rows in enumerate(self.files):
            self.members[number, rows] = True
        self._known: dict[tuple[str, ...], FileMetadata] = {}

    def metadata(self, indexes: Sequence[Index]) -> FileMetadata:
        """The files table of some indexes, made when it is first asked for."""
        key = tuple(map(repr, indexes))
        if key not in self._known:
            self._known[key] = metadata_of(indexes, self.expressions, self.files)
        return self._known[key]


def metadata_of(
    indexes: Sequence[Index], expressions: Mapping[str, IndexedExpression], files: Sequence[Sequence[int]]
) -> FileMetadata:
    """What indexes store of files, each given by the numbers of its rows; a file in two parts every other time."""
    table: dict[str, pa.Array] = {"file": pa.array(range(len(files)))}
    for index in indexes:
        over = [expressions[text] for text in index.expressions()]
        stored = index.metadata_type(*_columns(type(index), over))
        summaries = []
        for number, rows in enumerate(files):
            half = len(rows) // 2 if number % 2 else 0
            parts = [part for part in (rows[:half], rows[half:]) if len(part)] or [rows]
            found = [index.collect(*(e.values.take(pa.array(part, pa.int64())) for e in over)) for part in parts]
            known = [summary for summary in found if summary is not None]
            merged = None if len(known) < len(found) else known[0] if len(known) == 1 else index.merge(known)
            summaries.append(None if merged is None else index.for_files([merged], [number % 2 * 10**9])[0])
        table[str(index)] = pa.array(summaries, stored)
    return FileMetadata.of(pa.table(table))


def _columns(kind: type[Index], over: Sequence[IndexedExpression]) -> list[SourceColumn]:
    """What an index is told of its expressions; WKB is a geometry to what is over geometries."""
    types = ("geometry" if issubclass(kind, GeoBox) and e.kind == "binary" else e.kind for e in over)
    return [SourceColumn(e.text, name, e.values.type) for e, name in zip(over, types, strict=True)]


def _files(expressions: Sequence[IndexedExpression], length: int, chance: random.Random) -> Iterator[list[int]]:
    everything = list(range(length))
    yield from ([row] for row in everything)
    nulls = [row for row in everything if any(not e.values[row].is_valid for e in expressions)] or everything
    for _ in range(_PAIRS):
        yield [chance.choice(everything), chance.choice(nulls)]
    for expression in expressions:
        ordered = sorted(everything, key=lambda row: _place(expression.values[row].as_py()))
        for size in (3, 8):
            starts = range(0, length - size + 1, max(1, length * size // _GROUPS))
            yield from (ordered[start : start + size] for start in starts)
    for _ in range(_GROUPS // 3):
        yield chance.sample(everything, min(length, chance.randint(2, 6)))


def _place(value: Any) -> tuple[bool, bool, Any]:
    """A total order of values of one type: NaN after numbers, NULL last."""
    unordered = value is None or value != value
    return value is None, unordered, "" if unordered and isinstance(value, str) else 0 if unordered else value


def indexes_for(kind: type, expressions: Sequence[IndexedExpression]) -> Iterator[Index]:
    """Indexes of a type over some of the expressions, also with small parameters, bound to them."""
    several = [pair for count in (2, 3) for pair in itertools.permutations(expressions, count)]
    seen: set[str] = set()
    for concrete in _concrete(kind):
        for over in [*((e,) for e in expressions), *several]:
            for index in _made(concrete, over):
                if repr(index) not in seen:
                    seen.add(repr(index))
                    yield index


def _concrete(kind: type) -> list[type[Index]]:
    if not getattr(kind, "__abstractmethods__", None):
        return [kind]
    return [known for known in index_kinds().values() if issubclass(known, kind) and known.kind in _SIMPLE]


_SIMPLE = ("minmax", "valuelist", "gaplist", "prefix", "suffix")
_SMALL: dict[str, tuple[int, ...]] = {"length": (1, 3), "boxes": (1,), "limit": (2,), "gaps": (1,), "origins": (2,)}


def _made(kind: type[Index], over: Sequence[IndexedExpression]) -> Iterator[Index]:
    texts = [expression.text for expression in over]
    names = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    options: list[dict[str, Any]] = [{}]
    if issubclass(kind, MetricDist):
        options = [{"metric": metric} for metric in _METRICS.get(tuple(e.kind for e in over), ())]
    options += [{name: size, **first} for first in options[:1] for name, sizes in _SMALL.items() if name in names
                for size in sizes]  # fmt: skip
    for option in options:
        with contextlib.suppress(GeoskipError, TypeError):
            index = prepared(kind(*texts, **option), over)
            if index is not None:
                yield index


_METRICS = {
    ("string",): ("levenshtein", "hamming"),
    ("bigint",): ("euclidean", "hamming"),
    ("double",): ("euclidean",),
    ("double", "double"): ("euclidean", "manhattan", "chebyshev", "haversine"),
    ("array<string>",): ("jaccard",),
    ("array<double>",): ("angular",),
}


def prepared(index: Index, over: Sequence[IndexedExpression]) -> Index | None:
    """An index bound to expressions, with what it chooses once; None where it is over others. Raises GeoskipError."""
    texts = list(index.expressions())
    if texts != [expression.text for expression in over]:
        return None
    index.metadata_type(*_columns(type(index), over))
    bound = index.bind([expression.predicate for expression in over])
    return bound.prepare(*(expression.values for expression in over))
