"""The command ``geoskip``; needs the extra ``geoskip[cli]``.

``history`` and ``describe`` read a folder of metadata without Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from geoskip.errors import GeoskipError, MetadataError, NotIndexedError
from geoskip.report import count_of, unindexed_at_last

__all__ = ["app"]

app = typer.Typer(help="Data skipping for Apache Spark.", no_args_is_help=True, add_completion=False)

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")

Folder = Annotated[Path, typer.Argument(help="A dataset, or the folder of its metadata.")]
Keys = Annotated[Path | None, typer.Option(help="The key ring of protected metadata, a file.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        from geoskip import __version__

        typer.echo(f"geoskip {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Data skipping for Apache Spark."""


@app.command()
def mappings() -> None:
    """Print the table of all mapped functions, as Markdown."""
    from geoskip.spark.mapping_table import table

    typer.echo(table(), nl=False)


@app.command()
def history(
    folder: Folder,
    keys: Keys = None,
    entries: Annotated[bool, typer.Option("--entries", help="The log itself, a JSON object an entry.")] = False,
) -> None:
    """Print the operations on the indexes of a dataset: who, when, on how many files, with what result."""
    from geoskip.lifecycle.log import history as rows_of

    with _exit_on_error():
        store = _store(folder, keys)
        operations = rows_of(store)
        numbers = store.operations() if entries else ()
    if entries:
        damaged = []
        for number in numbers:
            try:
                typer.echo(json.dumps(store.operation(number), indent=2))
            except MetadataError as error:
                damaged.append(str(error))
        for why in damaged:
            typer.echo(f"geoskip: {why}", err=True)
        raise typer.Exit(1 if damaged else 0)
    columns = ("began (UTC)", "verb", "state", "seconds", "who", "snapshot", "read", "added", "removed", "kept", "told")
    rows = [
        (
            row.began[:19].replace("T", " "), row.verb, row.state, row.seconds, row.who, row.snapshot, row.files_read,
            row.files_added, row.files_removed, row.files_kept, "; ".join(filter(None, (row.parameters, row.message))),
        )
        for row in operations
    ]  # fmt: skip
    _show(columns, rows)


@app.command()
def describe(folder: Folder, keys: Keys = None) -> None:
    """Print the indexes of a dataset's latest snapshot.

    ``dataset.describe()`` in a Spark session also shows whether files have changed since.
    """
    from geoskip.lifecycle.log import latest

    with _exit_on_error():
        store = _store(folder, keys)
        snapshot = latest(store)
        if snapshot is None:
            raise NotIndexedError(f"there is no snapshot in {store.location} yet")
        covered = {
            e.name: len(snapshot.files) - snapshot.files.column(e.name).null_count for e in snapshot.header.stored
        }
    header, sizes = snapshot.header, store.size()
    typer.echo(
        f"snapshot {header.number} of {header.created[:19].replace('T', ' ')} (UTC), {count_of(header.files, 'file')}"
    )
    typer.echo(f"of {header.root}")
    rows = []
    for entry in header.stored:
        built = header.built.get(entry.name, {})
        state = "in use" if entry in header.entries else "deleted"
        when = str(built.get("when", ""))[:19].replace("T", " ")
        rows.append((entry.name, state, covered[entry.name], sizes.get(entry.name, 0), when, built.get("reader", "")))
    _show(("index", "state", "files", "bytes", "built (UTC)", "reader"), rows)
    for unread in (*header.unread, *header.unread_deleted):
        typer.echo(str(unread.get("why", f"{unread.get('name')} is of a kind that is unknown here")))
    if header.pending:
        typer.echo(unindexed_at_last(header.pending))


def _store(folder: Path, keys: Path | None) -> Any:
    from geoskip.stores import ParquetStore
    from geoskip.stores.log_files import local_path

    if not folder.exists() and _URI.match(str(folder)):
        if (path := local_path(str(folder))) is None:
            raise NotIndexedError(
                f"{folder} is no local folder, and this command reads no other; in a session "
                "geoskip.dataset(spark, ...).history() and .describe() tell the same"
            )
        folder = Path(path)
    place = folder / "_geoskip" if (folder / "_geoskip").is_dir() else folder
    if not (place / "_identity.json").is_file():
        raise NotIndexedError(f"{folder} holds no metadata: neither _geoskip nor _identity.json is in it")
    if keys is None:
        return ParquetStore(place)
    from geoskip.stores.encryption import Encryption
    from geoskip.stores.keyring import KeyRing

    return ParquetStore(place, encryption=Encryption(KeyRing.from_file(keys)))


@contextmanager
def _exit_on_error() -> Iterator[None]:
    """Print an error of this block in one line, and exit with 1."""
    try:
        yield
    except GeoskipError as error:
        typer.echo(f"geoskip: {error}", err=True)
        raise typer.Exit(1) from None


def _show(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """Print a table with aligned columns."""
    texts = [columns, *(tuple("" if value is None else str(value) for value in row) for row in rows)]
    widths = [max(len(text[place]) for text in texts) for place in range(len(columns))]
    for text in texts:
        typer.echo("  ".join(value.ljust(width) for value, width in zip(text, widths, strict=True)).rstrip())
