"""Translate the conditions of DuckDB's parse tree to predicates.

How DuckDB differs from Spark (:mod:`geoskip.engines.implied_conditions` has the rules):

* NaN is as in Spark: equal to itself, and above all other numbers.
* A literal ``1.5`` is a decimal, ``1.5e0`` a double. Compared with a column of floats, a decimal is divided by a power
  of ten in the column's type, which rounds twice where one of the two is not exact: such literals are not used.
* The members of IN and the ends of BETWEEN are brought to one type, which may be double: they are used only where they
  are of one kind.
* A text is read as the type of the column beside it: only days and times of the usual form are used, and zoned times
  where the session's zone is UTC.
* LIKE has no escape character.
* Spatial functions are GEOS's in both. The constant side is made here; a column of geometries is one of WKB to Spark.
  ``ST_Distance`` to EMPTY is 0, as in Sedona; non-finite coordinates keep the file in any case.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import shapely

from geoskip.engines.constant_bounds import Constant, Engine
from geoskip.engines.duckdb_scopes import Json, lowered
from geoskip.engines.implied_conditions import Builder, EngineCondition, Rounded
from geoskip.engines.spatial_calls import spatial_call
from geoskip.predicates import (
    Call,
    Column,
    Comparison,
    Contains,
    EndsWith,
    Like,
    Literal,
    Not,
    Predicate,
    StartsWith,
    normalise,
)
from geoskip.types import sql_type

_COMPARISONS = {
    "COMPARE_EQUAL": "=", "COMPARE_NOTEQUAL": "!=", "COMPARE_LESSTHAN": "<", "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=", "COMPARE_GREATERTHANOREQUALTO": ">=",
}  # fmt: skip
_TEXTS: dict[str, Callable[[Predicate, str], Predicate]] = {
    "starts_with": StartsWith, "prefix": StartsWith, "^@": StartsWith,
    "ends_with": EndsWith, "suffix": EndsWith, "contains": Contains,
}  # fmt: skip
_WHOLE = frozenset(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"))
_WIDTHS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_UTC = frozenset(("UTC", "Etc/UTC", "GMT", "Etc/GMT", "Etc/UCT", "UCT", "Zulu"))
_DAY_TEXT = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME_TEXT = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?")
_ZONED_TEXT = re.compile(rf"({_TIME_TEXT.pattern})([+-]\d{{2}}(?::\d{{2}})?)")
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECONDS = 86_400_000_000
_EXACT_IN = {"float": (1 << 24, 10), "double": (1 << 53, 22)}
"""Digits and power of ten up to which a decimal becomes the nearest float of a type."""
_DIGITS = Context(prec=76)
_RELATIONS = frozenset(
    f"st_{name}"
    for name in [
        "contains",
        "within",
        "covers",
        "coveredby",
        "intersects",
        "disjoint",
        "touches",
        "crosses",
        "overlaps",
        "equals",
    ]
)
SPATIAL = frozenset((*_RELATIONS, "st_distance", "st_dwithin"))
"""Functions of DuckDB's spatial extension that mean what the shapely-backed ones of their names mean."""
_NEGATED = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def predicate_of_duckdb(
    conditions: Sequence[Json], columns: Mapping[str, str], time_zone: str | None = None, *, spatial: bool = True
) -> tuple[Predicate, list[str]]:
    """Translate conditions to a predicate that Spark finds TRUE wherever all of them are TRUE in DuckDB.

    Parameters
    ----------
    conditions
        Nodes of DuckDB's parse tree, with bare names of columns.
    columns
        The names of Spark's types by the names of the columns, ``geometry`` for DuckDB's geometries; others are
        unknown.
    time_zone
        The zone of the session.
    spatial
        True if the functions of the spatial extension are there, or ours of the same names.

    Returns
    -------
    predicate, reasons
        The predicate, and a sentence for each part that could not be used.
    """
    builder = Builder(columns, Engine(ieee=False, finer=False))
    reader = _Reader(builder, time_zone in _UTC, spatial)
    try:
        found = builder.both([reader.read(condition) for condition in conditions])
    except (KeyError, TypeError, ValueError, RecursionError) as error:  # the tree of another DuckDB
        found = builder.unknown(f"a condition of DuckDB could not be read: {type(error).__name__}: {error}")
    return normalise(found.true), builder.reasons


