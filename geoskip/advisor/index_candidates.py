"""Candidates: the indexes that could support a condition of a workload.

The rules on which index supports which condition are not repeated here. Every index type is *proposed* for every
expression that a condition reads, from the columns up to the operands of its comparisons. A proposal is bound to that
expression, and the condition is labelled with it (:class:`geoskip.planner.Labeller`). A proposal without a clause, or
with a clause that only tests the expression for NULL, is dropped.

=============================== ==================================================================================
proposed                        for
=============================== ==================================================================================
MinMax GapList ValueList Hybrid every column, and every deterministic expression of columns; with parameters that trade
BloomFilter Prefix Suffix       files for bytes
Formatted                       calls of one column of text: ``get_agent_name(user_agent)``, ``regexp_extract``
GeoBox                          geometries, and pairs of numbers in one condition or one AND
MetricDist                      texts, arrays and numbers of one condition, with each metric that supports their types
several MinMax                  comparisons of several columns or expressions, which one index alone does not support
=============================== ==================================================================================

An index on an expression with constants, such as the distance from one place, only supports queries for that place. It
is proposed if no index on the columns supports the condition nearly as well, or if several conditions read it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from geoskip.advisor.condition_text import sql_text
from geoskip.bounds import uncast
from geoskip.clauses import KEEP_ALL, all_of, parts_of
from geoskip.errors import GeoskipError
from geoskip.indexes.affix import Prefix, Suffix
from geoskip.indexes.base import Index, SourceColumn
from geoskip.indexes.bloom import BloomFilter
from geoskip.indexes.formatted import Formatted
from geoskip.indexes.gaplist import GapList
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.hybrid import Hybrid
from geoskip.indexes.metricdist.index import METRICS, MetricDist
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.valuelist import ValueList
from geoskip.planner import Labeller
from geoskip.predicates import (
    And,
    Call,
    Column,
    Comparison,
    IsNull,
    Literal,
    Not,
    Opaque,
    Or,
    Predicate,
    columns_of,
    normalise,
    walk,
)
from geoskip.rewrite import canonical
from geoskip.rules import calls_of
from geoskip.types import sql_type

__all__ = ["IndexCandidates", "filtered_columns", "index_candidates", "presence_texts", "serves"]

_MOST_TOGETHER = 4
"""The most columns of one condition that are combined in pairs, or in points of a metric."""
_VARIANTS: Mapping[type[Index], Sequence[Mapping[str, Any]]] = {
    MinMax: ({},),
    GapList: ({}, {"gaps": 64}),
    ValueList: ({},),
    Hybrid: ({}, {"fpp": 1e-4}),
    BloomFilter: ({}, {"fpp": 1e-4}),
    Prefix: ({}, {"length": 6}, {"length": 40}),
    Suffix: ({}, {"length": 6}, {"length": 40}),
}
_BOXES: Sequence[Mapping[str, Any]] = ({}, {"boxes": 1}, {"boxes": 32})
_WITHOUT_INDEX = frozenset(["map", "array", "struct", "variant", "interval", "interval month"])
"""Kinds of types that only MetricDist supports."""
_ORDERED = ("haversine",)
"""Metrics with coordinates that are not interchangeable."""


@dataclass(frozen=True)
class IndexCandidates:
    """The indexes that could support some conditions.

    Attributes
    ----------
    indexes : tuple of Index
        Specifications, bound to the expressions that they were proposed for, without duplicates.
    together : tuple of tuple of str
        Texts of those indexes that support a condition only together, such as MinMax of both sides of ``a < b``.
    """

    indexes: tuple[Index, ...]
    together: tuple[tuple[str, ...], ...] = ()


def index_candidates(conditions: Iterable[Predicate]) -> IndexCandidates:
    """Return all indexes that could support a leaf of some conditions.

    >>> city, n = Column("city", "string"), Column("n", "int")
    >>> found = index_candidates([And((Not(IsNull(city)), Comparison("=", city, Literal("Ulm", "string"))))])
    >>> print(*found.indexes[:4])
    minmax(city) valuelist(city) hybrid(city) hybrid(city, fpp=0.0001)
    >>> index_candidates([Opaque("rand() < 0.1")]).indexes
    ()
    """
    trees = [canonical(condition) for condition in conditions]
    vertices = list(dict.fromkeys(vertex for tree in trees for vertex in _tests(tree)))
    read = Counter(expression for vertex in vertices for expression in set(_expressions(vertex)))
    found: dict[str, Index] = {}
    together: dict[tuple[str, ...], None] = {}

    def admit(proposals: Iterable[Index], vertex: Predicate) -> list[Index]:
        """Return the proposals that support a vertex, and record them."""
        served = [index for index in proposals if serves([index], vertex)]
        found.update((str(index), index) for index in served if str(index) not in found)
        return served

    for vertex in vertices:
        expressions = list(dict.fromkeys(_expressions(vertex)))
        columns = [node for node in expressions if isinstance(node, Column)]
        served = admit(_of_columns(columns), vertex)
        served += _one_order(admit, _pairs([node for node in expressions if _is_number(node)]), vertex)
        served += admit(_distances(vertex, expressions), vertex)
        direct = any(_is_direct(index) for index in served)
        pair = any(isinstance(index, GeoBox) for index in served)
        for call in expressions:
            if isinstance(call, Call) and not (direct and _has_constants(call) and read[call] < 2):
                admit(_of_call(call, geometry=not pair), vertex)
        for sides in dict.fromkeys([tuple(columns), tuple(side for side in _sides(vertex) if side in expressions)]):
            several = [index for side in sides for index in _specify(MinMax, [side])]
            alone = any(serves([index], vertex) for index in several)
            if 1 < len(several) <= _MOST_TOGETHER and not alone and serves(several, vertex):
                found.update((str(index), index) for index in several if str(index) not in found)
                together[tuple(map(str, several))] = None
                break
    for tree in trees:
        for conjunction in walk(tree):
            if isinstance(conjunction, And) and len(numbers := _limited_columns(conjunction)) == 2:
                pairs = [pair for pair in _pairs(numbers) if not any(_reverse_text(index) in found for index in pair)]
                _one_order(admit, pairs, conjunction)
    return IndexCandidates(tuple(found.values()), tuple(together))


def serves(indexes: Sequence[Index], condition: Predicate) -> bool:
    """True if indexes support a condition, or its negation, by more than a test for NULL.

    >>> s = Column("s", "string")
    >>> bounds = MinMax("s").bind([s])
    >>> [serves([bounds], node) for node in (Not(IsNull(s)), Call("f", (s,)))]
    [True, False]
    """
    labeller = Labeller([_probe(index, condition) for index in indexes])
    tests = [Not(IsNull(expression)) for index in indexes for expression in index.bound]
    texts = {str(KEEP_ALL)} if condition in tests else presence_texts(labeller)
    clauses = (labeller.true(node) for node in (condition, normalise(Not(condition))))
    return any(str(part) not in texts for clause in clauses for part in parts_of(clause))


def presence_texts(labeller: Labeller) -> frozenset[str]:
    """Return the texts of clauses that keep every file, or that only test for NULL."""
    tests = (Not(IsNull(expression)) for index in labeller.indexes for expression in index.bound)
    return frozenset({str(KEEP_ALL), *map(str, parts_of(all_of(map(labeller.true, tests))))})


def filtered_columns(condition: Predicate) -> frozenset[Column]:
    """Return the columns that the tests of a condition read; tests for NULL count only without others.

    >>> n, m = Column("n", "int"), Column("m", "int")
    >>> filtered_columns(And((Not(IsNull(m)), Comparison("=", n, Literal(5, "int")))))
    frozenset({n})
    """
    tests = _tests(canonical(condition))
    return frozenset(node for test in tests for node in walk(test) if isinstance(node, Column))


# --- proposals for a vertex -------------------------------------------------------------------------------------------


def _tests(tree: Predicate) -> list[Predicate]:
    """Return the leaf conditions of a tree; tests for NULL only if there are no others."""
    found = [
        vertex
        for vertex in walk(tree)
        if vertex.type == "boolean" and not isinstance(vertex, And | Or | Not | Literal | Opaque) and columns_of(vertex)
    ]
    return [vertex for vertex in found if not isinstance(vertex, IsNull)] or found


def _expressions(vertex: Predicate) -> Iterator[Predicate]:
    """Iterate over expressions that an index may be over: columns, and calls that depend on the row only."""
    for node in walk(vertex):
        if isinstance(node, Column) or (isinstance(node, Call) and columns_of(node) and _has_value(node)):
            yield node


def _sides(vertex: Predicate) -> list[Predicate]:
    """Return the operands of a comparison, without casts."""
    return [uncast(vertex.left), uncast(vertex.right)] if isinstance(vertex, Comparison) else []


def _has_value(call: Call) -> bool:
    """False for lambdas, for calls with free lambda variables, and for parts that are not translated."""
    within = list(walk(call))
    calls = [node for node in within if isinstance(node, Call)]
    bound = {variable for each in calls if each.name == "lambdafunction" for variable in each.args[1:]}
    free = {each for each in calls if each.name == "namedlambdavariable"} - bound
    return call.name != "lambdafunction" and not free and not any(isinstance(node, Opaque) for node in within)


def _is_direct(index: Index) -> bool:
    """True if an index on columns decides conditions on computed values nearly as well as one on these.

    This holds for boxes, distances, and bounds of numbers, dates and times, for which functions may be monotone; not
    for bounds of text.
    """
    if isinstance(index, MinMax):
        return not sql_type(index.bound[0].type).is_text
    return isinstance(index, GeoBox | MetricDist)


def _has_constants(call: Predicate) -> bool:
    return any(isinstance(node, Literal) for node in walk(call))


def _of_columns(columns: Sequence[Column]) -> Iterator[Index]:
    """Iterate over indexes on one column each, in several parameter choices."""
    for column in columns:
        if column.type == "geometry" or sql_type(column.type).kind == "binary":
            yield from _specify(GeoBox, [column], _BOXES)
        for kind, variants in _VARIANTS.items():
            yield from _specify(kind, [column], variants)


def _of_call(call: Call, *, geometry: bool) -> Iterator[Index]:
    """Iterate over indexes on a call; over GeoBox only if no pair of numbers is indexed instead."""
    if call.type in ("geometry", "binary"):
        yield from _specify(GeoBox, [call], _BOXES if geometry else ())
        return
    extractions = list(_extractions(call))
    yield from extractions
    for kind in _VARIANTS:
        if not (extractions and kind is ValueList):  # same content as Formatted
            yield from _specify(kind, [call])


def _extractions(call: Call) -> Iterator[Index]:
    """Iterate over Formatted indexes for a call that reads one text column."""
    columns = [node for node in walk(call) if isinstance(node, Column)]
    text = sql_text(call)
    if text is None or len(columns) != 1 or not sql_type(columns[0].type).is_text or "{" in text:
        return
    name = columns[0].name
    match call:
        case Call("regexp_extract", (Column(), Literal(str() as pattern), Literal())) if "(?<" in pattern:
            with suppress(GeoskipError):
                template = Formatted(name, template=pattern)
                yield template.bind([_group_of(call, part) for part in template.expressions()])
                return
    with suppress(GeoskipError):
        single = isinstance(call.args[0], Column) and len(call.args) == 1
        yield Formatted(name, extract=call.name if single else text.replace(name, "{}", 1)).bind([call])


def _group_of(call: Call, part: str) -> Predicate:
    """Return the call of ``regexp_extract`` for the group number at the end of a part's text."""
    number = int(part.rpartition(", ")[2].rstrip(")"))
    return replace(call, args=(*call.args[:2], Literal(number, "int")))


