"""GapList: which segments are kept, of every type, merged; ANDs decided segment by segment; refusals."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip import GapList
from geoskip import predicates as p
from geoskip.clauses import keep_mask
from geoskip.errors import InvalidSpecificationError, UnsupportedColumnError
from geoskip.indexes.base import SourceColumn, index_from_json
from geoskip.metadata import FileMetadata
from geoskip.planner import clause_for
from tests.support.evaluator import outcomes
from tests.support.harness import COLUMNS, World, call, sound
from tests.support.strategies import examples


def segments(values: list[Any], kind: pa.DataType, gaps: int) -> list[tuple[Any, Any]]:
    found = GapList("v", gaps=gaps).collect(pa.array(values, kind))
    assert found is not None
    return [(segment["low"], segment["high"]) for segment in found["segments"]]


@pytest.mark.parametrize(
    ("values", "kind", "gaps", "expected"),
    [
        ([1, 2, 3, 101, 102], pa.int32(), 1, [(1, 3), (101, 102)]),
        ([1, 2, 3, 101, 102], pa.int64(), 8, [(1, 3), (101, 102)]),  # between neighbours lies nothing
        ([-(2**63), 0, 2**63 - 1], pa.int64(), 1, [(-(2**63), -(2**63)), (0, 2**63 - 1)]),
        ([1.0, 1.5, float("nan"), 9.0], pa.float64(), 1, [(1.0, 1.5), (9.0, 9.0)]),
        ([1e308, -1e308, 0.0], pa.float64(), 2, [(-1e308, -1e308), (-0.0, 0.0), (1e308, 1e308)]),
        ([Decimal("1.00"), Decimal("1.01"), Decimal("9.99")], pa.decimal128(5, 2), 1,
         [(Decimal("1.00"), Decimal("1.01")), (Decimal("9.99"), Decimal("9.99"))]),
        ([10, 20, 19000], pa.date32(), 1, [(10, 20), (19000, 19000)]),
        ([1, 2, 10_000], pa.timestamp("ms"), 1, [(1000, 2000), (10_000_000, 10_000_000)]),
        ([1, 2, 10_001], pa.timestamp("ns"), 1, [(0, 1), (10, 11)]),
        ([None, 5, 5], pa.int32(), 1, [(5, 5)]),
        ([None], pa.int32(), 1, []),
        ([], pa.float32(), 1, []),
    ],
)  # fmt: skip
def test_the_widest_gaps_are_left_out(values: list[Any], kind: pa.DataType, gaps: int, expected: Any) -> None:
    assert segments(values, kind, gaps) == expected


@settings(max_examples=examples(200), deadline=None, database=None)
@given(st.lists(st.lists(st.integers(0, 60), max_size=8), min_size=1, max_size=4), st.integers(1, 4))
def test_the_segments_of_parts_cover_the_file_and_no_more_than_its_gaps(parts: list[list[int]], gaps: int) -> None:
    index = GapList("v", gaps=gaps)
    collected = [index.collect(pa.array(part, pa.int32())) for part in parts]
    merged = index.merge([summary for summary in collected if summary is not None])
    found = [(segment["low"], segment["high"]) for segment in merged["segments"]]
    values = sorted({value for part in parts for value in part})
    assert len(found) <= gaps + 1
    assert all(low <= high for low, high in found)
    assert all(one[1] < two[0] for one, two in itertools.pairwise(found))
    assert all(any(low <= value <= high for low, high in found) for value in values)
    assert {end for segment in found for end in segment} <= set(values)


@settings(max_examples=examples(200), deadline=None, database=None)
@given(st.lists(st.lists(st.none() | st.integers(-9, 9), max_size=6), min_size=1, max_size=4), st.data())
def test_ranges_are_decided_exactly_where_all_gaps_are_stored(files: list[list[Any]], data: Any) -> None:
    low, high = sorted((data.draw(st.integers(-11, 11)), data.draw(st.integers(-11, 11))))
    column = COLUMNS["a"]
    ends = [p.Comparison(op, column, p.Literal(v, "int")) for op, v in ((">=", low), ("<=", high))]
    world = World([[{"a": value} for value in file] for file in files], kinds=(lambda name: GapList(name, gaps=20),))
    for node in (p.And(tuple(ends)), ends[0], p.Comparison("=", column, p.Literal(low, "int"))):
        said = sound(node, world).true.tolist()
        matching = [any(True in outcomes(node, row) for row in rows) for rows in world.files]
        assert said == matching or not any(world.files)


FEW = {"a": st.integers(-9, 9), "x": st.sampled_from([-9.5, -1.0, -0.0, 0.0, 0.5, 7.0, 1e308, math.inf, math.nan])}


@settings(max_examples=examples(100), deadline=None, database=None)
@given(st.data())
def test_two_functions_of_one_column_are_compared_segment_by_segment(data: Any) -> None:
    name = data.draw(st.sampled_from(["a", "x"]))
    column, kind = COLUMNS[name], COLUMNS[name].type
    two = p.Literal(2 if name == "a" else 2.0, kind)
    sides = [column, call("negative", column, type=kind), call("+", column, two, type=kind)]
    files = data.draw(st.lists(st.lists(st.none() | FEW[name], max_size=6), min_size=1, max_size=4))
    world = World([[{name: value} for value in file] for file in files], kinds=(lambda name: GapList(name, gaps=2),))
    for op, (left, right) in itertools.product(("<", "<=", "=", ">="), itertools.permutations(sides, 2)):
        sound(p.Comparison(op, left, right), world)
        sound(p.Not(p.Comparison(op, left, right)), world)


def test_a_gap_separates_two_functions_of_one_column() -> None:
    column = COLUMNS["a"]
    world = World([[{"a": -9}, {"a": 9}], [{"a": 9}]], kinds=(lambda name: GapList(name, gaps=1),))
    node = p.Comparison("=", call("negative", column, type="int"), column)
    assert sound(node, world).true.tolist() == [False, False], "-9 to 9 holds 0, which no segment does"


def test_two_humps_are_skipped_where_min_and_max_are_not_whatever_the_number_of_files() -> None:
    random = np.random.default_rng(0)
    humps = [np.concatenate([random.normal(0, 1, 50), random.normal(100, 1, 50)]) for _ in range(300)]
    index = GapList("x", gaps=1).bind([COLUMNS["x"]])
    stored = index.metadata_type(SourceColumn("x", "double", pa.float64()))
    summaries = [None if number == 7 else index.collect(pa.array(values)) for number, values in enumerate(humps)]
    files = FileMetadata.of(pa.table({str(index): pa.array(summaries, stored)}))
    between = [p.Comparison(op, COLUMNS["x"], p.Literal(v, "double")) for op, v in ((">", 20.0), ("<", 80.0))]
    kept = [
        np.flatnonzero(keep_mask(clause_for(node, [index]), files)).tolist() for node in (p.And((*between,)), *between)
    ]
    assert kept == [[7], [*range(300)], [*range(300)]]


def test_specifications() -> None:
    assert index_from_json(GapList("a", gaps=3).to_json()) == GapList("a", gaps=3)
    for wrong in (0, -1, 1.5, True, 10**6):
        with pytest.raises(InvalidSpecificationError, match="keeps from 1 to 1,000 gaps a file"):
            GapList("a", gaps=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidSpecificationError, match="column name or SQL text"):
        GapList(" ")
    for kind, way in (("string", "Prefix"), ("boolean", "MinMax"), ("binary", "BloomFilter"), ("array<int>", "size")):
        with pytest.raises(UnsupportedColumnError, match=rf"gaplist\(a\) needs .* got {kind}.*{way}"):
            GapList("a").metadata_type(SourceColumn("a", kind, pa.null()))
