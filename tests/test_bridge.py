"""The bridge's answers where a decision does not end."""

from __future__ import annotations

import json
import threading
from typing import Any

from geoskip.spark.bridge import Bridge, Remembered
from geoskip.spark.known import Known


class Waiting(Known):
    """Metadata that are read until somebody says stop."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.stop = threading.Event(), threading.Event()

    def snapshot(self, root: str, *, age: float = 0.0) -> Any:
        self.begun.set()
        assert self.stop.wait(60)


def request(root: str) -> str:
    return json.dumps({"datasets": [root], "barriers": [], "conditions": [], "vectors": [[]], "budget": 0.0})


def test_a_dataset_whose_decision_outlasts_its_budget_is_not_asked_about_and_others_are() -> None:
    known = Waiting()
    bridge = Bridge(known)
    first = threading.Thread(target=bridge.answer, args=(request("file:/a"),))
    first.start()
    assert known.begun.wait(60)
    said = json.loads(bridge.answer(request("file:/a")))
    assert "an earlier decision over this dataset has run for" in said["reasons"][0]
    other = threading.Thread(target=bridge.answer, args=(request("file:/b"),))
    known.begun.clear()
    other.start()
    assert known.begun.wait(60), "another dataset is asked about"
    known.stop.set()
    first.join()
    other.join()
    assert json.loads(bridge.answer(request("file:/a")))["reasons"] == []


def test_decisions_over_very_many_values_are_not_remembered_for_long() -> None:
    """A report asks for its condition later, but lists of values must not pile up in the driver."""
    bridge = Bridge(Known())
    bridge._remember(0, Remembered((), ()))
    for key in range(1, 11):
        bridge._remember(key, Remembered((), (), length=1_000_000))
    assert [key for key in range(11) if bridge.remembered(key)] == [6, 7, 8, 9, 10]
