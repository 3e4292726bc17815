"""Datasets in odd places, and writers that meet there: nested, copied, linked, read-only, vanished, overwritten."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax, ValueList
from geoskip.errors import ConflictError, InvalidSpecificationError, NotIndexedError, StoreError
from geoskip.lifecycle.log import latest
from geoskip.metadata import Snapshot
from geoskip.sources import build_verbs
from geoskip.spark.dataset import source as data_module
from geoskip.spark.dataset import verify
from geoskip.spark.dataset.source import DatasetSource
from geoskip.stores import ParquetStore, Store
from tests.conftest import same_as_off
from tests.spark.verbs.asking import kept, write

pytestmark = pytest.mark.spark


def test_datasets_within_one_another_have_metadata_of_their_own(spark: Any, tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    for number in range(3):
        write(outer, f"{number}.parquet", [number])
        write(inner, f"{number}.parquet", [100 + number])
    geoskip.dataset(spark, str(inner)).create_index(MinMax("a"))
    assert geoskip.dataset(spark, str(outer), recursiveFileLookup="true").create_index(MinMax("a")).files == 6
    assert kept(spark, inner, "a = 101") == 1
    assert kept(spark, outer, "a = 1") == 1
    every = same_as_off(lambda: spark.read.option("recursiveFileLookup", True).parquet(str(outer)).where("a = 101"))
    assert every.files_kept == 1
    write(inner, "3.parquet", [103])
    geoskip.dataset(spark, str(inner)).refresh_index()
    assert kept(spark, inner, "a = 103") == 1


@pytest.fixture
def copy(place: Path, handle: geoskip.Dataset, tmp_path: Path) -> Path:
    """A copy of the dataset with its metadata."""
    return Path(shutil.copytree(place, tmp_path / "copy"))


@pytest.mark.slow
def test_a_copied_folder_is_not_mistaken_for_the_original(
    spark: Any, place: Path, handle: geoskip.Dataset, copy: Path
) -> None:
    write(copy, "0.parquet", [31])
    assert kept(spark, copy) == 4
    copied = geoskip.dataset(spark, str(copy))
    for verb in (copied.refresh_index, copied.verify, lambda: copied.create_index(MinMax("a"))):
        with pytest.raises(InvalidSpecificationError, match=r"moved, renamed or copied, dataset.repair\(\)"):
            verb()
    os.rename(copy, moved := copy.with_name("moved"))  # where files are the same to the last digit of their times
    (row,) = geoskip.dataset(spark, str(moved)).describe().collect()
    assert (row.files_covered, row.files_uncovered, row.state) == (0, 4, f"not used here: of file:{place}")
    assert not geoskip.datasets(spark).keys() & {f"file:{moved}", f"file:{copy}"}
    os.rename(moved, copy)
    copied.repair()
    assert kept(spark, copy) == 2
    assert ParquetStore(copy / "_geoskip").identity() != ParquetStore(place / "_geoskip").identity()
    write(place, "4.parquet", [31])
    write(copy, "4.parquet", [31])
    assert (handle.refresh_index().read, copied.refresh_index().read) == (1, 1)
    assert (kept(spark, place), kept(spark, copy)) == (2, 3)


def test_what_somebody_else_began_for_a_copy_meanwhile_stays(spark: Any, copy: Path, monkeypatch: Any) -> None:
    other = geoskip.dataset(spark, str(copy))

    def meanwhile(*args: Any) -> Any:
        monkeypatch.undo()
        other.repair()
        other.create_index(ValueList("a"))
        return verify.bind(*args)

    monkeypatch.setattr(verify, "bind", meanwhile)
    report = geoskip.dataset(spark, str(copy)).repair()
    assert set(report.indexes) == {"minmax(a)", "valuelist(a)"}


def test_the_indexes_of_a_copy_outlive_a_repair_that_fails(spark: Any, copy: Path, monkeypatch: Any) -> None:
    copied = geoskip.dataset(spark, str(copy))
    with monkeypatch.context() as patch:
        patch.setattr("geoskip.spark.dataset.create_refresh.choose_parameters", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            copied.repair()
    assert kept(spark, copy) == 4
    assert copied.refresh_index().read == 4
    assert kept(spark, copy) == 1


def test_a_table_that_is_renamed_takes_its_metadata_along(spark: Any) -> None:
    spark.range(4).selectExpr("id AS a").repartitionByRange(4, "a").write.saveAsTable("old_name")
    try:
        geoskip.dataset(spark, table="old_name").create_index(MinMax("a"))
        spark.sql("ALTER TABLE old_name RENAME TO new_name")
        renamed = geoskip.dataset(spark, table="new_name")
        read = lambda: same_as_off(lambda: spark.table("new_name").where("a = 3")).files_kept  # noqa: E731
        assert read() == 4
        with pytest.raises(InvalidSpecificationError, match=r"repair\(\)"):
            renamed.refresh_index()
        assert renamed.repair().indexes == ("minmax(a)",)
        assert read() == 1
        renamed.delete_index()
        spark.sql("ALTER TABLE new_name RENAME TO old_name")
        geoskip.dataset(spark, table="old_name").create_index(MinMax("a"))
    finally:
        for name in ("old_name", "new_name"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_metadata_elsewhere_are_never_taken_over(spark: Any, place: Path, tmp_path: Path) -> None:
    shared, other = tmp_path / "meta", write(tmp_path / "other", "0.parquet", [1]).parent
    mine = geoskip.dataset(spark, str(place), metadata=str(shared))
    mine.create_index(MinMax("a"))
    with pytest.raises(InvalidSpecificationError, match="a folder of its own"):
        geoskip.dataset(spark, str(other), metadata=str(shared)).repair()
    assert kept(spark, place) == 1


@pytest.mark.slow
def test_a_dataset_reached_through_a_symbolic_link(
    spark: Any, place: Path, handle: geoskip.Dataset, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(place)
    assert kept(spark, link) == 1, "a link of the folder leads to the same files"
    write(place, "4.parquet", [40])
    linked = geoskip.dataset(spark, str(link))
    assert linked.refresh_index().read == 1
    assert linked.repair().read == 0
    assert (kept(spark, link), kept(spark, place)) == (1, 1)
    (place / "4.parquet").unlink()
    (place / "linked.parquet").symlink_to(write(tmp_path / "elsewhere", "5.parquet", [31]))
    assert kept(spark, place) == 2
    assert handle.refresh_index().files == 5
    assert kept(spark, place, "a = 10") == 1
    write(tmp_path / "elsewhere", "5.parquet", [10])
    assert kept(spark, place, "a = 10") == 2


def test_data_that_nobody_may_write_beside(spark: Any, place: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def refuse(self: Any, name: str, content: bytes) -> None:
        raise PermissionError(13, "Permission denied", name)

    handle = geoskip.dataset(spark, str(place))
    with monkeypatch.context() as patch:
        patch.setattr("geoskip.stores.log_files.LocalFolder.create", refuse)
        with pytest.raises(StoreError, match="keep them elsewhere: dataset"):
            handle.create_index(MinMax("a"))
    assert kept(spark, place) == 4
    geoskip.dataset(spark, str(place), metadata=str(tmp_path / "meta")).create_index(MinMax("a"))
    assert kept(spark, place) == 1
    assert not list(place.glob("_geoskip/_log/*/*"))


def test_metadata_that_vanish_under_a_session(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    assert kept(spark, place) == 1
    shutil.rmtree(place / "_geoskip")
    assert kept(spark, place) == 4
    assert handle.indexes == ()
    with pytest.raises(NotIndexedError):
        handle.refresh_index()
    handle.create_index(MinMax("a"))
    assert kept(spark, place) == 1


def test_a_vacuum_under_a_planned_query(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    planned = spark.read.parquet(str(place)).where("a = 31")
    planned._jdf.queryExecution().executedPlan()
    handle.refresh_index("full")
    handle.vacuum_index(retain=0)
    assert [row.a for row in planned.collect()] == [31]
    assert kept(spark, place) == 1


@pytest.mark.slow
def test_a_vacuum_under_a_verb_that_reads_metadata(
    spark: Any, place: Path, handle: geoskip.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has the older snapshot looks at the next one, instead of taking it for damaged."""

    def overtaken(store: Store) -> Snapshot | None:
        monkeypatch.setattr(build_verbs, "latest", latest)
        found = latest(store)
        handle.refresh_index("full")
        handle.vacuum_index(retain=0)
        return found

    def other() -> geoskip.Dataset:
        return geoskip.dataset(spark, str(place), metadata=str(place / "_geoskip"))  # which has read nothing yet

    for ask in (
        lambda: other().verify().ok,
        lambda: [row.files_covered for row in other().describe().collect()] == [4],
        lambda: other().create_index(MinMax("a")).files == 4,
        lambda: other().refresh_index().files == 4,
    ):
        monkeypatch.setattr(build_verbs, "latest", overtaken)
        assert ask()
    assert kept(spark, place) == 1


