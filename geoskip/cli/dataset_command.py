"""Commands on a dataset, given by a path or ``--table``.

A table replaces the path, as ``table:db.weather``, so that the following arguments (a condition, columns, indexes) are
parsed in the same way, and commands need no code for tables.
"""

from __future__ import annotations

import os
import shlex
from typing import Any

import typer
from typer.core import TyperCommand

from geoskip.cli.messages import TABLE

__all__ = ["DatasetCommand", "as_argument", "table_of"]

_OPTION = "--table"
_TABLE = "table:"
_PATHS = ("path", "paths")


def table_of(path: str) -> str | None:
    """Name of the table that takes the place of a path; None for a path.

    >>> table_of("table:db.weather"), table_of("./table:db.weather")
    ('db.weather', None)
    """
    return path.removeprefix(_TABLE) if path.startswith(_TABLE) else None


def as_argument(path: str) -> str:
    """Format a dataset as an argument of a command line.

    >>> as_argument("table:db.weather"), as_argument("data/weather"), as_argument("my data")
    ('--table db.weather', 'data/weather', "'my data'")
    """
    table = table_of(path)
    return shlex.quote(path) if table is None else f"{_OPTION} {shlex.quote(table)}"


class DatasetCommand(TyperCommand):
    """A command with a dataset as its first argument, or with ``--table`` in its place."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line; raises BadParameter unless it names exactly one path or table."""
        table = _table_option(args) if any(each.name in _PATHS for each in self.params) else None
        TABLE.set(table)
        try:
            rest = super().parse_args(ctx, args if table is None else [_TABLE + table, *args])
        except Exception as error:  # Click's error, which some versions of typer define themselves
            if table is not None and "unexpected extra argument" in str(error):
                raise _both(table, "a path", ctx) from None
            if table is None and getattr(getattr(error, "param", None), "name", None) in _PATHS:
                text = "Missing argument 'PATH': name a dataset by it, or by --table NAME"
                raise typer.BadParameter(text, ctx) from None
            if "unexpected extra argument" in str(error) and any(each.name == "where" for each in self.params):
                raise typer.BadParameter(
                    f'{error}: write the whole condition in quotes, as in "temp > 30"', ctx
                ) from None
            if getattr(error, "ctx", ctx) is None:  # the context of the command
                error.ctx = ctx  # type: ignore[attr-defined]
            raise
        if table is not None and not ctx.resilient_parsing and (path := _path_in(ctx.params)) is not None:
            raise _both(table, path, ctx)
        return rest


def _table_option(args: list[str]) -> str | None:
    """The value of ``--table`` on a command line, or None."""
    for number, word in enumerate(args):
        if word == "--":
            break
        if word == _OPTION and number + 1 < len(args):
            return args[number + 1]
        if word.startswith(f"{_OPTION}="):
            return word.partition("=")[2]
    return None


def _path_in(params: dict[str, Any]) -> str | None:
    """A path given in addition to a table: a second path, or another argument that is an existing path."""
    paths: list[str] | None = params.get("paths")
    if paths is not None and len(paths) > 1:
        return paths[1]
    for name in ("where", "columns", "which", "queries"):
        given = params.get(name)
        first = given[0] if isinstance(given, list) and given else given
        if isinstance(first, str) and first and os.path.exists(first):
            return first
    return None


def _both(table: str, path: str, ctx: Any) -> typer.BadParameter:
    return typer.BadParameter(f"{path} and {_OPTION} {table} are given: name the dataset by one of them", ctx)
