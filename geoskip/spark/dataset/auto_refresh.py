"""Indexes that are kept up: before a DataFrame is made, after queries, or in a thread beside a job."""

from __future__ import annotations

import threading
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

from py4j.protocol import Py4JError

from geoskip.errors import GeoskipError, InvalidSpecificationError
from geoskip.lifecycle.verbs import StalenessBound
from geoskip.spark.build.job import BuildReport
from geoskip.spark.dataset.create_refresh import of_the_latest, refresh, stale
from geoskip.spark.dataset.lifecycle_data import SparkData
from geoskip.spark.dataset.source import DatasetSource
from geoskip.spark.session import known

__all__ = ["QueryRefresher", "RefreshThread", "refresh_after_queries", "refreshed"]

_SHARE, _REST = 10, 1.0
"""A thread that refreshes after queries rests so many times as long as it took, and not less than so many seconds."""


def refreshed(place: DatasetSource, bound: StalenessBound) -> None:
    """Index what is new, if it is not too much."""
    state = place.state()
    missing = of_the_latest(place.store(state.source), lambda found: stale(found, SparkData(place, state)))
    if missing and bound.allows(len(missing), sum(size for _, size, _ in missing)):
        refresh(place)


class QueryRefresher:
    """A thread that indexes what is new whenever a query has asked for the dataset; begun by the first one.

    A query under way only sets a flag. However many there are, a listing is made in a tenth of the time at most.
    """

    def __init__(self, place: DatasetSource, bound: StalenessBound) -> None:
        self.looked = 0
        """How often it has looked for what is new."""
        self._place = replace(place)  # whose memory of the last listing is its own
        self._bound = bound
        self._asked = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def ask(self) -> None:
        """A query asks for the dataset."""
        self._asked.set()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="geoskip-after-queries", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self._asked.set()

    def _run(self) -> None:
        while self._asked.wait() and not self._ended.is_set() and is_running(self._place):
            self._asked.clear()
            began = time.monotonic()
            try:
                refreshed(self._place, self._bound)
            except Exception as error:
                with suppress(Warning):  # where warnings are errors
                    warn_of(self._place, error)
            self.looked += 1
            self._ended.wait(max(_REST, _SHARE * (time.monotonic() - began)))


_after: dict[str, QueryRefresher] = {}
"""By root."""


def refresh_after_queries(place: DatasetSource, bound: StalenessBound | None) -> QueryRefresher | None:
    """Let queries of this driver bring a dataset's metadata up to date for those after them; None ends that."""
    root = place.source().root
    old = _after.pop(root, None)
    if old is not None:
        old.end()
    if bound is None:
        known.tell(root, None)
        return None
    _after[root] = made = QueryRefresher(place, bound)
    known.tell(root, made.ask)
    return made


def is_running(place: DatasetSource) -> bool:
    """Is the session still there?"""
    context: Any = place.spark.sparkContext._jsc
    try:
        return context is not None and not context.sc().isStopped()
    except Py4JError:  # its driver is gone
        return False


def warn_of(place: DatasetSource, error: Exception) -> None:
    """Say that a refresh failed; queries read what is new."""
    told = error if isinstance(error, GeoskipError) else type(error).__name__
    warnings.warn(f"{place.name} was not refreshed: {told}", stacklevel=1)


class RefreshThread:
    """A thread that refreshes a dataset again and again; made by
    :meth:`geoskip.spark.dataset.handle.Dataset.keep_fresh`.
    """

    def __init__(self, place: DatasetSource, every: float) -> None:
        if not (isinstance(every, int | float) and every > 0):
            raise InvalidSpecificationError(f"keep_fresh(every=) takes seconds above 0, got {every!r}")
        self.last: BuildReport | None = None
        self._place = place
        self._every = every
        self._stop = threading.Event()
        self._turn = threading.Condition()
        self._turns = 0
        self._thread = threading.Thread(target=self._run, name="geoskip-keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it, after the refresh that is under way."""
        self._stop.set()
        self._thread.join()

    def wait(self, timeout: float | None = None) -> bool:
        """Until a refresh that began after this call has ended; False where that takes longer."""
        with self._turn:
            wanted = self._turns + 2
            return self._turn.wait_for(lambda: self._turns >= wanted or self._stop.is_set(), timeout)

    def __enter__(self) -> RefreshThread:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        while self._goes_on():
            try:
                self.last = refresh(self._place)
            except Exception as error:
                if not self._goes_on():
                    return
                warn_of(self._place, error)
            with self._turn:
                self._turns += 1
                self._turn.notify_all()
            self._stop.wait(self._every)

    def _goes_on(self) -> bool:
        return not self._stop.is_set() and is_running(self._place)
