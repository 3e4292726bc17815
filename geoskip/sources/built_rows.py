"""Rows of the file table for files that a build reads, with their fingerprints.

Fingerprints are taken before the data are read and compared afterwards: a file that changed or vanished meanwhile,
or that could not be read, stays without metadata, with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from geoskip.errors import GeoskipError
from geoskip.indexes.base import is_own
from geoskip.metadata import FileRow, IndexEntry
from geoskip.report import count_of
from geoskip.sources.arrow_reader import FileResult
from geoskip.sources.listed_files import (
    UNNAMEABLE,
    FileListing,
    ListedFile,
    after_clock_tick,
    etags_of,
    list_again,
    reason_of_change,
    relative_path,
)


@dataclass
class BuiltRows:
    """Rows of the file table for some files, with the files and summaries that are missing."""

    rows: list[FileRow] = field(default_factory=list)
    excluded: dict[str, str] = field(default_factory=dict)
    readers: dict[str, set[str]] = field(default_factory=dict)
    failures: dict[str, list[str]] = field(default_factory=dict)

    def __add__(self, other: BuiltRows) -> BuiltRows:
        names = {**self.readers, **other.readers}
        return BuiltRows(
            [*self.rows, *other.rows],
            {**self.excluded, **other.excluded},
            {name: self.readers.get(name, set()) | other.readers.get(name, set()) for name in names},
            {**self.failures, **other.failures},
        )

    def reader_texts(self) -> dict[str, str]:
        """The readers of each index's data, as one text."""
        return {name: " and ".join(sorted(names)) for name, names in self.readers.items()}

    def incomplete(self) -> dict[str, str]:
        """Indexes without summaries of some files, with the first reason."""
        return {
            name: f"{count_of(len(texts), 'file')}, the first of them {texts[0]}"
            for name, texts in self.failures.items()
        }


def build_rows(
    root: str,
    entries: Sequence[IndexEntry],
    files: Sequence[ListedFile],
    read: Callable[[Sequence[ListedFile]], Mapping[str, FileResult]],
    relist: Callable[[], FileListing] | None,
) -> BuiltRows:
    """Create the rows of some files; raise GeoskipError if an index fails on all of them.

    Parameters
    ----------
    root
        URI of the folder that paths are relative to.
    entries
        The indexes to summarise in each file.
    files
        The files to read.
    read
        Reads files, and returns the result of each by its URI.
    relist
        Lists the dataset again; None if files never change, as in Delta tables.
    """
    built = BuiltRows(excluded={relative_path(file.uri, root): UNNAMEABLE for file in files if not file.is_nameable})
    files = [file for file in files if file.is_nameable]
    if not files or not entries:
        return built
    files = files if relist is None else after_clock_tick(files, relist)
    etags = {} if relist is None else etags_of(files)
    results = read(files)
    now = {} if relist is None else list_again(files, relist)
    for file in files:
        result, etag = results[file.uri], etags.get(file.uri)
        path = relative_path(file.uri, root)
        changed = None if relist is None else reason_of_change(file, now.get(file.uri), etag)
        if why := changed or result.problem:
            built.excluded[path] = why
            continue
        for name, reader in result.readers.items():
            built.readers.setdefault(name, set()).add(reader)
        for name, text in {**_misfits(entries, result), **result.failures}.items():
            built.failures.setdefault(name, []).append(f"{path}: {text}")
        built.rows.append(FileRow(path, file.size, file.mtime, etag, result.rows, result.summaries))
    for name, texts in built.failures.items():
        if len(texts) == len(built.rows):
            raise GeoskipError(f"{name} cannot be collected from any file: {texts[0]}")
    return built


def _misfits(entries: Sequence[IndexEntry], result: FileResult) -> dict[str, str]:
    """Reasons why summaries of user-defined index types do not fit their ``metadata_type``, by index."""
    own = [entry for entry in entries if not is_own(type(entry.index))]
    found = {entry.name: misfit(result.summaries.get(entry.name), entry.arrow) for entry in own}
    return {name: why for name, why in found.items() if why is not None}


def misfit(summary: Mapping[str, object] | None, arrow: pa.DataType) -> str | None:
    """Reason why a summary cannot be stored as a struct type, or None.

    A field may be missing, and is stored as null. A summary with both a missing and an unknown field has a misspelt
    one.
    """
    if summary is None:
        return None
    fields = [field.name for field in arrow]
    unknown = [name for name in summary if name not in fields]
    if unknown and not summary.keys() >= set(fields):
        return (
            f"collect or merge returned the field {unknown[0]!r}, but metadata_type has {', '.join(map(repr, fields))}"
        )
    try:
        pa.array([summary], arrow)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        return f"collect or merge returned {summary!r:.80}, which is not {arrow}: {error}"
    return None
