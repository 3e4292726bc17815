"""Where metadata are kept: the contract is :class:`Store`; the Parquet store is the default."""

from geoskip.stores.base import Store, entry_json, header_json, lost, new_identity, stamped
from geoskip.stores.elasticsearch import ElasticsearchStore
from geoskip.stores.folders import Folder, LocalFolder
from geoskip.stores.memory import MemoryStore
from geoskip.stores.parquet import ParquetStore

__all__ = [
    "ElasticsearchStore",
    "Folder",
    "LocalFolder",
    "MemoryStore",
    "ParquetStore",
    "Store",
    "entry_json",
    "header_json",
    "lost",
    "new_identity",
    "stamped",
]
