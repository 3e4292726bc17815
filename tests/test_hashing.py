"""What of a function may depend on hashes of texts: workers have others than the driver."""

from __future__ import annotations

import functools
import re
import sys
import types
from typing import Any
from urllib.parse import urlsplit

import pytest

from geoskip.spark.hashing import hashes

WORDS = {"ab", "cd", "ef"}
NAMED = {"words": WORDS}
TIMES = {"ab": 1, "cd": 2}
PATTERN = re.compile("a+")


def _first(words: Any, text: str) -> str | None:
    return next((word for word in words if word in text), None)


class _Finder:
    def __init__(self) -> None:
        self.words = WORDS

    def __call__(self, text: str) -> str | None:
        return _first(self.words, text)

    def find(self, text: str) -> str | None:
        return self(text)


def _of_a_module() -> Any:
    module = types.ModuleType("module_with_words")
    module.WORDS = WORDS  # type: ignore[attr-defined]
    space = {"module_with_words": module, "_first": _first}
    exec("def found(text): return _first(module_with_words.WORDS, text)", space)
    return space["found"]


def _imported_within(text: str) -> str | None:
    import module_with_words  # type: ignore[import-not-found]

    return _first(module_with_words.WORDS, text)


def _in_closure() -> Any:
    words = {"ab", "cd"}
    return lambda text: _first(words, text)


def _of_a_module_in_closure() -> Any:
    module = types.ModuleType("module_with_words")
    module.WORDS = WORDS  # type: ignore[attr-defined]
    return lambda text: _first(module.WORDS, text)


def _by_default(text: str, words: Any = frozenset(WORDS)) -> str | None:
    return _first(words, text)


GOES: dict[str, Any] = {
    "a global": lambda text: _first(WORDS, text),
    "a constant": lambda text: [word for word in {"ab", "cd", "ef"} if word in text],
    "made": lambda text: sorted({*text})[0],
    "hash()": lambda text: hash(text) % 7,
    "in a dictionary": lambda text: _first(NAMED["words"], text),
    "a closure": _in_closure(),
    "a default": _by_default,
    "an object": _Finder(),
    "a method": _Finder().find,
    "a part": functools.partial(_first, WORDS),
    "a module": _of_a_module(),
    "a module in a closure": _of_a_module_in_closure(),
    "views": lambda text: next(iter(TIMES.keys() & NAMED.keys()), text),
    "within": lambda text: [word for word in [1] for word in WORDS],
}


@pytest.mark.parametrize("name", GOES)
def test_what_goes_through_a_set(name: str) -> None:
    assert hashes(GOES[name])


def test_a_module_that_is_imported_within(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("module_with_words")
    monkeypatch.setitem(sys.modules, "module_with_words", module)
    module.WORDS = ["ab"]  # type: ignore[attr-defined]
    assert not hashes(_imported_within)
    module.WORDS = WORDS  # type: ignore[attr-defined]
    assert hashes(_imported_within)


def test_what_asks_sets_and_all_else_does_not() -> None:
    inner = {"ab"}
    harmless: list[Any] = [
        lambda text: text in WORDS,
        lambda text: text not in {"ab", "cd"},
        lambda text: text in inner,
        lambda text: [key for key in TIMES if key in text],
        lambda text: PATTERN.sub("", text).upper(),
        lambda text: urlsplit(text).hostname,
        functools.partial(_first, ["ab"]),
    ]
    assert [hashes(function) for function in harmless] == [False] * len(harmless)
