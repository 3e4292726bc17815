"""Values to try functions on: of a Spark type, of a hint such as ``"longitude"`` or ``"agents"``, or the user's own.

Half of the values are the odd ones on which mappings fail: the ends of a type, NaN and infinities, -0.0, the empty
text, text that shares its beginning or is longer than what an index keeps, and NULL.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import re
import string
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import shapely

from geoskip.errors import MappingError
from geoskip.types import sql_type

__all__ = ["HINTS", "Sample", "arrow_type", "hint_of", "physical_value", "sample_of", "spark_type"]

_PYTHON = {
    bool: "boolean", int: "bigint", float: "double", str: "string", bytes: "binary", dt.date: "date",
    dt.datetime: "timestamp_ntz", Decimal: "decimal(18,2)",
}  # fmt: skip
_EPOCH = dt.date(1970, 1, 1)
_WORDS: list[str] = re.findall(
    r"\w+",
    "a ab abc abd b able apple apples applet bat bath cat catalog data database dog door east eastern ember flag "
    "flagship gate gateway hat house island kite kitten lake lantern map maple mapping north orange parquet queen "
    "river sand sandbox skip skipper skipping spark sparkle table tablet umbra valley west western yard zebra",
)
_AGENTS = [
    f"{name}/{version} ({system}) {rest}".strip()
    for name, rest in (
        ("Mozilla", "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36"),
        ("Mozilla", "Gecko/20100101 Firefox/121.0"),
        ("Hacker", "sqlmap"),
        ("curl", ""),
    )
    for version, system in (("5.0", "X11; Linux x86_64"), ("5.0", "Windows NT 10.0; Win64; x64"), ("8.4.0", "iPhone"))
] + ["Googlebot/2.1 (+http://www.google.com/bot.html)", "curl/8.4.0", "python-requests/2.31.0", "-"]

Draw = Callable[[random.Random], Any]


class Sample:
    """What values of one argument are drawn from: ``kind`` is their Spark type, ``draw`` one that is not NULL."""

    def __init__(self, kind: str, draw: Draw, *, own: bool = False) -> None:
        self.kind = kind
        self.draw = draw
        self.own = own

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the values."""
        return arrow_type(self.kind)

    def modest(self) -> Sample:
        """The same without the ends of a type."""

        def draw(chance: random.Random) -> Any:
            drawn = (self.draw(chance) for _ in range(100))
            return next((v for v in drawn if not isinstance(v, int | float) or 0 < abs(v) < 100), 1)

        return Sample(self.kind, draw, own=self.own)

    def values(self, chance: random.Random, count: int) -> list[Any]:
        """So many values, a NULL now and then, and one that came before more often."""
        found: list[Any] = []
        for _ in range(count):
            dice = chance.random()
            found.append(None if dice < 0.1 else chance.choice(found) if found and dice < 0.25 else self.draw(chance))
        return found


def sample_of(wanted: Any) -> Sample:
    """The sample of a Spark type's name, of a hint, or of some values; raises MappingError for anything else."""
    if isinstance(wanted, Sample):
        return wanted
    if isinstance(wanted, str):
        name = wanted.strip().lower()
        if name in HINTS:
            return HINTS[name]
        if name in _OF_TYPE:
            return Sample(name, _OF_TYPE[name])
        kind = sql_type(name)
        if kind.element.name in _OF_TYPE:
            item = _OF_TYPE[kind.element.name]
            return Sample(name, lambda chance: [item(chance) for _ in range(chance.randint(0, 4))])
        if kind.is_decimal:
            return Sample(name, lambda chance: Decimal(_whole(chance, 20)).scaleb(-kind.scale))
        raise MappingError(
            f"there are no values of {wanted!r} to try; give a type ({', '.join(_OF_TYPE)}), a hint "
            f"({', '.join(HINTS)}) or values of your own"
        )
    own = [value for value in wanted if value is not None] if isinstance(wanted, Sequence) else []
    kinds = {_PYTHON.get(type(value)) for value in own}
    if kinds == {"bigint", "double"}:
        own, kinds = [float(value) for value in own], {"double"}
    if len(kinds) != 1 or None in kinds:
        raise MappingError(f"expected values of one type to try, got {wanted!r}")
    return Sample(str(kinds.pop()), lambda chance: chance.choice(own), own=True)


