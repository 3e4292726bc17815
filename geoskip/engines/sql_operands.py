"""Operands of SQL conditions: columns, constants, and functions that ranges support.

A constant has no type of its own until it is compared with a column: ``'2024-02-29'`` is a day beside a day.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isfinite, ulp
from typing import Any

from geoskip.engines.agreed_functions import spatial_call
from geoskip.engines.constant_bounds import Constant, Engine
from geoskip.engines.duckdb_scopes import fold_case
from geoskip.engines.extras import require_package
from geoskip.engines.implied_conditions import Builder, EngineCondition, Rounded, YearOf
from geoskip.engines.time_texts import UNITS, SqlTime, instant_of, is_utc, time_of
from geoskip.errors import InvalidSpecificationError, UnknownColumnError
from geoskip.predicates import Call, Column, Literal, Predicate
from geoskip.types import sql_type

QUOTES = {"spark": "`", "duckdb": '"'}
"""The mark around names, by dialect."""
_TIMES = ("date", "timestamp", "timestamp_ntz")
_EXACT = {"float": (1 << 24, 10), "double": (1 << 53, 22)}
"""Digits and power of ten up to which every engine makes the same float of a decimal: the nearest one."""
_ERROR = {"float": 4 << 29, "double": 4}
"""Units in the last place of a double by which engines may miss the nearest float of a decimal of many digits."""
_TYPES = {
    "DATE": "date", "TIMESTAMP": "timestamp", "DATETIME": "timestamp_ntz", "TIMESTAMPNTZ": "timestamp_ntz",
    "TIMESTAMPTZ": "timestamptz", "TIMESTAMPLTZ": "timestamptz", "DOUBLE": "double", "FLOAT": "float", "INT": "int",
    "BIGINT": "bigint", "SMALLINT": "smallint", "TINYINT": "tinyint", "TEXT": "string", "VARCHAR": "string",
    "BOOLEAN": "boolean", "GEOMETRY": "geometry",
}  # fmt: skip
"""Spark's names of types by sqlglot's."""
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?|-?inf(inity)?", re.IGNORECASE | re.ASCII)
_MINUTE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d")
_VALUES = ("Add", "Sub", "Mul", "Div", "IntDiv", "Mod", "Neg", "DPipe", "Literal")
"""sqlglot's names of what is never TRUE or FALSE in Spark."""


def quoting_hint(text: str, names: Sequence[str], dialect: str) -> str:
    """Return how to write a column whose name needs quotes and stands in a text without, or "".

    >>> quoting_hint("first name = 'x'", ["name", "first name"], "spark")
    '; write `first name` for the column first name'
    """
    mark = QUOTES[dialect]
    for name in names:
        if not name.isidentifier() and name in text and mark + name not in text:
            return f"; write {mark}{name}{mark} for the column {name}"
    return ""


def _classes(name: str) -> tuple[type, ...]:
    return (getattr(require_package("sqlglot", "a condition in SQL").exp, name),)


def _kind_of(value: object) -> str:
    match value:
        case Constant(kind) | SqlTime(kind):
            return kind
        case Column():
            return f"column of {value.type}"
    return type(value).__name__


@dataclass(frozen=True)
class StartOfUnit:
    """The start of the calendar unit that a column's time lies in."""

    column: Column
    unit: str


@dataclass(frozen=True)
class TextLiteral:
    """A literal text, which becomes what it is compared with."""

    text: str


@dataclass(frozen=True)
class DecimalLiteral(Constant):
    """A decimal with its digits behind the point, zeros too, by which DuckDB rounds it."""

    scale: int = 0

    def is_exact(self, kind: str) -> bool:
        """True if every engine makes the same float or double of it."""
        bound, most = _EXACT[kind]
        return self.scale <= most and abs(self.value) * 10**self.scale <= bound


UNKNOWN = object()


