"""The folder that identifies a dataset, and in which its metadata are kept.

========================== ======================================================================
a directory, a table       the directory, the table's location
a file                     the folder that holds it
a glob                     the folder before the first part with a wildcard, however much it matches
a list                     the folder that holds all of it
========================== ======================================================================

Handles on one folder, given in different ways, share its metadata. A query finds them from each path that it reads by
looking in the folders above.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from geoskip.errors import InvalidSpecificationError

__all__ = ["below", "globbed", "is_glob", "qualified", "root_of", "shared_folder"]

_WILDCARDS = re.compile(r"[{}\[\]*?\\]")  # what Spark takes for a glob
_URI = re.compile(r"(?P<system>[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?)?(?P<path>.*)", re.DOTALL)


def is_glob(path: str) -> bool:
    """Would Spark take this path for a glob?"""
    return _WILDCARDS.search(path) is not None


def literal_head(glob: str) -> str:
    """The folder before the first part with a wildcard.

    >>> literal_head("/data/year=*/x"), literal_head("s3a://b/*.csv"), literal_head("*.csv")
    ('/data', 's3a://b/', '.')
    """
    found = _URI.fullmatch(glob)
    system, path = (found["system"] or "", found["path"]) if found else ("", glob)
    wildcard = _WILDCARDS.search(path)
    head = path[: wildcard.start()] if wildcard else path
    folder = head.rpartition("/")[0]
    return system + folder if folder else system + "/" if path.startswith("/") else "."


_IN_A_GLOB = {"*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")"}


def globbed(glob: str) -> re.Pattern[str]:
    """What a glob of Hadoop's finds when it is there, and what lies below that; for no glob, nothing.

    >>> [bool(globbed("/d/p=*/{a,b}?.x").fullmatch(path)) for path in ("/d/p=7/b1.x", "/d/p=7/b1.x/y", "/d/p=7/e/b1.x")]
    [True, True, False]
    """
    text, depth, position = "", 0, 0
    while position < len(glob):
        sign = glob[position]
        position += 1
        end = glob.find("]", position + 1)
        if sign == "\\" and position < len(glob):
            text += re.escape(glob[position])
            position += 1
        elif sign == "[" and end > 0:
            negated = glob[position] in "!^"
            members = glob[position + negated : end].replace("\\", r"\\").replace("[", r"\[")
            text += f"[{'^' * negated}{members}]"
            position = end + 1
        elif sign == "," and depth:
            text += "|"
        elif sign != "}" or depth:
            depth += {"{": 1, "}": -1}.get(sign, 0)
            text += _IN_A_GLOB.get(sign, re.escape(sign))
        else:
            text += r"\}"
    try:
        return re.compile(f"{text}(?:/.*)?", re.DOTALL)
    except re.error:
        return re.compile(r"(?!)")


def shared_folder(uris: Sequence[str]) -> str:
    """The deepest folder that holds all of these.

    >>> shared_folder(["file:/data/a", "file:/data/b/c"]), shared_folder(["s3a://b/x", "s3a://b/y"])
    ('file:/data', 's3a://b/')
    """
    split = [(found["system"] or "", found["path"].split("/")) for uri in uris if (found := _URI.fullmatch(uri))]
    systems = sorted({system for system, _ in split})
    if len(systems) != 1:
        raise InvalidSpecificationError(
            f"one dataset cannot span the file systems {' and '.join(systems)}; make a handle of each"
        )
    parts = [path for _, path in split]
    count = 0
    while count < min(map(len, parts)) and len({path[count] for path in parts}) == 1:
        count += 1
    return systems[0] + ("/".join(parts[0][:count]) or "/")


def below(uri: str, roots: Sequence[str]) -> bool:
    """Does a file lie in one of these folders, or is it one of them?"""
    return any(uri == root or uri.startswith(root.rstrip("/") + "/") for root in roots)


def root_of(spark: SparkSession, paths: Sequence[str] | None, roots: Sequence[str]) -> str:
    """The root of a dataset given as these paths (None for a table), whose relation has these root paths."""
    globs = [path for path in paths or () if is_glob(path)]
    if not globs and len(roots) == 1:
        return roots[0] if paths is None or _is_directory(spark, roots[0]) else roots[0].rpartition("/")[0]
    return shared_folder([*roots, *(qualified(spark, literal_head(path)) for path in globs)])


def qualified(spark: SparkSession, path: str) -> str:
    """A path as Hadoop writes it: with scheme and authority, absolute, not percent-encoded."""
    found, system = _resolved(spark, path)
    return str(found.makeQualified(system.getUri(), system.getWorkingDirectory()).toString())


def _is_directory(spark: SparkSession, uri: str) -> bool:
    path, system = _resolved(spark, uri)
    return bool(system.getFileStatus(path).isDirectory())


def _resolved(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm
    found = jvm.org.apache.hadoop.fs.Path(path)
    conf: Any = spark._jsparkSession.sessionState().newHadoopConf()
    return found, found.getFileSystem(conf)
