"""Keys of space-filling curves over ranks: arrays of shape (dimensions, rows), int64.

Each rank has ``bits`` bits.
The Z-order key interleaves the bits, those of the first dimension first (Morton, 1966); two rows compare as by the
dimension in which their ranks differ in the most significant bit. The Hilbert key is computed by Skilling's algorithm
("Programming the Hilbert curve", AIP Conf. Proc. 707, 2004), on all rows at once: consecutive keys are cells that
differ by one step in one dimension.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np

from geoskip.layout.ranks import Ints

MOST_BITS = 60
"""Bits of a key at most."""


def z_order_keys(ranks: Ints, bits: int) -> Ints:
    """The Z-order key of each row.

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
    """The Hilbert key of each row.

    >>> hilbert_keys(np.array([[0, 0, 1, 1], [0, 1, 1, 0]]), bits=1)
    array([0, 1, 2, 3])
    """
    axes = [np.array(column, dtype=np.int64) for column in ranks]
    first = axes[0]
    for bit in range(bits - 1, 0, -1):  # undo the turns and swaps of each level
        below = np.int64((1 << bit) - 1)
        for axis in axes:
            is_turned = (axis >> bit) & 1 == 1
            swapped = np.where(is_turned, 0, (first ^ axis) & below)
            first ^= np.where(is_turned, below, swapped)
            axis ^= swapped
    for before, axis in pairwise(axes):  # Gray code
        axis ^= before
    turns = np.zeros_like(first)
    for bit in range(bits - 1, 0, -1):
        turns ^= np.where((axes[-1] >> bit) & 1 == 1, np.int64((1 << bit) - 1), 0)
    return z_order_keys(np.stack([axis ^ turns for axis in axes]), bits)


@lru_cache(maxsize=32)
def _bit_spread(bits: int, dimensions: int) -> Ints:
    """Each number of ``bits`` bits with its bits so many places apart."""
    numbers = np.arange(1 << bits, dtype=np.int64)
    spread = np.zeros_like(numbers)
    for bit in range(bits):
        spread |= ((numbers >> bit) & 1) << (bit * dimensions)
    return spread
