"""Automatic refreshes: before a DataFrame is created, after queries, or periodically in a thread."""

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
from geoskip.lifecycle.refresh import files_without_metadata
from geoskip.lifecycle.verbs import StalenessBound
from geoskip.sources.build_verbs import BuildReport, with_latest
from geoskip.spark.dataset.create_refresh import refresh
from geoskip.spark.dataset.source import DatasetSource, SparkData
from geoskip.spark.session import known

_SHARE, _REST = 10, 1.0
"""Pause after each refresh by queries, as a multiple of its duration, and the minimum in seconds."""


def refresh_within(source: DatasetSource, bound: StalenessBound) -> None:
    """Index new files, if they do not exceed a bound."""
    data = SparkData(source)
    missing = with_latest(data.store, lambda found: files_without_metadata(found, data))
    if missing and bound.allows(len(missing), sum(size for _, size, _ in missing)):
        refresh(source)


class QueryRefresher:
    """A thread that indexes new files after queries of the dataset; the first query starts it.

    A query only sets a flag. With any number of queries, listings take at most a tenth of the time.
    """

    def __init__(self, source: DatasetSource, bound: StalenessBound) -> None:
        self.passes = 0
        """Number of times that it has listed the files."""
        self._source = replace(source)  # with its own cached listing
        self._bound = bound
        self._asked = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def ask(self) -> None:
        """Record that a query reads the dataset."""
        self._asked.set()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="geoskip-after-queries", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """Stop the thread."""
        self._ended.set()
        self._asked.set()

    def _run(self) -> None:
        while self._asked.wait() and not self._ended.is_set() and is_running(self._source):
            self._asked.clear()
            began = time.monotonic()
            try:
                refresh_within(self._source, self._bound)
            except Exception as error:
                with suppress(Warning):  # if warnings are turned into errors
                    warn_of(self._source, error)
            self.passes += 1
            self._ended.wait(max(_REST, _SHARE * (time.monotonic() - began)))


_after: dict[str, QueryRefresher] = {}
"""The running refreshers by root."""


def refresh_after_queries(source: DatasetSource, bound: StalenessBound | None) -> QueryRefresher | None:
    """Refresh a dataset's metadata after queries of this driver, for later queries; None stops this."""
    root = source.relation().root
    old = _after.pop(root, None)
    if old is not None:
        old.end()
    if bound is None:
        known.notify(root, None)
        return None
    _after[root] = refresher = QueryRefresher(source, bound)
    known.notify(root, refresher.ask)
    return refresher


def is_running(source: DatasetSource) -> bool:
    """Test whether the session is running."""
    context: Any = source.spark.sparkContext._jsc
    try:
        return context is not None and not context.sc().isStopped()
    except Py4JError:  # its driver is gone
        return False


def warn_of(source: DatasetSource, error: Exception) -> None:
    """Warn that a refresh failed; queries read new files."""
    reason = error if isinstance(error, GeoskipError) else type(error).__name__
    warnings.warn(f"{source.name} was not refreshed: {reason}", stacklevel=1)


class RefreshThread:
    """A thread that refreshes a dataset periodically, created by ``Dataset.keep_fresh``."""

    def __init__(self, source: DatasetSource, every: float) -> None:
        if not (isinstance(every, int | float) and every > 0):
            raise InvalidSpecificationError(f"keep_fresh(every=) takes seconds above 0, got {every!r}")
        self.last: BuildReport | None = None
        self._source = source
        self._every = every
        self._stop = threading.Event()
        self._ended_refresh = threading.Condition()
        self._refreshes = 0
        self._thread = threading.Thread(target=self._run, name="geoskip-keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, after the running refresh if any."""
        self._stop.set()
        self._thread.join()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until a refresh that began after this call has ended; False after the timeout."""
        with self._ended_refresh:
            wanted = self._refreshes + 2
            return self._ended_refresh.wait_for(lambda: self._refreshes >= wanted or self._stop.is_set(), timeout)

    def __enter__(self) -> RefreshThread:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        while self._goes_on():
            try:
                self.last = refresh(self._source)
            except Exception as error:
                if not self._goes_on():
                    return
                warn_of(self._source, error)
            with self._ended_refresh:
                self._refreshes += 1
                self._ended_refresh.notify_all()
            self._stop.wait(self._every)

    def _goes_on(self) -> bool:
        return not self._stop.is_set() and is_running(self._source)
