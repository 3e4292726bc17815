"""Predicates and values as JSON: exactly back, or refused."""

from __future__ import annotations

import contextlib
import datetime
import json
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip import predicates as p
from geoskip.codec import MAX_DEPTH, predicate_from_json, predicate_to_json, value_from_json, value_to_json
from geoskip.errors import MetadataError
from tests.support.strategies import examples

texts = st.text(st.characters(codec=None, exclude_categories=()), max_size=8)
shapes = st.sampled_from(
    [
        "POINT (1 2)", "POINT EMPTY", "POINT Z (1 2 3)", "POINT M (1 2 3)", "POINT ZM (1 2 3 4)", "POINT (NaN 5)",
        "LINESTRING (0 0, 1 1)", "LINEARRING (0 0, 1 0, 1 1, 0 0)", "POLYGON EMPTY", "GEOMETRYCOLLECTION EMPTY",
        "POLYGON ((0 0, 9 0, 9 9, 0 0), (5 1, 6 1, 6 2, 5 1))", "MULTIPOINT (EMPTY, (1 2))",
        "GEOMETRYCOLLECTION (POINT (1 2), MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0))), GEOMETRYCOLLECTION (POINT EMPTY))",
    ]
).map(shapely.from_wkt)  # fmt: skip
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.decimals(allow_nan=False),
    texts,
    st.binary(max_size=8),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([None, datetime.UTC])),
    shapes,
    st.builds(shapely.set_srid, shapes, st.just(4326)),
    st.lists(st.none() | st.floats() | texts, max_size=3).map(tuple),
)
optional = st.none() | texts
literals = st.builds(p.Literal, values, optional)
leaves = st.one_of(
    literals,
    st.builds(p.Column, texts, optional),
    st.builds(p.Opaque, texts, st.lists(texts, max_size=2).map(tuple)),
)


def vertices(below: st.SearchStrategy[p.Predicate]) -> st.SearchStrategy[p.Predicate]:
    several = st.lists(below, max_size=3).map(tuple)
    operators = st.sampled_from(["=", "<=>", "<", "<=", ">", ">="])
    return st.one_of(
        st.builds(p.Call, texts, several, optional, st.lists(texts, max_size=2).map(tuple), optional),
        st.builds(p.Cast, below, texts, optional, st.booleans(), optional),
        st.builds(p.Comparison, operators, below, below),
        st.builds(p.In, below, st.lists(literals, max_size=3).map(tuple)),
        st.builds(p.Like, below, texts, texts),
        st.builds(p.StartsWith, below, texts),
        st.builds(p.EndsWith, below, texts),
        st.builds(p.Contains, below, texts),
        st.builds(p.IsNull, below),
        st.builds(p.And, several),
        st.builds(p.Or, several),
        st.builds(p.Not, below),
    )


def through_json(data: Any) -> Any:
    return json.loads(json.dumps(data, allow_nan=False))


@settings(max_examples=examples(300), deadline=None)
@given(st.recursive(leaves, vertices, max_leaves=6))
def test_a_predicate_comes_back_exactly(node):
    assert predicate_from_json(through_json(predicate_to_json(node))) == node


@settings(max_examples=examples(300), deadline=None)
@given(values)
def test_a_value_comes_back_with_its_type(value):
    back = value_from_json(through_json(value_to_json(value)))
    assert type(back) is type(value)
    if isinstance(value, float | tuple):
        assert repr(back) == repr(value)
    elif isinstance(value, Decimal):
        assert str(back) == str(value)
    elif isinstance(value, shapely.Geometry):
        assert shapely.to_wkb(back, include_srid=True) == shapely.to_wkb(value, include_srid=True)
    else:
        assert back == value


