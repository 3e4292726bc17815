"""Indexes as text."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from geoskip import (
    BloomFilter,
    Formatted,
    GapList,
    GeoBox,
    Hybrid,
    Index,
    MetricDist,
    MinMax,
    Prefix,
    Suffix,
    ValueList,
    index,
)
from geoskip.advisor.advice import item_of
from geoskip.cli.build_commands import KINDS, IndexOptions, parse_index
from geoskip.errors import InvalidSpecificationError
from geoskip.indexes.base import index_kinds, is_own

SPECIFICATIONS = [
    MinMax("temp"),
    MinMax("length(concat(a, ', length=3'))"),
    MinMax("(a = 1)"),
    MinMax("`a,b`"),
    GapList("x", gaps=3),
    ValueList("city", limit=7),
    BloomFilter("a", fpp=0.001),
    Hybrid("a", fpp=0.02, psi=0.5),
    Prefix("path", length=3, limit=7),
    Suffix("host"),
    Formatted("agent", extract="get_agent_name"),
    Formatted("url", extract="parse_url({}, 'HOST')"),
    Formatted("line", template=r"^(?<ip>\S+), .*\[(?<day>[^:]+)", limit=5),
    MetricDist("x", "y", metric="euclidean"),
    GeoBox("lng", "lat", boxes=4),
    GeoBox("ST_GeomFromWKB(shape)"),
]


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=str)
def test_the_item_of_an_index_is_that_index(specification: Index) -> None:
    assert parse_index(item_of(specification)) == specification


def test_every_kind_has_an_option_and_an_example() -> None:
    own = {name for name, kind in index_kinds().items() if is_own(kind)}
    options = {each.name for each in dataclasses.fields(IndexOptions)}
    assert own == set(KINDS) == options - {"index"}
    for kind, inside in KINDS.items():
        assert parse_index(f"{kind}({inside})").kind == kind


def test_quotes_spaces_and_case_do_not_matter() -> None:
    assert parse_index(" PREFIX ( path , length = 8 ) ") == Prefix("path", length=8)
    assert parse_index("formatted(a, extract='f')") == Formatted("a", extract="f")
    assert parse_index("metricdist(word, metric=levenshtein, origins=4)") == MetricDist(
        "word", metric="levenshtein", origins=4
    )


def test_an_index_type_of_ones_own_has_its_text_too() -> None:
    @index
    @dataclass(frozen=True)
    class Digits(Index):
        expr: str
        base: int = 10
        kind: ClassVar[str] = "test_digits"

        def metadata_type(self, *columns: Any) -> Any: ...

        def collect(self, *values: Any) -> Any: ...

        def merge(self, summaries: Any) -> Any: ...

        def clause(self, node: Any) -> Any: ...

    assert parse_index("test_digits(id, base=2)") == Digits("id", 2)
    with pytest.raises(InvalidSpecificationError, match="takes one expression, got 2"):
        parse_index("test_digits(a, b)")
