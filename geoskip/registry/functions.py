"""References to functions in declarations, and the calls that they match."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from geoskip.errors import MappingError
from geoskip.predicates import Call, Predicate
from geoskip.registry.fingerprint import Unidentifiable, check_identifiable, identity, qualified_name

CATALYST = "org.apache.spark.sql.catalyst.expressions."
"""Package of Spark's own functions."""


def catalyst_class(node: Predicate) -> str:
    """Name of the Catalyst class that implements a call; a user's function may have any name in SQL."""
    return (node.implementation or "").removeprefix(CATALYST) if isinstance(node, Call) else ""


@dataclass(frozen=True)
class Function:
    """A SQL name with the implementations that it refers to.

    ``classes`` are Catalyst classes; a package prefix ending in a dot includes all classes of the package. ``python``
    are qualified names of Python functions, or module prefixes (``udf_mappings.shapely_functions.``). ``arguments``
    documents the order and units of the arguments (``"x, y"``, ``"a, b, metres"``), and is not used for matching calls.

    >>> ours = Function("ST_X", python=("our.functions.",))
    >>> ours.is_called(Call("st_x", (), "python:our.functions.st_x#12")), ours.is_called(Call("st_x", (), "python:f#1"))
    (True, False)
    >>> Function("abs", classes=("x.Abs",)).is_called(Call("abs", (), "x.AbsOfAll"))
    False
    """

    name: str
    classes: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    arguments: str = field(default="", compare=False)

    def is_called(self, call: Call) -> bool:
        """Test whether a call is of this function, by its SQL name and its implementation."""
        if call.name.lower() != self.name.lower() or call.implementation is None:
            return False
        name = call.implementation.removeprefix("python:").partition("#")[0]
        return _is_among(name, self.python if call.implementation.startswith("python:") else self.classes)

    def spellings(self) -> tuple[str, ...]:
        """Return the keys under which its calls are looked up."""
        return (self.name.lower(),)


def _is_among(name: str, wanted: tuple[str, ...]) -> bool:
    within = tuple(w for w in wanted if w.endswith("."))
    return name in wanted or (name.startswith(within) and name not in _WRAPPERS)


# Catalyst's classes for user-defined functions, which may have any name: no package prefix includes them.
_WRAPPERS = frozenset(
    CATALYST + kind for kind in ("ApplyFunctionExpression", "ScalaUDF", "objects.Invoke", "objects.StaticInvoke")
)


@dataclass(frozen=True)
class Given:
    """A Python function given as an object, bound by its identity."""

    function: Any

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))

    def is_called(self, call: Call) -> bool:
        try:
            return call.implementation == "python:" + identity(self.function)
        except Unidentifiable:
            return False

    def spellings(self) -> tuple[str, ...]:
        return ("python:" + qualified_name(self.function),)


SPELLINGS = {
    "cardinality": "size",
    "char_length": "length",
    "character_length": "length",
    "len": "length",
    "lcase": "lower",
    "ucase": "upper",
    "substr": "substring",
    "day": "dayofmonth",
    "dateadd": "date_add",
    "date_diff": "datediff",
    "ceiling": "ceil",
    "sign": "signum",
    "power": "pow",
    "position": "locate",
    "regexp": "rlike",
    "regexp_like": "rlike",
}
"""Synonyms of Spark's own functions: an index over ``char_length(s)`` serves ``length(s)``, of the same class."""


@dataclass
class Named:
    """A bare SQL name, bound to the first implementation that is found under it."""

    name: str
    implementation: str | None = None
    lock: Any = field(default_factory=threading.Lock, repr=False)

    def is_called(self, call: Call) -> bool:
        if call.name.lower() not in self.spellings():
            return False
        with self.lock:
            if self.implementation is None:
                self.implementation = call.implementation or f"name:{self.name.lower()}"
        return self.implementation == (call.implementation or f"name:{self.name.lower()}")

    def spellings(self) -> tuple[str, ...]:
        name = self.name.lower()
        return (name, SPELLINGS[name]) if name in SPELLINGS else (name,)


Reference = Function | Given | Named


def keys_of(call: Call) -> Iterator[str]:
    """Return the keys under which references to a call's function are stored."""
    yield call.name.lower()
    if call.implementation is not None and call.implementation.startswith("python:"):
        yield call.implementation.partition("#")[0]


def overlap(one: Reference, other: Reference) -> bool:
    """Test whether some call can match both references."""
    if isinstance(one, Function) and isinstance(other, Function):
        both = ((one.classes, other.classes), (one.python, other.python))
        met = (any(_is_among(name, b) for name in a) or any(_is_among(name, a) for name in b) for a, b in both)
        return one.name.lower() == other.name.lower() and any(met)
    if isinstance(one, Given) and isinstance(other, Given):
        return one.function is other.function or one.spellings() == other.spellings()
    return type(one) is type(other) and not set(one.spellings()).isdisjoint(other.spellings())


def reference(function: Any) -> Reference:
    """Return the reference for a :class:`Function`, a SQL name, a Python function or a UDF object."""
    if isinstance(function, Function):
        return function
    if isinstance(function, str):
        if not function.strip():
            raise MappingError("a function's SQL name is empty; give the name that queries use, or the function itself")
        return Named(function)
    plain = plain_function(function)
    if callable(plain):
        return Given(plain)
    raise MappingError(f"expected a SQL name or a function, got {function!r} of type {type(function).__name__}")


def plain_function(function: Any) -> Any:
    """Return the function inside a PySpark UDF; any other object is returned unchanged."""
    made_by = getattr(function, "__globals__", {}).get("__name__") or type(function).__module__
    return function.func if str(made_by).startswith("pyspark.") and hasattr(function, "evalType") else function


def checked_reference(function: Any) -> Reference:
    """Return a reference; raise MappingError for an unidentifiable function, which no call would match."""
    found = reference(function)
    if isinstance(found, Given):
        try:
            check_identifiable(found.function)
        except Unidentifiable as error:
            raise MappingError(str(error)) from None
    return found
