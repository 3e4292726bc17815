"""Mappings and functions that installed packages offer, found by entry point."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeVar

from geoskip.registry.fingerprint import identity
from geoskip.registry.registry import lasting_declarations

T = TypeVar("T")


@lru_cache(maxsize=1)
def load_mappings() -> None:
    """Load the UDF mappings of all installed packages; one that fails is left out with a warning."""
    _load_all("geoskip.udf_mappings", "UDF mappings", lambda module: module)


def _load_all(group: str, what: str, read: Callable[[Any], T]) -> list[T]:
    """Load what all packages offer under a group; one that cannot be loaded is left out with a warning."""
    loaded = []
    for point in entry_points(group=group):
        try:
            with lasting_declarations():
                loaded.append(read(point.load()))
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and point.extras:
                continue  # the package that it needs is not installed: nothing is missed
            warnings.warn(f"the {what} {point.value} could not be loaded and are left out: {error}", stacklevel=4)
    return loaded


class OfferedFunction(Protocol):
    """A Python function under its SQL name; ``returns`` is Spark's name of the type of its result."""

    @property
    def name(self) -> str:
        """SQL name."""

    @property
    def function(self) -> Callable[..., Any]:
        """Form that takes the values of one row."""

    @property
    def vectorised(self) -> Callable[..., Any] | None:
        """Form that takes a pandas Series an argument, which Spark registers where there is one."""

    @property
    def returns(self) -> str:
        """Spark's name of the type of its result."""


def offered_functions() -> list[OfferedFunction]:
    """Functions of all installed libraries; one that cannot be loaded is left out with a warning."""
    return [function for table in _load_all("geoskip.functions", "functions", _functions_in) for function in table]


def _functions_in(table: Mapping[str, OfferedFunction]) -> list[OfferedFunction]:
    functions = list(table.values())
    if not all(hasattr(function, "vectorised") for function in functions):
        raise TypeError("a table of functions is a dict that the decorator udf_mappings.offered fills")
    return functions


@cache
def offered_by_name() -> dict[str, OfferedFunction]:
    """Functions by lower-case SQL name; of two of one name the first, which Spark registers too."""
    found: dict[str, OfferedFunction] = {}
    for function in offered_functions():
        found.setdefault(function.name.lower(), function)
    return found


_CODES = {"rows": "eval:100", "series": "eval:200"}
"""Spark's codes of plain functions, and of functions of pandas columns."""


def implementation_of_offered(function: OfferedFunction) -> tuple[str, tuple[str, ...]]:
    """Implementation and flags that a call has in a session with :func:`geoskip.register_functions`.

    Raises :class:`~geoskip.registry.fingerprint.Unidentifiable` where versions of the function cannot be told apart.
    """
    form = "rows" if function.vectorised is None else "series"
    return f"python:{identity(function.vectorised or function.function)}", (_CODES[form],)
