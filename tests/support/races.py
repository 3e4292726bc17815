"""Races of writers for the same files, on any Hadoop file system."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from geoskip.spark.filesystem import HadoopFolder

WRITERS = 4


def race_to_create(location: str, files: int) -> list[list[str]]:
    """Make all writers create the files ``sub/0``, ``sub/1``, ...; return the names that each created."""
    start = threading.Barrier(WRITERS)

    def write(writer: int) -> list[str]:
        created = []
        for file in range(files):
            start.wait(60)
            try:
                HadoopFolder(location).create(f"sub/{file}", str(writer).encode())
                created.append(str(file))
            except FileExistsError:
                pass
        return created

    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(write, range(WRITERS)))
