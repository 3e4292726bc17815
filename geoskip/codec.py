"""Predicates as JSON and back, exactly, without pickle or code.

Metadata contain the analysed expressions of an index, and a query uses the index only if its own expression is equal.
So a round trip preserves every field, and every value with its type.

A node is an object ``{"node": "comparison", "op": ">", "left": ..., "right": ...}``; fields at their default are left
out. A value is plain JSON if JSON represents it exactly (null, booleans, integers up to 2^53, well-formed text), else
an object with one member named by the type: ``{"float": "-0.0"}``, ``{"int": "9007199254740993"}``, ``{"decimal":
"1.50"}``, ``{"utf8": hex}``, ``{"bytes": hex}``, ``{"date": iso}``, ``{"datetime": iso}``, ``{"array": [value, ...]}``,
``{"wkb": hex}`` (extended WKB: SRID, Z, M) and ``{"ring": hex}`` (a linear ring, which WKB writes as a line).

>>> predicate_to_json(StartsWith(Column("city"), "Pur"))
{'node': 'startswith', 'child': {'node': 'column', 'name': 'city'}, 'text': 'Pur'}
>>> predicate_from_json(_)
city LIKE 'Pur%'
"""

from __future__ import annotations

import dataclasses
import datetime
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import shapely
from shapely.geometry.base import BaseGeometry

from geoskip.errors import MetadataError
from geoskip.predicates import (
    And,
    Call,
    Cast,
    Column,
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
)

MAX_DEPTH = 200
"""The depth limit of trees that are read or written."""
_MAX_ARRAYS = 20

_NODES: dict[str, type[Predicate]] = {
    kind.__name__.lower(): kind
    for kind in (
        And, Call, Cast, Column, Comparison, Contains, EndsWith, In, IsNull, Like, Literal, Not, Opaque, Or, StartsWith
    )
}  # fmt: skip
_NAMES = {kind: name for name, kind in _NODES.items()}
_OPERATORS = frozenset(("=", "<=>", "<", "<=", ">", ">="))


def predicate_to_json(node: Predicate) -> dict[str, Any]:
    """Encode a node as JSON; raises MetadataError for a value that cannot be represented exactly."""
    return _encode(node, 0)


def predicate_from_json(data: object) -> Predicate:
    """Decode the result of :func:`predicate_to_json`; raises MetadataError for anything else."""
    return _decode(data, 0)


def _encode(node: Predicate, depth: int) -> dict[str, Any]:
    name = _NAMES.get(type(node))
    if name is None:
        raise MetadataError(f"a predicate of type {type(node).__name__} has no written form")
    if depth > MAX_DEPTH:
        raise MetadataError(f"an expression nested more than {MAX_DEPTH} levels deep is not written")
    data: dict[str, Any] = {"node": name}
    for field in dataclasses.fields(node):  # type: ignore[arg-type]
        value = getattr(node, field.name)
        if isinstance(node, Literal) and field.name == "value":
            data["value"] = value_to_json(value)
        elif type(value) is not type(field.default) or value != field.default:
            data[field.name] = _field_to_json(value, depth)
    return data


def _field_to_json(value: Any, depth: int) -> Any:
    if isinstance(value, Predicate):
        return _encode(value, depth + 1)
    if isinstance(value, tuple):
        return [_field_to_json(item, depth) for item in value]
    return value_to_json(value)


def _decode(data: object, depth: int) -> Predicate:
    if not isinstance(data, dict):
        raise MetadataError(f"an expression is written as an object, got {_short(data)}")
    if depth > MAX_DEPTH:
        raise MetadataError(f"an expression nested more than {MAX_DEPTH} levels deep is not read")
    name = data.get("node")
    kind = _NODES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise MetadataError(f"an expression of unknown kind {_short(name)}; known are {', '.join(sorted(_NODES))}")
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if unknown := data.keys() - fields.keys() - {"node"}:
        raise MetadataError(f"{name} has no {_short(sorted(unknown)[0])}")
    arguments: dict[str, Any] = {}
    for field in fields.values():
        if field.name in data:
            arguments[field.name] = _READERS[_shape(kind, field)](data[field.name], depth + 1)
        elif field.default is dataclasses.MISSING:
            raise MetadataError(f"{name} lacks its {field.name}")
    if kind is Comparison and arguments["op"] not in _OPERATORS:
        raise MetadataError(f"a comparison by {_short(arguments['op'])}")
    return kind(**arguments)


def _shape(kind: type[Predicate], field: dataclasses.Field[Any]) -> str:
    return "value" if kind is Literal and field.name == "value" else str(field.type)


def _text(data: object, depth: int) -> str:
    value = value_from_json(data)
    if not isinstance(value, str):
        raise MetadataError(f"text expected, got {_short(data)}")
    return value


def _truth(data: object, depth: int) -> bool:
    if not isinstance(data, bool):
        raise MetadataError(f"true or false expected, got {_short(data)}")
    return data


def _literal(data: object, depth: int) -> Literal:
    node = _decode(data, depth)
    if not isinstance(node, Literal):
        raise MetadataError(f"a literal expected, got {_short(data)}")
    return node


def _several(read: Callable[[object, int], Any]) -> Callable[[object, int], tuple[Any, ...]]:
    def items(data: object, depth: int) -> tuple[Any, ...]:
        if not isinstance(data, list):
            raise MetadataError(f"a list expected, got {_short(data)}")
        return tuple(read(item, depth) for item in data)

    return items


