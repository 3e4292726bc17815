"""Replacing the content of a folder by new files, in steps that the next writer can finish.

Spark empties a folder before it writes. Here the rows are written to a folder within it, under a name that readers
ignore, and then replace the old files: so they may be read from these, which stay if writing fails.

*A crash* before the replacement leaves the dataset unchanged, and a folder that the next writer removes. A crash during
the replacement leaves some of the old files, or some of the new ones. The others of the new ones are in the hidden
folder, with the names of the old ones: the next writer of geoskip finishes the replacement, and raises ConflictError,
since rows that it was given may have been read from the incomplete dataset.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pyspark.sql import DataFrameWriter, SparkSession

from geoskip.errors import ConflictError
from geoskip.lifecycle.log import now, who
from geoskip.spark.build.spark_jobs import explain_errors
from geoskip.spark.dataset.rewrite_folders import JOURNAL, is_abandoned, owner_of, rename_folder
from geoskip.spark.filesystem import HadoopFolder, folder_at

_NEW = "_geoskip_new_"
_REPLACED = "_geoskip_replaced.json"
"""Names in the dataset's folder that are removed; it exists once all rows are written."""
_REMOVED = "_geoskip_removed"
"""It exists once these are removed, after which the new files are moved."""
_MOST = 1 << 30
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
                replaced = [each for each in folder.names("") if each != name]
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
        If files were replaced: rows that were read before have to be read again.
    """
    with explain_errors(f"an interrupted overwrite of {root} could not be finished"):
        folder = HadoopFolder(root)
        for name in folder.names(""):
            owner = owner_of(folder_at(f"{root}/{name}"), JOURNAL) if name.startswith(_NEW) else None
            if owner is None or name in _running or not (owner.get("who") == who() or is_abandoned(owner)):
                continue
            if not folder.exists(f"{name}/{_REPLACED}"):
                folder.delete(name)
                continue
            _replace(spark, root, name)
            raise ConflictError(
                f"an overwrite of {root} at {owner.get('when')} was interrupted, and is finished now: nothing else "
                "was written; read its rows again if yours are from there, and repeat the call"
            )


def _replace(spark: SparkSession, root: str, name: str) -> None:
    """Remove the replaced files and move the new ones, from any step on."""
    folder, new = HadoopFolder(root), folder_at(f"{root}/{name}")
    rest = f"the rest of its new files are in {root}/{name}: the next write() moves them"
    with explain_errors(f"{root} is overwritten in part; {rest}"):
        if not new.exists(_REMOVED):
            for each in json.loads(new.read(_REPLACED, _MOST)):
                folder.delete(each)
            new.create(_REMOVED, b"")
        for each in folder.names(name):
            if each not in (JOURNAL, _REPLACED, _REMOVED):
                rename_folder(spark, f"{root}/{name}/{each}", f"{root}/{each}")
        folder.delete(name)
    spark.catalog.refreshByPath(root)
