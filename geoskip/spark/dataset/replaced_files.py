"""Removal of the files that rewrites have replaced."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from geoskip.errors import ConflictError, DatasetNotFoundError
from geoskip.lifecycle.log import age
from geoskip.sources.listed_files import is_below
from geoskip.spark.build.listing import listing
from geoskip.spark.dataset.rewrite_folders import JOURNAL, folder_at, journal_of, remove_files
from geoskip.spark.dataset.source import DatasetSource


def remove_replaced(source: DatasetSource, retain: timedelta) -> tuple[str, ...]:
    """Remove the files that earlier rewrites of a dataset have replaced.

    Parameters
    ----------
    source
        The current dataset.
    retain
        The minimum age of a rewrite, so that readers of its old files have ended.

    Returns
    -------
    tuple of str
        The old folders with removed files.

    Raises
    ------
    ConflictError
        If a writer has since added files to an old folder; nothing is removed.
    """
    state = source.current_state()
    used = {state.relation.root, *state.files.folders}
    journals: list[tuple[str, dict[str, Any]]] = []
    place: str | None = state.relation.root
    while place is not None and (journal := journal_of(place)) is not None:
        journals.append((place, journal))
        place = str(journal.get("from") or "") or None
        if place in {root for root, _ in journals}:
            break
    due = [(root, journal) for root, journal in journals if age(str(journal.get("when"))) >= retain.total_seconds()]
    for _, journal in due:
        if reading := [folder for folder in used if is_below(folder, [str(journal["from"])])]:
            raise ConflictError(
                f"{source.name} still reads {reading[0]}, as after a rewrite that was interrupted: rewrite() it once "
                "more, then remove what that has replaced"
            )
        _check_known(source, journal)
    removed = []
    for root, journal in reversed(due):  # oldest first, since later journals refer to earlier folders
        remove_files(str(journal["from"]), [uri for uri, *_ in journal["files"]])
        folder_at(root).delete(JOURNAL)
        removed.append(str(journal["from"]))
    return tuple(removed)


def _check_known(source: DatasetSource, journal: dict[str, Any]) -> None:
    """Raise ConflictError if an old folder has files that the rewrite did not list."""
    known = {(uri, size, mtime) for uri, size, mtime in [*journal["files"], *(journal.get("others") or ())]}
    folders = sorted({uri.rpartition("/")[0] for uri, *_ in journal["files"]})
    folders = [str(journal["from"]), *(each for each in folders if not is_below(each, [str(journal["from"])]))]
    for folder in folders:
        parent, _, name = folder.rpartition("/")
        if not folder_at(parent).exists(name):
            continue
        try:
            reader = source.spark.read.format("parquet").schema("_ int").option("recursiveFileLookup", "true")
            found = listing(source.spark, reader.load(folder))
        except DatasetNotFoundError:
            continue
        late = [file.uri for file in found if (file.uri, file.size, file.mtime) not in known]
        if late:
            raise ConflictError(
                f"{late[0]} was written to {folder} after {source.name} was rewritten, and is not in the new folder; "
                "nothing was removed: append its rows, as with dataset.append(spark.read.parquet(...)), and remove it"
            )