def test_a_file_that_is_gone_before_its_columns_are_known(
    spark: Any, place: Path, handle: geoskip.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = DatasetSource.load

    def too_late(self: DatasetSource, session: Any) -> Any:
        monkeypatch.setattr(DatasetSource, "load", load)
        frame = load(self, session)
        (place / "0.parquet").unlink()
        frame.collect()
        return frame

    write(place, "4.parquet", [40])
    other = geoskip.dataset(spark, str(place))
    other._source._last = None
    monkeypatch.setattr(DatasetSource, "load", too_late)
    assert other.refresh_index().files == 4


def test_an_old_handle_cannot_commit_after_an_overwrite(
    spark: Any, place: Path, handle: geoskip.Dataset, monkeypatch: Any
) -> None:
    write(place, "4.parquet", [40])
    build = data_module.build

    def overwritten(*args: Any) -> Any:
        built = build(*args)
        monkeypatch.undo()
        somebody = threading.Thread(target=begin_anew)  # what this thread reads is of the log that it writes to
        somebody.start()
        somebody.join()
        return built

    def begin_anew() -> None:
        spark.range(100, 104).selectExpr("id AS a").coalesce(1).write.mode("overwrite").parquet(str(place))
        geoskip.dataset(spark, str(place)).create_index(ValueList("a"))

    monkeypatch.setattr(data_module, "build", overwritten)
    with pytest.raises(ConflictError, match="overwrite"):
        handle.refresh_index()
    assert [str(index) for index in handle.indexes] == ["valuelist(a)"]
    assert kept(spark, place, "a = 7") == 0
