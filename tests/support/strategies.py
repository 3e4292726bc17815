"""Hypothesis strategies: values, files and predicate trees over the columns of the harness."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterable
from typing import Any, TypeVar

from hypothesis import strategies as st

from geoskip import predicates as p
from tests.support.harness import COLUMNS, PATTERNS, POOLS, TEXTS, World, call, expressions

__all__ = ["examples", "literals", "predicates", "rows_of", "some_of", "worlds"]

T = TypeVar("T")

SOAK = os.environ.get("GEOSKIP_EXAMPLES") == "other"


def examples(number: int) -> int:
    """The number of random examples for a test: all in ``make soak``, otherwise a quarter."""
    return number if SOAK else max(number // 4, 10)


def some_of(items: Iterable[T], step: int) -> list[T]:
    """All of a grid in ``make soak``, else every ``step``-th; tests with it are marked hypothesis."""
    return [*items][:: 1 if SOAK else step]


_EXPRESSIONS = {name: expressions(name) for name in COLUMNS}


def literals(name: str) -> st.SearchStrategy[p.Literal]:
    """A literal to compare a column with."""
    return st.sampled_from(_EXPRESSIONS[name][0][1])


def _any_of(items: list[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, len(items) - 1).map(lambda at: items[at])  # the repr of sampled_from would list them all


def _windows(name: str) -> st.SearchStrategy[list[Any]]:
    """The values of a column in one file: only nulls, one value, or a range of its pool, maybe with null."""
    pool = POOLS[name]
    stretches = [pool[at : at + width] for at in range(len(pool)) for width in (1, 1, 2, 3)]
    return _any_of([*stretches, *([*some, None] for some in stretches), pool, *[[None]] * len(stretches)])


# Created once: creating a strategy takes longer than drawing from it.
_WINDOWS = {name: _windows(name) for name in COLUMNS}
_COUNT = st.sampled_from([0, 1, 1, 2, 2, 3, 4])
_CHOICE = st.integers(0, 99)
_FILES = st.integers(1, 5)


@st.composite
def rows_of(draw: Any, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows of one file."""
    columns = {name: draw(_WINDOWS[name]) for name in names}
    return [{n: pool[draw(_CHOICE) % len(pool)] for n, pool in columns.items()} for _ in range(draw(_COUNT))]


@functools.cache
def worlds(names: tuple[str, ...]) -> st.SearchStrategy[World]:
    """Strategy of some files over these columns, in which one or two summaries are sometimes lost."""
    files = st.lists(rows_of(names), min_size=1, max_size=5)
    cells = st.tuples(st.integers(0, 4), st.sampled_from(names))
    lost = st.one_of(*[st.just([])] * 3, st.lists(cells, max_size=2))
    return st.builds(lambda files, lost, cut: World(files, set(lost), cut), files, lost, st.integers(0, 2))


def _leaves(name: str) -> st.SearchStrategy[p.Predicate]:
    """A leaf over one column, with common shapes more likely."""
    column = COLUMNS[name]
    compared, inside, plain = [], [], []
    for expression, values in _EXPRESSIONS[name]:
        for op, literal in itertools.product(("=", "<=>", "<", "<=", ">", ">="), values):
            compared += [p.Comparison(op, expression, literal), p.Comparison(op, literal, expression)]
        several = itertools.combinations([*values, p.Literal(None)], 2)
        inside += [p.In(expression, tuple(some)) for some in several]
        plain += [p.IsNull(expression), p.Opaque("f", (name,)), p.Opaque("g", (name,))]
    special: list[p.Predicate] = []
    if name == "b":
        special.append(column)
    if name in "xf":
        special += [call("isnan", expression) for expression, _ in _EXPRESSIONS[name]]
    if name == "s":
        special += [kind(column, text) for kind in (p.StartsWith, p.EndsWith, p.Contains) for text in TEXTS]
        special += [p.Like(column, pattern, "!") for pattern in PATTERNS]
    pools = [compared, compared, compared, inside, plain, special or compared]
    return st.one_of(*map(_any_of, pools))


@functools.cache
def predicates(names: tuple[str, ...]) -> st.SearchStrategy[p.Predicate]:
    """Trees of AND, OR, NOT, CASE, coalesce and IS TRUE up to about four levels."""
    truth = st.sampled_from([p.TRUE, p.FALSE])

    def joined(part: st.SearchStrategy[p.Predicate]) -> st.SearchStrategy[p.Predicate]:
        several = st.lists(part, min_size=2, max_size=3).map(tuple)
        return st.one_of(
            several.map(p.And),
            several.map(p.Or),
            part.map(p.Not),
            part.map(p.Not),
            st.builds(lambda *three: call("if", *three, type="boolean"), part, part, part),
            several.map(lambda parts: call("coalesce", *parts, type="boolean")),
            st.builds(lambda c, t: p.Comparison("<=>", c, t), part.filter(_is_condition), truth),
            part.filter(_is_condition).map(p.IsNull),
        )

    return st.recursive(st.one_of(*map(_leaves, names)), joined, max_leaves=6)


def _is_condition(node: p.Predicate) -> bool:
    return isinstance(node, p.And | p.Or | p.Not | p.Comparison | p.In)