def test_every_vertex_type_has_a_written_form():
    kinds = [getattr(p, name) for name in p.__all__]
    written = {kind.__name__.lower() for kind in kinds if isinstance(kind, type) and issubclass(kind, p.Predicate)}
    written -= {"predicate"}
    with pytest.raises(MetadataError) as refusal:
        predicate_from_json({"node": "?"})
    assert written == set(str(refusal.value).partition("known are ")[2].split(", "))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(object(), id="an object"),
        pytest.param(np.float64(1), id="a scalar of numpy"),
        pytest.param([1], id="a list"),
        pytest.param(10**5000, id="an integer of thousands of digits"),
        pytest.param(shapely.Point(float("nan"), float("nan")), id="a point that WKB takes for an empty one"),
    ],
)
def test_what_would_not_come_back_is_refused(value):
    with pytest.raises(MetadataError):
        predicate_to_json(p.Literal(value))


def nested(depth: int) -> p.Predicate:
    node: p.Predicate = p.Column("a")
    for _ in range(depth):
        node = p.Not(node)
    return node


def test_depth_is_bounded_both_ways():
    assert predicate_from_json(predicate_to_json(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    with pytest.raises(MetadataError, match="deep"):
        predicate_to_json(nested(MAX_DEPTH + 1))
    with pytest.raises(MetadataError, match="deep"):
        predicate_from_json({"node": "not", "child": predicate_to_json(nested(MAX_DEPTH))})


@pytest.mark.parametrize("code", [7, 5, 1007, 0x20000007, 0x80000007])
@pytest.mark.parametrize("order", "<>")
def test_nested_collections_do_not_end_the_process(code, order):
    header = struct.pack(f"{order}BI", order == "<", code) + (b"\0" * 4 if code & 0x20000000 else b"")
    hostile = (header + struct.pack(f"{order}I", 1)) * 100_000 + header + struct.pack(f"{order}I", 0)
    with pytest.raises(MetadataError, match="deep"):
        value_from_json({"wkb": hostile.hex()})


TRUE = {"node": "literal", "value": True}
BAD = [
    None, 1, [], {}, {"node": "eval"}, {"node": ["not"]}, {"node": "not"}, {"node": "not", "child": None},
    {"node": "column", "name": 1}, {"node": "column", "name": "a", "extra": 1}, {"node": "column", "name": None},
    {"node": "and", "children": {}}, {"node": "in", "child": {"node": "column", "name": "a"}, "values": [1]},
    {"node": "in", "child": {"node": "column", "name": "a"}, "values": [{"node": "column", "name": "a"}]},
    {"node": "comparison", "op": "!=", "left": TRUE, "right": TRUE},
    {"node": "cast", "child": {"node": "column", "name": "a"}, "type": "int", "ansi": 1},
    {"node": "literal"}, {"node": "literal", "value": 1.5}, {"node": "literal", "value": []},
    {"node": "literal", "value": {"float": 1}}, {"node": "literal", "value": {"float": "x"}},
    {"node": "literal", "value": {"decimal": "x"}}, {"node": "literal", "value": {"int": "9" * 5000}},
    {"node": "literal", "value": {"wkb": "00"}}, {"node": "literal", "value": {"wkb": "zz"}},
    {"node": "literal", "value": {"wkb": ""}}, {"node": "literal", "value": {"wkb": "01020000000f0000ff"}},
    {"node": "literal", "value": {"ring": "0101000000000000000000f03f000000000000f03f"}},
    {"node": "literal", "value": {"date": "2024-13-01"}}, {"node": "literal", "value": {"utf8": "ff"}},
    {"node": "literal", "value": {"pickle": "80"}}, {"node": "literal", "value": {"array": "ab"}},
    {"node": "literal", "value": {"array": [[]]}}, {"node": "literal", "value": {"int": "1", "float": "1"}},
]  # fmt: skip


@pytest.mark.parametrize("data", BAD, ids=lambda data: str(data)[:60])
def test_a_wrong_shape_is_a_metadata_error(data):
    with pytest.raises(MetadataError):
        predicate_from_json(data)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.sampled_from(["not", "and", "literal"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["node", "child", "value", "children", "wkb", "int"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=examples(200), deadline=None)
@given(anything)
def test_whatever_json_says_it_is_read_or_refused(data):
    with contextlib.suppress(MetadataError):
        predicate_from_json(data)
