"""The declarations of a scope, looked up by function call."""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

from geoskip.clauses import Clause
from geoskip.errors import InvalidSpecificationError
from geoskip.predicates import Call
from geoskip.registry.functions import Given, Named, Reference, keys_of

T = TypeVar("T")
Rule = Callable[..., "Clause | None"]


@dataclass(frozen=True)
class Mapping:
    """One rule for predicates over these functions.

    If ``together`` is False, the rule is called with one index of any of the kinds: ``rule(node, index)``; if True,
    with one index of each kind: ``rule(node, first, second)``, where a kind in ``optional`` may be missing.
    """

    functions: tuple[Reference, ...]
    indexes: tuple[type, ...]
    rule: Rule
    together: bool = False
    optional: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        return f"{self.rule.__module__}.{self.rule.__qualname__}"

    def concerns(self, calls: Iterable[Call]) -> bool:
        """Test whether one of these calls is of a function of this rule."""
        return any(function.is_called(call) for call in calls for function in self.functions)


@dataclass(frozen=True)
class ConstantDeclaration:
    """An evaluator of a function with literal arguments."""

    function: Reference
    evaluate: Callable[..., Any]


def constant_name(evaluate: Callable[..., Any]) -> str:
    """Return the name of an evaluator of constants for messages and quarantine."""
    return f"constant {getattr(evaluate, '__module__', '')}.{getattr(evaluate, '__qualname__', evaluate)}"


@dataclass(frozen=True)
class DenotationDeclaration:
    """A function from calls to their denotations."""

    function: Reference
    meaning: Callable[[Call], Any]


@dataclass(frozen=True)
class FunctionProperties:
    """The properties that :func:`declare` sets for a function; None for those that it does not set."""

    function: Reference
    metric: bool | None = None
    monotone: str | Callable[[Call], str | None] | None = None
    null_in_null_out: bool | None = None
    deterministic: bool | None = None
    inverse: Any = None
    version: str | None = None
    module: str = ""
    """The module that declares them."""

    def to_dict(self) -> dict[str, Any]:
        """Return the declared properties by name."""
        words = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("function", "module")}
        return {name: word for name, word in words.items() if word is not None}


class _ByFunction(Generic[T]):
    """Declarations by function, each with its position in the order of registration."""

    def __init__(self, parent: _ByFunction[T] | None = None) -> None:
        self._found: dict[str, tuple[tuple[int, T], ...]] = dict(parent._found) if parent else {}
        self.newest = -1
        """The position of the newest declaration."""

    def add(self, functions: Iterable[Reference], thing: T) -> None:
        place = self.newest = next(_places)
        for key in dict.fromkeys(key for function in functions for key in function.spellings()):
            self._found[key] = (*self._found.get(key, ()), (place, thing))

    def drop(self, goes: Callable[[T], bool]) -> None:
        for key, entries in list(self._found.items()):
            if any(goes(thing) for _, thing in entries):
                self._found[key] = tuple(entry for entry in entries if not goes(entry[1]))

    def get(self, key: str) -> list[T]:
        return [thing for _, thing in self._found.get(key, ())]

    def of(self, call: Call) -> list[T]:
        """Return the declarations that may match a call's function, the oldest first."""
        lists = [entries for key in keys_of(call) if (entries := self._found.get(key))]
        if len(lists) < 2:
            return [thing for entries in lists for _, thing in entries]
        return [thing for _, thing in heapq.merge(*lists, key=lambda entry: entry[0])]

    def all(self, since: int = 0) -> list[T]:
        """All declarations from position ``since`` on, without duplicates, the oldest first."""
        return [thing for _, thing in sorted({p: t for e in self._found.values() for p, t in e if p >= since}.items())]


_places = itertools.count()


