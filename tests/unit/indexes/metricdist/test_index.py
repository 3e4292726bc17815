"""Specifications of MetricDist: what is refused, what is recorded, and a user's own metric."""

from __future__ import annotations

import itertools
import json
import math
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import geoskip
from geoskip import predicates as p
from geoskip.clauses import keep_mask
from geoskip.errors import InvalidSpecificationError, UnsupportedColumnError
from geoskip.indexes.base import SourceColumn, index_from_json
from geoskip.indexes.metricdist.index import METRICS, MetricDist
from geoskip.metadata import FileMetadata
from geoskip.registry import mappings
from tests.support.metric_worlds import (
    NAN,
    WORDS,
    D,
    catalyst,
    kept,
    our,
    world,
)
from udf_mappings import metric_functions as ours

# ---- specifications


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cosine", "metric='angular'"), ("sqeuclidean", "its root"), ("jaro_winkler", "metric='levenshtein'"),
        ("Jaro", "metric='levenshtein'"), ("optimal string alignment", "Damerau"), ("OSA", "Damerau"),
        ("dice", "metric='jaccard'"), ("Bray-Curtis", "metric='manhattan'"), ("dtw", "metric='euclidean'"),
        ("l2", "called 'euclidean'"), ("nonsense", "geoskip.declare"),
    ],
)  # fmt: skip
def test_what_is_no_metric_is_refused_with_the_way_out(name: str, says: str) -> None:
    with pytest.raises(InvalidSpecificationError, match=says):
        MetricDist("x", metric=name)


def test_the_counter_examples_are_true() -> None:
    """What the refusals say of Jaro, Jaro-Winkler and optimal string alignment."""
    from rapidfuzz.distance import OSA, Jaro, JaroWinkler

    assert OSA.distance("ca", "abc") == 3 > OSA.distance("ca", "ac") + OSA.distance("ac", "abc") == 2
    assert (Jaro.distance("a", "ba"), Jaro.distance("a", "aa") + Jaro.distance("aa", "ba")) == (1, pytest.approx(0.5))
    by_way = JaroWinkler.distance("a", "aa") + JaroWinkler.distance("aa", "ba")
    assert (JaroWinkler.distance("a", "ba"), round(by_way, 2)) == (1, 0.48)


@pytest.mark.parametrize("metric", METRICS)
def test_metrics_obey_the_triangle(metric: str) -> None:
    rng = np.random.default_rng(3)
    rows: dict[str, Any] = {
        "haversine": (rng.uniform(-1, 1, (12, 2)) * (180, 90)).tolist(),
        "levenshtein": WORDS,
        "hamming": WORDS,
        "jaccard": [tuple("abcde"[i : i + n]) for i in range(4) for n in (1, 2)],
        "angular": rng.normal(0, 1, (12, 4)).tolist(),
    }
    points = rows.get(metric) or rng.normal(0, 5, (12, 3)).tolist()
    found = METRICS[metric]
    table = [found.distances(point, found.of(points)) for point in points]
    for a, b, c in itertools.product(range(len(points)), repeat=3):
        assert table[a][c] <= table[a][b] + table[b][c] + 1e-9
        assert abs(table[a][b] - table[b][a]) <= 1e-9
        assert table[a][a] < 1e-7


def test_angles_are_exact_at_both_ends() -> None:
    """Of the stored angles none may be off by more than the slack; the formula of queries is, near the antipode."""
    off = [0.0, 1e-7, 1e-3, 1.0]
    for origin, sign in (((20.0, 30.0), 0), ((200.0, -30.0), 1)):
        found = METRICS["haversine"].distances(origin, METRICS["haversine"].of([(20.0, 30.0 + angle) for angle in off]))
        exact = np.abs(np.pi * sign - np.radians(off))
        assert np.abs(found - exact).max() < 1e-14
        assert found[0] == exact[0]


