"""Cells of a k-d tree (Bentley, 1975), fitted to the ranks of a sample.

A cell for n files is cut in two near its middle. The dimension and the place of the cut minimise the expected rows read
by a point query on one column, with the point drawn from the rows: the rows of each side times the share of all rows
within its bounds, summed over the dimensions. A cut never divides rows with one value, so a frequent value gets its own
cell if that reduces the rows read. Cuts that leave the rows per file on both sides within 40 % of the mean are
preferred. Cuts that differ from it by more than 100 % are not made: such a cell, with rows that the dimensions hardly
distinguish, is divided into its files by keys and ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from geoskip.layout.ranks import Ints

_EVEN = 0.4
_UNEVEN = 1.0
"""The relative deviation of a side's rows per file from the mean of all files: the target and the limit."""
_FEW = 16
"""Up to this number of files, a cut between any two files is considered."""


@dataclass(frozen=True, eq=False)
class KDCells:
    """A tree for each group of rows.

    Attributes
    ----------
    dimensions, cuts, lower, upper
        For each node, the dimension, the least rank of the upper side, and the two child nodes; ``-1 - c`` is the cell
        c.
    roots
        For each group, its root node or cell.
    files
        For each cell, its number of files. Cells are numbered by group, and in the order of the tree.
    """

    dimensions: Ints
    cuts: Ints
    lower: Ints
    upper: Ints
    roots: Ints
    files: Ints

    @classmethod
    def fit(cls, ranks: Ints, groups: Ints, files: Ints) -> KDCells:
        """Fit trees to a sample.

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
            growing.add(order[a:b], n, (b - a) / n)
            for a, b, n in zip(starts[:-1].tolist(), starts[1:].tolist(), files.tolist(), strict=True)
        ]
        dimensions, cuts, lower, upper = np.array(growing.nodes, np.int64).reshape(-1, 4).T
        return cls(dimensions, cuts, lower, upper, np.array(roots), np.array(growing.files))

    def of(self, ranks: Ints, groups: Ints) -> Ints:
        """Return the cell of each row; arguments as for :meth:`fit`."""
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
        is_narrow = ranks.max(initial=0) < 1 << 16  # numpy uses radix sort for 16 bits
        self.ranks: Any = ranks.astype(np.uint16) if is_narrow else ranks
        self.shares = [np.concatenate([[0], np.cumsum(np.bincount(column))]) / len(column) for column in ranks]
        self.nodes: list[tuple[int, int, int, int]] = []
        self.files: list[int] = []

    def add(self, rows: Ints, files: int, mean: float) -> int:
        """Add the tree for some rows.

        Parameters
        ----------
        rows
            Positions of the sampled rows.
        files
            The number of files for these rows.
        mean
            The mean rows per file in the whole tree.

        Returns
        -------
        int
            The number of its node, or ``-1 - c`` for the cell c.
        """
        found = self._cut(rows, files, mean) if files > 1 else None
        if found is None:
            self.files.append(files)
            return -len(self.files)
        dimension, cut, lower_files = found
        number = len(self.nodes)
        self.nodes.append((dimension, cut, 0, 0))
        is_lower = self.ranks[dimension, rows] < cut
        lower = self.add(rows[is_lower], lower_files, mean)
        upper = self.add(rows[~is_lower], files - lower_files, mean)
        self.nodes[number] = (dimension, cut, lower, upper)
        return number

    def _cut(self, rows: Ints, files: int, mean: float) -> tuple[int, int, int] | None:
        """Return the dimension, the cut and the files of its lower side; None if no cut is good enough."""
        best: tuple[float, float, int, int, int] | None = None
        for dimension, column in enumerate(self.ranks):
            order = rows[np.argsort(column[rows], kind="stable")]
            ordered = self.ranks[:, order]
            places = _near_the_middle(ordered[dimension], files)
            for at, (lower_box, upper_box) in zip(places, _boxes(ordered, places), strict=True):
                upper = len(rows) - at
                n = _lower_files(at, upper, _is_point(lower_box), _is_point(upper_box), files, mean)
                upper_files = files - n
                uneven = max(abs(at / n / mean - 1), abs(upper / upper_files / mean - 1))
                if best is None or max(uneven, _EVEN) <= best[0]:
                    cost = at * self._read_share(lower_box) + upper * self._read_share(upper_box)
                    found = (max(uneven, _EVEN), cost, dimension, int(ordered[dimension, at]), n)
                    best = found if best is None else min(best, found)
        return None if best is None or best[0] > _UNEVEN else best[2:]

    def _read_share(self, box: _Box) -> float:
        """Return the share of point queries on one column that read a box, summed over the columns."""
        return float(sum(below[high + 1] - below[low] for below, low, high in zip(self.shares, *box, strict=True)))


_Box = tuple[list[int], list[int]]
"""The least and the greatest rank of some rows in each dimension."""


def _boxes(ordered: Ints, places: list[int]) -> list[tuple[_Box, _Box]]:
    """Return the boxes of the rows before each place, and of the rows from it.

    >>> _boxes(np.array([[1, 5, 7], [4, 2, 2]]), [1])
    [(([1, 4], [1, 4]), ([5, 2], [7, 2]))]
    """
    low, high = (least_or_most.reduceat(ordered, [0, *places], axis=1).T for least_or_most in (np.minimum, np.maximum))

    def grown(low: Ints, high: Ints) -> list[_Box]:
        ends = np.minimum.accumulate(low).tolist(), np.maximum.accumulate(high).tolist()
        return list(zip(*ends, strict=True))

    return list(zip(grown(low, high)[:-1], grown(low[::-1], high[::-1])[-2::-1], strict=True))


def _is_point(box: _Box) -> bool:
    """True if all rows of a box have equal ranks."""
    return box[0] == box[1]


def _lower_files(at: int, upper: int, is_lower_equal: bool, is_upper_equal: bool, files: int, mean: float) -> int:
    """Return the number of files of a cut's lower side.

    It is proportional to its rows, or less for equal rows, which are read together anyway. Neither side gets more files
    than rows, if there are enough rows.
    """
    most = (1 + _EVEN) * mean
    n: float = files * at / (at + upper)
    if is_lower_equal and not is_upper_equal:
        n = np.ceil(at / most)
    elif is_upper_equal and not is_lower_equal:
        n = files - np.ceil(upper / most)
    return min(max(round(n), files - upper, 1), at, files - 1)


def _near_the_middle(ordered: Ints, files: int) -> list[int]:
    """Return places between distinct values, ascending, next to possible ends of files."""
    half, step = files // 2, max(1, files // 8)
    ends = range(1, files) if files <= _FEW else (half - step, half - 1, half, half + 1, half + step)
    middles = ordered[[min(round(len(ordered) * end / files), len(ordered) - 1) for end in ends]]
    places = np.concatenate([np.searchsorted(ordered, middles, side) for side in ("left", "right")])
    return [at for at in np.unique(places).tolist() if 0 < at < len(ordered)]
