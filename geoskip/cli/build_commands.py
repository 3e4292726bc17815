"""Commands that read data: index, refresh, verify, repair."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoskip.cli.application import FAULT, command
from geoskip.cli.datasets import Datasets, MetadataOptions, SparkOptions, distant, is_local
from geoskip.cli.messages import in_commands
from geoskip.cli.output import Json, show, show_json
from geoskip.errors import InvalidSpecificationError, NeedsSparkError, StatementError

if TYPE_CHECKING:
    from geoskip.indexes.base import Index
    from geoskip.sources.build_verbs import BuildReport

KINDS = {
    "minmax": "temp",
    "gaplist": "temp",
    "valuelist": "city",
    "bloomfilter": "account",
    "hybrid": "account",
    "prefix": "path, length=20",
    "suffix": "host",
    "formatted": "user_agent, extract=get_agent_name",
    "metricdist": "word, metric=levenshtein",
    "geobox": "lng, lat",
}
"""The kinds of geoskip's own indexes, each with an example of the text in its parentheses."""

_POSITION = re.compile(r" \(line \d+, position \d+\)$")
_INDEXES = "Indexes, each of a column or SQL expression (repeatable)"


def _kind(name: str, help: str) -> Any:
    option = typer.Option(f"--{name}", metavar="EXPR", help=f"{help}, as of {KINDS[name]!r}.", rich_help_panel=_INDEXES)
    return Annotated[list[str], option]


@dataclass(frozen=True)
class IndexOptions:
    """The indexes to build, an option for each kind; its value is the text in the index's parentheses."""

    minmax: _kind("minmax", "Smallest and largest value") = field(default_factory=list)  # type: ignore[valid-type]
    geobox: _kind("geobox", "Boxes of points or geometries") = field(default_factory=list)  # type: ignore[valid-type]
    valuelist: _kind("valuelist", "Distinct values") = field(default_factory=list)  # type: ignore[valid-type]
    prefix: _kind("prefix", "Beginnings of strings") = field(default_factory=list)  # type: ignore[valid-type]
    suffix: _kind("suffix", "Ends of strings") = field(default_factory=list)  # type: ignore[valid-type]
    bloomfilter: _kind("bloomfilter", "A Bloom filter of the values") = field(default_factory=list)  # type: ignore[valid-type]
    hybrid: _kind("hybrid", "Values or a Bloom filter, whichever costs less") = field(default_factory=list)  # type: ignore[valid-type]
    gaplist: _kind("gaplist", "Ranges between the widest gaps") = field(default_factory=list)  # type: ignore[valid-type]
    formatted: _kind("formatted", "Values of an extracted part") = field(default_factory=list)  # type: ignore[valid-type]
    metricdist: _kind("metricdist", "Distances from a few pivots") = field(default_factory=list)  # type: ignore[valid-type]
    index: Annotated[
        list[str],
        typer.Option(metavar="TEXT", help="An index of any kind, as str(index) writes it: 'prefix(path, length=20)'.",
                     rich_help_panel=_INDEXES),
    ] = field(default_factory=list)  # fmt: skip

    def specifications(self) -> list[Index]:
        """Create the indexes; raises InvalidSpecificationError for a text that specifies none."""
        of_kinds = [parse_index(f"{name}({text})") for name in KINDS for text in getattr(self, name)]
        return [*of_kinds, *map(parse_index, self.index)]


def parse_index(text: str) -> Index:
    """Return the index of a text such as ``geobox(lng, lat, boxes=4)``.

    Raises InvalidSpecificationError.

    >>> str(parse_index("prefix(city, length=8)")), parse_index("formatted(agent, extract='get_agent_name')").extract
    ('prefix(city, length=8)', 'get_agent_name')
    """
    from geoskip.statements.index_items import parse_item
    from geoskip.statements.tokens import tokenize

    try:
        *tokens, end = tokenize(text)
        item = parse_item(text, tokens, end)
    except StatementError as error:  # of several lines: the problem, the text, carets, the remedy
        problem, _, _, *way_out = str(error).splitlines()
        raise InvalidSpecificationError("; ".join([_POSITION.sub("", problem), *way_out])) from None
    assert item.index is not None
    return item.index


class Mode(StrEnum):
    """Mode of a refresh: the files that it reads."""

    INCREMENTAL = "incremental"
    FULL = "full"
    QUICK = "quick"


@command(
    "geoskip index data/weather --minmax temp --geobox lng,lat",
    "geoskip index data/weather --prefix 'path, length=20' --index 'gaplist(id, gaps=4)'",
    "geoskip index data/csv --format csv --option header=true --option inferSchema=true --minmax temp",
    "geoskip index s3a://bucket/weather --minmax temp --master yarn",
    "geoskip index table:db.weather --minmax temp --conf spark.sql.catalogImplementation=hive",
    panel="Indexes",
)
def index(
    paths: Datasets,
    indexes: IndexOptions,
    metadata: MetadataOptions,
    spark: SparkOptions,
    key: Annotated[str | None, typer.Option(help="The name of the key in --keys that protects new metadata.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads that read files, without Spark.")] = None,
    as_json: Json = False,
) -> None:
    """Build indexes over a dataset, beside those that it has.

    Local Parquet is read by this process. Other formats and file systems, and SQL expressions, need Spark: a session
    is started, on this machine unless --master names another.
    """
    needs_spark = spark.needed_for(paths)  # imports the modules that may define index types
    wanted = indexes.specifications()
    if not wanted:
        raise typer.BadParameter("name at least one index, such as --minmax COLUMN")
    if not needs_spark:
        from geoskip.engines.build import build

        try:
            _show(build(_given(paths), wanted, threads=threads, **metadata.of_build(paths, key)), as_json)
            _say_where(paths, metadata)
            return
        except NeedsSparkError as error:
            why: str | None = str(error)
            _say_why(str(error))
    else:
        why = _why_spark(paths, spark)
    with spark.dataset(paths, metadata, why or "", key) as handle:
        _show(handle.create_index(*wanted), as_json)
    _say_where(paths, metadata)


