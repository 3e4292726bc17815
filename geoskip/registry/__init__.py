"""The registry of properties of functions, declared by decorators.

There are four declarations. Each returns its function unchanged and is validated at once:

* :func:`maps` -- a predicate over a function, or a comparison of the function's value, mapped to a clause;
* :func:`constant` -- a function that geoskip may evaluate when its arguments are literals;
* :func:`denotes` -- what an expression denotes over columns: ``ST_Point(x, y)`` is the point at (x, y);
* :func:`declare` -- properties of a function (metric, monotone, ...).

A declaration binds to an *implementation*: the Catalyst class, or the Python function that was registered under the
name. A function is given as one of

* a :class:`Function`, a name with the implementations that it refers to (used by libraries);
* the Python function or UDF object itself;
* a SQL name: it binds to the first implementation that is found under that name, so that the mapping is not used for
  another function that is registered under it later.

A repeated declaration of the same module replaces the earlier one, so that a notebook cell can be run twice. A
declaration that contradicts one of another module raises MappingError.

:func:`mappings` opens a scope for tests. The current scope is that of the process, because planning runs in another
thread than the user's code. Functions that fail at query time are put in *quarantine* (:meth:`Registry.leave_out`):
they are not called until they are registered again or released.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from geoskip.errors import MappingError
from geoskip.predicates import Call
from geoskip.registry.fingerprint import Unidentifiable, own_identity, state_version
from geoskip.registry.functions import (
    SPELLINGS,
    Function,
    Given,
    Named,
    Reference,
    checked_reference,
    overlap,
    reference,
)
from geoskip.registry.registry import (
    ConstantDeclaration,
    DenotationDeclaration,
    FunctionProperties,
    Mapping,
    Registry,
    constant_name,
    current,
    lasting_declarations,
    mappings,
    quarantined,
    release,
)

__all__ = [
    "SPELLINGS",
    "ConstantDeclaration",
    "DenotationDeclaration",
    "Function",
    "Given",
    "Mapping",
    "Named",
    "FunctionProperties",
    "Registry",
    "constant",
    "constant_name",
    "current",
    "declare",
    "denotes",
    "lasting_declarations",
    "mappings",
    "maps",
    "quarantined",
    "release",
]

F = TypeVar("F", bound=Callable[..., Any])


def maps(*functions: Any, index: type | tuple[type, ...]) -> Callable[[F], F]:
    """Map predicates over ``functions`` to clauses over an index: ``rule(node, index) -> Clause | None``.

    ``node`` is a boolean vertex with a call of one of the functions: the call itself, its negation, ``IS NULL`` of it,
    or a comparison of its value. The returned clause must represent the vertex: no file that contains a row for which
    the vertex is TRUE may fail the clause. None means that the rule does not support the vertex.

    A rule declared again under its module and name replaces the older one; decorated twice, a rule has both mappings.

    Parameters
    ----------
    functions
        SQL names, Python functions, UDF objects or :class:`Function` values.
    index
        A type of index, or several. ``rule(node, index)`` is called for each index of these types;
        ``rule(node, first, second)`` for one index of each type at once, where an index for a parameter with a default
        may be missing.
    """
    kinds = _kinds(index)
    references = _references(functions, "maps() needs the functions that it maps")

    def register(rule: F) -> F:
        together, optional = _rule_arguments(rule, kinds)
        current().add_mapping(Mapping(references, kinds, rule, together, optional))
        return rule

    return register


def constant(*functions: Any) -> Callable[[F], F]:
    """Declare how to evaluate ``functions`` on literals; the decorated function takes the plain values.

    It returns a value, or a :class:`~geoskip.predicates.Literal` if the type matters. The call is not treated as a
    constant if the function raises, or returns a value that Spark would convert to the declared type of a Python
    function.
    """
    references = _references(functions, "constant() needs the functions that it evaluates")

    def register(evaluate: F) -> F:
        if not callable(evaluate):
            raise MappingError(f"constant(...) decorates a function of the plain values, got {evaluate!r}")
        registry = current()
        for function in references:
            _check_evaluator(registry, function, evaluate)
        for function in references:
            registry.add_constant(ConstantDeclaration(function, evaluate))
        return evaluate

    return register


def denotes(*functions: Any) -> Callable[[F], F]:
    """Declare what calls of ``functions`` denote; the decorated function maps a call to its denotation.

    A denotation is a value that an index type supports, for GeoBox a ``Point`` or an ``InsideBox``; None if the call
    has none.
    """
    references = _references(functions, "denotes() needs the functions whose calls denote something")

    def register(meaning: F) -> F:
        _check_arguments(meaning, 1, "a denotation takes the call")
        for function in references:
            current().add_denotation(DenotationDeclaration(function, meaning))
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
    """Declare properties of a function, given as the object or by its SQL name; return the function.

    geoskip relies on the properties: one that does not hold for every argument loses rows.
    :func:`geoskip.check_mapping` tests them. A property declared again by the same module is replaced.

    Parameters
    ----------
    function
        A Python function, a UDF object, a :class:`Function` or a SQL name.
    metric
        The function is a metric and may be used by MetricDist; for Python functions only.
    monotone
        ``"increasing"`` or ``"decreasing"`` in Spark's order, so that MinMax over x supports f(x). If this depends on
        the other arguments, which are literals, a function that maps the call to one of these or to None. At the
        bounds, a Python function is called, and any other function is evaluated by Spark.
    null_in_null_out
        The value is NULL if an argument is, so that conditions on the value need non-null arguments.
    deterministic
        False: geoskip concludes nothing about the function and builds no index over it.
    inverse
        ``inverse(f(x)) == x``, in plain Python values, so that ``f(x) = 5`` becomes a condition on x.
    version
        Text that replaces the digest of the function's code; change it with every change of the function.

    Raises
    ------
    MappingError
        For a value of another type, and if two modules contradict each other.
    """
    if callable(monotone):
        _check_arguments(monotone, 1, "declare(..., monotone=) takes a function of the call")
    elif monotone not in (None, "increasing", "decreasing"):
        raise MappingError(f"declare(..., monotone=) takes 'increasing' or 'decreasing', got {monotone!r}")
    for name, word in {"metric": metric, "null_in_null_out": null_in_null_out, "deterministic": deterministic}.items():
        if word not in (None, True, False):
            raise MappingError(f"declare(..., {name}=) takes True or False, got {word!r}")
    if inverse is not None:
        if not callable(inverse):
            raise MappingError(f"declare(..., inverse=) takes a function, got {inverse!r}")
        _check_arguments(inverse, 1, "declare(..., inverse=) takes a function of the value")
        with suppress(Unidentifiable):  # without an identity, a change cannot be detected
            own_identity(inverse)  # recorded for rewrite.invert
    if version is not None and not isinstance(version, str):
        raise MappingError(f"declare(..., version=) takes a text such as {str(version)!r}, got {version!r}")
    found = reference(function)
    if version is not None and isinstance(found, Given):
        state_version(found.function, version)
    found = checked_reference(function)
    if metric is not None and not isinstance(found, Given):
        raise MappingError(f"declare({found.name!r}, metric=) needs a function to call: give the Python function")
    module = str(sys._getframe(1).f_globals.get("__name__", ""))
    said = FunctionProperties(found, metric, monotone, null_in_null_out, deterministic, inverse, version, module)
    if not said.to_dict():
        raise MappingError(f"declare({found.name!r}) states no property; give one, such as monotone='increasing'")
    _check_said(current(), said)
    current().add_properties(said)
    return function


def _kinds(index: Any) -> tuple[type, ...]:
    kinds = index if isinstance(index, tuple) else (index,)
    for kind in kinds:
        if not isinstance(kind, type) and isinstance(type(kind), type) and hasattr(type(kind), "clause"):
            raise MappingError(
                f"maps(..., index=) takes a type of index, not one index: index={type(kind).__name__}, got {kind}"
            )
        if not (isinstance(kind, type) and callable(getattr(kind, "clause", None))):
            raise MappingError(f"maps(..., index=) takes an index type such as GeoBox, got {kind!r}")
    if not kinds:
        raise MappingError("maps(..., index=) takes an index type such as GeoBox, got none")
    return kinds


def _references(functions: Iterable[Any], says: str) -> tuple[Reference, ...]:
    found = tuple(map(checked_reference, functions))
    if not found:
        raise MappingError(f"{says}: their SQL names, or the functions themselves")
    return found


def _rule_arguments(rule: Any, kinds: tuple[type, ...]) -> tuple[bool, frozenset[int]]:
    """Test whether a rule takes one index of each kind at once, and return the kinds that may be missing."""
    if len(kinds) > 1 and callable(rule):
        try:
            inspect.signature(rule).bind(*range(1 + len(kinds)))
        except TypeError:
            pass
        else:
            given = [p for p in inspect.signature(rule).parameters.values() if p.kind is not p.KEYWORD_ONLY]
            with_default = (n - 1 for n, p in enumerate(given) if n > 0 and p.default is not p.empty)
            return True, frozenset(n for n in with_default if n < len(kinds))
    both = ", ".join(["node", *(kind.__name__.lower() for kind in kinds)])
    says = "a mapping takes (node, index)"
    _check_arguments(rule, 2, says if len(kinds) == 1 else f"{says}, or all of its indexes at once, ({both})")
    return False, frozenset()


def _check_arguments(function: Any, count: int, says: str) -> None:
    if not callable(function):
        raise MappingError(f"{says}, got {function!r}, which is no function")
    try:
        given = inspect.signature(function)
    except ValueError:  # a C function without a signature, which may take any arguments
        return
    try:
        given.bind(*range(count))
    except TypeError:
        name = getattr(function, "__qualname__", type(function).__qualname__)
        raise MappingError(f"{says}, but {name}{given} cannot be called so") from None


def _check_evaluator(registry: Registry, function: Reference, evaluate: Callable[..., Any]) -> None:
    module = getattr(evaluate, "__module__", "")
    for known in registry.all_constants():
        theirs = getattr(known.evaluate, "__module__", "")
        if known.evaluate is not evaluate and theirs != module and overlap(known.function, function):
            raise MappingError(
                f"{function.name} of constants is evaluated by {_qualified_name(known.evaluate)} already, and now by "
                f"{_qualified_name(evaluate)} too; leave one of them out"
            )


def _check_said(registry: Registry, said: FunctionProperties) -> None:
    for known in registry.properties:
        if known.module == said.module or not overlap(known.function, said.function):
            continue
        before, now = known.to_dict(), said.to_dict()
        for name in before.keys() & now.keys():
            if name != "version" and before[name] != now[name]:
                raise MappingError(
                    f"{said.function.name} was declared {name}={_describe(before[name])} by {known.module}, and is now "
                    f"declared {name}={_describe(now[name])} by {said.module}; leave one of them out"
                )


def _describe(word: Any) -> str:
    return _qualified_name(word) if callable(word) else repr(word)


def _qualified_name(function: Any) -> str:
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', function)}"
