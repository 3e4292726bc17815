"""Distances on the globe as SQL spells them lie between the ends that a box gives them."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoskip.bounds import derive, interval_of
from geoskip.bounds.arithmetic import of_function, of_wave
from geoskip.bounds.interval import Interval
from geoskip.geometry import Boxes
from geoskip.metadata import FileMetadata
from geoskip.predicates import Call, Column, Literal, Predicate
from tests.support.mapped import spark
from tests.support.planting import function
from tests.support.strategies import examples

X, Y = Column("lng", "double"), Column("lat", "double")
CLASSES = {
    "+": "Add",
    "-": "Subtract",
    "*": "Multiply",
    "/": "Divide",
    "pow": "Pow",
    "sin": "Sin",
    "cos": "Cos",
    "asin": "Asin",
    "acos": "Acos",
    "atan2": "Atan2",
    "sqrt": "Sqrt",
    "radians": "ToRadians",
    "negative": "UnaryMinus",
}
PYTHON = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "pow": math.pow,
    "sin": math.sin,
    "cos": math.cos,
    "asin": math.asin,
    "acos": math.acos,
    "atan2": math.atan2,
    "sqrt": math.sqrt,
    "radians": math.radians,
    "negative": lambda a: -a,
}


def of(name: str, *args: Any) -> Call:
    return spark(CLASSES[name], name, *args, type="double")


def formulas(x: float, y: float) -> Iterator[Predicate]:
    """Distances from a place: by haversine in two spellings, and by the law of cosines."""
    lat, lng, phi = of("radians", Y), of("radians", X), math.radians(y)
    high, wide = of("/", of("radians", of("-", Y, y)), 2.0), of("/", of("-", math.radians(x), lng), 2.0)
    square = of("+", of("pow", of("sin", high), 2.0),
                of("*", of("*", math.cos(phi), of("cos", lat)), of("*", of("sin", wide), of("sin", wide))))  # fmt: skip
    yield of("*", 2 * 6371.0, of("asin", of("sqrt", square)))
    yield of("*", 2.0, of("atan2", of("sqrt", square), of("sqrt", of("-", 1.0, square))))
    beside = of("*", of("*", of("cos", lat), math.cos(phi)), of("cos", of("-", lng, math.radians(x))))
    yield of("acos", of("+", of("*", math.sin(phi), of("sin", lat)), beside))
    yield of("negative", of("sin", of("+", lng, lat)))


def value(node: Predicate, row: tuple[float, float]) -> float:
    match node:
        case Column(name):
            return row[0] if name == "lng" else row[1]
        case Literal(number):
            return float(number)
        case Call(name, args):
            try:
                return PYTHON[name](*(value(arg, row) for arg in args))
            except ValueError:  # where Java gives NaN
                return math.nan
    raise AssertionError(node)


@functools.cache
def worlds() -> list[tuple[Predicate, Boxes, list[float]]]:
    """A formula, a box, and the values of places in the box, its corners among them."""
    chance, found = random.Random(11), []
    for _ in range(examples(400)):
        x, y, width = chance.uniform(-180, 180), chance.uniform(-88, 80), 10 ** chance.uniform(-2, 2)
        ends = (x, y, x + width, min(90.0, y + width / 2))
        places = [(a, b) for a in ends[::2] for b in ends[1::2]]
        places += [(chance.uniform(*ends[::2]), chance.uniform(*ends[1::2])) for _ in range(12)]
        centre = (x + width / 2, (ends[1] + ends[3]) / 2)
        places.append(centre)
        place = chance.choice([centre, (chance.uniform(-180, 180), chance.uniform(-89, 89))])
        for node in formulas(*place):
            found.append((node, Boxes.of([ends]), [value(node, row) for row in places]))
    return found


def ends(node: Predicate, boxes: Boxes) -> tuple[float, float, bool] | None:
    """The interval of a formula in the first box, and whether it may be NaN; None where it is unknown."""
    sides = {"minmax(lng)": (boxes.xmin, boxes.xmax), "minmax(lat)": (boxes.ymin, boxes.ymax)}
    one = {"nulls": 0, "nans": 0, "rows": 1}
    files = FileMetadata.of(
        pa.table({name: [{"min": low[0], "max": high[0], **one}] for name, (low, high) in sides.items()})
    )
    derived = derive(node, {X: "minmax(lng)", Y: "minmax(lat)"}.get)
    found = None if derived is None else interval_of(files, derived)
    assert isinstance(found, Interval)
    known = np.isfinite(found.low[0]) and np.isfinite(found.high[0])
    return (found.low[0], found.high[0], found.nan is not None and bool(found.nan[0])) if known else None


def search() -> int:
    """How many boxes have ends, of which none is left by a value."""
    told = 0
    for node, boxes, values in worlds():
        if (found := ends(node, boxes)) is not None:
            told += 1
            low, high, nan = found
            assert all(low <= each <= high or (nan and each != each) for each in values), f"{node} leaves {low}, {high}"
    return told


@pytest.mark.slow
@pytest.mark.hypothesis
def test_no_value_leaves_its_ends() -> None:
    assert search() > 0.5 * len(worlds())


def test_ends_are_near_one_another() -> None:
    box = Boxes.of([(10.0, 48.0, 10.5, 48.5)])
    for node, scale in zip(formulas(11.0, 50.0), (1.0, 6371.0, 6371.0), strict=False):
        low, high, _ = ends(node, box) or (0, 0, True)
        assert 140 < low * scale < 183 < 230 < high * scale < 270


SIN, COS = of("sin", X), of("cos", X)
REGROUPED = [
    (of("*", of("*", SIN, 1e-300), of("*", Y, Y)), 1e200),  # infinite, but 1e100 from left to right
    (of("*", of("*", of("*", SIN, 1e-200), 1e-200), of("*", Y, Y)), 1e200),  # 0 times infinity
    (of("*", of("*", SIN, of("*", 1e-323, Y)), of("*", 1e300, 1e10)), 0.3),  # less than the least double, enlarged
]


@pytest.mark.parametrize(("term", "y"), REGROUPED, ids=["infinite", "nan", "lost digits"])
def test_factors_of_a_wave_may_be_multiplied_in_any_order(term: Predicate, y: float) -> None:
    node = of("+", term, COS)
    found, exact = ends(node, Boxes.of([(1.0, y, 1.0, y)])), value(node, (1.0, y))
    assert found is None or found[0] <= exact <= found[1]


@pytest.mark.parametrize("unsure", [None, 0, 1, 2], ids=["none", "the angle", "a factor of sines", "one of cosines"])
def test_a_wave_is_known_where_all_its_parts_are(unsure: int | None) -> None:
    parts = [(np.array([0.1]), np.array([0.2]), np.array([number != unsure])) for number in range(3)]
    assert of_wave(*parts)[2].tolist() == [unsure is None]


def without_peaks(original: Any, angle: Any, sines: Any, cosines: Any) -> Any:
    ends = [sines[0] * np.sin(at) + cosines[0] * np.cos(at) for at in angle[:2]]
    return np.minimum(*ends), np.maximum(*ends), angle[2]


def test_extremes_between_the_ends_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    function(monkeypatch, of_wave, without_peaks)
    with pytest.raises(AssertionError, match="leaves"):
        search()


def test_a_domain_that_is_left_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    function(monkeypatch, of_function, lambda original, name, args: (*original(name, args)[:2], np.bool_(True)))
    with pytest.raises(AssertionError, match="leaves"):
        search()
