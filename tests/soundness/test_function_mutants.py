"""Wrong rules of which function is which, and of what mappings are offered: files must be lost that hold rows."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoskip import predicates as p
from geoskip.clauses import KEEP_ALL, Clause, all_of, any_of, keep_mask
from geoskip.indexes.base import SourceColumn
from geoskip.indexes.minmax import MinMax
from geoskip.metadata import FileMetadata
from geoskip.planner import Labeller, clause_for
from geoskip.registry import declare, mappings, maps
from geoskip.registry.fingerprint import digest, identity, state_version
from tests.support.planting import Patch, before, function, listed

MUTANTS: list[Any] = []
A = p.Column("a", "bigint")
INDEX = MinMax("a").bind([A])
ROWS = [[1, 2], [3, 4], [5, 6], [-2, -1]]
STORED = INDEX.metadata_type(SourceColumn("a", "bigint", pa.int64()))
FILES = FileMetadata.of(
    pa.table(
        {
            "file": pa.array(range(len(ROWS))),
            str(INDEX): pa.array([INDEX.collect(pa.array(rows)) for rows in ROWS], STORED),
        }
    )
)


def mutant(rule: str, check: Callable[[], None]) -> Callable[[Patch], Patch]:
    """A mutant, the rule that it breaks, and the check that finds it."""
    return listed(MUTANTS, rule, check)


def sound(node: p.Predicate, holds: Callable[[int], bool], skips: int = 0) -> None:
    """No file is skipped that has a row for which the condition holds; so many are, at least."""
    keep = keep_mask(clause_for(node, [INDEX]), FILES)
    for rows, kept in zip(ROWS, keep, strict=True):
        assert kept or not any(map(holds, rows)), f"{node} holds in {rows}, which is skipped"
    assert np.count_nonzero(~keep) >= skips, f"{node} skips too few files"


def called(f: Any) -> p.Call:
    """A query's call of a Python function over the column."""
    return p.Call("f", (A,), f"python:{identity(f)}", ("eval:100",), "bigint")


# ---- which function is which


class Times:
    """A callable object that bears all that a function's wrappers bear, and compares as any other."""

    def __init__(self, function: Callable[..., Any], number: int) -> None:
        functools.update_wrapper(self, function)
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Times)

    def __hash__(self) -> int:
        return 1

    def __call__(self, a: int) -> int:
        return a * self.number


def _own() -> Callable[[int], int]:
    def tenfold(a: int) -> int:
        return 10 * a

    return tenfold


def _wrapper(function: Callable[[int], int]) -> Any:
    @functools.wraps(function)
    def negated(a: int) -> int:
        return -function(a)

    return negated