def hint_of(name: str, kind: str | None) -> Sample | None:
    """What an argument's name says of its values: ``lat`` is a latitude."""
    found = next((HINTS[hint] for pattern, hint in _BY_NAME if re.search(pattern, name.lower())), None)
    return found if found is not None and kind in (None, found.kind) else None


def spark_type(value: Any) -> str | None:
    """Spark's type of a plain value or of a Python type; None where there is no one."""
    kind = value if isinstance(value, type) else type(value)
    return _PYTHON.get(kind)


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type of a Spark type's name; raises MappingError where values of it cannot be made here."""
    of = leaf = sql_type(kind)
    while leaf.kind == "array":
        leaf = leaf.element
    if leaf.kind in _OF_TYPE or leaf.is_text or leaf.is_decimal:
        return of.arrow
    raise MappingError(f"values of type {kind} cannot be made here; give spark=, and values of your own in rows=")


def physical_value(value: Any) -> Any:
    """A plain value as predicates keep it (:mod:`geoskip.predicates`)."""
    match value:
        case dt.datetime():
            return (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
        case dt.date():
            return (value - _EPOCH).days
        case list():
            return tuple(map(physical_value, value))
    return value


def _whole(chance: random.Random, bits: int) -> int:
    dice, half = chance.random(), 1 << (bits - 1)
    if dice < 0.15:
        return chance.choice([-half, half - 1, -1, 0, 1])
    return chance.randint(-12, 40) if dice < 0.8 else chance.randint(-half // 2, half // 2)


def _real(chance: random.Random) -> float:
    dice = chance.random()
    if dice < 0.2:
        return chance.choice([math.nan, math.inf, -math.inf, -0.0, 0.0, 1e308, -1e308, 5e-324, 0.1])
    return round(chance.uniform(-20, 60), chance.choice([0, 1, 6])) if dice < 0.85 else chance.uniform(-1e6, 1e6)


def _text(chance: random.Random) -> str:
    dice = chance.random()
    if dice < 0.1:
        return chance.choice(["", " ", "0", "é", "ß", "\U0001f600", "%", "_", "z" * 40, "z" * 40 + "a", "ZZ", "null"])
    if dice < 0.15:
        return chance.choice([" {}", "{} ", "\t{}\n", "{}  {}", "{},{}"]).format(*chance.choices(_WORDS, k=2))
    if dice < 0.45:
        return chance.choice(_WORDS)
    if dice < 0.6:
        return f"{chance.randint(0, 99999):05d}"
    if dice < 0.7:
        return f"{chance.choice(_WORDS)}@{chance.choice(_WORDS)}.org"
    if dice < 0.8:
        return chance.choice(_WORDS).title() + chance.choice(["", " ", "-"]) + chance.choice(_WORDS)
    if dice < 0.9:
        return chance.choice(_AGENTS)
    return "".join(chance.choices(string.ascii_letters + string.digits, k=chance.randint(1, 6)))


def _date(chance: random.Random) -> dt.date:
    return (
        chance.choice([dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(2023, 12, 31), dt.date(1, 1, 1)])
        if (chance.random() < 0.2)
        else _EPOCH + dt.timedelta(days=chance.randint(18_000, 20_000))
    )


def _longitude(chance: random.Random) -> float:
    return chance.choice([-180.0, 180.0, 0.0, -0.0, 179.999999]) if chance.random() < 0.1 else _near(chance, 180)


def _latitude(chance: random.Random) -> float:
    return chance.choice([-90.0, 90.0, 0.0, 89.9]) if chance.random() < 0.1 else _near(chance, 90)


def _near(chance: random.Random, most: int) -> float:
    """Mostly near one place, so that some distances are short."""
    if chance.random() < 0.6:
        return round(chance.gauss(most / 4, most / 90), 6)
    return round(chance.uniform(-most, most), 6)


def _polygon(chance: random.Random) -> bytes:
    wide, high = chance.uniform(0.1, 8), chance.uniform(0.1, 6)
    x, y = min(_near(chance, 180) - wide / 2, 170.0), min(_near(chance, 90) - high / 2, 80.0)
    shell = [(x, y), (x + wide, y), (x + wide, y + high), (x + wide / 3, y + high)]
    hole = [(x + wide * 0.5, y + high * 0.2), (x + wide * 0.7, y + high * 0.2), (x + wide * 0.6, y + high * 0.4)]
    shape = shapely.Polygon(shell, [hole] if chance.random() < 0.3 else None)
    return bytes(shapely.to_wkb(shape if chance.random() < 0.95 else shapely.Polygon()))


def _url(chance: random.Random) -> str:
    host, first, second = chance.choices(_WORDS, k=3)
    if chance.random() < 0.6:
        return f"https://{host}.org/{first}/{second}?q=1"
    return chance.choice(
        [
            f"http://{host}.org/{first}",
            f"http://www.{host}.org",
            f"https://{host}.org:8443/{first}#{second}",
            f"https://{first}:{second}@{host}.org/",
            f"HTTPS://{host.title()}.ORG/{first}?u=https://{second}.org/",
            f"ftp://{host}.org/{first}",
            f"/{first}/{second}",
        ]
    )


HINTS: dict[str, Sample] = {
    "longitude": Sample("double", _longitude),
    "latitude": Sample("double", _latitude),
    "words": Sample("string", lambda chance: chance.choice(_WORDS)),
    "agents": Sample("string", lambda chance: chance.choice(_AGENTS)),
    "zip codes": Sample("string", lambda chance: f"{chance.randint(0, 99999):05d}"),
    "addresses": Sample("string", lambda chance: ".".join(str(chance.choice([10, 127, 192, 203, 8])) for _ in "1234")),
    "urls": Sample("string", _url),
    "points": Sample(
        "binary", lambda chance: bytes(shapely.to_wkb(shapely.Point(_longitude(chance), _latitude(chance))))
    ),
    "polygons": Sample("binary", _polygon),
}
"""Values of a meaning; geometries as WKB."""

_BY_NAME = (
    (r"^(lng|lon|long|longitude)\d*$|_(lng|lon|longitude)$", "longitude"),
    (r"^(lat|latitude)\d*$|_lat(itude)?$", "latitude"),
    (r"agent|^ua$", "agents"),
    (r"^zip", "zip codes"),
    (r"^ip$|_ip$|ip_?addr", "addresses"),
    (r"^url$|_url$|^uri$", "urls"),
    (r"polygon|region|^area$|shape|boundary", "polygons"),
    (r"^point|^geom|^wkb", "points"),
)
_OF_TYPE: dict[str, Draw] = {
    "string": _text,
    "double": _real,
    "bigint": lambda chance: _whole(chance, 64),
    "int": lambda chance: _whole(chance, 32),
    "date": _date,
    "boolean": lambda chance: chance.random() < 0.5,
    "binary": lambda chance: _text(chance).encode("utf-8"),
    "smallint": lambda chance: _whole(chance, 16),
    "tinyint": lambda chance: _whole(chance, 8),
    "float": lambda chance: float(pa.scalar(_real(chance), pa.float64()).cast(pa.float32()).as_py()),
    "timestamp_ntz": lambda chance: dt.datetime.combine(_date(chance), dt.time(chance.randint(0, 23), 30)),
}
