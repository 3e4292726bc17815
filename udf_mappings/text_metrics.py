"""Distances of texts, mapped to MetricDist; an index on Levenshtein's distance serves others too.

A function that is declared to be a metric needs no rule for an index on itself, ``MetricDist("word",
metric="indel")``, and these are (:mod:`udf_mappings.text_functions`). Spark's ``levenshtein``, ``hamming`` and
``jaccard`` are mapped in :mod:`udf_mappings.metrics`.

What cannot be mapped, since it is no metric, is refused when an index on it is made, with a detour that is shorter:
Jaro's and Jaro-Winkler's, optimal string alignment, normalised and partial ratios, Dice's coefficient and others
(:mod:`geoskip.metrics.lookup`).
"""

from __future__ import annotations

from geoskip.clauses import Clause, all_of
from geoskip.indexes.metricdist.index import MetricDist, subject
from geoskip.predicates import Call, Comparison, Literal, Predicate
from geoskip.registry import maps
from udf_mappings.library import returns
from udf_mappings.text_functions import damerau_levenshtein, indel


@maps(damerau_levenshtein, index=MetricDist)
def damerau_over_levenshtein(node: Predicate, index: MetricDist) -> Clause | None:
    """Levenshtein's distance is between this one and twice this one: a transposition is two substitutions."""
    return _between(node, index, 1.0, 2.0)


@maps(indel, index=MetricDist)
def indel_over_levenshtein(node: Predicate, index: MetricDist) -> Clause | None:
    """Levenshtein's distance is between half of this one and this one: a substitution is two of its edits."""
    return _between(node, index, 0.5, 1.0)


def _between(node: Predicate, index: MetricDist, least: float, most: float) -> Clause | None:
    """The clause of ``f op n`` where Levenshtein's distance is from ``least * f`` to ``most * f``."""
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
