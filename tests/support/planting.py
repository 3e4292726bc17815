"""Plant a wrong rule at a public seam, for the duration of a test.

Seams are what an extension of geoskip would use: public methods of public classes, public functions, class attributes
and rules registered for a function. They are referred to by the imported object, so that a module can move and a
private helper can be renamed; a missing seam fails the import, or raises :class:`NoSeam`, which no test counts as
detection.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from geoskip import predicates as p
from geoskip.clauses import Clause, Files, Mask, keep_mask
from geoskip.metadata import FileMetadata
from geoskip.registry import current

__all__ = [
    "Inverted",
    "NoSeam",
    "Patch",
    "attribute",
    "before",
    "function",
    "listed",
    "registered",
    "rewritten",
    "summary",
]

Patch = Callable[[pytest.MonkeyPatch], None]
PACKAGES = ("geoskip", "udf_mappings", "tests")


class NoSeam(LookupError):
    """The object that a mutant replaces does not exist, or is not public."""


def listed(mutants: list[Any], rule: str, *given: Any) -> Callable[[Patch], Patch]:
    """Decorator that adds a mutant to the parameters of a test, with the rule that it breaks and what finds it."""

    def register(plant: Patch) -> Patch:
        mutants.append(pytest.param(plant, *given, id=f"{plant.__name__} ({rule})"))
        return plant

    return register


def _checked(owner: type[Any], name: str) -> Any:
    if name.startswith("_") or owner.__name__.startswith("_"):
        raise NoSeam(f"{owner.__name__}.{name} is private")
    if not hasattr(owner, name):
        raise NoSeam(f"{owner.__name__} has no {name}")
    return getattr(owner, name)


def attribute(patch: pytest.MonkeyPatch, owner: type[Any], name: str, value: Any) -> None:
    """Replace a public attribute, property or method of a public class."""
    _checked(owner, name)
    patch.setattr(owner, name, value)


def before(patch: pytest.MonkeyPatch, owner: type[Any], name: str, change: Callable[..., Any]) -> None:
    """Replace a public method by a function that gets the original first."""
    original = _checked(owner, name)
    patch.setattr(owner, name, lambda *args, **options: change(original, *args, **options))


def function(patch: pytest.MonkeyPatch, original: Any, change: Callable[..., Any]) -> None:
    """Replace a public function wherever it is referred to, by one that gets the original first."""
    if isinstance(original, type) or getattr(original, "__name__", "_").startswith("_"):
        raise NoSeam(f"{original!r} is no public function")

    def planted(*args: Any, **options: Any) -> Any:
        return change(original, *args, **options)

    for module in _modules():
        for name, value in list(vars(module).items()):
            if not name.startswith("__") and (found := _exchanged(value, original, planted)) is not value:
                patch.setattr(module, name, found)


def _exchanged(value: Any, original: Any, planted: Any) -> Any:
    """A function, or a table with it, with the function replaced by another."""
    if value is original:
        return planted
    if type(value) is tuple and any(_exchanged(each, original, planted) is not each for each in value):
        return tuple(_exchanged(each, original, planted) for each in value)
    if type(value) is dict and any(_exchanged(each, original, planted) is not each for each in value.values()):
        return {key: _exchanged(each, original, planted) for key, each in value.items()}
    return value


def _modules() -> Iterator[ModuleType]:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in PACKAGES:
            yield module


def registered(patch: pytest.MonkeyPatch, original: Any, rule: Callable[..., Any]) -> None:
    """Replace the rule that a mapping has registered for a function."""
    known, name = current().mappings, f"{original.__module__}.{original.__qualname__}"
    if name not in known:
        raise NoSeam(f"{name} is not registered")
    patch.setitem(known, name, replace(known[name], rule=rule))


def rewritten(patch: pytest.MonkeyPatch, owner: type[Any], change: Callable[[p.Predicate], p.Predicate]) -> None:
    """Pass changed vertices to an index, so that it returns their clause for those of the query."""
    before(patch, owner, "clause", lambda original, index, node: original(index, p.transform(node, change)))


def summary(patch: pytest.MonkeyPatch, change: Callable[[str, Any], Any]) -> None:
    """Replace one field of all files' summaries: ``change(field, array)``."""

    def read(original: Any, files: FileMetadata, index: str, field: str) -> Any:
        return change(field, original(files, index, field))

    before(patch, FileMetadata, "summary", read)


class Inverted(Clause):
    """A clause that keeps the files that another one skips."""

    def __init__(self, clause: Clause) -> None:
        self.clause = clause

    def keep(self, files: Files) -> Mask:
        return np.asarray(~keep_mask(self.clause, files))
