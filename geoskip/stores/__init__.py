"""Stores of metadata: the contract is :class:`Store`; the Parquet store is the default."""

from geoskip.stores.base import MemoryStore, Store, entry_conflict, entry_json, header_json, new_identity, next_snapshot
from geoskip.stores.log_files import Folder, LocalFolder
from geoskip.stores.parquet import ParquetStore
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
