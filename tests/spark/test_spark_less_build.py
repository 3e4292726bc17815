"""geoskip.build beside a build through Spark: the same metadata, and each continues what the other has begun."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import shapely

import geoskip
from geoskip import BloomFilter, Formatted, GapList, GeoBox, Hybrid, MetricDist, MinMax, Prefix, Suffix, ValueList
from geoskip.errors import InvalidSpecificationError, NeedsSparkError
from geoskip.indexes.base import Index
from geoskip.lifecycle.log import latest
from geoskip.metadata import Snapshot
from geoskip.stores import ParquetStore
from tests.conftest import same_as_off
from tests.support.indexed_files import write_files

pytestmark = pytest.mark.spark

OLD = {b"org.apache.spark.version": b"2.4.0"}
SHAPES = [shapely.to_wkb(shapely.box(0, 0, 1, 2)), None, shapely.to_wkb(shapely.Point(7, 8))]
EVERYTHING = pa.table(
    {
        "i8": pa.array([1, None, -3], pa.int8()),
        "u8": pa.array([1, None, 255], pa.uint8()),
        "u32": pa.array([1, None, 2**32 - 1], pa.uint32()),
        "u64": pa.array([1, None, 2**64 - 1], pa.uint64()),
        "i32": pa.array([1, None, -3], pa.int32()),
        "i64": pa.array([2**63 - 1, None, -(2**63)], pa.int64()),
        "f32": pa.array([1.5, None, float("nan")], pa.float32()),
        "f64": pa.array([-0.0, None, float("nan")], pa.float64()),
        "flag": pa.array([True, None, False]),
        "day": pa.array([dt.date(2024, 1, 1), None, dt.date(1500, 3, 1)]),
        "at": pa.array([dt.datetime(2024, 1, 1, 5), None, dt.datetime(9999, 12, 31)], pa.timestamp("us", "UTC")),
        "ms": pa.array([dt.datetime(2024, 1, 1, 5), None, dt.datetime(1850, 1, 1)], pa.timestamp("ms", "UTC")),
        "ntz": pa.array([dt.datetime(2024, 1, 1, 5), None, dt.datetime(1950, 1, 1)], pa.timestamp("us")),
        "d5": pa.array([Decimal("-1.25"), None, Decimal("0.00")], pa.decimal128(5, 2)),
        "d38": pa.array([Decimal(10) ** 27, None, Decimal("-0.0000000001")], pa.decimal128(38, 10)),
        "text": pa.array(["z" * 99, None, "\U0001f600"]),
        "odd": pa.array([b"\xff\x41\xc3", None, b""]).view(pa.string()),
        "bytes": pa.array([b"\xff" * 40, None, b""]),
        "fixed": pa.array([b"abcd", None, b"efgh"], pa.binary(4)),
        "word": pa.array(["a", None, "b"]).dictionary_encode(),
        "none": pa.array([None, None, None], pa.int32()),
        "In": pa.array([{"X": 1, "deep": {"y.z": "q"}}, None, {"X": None, "deep": None}]),
        "x": pa.array([1.0, None, 3.0]),
        "y": pa.array([1.0, 2.0, float("nan")]),
        "g": pa.array(SHAPES),
        "ip": pa.array(["10.0.0.1", None, "no address"]),
        "list": pa.array([[1, None], None, []]),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    }
)
NESTED = ("In", "list", "map")


def write_everything(folder: Path) -> None:
    """Files in two partitions: several row groups, columns missing, added and narrower, no rows, and INT96."""
    narrow = EVERYTHING.select(["i8", "text", "x", "y"])
    write_files(
        folder,
        {
            "p=1/b.parquet": narrow.append_column("added", pa.array([1, 2, 3])),
            "p=a%20b/c.parquet": pa.table({
                "I64": pa.array([1, -5], pa.int32()), "F64": pa.array([0.5, None], pa.float32()), "In": [{"X": 3}, None]
            }),
            "p=1/empty.parquet": EVERYTHING.slice(0, 0),
        },
    )  # fmt: skip
    pq.write_table(EVERYTHING, folder / "p=1" / "a.parquet", row_group_size=2)
    times = pa.table({"at": pa.array([dt.datetime(2024, 1, 1, 5), None], pa.timestamp("us"))})
    pq.write_table(times, folder / "p=1" / "int96.parquet", use_deprecated_int96_timestamps=True)


def snapshot_of(place: Path) -> Snapshot:
    found = latest(ParquetStore(place))
    assert found is not None
    return found


def assert_same(ours: Snapshot, sparks: Snapshot) -> None:
    """Compare headers, entries and rows of the same files, but for who made them when."""
    assert {name: ours.header.source[name] for name in ("class", "options", "partitions", "path", "table")} == {
        name: sparks.header.source[name] for name in ("class", "options", "partitions", "path", "table")
    }
    assert json.loads(ours.header.source["schema"]) == json.loads(sparks.header.source["schema"])
    assert ours.header.source["settings"].items() <= sparks.header.source["settings"].items()
    assert ours.header.root == sparks.header.root
    for mine, theirs in zip(ours.header.entries, sparks.header.entries, strict=True):
        for name in ("index", "columns", "arrow", "depends"):
            assert getattr(mine, name) == getattr(theirs, name), mine.name
        assert mine.index.bound == theirs.index.bound
    tables = [found.files.table().sort_by("path") for found in (ours, sparks)]
    tables[0] = tables[0].filter(pc.is_in(tables[0]["path"], tables[1]["path"]))
    assert tables[0].schema == tables[1].schema
    for mine, theirs in zip(*(table.to_pylist() for table in tables), strict=True):
        for name in mine:
            assert repr(mine[name]) == repr(theirs[name]), (mine["path"], name)  # NaN, and the sign of zero


PLAIN: list[Index] = [
    *(MinMax(name) for name in EVERYTHING.schema.names if name not in NESTED),
    *(ValueList(name) for name in ("i8", "u64", "f64", "flag", "at", "d5", "odd", "word", "fixed", "day")),
    *(BloomFilter(name) for name in ("i64", "f64", "text", "at", "d38")),
    *(index("text") for index in (Prefix, Suffix, Hybrid)),
    *(GapList(name) for name in ("i32", "f64")),
    GeoBox("x", "y"),
    MetricDist("text", metric="levenshtein"),
]
COMPUTED: list[Index] = [
    *(MinMax(name) for name in ("in.x", "IN.deep.`y.z`", "i64", "odd", "f64")),
    ValueList("In.X"),
    GeoBox("st_geomFromWKB(g)"),
    GeoBox("ST_Point(x, y)"),
    MinMax("ST_X(ST_Point(x, -2.5))"),
    ValueList("packed_address(ip)"),
    ValueList("in_network(ip, '10.0.0.0/8')"),
    Formatted("ip", extract="packed_address"),
]


@pytest.mark.parametrize("indexes", [PLAIN, COMPUTED], ids=["columns", "fields and functions"])
def test_both_builds_make_the_same_metadata(plain: Any, tmp_path: Path, indexes: list[Index]) -> None:
    data = tmp_path / "data"
    write_everything(data)
    if plain.version >= "4.2":  # which has an ST_GeomFromWKB of its own, and a build without it another
        indexes = [index for index in indexes if "WKB" not in str(index)]
    ours = geoskip.build(str(data), indexes, metadata=tmp_path / "ours")
    theirs = geoskip.dataset(plain, str(data), metadata=str(tmp_path / "theirs")).create_index(*indexes)
    assert (ours.files, ours.excluded) == (5, {})
    if not plain.version.startswith("3."):  # which fails on narrower columns and on days of long ago
        assert (theirs.files, theirs.rows, theirs.incomplete) == (ours.files, ours.rows, ours.incomplete)
    assert_same(snapshot_of(tmp_path / "ours"), snapshot_of(tmp_path / "theirs"))


@pytest.mark.slow
def test_spark_uses_and_continues_what_was_built_without_it(spark: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_files(data, {f"p={n}/a.parquet": pa.table({"n": range(10 * n, 10 * n + 10), "s": [{"t": f"t{n}"}] * 10})
                       for n in range(4)})  # fmt: skip
    geoskip.build(str(data), [MinMax("n"), ValueList("s.t")])

    def kept(where: str) -> int:
        return int(same_as_off(lambda: spark.read.parquet(str(data)).where(where)).files_kept)

    assert [kept(where) for where in ("n = 15", "s.t = 't2'", "n > 25 AND s.t <> 't3'", "n IS NULL")] == [1, 1, 1, 0]
    handle = geoskip.dataset(spark, str(data))
    assert handle.refresh_index().read == 0
    assert handle.verify(sample=1.0).ok
    write_files(data, {"p=4/a.parquet": pa.table({"n": [99], "s": [{"t": "new"}]})})
    assert (kept("n = 15"), handle.refresh_index().read, kept("n = 15")) == (2, 1, 1)
    write_files(data, {"p=0/a.parquet": pa.table({"n": [-7], "s": [{"t": "new"}]})})
    assert geoskip.build(str(data)).read == 1
    assert (kept("n = 15"), kept("n < 0"), kept("s.t = 'new'")) == (1, 1, 2)
    handle.create_index(MinMax("n * 2"))
    assert geoskip.build(str(data)).read == 0
    write_files(data, {"p=5/a.parquet": pa.table({"n": [5], "s": [{"t": "x"}]})})
    with pytest.raises(NeedsSparkError, match=r"^minmax\(n \* 2\): 'n \* 2' needs Spark"):
        geoskip.build(str(data))
    assert handle.refresh_index().read == 1
    assert kept("n * 2 = 198") == 1


def test_a_file_that_needs_spark_is_read_whole_until_spark_adds_it(spark: Any, tmp_path: Path) -> None:
    kind = pa.timestamp("us", "UTC")
    old = pa.table({"at": pa.array([dt.datetime(1850, 1, 1)], kind)}).replace_schema_metadata(
        {**OLD, b"org.apache.spark.timeZone": b"UTC"}
    )
    new = pa.table({"at": pa.array([dt.datetime(2024, 1, 1)], kind)})
    write_files(tmp_path, {"a.parquet": new, "b.parquet": old, "c.parquet": new})
    report = geoskip.build(str(tmp_path), MinMax("at"))
    assert report.files == 2
    assert report.excluded == {
        "b.parquet": "it needs Spark: it has times before 1900 or days before 1582 that Spark rebases from the "
        "Julian calendar; refresh_index() of a session indexes what Spark reads so"
    }

    def kept() -> int:
        where = "at > timestamp'2030-01-01 00:00:00'"
        return int(same_as_off(lambda: spark.read.parquet(str(tmp_path)).where(where)).files_kept)

    assert kept() == 1
    assert geoskip.dataset(spark, str(tmp_path)).refresh_index().read == 1
    assert kept() == 0
    assert geoskip.build(str(tmp_path)).read == 0


def test_files_and_columns_are_those_that_spark_reads(spark: Any, tmp_path: Path) -> None:
    one = pa.table({"n": [1]})
    for name, files in {
        "flat": dict.fromkeys(
            ["a.parquet", "b c%20+ä?.parquet", "sub/a.parquet", "_hidden/a.parquet", ".b.parquet"], one
        ),
        "partitions": {
            "a.parquet": one,
            "x=1/y=2/a.parquet": one,
            "x=1/y=3/_a.parquet": one,
            "x=3/y=4/z/a.parquet": one,
        },
        "deep": {"a/b/x=1/a.parquet": one, "a/b/x=2/a.parquet": one},
    }.items():
        write_files(tmp_path / name, files)
        if name != "deep":
            (tmp_path / name / "empty.parquet").touch()
        try:
            geoskip.dataset(spark, str(tmp_path / name), metadata=str(tmp_path / "m" / name)).create_index(MinMax("n"))
        except InvalidSpecificationError:
            with pytest.raises(InvalidSpecificationError, match="no partition columns in common"):
                geoskip.build(tmp_path / name, [MinMax("n")])
            continue
        geoskip.build(tmp_path / name, [MinMax("n")], metadata=tmp_path / "o" / name)
        assert_same(snapshot_of(tmp_path / "o" / name), snapshot_of(tmp_path / "m" / name))


def test_int96_before_1970_that_arrow_has_written(spark: Any, tmp_path: Path) -> None:
    """Arrow reads them wrongly as microseconds, Spark does not."""
    for year in (1969, 2020):
        times = pa.table({"at": pa.array([dt.datetime(year, 1, 1, 5)], pa.timestamp("us"))})
        pq.write_table(times, tmp_path / f"{year}.parquet", use_deprecated_int96_timestamps=True)
    assert [*geoskip.build(tmp_path, [MinMax("at")]).excluded] == ["1969.parquet"]
    for where, files in (("year(at) = 1969", 1), ("at > timestamp'2019-01-01'", 2)):
        assert same_as_off(lambda where=where: spark.read.parquet(str(tmp_path)).where(where)).files_kept == files
