"""What geoskip does in Spark's Python workers before its own work there."""

from __future__ import annotations

import os
import sys
from zipimport import zipimporter

__all__ = ["settle_imports"]


class _CachedZipImporter(zipimporter):
    """Reads its archive's directory again only where the archive has changed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._seen = self._now()

    def _now(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self.archive)
        except OSError:
            return None
        return status.st_size, status.st_mtime_ns

    def invalidate_caches(self) -> None:
        now = self._now()
        if now is None or now != self._seen:
            super().invalidate_caches()
            self._seen = now


def settle_imports() -> None:
    """Spare this worker a tenth of a second a task and archive.

    Spark calls ``importlib.invalidate_caches()`` before every task, and Python 3.11 then reads the directories of all
    archives on the path at once (CPython's gh-103200): of ``pyspark.zip`` and of each jar of ``spark.jars.packages``.
    """
    if sys.version_info >= (3, 12):
        return
    for path, finder in list(sys.path_importer_cache.items()):
        if type(finder) is zipimporter:
            sys.path_importer_cache[path] = _CachedZipImporter(path)
