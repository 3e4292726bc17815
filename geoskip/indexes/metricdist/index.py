"""MetricDist: distances of each file's rows from pivots, for any metric.

The index of Extensible Data Skipping, table I.

The paper stores one pivot per dataset, called origin, and the range of distances from it (section V, metric distance).
One pivot excludes almost no files in more than two dimensions, so several are used here, chosen far apart from a sample
of the dataset; a file is skipped if one of them excludes it. :mod:`geoskip.indexes.metricdist.summaries` describes the
stored summaries.

*Why skipping is sound*: with pivot o, constant q and row x, the triangle inequality gives ``|d(o, q) - d(q, x)| <= d(o,
x) <= d(o, q) + d(q, x)``: a row within r of q lies between ``d(o, q) - r`` and ``d(o, q) + r`` from o. A row with a
NULL has no distance and matches no comparison; a file with a row that is not a point of the metric (NaN, beyond 1e150,
not UTF-8) is kept. Only true metrics are supported (:mod:`geoskip.metrics`).

*Cost*: two numbers per pivot and file; for a build, one distance per pivot and row; for ``levenshtein`` also a file's
distinct texts, up to 1,024 with 8 KiB in total, or else their prefixes. Pivots are chosen once
(:meth:`MetricDist.prepare`) and are then part of the specification's JSON, but not of its text.

Mappings translate a query's expression to :meth:`MetricDist.distance_to` a constant, which returns the clause of the
vertex (:mod:`udf_mappings.metrics`)::

    @maps(km_between, index=MetricDist)
    def in_kilometres(node, index):
        match subject(node):
            case Call(_, (x, y, Literal(lng), Literal(lat))) if index.axes(x, y) == (0, 1):
                return index.distance_to((lng, lat), unit=6371.0).answers(node)
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from geoskip.bounds import uncast
from geoskip.clauses import Clause, all_known, any_known
from geoskip.codec import value_from_json, value_to_json
from geoskip.errors import InvalidSpecificationError, MetadataError, UnsupportedColumnError
from geoskip.indexes.base import Index, SourceColumn, index
from geoskip.indexes.file_statistics import FileStatistics, field_of, json_texts
from geoskip.indexes.metricdist.clauses import Distance, HasNullDistance, subject
from geoskip.indexes.metricdist.summaries import Pivots, choose, collect, counter_example, merge, summary_type
from geoskip.metrics import Metric, UserMetric
from geoskip.metrics.strings import Hamming, Levenshtein
from geoskip.metrics.vectors import Angular, Chebyshev, Euclidean, Haversine, Jaccard, Manhattan, Numeric
from geoskip.predicates import Call, Comparison, In, IsNull, Literal, Not, Predicate
from geoskip.registry import current
from geoskip.registry.fingerprint import Unidentifiable, identity, is_unchanged
from geoskip.registry.functions import plain_function
from geoskip.types import sql_type

__all__ = ["Distance", "MetricDist", "subject"]

_SOME_ORIGINS, _MANY_ORIGINS = 16, 64
_MOST_ORIGINS = 1000


@index
@dataclass(frozen=True, init=False)
class MetricDist(Index):
    """Distances of each file's rows from origins, by a metric: a name, or a function declared to be one.

    ``origins`` is "auto" (16; 64 for vectors and beyond three columns), how many to choose, or the origins themselves
    (texts, or one tuple of numbers each).

    >>> str(MetricDist("word", metric="levenshtein")), str(MetricDist("x", "y", metric="euclidean", origins=8))
    ('metricdist(word, metric=levenshtein)', 'metricdist(x, y, metric=euclidean)')
    """

    exprs: tuple[str, ...]
    metric: str
    origins: Any
    function: str | None
    """The identity of the declared function; None for geoskip's own metrics."""
    kind: ClassVar[str] = "metricdist"

    def __init__(
        self, *texts: str, metric: Any = None, origins: Any = "auto", function: str | None = None,
        exprs: Sequence[str] = (),
    ) -> None:  # fmt: skip
        texts = (*texts, *exprs)
        if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
            raise InvalidSpecificationError(f"MetricDist takes column names or SQL texts, got {texts!r}")
        if metric is None:
            raise InvalidSpecificationError(f"MetricDist needs metric=, one of {', '.join(METRICS)}")
        name, found, known = _metric(metric, function)
        for field, value in (("exprs", texts), ("metric", name), ("function", known), ("_metric", found)):
            object.__setattr__(self, field, value)
        object.__setattr__(self, "origins", self._check_origins(origins))
        if not exprs and not self.origins:  # a sample with only nulls gives none
            raise InvalidSpecificationError(f"{self} needs an origin at least, got none; origins='auto' chooses them")

    def to_json(self) -> dict[str, Any]:
        """Return kind, expressions, metric, origins and the function's identity."""
        spec = {"kind": self.kind, "exprs": self.exprs, "metric": self.metric, "function": self.function or ""}
        return {**spec, "origins": _origins_to_json(self.origins) if self.is_resolved else self.origins}

    def _spec_text(self) -> str:
        return f"{self.kind}({', '.join(self.exprs)}, metric={self.metric})"

    @property
    def is_resolved(self) -> bool:
        """True if the origins are points, False if they are not chosen yet."""
        return isinstance(self.origins, tuple)

    # --- building --------------------------------------------------------------------------------------------------

    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        """``struct<lo, hi, gaps, rows, nulls, blanks, odd>``."""
        if why := self.unavailable():
            raise InvalidSpecificationError(f"{self}: {why}")
        if said := self.required_metric().refusal([column.type for column in columns]):
            raise UnsupportedColumnError(f"{self}: {said}")
        return summary_type(self.required_metric())

    def prepare(self, *sample: pa.Array) -> Index:
        """Return the index with origins chosen from a sample, far apart from one another.

        Raises InvalidSpecificationError for a declared function that is not a metric on that sample.
        """
        if self.is_resolved:
            return self
        metric = self.required_metric()
        points = metric.points(sample).data
        if isinstance(metric, UserMetric) and (wrong := counter_example(metric, points)):
            raise InvalidSpecificationError(f"{self.metric} is no metric: {wrong}; an index on it would lose rows")
        many = metric.name == "angular" or len(self.exprs) > 3
        count = self.origins if self.origins != "auto" else _MANY_ORIGINS if many else _SOME_ORIGINS
        chosen = tuple(choose(metric, points, count)) or tuple(metric.default_origins(len(self.exprs)))[:count]
        resolved = MetricDist(exprs=self.exprs, metric=self.metric, function=self.function or "", origins=chosen)
        object.__setattr__(resolved, "_metric", metric)
        return resolved.bind(self.bound) if self.bound else resolved

    def chooses(self) -> bool:
        return not self.is_resolved

    def collect(self, *values: pa.Array) -> Mapping[str, Any] | None:
        if not self.is_resolved:
            raise InvalidSpecificationError(f"{self} has no origins yet: call prepare(values of some rows) first")
        return collect(self.required_metric(), self.origins, values) if self.origins else None

    def merge(self, summaries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return merge(self.required_metric(), summaries)

    def required_metric(self) -> Metric:
        """Return the metric; raise InvalidSpecificationError if the declared function has changed."""
        found: Metric | None = self.__dict__["_metric"]
        if found is None:
            raise InvalidSpecificationError(f"{self}: {self.unavailable()}")
        return found

    def unavailable(self) -> str | None:
        """Return the reason if the declared function differs in this process, or is not declared."""
        if not self.function or _metric(self.metric, self.function)[1] is not None:
            return None
        return (
            f"it was built with another {self.metric} than is declared here, what it reads has changed since, or none "
            f"is declared; declare the same "
            f"(geoskip.declare({self.metric}, metric=True)), or create the index anew"
        )

    def _check_origins(self, origins: Any) -> Any:
        """Return origins as points of the metric; raises InvalidSpecificationError for others."""
        if origins == "auto" or (type(origins) is int and 1 <= origins <= _MOST_ORIGINS):
            return origins
        if not isinstance(origins, tuple | list):
            raise InvalidSpecificationError(
                f"MetricDist(origins=) takes 'auto', a number from 1 to {_MOST_ORIGINS} or a list of points, "
                f"got {origins!r}"
            )
        metric: Metric | None = self.__dict__["_metric"]
        read = tuple(map(_origin_from_json, origins))
        if metric is None:
            return read
        points: list[Any] = []
        for origin in read:
            alone = isinstance(metric, UserMetric | Numeric)
            constants = origin if alone and isinstance(origin, tuple) else (origin,)
            fits = not alone or len(constants) == len(self.exprs)
            point = metric.point(constants, points[0] if points else None) if fits else None
            if point is None:
                raise InvalidSpecificationError(f"{origin!r} is no point of {self}, so it cannot be an origin")
            points.append(point)
        return tuple(points)

    @property
    def measures(self) -> str:
        """The name of geoskip's own metric; "" for a declared function."""
        return "" if self.function else self.metric

    def statistics(self, summaries: pa.StructArray) -> Sequence[FileStatistics]:
        """Return the counts, and the least and the largest distance from each origin as details."""
        nulls, odd = field_of(summaries, "nulls"), field_of(summaries, "odd")
        details = json_texts(summaries, lambda one: {"metric": self.metric, "least": one["lo"], "largest": one["hi"]})
        return (FileStatistics(*self.subject(), nulls=nulls, nans=odd, details=details),)

    # --- querying --------------------------------------------------------------------------------------------------

    def axis(self, node: Predicate) -> int | None:
        """Return the number of the indexed expression that equals a node without casts, or None."""
        plain = uncast(node)
        return next((i for i, bound in enumerate(self.bound) if node == bound or plain == uncast(bound)), None)

    def axes(self, *nodes: Predicate) -> tuple[int | None, ...]:
        """Return the numbers of the indexed expressions that equal some nodes, None for others."""
        return tuple(map(self.axis, nodes))

    def distance_to(self, constants: Sequence[Any], *, unit: float = 1.0) -> Distance:
        """Return the distance of a row to some constants, in the order of the indexed expressions.

        ``unit`` converts the metric's unit to the query's: the radius of the sphere for haversine.
        """
        return Distance(self, tuple(constants), unit)

    def clause(self, node: Predicate) -> Clause | None:
        """Return the clause for a comparison of a declared function, or for ``= <> IN`` of text or numbers."""
        metric: Metric | None = self.__dict__["_metric"]
        if isinstance(metric, UserMetric):
            return self._declared_clause(node, metric)
        if len(self.bound) != 1 or metric is None:
            return None
        match node:
            case IsNull(child) if self.reads(child):
                return self.has_null_distance()
            case Not(IsNull(child)) if self.reads(child):
                return self.has_null_distance(turned=True)
            case Comparison("=", child, Literal(value)) if metric.whole and self.reads(child):
                return self.distance_to((value,)).compares("=", 0)
            case Not(Comparison("=", child, Literal(value))) if metric.whole and self.reads(child):
                return self.distance_to((value,)).compares(">", 0)
            case In(child, values) if metric.whole and self.reads(child):
                return any_known(self.distance_to((v.value,)).compares("=", 0) for v in values)
            case Not(In(child, values)) if metric.whole and self.reads(child):
                return all_known(self.distance_to((v.value,)).compares(">", 0) for v in values)
        return None

    def _declared_clause(self, node: Predicate, metric: UserMetric) -> Clause | None:
        called = subject(node)
        is_null_test = isinstance(node.child if isinstance(node, Not) else node, IsNull)
        if not isinstance(called, Call) or not self._is_own_call(called) or is_null_test:
            return None
        half = len(self.bound)
        for rows, others in ((called.args[:half], called.args[half:]), (called.args[half:], called.args[:half])):
            constants = [other.value for other in others if isinstance(other, Literal) and other.value is not None]
            if rows == self.bound and len(constants) == len(others) == half:
                nulls = "" if current().keeps_nulls(metric.function) else "all"
                # an integer result of a Python function wraps around; beyond bigint it is NULL
                wraps = called.type != "bigint" and sql_type(called.type).values.stop
                return replace(self.distance_to(constants), nulls=nulls, limit=wraps or math.inf).answers(node)
        return None

    def _is_own_call(self, call: Call) -> bool:
        """True for a call of the declared function itself, without rounding of distances."""
        if self.function is None or call.implementation != f"python:{self.function}":
            return False
        whole = sql_type(call.type).is_integral  # without Arrow, a result of 2.5 becomes NULL, not 2
        return ("eval:100" in call.flags and (whole or call.type == "double")) or (
            "eval:101" in call.flags and call.type == "double"
        )

    def has_null_distance(self, *, turned: bool = False) -> Clause | None:
        """Return the clause that some row may have a NULL distance; if turned, one that is not NULL."""
        return HasNullDistance(self.pivots(), turned) if self.is_resolved and self.origins else None

    def pivots(self) -> Pivots:
        """Return the origins with their stored distances."""
        return Pivots(str(self), self.required_metric(), self.origins)


def _metric(metric: Any, recorded: str | None) -> tuple[str, Metric | None, str | None]:
    """Return the name of a metric, the metric or None, and the declared function's identity."""
    declared = current().metric(plain_function(metric)) if recorded != "" else None
    if recorded:  # from metadata; "" is a built-in metric
        if declared is not None and identity(declared) == recorded and is_unchanged(declared):
            return str(metric), UserMetric(str(metric), declared), recorded
        return str(metric), None, recorded
    if declared is not None:
        name = getattr(declared, "__name__", "function")
        try:
            return name, UserMetric(name, declared), identity(declared)
        except Unidentifiable as error:
            raise InvalidSpecificationError(f"MetricDist(metric={name}): {error}") from None
    if isinstance(metric, str):
        return metric, metric_named(metric), None
    name = getattr(metric, "__name__", repr(metric))
    if why := refusal(str(getattr(metric, "__qualname__", name))) or refusal(name):
        raise InvalidSpecificationError(f"MetricDist(metric={name}): {why}")
    raise InvalidSpecificationError(
        f"MetricDist(metric={name}): the function is not declared to be a metric; if it is one (never negative, 0 "
        f"from a point to itself, the same both ways, no detour shorter), say so: geoskip.declare({name}, metric=True)"
    )


def _origins_to_json(origins: tuple[Any, ...]) -> list[Any]:
    """Return origins as JSON values."""
    return [_origins_to_json(o) if isinstance(o, tuple) else value_to_json(o) for o in origins]


def _origin_from_json(origin: Any) -> Any:
    if isinstance(origin, list | tuple):
        return tuple(map(_origin_from_json, origin))
    try:
        return value_from_json(origin) if isinstance(origin, dict) else origin
    except MetadataError as error:
        raise InvalidSpecificationError(f"{origin!r} is no origin: {error}") from None


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Euclidean(), Manhattan(), Chebyshev(), Haversine(), Levenshtein(), Hamming(), Angular(), Jaccard(),
    )
}  # fmt: skip