_READERS: Mapping[str, Callable[[object, int], Any]] = {  # by the annotation of a node's field
    "value": lambda data, depth: value_from_json(data),
    "str": _text,
    "str | None": lambda data, depth: None if data is None else _text(data, depth),
    "bool": _truth,
    "Predicate": _decode,
    "tuple[Predicate, ...]": _several(_decode),
    "tuple[Literal, ...]": _several(_literal),
    "tuple[str, ...]": _several(_text),
}


def value_to_json(value: Any) -> Any:
    """Encode a literal's value as JSON.

    >>> value_to_json(2**53 + 1), value_to_json(float("nan")), value_to_json(b"ab")
    ({'int': '9007199254740993'}, {'float': 'nan'}, {'bytes': '6162'})
    """
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if abs(value) <= 2**53 else {"int": _digits(value)}
    if kind is str:
        try:
            value.encode("utf-8")
            return value
        except UnicodeEncodeError:  # JSON would combine two lone surrogates into one character
            return {"utf8": value.encode("utf-8", "surrogatepass").hex()}
    if kind in _WRITERS:
        name, write = _WRITERS[kind]
        return {name: write(value)}
    if isinstance(value, BaseGeometry):
        return _geometry_to_json(value)
    raise MetadataError(f"a literal of type {kind.__module__}.{kind.__qualname__} has no written form")


def value_from_json(data: object, depth: int = 0) -> Any:
    """Decode the result of :func:`value_to_json`; raises MetadataError for anything else."""
    if data is None or isinstance(data, bool | str | int):
        return data
    if not (isinstance(data, dict) and len(data) == 1):
        raise MetadataError(f"a value expected, got {_short(data)}")
    ((kind, text),) = data.items()
    if kind == "array" and isinstance(text, list) and depth < _MAX_ARRAYS:
        return tuple(value_from_json(item, depth + 1) for item in text)
    if kind not in _VALUES or not isinstance(text, str):
        raise MetadataError(f"a value of unknown kind {_short(kind)}; known are {', '.join(_VALUES)}")
    try:
        return _VALUES[kind](text)
    except (ValueError, InvalidOperation, shapely.errors.ShapelyError) as error:
        raise MetadataError(f"{_short(text)} is no {kind}: {error}") from None


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError as error:  # Python limits the number of digits
        raise MetadataError(f"an integer too long to write: {error}") from None


def _geometry_to_json(shape: BaseGeometry) -> dict[str, str]:
    kind = "ring" if type(shape) is shapely.LinearRing else "wkb"
    text = shapely.to_wkb(shape, hex=True, include_srid=True)
    if value_from_json({kind: text}) != shape:
        raise MetadataError(f"WKB does not keep this geometry: {_short(str(shape))}")
    return {kind: text}


def _geometry(text: str) -> BaseGeometry:
    data = bytes.fromhex(text)
    _check_nesting(data)
    shape: BaseGeometry | None = shapely.from_wkb(data)
    if shape is None:
        raise ValueError("no geometry")
    return shape


def _ring(text: str) -> BaseGeometry:
    line = _geometry(text)
    ring = shapely.LinearRing(shapely.get_coordinates(line, include_z=line.has_z, include_m=line.has_m))
    return shapely.set_srid(ring, shapely.get_srid(line))


_WRITERS: Mapping[type, tuple[str, Callable[[Any], Any]]] = {
    float: ("float", repr),
    Decimal: ("decimal", str),
    bytes: ("bytes", bytes.hex),
    tuple: ("array", lambda items: [*map(value_to_json, items)]),
    datetime.date: ("date", datetime.date.isoformat),
    datetime.datetime: ("datetime", datetime.datetime.isoformat),
}
_VALUES: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "decimal": Decimal,
    "utf8": lambda text: bytes.fromhex(text).decode("utf-8", "surrogatepass"),
    "bytes": bytes.fromhex,
    "date": datetime.date.fromisoformat,
    "datetime": datetime.datetime.fromisoformat,
    "wkb": _geometry,
    "ring": _ring,
}


def _check_nesting(data: bytes) -> None:
    """Refuse WKB with deeply nested collections: the recursion in GEOS would crash the process."""
    position, open_parts = 0, [1]  # remaining geometries on each level
    while open_parts:
        if not open_parts[-1]:
            open_parts.pop()
            continue
        open_parts[-1] -= 1
        try:
            order = "<" if data[position] else ">"
            (code,) = struct.unpack_from(order + "I", data, position + 1)
            position += 9 if code & 0x20000000 else 5
            family, plain = (code & 0xFFFF) // 1000, (code & 0xFFFF) % 1000
            width = 8 * (2 + bool(code & 0x80000000 or family in (1, 3)) + bool(code & 0x40000000 or family in (2, 3)))
            if plain == 1:
                position += width
                continue
            (count,) = struct.unpack_from(order + "I", data, position)
            position += 4
            if plain == 2:
                position += count * width
            elif plain == 3:
                for _ in range(count):
                    position += 4 + width * int(struct.unpack_from(order + "I", data, position)[0])
            elif 4 <= plain <= 7:
                open_parts.append(count)
            else:
                raise ValueError(f"a geometry of type {code}")
        except (struct.error, IndexError):
            raise ValueError("the end is missing") from None
        if len(open_parts) > 100:
            raise ValueError("collections nested more than 100 levels deep")


def _short(data: object) -> str:
    text = repr(data)
    return text if len(text) <= 60 else text[:57] + "..."
