"""Files with known rows, their summaries, and the check of every soundness test.

A *world* is a list of files, and a file is a list of rows. Its ``kinds`` create indexes over its columns, by default
MinMax. :func:`sound` labels a predicate over the indexes of its columns and searches for a file with a verdict that
excludes an outcome of one of its rows.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip import predicates as p
from geoskip.clauses import KEEP_ALL, Clause, Mask, keep_mask
from geoskip.errors import UnsupportedColumnError
from geoskip.indexes.base import Index, SourceColumn
from geoskip.indexes.minmax import MinMax
from geoskip.metadata import FileMetadata
from geoskip.planner import Labeller
from geoskip.rewrite import canonical
from tests.support.evaluator import outcomes

TYPES: dict[str, tuple[str, pa.DataType]] = {
    "a": ("int", pa.int32()),
    "n": ("bigint", pa.int64()),
    "x": ("double", pa.float64()),
    "f": ("float", pa.float32()),
    "s": ("string", pa.string()),
    "d": ("decimal(10,2)", pa.decimal128(10, 2)),
    "w": ("decimal(38,18)", pa.decimal128(38, 18)),
    "day": ("date", pa.date32()),
    "ts": ("timestamp_ntz", pa.timestamp("us")),
    "b": ("boolean", pa.bool_()),
}
COLUMNS = {name: p.Column(name, kind) for name, (kind, _) in TYPES.items()}
NAN, INF = math.nan, math.inf
F32 = float(np.float32(0.1))
WIDE = Decimal("12345678901234567890.000000000000000001")

POOLS: dict[str, list[Any]] = {
    "a": [-(2**31), -3, -1, 0, 1, 2, 3, 5, 6, 2**31 - 1],
    "n": [-(2**63), -(2**53) - 1, -1, 0, 1, 2, 2**53, 2**53 + 1, 2**63 - 1],
    "x": [-INF, -1e308, -1.5, -0.0, 0.0, 5e-324, 0.1, F32, 1.5, 2.0, 1e308, INF, NAN],
    "f": [-1.5, -0.0, 0.0, F32, 1.5, float(np.float32(3e38)), INF, NAN],
    "s": [
        *["", "a", "a%b", "a\udcff", "\udcc3A", "a_b", "ab", "abc", "abd", "b", "z" * 31 + "é", "z" * 31 + "éq"],
        *["z" * 40, "é", "\uffff", "\ufffd\ufffdx", "\U0001f600", "\U0010ffff" * 9, "\udcff", "\udcff" * 40],
    ],
    "d": [*map(Decimal, ("-99999999.99", "-1.01", "-1.00", "0.00", "0.01", "1.00", "1.01", "2.50", "99999999.99"))],
    "w": [WIDE.copy_negate(), *map(Decimal, ("0", "0.000000000000000001", "1.5", "12345678901234567890")), WIDE],
    "day": [-719162, -1, 0, 1, 19000, 19001, 2**31 - 1],
    "ts": [-(2**63), -86_400_000_001, -1, 0, 1, 86_399_999_999, 86_400_000_000, 19000 * 86_400_000_000],
    "b": [False, True],
}


Kind = Callable[[str], Index | None]
"""Creates the index over a column by name, or None. For several columns one of them represents all."""


@dataclass
class World:
    """Some files, and the files and columns with a lost summary."""

    files: list[list[dict[str, Any]]]
    lost: set[tuple[int, str]] = field(default_factory=set)
    cut: int = 1
    """Number of rows in the first part of each file: summaries are merged from parts."""
    kinds: tuple[Kind, ...] = (MinMax,)

    @functools.cached_property
    def rows(self) -> list[tuple[dict[str, Any], Any]]:
        """Each distinct row, with the numbers of the files that contain it."""
        found: dict[str, tuple[dict[str, Any], list[int]]] = {}
        for number, rows in enumerate(self.files):
            for row in rows:
                found.setdefault(repr(row), (row, []))[1].append(number)
        return [(row, np.array(numbers)) for row, numbers in found.values()]

    @functools.cached_property
    def types(self) -> dict[Index, pa.DataType]:
        """The bound indexes with their stored types; columns that a kind does not support have none."""
        found: dict[Index, pa.DataType] = {}
        names = sorted({name for rows in self.files for row in rows for name in row})
        for index in (index for kind in self.kinds for name in names if (index := kind(name)) is not None):
            texts = index.expressions()
            if set(texts) <= set(names):
                try:
                    stored = index.metadata_type(*(SourceColumn(text, *TYPES[text]) for text in texts))
                except UnsupportedColumnError:
                    continue
                found[index.bind([COLUMNS[text] for text in texts])] = stored
        return found

    @functools.cached_property
    def metadata(self) -> FileMetadata:
        """The file table with all indexes."""
        table = {"file": pa.array(range(len(self.files)))}
        for index, stored in self.types.items():
            lost = {i for i, name in self.lost if name in index.expressions()}
            found = [None if i in lost else self._summary(index, rows) for i, rows in enumerate(self.files)]
            table[str(index)] = pa.array(found, stored)
        return FileMetadata.of(pa.table(table))

    def _summary(self, index: Index, rows: list[dict[str, Any]]) -> Any:
        parts = [part for part in (rows[: self.cut], rows[self.cut :]) if part] or [[]]
        found = [
            index.collect(*(array_of(name, [row[name] for row in part]) for name in index.expressions()))
            for part in parts
        ]
        known = [summary for summary in found if summary is not None]
        if len(known) < len(found):
            return None
        merged = known[0] if len(known) == 1 else index.merge(known)
        return index.for_files([merged], [len(rows) % 2 * 10**9])[0]  # every other file is large


def array_of(name: str, values: Sequence[Any]) -> pa.Array:
    """Values in Arrow's form; strings may be invalid UTF-8."""
    kind = TYPES[name][1]
    if pa.types.is_string(kind):
        raw = [None if v is None else v.encode("utf-8", "surrogateescape") for v in values]
        data = pa.array(raw, pa.binary())
        return pa.Array.from_buffers(kind, len(data), data.buffers(), data.null_count)
    return pa.array(values, kind)


