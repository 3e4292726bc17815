"""The progress of whatever takes longer than two seconds: a bar in a terminal, a line in a notebook, lines in a log."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

__all__ = ["following"]

_PATIENCE = 2.0
_PACE = 10.0
"""Seconds between the lines of a log."""

Show = Callable[[int, int], None]
"""Takes the number of finished tasks, and of all."""


@contextmanager
def following(spark: SparkSession, title: str, tasks: int) -> Iterator[None]:
    """Show how far the Spark jobs of this block are, once they have taken two seconds."""
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, title, tasks, done), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join(timeout=2)


def _watch(spark: SparkSession, title: str, tasks: int, done: threading.Event) -> None:
    if done.wait(_PATIENCE):
        return
    tracker = spark.sparkContext.statusTracker()
    with _shown(title) as show:
        while not done.wait(0.2):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            finished = sum(stage.numCompletedTasks for stage in stages if stage)
            show(finished, sum(stage.numTasks for stage in stages if stage) or tasks)


@contextmanager
def _shown(title: str) -> Iterator[Show]:
    """What shows the progress where this program runs."""
    display = _notebook()
    if display is not None:
        handle = display({"text/plain": title}, raw=True, display_id=True)
        yield lambda finished, total: handle.update({"text/plain": _line(title, finished, total)}, raw=True)
        handle.update({"text/plain": ""}, raw=True)
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as progress:
            bar = progress.add_task(title, total=None)
            yield lambda finished, total: progress.update(bar, completed=finished, total=total)
    else:
        last = -_PACE

        def log(finished: int, total: int) -> None:
            nonlocal last
            if time.monotonic() - last >= _PACE:
                last = time.monotonic()
                print(f"geoskip: {_line(title, finished, total)}", file=sys.stderr, flush=True)

        yield log


def _notebook() -> Any:
    """IPython's ``display`` where a notebook's kernel runs this program, else None."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display


def _line(title: str, finished: int, total: int) -> str:
    return f"{title}: {finished:,} of {total:,} tasks"
