"""The command ``geoskip``; needs the extra ``geoskip[cli]``.

``history`` and ``describe`` read a folder of metadata without Spark. ``mappings`` makes its table from the registry:
the arguments of a function are those of its declaration, else of its Python, PySpark or Sedona function.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from geoskip.errors import GeoskipError, MetadataError, NotIndexedError
from geoskip.registry import Function, Given, Registry, current
from geoskip.registry.fingerprint import qualified_name
from geoskip.registry.functions import Reference
from geoskip.report import count_of, unindexed_at_last

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


_INTRODUCTION = """# Functions that are mapped

Written by `python -m geoskip mappings > udf_mappings/README.md`, from the registry. A function is met under its name
and by its implementation: the one of the library named here, not another of that name. *Serves* names the rules, which
the module explains one by one. Indexes over a function's value, such as `ValueList("f(x)")`, serve every function,
mapped or not.
"""
_ARGUMENTS = {
    "charindex": "substr, str, [start]",
    "getarrayitem": "array, place",
    "integraldivide": "left, right",
    "timeadd": "start, interval",
    "timestampadd": "unit, quantity, timestamp",
    "timestampdiff": "unit, start, end",
}
"""Arguments of Spark's functions that PySpark lacks, or has under another name."""
_SEDONA = ("st_functions", "st_predicates", "st_constructors")


@dataclass
class _FunctionRow:
    """One function of a library."""

    shown: str
    makers: dict[str, None] = field(default_factory=dict)
    indexes: dict[str, None] = field(default_factory=dict)
    serves: dict[str, None] = field(default_factory=dict)


def table() -> str:
    """Table of the mappings that installed packages and this process have declared, by library."""
    from geoskip.registry.installed import load_mappings

    load_mappings()
    modules: dict[str, dict[str, _FunctionRow]] = {}
    for module, function, indexes, serves in _entries(current()):
        rows = modules.setdefault(module, {})
        row = rows.setdefault(function.name.lower(), _FunctionRow(_shown(function)))
        row.makers |= dict.fromkeys(_makers(function))
        row.indexes |= dict.fromkeys(indexes)
        row.serves |= {serves: None}
        if len(shown := _shown(function)) > len(row.shown):
            row.shown = shown
    _gather(modules)
    parts = [_INTRODUCTION]
    for module, rows in sorted(modules.items()):
        parts.append(f"## `{module}`\n\n{_title(module)}\n\n| function | of | indexes | serves |\n|---|---|---|---|")
        parts += ["\n".join(_line(row) for _, row in sorted(rows.items())) + "\n"]
    return "\n".join(parts).rstrip() + "\n"


def _gather(modules: dict[str, dict[str, _FunctionRow]]) -> None:
    """Move the entries of a function in other modules to the module that maps it to indexes."""
    mapped = [(rows, row, name) for rows in modules.values() for name, row in rows.items() if row.indexes]
    for module, rows in list(modules.items()):
        for name, row in list(rows.items()):
            places = [
                r for other, r, n in mapped if n == name and other is not rows and set(row.makers) & set(r.makers)
            ]
            if not row.indexes and places:
                places[0].serves |= row.serves
                del rows[name]
        if not rows:
            del modules[module]


def _entries(registry: Registry) -> Iterator[tuple[str, Function, list[str], str]]:
    """Module, function, indexes and purpose of each declaration."""
    for mapping in registry.mappings.values():
        together = " and " if mapping.together else ", "
        kinds = [together.join(kind.__name__ for kind in mapping.indexes)]
        for reference in mapping.functions:
            yield mapping.rule.__module__, _function(reference), kinds, mapping.rule.__name__.replace("_", " ").strip()
    for properties in registry.properties:
        kinds = ["MinMax"] if properties.monotone else ["MetricDist"] if properties.metric else []
        yield (
            properties.module,
            _function(properties.function),
            kinds,
            ", ".join(properties.declared()).replace("_", " "),
        )
    for denotation in registry.all_denotations():
        yield denotation.meaning.__module__, _function(denotation.function), ["GeoBox"], "seen through"
    for constant in registry.all_constants():
        yield constant.evaluate.__module__, _function(constant.function), [], "of constants"


def _function(reference: Reference) -> Function:
    """Function that a reference names, with its implementation."""
    if isinstance(reference, Given):
        return Function(reference.name, python=(qualified_name(reference.function),))
    return reference if isinstance(reference, Function) else Function(reference.name)


def _line(row: _FunctionRow) -> str:
    cells = (row.shown, ", ".join(row.makers), ", ".join(_single(row.indexes)), ", ".join(row.serves))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _single(names: dict[str, None]) -> list[str]:
    """Names in lists of names, once each."""
    return list(dict.fromkeys(name for several in names for name in several.split(", ")))


def _title(module: str) -> str:
    """First sentence of a module's docstring, or the name of its package."""
    text = " ".join((inspect.getdoc(import_module(module)) or "").partition("\n\n")[0].split())
    text = text or f"Functions of the package ``{module.partition('.')[0]}`` itself."
    return re.sub(r":\w+:`", "`", text.replace("``", "`")).rstrip(":")


def _makers(function: Function) -> Iterator[str]:
    """Libraries that a function belongs to."""
    for name in function.classes:
        yield "Sedona" if "sedona" in name else "Spark" if name.startswith("org.apache.spark.") else name
    for name in function.python:
        module = name.removesuffix(".vectorised").rpartition(".")[0]  # one row for both forms
        yield f"`{module.rpartition('.')[2]}`"


def _shown(function: Function) -> str:
    if not function.name[:1].isalpha():
        return f"`{function.name}`"
    return f"`{function.name}({function.arguments or _arguments(function)})`"


def _arguments(function: Function) -> str:
    """Arguments of a function's Python form, if it has one."""
    places = [f"sedona.spark.sql.{name}" for name in _SEDONA] if function.name.lower().startswith("st_") else []
    names = [(module, function.name) for module in places]
    names += [(module, attribute) for module, _, attribute in (name.rpartition(".") for name in function.python)]
    names += [("pyspark.sql.functions", function.name.lower())] if not names else []
    found = (_signature(module, name) for module, name in names if name)
    return next((text for text in found if text is not None), _ARGUMENTS.get(function.name.lower(), "…"))


def _signature(module: str, name: str) -> str | None:
    try:
        function: Any = getattr(import_module(module), name)
        parameters = inspect.signature(function).parameters.values()
    except (ImportError, AttributeError, TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL and p.name == "arguments" for p in parameters):
        return None
    shown = [("*" if p.kind is p.VAR_POSITIONAL else "") + p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    optional = [p.default is not p.empty for p in parameters if p.kind is not p.KEYWORD_ONLY]
    words = [f"[{word}]" if free else word for word, free in zip(shown, optional, strict=True)]
    return ", ".join(words)
