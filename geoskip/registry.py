"""The registry: what geoskip knows about functions, declared by decorators.

Four declarations (DESIGN section 6), each returns its function unchanged and is validated when it is made:

* :func:`maps` -- a predicate over a function, or a comparison of the function's value, mapped to a clause;
* :func:`constant` -- a function that geoskip may evaluate when its arguments are literals;
* :func:`denotes` -- what an expression denotes over columns: ``ST_Point(x, y)`` is the point at (x, y);
* :func:`declare` -- properties of a function (metric, monotone, ...).

A declaration binds to an *implementation*: the Catalyst class, or the Python function that was registered under the
name. A function is given as one of

* a :class:`Function`, a name together with the implementations meant (what libraries use);
* the Python function or UDF object itself;
* a SQL name: it binds to the one implementation that geoskip first meets under that name, so that another function
  registered under it later does not meet the mapping.

:func:`mappings` opens a scope for tests; the current scope is one for the process, because the planning thread is
another one than the user's.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from geoskip.clauses import Clause
from geoskip.errors import MappingError
from geoskip.identity import Unidentifiable, checked, identity, state_version
from geoskip.predicates import Call, Predicate

__all__ = ["Function", "Mapping", "Properties", "Registry", "constant", "declare", "denotes", "maps", "mappings"]

F = TypeVar("F", bound=Callable[..., Any])
Rule = Callable[[Predicate, Any], "Clause | None"]


@dataclass(frozen=True)
class Function:
    """A SQL name together with the implementations meant by it.

    ``classes`` are Catalyst classes (a package prefix ending in a dot stands for all in it); ``python`` are modules
    and qualified names of Python functions (``udf_mappings.shapely_functions.`` likewise).

    >>> ours = Function("ST_X", python=("our.functions.",))
    >>> ours.is_called(Call("st_x", (), "python:our.functions.st_x#12")), ours.is_called(Call("st_x", (), "python:f#1"))
    (True, False)
    """

    name: str
    classes: tuple[str, ...] = ()
    python: tuple[str, ...] = ()

    def is_called(self, call: Call) -> bool:
        """Is this call one of this function, by name (as SQL compares names) and by implementation?"""
        if call.name.lower() != self.name.lower() or call.implementation is None:
            return False
        name = call.implementation.removeprefix("python:").partition("#")[0]
        wanted = self.python if call.implementation.startswith("python:") else self.classes
        within = tuple(w for w in wanted if w.endswith("."))
        return name in wanted or (name.startswith(within) and name not in _WRAPPERS)


# Catalyst's classes around a user's own function, whose name may be anyone's: in no package's name.
_WRAPPERS = frozenset(
    "org.apache.spark.sql.catalyst.expressions." + kind
    for kind in ("ApplyFunctionExpression", "ScalaUDF", "objects.Invoke", "objects.StaticInvoke")
)


@dataclass(frozen=True)
class _Object:
    """A Python function given as the object: bound by its identity."""

    function: Any

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))

    def is_called(self, call: Call) -> bool:
        try:
            return call.implementation == "python:" + identity(self.function)
        except Unidentifiable:
            return False


SPELLINGS = {
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
"""Other spellings of Spark's own functions: an index over ``char_length(s)`` meets ``length(s)``, of one class."""


@dataclass
class _Name:
    """A bare SQL name: bound to the first implementation met under it."""

    name: str
    implementation: str | None = None
    lock: Any = field(default_factory=threading.Lock, repr=False)

    def is_called(self, call: Call) -> bool:
        if call.name.lower() not in (self.name.lower(), SPELLINGS.get(self.name.lower())):
            return False
        with self.lock:
            if self.implementation is None:
                self.implementation = call.implementation or f"name:{self.name.lower()}"
        return self.implementation == (call.implementation or f"name:{self.name.lower()}")


Reference = Function | _Object | _Name


def _reference(function: Any) -> Reference:
    if isinstance(function, Function):
        return function
    if isinstance(function, str):
        if not function.strip():
            raise MappingError("a function's SQL name is empty; give the name that queries use, or the function itself")
        return _Name(function)
    plain = getattr(function, "func", function)  # a UDF object of pyspark keeps the user's function there
    if callable(plain):
        return _Object(plain)
    raise MappingError(f"expected a SQL name or a function, got {function!r} of type {type(function).__name__}")


