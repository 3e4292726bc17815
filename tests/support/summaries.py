"""Summaries and index names of a store, and overtaken verbs: for :mod:`tests.support.numbered`."""

from __future__ import annotations

from typing import Any

from geoskip.lifecycle.log import latest
from geoskip.stores import Store
from tests.support.numbered import Numbers

A, B, C = "test_least(a)", "test_least(b)", "test_least(c)"


def summaries(store: Store, name: str = A) -> dict[str, int | None]:
    snapshot = latest(store)
    assert snapshot is not None
    found = snapshot.files.summary(name, "least").to_pylist()
    return dict(sorted(zip(snapshot.files.column("path").to_pylist(), found, strict=True)))


def names(store: Store) -> list[str]:
    snapshot = latest(store)
    return [entry.name for entry in snapshot.header.entries] if snapshot else []


def overtaken(data: Numbers, *others: Any) -> None:
    """Let other writers commit once during the next build."""

    def once() -> None:
        data.while_building = lambda: None
        for other in others:
            other()

    data.while_building = once
