"""The command ``doctor``: checks of the environment and a dataset, with remedies, one line each."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from geoskip.cli.application import FAULT, command, sentence
from geoskip.cli.datasets import MetadataOptions, SparkOptions, is_local, store_of
from geoskip.cli.messages import in_commands
from geoskip.cli.output import Json, show_json
from geoskip.errors import NotIndexedError

_PYTHON = (3, 11)
_EXTRAS = {
    "sqlglot": ("sql", "conditions in SQL without Spark: explain, files, report"),
    "sedona": ("sedona", "Sedona's functions; without it the ST_ functions are shapely's"),
    "matplotlib": ("plot", "maps and pictures of layouts"),
    "cryptography": ("encryption", "protected metadata"),
    "deltalake": ("delta", "tables of Delta without Spark"),
    "pyiceberg": ("iceberg", "tables of Iceberg without Spark"),
    "duckdb": ("duckdb", "geoskip.duckdb"),
    "polars": ("polars", "geoskip.scan_polars"),
    "geopandas": ("geopandas", "geoskip.read_geoparquet"),
    "opensearchpy": ("elasticsearch", "metadata in Elasticsearch or OpenSearch"),
    "hypothesis": ("check", "geoskip.check_mapping"),
}
"""Optional packages by module: geoskip's extra, and its purpose."""
_NEEDED = ("numpy", "pyarrow", "pyproj", "rapidfuzz", "shapely")


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's output.

    Attributes
    ----------
    state
        ``ok``, ``warn`` (something is not available) or ``fail`` (something does not work).
    subject, text
        The subject of the check, and its result.
    way_out
        The remedy; empty if there is no problem.
    """

    state: str
    subject: str
    text: str
    way_out: str = ""


@command(
    "geoskip doctor",
    "geoskip doctor data/weather --no-session",
    "geoskip doctor s3a://bucket/weather --master yarn",
    panel="Inspection",
)
def doctor(
    metadata: MetadataOptions,
    spark: SparkOptions,
    path: Annotated[str | None, typer.Argument(metavar="[PATH]", help="A dataset to check as well.")] = None,
    session: Annotated[bool, typer.Option(help="Start Spark and let it skip a file.")] = True,
    as_json: Json = False,
) -> None:
    """Check Python, packages, Java, Spark, its workers, Sedona, and a dataset.

    A line each: ok, warn (something is not to be had), or fail, and then the way out. Exits with 3 where one fails.
    """
    spark.needed_for([path or "."])  # imports the modules that the options name
    found: list[Finding] = []
    for finding in _findings(path, metadata, spark, session):
        found.append(finding)
        if not as_json:
            _show(finding)
    failed = any(finding.state == "fail" for finding in found)
    if as_json:
        show_json({"ok": not failed, "findings": list(map(asdict, found))})
    if failed:
        raise typer.Exit(FAULT)


_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def _show(finding: Finding) -> None:
    """Print a finding; on a terminal in colour, with wrapped text."""
    line = f"{finding.subject}: {finding.text}" + (f"; {finding.way_out}" if finding.way_out else "")
    if not sys.stdout.isatty():
        typer.echo(f"{finding.state:<4}  {line}")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    row = Table.grid(padding=(0, 2))
    row.add_column(width=4)
    row.add_column(overflow="fold")
    row.add_row(Text(finding.state, style=f"bold {_COLOURS[finding.state]}"), Text(line))
    Console().print(row)


def _findings(path: str | None, metadata: MetadataOptions, spark: SparkOptions, session: bool) -> Iterator[Finding]:
    from geoskip import __version__

    here = ".".join(map(str, sys.version_info[:3]))
    yield Finding("ok", "geoskip", f"{__version__} with Python {here} at {sys.executable}")
    if sys.version_info[:2] < _PYTHON:
        yield Finding("fail", "Python", f"{here} is too old", "use Python 3.11 or newer")
    yield from _packages()
    yield _temporary_folder()
    has_spark = find_spec("pyspark") is not None
    if has_spark:
        yield from _catch_errors("Spark", lambda: _spark(spark, session))
    else:
        yield Finding(
            "warn",
            "Spark",
            "pyspark is not installed: only local Parquet is indexed and queried",
            "pip install 'geoskip[spark]', with Java 17 or 21",
        )
    yield from _catch_errors("mappings", _mappings)
    if path is not None:
        yield from _catch_errors("dataset", lambda: _dataset(path, metadata, spark))


def _catch_errors(subject: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield findings; an error becomes a failed finding."""
    try:
        yield from look()
    except Exception as error:
        text, _, way_out = sentence(error).partition("; ")
        yield Finding("fail", subject, text, way_out)


