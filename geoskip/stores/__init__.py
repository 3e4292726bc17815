"""Where metadata are kept: the contract is :class:`Store`; the Parquet store is the default."""

from geoskip.stores.base import Store
from geoskip.stores.folders import Folder, LocalFolder
from geoskip.stores.memory import MemoryStore
from geoskip.stores.parquet import ParquetStore

__all__ = ["Folder", "LocalFolder", "MemoryStore", "ParquetStore", "Store"]
