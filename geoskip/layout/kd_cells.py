"""Cells of a k-d tree (Bentley, 1975), fitted to the ranks of a sample.

A cell that is to hold n files is cut in two, along the dimension in which its rows spread over the widest range of
quantiles, where the shares of the sample on both sides come nearest to n // 2 and the other files. A value is never
divided; where values are so heavy that the files of both sides would differ by more than a quarter, another dimension
is tried, and where none is better than twice, the cell keeps its files: rows that the dimensions hardly tell apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geoskip.layout.ranks import Ints

_EVEN = 1.25
_UNEVEN = 2.0
"""Rows a file on the fuller side of a cut, over those of the cell: aimed at, and at most."""


@dataclass(frozen=True, eq=False)
class KDCells:
    """A tree for each group of rows.

    Attributes
    ----------
    dimensions, cuts, lower, upper
        By node: the dimension, the least rank of the upper side, and the nodes below; ``-1 - c`` is the cell c.
    roots
        By group: its first node or cell.
    files
        By cell: its number of files. Cells are numbered by group, and in the order of the tree.
    """

    dimensions: Ints
    cuts: Ints
    lower: Ints
    upper: Ints
    roots: Ints
    files: Ints

    @classmethod
    def fit(cls, ranks: Ints, groups: Ints, files: Ints) -> KDCells:
        """Cells for a sample.

        Parameters
        ----------
        ranks
            Shape (dimensions, rows).
        groups
            The group of each row, from 0.
        files
            The number of files of each group.
        """
        growing = _Growing(ranks)
        order = np.argsort(groups, kind="stable")
        starts = np.searchsorted(groups[order], np.arange(len(files) + 1))
        roots = [
            growing.add(order[a:b], int(n)) for a, b, n in zip(starts[:-1], starts[1:], files.tolist(), strict=True)
        ]
        dimensions, cuts, lower, upper = np.array(growing.nodes, np.int64).reshape(-1, 4).T
        return cls(dimensions, cuts, lower, upper, np.array(roots), np.array(growing.files))

    def of(self, ranks: Ints, groups: Ints) -> Ints:
        """The cell of each row; arguments as for :meth:`fit`."""
        where = self.roots[groups]
        rows = np.flatnonzero(where >= 0)
        while len(rows):
            node = where[rows]
            is_lower = ranks[self.dimensions[node], rows] < self.cuts[node]
            where[rows] = np.where(is_lower, self.lower[node], self.upper[node])
            rows = rows[where[rows] >= 0]
        return np.asarray(-1 - where)


class _Growing:
    """The nodes and cells of trees under construction."""

    def __init__(self, ranks: Ints) -> None:
        self.ranks = ranks
        self.quantiles = np.stack([_quantiles(column) for column in ranks])
        self.nodes: list[tuple[int, int, int, int]] = []
        self.files: list[int] = []

    def add(self, rows: Ints, files: int) -> int:
        """Add the tree of some rows for so many files, and return its node, or ``-1 - c`` for the cell c."""
        found = self._cut(rows, files) if files > 1 else None
        if found is None:
            self.files.append(files)
            return -len(self.files)
        dimension, cut, lower_files = found
        number = len(self.nodes)
        self.nodes.append((dimension, cut, 0, 0))
        is_lower = self.ranks[dimension, rows] < cut
        lower = self.add(rows[is_lower], lower_files)
        upper = self.add(rows[~is_lower], files - lower_files)
        self.nodes[number] = (dimension, cut, lower, upper)
        return number

    def _cut(self, rows: Ints, files: int) -> tuple[int, int, int] | None:
        """The dimension, the cut and the files below it; None where the rows are not to be told apart."""
        if len(rows) < 2:
            return None
        spread = np.ptp(self.quantiles[:, rows], axis=1)
        best: tuple[float, int, int, int] | None = None
        for dimension in np.argsort(-spread, kind="stable").tolist():
            for cut, lower in _near_the_middle(self.ranks[dimension, rows], files):
                share = lower / len(rows)
                n = min(max(round(files * share), 1), files - 1)
                uneven = max(share * files / n, (1 - share) * files / (files - n))
                if best is None or uneven < best[0]:
                    best = (uneven, dimension, cut, n)
            if best is not None and best[0] <= _EVEN:
                break
        return None if best is None or best[0] > _UNEVEN else best[1:]


def _near_the_middle(values: Ints, files: int) -> list[tuple[int, int]]:
    """The cuts between distinct values next to the middle, each with the number of values below it."""
    ordered = np.sort(values)
    middle = round(len(ordered) * (files // 2) / files)
    value = ordered[min(middle, len(ordered) - 1)]
    below, above = np.searchsorted(ordered, value), np.searchsorted(ordered, value, "right")
    return [(int(ordered[at]), int(at)) for at in (below, above) if 0 < at < len(ordered)]


def _quantiles(values: Ints) -> NDArray[np.float64]:
    """The share of values below each value, and half of those equal to it."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    above = np.cumsum(counts)
    return np.asarray(((above - counts / 2) / max(1, len(values)))[places])
