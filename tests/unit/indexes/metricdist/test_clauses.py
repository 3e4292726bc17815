"""MetricDist: no verdict excludes an outcome that a row has, for every metric and spelling."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from geoskip import predicates as p
from geoskip.metrics import strings
from geoskip.metrics.strings import GROUP, StringHeads, StringLists, merge_outlines, outline_of
from tests.support.metric_worlds import (
    INF,
    NAN,
    WORDS,
    D,
    as_double,
    catalyst,
    conditions,
    edit_distance,
    files_of,
    greatest,
    hypot,
    kept,
    minus,
    our,
    powers,
    rooted_squares,
    sound,
    squares,
    sum_of_absolutes,
    value,
    world,
)
from tests.support.strategies import examples
from udf_mappings import metric_functions as ours

small = st.integers(-6, 6).map(float) | st.floats(-9, 9)
ends = [0.0, -0.0, 1e-200, -1e-160, 5e-324, 1e-150, 1e150, -1e150, 1.1e150, -1e200, 1e308, INF, -INF, NAN]
doubles = st.one_of(small, small, small, st.sampled_from(ends))
constants = small | st.sampled_from([e for e in ends if math.isfinite(e)])
radii = st.one_of(st.floats(0, 20), st.integers(-1, 15).map(float), st.sampled_from([*ends, 1e-170, 1e201, 2e150]))
narrow = st.one_of(st.integers(-6, 6), st.integers(-(2**31), 2**31 - 1), st.sampled_from([46340, -46341, 2**31 - 1]))
wide = st.one_of(st.integers(-6, 6), st.sampled_from([2**31, -(2**62), 2**63 - 1, -(2**63), 3037000499, 2**53 + 1]))

SPELLINGS = [
    ("euclidean", powers), ("euclidean", rooted_squares), ("euclidean", hypot), ("manhattan", sum_of_absolutes),
    ("chebyshev", greatest), ("squared", squares),
]  # fmt: skip
NUMBERS = {"double": (doubles, constants), "int": (narrow, narrow), "bigint": (wide, wide)}
lenient = settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck), database=None)


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize(("metric", "spelling"), SPELLINGS, ids=lambda x: getattr(x, "__name__", x))
def test_sql_spellings_lose_no_row(metric: str, spelling: Any, kind: str) -> None:
    values, points = NUMBERS[kind]

    @lenient
    @given(files_of(values, 2), st.tuples(points, points), conditions(radii), st.integers(0, 2), st.booleans())
    def holds(files: list[Any], point: tuple[Any, Any], predicate: p.Predicate, cut: int, ansi: bool) -> None:
        some = world("euclidean" if metric == "squared" else metric, (kind, kind), files, cut=cut)
        distance = spelling(list(some.index.bound), point, "ANSI" if ansi else "LEGACY")
        sound(predicate, distance, some, lambda row: value(distance, {"c0": row[0], "c1": row[1]}))

    holds()


def test_the_least_whole_number_has_no_absolute_value() -> None:
    for kind, least in (("int", -(2**31)), ("bigint", -(2**63))):
        some = world("manhattan", (kind,), [[(least,)], [(70,)], [(3,)]], origins=[(0,)])
        absolute = catalyst("Abs", some.index.bound[0], type=kind, mode="LEGACY")  # which is -2147483648
        assert kept(some, absolute, "<", 5) == [True, False, True]
        assert kept(some, absolute, "<", -5) == [True, False, False]


def test_the_greatest_of_the_coordinates_that_are_not_null_is_a_distance() -> None:
    files = [[(None, 1.0), (1.0, None)], [(None, 1.0)], [(None, None)]]
    some = world("chebyshev", ("double", "double"), files, origins=[(0.0, 0.0)], cut=2)
    assert kept(some, greatest(list(some.index.bound), (1.0, 1.0), "ANSI"), "<", 2) == [True, True, False]


@pytest.mark.parametrize("kind", ["float", "string", "tinyint"])
def test_functions_registered_to_return_what_rounds_or_wraps_keep(kind: str) -> None:
    places = world("haversine", ("double", "double"), [[(10.0, 0.0)], [(50.0, 0.0)]])
    sets_of = world("jaccard", ("array<string>",), [[(["a"],)], [(["z"],)]])
    point = (p.Literal(100.0, "double"), p.Literal(0.0, "double"))
    for some, distance in (
        (places, our("haversine", *places.index.bound, *point)),
        (sets_of, our("jaccard", sets_of.index.bound[0], p.Literal(("a",), "array<string>"))),
    ):
        assert False in kept(some, distance, ">=", 1e8)
        assert kept(some, replace(distance, type=kind), ">=", 1e8) == [True, True]


def test_functions_registered_to_return_another_type_are_null() -> None:
    bits = world("hamming", ("bigint",), [[(5,)], [(6,)]])
    args = (bits.index.bound[0], p.Literal(5, "bigint"))
    assert not sound(p.IsNull(D), our("hamming", *args), bits, lambda row: ours.hamming(row[0], 5)).any()
    assert sound(p.IsNull(D), our("hamming", *args, type="double"), bits, lambda row: None).all()


words = st.sampled_from(WORDS) | st.text("abcs", max_size=10)


@settings(lenient, max_examples=examples(120))
@given(
    files_of(st.none() | words, 1), words, conditions(st.integers(-2, 12) | st.floats(-2, 12)),
    st.none() | st.integers(0, 5), st.booleans(), st.sampled_from([0, 1, 2, strings.MOST]),
)  # fmt: skip
@example([[("abc",)], [("abcd",)]], "abc", p.Comparison("<", D, p.Literal(0, "int")), 0, False, 0)
@example([[("abc",)], []], "abc", p.Comparison("<", D, p.Literal(1e300, "double")), None, False, 1024)
@example([[("abc",), ("b",), ("c",)]], "abc", p.Comparison("=", D, p.Literal(0, "int")), None, False, 1)
def test_levenshtein_loses_no_row(
    files: list[Any], text: str, predicate: p.Predicate, most: int | None, first: bool, listed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strings, "MOST", listed)
        some = world("levenshtein", ("string",), files)
        assert len(some.metadata) == len(files)  # made with this limit
    sides = (p.Literal(text, "string"), some.index.bound[0])
    limit = () if most is None else (p.Literal(most, "int"),)
    distance = catalyst("Levenshtein", *(sides if first else sides[::-1]), *limit, type="int")

    def of(row: tuple[Any, ...]) -> int | None:
        if row[0] is None:
            return None
        found = edit_distance(row[0], text)
        return found if most is None or found <= most else -1

    sound(predicate, distance, some, of)


@settings(lenient, max_examples=examples(50))
@given(
    st.lists(st.lists(words, min_size=1, max_size=40, unique=True), min_size=1, max_size=5),
    words,
    st.integers(0, 7),
    st.booleans(),
)
def test_outlines_bound_distances_exactly(files: list[list[str]], text: str, distance: int, in_parts: bool) -> None:
    made = [
        merge_outlines([outline_of(some[:7]), outline_of(some[7:] or some)]) if in_parts else outline_of(some)
        for some in files
    ]
    heads = pa.array([outline["outline"] for outline in made], pa.list_(pa.string()))
    groups = pa.array([outline["groups"] for outline in made], pa.list_(GROUP))
    said = StringHeads.of(heads, groups).files_within(text, distance)
    older = StringHeads.of(heads, pa.nulls(len(heads))).files_within(text, distance)
    for file, outline, near, before in zip(files, made, said.tolist(), older.tolist(), strict=True):
        assert near or all(edit_distance(word, text) > distance for word in file)
        least = [min(edit_distance(h, text[:j]) for j in range(len(text) + 1)) for h in outline["outline"]]
        assert before == (min(least) <= distance)
        bounds = [
            max(of_head, group["shortest"] - len(text), len(text) - group["longest"], _absent(text, group["letters"]))
            for of_head, group in zip(least, outline["groups"], strict=True)
        ]
        assert near == (min(bounds) <= distance)


def _absent(text: str, letters: int) -> int:
    return sum(not letters >> ord(letter) % 32 & 1 for letter in text)


degrees = st.tuples(
    st.sampled_from([-180.0, 0.0, 179.9, 180.0, 359.0, 8.5]) | st.floats(-181, 361),
    st.sampled_from([-90.0, 0.0, 90.0, 47.4, 91.0]) | st.floats(-90, 90),
)
angles = st.sampled_from([0.0, math.pi, math.pi / 2, 3.0, 1e-9]) | st.floats(0, 3.2)
vectors = st.lists(st.integers(-3, 3).map(float), min_size=3, max_size=3) | st.sampled_from([[], [1.0], [NAN] * 3])
sets = st.lists(st.sampled_from("abcdef"), max_size=4)
METRIC_CASES: dict[str, tuple[Any, ...]] = {
    "haversine": (("double", "double"), degrees, angles.map(lambda a: a * 6371.0)),
    "hamming": (("bigint",), st.tuples(wide), st.integers(-1, 66)),
    "hamming of texts": (("string",), st.tuples(words), st.integers(-1, 12)),
    "angular": (("array<double>",), st.tuples(vectors), angles),
    "jaccard": (("array<string>",), st.tuples(sets), st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 2 / 3, 0.9, 1.0])),
}


@pytest.mark.hypothesis
@pytest.mark.parametrize("name", METRIC_CASES)
def test_functions_of_our_own_lose_no_row(name: str) -> None:
    kinds, rows, numbers = METRIC_CASES[name]
    metric = name.partition(" ")[0]
    function = getattr(ours, metric)

    @settings(lenient, max_examples=examples(40))
    @given(st.lists(st.lists(rows, max_size=4), min_size=1, max_size=4), rows, conditions(numbers), st.booleans())
    def holds(files: list[Any], point: tuple[Any, ...], predicate: p.Predicate, first: bool) -> None:
        some = world(metric, kinds, files)
        if not some.index.origins:
            return
        literals = [p.Literal(tuple(v) if isinstance(v, list) else v, k) for v, k in zip(point, kinds, strict=True)]
        sides = [some.index.bound, tuple(literals)]
        extra = (6371.0,) if metric == "haversine" else ()
        args = [arg for side in (sides if first else sides[::-1]) for arg in side] + [p.Literal(e) for e in extra]
        sound(predicate, our(metric, *args), some, lambda row: function(*row, *point, *extra))

    holds()


@lenient
@given(st.lists(st.lists(st.tuples(wide), max_size=3), min_size=1, max_size=4), wide, conditions(st.integers(-1, 66)))
def test_bits_lose_no_row(files: list[Any], constant: int, predicate: p.Predicate) -> None:
    some = world("hamming", ("bigint",), files)
    if some.index.origins:
        differing = catalyst("BitwiseXor", some.index.bound[0], p.Literal(constant, "bigint"), type="bigint")
        distance = catalyst("BitwiseCount", differing, name="bit_count", type="int")
        sound(predicate, distance, some, lambda row: ours.hamming(row[0], constant))


@lenient
@given(st.lists(st.lists(st.none() | sets, max_size=4), min_size=1, max_size=4), sets.filter(bool),
       conditions(st.sampled_from([0.0, 0.25, 0.5, 2 / 3, 1.0])), st.booleans())  # fmt: skip
def test_shares_of_sets_lose_no_row(files: list[Any], constant: list[str], predicate: p.Predicate, whole: bool) -> None:
    some = world("jaccard", ("array<string>",), [[(v,) for v in rows] for rows in files])
    literal = p.Literal(tuple(constant), "array<string>")
    sizes = [
        as_double(catalyst("Size", catalyst(kind, some.index.bound[0], literal, type="array<string>"), type="int"))
        for kind in ("ArrayIntersect", "ArrayUnion")
    ]
    share: p.Predicate = catalyst("Divide", *sizes, name="/")
    distance = catalyst("Subtract", p.Literal(1.0, "double"), share, name="-") if whole else share

    def of(row: tuple[Any, ...]) -> float:
        if row[0] is None:  # with spark.sql.legacy.sizeOfNull
            return 0.0 if whole else 1.0
        found = ours.jaccard(row[0], constant) or 0.0
        return found if whole else 1 - found

    sound(predicate, distance, some, of)


@pytest.mark.parametrize("kinds", ["ArrayMax ArrayIntersect ArrayUnion", "Size ArrayExcept ArrayUnion",
                                   "Size ArrayIntersect ArrayExcept"])  # fmt: skip
def test_what_only_looks_like_a_share_of_sets_keeps(kinds: str) -> None:
    some = world("jaccard", ("array<string>",), [[(["z"],)]])
    of, *pair = kinds.split()
    literal = p.Literal(("a",), "array<string>")
    sides = [catalyst(kind, some.index.bound[0], literal, type="array<string>") for kind in pair]
    share = catalyst("Divide", *(as_double(catalyst(of, side, type="int")) for side in sides), name="/")
    assert kept(some, share, ">", 0.5) == [True]


def test_a_product_of_two_differences_is_no_square() -> None:
    some = world("euclidean", ("double",), [[(5.0,)]], origins=[(0.0,)])
    for other, keeps in ((5.0, True), (1.0, False)):
        sides = (minus(some.index.bound[0], number, "ANSI") for number in (1.0, other))
        assert kept(some, catalyst("Sqrt", catalyst("Multiply", *sides, name="*")), "<", 1) == [keeps]


def test_a_square_is_above_every_negative_number() -> None:
    some = world("euclidean", ("double", "double"), [[(0.0, 0.0)]])
    distance = squares(list(some.index.bound), (0.0, 0.0), "ANSI")
    assert [kept(some, distance, op, -5) for op in (">", ">=", "<", "=")] == [[True], [True], [False], [False]]


def test_another_column_is_at_any_distance() -> None:
    some = world("levenshtein", ("string",), [[("ab",)]])
    for child, clauses in ((some.index.bound[0], True), (p.Column("other", "string"), False)):
        for node in (p.Comparison("=", child, p.Literal("x")), p.In(child, (p.Literal("x"),)), p.IsNull(child)):
            assert [some.index.clause(each) is not None for each in (node, p.Not(node))] == [clauses] * 2


# ---- what skips


def test_rings_skip_what_a_range_keeps() -> None:
    """A file of near and far rows is not read for what lies between."""
    files = [[(v, 0.0) for v in (0.0, 1.0, 50.0, 51.0)], [(v, 0.0) for v in (0.0, 20.0, 25.0, 51.0)]]
    some = world("euclidean", ("double", "double"), files, origins=[(0.0, 0.0)], cut=4)
    distance = powers(list(some.index.bound), (25.0, 0.0), "ANSI")
    assert kept(some, distance, "<", 2) == [False, True]
    merged = world("euclidean", ("double", "double"), files, origins=[(0.0, 0.0)], cut=2)
    assert kept(merged, distance, "<", 2) == [False, True]


def test_several_origins_skip_more_than_one() -> None:
    rng = np.random.default_rng(7)
    centres = rng.uniform(-100, 100, (300, 2))
    files = [[tuple(row) for row in centre + rng.normal(0, 1, (20, 2))] for centre in centres]
    shares = []
    for origins in (1, 16):
        some = world("euclidean", ("double", "double"), files, origins=origins)
        queries = [powers(list(some.index.bound), tuple(map(float, centre)), "ANSI") for centre in centres[:20]]
        shares.append(np.mean([kept(some, query, "<", 3) for query in queries]))
    assert shares[1] < 0.02 < shares[0] / 2


def city_files(*, shuffled: bool) -> list[list[tuple[str]]]:
    """Real names of places, a hundred a file."""
    zipcodes = Path(__file__).parents[4] / "datasets" / "zipcodes.parquet"
    names = sorted(set(pq.read_table(zipcodes, columns=["city"])["city"].to_pylist()))
    if shuffled:
        names = [names[at] for at in np.random.default_rng(3).permutation(len(names))]
    return [[(n,) for n in names[i : i + 100]] for i in range(0, len(names), 100)]


def near_springfield(some: Any, distance: int) -> tuple[list[bool], list[bool]]:
    """Which files are kept for names within a distance of a misspelt one, and which have one."""
    node = catalyst("Levenshtein", some.index.bound[0], p.Literal("Springfeld", "string"), type="int")
    holding = [any(edit_distance(name, "Springfeld") <= distance for (name,) in rows) for rows in some.files]
    return kept(some, node, "<=", distance), holding


def test_sorted_words_are_skipped_by_their_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that have too many words to keep them."""
    monkeypatch.setattr(strings, "MOST", 99)
    some = world("levenshtein", ("string",), city_files(shuffled=False))
    assert np.mean(near_springfield(some, 1)[0]) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("distance", [0, 1, 2, 9])
def test_few_words_are_kept_and_decide_exactly(distance: int) -> None:
    """Of words in no order, no bound over a file would exclude it."""
    found, holding = near_springfield(world("levenshtein", ("string",), city_files(shuffled=True)), distance)
    assert found == holding
    assert sum(holding) < len(holding) or distance == 9


def test_lists_of_words_that_are_lost_or_damaged_keep() -> None:
    lists = pa.array([["a", "b"], None, [], ["a", None], ["c"], ["b"]], pa.list_(pa.string()))
    found = StringLists.of(lists)
    assert found.texts == ["a", "b", "c"]
    wanted = np.array([text == "b" for text in found.texts])
    assert found.files_holding(wanted).tolist() == [True, True, True, True, False, True]
    assert StringLists.of(pa.nulls(2)).files_holding(np.zeros(0, dtype=bool)).tolist() == [True, True]
