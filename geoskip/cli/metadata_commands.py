"""Commands that read metadata alone: describe, history, statistics, optimize, drop, restore, vacuum."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoskip.cli.application import command
from geoskip.cli.datasets import MetadataOptions, SparkOptions, is_local, store_of
from geoskip.cli.output import Json, show_activity, show_json, show_table

if TYPE_CHECKING:
    from geoskip.lifecycle.log import HistoryRow
    from geoskip.metadata import Snapshot
    from geoskip.stores.base import Store

_OF_METADATA = "A dataset, table:NAME, or the folder of the metadata."
Indexed = Annotated[str, typer.Argument(metavar="PATH", help=_OF_METADATA)]
Which = Annotated[
    list[str] | None,
    typer.Argument(metavar="INDEX", help="As in 'minmax(temp)'; all if none is named."),
]


@command(
    "geoskip describe data/weather", "geoskip describe data/weather --json | jq '.indexes[].index'", panel="Inspection"
)
def describe(path: Indexed, metadata: MetadataOptions, spark: SparkOptions, as_json: Json = False) -> None:
    """Show the indexes of a dataset's latest snapshot, and how many files have changed since."""
    from geoskip.errors import NotIndexedError
    from geoskip.lifecycle.log import latest

    with store_of(path, metadata, spark, to_read=True) as store:
        snapshot = latest(store)
        if snapshot is None:
            raise NotIndexedError(f"there is no snapshot in {store.location} yet")
        came_along = metadata.metadata is None and _came_along(path, store, snapshot)
        found = _description(store, snapshot, came_along)
    found["changes"] = changes_since(path, snapshot)
    if as_json:
        show_json(found)
        return
    from geoskip.report import count_of, size_of, unindexed_at_last

    when = str(found["created"])[:19].replace("T", " ")
    typer.echo(f"snapshot {found['snapshot']} of {when} (UTC), {count_of(found['files'], 'file')}")
    typer.echo(f"of {found['root']}")
    if came_along:
        typer.echo(f"they came with data that were moved or copied: geoskip repair {shlex.quote(path)}")
    rows = [
        (each["index"], each["state"], each["files"], size_of(each["bytes"]), each["built"][:19].replace("T", " "),
         each["reader"])
        for each in found["indexes"]
    ]  # fmt: skip
    show_table(("index", "state", "files", "size", "built (UTC)", "reader"), rows)
    for unread in found["unread"]:
        typer.echo(unread)
    if snapshot.header.pending:
        typer.echo(unindexed_at_last(snapshot.header.pending))
    if (changes := found["changes"]) is not None and (changes["new or changed"] or changes["gone"]):
        counts = f"{count_of(changes['new or changed'], 'file')} new or changed since, {changes['gone']} gone"
        typer.echo(f"{counts}: geoskip refresh {shlex.quote(path)}")


def _description(store: Store, snapshot: Snapshot, came_along: bool) -> dict[str, Any]:
    from geoskip.metadata import unread_reason

    header, sizes = snapshot.header, store.size()
    indexes = []
    for entry in header.stored:
        built = header.built.get(entry.name, {})
        indexes.append(
            {
                "index": entry.name,
                "kind": entry.index.kind,
                "columns": [name for name, _ in entry.columns],
                "state": "deleted" if entry in header.deleted else "not used here" if came_along else "in use",
                "files": len(snapshot.files) - snapshot.files.column(entry.name).null_count,
                "bytes": sizes.get(entry.name, 0),
                "built": str(built.get("when", "")),
                "reader": str(built.get("reader", "")),
                "keeps": entry.index.describe(),
            }
        )
    unread = [*header.unread, *header.unread_deleted]
    return {
        "root": header.root,
        "metadata": store.location,
        "snapshot": header.number,
        "created": header.created,
        "files": header.files,
        "indexes": indexes,
        "unread": list(map(unread_reason, unread)),
        "pending": int(header.pending.get("files", 0)) if header.pending else 0,
    }


