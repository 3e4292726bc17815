"""Types of Spark SQL, parsed from their names.

Predicates and columns contain Spark's name of their type (``"decimal(10,2)"``, ``"array<int>"``). Properties of types
are defined here: :func:`sql_type` parses a name once.

>>> sql_type("int").values, sql_type("decimal(10,2)").scale, sql_type("map<string,array<int>>").value.element.name
(range(-2147483648, 2147483648), 2, 'int')
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import pyarrow as pa

DAY = 86_400_000_000
"""Microseconds of a day."""
_INTEGRAL = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_RANKS = {kind: rank for rank, kind in enumerate((*_INTEGRAL, "float", "double"), 1)}
_PLAIN = ("boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")
_DECIMAL = re.compile(r"decimal\((\d{1,2}), *(-?\d{1,2})\)")
_KINDS = (
    (re.compile(r"interval (year|month)( to month)?"), "interval month"),
    (re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?"), "interval second"),
    (re.compile(r"string collate .*"), "string collate"),
    (re.compile(r"(array|map|struct)<.*>|(char|varchar|decimal|geometry|geography)\(.*\)|\w+", re.DOTALL), None),
)
_ARROW = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "boolean": pa.bool_(), "string": pa.string(), "char": pa.string(), "varchar": pa.string(),
    "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"), "interval month": pa.int32(), "interval second": pa.duration("us"),
}  # fmt: skip


@dataclass(frozen=True)
class SqlType:
    """A type of Spark SQL.

    Attributes
    ----------
    name : str
        Spark's name of the type; empty if the type is not known.
    kind : str
        The name without parameters: ``"decimal"``, ``"array"``, ``"varchar"``. Intervals of years and months are
        ``"interval month"``, those of days and times ``"interval second"``, by the unit of their physical values; text
        with a collation is ``"string collate"``. Empty if the name is not that of a type.
    precision, scale : int
        The digits of a decimal or integral type; 0 for others.
    """

    name: str
    kind: str
    precision: int = 0
    scale: int = 0

    @functools.cached_property
    def values(self) -> range:
        """The values of an integral type; empty for others."""
        half = 1 << _INTEGRAL.get(self.kind, 0) >> 1
        return range(-half, half)

    @functools.cached_property
    def is_integral(self) -> bool:
        """``tinyint``, ``smallint``, ``int`` or ``bigint``."""
        return self.kind in _INTEGRAL

    @functools.cached_property
    def is_floating(self) -> bool:
        """``float`` or ``double``."""
        return self.kind in ("float", "double")

    @functools.cached_property
    def is_decimal(self) -> bool:
        """A decimal with known precision and a scale of at least 0 (a legacy setting allows negative ones)."""
        return self.kind == "decimal" and self.precision > 0 <= self.scale

    @functools.cached_property
    def is_exact(self) -> bool:
        """An integral type, or a decimal as of :attr:`is_decimal`."""
        return self.is_integral or self.is_decimal

    @functools.cached_property
    def is_numeric(self) -> bool:
        """An integral type, ``float``, ``double`` or any decimal."""
        return self.kind in _RANKS or self.kind == "decimal"

    @functools.cached_property
    def is_plain(self) -> bool:
        """A number, boolean, text, binary, date or timestamp: no nested value, no interval, no collation."""
        return self.is_exact or self.is_floating or self.kind in _PLAIN

    @functools.cached_property
    def is_text(self) -> bool:
        """Text that is compared by bytes (without a collation)."""
        return self.kind in ("string", "char", "varchar")

    def holds(self, other: SqlType) -> bool:
        """True if both types are exact and every value of the other type is a value of this type.

        >>> sql_type("decimal(12,4)").holds(sql_type("decimal(10,2)")), sql_type("int").holds(sql_type("decimal(10,0)"))
        (True, False)
        """
        if not (self.is_exact and other.is_exact):
            return False
        narrow, wide = (kind.values.stop or 10 ** (kind.precision - kind.scale) for kind in (other, self))
        return other.scale <= self.scale and narrow <= wide

    def widens(self, other: SqlType) -> bool:
        """True if another integral or floating type is widened to this one implicitly, without new NULLs.

        >>> sql_type("double").widens(sql_type("bigint")), sql_type("int").widens(sql_type("float"))
        (True, False)
        >>> sql_type("bigint").widens(sql_type("decimal(20,0)"))
        False
        """
        return 0 < _RANKS.get(other.kind, 0) < _RANKS.get(self.kind, 0)

    @property
    def element(self) -> SqlType:
        """The type of an array's elements."""
        return sql_type(self.name[len("array<") : -1] if self.kind == "array" else None)

    @property
    def key(self) -> SqlType:
        """The type of a map's keys."""
        return sql_type(self._parts[0] if self.kind == "map" else None)

    @property
    def value(self) -> SqlType:
        """The type of a map's values."""
        return sql_type(self._parts[-1] if self.kind == "map" else None)

    @property
    def fields(self) -> tuple[tuple[str, SqlType], ...]:
        """The names and types of a struct's fields; names as Spark prints them, without quotes."""
        named = (part.partition(":") for part in self._parts if part and self.kind == "struct")
        return tuple((name, sql_type(kind)) for name, _, kind in named)

    @functools.cached_property
    def _parts(self) -> tuple[str, ...]:
        return outer_parts(self.name[len(self.kind) + 1 : -1])

    @functools.cached_property
    def arrow(self) -> pa.DataType | None:
        """The Arrow type of its values, intervals as whole numbers; None for types that are not supported."""
        if self.kind == "decimal" and self.precision:
            return pa.decimal128(self.precision, self.scale)
        if self.kind == "array":
            return None if self.element.arrow is None else pa.list_(self.element.arrow)
        return _ARROW.get(self.kind)


def outer_parts(text: str) -> tuple[str, ...]:
    """Split the parameters of a type at the commas that are not in brackets.

    >>> outer_parts("a:int,b:decimal(10,2)")
    ('a:int', 'b:decimal(10,2)')
    """
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return tuple(parts)


@functools.lru_cache(4096)
def sql_type(name: str | None) -> SqlType:
    """Parse the name of a type; None means an unknown type.

    >>> sql_type("string COLLATE UTF8_LCASE").kind, sql_type("interval day to second").kind, sql_type(None).kind
    ('string collate', 'interval second', '')
    """
    name = (name or "").strip()
    text = name.lower()
    if found := _DECIMAL.fullmatch(text):
        return SqlType(name, "decimal", int(found[1]), int(found[2]))
    for pattern, kind in _KINDS:
        if pattern.fullmatch(text):
            kind = kind or re.split(r"[<(]", text)[0]
            return SqlType(name, kind, len(str(1 << _INTEGRAL[kind] - 1)) if kind in _INTEGRAL else 0)
    return SqlType(name, "")
