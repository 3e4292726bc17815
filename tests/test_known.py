"""What a driver remembers of the datasets it knows."""

from __future__ import annotations

import pyarrow as pa

from geoskip.metadata import Header
from geoskip.spark.known import Known, key_of
from geoskip.stores.memory import MemoryStore


def test_older_snapshots_of_a_dataset_are_forgotten() -> None:
    known, store = Known(), MemoryStore()
    known.register("file:/data", store)
    header = Header(root="file:/data", source={}, entries=())
    table = pa.table({"path": ["a"], "size": [1], "mtime": [1], "etag": [None], "rows": [1]})
    keys = []
    for number in range(4):
        header = store.commit(header, table, expected=number or None)
        snapshot = known.snapshot("file:/data")
        assert snapshot is not None
        keys.append(key_of(snapshot))
    assert [known.by_key(key) is not None for key in keys] == [False, False, True, True]
    assert known.snapshot("file:/data") is known.by_key(keys[-1])