@command(
    "geoskip refresh data/weather",
    "geoskip refresh data/weather --mode quick",
    panel="Indexes",
)
def refresh(
    paths: Datasets,
    metadata: MetadataOptions,
    spark: SparkOptions,
    mode: Annotated[
        Mode, typer.Option(help="incremental reads new and changed files, full all, quick none.")
    ] = Mode.INCREMENTAL,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads that read files, without Spark.")] = None,
    as_json: Json = False,
) -> None:
    """Index new and changed files, and forget those that are gone.

    quick reads no data: it forgets changed and deleted files, and counts those that an incremental refresh would index.
    """
    why = _why_spark(paths, spark, metadata, of_indexes=False)
    if why is None:
        from geoskip.engines.build import build

        try:
            _show(build(_given(paths), threads=threads, mode=mode.value, **metadata.of_build(paths)), as_json)
            return
        except NeedsSparkError as error:
            why = str(error)
            _say_why(why)
    with spark.dataset(paths, metadata, why) as handle:
        _show(handle.refresh_index(mode.value), as_json)


@command(
    "geoskip verify data/weather",
    "geoskip verify data/weather --sample 0.05 || geoskip repair data/weather",
    panel="Indexes",
)
def verify(
    paths: Datasets,
    metadata: MetadataOptions,
    spark: SparkOptions,
    sample: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Read a share of the files, as 0.1. Default: all.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads that read files, without Spark.")] = None,
    as_json: Json = False,
) -> None:
    """Read files again and compare their summaries with the stored ones; exit with 3 where one differs."""
    why = _why_spark(paths, spark, metadata)
    if why is None:
        from geoskip.engines.build import verify as verify_parquet

        found = verify_parquet(_given(paths), sample, threads=threads, **metadata.of_build(paths))
    else:
        with spark.dataset(paths, metadata, why) as handle:
            found = handle.verify(sample)
    if as_json:
        show_json({"ok": found.ok, **asdict(found)})
    else:
        show(str(found))
    if not found.ok:
        raise typer.Exit(FAULT)


@command("geoskip repair data/weather", panel="Indexes")
def repair(paths: Datasets, metadata: MetadataOptions, spark: SparkOptions, as_json: Json = False) -> None:
    """Build anew what is damaged, contradicts the data or came from another place; needs Spark."""
    spark.needed_for(paths)
    with spark.dataset(paths, metadata, "repair needs Spark") as handle:
        _show(handle.repair(), as_json)


def _say_where(paths: Sequence[str], metadata: MetadataOptions) -> None:
    """Print the folder of the metadata unless it is in the one given folder."""
    if metadata.metadata is None and all(map(is_local, paths)) and (len(paths) > 1 or not os.path.isdir(paths[0])):
        print(f"geoskip: the metadata are in {metadata.folder_of(paths)}", file=sys.stderr)


def _given(paths: Sequence[str]) -> Any:
    """A dataset's path in the form that metadata record: a string, or a list of several."""
    return paths[0] if len(paths) == 1 else list(paths)


def _why_spark(
    paths: Sequence[str], spark: SparkOptions, metadata: MetadataOptions | None = None, *, of_indexes: bool = True
) -> str | None:
    """Reason why Spark is needed, or None; printed unless an option requires Spark.

    Parameters
    ----------
    paths, spark
        The dataset, and the options.
    metadata
        The options of the existing metadata; None for new indexes.
    of_indexes
        Consider the expressions of these; False for a command that finds out itself.
    """
    folder = metadata.metadata if metadata is not None else None
    places = [*paths, folder] if folder is not None else [*paths]
    if spark.needed_for(places):
        if (why := distant(places)) is not None:
            return why
        return f"{spark.format} needs Spark" if spark.format not in (None, "parquet") else "--spark needs Spark"
    if metadata is None:
        return None
    from geoskip.engines.build import reason_for_spark

    why = reason_for_spark(_given(paths), metadata.store(metadata.folder_of(paths)), of_indexes=of_indexes)
    if why is not None:
        _say_why(why)
    return why


def _say_why(why: str) -> None:
    if find_spec("pyspark") is not None:  # otherwise an error reports it
        print(f"geoskip: {in_commands(why).partition('; ')[0]}: through Spark", file=sys.stderr)


def _show(report: BuildReport, as_json: bool) -> None:
    if as_json:
        show_json(asdict(report))
    else:
        show(str(report))
