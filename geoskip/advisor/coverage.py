"""Coverage: the sampled files that a set of indexes keeps, from the masks of single indexes.

A selection that labelled a condition again for every set of indexes would take minutes. So each vertex of a condition
keeps one mask for each index that supports it, and masks are merged as labelling merges clauses
(:mod:`geoskip.planner`): a vertex's own masks are conjoined, an AND conjoins those of its members, an OR disjoins them.
An AND also keeps the mask of an index for the whole AND if several members read its columns, since the index may decide
them together (boxes, listed values).

A file that labelling keeps both with the set of indexes and with each index alone is never skipped here. (One index
alone may detect that members contradict each other, as in ``x = 0 AND (x = 1 OR x > 1)``.) Masks may keep more files
than labelling if a comparison mixes several indexes, except for the given groups. Therefore the reported figures of a
chosen set are computed again by the planner itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from geoskip.clauses import Mask
from geoskip.indexes.base import Index
from geoskip.predicates import And, Not, Or, Predicate, columns_of, normalise

__all__ = ["Coverage", "VertexMasks", "bundles_of", "masks_of", "undominated_indexes"]

Names = frozenset[str]
Decide = Callable[[Predicate, Sequence[Index]], Mask]
"""Returns the mask of the sampled files that a condition keeps with some bound indexes."""
_BEST = 3
"""The number of indexes of each member of an OR that are combined with those of the other members."""
_MOST_BUNDLES = 64


@dataclass(frozen=True, eq=False)
class VertexMasks:
    """The sampled files that a vertex of a condition keeps, by set of indexes.

    Attributes
    ----------
    own
        A mask for each set of indexes that skips a file: one index, several that support the vertex only together, or
        none.
    members
        The members of an AND or OR.
    every
        True for an AND: its members are conjoined.
    """

    own: Mapping[Names, Mask]
    members: tuple[VertexMasks, ...] = ()
    every: bool = True

    def mask(self, names: Names, files: int) -> Mask:
        """Return the mask over ``files`` files for a set of indexes."""
        mask = np.ones(files, dtype=bool)
        for needed, own in self.own.items():
            if needed <= names:
                mask &= own
        if self.members:
            below = [member.mask(names, files) for member in self.members]
            mask &= np.logical_and.reduce(below) if self.every else np.logical_or.reduce(below)
        return mask

    def vertices(self) -> Iterable[VertexMasks]:
        """Iterate over this vertex and those below it."""
        yield self
        for member in self.members:
            yield from member.vertices()


def masks_of(
    condition: Predicate, decide: Decide, indexes: Sequence[Index], together: Iterable[Sequence[Index]] = ()
) -> VertexMasks:
    """Return the masks of a condition and its parts.

    Parameters
    ----------
    condition
        A condition in canonical form (:func:`geoskip.rewrite.canonical`).
    decide
        Called once for each part of the condition and each index over its columns.
    indexes
        Bound indexes.
    together
        Groups of indexes that support a comparison only together.
    """
    groups = [[index] for index in indexes] + [list(group) for group in together]
    reads = [columns_of(*(e for index in g for e in index.bound)) for g in groups]

    def masks(node: Predicate) -> VertexMasks:
        members, every = _members(node)
        columns = [columns_of(member) for member in members or (node,)]
        least = 2 if members else 1  # an index over one member only is decided at that member
        own: dict[Names, Mask] = {}
        if not members and not columns[0] and not (known := decide(node, ())).all():
            own[frozenset()] = known  # never TRUE, such as a condition on a partition value
        for group, over in zip(groups, reads, strict=True):
            if every and sum(not over.isdisjoint(read) for read in columns) >= least:
                mask = decide(node, group)
                if not mask.all():
                    own[frozenset(map(str, group))] = mask
        return VertexMasks(own, tuple(map(masks, members)), every)

    return masks(condition)


def _members(node: Predicate) -> tuple[tuple[Predicate, ...], bool]:
    """Return the members of an AND or OR, with NOT pushed down, and True for an AND; else no members."""
    match node:
        case And(parts):
            return parts, True
        case Or(parts):
            return parts, False
        case Not(And(parts) | Or(parts) as child):
            return tuple(normalise(Not(part)) for part in parts), isinstance(child, Or)
    return (), True


@dataclass(frozen=True, eq=False)
class Coverage:
    """Savings of sets of indexes for a workload, over a sample of files.

    Attributes
    ----------
    queries
        The scans of each query: the masks of its condition, and the mask of the files left by Spark's own pruning.
    sizes
        Bytes of each file of the sample.
    weights
        The number of runs of each query.
    """

    queries: Sequence[Sequence[tuple[VertexMasks, Mask]]]
    sizes: NDArray[np.int64]
    weights: Sequence[float]
    base: Names = frozenset()
    """The existing indexes."""
    _known: dict[tuple[int, Names], float] = field(default_factory=dict, init=False, repr=False)

    def bytes_read(self, query: int, names: Names) -> float:
        """Return the bytes of the sample that a query reads with some indexes and the existing ones."""
        return sum(float(self.sizes[mask].sum()) for mask in self.masks(query, names | self.base))

    def masks(self, query: int, names: Names) -> list[Mask]:
        """Return the mask of the sampled files that each scan of a query reads with some indexes."""
        return [left & masks.mask(names, len(self.sizes)) for masks, left in self.queries[query]]

    def saving(self, names: Names) -> float:
        """Return the weighted bytes that some indexes save in the workload."""
        total = 0.0
        for query, weight in enumerate(self.weights):
            key = (query, names & self._useful_indexes[query])
            if key not in self._known:
                self._known[key] = self.bytes_read(query, frozenset()) - self.bytes_read(query, names)
            total += weight * self._known[key]
        return total

    def workload_bytes(self, names: Names) -> float:
        """Return the weighted bytes that the workload reads with some indexes and the existing ones."""
        return sum(weight * self.bytes_read(query, names) for query, weight in enumerate(self.weights))

    def queries_of(self, name: str) -> list[int]:
        """Return the numbers of the queries for which an index skips a file, alone or with others."""
        return [number for number, names in enumerate(self._useful_indexes) if name in names]

    @cached_property
    def _useful_indexes(self) -> list[Names]:
        """For each query, the indexes that skip a file for some part of its conditions."""
        return [
            frozenset(name for masks, _ in scans for v in masks.vertices() for names in v.own for name in names)
            for scans in self.queries
        ]

    def vertices(self) -> list[VertexMasks]:
        """Return all vertices of all conditions."""
        return [vertex for scans in self.queries for masks, _ in scans for vertex in masks.vertices()]


def undominated_indexes(coverage: Coverage, costs: Mapping[str, float]) -> list[str]:
    """Return the indexes that are not dominated by a cheaper index that skips at least the same files.

    All parts of all conditions are compared. Of several indexes with the same cost and skipped files the first is
    taken. An index of a group that is useful only together is kept.
    """
    vertices = coverage.vertices()
    skipped: dict[str, NDArray[np.bool_]] = {}
    needed: set[str] = set()
    for number, vertex in enumerate(vertices):
        for names, mask in vertex.own.items():
            needed |= names if len(names) > 1 else set()
            for name in names:
                if name not in skipped:
                    skipped[name] = np.zeros((len(vertices), len(coverage.sizes)), dtype=bool)
                skipped[name][number] |= ~mask
    left: list[str] = []
    for name in sorted((name for name in costs if name in skipped), key=lambda name: costs[name]):
        mine = skipped[name]
        if name in needed or not any(not (mine & ~skipped[other]).any() for other in left):
            left.append(name)
    return [name for name in costs if name in left]


def bundles_of(coverage: Coverage, costs: Mapping[str, float]) -> list[tuple[str, ...]]:
    """Return sets of indexes that skip files only together: groups, and one index per member of an OR.

    For each member, the indexes that save most bytes, and most per cost, are combined with those of the other members.
    """
    found: dict[tuple[str, ...], None] = {}
    for vertex in coverage.vertices():
        for names in vertex.own:
            if len(names) > 1 and all(name in costs for name in names):
                found[tuple(sorted(names))] = None
        if vertex.members and not vertex.every:
            best = [_best(member, coverage, costs) for member in vertex.members]
            for chosen in itertools.islice(itertools.product(*best), _MOST_BUNDLES):
                names = frozenset[str]().union(*chosen)
                if len(names) > 1:
                    found[tuple(sorted(names))] = None
    return list(found)


def _best(vertex: VertexMasks, coverage: Coverage, costs: Mapping[str, float]) -> list[Names]:
    """Return the sets of indexes that save most for one member of an OR, and most per cost."""
    known = {names for v in vertex.vertices() for names in v.own if all(name in costs for name in names)}
    files = len(coverage.sizes)
    already = vertex.mask(coverage.base, files)
    saved = {n: float(coverage.sizes[already & ~vertex.mask(n | coverage.base, files)].sum()) for n in known}
    most = sorted((n for n in known if saved[n] > 0), key=lambda n: (-saved[n], sorted(n)))
    cheap = sorted(most, key=lambda n: -saved[n] / max(1e-9, sum(costs[name] for name in n)))
    best = list(dict.fromkeys((*most[:_BEST], *cheap[:_BEST])))
    return best or [frozenset()]