@pytest.mark.parametrize(
    ("metric", "types", "says"),
    [
        ("euclidean", ("double", "string"), "got string"), ("levenshtein", ("int",), "needs a string"),
        ("haversine", ("double",), "longitude and latitude"), ("levenshtein", ("string", "string"), "one expression"),
        ("angular", ("double",), "array of numbers"), ("jaccard", ("array<double>",), "array of strings"),
        ("hamming", ("double",), "a whole number or a string"), ("levenshtein", ("string collate UNICODE",), "string"),
    ],
)  # fmt: skip
def test_unsuitable_columns_are_refused(metric: str, types: tuple[str, ...], says: str) -> None:
    columns = [SourceColumn(f"c{i}", kind, pa.null()) for i, kind in enumerate(types)]
    with pytest.raises(UnsupportedColumnError, match=says):
        MetricDist(*(c.text for c in columns), metric=metric).metadata_type(*columns)


@pytest.mark.parametrize(
    ("texts", "options", "says"),
    [
        ((), {"metric": "euclidean"}, "column names"), (("x",), {}, "needs metric="),
        (("x",), {"metric": "euclidean", "origins": 0}, "1 to 1000"),
        (("x", "y"), {"metric": "euclidean", "origins": [(1.0,)]}, "no point"),
        (("x",), {"metric": "euclidean", "origins": [NAN]}, "no point"),
        (("x",), {"metric": "levenshtein", "origins": [5]}, "no point"),
        (("v",), {"metric": "angular", "origins": [(1.0, 2.0), (1.0,)]}, "no point"),
        (("x",), {"metric": "euclidean", "origins": []}, "needs an origin at least, got none"),
        (("x",), {"metric": lambda a, b: 0}, "not declared to be a metric"),
    ],
)  # fmt: skip
def test_wrong_specifications_are_refused(texts: tuple[str, ...], options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSpecificationError, match=says):
        MetricDist(*texts, **options)


def test_origins_are_not_part_of_the_text() -> None:
    plain = MetricDist("word", metric="levenshtein")
    given_ = MetricDist("word", metric="levenshtein", origins=["", "abc"])
    assert str(plain) == str(given_) == "metricdist(word, metric=levenshtein)"
    assert given_.prepare(pa.array(["x", "yy"])) is given_
    chosen: Any = plain.prepare(pa.array(["x", "yy", "zzzz", "yy"]))
    assert sorted(chosen.origins) == ["x", "yy", "zzzz"]
    assert plain.origins == "auto"
    assert MetricDist("x", metric="euclidean").prepare(pa.array([], pa.float64())).origins == ((0.0,),)  # type: ignore[attr-defined]
    of_nulls = MetricDist("v", metric="angular").prepare(pa.array([None], pa.list_(pa.float64())))
    assert index_from_json(json.loads(json.dumps(of_nulls.to_json()))) == of_nulls
    with pytest.raises(InvalidSpecificationError, match="prepare"):
        plain.collect(pa.array(["x"]))


def steps(a: int, b: int) -> float:
    return float(abs(a - b))


def squared(a: float, b: float) -> float:
    return (a - b) ** 2


def test_a_declared_metric_serves_its_own_function_alone() -> None:
    with mappings():
        geoskip.declare(steps, metric=True)
        files: list[Any] = [[(0,), (3,)], [(100,), (104,)], [(None,)], []]
        some = world("steps", ("int",), files)
        column, identity = some.index.bound[0], f"python:{some.index.function}"
        literal = p.Literal(2, "int")
        for args in ((column, literal), (literal, column)):
            called = p.Call("f", args, identity, ("eval:100",), "double")
            assert kept(some, called, "<", 5) == [True, False, True, False]  # f may say anything of NULL
            assert kept(some, called, ">", 50) == [False, True, True, False]
        for other in (
            p.Call("f", (column, literal), "python:tests.other#1", ("eval:100",), "double"),
            p.Call("f", (column, literal), identity, ("eval:200",), "double"),
            p.Call("f", (column, literal), identity, ("eval:101",), "int"),
            p.Call("f", (column, column), identity, ("eval:100",), "double"),
        ):
            assert kept(some, other, "<", 5) == [True] * 4
        geoskip.declare(steps, null_in_null_out=True)
        called = p.Call("f", (column, literal), identity, ("eval:100",), "double")
        assert kept(some, called, "<", 5) == [True, False, False, False]
        spec = some.index.to_json()
    unknown = index_from_json(spec)  # nobody has declared it here
    assert unknown.bind([column]).clause(p.Comparison("<", called, p.Literal(5.0, "double"))) is None
    with pytest.raises(InvalidSpecificationError, match="declare"):
        unknown.collect(pa.array([1], pa.int32()))


