"""Translate the expressions of ``pyarrow.compute`` to predicates.

An expression has no public tree, but ``__reduce__`` returns Arrow's own serialization of it: an IPC file with one row.
The schema's metadata hold the tree in prefix order (``call``, ``field_ref``, ``literal``, ``end``); the columns hold
the literals and the options of functions without loss. (Substrait has no LIKE, no safe cast and no set with null; the
text of an expression does not quote the names of columns.) The keys of these metadata repeat, and pyarrow returns
metadata as a dictionary, so they are read from the flatbuffer. A form that this module cannot read, from a newer Arrow,
becomes an unknown condition, which keeps every file.

How Arrow differs from Spark (:mod:`geoskip.engines.implied_conditions` has the rules):

* NaN follows IEEE 754: ``~(x > 5)`` is true for NaN, ``x == NaN`` is never true, ``x != NaN`` always. But ``isin``
  finds NaN in a set, and distinguishes 0.0 from -0.0.
* ``isin`` is never null: null is in a set that contains null and not in any other, so ``~x.isin([1])`` is true for
  null.
* An integer column is compared with a float in 32-bit floats; the literals of a set are cast to the column's type.
* Times may have nanoseconds, where Spark has only microseconds. INT96 is read as nanoseconds, so that times after 2262
  or before 1677 wrap around.
* ``and`` and ``or`` without ``_kleene`` are null if an operand is null.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from geoskip.engines.constant_bounds import OF_NANOSECONDS, Constant, Engine
from geoskip.engines.implied_conditions import Builder, EngineCondition
from geoskip.errors import UnknownColumnError
from geoskip.predicates import Column, Contains, EndsWith, Like, Predicate, StartsWith, normalise
from geoskip.types import sql_type

_COMPARISONS = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_TEXTS: dict[str, Callable[[Predicate, str], Predicate]] = {
    "starts_with": StartsWith,
    "ends_with": EndsWith,
    "match_substring": Contains,
}
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
_MATCH, _SKIP = 0, 1
"""Treatment of null in a set: as a value, or as a value that is in no set."""


def predicate_of_arrow(
    expression: Any,
    columns: Mapping[str, str],
    schema: pa.Schema | None = None,
    names: Sequence[str] | None = None,
    *,
    exact_times: tuple[int, int] | None = None,
) -> tuple[Predicate, list[str]]:
    """Translate a ``pyarrow.compute.Expression`` to a predicate that Spark finds TRUE wherever Arrow does.

    Parameters
    ----------
    expression
        A condition.
    columns
        The names of Spark's types by the names of the dataset's columns; others are unknown.
    schema
        The dataset's schema, if it is known; without it, times may have nanoseconds.
    names
        All columns of the dataset; None if others may exist.
    exact_times
        The microseconds between which Arrow reads every time as it is. Default: those of nanoseconds for a schema with
        nanoseconds, else all.

    Returns
    -------
    predicate, reasons
        The predicate, and a sentence for each part that could not be used.

    Raises
    ------
    UnknownColumnError
        For a name that is not among ``names``.

    >>> import pyarrow.compute as pc
    >>> predicate_of_arrow(
    ...     ~(pc.field("temp") > 5) & pc.field("city").isin(["Oslo"]), {"temp": "double", "city": "string"}
    ... )
    (((temp <= 5.0 OR temp = nan) AND city IN ('Oslo')), [])
    """
    finer = schema is None or any(_has_nanoseconds(column.type) for column in schema)
    times = exact_times or (OF_NANOSECONDS if finer else None)
    builder = Builder(columns, Engine(ieee=True, finer=finer, exact_times=times), names=names)
    try:
        found = builder.condition(_parse_expression(expression, builder))
    except UnknownColumnError:
        raise
    except Exception as error:  # an expression of another Arrow version, or one that cannot be pickled
        found = builder.unknown(f"the expression of Arrow could not be read: {type(error).__name__}: {error}")
    return normalise(found.true), builder.reasons


def _has_nanoseconds(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_nanoseconds(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind)) and kind.unit == "ns"


def _parse_expression(expression: Any, builder: Builder) -> Any:
    """Build an expression's operand or condition from its serialized form, without recursion."""
    buffer = expression.__reduce__()[1][0]
    batch = pa.ipc.open_file(buffer).get_batch(0)
    open_calls: list[tuple[str, list[Any], list[Any]]] = [("", [], [])]
    tokens = iter(_metadata(batch.schema))
    for key, text in tokens:
        operands = open_calls[-1][1]
        match key:
            case "call":
                open_calls.append((text, [], []))
            case "end":
                name, arguments, options = open_calls.pop()
                open_calls[-1][1].append(_call(name, arguments, options, builder))
            case "field_ref":
                operands.append(builder.column(text))
            case "nested_field_ref":
                path = [next(tokens) for _ in range(int(text))]
                if any(part != "field_ref" for part, _ in path):
                    raise ValueError("a nested field that is not named")
                operands.append(builder.column(*(name for _, name in path)))
            case "literal":
                operands.append(constant_of(batch.column(int(text))[0], builder))
            case "options":
                open_calls[-1][2].append(batch.column(int(text))[0])
            case _:
                raise ValueError(f"{key!r} is not known")
    ((_, (found,), _),) = open_calls
    return found


