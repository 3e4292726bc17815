"""The bridge's answers where a decision does not end."""

from __future__ import annotations

import json
import re
import threading
import time
from typing import Any

import pytest

from geoskip.spark.catalog import DatasetCatalog
from geoskip.spark.rule.bridge import Bridge
from geoskip.spark.rule.decision_cache import DecisionCache, Decisions


class Waiting(DatasetCatalog):
    """Metadata that are read until somebody says stop."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.stop = threading.Event(), threading.Event()

    def snapshot(self, root: str, *, age: float = 0.0) -> Any:
        self.begun.set()
        assert self.stop.wait(60)


def request(root: str, **more: float) -> str:
    head = {"number": 1, "asked": more.pop("asked", time.time())}
    asked = {"datasets": [root], "barriers": [], "conditions": [], "vectors": [[]], "budget": 0.0}
    return "\n".join(map(json.dumps, (head, {**asked, **more}, {"settings": {}})))


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
    (reason,) = json.loads(bridge.answer(request("file:/a")))["reasons"]
    assert reason == "there are no metadata in /a/_geoskip: create_index() makes them"


@pytest.mark.parametrize("late", [True, False])
def test_a_budget_runs_from_when_the_question_was_asked(late: bool) -> None:
    """Who asked stops waiting by its own clock: from then on nobody else may be made to wait for the same."""
    known = Waiting()
    bridge = Bridge(known)
    asked = time.time() - 101 if late else time.time() + 1000  # a clock set back is no reason to wait longer
    first = threading.Thread(target=bridge.answer, args=(request("file:/a", budget=100, asked=asked),))
    first.start()
    assert known.begun.wait(60)
    known.begun.clear()
    answers: list[str] = []
    second = threading.Thread(target=lambda: answers.append(bridge.answer(request("file:/a", budget=100))))
    second.start()
    if late:
        second.join(60)
        assert re.search(r"an earlier decision over this dataset has run for 1\d\d s", answers[0])
    else:
        assert known.begun.wait(60), "it is asked about too"
    known.stop.set()
    first.join()
    second.join()


def test_decisions_over_very_many_values_are_not_remembered_for_long() -> None:
    """A report asks for its condition later, but lists of values must not pile up in the driver."""
    decisions = Decisions()
    decisions.put(0, DecisionCache((), ()))
    for key in range(1, 11):
        decisions.put(key, DecisionCache((), (), length=1_000_000))
    assert [key for key in range(11) if decisions.get(key)] == [6, 7, 8, 9, 10]
