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
* For spatial functions see :mod:`geoskip.engines.duckdb_geometries`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

import shapely

from geoskip.engines.constant_bounds import Constant, Engine
from geoskip.engines.duckdb_constants import EXACT_IN, fits, is_exact, scale_of, text_as, zoned_time
from geoskip.engines.duckdb_geometries import distance_compared, shape, spatial_operand
from geoskip.engines.duckdb_scopes import Json, fold_case
from geoskip.engines.implied_conditions import Builder, EngineCondition, Rounded
from geoskip.engines.time_texts import is_utc
from geoskip.predicates import FLIPPED, Call, Column, Contains, EndsWith, Like, Predicate, StartsWith, normalise
from geoskip.types import sql_type

_COMPARISONS = {
    "COMPARE_EQUAL": "=", "COMPARE_NOTEQUAL": "!=", "COMPARE_LESSTHAN": "<", "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=", "COMPARE_GREATERTHANOREQUALTO": ">=",
}  # fmt: skip
_TEXTS: dict[str, Callable[[Predicate, str], Predicate]] = {
    "starts_with": StartsWith, "prefix": StartsWith, "^@": StartsWith,
    "ends_with": EndsWith, "suffix": EndsWith, "contains": Contains,
}  # fmt: skip
_WIDTHS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
_DIGITS = Context(prec=76)
_MICROSECONDS = 86_400_000_000


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
    builder = Builder(columns, Engine(ieee=False))  # nanoseconds are cut to microseconds, not as Spark may cut them
    reader = _ConditionReader(builder, is_utc(time_zone), spatial)
    try:
        found = builder.both([reader.visit(condition) for condition in conditions])
    except (KeyError, TypeError, ValueError, RecursionError) as error:  # the tree of another DuckDB
        found = builder.unknown(f"a condition of DuckDB could not be read: {type(error).__name__}: {error}")
    return normalise(found.true), builder.reasons


