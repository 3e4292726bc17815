"""Operations without an engine, in processes that are killed or race: what tests.lifecycle and test_crashes stand on.

The dataset is a folder of files that hold a number each, and its index the least number. A process is forked from a
warm one, so that a hundred crashes cost seconds. Nothing is flushed to disk in it: a killed process loses nothing that
the kernel has.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from geoskip.errors import ConflictError, GeoskipError, MetadataError, NotIndexedError
from geoskip.lifecycle import actions
from geoskip.lifecycle.data import Build, Found, Listing, Work, left_over
from geoskip.lifecycle.history import history
from geoskip.lifecycle.operation import latest, perform
from geoskip.lifecycle.verbs import Verb
from geoskip.metadata import FileRow, Header, IndexEntry
from geoskip.stores import LocalFolder, ParquetStore, Store, folders
from geoskip.stores.encryption import Encryption
from geoskip.stores.keys import KeyRing
from tests.storing import HEADER, append, entry

KEYS = Encryption(KeyRing({"base": bytes(32)}), "base")
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.crashes"])


class Numbers:
    """A folder of files ``<name>.txt`` with a number each, as :class:`geoskip.lifecycle.data.Data`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.builds: list[list[str]] = []
        self.while_building: Callable[[], Any] = lambda: None

    def header(self) -> Header:
        return replace(HEADER, root=f"file:{self.folder}", entries=())

    def listing(self) -> Listing:
        found = []
        with os.scandir(self.folder) as files:
            for file in files:
                with suppress(FileNotFoundError):
                    if file.name.endswith(".txt"):
                        found.append((file.name, file.stat().st_size, file.stat().st_mtime_ns // 1_000_000))
        found.sort()
        columns = list(zip(*found, strict=True)) or [(), (), ()]
        return Listing(pa.array(columns[0], pa.string()), *(pa.array(c, pa.int64()) for c in columns[1:]))

    def etags(self, paths: Sequence[str]) -> list[str | None]:
        return [self._etag(path) for path in paths]

    def _etag(self, path: str) -> str | None:
        try:
            found = os.stat(self.folder / path)
        except FileNotFoundError:
            return None
        return f"{found.st_ctime_ns}-{found.st_ino}"

    def sees(self, paths: pa.Array) -> pa.Array:
        return pa.array([True] * len(paths), pa.bool_())

    def changed(self, entries: Sequence[IndexEntry]) -> Mapping[str, str]:
        return {}

    def build(self, entries: Sequence[IndexEntry], paths: Sequence[str]) -> Found:
        self.builds.append(sorted(paths))
        rows = []
        for path in paths:
            etag = self._etag(path)
            with suppress(FileNotFoundError):
                at = (self.folder / path).stat()
                number = int((self.folder / path).read_text())
                summaries = {e.name: {"least": number, "words": []} for e in entries}
                if self._etag(path) == etag:
                    rows.append(FileRow(path, at.st_size, at.st_mtime_ns // 1_000_000, etag, 1, summaries))
        self.while_building()
        return Found(rows)


def write(folder: Path, name: str, number: int) -> None:
    """A file, at once and for good."""
    half = folder / f".{name}.half"
    half.write_text(str(number))
    half.replace(folder / f"{name}.txt")


def create(store: Store, data: Numbers, *columns: str) -> Header | None:
    return perform(store, Verb.CREATE, Work(Build(data), [entry(c) for c in columns or ("a",)]))


def refresh(store: Store, data: Numbers) -> Header | None:
    return perform(store, Verb.REFRESH, Work(Build(data)))


def rebuild(store: Store, data: Numbers) -> Header | None:
    snapshot = latest(store)
    if snapshot is None:
        raise NotIndexedError("nothing to rebuild")
    return perform(store, Verb.FULL, Work(Build(data), snapshot.header.entries, renew=True))


def note(store: Store, data: Numbers) -> Header | None:
    return perform(store, Verb.QUICK, Work(Build(data), quick=True))


VERBS: dict[str, Callable[[Store, Numbers], Any]] = {
    "create": lambda store, data: create(store, data, "c"),
    "refresh": refresh,
    "refresh full": rebuild,
    "refresh quick": note,
    "delete": lambda store, data: actions.delete(store, ["test_least(a)"]),
    "restore": lambda store, data: actions.restore(store, ["test_least(b)"]),
    "optimize": lambda store, data: actions.optimize(store),
    "vacuum": lambda store, data: actions.vacuum(store, timedelta(0)),
    "cancel": lambda store, data: actions.cancel(store, data.header()),
    "rotate keys": lambda store, data: actions.rotate(store),
}


def opened(place: Path, step: int = 0) -> ParquetStore:
    """The metadata beside a dataset, protected where a file says so; killed at a step."""
    folder = place / "_geoskip"
    keys = KEYS if (place / "protected").exists() else None
    return ParquetStore(KillingFolder(folder, step) if step else folder, encryption=keys)


# --- what must hold at any time ---------------------------------------------------------------------------------------


def check_reader(store: Store, data: Numbers) -> None:
    """The latest snapshot is whole, has no file twice, and says of files that are as they were what is in them."""
    snapshot = latest(store)
    if snapshot is None:
        return
    table = snapshot.files.table()
    paths = table["path"].to_pylist()
    assert len(set(paths)) == len(paths) == snapshot.header.files
    for kept in snapshot.header.stored:
        for path, etag, summary in zip(paths, table["etag"].to_pylist(), table[kept.name].to_pylist(), strict=True):
            if summary is not None and data._etag(path) == etag:
                try:
                    number = int((data.folder / path).read_text())
                except FileNotFoundError:
                    continue
                if data._etag(path) == etag:
                    assert summary["least"] == number, (path, kept.name)


def check_complete(store: Store, data: Numbers) -> None:
    """Every file that is there has one row, with a summary of each index that no verb of the test deletes."""
    snapshot = latest(store)
    assert snapshot is not None
    assert sorted(snapshot.files.column("path").to_pylist()) == data.listing().path.to_pylist()
    for used in snapshot.header.entries:
        if used.name != "test_least(b)":  # what was refreshed while it was deleted has no summary of it
            assert snapshot.files.column(used.name).null_count == 0, used.name


def check_own(store: Store, data: Numbers, prefix: str) -> None:
    """Nobody brings back what a writer's refresh has replaced: the rows of its files, which no other one writes to, are
    of what is there now.
    """
    snapshot = latest(store)
    assert snapshot is not None
    for path, etag in zip(*(snapshot.files.column(name).to_pylist() for name in ("path", "etag")), strict=True):
        assert not path.startswith(prefix) or data._etag(path) == etag, (path, snapshot.header.number)


def check_chain(store: Store) -> None:
    """No two operations have made one snapshot: the update of one of them would be lost."""
    made = [row.snapshot for row in history(store) if row.snapshot is not None]
    assert len(made) == len(set(made)), sorted(made)
    assert max(made) == store.latest()


def check_clean(store: ParquetStore) -> None:
    """After a vacuum nothing lies around that no snapshot names."""
    folder = Path(store.location)
    identity = store.identity()
    assert identity is not None
    (number,) = store.snapshots()
    named = {part.name for part in store.load(number).header.parts}
    assert {f"_parts/{name}" for name in os.listdir(folder / "_parts")} == named
    assert sorted(os.listdir(folder)) == ["_identity.json", "_log", "_operations", "_parts"]
    assert os.listdir(folder / "_log") == [f"_{identity}"]
    assert os.listdir(folder / "_log" / f"_{identity}") == [f"_{number:08d}.json"]
    assert not [name for name in os.listdir(folder / "_operations" / f"_{identity}") if name.endswith(".tmp")]


# --- processes --------------------------------------------------------------------------------------------------------


class SteppedFolder(LocalFolder):
    """A folder in which something befalls a writer at the k-th step: before a change, in its middle, or after it."""

    def __init__(self, path: Path, step: int) -> None:
        super().__init__(path)
        self.step = step

    def reached(self) -> None:
        self.step -= 1
        if self.step <= 0:
            self.befall()

    def befall(self) -> None:
        raise NotImplementedError

    def _made(self, target: Path, write: Any, place: Callable[[Path], None]) -> None:
        def placed(scratch: Path) -> None:
            self.reached()
            place(scratch)

        self.reached()
        super()._made(target, write, placed)
        self.reached()

    def delete(self, name: str) -> None:
        self.reached()
        super().delete(name)


class KillingFolder(SteppedFolder):
    """There the process is killed."""

    def befall(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class FullFolder(SteppedFolder):
    """From there on the disk is full; what was begun is left as it is."""

    def befall(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def unflushed(set_attribute: Callable[[Any, str, Any], None] = setattr) -> None:
    """Files are left to the kernel."""
    set_attribute(folders, "_flush", lambda descriptor: None)
    set_attribute(folders, "_flush_folder", lambda path: None)


def _warm() -> None:
    """Import what is imported late, once and for all processes."""
    with tempfile.TemporaryDirectory() as place:
        write(Path(place), "f", 1)
        (Path(place) / "protected").touch()
        store = opened(Path(place))
        create(store, Numbers(Path(place)))
        check_reader(store, Numbers(Path(place)))


if multiprocessing.current_process().name == "MainProcess" and __name__ != "__main__":
    _warm()


def _killed(verb: str, place: str, step: int) -> None:
    unflushed()
    tempfile.tempdir = str(Path(place).parent)  # what it cannot remove any more goes with the test's folder
    data = Numbers(Path(place))
    VERBS[verb](opened(Path(place), step), data)


def dies_at(verb: str, place: Path, step: int) -> bool:
    """Was the process that carries out the verb killed at this step, or did it end before?"""
    process = FORKS.Process(target=_killed, args=(verb, str(place), step))
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL), f"{verb} at step {step} ended with {process.exitcode}"
    return process.exitcode != 0


def deaths(verb: str, prepared: Callable[[int], Path]) -> Iterator[Path]:
    """The places in which a process was killed at the first step of a verb, at the second, and so on to the last.

    What was killed in one place is looked at while a process dies in the next.
    """

    def at(step: int) -> Path | None:
        place = prepared(step)
        return place if dies_at(verb, place, step) else None

    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(at, 1)
        for step in range(2, 100):
            place = ahead.result()
            if place is None:
                return
            ahead = pool.submit(at, step)
            yield place


def dies_after(verb: str, place: Path, seconds: float) -> None:
    """The process that carries out the verb is killed after so long, if it is not through by then."""
    process = FORKS.Process(target=_killed, args=(verb, str(place), 10**6))
    process.start()
    time.sleep(seconds)
    process.kill()
    process.join(60)


def _emptied(folder: str) -> None:
    store = ParquetStore(folder)
    snapshot = store.load(store.latest() or 0)
    store.commit(snapshot.header, snapshot.files.table().slice(0, 0), expected=snapshot.header.number)


def emptied_elsewhere(folder: Path) -> None:
    """Let another process commit a snapshot without files."""
    process = FORKS.Process(target=_emptied, args=(str(folder),))
    process.start()
    process.join(60)
    assert process.exitcode == 0


def _appending(folder: str, name: str, times: int, start: Any) -> None:
    start.wait(60)
    append(ParquetStore(folder), name, times)


def appended_elsewhere(folder: Path, names: str, times: int) -> list[int | None]:
    """Let a process a name add files to a store, all at once; returns how they ended."""
    start = FORKS.Barrier(len(names))
    writers = [FORKS.Process(target=_appending, args=(str(folder), name, times, start)) for name in names]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    return [writer.exitcode for writer in writers]


def _busy(place: str, seed: int, turns: int, seconds: float, failures: Any) -> None:
    """A writer: appends, drops and rewrites files of its own, and does whatever verbs there are."""
    unflushed()
    rng, data, store = random.Random(seed), Numbers(Path(place)), opened(Path(place))
    until = time.monotonic() + seconds
    verbs = ["refresh"] * 6 + ["refresh quick", "optimize", "vacuum", "delete", "restore", "create", "refresh full"]
    verbs += ["rotate keys"] if store.encryption else []
    done = 0
    while done < turns and time.monotonic() < until:
        done += 1
        name = f"w{seed}-{rng.randrange(8)}"
        if rng.random() < 0.3:
            (data.folder / f"{name}.txt").unlink(missing_ok=True)
        else:
            write(data.folder, name, rng.randrange(1000))
        verb = rng.choice(verbs)
        try:
            if verb == "vacuum":
                actions.vacuum(store, timedelta(seconds=rng.choice([0, 1])))
            elif VERBS[verb](store, data) is not None and verb == "refresh":
                with suppress(MetadataError):  # vacuumed while it was read
                    check_own(store, data, f"w{seed}-")
        except (ConflictError, NotIndexedError) as error:
            if isinstance(error, ConflictError) and " came after " not in str(error):
                failures.put(f"{verb}: {error}")
                return
            # else deleted already, or nothing to restore: another was faster
        except Exception as error:
            failures.put(f"{verb}: {type(error).__name__}: {error}")
            return


def _reading(place: str, stop: Any, failures: Any) -> None:
    data, store = Numbers(Path(place)), opened(Path(place))
    while not stop.is_set():
        try:
            check_reader(store, data)
        except GeoskipError:
            pass  # vacuumed while it was read, without any age: a query would read every file
        except Exception as error:
            failures.put(f"reader: {type(error).__name__}: {error}")
            return


def race(place: Path, *, writers: int, readers: int, turns: int, seconds: float, seed: int) -> list[str]:
    """What went wrong while so many processes worked on one dataset."""
    failures, stop = FORKS.Queue(), FORKS.Event()
    watching = [FORKS.Process(target=_reading, args=(str(place), stop, failures)) for _ in range(readers)]
    working = [
        FORKS.Process(target=_busy, args=(str(place), seed + number, turns, seconds, failures))
        for number in range(writers)
    ]
    for process in [*watching, *working]:
        process.start()
    for process in working:
        process.join(seconds + 60)
    stop.set()
    for process in watching:
        process.join(60)
    found = []
    while not failures.empty():
        found.append(failures.get())
    return found + [f"exit code {p.exitcode}" for p in [*watching, *working] if p.exitcode]


__all__ = [
    "VERBS",
    "ConflictError",
    "Numbers",
    "check_chain",
    "check_clean",
    "check_complete",
    "check_reader",
    "create",
    "deaths",
    "dies_at",
    "emptied_elsewhere",
    "left_over",
    "race",
    "refresh",
    "write",
]
