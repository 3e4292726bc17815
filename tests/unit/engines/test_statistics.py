"""The statistics table: what each index type tells of its summaries, against the rows; unknown values; its schema."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

import geoskip
from geoskip import (
    BloomFilter,
    Formatted,
    GapList,
    GeoBox,
    Hybrid,
    Index,
    MetricDist,
    MinMax,
    Prefix,
    Suffix,
    ValueList,
)
from geoskip.engines.statistics import SCHEMA, VERSION, statistics_of
from geoskip.errors import (
    DatasetNotFoundError,
    InvalidSpecificationError,
    MissingKeyError,
    NotIndexedError,
    UnsupportedColumnError,
)
from geoskip.evaluation.value_texts import round_outwards, texts_of
from geoskip.indexes.base import SourceColumn
from geoskip.metadata import Header, IndexEntry, build_table
from geoskip.metadata.file_table import FileRow
from geoskip.predicates import Column
from geoskip.stores import ParquetStore
from geoskip.stores.base import MemoryStore
from geoskip.stores.encryption import Encryption
from geoskip.stores.keyring import KeyRing
from tests.support.harness import TYPES, array_of, canned
from tests.support.storing import Least

ROOT = "file:/data/a b"
KINDS: dict[str, Callable[[str], Index]] = {
    "minmax": MinMax,
    "gaplist": lambda name: GapList(name, gaps=2),
    "valuelist": lambda name: ValueList(name, limit=4),
    "hybrid": Hybrid,
    "bloomfilter": BloomFilter,
    "prefix": lambda name: Prefix(name, length=2),
    "suffix": lambda name: Suffix(name, length=2),
    "formatted": lambda name: Formatted(name, extract="{}(x)"),
}


def stored(index: Index, kinds: list[tuple[str, str, pa.DataType]], files: list[list[pa.Array] | None]) -> Any:
    """A store with an index over columns (name, Spark's type, Arrow's), and the values of each in every file."""
    columns = [Column(name, kind) for name, kind, _ in kinds]
    summaries = [None if arrays is None else index.for_files([index.collect(*arrays)], [10])[0] for arrays in files]
    bound = index.bind(columns)
    entry = IndexEntry(
        bound, tuple(each[:2] for each in kinds), index.metadata_type(*(SourceColumn(*k) for k in kinds))
    )
    rows = [FileRow(f"f{i}", 10, 1500, None, 3, {str(index): found}) for i, found in enumerate(summaries)]
    store = MemoryStore()
    store.commit(Header(ROOT, {}, (entry,), reasons={"f1": "damaged"}), build_table([entry], rows), expected=None)
    return store


def told(index: Index, kind: tuple[str, pa.DataType], *values: Any) -> dict[str, Any]:
    """The row of one file with these values."""
    array = pa.array(values[0], kind[1])
    (row,) = statistics_of(stored(index, [("v", *kind)], [[array]])).to_pylist()
    return row


def some(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


# --- against the rows -------------------------------------------------------------------------------------------------


def order(value: Any) -> Any:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def written(values: list[Any], name: str) -> list[str]:
    array = array_of(name, values)
    texts: list[str] = texts_of(array.cast(pa.binary()) if name == "s" else array, TYPES[name][0]).to_pylist()
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_figures_of_files_hold_for_their_rows(kind: str) -> None:
    checked = 0
    for name in TYPES:
        index = KINDS[kind](name)
        try:
            index.metadata_type(SourceColumn(name, *TYPES[name]))
        except UnsupportedColumnError:
            continue
        files = [[row[name] for row in rows] for rows in canned(name).files]
        store = stored(index, [(name, *TYPES[name])], [[array_of(name, values)] for values in files])
        for row, values in zip(statistics_of(store).to_pylist(), files, strict=True):
            check(row, values, name)
            checked += len(values)
    assert checked > 20


def check(row: dict[str, Any], values: list[Any], name: str) -> None:
    there = [value for value in values if value is not None]
    numbers = [value for value in there if value == value]
    texts = ["0.0" if text == "-0.0" else text for text in written(numbers, name)]
    assert row["null_count"] == len(values) - len(there)
    assert row["nan_count"] in (None, len(there) - len(numbers))
    if row["is_exact"]:
        assert (row["min_value"] is None) is (row["max_value"] is None) is (not numbers)
        if numbers:
            ends = (min(numbers, key=order), max(numbers, key=order))
            assert some(row, "min_value", "max_value") == tuple(texts[numbers.index(end)] for end in ends)
    if row["min_number"] is not None:
        assert all(Decimal(row["min_number"]) <= value for value in map(Decimal, numbers) if value.is_finite())
    if row["max_number"] is not None:
        assert all(Decimal(row["max_number"]) >= value for value in map(Decimal, numbers) if value.is_finite())
    if row["distinct_values"] is not None:
        assert set(row["distinct_values"]) == set(written(there, name))
        assert row["distinct_count"] == len(row["distinct_values"])


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (("int", pa.int32()), [3, -1, None], ("-1", "3", -1.0, 3.0)),
        (("bigint", pa.int64()), [2**53 + 1], ("9007199254740993", "9007199254740993", 2.0**53, 2.0**53 + 2)),
        (("double", pa.float64()), [0.0, 1e7, math.nan], ("0.0", "1.0E7", 0.0, 1e7)),
        (("double", pa.float64()), [-0.0], ("0.0", "0.0", 0.0, 0.0)),  # MinMax stores both signs of a zero
        (("double", pa.float64()), [math.nan], (None, None, None, None)),
        (("double", pa.float64()), [-math.inf, math.inf], ("-Infinity", "Infinity", -math.inf, math.inf)),
        (("float", pa.float32()), [0.1, 16777216.0], ("0.1", "1.6777216E7", float(np.float32(0.1)), 16777216.0)),
        (("decimal(10,2)", pa.decimal128(10, 2)), [Decimal("0.10")],
         ("0.10", "0.10", math.nextafter(0.1, 0), 0.1)),
        (("string", pa.string()), ["b", "a" * 40], ("a" * 32, "b", None, None)),
        (("boolean", pa.bool_()), [True, False], ("false", "true", None, None)),
    ],
)  # fmt: skip
def test_bounds_are_texts_and_numbers(kind: tuple[str, pa.DataType], values: list[Any], expected: Any) -> None:
    row = told(MinMax("v"), kind, values)
    assert some(row, "min_value", "max_value", "min_number", "max_number") == expected


def test_dates_and_timestamps_are_times_too() -> None:
    date = told(MinMax("v"), ("date", pa.date32()), [0, 19_000])
    assert some(date, "min_value", "max_value") == ("1970-01-01", "2022-01-08")
    assert [str(time) for time in some(date, "min_time", "max_time")] == ["1970-01-01 00:00:00", "2022-01-08 00:00:00"]
    instant = told(MinMax("v"), ("timestamp", pa.timestamp("us", "UTC")), [-1, 1_500_000])
    assert some(instant, "min_value", "max_value") == ("1969-12-31 23:59:59.999999", "1970-01-01 00:00:01.5")
    assert str(instant["min_time"]) == "1969-12-31 23:59:59.999999"
    late = told(MinMax("v"), ("date", pa.date32()), [0, 2_932_897])
    assert some(late, "max_value", "max_time") == ("+10000-01-01", None)


def test_text_that_was_shortened_or_is_not_utf8_says_so() -> None:
    assert some(told(MinMax("v"), ("string", pa.string()), ["x"]), "max_value", "is_exact") == ("x", True)
    long = told(MinMax("v"), ("string", pa.string()), ["a", "x" * 40])
    assert some(long, "min_value", "max_value", "is_exact") == ("a", "x" * 31 + "y", False)
    odd = told(MinMax("v"), ("binary", pa.binary()), [b"a\xff"])
    assert odd["min_value"] == "a\ufffd"


def test_listed_values_are_written_in_order_and_unlisted_ones_are_unknown() -> None:
    row = told(ValueList("v", limit=2), ("date", pa.date32()), [19_000, 0, None])
    assert some(row, "distinct_values", "distinct_count", "null_count") == (["1970-01-01", "2022-01-08"], 2, 1)
    more = told(ValueList("v", limit=2), ("int", pa.int32()), [1, 2, 3])
    assert some(more, "distinct_values", "distinct_count", "min_value", "is_exact") == (None, None, None, None)
    none = told(ValueList("v"), ("int", pa.int32()), [None])
    assert some(none, "distinct_values", "distinct_count", "min_value", "is_exact") == ([], 0, None, True)


def test_segments_and_filters_are_details() -> None:
    gaps = told(GapList("v", gaps=1), ("date", pa.date32()), [0, 1, 19_000])
    assert json.loads(gaps["details"]) == {"segments": [["1970-01-01", "1970-01-02"], ["2022-01-08", "2022-01-08"]]}
    assert some(gaps, "min_value", "max_value", "is_exact") == ("1970-01-01", "2022-01-08", True)
    bloom = json.loads(told(BloomFilter("v"), ("int", pa.int32()), [1, 2])["details"])
    assert bloom["filters"] == 1
    assert bloom["bits"] > 0


def test_a_cut_text_leaves_bounds_and_values_unknown() -> None:
    cut = told(Prefix("v", length=2), ("string", pa.string()), ["ab", "abc"])
    assert some(cut, "min_value", "distinct_values", "is_exact", "null_count") == (None, None, None, 0)
    assert json.loads(cut["details"]) == {"whole": ["ab"], "cut": ["ab"]}
    whole = told(Prefix("v", length=2), ("string", pa.string()), ["ab", "b"])
    assert some(whole, "min_value", "max_value", "distinct_values") == ("ab", "b", ["ab", "b"])


def test_boxes_are_a_multipolygon_and_rows_beside_them_are_counted() -> None:
    kinds = [("lng", "double", pa.float64()), ("lat", "double", pa.float64())]
    files = [
        [pa.array([0.0, 1.0, 100.0, None, math.nan]), pa.array([5.0, 6.0, 50.0, 1.0, 1.0])],
        [pa.array([None], pa.float64()), pa.array([1.0])],
        None,
    ]
    first, empty, unknown = statistics_of(stored(GeoBox("lng", "lat"), kinds, files)).to_pylist()
    shape = shapely.from_wkb(first["boxes"])
    assert shape.geom_type == "MultiPolygon"
    assert [shapely.intersects(shape, shapely.Point(at)) for at in ((0, 5), (1, 6), (100, 50), (50, 30))] == [
        True, True, True, False,
    ]  # fmt: skip
    assert some(first, "xmin", "ymin", "xmax", "ymax") == (0.0, 5.0, 100.0, 50.0)
    assert some(first, "null_count", "nan_count", "expression", "type") == (1, 1, "lng, lat", "double, double")
    assert shapely.from_wkb(empty["boxes"]).is_empty
    assert some(empty, "xmin", "null_count", "reason") == (None, 1, "damaged")
    assert some(unknown, "boxes", "xmin", "null_count", "nan_count", "details") == (None,) * 5


def test_geometries_tell_their_types() -> None:
    shapes = pa.array(shapely.to_wkb([shapely.Point(1, 2), shapely.box(0, 0, 3, 3), None]), pa.binary())
    row = statistics_of(stored(GeoBox("f(g)"), [("f(g)", "binary", pa.binary())], [[shapes]])).to_pylist()[0]
    assert json.loads(row["details"])["types"] == ["Point", "Polygon"]
    assert some(row, "null_count", "nan_count", "xmax") == (1, 0, 3.0)


def test_distances_are_details() -> None:
    index = MetricDist("v", metric="levenshtein", origins=["abc"])
    row = told(index, ("string", pa.string()), ["abc", "abd", None])
    assert json.loads(row["details"]) == {"metric": "levenshtein", "least": [0], "largest": [1]}
    assert row["null_count"] == 1


def test_each_part_of_a_template_has_a_row() -> None:
    index = Formatted("line", template="(?<ip>[^ ]+) (?<day>.+)")
    kinds = [(text, "string", pa.string()) for text in index.expressions()]
    found = statistics_of(stored(index, kinds, [[pa.array(["1.2.3.4"]), pa.array(["mon"])]])).to_pylist()
    assert [(row["expression"], row["distinct_values"]) for row in found] == [
        (index.part("ip"), ["1.2.3.4"]),
        (index.part("day"), ["mon"]),
    ]


def test_an_index_type_of_a_user_shows_its_summaries_as_json() -> None:
    summary = {"least": 7, "words": [b"a\xff", math.inf, None]}
    assert Least("a").bind([Column("a", "bigint")]).statistics(pa.array([None], pa.struct([("least", pa.int64())])))[
        0
    ].details.to_pylist() == [None]
    store = MemoryStore()
    kind = pa.struct([("least", pa.int64()), ("words", pa.list_(pa.string()))])
    entry = IndexEntry(Least("a").bind([Column("a", "bigint")]), (("a", "bigint"),), kind)
    rows = [FileRow("f", 1, 1, None, 1, {entry.name: {**summary, "words": ["x", None]}})]
    store.commit(Header(ROOT, {}, (entry,)), build_table([entry], rows), expected=None)
    (row,) = statistics_of(store).to_pylist()
    assert json.loads(row["details"]) == {"least": 7, "words": ["x", None]}
    assert some(row, "min_value", "null_count", "nan_count") == (None, None, None)  # never guessed


# --- the table --------------------------------------------------------------------------------------------------------


def test_the_table_has_the_documented_columns_and_a_version() -> None:
    store = stored(MinMax("v"), [("v", "int", pa.int32())], [[pa.array([1], pa.int32())]])
    table = statistics_of(store)
    assert table.schema.remove_metadata().equals(SCHEMA)
    assert table.schema.metadata[b"geoskip.statistics.version"] == str(VERSION).encode()
    assert table.schema.metadata[b"geoskip.statistics.snapshot"] == b"1"
    import geoskip.engines.statistics as module

    documented = module.__doc__ or ""
    assert all(field.name in documented for field in SCHEMA)
    (row,) = table.to_pylist()
    assert some(row, "path", "uri", "file_size", "row_count") == ("f0", "file:///data/a%20b/f0", 10, 3)
    assert row["modified"].isoformat() == "1970-01-01T00:00:01.500000+00:00"


def test_stored_bytes_are_the_bytes_of_the_index_shared_by_size(tmp_path: Path) -> None:
    arrays = [[pa.array(["x" * size for size in range(50)])], [pa.array(["x"])], None]
    found = statistics_of(store := stored(ValueList("v"), [("v", "string", pa.string())], arrays))
    shares = found["stored_bytes"].to_pylist()
    assert sum(shares) == store.size()["valuelist(v)"]
    assert shares[0] > shares[1] > shares[2] == 0


def test_a_folder_below_the_dataset_has_rows_of_its_files_alone(tmp_path: Path) -> None:
    entry = IndexEntry(MinMax("v").bind([Column("v", "int")]), (("v", "int"),), MinMax("v").metadata_type(
        SourceColumn("v", "int", pa.int32())))  # fmt: skip
    rows = [FileRow(path, 1, 1, None, 1, {}) for path in ("day=1/a", "day=1/b", "day=10/a")]
    header = Header(f"file:{tmp_path}", {}, (entry,))
    ParquetStore(tmp_path / "_geoskip").commit(header, build_table([entry], rows), expected=None)
    for folder in ("day=1", "day=10"):
        (tmp_path / folder).mkdir()
    (tmp_path / "day=1" / "a").touch()
    assert len(geoskip.statistics(tmp_path)) == 3
    assert geoskip.statistics(tmp_path / "day=1")["path"].to_pylist() == ["day=1/a", "day=1/b"]
    assert geoskip.statistics(tmp_path / "day=1" / "a")["path"].to_pylist() == ["day=1/a"]
    assert geoskip.statistics(tmp_path / "day=1", metadata=tmp_path / "_geoskip").num_rows == 2


def test_protected_metadata_need_their_keys(tmp_path: Path) -> None:
    kinds = [("v", "int", pa.int32()), ("w", "int", pa.int32())]
    entries = [
        IndexEntry(MinMax(name).bind([Column(name, kind)]), ((name, kind),), MinMax(name).metadata_type(
            SourceColumn(name, kind, arrow)))
        for name, kind, arrow in kinds
    ]  # fmt: skip
    summary = {"min": 1, "max": 2, "nulls": 0, "rows": 2}
    rows = [FileRow("f", 1, 1, None, 2, {entry.name: summary for entry in entries})]
    keys = {"base": bytes(32), "own": bytes(16)}
    whole = Encryption(KeyRing(keys), "base", indexes={"minmax(w)": "own"})
    folder = tmp_path / "_geoskip"
    store = ParquetStore(folder, encryption=whole)
    store.commit(Header("file:/x", {}, tuple(entries)), build_table(entries, rows), expected=None)
    with pytest.raises(MissingKeyError):
        geoskip.statistics(tmp_path)
    assert geoskip.statistics(tmp_path, store=store)["max_value"].to_pylist() == ["2", "2"]
    partly = ParquetStore(folder, encryption=Encryption(KeyRing({"base": bytes(32)}), "base"))
    first, second = geoskip.statistics(tmp_path, store=partly).to_pylist()
    assert some(first, "index_name", "max_value") == ("minmax(v)", "2")
    assert second["max_value"] is None
    assert "key" in second["reason"]


def test_wrong_arguments_say_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(NotIndexedError, match=r"there are no metadata in .*_geoskip: build an index first"):
        geoskip.statistics(tmp_path)
    with pytest.raises(DatasetNotFoundError, match="there is no file or folder"):
        geoskip.statistics(tmp_path / "none")
    with pytest.raises(InvalidSpecificationError, match="not both"):
        geoskip.statistics(tmp_path, store=MemoryStore(), metadata="x")
    with pytest.raises(InvalidSpecificationError, match=r"store= takes"):
        geoskip.statistics(tmp_path, store=str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(InvalidSpecificationError, match="path of a dataset is a text"):
        geoskip.statistics(7)  # type: ignore[arg-type]


# --- values as texts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "arrow", "values", "expected"),
    [
        ("double", pa.float64(), [5e-324, 2e-3, 1e-3, 123456789.0, 1e23, 100.0],
         ["4.9E-324", "0.002", "0.001", "1.23456789E8", "1.0E23", "100.0"]),
        ("float", pa.float32(), [1.4e-45, 3.4028235e38, 0.3], ["1.4E-45", "3.4028235E38", "0.3"]),
        ("decimal(20,10)", pa.decimal128(20, 10), [Decimal("1E-10"), Decimal(0)], ["0.0000000001", "0.0000000000"]),
        ("date", pa.date32(), [-719_529, None], ["-0001-12-31", None]),
        ("timestamp_ntz", pa.timestamp("us"), [0, 10, 100_000], ["1970-01-01 00:00:00", "1970-01-01 00:00:00.00001",
                                                                "1970-01-01 00:00:00.1"]),
        ("interval day to second", pa.duration("us"), [-86_400_000_000, 10_000_000],
         ["INTERVAL '-1 00:00:00' DAY TO SECOND", "INTERVAL '0 00:00:10' DAY TO SECOND"]),
        ("interval minute to second", pa.duration("us"), [61_000_001], ["INTERVAL '01:01.000001' MINUTE TO SECOND"]),
        ("interval day to hour", pa.duration("us"), [3_600_000_000], ["INTERVAL '0 01' DAY TO HOUR"]),
    ],
)  # fmt: skip
def test_values_are_written_as_a_cast_to_string_writes_them(
    kind: str, arrow: pa.DataType, values: list[Any], expected: list[str]
) -> None:
    assert texts_of(pa.array(values, arrow), kind).to_pylist() == expected


def test_numbers_that_are_no_doubles_are_rounded_outwards() -> None:
    wide = pa.array([Decimal("12345678901234567890.000000000000000001"), None], pa.decimal128(38, 18))
    low, high = (round_outwards(wide, up=up)[0] for up in (False, True))
    assert Decimal(low) < wide[0].as_py() < Decimal(high)
    assert math.nextafter(low, math.inf) == high
