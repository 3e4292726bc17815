"""Spark's own functions over the indexes of one expression: sound for every state of a file, and of use for some."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import udf_mappings.spark_texts  # noqa: F401  (the mappings register when imported)
from geoskip import predicates as p
from geoskip.indexes.affix import Prefix, Suffix
from geoskip.indexes.gaplist import GapList
from geoskip.indexes.minmax import MinMax
from geoskip.planner import Labeller
from tests.support.harness import COLUMNS, POOLS, Kind, call, canned, sound

S, A = COLUMNS["s"], COLUMNS["a"]
STARTS = ["", "a", "ab", "abc", "z" * 31, "é", "\U0001f600", "\udcff"]
PATTERNS = ["^a", "^ab?", "^ab+", "^ab$", "^a|z", "^z{3}", "b", "^", "^.b", "^a(b|c)", "^a%b"]


def _text(value: str | None) -> p.Literal:
    return p.Literal(value, "string")


def substrings() -> Iterator[p.Predicate]:
    for start, length in itertools.product(STARTS, (0, 1, 2, 3, 40)):
        beginning = call("substring", S, p.Literal(1, "int"), p.Literal(length, "int"), type="string")
        for op in ("=", "<=>", "<", "<=", ">", ">="):
            yield p.Comparison(op, beginning, _text(start))
        yield p.In(beginning, (_text(start), _text("zz"), _text(None)))
        yield p.StartsWith(beginning, start)
        yield p.Like(beginning, f"{start}_%")


def others() -> Iterator[p.Predicate]:
    for start in STARTS:
        yield p.Comparison("=", call("instr", S, _text(start), type="int"), p.Literal(1, "int"))
        yield p.Comparison("=", call("locate", _text(start), S, p.Literal(1), type="int"), p.Literal(1, "int"))
    for pattern in PATTERNS:
        yield call("rlike", S, _text(pattern), type="boolean")


def defaults() -> Iterator[p.Predicate]:
    known = call("coalesce", A, p.Literal(0, "int"), type="int")
    for op, value in itertools.product(("=", "<=>", "<", "<=", ">", ">="), POOLS["a"]):
        yield p.Comparison(op, known, p.Literal(value, "int"))
    yield p.In(known, (p.Literal(0, "int"), p.Literal(None)))


def ends() -> Iterator[p.Predicate]:
    for end, length in itertools.product([*STARTS[1:], "b", "\udc80"], (1, 2, 3, 40)):
        last = call("substring", S, p.Literal(-length, "int"), p.Literal(2**31 - 1, "int"), type="string")
        yield p.Comparison("=", last, _text(end))
        yield p.In(last, (_text(end), _text("zz"), _text(None)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shapes", "kind"),
    [
        pytest.param("s", [*substrings()], MinMax, id="substring"),
        pytest.param("s", [*others()], MinMax, id="instr, locate and rlike"),
        pytest.param("a", [*defaults()], MinMax, id="coalesce"),
        pytest.param("s", [*substrings()], lambda name: Prefix(name, length=2), id="substring over Prefix"),
        pytest.param("s", [*others()], lambda name: Prefix(name, length=2), id="instr, locate and rlike over Prefix"),
        pytest.param("s", [*ends()], lambda name: Suffix(name, length=2), id="right over Suffix"),
        pytest.param("a", [*defaults()], lambda name: GapList(name, gaps=1), id="coalesce over GapList"),
    ],
)
def test_a_mapping_loses_no_row_and_skips_some_file(name: str, shapes: list[p.Predicate], kind: Kind) -> None:
    world = canned(name, kind)
    skips = [not sound(node, world).true.all() for leaf in shapes for node in (leaf, p.Not(leaf))]
    assert sum(skips) > 0.3 * len(skips)


def test_a_users_function_of_the_same_name_meets_no_mapping() -> None:
    label = Labeller([MinMax("s").bind([S])])
    for implementation in ("python:mine.rlike#1", "org.apache.spark.sql.catalyst.expressions.ScalaUDF", None):
        mine = p.Call("rlike", (S, _text("^a")), implementation, (), "boolean")
        assert str(label.true(mine)) == "keep every file"
