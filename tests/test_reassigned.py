"""Constants of modules that Spark's workers, who import them anew, may have with other values than the driver."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from geoskip.spark.reassigned import constants, reassigned

LIMITS = "LEAST = 7\n"
RULES = """
import os
from limits_of_house import LEAST

LIMIT = 3 * 4
NAMES: tuple[str, ...] = ("ab", "cd")
SIZE = len(os.sep)
COUNT = 0
SEEN = {}

def is_low(n):
    return n < LIMIT

def is_named(text):
    return text in NAMES and bool(SEEN) is False

def is_least(n):
    return n == LEAST

def is_of_size(n):
    return n == SIZE

def is_counted(n):
    global COUNT
    COUNT += 1
    return n < COUNT
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of somebody's house, imported."""
    (tmp_path / "limits_of_house.py").write_text(LIMITS)
    (tmp_path / "rules_of_house.py").write_text(RULES)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("rules_of_house")
    for name in ("rules_of_house", "limits_of_house"):
        sys.modules.pop(name, None)


def found(function: Any) -> str | None:
    read = constants(function)
    assert read is not None
    return reassigned(read)


def test_what_the_source_says_is_what_workers_have(rules: ModuleType) -> None:
    for function in (rules.is_low, rules.is_named, rules.is_least, lambda n: n < rules.LIMIT, str.upper):
        assert found(function) is None


def test_what_was_assigned_since_they_do_not_have(rules: ModuleType) -> None:
    read = constants(rules.is_low)
    rules.LIMIT = 13  # type: ignore[attr-defined]
    assert read is not None
    assert reassigned(read) == found(lambda n: n < rules.LIMIT) == "rules_of_house.LIMIT"
    rules.LIMIT = None  # type: ignore[attr-defined]
    assert found(rules.is_low) == "rules_of_house.LIMIT"
    rules.LIMIT = 12  # type: ignore[attr-defined]
    assert found(rules.is_low) is None
    rules.NAMES = ("ab",)  # type: ignore[attr-defined]
    assert found(rules.is_named) == "rules_of_house.NAMES"
    sys.modules["limits_of_house"].LEAST = 8  # type: ignore[attr-defined]
    assert found(rules.is_least) == "rules_of_house.LEAST"


def test_what_the_source_computes_or_functions_change_is_unknown(rules: ModuleType) -> None:
    assert found(rules.is_of_size) == "rules_of_house.SIZE"
    assert found(rules.is_counted) == "rules_of_house.COUNT"
