"""Rewriting datasets in a layout: the same rows, whatever happens meanwhile."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

import geoskip
from geoskip import Hilbert, MinMax, Sort, ValueList, ZOrder
from geoskip.errors import GeoskipError, InvalidSpecificationError, StoreError, UnknownColumnError
from geoskip.spark.dataset import rewrite_files, rewrite_folders
from tests.conftest import rows_of, same_as_off

pytestmark = pytest.mark.spark

ROWS = 40


def table(start: int, step: int = 1) -> pa.Table:
    """Forty rows with NULL, NaN and nested values; ``a`` and ``b`` in no order."""
    numbers = [start + step * ((7 * n) % ROWS) for n in range(ROWS)]
    return pa.table(
        {
            "a": pa.array([None if n % 19 == 7 else n for n in numbers], pa.int32()),
            "b": pa.array([float("nan") if n % 17 == 3 else (n * 37) % 101 / 2 for n in numbers], pa.float64()),
            "name": [f"user-{n % 13:03d}" for n in numbers],
            "at": pa.array([dt.datetime(2024, 1, 1, n % 24) for n in numbers], pa.timestamp("us", "UTC")),
            "cost": pa.array([Decimal(n) / 4 for n in numbers], pa.decimal128(9, 2)),
            "deep": [{"x": n, "y": [n, None]} for n in numbers],
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six small files in no order."""
    place = tmp_path / "data"
    place.mkdir()
    for number in range(6):
        pq.write_table(table(number, 6), place / f"f{number}.parquet")
    return place


@pytest.fixture
def partitioned(tmp_path: Path) -> Path:
    """Two days with three files in no order each."""
    place = tmp_path / "days"
    for day in (1, 2):
        (place / f"day={day}").mkdir(parents=True)
        for number in range(3):
            pq.write_table(table(100 * day + number, 3), place / f"day={day}" / f"f{number}.parquet")
    return place


def read(spark: Any, place: Any) -> list[str]:
    with geoskip.disabled(spark):
        return rows_of(spark.read.parquet(str(place)))


def files_of(place: Any) -> list[str]:
    found = (path.relative_to(place) for path in Path(str(place)).rglob("*.parquet"))
    return sorted(str(path) for path in found if path.parts[0][0] != "_")


def local(uri: str) -> Path:
    return Path("/" + uri.removeprefix("file:").lstrip("/"))


def test_names_that_look_encoded_are_rewritten(spark, tmp_path):
    place = tmp_path / "a b%20c"
    place.mkdir()
    for number, name in enumerate(("x y", "f%41", "\u00e9+#")):
        pq.write_table(table(number, 3), place / f"{name}.parquet")
    report = geoskip.dataset(spark, place).rewrite(Sort("a"), files=2)
    assert (report.rewritten, report.files_after) == (3, 2)
    assert read(spark, local(report.path)) == read(spark, place)


@pytest.mark.slow
def test_a_folder_is_rewritten_to_a_new_one_and_stays_itself(spark, folder):
    before, names = read(spark, folder), files_of(folder)
    dataset = geoskip.dataset(spark, folder)
    dataset.create_index(MinMax("a"), MinMax("b"), ValueList("name"))
    with pytest.raises(InvalidSpecificationError, match=r"no layout of .* is recorded"):
        dataset.rewrite()
    report = dataset.rewrite(Hilbert("a", "b"), files=4)
    new = local(report.path)
    assert (files_of(folder), read(spark, folder)) == (names, before)
    assert read(spark, new) == before
    assert re.fullmatch(r"data\.geoskip-[0-9a-f]{8}", new.name)
    assert (report.rewritten, report.kept, report.files_after, report.rows) == (6, 0, 4, 6 * ROWS)
    assert "4 files in order" in report.build.layout
    assert "6 files became 4" in str(report)
    rewritten = geoskip.dataset(spark, new)
    assert {str(index) for index in rewritten.indexes} == {"minmax(a)", "minmax(b)", "valuelist(name)"}
    shown = rewritten.layout()
    assert (shown.layout, shown.overlap.overlapping) == ("hilbert(a, b)", 0)
    for condition in ("a IS NULL", "isnan(b)", "name = 'user-003' AND deep.x > 7"):
        same_as_off(lambda condition=condition: rewritten.to_df().where(condition))
    assert same_as_off(lambda: rewritten.to_df().where("a < 30 AND b < 20")).files_kept < 4
    # nothing is left to do: files in order stay where they are
    again = rewritten.rewrite(files=4)
    assert (again.path, again.rewritten, again.replaced) == (f"file:{new}", 0, "")
    assert "files in order (hilbert(a, b))" in str(again)
    # rows that a writer adds overlap, and are arranged with what they overlap alone
    added = rewritten.append(spark.read.parquet(str(folder)).where("a < 60"))
    assert re.search(r"layout hilbert\(a, b\): \d+ of \d+ files \(\d+ %\) overlap others, \d of them", str(added))
    third = rewritten.rewrite(files=5)
    assert third.build.layout.endswith("5 files in order")
    assert read(spark, third.path) == sorted([*before, *rows_of(spark.read.parquet(str(folder)).where("a < 60"))])
    # the old files go when they are told to
    assert geoskip.dataset(spark, third.path).remove_replaced() == ()
    assert geoskip.dataset(spark, third.path).remove_replaced(0) == (f"file:{folder}", f"file:{new}")
    assert not folder.exists()
    assert not new.exists()
    assert read(spark, third.path) == sorted([*before, *[row for row in before if 0 <= _a(row) < 60]])


