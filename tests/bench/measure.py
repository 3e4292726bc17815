"""Timing, and tables of what was timed."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

__all__ = ["PLACE", "bars", "console", "interleaved", "judged", "milliseconds", "paired", "table"]

console = Console(highlight=False) if sys.stdout.isatty() else Console(width=130, highlight=False)
PLACE = Path(__file__).resolve().parents[2] / ".demo"
"""Where inputs are written; git ignores it."""

Run = Callable[[int], Any]


def interleaved(
    runs: Sequence[Run], *, times: int, warm: int = 1, of: Callable[[list[float]], float] = statistics.median
) -> list[float]:
    """The median seconds of each run (or another statistic of them), taken in turn; each hears the round's number.

    The collector of garbage rests meanwhile: what it does is nobody's in particular.
    """
    seconds: list[list[float]] = [[] for _ in runs]
    gc.collect()
    gc.disable()
    try:
        for number in range(warm + times):
            for run, found in zip(runs, seconds, strict=True):
                started = time.perf_counter()
                run(number)
                if number >= warm:
                    found.append(time.perf_counter() - started)
    finally:
        gc.enable()
    return [of(found) for found in seconds]


def paired(first: Run, second: Run, *, times: int, warm: int = 1) -> list[tuple[float, float]]:
    """The seconds of two runs in each round; who begins alternates, so that neither always follows the other."""
    found: list[tuple[float, float]] = []
    for number in range(warm + times):
        order = (0, 1) if number % 2 else (1, 0)
        seconds = [0.0, 0.0]
        for which in order:
            gc.collect()
            started = time.perf_counter()
            (first, second)[which](number)
            seconds[which] = time.perf_counter() - started
        if number >= warm:
            found.append((seconds[0], seconds[1]))
    return found


def judged(shown: str, met: bool) -> str:
    """What was measured, and in words and colour whether its target is met."""
    return f"[green]{shown} met[/]" if met else f"[red]{shown} NOT MET[/]"


def milliseconds(seconds: float) -> str:
    """Milliseconds with three significant digits.

    >>> milliseconds(0.0000123), milliseconds(0.0456), milliseconds(1.5)
    ('0.0123', '45.6', '1,500')
    """
    value = 1000 * seconds
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.3g}".rstrip(".")


def table(title: str, *heads: str) -> Table:
    """A table whose first column is words and whose others are numbers."""
    found = Table(title=f"\n{title}", title_justify="left", header_style="bold")
    for number, head in enumerate(heads):
        found.add_column(head, justify="left" if number == 0 else "right")
    return found


def bars() -> Progress:
    """A progress bar that goes away when it is done."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=console, transient=True
    )
