"""Keys of the lexical order: the place of a row among rows of a sample, compared column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from geoskip.layout.ranks import ColumnRanks, Ints


@dataclass(frozen=True, eq=False)
class LexicalKeys:
    """Places among rows of the sample.

    Attributes
    ----------
    steps
        For each column, ascending, what the chosen rows have there: their place by the columns before, and their rank.
    sizes
        For each column, a number above all its ranks.
    """

    steps: tuple[Ints, ...]
    sizes: tuple[int, ...]

    @property
    def bits(self) -> int:
        """The bits of a key."""
        return (2 * len(self.steps[-1]) + 1).bit_length()

    @classmethod
    def fit(cls, sample: Sequence[pa.Array], most: int) -> tuple[LexicalKeys, tuple[ColumnRanks, ...]]:
        """Keys that tell at most so many rows of a sample apart, evenly chosen, with the ranks that they need."""
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
        """The key of each row, of ranks of shape (columns, rows): monotone in the lexical order of the values."""
        place = np.zeros(ranks.shape[1], np.int64)
        for known, size, column in zip(self.steps, self.sizes, ranks, strict=True):
            compared = place * size + column
            place = np.searchsorted(known, compared) + np.searchsorted(known, compared, "right")
        return np.asarray(place, dtype=np.int64)