@dataclass(frozen=True)
class Verdict:
    """The three verdicts of a predicate, with one entry for each file."""

    true: Mask
    false: Mask
    null: Mask
    clauses: tuple[Clause, Clause, Clause] = (KEEP_ALL, KEEP_ALL, KEEP_ALL)

    def allows(self, outcome: bool | None) -> Mask:
        """Mask of the files in which some row may have this outcome."""
        return self.null if outcome is None else self.true if outcome else self.false

    def clause(self, outcome: bool | None) -> Clause:
        """The clause for files in which some row may have this outcome."""
        return self.clauses[(True, False, None).index(outcome)]


def verdict(predicate: p.Predicate, world: World) -> Verdict:
    """The verdict of geoskip on a predicate."""
    columns = p.columns_of(predicate)
    files = world.metadata
    problems: list[str] = []
    label = Labeller([i for i in world.types if columns.intersection(i.expressions())], report=problems.append)
    node = canonical(predicate)
    clauses = (label.true(node), label.false(node), label.null(node))
    masks = [keep_mask(clause, files) for clause in clauses]
    assert not problems, problems
    return Verdict(*masks, clauses)


def violations(predicate: p.Predicate, world: World, said: Verdict) -> Iterator[str]:
    """Describe every row with an outcome that its file's verdict excludes."""
    for row, files in world.rows:
        for outcome in outcomes(predicate, row):
            allowed = said.allows(outcome)[files]
            if not allowed.all():
                file = files[~allowed][0]
                yield f"{predicate} is {outcome} for {row}, and file {file} says it is not: {said.clause(outcome)}"


def sound(predicate: p.Predicate, world: World) -> Verdict:
    """Check the verdict against all rows, and return it."""
    said = verdict(predicate, world)
    for found in violations(predicate, world, said):
        raise AssertionError(found)
    return said


