"""What a metadata store is: numbered, immutable snapshots of one dataset's metadata.

A store of one's own is a subclass with these few methods, and passes ``tests/test_stores.py``, which runs one suite
over all of them. What every store promises:

* a snapshot is there whole or not at all, and never changes;
* of several writers that expect the same snapshot, one wins and the others get ConflictError;
* a *log* has an identity of its own: a writer that read the log before it was dropped and begun anew cannot commit
  into the new one, whatever the numbers are;
* whoever holds a snapshot can go on reading it while others commit. What cannot be read raises MetadataError, and the
  query then reads every file.
"""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pyarrow as pa

from geoskip.errors import ConflictError, MetadataError
from geoskip.metadata import BASE_SCHEMA, FORMAT, Header, Snapshot, files_schema
from geoskip.metadata.tables import conformed

__all__ = ["Store"]

_REASONS = 1000  # a header stays small, whatever is wrong with how many files


class Store(ABC):
    """The metadata of one dataset; ``location`` is what messages call it."""

    kind: str
    location: str

    @abstractmethod
    def latest(self) -> int | None:
        """The number of the newest snapshot, None where there is none; asked at every query, so cheap."""

    @abstractmethod
    def identity(self) -> str | None:
        """The identity of the log, None where there is none."""

    @abstractmethod
    def load(self, number: int) -> Snapshot:
        """A snapshot, its columns read when asked for; raises MetadataError if it is not there or damaged."""

    @abstractmethod
    def commit(self, header: Header, table: pa.Table, *, expected: int | None) -> Header:
        """Make the next snapshot; returns its header, with what the store filled in.

        ``expected`` is the number of the snapshot that this one was made from, and ``header.identity`` the identity of
        its log; None begins a log, with an identity that the store makes. Raises ConflictError where another snapshot
        is the latest by now, or another log is there.
        """

    @abstractmethod
    def drop(self) -> None:
        """Remove all metadata; readers and writers of the log find that it is gone."""

    def size(self) -> dict[str, int]:
        """Bytes of the latest snapshot for each index, and for the ``files`` themselves: as kept, or as in memory."""
        number = self.latest()
        if number is None:
            return {}
        table = self.load(number).files.table()
        sizes = {"files": 0}
        for name in table.schema.names:
            key = "files" if name in BASE_SCHEMA.names else name
            sizes[key] = sizes.get(key, 0) + table[name].nbytes
        return sizes

    def describe(self) -> dict[str, Any]:
        """The store in a few words and numbers."""
        number = self.latest()
        sizes = self.size()
        return {
            "store": self.kind,
            "location": self.location,
            "format": FORMAT,
            "identity": self.identity(),
            "snapshot": number,
            "files": 0 if number is None else self.load(number).header.files,
            "bytes": sum(sizes.values()),
            "bytes_by_index": sizes,
        }

    def check(self, header: Header, expected: int | None) -> None:
        """Raise ConflictError unless a snapshot made from ``expected`` may be committed now."""
        latest, identity = self.latest(), self.identity()
        if latest != expected:
            raise ConflictError(
                f"another writer committed to {self.location}: snapshot {latest} is the latest, "
                f"not {expected}; load it and try again"
            )
        if expected is not None and identity != header.identity:
            raise ConflictError(
                f"the metadata in {self.location} was dropped and begun anew since snapshot {expected} of "
                f"{header.identity} was read; load it and try again"
            )


def new_identity() -> str:
    """An identity for a log, or a name for a part: 32 hexadecimal digits."""
    return uuid.uuid4().hex


def stamped(header: Header, table: pa.Table, *, number: int, identity: str) -> tuple[Header, pa.Table]:
    """The header and table as they will be stored: numbered, dated, with exactly the schema of the indexes."""
    table = conformed(table, files_schema(header.entries))
    final = replace(
        header,
        format=FORMAT,
        identity=identity,
        number=number,
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        files=table.num_rows,
        parts=(),
        reasons=dict(islice(header.reasons.items(), _REASONS)),
    )
    return final, table


def header_json(header: Header) -> dict[str, Any]:
    """The header as plain JSON; raises MetadataError for what JSON cannot hold."""
    try:
        data: dict[str, Any] = json.loads(json.dumps(header.to_json(), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise MetadataError(f"the header cannot be written as JSON: {error}") from None
    return data