def _a(row: str) -> int:
    found = re.search(r"a=(\d+)", row)
    return int(found[1]) if found else -1


@pytest.mark.slow
def test_files_in_order_and_large_enough_stay(spark, tmp_path):
    place = tmp_path / "sorted"
    place.mkdir()
    for number in range(4):
        pq.write_table(table(1000 * number).sort_by("a"), place / f"f{number}.parquet")
    for number in (4, 5):
        pq.write_table(table(4000 + number, 2).slice(0, 9), place / f"small{number}.parquet")
    before = read(spark, place)
    size = (place / "f0.parquet").stat().st_size
    report = geoskip.dataset(spark, place).rewrite(Sort("a"), file_size=int(size * 1.1), to=tmp_path / "new")
    assert (report.kept, report.rewritten) == (4, 2)
    assert read(spark, tmp_path / "new") == before
    assert (place / "f0.parquet").read_bytes() == (tmp_path / "new" / "f0.parquet").read_bytes()
    assert report.build is None, "there was no index"
    again = geoskip.dataset(spark, tmp_path / "new").rewrite(file_size=int(size * 1.1))
    assert (again.layout, again.rewritten) == ("sort(a)", 0), "the layout is recorded all the same"
    elsewhere = geoskip.dataset(spark, tmp_path / "new", metadata=tmp_path / "metadata")
    elsewhere.create_index(MinMax("a"))
    assert same_as_off(lambda: elsewhere.to_df().where("a = 17")).files_kept == 1
    with pytest.raises(InvalidSpecificationError, match="exists"):
        geoskip.dataset(spark, place).rewrite(Sort("a"), files=1, to=tmp_path / "new")
    with pytest.raises(InvalidSpecificationError, match=r"inside of .*: ?|inside of"):
        geoskip.dataset(spark, place).rewrite(Sort("b"), files=1, to=place / "sub")


@pytest.mark.slow
def test_files_in_order_of_another_column_are_rewritten_and_their_number_stays(spark, tmp_path):
    place = tmp_path / "sorted"
    place.mkdir()
    for number in range(8):
        pq.write_table(table(1000 * number).sort_by("a"), place / f"f{number}.parquet")
    for layout in (ZOrder("a", "b"), Sort("b", "a"), Hilbert("a", "lower(name)")):
        report = geoskip.dataset(spark, place).rewrite(layout, files=8)
        assert (report.rewritten, report.files_after) == (8, 8), layout
        again = geoskip.dataset(spark, report.path).rewrite()
        assert (again.rewritten, again.path) == (0, report.path), layout
    assert geoskip.dataset(spark, place).rewrite(Sort("a", "b"), files=8).rewritten == 0
    assert geoskip.dataset(spark, place).rewrite().rewritten == 0, "the files were in order, and are as large as wanted"
    written = geoskip.write(
        spark.read.parquet(str(place)), tmp_path / "w", layout=ZOrder("a", "b"), files=6, indexes=MinMax("a")
    )
    assert written.rewrite().rewritten == 0
    written.append(spark.read.parquet(str(place)).where("a < 2000").repartition(3))
    assert 4 <= written.rewrite().files_after <= 9