def _came_along(path: str, store: Store, snapshot: Snapshot) -> bool:
    """Test whether the metadata in the folder of a dataset belong to another place, as after a copy."""
    from geoskip.sources.dependencies import same_place

    root, folder = os.path.split(store.location)
    root = root if ":/" in root else f"file:{root}"
    return folder == "_geoskip" != os.path.basename(path.rstrip("/")) and not same_place(root, snapshot.header.root)


def changes_since(path: str, snapshot: Snapshot) -> dict[str, int] | None:
    """Counts of new or changed files and of removed files since the snapshot; None if unknown."""
    from geoskip.engines.folder_listing import list_files, locate, table_format
    from geoskip.engines.matched_snapshot import FileMatch
    from geoskip.errors import GeoskipError
    from geoskip.stores.log_files import local_path

    root = local_path(snapshot.header.root)
    try:
        if root is None or not is_local(path) or Path(path).is_file() or not Path(root).is_dir() or locate(root)[1]:
            return None
        match = FileMatch.of(snapshot, list_files(root))
    except (GeoskipError, OSError):
        return None
    # files that only older versions of a table contain remain in the metadata
    gone = int((match.file < 0).sum()) if table_format(root) is None else 0
    return {"new or changed": len(match.unknown), "gone": gone}


@command("geoskip history data/weather", "geoskip history data/weather --json", panel="Inspection")
def history(
    path: Indexed,
    metadata: MetadataOptions,
    spark: SparkOptions,
    entries: Annotated[
        bool, typer.Option("--entries", help="Print the log itself instead, a JSON object an entry.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the operations on the indexes of a dataset: who, when, on how many files, with what result."""
    from geoskip.errors import MetadataError
    from geoskip.lifecycle.log import history as rows_of

    with store_of(path, metadata, spark) as store:
        operations = rows_of(store)
        damaged = []
        for number in store.operations() if entries else ():
            try:
                typer.echo(json.dumps(store.operation(number), indent=2))
            except MetadataError as error:
                damaged.append(str(error))
    if entries:
        for why in damaged:
            typer.echo(f"geoskip: {why}", err=True)
        raise typer.Exit(1 if damaged else 0)
    if as_json:
        show_json({"operations": list(map(dataclasses.asdict, operations))})
        return
    if sys.stdout.isatty():
        for row in operations:
            typer.echo(_entry_of(row))
        return
    columns = (
        "began (UTC)",
        "verb",
        "state",
        "seconds",
        "who",
        "snapshot",
        "read",
        "added",
        "removed",
        "kept",
        "details",
    )
    rows = [
        (
            row.began[:19].replace("T", " "), row.verb, row.state, row.seconds, row.who, row.snapshot, row.files_read,
            row.files_added, row.files_removed, row.files_kept, "; ".join(filter(None, (row.parameters, row.message))),
        )
        for row in operations
    ]  # fmt: skip
    show_table(columns, rows)


def _entry_of(row: HistoryRow) -> str:
    """Format an operation for a terminal: its text, and below it the writer and the parameters."""
    counts = {"read": row.files_read, "added": row.files_added, "removed": row.files_removed, "kept": row.files_kept}
    files = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number)
    parts = [
        f"{row.seconds:.1f} s" if row.seconds is not None else "",
        f"snapshot {row.snapshot}" if row.snapshot is not None else "",
        f"files: {files}" if files else "",
    ]
    head = f"{row.began[:19].replace('T', ' ')}  {row.verb} {row.state}: {', '.join(filter(None, parts))}"
    return f"{head}\n    {'; '.join(filter(None, (f'by {row.who}', row.parameters, row.message)))}"


@command(
    "geoskip statistics data/weather",
    "geoskip statistics data/weather --index 'minmax(temp)' --json",
    panel="Inspection",
)
def statistics(
    path: Indexed,
    metadata: MetadataOptions,
    spark: SparkOptions,
    index: Annotated[str | None, typer.Option(metavar="INDEX", help="One index only, as in minmax(temp).")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most rows to show; --json has all.")] = 50,
    as_json: Json = False,
) -> None:
    """Show what the indexes store of each file: bounds, counts of nulls, distinct values."""
    from geoskip.engines.statistics import statistics_of
    from geoskip.errors import NotIndexedError
    from geoskip.report import count_of

    with store_of(path, metadata, spark) as store:
        table = statistics_of(store)
    if index is not None:
        import pyarrow.compute as pc

        names = list(dict.fromkeys(table["index_name"].to_pylist()))
        if index not in names:
            raise NotIndexedError(f"there is no index {index}; there are {', '.join(names) or 'none'}")
        table = table.filter(pc.equal(table["index_name"], index))
    if as_json:
        rows = [{**row, "boxes": row["boxes"] and row["boxes"].hex()} for row in table.to_pylist()]
        show_json({"statistics": rows})
        return
    columns = ("path", "index_name", "row_count", "null_count", "min_value", "max_value", "distinct_count")
    shown = table.slice(0, limit).select(columns).to_pylist()
    show_table(("file", "index", "rows", "nulls", "min", "max", "distinct"), [tuple(row.values()) for row in shown])
    if table.num_rows > limit:
        typer.echo(f"and {count_of(table.num_rows - limit, 'more row')}: --limit or --json shows them")


@command("geoskip optimize data/weather", panel="Indexes")
def optimize(path: Indexed, metadata: MetadataOptions, spark: SparkOptions, as_json: Json = False) -> None:
    """Merge the many small parts that refreshes leave into one."""
    from geoskip.lifecycle import actions

    with store_of(path, metadata, spark) as store, show_activity("optimizing"):
        header = actions.optimize(store)
    number = header.number if header is not None else None
    if as_json:
        show_json({"optimized": number is not None, "snapshot": number})
    else:
        typer.echo("nothing to optimize" if number is None else f"optimized: snapshot {number}")


@command(
    "geoskip drop data/weather 'minmax(temp)'",
    "geoskip drop data/weather   (all of them; geoskip restore brings them back until a vacuum)",
    panel="Indexes",
)
def drop(
    path: Indexed, metadata: MetadataOptions, spark: SparkOptions, which: Which = None, as_json: Json = False
) -> None:
    """Take indexes out of use; restore brings them back until a vacuum."""
    from geoskip.lifecycle import actions

    with store_of(path, metadata, spark) as store:
        _show_names("dropped", actions.delete(store, _names(which)), as_json)


@command("geoskip restore data/weather 'minmax(temp)'", panel="Indexes")
def restore(
    path: Indexed, metadata: MetadataOptions, spark: SparkOptions, which: Which = None, as_json: Json = False
) -> None:
    """Take dropped indexes into use again."""
    from geoskip.lifecycle import actions

    with store_of(path, metadata, spark) as store:
        _show_names("restored", actions.restore(store, _names(which)), as_json)


@command("geoskip vacuum data/weather", "geoskip vacuum data/weather --retain '30 minutes'", panel="Indexes")
def vacuum(
    path: Indexed,
    metadata: MetadataOptions,
    spark: SparkOptions,
    retain: Annotated[
        str, typer.Option(metavar="TIME", help="Keep snapshots that were in use within this time.")
    ] = "7 days",
    as_json: Json = False,
) -> None:
    """Remove dropped indexes, old snapshots and the files of crashed writers for good."""
    from geoskip.lifecycle import actions
    from geoskip.lifecycle.verbs import duration
    from geoskip.report import count_of

    time = duration(retain)
    with store_of(path, metadata, spark) as store, show_activity("removing old snapshots"):
        removed = actions.vacuum(store, time)
    if as_json:
        show_json(dataclasses.asdict(removed))
        return
    typer.echo(
        f"removed {count_of(len(removed.snapshots), 'snapshot')}, {count_of(removed.leftovers, 'leftover file')}, "
        f"indexes: {', '.join(removed.indexes) or 'none'}"
    )


def _names(which: list[str] | None) -> list[str]:
    """Texts of indexes in the form of metadata, regardless of spacing and spelling."""
    from geoskip.cli.build_commands import parse_index
    from geoskip.errors import GeoskipError

    names = []
    for text in which or ():
        try:
            names.append(str(parse_index(text)))
        except GeoskipError:  # of a kind that is not registered here
            names.append(text)
    return names


def _show_names(verb: str, names: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        show_json({verb: list(names)})
    else:
        typer.echo(f"{verb} {', '.join(names)}")