def _call(name: str, arguments: Sequence[Any], options: Sequence[Any], builder: Builder) -> Any:
    """Translate a function of Arrow over operands and conditions."""
    given = {field.name: value for scalar in options for field, value in zip(scalar.type, scalar.values(), strict=True)}
    match name, arguments:
        case _, (left, right) if name in _COMPARISONS:
            return builder.compare(_COMPARISONS[name], left, right)
        case "invert", (child,):
            return builder.condition(child).negate()
        case (("and" | "and_kleene"), _):
            return builder.both(arguments)
        case (("or" | "or_kleene"), _):
            return builder.either(arguments)
        case (("and_not" | "and_not_kleene"), (left, right)):
            return builder.both([left, builder.condition(right).negate()])
        case "is_null", (child,):
            return builder.is_null(child, or_nan=not given or bool(given["nan_is_null"].as_py()))
        case "is_valid", (child,):
            return builder.is_null(child).negate()
        case "is_nan", (child,):
            return builder.is_nan(child)
        case "year", (child,):
            return builder.year(child)
        case "is_in", (child,):
            return _is_in(child, given, builder)
        case (("starts_with" | "ends_with" | "match_substring" | "match_like"), (child,)) if not given[
            "ignore_case"
        ].as_py():
            pattern = given["pattern"].as_py()
            return (
                builder.like(child, pattern, Like)
                if name == "match_like"
                else builder.text(child, _TEXTS[name], pattern)
            )
        case "cast", (Column() as child,) if _widens(given["to_type"].type, child):
            return child
    return builder.unknown(f"{name} of Arrow is not used", *arguments)


def _is_in(child: Any, given: Mapping[str, Any], builder: Builder) -> EngineCondition:
    """Translate a test for a value in a set, which Arrow stores as an option of the function."""
    values = given["value_set"].values
    found = [constant_of(value, builder) for value in values]
    constants = [value for value in found if isinstance(value, Constant)]
    if len(constants) < len(found):
        return builder.unknown(f"a set of {values.type} is not used", child)
    has_null, nulls = values.null_count > 0, given["null_matching_behavior"].as_py()
    in_set = has_null and nulls != _SKIP
    return builder.is_in(child, constants, null_is_in=in_set, null_is_out=not (has_null and nulls == _MATCH))


def _widens(target: pa.DataType, column: Column) -> bool:
    """Test whether a cast changes no value of a column, or raises, before a comparison with a constant."""
    kind = sql_type(column.type)
    width = kind.values.stop.bit_length()
    whole = kind.is_integral and pa.types.is_signed_integer(target) and target.bit_width >= width
    return bool(
        whole or (pa.types.is_float64(target) and (kind.is_floating or kind.kind in ("tinyint", "smallint", "int")))
    )


def constant_of(scalar: pa.Scalar, builder: Builder) -> Constant | EngineCondition:
    """Translate a literal; unknown for types without a counterpart."""
    kind = scalar.type
    if not scalar.is_valid:
        return Constant("null")
    if pa.types.is_dictionary(kind):
        return constant_of(scalar.value, builder)
    if pa.types.is_boolean(kind):
        return Constant("boolean", scalar.as_py())
    if pa.types.is_integer(kind):
        return Constant.number("integer", scalar.as_py())
    if pa.types.is_floating(kind):
        return Constant("float", float(scalar.as_py()))
    if pa.types.is_decimal(kind):
        return Constant.number("decimal", Decimal(scalar.as_py()))
    if str(kind) in ("string", "large_string", "string_view"):
        return Constant("text", scalar.as_buffer().to_pybytes().decode("utf-8", "surrogateescape"))
    if str(kind) in ("binary", "large_binary", "binary_view") or pa.types.is_fixed_size_binary(kind):
        return Constant("binary", scalar.as_buffer().to_pybytes())
    if pa.types.is_date32(kind):
        return Constant.number("date", scalar.value)
    if pa.types.is_timestamp(kind):
        return Constant.number("time", Fraction(scalar.value * _NANOSECONDS[kind.unit], 1000))
    return builder.unknown(f"a literal of {kind} is not used")


def _metadata(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Read the keys and values of a schema's metadata in order, with repeated keys, from its flatbuffer.

    >>> list(_metadata(pa.schema([], {"b": "1", "a": "é"})))
    [('b', '1'), ('a', 'é')]
    """
    data = schema.serialize().to_pybytes()[8:]  # after the marker and the length of the message

    def follow(at: int) -> int:
        return at + int(struct.unpack_from("<I", data, at)[0])

    def members(at: int) -> list[int]:
        """Positions of the members of a flatbuffer table; 0 for absent members."""
        table = at - struct.unpack_from("<i", data, at)[0]
        count = (struct.unpack_from("<H", data, table)[0] - 4) // 2
        return [at + offset if offset else 0 for offset in struct.unpack_from(f"<{count}H", data, table + 4)]

    def text(at: int) -> str:
        start = follow(at)
        length = struct.unpack_from("<I", data, start)[0]
        return str(data[start + 4 : start + 4 + length], "utf-8")

    message = members(follow(0))
    found = members(follow(message[2]))  # version, type of the header, header
    if len(found) < 3 or not found[2]:  # endianness, fields, metadata
        return
    pairs = follow(found[2])
    for number in range(struct.unpack_from("<I", data, pairs)[0]):
        key, value, *_ = members(follow(pairs + 4 + 4 * number))
        yield text(key), text(value)
