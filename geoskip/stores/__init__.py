"""Stores of metadata: the contract is :class:`Store`; the Parquet store is the default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geoskip.stores.base import MemoryStore, Store, entry_conflict, entry_json, header_json, new_identity, next_snapshot
from geoskip.stores.log_files import Folder, LocalFolder
from geoskip.stores.parquet import ParquetStore

if TYPE_CHECKING:
    from geoskip.stores.search import ElasticsearchStore

__all__ = [
    "ElasticsearchStore",
    "Folder",
    "LocalFolder",
    "MemoryStore",
    "ParquetStore",
    "Store",
    "entry_conflict",
    "entry_json",
    "header_json",
    "new_identity",
    "next_snapshot",
]


def __getattr__(name: str) -> Any:
    if name == "ElasticsearchStore":  # which needs all index types
        from geoskip.stores.search import ElasticsearchStore

        return ElasticsearchStore
    raise AttributeError(f"module 'geoskip.stores' has no attribute {name!r}")
