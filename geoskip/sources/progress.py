"""Progress of long operations: a line in a notebook, a bar in a terminal, or lines in a log."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

PATIENCE = 2.0
"""Seconds of work before its progress is shown."""
_PACE = 10.0
"""Seconds between the lines of a log."""

Show = Callable[[int, int | None], None]
"""Takes the number of finished parts and of all parts, or None if that is unknown."""


@contextmanager
def progress_display(title: str, parts: str) -> Iterator[Show]:
    """Display the progress of an operation; ``parts`` is the noun for the parts that it counts."""
    display = _notebook()
    if display is not None:
        handle = display({"text/plain": title}, raw=True, display_id=True)
        try:
            yield lambda finished, total: handle.update({"text/plain": _line(title, finished, total, parts)}, raw=True)
        finally:
            handle.update({"text/plain": ""}, raw=True)
    elif sys.stderr.isatty() and find_spec("rich") is not None:
        with _bars.bar(title, parts) as show:
            yield show
    else:
        last = -_PACE

        def log(finished: int, total: int | None) -> None:
            nonlocal last
            if time.monotonic() - last >= _PACE:
                last = time.monotonic()
                print(f"geoskip: {_line(title, finished, total, parts)}", file=sys.stderr, flush=True)

        yield log


@contextmanager
def delayed_progress(title: str, parts: str, total: int) -> Iterator[Callable[[int], None]]:
    """Report the number of finished parts to the yielded function; they are shown after two seconds."""
    since = time.monotonic()
    with ExitStack() as stack:
        show: Show | None = None

        def advance(finished: int) -> None:
            nonlocal show
            if show is None and time.monotonic() - since > PATIENCE:
                show = stack.enter_context(progress_display(title, parts))
            if show is not None:
                show(finished, total)

        yield advance


class _Bars:
    """Bars of a terminal, in one live display for all concurrent operations, in any threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.display: Any = None
        self.bars = 0

    @contextmanager
    def bar(self, title: str, parts: str) -> Iterator[Show]:
        """Add a bar, and remove it at the end; removing the last bar ends the display."""
        with self.lock:
            if self.display is None:
                self.display = _display()
                self.display.start()
            self.bars += 1
            display = self.display
        bar = display.add_task(title, total=None, count="")

        def show(finished: int, total: int | None) -> None:
            count = "" if total is None else _count(finished, total, parts)
            display.update(bar, completed=finished, total=total, count=count)

        try:
            yield show
        finally:
            with self.lock:
                display.remove_task(bar)
                self.bars -= 1
                if not self.bars:
                    display.stop()
                    self.display = None


_bars = _Bars()


def _display() -> Any:
    """Live display of bars, which is erased at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
    )
    # rich would otherwise redirect printed output to standard error
    redirected = sys.stdout.isatty()
    return Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=redirected)


def _notebook() -> Any:
    """IPython's ``display`` in a notebook's kernel, else None."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display


def _line(title: str, finished: int, total: int | None, parts: str) -> str:
    return title if total is None else f"{title}: {_count(finished, total, parts)}"


def _count(finished: int, total: int, parts: str) -> str:
    return f"{finished:,} of {total:,} {parts}"