def _identified(function: Any) -> Reference:
    """A reference that can be met: to a function that nobody can identify, it never would."""
    reference = _reference(function)
    if isinstance(reference, _Object):
        try:
            checked(reference.function)
        except Unidentifiable as error:
            raise MappingError(str(error)) from None
    return reference


@dataclass(frozen=True)
class Mapping:
    """One rule: for predicates over these functions and this kind of index, ``rule(node, index) -> Clause | None``."""

    functions: tuple[Reference, ...]
    indexes: tuple[type, ...]
    rule: Rule

    @property
    def name(self) -> str:
        return f"{self.rule.__module__}.{self.rule.__qualname__}"

    def concerns(self, calls: list[Call]) -> bool:
        """Is any of these calls one of a function that this rule maps?"""
        return any(function.is_called(call) for function in self.functions for call in calls)


@dataclass(frozen=True)
class Properties:
    """What :func:`declare` said of a function; None is unsaid."""

    function: Reference
    metric: bool | None = None
    monotone: str | Callable[[Call], str | None] | None = None
    null_in_null_out: bool | None = None
    deterministic: bool | None = None
    inverse: Any = None
    version: str | None = None


def _overlaid(old: Properties, new: Properties) -> Properties:
    words = {f.name: getattr(new, f.name) for f in fields(new) if getattr(new, f.name) is not None}
    return replace(old, **words)


class Registry:
    """All declarations of one scope."""

    def __init__(self, parent: Registry | None = None) -> None:
        self.mappings: dict[str, Mapping] = dict(parent.mappings) if parent else {}
        self.constants: list[tuple[Reference, Callable[..., Any]]] = list(parent.constants) if parent else []
        self.denotations: list[tuple[Reference, Callable[[Any], Any]]] = list(parent.denotations) if parent else []
        self.properties: list[Properties] = list(parent.properties) if parent else []

    def rules_for(self, calls: list[Call], index: type) -> list[Mapping]:
        """The mappings of these calls for a kind of index."""
        return [m for m in self.mappings.values() if issubclass(index, m.indexes) and m.concerns(calls)]

    def evaluator(self, call: Call) -> Callable[..., Any] | None:
        """What evaluates this call when its arguments are literals, if that is known."""
        return next((f for function, f in reversed(self.constants) if function.is_called(call)), None)

    def denotation(self, call: Call) -> Any:
        """What a call denotes, or None: the newest declaration that answers."""
        for function, meaning in reversed(self.denotations):
            if function.is_called(call) and (found := meaning(call)) is not None:
                return found
        return None

    def metric(self, function: Any) -> Callable[..., Any] | None:
        """The Python function that was declared to be a metric, given by itself or by its name."""
        for said in reversed(self.properties):
            reference = said.function
            if said.metric is None or not isinstance(reference, _Object):
                continue
            if function is reference.function or function == reference.name:
                plain: Callable[..., Any] = reference.function
                return plain if said.metric else None
        return None

    def keeps_nulls(self, function: Any) -> bool:
        """Was this Python function declared to be NULL for NULL?"""
        return any(
            said.null_in_null_out and isinstance(said.function, _Object) and said.function.function is function
            for said in self.properties
        )

    def version_of(self, name: str) -> str | None:
        """The version that was last declared for a SQL name."""
        named = (p for p in reversed(self.properties) if isinstance(p.function, _Name) and p.version is not None)
        return next((p.version for p in named if p.function.name.lower() == name.lower()), None)

    def said_of(self, call: Call) -> Properties | None:
        """What was declared of the function of this call: of each property the newest word."""
        found = [p for p in self.properties if p.function.is_called(call)] if self.properties else []
        return functools.reduce(_overlaid, found) if found else None

    def function_of(self, call: Call) -> Callable[..., Any] | None:
        """What computes this call from plain values: a declared Python function, or what evaluates its constants."""
        for said in reversed(self.properties):
            if isinstance(said.function, _Object) and said.function.is_called(call):
                plain: Callable[..., Any] = said.function.function
                return plain
        return self.evaluator(call)


_scopes: list[Registry] = [Registry()]


def current() -> Registry:
    """The registry in force."""
    return _scopes[-1]


@contextmanager
def mappings() -> Iterator[Registry]:
    """A scope: declarations made within it are forgotten at its end.

    >>> with mappings() as scope:
    ...     _ = constant("one")(lambda: 1)
    ...     scope.evaluator(Call("ONE", ()))()
    1
    >>> current().evaluator(Call("one", ())) is None
    True
    """
    scope = Registry(current())
    _scopes.append(scope)
    try:
        yield scope
    finally:
        _scopes.remove(scope)


