"""Output of commands: tables, JSON and progress."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from geoskip.cli.messages import in_commands
from geoskip.rendering import align_rows

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]
NUMBERS = (int, float)
_NOT_FOLDED = 19
"""Width of a column up to which its cells are never folded."""


def show(text: str) -> None:
    """Print a report of the Python interface, with Python calls rewritten as commands."""
    typer.echo("\n".join(map(in_commands, text.splitlines())))


def show_json(value: Mapping[str, Any]) -> None:
    """Print a JSON object; values without a JSON type are printed as text."""
    typer.echo(json.dumps(value, indent=2, default=str, ensure_ascii=False))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table: on a terminal with a header rule and wrapped cells, else with aligned columns."""
    texts = [tuple("" if value is None else str(value) for value in row) for row in rows]
    numeric = [
        any(isinstance(row[place], NUMBERS) for row in rows)
        and all(row[place] is None or isinstance(row[place], NUMBERS) for row in rows)
        for place in range(len(columns))
    ]
    if sys.stdout.isatty():
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
        for place, (name, is_number) in enumerate(zip(columns, numeric, strict=True)):
            widest = max((len(text[place]) for text in texts), default=0)
            table.add_column(
                name, justify="right" if is_number else "left", overflow="fold", no_wrap=widest <= _NOT_FOLDED
            )
        for text in texts:
            table.add_row(*map(Text, text))
        Console().print(table)
        return
    for line in align_rows([tuple(columns), *texts]):
        typer.echo(line)


def write_paths(paths: Sequence[str], *, null: bool) -> None:
    """Write paths as the file system's bytes, each terminated by a line break or NUL."""
    end = b"\0" if null else b"\n"
    sys.stdout.flush()
    output = sys.stdout.buffer
    for path in paths:
        output.write(os.fsencode(path) + end)
    output.flush()


def check_folder_of(file: Path) -> None:
    """Raise BadParameter if the folder of an output file does not exist."""
    if not file.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {file.parent}: name a file in one that is there")


@contextmanager
def show_activity(title: str) -> Iterator[None]:
    """Show an activity on a terminal's standard error, above the progress bars within it."""
    from geoskip.sources.progress import progress_display

    with progress_display(title, ""):
        yield
