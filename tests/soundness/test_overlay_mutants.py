"""Unsound rules about overlays and geohashes, planted one by one as registered rules: a corpus must catch each."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import shapely

from geoskip.geometry import geohash_cell
from geoskip.indexes.geobox.index import GeoBox
from geoskip.predicates import Call, Comparison, In, Literal, Not, Predicate, StartsWith
from tests.support.geobox_oracle import GEOM, SHAPES, call, literal
from tests.support.geometry_corpora import ROWS, SHAPES_ASKED, Corpus, sedonas
from tests.support.mapped import spark
from tests.support.planting import Patch, function, listed, registered
from udf_mappings.sedona import geohash_prefix, intersection_area, sides

MUTANTS: list[Any] = []


@functools.cache
def overlays() -> Corpus:
    """Areas of intersections and of unions, intersections that are EMPTY, and geohashes of all lengths."""
    rows = [row for row in ROWS if row is not None and shapely.is_valid(row) and not row.is_empty]

    def areas() -> Iterator[Predicate]:
        for shape, name in itertools.product(SHAPES_ASKED, ("ST_Intersection", "ST_Union")):
            for common in (call(name, GEOM, shape), call(name, shape, GEOM)):
                yield from (call("ST_IsEmpty", common), Not(call("ST_IsEmpty", common)))
                for op, least in itertools.product((">", ">="), (-1.0, 0.0, 1.0)):
                    yield Comparison(op, call("ST_Area", common), literal(least))

    known = Corpus.of(SHAPES, [[row] for row in rows], areas())
    hashes = [_geohash(row, 7) for row in rows]
    for text in sorted({each[:length] for each in hashes for length in range(1, 8)}):
        ends = [each[: len(text)] == text for each in hashes]
        asked = sedonas("ST_GeoHash", GEOM, Literal(len(text), "int"), type="string")
        both = (Literal("zzz", "string"), Literal(text, "string"))
        whole = sedonas("ST_GeoHash", GEOM, Literal(7, "int"), type="string")
        left = spark("Substring", "substring", whole, 1, len(text), type="string")
        known.cases.append((Comparison("=", left, both[1]), ends))
        for node in (Comparison("=", asked, both[1]), StartsWith(asked, text), In(asked, both), In(asked, both[::-1])):
            known.cases.append((node, ends))
    return known


def _geohash(shape: Any, length: int) -> str:
    """By halving: the geohash of the centre of a shape's envelope, longitude first."""
    west, south, east, north = shape.bounds
    halves: list[int] = []
    left = [((west + east) / 2 + 180) / 360, ((south + north) / 2 + 90) / 180]
    for bit in range(5 * length):
        whole, left[bit % 2] = divmod(left[bit % 2] * 2, 1)
        halves.append(int(whole))
    digits = (int("".join(map(str, halves[at : at + 5])), 2) for at in range(0, len(halves), 5))
    return "".join("0123456789bcdefghjkmnpqrstuvwxyz"[digit] for digit in digits)


def mutant(rule: str) -> Callable[[Patch], Patch]:
    """A mutant, and the rule that it breaks."""
    return listed(MUTANTS, rule)


def _instead_of_intersection_area(patch: pytest.MonkeyPatch, asked: Callable[[Predicate], Any]) -> None:
    def rule(node: Predicate, index: GeoBox) -> Any:
        common = asked(node)
        pair = sides(common, index) if isinstance(common, Call) else None
        return pair and pair[0].meets(pair[1])

    registered(patch, intersection_area, rule)


@mutant("an area of at least 0 is any")
def an_area_of_0_needs_a_common_point(patch: pytest.MonkeyPatch) -> None:
    def asked(node: Predicate) -> Any:
        match node:
            case Comparison(">" | ">=", Call(_, (Call("ST_Intersection") as common,)), Literal(least)) if least >= 0:
                return common
        return None

    _instead_of_intersection_area(patch, asked)


@mutant("an area above less than 0 is any")
def every_area_needs_a_common_point(patch: pytest.MonkeyPatch) -> None:
    def asked(node: Predicate) -> Any:
        match node:
            case Comparison(">", Call(_, (Call("ST_Intersection") as common,))):
                return common
        return None

    _instead_of_intersection_area(patch, asked)


@mutant("an intersection that is EMPTY needs no common point")
def what_is_empty_is_not(patch: pytest.MonkeyPatch) -> None:
    def asked(node: Predicate) -> Any:
        match node:
            case Call("ST_IsEmpty", (Call("ST_Intersection") as common,)):
                return common
        return None

    _instead_of_intersection_area(patch, asked)


@mutant("a union is not EMPTY without a common point")
def every_overlay_is_an_intersection(patch: pytest.MonkeyPatch) -> None:
    def asked(node: Predicate) -> Any:
        match node:
            case Comparison(">", Call("ST_Area", (Call() as common,)), Literal(0.0)) | Not(
                Call(_, (Call() as common,))
            ):
                return common
        return None

    _instead_of_intersection_area(patch, asked)


@mutant("a geohash has the longitude first")
def geohashes_have_the_latitude_first(patch: pytest.MonkeyPatch) -> None:
    def cell(original: Any, text: str) -> Any:
        return shapely.transform(original(text), lambda xy: xy[:, ::-1] * (2, 0.5))

    function(patch, geohash_cell, cell)


@mutant("a geohash is that of the envelope's centre")
def what_has_a_geohash_lies_in_its_cell(patch: pytest.MonkeyPatch) -> None:
    def rule(node: Predicate, index: GeoBox) -> Any:
        match node:
            case Comparison("=", Call(_, (g, *_)), Literal(str() as text)) if sight := index.sees(g):
                return sight.meets(shapely.buffer(geohash_cell(text).centroid, 1e-9))
        return None

    registered(patch, geohash_prefix, rule)


@mutant("IN: any of the geohashes")
def the_first_geohash_decides(patch: pytest.MonkeyPatch) -> None:
    def rule(node: Predicate, index: GeoBox) -> Any:
        match node:
            case In(Call(_, (g, *_)), (Literal(str() as text), *_)) if sight := index.sees(g):
                return sight.meets(geohash_cell(text))
        return None

    registered(patch, geohash_prefix, rule)


@pytest.mark.parametrize("plant", MUTANTS)
def test_the_corpus_catches(plant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = overlays()  # before the mutant is there
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="lost a row"):
        corpus.search()


def test_nothing_is_found_where_nothing_is_planted() -> None:
    overlays().search()