def test_distances_of_whole_numbers_that_wrap_around_keep() -> None:
    with mappings():
        geoskip.declare(steps, metric=True)
        some = world("steps", ("bigint",), [[(2**32 + 3,)], [(3,)], [(900,)]])
        args = (some.index.bound[0], p.Literal(0, "bigint"))
        for kind, expected in (("int", [True, True, False]), ("bigint", [False, True, False])):
            called = p.Call("f", args, f"python:{some.index.function}", ("eval:100",), kind)
            assert kept(some, called, "<=", 5) == expected


def strict(a: float, b: float) -> float:
    return float(abs(a - b)) if {a, b} != {0, 7} else 1 / 0


def test_an_origin_whose_distance_fails_says_nothing() -> None:
    with mappings():
        geoskip.declare(strict, metric=True)
        some = world("strict", ("int",), [[(3,)], [(700,)]], origins=[(100,), (7,)])
        called = p.Call("f", (some.index.bound[0], p.Literal(0, "int")), f"python:{some.index.function}",
                        ("eval:100",), "double")  # fmt: skip
        assert kept(some, called, "<=", 5) == [True, False]
        wide = world("strict", ("bigint",), [[(2**32 + 3,)], [(700,)]], origins=[(100,), (7,)])
        called = p.Call("f", (wide.index.bound[0], p.Literal(0, "bigint")), f"python:{some.index.function}",
                        ("eval:100",), "int")  # fmt: skip
        assert kept(wide, called, "<=", 5) == [True, False]  # the first distance wraps around


def single(a: float, b: float) -> float:
    return float(np.abs(np.float32(a) - np.float32(b)))


def test_a_declared_metric_may_compute_in_single_precision() -> None:
    with mappings():
        geoskip.declare(single, metric=True)
        far, near = 16777216.0, 3.0
        some = world("single", ("double",), [[(near,)], [(5e6,)]], origins=[(-far,)])
        called = p.Call("f", (some.index.bound[0], p.Literal(2.0, "double")), f"python:{some.index.function}",
                        ("eval:100",), "double")  # fmt: skip
        assert single(-far, near) > single(-far, 2.0) + single(near, 2.0)
        assert kept(some, called, "<=", 1.0) == [True, False]


def six_digits(a: float, b: float) -> float:
    exact = abs(a - b)
    return exact * (1 + 9e-7 if exact > 1.5 else 1 - 9e-7)


def test_a_declared_metric_may_be_exact_to_six_digits_in_stored_distances_too() -> None:
    with mappings():
        geoskip.declare(six_digits, metric=True)
        for row, constant in ((2.0, 1.0), (1.0, 2.0)):
            some = world("six_digits", ("double",), [[(row,)], [(5.0,)]], origins=[(0.0,)])
            called = p.Call("f", (some.index.bound[0], p.Literal(constant, "double")),
                            f"python:{some.index.function}", ("eval:100",), "double")  # fmt: skip
            assert kept(some, called, "<=", six_digits(row, constant)) == [True, False]


def test_whole_distances_are_compared_with_decimals_as_they_are() -> None:
    some = world("levenshtein", ("string",), [[("ab",)], [("abcdefgh",)]])
    called = catalyst("Levenshtein", some.index.bound[0], p.Literal("abcd", "string"), type="int")
    assert kept(some, called, "<", Decimal("2.00000000000000000001"))[0]
    assert kept(some, called, ">", Decimal("1.99999999999999999999"))[0]
    assert kept(some, called, "<", Decimal(3)) == [True, False]


def test_a_declared_metric_that_is_none_is_refused_by_its_sample() -> None:
    with mappings():
        geoskip.declare(squared, metric=True)
        with pytest.raises(InvalidSpecificationError, match=r"by way of \("):
            MetricDist("x", metric=squared).prepare(pa.array([0.0, 1.0, 2.0]))


