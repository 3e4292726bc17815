"""The daemon from which Spark's Python workers are forked in tests, with their usual imports.

It also caches the directories of archives until they change, as :mod:`geoskip.sources.arrow_reader` does for the tasks
of a build: Spark invalidates them before every task, for each jar of ``spark.jars.packages``.
"""

from __future__ import annotations

import os
from zipimport import zipimporter

import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
import pytest  # noqa: F401
import shapely  # noqa: F401
from pyspark import daemon

import geoskip.sources.arrow_reader  # noqa: F401
import udf_mappings.shapely_functions  # noqa: F401

_again = zipimporter.invalidate_caches
_seen: dict[str, tuple[int, int]] = {}


def _where_changed(archive: zipimporter) -> None:
    status = os.stat(archive.archive)
    now = (status.st_size, status.st_mtime_ns)
    if _seen.get(archive.archive) != now:
        _again(archive)
        _seen[archive.archive] = now


if __name__ == "__main__":
    zipimporter.invalidate_caches = _where_changed  # type: ignore[method-assign]
    daemon.manager()