def maps(*functions: Any, index: type | tuple[type, ...]) -> Callable[[F], F]:
    """Map predicates over ``functions`` to clauses over an index: ``rule(node, index) -> Clause | None``.

    ``node`` is a boolean vertex in which one of the functions is called: the call itself, its negation, or a
    comparison of its value. ``index`` is one index of the given kind. The returned clause must represent the vertex;
    None says that the rule knows nothing. A rule declared again under its module and name replaces the older one.
    """
    kinds = index if isinstance(index, tuple) else (index,)
    for kind in kinds:
        if not (isinstance(kind, type) and hasattr(kind, "clause")):
            raise MappingError(f"maps(..., index=) takes an index type such as GeoBox, got {kind!r}")
    if not functions:
        raise MappingError("maps() needs the functions that it maps: their SQL names, or the functions themselves")
    references = tuple(map(_identified, functions))

    def register(rule: F) -> F:
        _check_arguments(rule, 2, "a mapping takes (node, index)")
        mapping = Mapping(references, kinds, rule)
        current().mappings[mapping.name] = mapping
        return rule

    return register


def constant(*functions: Any) -> Callable[[F], F]:
    """Say how to evaluate ``functions`` on literals: the decorated function takes the plain values.

    It returns a value, or a :class:`~geoskip.predicates.Literal` where the type matters. What it raises means "not a
    constant after all".
    """
    references = tuple(map(_identified, functions))

    def register(evaluate: F) -> F:
        current().constants.extend((reference, evaluate) for reference in references)
        return evaluate

    return register


def denotes(*functions: Any) -> Callable[[F], F]:
    """Say what a call of ``functions`` denotes: the decorated function takes the call, and returns the denotation.

    A denotation is what a kind of index understands, for GeoBox a ``Point`` or a ``Within``; None says that this call
    has none.
    """
    references = tuple(map(_identified, functions))

    def register(meaning: F) -> F:
        _check_arguments(meaning, 1, "a denotation takes the call")
        current().denotations.extend((reference, meaning) for reference in references)
        return meaning

    return register


def declare(
    function: Any,
    *,
    metric: bool | None = None,
    monotone: str | Callable[[Call], str | None] | None = None,
    null_in_null_out: bool | None = None,
    deterministic: bool | None = None,
    inverse: Any = None,
    version: str | None = None,
) -> Any:
    """State properties of a function, given as the object or by its SQL name; returns the function.

    Each is believed, and what is not true of every argument loses rows.

    * ``metric``: it may be MetricDist's; of a Python function only.
    * ``monotone``: ``"increasing"`` or ``"decreasing"`` in Spark's order, so that MinMax over x serves f(x); or a
      function from the call to one of these, or None, where that depends on its other arguments, which are literals.
      A Python function is called for the bounds, any other is evaluated for them by Spark.
    * ``null_in_null_out``: it is NULL where an argument is, so conditions on its value need those.
    * ``deterministic=False``: nothing is concluded of it, nor any index built over it.
    * ``inverse``: ``inverse(f(x)) == x``, in plain Python values, so that ``f(x) = 5`` asks for x.
    * ``version``: it stands for the function's content, where it is an object; of a name, where nobody can tell one
      version of the function from another. Raise it with every change.
    """
    if not (callable(monotone) or monotone in (None, "increasing", "decreasing")):
        raise MappingError(f"declare(..., monotone=) takes 'increasing' or 'decreasing', got {monotone!r}")
    if inverse is not None and not callable(inverse):
        raise MappingError(f"declare(..., inverse=) takes a function, got {inverse!r}")
    reference = _reference(function)
    if version is not None and isinstance(reference, _Object):
        state_version(reference.function, version)
    reference = _identified(function)
    if metric is not None and not isinstance(reference, _Object):
        raise MappingError(
            f"declare({reference.name!r}, metric=) needs a function to call: give the Python function itself"
        )
    said = Properties(reference, metric, monotone, null_in_null_out, deterministic, inverse, version)
    current().properties.append(said)
    return function


def _check_arguments(function: Callable[..., Any], count: int, says: str) -> None:
    if not callable(function):
        raise MappingError(f"{says}, got {function!r}, which is no function")
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        given = inspect.signature(function)
        raise MappingError(f"{says}, but {function.__qualname__}{given} cannot be called so") from None
