"""Folders of a rewrite: new files, replaced folders, and the journals of running processes.

A rewrite creates its files in a folder beside the dataset with a name that begins with ``_geoskip-rewrite-``, which
Spark's readers of the parent folder ignore. A *journal* in it records the process, the folder that is rewritten and its
files. The complete folder gets its final name by one rename and keeps the journal. Leftovers of dead processes are
removed by the next rewrite: incomplete folders, and complete ones to which a table was not switched. Replaced files
stay until :func:`remove_replaced`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from geoskip.errors import ConflictError, DatasetNotFoundError, MetadataError, StoreError
from geoskip.lifecycle.log import age, is_dead, now, person_of, who
from geoskip.report import count_of
from geoskip.sources.listed_files import ListedFile, is_below
from geoskip.sources.progress import delayed_progress
from geoskip.spark.build.listing import listing, resolve_path
from geoskip.spark.build.spark_jobs import explain_errors
from geoskip.spark.catalog import FOLDER as METADATA
from geoskip.spark.dataset.source import DatasetSource
from geoskip.spark.filesystem import folder_at
from geoskip.stores.log_files import Folder, local_path

JOURNAL = "_geoskip_rewrite.json"
LOCK = "_geoskip_rewriting.json"
SWITCHED = "_geoskip_switched"
_STAGING = "_geoskip-rewrite-"
_ROWS = "rows"
_NAMED = re.compile(r"\.geoskip-[0-9a-f]{8}$")
_ABANDONED = timedelta(days=7).total_seconds()
"""Age in seconds from which a rewrite on another machine is considered dead."""
_COPIES_AT_ONCE = 8
_MOST = 1 << 30


@dataclass(frozen=True)
class NewFolder:
    """The folder of a rewrite: its temporary and its final location."""

    outer: str
    """The temporary folder beside the dataset, which readers ignore by its name."""
    final: str

    @property
    def staging(self) -> str:
        """The folder in ``outer`` that is renamed to the final one: Spark warns if it reads ``outer`` itself."""
        return f"{self.outer}/{_ROWS}"

    @classmethod
    def beside(cls, root: str, to: str | None) -> NewFolder:
        """The folder for the rewritten files of a dataset.

        Parameters
        ----------
        root
            The URI of the dataset's folder.
        to
            The URI of the new folder; by default one beside the dataset, named after it.

        >>> folder = NewFolder.beside("file:/data/trips", None)
        >>> [place.rpartition("/")[2][:20] for place in (folder.outer, folder.staging)]
        ['_geoskip-rewrite-tri', 'rows']
        """
        number = uuid.uuid4().hex[:8]
        parent, _, name = (to or root).rstrip("/").rpartition("/")
        final = to.rstrip("/") if to else f"{parent}/{_NAMED.sub('', name)}.geoskip-{number}"
        return cls(f"{parent}/{_STAGING}{name}-{number}", final)


def begin(folder: NewFolder, root: str, files: Sequence[ListedFile], table: str | None, read: Set[str]) -> None:
    """Create the temporary folder with its journal.

    Parameters
    ----------
    folder
        The new folder.
    root
        The URI of the folder that is rewritten.
    files
        All files in that folder.
    table
        The name of the table to switch to the new folder, or None.
    read
        The URIs of the files that belong to the dataset. Others, such as those in folders that readers ignore, are not
        in the new folder, and never removed.
    """
    journal = {
        "who": who(),
        "when": now(),
        "from": root,
        "table": table,
        "files": [[file.uri, file.size, file.mtime] for file in files if file.uri in read],
        "others": [[file.uri, file.size, file.mtime] for file in files if file.uri not in read],
    }
    folder_at(folder.staging).create(JOURNAL, json.dumps(journal).encode())


def journal_of(root: str) -> dict[str, Any] | None:
    """The journal of the rewrite that created a folder, or None; raises MetadataError for damage."""
    try:
        found = json.loads(folder_at(root).read(JOURNAL, _MOST))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise MetadataError(f"{root}/{JOURNAL} cannot be read: {error}") from None
    return found if isinstance(found, dict) else None


@contextmanager
def exclusive(root: str) -> Iterator[None]:
    """Context in which no other rewrite switches a table away from a folder.

    Raises ConflictError if another rewrite is running. The lock of a dead process is removed.
    """
    folder = folder_at(root)
    mine = json.dumps({"who": who(), "when": now(), "id": uuid.uuid4().hex}).encode()
    for _ in range(3):
        try:
            folder.create(LOCK, mine)
            break
        except FileExistsError:
            owner = owner_of(folder, LOCK)
            if owner is not None and not is_abandoned(owner):
                raise ConflictError(
                    f"{root} is being rewritten by {person_of(owner.get('who') or {}) or 'another process'} since "
                    f"{owner.get('when')}; wait for it, or remove {LOCK} there if that process is gone"
                ) from None
            folder.delete(LOCK)
    else:
        raise ConflictError(f"{root} is being rewritten by other processes in turn; try again")
    try:
        yield
    finally:
        with suppress(OSError):
            if folder.read(LOCK, _MOST) == mine:
                folder.delete(LOCK)


def is_abandoned(owner: Mapping[str, Any]) -> bool:
    """Test whether the process of a journal or a lock is gone; on other machines by age."""
    here, there = who(), owner.get("who") or {}
    if (there.get("host"), there.get("machine")) == (here["host"], here["machine"]):
        return is_dead({"who": there, "seen": now()})
    return abs(age(str(owner.get("when")))) > _ABANDONED


def remove_abandoned(root: str, used: Sequence[str]) -> list[str]:
    """Remove leftovers beside a dataset from rewrites of dead processes; returns the URIs of the folders.

    Parameters
    ----------
    root
        The URI of the dataset's folder.
    used
        URIs of folders with files of the dataset, which are kept.
    """
    parent, _, name = root.rstrip("/").rpartition("/")
    beside = folder_at(parent)
    base = _NAMED.sub("", name)
    removed = []
    with suppress(OSError):
        for each in beside.names(""):
            is_staging = each.startswith((f"{_STAGING}{name}-", f"{_STAGING}{base}-"))
            is_final = each != name and _NAMED.search(each) is not None and _NAMED.sub("", each) == base
            uri = f"{parent}/{each}"
            if not (is_staging or is_final) or any(f"{place}/".startswith(f"{uri}/") for place in used):
                continue
            owner = owner_of(folder_at(uri if is_final else f"{uri}/{_ROWS}"), JOURNAL)
            if is_final and not _was_for_a_table(uri, owner, root):
                continue
            if owner is None or is_abandoned(owner):
                beside.delete(each)
                removed.append(uri)
    return removed


def _was_for_a_table(uri: str, owner: dict[str, Any] | None, root: str) -> bool:
    """Test whether a complete folder was created for a table that was never switched to it."""
    is_of_table = owner is not None and owner.get("from") == root and bool(owner.get("table"))
    return is_of_table and not folder_at(uri).exists(SWITCHED)


def owner_of(folder: Folder, name: str) -> dict[str, Any] | None:
    """The content of a journal or a lock, or None without a readable one."""
    try:
        found = json.loads(folder.read(name, _MOST))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def copy_files(spark: SparkSession, files: Sequence[tuple[str, str]]) -> None:
    """Copy files to new locations, several at a time.

    Hard links would suffice for the rows, but adding or removing a link changes the file's change time, which is part
    of the fingerprints in the metadata.

    Parameters
    ----------
    spark
        The session.
    files
        The URIs of each file and of its copy.
    """
    with (
        ThreadPoolExecutor(_COPIES_AT_ONCE) as pool,
        delayed_progress(f"copying {count_of(len(files), 'file')}", "files", len(files)) as advance,
    ):
        for copied, _ in enumerate(pool.map(lambda pair: _copy(spark, *pair), files), 1):
            advance(copied)


def _copy(spark: SparkSession, source: str, target: str) -> None:
    old_path, new_path = local_path(source), local_path(target)
    if old_path is not None and new_path is not None:
        Path(new_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(old_path, new_path)
        return
    (old, system), (new, other) = resolve_path(spark, source), resolve_path(spark, target)
    jvm: Any = spark._jvm
    jvm.org.apache.hadoop.fs.FileUtil.copy(system, old, other, new, False, system.getConf())


def rename_folder(spark: SparkSession, source: str, target: str) -> None:
    """Rename a folder; raises StoreError if this fails or the target exists."""
    (old, system), (new, _) = resolve_path(spark, source), resolve_path(spark, target)
    if system.exists(new):
        raise StoreError(f"{target} exists, so nothing was moved there: name another folder, or remove it")
    if not system.rename(old, new):
        raise StoreError(f"{source} could not be renamed to {target}; the dataset is as it was")


def check_room(place: str, needed: int) -> None:
    """Raise StoreError if a local disk has fewer than ``needed`` free bytes."""
    path = local_path(place)
    while path is not None and not os.path.isdir(path):
        path = os.path.dirname(path)
    if path is not None and (free := shutil.disk_usage(path).free) < needed:
        raise StoreError(
            f"{place} has {free:,} bytes of room, and the new files need about {needed:,}; nothing was changed: make "
            "room, or name a folder on another disk with to="
        )


# --- old files --------------------------------------------------------------------------------------------------------


def remove_files(root: str, files: Sequence[str]) -> None:
    """Remove files that a rewrite has replaced, their metadata, and the empty folders.

    Parameters
    ----------
    root
        The URI of the folder that was rewritten.
    files
        The URIs of the files.
    """
    folders: set[str] = set()
    with explain_errors(f"the replaced files of {root} could not be removed"):
        with delayed_progress(f"removing {count_of(len(files), 'file')}", "files", len(files)) as advance:
            for removed, uri in enumerate(files, 1):
                parent, _, name = uri.rpartition("/")
                folder_at(parent).delete(name)
                folder_at(parent).delete(f".{name}.crc")
                folders.add(parent)
                advance(removed)
        for name in (METADATA, SWITCHED, JOURNAL, "_SUCCESS", "._SUCCESS.crc"):
            folder_at(root).delete(name)
        for folder in sorted({*folders, root}, key=len, reverse=True):
            _prune(folder, root)


def _prune(folder: str, root: str) -> None:
    """Remove a folder if it is empty, and its empty parents up to the root."""
    while f"{folder}/".startswith(f"{root.rstrip('/')}/"):
        if any(not name.endswith(".crc") for name in folder_at(folder).names("")):
            return
        folder_at(folder).delete("")
        folder = folder.rstrip("/").rpartition("/")[0]


# --- removal of replaced files ----------------------------------------------------------------------------------------


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
        if not folder_at(folder).exists(""):
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