def call(name: str, *args: p.Predicate, type: str | None = None, mode: str = "ANSI") -> p.Call:
    """Create a call of one of Catalyst's own functions."""
    kinds = {"+": "Add", "-": "Subtract", "negative": "UnaryMinus", "isnan": "IsNaN", "if": "If"}
    kinds |= {"coalesce": "Coalesce", "date_add": "DateAdd", "date_sub": "DateSub"}
    kinds |= {"substring": "Substring", "instr": "StringInstr", "locate": "StringLocate", "rlike": "RLike"}
    return p.Call(name, args, "org.apache.spark.sql.catalyst.expressions." + kinds[name], (mode,), type)


def _literals(kind: str, *values: Any) -> list[p.Literal]:
    return [p.Literal(v, kind) for v in values]


def _cast(name: str, target: str, *, ansi: bool = True) -> p.Cast:
    return p.Cast(COLUMNS[name], target, COLUMNS[name].type, ansi)


def _plus(op: str, left: p.Predicate, right: p.Predicate, mode: str = "ANSI", type: str | None = None) -> p.Call:
    return call(op, left, right, type=type or left.type, mode=mode)  # type: ignore[attr-defined]


def expressions(name: str) -> list[tuple[p.Predicate, list[p.Literal]]]:
    """Expressions over a column that MinMax supports, each with literals to compare it with."""
    column = COLUMNS[name]
    kind = TYPES[name][0]
    found: list[tuple[p.Predicate, list[p.Literal]]] = [(column, _literals(kind, *POOLS[name]))]
    numbers = [2.5, Decimal("1.005"), 10**30, -(10**30), 2**53 + 1, -INF, INF, NAN, Decimal("1e-30"), 0]
    if name in "anxfdw":
        found.append((column, [p.Literal(v) for v in numbers]))
    doubles = _literals("double", -INF, -1.01, -0.0, 0.0, 0.1, F32, 1.01, 2.5, 2.0**53, 2.0**63, 1e308, INF, NAN)
    match name:
        case "a":
            found += [
                (_cast("a", "bigint"), _literals("bigint", -(2**31) - 1, 0, 2, 2**31)),
                (_cast("a", "double"), doubles),
                (_cast("a", "decimal(12,1)"), _literals("decimal(12,1)", Decimal("2.5"), Decimal("3.0"))),
                (_cast("a", "tinyint", ansi=False), _literals("tinyint", -1, 0, 2)),
                (_cast("a", "decimal(2,1)", ansi=False), _literals("decimal(2,1)", Decimal("2.0"), Decimal("9.9"))),
                *[
                    (_plus(op, column, p.Literal(by, "int"), mode), _literals("int", -(2**31), -2, 0, 3, 7, 2**31 - 1))
                    for op, by, mode in itertools.product("+-", (1, -(2**31)), ("ANSI", "LEGACY", "TRY"))
                ],
                (_plus("-", p.Literal(3, "int"), column, type="int"), _literals("int", -3, 0, 2, 4)),
                (call("negative", column, type="int", mode="LEGACY"), _literals("int", -(2**31), -2, 0, 3)),
                (_plus("+", _cast("a", "double"), p.Literal(0.1, "double")), doubles),
            ]
        case "n":
            found += [
                (_cast("n", "double"), doubles),
                (_cast("n", "float"), _literals("float", 0.0, 2.0, 2.0**53, 2.0**63)),
                (_cast("n", "decimal(20,0)"), _literals("decimal(20,0)", Decimal(0), Decimal(2**63))),
                (_plus("+", column, p.Literal(2**62, "bigint"), "LEGACY"), _literals("bigint", -(2**63), 0, 2**62 + 1)),
                (_plus("-", p.Literal(-1, "bigint"), column, type="bigint"), _literals("bigint", -(2**63), -2, 0)),
                (call("negative", column, type="bigint", mode="LEGACY"), _literals("bigint", -(2**63), -1, 1)),
            ]
        case "x" | "f":
            same = _literals(kind, -1.5, 0.0, F32, 1.5, INF, NAN)
            found += [
                (_plus("+", column, p.Literal(1e308 if name == "x" else 1.5, kind)), same),
                (_plus("-", p.Literal(1.5, kind), column, type=kind), same),
                (call("negative", column, type=kind), same),
                (_plus("+", column, p.Literal(INF, kind)), same),
            ]
            found.append((_cast("f", "double"), doubles) if name == "f" else (_cast("x", "float"), same))
        case "d":
            added = _plus("+", column, p.Literal(Decimal("0.005"), "decimal(3,3)"), type="decimal(12,3)")
            found += [
                (_cast("d", "double"), doubles),
                (
                    _cast("d", "decimal(9,1)"),
                    _literals("decimal(9,1)", Decimal("1.0"), Decimal("2.5"), Decimal("-1.0")),
                ),
                (_cast("d", "decimal(12,4)"), _literals("decimal(12,4)", Decimal("1.0050"), Decimal("1.0100"))),
                (_cast("d", "decimal(4,2)", ansi=False), _literals("decimal(4,2)", Decimal("1.01"))),
                (added, _literals("decimal(12,3)", Decimal("1.005"), Decimal("1.015"), Decimal("-1.005"))),
                (call("negative", column, type=kind), _literals(kind, Decimal("1.00"), Decimal("-1.01"))),
            ]
        case "w":
            found += [
                (_cast("w", "double"), [*doubles, *_literals("double", float(WIDE), -float(WIDE), 1.5, 1e-18)]),
                (_cast("w", "decimal(38,1)"), _literals("decimal(38,1)", Decimal("1.5"), Decimal(0), Decimal("1e19"))),
                (_cast("w", "decimal(38,20)", ansi=False), _literals("decimal(38,20)", Decimal("1.5"), WIDE)),
            ]
        case "day":
            found += [
                (_cast("day", "timestamp_ntz"), _literals("timestamp_ntz", -1, 0, 1, 86_400_000_000)),
                (call("date_add", column, p.Literal(1, "int"), type="date"), _literals("date", 0, 1, 2, -(2**31))),
                (call("date_sub", column, p.Literal(1, "int"), type="date"), _literals("date", -1, 0, 18999)),
            ]
        case "ts":
            found.append((_cast("ts", "date"), _literals("date", -2, -1, 0, 1, 19000)))
    return found


