"""check_mapping finds what is wrong with a mapping, each kind of mistake in its turn, without Spark."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
import shapely

from geoskip import (
    GeoBox,
    MappingCheck,
    MinMax,
    Prefix,
    check_mapping,
    constant,
    declare,
    denotes,
    mappings,
    maps,
)
from geoskip.clauses import any_of
from geoskip.errors import EnvironmentProblem, MappingError
from geoskip.geometry import Point
from geoskip.predicates import Call, Comparison, IsNull, Literal, Not, StartsWith
from tests.conftest import SOAK
from tests.support.wrong_mappings import (
    WRONG,
    Rule,
    double,
    fahrenheit,
    half_away,
    is_hot_inside,
    or_zero,
    place,
    planar,
    square,
    wrong_direction,
    wrong_order,
    zone,
)

pytestmark = [pytest.mark.usefixtures("processor_time"), pytest.mark.hypothesis]


def enough(seconds: float) -> float:
    """Seconds to look for what is not there: an eighth of them in the ordinary run."""
    return seconds if SOAK else seconds / 8


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_mapping_is_found(name: str) -> None:
    function, kind, rule = WRONG[name]
    with mappings():
        maps(function, index=kind)(rule)
        found = check_mapping(function)
    assert not found.ok
    assert found.counter_example is not None
    assert found.counter_example.blame == f"mapping {rule.__module__}.{rule.__name__}"
    assert found.counter_example.lost == (0,)
    assert len(found.counter_example.rows) == 1, str(found)
    assert found.seconds < 60


def test_a_counter_example_is_a_table_of_the_rows_the_summary_and_the_query() -> None:
    with mappings():
        maps(fahrenheit, index=MinMax)(wrong_direction)
        said = str(check_mapping(fahrenheit)).splitlines()
    assert said[0].startswith("fahrenheit: WRONG, rows are lost (")
    assert "mapping tests.support.wrong_mappings.wrong_direction" in said[1]
    assert said[2].split() == ["the", "query", "WHERE", "fahrenheit(celsius)", ">", "0.0"]
    assert "min(celsius) < -17.7" in said[3]
    assert "minmax(celsius): min=-0.0, max=0.0, nulls=0" in said[4]
    assert [line.split() for line in said[6:]] == [
        ["celsius", "|", "fahrenheit(celsius)", "|", "the", "query", "says"],
        ["--------+---------------------+---------------"],
        ["0.0", "|", "32.0", "|", "TRUE", "<-", "lost"],
    ]


# ---- properties, constants, denotations


def declares(**properties: Any) -> Callable[[Any], Any]:
    return lambda function: declare(function, **properties)


def evaluates(evaluate: Any) -> Callable[[Any], Any]:
    return lambda function: constant(function)(evaluate)


counted = itertools.count()
UNTRUE: dict[str, tuple[Callable[..., Any], Callable[[Any], Any], str]] = {
    "monotone": (square, declares(monotone="increasing", null_in_null_out=True), "monotone='increasing'"),
    "turned round": (fahrenheit, declares(monotone="decreasing", null_in_null_out=True), "monotone='decreasing'"),
    "NULL for NULL": (or_zero, declares(null_in_null_out=True), "null_in_null_out=True"),
    "inverse": (square, declares(inverse=math.sqrt), "inverse=sqrt"),
    "inverse of many": (or_zero, declares(inverse=lambda n: n, null_in_null_out=True), "inverse="),
    "constant": (zone, evaluates(lambda code: code and code[:2]), "is evaluated to '"),
    "denotation": (place, lambda f: denotes(f)(lambda call: Point(call.args[1], call.args[0])), "and not at ("),
}


@pytest.mark.parametrize("name", UNTRUE)
def test_what_is_not_true_of_a_function_is_found(name: str) -> None:
    function, says, wrong = UNTRUE[name]
    with mappings():
        says(function)
        found = check_mapping(function)
    assert not found.ok
    assert wrong in str(found), str(found)


def test_a_function_that_is_no_metric_is_found() -> None:
    with mappings():
        declare(half_away, metric=True)
        found = check_mapping(half_away)
    assert not found.ok
    assert "half_away is no metric: from" in str(found)


def test_a_function_that_is_not_deterministic_is_found() -> None:
    def ticket(number: int) -> int:
        return next(counted)

    with mappings():
        declare(ticket, monotone="increasing", version="1")
        assert "is not deterministic" in str(check_mapping(ticket))


def test_what_is_true_is_not_complained_of() -> None:
    with mappings():
        declare(fahrenheit, monotone="increasing", null_in_null_out=True)
        constant(fahrenheit)(fahrenheit)
        denotes(place)(lambda call: Point(*call.args))
        declare(double, null_in_null_out=True)
        for function in (fahrenheit, place, double):
            found = check_mapping(function, seconds=enough(1))
            assert found.ok, str(found)
            assert found.trials > 100
            assert found.skipped or function is place


# ---- more than one index, and what does nothing


def hot_box(node: Any, boxes: Any, temps: Any) -> Any:
    """A row lies in the box, and is above 30."""
    match node:
        case Call(_, (lng, lat, temp)) if temps.reads(temp) and (sight := boxes.sees(Point(lng, lat))):
            return any_of([temps.clause(Comparison(">", temp, Literal(30.0, "double")))]) and sight.meets(
                shapely.box(40, 20, 50, 25)
            )


def cold_box(node: Any, boxes: Any, temps: Any = None) -> Any:
    """Wrong about the temperature where it is given one."""
    match node:
        case Call(_, (_, _, temp)) if temps is not None and temps.reads(temp):
            return temps.clause(Comparison("<", temp, Literal(30.0, "double")))


@pytest.mark.slow
def test_a_mapping_of_several_indexes_is_given_one_of_each() -> None:
    rows = {"lng": "longitude", "lat": "latitude", "temp": "double"}
    with mappings():
        maps(is_hot_inside, index=(GeoBox, MinMax))(hot_box)
        found = check_mapping(is_hot_inside, rows=rows, seconds=enough(2))
        assert found.ok, str(found)
        assert found.skipped
        maps(is_hot_inside, index=(GeoBox, MinMax))(cold_box)
        wrong = check_mapping(is_hot_inside, rows=rows).counter_example
    assert wrong is not None
    assert wrong.blame.endswith("cold_box")
    assert list(wrong.summaries) == ["geobox(lng, lat)", "minmax(temp)"]


def check(function: Any, rule: Rule, index: type = MinMax) -> MappingCheck:
    with mappings():
        maps(function, index=index)(rule)
        return check_mapping(function, seconds=enough(1))


def test_a_mapping_that_never_skips_is_said_to_be_useless() -> None:
    silent = check(fahrenheit, lambda node, index: None)
    assert silent.ok
    assert len(silent.useless) == 1
    assert "useless, it has no clause for any of" in str(silent)

    def keeps(node: Any, index: Any) -> Any:
        return any_of([index.clause(IsNull(node_of(node))), index.clause(Not(IsNull(node_of(node))))])

    idle = check(fahrenheit, keeps)
    assert idle.ok
    assert "useless, its clauses skip none of" in str(idle)
    unfit = check(fahrenheit, lambda node, index: None, index=GeoBox)
    assert "useless, no index that it takes can be made of these arguments" in str(unfit)


def node_of(node: Any) -> Any:
    """The argument of the call in a vertex."""
    while not isinstance(node, Call):
        node = getattr(node, "child", None) or node.left
    return node.args[0]


def test_a_mapping_that_raises_or_returns_no_clause_fails() -> None:
    raises = check(fahrenheit, lambda node, index: 1 / 0)
    assert not raises.ok
    assert "raises for" in str(raises)
    assert "ZeroDivisionError" in str(raises)
    assert "returns True for" in str(check(fahrenheit, lambda node, index: True))


# ---- arguments


def only_digits(text: str | None) -> int | None:
    return None  # as it does for most texts


@pytest.mark.slow
def test_arguments_are_guessed_said_or_asked_for() -> None:
    def days_before(day: dt.date | None, count: int) -> dt.date | None:
        return None if day is None else day - dt.timedelta(days=count % 100)

    def untyped(text):  # type: ignore[no-untyped-def]
        return text and text.upper()

    with mappings():
        for function in (days_before, untyped):
            declare(function, null_in_null_out=False)
            assert check_mapping(function, seconds=enough(0.3)).ok
        declare(math.floor, monotone="increasing")
        with pytest.raises(MappingError, match="there is no argument 'y'; the function has x"):
            check_mapping(math.floor, rows={"y": "double"})
        assert check_mapping(math.floor, rows=[[1.5, 2.5, -3.0]], returns="bigint", seconds=enough(0.3)).ok
        with pytest.raises(MappingError, match="says of 2 arguments; the function has x"):
            check_mapping(math.floor, rows=["double", "double"])
        with pytest.raises(MappingError, match="no values of 'colours' to try; give a type"):
            check_mapping(math.floor, rows=["colours"])
        declare(only_digits, null_in_null_out=True)
        with pytest.raises(MappingError, match=r"raises or returns None for all .* its type, such as returns="):
            check_mapping(only_digits)
        with pytest.raises(MappingError, match=r"raises or returns None for all .* or values of yours$"):
            check_mapping(only_digits, returns="bigint")
        with pytest.raises(MappingError, match="only Spark knows which function it is"):
            check_mapping("some_function")
        with pytest.raises(MappingError, match="nothing is mapped or declared of square"):
            check_mapping(square)


def test_results_are_taken_as_spark_takes_them() -> None:
    def rounded(number: float) -> float:
        return math.floor(number)  # an int, which Spark makes NULL of where double is declared

    with mappings():
        declare(rounded, null_in_null_out=True)
        found = check_mapping(rounded, returns="double", rows=[[1.5, 2.5]], seconds=enough(0.3))
    assert "it returns an int where double is declared, of which Spark makes NULL" in str(found)


BOX = {"west": 20.0, "south": 30.0, "east": 40.0, "north": 50.0}


def within_ten(bounds: dict[str, float], seconds: float) -> MappingCheck:
    """The check of a mapping that takes what is nearer than ten to (30, 40) to lie in a box."""

    def from_depot(x: float | None, y: float | None) -> float | None:
        return None if x is None or y is None else math.hypot(x - 30.0, y - 40.0)

    def rule(node: Any, index: GeoBox) -> Any:
        match node:
            case Comparison("<" | "<=", Call(_, (x, y)), Literal(float() as limit)) if limit <= 10.0:
                sight = index.sees(Point(x, y))
                return sight and sight.meets(shapely.box(*bounds.values()))
        return None

    with mappings():
        maps(from_depot, index=GeoBox)(rule)
        return check_mapping(from_depot, seconds=seconds)


@pytest.mark.slow
@pytest.mark.parametrize("side", BOX)
def test_a_box_that_is_too_narrow_on_one_side(side: str) -> None:
    """True nearer than ten to the place, but for one bound: only rows on that axis, just within it, are lost."""
    narrow = BOX | {side: BOX[side] + (0.5 if side in ("west", "south") else -0.5)}
    assert within_ten(narrow, 20).counter_example is not None


def test_a_box_that_is_wide_enough_is_not_complained_of() -> None:
    assert within_ten(BOX, enough(2)).counter_example is None


def test_without_hypothesis_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(EnvironmentProblem, match=r"pip install 'geoskip\[check\]'"):
        check_mapping(fahrenheit)


@pytest.mark.slow
def test_the_first_round_is_judged_whatever_the_time() -> None:
    """Else a machine that stands still passes every mapping, after 0 trials."""
    with mappings():
        maps(planar, index=GeoBox)(wrong_order)
        assert check_mapping(planar, seconds=0).trials > 0


@pytest.mark.slow
def test_the_same_seed_finds_the_same() -> None:
    with mappings():
        maps(planar, index=GeoBox)(wrong_order)
        first, again = (check_mapping(planar, seed=3) for _ in range(2))
    assert str(first.counter_example) == str(again.counter_example)
    assert (first.trials, first.skipped) == (again.trials, again.skipped)


def test_constants_that_are_equal_in_the_functions_type_are_tried() -> None:
    def hour(lng: float | None) -> int | None:
        return None if lng is None or not math.isfinite(lng) else round(lng / 15)

    def rounds_down(node: Any, index: Any) -> Any:
        match node:
            case Comparison("=", Call(_, (lng,)), Literal(int() as value)):
                return index.clause(Comparison(">=", lng, Literal(15.0 * value, "double")))

    with mappings():
        maps(hour, index=MinMax)(rounds_down)
        assert check_mapping(hour, returns="int").counter_example is not None


def test_texts_in_the_code_are_compared() -> None:
    """A result that few rows have is found by its text in the code, even if the type of the values is given."""

    def tag(text: str | None) -> str:
        return text[:2] if text else "none"

    def begins_with_the_tag(node: Any, index: Any) -> Any:
        match node:
            case Comparison("=", Call(_, (text,)), Literal(str() as value)):
                return index.clause(StartsWith(text, value))

    with mappings():
        maps(tag, index=(MinMax, Prefix))(begins_with_the_tag)
        assert check_mapping(tag, returns="string", rows=["string"]).counter_example is not None
