"""Completions of the shell: columns, kinds of indexes, and the indexes of a dataset."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import typer

from geoskip.cli.index_arguments import KINDS


def complete_kinds(incomplete: str) -> list[tuple[str, str]]:
    """Kinds of indexes, with an example each."""
    return [(f"{kind}(", f"{kind}({inside})") for kind, inside in KINDS.items() if f"{kind}(".startswith(incomplete)]


def complete_columns(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Columns of the dataset on the command line, with their types; also after a comma."""
    before, comma, begun = incomplete.rpartition(",")
    with suppress(Exception):  # without completions if it fails; nothing may be printed into the command line
        import pyarrow.parquet as pq

        schema = pq.read_schema(_first_file(_dataset(context)))
        names = [(field.name, str(field.type)) for field in schema]
        return [(f"{before}{comma}{name}", kind) for name, kind in names if name.lower().startswith(begun.lower())]
    return []


def complete_indexes(context: typer.Context, incomplete: str) -> list[str]:
    """Indexes of the dataset on the command line, including deleted ones."""
    with suppress(Exception):
        from geoskip.lifecycle.log import latest
        from geoskip.stores.parquet import ParquetStore

        snapshot = latest(ParquetStore(Path(_dataset(context)) / "_geoskip"))
        names = [entry.name for entry in snapshot.header.stored] if snapshot is not None else []
        return [name for name in names if name.startswith(incomplete)]
    return []


def _dataset(context: typer.Context) -> str:
    """The dataset on the command line; Click keeps it among the arguments before an incomplete option."""
    given: list[str | None] = [*(context.params.get("paths") or [context.params.get("path")]), *context.args]
    return next(path for path in given if path and os.path.exists(path))


def _first_file(path: str) -> str:
    """First Parquet file of a dataset."""
    if os.path.isfile(path):
        return path
    files = (
        os.path.join(folder, name)
        for folder, folders, names in os.walk(path)
        if not folders.sort()
        for name in sorted(names)
        if name.endswith(".parquet")
    )
    return next(files)
