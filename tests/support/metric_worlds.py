"""Files of points, distances in the forms of queries, and the check of every MetricDist test."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from geoskip import predicates as p
from geoskip.clauses import Mask, keep_mask
from geoskip.indexes.base import SourceColumn, index_from_json
from geoskip.indexes.metricdist.index import MetricDist
from geoskip.metadata import FileMetadata
from geoskip.planner import Labeller
from tests.support.evaluator import Outcomes, outcomes
from udf_mappings import CATALYST
from udf_mappings.metrics import OURS

INF, NAN = math.inf, math.nan
EVERYTHING: Outcomes = frozenset([True, False, None])
D = p.Column("d", "double")
ARROW = {"double": pa.float64(), "int": pa.int32(), "bigint": pa.int64(), "string": pa.string()}
ARROW |= {"array<double>": pa.list_(pa.float64()), "array<string>": pa.list_(pa.string())}


# ---- distances in the forms of queries, and their values for a row


class Overflow(Exception):
    """Arithmetic overflow that throws."""


def catalyst(kind: str, *args: p.Predicate, name: str = "", type: str = "double", mode: str = "ANSI") -> p.Call:
    return p.Call(name or kind.lower(), args, CATALYST + kind, (mode,), type)


def minus(column: p.Column, constant: Any, mode: str) -> p.Predicate:
    return catalyst("Subtract", column, p.Literal(constant, column.type), name="-", type=column.type or "", mode=mode)


def as_double(node: p.Predicate) -> p.Predicate:
    kind = getattr(node, "type", None)
    return node if kind == "double" else p.Cast(node, "double", kind, True)


def powers(columns: list[p.Column], point: tuple[Any, ...], mode: str) -> p.Predicate:
    parts = [catalyst("Pow", as_double(minus(c, q, mode)), p.Literal(2.0)) for c, q in zip(columns, point, strict=True)]
    return catalyst("Sqrt", catalyst("Add", *parts, name="+") if len(parts) == 2 else parts[0], name="SQRT")


def squares(columns: list[p.Column], point: tuple[Any, ...], mode: str) -> p.Predicate:
    kind = columns[0].type or ""
    parts = []
    for column, q in zip(columns, point, strict=True):
        one = minus(column, q, mode)
        parts.append(catalyst("Multiply", one, one, name="*", type=kind, mode=mode))
    return catalyst("Add", *parts, name="+", type=kind, mode=mode)


def rooted_squares(columns: list[p.Column], point: tuple[Any, ...], mode: str) -> p.Predicate:
    return catalyst("Sqrt", as_double(squares(columns, point, mode)), name="SQRT")


def hypot(columns: list[p.Column], point: tuple[Any, ...], mode: str) -> p.Predicate:
    return catalyst("Hypot", *(as_double(minus(c, q, mode)) for c, q in zip(columns, point, strict=True)))


def absolutes(columns: list[p.Column], point: tuple[Any, ...], mode: str) -> list[p.Call]:
    found = []
    for column, q in zip(columns, point, strict=True):
        found.append(catalyst("Abs", minus(column, q, mode), type=column.type or "", mode=mode))
    return found


def sum_of_absolutes(columns: list[p.Column], point: tuple[Any, ...], mode: str) -> p.Predicate:
    kind = columns[0].type or ""
    return catalyst("Add", *absolutes(columns, point, mode), name="+", type=kind, mode=mode)


def greatest(columns: list[p.Column], point: tuple[Any, ...], mode: str) -> p.Predicate:
    return catalyst("Greatest", *absolutes(columns, point, mode), type=columns[0].type or "")


def value(node: p.Predicate, row: dict[str, Any]) -> Any:
    """The value in Spark: doubles by IEEE 754, integers that throw or wrap around."""
    match node:
        case p.Column(name):
            return row[name]
        case p.Literal(constant):
            return constant
        case p.Cast(child):
            found = value(child, row)
            return None if found is None else float(found)
        case p.Call(_, args):
            return _called(node, [value(arg, row) for arg in args])
    raise NotImplementedError(str(node))


def _called(node: p.Call, args: list[Any]) -> Any:
    kind = (node.implementation or "").removeprefix(CATALYST)
    if kind == "Greatest":
        known = [arg for arg in args if arg is not None]
        return max(known, key=lambda v: (math.isnan(v), v)) if known else None
    if None in args:
        return None
    if node.type in ("int", "bigint"):
        return _fitted(_WHOLE[kind](*args), node)
    with np.errstate(all="ignore"):
        return float(_REAL[kind](*map(np.float64, args)))


def _fitted(number: int, node: p.Call) -> int:
    bits = 32 if node.type == "int" else 64
    if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        return number
    if "ANSI" in node.flags:
        raise Overflow
    return (number + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


_WHOLE: dict[str, Callable[..., int]] = {
    "Subtract": lambda a, b: a - b, "Add": lambda a, b: a + b, "Multiply": lambda a, b: a * b, "Abs": abs,
}  # fmt: skip
_REAL: dict[str, Callable[..., Any]] = {
    "Subtract": np.subtract, "Add": np.add, "Multiply": np.multiply, "Abs": np.abs, "Sqrt": np.sqrt,
    "Pow": np.power, "Hypot": np.hypot,
}  # fmt: skip


# ---- the property


@dataclass(frozen=True)
class World:
    """Files of rows, an index over their columns, and the file with a lost summary."""

    index: MetricDist
    kinds: tuple[str, ...]
    files: list[list[tuple[Any, ...]]]
    cut: int = 1
    lost: int | None = None

    @functools.cached_property
    def metadata(self) -> FileMetadata:
        sources = [SourceColumn(n, k, ARROW[k]) for n, k in zip(self.index.exprs, self.kinds, strict=True)]
        stored = self.index.metadata_type(*sources)
        found = [None if i == self.lost else self._summary(rows) for i, rows in enumerate(self.files)]
        return FileMetadata.of(pa.table({"n": pa.array(range(len(found))), str(self.index): pa.array(found, stored)}))

    def _summary(self, rows: list[tuple[Any, ...]]) -> Any:
        parts = [part for part in (rows[: self.cut], rows[self.cut :]) if part] or [[]]
        found = [self.index.collect(*self.arrays(part)) for part in parts]
        known = [summary for summary in found if summary is not None]
        return (known[0] if len(known) == 1 else self.index.merge(known)) if len(known) == len(found) else None

    def arrays(self, rows: list[tuple[Any, ...]]) -> list[pa.Array]:
        return [pa.array([row[i] for row in rows], ARROW[kind]) for i, kind in enumerate(self.kinds)]


def world(metric: str, kinds: tuple[str, ...], files: list[Any], *, origins: Any = 3, cut: int = 1) -> World:
    """A world with pivots chosen from all rows, passed through JSON like those in metadata."""
    names = tuple(f"c{i}" for i in range(len(kinds)))
    columns = [p.Column(name, kind) for name, kind in zip(names, kinds, strict=True)]
    index: Any = MetricDist(*names, metric=metric, origins=origins).bind(columns)
    plain = World(index, kinds, files, cut)
    prepared = index.prepare(*plain.arrays([row for rows in files for row in rows]))
    read = index_from_json(json.loads(json.dumps(prepared.to_json()))).bind(columns)
    assert str(read) == str(index)
    assert isinstance(read, MetricDist)
    assert read == prepared
    return World(read, kinds, files, cut)


def verdicts(predicate: p.Predicate, distance: p.Predicate, some: World) -> dict[bool | None, Mask]:
    """The verdicts of geoskip on a predicate over the distance, which is written as the column d."""
    problems: list[str] = []
    label = Labeller([some.index], report=problems.append)
    node = p.normalise(p.transform(predicate, lambda vertex: distance if vertex == D else vertex))
    files = some.metadata
    said = {True: label.true(node), False: label.false(node), None: label.null(node)}
    masks: dict[bool | None, Mask] = {outcome: keep_mask(clause, files) for outcome, clause in said.items()}
    assert not problems, problems
    return masks


def sound(predicate: p.Predicate, distance: p.Predicate, some: World, of: Callable[[tuple[Any, ...]], Any]) -> Mask:
    """The verdict TRUE, after checking that no row contradicts one of the three verdicts."""
    said = verdicts(predicate, distance, some)
    for number, rows in enumerate(some.files):
        for row in rows:
            try:
                found = outcomes(predicate, {"d": of(row)})
            except Overflow:
                found = EVERYTHING
            for outcome in found:
                assert said[outcome][number], f"{predicate} with d = {distance} is {outcome} for {row}"
    return said[True]


def conditions(numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[p.Predicate]:
    """Strategy of predicates over d."""
    literals = numbers.map(lambda number: p.Literal(number, "double"))
    compared = st.builds(p.Comparison, st.sampled_from(["=", "<=>", "<", "<=", ">", ">="]), st.just(D), literals)
    between = st.builds(lambda a, b: p.And((p.Comparison(">=", D, a), p.Comparison("<=", D, b))), literals, literals)
    leaf = st.one_of(
        compared, compared, between,
        st.builds(p.In, st.just(D), st.lists(literals, min_size=1, max_size=3).map(tuple)),
        st.just(p.IsNull(D)),
    )  # fmt: skip
    negated = leaf | leaf.map(p.Not)
    return (
        negated
        | st.builds(lambda a, b: p.And((a, b)), negated, negated)
        | st.builds(lambda a, b: p.Or((a, p.Not(b))), negated, negated)
    )


def files_of(values: st.SearchStrategy[Any], columns: int) -> st.SearchStrategy[list[Any]]:
    row = st.tuples(*[st.none() | values if columns > 1 else values] * columns)
    return st.lists(st.lists(row, max_size=4), min_size=1, max_size=4)


def kept(some: World, distance: p.Predicate, op: str, number: float) -> list[bool]:
    said: list[bool] = verdicts(p.Comparison(op, D, p.Literal(number, "double")), distance, some)[True].tolist()
    return said


WORDS = ["", "a", "ab", "abc", "kitten", "sitting", "smith", "smyth", "smithson", "é", "né", "\U0001f600", "zz" * 20]


def edit_distance(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        before, row = row, [i]
        for j, other in enumerate(b, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other)))
    return row[-1]


def our(name: str, *args: p.Predicate, type: str | None = None) -> p.Call:
    kind = type or ("int" if name == "hamming" else "double")
    return p.Call(name, args, f"python:{OURS}{name}#1", ("eval:100",), kind)