def _pairs(numbers: Sequence[Predicate]) -> list[list[Index]]:
    """Propose a GeoBox for each pair of numeric columns, or of numeric expressions if fewer than two."""
    columns = [node for node in numbers if isinstance(node, Column)]
    chosen = (columns if len(columns) > 1 else numbers)[:_MOST_TOGETHER]
    apart = (pair for pair in itertools.permutations(chosen, 2) if columns_of(pair[0]).isdisjoint(columns_of(pair[1])))
    return [list(_specify(GeoBox, pair, _BOXES)) for pair in apart]


def _one_order(
    admit: Callable[[Iterable[Index], Predicate], list[Index]], pairs: Iterable[list[Index]], vertex: Predicate
) -> list[Index]:
    """Admit each pair of numbers in the first order that supports the vertex, such as (lng, lat)."""
    served: list[Index] = []
    for pair in pairs:
        if not any(_reverse_text(index) in map(str, served) for index in pair):
            served += admit(pair, vertex)
    return served


def _reverse_text(pair: Index) -> str:
    """Return the text of a GeoBox with its two expressions exchanged."""
    return str(replace(pair, x=pair.y, y=pair.x)) if isinstance(pair, GeoBox) and pair.y is not None else ""


def _limited_columns(conjunction: And) -> list[Predicate]:
    """Return the float and decimal columns that an AND compares: ``lat < 5 AND lng > 7``."""
    sides = [part.left for part in conjunction.children if isinstance(part, Comparison)]
    columns = dict.fromkeys(side for side in sides if isinstance(side, Column))
    return [side for side in columns if sql_type(side.type).is_floating or sql_type(side.type).is_decimal]


