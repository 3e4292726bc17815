"""The verbs on 10,000 files: what a refresh costs for what has changed, and what it costs when nothing has.

Without an engine: the log and the store alone, and eight writers that commit to one store at a time. Through Spark: a
refresh of 1 % new files beside building everything anew, and a refresh of nothing beside the listing that every
refresh makes.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import geoskip
from geoskip import GeoBox, MinMax
from geoskip.lifecycle.transaction import Amend, CommitAttempt, perform
from geoskip.lifecycle.verbs import Verb
from geoskip.metadata import Header
from geoskip.spark.build.listing import listing
from geoskip.stores import MemoryStore, ParquetStore, Store
from tests.bench.measure import console, interleaved, judged, milliseconds, table
from tests.bench.sessions import readings, session
from tests.support.storing import HEADER
from tests.support.storing import table as rows

FILES = 10_000
NEW = FILES // 100
NOTHING = 0.1
"""Seconds that a refresh of nothing may add to the listing."""
LONGEST = 10.0
"""Seconds in which a writer among eight commits."""


def run() -> None:
    """Print the tables."""
    console.print(_stores())
    console.print(_writers())
    console.print(_refreshes())


def _stores() -> Any:
    shown = table(
        f"Stores, {FILES:,} files, milliseconds", "store", "commit all", "amend 1 %", "load cold, two columns"
    )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "_geoskip"
        for name, store, cold in (
            ("memory", memory := MemoryStore(), lambda: memory),
            ("parquet", ParquetStore(folder), lambda: ParquetStore(folder)),
        ):
            shown.add_row(name, *map(milliseconds, _timed(store, cold)))
    return shown


def _timed(store: Store, cold: Any) -> list[float]:
    whole = rows({f"f{number}": number for number in range(FILES)})
    added = [rows({f"g{turn}-{number}": 1 for number in range(NEW)}) for turn in range(20)]
    turns = itertools.count()

    def header() -> Header:
        number = store.latest()
        return store.load(number).header if number else HEADER

    def commit(_: int) -> None:
        store.commit(header(), whole, expected=store.latest())

    def amend(_: int) -> None:
        known = header()
        store.amend(known, pa.array([False] * known.files), added[next(turns)], expected=known.number)

    def load(_: int) -> None:
        opened = cold()
        files = opened.load(opened.latest()).files
        files.column("path")
        files.summary("test_least(a)", "least")

    return [interleaved([work], times=5)[0] for work in (commit, amend, load)]


def _writers() -> Any:
    """Eight writers, each of which commits several times; the first takes longer over each attempt."""
    shown = table("Eight writers on one folder, seconds", "an attempt takes", "all", "longest", "attempts", "target")
    for quick, slow in ((0.0, 0.0), (0.02, 0.02), (0.02, 0.3)):
        with tempfile.TemporaryDirectory() as place:
            total, seconds, attempts = _race(Path(place) / "_geoskip", quick, slow)
        verdict = judged(f"all commit, below {LONGEST:.0f} s", len(seconds) == 32 and max(seconds) < LONGEST)
        shown.add_row(f"{quick} (one {slow})", f"{total:.1f}", f"{max(seconds):.2f}", str(max(attempts)), verdict)
    return shown


def _race(folder: Path, quick: float, slow: float) -> tuple[float, list[float], list[int]]:
    """The seconds of all writers, and of each commit its seconds and attempts; failed ones are left out."""
    ParquetStore(folder).commit(HEADER, rows({"f": 1}), expected=None)
    seconds: list[float] = []
    attempts: list[int] = []
    together = threading.Barrier(8)

    def write(number: int) -> None:
        store = ParquetStore(folder)
        together.wait()
        for _ in range(4):
            tried: list[int] = []

            def attempt(turn: CommitAttempt, tried: list[int] = tried) -> Amend:
                tried.append(turn.number)
                time.sleep(quick if number else slow)
                assert turn.snapshot is not None
                return Amend.same_files(turn.snapshot)

            started = time.monotonic()
            perform(store, Verb.ROTATE, attempt)
            seconds.append(time.monotonic() - started)
            attempts.append(len(tried))

    started = time.monotonic()
    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    return time.monotonic() - started, seconds, attempts


def _refreshes() -> Any:
    folder = readings(FILES)
    shutil.rmtree(folder / "_geoskip", ignore_errors=True)
    handle = geoskip.dataset(session(), str(folder))
    handle.create_index(MinMax("temp"), GeoBox("lng", "lat"))
    originals = sorted(folder.glob("*.parquet"))[:NEW]
    frame = handle.to_df()
    added: list[Path] = []

    def grow(turn: int) -> None:
        """Other files in the place of those of the last turn."""
        for path in added:
            path.unlink(missing_ok=True)
        added[:] = [path.with_name(f"new-{turn}-{path.name}") for path in originals]
        for path, new in zip(originals, added, strict=True):
            shutil.copyfile(path, new)

    def grow_and_refresh(turn: int) -> None:
        grow(turn)
        handle.refresh_index()

    try:
        listed, nothing = interleaved([lambda _: listing(session(), frame), lambda _: handle.refresh_index()], times=5)
        grown, _ = interleaved([grow_and_refresh, lambda _: None], times=3)
        full, _ = interleaved([lambda _: handle.refresh_index("full"), lambda _: None], times=1, warm=0)
    finally:
        for path in added:
            path.unlink(missing_ok=True)
        shutil.rmtree(folder / "_geoskip", ignore_errors=True)
    shown = table(f"Refreshing {FILES:,} files, seconds", "", "seconds", "target")
    shown.add_row("the listing alone", f"{listed:.3f}", "")
    shown.add_row("nothing is new", f"{nothing:.3f}", judged("listing + 0.1 s", nothing <= listed + NOTHING))
    shown.add_row(f"{NEW} files come, {NEW} go", f"{grown:.3f}", judged("below a fifth of all", grown < full / 5))
    shown.add_row("everything anew", f"{full:.3f}", "")
    return shown