_NONE_BECAUSE = {
    "cosine": "an angle of 90 degrees costs 1 and each half of it 0.29, so a detour is shorter; use metric='angular', "
    "the angle itself, and ask for acos of the similarity",
    "squared euclidean": "0 to 2 costs 4, by way of 1 it costs 2; use metric='euclidean', its root",
    "jaro": "a to ba costs 1, by way of aa it costs 1/2; use metric='levenshtein'",
    "jaro winkler": "a to ba costs 1, by way of aa it costs 0.48; use metric='levenshtein'",
    "osa": "ca to abc costs 3, by way of ac it costs 2; use metric='levenshtein', or declare "
    "a true Damerau-Levenshtein",
    "dice": "{a} to {b} costs 1, by way of {a, b} it costs 2/3; use metric='jaccard'",
    "bray curtis": "(1, 0) to (0, 1) costs 1, by way of (1, 1) it costs 2/3; use metric='manhattan'",
    "dtw": "time warping makes a detour shorter; use metric='euclidean' on arrays of one length, declared as a metric",
    "kl": "it is not the same both ways; declare the root of Jensen-Shannon's divergence as a metric",
    "haversine squared": "a detour may be shorter; use metric='haversine'",
    "normalized levenshtein": "ab to ba costs 1, by way of aba it costs 2/3; use metric='levenshtein'",
    "ratio": "ab to ba costs 1/2, by way of aba it costs 2/5; use metric='levenshtein', or indel, declared as a metric",
    "partial ratio": "a to b costs 1, by way of ab it costs nothing; use metric='levenshtein'",
}
_ALSO = {
    "cosine distance": "cosine", "cosine similarity": "cosine", "sqeuclidean": "squared euclidean",
    "squared l2": "squared euclidean", "l2 squared": "squared euclidean", "euclidean squared": "squared euclidean",
    "jaro winkler distance": "jaro winkler", "jarowinkler": "jaro winkler",
    "optimal string alignment": "osa", "restricted damerau levenshtein": "osa", "damerau levenshtein osa": "osa",
    "sorensen": "dice", "sorensen dice": "dice", "dice sorensen": "dice", "overlap": "dice",
    "braycurtis": "bray curtis", "dynamic time warping": "dtw", "kullback leibler": "kl",
    "normalised levenshtein": "normalized levenshtein", "normalized indel": "ratio", "indel ratio": "ratio",
    "levenshtein ratio": "normalized levenshtein", "fuzz ratio": "ratio",
    "l2": "euclidean", "euclid": "euclidean", "l1": "manhattan", "cityblock": "manhattan", "taxicab": "manhattan",
    "linf": "chebyshev", "edit": "levenshtein", "great circle": "haversine", "angle": "angular",
}  # fmt: skip