def test_rows_that_are_not_finite_are_odd_to_a_declared_metric() -> None:
    with mappings():
        geoskip.declare(single, metric=True)
        values = pa.array([0.0, 5.0, math.inf, math.nan, math.nan, None])
        index = MetricDist("x", metric=single).prepare(values)
        found = index.collect(values)
        assert found is not None
        assert (found["odd"], found["nulls"], found["rows"], max(found["hi"])) == (3, 1, 6, 5)


def test_a_declared_metric_may_have_the_name_of_one_of_ours() -> None:
    """Then it is the user's, and Sedona's distances in metres do not meet its own."""

    def haversine(lng1: float, lat1: float, lng2: float, lat2: float) -> float:
        return ours.haversine(lng1, lat1, lng2, lat2, 6371.0) or 0.0

    with mappings():
        geoskip.declare(haversine, metric=True, version="1")
        some = world("haversine", ("double", "double"), [[(0.0, 0.0)], [(50.0, 0.0)]])
        point = [p.Literal(v, "double") for v in (0.0, 0.0)]
        own = p.Call("haversine", (*some.index.bound, *point), f"python:{some.index.function}", ("eval:100",), "double")
        assert kept(some, own, "<", 500) == [True, False]
        assert kept(some, our("haversine", *some.index.bound, *point), "<", 500) == [True, True]
        read: Any = index_from_json(MetricDist("x", "y", metric="euclidean").to_json())
        assert read.measures == "euclidean"
    with mappings():
        ready: Any = MetricDist("x", "y", metric="haversine")
        geoskip.declare(haversine, metric=True, version="1")
        assert index_from_json(ready.to_json()).measures == "haversine"  # type: ignore[attr-defined]


def test_another_function_of_the_name_does_not_meet_old_summaries() -> None:
    def twice(a: float, b: float) -> float:
        return 2 * abs(a - b)

    old = twice
    with mappings():
        geoskip.declare(old, metric=True, version="1")
        spec = MetricDist("x", metric="twice", origins=[0.0]).to_json()
        assert index_from_json(spec).required_metric().name == "twice"  # type: ignore[attr-defined]
        geoskip.declare(old, metric=True, version="2")
        assert index_from_json(spec).clause(p.Comparison("<", D, p.Literal(1.0))) is None
        with pytest.raises(InvalidSpecificationError, match="another twice"):
            index_from_json(spec).metadata_type(SourceColumn("x", "double", pa.float64()))


def apart(a: Any, b: Any) -> float:
    return float(a != b)


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamp_ntz", "binary", "decimal(9,2)", "array<date>"])
def test_a_declared_metric_over_what_python_gets_in_several_ways_is_refused(kind: str) -> None:
    with mappings():
        geoskip.declare(apart, metric=True)
        index = MetricDist("x", metric="apart")
        with pytest.raises(UnsupportedColumnError, match=re.escape(kind)):
            index.metadata_type(SourceColumn("x", kind, pa.null()))


@pytest.mark.parametrize("kind", ["int", "double", "string", "boolean", "array<array<double>>"])
def test_a_declared_metric_over_plain_values(kind: str) -> None:
    with mappings():
        geoskip.declare(apart, metric=True)
        assert MetricDist("x", metric="apart").metadata_type(SourceColumn("x", kind, pa.null()))


def test_summaries_that_lack_a_part_keep_their_files() -> None:
    index: Any = MetricDist("x", metric="euclidean", origins=[0.0, 9.0]).bind([p.Column("x", "double")])
    whole = index.collect(pa.array([1.0, 2.0]))
    lacking = [{**whole, **change} for change in ({"lo": None}, {"hi": [1.0]}, {"lo": [NAN, 1.0]}, {"odd": None})]
    stored = index.metadata_type(SourceColumn("x", "double", pa.float64()))
    table = pa.table({str(index): pa.array([whole, *lacking, {**whole, "gaps": None}, None], stored)})
    said = keep_mask(index.distance_to((50.0,)).compares("<", 3), FileMetadata.of(table))
    assert said.tolist() == [False, True, True, True, True, False, True]
