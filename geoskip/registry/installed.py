"""Mappings and functions of installed packages, found by entry point."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeVar

from geoskip.predicates import Call, Predicate
from geoskip.registry.fingerprint import Unidentifiable, identity
from geoskip.registry.registry import lasting_declarations

T = TypeVar("T")


@lru_cache(maxsize=1)
def load_mappings() -> None:
    """Load the UDF mappings of all installed packages; one that fails is skipped with a warning."""
    _load_all("geoskip.udf_mappings", "UDF mappings", lambda module: module)


def _load_all(group: str, what: str, read: Callable[[Any], T]) -> list[T]:
    """Load the entry points of a group; one that fails is skipped with a warning."""
    loaded = []
    for point in entry_points(group=group):
        try:
            with lasting_declarations():
                loaded.append(read(point.load()))
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and point.extras:
                continue  # an optional package is not installed
            warnings.warn(f"the {what} {point.value} could not be loaded and are left out: {error}", stacklevel=4)
    return loaded


class OfferedFunction(Protocol):
    """A Python function with its SQL name; ``returns`` is Spark's name of its return type."""

    @property
    def name(self) -> str:
        """SQL name."""

    @property
    def function(self) -> Callable[..., Any]:
        """Form that takes the values of one row."""

    @property
    def vectorised(self) -> Callable[..., Any] | None:
        """Form that takes pandas Series, if there is one; Spark then registers this form."""

    @property
    def returns(self) -> str:
        """Spark's name of the return type."""


def offered_functions() -> list[OfferedFunction]:
    """Functions of all installed libraries; one that fails to load is skipped with a warning."""
    return [function for table in _load_all("geoskip.functions", "functions", _functions_in) for function in table]


def _functions_in(table: Mapping[str, OfferedFunction]) -> list[OfferedFunction]:
    functions = list(table.values())
    if not all(hasattr(function, "vectorised") for function in functions):
        raise TypeError("a table of functions is a dict that the decorator udf_mappings.offered fills")
    return functions


@cache
def offered_by_name() -> dict[str, OfferedFunction]:
    """Functions by lower-case SQL name; of several with one name the first, as in Spark."""
    found: dict[str, OfferedFunction] = {}
    for function in offered_functions():
        found.setdefault(function.name.lower(), function)
    return found


_CODES = {"rows": "eval:100", "series": "eval:200"}
"""Spark's codes of plain functions, and of functions of pandas columns."""


def implementation_of_offered(function: OfferedFunction) -> tuple[str, tuple[str, ...]]:
    """Return the implementation and flags of a call after :func:`geoskip.register_functions`.

    Raises :class:`~geoskip.registry.fingerprint.Unidentifiable` if the function cannot be identified.
    """
    form = "rows" if function.vectorised is None else "series"
    return f"python:{identity(function.vectorised or function.function)}", (_CODES[form],)


def is_offered(call: Predicate) -> bool:
    """Test whether a predicate calls an offered function, whose results are of its declared type."""
    if not isinstance(call, Call) or (function := offered_by_name().get(call.name.lower())) is None:
        return False
    try:
        return call.implementation == implementation_of_offered(function)[0]
    except Unidentifiable:
        return False
