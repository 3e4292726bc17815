"""ValueList, Formatted and Hybrid: what is stored, what is refused, and where a list gives way to a filter."""

from __future__ import annotations

import datetime as dt
import json
import math
import pickle
import weakref
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoskip import Formatted, Hybrid, ValueList
from geoskip import predicates as p
from geoskip.clauses import keep_mask
from geoskip.errors import InvalidSpecificationError, UnsupportedColumnError
from geoskip.indexes.base import Index, SourceColumn, index_from_json
from geoskip.indexes.bloom_hash import bits_for, filter_of, hashes_of
from geoskip.indexes.hybrid import list_costs_less
from geoskip.indexes.postings import postings_of
from geoskip.indexes.stored_bounds import sharing_results
from geoskip.metadata import FileMetadata
from geoskip.planner import clause_for
from tests.support.harness import COLUMNS, POOLS, TYPES, array_of

LOG = Formatted("line", template=r"^(?<ip>\S+) .*\[(?<day>[^:]+)")
SPECIFICATIONS: list[Index] = [
    ValueList("city"),
    ValueList("upper(city)", limit=7),
    Hybrid("n"),
    Hybrid("n", fpp=0.001, psi=0.5),
    Formatted("agent", extract="name_of"),
    Formatted("url", extract="parse_url({}, 'HOST')", limit=5),
    LOG,
]


@pytest.mark.parametrize("index", SPECIFICATIONS, ids=str)
def test_a_specification_survives_json(index: Index) -> None:
    again = index_from_json(json.loads(json.dumps(index.to_json())))
    assert again == index
    assert str(again) == str(index)


