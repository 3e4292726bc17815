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
    """Columns of the dataset on the line, with their types, after a comma too."""
    before, comma, begun = incomplete.rpartition(",")
    with suppress(Exception):  # nothing is completed, and nothing is printed into the line
        import pyarrow.parquet as pq

        schema = pq.read_schema(_first_file(_dataset(context)))
        names = [(field.name, str(field.type)) for field in schema]
        return [(f"{before}{comma}{name}", kind) for name, kind in names if name.lower().startswith(begun.lower())]
    return []


def complete_indexes(context: typer.Context, incomplete: str) -> list[str]:
    """Indexes of the dataset on the line, those that are deleted included."""
    with suppress(Exception):
        from geoskip.lifecycle.log import latest
        from geoskip.stores.parquet import ParquetStore

        snapshot = latest(ParquetStore(Path(_dataset(context)) / "_geoskip"))
        names = [entry.name for entry in snapshot.header.stored] if snapshot is not None else []
        return [name for name in names if name.startswith(incomplete)]
    return []


def _dataset(context: typer.Context) -> str:
    """The dataset on the line; before an option that has no value yet Click keeps it among the arguments."""
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
