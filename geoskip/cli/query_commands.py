"""Commands on conditions, which run no query: explain, files, report."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geoskip.cli.application import command
from geoskip.cli.datasets import Dataset_, MetadataOptions, SparkOptions, distant, recorded_reader
from geoskip.cli.messages import in_commands
from geoskip.cli.output import Json, check_folder_of, show, show_json, show_table, write_paths
from geoskip.errors import InvalidSpecificationError

if TYPE_CHECKING:
    from geoskip.report import Report

QUERY = re.compile(r"\s*(select|with|from)\b", re.IGNORECASE)
"""The beginning of a full query in place of a condition."""
Where = Annotated[
    str, typer.Argument(metavar='"WHERE ..."', help="A condition in Spark's SQL. Without one all files are kept.")
]
TimeZone = Annotated[
    str | None, typer.Option(metavar="ZONE", help="The time zone of texts that are read as instants, as Europe/Oslo.")
]


@command(
    "geoskip explain data/weather \"WHERE temp > 30 AND city LIKE 'Os%'\"",
    'geoskip explain data/weather "temp > 30" --json | jq .files_kept',
    'geoskip explain table:db.weather "temp > 30"',
    panel="Queries",
)
def explain(
    path: Dataset_,
    metadata: MetadataOptions,
    spark: SparkOptions,
    where: Where = "",
    time_zone: TimeZone = None,
    limit: Annotated[int, typer.Option(min=0, help="The most kept files to list.")] = 20,
    as_json: Json = False,
) -> None:
    """Show which files a condition keeps, what skips the others, and why; nothing is run."""
    with opened_report(path, where, metadata, spark, time_zone) as report:
        kept = [file for scan in report.scans for file in scan.kept_files()]
        if as_json:
            show_json({**report.to_dict(), "files": kept})
            return
        show(str(report))
    if limit and kept:
        from geoskip.report import count_of

        typer.echo("")
        show_table(("kept file", "size"), [(_relative_path(path, file), _size(file)) for file in kept[:limit]])
        if len(kept) > limit:
            typer.echo(f"and {count_of(len(kept) - limit, 'more file')}: geoskip files lists them all")


@command(
    'geoskip files data/weather "WHERE temp > 30" -0 | xargs -0 ls -l',
    'geoskip files data/weather "WHERE temp > 30" --skipped',
    panel="Queries",
)
def files(
    path: Dataset_,
    metadata: MetadataOptions,
    spark: SparkOptions,
    where: Where = "",
    time_zone: TimeZone = None,
    null: Annotated[bool, typer.Option("-0", "--null", help="End each path with NUL, for xargs -0.")] = False,
    skipped: Annotated[bool, typer.Option("--skipped", help="The files that are not read instead.")] = False,
    as_json: Json = False,
) -> None:
    """Print the paths of the files that may hold a row for which a condition is true."""
    with opened_report(path, where, metadata, spark, time_zone) as report:
        paths = [_plain(file) for scan in report.scans for file in scan.paths(not skipped)]
        if where and report.files_kept == report.files_total and report.reasons:
            print(f"geoskip: no file is skipped: {in_commands(report.reasons[0])}", file=sys.stderr)
    if as_json:
        show_json({"files": paths})
    else:
        write_paths(paths, null=null)


@command(
    'geoskip report data/weather "WHERE temp > 30"',
    "geoskip report data/weather \"WHERE ST_Contains(ST_GeomFromText('POLYGON (...)'), ST_Point(lng, lat))\" "
    "--html report.html",
    panel="Queries",
)
def report(
    path: Dataset_,
    metadata: MetadataOptions,
    spark: SparkOptions,
    where: Where = "",
    time_zone: TimeZone = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Write a page for a browser.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Report on a query with a condition: as text, JSON, or an HTML page to send to a colleague."""
    if html is not None:
        check_folder_of(html)
    with opened_report(path, where, metadata, spark, time_zone) as found:
        if html is not None:
            found.to_html(html)
            typer.echo(f"wrote {html}", err=True)
        if as_json:
            show_json(found.to_dict())
        elif html is None:
            show(str(found))


@contextmanager
def opened_report(
    path: str, where: str, metadata: MetadataOptions, spark: SparkOptions, time_zone: str | None
) -> Iterator[Report]:
    """Open the report of a condition on a dataset; its paths and clauses can be read within the block.

    Parameters
    ----------
    path, where
        The dataset, and a condition with or without the word WHERE; empty for none.
    metadata, spark
        The options.
    time_zone
        The time zone for parsing timestamps, without Spark.
    """
    condition = re.sub(r"\s*where\b\s*", "", where, count=1, flags=re.IGNORECASE) if _WHERE.match(where) else where
    if QUERY.match(condition):
        raise InvalidSpecificationError(
            f'{condition[:40]!r} is a query: give its condition alone, as in geoskip files PATH "temp > 30"'
        )
    if time_zone is not None:
        from geoskip.engines.time_texts import zone_of

        if zone_of(time_zone) is None:
            raise InvalidSpecificationError(
                f"there is no time zone {time_zone}; --time-zone takes a name as Europe/Oslo"
            )
    why = _why_spark(path, metadata, spark)
    if why is None:
        from geoskip.engines.files import files as kept_files
        from geoskip.report import Report

        store = metadata.store(_folder(path, metadata)) if metadata.keys else None
        folder = metadata.metadata if store is None else None
        found = kept_files(path, condition.strip() or None, store=store, metadata=folder, time_zone=time_zone)
        yield Report((found.report,))
        return
    with spark.dataset([path], metadata, why) as handle:
        from geoskip.spark.reports import explain

        frame = handle.to_df()
        yield explain(frame.where(condition) if condition.strip() else frame)


_WHERE = re.compile(r"\s*where\b", re.IGNORECASE)


def _why_spark(path: str, metadata: MetadataOptions, spark: SparkOptions) -> str | None:
    """Reason why only Spark can evaluate the condition, or None."""
    places = [path] if metadata.metadata is None else [path, metadata.metadata]
    if spark.needed_for(places):
        return distant(places) or "--spark needs Spark"
    if not (folder := _folder(path, metadata)).is_dir():
        return None
    recorded = recorded_reader(metadata.store(folder))
    if recorded is None or recorded.format == "parquet":
        return None
    return f"{path} was indexed as {recorded.format}, which needs Spark"


def _folder(path: str, metadata: MetadataOptions) -> Path:
    """Folder of the metadata for a path in or below a local dataset."""
    from geoskip.engines.folder_listing import FOLDER, locate

    return Path(metadata.folder_of([path]) if metadata.metadata else os.path.join(locate(path)[0], FOLDER))


def _plain(file: str) -> str:
    """Local path of a file, else its URI."""
    from geoskip.stores.log_files import local_path

    return (local_path(file) or file) if file.startswith("file:") else file


def _relative_path(path: str, file: str) -> str:
    """Path of a file relative to the dataset that was named, if it is below it; otherwise its full path."""
    plain, root = _plain(file), os.path.abspath(path)
    return os.path.relpath(plain, root) if plain.startswith(f"{root}/") else plain


def _size(file: str) -> str:
    from geoskip.report import size_of

    try:
        return size_of(os.stat(_plain(file)).st_size)
    except OSError:  # on another file system
        return ""