def _distances(vertex: Predicate, expressions: Sequence[Predicate]) -> Iterator[Index]:
    """Iterate over MetricDist indexes for the arguments of a call in a condition."""
    compared = calls_of(vertex)
    if not compared:
        return
    expressions = [node for node in expressions if node not in compared]
    numbers = [node for node in expressions if _is_number(node) and isinstance(node, Column)][:_MOST_TOGETHER]
    points: list[tuple[Predicate, ...]] = [(n,) for n in expressions if isinstance(n, Column) or not _has_constants(n)]
    points += [tuple(numbers)] if len(numbers) > 2 else list(itertools.permutations(numbers, 2))
    for name, metric in METRICS.items():
        for point in points:
            ordered = name in _ORDERED or point == tuple(sorted(point, key=expressions.index))
            if ordered and not metric.refusal([node.type or "" for node in point]):
                yield from _specify(MetricDist, point, ({"metric": name},))


def _probe(index: Index, vertex: Predicate) -> Index:
    """Return a MetricDist with an arbitrary pivot if it has none yet; another index unchanged."""
    if not isinstance(index, MetricDist) or index.is_resolved:
        return index
    array = next((node for node in walk(vertex) if isinstance(node, Literal) and isinstance(node.value, tuple)), None)
    row = [array.value if array else [1.0]] if sql_type(index.bound[0].type).kind == "array" else [1.0]
    text = sql_type(index.bound[0].type).is_text
    try:
        return index.prepare(*(pa.array(["a"] if text else row) for _ in index.bound))
    except (GeoskipError, pa.ArrowException):
        return index


def _is_number(node: Predicate) -> bool:
    return sql_type(node.type).is_numeric


def _specify(
    kind: Callable[..., Index], over: Sequence[Predicate], variants: Iterable[Mapping[str, Any]] = ({},)
) -> Iterator[Index]:
    """Iterate over the valid index specifications of a kind over some expressions."""
    if kind is not MetricDist and any(sql_type(node.type).kind in _WITHOUT_INDEX for node in over):
        return
    texts = [text for text in map(sql_text, over) if text is not None]
    for options in variants if len(texts) == len(over) else ():
        with suppress(GeoskipError):
            index = kind(*texts, **options).bind(over)
            types = [sql_type(node.type) for node in over]
            columns = [SourceColumn(text, t.name, t.arrow) for text, t in zip(texts, types, strict=True) if t.arrow]
            if len(columns) == len(over):  # other types are left to Spark to check
                index.metadata_type(*columns)
            yield index