class _Reader:
    """Reads a tree from the leaves up."""

    def __init__(self, builder: Builder, utc: bool, spatial: bool) -> None:
        self.builder, self.utc, self.spatial = builder, utc, spatial
        self.names = {lowered(name): name for name in builder.columns}

    def read(self, node: Json) -> Any:
        """Make an operand or a condition of a vertex and all below it."""
        builder, kind = self.builder, node["type"]
        match node["class"]:
            case "COLUMN_REF":
                (name,) = node["column_names"]
                return builder.column(self.names.get(lowered(name), name))
            case "CONSTANT":
                return self._constant(node["value"])
            case "COMPARISON" if kind in _COMPARISONS:
                return self._compared(_COMPARISONS[kind], self.read(node["left"]), self.read(node["right"]))
            case "COMPARISON" if kind in ("COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM"):
                left, right = self._matched(self.read(node["left"]), self.read(node["right"]))
                same = builder.equal_or_both_null(left, right)
                return same if kind == "COMPARE_NOT_DISTINCT_FROM" else same.negated()
            case "CONJUNCTION":
                parts = list(map(self.read, node["children"]))
                return builder.both(parts) if kind == "CONJUNCTION_AND" else builder.either(parts)
            case "BETWEEN":
                return self._between(*(self.read(node[part]) for part in ("input", "lower", "upper")))
            case "CAST" if not node["try_cast"]:
                return self._cast(self.read(node["child"]), node["cast_type"])
            case "OPERATOR":
                return self._operator(kind, list(map(self.read, node["children"])))
            case "FUNCTION" if not node.get("filter") and not node.get("distinct"):
                return self._function(lowered(node["function_name"]), list(map(self.read, node["children"])))
        return builder.unknown(f"{kind.lower().replace('_', ' ')} of DuckDB is not used")

    # ---- constants

    def _constant(self, value: Json) -> Any:
        kind, about = value["type"]["id"], value["type"]["type_info"]
        if value["is_null"]:
            return Constant("null")
        found = value["value"]
        if isinstance(found, dict):  # 128 bits
            found = (found["upper"] << 64) | found["lower"]
        if kind in _WHOLE and isinstance(found, int):
            return Constant.number("integer", found)
        if kind == "DECIMAL" and isinstance(found, int):
            return Constant.number("decimal", Decimal(found).scaleb(-about["scale"], _DIGITS))
        if kind == "DOUBLE":
            return Constant("float", float(found))
        if kind == "BOOLEAN":
            return Constant("boolean", bool(found))
        if kind == "VARCHAR" and isinstance(found, str):
            return Constant("text", found)
        return self.builder.unknown(f"a literal of DuckDB's {kind} is not used")

    def _cast(self, part: Any, about: Json) -> Any:
        """A constant as another type, or a column whose values keep their order as it."""
        kind = about["id"]
        match part:
            case Constant("null"):
                return part
            case Constant("text", text):
                found = self._text_as(kind, text)
                if found is not None:
                    return found
            case Constant("integer", value) if kind in _WHOLE:
                return part
            case Constant("integer", value) if kind == "DOUBLE" and abs(value) <= 1 << 53:
                return Constant("float", float(value))
            case Constant("decimal", value) if kind == "DOUBLE" and _is_exact(value, "double"):
                return Constant("float", float(value))
            case Column(_, source) if _BITS.get(str(source), 999) <= _WIDTHS.get(kind, 0):
                return part
            case Column(_, "boolean") | EngineCondition() if kind == "BOOLEAN":
                return part
            case Column(_, "double") if kind == "DOUBLE":
                return part
            case Column(_, "string") if kind == "VARCHAR":
                return part
            case Column(_, "date") if kind == "TIMESTAMP":
                return Rounded(part)
        return self.builder.unknown(f"a cast to {kind} is not used", part)

    def _text_as(self, kind: str, text: str) -> Any:
        """A text as the constant of a type; None where it is not of the usual form."""
        match kind:
            case "VARCHAR":
                return Constant("text", text)
            case "BOOLEAN" if text in ("t", "f", "true", "false"):
                return Constant("boolean", text.startswith("t"))
            case "DOUBLE" if re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", text):
                return Constant("float", float(text))
            case "DOUBLE" if text.lower() in ("nan", "inf", "-inf", "infinity", "-infinity"):
                return Constant("float", float(text))
            case "DATE" if _DAY_TEXT.fullmatch(text):
                return _day(text)
            case "TIMESTAMP" if _TIME_TEXT.fullmatch(text):
                return _moment("time", text)
            case "TIMESTAMP" if _DAY_TEXT.fullmatch(text):
                return _moment("time", text)
            case "TIMESTAMP WITH TIME ZONE":
                return self._zoned(text)
            case "BLOB" if text.isascii() and "\\" not in text:
                return Constant("binary", text.encode())
            case "BLOB" if re.fullmatch(r"(\\x[0-9A-Fa-f]{2})+", text):
                return Constant("binary", bytes.fromhex(text.replace("\\x", "")))
            case "GEOMETRY":
                return self._shape(shapely.from_wkt, text)
        return None

    def _zoned(self, text: str) -> Constant | None:
        if found := _ZONED_TEXT.fullmatch(text):
            moment = _moment("zoned time", found[1])
            hours, _, minutes = found[2][1:].partition(":")
            shift = (int(hours) * 60 + int(minutes or 0)) * 60_000_000 * (-1 if found[2][0] == "-" else 1)
            return moment and Constant("zoned time", moment.value - shift)
        return _moment("zoned time", text) if self.utc and _TIME_TEXT.fullmatch(text) else None

    # ---- comparisons

    def _matched(self, left: Any, right: Any) -> tuple[Any, Any]:
        """Two operands of a comparison, a constant among them as the type of the other."""
        if isinstance(left, Constant) and not isinstance(right, Constant):
            right, left = self._matched(right, left)
            return left, right
        if isinstance(right, Constant):
            column = left.column if isinstance(left, Rounded) else left
            right = self._as_column(column, right)
        elif isinstance(left, Column) and isinstance(right, Column) and left.type != right.type:
            right = self.builder.unknown(f"{left} and {right} are of different types", left, right)
        return left, right

    def _as_column(self, column: Any, constant: Constant) -> Any:
        """A constant as DuckDB compares it with a column; unknown where that is not certain."""
        kind = column.type if isinstance(column, Column) else None
        match kind, constant.kind:
            case "date", "text":
                found: Any = self._text_as("DATE", constant.value)
            case "timestamp_ntz", "text":
                found = self._text_as("TIMESTAMP", constant.value)
            case "timestamp", "text":
                found = self._as_column(column, self._zoned(constant.value) or Constant("odd text"))
            case "timestamp_ntz", "date":
                found = Constant("time", constant.value * _MICROSECONDS)
            case "timestamp", "date" if self.utc:
                found = Constant("time", constant.value * _MICROSECONDS)
            case ("timestamp", "zoned time") | (("date" | "timestamp_ntz"), "time"):
                found = Constant("time", constant.value)
            case ("timestamp", "time") | (("date" | "timestamp_ntz"), "zoned time") if self.utc:
                found = Constant("time", constant.value)
            case (("date" | "timestamp" | "timestamp_ntz"), _) if constant.kind not in ("null", "date"):
                found = None
            case "timestamp", "date":
                found = None
            case (("float" | "double"), "decimal"):
                exact = _is_exact(constant.value, kind)
                found = Constant("float", float(constant.value)) if exact else None
            case _ if kind is not None and kind.startswith("decimal") and constant.kind == "decimal":
                found = constant if _fits(kind, constant.value) else None
            case _:
                return constant
        if found is None:
            return self.builder.unknown(f"{column} beside {constant} is not used: {column} is {kind}", column)
        return found

    def _compared(self, op: str, left: Any, right: Any) -> EngineCondition:
        if isinstance(left, Constant) and isinstance(right, Call):
            left, right, op = right, left, {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op)
        if isinstance(left, Call):
            return self._distance(op, left, right)
        return self.builder.compare(op, *self._matched(left, right))

    def _distance(self, op: str, call: Call, constant: Any) -> EngineCondition:
        limit = _number(constant)
        if limit is None or call.type != "double":
            return self.builder.unknown(f"{call.name} beside {constant} is not used")
        literal = Literal(limit, "double")
        return EngineCondition(_compares(op, call, literal), _compares(_NEGATED[op], call, literal))

    def _between(self, part: Any, lower: Any, upper: Any) -> EngineCondition:
        if not self._are_alike(part, [lower, upper]):
            return self.builder.unknown("BETWEEN with ends of different types is not used", part)
        return self.builder.both([self._compared(">=", part, lower), self._compared("<=", part, upper)])

    def _are_alike(self, part: Any, members: Sequence[Any]) -> bool:
        """True if an operand and the members of IN or BETWEEN are compared as the operand with each alone."""
        known = [member for member in members if isinstance(member, Constant) and member.kind != "null"]
        if len(known) < sum(not (isinstance(m, Constant) and m.kind == "null") for m in members):
            return False
        kinds = {member.kind for member in known}
        if len(kinds) > 1 or not isinstance(part, Column):
            return isinstance(part, Call) and len(members) == 2
        if kinds == {"decimal"}:
            scale = max(_scale(member.value) for member in known)
            bound, most = _EXACT_IN.get(str(part.type), (10**38, 38))
            return scale <= most and all(abs(member.value) * 10**scale <= bound for member in known)
        return True

    def _operator(self, kind: str, parts: Sequence[Any]) -> EngineCondition:
        builder = self.builder
        match kind, parts:
            case "OPERATOR_NOT", [part]:
                return builder.condition(part).negated()
            case "OPERATOR_IS_NULL", [part]:
                return builder.is_null(part)
            case "OPERATOR_IS_NOT_NULL", [part]:
                return builder.is_null(part).negated()
            case (("COMPARE_IN" | "COMPARE_NOT_IN"), [part, *members]):
                if not isinstance(part, Column) or not self._are_alike(part, members):
                    return builder.unknown("IN with members of different types, or not constant, is not used", *parts)
                known = [self._as_column(part, member) for member in members]
                if not all(isinstance(member, Constant) for member in known):
                    return builder.unknown(f"IN is not used for {part}", part)
                found = builder.is_in(part, known, null_is_in=False, null_is_out=False)
                return found if kind == "COMPARE_IN" else found.negated()
        return builder.unknown(f"{kind.lower().replace('_', ' ')} of DuckDB is not used", *parts)

    # ---- functions

    def _function(self, name: str, parts: Sequence[Any]) -> Any:
        builder = self.builder
        match name, parts:
            case (("~~" | "!~~"), [part, Constant("text", pattern)]):
                found = builder.like(part, pattern, Like)
                return found if name == "~~" else found.negated()
            case _, [part, Constant("text", text)] if name in _TEXTS:
                return builder.text(part, _TEXTS[name], text)
            case "isnan", [Column(_, "float" | "double") as part]:
                return builder.is_nan(part)
            case "isinf", [Column(_, "float" | "double") as part]:
                return builder.is_infinite(part)
            case "isfinite", [Column(_, "float" | "double") as part]:
                return builder.is_finite(part)
        if name.startswith("st_") and self.spatial:
            return self._spatial(name, parts)
        return builder.unknown(f"the function {name} of DuckDB is not used", *parts)

    def _spatial(self, name: str, parts: Sequence[Any]) -> Any:
        numbers = list(map(_number, parts))
        match name, parts:
            case "st_geomfromtext", [Constant("text", text)]:
                return self._shape(shapely.from_wkt, text)
            case "st_geomfromgeojson", [Constant("text", text)]:
                return self._shape(shapely.from_geojson, text)
            case "st_geomfromhexwkb" | "st_geomfromhexewkb", [Constant("text", text)]:
                return self._shape(shapely.from_wkb, text)
            case "st_geomfromwkb", [Constant("binary", wkb)]:
                return self._shape(shapely.from_wkb, wkb)
            case "st_geomfromwkb", [Column(_, "binary") as column]:
                return spatial_call("ST_GeomFromWKB", column)
            case (("st_point" | "st_makepoint"), [_, _]) if None not in numbers:
                return self._shape(shapely.points, *numbers)
            case "st_makeenvelope", [_, _, _, _] if None not in numbers:
                return self._shape(shapely.box, *numbers)
            case (("st_point" | "st_makepoint"), [Column() as x, Column() as y]):
                if all(sql_type(side.type).is_floating or str(side.type) in _BITS for side in (x, y)):
                    return spatial_call("ST_Point", x, y)
            case _, [left, right] if name in SPATIAL and name != "st_dwithin":
                if (pair := _pair(left, right)) is not None:
                    call = spatial_call(name, *pair)
                    return call if name == "st_distance" else EngineCondition(call, Not(call))
            case "st_dwithin", [left, right, _] if numbers[2] is not None:
                if (pair := _pair(left, right)) is not None:
                    call = spatial_call(name, *pair, Literal(numbers[2], "double"))
                    return EngineCondition(call, Not(call))
        return self.builder.unknown(f"the function {name} of DuckDB is not used with these arguments", *parts)

    def _shape(self, make: Callable[..., Any], *values: Any) -> Any:
        """A constant geometry; unknown where shapely cannot read it."""
        try:
            found = make(*values)
        except (shapely.errors.ShapelyError, TypeError, ValueError):
            found = None
        if not isinstance(found, shapely.Geometry):
            return self.builder.unknown("a constant geometry could not be read")
        return Literal(found, "geometry")


