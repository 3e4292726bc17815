"""Functions and wrong mappings of them, each with a different mistake."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import shapely

from geoskip import GeoBox, MinMax, Prefix, Suffix, ValueList
from geoskip.clauses import any_of
from geoskip.geometry import Point
from geoskip.predicates import Call, Comparison, EndsWith, In, IsNull, Literal, Not, StartsWith

Rule = Callable[[Any, Any], Any]


def fahrenheit(celsius: float | None) -> float | None:
    return None if celsius is None else celsius * 1.8 + 32


def zone(code: str | None) -> str | None:
    return code[:3] if code else None


def or_zero(number: int | None) -> int:
    return number or 0


def is_low(level: float | None) -> bool | None:
    return None if level is None else not level >= 50


def planar(lng: float | None, lat: float | None, lng0: float, lat0: float) -> float | None:
    return None if lng is None or lat is None else math.hypot(lng - lng0, lat - lat0)


def in_kilometres(lng: float | None, lat: float | None, lng0: float, lat0: float) -> float | None:
    found = planar(lng, lat, lng0, lat0)
    return None if found is None else 111.0 * found


def square(number: float | None) -> float | None:
    return None if number is None else number * number


def half_away(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else (a - b) ** 2


def place(lng: float | None, lat: float | None) -> bytes | None:
    return None if lng is None or lat is None else bytes(shapely.to_wkb(shapely.Point(lng, lat)))


def double(text: str | None) -> str | None:
    return text and text + text


def is_hot_inside(lng: float | None, lat: float | None, temp: float | None) -> bool | None:
    if lng is None or lat is None or temp is None:
        return None
    return 40 <= lng <= 50 and 20 <= lat <= 25 and temp > 30


def domain(email: str | None) -> str | None:
    return email.split("@")[1] if email and "@" in email else None


# ---- mistakes


def wrong_direction(node: Any, index: Any) -> Any:
    match node:
        case Comparison(">", Call(_, (celsius,)), Literal(float() as value)):
            return index.clause(Comparison("<", celsius, Literal((value - 32) / 1.8, "double")))


def forgets_null(node: Any, index: Any) -> Any:
    match node:
        case Comparison("=", Call(_, (number,)), value):
            return index.clause(Comparison("=", number, value))


def forgets_nan(node: Any, index: Any) -> Any:
    match node:
        case Call(_, (level,)):
            return index.clause(Comparison("<", level, Literal(50.0, "double")))


def wrong_order(node: Any, index: Any) -> Any:
    match node:
        case Comparison("<" | "<=", Call(_, (lng, lat, Literal(x), Literal(y))), Literal(d)):
            sight = index.sees(Point(lng, lat))
            return sight and sight.comes_within(shapely.Point(y, x), d)


def wrong_unit(node: Any, index: Any) -> Any:
    match node:
        case Comparison("<" | "<=", Call(_, (lng, lat, Literal(x), Literal(y))), Literal(d)):
            sight = index.sees(Point(lng, lat))
            return sight and sight.comes_within(shapely.Point(x, y), d / 1000)


def negates_a_clause(node: Any, index: Any) -> Any:
    match node:
        case Call(_, (level,)) | Not(Call(_, (level,))):
            low = index.clause(Comparison("<", level, Literal(50.0, "double")))
            odd = index.clause(Comparison("=", level, Literal(math.nan, "double")))
            return any_of([low, odd])


def prefix_too_short(node: Any, index: Any) -> Any:
    match node:
        case Not(Comparison("=", Call(_, (code,)), Literal(str() as start))):
            return index.clause(Not(StartsWith(code, start)))


def forgets_a_value(node: Any, index: Any) -> Any:
    match node:
        case In(Call(_, (code,)), (Literal(str() as start), *_)):
            return index.clause(StartsWith(code, start))


def null_is_none(node: Any, index: Any) -> Any:
    match node:
        case IsNull(Call(_, (code,))):  # also NULL for the empty text
            return index.clause(IsNull(code))


def second_sign(node: Any, index: Any) -> Any:
    match node:
        case Comparison("=", Call(_, (email,)), Literal(str() as name)):  # a@b@c ends with @c, and is of b
            return index.clause(EndsWith(email, "@" + name))


WRONG: dict[str, tuple[Callable[..., Any], type, Rule]] = {
    "wrong direction": (fahrenheit, MinMax, wrong_direction),
    "forgets NULL": (or_zero, MinMax, forgets_null),
    "forgets NaN": (is_low, MinMax, forgets_nan),
    "wrong argument order": (planar, GeoBox, wrong_order),
    "wrong unit": (in_kilometres, GeoBox, wrong_unit),
    "negation": (is_low, MinMax, negates_a_clause),
    "prefix too short": (zone, Prefix, prefix_too_short),
    "one value of a list": (zone, MinMax, forgets_a_value),
    "IS NULL": (zone, ValueList, null_is_none),
    "a constant of the code": (domain, Suffix, second_sign),
}