class SqlOperands:
    """Reader of the operands in one parsed condition.

    Parameters
    ----------
    text, dialect
        The condition's text and its dialect.
    columns
        Spark's names of the types by column.
    time_zone
        The zone of the engine's session; None where it is not known.
    names
        All columns of the dataset; None where others may exist.
    """

    def __init__(
        self,
        text: str,
        columns: Mapping[str, str],
        dialect: str,
        time_zone: str | None,
        names: Sequence[str] | None,
    ) -> None:
        engine = Engine(ieee=False, finer=dialect == "duckdb", narrows=dialect == "duckdb")
        self.builder = Builder(columns, engine)
        self.text, self.dialect, self.zone = text, dialect, time_zone
        self.names = None if names is None else list(names)
        self.known: dict[str, list[str]] = {}
        for name in dict.fromkeys([*columns, *(names or ())]):
            self.known.setdefault(self.fold_case(name), []).append(name)
        self.escapes = dialect == "spark" and "\\" in text

    def fold_case(self, name: str) -> str:
        """A name as the engine compares it: DuckDB without regard to the case of ASCII letters alone."""
        return fold_case(name) if self.dialect == "duckdb" else name.lower()

    def unknown(self, reason: str, *parts: object) -> EngineCondition:
        """A condition of which nothing is known."""
        return self.builder.unknown(reason, *parts)

    def operand(self, node: Any) -> object:
        """A column, a constant or a function of a column; a sentinel where it is of no use."""
        kind = type(node).__name__
        handler: Callable[[Any], object] | None = getattr(self, f"_of_{kind.lower()}", None)
        if handler is not None:
            return handler(node)
        found = self._spatial(node)
        return UNKNOWN if found is None else found

    def column(self, node: Any) -> Column | EngineCondition:
        """A column of the dataset, or a nested field; raises UnknownColumnError."""
        path = [part.name for part in node.parts]
        quoted = [bool(part.args.get("quoted")) for part in node.parts]
        for place, name in enumerate(path):  # names of tables may stand before
            found = self.known.get(self.fold_case(name), [])
            if name in found and (len(found) == 1 or quoted[place]):
                found = [name]
            if len(found) > 1:
                return self.unknown(f"{name} is not used: the dataset has {' and '.join(found)}")
            if found:
                column = self.builder.column(found[0])
                for field in path[place + 1 :]:
                    column = self._struct_field(column, field)
                return column
        if self.names is not None:
            raise self._no_column(path[-1], node)
        return self.builder.column(path[-1])

    def _struct_field(self, column: Column | EngineCondition, name: str) -> Column | EngineCondition:
        fields = dict(sql_type(column.type).fields) if isinstance(column, Column) else {}
        same = [field for field in fields if field.lower() == name.lower()]
        if fields and not same and self.names is not None:
            raise UnknownColumnError(f"{column} has no field {name}; its fields are {', '.join(fields)}")
        return self.builder.struct_field(column, same[0] if len(same) == 1 else name)

    def _no_column(self, name: str, node: Any) -> UnknownColumnError:
        about = node.parts[-1].meta
        where = f" at line {about['line']}, column {about['col']}" if "line" in about else ""
        if quoting := quoting_hint(self.text, self.names or (), self.dialect):
            return UnknownColumnError(f"the dataset has no column {name}{where}{quoting}")
        return UnknownColumnError.of(name, self.names or (), where)

    def reason_not_used(self, node: Any, shown: str) -> str:
        """The sentence on a condition without a meaning that all engines share.

        Raises UnknownColumnError for names in it that are no columns, InvalidSpecificationError where it is a value.
        """
        if self.dialect == "spark" and type(node).__name__ in _VALUES:
            raise InvalidSpecificationError(f"{shown} is a value, not a condition: compare it with another one")
        columns = [self.column(part) for part in node.find_all(*_classes("Column"))]
        texts = [part.name for part in node.find_all(*_classes("Literal")) if part.is_string]
        instants = any(isinstance(one, Column) and one.type == "timestamp" for one in columns)
        if self.zone is None and instants and any(map(self.time_of, texts)):
            return f"{shown} is not used: its texts are times of the engine's zone; give time_zone='UTC' or another"
        for name in texts if not columns else ():
            if name.lower() in self.known:
                mark = QUOTES[self.dialect]
                return f"{shown} is not used: '{name}' is a text; the column is {mark}{name}{mark}"
        return f"{shown} is not used: engines may differ in its meaning"

    def _of_column(self, node: Any) -> object:
        found = self.column(node)
        return found if isinstance(found, Column) else UNKNOWN

    def _of_paren(self, node: Any) -> object:
        return self.operand(node.this)

    def _of_null(self, node: Any) -> object:
        return Constant("null")

    def _of_boolean(self, node: Any) -> object:
        return Constant("boolean", bool(node.this))

    def _of_literal(self, node: Any) -> object:
        text = str(node.this)
        if node.is_string:
            return UNKNOWN if self.escapes else TextLiteral(text)
        try:
            if "e" in text.lower():
                return Constant("float", float(text)) if isfinite(float(text)) else UNKNOWN
            number = Fraction(text)
        except ValueError:
            return UNKNOWN
        if "." not in text:
            most = 2 ** (127 if self.dialect == "duckdb" else 63)
            return Constant("integer", number) if abs(number) < most else UNKNOWN
        return DecimalLiteral("decimal", number, scale=len(text.partition(".")[2])) if len(text) <= 30 else UNKNOWN

    def _of_neg(self, node: Any) -> object:
        match self.operand(node.this):
            case Constant("integer" | "decimal" | "float", value) as part:
                return replace(part, value=-value)
        return UNKNOWN

    def _of_cast(self, node: Any) -> object:
        target = _TYPES.get(node.args["to"].this.name) if not node.args["to"].expressions else None
        part = self.operand(node.this)
        match part, target:
            case (_, None) | (Constant("null"), _):
                return UNKNOWN if target is None else part
            case TextLiteral(text), "date" | "timestamp" | "timestamp_ntz" | "timestamptz":
                return self._typed_time(text, str(target))
            case TextLiteral(text), "double" | "float" if text.lower() == "nan":
                return Constant("float", float("nan"))
            case TextLiteral(), "string":
                return part
            case TextLiteral(text), "double" if _NUMBER.fullmatch(text):
                return Constant("float", float(text))
            case TextLiteral("t" | "f" | "true" | "false" as text), "boolean":
                return Constant("boolean", text.startswith("t"))
            case TextLiteral(text), "geometry" if self.dialect == "duckdb":
                return spatial_call("st_geomfromtext", (Literal(text, "string"),), self.dialect) or UNKNOWN
            case Constant("integer" | "decimal" | "float"), "double":
                return self.as_double(part) or UNKNOWN
            case Constant("integer", value), "tinyint" | "smallint" | "int" | "bigint":
                return part if int(value) in sql_type(target).values else UNKNOWN
            case Column() as column, _ if column.type == target:
                return column
            case Column() as column, "date" if column.type in ("timestamp", "timestamp_ntz"):
                return StartOfUnit(column, "day")
            case Column() as column, "smallint" | "int" | "bigint" if sql_type(target).holds(sql_type(column.type)):
                return column if sql_type(column.type).is_integral else UNKNOWN
            case Column() as column, "double" if sql_type(column.type).is_integral or column.type == "float":
                return Rounded(column) if column.type != "float" else UNKNOWN
        return UNKNOWN

    def _of_trycast(self, node: Any) -> object:
        return self._of_cast(node) if self.dialect == "spark" else UNKNOWN  # how sqlglot reads CAST of Spark

    def time_of(self, text: str) -> SqlTime | None:
        """Read a day or a time, in DuckDB also one without seconds."""
        is_short = self.dialect == "duckdb" and _MINUTE.fullmatch(text)
        return time_of(f"{text}:00" if is_short else text)

    def _typed_time(self, text: str, target: str) -> object:
        found = self.time_of(text)
        if found is None or (target == "date" and found.kind != "date"):
            return UNKNOWN
        if target == "date":
            return found
        if found.kind == "instant":
            return found if target in ("timestamp", "timestamptz") and self._is_zoned(target) else UNKNOWN
        local = SqlTime("time", found.microseconds)
        if not self._is_zoned(target):
            # a local time in Spark is of its own type too: of use where UTC makes no difference, as for DuckDB
            return local
        instant = instant_of(local.value, self.zone)
        return UNKNOWN if instant is None else SqlTime("instant", instant)

    def _is_zoned(self, target: str) -> bool:
        """True for a type of instants: TIMESTAMP in Spark, TIMESTAMPTZ in DuckDB."""
        return target == "timestamptz" or (target == "timestamp" and self.dialect == "spark")

    def _of_year(self, node: Any) -> object:
        return self._year(node.this.this if type(node.this).__name__ == "TsOrDsToDate" else node.this)

    def _of_extract(self, node: Any) -> object:
        return self._year(node.expression) if node.this.name.lower() == "year" else UNKNOWN

    def _year(self, node: Any) -> object:
        part = self.operand(node)
        return YearOf(part, self.zone) if isinstance(part, Column) and part.type in _TIMES else UNKNOWN

    def _of_datetrunc(self, node: Any) -> object:
        found = self._unit_start(node)
        is_null = self.dialect == "spark" and isinstance(found, StartOfUnit) and found.unit == "day"
        return UNKNOWN if is_null else found

    def _of_timestamptrunc(self, node: Any) -> object:
        found = self._unit_start(node)
        if self.dialect == "spark" and isinstance(found, StartOfUnit) and found.column.type != "timestamp":
            return found if is_utc(self.zone) else UNKNOWN  # local times become instants of the session's zone first
        return found

    def _unit_start(self, node: Any) -> object:
        part, unit = self.operand(node.this), node.args.get("unit")
        is_known = unit is not None and unit.name.lower() in UNITS
        if is_known and isinstance(part, Column) and part.type in _TIMES:
            return StartOfUnit(part, unit.name.lower())
        return UNKNOWN

    def _spatial(self, node: Any) -> Call | None:
        """A call of a spatial function over columns and constants; None for any other node."""
        named = getattr(node, "sql_name", None)
        name = str(node.this) if type(node).__name__ == "Anonymous" else str(named()) if named else ""
        if not name.upper().startswith("ST_"):
            return None
        inner = node.expressions if type(node).__name__ == "Anonymous" else node.iter_expressions()
        arguments = [self._argument(part) for part in inner]
        if any(argument is None for argument in arguments):
            return None
        return spatial_call(name, tuple(one for one in arguments if one is not None), self.dialect)

    def _argument(self, node: Any) -> Predicate | None:
        match self.operand(node):
            case Column() | Call() as part:
                return part
            case TextLiteral(text):
                return Literal(text, "string")
            case Constant("integer" | "decimal" | "float", value):
                return Literal(float(value), "double")
        return None

    def constant(self, value: object, column: Column) -> Constant | None:
        """A constant in the type of the column that it is compared with; None where engines differ."""
        kind = sql_type(column.type)
        match value:
            case DecimalLiteral() if kind.is_floating:
                return self.as_double(value, self.float_beside(column))
            case Constant():
                return value
            case TextLiteral(text) if kind.kind in _TIMES:
                time = self.time_of(text)
                if time is None or (kind.kind == "date" and time.kind != "date"):
                    return None
                if self.dialect == "duckdb" and time.microseconds % 1_000_000:  # cut to the unit of the column
                    return None
                return self._time(time, kind.kind)
            case TextLiteral(text) if kind.kind == "string":
                return Constant("text", text)
            case SqlTime():
                return self._time(value, kind.kind)
        return None

    def float_beside(self, column: Column) -> str:
        """The type that a decimal beside a column of floats gets: float in DuckDB, double in Spark."""
        return "float" if column.type == "float" and self.dialect == "duckdb" else "double"

    def as_double(self, value: object, kind: str = "double") -> Constant | None:
        """A number as floats are compared with it; None where engines differ."""
        match value:
            case Constant("integer", number) if abs(number) <= _EXACT["double"][0]:
                return Constant("float", float(number))
            case DecimalLiteral(_, number):
                error = 0 if value.is_exact(kind) else _ERROR[kind] * ulp(float(number))
                return Constant("float", float(number), error)
            case Constant("float"):
                return value
        return None

    def are_alike(self, part: object, values: Sequence[object]) -> bool:
        """True if members of IN or ends of BETWEEN, brought to one type, are compared as each alone."""
        kinds = {_kind_of(value) for value in values if value != Constant("null")}
        floats = {"float"} if isinstance(part, Column | Call) and sql_type(part.type).is_floating else set()
        return len(kinds) <= 1 or kinds <= {"integer", "decimal"} | floats

    def _time(self, time: SqlTime, kind: str) -> Constant | None:
        """A day or time as a column of a kind has it; None where the session's zone would be needed."""
        local = time.kind in ("date", "time")
        if kind == "date" and time.kind == "date":
            return Constant.number("date", time.value)
        if kind in ("date", "timestamp_ntz"):
            # days and local times become instants before they are compared with one
            return Constant.number("time", time.microseconds) if local or is_utc(self.zone) else None
        if kind == "timestamp":
            instant = instant_of(time.microseconds, self.zone) if local else time.value
            return None if instant is None else Constant.number("time", instant)
        return None