TEXTS = ["", "a", "ab", "abc", "b", "z", "z" * 32, "z" * 35, "é", "\U0001f600", "\U0010ffff", "\ufffd", "\udcff"]
PATTERNS = ["%", "a%", "a%%", "a!%%", "a!_b%", "ab_%", "a%b", "abc", "\ufffd%", "\ufffd_%", "z%é", "_"]


def leaves(name: str) -> Iterator[p.Predicate]:
    """Every shape of leaf over one column."""
    column = COLUMNS[name]
    for expression, literals in expressions(name):
        for op, literal in itertools.product(("=", "<=>", "<", "<=", ">", ">="), literals):
            yield p.Comparison(op, expression, literal)
        yield p.Comparison("=", expression, p.Literal(None))
        yield p.Comparison("<=>", expression, p.Literal(None))
        yield p.IsNull(expression)
        for count in (1, 2, len(literals)):
            yield p.In(expression, tuple(literals[:count]))
            yield p.In(expression, tuple(literals[-count:]))
        yield p.In(expression, (*literals[:2], p.Literal(None)))
        if name in "xf":
            yield call("isnan", expression)
    if name == "b":
        yield column
    if name == "s":
        for text in TEXTS:
            yield from (p.StartsWith(column, text), p.EndsWith(column, text), p.Contains(column, text))
        yield from (p.Like(column, pattern, "!") for pattern in PATTERNS)


def canned(name: str, *kinds: Kind) -> World:
    """Files named by their state for one column: empty, all null, one value with or without null, pairs."""
    pool = POOLS[name]
    states: list[list[Any]] = [[], [None], [None, None], pool]
    for value in pool:
        states += [[value], [value, None], [value, value]]
    states += [[u, v] for u, v in itertools.combinations(pool, 2)]
    files = [[{name: value} for value in values] for values in [*states, pool, [pool[0]], [None]]]
    return World(files, {(len(files) - i, name) for i in (1, 2, 3)}, kinds=kinds or (MinMax,))
