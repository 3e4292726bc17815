"""Metrics as plain Python functions, to be called from SQL and indexed by MetricDist.

The functions of the table :data:`FUNCTIONS`, which are distances of texts based on ``rapidfuzz``, are registered by
``geoskip.register_functions``. The others have common names or names of Spark functions, so they are registered
explicitly::

    from udf_mappings import metric_functions

    metric_functions.register(spark)  # haversine, hamming, angular, jaccard
    spark.sql("SELECT * FROM stops WHERE haversine(lng, lat, 8.54, 47.38) < 500")

Every function is NULL for a NULL argument, and if there is no distance. Characters are code points.

A function that is declared to be a metric needs no rule for an index on itself, ``MetricDist("word", metric="indel")``;
the rules here let an index on Levenshtein's distance serve other functions. Rules for the other functions, and for
Spark's ``levenshtein``, ``hamming`` and ``jaccard``, are in :mod:`udf_mappings.metrics`.

Distances that are not metrics are refused when an index on them is created, with a violation of the triangle
inequality: Jaro's and Jaro-Winkler's, optimal string alignment, normalised and partial ratios, Dice's coefficient and
others (:mod:`geoskip.metrics`).

>>> round(haversine(0, 0, 0, 1)), hamming("karolin", "kathrin"), jaccard(["a", "b"], ["b", "c"])
(111195, 3, 0.6666666666666667)
>>> damerau_levenshtein("ca", "abc"), indel("ca", "abc"), word_jaccard("a rose is a rose", "a rose")
(2, 3, 0.33333333333333337)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from rapidfuzz.distance import DamerauLevenshtein, Indel

from geoskip.clauses import Clause, all_of
from geoskip.indexes.metricdist.index import MetricDist, subject
from geoskip.predicates import Call, Comparison, Literal, Predicate
from geoskip.registry import declare, maps
from udf_mappings import PlainFunction, offered, returns
from udf_mappings.shapely_functions import EARTH_RADIUS


def haversine(lng1: Any, lat1: Any, lng2: Any, lat2: Any, radius: Any = EARTH_RADIUS) -> float | None:
    """Distance of two places on a sphere, in the unit of the radius.

    Parameters
    ----------
    lng1, lat1, lng2, lat2
        The two places, in degrees.
    radius
        The radius of the sphere; in metres by default.
    """
    if lng1 is None or lat1 is None or lng2 is None or lat2 is None or radius is None:
        return None
    phi, theta = math.radians(lat1), math.radians(lat2)
    turn = math.radians(lng2) - math.radians(lng1)
    a = math.sin((theta - phi) / 2) ** 2 + math.cos(phi) * math.cos(theta) * math.sin(turn / 2) ** 2
    return 2 * float(radius) * math.asin(math.sqrt(min(1.0, max(0.0, a))))


def hamming(a: Any, b: Any) -> int | None:
    """Number of bits in which two whole numbers differ, or of code points in which two texts do.

    The rest of the longer text counts.
    """
    if a is None or b is None:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return int((a ^ b) & (2**64 - 1)).bit_count()
    differing = sum(1 for x, y in zip(a, b, strict=False) if x != y)
    return differing + abs(len(a) - len(b))


def angular(a: Sequence[float] | None, b: Sequence[float] | None) -> float | None:
    """Angle between two vectors, in radians.

    NULL for a zero vector, one with a NULL, and two of different dimensions.
    """
    if a is None or b is None or len(a) != len(b) or None in a or None in b:
        return None
    norm = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
    if not 0 < norm < math.inf:
        return None
    return math.acos(min(1.0, max(-1.0, sum(x * y for x, y in zip(a, b, strict=True)) / norm)))


def jaccard(a: Sequence[Any] | None, b: Sequence[Any] | None) -> float | None:
    """``1 - |a and b| / |a or b|`` of two arrays as sets; 0 for two empty ones."""
    if a is None or b is None:
        return None
    either = set(a) | set(b)
    return 1 - len(set(a) & set(b)) / len(either) if either else 0.0


_RETURNS = {"haversine": "double", "hamming": "int", "angular": "double", "jaccard": "double"}


def register(spark: Any) -> None:
    """Register ``haversine``, ``hamming``, ``angular`` and ``jaccard`` in a session."""
    for name, kind in _RETURNS.items():
        spark.udf.register(name, globals()[name], kind)


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
    return jaccard(a.split(), b.split())


for _entry in FUNCTIONS.values():
    declare(_entry.function, metric=True, null_in_null_out=True, version=f"1 rapidfuzz {version('rapidfuzz')}")


@maps(damerau_levenshtein, index=MetricDist)
def damerau_over_levenshtein(node: Predicate, index: MetricDist) -> Clause | None:
    """Levenshtein's distance is between this one and twice this one: a transposition is two substitutions."""
    return _scaled_clause(node, index, 1.0, 2.0)


@maps(indel, index=MetricDist)
def indel_over_levenshtein(node: Predicate, index: MetricDist) -> Clause | None:
    """Levenshtein's distance is between half of this one and this one: a substitution is two edits here."""
    return _scaled_clause(node, index, 0.5, 1.0)


def _scaled_clause(node: Predicate, index: MetricDist, least: float, most: float) -> Clause | None:
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
