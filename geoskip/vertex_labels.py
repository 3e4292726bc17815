"""The labelled tree of a decision, for reports: each vertex of the predicate with its clause.

The tree is the one that was labelled, after rewriting. NOT is shown at the leaves only: ``NOT (a AND b)`` is labelled
with the clause for ``a AND b`` being FALSE and shown as ``NOT a OR NOT b``, which is TRUE for the same rows, also with
NULL. Vertices below a leaf, such as the operands of a comparison, have no label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from geoskip.clauses import KEEP_ALL, Clause
from geoskip.predicates import And, Not, Or, Predicate, normalise

Memo = Mapping[tuple[str, int], tuple[Predicate, Clause]]
"""Vertices with their clauses, by verdict and ``id`` of the vertex."""


@dataclass(frozen=True)
class VertexLabel:
    """A vertex, the clause that represents it, and the vertices below."""

    vertex: Predicate
    clause: Clause
    below: tuple[VertexLabel, ...] = ()


def labels_of(vertex: Predicate, memo: Memo, verdict: str = "true", depth: int = 100) -> VertexLabel:
    """Label a vertex and those below it from the memo of a labeller.

    Parameters
    ----------
    vertex
        The vertex that was labelled.
    memo
        The clauses of the labeller; a vertex without one is labelled ``KEEP_ALL``.
    verdict
        The verdict needed of the vertex: ``"true"`` or ``"false"``.
    depth
        The most levels of the tree; the default is the depth limit of a labeller.
    """
    is_needed = verdict == "true"
    if isinstance(vertex, Not) and isinstance(vertex.child, And | Or):
        return labels_of(vertex.child, memo, "false" if is_needed else "true", depth)
    clause = memo.get((verdict, id(vertex)), (vertex, KEEP_ALL))[1]
    if not isinstance(vertex, And | Or) or not depth:
        return VertexLabel(vertex if is_needed else normalise(Not(vertex)), clause)
    below = tuple(labels_of(child, memo, verdict, depth - 1) for child in vertex.children)
    if is_needed:
        return VertexLabel(vertex, clause, below)
    return VertexLabel((Or if isinstance(vertex, And) else And)(vertex.children), clause, below)


@dataclass(frozen=True)
class VertexShare:
    """A vertex of the predicate as SQL text, and the number of files that it alone would skip."""

    text: str
    """``AND`` or ``OR`` for a vertex with vertices below, else the condition."""
    skips: int
    among: int
    """The number of files that the scan listed; ``skips`` counts only these."""
    indexes: tuple[str, ...] = ()
    """The indexes that its clause reads; empty without a clause."""
    below: tuple[VertexShare, ...] = ()

    def has_shape_of(self, other: VertexShare) -> bool:
        """True if both trees have the same texts."""
        return self.text == other.text and all(
            a is not None and b is not None and a.has_shape_of(b) for a, b in zip_longest(self.below, other.below)
        )

    def plus(self, other: VertexShare) -> VertexShare:
        """Add the counts of a tree of the same shape, over other files."""
        return VertexShare(
            self.text, self.skips + other.skips, self.among + other.among,
            tuple(dict.fromkeys((*self.indexes, *other.indexes))),
            tuple(a.plus(b) for a, b in zip(self.below, other.below, strict=True)),
        )  # fmt: skip


def shares_of(label: VertexLabel, skips: Callable[[Clause], int], among: int) -> VertexShare:
    """Count the files that each vertex alone would skip.

    Parameters
    ----------
    label
        The labelled tree.
    skips
        Counts the files that a clause skips.
    among
        The number of files that ``skips`` considers.
    """
    words: dict[type[Predicate], str] = {And: "AND", Or: "OR"}
    return VertexShare(
        words[type(label.vertex)] if label.below else str(label.vertex),
        0 if label.clause is KEEP_ALL else skips(label.clause),
        among,
        tuple(dict.fromkeys(index for index, _ in label.clause.columns())),
        tuple(shares_of(each, skips, among) for each in label.below),
    )


def sum_shares(shares: Iterable[VertexShare]) -> Sequence[VertexShare]:
    """Add up trees of the same shape; those over the most files come first."""
    found: list[VertexShare] = []
    for share in shares:
        at = next((at for at, other in enumerate(found) if other.has_shape_of(share)), None)
        if at is None:
            found.append(share)
        else:
            found[at] = found[at].plus(share)
    return sorted(found, key=lambda share: -share.among)
