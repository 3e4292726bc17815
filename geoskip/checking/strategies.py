"""Hypothesis strategies by Spark type, by hint (``"longitude"``), and near constants in code.

The strategies favour values on which mappings fail: the ends of a type, NaN and infinities, -0.0, the empty string,
strings with a common prefix or beyond what an index stores, and NULL. The first alternative of each strategy is the
simplest, since Hypothesis shrinks towards it. ``temp >= 50`` has an edge at 50, ``address.split("@")[1]`` one at a
second ``@``: constants in the code of a function and of its mappings (:func:`constants_of`) are mixed into the values
(:func:`near`) and into whole rows (:func:`rows_of`).
"""

from __future__ import annotations

import datetime as dt
import dis
import itertools
import math
import random
import re
import string
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import shapely
from hypothesis import Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky, NoSuchExample
from hypothesis.strategies import DrawFn, SearchStrategy

from geoskip.errors import MappingError
from geoskip.types import sql_type

Strategy = SearchStrategy[Any]

# ---- values of a type


@dataclass(frozen=True)
class Sample:
    """Values of one argument: Spark type, a strategy without NULL, and whether the user gave them."""

    kind: str
    strategy: Strategy
    own: bool = False

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the values."""
        return arrow_type(self.kind)

    @property
    def nullable(self) -> Strategy:
        """The values and, rarely, NULL."""
        return st.integers(0, 9).flatmap(lambda dice: st.none() if dice == 9 else self.strategy)

    def modest(self) -> Sample:
        """Return the same sample without the ends of a numeric type."""

        def tame(value: Any) -> Any:
            return value if not isinstance(value, int | float) or 0 < abs(value) < 100 else 1

        return replace(self, strategy=self.strategy.map(tame))


_PYTHON = {
    bool: "boolean", int: "bigint", float: "double", str: "string", bytes: "binary", dt.date: "date",
    dt.datetime: "timestamp_ntz", Decimal: "decimal(18,2)",
}  # fmt: skip
_WORDS = re.findall(
    r"\w+",
    "a ab abc abd b able apple apples applet bat bath cat catalog data database dog door east eastern ember flag "
    "flagship gate gateway hat house island kite kitten lake lantern map maple mapping north orange parquet queen "
    "river sand sandbox skip skipper skipping spark sparkle table tablet umbra valley west western yard zebra",
)
_AGENTS = ["-", "curl/8.4.0", "python-requests/2.31.0", "Googlebot/2.1 (+http://www.google.com/bot.html)"] + [
    f"{name}/{version} ({system}) {rest}".strip()
    for name, rest in (
        ("Mozilla", "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36"),
        ("Mozilla", "Gecko/20100101 Firefox/121.0"),
        ("Hacker", "sqlmap"),
        ("curl", ""),
    )
    for version, system in (("5.0", "X11; Linux x86_64"), ("5.0", "Windows NT 10.0; Win64; x64"), ("8.4.0", "iPhone"))
]
_ODD_TEXTS = ["", " ", "0", "é", "ß", "\U0001f600", "%", "_", "z" * 40, "z" * 40 + "a", "ZZ", "null"]
_ODD_NUMBERS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.1]
_ODD_DATES = [dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(2023, 12, 31), dt.date(1, 1, 1)]


def _whole(bits: int) -> Strategy:
    half = 1 << (bits - 1)
    some = st.integers(-12, 40)
    return st.one_of(some, some, st.integers(-half // 2, half // 2), st.sampled_from([0, 1, -1, half - 1, -half]))


def _rounded_floats(low: float, high: float, digits: Sequence[int] = (0, 1, 6)) -> Strategy:
    return st.builds(round, st.floats(low, high), st.sampled_from(digits)).map(float)


def _degrees(most: int) -> Strategy:
    """Degrees up to ``most``, mostly near one place, so that some distances are short."""
    close = _rounded_floats(most / 4 - most / 45, most / 4 + most / 45, (6,))
    odd = st.sampled_from([0.0, float(most), -float(most), -0.0, most - 1e-6])
    return st.one_of(odd, close, close, close, close, _rounded_floats(-most, most, (6, 0)))


_word = st.sampled_from(_WORDS)
_digits = st.integers(0, 99_999).map("{:05d}".format)
_letters = string.ascii_letters + string.digits
_text = st.one_of(
    _word,
    _word,
    _digits,
    st.text(st.sampled_from(_letters), min_size=1, max_size=6),
    st.builds("{}@{}.org".format, _word, _word),
    st.builds("{}{}{}".format, _word.map(str.title), st.sampled_from(["", " ", "-"]), _word),
    st.sampled_from(_ODD_TEXTS),
    st.builds(str.format, st.sampled_from([" {}", "{} ", "\t{}\n", "{}  {}", "{},{}"]), _word, _word),
    st.sampled_from(_AGENTS),
)
_real = st.one_of(
    st.integers(-20, 60).map(float), _rounded_floats(-20, 60), st.floats(-1e6, 1e6), st.sampled_from(_ODD_NUMBERS)
)
_date = st.one_of(*[st.dates(dt.date(2000, 1, 1), dt.date(2024, 12, 31))] * 3, st.sampled_from(_ODD_DATES))
_longitude, _latitude = _degrees(180), _degrees(90)
_url = st.builds(
    str.format,
    st.sampled_from(
        [
            *["https://{0}.org/{1}/{2}?q=1"] * 10, "http://{0}.org/{1}", "http://www.{0}.org",
            "https://{0}.org:8443/{1}#{2}", "https://{1}:{2}@{0}.org/", "HTTPS://{0}.ORG/{1}?u=https://{2}.org/",
            "ftp://{0}.org/{1}", "/{1}/{2}",
        ]
    ), _word, _word, _word,
)  # fmt: skip


@st.composite
def _polygons(draw: DrawFn) -> bytes:
    wide, high = draw(_rounded_floats(0.1, 8, (1, 6))), draw(_rounded_floats(0.1, 6, (1, 6)))
    x, y = min(draw(_longitude) - wide / 2, 170.0), min(draw(_latitude) - high / 2, 80.0)
    shell = [(x, y), (x + wide, y), (x + wide, y + high), (x + wide / 3, y + high)]
    hole = [(x + wide * 0.5, y + high * 0.2), (x + wide * 0.7, y + high * 0.2), (x + wide * 0.6, y + high * 0.4)]
    dice = draw(st.integers(0, 19))
    shape = shapely.Polygon(shell, [hole] if 12 <= dice < 19 else None) if dice < 19 else shapely.Polygon()
    return bytes(shapely.to_wkb(shape))


HINTS: dict[str, Sample] = {
    "longitude": Sample("double", _longitude),
    "latitude": Sample("double", _latitude),
    "words": Sample("string", _word),
    "agents": Sample("string", st.sampled_from(_AGENTS)),
    "zip codes": Sample("string", _digits),
    "addresses": Sample("string", st.builds("{}.{}.{}.{}".format, *[st.sampled_from([10, 127, 192, 203, 8])] * 4)),
    "urls": Sample("string", _url),
    "points": Sample("binary", st.builds(lambda x, y: shapely.Point(x, y).wkb, _longitude, _latitude)),
    "polygons": Sample("binary", _polygons()),
}
"""Values with a meaning; geometries as WKB."""

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
_OF_TYPE: dict[str, Strategy] = {
    "string": _text,
    "double": _real,
    "bigint": _whole(64),
    "int": _whole(32),
    "date": _date,
    "boolean": st.booleans(),
    "binary": _text.map(lambda text: text.encode("utf-8")),
    "smallint": _whole(16),
    "tinyint": _whole(8),
    "float": _real.map(lambda number: pa.scalar(number, pa.float64()).cast(pa.float32()).as_py()),
    "timestamp_ntz": st.builds(lambda day, hour: dt.datetime(day.year, day.month, day.day, hour, 30), _date,
                               st.integers(0, 23)),
}  # fmt: skip

VALUE_TYPES = tuple(_OF_TYPE)
"""Spark types with a strategy of their own, the usual ones first."""


def sample_of(wanted: Any) -> Sample:
    """Sample for a Spark type, a hint or some values; raises MappingError for anything else."""
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
            return Sample(name, st.lists(_OF_TYPE[kind.element.name], max_size=4))
        if kind.is_decimal:
            return Sample(name, _whole(20).map(lambda number: Decimal(number).scaleb(-kind.scale)))
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
    return Sample(str(kinds.pop()), st.sampled_from(own), own=True)


def hint_of(name: str, kind: str | None) -> Sample | None:
    """Sample for a hint in an argument's name, such as ``lat`` for latitudes, or None."""
    hint = next((HINTS[hint] for pattern, hint in _BY_NAME if re.search(pattern, name.lower())), None)
    return hint if hint is not None and kind in (None, hint.kind) else None


