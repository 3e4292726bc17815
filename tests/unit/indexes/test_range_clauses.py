"""Comparisons by one end of the ranges: the same files as by the whole ranges, from less."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoskip.bounds import index_leaf
from geoskip.bounds.interval import Interval
from geoskip.bounds.sort_keys import UNKNOWN
from geoskip.conditions import evaluate
from geoskip.indexes.range_clauses import BoundTable, HasValues, RangeMeets
from geoskip.metadata import FileMetadata
from geoskip.predicates import Literal

INF, NAN = math.inf, math.nan
WHOLE = [-(2**63), -(2**63) + 1, -(2**53) - 1, -3, 0, 7, 2**53 + 1, 2**63 - 2, 2**63 - 1]
REAL = [-INF, -1.7e308, -3.0, -5e-324, -0.0, 0.0, 0.1, 7.0, 2.0**53, INF]
CASES: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "bigint": (pa.int64(), WHOLE, [*WHOLE, 2**70, -(2**70), Decimal("6.5"), 6.5, NAN, "x", True]),
    "int": (pa.int32(), [-(2**31), -1, 0, 2**31 - 1], [-(2**31), 0, 1, 2**31 - 1, 2**40, Decimal("-0.5")]),
    "double": (pa.float64(), REAL, [*REAL, 7, 2**53 + 1, 10**400, Decimal("0.1"), Decimal("7.00"), NAN, "x"]),
    "float": (pa.float32(), [-INF, -1.5, -0.0, 0.1, 3.4e38, INF], [-1.5, 0.0, 0.1, 1e300, -1e300, Decimal("0.1")]),
    "date": (pa.date32(), [-5, 0, 9], [dt.date(1970, 1, 1), dt.date(1970, 1, 10), "x", 3]),
    "timestamp": (pa.timestamp("us", "UTC"), [-5, 0, 9], [dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.date(1970, 1, 1)]),
    "boolean": (pa.bool_(), [False, True], [False, True, 1]),
}


def files_of(kind: pa.DataType, ranges: list[tuple[Any, Any]], **counts: Any) -> FileMetadata:
    bound = pa.int32() if pa.types.is_date(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind
    ends = [pa.array(values, bound).cast(kind) for values in zip(*ranges, strict=True)]
    numbers = {"nulls": 0, "nans": 0, "rows": 5} | counts
    arrays = [pa.array([number] * len(ranges), pa.int64()) for number in numbers.values()]
    column = pa.StructArray.from_arrays([*ends, *arrays], ["min", "max", *numbers])
    return FileMetadata.of(pa.table({"minmax(x)": column}))


@pytest.mark.parametrize("name", CASES)
def test_one_end_says_what_the_whole_range_does(name: str) -> None:
    kind, values, literals = CASES[name]
    files = files_of(kind, [(low, high) for i, low in enumerate(values) for high in values[i:]])
    whole = BoundTable(files, index_leaf("minmax(x)"))
    for value in literals:
        for literal in (Literal(value), *([Literal(value, name)] if isinstance(value, float) else [])):
            for op in ("<", "<=", ">", ">="):
                clause = RangeMeets(index_leaf("minmax(x)"), op, (literal,))
                one = clause.units(files).interval
                assert isinstance(one, Interval)
                assert one.low is one.high, "the other end is not read"
                kept, by_whole = clause.keep(files), evaluate(clause.where(whole), whole)
                differs = np.flatnonzero(kept != by_whole)
                assert set(differs) <= set(np.flatnonzero(evaluate(UNKNOWN, whole))), clause
                assert not kept[differs].any(), "a range of all numbers is unknown where both ends are read"


@pytest.mark.parametrize("odd", ["no bound", "NaN in a file", "NaN not counted", "NaN for a bound", "another writer's"])
def test_what_one_end_cannot_say_is_left_to_the_whole_range_or_kept(odd: str) -> None:
    ranges: list[tuple[Any, Any]] = [(1.0, 2.0), (5.0, 6.0)]
    counts: dict[str, Any] = {}
    if odd == "no bound":
        ranges[0] = (None, None)
    elif odd in ("NaN in a file", "NaN not counted"):
        counts["nans"] = 1 if odd == "NaN in a file" else None
    elif odd == "NaN for a bound":
        ranges[0] = (NAN, NAN)
    else:
        counts["rows"] = counts["nulls"] = None
    files = files_of(pa.float64(), ranges, **counts)
    above, below = (RangeMeets(index_leaf("minmax(x)"), op, (Literal(at),)) for op, at in ((">", 9.0), ("<", 0.0)))
    assert above.keep(files)[0] == (odd != "another writer's")
    assert below.keep(files)[0] == (odd in ("no bound", "NaN for a bound"))
    assert not below.keep(files)[1]


def test_only_the_end_that_is_asked_for_is_read() -> None:
    table = files_of(pa.float64(), [(1.0, 2.0)]).table()
    asked: list[Any] = []

    def load(wanted: Any) -> pa.Table:
        asked.extend(wanted)
        return table

    files = FileMetadata(1, load)
    for op, fields in ((">", ["max", "nans"]), ("<", ["min", "nans"])):
        clause = RangeMeets(index_leaf("minmax(x)"), op, (Literal(1.5),))
        assert clause.columns() == tuple(("minmax(x)", field) for field in fields)
        assert clause.keep(files).all()
    assert asked == [("minmax(x)", field) for field in ("max", "nans", "min")]
    assert HasValues("minmax(x)").columns() == (("minmax(x)", "nulls"), ("minmax(x)", "rows"))
