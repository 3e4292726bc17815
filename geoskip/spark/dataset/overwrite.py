"""Replacing the content of a folder by new files, in steps that the next writer can finish.

Spark empties a folder before it writes. Here the rows are written to a folder within it, under a name that readers
ignore, and then replace the old files: so they may be read from these, which stay if writing fails.

*A crash* before the replacement leaves the dataset unchanged, and a folder that the next writer removes. A crash during
the replacement leaves some of the old files, or some of the new ones. The others of the new ones are in the hidden
folder, with the names of the old ones: the next writer of geoskip finishes the replacement, and raises ConflictError,
since rows that it was given may have been read from the incomplete dataset. Only the old files that were listed are
removed, one by one, so that files that others have added since stay, and two processes may finish it at once. While
the process that replaces files is not known to be dead, writers of geoskip raise ConflictError.

*Two overwrites* of a folder replace files one after the other: each creates a file in its hidden folder before it
lists the old files, and the one that then finds that of another raises ConflictError.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrameWriter, SparkSession

from geoskip.errors import ConflictError, StoreError
from geoskip.lifecycle.log import now, person_of, who
from geoskip.spark.build.listing import resolve_path
from geoskip.spark.build.spark_jobs import explain_errors
from geoskip.spark.dataset.rewrite_folders import JOURNAL, is_abandoned, owner_of
from geoskip.spark.filesystem import HadoopFolder, folder_at

_NEW = "_geoskip_new_"
_BEGUN = "_geoskip_begun"
"""It exists once all rows are written, before the old files are listed."""
_REPLACED = "_geoskip_replaced.json"
"""Paths of the old files, which are removed."""
_REMOVED = "_geoskip_removed"
"""It exists once these are removed, after which the new files are moved."""
_MARKERS = (JOURNAL, _BEGUN, _REPLACED, _REMOVED)
_MOST = 1 << 30
_AT_ONCE = 8
_running: set[str] = set()
"""Hidden folders that threads of this process are writing."""


def overwrite(spark: SparkSession, writer: DataFrameWriter, root: str, options: Mapping[str, Any]) -> None:
    """Replace the content of a folder by the rows of a writer, once all rows are written.

    Parameters
    ----------
    spark, writer
        The session, and Spark's writer of the rows.
    root
        The URI of the folder.
    options
        The writer's options, for error messages.
    """
    folder, name = HadoopFolder(root), f"{_NEW}{uuid.uuid4().hex}"
    new = folder_at(f"{root}/{name}")
    _running.add(name)
    try:
        try:
            with explain_errors(f"{root} could not be overwritten, and is as it was", options):
                new.create(JOURNAL, json.dumps({"who": who(), "when": now()}).encode())
                writer.mode("append").parquet(f"{root}/{name}")
                new.create(_BEGUN, b"")
                hidden = [each for each in folder.names("") if each.startswith(_NEW)]
                if others := [each for each in hidden if each != name and folder.exists(f"{each}/{_BEGUN}")]:
                    raise ConflictError(
                        f"{root} is being overwritten by another writer too, whose new files are in {others[0]}: this "
                        "one has changed nothing, so try again"
                    )
                hidden = [each for each in hidden if folder.exists(f"{each}/{JOURNAL}")]
                if name not in hidden:
                    raise ConflictError(f"another writer has emptied {root}, with the rows of this one: try again")
                replaced = [path for path in folder.files() if path.partition("/")[0] not in hidden]
                new.create(_REPLACED, json.dumps(replaced).encode())
        except BaseException:
            with suppress(OSError):
                folder.delete(name)
            raise
        _replace(spark, root, name)
    finally:
        _running.discard(name)


def finish_overwrites(spark: SparkSession, root: str) -> None:
    """Finish or undo the overwrites of a folder that were interrupted.

    Raises
    ------
    ConflictError
        If files were replaced: rows that were read before have to be read again. Also if another process has begun to
        replace files, and is not known to be dead.
    """
    with explain_errors(f"an interrupted overwrite of {root} could not be finished"):
        folder = HadoopFolder(root)
        for name in folder.names(""):
            if not name.startswith(_NEW):
                continue
            owner = owner_of(folder_at(f"{root}/{name}"), JOURNAL)
            is_running = owner is not None and owner.get("who") != who() and not is_abandoned(owner)
            is_running = is_running or name in _running
            if folder.exists(f"{name}/{_REPLACED}"):
                owner = owner or {}
                if is_running:
                    raise ConflictError(
                        f"{root} is being overwritten by {person_of(owner.get('who') or {}) or 'another process'} "
                        f"since {owner.get('when')}, and nothing else was written: wait for it; if that process is "
                        f"gone, remove {root}/{name}/{JOURNAL}, and the next write() finishes what it has begun"
                    )
                _replace(spark, root, name)
                raise ConflictError(
                    f"an overwrite of {root} at {owner.get('when')} was interrupted, and is finished now: nothing else "
                    "was written; read its rows again if yours are from there, and repeat the call"
                )
            if owner is not None and not is_running:
                folder.delete(name)


def _replace(spark: SparkSession, root: str, name: str) -> None:
    """Remove the replaced files and move the new ones, from any step on; others may do the same at once."""
    folder, new = HadoopFolder(root), folder_at(f"{root}/{name}")
    rest = f"the rest of its new files are in {root}/{name}: the next write() moves them"
    with explain_errors(f"{root} is overwritten in part; {rest}"):
        if not new.exists(_REMOVED):
            replaced = json.loads(new.read(_REPLACED, _MOST))
            folder.delete_files(replaced)
            above = {path[:end] for path in replaced for end, sign in enumerate(path) if sign == "/"}
            for each in sorted(above, key=len, reverse=True):
                folder.delete_if_empty(each)
            new.create(_REMOVED, b"")
        _, system = resolve_path(spark, root)
        path_at: Any = spark._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]
        moved = [path for path in folder.files(name) if path.partition("/")[2] not in _MARKERS]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            places = [(path_at(f"{root}/{path}"), path_at(f"{root}/{path.partition('/')[2]}")) for path in moved]
            list(pool.map(lambda place: _move(system, *place), places))
        new.delete(_REPLACED)  # first, so that nobody finishes what is complete
        folder.delete(name)
    spark.catalog.refreshByPath(root)


def _move(system: Any, old: Any, new: Any) -> None:
    """Move a file; one of the same name was moved by another process, since Spark's names are unique.

    Parameters
    ----------
    system, old, new
        Hadoop's file system, and the paths.
    """
    if new.getName() == "_SUCCESS":
        system.delete(new, False)
    system.mkdirs(new.getParent())
    failure: Exception = StoreError(f"{old.toString()} could not be moved to {new.toString()}")
    try:
        if system.exists(new) or system.rename(old, new):
            return
    except Py4JJavaError as error:
        failure = error
    if system.exists(old) and not system.exists(new):
        raise failure
