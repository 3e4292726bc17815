"""Datasets that change: refreshing, adding, two writers, and queries that meet metadata older than the files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import GeoBox, MinMax, ValueList
from geoskip.errors import InvalidSpecificationError, NotIndexedError
from geoskip.spark.dataset import source as data_module
from geoskip.spark.session import java
from geoskip.stores.base import MemoryStore
from geoskip.stores.parquet import ParquetStore
from tests.conftest import files_kept, rows_of, same_as_off
from tests.spark.test_readers import settings

pytestmark = pytest.mark.spark

Parts = Callable[..., Path]


def write(place: Path, name: str, values: list[Any]) -> Path:
    path = place / name
    pq.write_table(pa.table({"a": pa.array(values, pa.int64()), "s": [f"s{v}" for v in values]}), path)
    return path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    found = tmp_path / "data"
    found.mkdir()
    for number in range(4):
        write(found, f"{number}.parquet", [number * 10, number * 10 + 1])
    return found


def reading(spark: Any, place: Path, where: str, columns: str = "a BIGINT, s STRING") -> Any:
    return same_as_off(lambda: spark.read.schema(columns).parquet(str(place)).where(where))


# --- refreshing -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_refresh_reads_what_is_new_or_changed_and_forgets_the_rest(spark: Any, place: Path) -> None:
    handle = geoskip.dataset(spark, str(place))
    with pytest.raises(NotIndexedError, match="create_index"):
        handle.refresh_index()
    with pytest.raises(NotIndexedError):
        handle.describe()
    handle.create_index(MinMax("a"), MinMax("length(s)"))
    write(place, "4.parquet", [40])
    write(place, "1.parquet", [500])
    (place / "2.parquet").unlink()
    assert reading(spark, place, "a > 35").files_kept == 2
    (described,) = [row for row in handle.describe().collect() if row.kind == "minmax" and row["index"] == "minmax(a)"]
    assert (described.files_covered, described.files_uncovered) == (2, 2)
    report = handle.refresh_index()
    assert (report.files, report.read, report.snapshot) == (4, 2, 2)
    assert reading(spark, place, "a > 35").files_kept == 2
    assert reading(spark, place, "a > 1000").files_kept == 0
    assert {(r.files_covered, r.files_uncovered) for r in handle.describe().collect()} == {(4, 0)}
    assert handle.refresh_index("full").read == 4


def test_an_index_is_added_beside_the_others(spark: Any, place: Path) -> None:
    handle = geoskip.dataset(spark, str(place))
    handle.create_index(MinMax("a"))
    write(place, "4.parquet", [40])
    write(place, "1.parquet", [500])
    (place / "2.parquet").unlink()
    report = handle.create_index(MinMax("s"), GeoBox("a", "a"))
    assert (report.files, report.rows, report.read) == (4, 6, 4)
    assert report.indexes == ("minmax(a)", "minmax(s)", "geobox(a, a)")
    assert [str(index) for index in handle.indexes] == list(report.indexes)
    assert reading(spark, place, "a = 500").files_kept == 1
    assert reading(spark, place, "s = 's40'").files_kept == 1
    assert {r.files_covered for r in handle.describe().collect()} == {4}
    assert handle.create_index(MinMax("a")).indexes == ("minmax(s)", "geobox(a, a)", "minmax(a)")  # built anew


def test_a_refresh_uses_the_settings_of_the_index(spark: Any, tmp_path: Path) -> None:
    def at(name: str, *moment: int) -> None:
        column = pa.array([datetime(*moment, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
        pq.write_table(pa.table({"at": column}), tmp_path / f"{name}.parquet")

    place = str(tmp_path)
    at("first", 2024, 1, 1, 23)
    at("second", 2024, 1, 2, 23)
    handle = geoskip.dataset(spark, place)
    handle.create_index(MinMax("hour(at)"))
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        at("third", 2024, 2, 1, 14)
        assert handle.refresh_index().read == 1
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        early = "hour(at) < 15"
        assert reading(spark, Path(place), early, "at TIMESTAMP").files_kept == 3
        at("fourth", 2024, 2, 1, 14)
        added = handle.create_index(MinMax("at"))
        assert "new files were left out" in added.incomplete["minmax(hour(at))"]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert reading(spark, Path(place), early, "at TIMESTAMP").files_kept == 2
    assert same_as_off(lambda: spark.read.parquet(place).where("at > timestamp'2024-01-15'")).files_kept == 2


def test_a_handle_reads_the_columns_as_the_session_has_them_by_now(spark: Any, tmp_path: Path) -> None:
    for number in range(2):
        pq.write_table(pa.table({"b": pa.array([b"%d" % number])}), tmp_path / f"{number}.parquet")
    handle = geoskip.dataset(spark, str(tmp_path))
    handle.create_index(MinMax("b"))
    with settings(spark, {"spark.sql.parquet.binaryAsString": "true"}):
        assert handle.create_index(ValueList("b")).read == 2
        assert same_as_off(lambda: spark.read.parquet(str(tmp_path)).where("b = '1'")).files_kept == 1


def test_a_dataset_read_otherwise_is_not_refreshed(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n")
    geoskip.dataset(spark, str(tmp_path), format="csv", schema="a int, b int").create_index(MinMax("a"))
    other = geoskip.dataset(spark, str(tmp_path), format="csv", schema="a int, b int", sep="|")
    with pytest.raises(InvalidSpecificationError, match="read it the same way"):
        other.refresh_index()
    with pytest.raises(InvalidSpecificationError, match="read it the same way"):
        other.create_index(MinMax("b"))


# --- stale metadata at query time -------------------------------------------------------------------------------------


def overwrite_in_place(path: Path) -> None:
    """Another content of equal size, and the old modification time."""
    before = path.stat()
    length = before.st_size
    write(path.parent, path.name, [77, 78])
    assert path.stat().st_size == length
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_by_rename(path: Path) -> None:
    before = path.stat()
    other = write(path.parent, "_other", [77, 78])
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("replace", [overwrite_in_place, replace_by_rename])
def test_refresh_reads_what_was_replaced_unseen_by_size_and_time(
    spark: Any, place: Path, replace: Callable[[Path], None]
) -> None:
    handle = geoskip.dataset(spark, str(place))
    handle.create_index(MinMax("a"))
    replace(place / "1.parquet")
    assert [row.files_covered for row in handle.describe().collect()] == [3]
    assert handle.refresh_index().read == 1
    spark.conf.set("spark.geoskip.fingerprint.maxRechecks", "0")  # as where more files would have to be looked at
    try:
        assert reading(spark, place, "a > 70").files_kept == 1
        assert reading(spark, place, "a BETWEEN 10 AND 11").files_kept == 0
    finally:
        spark.conf.unset("spark.geoskip.fingerprint.maxRechecks")


STALE: dict[str, Callable[[Path], Any]] = {
    "overwritten with size and time restored": overwrite_in_place,
    "replaced by a rename": replace_by_rename,
    "rewritten": lambda path: write(path.parent, path.name, [777]),
    "deleted": lambda path: path.unlink(),
    "another added": lambda path: write(path.parent, "new.parquet", [777]),
}


@pytest.mark.parametrize("event", STALE)
def test_metadata_older_than_the_files_change_no_result(spark: Any, place: Path, event: str) -> None:
    geoskip.dataset(spark, str(place)).create_index(MinMax("a"))
    STALE[event](place / "1.parquet")
    found = files_kept(spark.read.parquet(str(place)), ["a > 70", "a BETWEEN 10 AND 11", "a < 5"])
    assert max(found.values()) <= 2


def test_a_listing_older_than_a_file(spark: Any, place: Path) -> None:
    geoskip.dataset(spark, str(place)).create_index(MinMax("a"))
    frame = spark.read.parquet(str(place))
    overwrite_in_place(place / "1.parquet")
    changed = frame.where("a > 70")
    assert rows_of(changed) == ["Row(a=77, s='s77')", "Row(a=78, s='s78')"]
    (scan,) = geoskip.report(changed).scans
    assert (scan.files_kept, scan.files_unindexed) == (1, 1)


def test_overwriting_a_dataset_removes_its_metadata(spark: Any, place: Path) -> None:
    handle = geoskip.dataset(spark, str(place))
    handle.create_index(MinMax("a"))
    spark.range(1000, 1004).selectExpr("id AS a", "'x' AS s").write.mode("overwrite").parquet(str(place))
    assert not (place / "_geoskip").exists()
    assert handle.indexes == ()
    assert reading(spark, place, "a > 1002").files_kept > 0
    report = handle.create_index(MinMax("a"))
    assert (report.snapshot, report.rows) == (1, 4)
    assert reading(spark, place, "a > 5000").files_kept == 0


def test_a_snapshot_is_served_while_another_is_written(spark: Any, place: Path, monkeypatch: Any) -> None:
    handle = geoskip.dataset(spark, str(place))
    handle.create_index(MinMax("a"))
    write(place, "4.parquet", [40])
    build, during = data_module.build, []

    def watched(*args: Any) -> Any:
        built = build(*args)
        during.append(reading(spark, place, "a = 31").files_kept)
        return built

    monkeypatch.setattr(data_module, "build", watched)
    handle.refresh_index()
    assert during == [2]  # the file that it matches, and the new one that the old snapshot does not know
    assert reading(spark, place, "a = 31").files_kept == 1


# --- metadata in other places -----------------------------------------------------------------------------------------


def test_metadata_made_elsewhere_are_found_once_the_look_up_is_old(spark: Any, place: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    geoskip.dataset(spark, str(place)).create_index(MinMax("a"))
    shutil.copytree(place, copy, ignore=shutil.ignore_patterns("_geoskip"))
    assert reading(spark, copy, "a = 31").files_kept == 4
    header = ParquetStore(place / "_geoskip").load(1).header
    assert header.root == f"file:{place}"
    shutil.copytree(place / "_geoskip", copy / "_geoskip")
    java(spark).geoskip.forget()  # or some seconds later
    report = reading(spark, copy, "a = 31")
    assert report.files_kept == 4
    assert f"it was built for file:{place}" in str(report)


def test_metadata_in_a_folder_of_their_own(spark: Any, place: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "meta data"
    handle = geoskip.dataset(spark, str(place), metadata=str(elsewhere))
    handle.create_index(MinMax("a"))
    assert not (place / "_geoskip").exists()
    assert (elsewhere / "_log").is_dir()
    assert reading(spark, place, "a = 31").files_kept == 1
    assert reading(spark, place / "3.parquet", "a = 0").files_kept == 0
    assert [str(index) for index in geoskip.dataset(spark, str(place), metadata=str(elsewhere)).indexes] == [
        "minmax(a)"
    ]
    assert f"file:{place}" in geoskip.datasets(spark)
    (tmp_path / "other").mkdir()
    write(tmp_path / "other", "0.parquet", [1])
    with pytest.raises(InvalidSpecificationError, match="those of"):
        geoskip.dataset(spark, str(tmp_path / "other"), metadata=str(elsewhere)).create_index(MinMax("a"))


def test_metadata_in_memory(spark: Any, place: Path) -> None:
    geoskip.dataset(spark, str(place), store=MemoryStore()).create_index(MinMax("a"))
    assert not (place / "_geoskip").exists()
    assert reading(spark, place, "a = 31").files_kept == 1
    with pytest.raises(InvalidSpecificationError, match="not both"):
        geoskip.dataset(spark, str(place), store=MemoryStore(), metadata="somewhere")


@pytest.mark.slow
def test_a_number_that_is_given_twice(spark: Any, place: Path, tmp_path: Path) -> None:
    """Somebody puts back an older state of the metadata, and other snapshots get the numbers of those that are gone."""
    handle = geoskip.dataset(spark, str(place))
    handle.create_index(MinMax("a"))
    write(place, "4.parquet", [40])
    handle.refresh_index()
    assert reading(spark, place, "a = 31").files_kept == 1, "snapshot 2 is known here and to the JVM"
    max((place / "_geoskip" / "_log").glob("*/*.json")).unlink()
    assert reading(spark, place, "a = 31").files_kept == 2, "4.parquet is unknown to snapshot 1"
    (place / "0.parquet").unlink()
    write(place, "5.parquet", [50])
    assert handle.refresh_index().snapshot == 2
    for where, count in (("a = 31", 1), ("a = 50", 1), ("a = 40", 1), ("a = 1000", 0)):
        assert reading(spark, place, where).files_kept == count


def test_damaged_metadata_keep_everything(spark: Any, place: Path) -> None:
    handle = geoskip.dataset(spark, str(place))
    handle.create_index(MinMax("a"))
    (entry,) = (place / "_geoskip" / "_log").glob("*/*.json")
    newer = entry.with_name("_00000002.json")
    newer.write_bytes(entry.read_bytes()[:200])
    report = reading(spark, place, "a = 31")
    assert report.files_kept == 4
    assert "could not be read" in str(report)
    newer.unlink()
    assert reading(spark, place, "a = 31").files_kept == 1
