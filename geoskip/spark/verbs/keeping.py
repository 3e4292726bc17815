"""Indexes that are kept up: before a DataFrame is made, or in a thread beside a job."""

from __future__ import annotations

import threading
import warnings
from types import TracebackType
from typing import Any

from geoskip.errors import GeoskipError, InvalidSpecificationError
from geoskip.lifecycle.amounts import Bound
from geoskip.lifecycle.operation import latest
from geoskip.spark.build import BuildReport
from geoskip.spark.data import SparkData
from geoskip.spark.place import Place
from geoskip.spark.verbs.building import refresh, stale

__all__ = ["Keeper", "refreshed"]


def refreshed(place: Place, bound: Bound) -> None:
    """Index what is new, if it is not too much."""
    state = place.state()
    snapshot = latest(place.store(state.source))
    if snapshot is None or not snapshot.header.entries:
        return
    missing = stale(snapshot, SparkData(place, state))
    if missing and bound.allows(len(missing), sum(size for _, size, _ in missing)):
        refresh(place)


class Keeper:
    """A thread that refreshes a dataset again and again; made by :meth:`geoskip.spark.dataset.Dataset.keep_fresh`."""

    def __init__(self, place: Place, every: float) -> None:
        if not every > 0:
            raise InvalidSpecificationError(f"keep_fresh(every=) takes seconds above 0, got {every}")
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

    def __enter__(self) -> Keeper:
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
                told = error if isinstance(error, GeoskipError) else type(error).__name__
                warnings.warn(f"{self._place.name} was not refreshed: {told}", stacklevel=1)
            with self._turn:
                self._turns += 1
                self._turn.notify_all()
            self._stop.wait(self._every)

    def _goes_on(self) -> bool:
        """Was it not stopped, and is the session still there?"""
        context: Any = self._place.spark.sparkContext._jsc
        return not self._stop.is_set() and context is not None and not context.sc().isStopped()
