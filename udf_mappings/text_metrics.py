"""Distances of texts as SQL functions over ``rapidfuzz``, declared metrics for MetricDist.

A function that is declared to be a metric needs no rule for an index on itself, ``MetricDist("word",
metric="indel")``; the rules here let an index on Levenshtein's distance serve others too. Spark's ``levenshtein``,
``hamming`` and ``jaccard`` are mapped in :mod:`udf_mappings.metrics`. Characters are code points. Every function is
NULL for NULL.

Distances that are no metrics are refused when an index on them is made, with a detour that is shorter: Jaro's and
Jaro-Winkler's, optimal string alignment, normalised and partial ratios, Dice's coefficient and others
(:mod:`geoskip.metrics`).

>>> damerau_levenshtein("ca", "abc"), indel("ca", "abc"), word_jaccard("a rose is a rose", "a rose")
(2, 3, 0.33333333333333337)
"""

from __future__ import annotations

from importlib.metadata import version

from rapidfuzz.distance import DamerauLevenshtein, Indel

from geoskip.clauses import Clause, all_of
from geoskip.indexes.metricdist.index import MetricDist, subject
from geoskip.predicates import Call, Comparison, Literal, Predicate
from geoskip.registry import declare, maps
from udf_mappings.library import PlainFunction, offered, returns

__all__ = ["FUNCTIONS"]

FUNCTIONS: dict[str, PlainFunction] = {}


@offered(FUNCTIONS, "int")
def damerau_levenshtein(a: str | None, b: str | None) -> int | None:
    """Insertions, deletions, substitutions, and transpositions of neighbours, also of texts edited before.

    Optimal string alignment, often called by this name, edits no part twice and is no metric.
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


@maps(damerau_levenshtein, index=MetricDist)
def damerau_over_levenshtein(node: Predicate, index: MetricDist) -> Clause | None:
    """Levenshtein's distance is between this one and twice this one: a transposition is two substitutions."""
    return _between(node, index, 1.0, 2.0)


@maps(indel, index=MetricDist)
def indel_over_levenshtein(node: Predicate, index: MetricDist) -> Clause | None:
    """Levenshtein's distance is between half of this one and this one: a substitution is two of its edits."""
    return _between(node, index, 0.5, 1.0)


def _between(node: Predicate, index: MetricDist, least: float, most: float) -> Clause | None:
    """Return the clause of ``f op n`` if Levenshtein's distance is from ``least * f`` to ``most * f``."""
    if index.measures != "levenshtein":
        return None
    match node, subject(node):
        case Comparison(op, _, Literal(value)), (
            (Call(_, (text, Literal(str() as other))) | Call(_, (Literal(str() as other), text))) as call
        ) if returns(call, "int", "bigint") and index.reads(text) and isinstance(value, int | float) and value == value:
            distance = index.distance_to((other,))
            near, far = distance.compares("<=", most * value), distance.compares(">=", least * value)
            found = {"<": [near], "<=": [near], ">": [far], ">=": [far]}.get(op, [near, far])
            clauses = [clause for clause in found if clause is not None]
            return all_of(clauses) if clauses else None
    return None