def refusal(name: str) -> str | None:
    """Return the reason why a well-known distance is not a metric, or None for other names.

    >>> refusal("JaroWinkler.distance").partition(",")[0]
    'JaroWinkler.distance is no metric (it breaks the triangle inequality)'
    """
    why = _NONE_BECAUSE.get(_normalise(name))
    if why is None:
        return None
    return f"{name} is no metric (it breaks the triangle inequality), so an index on it would lose rows: {why}"


def _normalise(name: str) -> str:
    """Normalise a name: ``jaro_winkler_distance`` and ``JaroWinkler.distance`` become equal."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.strip())
    plain = re.sub(r"[\s_.-]+", " ", words).lower()
    short = re.sub(r" (distance|similarity)$", "", plain)
    return _ALSO.get(plain, _ALSO.get(short, plain if plain in METRICS else short))


def metric_named(name: str) -> Metric:
    """Return a built-in metric by name; raises InvalidSpecificationError with the remedy.

    >>> metric_named("levenshtein").whole
    True
    """
    if name in METRICS:
        return METRICS[name]
    meant = _normalise(name)
    if meant in METRICS:
        raise InvalidSpecificationError(f"there is no metric {name!r}; it is called {meant!r} here")
    if why := refusal(name):
        raise InvalidSpecificationError(why)
    raise InvalidSpecificationError(
        f"there is no metric {name!r}; known are {', '.join(METRICS)}, and functions of your own that are declared to "
        f"be metrics: geoskip.declare(function, metric=True)"
    )