REFUSED: dict[str, Callable[[], Any]] = {
    "ValueList needs a column name": lambda: ValueList(" "),
    "from 1 on, got 0": lambda: ValueList("c", limit=0),
    "from 1 on, got True": lambda: ValueList("c", limit=True),
    "Hybrid needs a column name": lambda: Hybrid(""),
    r"Hybrid\('c'\) needs a rate": lambda: Hybrid("c", fpp=0.9),
    "share of files that queries must read": lambda: Hybrid("c", psi=1.5),
    "Formatted needs a column name": lambda: Formatted("", extract="f"),
    "needs either extract=": lambda: Formatted("c"),
    "or template=": lambda: Formatted("c", extract="f", template="(?<a>x)"),
    "SQL name of a function": lambda: Formatted("c", extract=len),  # type: ignore[arg-type]
    r"with \{\}": lambda: Formatted("c", extract="upper(c)"),
    "neither a function's name": lambda: Formatted("c", extract="name of"),
    "names no part": lambda: Formatted("c", template=r"(\d+)"),
    "Java's syntax": lambda: Formatted("c", template=r"(?P<a>\d+)"),
    "both kinds of quotes": lambda: Formatted("c", template="""(?<a>'"')"""),
    "no part 'month'; its parts are ip, day": lambda: LOG.part("month"),
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_makes_no_sense_is_refused(says: str) -> None:
    with pytest.raises(InvalidSpecificationError, match=says):
        REFUSED[says]()


@pytest.mark.parametrize("index", [ValueList("a"), Hybrid("a")], ids=str)
@pytest.mark.parametrize("kind", ["array<int>", "struct<x:int>", "map<string,int>", "interval"])
def test_types_without_an_order_are_refused_with_a_way_out(index: Index, kind: str) -> None:
    with pytest.raises(UnsupportedColumnError, match=rf"^{index.kind}\(a\)"):
        index.metadata_type(SourceColumn("a", kind, pa.null()))


# --- lists ------------------------------------------------------------------------------------------------------------


def test_a_list_holds_each_value_once_whatever_parts_it_came_in() -> None:
    index = ValueList("c", limit=4)
    for name, pool in POOLS.items():
        whole = array_of(name, [*pool[:3], None, *pool[:2]])
        parts = [index.collect(whole.slice(at, 2)) for at in range(0, len(whole), 2)]
        merged = index.merge([part for part in parts if part is not None])
        assert repr(merged) == repr(index.collect(whole)), name
        assert (merged["nulls"], merged["rows"], len(merged["values"])) == (
            1,
            len(whole),
            len(set(map(repr, pool[:3]))),
        )


def test_both_zeros_are_listed_among_values_in_any_order() -> None:
    random = np.random.default_rng(11)
    for size in range(3, 60):  # numpy's default sort makes 0.0 of some -0.0 on processors with AVX-512
        values = random.permutation([-0.0, 0.0, math.nan, *random.normal(size=size)])
        listed = ValueList("x").collect(pa.array(values))["values"]
        assert [math.copysign(1, value) for value in listed if value == 0] == [-1, 1]


def test_a_file_over_the_limit_stores_its_counts_alone() -> None:
    index = ValueList("c", limit=2)
    few, many, none = (index.collect(pa.array(values)) for values in ([1, 2, 1], [1, 2, 3, None], [4, 5]))
    assert few is not None
    assert many == {"values": None, "nulls": 1, "rows": 4}
    assert index.merge([few, none or {}])["values"] is None
    assert index.merge([few, many])["values"] is None
    long = ValueList("c").collect(pa.array(["x" * 400_000, "y" * 400_000, "z" * 400_000]))
    assert long == {"values": None, "nulls": 0, "rows": 3}


KEPT_AS: list[tuple[pa.Array, list[Any]]] = [
    (pa.array(["b", "a"]).dictionary_encode(), [b"a", b"b"]),
    (pa.array(["b", "a"], pa.large_string()), [b"a", b"b"]),
    (pa.array([1000], pa.timestamp("ms")), [1_000_000]),
    (pa.array([1], pa.timestamp("s", "UTC")), [1_000_000]),
    (pa.array([dt.date(1970, 1, 3)]), [2]),
    (pa.array([True, False]), [False, True]),
    (pa.array([0.5, math.nan], pa.float32()), [0.5, math.nan]),
    (pa.array([Decimal("1.50")]), [Decimal("1.50")]),
    (pa.nulls(3), []),
]


@pytest.mark.parametrize(("values", "stored"), KEPT_AS, ids=lambda part: str(getattr(part, "type", "")))
def test_values_are_stored_as_spark_keeps_them(values: pa.Array, stored: list[Any]) -> None:
    summary = ValueList("c").collect(values)
    assert summary is not None
    assert repr(summary["values"]) == repr(stored)


def test_a_fraction_of_a_microsecond_is_not_stored() -> None:
    with pytest.raises(pa.ArrowInvalid):
        ValueList("c").collect(pa.array([1], pa.timestamp("ns")))


def metadata_of(index: Index, name: str, files: list[list[Any]], sizes: list[int] | None = None) -> FileMetadata:
    stored = index.metadata_type(SourceColumn(name, *TYPES[name]))
    summaries = [index.collect(array_of(name, values)) for values in files]
    if sizes is not None:
        assert isinstance(index, Hybrid)
        summaries = [index.for_files([s], [size])[0] for s, size in zip(summaries, sizes, strict=True) if s is not None]
    return FileMetadata.of(pa.table({str(index): pa.array(summaries, stored)}))


@pytest.mark.parametrize("count", [1, 3, 40])
def test_every_mask_of_values_finds_the_files_that_hold_one(count: int) -> None:
    rng = np.random.default_rng(count)
    held = [sorted(set(rng.integers(0, 200, rng.integers(0, 12)).tolist())) for _ in range(count)]
    index = ValueList("a").bind([COLUMNS["a"]])
    files = metadata_of(index, "a", held)
    lists = postings_of(files, str(index))
    known = lists.dictionaries["values"][1].array.to_pylist()
    for share in (0.0, 0.02, 0.3, 0.7, 0.98, 1.0):
        units = rng.random(len(lists)) < share
        chosen = {value for value, keep in zip(known, units, strict=False) if keep}
        expected = [not chosen.isdisjoint(values) for values in held]
        assert lists.files_with(units).tolist() == expected


def test_a_clause_answers_for_the_files_that_it_is_asked_about() -> None:
    index = ValueList("s").bind([COLUMNS["s"]])
    clause = clause_for(p.Contains(COLUMNS["s"], "b"), [index])
    for words in (["ab", "c"], ["a", "b"], ["ab", "c"]):
        files = metadata_of(index, "s", [[word] for word in words])
        assert keep_mask(clause, files).tolist() == ["b" in word for word in words]


def test_damaged_lists_are_not_trusted() -> None:
    index = ValueList("a").bind([COLUMNS["a"]])
    stored = pa.array(
        [
            {"values": [1], "nulls": None, "rows": 1},
            {"values": [1], "nulls": 0, "rows": None},
            {"values": None, "nulls": 0, "rows": 1},
            None,
            {"values": [1], "nulls": 0, "rows": 1},
        ],
        index.metadata_type(SourceColumn("a", *TYPES["a"])),
    )
    clause = clause_for(p.Comparison("=", COLUMNS["a"], p.Literal(2, "int")), [index])
    for table in (pa.table({str(index): stored}), pa.table({str(index): pa.chunked_array([stored[:2], stored[2:]])})):
        assert keep_mask(clause, FileMetadata.of(table)).tolist() == [True, True, True, True, False]
    assert keep_mask(clause, FileMetadata.of(pa.table({"other": [1, 2]}))).all()


# --- the rule of Hybrid -----------------------------------------------------------------------------------------------


def test_the_threshold_of_the_papers_example() -> None:
    """A file of 64 MB, values of 64 characters, both rates 0.01: a list of up to 10,088 values."""
    pays = [list_costs_less(n * 64 * 8, n, 0.01, 0.01, 64_000_000) for n in range(10_000, 10_200)]
    assert pays.index(False) + 10_000 - 1 == 10_088
    assert not any(pays[pays.index(False) :])


def test_a_file_has_a_list_while_it_costs_less_than_a_filter() -> None:
    index = Hybrid("n").bind([COLUMNS["n"]])
    values = list(range(1000))  # 64 bits each, 54.4 more than in a filter
    least = math.ceil(1000 * (64 - 9.585) / (0.99 * 0.01 * 8))
    files = metadata_of(index, "n", [values, values], [least - 1000, least + 1000])
    stored = files.column(str(index)).to_pylist()
    assert [row["values"] is None for row in stored] == [True, False]
    assert [row["filters"] is None for row in stored] == [False, True]
    assert 8 * len(stored[0]["filters"][0]) == bits_for(1000, 0.01)
    assert index.build_note(pa.chunked_array([files.column(str(index))])) == "1 lists of values, 1 Bloom filters"


def test_parts_of_a_file_become_one_list_or_one_filter() -> None:
    index = Hybrid("n")
    parts = [index.collect(pa.array(range(at, at + 500))) for at in (0, 400)]
    sent = [pickle.loads(pickle.dumps(part)) for part in parts]
    merged = index.merge(sent)
    assert len(merged["values"]) == 900
    as_filter = index.for_files([merged], [0])[0]
    whole = index.for_files([index.collect(pa.array(range(900))) or {}], [0])[0]
    assert as_filter["filters"] == whole["filters"]
    assert as_filter["values"] is None
    assert len(as_filter["filters"]) == 1


@pytest.mark.parametrize("name", TYPES)
def test_files_that_are_fitted_together_store_what_each_does_alone(name: str) -> None:
    """Lists, filters of many sizes and none, next to one another; each value of a file in its own filter."""
    index = Hybrid(name)
    pool = [value for value in POOLS[name] if value is not None]
    rng = np.random.default_rng(7)
    files = [array_of(name, [pool[n] for n in rng.integers(0, len(pool), count)]) for count in (9, 0, 1, 40, 3, 0, 80)]
    files += [pa.nulls(3, files[0].type), files[0], pa.array(range(70_000), pa.int64())]
    sizes = [0, 0, 10**9, 0, 0, 10**9, 0, 0, 0, 0]
    alone = [index.for_files([index.collect(file) or {}], [size])[0] for file, size in zip(files, sizes, strict=True)]
    with sharing_results():
        together = index.for_files([index.collect(file) or {} for file in files], sizes)
    assert list(map(repr, together)) == list(map(repr, alone))
    for file, size, stored in zip(files, sizes, together, strict=True):
        hashes = hashes_of(file)
        assert hashes is not None
        if size == 0 and len(hashes):
            assert stored["filters"] == [filter_of(hashes, index.fpp)]


def test_the_parts_of_a_large_file_do_not_hold_its_values() -> None:
    values = pa.array(range(500))
    seen = weakref.ref(values)
    index = Hybrid("n")
    part = index.collect(values)
    expected = index.for_files([part or {}], [0])[0]
    del values
    assert seen() is None
    assert index.for_files([part or {}], [0])[0] == expected


def test_what_is_too_long_to_list_has_a_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoskip.indexes.hybrid._MOST_VALUES", 5)
    index = Hybrid("n").bind([COLUMNS["n"]])
    short, long = index.collect(pa.array([1, 2, 3])), index.collect(pa.array(range(10, 20)))
    assert short is not None
    assert long is not None
    assert (short["filters"], long["values"]) == (None, None)
    for parts in ([short, long], [pickle.loads(pickle.dumps(part)) for part in (short, long)]):
        merged = index.for_files([index.merge(parts)], [10**12])[0]
        files = FileMetadata.of(
            pa.table({str(index): pa.array([merged], index.metadata_type(SourceColumn("n", *TYPES["n"])))})
        )
        for value, there in ((1, True), (3, True), (10, True), (19, True), (999, False)):
            clause = clause_for(p.Comparison("=", COLUMNS["n"], p.Literal(value, "bigint")), [index])
            assert keep_mask(clause, files).tolist() == [there], value


@pytest.mark.parametrize("name", COLUMNS)
def test_a_list_made_into_a_filter_holds_every_value(name: str) -> None:
    index = Hybrid(name, fpp=0.0001).bind([COLUMNS[name]])
    files = metadata_of(index, name, [POOLS[name]], [0])
    assert files.column(str(index)).to_pylist()[0]["filters"] is not None
    for value in POOLS[name]:
        clause = clause_for(p.Comparison("=", COLUMNS[name], p.Literal(value, TYPES[name][0])), [index])
        assert keep_mask(clause, files).all(), value


# --- Formatted --------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_template_are_lists_of_their_own() -> None:
    assert LOG.expressions() == (
        r"regexp_extract(line, r'^(?<ip>\S+) .*\[(?<day>[^:]+)', 1)",
        r"regexp_extract(line, r'^(?<ip>\S+) .*\[(?<day>[^:]+)', 2)",
    )
    texts = [SourceColumn(text, "string", pa.string()) for text in LOG.expressions()]
    assert [field.name for field in LOG.metadata_type(*texts)] == [
        "ip_values",
        "ip_nulls",
        "day_values",
        "day_nulls",
        "rows",
    ]
    parts = [LOG.collect(pa.array(ips), pa.array(days)) for ips, days in ((["a", "b"], ["x", None]), (["a"], ["x"]))]
    merged = LOG.merge([part for part in parts if part is not None])
    assert merged == {"ip_values": [b"a", b"b"], "ip_nulls": 0, "day_values": [b"x"], "day_nulls": 1, "rows": 3}


def test_conditions_on_different_parts_are_not_merged_value_by_value() -> None:
    """Rows (a, x) and (b, y): no row is (a, y), but the lists of the parts do not say so."""
    ip, day = p.Call("ip", (p.Column("line"),), type="string"), p.Call("day", (p.Column("line"),), type="string")
    index = LOG.bind([ip, day])
    texts = [SourceColumn(text, "string", pa.string()) for text in LOG.expressions()]
    summaries = [LOG.collect(pa.array(["a", "b"]), pa.array(["x", "y"])), LOG.collect(pa.array(["a"]), pa.array(["x"]))]
    files = FileMetadata.of(pa.table({str(index): pa.array(summaries, LOG.metadata_type(*texts))}))

    def kept(*conditions: p.Predicate) -> list[bool]:
        return keep_mask(clause_for(p.And(conditions), [index]), files).tolist()

    is_a, is_y = (p.Comparison("=", part, p.Literal(text, "string")) for part, text in ((ip, "a"), (day, "y")))
    assert kept(is_a, is_y) == [True, False]
    assert kept(is_a, p.Not(is_a)) == [False, False]
