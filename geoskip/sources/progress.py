"""Display of the progress of long work: a notebook's line, a terminal's bar, or lines of a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

_PACE = 10.0
"""Seconds between the lines of a log."""

Show = Callable[[int, int], None]
"""Takes the number of finished parts, and of all parts."""


@contextmanager
def progress_display(title: str, parts: str) -> Iterator[Show]:
    """Display of the progress of some work, whose parts are called so in lines."""
    display = _notebook()
    if display is not None:
        handle = display({"text/plain": title}, raw=True, display_id=True)
        yield lambda finished, total: handle.update({"text/plain": _line(title, finished, total, parts)}, raw=True)
        handle.update({"text/plain": ""}, raw=True)
    elif sys.stderr.isatty() and find_spec("rich"):
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
                print(f"geoskip: {_line(title, finished, total, parts)}", file=sys.stderr, flush=True)

        yield log


def _notebook() -> Any:
    """IPython's ``display`` in a notebook's kernel, else None."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display


def _line(title: str, finished: int, total: int, parts: str) -> str:
    return f"{title}: {finished:,} of {total:,} {parts}"
