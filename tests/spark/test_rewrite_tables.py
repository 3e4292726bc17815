"""Rewriting tables of the catalogue: their folder is switched, through crashes and beside other writers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax, Sort, ZOrder
from geoskip.errors import ConflictError, InvalidSpecificationError
from geoskip.spark import filesystem
from geoskip.spark.build.arrange import ArrangedFrame
from geoskip.spark.dataset import rewrite_files, rewrite_folders
from geoskip.spark.dataset.table_location import TableLocation
from tests.conftest import rows_of, same_as_off
from tests.spark.test_rewrite import ROWS, local, partitioned

pytestmark = pytest.mark.spark
__all__ = ["partitioned"]


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


def test_partitions_of_a_table_with_columns_of_char_are_rewritten(spark):
    name = "of_char"
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(f"CREATE TABLE {name} (id BIGINT COMMENT 'the id', c CHAR(3), z STRING) USING parquet PARTITIONED BY (z)")
    try:
        rows = spark.range(40).selectExpr("id", "'ab' AS c", "IF(id < 20, 'A/B c=d%', NULL) AS z")
        rows.repartition(3).write.insertInto(name)
        before = off(spark, name)
        report = geoskip.dataset(spark, table=name).rewrite(ZOrder("id", "c"), where="z = 'A/B c=d%'", files=2)
        assert (report.rows, report.is_switched) == (20, True)
        assert off(spark, name) == before
        assert spark.table(name).schema["id"].metadata == {"comment": "the id"}
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


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
    for name in ("_run", "_set_locations", "check_current"):
        monkeypatch.setattr(TableLocation, name, step(name, getattr(TableLocation, name)))

    class Dying(filesystem.LocalFolder):
        def delete(self, name: str) -> None:
            if len(reached) < limit:
                super().delete(name)

    monkeypatch.setattr(filesystem, "LocalFolder", Dying)
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


def test_a_partition_named_otherwise_than_its_value_is_refused_before_anything_changes(spark, tmp_path):
    place = tmp_path / "months"
    for month in ("01", "02"):
        spark.range(50).selectExpr("id", "id % 5 AS a").write.parquet(f"{place}/month={month}")
    spark.sql(
        f"CREATE TABLE months (id BIGINT, a BIGINT, month INT) USING parquet PARTITIONED BY (month) LOCATION '{place}'"
    )
    try:
        spark.sql("MSCK REPAIR TABLE months")
        with pytest.raises(InvalidSpecificationError, match="has a partition month=01, which is no INT as Spark"):
            geoskip.dataset(spark, table="months").rewrite(Sort("a"), files=2)
        assert spark.table("months").count() == 100
        assert [path.name for path in tmp_path.iterdir()] == ["months"]
    finally:
        spark.sql("DROP TABLE months")
