"""What is particular to the Parquet store: crashes, races between processes, amending and sweeping."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geoskip.errors import ConflictError, MetadataError
from geoskip.metadata import Header, PartFile
from geoskip.stores import Folder, LocalFolder, ParquetStore
from geoskip.stores.base import header_json, new_identity
from geoskip.stores.parts import merged_from
from tests.support.crashes import appended_elsewhere
from tests.support.storing import HEADER, begun, content, table

# --- crashes ---------------------------------------------------------------------------------------


class Crash(BaseException):
    """The power goes."""


class CrashingFolder:
    """A folder where the power goes right before or right after the k-th change."""

    def __init__(self, folder: Folder, step: int, *, after: bool) -> None:
        self.folder, self.step, self.after, self.location = folder, step, after, folder.location

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.folder, name)
        return self.changing(method) if name in ("create", "put", "delete") else method

    def changing(self, method: Callable[..., None]) -> Callable[..., None]:
        def change(*args: Any) -> None:
            self.step -= 1
            if self.step < 0 or (self.step == 0 and not self.after):
                raise Crash
            method(*args)
            if self.step == 0:
                raise Crash

        return change


def crashes(path: Path) -> Iterator[ParquetStore]:
    for step in range(1, 10):
        for after in (False, True):
            yield ParquetStore(CrashingFolder(LocalFolder(path), step, after=after))


def test_a_crash_at_any_step_of_a_commit_leaves_the_old_or_the_new_snapshot(tmp_path):
    outcomes = []
    for number, crashing in enumerate(crashes(tmp_path / "0")):
        path = tmp_path / str(number)
        crashing.folder.folder = LocalFolder(path)
        header = begun(ParquetStore(path), f=1)
        try:
            crashing.commit(header, table({"f": 2}), expected=1)
            outcomes.append("done")
        except Crash:
            outcomes.append(content(ParquetStore(path))["f"])
        again = ParquetStore(path)
        latest = again.load(again.latest())
        again.commit(latest.header, table({"f": 3}), expected=latest.header.number)
        assert content(ParquetStore(path)) == {"f": 3}
    assert outcomes[:4] == [1, 1, 1, 2], "put and create, before and after"
    assert set(outcomes[4:]) == {"done"}


def test_a_crash_at_any_step_of_a_first_commit_leaves_nothing_or_the_snapshot(tmp_path):
    outcomes = []
    for number, crashing in enumerate(crashes(tmp_path / "0")):
        path = tmp_path / str(number)
        crashing.folder.folder = LocalFolder(path)
        try:
            begun(crashing, f=1)
            outcomes.append("done")
        except Crash:
            outcomes.append(ParquetStore(path).latest())
        again = ParquetStore(path)
        if again.latest() is None:
            begun(again, f=1)
        assert content(ParquetStore(path)) == {"f": 1}
    assert outcomes[:6] == [None, None, None, None, None, 1], "identity, put and create, before and after"
    assert set(outcomes[6:]) == {"done"}


def test_a_crash_at_any_step_of_a_drop_is_made_good_by_the_next(tmp_path):
    for number, crashing in enumerate(crashes(tmp_path / "0")):
        path = tmp_path / str(number)
        crashing.folder.folder = LocalFolder(path)
        begun(ParquetStore(path), f=1)
        try:
            crashing.drop()
        except Crash:
            assert content(ParquetStore(path)) == {"f": 1} if (path / "_identity.json").exists() else True
        ParquetStore(path).drop()
        assert [p for p in path.rglob("*") if p.is_file()] == []


def test_readers_of_all_parquet_files_below_a_folder_leave_metadata_alone(tmp_path):
    store = ParquetStore(tmp_path / "_geoskip")
    store.commit(begun(store), table({"f": 2}), expected=1)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "data.parquet")
    assert [path.name for path in tmp_path.rglob("*.parquet")] == ["data.parquet"]
    assert content(store) == {"f": 2}


def test_what_else_lies_in_the_log_is_ignored(tmp_path):
    store = ParquetStore(tmp_path)
    log = tmp_path / "_log" / f"_{begun(store).identity}"
    for name in (".5f.tmp", "_00000009.json.tmp", "_9.json", "_00000009.building.json", "notes", "_١٢٣٤٥٦٧٨.json"):
        (log / name).write_text("half")
    (tmp_path / "_parts" / ".1.tmp").write_text("half")
    assert ParquetStore(tmp_path).latest() == 1


def test_a_gap_in_the_log_does_no_harm(tmp_path):
    store = ParquetStore(tmp_path)
    log = tmp_path / "_log" / f"_{store.commit(begun(store), table({'f': 2}), expected=1).identity}"
    (log / "_00000001.json").unlink()
    store = ParquetStore(tmp_path)
    assert (store.latest(), content(store)) == (2, {"f": 2})
    with pytest.raises(MetadataError, match="no snapshot 1"):
        store.load(1)
    assert store.commit(store.load(2).header, table({"f": 3}), expected=2).number == 3


def test_a_lost_race_leaves_no_part_behind(tmp_path):
    store = ParquetStore(tmp_path)
    header = begun(store)
    entry_of_another = tmp_path / "_log" / f"_{header.identity}" / "_00000002.json"
    store.check = lambda header, expected: shutil.copy(entry_of_another.with_name("_00000001.json"), entry_of_another)
    with pytest.raises(ConflictError, match="first"):
        store.commit(header, table({"f": 2}), expected=1)
    assert len(list((tmp_path / "_parts").iterdir())) == 1


def test_a_log_dropped_in_the_midst_of_a_commit_is_not_taken_for_the_new_one(tmp_path):
    store, other = ParquetStore(tmp_path), ParquetStore(tmp_path)
    header = begun(store, f=1)
    put = store.folder.put

    def overwritten(name: str, source: Path) -> None:  # mode("overwrite") while the part is written
        shutil.rmtree(tmp_path)
        begun(other, f=7)
        put(name, source)

    store.folder.put = overwritten
    with pytest.raises(ConflictError, match="dropped"):
        store.commit(header, table({"f": 2}), expected=1)
    assert content(ParquetStore(tmp_path)) == {"f": 7}
    assert ParquetStore(tmp_path).latest() == 1


def test_below_a_file_there_is_nothing(tmp_path):
    (tmp_path / "data.parquet").touch()
    store = ParquetStore(tmp_path / "data.parquet" / "_geoskip")
    assert (store.latest(), store.identity(), store.size()) == (None, None, {})


def test_a_client_that_repeats_its_request_has_committed(tmp_path, monkeypatch):
    """The first attempt succeeded, so the second one finds the file."""

    def repeating(source, target):
        link(source, target)
        if "_log" in str(target):
            raise FileExistsError(errno.EEXIST, "sent again", str(target))

    link = os.link
    store = ParquetStore(tmp_path)
    header = begun(store)
    monkeypatch.setattr(os, "link", repeating)
    assert grown(store, header, ["g"]).number == 2
    assert list(content(ParquetStore(tmp_path))) == ["f", "g"]


@pytest.mark.parametrize("links", [True, False], ids=["with hard links", "without hard links"])
def test_a_file_is_created_once(tmp_path, monkeypatch, links):
    def refuse(*args: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    folder = LocalFolder(tmp_path / "new" / "folder")
    folder.create("a/b", b"first")
    with pytest.raises(FileExistsError):
        folder.create("a/b", b"second")
    assert folder.read("a/b", 99) == b"first"
    assert folder.names("a") == ["b"], "and nothing temporary is left"


def test_a_folder_that_is_swept_away_while_it_is_made_is_made_once_more(tmp_path, monkeypatch):
    make, swept = Path.mkdir, []

    def sweep_first(path: Path, *args: Any, **kinds: Any) -> None:
        make(path, *args, **kinds)
        if not swept:
            swept.append(path.rmdir())
            raise FileExistsError(errno.EEXIST, "it was there, and is not any more", str(path))

    monkeypatch.setattr(Path, "mkdir", sweep_first)
    folder = LocalFolder(tmp_path / "m")
    folder.create("a", b"entry")
    assert folder.read("a", 99) == b"entry"
    (tmp_path / "f").write_bytes(b"no folder")
    with pytest.raises(NotADirectoryError):
        LocalFolder(tmp_path / "f").create("a", b"entry")


def test_what_is_seen_was_flushed_before_and_its_name_is_flushed_then(tmp_path, monkeypatch):
    told: list[Any] = []

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        seen = sorted(path.name for path in (tmp_path / "m").iterdir() if not path.name.startswith("."))
        told.append(("folder" if stat.S_ISDIR(status.st_mode) else status.st_size, seen))

    monkeypatch.setattr(os, "fsync", fsync)
    (tmp_path / "given").write_bytes(b"a part")
    folder = LocalFolder(tmp_path / "m")
    folder.create("x", b"an entry")
    folder.put("y", tmp_path / "given")
    assert told == [(8, []), ("folder", ["x"]), (6, ["x"]), ("folder", ["x", "y"])]


def test_writers_in_processes_lose_nothing(tmp_path):
    begun(ParquetStore(tmp_path / "m"))
    assert appended_elsewhere(tmp_path / "m", "xyz", 8) == [0, 0, 0]
    assert content(ParquetStore(tmp_path / "m")) == {"f": 1, **{f"{who}-{i}": i for who in "xyz" for i in range(8)}}


# --- amending and sweeping --------------------------------------------------------------------------------------------


def grown(store, header, files):
    """A snapshot more, with these files."""
    nothing = pa.array([False] * header.files, pa.bool_())
    return store.amend(header, nothing, table(dict.fromkeys(files, 1)), expected=header.number)


def test_a_small_change_writes_a_small_part(tmp_path):
    store = ParquetStore(tmp_path)
    header = store.commit(HEADER, table({f"f{n}": n for n in range(2000)}), expected=None)
    (first,) = header.parts
    gone = pa.array([n in (5, 1999) for n in range(2000)])
    header = store.amend(header, gone, table({"g": 1}), expected=1)
    old, new = header.parts
    assert (old, old.removed, new.rows) == (replace(first, removed=(5, 1999)), (5, 1999), 1)
    assert [(p.rows, p.rows_left) for p in Header.from_json(header_json(header)).parts] == [(2000, 1998), (1, 1)]
    assert len(content(ParquetStore(tmp_path))) == 1999
    with pytest.raises(MetadataError, match="not ascending"):
        replace(old, removed=(7, 5))


def test_parts_stay_few_and_rows_are_rewritten_seldom():
    parts, rewritten, sizes = [PartFile("first", 100_000, 0, 0, {})], 0, []
    for turn in range(3000):
        first = merged_from(parts, 10)
        rows = 10 + sum(part.rows for part in parts[first:])
        parts = [*parts[:first], PartFile(f"part {turn}", rows, 0, 0, {})]
        rewritten += rows
        sizes.append(len(parts))
    assert max(sizes) == 16
    assert rewritten < 3000 * 10 * 10
    assert sum(part.rows for part in parts) == 130_000


def test_many_parts_are_merged_in_their_order(tmp_path):
    store = ParquetStore(tmp_path)
    header = begun(store)
    for turn in range(20):
        header = grown(store, header, [f"g{turn}"])
    assert len(header.parts) < 16
    assert list(content(ParquetStore(tmp_path))) == ["f", *(f"g{turn}" for turn in range(20))]


def test_a_part_that_is_mostly_gone_is_written_anew(tmp_path):
    store = ParquetStore(tmp_path)
    header = store.commit(HEADER, table({f"f{n}": n for n in range(10)}), expected=None)
    header = store.amend(header, pa.array([n > 2 for n in range(10)]), table({}), expected=1)
    assert [(part.rows, part.removed) for part in header.parts] == [(3, ())]


def test_a_sweep_leaves_what_a_running_operation_wrote(tmp_path):
    store = ParquetStore(tmp_path)
    header = begun(store)
    running, dead = new_identity(), new_identity()
    for operation in (running, dead):
        other = ParquetStore(CrashingFolder(LocalFolder(tmp_path), 2, after=False))
        with pytest.raises(Crash):
            other.commit(replace(header, operation={"id": operation}), table({"g": 2}), expected=1)
    parts = tmp_path / "_parts"
    (parts / f"._{running[:24]}1234.parquet.5.tmp").write_text("half")
    (parts / f"._{dead[:24]}1234.parquet.5.tmp").write_text("half")
    (tmp_path / "_log" / ("_" + "0" * 32)).mkdir()
    assert len(list(parts.glob("_*"))) == 3
    assert store.sweep(lambda: [running]) == 3
    owners = {path.name.lstrip("._")[:24] for path in parts.iterdir()} - {header.parts[0].name[8:32]}
    assert owners == {running[:24]}
    assert store.sweep(tuple) == 2
    assert content(store) == {"f": 1}
