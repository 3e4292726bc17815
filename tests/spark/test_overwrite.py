"""Overwrites that are interrupted at any step: the next writer finds all old rows, or all new ones."""

from __future__ import annotations

import json
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
        for place, name in ((HadoopFolder, "_delete"), (LocalFolder, "create"), (overwrite_module, "_move")):
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
    def failing(system: Any, old: Any, new: Any) -> None:
        if "/p=1/" in old.toString():
            raise StoreError("the disk is gone")
        move(system, old, new)

    folder, move = tmp_path / "data", overwrite_module._move
    write(spark, OLD, folder)
    handle = geoskip.dataset(spark, folder)
    with monkeypatch.context() as patch:
        patch.setattr(overwrite_module, "_move", failing)
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


def interrupted(spark: Any, folder: Path, step: str) -> Path:
    """Overwrite a folder by a process that ends at a function; returns its hidden folder."""

    def killed(*args: Any) -> None:
        raise Killed

    write(spark, OLD, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overwrite_module, step, killed)
        with suppress(Killed):
            write(spark, NEW, folder, mode="overwrite")
    (left,) = hidden(folder)
    return left


def by_another_host(left: Path, **changes: str) -> None:
    """Change the journal of an overwrite to that of a process elsewhere."""
    journal = left / "_geoskip_rewrite.json"
    content = json.loads(journal.read_text())
    content["who"]["host"] = "another"
    journal.write_text(json.dumps(content | changes))


@pytest.mark.parametrize("step", ["_replace", "_move"])
def test_files_that_others_add_to_a_half_overwritten_folder_stay(spark: Any, tmp_path: Path, step: str) -> None:
    """They may be of another program, which makes a folder of a partition and ``_SUCCESS`` too."""
    folder = tmp_path / "data"
    left = interrupted(spark, folder, step)
    by_another_host(left)
    with pytest.raises(ConflictError, match=f"nothing else was written: .* if that process is gone, .*{left.name}"):
        write(spark, MORE, folder, mode="append")
    more = spark.range(100, 104).selectExpr("id", "id % 3 AS p")
    more.write.partitionBy("p").mode("append").parquet(str(folder))
    by_another_host(left, when="2020-01-01T00:00:00+00:00")
    with pytest.raises(ConflictError, match="is finished now"):
        write(spark, MORE, folder, mode="append")
    assert ids(spark, folder) == [*NEW, *range(100, 104)]
    assert not hidden(folder)


@pytest.mark.parametrize("has_begun", [False, True])
def test_overwrites_at_once_replace_one_another(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    def create(self: LocalFolder, name: str, data: bytes) -> None:
        is_first = name == "_geoskip_begun" and not outcomes
        if is_first and has_begun:
            real(self, name, data)
        if is_first:
            outcomes.append("")
            try:
                write(spark, MORE, folder, mode="overwrite")
            except ConflictError as error:
                outcomes.append(str(error))
        if not (is_first and has_begun):
            real(self, name, data)

    folder, real = tmp_path / "data", LocalFolder.create
    outcomes: list[str] = []
    write(spark, OLD, folder)
    monkeypatch.setattr(LocalFolder, "create", create)
    write(spark, NEW, folder, mode="overwrite")
    assert ids(spark, folder) == [*NEW]
    assert not hidden(folder)
    assert ["is being overwritten by another writer too" in each for each in outcomes[1:]] == [True] * has_begun


def test_an_overwrite_whose_rows_another_program_removed_is_an_error(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(self: LocalFolder, name: str, data: bytes) -> None:
        if name == "_geoskip_begun":
            spark.range(3).write.mode("overwrite").parquet(str(folder))
        real(self, name, data)

    folder, real = tmp_path / "data", LocalFolder.create
    write(spark, OLD, folder)
    monkeypatch.setattr(LocalFolder, "create", create)
    with pytest.raises(ConflictError, match=r"has emptied .*, with the rows of this one"):
        write(spark, NEW, folder, mode="overwrite")
    assert ids(spark, folder) == [0, 1, 2]
    assert not hidden(folder)


def test_two_processes_may_finish_an_overwrite_at_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(self: LocalFolder, name: str, limit: int) -> bytes:
        found = real(self, name, limit)
        if name == "_geoskip_replaced.json" and not finished:
            finished.append(True)
            with pytest.raises(ConflictError, match="is finished now"):
                write(spark, MORE, folder, mode="append")
        return found

    folder, real = tmp_path / "data", LocalFolder.read
    finished: list[bool] = []
    interrupted(spark, folder, "_replace")
    monkeypatch.setattr(LocalFolder, "read", read)
    with pytest.raises(ConflictError, match="is finished now"):
        write(spark, MORE, folder, mode="append")
    assert ids(spark, folder) == [*NEW]


def test_an_overwrite_that_ends_as_it_removes_its_folder_is_complete(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete(self: HadoopFolder, name: str) -> None:
        if name.startswith("_geoskip_new_"):
            (folder / name / "_geoskip_removed").unlink()
            raise Killed
        real(self, name)

    folder, real = tmp_path / "data", HadoopFolder.delete
    write(spark, OLD, folder)
    with monkeypatch.context() as patch:
        patch.setattr(HadoopFolder, "delete", delete)
        with suppress(Killed):
            write(spark, NEW, folder, mode="overwrite")
    write(spark, MORE, folder, mode="append")
    assert ids(spark, folder) == [*NEW, *MORE]
    assert not hidden(folder)