@pytest.mark.slow
def test_partitions_are_rewritten_one_by_one_and_others_stay(spark, partitioned):
    before = read(spark, partitioned)
    dataset = geoskip.dataset(spark, partitioned)
    dataset.create_index(MinMax("a"))
    report = dataset.rewrite(Sort("a"), where="day = 2", files=3)
    assert (report.rewritten, report.kept) == (3, 3)
    assert read(spark, report.path) == before
    new = geoskip.dataset(spark, report.path)
    of_days = new.layout("a").partitions
    assert (of_days["day=1"]["a"].deepest, of_days["day=2"]["a"].deepest) == (3, 1)
    whole = new.rewrite(ZOrder("a", "b"), files=4)
    assert read(spark, whole.path) == before
    part = geoskip.dataset(spark, whole.path).rewrite(Hilbert("a", "b"), where="day = 2", files=2)
    assert (part.rewritten, part.kept) == (2, 2)
    other = geoskip.dataset(spark, part.path)
    assert other.layout("a").layout == "zorder(a, b)"
    assert other.rewrite(Hilbert("a", "b"), where="day = 2", files=2).rewritten == 0, "they are in it already"
    rest = other.rewrite(Hilbert("a", "b"), files=4)
    assert (rest.rewritten, rest.kept) == (2, 2)
    assert geoskip.dataset(spark, rest.path).rewrite(files=4).rewritten == 0
    assert read(spark, rest.path) == before
    assert {Path(name).parts[0] for name in files_of(local(whole.path))} == {"day=1", "day=2"}
    by_day = geoskip.dataset(spark, whole.path).rewrite(Sort("Day", "b"), files=4)
    assert by_day.files_after == 4
    assert geoskip.dataset(spark, by_day.path).rewrite(files=4).rewritten == 0, "all files of a folder have one day"
    for where, message in (
        ("a = 1", r"columns only \(day\)"),
        ("day =", r"only \(day\)"),
        ("raise_error(day) IS NULL", "cannot evaluate .*: "),
        (" ", "SQL"),
        ("rand() < 2", "by chance"),
    ):
        with pytest.raises(InvalidSpecificationError, match=message):
            dataset.rewrite(Sort("a"), where=where)


def test_files_that_no_reader_of_the_dataset_finds_are_never_removed(spark, folder):
    (folder / "archive").mkdir()
    shutil.copy(folder / "f0.parquet", folder / "archive" / "f0.parquet")
    before = read(spark, folder)
    assert len(before) == 6 * ROWS, "Spark looks into no folder that is no partition"
    report = geoskip.dataset(spark, folder).rewrite(Sort("a"), files=2)
    new = geoskip.dataset(spark, report.path)
    assert len(new.remove_replaced(0)) == 1
    assert (files_of(folder), read(spark, report.path)) == (["archive/f0.parquet"], before)


@pytest.mark.slow
@pytest.mark.skipif(pyspark.__version__.startswith("3."), reason="Spark 3.5 does not read int as bigint")
def test_a_column_of_some_files_is_not_lost_where_types_differ_too(spark, tmp_path):
    place = tmp_path / "types"
    place.mkdir()
    pq.write_table(pa.table({"a": pa.array([3, 1], pa.int32())}), place / "f0.parquet")
    pq.write_table(pa.table({"a": [2, 9]}), place / "f1.parquet")
    pq.write_table(pa.table({"a": [2, 9], "Extra": [7, 8]}), place / "f2.parquet")
    spark.sql(f"CREATE TABLE types_differ (a BIGINT) USING parquet LOCATION '{place}'")
    try:
        dataset = geoskip.dataset(spark, table="types_differ")
        with pytest.raises(InvalidSpecificationError, match="have extra, which this handle does not read"):
            dataset.rewrite(Sort("a"), files=1)
        (place / "f2.parquet").unlink()
        spark.catalog.refreshTable("types_differ")
        assert dataset.rewrite(Sort("a"), files=1).rows == 4
    finally:
        spark.sql("DROP TABLE types_differ")


@pytest.mark.slow
def test_the_folder_of_a_partition_gets_no_twin_that_readers_of_all_would_find(spark, partitioned, tmp_path):
    before = read(spark, partitioned)
    day = geoskip.dataset(spark, partitioned / "day=1")
    for to in (None, partitioned / "day=9"):
        with pytest.raises(InvalidSpecificationError, match=r"named as a partition is.* rewrite the dataset of all"):
            day.rewrite(Sort("a"), files=1, to=to)
    assert read(spark, partitioned) == before
    report = day.rewrite(Sort("a"), files=1, to=tmp_path / "elsewhere")
    assert len(read(spark, report.path)) == 3 * ROWS
    nothing = geoskip.dataset(spark, partitioned).rewrite(Sort("a"), where="day > 5")
    assert str(nothing).endswith("nothing to rewrite, where= chooses no file")


@pytest.mark.slow
def test_without_room_nothing_changes(spark, folder, monkeypatch):
    before = read(spark, folder)
    dataset = geoskip.dataset(spark, folder)
    with monkeypatch.context() as patch:
        patch.setattr(rewrite_folders.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 1))
        with pytest.raises(StoreError, match=r"has 1 bytes of room, and the new files need about [\d,]+"):
            dataset.rewrite(Sort("a"), files=2)

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    for step in ("begin", "arrange", "rename_folder"):
        with monkeypatch.context() as patch:
            patch.setattr(rewrite_files, step, full)
            with pytest.raises(StoreError, match="No space left on device"):
                dataset.rewrite(Sort("a"), where=None, files=2, to=folder.parent / "new")
        assert os.listdir(folder.parent) == ["data"]
    assert read(spark, folder) == before


