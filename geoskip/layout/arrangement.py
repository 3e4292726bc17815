"""Arrangements: layouts fitted to a sample, which assign a key and a file to each row.

An arrangement does not depend on Spark: it is pickled to the workers that write files, and the what-if analysis uses it
to assign sampled rows to files. The file of a row never changes the result of a query, only the number of files read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from geoskip.errors import InvalidSpecificationError
from geoskip.layout.file_cuts import FileCuts
from geoskip.layout.kd_cells import KDCells
from geoskip.layout.ranks import ColumnRanks, Ints, dimensions, is_geometry
from geoskip.layout.row_keys import MOST_BITS, LexicalKeys, hilbert_keys, z_order_keys
from geoskip.layout.specification import Hilbert, KDTree, Layout, Sort

_MOST_BITS_A_COLUMN = 14
_SLACK = 0.2
"""Share of a file by which cuts along a curve may move to the next boundary between large cells of the curve."""
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True, eq=False)
class Arrangement:
    """A layout fitted to a sample; made by :meth:`fit`.

    Attributes
    ----------
    layout, files
        The specification, and the number of files.
    are_geometries
        For each expression, True if its values are geometries, which are ordered by their centres.
    columns
        The value ranks of each dimension.
    bits
        The bits of a rank.
    order
        The cells of a k-d tree, the order of lexical keys, or None for a curve.
    cuts
        The cuts of the ordered rows to files.
    """

    layout: Layout
    files: int
    are_geometries: tuple[bool, ...]
    columns: tuple[ColumnRanks, ...]
    bits: int
    order: KDCells | LexicalKeys | None
    cuts: FileCuts

    @classmethod
    def fit(
        cls,
        layout: Layout,
        sample: Sequence[pa.Array],
        files: int,
        *,
        ties: Ints | None = None,
        groups: Ints | None = None,
    ) -> Arrangement:
        """Fit a layout to a sample of the rows.

        Parameters
        ----------
        layout
            The specification.
        sample
            The values of the sampled rows, one Arrow array per expression; a geometry is (E)WKB.
        files
            The number of files, which get about equal numbers of rows. If the sample is all rows, and there are at
            least as many rows as files, the numbers of rows differ by at most one, except for a k-d tree.
        ties
            A number for each row that breaks ties between equal keys, such as a hash of all columns; a row must have
            the same number in later calls. By default rows with equal keys are divided in input order.
        groups
            The partition of each row, from 0; a file has rows of one partition only. Each partition gets files in
            proportion to its rows, at least one.

        Raises
        ------
        InvalidSpecificationError
            For no files, no rows, or a wrong number of arrays.
        UnsupportedColumnError
            For types without an order.
        """
        if files < 1:
            raise InvalidSpecificationError(f"{layout} needs a file at least to write to, got {files} files")
        if len(sample) != len(layout.expressions):
            raise InvalidSpecificationError(
                f"{layout} needs an array for each of {len(layout.expressions)} expressions, got {len(sample)}"
            )
        rows = len(sample[0])
        if not rows:
            raise InvalidSpecificationError(f"{layout} is fitted to a sample of rows, got none")
        groups = np.zeros(rows, np.int64) if groups is None else groups
        of_group = _shares(np.bincount(groups), files)
        are_geometries = tuple(map(is_geometry, sample))
        values = dimensions(sample, are_geometries)
        if isinstance(layout, Sort):
            order, columns = LexicalKeys.fit(values, max(files, 1 << _MOST_BITS_A_COLUMN))
            found = cls(layout, 0, are_geometries, columns, 0, order, FileCuts.empty())
            keys, cells = found._keys(found._ranks(values)), groups
        else:
            bits = min(_MOST_BITS_A_COLUMN, MOST_BITS // len(values))
            columns = tuple(ColumnRanks.fit(column, bits) for column in values)
            found = cls(layout, 0, are_geometries, columns, bits, None, FileCuts.empty())
            ranks = found._ranks(values)
            keys, cells = found._keys(ranks), groups
            if isinstance(layout, KDTree):
                tree = KDCells.fit(ranks, groups, of_group)
                found = cls(layout, 0, are_geometries, columns, bits, tree, FileCuts.empty())
                cells, of_group = tree.of(ranks, groups), tree.files
        ties = _spread_ties(rows) if ties is None else ties
        slack = _SLACK if found.order is None else 0.0
        cuts = FileCuts.fit(cells, of_group, keys, ties, slack=slack)
        return cls(layout, int(of_group.sum()), are_geometries, columns, found.bits, found.order, cuts)

    @property
    def key_bits(self) -> int:
        """The bits of a key."""
        if isinstance(self.order, LexicalKeys):
            return self.order.bits
        return 63 if isinstance(self.order, KDCells) else self.bits * len(self.columns)

    @property
    def needs_ties(self) -> bool:
        """True if ties are needed to assign rows to files."""
        return self.cuts.needs_ties

    def keys_and_files(
        self,
        columns: Sequence[pa.Array],
        *,
        ties: Ints | None = None,
        groups: Ints | None = None,
        turns: Ints | None = None,
    ) -> tuple[Ints, Ints]:
        """Return the key of each row, and the number of its file, from 0.

        Keys are int64 and ascend in the order of the layout. In a lexical order, rows between two sampled rows have
        equal keys; in a k-d tree, rows are ordered by leaf first.

        Parameters
        ----------
        columns
            The values of the rows, one Arrow array per expression, with the types of the sample.
        ties, groups
            As for :meth:`fit`. A partition that is missing in the sample has a number above all others, and so has its
            file.
        turns
            Counters from ``cuts.new_turns()``, shared by the calls of one task.
        """
        ranks = self._ranks(dimensions(columns, self.are_geometries))
        rows = ranks.shape[1]
        groups = np.zeros(rows, np.int64) if groups is None else groups
        ties = _spread_ties(rows) if ties is None else ties
        keys = self._keys(ranks)
        turns = self.cuts.new_turns() if turns is None else turns
        if not isinstance(self.order, KDCells):
            return keys, self.cuts.files_of(groups, keys, ties, turns)
        is_known = groups < len(self.order.roots)
        cells = np.full(rows, len(self.order.files))
        cells[is_known] = self.order.of(ranks[:, is_known], groups[is_known])
        return _by_cell(cells, keys), self.cuts.files_of(cells, keys, ties, turns)

    def _ranks(self, values: Sequence[pa.Array]) -> Ints:
        return np.stack([ranks.of(column) for ranks, column in zip(self.columns, values, strict=True)])

    def _keys(self, ranks: Ints) -> Ints:
        if isinstance(self.order, LexicalKeys):
            return self.order.of(ranks)
        curve = hilbert_keys if isinstance(self.layout, Hilbert) else z_order_keys
        return curve(ranks, self.bits)


def _by_cell(cells: Ints, keys: Ints) -> Ints:
    """Return keys that order by cell first and then by key, without its lowest bits."""
    bits = int(cells.max(initial=0)).bit_length()
    return np.asarray(cells << (63 - bits) | keys >> max(0, MOST_BITS + bits - 63), dtype=np.int64)


def _shares(rows: Ints, files: int) -> Ints:
    """Distribute files to groups in proportion to their rows, at least one each."""
    wanted = rows * files / max(1, int(rows.sum()))
    found = np.maximum(1, np.floor(wanted)).astype(np.int64)
    left = files - int(found.sum())
    if left > 0:
        found[np.argsort(found - wanted, kind="stable")[:left]] += 1
    return np.where(rows > 0, np.minimum(found, np.maximum(rows, 1)), 1)


def _spread_ties(rows: int) -> Ints:
    """Return evenly spread numbers to break ties in input order."""
    with np.errstate(over="ignore"):
        return np.asarray((np.arange(rows, dtype=np.uint64) * np.uint64(_GOLDEN)).view(np.int64) >> 16)
