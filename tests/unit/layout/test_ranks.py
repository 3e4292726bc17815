"""Ranks order as Spark's values do, and are even on a sample."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from geoskip.errors import UnsupportedColumnError
from geoskip.layout.ranks import ColumnRanks, dimensions, is_geometry

DECIMALS = st.decimals(-(10**27), 10**27, places=10, allow_nan=False)
VALUES = {
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(UTC)),
    pa.timestamp("us"): st.datetimes(),
    pa.duration("us"): st.timedeltas(timedelta(-9999), timedelta(9999)),
    pa.decimal128(38, 10): DECIMALS,
    pa.string(): st.text(max_size=3) | st.text("ab", max_size=3).map(lambda end: "p" * 80 + end),
    pa.binary(): st.binary(max_size=3) | st.binary(max_size=2).map(lambda end: b"\xff" * 70 + end),
}


def order(value):
    """A key that sorts as Spark's ascending order does: NULL first, NaN last, strings by their UTF-8 bytes."""
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, value.encode() if isinstance(value, str) else value)


@pytest.mark.slow
@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(data=st.data(), bits=st.integers(1, 14))
def test_ranks_ascend_with_the_values_also_with_those_that_the_sample_lacks(kind, data, bits):
    several = st.lists(st.none() | VALUES[kind], min_size=1, max_size=40)
    sample, others = data.draw(several), data.draw(several)
    values = pa.array(sample + others, kind)
    ranks = ColumnRanks.fit(values[: len(sample)], bits).of(values)
    assert ranks.min() >= 0
    assert ranks.max() < 1 << bits
    rows = sorted(zip(map(order, values.to_pylist()), ranks.tolist(), strict=True))
    assert [rank for _, rank in rows] == sorted(ranks.tolist())
    known = {order(value) for value in values[: len(sample)].to_pylist()}
    if len(known) <= bits + 1:  # as many as the most uneven tree tells apart
        assert len({rank for key, rank in rows if key in known}) == len(known)


@pytest.mark.slow
@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(data=st.data())
def test_exact_ranks_tell_each_known_value_from_its_neighbours(kind, data):
    several = st.lists(st.none() | VALUES[kind], min_size=1, max_size=20)
    known, others = data.draw(several), data.draw(several)
    values = pa.array(known + others, kind)
    found = dict(zip(map(order, values.to_pylist()), ColumnRanks.exact(values[: len(known)]).of(values), strict=True))
    keys = sorted(found)
    ranks = [int(found[key]) for key in keys]
    assert ranks == sorted(ranks)
    chosen = {order(value) for value in values[: len(known)].to_pylist()}
    assert all((rank % 2 == 0) == (key in chosen) for key, rank in zip(keys, ranks, strict=True) if key[0])
    even = [rank for key, rank in zip(keys, ranks, strict=True) if key in chosen]
    assert len(set(even)) == len(even)


def test_minus_zero_is_zero_and_nan_is_above_infinity():
    values = pa.array([-0.0, 0.0, math.inf, math.nan, -math.inf, None])
    ranks = ColumnRanks.fit(values, 10).of(values).tolist()
    assert ranks[0] == ranks[1]
    assert ranks[5] < ranks[4] < ranks[0] < ranks[2] < ranks[3]


def test_every_bit_halves_what_the_bits_before_it_left():
    values = pa.array(np.random.default_rng(1).normal(size=4096))
    ranks = ColumnRanks.fit(values, 6).of(values)
    assert set(np.bincount(ranks).tolist()) == {64}


@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
def test_of_two_values_the_leading_bit_tells_however_seldom_one_is(share):
    values = pa.array([True] * int(1000 * share) + [False] * (1000 - int(1000 * share)))
    found = ColumnRanks.fit(values, 8).of(pa.array([False, True])) >> 7
    assert found.tolist() == [0, 1]


def test_a_heavy_value_has_one_rank_and_the_others_all_the_rest():
    values = pa.array([7] * 5000 + list(range(100, 612)))
    ranks = ColumnRanks.fit(values, 10).of(values)
    assert len(set(ranks[:5000].tolist())) == 1
    assert set(np.bincount(ranks[5000:])[ranks[5000:]].tolist()) == {1}


def test_strings_with_a_long_common_prefix_have_even_ranks():
    values = pa.array([f"https://example.org/{'a/' * 60}{n:05}" for n in range(1024)])
    found = ColumnRanks.fit(values, 5)
    assert set(np.bincount(found.of(values)).tolist()) == {32}


@pytest.mark.parametrize("kind", [pa.null(), pa.int32(), pa.string(), pa.decimal128(30, 2)], ids=str)
def test_a_column_of_nulls_has_one_rank_and_other_values_come_later(kind):
    found = ColumnRanks.fit(pa.nulls(9, kind), 8)
    later = pa.array([None, "7" if kind == pa.string() else None if kind == pa.null() else Decimal(7)], kind)
    assert found.of(later).tolist() == [0, 0]


@pytest.mark.parametrize("value", [{"a": 1}, [1], [("k", 1)]], ids=["struct", "list", "map"])
def test_values_without_an_order_are_refused(value):
    kind = pa.map_(pa.string(), pa.int64()) if isinstance(value, list) and value != [1] else None
    with pytest.raises(UnsupportedColumnError, match="no order that a layout could follow"):
        ColumnRanks.fit(pa.array([value], kind), 4)


def test_geometries_stand_for_the_centres_of_their_boxes():
    wkb = shapely.to_wkb([shapely.box(0, 2, 4, 4), shapely.Point(7, 8), shapely.Point()]).tolist()
    column = pa.array([*wkb, None], pa.binary())
    assert is_geometry(column)
    x, y = dimensions([column], [True])
    assert (x.to_pylist(), y.to_pylist()) == ([2, 7, None, None], [3, 8, None, None])
    assert not is_geometry(pa.array([*wkb, b"no geometry"]))
    assert not is_geometry(pa.array([None], pa.binary()))
    assert not is_geometry(pa.array([date(2024, 1, 1), datetime(2024, 1, 1)][:1]))