@pytest.mark.slow
def test_bad_input_is_named(spark, folder, tmp_path):
    dataset = geoskip.dataset(spark, folder)
    for error, message, arguments in (
        (UnknownColumnError, "did you mean name", {"layout": Sort("nam")}),
        (GeoskipError, "deep", {"layout": Sort("deep")}),
        (InvalidSpecificationError, "takes a layout such as", {"layout": "zorder(a)"}),
        (InvalidSpecificationError, "files= or file_size=, not both", {"files": 1, "file_size": 1}),
        (InvalidSpecificationError, "number from 1 to 100,000, got 0", {"files": 0}),
        (InvalidSpecificationError, "such as '128 MiB'", {"file_size": "much"}),
        (InvalidSpecificationError, "the dataset has none", {"where": "a = 1"}),
    ):
        with pytest.raises(error, match=message):
            dataset.rewrite(**{"layout": Sort("a"), **arguments})
    with pytest.raises(InvalidSpecificationError, match="handle of one folder or table"):
        geoskip.dataset(spark, str(folder / "*.parquet")).rewrite(Sort("a"))
    with pytest.raises(InvalidSpecificationError, match="make a handle without it"):
        geoskip.dataset(spark, folder, pathGlobFilter="f1*").rewrite(Sort("a"))
    csv = tmp_path / "text"
    spark.range(3).write.csv(str(csv))
    with pytest.raises(InvalidSpecificationError, match=r"geoskip\.write"):
        geoskip.dataset(spark, csv, format="csv").rewrite(Sort("_c0"))
    pq.write_table(table(0).append_column("extra", pa.array([1] * ROWS)), folder / "z.parquet")
    with pytest.raises(InvalidSpecificationError, match="have extra, which this handle does not read"):
        geoskip.dataset(spark, folder).rewrite(Sort("a"), files=1)
    merged = geoskip.dataset(spark, folder, mergeSchema=True)
    report = merged.rewrite(Sort("a"), files=1)
    with geoskip.disabled(spark):
        assert rows_of(spark.read.parquet(report.path)) == rows_of(merged.to_df())


def test_files_keep_their_codec_and_bad_lists_are_named(spark: Any, folder: Path, tmp_path: Path) -> None:
    for number, codec in enumerate(("gzip", "gzip", "snappy")):
        pq.write_table(table(10 * number), folder / f"{number}.parquet", compression=codec)
    for path in sorted(folder.glob("*.parquet"))[3:]:
        path.unlink()
    report = geoskip.dataset(spark, str(folder)).rewrite(Sort("a"), files=2)
    written = [pq.ParquetFile(path).metadata for path in local(report.path).rglob("*.parquet")]
    assert {data.row_group(0).column(0).compression for data in written} == {"GZIP"}
    for given in ({"partition_by": None}, {"partition_by": 5}, {"indexes": None}, {"indexes": 5}):
        with pytest.raises(InvalidSpecificationError, match=rf"write\({next(iter(given))}=\) takes .*, got "):
            geoskip.write(spark.range(3), str(tmp_path / "new"), **given)
    assert not (tmp_path / "new").exists()


def test_geoparquet_is_left_as_it_is(spark: Any, folder: Path) -> None:
    described = table(0).replace_schema_metadata({"geo": '{"version": "1.1.0", "primary_column": "g", "columns": {}}'})
    pq.write_table(described, folder / "geo.parquet")
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(InvalidSpecificationError, match=r"geo\.parquet is GeoParquet, and rewrite.. would lose"):
        geoskip.dataset(spark, str(folder)).rewrite(Sort("a"), files=1)
    assert sorted(path for path in folder.parent.rglob("*") if "_geoskip" not in str(path)) == before


def test_a_column_that_differs_by_case_is_not_lost(spark: Any, tmp_path: Path) -> None:
    place = tmp_path / "data"
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        for name in ("Temp", "temp"):
            spark.range(5).selectExpr("id", f"id AS {name}").write.mode("append").parquet(str(place))
        handle = geoskip.dataset(spark, place)
        with pytest.raises(InvalidSpecificationError, match=r"[Tt]emp, which this handle does not read"):
            handle.rewrite(Sort("id"), files=1)
        other = "temp" if "Temp" in spark.read.parquet(str(place)).columns else "Temp"
        with pytest.raises(InvalidSpecificationError, match=r"these lack [Tt]emp, so nothing was written"):
            handle.append(spark.range(5).selectExpr("id", f"id AS {other}"))
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
