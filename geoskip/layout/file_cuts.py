"""Cuts of ordered rows into files: equi-depth positions in a sample, for each group of rows.

Rows are ordered by their key, then by a number that breaks ties, such as a hash of the whole row. Rows that are equal
in both go to one file, unless the sample has so many of them that a cut falls among them. Then they are assigned to the
files in turn, by counters that the caller keeps; the rows are equal, so their order does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from geoskip.layout.ranks import Ints

TIE_BITS = 40
"""The number of lower bits of a tie that are used."""


@dataclass(frozen=True, eq=False)
class FileCuts:
    """The cuts of every group, made by :meth:`fit`.

    Attributes
    ----------
    keys
        The distinct keys at cuts, ascending.
    places
        Codes of the group and the place among ``keys`` of the first rows of files, ascending and distinct.
    cuts
        For each file except the first of its group, the code of its first row: the place among ``places`` and the tie.
    shared
        The codes of ``cuts`` that fall among equal rows, ascending.
    runs
        For each of ``shared``, the range of positions of the equal rows in the ordered sample: first, and after the
        last.
    positions
        For each cut, its position in the ordered sample.
    """

    keys: Ints
    places: Ints
    cuts: Ints
    shared: Ints
    runs: Ints
    positions: Ints

    @classmethod
    def empty(cls) -> FileCuts:
        """Return no cuts: one file."""
        return cls(*[np.empty(0, np.int64)] * 6)

    @classmethod
    def fit(cls, groups: Ints, files: Ints, keys: Ints, ties: Ints, *, slack: float = 0.0) -> FileCuts:
        """Fit cuts to a sample.

        Parameters
        ----------
        groups, keys, ties
            For each row, its group from 0, its key, and its number that breaks ties.
        files
            The number of files of each group.
        slack
            The share of a file by which a cut may move, so that it falls between larger cells of a curve.
        """
        ties = _shorten_ties(ties)
        order = np.lexsort((ties, keys, groups))
        starts = np.searchsorted(groups[order], np.arange(len(files) + 1))
        rows = np.diff(starts)
        group = np.repeat(np.arange(len(files)), files - 1)
        number = np.arange(len(group)) - np.repeat(np.cumsum(files - 1) - (files - 1), files - 1) + 1
        positions = starts[group] + np.clip(-(-number * rows[group] // files[group]), 1, np.maximum(1, rows[group] - 1))
        aside = (slack * rows[group] / files[group]).astype(np.int64)
        ordered = keys[order]
        last = np.maximum(starts[group + 1] - 1, starts[group])
        lower = ordered[np.clip(positions - 1 - aside, starts[group], last)]
        upper = ordered[np.minimum(positions + aside, last)]
        is_between = lower < upper
        cut_keys = np.where(is_between, _roundest(lower, upper), upper)
        cut_ties = np.where(is_between, 0, ties[order[np.minimum(positions, last)]])
        known = cls(np.unique(cut_keys), *[np.empty(0, np.int64)] * 5)
        placed = known._place_keys(group, cut_keys)
        known = replace(known, places=np.unique(placed))
        cuts = known._codes(placed, cut_ties)
        codes = known._codes(known._place_keys(groups, keys), ties)[order]
        firsts = np.searchsorted(codes, cuts)
        positions = np.where(is_between, firsts, positions)
        shared = np.unique(cuts[firsts < positions])
        runs = np.stack([np.searchsorted(codes, shared), np.searchsorted(codes, shared, "right")])
        return replace(known, cuts=cuts, shared=shared, runs=runs, positions=positions)

    def files_of(self, groups: Ints, keys: Ints, ties: Ints, turns: Ints) -> Ints:
        """Return the file of each row, numbered by group.

        Parameters
        ----------
        groups, keys, ties
            As for :meth:`fit`; a group that is missing in the sample has a number above all others.
        turns
            For each of ``shared``, the number of such rows so far; updated in place.
        """
        codes = self._codes(self._place_keys(groups, keys), _shorten_ties(ties))
        found = np.searchsorted(self.cuts, codes, "right") + groups
        if len(self.shared):
            run = np.searchsorted(self.shared, codes)
            rows = np.flatnonzero(self.shared[np.minimum(run, len(self.shared) - 1)] == codes)
            for number in np.unique(run[rows]).tolist():
                equal = rows[run[rows] == number]
                start, end = self.runs[:, number]
                at = start + (turns[number] + np.arange(len(equal))) % (end - start)
                turns[number] += len(equal)
                found[equal] = np.searchsorted(self.positions, at, "right") + groups[equal]
        return np.asarray(found, dtype=np.int64)

    @property
    def needs_ties(self) -> bool:
        """True if rows with equal keys go to several files."""
        return bool((self.cuts & ((1 << TIE_BITS) - 1)).any())

    def new_turns(self) -> Ints:
        """Return counters for the ``turns`` of a sequence of calls."""
        return np.zeros(len(self.shared), np.int64)

    def _place_keys(self, groups: Ints, keys: Ints) -> Ints:
        """Encode the group and the place of each key among ``keys`` as one number, in their order."""
        return np.asarray(groups * (2 * len(self.keys) + 1) + _place_among(self.keys, keys), dtype=np.int64)

    def _codes(self, placed: Ints, ties: Ints) -> Ints:
        return np.asarray(_place_among(self.places, placed) << TIE_BITS | ties, dtype=np.int64)


def _place_among(known: Ints, values: Ints) -> Ints:
    """Return 2 i + 1 for values equal to the i-th known value, even numbers for values in between."""
    below = np.searchsorted(known, values)
    if not len(known):
        return np.asarray(below, dtype=np.int64)
    return np.asarray(2 * below + (known[np.minimum(below, len(known) - 1)] == values), dtype=np.int64)


def _roundest(lower: Ints, upper: Ints) -> Ints:
    """Return the number in (lower, upper] with the most trailing zero bits; any number if it is empty."""
    bits = np.frexp(np.maximum(lower ^ upper, 1).astype(np.float64))[1].astype(np.int64) - 1
    bits -= (lower ^ upper) >> bits == 0  # the conversion to double may round up to a power of two
    return np.asarray((upper >> bits) << bits)


def _shorten_ties(ties: Ints) -> Ints:
    return np.asarray(ties & ((1 << TIE_BITS) - 1), dtype=np.int64)