class _ConditionReader:
    """Reads a tree from the leaves up."""

    def __init__(self, builder: Builder, utc: bool, spatial: bool) -> None:
        self.builder, self.utc, self.spatial = builder, utc, spatial
        self.names = {fold_case(name): name for name in builder.columns}

    def visit(self, node: Json) -> Any:
        """Make an operand or a condition of a vertex and all below it."""
        builder, kind = self.builder, node["type"]
        match node["class"]:
            case "COLUMN_REF":
                (name,) = node["column_names"]
                return builder.column(self.names.get(fold_case(name), name))
            case "CONSTANT":
                return self._constant(node["value"])
            case "COMPARISON" if kind in _COMPARISONS:
                return self._compare(_COMPARISONS[kind], self.visit(node["left"]), self.visit(node["right"]))
            case "COMPARISON" if kind in ("COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM"):
                left, right = self._match_operands(self.visit(node["left"]), self.visit(node["right"]))
                same = builder.equal_or_both_null(left, right)
                return same if kind == "COMPARE_NOT_DISTINCT_FROM" else same.negate()
            case "CONJUNCTION":
                parts = list(map(self.visit, node["children"]))
                return builder.both(parts) if kind == "CONJUNCTION_AND" else builder.either(parts)
            case "BETWEEN":
                return self._range_condition(*(self.visit(node[part]) for part in ("input", "lower", "upper")))
            case "CAST" if not node["try_cast"]:
                return self._cast(self.visit(node["child"]), node["cast_type"])
            case "OPERATOR":
                return self._operator(kind, list(map(self.visit, node["children"])))
            case "FUNCTION" if not node.get("filter") and not node.get("distinct"):
                return self._function(fold_case(node["function_name"]), list(map(self.visit, node["children"])))
        return builder.unknown(f"{kind.lower().replace('_', ' ')} of DuckDB is not used")

    # ---- constants

    def _constant(self, value: Json) -> Any:
        kind, about = value["type"]["id"], value["type"]["type_info"]
        if value["is_null"]:
            return Constant("null")
        found = value["value"]
        if isinstance(found, dict):  # 128 bits
            found = (found["upper"] << 64) | found["lower"]
        if kind in _WIDTHS and isinstance(found, int):
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
                if kind == "GEOMETRY":
                    return shape(self.builder, shapely.from_wkt, text)
                found = text_as(kind, text, utc=self.utc)
                if found is not None:
                    return found
            case Constant("integer", value) if kind in _WIDTHS:
                return part
            case Constant("integer", value) if kind == "DOUBLE" and abs(value) <= 1 << 53:
                return Constant("float", float(value))
            case Constant("decimal", value) if kind == "DOUBLE" and is_exact(value, "double"):
                return Constant("float", float(value))
            case Column(_, source) if 0 < sql_type(source).values.stop.bit_length() <= _WIDTHS.get(kind, 0):
                return part
            case Column(_, "boolean") | EngineCondition() if kind == "BOOLEAN":
                return part
            case Column(_, source) if (source, kind) in (("double", "DOUBLE"), ("string", "VARCHAR")):
                return part
            case Column(_, "date") if kind == "TIMESTAMP":
                return Rounded(part)
        return self.builder.unknown(f"a cast to {kind} is not used", part)

    # ---- comparisons

    def _match_operands(self, left: Any, right: Any) -> tuple[Any, Any]:
        """Two operands of a comparison, a constant among them as the type of the other."""
        if isinstance(left, Constant) and not isinstance(right, Constant):
            right, left = self._match_operands(right, left)
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
                found: Any = text_as("DATE", constant.value, utc=self.utc)
            case "timestamp_ntz", "text":
                found = text_as("TIMESTAMP", constant.value, utc=self.utc)
            case "timestamp", "text":
                found = self._as_column(column, zoned_time(constant.value, utc=self.utc) or Constant("odd text"))
            case (("timestamp_ntz" | "timestamp"), "date") if self.utc or kind == "timestamp_ntz":
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
                exact = is_exact(constant.value, kind)
                found = Constant("float", float(constant.value)) if exact else None
            case _ if kind is not None and kind.startswith("decimal") and constant.kind == "decimal":
                found = constant if fits(kind, constant.value) else None
            case _:
                return constant
        if found is None:
            return self.builder.unknown(f"{column} beside {constant} is not used: {column} is {kind}", column)
        return found

    def _compare(self, op: str, left: Any, right: Any) -> EngineCondition:
        if isinstance(left, Constant) and isinstance(right, Call):
            left, right, op = right, left, FLIPPED.get(op, op)
        if isinstance(left, Call):
            return distance_compared(self.builder, op, left, right)
        return self.builder.compare(op, *self._match_operands(left, right))

    def _range_condition(self, part: Any, lower: Any, upper: Any) -> EngineCondition:
        if not self._are_alike(part, [lower, upper]):
            return self.builder.unknown("BETWEEN with ends of different types is not used", part)
        return self.builder.both([self._compare(">=", part, lower), self._compare("<=", part, upper)])

    def _are_alike(self, part: Any, members: Sequence[Any]) -> bool:
        """True if an operand and the members of IN or BETWEEN are compared as the operand with each alone."""
        known = [member for member in members if isinstance(member, Constant) and member.kind != "null"]
        if len(known) < sum(not (isinstance(m, Constant) and m.kind == "null") for m in members):
            return False
        kinds = {member.kind for member in known}
        if len(kinds) > 1 or not isinstance(part, Column):
            return isinstance(part, Call) and len(members) == 2
        if kinds == {"decimal"}:
            scale = max(scale_of(member.value) for member in known)
            bound, most = EXACT_IN.get(str(part.type), (10**38, 38))
            return scale <= most and all(abs(member.value) * 10**scale <= bound for member in known)
        return True

    def _operator(self, kind: str, parts: Sequence[Any]) -> EngineCondition:
        builder = self.builder
        match kind, parts:
            case "OPERATOR_NOT", [part]:
                return builder.condition(part).negate()
            case "OPERATOR_IS_NULL", [part]:
                return builder.is_null(part)
            case "OPERATOR_IS_NOT_NULL", [part]:
                return builder.is_null(part).negate()
            case (("COMPARE_IN" | "COMPARE_NOT_IN"), [part, *members]):
                if not isinstance(part, Column) or not self._are_alike(part, members):
                    return builder.unknown("IN with members of different types, or not constant, is not used", *parts)
                known = [self._as_column(part, member) for member in members]
                if not all(isinstance(member, Constant) for member in known):
                    return builder.unknown(f"IN is not used for {part}", part)
                found = builder.is_in(part, known, null_is_in=False, null_is_out=False)
                return found if kind == "COMPARE_IN" else found.negate()
        return builder.unknown(f"{kind.lower().replace('_', ' ')} of DuckDB is not used", *parts)

    # ---- functions

    def _function(self, name: str, parts: Sequence[Any]) -> Any:
        builder = self.builder
        match name, parts:
            case (("~~" | "!~~"), [part, Constant("text", pattern)]):
                found = builder.like(part, pattern, Like)
                return found if name == "~~" else found.negate()
            case _, [part, Constant("text", text)] if name in _TEXTS:
                return builder.text(part, _TEXTS[name], text)
            case "isnan", [Column(_, "float" | "double") as part]:
                return builder.is_nan(part)
            case "isinf", [Column(_, "float" | "double") as part]:
                return builder.is_infinite(part)
            case "isfinite", [Column(_, "float" | "double") as part]:
                return builder.is_finite(part)
        if name.startswith("st_") and self.spatial:
            return spatial_operand(builder, name, parts)
        return builder.unknown(f"the function {name} of DuckDB is not used", *parts)
