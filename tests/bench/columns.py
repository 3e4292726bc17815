"""Figure 7 of the paper: indexing 1, 2, 4, 8 and 16 columns together and apart, with Hybrid and with MinMax.

Together each file is opened once, apart once a column. What a further column adds is the slope between one column and
sixteen; MinMax is read from footers and stays nearly flat. All builds are made in turn, some times, and the least of
each counts: other work of the machine then burdens them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from geoskip import Hybrid, Index, MinMax
from tests.bench.build import at_most, building
from tests.bench.measure import console, interleaved, table
from tests.bench.sessions import logs

__all__ = ["run", "slope"]

COLUMNS = (
    "db_name", "account_name", "http_request", "user_agent", "session", "document", "method", "ip",
    "node", "region", "status", "bytes_in", "bytes_out", "micros", "time", "day",
)  # fmt: skip
COUNTS = (1, 2, 4, 8, 16)
TIMES = 3
MOST_A_COLUMN = 0.35
FLAT = 1.5
"""Sixteen columns of MinMax take at most so many times what one takes."""


def run() -> None:
    """Print the table."""
    folder = logs()
    shown = table(f"Figure 7: {len(list(folder.glob('*.parquet'))):,} files, seconds", "", *map(str, COUNTS))
    several = COUNTS[1:]
    with console.status("measuring columns"):
        found = interleaved(
            [
                *(_building(folder, Hybrid, [name]) for name in COLUMNS),
                *(_building(folder, Hybrid, COLUMNS[:count]) for count in several),
                *(_building(folder, MinMax, COLUMNS[:count]) for count in COUNTS),
            ],
            times=TIMES,
            warm=0,
            of=min,
        )
    apart, rest = found[: len(COLUMNS)], found[len(COLUMNS) :]
    together = {1: apart[0], **dict(zip(several, rest, strict=False))}
    flat = dict(zip(COUNTS, rest[len(several) :], strict=True))
    shown.add_row("Hybrid, apart", *(f"{sum(apart[:count]):.2f}" for count in COUNTS))
    shown.add_row("Hybrid, together", *(f"{together[count]:.2f}" for count in COUNTS))
    shown.add_row("MinMax, together", *(f"{flat[count]:.2f}" for count in COUNTS))
    console.print(shown)
    each = sum(apart) / len(apart)
    console.print(
        f"What a further column adds together ({slope(together):.2f} s) to what it takes apart ({each:.2f} s):",
        *at_most(slope(together) / each, MOST_A_COLUMN),
    )
    console.print("MinMax is flat, sixteen columns to one:", *at_most(flat[COUNTS[-1]] / flat[1], FLAT))


def slope(seconds: dict[int, float]) -> float:
    """What one column more takes, by least squares.

    >>> slope({1: 2.0, 3: 3.0, 5: 4.0})
    0.5
    """
    mean_count, mean = sum(seconds) / len(seconds), sum(seconds.values()) / len(seconds)
    across = sum((count - mean_count) * (value - mean) for count, value in seconds.items())
    return across / sum((count - mean_count) ** 2 for count in seconds)


def _building(folder: Path, kind: Callable[[str], Index], names: Sequence[str]) -> Callable[[int], Any]:
    return building(folder, [kind(name) for name in names])
