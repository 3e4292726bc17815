"""A progress bar on whatever takes longer than two seconds."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

__all__ = ["following"]

_PATIENCE = 2.0


@contextmanager
def following(spark: SparkSession, title: str, tasks: int) -> Iterator[None]:
    """Show how far the Spark jobs of this block are, once they have taken two seconds."""
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, title, tasks, done), daemon=True)
    if sys.stderr.isatty():
        watcher.start()
    try:
        yield
    finally:
        done.set()
        if watcher.is_alive():
            watcher.join(timeout=2)


def _watch(spark: SparkSession, title: str, tasks: int, done: threading.Event) -> None:
    if done.wait(_PATIENCE):
        return
    from rich.console import Console
    from rich.progress import Progress

    tracker = spark.sparkContext.statusTracker()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(title, total=tasks)
        while not done.wait(0.2):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            finished = sum(stage.numCompletedTasks for stage in stages if stage)
            total = sum(stage.numTasks for stage in stages if stage)
            progress.update(bar, completed=finished, total=total or tasks)
