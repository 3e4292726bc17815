"""Rewriting datasets in a layout: the same rows, whatever happens meanwhile."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

import geoskip
from geoskip import Hilbert, MinMax, Sort, ValueList, ZOrder
from geoskip.errors import ConflictError, GeoskipError, InvalidSpecificationError, StoreError, UnknownColumnError
from geoskip.spark.build.arrange import ArrangedFrame
from geoskip.spark.dataset import rewrite_files, rewrite_folders
from geoskip.spark.dataset.table_location import TableLocation
from tests.conftest import rows_of, same_as_off

pytestmark = pytest.mark.spark

ROWS = 40
_DAY = dt.date(2024, 1, 1)


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
    assert "no file of 4 overlaps others" in report.build.layout
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
    assert "are in order (hilbert(a, b)) and stay" in str(again)
    # rows that a writer adds overlap, and are arranged with what they overlap alone
    added = rewritten.append(spark.read.parquet(str(folder)).where("a < 60"))
    assert re.search(r"layout hilbert\(a, b\): \d+ of \d+ files \(\d+ %\) overlap others, \d of them", str(added))
    third = rewritten.rewrite(files=5)
    assert third.build.layout.endswith("overlaps others")
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
    assert {Path(name).parts[0] for name in files_of(local(whole.path))} == {"day=1", "day=2"}
    by_day = geoskip.dataset(spark, whole.path).rewrite(Sort("Day", "b"), files=4)
    assert by_day.files_after == 4
    assert geoskip.dataset(spark, by_day.path).rewrite(files=4).rewritten == 0, "all files of a folder have one day"
    for where, message in (("a = 1", "partition columns day alone"), ("day =", "partition columns day"), (" ", "SQL")):
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
    assert "of 6 files, those asked for are in order" in str(nothing)


@pytest.fixture
def tables(spark: Any) -> Any:
    made: list[str] = []

    def make(name: str, place: Path, *, partitions: str = "") -> Any:
        made.append(name)
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        spark.read.parquet(str(place)).createOrReplaceTempView("rewrite_rows")
        spark.sql(f"CREATE TABLE {name} USING parquet {partitions} AS SELECT * FROM rewrite_rows")
        return geoskip.dataset(spark, table=name)

    yield make
    for name in made:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def off(spark: Any, name: str) -> list[str]:
    with geoskip.disabled(spark):
        return rows_of(spark.table(name))


@pytest.mark.slow
def test_a_table_is_switched_and_its_readers_notice_nothing(spark, partitioned, tables):
    name = "rewritten"
    dataset = tables(name, partitioned, partitions="PARTITIONED BY (day)")
    dataset.create_index(MinMax("a"), MinMax("b"))
    before, listed = off(spark, name), spark.table(name)
    listed.inputFiles()
    report = dataset.rewrite(ZOrder("a", "b"), files=4)
    assert report.is_switched
    assert f"the table reads {report.path} now" in str(report)
    assert off(spark, name) == before
    assert rows_of(listed) == before, "a reader that had listed the old files"
    found = same_as_off(lambda: spark.sql(f"SELECT * FROM {name} WHERE a < 150 AND b < 20"))
    assert found.files_kept < found.files_total
    assert all(path.startswith(report.path) for path in found.scans[0].kept_files())
    spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE a < 110")
    after = off(spark, name)
    assert len(after) > len(before)
    dataset.refresh_index()
    assert dataset.rewrite(files=4).rewritten
    assert off(spark, name) == after
    assert len(dataset.remove_replaced(0)) == 2
    assert off(spark, name) == after
    assert same_as_off(lambda: spark.sql(f"SELECT count(*) FROM {name} WHERE a < 110")).files_kept < 5


@pytest.fixture
def unarranged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewrites that write two files in no order, in less time."""
    monkeypatch.setattr(rewrite_files, "arrange", lambda frame, *_, **__: ArrangedFrame(frame.coalesce(2), 2))


class Killed(BaseException):
    """The process ends here: nothing is cleaned up."""


