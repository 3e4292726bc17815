"""Keys of curves, against the comparison of bits that Impala describes, and against what makes a curve Hilbert's."""

from __future__ import annotations

import itertools
from functools import cmp_to_key

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoskip.layout.row_keys import hilbert_keys, z_order_keys

ROWS = st.integers(1, 8).flatmap(
    lambda width: st.lists(
        st.lists(st.integers(0, 127), min_size=width, max_size=width).map(tuple), min_size=2, max_size=40
    )
)


def by_most_significant_dimension(one, other):
    """Compare rows by the dimension whose ranks differ in the highest bit, the first of several such dimensions."""
    leading = max(range(len(one)), key=lambda i: ((one[i] ^ other[i]).bit_length(), -i))
    return (one[leading] > other[leading]) - (one[leading] < other[leading])


@given(rows=ROWS)
def test_z_order_keys_sort_as_the_most_significant_differing_bit_does(rows):
    keys = z_order_keys(np.array(rows, dtype=np.int64).T, 7)
    found = [rows[i] for i in np.argsort(keys, kind="stable")]
    assert found == sorted(rows, key=cmp_to_key(by_most_significant_dimension))


def grid(dimensions, bits):
    return np.array(list(itertools.product(range(1 << bits), repeat=dimensions)), dtype=np.int64).T


SIZES = [(1, 6), (2, 1), (2, 6), (3, 4), (4, 3), (5, 2), (8, 1)]


@pytest.mark.parametrize(("dimensions", "bits"), SIZES)
def test_the_hilbert_curve_visits_every_cell_once_by_single_steps(dimensions, bits):
    cells = grid(dimensions, bits)
    keys = hilbert_keys(cells, bits)
    assert sorted(keys.tolist()) == list(range(1 << dimensions * bits))
    path = cells[:, np.argsort(keys)]
    assert (np.abs(np.diff(path, axis=1)).sum(axis=0) == 1).all()


@pytest.mark.parametrize(("dimensions", "bits"), [size for size in SIZES if size[1] > 1])
def test_each_cell_of_a_coarser_hilbert_curve_is_one_stretch_of_the_finer(dimensions, bits):
    cells = grid(dimensions, bits)
    coarse = hilbert_keys(cells >> 1, bits - 1)
    fine = hilbert_keys(cells, bits) >> dimensions
    for order in itertools.permutations(range(dimensions)):  # levels swap the roles of the axes
        if (hilbert_keys(cells[list(order)] >> 1, bits - 1) == fine).all():
            return
    assert (coarse == fine).all()


def published(side, x, y):
    """The distance of a cell along Hilbert's curve in two dimensions, by the recurrence over quadrants."""
    if side == 1:
        return 0
    half = side // 2
    right, upper = x >= half, y >= half
    quadrant = {(False, False): 0, (False, True): 1, (True, True): 2, (True, False): 3}[right, upper]
    x, y = x % half, y % half
    if quadrant == 0:
        x, y = y, x
    elif quadrant == 3:
        x, y = half - 1 - y, half - 1 - x
    return quadrant * half * half + published(half, x, y)


def test_in_two_dimensions_keys_are_those_of_the_published_recurrence():
    cells = grid(2, 5)
    keys = hilbert_keys(cells, 5)
    found = {name: [published(32, *cell) for cell in c.T.tolist()] for name, c in (("xy", cells), ("yx", cells[::-1]))}
    assert keys.tolist() in found.values()


def test_keys_of_no_rows_are_none():
    assert len(z_order_keys(np.empty((3, 0), np.int64), 4)) == len(hilbert_keys(np.empty((3, 0), np.int64), 4)) == 0


def test_ranks_are_left_as_they_were():
    ranks = grid(3, 2)
    hilbert_keys(ranks, 2)
    assert (ranks == grid(3, 2)).all()
