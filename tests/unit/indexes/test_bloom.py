"""BloomFilter: no false negative ever, about as many false positives as asked for, sizes, merging, refusals."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip import BloomFilter, GeoskipError
from geoskip import predicates as p
from geoskip.bounds.sort_keys import IncomparableError
from geoskip.clauses import keep_mask
from geoskip.errors import InvalidSpecificationError, UnsupportedColumnError
from geoskip.indexes import bloom
from geoskip.indexes.base import SourceColumn, index_from_json
from geoskip.indexes.bloom_hash import (
    LARGEST,
    bits_for,
    filter_of,
    hashes_of,
    hashes_of_each,
    hashes_of_keys,
    keys_of,
    places_of,
)
from geoskip.metadata import FileMetadata
from geoskip.planner import clause_for
from tests.support.evaluator import compare
from tests.support.strategies import examples

COLUMN = "v"
INTEGERS = {
    "tinyint": (pa.int8(), 8),
    "smallint": (pa.int16(), 16),
    "int": (pa.int32(), 32),
    "bigint": (pa.int64(), 64),
}
REALS = st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324])
BYTES = st.binary(max_size=40) | st.binary(min_size=505, max_size=520)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    **{name: (arrow, st.integers(-(2 ** (n - 1)), 2 ** (n - 1) - 1)) for name, (arrow, n) in INTEGERS.items()},
    "float": (pa.float32(), st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan])),
    "double": (pa.float64(), REALS),
    "boolean": (pa.bool_(), st.booleans()),
    "string": (pa.string(), BYTES.map(lambda raw: raw.decode("utf-8", "surrogateescape"))),
    "binary": (pa.binary(), BYTES),
    "date": (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    "timestamp": (pa.timestamp("us", "UTC"), st.integers(-(2**63), 2**63 - 1)),
    "timestamp_ntz": (pa.timestamp("us"), st.integers(-(2**63), 2**63 - 1)),
    "interval day to second": (pa.duration("us"), st.integers(-(2**63), 2**63 - 1)),
    "interval year to month": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "decimal(10,2)": (
        pa.decimal128(10, 2),
        st.integers(-(10**10) + 1, 10**10 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    ),
    "decimal(38,18)": (
        pa.decimal128(38, 18),
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -18))),
    ),
}


def array(kind: str, values: list[Any]) -> pa.Array:
    """Physical values as Arrow holds them."""
    arrow = VALUES[kind][0]
    if kind == "string":
        raw = pa.array([None if v is None else v.encode("utf-8", "surrogateescape") for v in values], pa.binary())
        return pa.Array.from_buffers(arrow, len(raw), raw.buffers(), raw.null_count)
    return pa.array(values, arrow)


def kept(index: BloomFilter, kind: str, node: p.Predicate, *files: list[Any], cut: int | None = None) -> list[bool]:
    """Which of the files a predicate reads; each made of two parts where ``cut`` says so."""
    bound = index.bind([p.Column(COLUMN, kind)])
    stored = index.metadata_type(SourceColumn(COLUMN, kind, VALUES[kind][0]))
    summaries = []
    for values in files:
        parts = [values] if cut is None else [values[:cut], values[cut:]]
        made = [index.collect(array(kind, part)) for part in parts]
        summaries.append(made[0] if cut is None else index.merge([m for m in made if m is not None]))
    clause = clause_for(node, [bound])
    metadata = FileMetadata.of(pa.table({str(index): pa.array(summaries, stored)}))
    return keep_mask(clause, metadata).tolist()


def equals(value: Any, kind: str | None, op: str = "=") -> p.Predicate:
    return p.Comparison(op, p.Column(COLUMN, kind), p.Literal(value, kind))


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", VALUES)
def test_a_value_of_a_file_is_always_found(kind: str) -> None:
    @settings(max_examples=examples(15), deadline=None, database=None)
    @given(st.lists(st.none() | VALUES[kind][1], max_size=6), st.integers(0, 6))
    def holds(values: list[Any], cut: int) -> None:
        index = BloomFilter(COLUMN)
        for value in (v for v in values if v is not None):
            for op in ("=", "<=>"):
                assert kept(index, kind, equals(value, kind, op), values, cut=cut) == [True]
            asked = p.In(p.Column(COLUMN, kind), (p.Literal(value, kind), p.Literal(None)))
            assert kept(index, kind, asked, values) == [True]

    holds()


@pytest.mark.parametrize("family", [["tinyint", "smallint", "int", "bigint", "decimal(20,2)", "decimal(38,18)"]])
def test_a_number_has_one_hash_in_every_width(family: list[str]) -> None:
    arrows = {**{k: a for k, (a, _) in INTEGERS.items()}, "decimal(20,2)": pa.decimal128(20, 2)}
    arrows["decimal(38,18)"] = pa.decimal128(38, 18)
    for number in (0, 1, -1, 127, -128):
        found = {kind: hashes_of(pa.array([number], arrows[kind])) for kind in family}
        assert len({int(hashes[0]) for hashes in found.values() if hashes is not None}) == 1


@pytest.mark.parametrize("arrow", [pa.large_string(), pa.binary(), pa.large_binary(), pa.dictionary(pa.int8(), "utf8")])
def test_a_text_has_one_hash_in_every_form(arrow: pa.DataType) -> None:
    texts = pa.array(["5", "12", None])
    assert sorted(hashes_of(texts.cast(arrow))) == sorted(hashes_of(texts))


def test_zeros_are_one_value_and_nan_another() -> None:
    odd_nan = np.array([0x7FF8_0000_0000_0001], dtype=np.uint64).view(np.float64)[0]
    for one, other in ((0.0, -0.0), (math.nan, odd_nan), (math.nan, -math.nan)):
        assert kept(BloomFilter(COLUMN), "double", equals(one, "double"), [float(other)]) == [True]
    widened = p.Cast(p.Column(COLUMN, "float"), "double", "float")
    for value, held in ((float(np.float32(0.1)), True), (0.1, False)):
        asked = p.Comparison("=", widened, p.Literal(value, "double"))
        assert kept(BloomFilter(COLUMN), "float", asked, [0.1]) == [held]


@settings(max_examples=examples(150), deadline=None, database=None)
@given(
    st.sampled_from([("int", ["bigint"]), ("bigint", ["double"]), ("int", ["float"]), ("smallint", ["int", "double"])]),
    st.lists(st.integers(-128, 127) | st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=4),
    st.data(),
)
def test_an_equality_after_widening_casts_finds_what_spark_finds(chain: Any, values: list[int], data: Any) -> None:
    kind, casts = chain
    bits = INTEGERS[kind][1]
    values = [v for v in values if -(2 ** (bits - 1)) <= v < 2 ** (bits - 1)] or [1]
    single, real = "float" in casts, casts[-1] in ("float", "double")
    cast = [float(np.float32(v)) if single else float(v) if real else v for v in values]
    literal = data.draw(st.sampled_from(cast) | (st.floats(width=32) if real else st.integers(-200, 200)))
    node: p.Predicate = p.Column(COLUMN, kind)
    for target in casts:
        node = p.Cast(node, target)
    found = kept(BloomFilter(COLUMN), kind, p.Comparison("=", node, p.Literal(literal, casts[-1])), values)
    assert found == [True] or not any(compare(v, literal) == 0 for v in cast)


@pytest.mark.parametrize(
    ("kind", "casts", "value", "type_"),
    [
        ("bigint", ["double"], float(2**57), "double"),
        ("int", ["float"], float(2**30), "float"),
        ("decimal(20,2)", ["double"], 1e16, "double"),
        ("double", ["float"], 0.1, "float"),
        ("bigint", ["int"], 1, "int"),
        ("int", ["decimal(4,0)"], Decimal(1), "decimal(4,0)"),
        ("string", ["int"], 1, "int"),
        ("timestamp", ["date"], 1, "date"),
        ("timestamp", [], 1, "timestamp_ntz"),
        ("boolean", [], 1, "int"),
    ],
)
def test_what_may_round_to_many_overflow_or_mix_types_is_left_alone(
    kind: str, casts: list[str], value: Any, type_: str
) -> None:
    with pytest.raises(IncomparableError):
        keys_of(kind, casts, p.Literal(value, type_))


@pytest.mark.parametrize(
    ("kind", "casts", "value", "found"),
    [
        ("bigint", ["double"], 2.0**53, [2**53, 2**53 + 1]),
        ("int", ["float"], 2.0**24, [2**24, 2**24 + 1]),
        ("int", ["float", "double"], 0.1, []),
        ("decimal(10,2)", ["double"], 0.1, [(1, 1)]),
        ("decimal(10,2)", ["decimal(12,4)", "double"], -2.0, [-2]),
        ("decimal(10,2)", ["double"], 0.105, []),
        ("decimal(10,2)", ["double"], 1e300, []),
        ("decimal(10,2)", ["float"], 0.2, [(2, 1)]),
        ("decimal(20,0)", ["double"], 2.0**50, [2**50]),
        ("decimal(20,0)", ["double"], 2.0**53, [2**53, 2**53 + 1]),
        ("float", [], 0.1, [float(np.float32(0.1))]),
        ("float", ["double"], 0.1, [0.1]),
    ],
)
def test_the_numbers_that_a_cast_may_round_to_a_double_are_looked_for(
    kind: str, casts: list[str], value: float, found: list[Any]
) -> None:
    assert keys_of(kind, casts, p.Literal(value, [kind, *casts][-1])) == found


@pytest.mark.parametrize("fpp", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("distinct", [30, 1000, 1500])
def test_false_positives_are_no_more_than_asked_for(fpp: float, distinct: int) -> None:
    random = np.random.default_rng(distinct)
    files = [random.integers(0, 2**62, distinct) for _ in range(80)]
    index = BloomFilter(COLUMN, fpp=fpp).bind([p.Column(COLUMN, "bigint")])
    stored = index.metadata_type(SourceColumn(COLUMN, "bigint", pa.int64()))
    metadata = FileMetadata.of(pa.table({str(index): pa.array([index.collect(pa.array(f)) for f in files], stored)}))
    asked = [equals(int(value), "bigint") for value in random.integers(-(2**62), -1, 500)]
    clauses = [index.clause(node) for node in asked]
    found = np.mean([keep_mask(clause, metadata) for clause in clauses if clause is not None])
    loads = [bits_for(distinct, fpp) / (8 * len(index.collect(pa.array(files[0]))["filters"][0]))]  # type: ignore[index]
    assert loads == [1.0]
    assert fpp / 12 < found < 1.15 * fpp


def test_the_size_follows_from_the_number_of_distinct_values() -> None:
    assert [bits_for(n, 0.01) for n in (0, 1, 10, 100, 1000, 10_000)] == [0, 64, 96, 1024, 12288, 98304]
    for distinct in range(1, 5000, 37):
        assert 9.5 * distinct <= bits_for(distinct, 0.01) <= max(64, 14.5 * distinct + 64)
    repeated = BloomFilter(COLUMN).collect(pa.array([7] * 10_000))
    assert repeated is not None
    assert len(repeated["filters"][0]) == 8


def test_parts_of_one_task_make_one_filter_and_parts_of_several_a_list() -> None:
    index = BloomFilter(COLUMN)
    values = list(range(4000))
    parts = [index.collect(pa.array(values[at : at + 1000])) for at in range(0, 4000, 1000)]
    whole = index.collect(pa.array(values))
    assert index.merge([part for part in parts if part]) == whole
    sent = [pickle.loads(pickle.dumps(part)) for part in parts]
    apart = index.merge(sent)
    assert [type(part) for part in sent] == [dict] * 4
    assert len(apart["filters"]) == 4
    assert apart["rows"] == 4000
    assert len(pickle.dumps(parts[0])) < 3000, "hashes do not travel"
    assert kept(index, "bigint", p.In(p.Column(COLUMN, "bigint"), (p.Literal(3999, "bigint"),)), values) == [True]


def test_a_filter_that_would_be_too_large_is_not_stored_and_keeps() -> None:
    assert bits_for(10**7, 0.01) > LARGEST
    assert filter_of(np.arange(6 * 10**6, dtype=np.uint64), 1e-9) is None
    index = BloomFilter(COLUMN)
    unknown = {"filters": None, "version": 1, "nulls": 0, "rows": 1}
    assert index.merge([unknown, pickle.loads(pickle.dumps(index.collect(pa.array([1]))))])["filters"] is None


@pytest.mark.slow
@pytest.mark.parametrize(("files", "size"), [(10, 3), (255, 3), (256, 3), (300, 60), (1500, 20)])
def test_slices_say_what_single_filters_say(files: int, size: int) -> None:
    random = np.random.default_rng(files)
    values = [random.integers(0, 3 * files, random.integers(0, size + 1)).tolist() for _ in range(files)]
    index = BloomFilter(COLUMN).bind([p.Column(COLUMN, "bigint")])
    stored = index.metadata_type(SourceColumn(COLUMN, "bigint", pa.int64()))
    summaries = [
        None if number % 50 == 3 else index.collect(pa.array(v, pa.int64())) for number, v in enumerate(values)
    ]
    together = FileMetadata.of(pa.table({str(index): pa.array(summaries, stored)}))
    single = [FileMetadata.of(pa.table({str(index): pa.array([s], stored)})) for s in summaries]
    for asked in ([0], [7], [1, 2, 3], list(range(40))):
        clause = index.clause(p.In(p.Column(COLUMN, "bigint"), tuple(p.Literal(n, "bigint") for n in asked)))
        assert clause is not None
        expected = [bool(keep_mask(clause, file)[0]) for file in single]
        assert keep_mask(clause, together).tolist() == expected
        assert all(keep or not set(asked) & set(v) for keep, v in zip(expected, values, strict=True))


def test_null_through_a_cast_is_not_known() -> None:
    column = p.Column("x", "double")
    index = BloomFilter("x").bind([column])
    assert index.clause(p.IsNull(p.Cast(column, "int", "double", tries=True))) is None
    assert index.clause(p.IsNull(column)) is not None


def test_filters_of_another_version_keep() -> None:
    index = BloomFilter(COLUMN).bind([p.Column(COLUMN, "bigint")])
    stored = index.metadata_type(SourceColumn(COLUMN, "bigint", pa.int64()))
    made = index.collect(pa.array([1]))
    assert made is not None
    table = pa.table({str(index): pa.array([made, {**made, "version": 2}, {**made, "filters": [None]}], stored)})
    clause = index.clause(equals(5, "bigint"))
    assert clause is not None
    assert keep_mask(clause, FileMetadata.of(table)).tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("values", "hashes"),
    [
        (pa.array([0, 1, -1]), [0xE220A8397B1DCDAF, 0x910A2DEC89025CC1, 0xE4D971771B652C20]),
        (pa.array(["", "12345678", "123456789"]), [0xE220A8397B1DCDAF, 0x83DBEC76B33F9CA3, 0x7CF46F00F45FA22A]),
        (pa.array(["x" * 600, "x" * 512]), [0x3F3CA0ACC2D06C16, 0x80F47AB9501DA4C2]),
        (pa.array([0.5, math.nan]), [0xC72971D82E15BB46, 0xF456984DD1D8CE6D]),
        (pa.array([Decimal("0.5"), Decimal(2**63)]), [0xE17B6D147DA182DA, 0xE58C6E449571C544]),
    ],
)
def test_hashes_are_those_of_filters_that_are_stored(values: pa.Array, hashes: list[int]) -> None:
    """Other hashes need another version, with which stored filters keep."""
    assert set(map(int, hashes_of(values))) == set(hashes)  # type: ignore[arg-type]


def test_the_bits_are_those_of_filters_that_are_stored() -> None:
    found = filter_of(hashes_of(pa.array(range(9))), 0.01)  # type: ignore[arg-type]
    assert found == bytes.fromhex("5396aa25a467c0edb6a1508f")


def test_nanoseconds_that_spark_would_cut_say_nothing() -> None:
    assert BloomFilter(COLUMN).collect(pa.array([1], pa.timestamp("ns"))) is None
    for unit, value in (("ns", 5_000_000), ("us", 5000), ("ms", 5)):
        array = pa.array([value], pa.timestamp(unit))
        for found in (hashes_of(array), *hashes_of_each([array])):
            assert found == hashes_of_keys([5000])


def test_the_specification_survives_json() -> None:
    for index in (BloomFilter("a"), BloomFilter("a", fpp=0.001)):
        assert index_from_json(index.to_json()) == index


@pytest.mark.parametrize("wrong", [0, 1, -0.1, "0.1", True, math.nan])
def test_a_rate_that_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidSpecificationError, match=r"1e-9 to 0.5.*0.01 serves well"):
        BloomFilter("a", fpp=wrong)


@pytest.mark.parametrize("kind", ["array<int>", "map<int,int>", "string collate UNICODE_CI", "variant", "geometry"])
def test_a_column_without_hashable_values_is_refused_with_the_way_out(kind: str) -> None:
    with pytest.raises(UnsupportedColumnError, match=r"bloomfilter\(a\) needs values that can be hashed") as caught:
        BloomFilter("a").metadata_type(SourceColumn("a", kind, pa.null()))
    assert isinstance(caught.value, GeoskipError)


@pytest.mark.parametrize("words", [1, bloom._SHORT - 1, bloom._SHORT, 3 * bloom._SHORT])
def test_few_words_and_many_have_the_same_bits(words: int) -> None:
    random = np.random.default_rng(words)
    table = random.integers(0, 2**64, (96, words), dtype=np.uint64) | random.integers(0, 2**64, words, dtype=np.uint64)
    group = bloom.FilterGroup(96, np.arange(64 * words), table, True)
    for value in random.integers(0, 2**64, 20, dtype=np.uint64):
        hashes = np.array([value])
        places = [int(some[0]) for some in places_of(hashes, 7, 96)]
        before, found = table.copy(), group.slices(hashes, 7)
        assert found.tolist() == np.bitwise_and.reduce(table[places], axis=0).tolist()
        assert (table == before).all()
        holds = [64 * at + bit for at, word in enumerate(found.tolist()) for bit in range(64) if word >> bit & 1]
        assert sorted(bloom._places_in(found).tolist()) == holds
