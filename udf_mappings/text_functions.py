"""Distances of texts as SQL functions over ``rapidfuzz``, those that are metrics; declared as such.

Spark has ``levenshtein`` itself; ``hamming`` and ``jaccard`` of arrays are in :mod:`udf_mappings.metric_functions`.
Characters are code points. Every function is NULL for NULL.

>>> damerau_levenshtein("ca", "abc"), indel("ca", "abc"), word_jaccard("a rose is a rose", "a rose")
(2, 3, 0.33333333333333337)
"""

from __future__ import annotations

from importlib.metadata import version

from rapidfuzz.distance import DamerauLevenshtein, Indel

from geoskip.registry import declare
from udf_mappings.library import PlainFunction, offered

__all__ = ["FUNCTIONS"]

FUNCTIONS: dict[str, PlainFunction] = {}


@offered(FUNCTIONS, "int")
def damerau_levenshtein(a: str | None, b: str | None) -> int | None:
    """Insertions, deletions, substitutions, and transpositions of neighbours, also of texts edited before.

    It is not what often goes by this name, optimal string alignment, which edits no part twice and is no metric.
    """
    return None if a is None or b is None else int(DamerauLevenshtein.distance(a, b))


@offered(FUNCTIONS, "int")
def indel(a: str | None, b: str | None) -> int | None:
    """Insertions and deletions alone: both lengths less twice that of the longest common subsequence."""
    return None if a is None or b is None else int(Indel.distance(a, b))


@offered(FUNCTIONS, "double")
def word_jaccard(a: str | None, b: str | None) -> float | None:
    """``1 - |common words| / |all words|`` of two texts, split at blanks; 0 without any words."""
    if a is None or b is None:
        return None
    left, right = set(a.split()), set(b.split())
    return 1 - len(left & right) / len(left | right) if left or right else 0.0


for _entry in FUNCTIONS.values():
    declare(_entry.function, metric=True, null_in_null_out=True, version=f"1 rapidfuzz {version('rapidfuzz')}")