def declared() -> None:
    """What is declared of a function, with its version, is not said of what wraps it."""
    with mappings():
        one = _own()
        declare(one, monotone="increasing", inverse=lambda v: v // 10, version="1")
        sound(p.Comparison("=", called(one), p.Literal(40, "bigint")), lambda a: one(a) == 40, skips=3)
        for other in (_wrapper(one), Times(one, -10), Times(one, -5)):
            for value in (-40, -20, -10, 20):
                node = p.Comparison("=", called(other), p.Literal(value, "bigint"))
                sound(node, lambda a, other=other, value=value: other(a) == value)


def objects() -> None:
    """One object is not another that compares as it does, nor what it was before it changed."""
    with mappings():
        one = Times(_own(), 10)
        declare(one, monotone="increasing", inverse=lambda v: v // 10, version="1")
        sound(p.Comparison("=", called(one), p.Literal(40, "bigint")), lambda a: one(a) == 40, skips=3)
        node = p.Comparison("=", called(Times(_own(), -20)), p.Literal(40, "bigint"))
        sound(node, lambda a: -20 * a == 40)


def mapped() -> None:
    """A mapping of a function is not one of what wraps it."""
    with mappings():
        one = _own()
        maps(one, index=MinMax)(_tenth)
        sound(p.Comparison("=", called(one), p.Literal(40, "bigint")), lambda a: one(a) == 40, skips=3)
        for other in (_wrapper(one), Times(one, -10)):
            node = p.Comparison("=", called(other), p.Literal(-20, "bigint"))
            sound(node, lambda a, other=other: other(a) == -20)


def released() -> None:
    """A mapping of a distribution's function is not one of what bears its name."""

    @functools.wraps(json.dumps)
    def turned(a: int) -> int:
        return -10 * a

    with mappings():
        maps(json.dumps, index=MinMax)(_tenth)
        sound(p.Comparison("=", called(turned), p.Literal(-20, "bigint")), lambda a: turned(a) == -20)


def _tenth(node: p.Predicate, index: MinMax) -> Clause | None:
    match node:
        case p.Comparison("=", p.Call(_, (a,)), p.Literal(int() as value)):
            return index.clause(p.Comparison("=", a, p.Literal(value // 10, "bigint")))
    return None


def _attribute_of(function: Any) -> Any:
    """A value kept as an attribute, which ``functools.wraps`` copies."""
    return getattr(function, "__dict__", {}).get("__geoskip__")


@mutant("identity belongs to the object", declared)
def a_version_is_an_attribute(patch: pytest.MonkeyPatch) -> None:
    def state(original: Any, f: Any, version: str) -> None:
        original(f, version)
        f.__geoskip__ = identity(f)

    function(patch, state_version, state)
    function(patch, identity, lambda original, f: _attribute_of(f) or original(f))


@mutant("identity belongs to the object", objects)
def a_version_is_of_all_that_are_equal(patch: pytest.MonkeyPatch) -> None:
    kept: dict[Any, str] = {}

    def state(original: Any, f: Any, version: str) -> None:
        original(f, version)
        kept[f] = identity(f)

    function(patch, state_version, state)
    function(patch, identity, lambda original, f: kept.get(f) or original(f))


@mutant("identity belongs to the object", mapped)
def an_identity_is_an_attribute(patch: pytest.MonkeyPatch) -> None:
    def known(original: Any, f: Any) -> Any:
        if _attribute_of(f) is None:
            f.__geoskip__ = original(f)
        return _attribute_of(f)

    function(patch, identity, known)


@mutant("a function's content is its own", mapped)
def what_is_wrapped_is_the_content(patch: pytest.MonkeyPatch) -> None:
    def of_wrapped(original: Any, f: Any) -> str:
        name = getattr(f, "__qualname__", type(f).__qualname__)
        return f"{f.__module__}.{name}#{digest(getattr(f, '__wrapped__', f))}"

    function(patch, identity, of_wrapped)


@mutant("a function's content is its own", released)
def a_name_in_a_distribution_is_believed(patch: pytest.MonkeyPatch) -> None:
    def named(original: Any, f: Any) -> Any:
        return original(getattr(sys.modules[f.__module__], f.__name__, f))

    function(patch, identity, named)


@mutant("what is declared belongs to the object", declared)
def a_wrapper_is_what_it_wraps(patch: pytest.MonkeyPatch) -> None:
    function(patch, identity, lambda original, f: original(getattr(f, "__wrapped__", f)))


# ---- IN, as its equalities


def f(a: int) -> int:
    return 10 * a


def among() -> None:
    """IN and NOT IN over a mapped function, whose mapping knows equalities and inequalities of tens alone."""
    with mappings():

        @maps(f, index=MinMax)
        def equality(node: p.Predicate, index: MinMax) -> Clause | None:
            match node:
                case p.Comparison("=", p.Call(_, (a,)), p.Literal(int() as value)) if value % 10 == 0 and value < 50:
                    return index.clause(p.Comparison("=", a, p.Literal(value // 10, "bigint")))
            return None

        one, two, none = 10, 30, 60
        for values, skips in (((one, two), 2), ((two, one), 2), ((one, 7), 0), ((one, none), 0), ((none, one), 0)):
            node = p.In(called(f), tuple(p.Literal(value, "bigint") for value in values))
            sound(node, lambda a, values=values: f(a) in values, skips)
            sound(p.Not(node), lambda a, values=values: f(a) not in values)


def _among(patch: pytest.MonkeyPatch, change: Callable[[list[Clause]], Clause]) -> None:
    """A clause of IN made of those of its equalities."""

    def true(original: Any, label: Labeller, node: p.Predicate) -> Clause:
        match node:
            case p.In(p.Call() as child, values):
                return change([label.true(p.Comparison("=", child, value)) for value in values])
        found: Clause = original(label, node)
        return found

    before(patch, Labeller, "true", true)


@mutant("2: IN matches any of its values", among)
def the_first_equality_stands_for_all(patch: pytest.MonkeyPatch) -> None:
    _among(patch, lambda clauses: clauses[0])


@mutant("2: IN matches any of its values", among)
def every_equality_must_hold(patch: pytest.MonkeyPatch) -> None:
    _among(patch, all_of)


@mutant("1: unknown is KEEP", among)
def an_equality_without_a_clause_is_left_out(patch: pytest.MonkeyPatch) -> None:
    _among(patch, lambda clauses: any_of(clause for clause in clauses if clause is not KEEP_ALL))


@mutant("2: NOT IN is the AND of inequalities", among)
def not_in_is_offered_as_in(patch: pytest.MonkeyPatch) -> None:
    def false(original: Any, label: Labeller, node: p.Predicate) -> Clause:
        return label.true(node) if isinstance(node, p.In) else original(label, node)

    before(patch, Labeller, "false", false)


@pytest.mark.parametrize(("plant", "check"), MUTANTS)
def test_the_checks_catch(plant: Patch, check: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="which is skipped"):
        check()


@pytest.mark.parametrize("check", [declared, objects, mapped, released, among])
def test_nothing_is_found_where_nothing_is_planted(check: Callable[[], None]) -> None:
    check()
