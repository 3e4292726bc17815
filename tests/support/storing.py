"""Stores to test, and the contents that tests write to them.

To test a store of your own, add a function of an empty folder to :data:`STORES`; two calls with one folder return two
handles of the same metadata.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from geoskip.errors import ConflictError
from geoskip.indexes.base import Index, index
from geoskip.metadata import FileRow, Header, IndexEntry, build_table, conform
from geoskip.predicates import Column
from geoskip.stores import MemoryStore, ParquetStore, Store
from geoskip.stores.encryption import Encryption
from geoskip.stores.keyring import KeyRing
from tests.support.readme import README, blocks


@index
@dataclass(frozen=True)
class Least(Index):
    """Index of the least value, with only what the tests of stores need."""

    column: str
    kind: ClassVar[str] = "test_least"

    def metadata_type(self, *columns): ...
    def collect(self, *values): ...
    def merge(self, summaries): ...
    def clause(self, node): ...


class ByteFolder:
    """A folder of bytes in memory, like a remote file system: parts must be copied to be read."""

    def __init__(self, cache: Path) -> None:
        self.location, self.cache, self.files = "bytes:", cache, {}

    def names(self, sub: str) -> list[str]:
        return sorted({n.removeprefix(f"{sub}/").split("/")[0] for n in list(self.files) if n.startswith(f"{sub}/")})

    def read(self, name: str, limit: int) -> bytes:
        try:
            return self.files[name][:limit]
        except KeyError:
            raise FileNotFoundError(name) from None

    def create(self, name: str, data: bytes) -> None:
        if self.files.setdefault(name, data) is not data:
            raise FileExistsError(name)

    def put(self, name: str, source: Path) -> None:
        self.files[name] = source.read_bytes()

    def local(self, name: str) -> Path:
        path = self.cache / name.replace("/", "_")
        if not path.exists():
            half = path.with_suffix(f".{threading.get_ident()}")
            half.write_bytes(self.read(name, sys.maxsize))
            half.replace(path)
        return path

    def delete(self, name: str) -> None:
        for known in [n for n in list(self.files) if n == name or n.startswith(f"{name}/")]:
            self.files.pop(known, None)

    def exists(self, name: str) -> bool:
        return bool(self.names(name)) or name in self.files


@functools.cache
def memory(path: Path) -> Store:
    return MemoryStore()


@functools.cache
def byte_folder(path: Path) -> ByteFolder:
    path.mkdir()
    return ByteFolder(path)


@functools.cache
def guides() -> Callable[[Path], Store]:
    """The store class in the guide's block about a store of your own."""
    page = README.parent / "examples" / "guides" / "metadata_stores_and_encryption.md"
    block = next(block for block, _ in blocks(page) if "(Store):" in block)
    names: dict[str, Any] = {"pa": pa}
    exec(block.partition("\n\n\nelsewhere")[0], names)
    return names["SqliteStore"]


KEYS = Encryption(KeyRing({"base": bytes(32), "own": bytes(16)}), "base", indexes={"test_least(a)": "own"})
STORES: dict[str, Callable[[Path], Store]] = {
    "memory": memory,
    "parquet": ParquetStore,
    "parquet, protected": lambda path: ParquetStore(path, encryption=KEYS),
    "parquet on a distant folder": lambda path: ParquetStore(byte_folder(path)),
    "the guide's": lambda path: guides()(path),
}


def entry(column: str = "a") -> IndexEntry:
    type_ = pa.struct([("least", pa.int64()), ("words", pa.list_(pa.string()))])
    return IndexEntry(Least(column).bind([Column(column, "bigint")]), ((column, "bigint"),), type_, {"zone": "UTC"})


def table(values: dict[str, int | None], column: str = "a") -> pa.Table:
    def summary(value: int | None) -> dict[str, Any] | None:
        return None if value is None else {"least": value, "words": ["x", None]}

    name = f"test_least({column})"
    rows = [FileRow(path, 5, 6, None, None, {name: summary(v)}) for path, v in values.items()]
    return build_table([entry(column)], rows)


HEADER = Header("file:/data", {"format": "parquet"}, (entry(),))


def begun(store: Store, **values: int | None) -> Header:
    return store.commit(HEADER, table(values or {"f": 1}), expected=None)


def content(store: Store, number: int | None = None, column: str = "a") -> dict[str, int | None]:
    latest = store.latest() if number is None else number
    assert latest is not None
    files = store.load(latest).files
    return dict(
        zip(files.column("path").to_pylist(), files.summary(f"test_least({column})", "least").to_pylist(), strict=True)
    )


def removed(*rows: int, of: int) -> pa.Array:
    return pa.array([row in rows for row in range(of)], pa.bool_())


def in_threads(work: Callable[[int], None], count: int) -> None:
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


def append(store: Store, name: str, times: int) -> None:
    """Add a file to the latest snapshot, several times."""
    for i in range(times):
        while True:
            snapshot = store.load(store.latest())
            old = snapshot.files.table()
            try:
                grown = pa.concat_tables([old, conform(table({f"{name}-{i}": i}), old.schema)])
                store.commit(snapshot.header, grown, expected=snapshot.header.number)
                break
            except ConflictError:
                continue
