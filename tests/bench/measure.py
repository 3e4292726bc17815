"""Timing, and tables of what was timed."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

__all__ = [
    "PLACE",
    "Timed",
    "bars",
    "console",
    "in_turn",
    "interleaved",
    "judged",
    "median_within",
    "milliseconds",
    "table",
]

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


Timed = tuple[float, float]
"""Seconds on the clock, and of processors."""


def in_turn(arms: Sequence[Callable[[], Timed]], *, rounds: int, warm: int) -> list[list[Timed]]:
    """What each arm took in each round, the less of two: A B C C B A, then B C A A C B, and so on.

    Whatever grows or shrinks steadily, a machine's load or a compiler's work, burdens all of them alike.
    """
    found: list[list[Timed]] = [[] for _ in arms]
    for number in range(warm + rounds):
        order = [(number + place) % len(arms) for place in range(len(arms))]
        taken: list[list[Timed]] = [[] for _ in arms]
        for which in (*order, *reversed(order)):
            gc.collect()
            taken[which].append(arms[which]())
        if number >= warm:
            for kept, both in zip(found, taken, strict=True):
                kept.append((min(clock for clock, _ in both), min(busy for _, busy in both)))
    return found


def median_within(ratios: Sequence[float], *, share: float = 0.95, draws: int = 4_000) -> tuple[float, float, float]:
    """The median of some ratios, and between what it lies with such certainty, by drawing from them anew.

    >>> median_within([0.98, 1.0, 1.0, 1.02] * 5)
    (1.0, 1.0, 1.0)
    >>> low, middle, high = (median_within([0.9, 0.95, 1.0, 1.05, 1.1])[place] for place in (1, 0, 2))
    >>> low < middle < high
    True
    """
    taken = np.asarray(ratios, dtype=np.float64)
    drawn = np.random.default_rng(0).choice(taken, (draws, len(taken)))
    low, high = np.quantile(np.median(drawn, axis=1), [(1 - share) / 2, (1 + share) / 2])
    return float(np.median(taken)), float(low), float(high)


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
