"""Operations in processes that are killed or race, on the dataset of tests.support.numbered.

Processes are forked from one with all imports, so that a hundred crashes take seconds. They flush nothing to disk: a
killed process loses no data that it has passed to the kernel.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from geoskip.errors import ConflictError, GeoskipError, MetadataError, NotIndexedError
from geoskip.lifecycle import actions
from geoskip.stores import LocalFolder, ParquetStore, log_files
from geoskip.stores.encryption import Encryption
from geoskip.stores.keyring import KeyRing
from tests.support.numbered import VERBS, Numbers, check_own, check_reader, create, write
from tests.support.storing import append

KEYS = Encryption(KeyRing({"base": bytes(32)}), "base")
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.support.crashes"])


def opened(place: Path, step: int = 0) -> ParquetStore:
    """Open the metadata beside a dataset, encrypted if ``protected`` exists; a step kills the process."""
    folder = place / "_geoskip"
    keys = KEYS if (place / "protected").exists() else None
    return ParquetStore(KillingFolder(folder, step) if step else folder, encryption=keys)


class SteppedFolder(LocalFolder):
    """A folder in which an event befalls a writer at a step: before, during or after a change."""

    def __init__(self, path: Path, step: int) -> None:
        super().__init__(path)
        self.step = step

    def reached(self) -> None:
        self.step -= 1
        if self.step <= 0:
            self.befall()

    def befall(self) -> None:
        raise NotImplementedError

    def _write_and_place(self, target: Path, write: Any, place: Callable[[Path], None]) -> None:
        def placed(scratch: Path) -> None:
            self.reached()
            place(scratch)

        self.reached()
        super()._write_and_place(target, write, placed)
        self.reached()

    def delete(self, name: str) -> None:
        self.reached()
        super().delete(name)


class KillingFolder(SteppedFolder):
    """A folder whose event kills the process."""

    def befall(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class FullFolder(SteppedFolder):
    """A folder whose event fills the disk; unfinished files remain."""

    def befall(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def unflushed(set_attribute: Callable[[Any, str, Any], None] = setattr) -> None:
    """Disable flushing of files to disk."""
    set_attribute(log_files, "_flush", lambda descriptor: None)
    set_attribute(log_files, "_flush_folder", lambda path: None)


def _warm() -> None:
    """Run all lazy imports once, before processes are forked."""
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
    tempfile.tempdir = str(Path(place).parent)  # the test's folder contains files that a killed process leaves
    data = Numbers(Path(place))
    VERBS[verb](opened(Path(place), step), data)


def dies_at(verb: str, place: Path, step: int) -> bool:
    """Run a verb in a process; return True if it was killed at this step, False if it ended before."""
    process = FORKS.Process(target=_killed, args=(verb, str(place), step))
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL), f"{verb} at step {step} ended with {process.exitcode}"
    return process.exitcode != 0


def deaths(verb: str, prepared: Callable[[int], Path]) -> Iterator[Path]:
    """Yield the folders in which a process was killed at each step of a verb, from the first to the last.

    While the caller checks one folder, the next process runs.
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
    """Run a verb in a process, and kill it after some seconds unless it has ended."""
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
    """Add files to a store in one process for each name, all at once; return their exit codes."""
    start = FORKS.Barrier(len(names))
    writers = [FORKS.Process(target=_appending, args=(str(folder), name, times, start)) for name in names]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    return [writer.exitcode for writer in writers]


def _busy(place: str, seed: int, turns: int, seconds: float, failures: Any) -> None:
    """A writer that appends, drops and rewrites files of its own, and runs random verbs."""
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
            # otherwise another writer was faster: nothing is left to delete or restore
        except Exception as error:
            failures.put(f"{verb}: {type(error).__name__}: {error}")
            return


def _reading(place: str, stop: Any, failures: Any) -> None:
    data, store = Numbers(Path(place)), opened(Path(place))
    while not stop.is_set():
        try:
            check_reader(store, data)
        except GeoskipError:
            pass  # vacuumed with age 0 while it was read: a query would read every file
        except Exception as error:
            failures.put(f"reader: {type(error).__name__}: {error}")
            return


def race(place: Path, *, writers: int, readers: int, turns: int, seconds: float, seed: int) -> list[str]:
    """Run several processes on one dataset, and return their errors."""
    failures, stop = FORKS.Queue(), FORKS.Event()
    watching = [FORKS.Process(target=_reading, args=(str(place), stop, failures)) for _ in range(readers)]
    working = [
        FORKS.Process(target=_busy, args=(str(place), seed + number, turns, seconds, failures))
        for number in range(writers)
    ]
    for process in [*watching, *working]:
        process.start()
    for process in working:
        process.join(seconds + 120)
    stop.set()
    for process in watching:
        process.join(60)
    found = []
    while not failures.empty():
        found.append(failures.get())
    return found + [f"exit code {p.exitcode}" for p in [*watching, *working] if p.exitcode != 0]
