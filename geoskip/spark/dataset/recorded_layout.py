"""The recorded layout in a dataset's metadata, which need not have an index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from geoskip.layout.layout_report import layout_name
from geoskip.lifecycle.transaction import Amend, Commit, CommitAttempt, perform
from geoskip.lifecycle.verbs import Verb
from geoskip.metadata import Snapshot, build_table
from geoskip.sources.build_verbs import is_elsewhere
from geoskip.spark.dataset.create_refresh import ENGINE
from geoskip.spark.dataset.source import SparkData

_OWN_REWRITES = {
    "Delta": "OPTIMIZE ... ZORDER BY",
    "Hudi": "CALL run_clustering(..., order => '...')",
    "Iceberg": "CALL system.rewrite_data_files(..., strategy => 'sort', sort_order => 'zorder(...)')",
}


def own_rewrite(table: str) -> str:
    """The statement by which a table format rewrites its files, or a general description."""
    return _OWN_REWRITES.get(table, "its own procedure")


def layout_in(snapshot: Snapshot | None) -> Mapping[str, Any]:
    """Return the recorded layout as JSON; empty without one."""
    return snapshot.header.layout if snapshot is not None else {}


def record_layout(data: SparkData, layout: Mapping[str, Any]) -> None:
    """Record a layout; if there are no metadata, in a first snapshot without an index.

    Nothing is recorded if the first metadata would be unencrypted, since ``encryption`` names no key, or if the
    metadata are those of another dataset.

    Parameters
    ----------
    data
        The dataset.
    layout
        The layout with the ids of the writes that arranged its rows, as JSON.
    """
    encryption = data.source.encryption

    def record(attempt: CommitAttempt) -> Commit | Amend | None:
        found = attempt.snapshot
        if found is None:
            is_clear = encryption is not None and encryption.key is None
            return None if is_clear else Commit(replace(data.header(), layout=layout), build_table([], []))
        if found.header.layout == layout or is_elsewhere(data, found.header):
            return None
        return Amend.same_files(found, replace(found.header, layout=layout))

    perform(data.store, Verb.REFRESH, record, parameters={"layout": layout_name(layout)}, by=ENGINE)