def steps_of(monkeypatch: pytest.MonkeyPatch, limit: int) -> list[str]:
    """Kill a rewrite before its step of this number; returns the steps that were reached."""
    reached: list[str] = []

    def step(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if len(reached) >= limit:
                raise Killed(name)
            reached.append(name)
            return real(*args, **kwargs)

        return run

    for name in ("begin", "arrange", "copy_files", "rename_folder", "create"):
        monkeypatch.setattr(rewrite_files, name, step(name, getattr(rewrite_files, name)))
    for name in ("_run", "_refresh", "check_current"):
        monkeypatch.setattr(TableLocation, name, step(name, getattr(TableLocation, name)))

    class Dying(rewrite_folders.LocalFolder):
        def delete(self, name: str) -> None:
            if len(reached) < limit:
                super().delete(name)

    monkeypatch.setattr(rewrite_folders, "LocalFolder", Dying)
    monkeypatch.setattr(rewrite_folders, "is_abandoned", lambda owner: True)
    monkeypatch.setattr(TableLocation, "restore", lambda self: None)
    return reached


@pytest.mark.slow
@pytest.mark.usefixtures("unarranged")
def test_a_crash_at_any_step_leaves_every_row_and_the_next_rewrite_cleans_up(spark, partitioned, tables, monkeypatch):
    dataset = tables("crashed", partitioned, partitions="PARTITIONED BY (day)")
    dataset.create_index(MinMax("a"))
    before = off(spark, "crashed")
    layout, place = [Sort("a"), Sort("b")], None
    for limit in range(30):
        with monkeypatch.context() as patch:
            reached = steps_of(patch, limit)
            try:
                place = local(dataset.rewrite(layout[limit % 2], files=2).path)
                break
            except Killed:
                pass
        assert off(spark, "crashed") == before, f"killed after {reached}"
    else:
        pytest.fail("it never ended")
    assert {"begin", "arrange", "rename_folder", "create", "_run"} <= set(reached)
    same_as_off(lambda: spark.sql("SELECT * FROM crashed WHERE a < 150"))
    assert off(spark, "crashed") == before
    left = [name for name in os.listdir(place.parent) if "_geoskip-rewrite-crashed" in name]
    assert left == []
    dataset.rewrite(ZOrder("a", "b"), files=2)
    dataset.remove_replaced(0)
    assert off(spark, "crashed") == before


@pytest.mark.slow
@pytest.mark.usefixtures("unarranged")
@pytest.mark.parametrize("moment", ["arrange", "_index", "switch"])
def test_a_concurrent_append_is_detected_and_nothing_is_lost(spark, partitioned, tables, monkeypatch, moment):
    name = f"raced_{moment}"
    dataset = tables(name, partitioned)
    dataset.create_index(MinMax("a"))
    before, place = off(spark, name), local(dataset.store.location).parent
    late = place / "late.parquet"

    def then_append(real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            found = real(*args, **kwargs)
            shutil.copy(next(place.glob("*.parquet")), late)
            return found

        return run

    owner = {"arrange": rewrite_files, "_index": rewrite_files._Rewrite, "switch": TableLocation}[moment]
    with monkeypatch.context() as patch:
        patch.setattr(owner, moment, then_append(getattr(owner, moment)))
        with pytest.raises(ConflictError, match=r"nothing is lost|its files changed"):
            dataset.rewrite(Sort("a"), files=2)
    spark.catalog.refreshTable(name)
    after = off(spark, name)
    assert len(after) > len(before)
    assert [each for each in os.listdir(place.parent) if "geoskip-" in each and name in each] == []
    if moment != "switch":
        return
    report = dataset.rewrite(Sort("a"), files=2)
    assert off(spark, name) == after
    # a file that a writer of before adds to the old folder is not removed with it
    shutil.copy(next(local(report.path).glob("*.parquet")), late.with_name("later.parquet"))
    with pytest.raises(ConflictError, match=r"later\.parquet was written .* append its rows"):
        dataset.remove_replaced(0)
    assert late.exists()


def test_partitions_in_one_folder_are_not_told_apart(spark, partitioned, tables):
    dataset = tables("shared", partitioned, partitions="PARTITIONED BY (day)")
    place = local(dataset.store.location).parent / "day=1"
    spark.sql(f"ALTER TABLE shared ADD PARTITION (day = 3) LOCATION '{place}'")
    before = off(spark, "shared")
    assert len(before) == 9 * ROWS
    with pytest.raises(InvalidSpecificationError, match=r"several partitions of table shared are in .*day=1, so"):
        dataset.rewrite(Sort("a"), where="day = 2", files=1)
    assert off(spark, "shared") == before


@pytest.mark.usefixtures("unarranged")
def test_rows_that_are_written_between_a_switch_and_its_undoing_stay(spark, partitioned, tables, monkeypatch):
    dataset = tables("undone", partitioned)
    before, place = off(spark, "undone"), local(dataset.store.location).parent
    switch = TableLocation.switch

    def then_write(self: Any, folder: str) -> None:
        switch(self, folder)
        shutil.copy(next(place.glob("*.parquet")), place / "late.parquet")
        shutil.copy(next(place.glob("*.parquet")), local(folder) / "later.parquet")

    monkeypatch.setattr(TableLocation, "switch", then_write)
    with pytest.raises(ConflictError, match=r"a writer has added files to .* append their rows to the table"):
        dataset.rewrite(Sort("a"), files=2)
    spark.catalog.refreshTable("undone")
    assert len(off(spark, "undone")) > len(before)
    assert len(list(place.parent.glob("undone.geoskip-*/later.parquet"))) == 1


@pytest.mark.usefixtures("unarranged")
def test_two_rewrites_of_a_table_do_not_meet(spark, partitioned, tables):
    dataset = tables("twice", partitioned)
    before = off(spark, "twice")
    root = dataset._source.relation().root
    with rewrite_folders.exclusive(root), pytest.raises(ConflictError, match="is being rewritten by"):
        dataset.rewrite(Sort("a"), files=2)
    assert dataset.rewrite(Sort("a"), files=2).is_switched
    assert off(spark, "twice") == before


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
        (InvalidSpecificationError, "files= or file_size=, and not both", {"files": 1, "file_size": 1}),
        (InvalidSpecificationError, "number of files from 1, got 0", {"files": 0}),
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
