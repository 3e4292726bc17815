"""Translate the expressions of polars to predicates.

The tree is the JSON that ``Expr.meta.serialize(format="json")`` writes. Its format is internal to polars and may
change; a part with an unknown node is not used. Functions of a whole column (``x.mean()``, ``x.shift()``, a window)
depend on all rows, so an expression with such a function, or with one that is not known to work row by row, is not used
at all.

How polars differs from Spark (:mod:`geoskip.engines.implied_conditions` has the rules):

* NaN is as in Spark: equal to itself, and above all other numbers. JSON has neither NaN nor infinity, except in sets.
* ``is_in`` is null for null, unless ``nulls_equal=True``; for a value not in a set with null, it is false, not null.
* A literal is truncated to the unit of the timestamp column that it is compared with, and rounded for a 32-bit column;
  a column is truncated to the unit of a coarser literal.
* Strings may be values of an enumeration, which are ordered by position. So comparisons by order are used only if the
  schema says that a column is ``String``.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from geoskip.engines.arrow_expression import constant_of
from geoskip.engines.constant_bounds import OF_NANOSECONDS, Constant, Engine
from geoskip.engines.implied_conditions import Builder, EngineCondition, Rounded
from geoskip.errors import UnknownColumnError
from geoskip.predicates import Column, Contains, EndsWith, Predicate, StartsWith, normalise
from geoskip.types import sql_type

_COMPARISONS = {"Eq": "=", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_UNUSED_OPERATORS = frozenset(
    {"Plus", "Minus", "Multiply", "Divide", "TrueDivide", "RustDivide", "FloorDivide", "Modulus", "Remainder", "Xor"}
)
_ROW_BY_ROW = frozenset(
    f"{group}{name}"
    for group, names in {
        "": "Abs Ceil Coalesce FillNull Floor Negate Round",
        "BinaryExpr/": "Contains EndsWith Size StartsWith",
        "Boolean/": "IsFinite IsInfinite",
        "StringExpr/": "Contains EndsWith Extract Head LenBytes LenChars Lowercase Replace Slice StartsWith StripChars "
        "StripPrefix StripSuffix Tail Uppercase",
        "StructExpr/": "FieldByName",
        "TemporalExpr/": "Date Day Hour IsoYear Minute Month OrdinalDay Quarter Second Truncate Week WeekDay Year",
    }.items()
    for name in names.split()
)
"""Functions that are unknown (in part), but work row by row, so that the rest of an expression can be used."""
_TEXTS: dict[str, Callable[[Predicate, str], Predicate]] = {"StartsWith": StartsWith, "EndsWith": EndsWith}
_CLOSED = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}
_COARSEST = 1000
"""The coarsest unit of a column is milliseconds; a literal is truncated to it."""
_SIGNED = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}
Json = Any


class _NotRowByRow(Exception):
    """A part of an expression that may read more than one row."""


def predicate_of_polars(
    expression: Any,
    columns: Mapping[str, str],
    schema: Mapping[str, Any] | None = None,
    names: Sequence[str] | None = None,
    *,
    exact_times: tuple[int, int] | None = None,
) -> tuple[Predicate, list[str]]:
    """Translate a polars expression to a predicate that Spark finds TRUE wherever polars does.

    Parameters
    ----------
    expression
        A condition.
    columns
        The names of Spark's types by the names of the dataset's columns; others are unknown.
    schema
        The types that polars reads; without them texts may be values of an enumeration, and times have nanoseconds.
    names
        All columns of the dataset; None if others may exist.
    exact_times
        As for :func:`~geoskip.engines.arrow_expression.predicate_of_arrow`.

    Returns
    -------
    predicate, reasons
        The predicate, and a sentence for each part that could not be used.

    Raises
    ------
    UnknownColumnError
        For a name that is not among ``names``.

    >>> import polars as pl
    >>> predicate_of_polars((pl.col("temp") > 5) & ~pl.col("city").is_in(["Oslo"]), {"temp": "int", "city": "string"})
    ((temp > 5 AND NOT city IN ('Oslo')), [])
    """
    types = None if schema is None else " ".join(map(repr, schema.values()))
    plain = types is not None and "Enum" not in types and "Categorical" not in types
    times = exact_times or (OF_NANOSECONDS if types is None or "time_unit='ns'" in types else None)
    engine = Engine(ieee=False, units=_COARSEST, exact_times=times, orders_texts=plain)
    builder = Builder(columns, engine, names=names)
    try:
        found = builder.condition(_JsonExpression(builder).visit(json.loads(expression.meta.serialize(format="json"))))
    except _NotRowByRow as error:
        found = Builder(columns, builder.engine, builder.reasons).unknown(str(error))
    except UnknownColumnError:
        raise
    except (Exception, RecursionError) as error:  # another version of polars, or a Python function
        found = builder.unknown(f"the expression of polars could not be read: {type(error).__name__}: {error}")
    return normalise(found.true), builder.reasons


class _JsonExpression:
    """Translator of an expression's JSON, from the leaves up."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def visit(self, node: Json) -> Any:
        """Translate a node and its descendants to an operand or a condition."""
        if not isinstance(node, dict) or len(node) != 1:
            raise _NotRowByRow(f"an expression of polars with {str(node)[:60]} is not used")
        ((kind, about),) = node.items()
        if _is_constant(node):
            return self._constant(node)
        match kind, about:
            case "Column", str():
                return self.builder.column(about)
            case "Alias", [inner, _]:
                return self.visit(inner)
            case "BinaryExpr", {"left": left, "op": str() as op, "right": right}:
                return self._operator(op, self.visit(left), self.visit(right))
            case "Cast", {"expr": inner, "dtype": {"Literal": dtype}}:
                return self._cast(self.visit(inner), dtype)
            case "Ternary", {"predicate": test, "truthy": then, "falsy": other}:
                return self.builder.unknown("when of polars is not used", *map(self.visit, (test, then, other)))
            case "Function", {"input": arguments, "function": function}:
                return self._function(function, arguments)
        raise _NotRowByRow(f"an expression of polars with {kind} is not used: it may look at more than one row")

    def _constant(self, node: Json) -> Any:
        """Evaluate a literal, or a constant expression such as ``pl.date(2024, 1, 31)``, with polars."""
        import polars as pl

        match node:  # most literals, which polars evaluates slowly
            case {
                "Literal": {"Dyn": {"Int": int() as value} | {"Float": float() as value}}
                | {"Scalar": {"String": str() as value}}
            } if not isinstance(value, int) or abs(value) < 1 << 63:
                return constant_of(pa.scalar(value), self.builder)
        try:
            values = pl.select(pl.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")).to_series()
            scalar = values.to_arrow()[0]
        except (pl.exceptions.PolarsError, pa.ArrowException):
            return self.builder.unknown("NaN, infinity and integers of 128 bits are not used as literals of polars")
        if pa.types.is_dictionary(scalar.type):
            return self.builder.unknown("a literal of an enumeration is not used")
        found = constant_of(scalar, self.builder)
        if isinstance(found, Constant) and pa.types.is_timestamp(scalar.type) and scalar.type.unit == "ms":
            return replace(found, error=_COARSEST - 1)
        return found

    def _operator(self, op: str, left: Any, right: Any) -> EngineCondition:
        builder = self.builder
        match op:
            case "And" | "LogicalAnd":
                return builder.both([left, right])
            case "Or" | "LogicalOr":
                return builder.either([left, right])
            case "EqValidity" | "NotEqValidity":
                same = builder.null_safe(builder.compare("=", left, right), left, right)
                return same if op == "EqValidity" else same.negate()
        if op in _COMPARISONS:
            return builder.compare(_COMPARISONS[op], left, right)
        if op in _UNUSED_OPERATORS:
            return builder.unknown(f"{op} of polars is not used", left, right)
        raise _NotRowByRow(f"an expression of polars with the operator {op} is not used")

    def _function(self, function: Json, arguments: Sequence[Json]) -> Any:
        builder = self.builder
        match function:
            case {"Boolean": {"IsIn": about}}:
                return self._is_in(self.visit(arguments[0]), arguments[1], about["nulls_equal"])
            case {"Boolean": "IsIn"}:
                return self._is_in(self.visit(arguments[0]), arguments[1], None)
        parts = [self.visit(argument) for argument in arguments]
        match function, parts:
            case {"Boolean": "Not"}, [part]:
                return builder.condition(part).negate()
            case {"Boolean": ("IsNull" | "IsNotNull" | "IsNan" | "IsNotNan") as name}, [part]:
                found = builder.is_null(part) if name.endswith("Null") else builder.is_nan(part)
                return found.negate() if "Not" in name else found
            case {"Boolean": {"IsBetween": {"closed": closed}}}, [part, low, high]:
                above, below = _CLOSED[closed]
                return builder.both([builder.compare(above, part, low), builder.compare(below, part, high)])
            case {"Boolean": "AllHorizontal"}, _:
                return builder.both(parts)
            case {"Boolean": "AnyHorizontal"}, _:
                return builder.either(parts)
            case {"StringExpr": ("StartsWith" | "EndsWith") as name}, [part, Constant("text", text)]:
                return builder.text(part, _TEXTS[name], text)
            case {"StringExpr": {"Contains": {"literal": True}}}, [part, Constant("text", text)]:
                return builder.text(part, Contains, text)
            case {"TemporalExpr": "Year"}, [part]:
                return builder.year(part)
            case {"StructExpr": {"FieldByName": name}}, [Column() as part]:
                return builder.struct_field(part, name)
            case "FillNull", [EngineCondition() | Column(_, "boolean") as part, Constant("boolean", False)]:
                found = builder.condition(part)
                return EngineCondition(found.true, builder.unknown("fill_null of polars is not used", part).false)
        name = "/".join(_names(function))
        if name in _ROW_BY_ROW:
            return builder.unknown(f"{name} of polars is not used", *parts)
        raise _NotRowByRow(f"an expression of polars with {name} is not used: it may look at more than one row")

    def _is_in(self, part: Any, values: Json, nulls_equal: bool | None) -> EngineCondition:
        """Translate a test for a value in a set, given as a series or as one list value."""
        match values:
            case {"Literal": {"Scalar": {"List": list() as data}}}:
                members = _series(data)
            case {"Literal": {"Series": list() as data}}:
                members = _series(data)
                if pa.types.is_list(members.type) or pa.types.is_large_list(members.type):
                    if len(members) != 1:
                        raise _NotRowByRow("an expression of polars with one set for each row is not used")
                    members = members.flatten()
            case _:
                raise _NotRowByRow("an expression of polars with a set that is not constant is not used")
        constants = [constant_of(value, self.builder) for value in members]
        known = [value for value in constants if isinstance(value, Constant)]
        if len(known) < len(constants):
            return self.builder.unknown(f"a set of {members.type} is not used", part)
        null_is_in = nulls_equal is not False and members.null_count > 0
        return self.builder.is_in(part, known, null_is_in=null_is_in, null_is_out=nulls_equal is not False)

    def _cast(self, part: Any, dtype: Json) -> Any:
        """Translate a cast that keeps values, or their order in comparisons with constants; else unknown."""
        if isinstance(part, Column):
            kind = sql_type(part.type)
            match dtype:
                case str() if kind.is_integral and _SIGNED.get(dtype, 0) >= kind.values.stop.bit_length():
                    return part
                case "Float64" if kind.is_floating or kind.is_integral:
                    return Rounded(part)
                case {"Decimal": [precision, 0]} if kind.is_integral and precision >= kind.precision:
                    return part
                case {"Datetime": [_, None]} if kind.kind == "date":
                    return Rounded(part)
        return self.builder.unknown(f"a cast to {str(dtype)[:60]} of polars is not used", part)


def _is_constant(node: Json) -> bool:
    """Test for casts and date and string functions over literals only, without arithmetic."""
    match node:
        case {"Literal": {"Scalar": _} | {"Dyn": _}}:
            return True
        case {"Alias": [inner, _]} | {"Cast": {"expr": inner}}:
            return _is_constant(inner)
        case {"Function": {"input": arguments, "function": {"TemporalExpr": _} | {"StringExpr": _}}}:
            return all(map(_is_constant, arguments))
    return False


def _names(function: Json) -> list[str]:
    """The names of a function's group and of the function in its JSON.

    >>> _names("Abs"), _names({"TemporalExpr": "Year"}), _names({"StringExpr": {"Contains": {"literal": False}}})
    (['Abs'], ['TemporalExpr', 'Year'], ['StringExpr', 'Contains'])
    """
    names: list[str] = []
    while isinstance(function, dict) and len(function) == 1 and len(names) < 2:
        ((name, function),) = function.items()
        names.append(str(name))
    return [*names, function] if isinstance(function, str) else names


def _series(data: list[int]) -> Any:
    """The column of a series, which JSON contains as the bytes of an IPC stream."""
    with pa.ipc.open_stream(pa.py_buffer(bytes(data))) as stream:
        return stream.read_all().column(0).combine_chunks()
