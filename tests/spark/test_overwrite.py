"""Overwrites that are interrupted at any step: the next writer finds all old rows, or all new ones."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import Sort
from geoskip.errors import ConflictError, StoreError
from geoskip.spark.dataset import overwrite as overwrite_module
from geoskip.spark.filesystem import HadoopFolder
from geoskip.stores import LocalFolder

pytestmark = pytest.mark.spark

OLD, NEW, MORE = range(6), range(20, 29), range(50, 51)


class Killed(BaseException):
    """Raised by the step at which a process ends."""


class Steps:
    """Replacements of a step's functions: at a number all end, before or after the change."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int) -> None:
        self.left = number
        for place, name in ((HadoopFolder, "delete"), (LocalFolder, "create"), (overwrite_module, "rename_folder")):
            patch.setattr(place, name, self.counted(getattr(place, name)))

    def counted(self, change: Any) -> Any:
        def counted(*args: Any) -> Any:
            self.reach()
            change(*args)
            self.reach()

        return counted

    def reach(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise Killed


def write(spark: Any, numbers: range, folder: Path, **options: Any) -> None:
    frame = spark.range(numbers.start, numbers.stop, numPartitions=1).selectExpr("id", "id % 3 AS p")
    geoskip.write(frame, folder, partition_by="p", **options)


def ids(spark: Any, folder: Path) -> list[int]:
    return sorted(row.id for row in spark.read.parquet(str(folder)).collect())


def hidden(folder: Path) -> list[Path]:
    return list(folder.glob("_geoskip_new_*"))


def killed_overwrites(spark: Any, tmp_path: Path) -> Any:
    """Folders with rows in three partitions in which an overwrite ended at each step."""
    for number in range(1, 100):
        folder = tmp_path / f"at {number}%20"
        write(spark, OLD, folder)
        with pytest.MonkeyPatch.context() as patch:
            steps = Steps(patch, number)
            with suppress(Killed):
                write(spark, NEW, folder, mode="overwrite")
        if steps.left > 0:
            assert number > 15
            assert not hidden(folder)
            return
        yield folder


@pytest.mark.slow
def test_the_next_writer_finds_all_old_or_all_new_rows(spark: Any, tmp_path: Path) -> None:
    outcomes = set()
    for folder in killed_overwrites(spark, tmp_path):
        is_begun = any((path / "_geoskip_replaced.json").exists() for path in hidden(folder))
        message = "was interrupted, and is finished now: nothing else was written"
        with pytest.raises(ConflictError, match=message) if is_begun else nullcontext():
            write(spark, MORE, folder, mode="append")
        found = [number for number in ids(spark, folder) if number not in MORE]
        assert found == [*NEW] or (found == [*OLD] and not is_begun)
        assert not any(list(path.iterdir()) for path in hidden(folder))
        outcomes.add((is_begun, found == [*NEW]))
    assert outcomes == {(False, False), (True, True), (False, True)}


@pytest.mark.parametrize("verb", ["append", "rewrite"])
def test_other_verbs_that_write_finish_it_too(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    def failing(session: Any, source: str, target: str) -> None:
        if list(folder.glob("p=*")):
            raise StoreError("the disk is gone")
        rename_folder(session, source, target)

    folder, rename_folder = tmp_path / "data", overwrite_module.rename_folder
    write(spark, OLD, folder)
    handle = geoskip.dataset(spark, folder)
    with monkeypatch.context() as patch:
        patch.setattr(overwrite_module, "rename_folder", failing)
        with pytest.raises(StoreError, match="the disk is gone"):
            write(spark, NEW, folder, mode="overwrite")
    more = spark.range(1).selectExpr("id", "id AS p")
    with pytest.raises(ConflictError, match="is finished now"):
        handle.append(more) if verb == "append" else handle.rewrite(Sort("id"))
    assert ids(spark, folder) == [*NEW]


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="there is no file that nobody can delete")
def test_a_file_that_is_not_deleted_is_an_error(spark: Any) -> None:
    with pytest.raises(OSError, match="version in file:/proc could not be deleted"):
        HadoopFolder("file:/proc").delete("version")