def spark_type(value: Any) -> str | None:
    """Spark's type of a plain value or of a Python type, or None."""
    kind = value if isinstance(value, type) else type(value)
    return _PYTHON.get(kind)


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type of a Spark type's name; raises MappingError for unsupported types."""
    of = leaf = sql_type(kind)
    while leaf.kind == "array":
        leaf = leaf.element
    if leaf.kind in _OF_TYPE or leaf.is_text or leaf.is_decimal:
        return of.arrow
    raise MappingError(f"values of type {kind} cannot be made here; give spark=, and values of your own in rows=")


def physical_value(value: Any) -> Any:
    """Convert a plain value to its form in predicates (:mod:`geoskip.predicates`)."""
    match value:
        case dt.datetime():
            return (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
        case dt.date():
            return (value - dt.date(1970, 1, 1)).days
        case list():
            return tuple(map(physical_value, value))
    return value


# ---- constants in code

_MOST = 60
_LONGEST = 300
"""The greatest number in code that is treated as the length of a text."""
_OPERATORS = ("=", "<=>", "<", "<=", ">", ">=", "double", "string", "bigint", "int", "boolean", "date")
"""Strings in mappings that are not values."""


def constants_of(functions: Sequence[Any]) -> list[Any]:
    """Numbers and texts in the code, defaults, closures and globals of some functions."""
    constants: dict[str, Any] = {}
    for value in itertools.chain.from_iterable(_constants(function, 0) for function in functions):
        if not isinstance(value, bool) and len(constants) < _MOST:
            constants.setdefault(repr(value), value)
    return list(constants.values())


def _constants(value: Any, depth: int) -> Iterator[Any]:
    if isinstance(value, int | float | str):
        if not isinstance(value, str) or (0 < len(value) <= 40 and value not in _OPERATORS):
            yield value
    elif isinstance(value, tuple | list | set | frozenset) and len(value) <= 50 and depth < 4:
        for item in value:
            yield from _constants(item, depth + 1)
    elif isinstance(value, dict) and len(value) <= 50 and depth < 4:
        yield from _constants([*value, *value.values()], depth + 1)
    elif isinstance(value, types.CodeType):
        for constant in value.co_consts[1:] if _has_docstring(value) else value.co_consts:
            yield from _constants(constant, depth + 1)
    elif isinstance(value, types.FunctionType) and depth < 3:
        yield from _constants(value.__code__, depth)
        yield from _constants([*(value.__defaults__ or ())], depth + 1)
        for cell in value.__closure__ or ():
            if cell != types.CellType():
                yield from _constants(cell.cell_contents, depth + 1)
        names = {str(s.argval) for s in dis.get_instructions(value) if s.opname == "LOAD_GLOBAL"}
        for name in sorted(names & value.__globals__.keys()):
            yield from _constants(value.__globals__[name], depth + 1)


def _has_docstring(code: types.CodeType) -> bool:
    first = code.co_consts[0] if code.co_consts else None
    return isinstance(first, str) and (" " in first or "\n" in first)


def near(sample: Sample, constants: Sequence[Any]) -> Sample:
    """Mix values at and next to constants into a sample; the user's own values stay unchanged."""
    kind = sample.kind
    numbers = [c for c in constants if isinstance(c, int | float) and math.isfinite(c)]
    mixed: list[Strategy] = []
    if most := sql_type(kind).values.stop:
        whole = [int(c) for c in numbers if abs(c) < most - 1]
        mixed = [st.builds(int.__add__, st.sampled_from(whole), st.sampled_from([0, 0, -1, 1]))] if whole else []
    elif kind == "double" and numbers:
        mixed = [st.builds(_beside, st.sampled_from(list(map(float, numbers))), st.integers(0, 7))]
    elif kind == "string":
        texts = [c for c in constants if isinstance(c, str)]
        lengths = [c for c in numbers if isinstance(c, int) and 3 < c <= _LONGEST]
        some = st.sampled_from(["{0}", "{0}{1}", "{1}{0}", "{1}{0}{2}", "{1}{0}{2}{0}{1}", "{3}", "{4}"])
        if texts:
            mixed.append(st.builds(_around, some, st.sampled_from(texts), _word, st.one_of(_word, _digits)))
        if lengths:
            ends = st.sampled_from(["", "a", "b"])
            mixed.append(st.builds(lambda n, cut, one, end: one * (n - cut) + end, st.sampled_from(lengths),
                                   st.integers(0, 1), st.sampled_from("az"), ends))  # fmt: skip
    if not mixed or sample.own:
        return sample
    third = st.integers(0, 2)  # limits the share of a strategy with many alternatives
    return replace(sample, strategy=third.flatmap(lambda dice: st.one_of(mixed) if dice == 2 else sample.strategy))


def _beside(number: float, dice: int) -> float:
    beside = [math.nextafter(number, math.inf), math.nextafter(number, -math.inf), number + 0.5, number - 0.5]
    return beside[dice - 4] if dice >= 4 else number


def _around(form: str, text: str, one: str, other: str) -> str:
    return form.format(text, one, other, text.upper(), text[:-1])


# ---- rows


def rows_of(samples: Mapping[str, Sample], constants: Sequence[Any]) -> Strategy:
    """Strategy of rows, each a dict by argument; given numeric ``constants``, mostly rows at their edges."""
    plain = st.fixed_dictionaries({name: sample.nullable for name, sample in samples.items()})
    numbers = [float(c) for c in constants if isinstance(c, int | float) and math.isfinite(c) and abs(c) < 1e9]
    axes = [
        name
        for name, sample in samples.items()
        if not sample.own and (sql_type(sample.kind).is_integral or sample.kind == "double")
    ]
    edges = _edges(samples, numbers, axes) if numbers and axes else st.nothing()
    return st.one_of(plain, edges, edges)


@st.composite
def _edges(draw: DrawFn, samples: Mapping[str, Sample], numbers: Sequence[float], axes: Sequence[str]) -> Any:
    """Rows at distances given by constants from a place given by constants, along one axis.

    Only such rows reveal a box that is too narrow on one side: all arguments but one must be at the place, and that one
    just within the distance.
    """
    row = {name: draw(sample.strategy) for name, sample in samples.items() if name not in axes}
    number = st.sampled_from(numbers)
    if draw(st.integers(0, 9)) < 8:  # the coordinates of a place are adjacent in the code
        first = draw(st.integers(0, len(numbers) - 1))
        place = [numbers[(first + n) % len(numbers)] for n in range(len(axes))]
    else:
        place = [draw(number) for _ in axes]
    axis, distance = draw(st.sampled_from(axes)), draw(number)
    distance *= draw(st.sampled_from([1.0, 0.999, 0.95])) * draw(st.sampled_from([-1, 1]))
    for name, rest in zip(axes, place, strict=True):
        value, sample = rest + (distance if name == axis else 0.0), samples[name]
        values = sql_type(sample.kind).values
        row[name] = value if sample.kind == "double" else max(values[0], min(values[-1], round(value)))
    return {name: row[name] for name in samples}


# ---- Hypothesis's engine

_BATCH = 20


class OutOfTime(BaseException):
    """Raised by a condition to end :func:`minimal`; Hypothesis would treat an Exception as a failure."""


def minimal(strategy: Strategy, condition: Callable[[Any], bool], seed: object, *, examples: int) -> Any:
    """The simplest value that Hypothesis finds for a condition, or None; deterministic for a seed.

    Parameters
    ----------
    strategy, condition
        The values to draw, none of them None, and a predicate that returns True for the values to find.
    seed, examples
        Any object with a unique text, and the number of values to try.
    """
    met: list[Any] = []

    def meets(value: Any) -> bool:
        if condition(value):
            met.append(value)
            return True
        return False

    phases = (Phase.generate, Phase.shrink)
    options = settings(max_examples=examples, database=None, deadline=None, derandomize=False, phases=phases)
    try:
        return find(strategy, meets, settings=options, random=random.Random(str(seed)))
    except NoSuchExample:
        return None
    except (Flaky, OutOfTime):  # Flaky is raised for functions that are not deterministic
        return met[-1] if met else None


def drawn(strategy: Strategy, seed: object) -> Any:
    """One value of a strategy, deterministic for a seed."""
    values: list[Any] = []

    def keep(value: Any) -> bool:
        values.append(value)
        return False

    minimal(strategy, keep, seed, examples=2)
    return values[-1]  # the first value is the simplest


def samples(strategy: Strategy, seed: object, count: int) -> list[Any]:
    """``count`` values of a strategy, deterministic for a seed."""
    lists = st.lists(strategy, min_size=_BATCH, max_size=_BATCH)
    values = [value for n in range(-(-count // _BATCH)) for value in drawn(lists, f"{seed} {n}")]
    return values[:count]