def _packages() -> Iterator[Finding]:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        yield Finding("fail", "packages", f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}")
    else:
        yield Finding("ok", "packages", ", ".join(f"{name} {version(name)}" for name in _NEEDED))
    for module, (extra, purpose) in _EXTRAS.items():
        if find_spec(module) is None:
            yield Finding(
                "warn", "optional", f"{module} is not installed, for {purpose}", f"pip install 'geoskip[{extra}]'"
            )
    there = [f"{module} {_version(module)}".strip() for module in _EXTRAS if find_spec(module) is not None]
    if there:
        yield Finding("ok", "optional", ", ".join(there))


def _version(module: str) -> str:
    with suppress(PackageNotFoundError):
        return version({"sedona": "apache-sedona", "opensearchpy": "opensearch-py"}.get(module, module))
    return ""


def _temporary_folder() -> Finding:
    try:
        with tempfile.NamedTemporaryFile():
            folder = tempfile.gettempdir()
    except OSError as error:
        return Finding("fail", "temporary files", f"cannot be written ({error})", "let TMPDIR name another folder")
    free = shutil.disk_usage(folder).free
    if free < 1 << 30:
        return Finding("warn", "temporary files", f"{folder} has {free >> 20:,} MiB left", "make room")
    return Finding("ok", "temporary files", f"{folder}, {free >> 30:,} GiB left")


def _mappings() -> Iterator[Finding]:
    from geoskip.registry.installed import load_mappings

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        load_mappings()
    for each in said:
        yield Finding("fail", "mappings", str(each.message), "install the package again, or remove it")
    if not said:
        yield Finding("ok", "mappings", "all installed ones are loaded")


def _spark(spark: SparkOptions, session: bool) -> Iterator[Finding]:
    from geoskip.spark.session import java_problem

    yield Finding("ok", "pyspark", version("pyspark"))
    if find_spec("pandas") is None:
        yield Finding("fail", "pandas", "is missing, which PySpark's functions need", "pip install 'geoskip[spark]'")
    if why := java_problem():
        problem, _, way_out = why.rpartition(": ")
        yield Finding("fail", "Java", problem, way_out)
    elif not session:
        yield Finding("ok", "Java", os.environ.get("JAVA_HOME") or str(shutil.which("java")))
    else:
        from geoskip.spark.session_checks import SESSION_CHECKS

        with spark.session() as running:
            for subject, check in SESSION_CHECKS:
                yield from _catch_errors(subject, partial(_run_check, check, running))


def _run_check(check: Callable[[Any], tuple[str, str, str, str]], session: Any) -> Iterator[Finding]:
    state, subject, text, way_out = check(session)
    yield Finding(state, subject, in_commands(text), in_commands(way_out))


def _dataset(path: str, metadata: MetadataOptions, spark: SparkOptions) -> Iterator[Finding]:
    from geoskip.cli.metadata_commands import changes_since
    from geoskip.lifecycle.log import latest
    from geoskip.report import count_of

    if is_local(path):
        yield _permissions(path, metadata)
    try:
        with store_of(path, metadata, spark) as store:
            snapshot = latest(store)
    except NotIndexedError as error:
        text, _, way_out = str(error).partition("; ")
        yield Finding("warn", "metadata", text, way_out)
        return
    if snapshot is None:
        yield Finding("warn", "metadata", f"{store.location} has no snapshot yet", f"geoskip index {shlex.quote(path)}")
        return
    header = snapshot.header
    for reason in header.unread_reasons:
        yield Finding("warn", "index", reason)
    for entry in header.entries:
        if why := entry.index.unavailable():
            yield Finding("warn", "index", f"{entry.name}: {why}")
    names = ", ".join(entry.name for entry in header.entries) or "no index in use"
    yield Finding("ok", "metadata", f"{store.location}: snapshot {header.number}, {names}")
    changes = changes_since(path, snapshot)
    if changes is not None and any(changes.values()):
        counts = f"{count_of(changes['new or changed'], 'file')} new or changed, {changes['gone']} gone"
        yield Finding(
            "warn", "files", f"{counts} since snapshot {header.number}", f"geoskip refresh {shlex.quote(path)}"
        )


def _permissions(path: str, metadata: MetadataOptions) -> Finding:
    """Permission to read the data and to write the metadata."""
    from geoskip.engines.folder_listing import list_folder, locate

    root, below = locate(path)
    try:
        files = len(list_folder(root, below))
    except PermissionError as error:
        way_out = "let this user read it, or run as one who may"
        return Finding("fail", "permissions", f"{error.filename or path} cannot be read", way_out)
    folder = Path(metadata.folder_of([path]))
    place = next(each for each in (folder, *folder.parents) if each.exists())
    if not os.access(place, os.W_OK | os.X_OK):
        return Finding(
            "warn", "permissions", f"{place} cannot be written", "--metadata FOLDER keeps metadata elsewhere"
        )
    return Finding("ok", "permissions", f"{path}: {files:,} files listed, {place} can be written")
