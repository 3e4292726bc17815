"""Sort keys of rows for all layouts except the k-d tree: int64, from ranks (dimensions, rows).

On a curve each rank has ``bits`` bits. The Z-order key interleaves the bits, those of the first dimension first
(Morton, 1966); the order of two rows is that of the dimension in which their ranks differ in the most significant bit.
The Hilbert key is computed by Skilling's algorithm ("Programming the Hilbert curve", AIP Conf. Proc. 707, 2004), on all
rows at once: consecutive keys are cells that differ by one step in one dimension. The lexical key is the place of a row
among rows of a sample, compared column by column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.layout.ranks import ColumnRanks, Ints

MOST_BITS = 60
"""The most bits of a key."""


def z_order_keys(ranks: Ints, bits: int) -> Ints:
    """Return the Z-order key of each row.

    >>> z_order_keys(np.array([[0, 0, 1, 1], [0, 1, 0, 1]]), bits=1)
    array([0, 1, 2, 3])
    """
    dimensions = len(ranks)
    table = _bit_spread(bits, dimensions)
    keys = np.zeros(ranks.shape[1], np.int64)
    for number, column in enumerate(ranks):
        keys |= table[column] << (dimensions - 1 - number)
    return keys


def hilbert_keys(ranks: Ints, bits: int) -> Ints:
    """Return the Hilbert key of each row.

    >>> hilbert_keys(np.array([[0, 0, 1, 1], [0, 1, 1, 0]]), bits=1)
    array([0, 1, 2, 3])
    """
    narrow: Any = np.int16 if bits < 16 else np.int32 if bits < 32 else np.int64  # several times faster than int64
    axes = [np.array(column, dtype=narrow) for column in ranks]
    first = axes[0]
    for bit in range(bits - 1, 0, -1):  # undo the turns and swaps of each level
        below = narrow((1 << bit) - 1)
        for axis in axes:
            turned = -((axis >> bit) & 1)  # all bits set if turned
            swapped = (first ^ axis) & below & ~turned
            first ^= swapped | (turned & below)
            axis ^= swapped
    for before, axis in pairwise(axes):  # Gray code
        axis ^= before
    turns = np.zeros_like(first)
    for bit in range(bits - 1, 0, -1):
        turns ^= -((axes[-1] >> bit) & 1) & narrow((1 << bit) - 1)
    return z_order_keys(np.stack([axis ^ turns for axis in axes]), bits)


@lru_cache(maxsize=32)
def _bit_spread(bits: int, dimensions: int) -> Ints:
    """Return all numbers of ``bits`` bits with their bits moved ``dimensions`` places apart."""
    numbers = np.arange(1 << bits, dtype=np.int64)
    spread = np.zeros_like(numbers)
    for bit in range(bits):
        spread |= ((numbers >> bit) & 1) << (bit * dimensions)
    return spread


@dataclass(frozen=True, eq=False)
class LexicalKeys:
    """Keys of the lexical order: places among chosen rows of the sample.

    Attributes
    ----------
    steps
        For each column, the distinct codes of the chosen rows, ascending: their place by the previous columns and their
        rank.
    sizes
        For each column, a number greater than all its ranks.
    """

    steps: tuple[Ints, ...]
    sizes: tuple[int, ...]

    @property
    def bits(self) -> int:
        """The bits of a key."""
        return (2 * len(self.steps[-1]) + 1).bit_length()

    @classmethod
    def fit(cls, sample: Sequence[pa.Array], most: int) -> tuple[LexicalKeys, tuple[ColumnRanks, ...]]:
        """Fit keys to at most ``most`` evenly chosen rows of a sample, and the ranks that they need."""
        ranks = [ColumnRanks.exact(column).of(column) for column in sample]
        order = np.lexsort(ranks[::-1])
        chosen = np.unique(order[np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(np.int64)])
        columns = tuple(ColumnRanks.exact(column.take(pa.array(chosen))) for column in sample)
        found = np.stack(
            [known.of(column.take(pa.array(chosen))) for known, column in zip(columns, sample, strict=True)]
        )
        place = np.zeros(len(chosen), np.int64)
        steps: list[Ints] = []
        sizes = tuple(2 * len(known) + 2 for known in columns)
        for column, size in zip(found, sizes, strict=True):
            compared = place * size + column
            steps.append(np.unique(compared))
            place = 2 * np.searchsorted(steps[-1], compared) + 1
        return cls(tuple(steps), sizes), columns

    def of(self, ranks: Ints) -> Ints:
        """Return the key of each row from ranks (columns, rows): monotone in the lexical order of the values."""
        place = np.zeros(ranks.shape[1], np.int64)
        for known, size, column in zip(self.steps, self.sizes, ranks, strict=True):
            compared = place * size + column
            place = np.searchsorted(known, compared) + np.searchsorted(known, compared, "right")
        return np.asarray(place, dtype=np.int64)