class Registry:
    """The declarations of one scope, some of them in quarantine.

    Quarantine belongs to the process, not to a session: all sessions of a driver share mappings and metadata, so that a
    failing mapping would lose the same rows, or time out, in another session. A mapping leaves quarantine when it is
    registered again, in any session, or by :func:`release`; a scope (:func:`mappings`) ends with its quarantine.
    """

    def __init__(self, parent: Registry | None = None) -> None:
        self.mappings: dict[str, Mapping] = dict(parent.mappings) if parent else {}
        self.properties: list[FunctionProperties] = list(parent.properties) if parent else []
        self.quarantine: dict[str, str] = dict(parent.quarantine) if parent else {}
        """Mappings, declarations and indexes that queries do not use, by name, with the reason."""
        self._names: _ByFunction[str] = _ByFunction(parent._names if parent else None)
        self._constants: _ByFunction[ConstantDeclaration] = _ByFunction(parent._constants if parent else None)
        self._denotations: _ByFunction[DenotationDeclaration] = _ByFunction(parent._denotations if parent else None)
        self._said: _ByFunction[FunctionProperties] = _ByFunction(parent._said if parent else None)

    # ---- registering

    def add_mapping(self, mapping: Mapping) -> None:
        """Register a rule; it replaces a different rule of the same name, or adds a mapping of the same rule."""
        name = mapping.name
        for key, known in list(self.mappings.items()):
            if known.name == name and known.rule is not mapping.rule:
                del self.mappings[key]
                self._names.drop(key.__eq__)
        key = next(k for n in itertools.count() if (k := name if n == 0 else f"{name} {n + 1}") not in self.mappings)
        self.mappings[key] = mapping
        self._names.add(mapping.functions, key)
        self.quarantine.pop(f"mapping {name}", None)

    def add_constant(self, declared: ConstantDeclaration) -> None:
        """Register an evaluator of a function; the newest is used."""
        self._constants.add((declared.function,), declared)
        self.quarantine.pop(constant_name(declared.evaluate), None)

    def add_denotation(self, declared: DenotationDeclaration) -> None:
        """Register a denotation; another one of the same name is replaced."""
        name = (declared.meaning.__module__, declared.meaning.__qualname__)

        def is_older(known: DenotationDeclaration) -> bool:
            same = (known.meaning.__module__, known.meaning.__qualname__) == name
            return same and known.meaning is not declared.meaning

        self._denotations.drop(is_older)
        self._denotations.add((declared.function,), declared)

    def add_properties(self, said: FunctionProperties) -> None:
        """Register properties of a function."""
        self.properties.append(said)
        self._said.add((said.function,), said)
        self.quarantine.pop(f"what is declared of {said.function.name}", None)

    def add_all(self, other: Registry, since: int) -> None:
        """Register the declarations of another registry from a position in its order on."""
        for name in other._names.all(since):
            self.add_mapping(other.mappings[name])
        for constant in other._constants.all(since):
            self.add_constant(constant)
        for denotation in other._denotations.all(since):
            self.add_denotation(denotation)
        for said in other._said.all(since):
            self.add_properties(said)

    # ---- looking up

    @property
    def version_key(self) -> Hashable:
        """A key that changes with every declaration and every change of quarantine."""
        newest = tuple(kept.newest for kept in (self._names, self._constants, self._denotations, self._said))
        return self, newest, tuple(self.quarantine.items())

    def rules_of(self, call: Call) -> list[Mapping]:
        """The mappings of a call's function, the oldest first."""
        found = (self.mappings.get(name) for name in self._names.of(call))
        return [m for m in found if m is not None and m.concerns((call,))]

    def mismatches(self, call: Call) -> list[Mapping]:
        """The mappings of the call's bare name that are bound to another function of this name."""
        found = (self.mappings.get(name) for name in self._names.get(call.name.lower()))
        named = [m for m in found if m is not None and any(isinstance(f, Named) for f in m.functions)]
        met = {m.name for m in self.rules_of(call)}
        return [m for m in named if m.name not in met]

    def constants_of(self, call: Call) -> list[ConstantDeclaration]:
        """Return the evaluators of this call for literal arguments, the oldest first."""
        return [declared for declared in self._constants.of(call) if declared.function.is_called(call)]

    def evaluator(self, call: Call) -> Callable[..., Any] | None:
        """The newest evaluator of this call for literal arguments, or None."""
        return next((c.evaluate for c in reversed(self._constants.of(call)) if c.function.is_called(call)), None)

    def constant_itself(self, call: Call) -> Callable[..., Any] | None:
        """The Python function of a call, if it is declared as the evaluator of its own constants, else None."""
        found = self.evaluator(call)
        if found is None or constant_name(found) in self.quarantine or not Given(found).is_called(call):
            return None
        return found

    def denotations_of(self, call: Call) -> list[DenotationDeclaration]:
        """Return the denotation declarations of a call, the oldest first."""
        return [declared for declared in self._denotations.of(call) if declared.function.is_called(call)]

    def denotation(self, call: Call) -> Any:
        """Return the denotation of a call by the newest declaration that has one, or None."""
        for declared in reversed(self._denotations.of(call)):
            if declared.function.is_called(call) and (found := declared.meaning(call)) is not None:
                return found
        return None

    def metric(self, function: Any) -> Callable[..., Any] | None:
        """The Python function that is declared to be a metric, given by itself or by its name, or None."""
        for said in reversed(self.properties):
            reference = said.function
            if said.metric is None or not isinstance(reference, Given):
                continue
            if function is reference.function or function == reference.name:
                plain: Callable[..., Any] = reference.function
                return plain if said.metric else None
        return None

    def keeps_nulls(self, function: Any) -> bool:
        """Test whether this Python function is declared to return NULL for NULL."""
        return any(
            said.null_in_null_out and isinstance(said.function, Given) and said.function.function is function
            for said in self.properties
        )

    def version_of(self, name: str) -> str | None:
        """The version that was last declared for a SQL name."""
        named = (p for p in reversed(self._said.get(name.lower())) if isinstance(p.function, Named))
        return next((p.version for p in named if p.version is not None), None)

    def properties_of(self, call: Call) -> FunctionProperties | None:
        """Return the properties of a call's function; for each property the newest declaration is used."""
        found = [p for p in self._said.of(call) if p.function.is_called(call)]
        return functools.reduce(lambda old, new: replace(old, **new.to_dict()), found) if found else None

    def function_of(self, call: Call) -> Callable[..., Any] | None:
        """Return the function that computes this call from plain values, or None."""
        for said in reversed(self._said.of(call)):
            if isinstance(said.function, Given) and said.function.is_called(call):
                plain: Callable[..., Any] = said.function.function
                return plain
        return self.evaluator(call)

    def all_constants(self) -> list[ConstantDeclaration]:
        """All evaluators of functions with literal arguments."""
        return self._constants.all()

    def all_denotations(self) -> list[DenotationDeclaration]:
        """All declarations of denotations."""
        return self._denotations.all()

    # ---- leaving out

    def leave_out(self, name: str, why: str, rule: object = None) -> None:
        """Put a mapping, declaration or index in quarantine.

        Parameters
        ----------
        name
            The name that messages use for it.
        why
            The reason, a sentence without its subject.
        rule
            The rule that failed; nothing happens if it has been replaced meanwhile.
        """
        if rule is None or any(m.rule is rule for m in self.mappings.values() if f"mapping {m.name}" == name):
            self.quarantine.setdefault(name, why)