def _pair(left: Any, right: Any) -> tuple[Predicate, Predicate] | None:
    """Two geometries as Spark sees them; None for anything else."""
    found = [_geometry(part) for part in (left, right)]
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def _geometry(part: Any) -> Predicate | None:
    match part:
        case Column(name, "geometry"):
            return spatial_call("ST_GeomFromWKB", Column(name, "binary"))
        case (Call(type="binary") | Literal(type="geometry") | Column(_, "binary")) as found:
            return found
    return None


def _number(part: Any) -> float | None:
    """A constant as DuckDB gives it to a function of doubles; None where that is not certain."""
    match part:
        case Constant("integer", value) if abs(value) <= 1 << 53:
            return float(value)
        case Constant("decimal", value) if _is_exact(value, "double"):
            return float(value)
        case Constant("float", value):
            return float(value)
    return None


def _compares(op: str, left: Predicate, right: Literal) -> Predicate:
    return Not(Comparison("=", left, right)) if op == "!=" else Comparison(op, left, right)


def _scale(value: Fraction) -> int:
    """The digits behind the point of a decimal."""
    return next(scale for scale in range(77) if (value * 10**scale).denominator == 1)


def _is_exact(value: Fraction, kind: str) -> bool:
    """True if a decimal divided by its power of ten is the nearest float of a type."""
    bound, most = _EXACT_IN[kind]
    scale = _scale(value)
    return scale <= most and abs(value) * 10**scale <= bound


def _fits(kind: str, value: Fraction) -> bool:
    """True if a column of decimals and a literal have a common type of 38 digits."""
    column = sql_type(kind)
    scale = max(column.scale, _scale(value))
    whole = max(column.precision - column.scale, len(str(int(abs(value)))))
    return whole + scale <= 38


def _day(text: str) -> Constant | None:
    try:
        return Constant.number("date", (datetime.datetime.fromisoformat(text) - _EPOCH).days)
    except ValueError:
        return None


def _moment(kind: str, text: str) -> Constant | None:
    try:
        since = datetime.datetime.fromisoformat(text) - _EPOCH
    except ValueError:
        return None
    return Constant.number(kind, (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)
