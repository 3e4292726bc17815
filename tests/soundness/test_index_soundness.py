"""One property over all index types: no verdict excludes an outcome that a row of the file has. And none is vacuous.

To add an index type, add a line to KINDS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geoskip import predicates as p
from geoskip.clauses import KEEP_ALL, keep_mask
from geoskip.indexes.affix import Prefix, Suffix
from geoskip.indexes.bloom import BloomFilter
from geoskip.indexes.gaplist import GapList
from geoskip.indexes.hybrid import Hybrid
from geoskip.indexes.metricdist.index import MetricDist
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.valuelist import ValueList
from tests.support.evaluator import outcomes
from tests.support.harness import TYPES, Kind, World, canned, leaves, sound, verdict
from tests.support.strategies import examples, predicates, some_of, worlds

EXAMPLES = examples(100)


@dataclass(frozen=True)
class Case:
    """An index type: how it is made for a column, which columns it takes, the leaf shapes that it cannot decide."""

    make: Kind
    columns: tuple[str, ...] = tuple(TYPES)
    undecided: frozenset[str] = field(default_factory=frozenset)

    @property
    def triples(self) -> list[tuple[str, ...]]:
        """The columns, three at a time."""
        found = [self.columns[at : at + 3] for at in range(0, len(self.columns), 3)]
        return [triple if len(triple) == 3 else self.columns[-3:] for triple in found]


_TEXT = ("StartsWith", "EndsWith", "Contains", "Like")


def either(*shapes: str) -> frozenset[str]:
    """The shapes, plain and negated."""
    return frozenset(shapes).union(f"NOT {shape}" for shape in shapes)


KINDS: dict[str, Case] = {
    "hybrid": Case(Hybrid),
    "valuelist": Case(ValueList),
    "metricdist": Case(
        lambda name: MetricDist(name, metric="levenshtein", origins=["", "ab", "z" * 31]),
        ("s",),
        either("<", "<=", ">", ">=", *_TEXT) - {"Like"},  # without a wildcard it is an equality
    ),
    "minmax": Case(MinMax, undecided=either("Contains", "EndsWith")),
    "bloomfilter": Case(
        BloomFilter,
        undecided=either("<", "<=", ">", ">=", *_TEXT) - {"Like"} | {"NOT =", "NOT In", "NOT isnan"},
    ),
    "gaplist": Case(lambda name: GapList(name, gaps=2), tuple(name for name in TYPES if name not in "sb")),
    "prefix": Case(lambda name: Prefix(name, length=2), ("s",), either("EndsWith", "Contains")),
    "suffix": Case(lambda name: Suffix(name, length=2), ("s",), either("StartsWith", "Contains", "<", "<=", ">", ">=")),
}


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", KINDS)
def test_no_verdict_excludes_an_outcome_that_a_row_has(kind: str) -> None:
    case = KINDS[kind]

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(_cases(case))
    def holds(drawn: tuple[World, p.Predicate]) -> None:
        world, predicate = drawn
        sound(predicate, replace(world, kinds=(case.make,)))

    holds()


@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", KINDS)
def test_no_leaf_excludes_an_outcome_that_a_row_has(kind: str) -> None:
    case = KINDS[kind]
    for name in case.columns:
        world = canned(name, case.make)
        for leaf in some_of(leaves(name), 5):
            sound(leaf, world)
            sound(p.Not(leaf), world)


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", KINDS)
def test_a_mapping_that_asks_an_index_of_a_vertex_in_another_form_loses_no_row(kind: str) -> None:
    case = KINDS[kind]
    for name in case.columns:
        world = canned(name, case.make)
        (index,) = world.types
        for leaf in some_of(leaves(name), 5):
            match leaf:
                case p.Comparison("<=>") | p.Comparison(_, _, p.Literal(None)):
                    nodes = [leaf, p.Not(leaf)]
                case p.In(_, values) if any(literal.value is None for literal in values):
                    nodes = [leaf, p.Not(leaf)]
                case p.Comparison("<" | "<=" | ">" | ">="):
                    nodes = [p.Not(leaf)]
                case _:
                    continue
            for node in nodes:
                clause = index.clause(node)
                kept = keep_mask(KEEP_ALL if clause is None else clause, world.metadata)
                for row, files in world.rows:
                    if True in outcomes(node, row):
                        assert kept[files].all(), (node, row, clause)


@st.composite
def _cases(draw: Any, case: Case) -> tuple[World, p.Predicate]:
    names = draw(st.sampled_from(case.triples))
    return draw(worlds(names)), draw(predicates(names))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_leaf_shape_skips_a_file_with_values_or_is_listed_as_undecided(
    kind: str, say: Callable[[str], None]
) -> None:
    case = KINDS[kind]
    seen: set[str] = set()
    skipping: set[str] = set()
    for name in case.columns:
        world = canned(name, case.make)
        held = [any(row[name] is not None for row in rows) for rows in world.files]
        for leaf in filter(_compares_values, leaves(name)):
            for node in (leaf, p.Not(leaf)):
                shape = shape_of(node)
                seen.add(shape)
                if shape not in skipping:
                    kept = verdict(node, world).true.tolist()
                    counts = held if "IsNull" not in shape else map(bool, world.files)
                    if any(has and not keeps for has, keeps in zip(counts, kept, strict=True)):
                        skipping.add(shape)
    plain = sorted(shape for shape in seen if not shape.startswith("NOT "))
    signs = (f"{shape} {_sign(shape, skipping)}{_sign(f'NOT {shape}', skipping)}" for shape in plain)
    say(f"{kind:11} {'  '.join(signs)}")
    assert seen - skipping == case.undecided & seen


def _sign(shape: str, skipping: set[str]) -> str:
    return "+" if shape in skipping else "-"


def _compares_values(leaf: p.Predicate) -> bool:
    """NULL among the literals makes some leaves never TRUE, which skips without an index."""
    literals = leaf.values if isinstance(leaf, p.In) else p.children(leaf)
    return not any(isinstance(literal, p.Literal) and literal.value is None for literal in literals)


def shape_of(node: p.Predicate) -> str:
    """A leaf's shape: ``NOT <``, ``In``, ``Like``, ``isnan``."""
    match node:
        case p.Not(child):
            return f"NOT {shape_of(child)}"
        case p.Comparison(op):
            return op
        case p.Call(name):
            return name
    return type(node).__name__