_scopes: list[Registry] = [Registry()]


def current() -> Registry:
    """The registry of the innermost scope."""
    return _scopes[-1]


@contextmanager
def mappings() -> Iterator[Registry]:
    """Scope for declarations: its declarations and its quarantine are discarded at its end.

    >>> from geoskip.registry import constant
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


@contextmanager
def lasting_declarations() -> Iterator[None]:
    """Keep declarations made within this block when the open scopes end, as packages need.

    >>> from geoskip.registry import constant
    >>> with mappings(), mappings() as scope:
    ...     with lasting_declarations():
    ...         _ = constant("for good")(lambda: 1)
    ...     scope.evaluator(Call("for good", ()))()
    1
    >>> current().evaluator(Call("for good", ()))()
    1
    """
    *outer, scope = _scopes
    since = next(_places)
    try:
        yield
    finally:
        for each in outer:
            each.add_all(scope, since)


def quarantined() -> dict[str, str]:
    """Return the quarantined mappings, declarations and indexes, with the reasons."""
    return dict(current().quarantine)


def release(name: str | None = None) -> None:
    """Release a quarantined mapping, declaration or index by its name, or all of them, for queries.

    Raises InvalidSpecificationError if nothing of this name is in quarantine.
    """
    quarantine = current().quarantine
    if name is None:
        quarantine.clear()
    elif quarantine.pop(name, None) is None:
        held = ", ".join(quarantine) or "nothing"
        raise InvalidSpecificationError(
            f"nothing in quarantine is called {name!r}; in it is {held}, and geoskip.quarantined() has the reasons"
        )
