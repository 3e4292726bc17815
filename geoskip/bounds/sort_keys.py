"""Order-preserving keys for comparing the intervals of all files with a literal at once.

Bounds of fixed-width types become two int64 arrays of *keys* in Spark's order of the values, so that a comparison is
one or two numpy operations over all files:

============================= ==================================================================================
integers, dates, timestamps   the value itself
decimals                      the unscaled value; if it exceeds 64 bits, its rank among all bounds
booleans                      0 and 1
floats, doubles               the bits, mapped so that they order as numbers; ``-0.0`` as ``0.0``; NaN, above ``inf``,
                              has its own key outside of the range
a file without values         (LAST, FIRST), an empty range: no comparison is TRUE
unknown                       (FIRST, LAST): every comparison may be TRUE
============================= ==================================================================================

LIKE is compared by the prefix and the suffix common to all matches. Spark matches LIKE on the decoded string, where
each invalid byte becomes U+FFFD; so these texts end before a U+FFFD or an invalid byte of the pattern.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geoskip.clauses import Mask
from geoskip.conditions import AllOf, Compare, Condition, Negation, SomeValue, any_holds
from geoskip.evaluation.values import FIRST, LAST, NAN_KEY, float_keys, like_tokens
from geoskip.predicates import Literal

Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]
LiteralKey = tuple[int, bool]
"""The key of the greatest value not above a literal, and True if the value equals the literal."""

_EPOCH = dt.datetime(1970, 1, 1)
_DAY_ZERO = dt.date(1970, 1, 1).toordinal()


class IncomparableError(Exception):
    """A literal or a function that cannot be compared with an interval: files are kept."""


@dataclass(frozen=True)
class SortKeys:
    """Order-preserving keys: every value v of a file has ``low <= key(v) <= high``."""

    low: Ints
    high: Ints
    nan: Mask | None = None
    """Files that may contain NaN in addition to the values between the keys."""

    @property
    def numbers(self) -> Mask:
        """Files that may contain a value other than NaN."""
        return np.asarray(self.low <= self.high)

    @property
    def present(self) -> Mask:
        """Files that may contain a value."""
        return self.numbers if self.nan is None else self.numbers | self.nan

    def hull(self) -> SortKeys:
        """Return one interval per file, with NaN as the upper bound if NaN may occur.

        >>> found = SortKeys(np.array([5, LAST]), np.array([5, FIRST]), np.array([True, True])).hull()
        >>> (found.low == [5, NAN_KEY]).tolist(), (found.high == NAN_KEY).tolist()
        ([True, True], [True, True])
        """
        if self.nan is None:
            return self
        low = np.where(self.nan & (self.low > self.high), NAN_KEY, self.low)
        return SortKeys(low, np.where(self.nan & (self.high < NAN_KEY), NAN_KEY, self.high))

    @property
    def unknown(self) -> Mask:
        """Files with unknown values."""
        return np.asarray((self.low == FIRST) & (self.high == LAST))


PRESENT, NUMBERS, NAN = (Compare(column, "=", True) for column in ("present", "numbers", "nan"))
UNKNOWN = AllOf((Compare("low", "=", FIRST), Compare("high", "=", LAST)))


def keys_meet(op: str, places: Sequence[LiteralKey], *, nan: bool) -> Condition:
    """Return the condition that ``value op literal`` may hold for some value and one of the literals.

    Parameters
    ----------
    op : str
        ``=``, ``<``, ``<=``, ``>`` or ``>=``; several literals only for ``=``.
    places : sequence of LiteralKey
        The literals' keys.
    nan : bool
        True if the values may include NaN.

    >>> str(keys_meet("<", [(3, True)], nan=False)), str(keys_meet("=", [(2, False)], nan=False))
    ('low < 3', '(low <= 2 AND high > 2)')
    """
    if op == "=":
        keys = tuple(sorted({at for at, exact in places if exact and FIRST <= at <= LAST}))
        parts = [*([SomeValue(keys)] if keys else []), *(_lies_above(at) for at, exact in places if not exact)]
        return any_holds([*parts, NAN] if nan and NAN_KEY in keys else parts or [UNKNOWN])
    (at, exact), *_ = places
    found = _order_meets(op, at, exact)
    of_nan = op[0] == ">" if at < NAN_KEY else op[1:] == "="
    return any_holds([found, NAN]) if nan and of_nan else found


def _lies_above(at: int) -> Condition:
    """Return the condition that some value may lie between a key and the next, as for rounded decimals."""
    if not FIRST <= at <= LAST:
        return UNKNOWN
    return AllOf((Compare("low", "<=", at), Compare("high", ">", at) if at < LAST else Compare("high", "=", LAST)))


def _order_meets(op: str, at: int, exact: bool) -> Condition:
    if not FIRST <= at <= LAST:  # above or below all keys
        return PRESENT if (op[0] == ">") is (at < FIRST) else UNKNOWN
    match op:
        case ">=" if exact:
            return Compare("high", ">=", at)
        case ">" | ">=":
            return Compare("high", ">", at) if at < LAST else UNKNOWN
        case "<" if exact:
            return Compare("low", "<", at) if at > FIRST else UNKNOWN
    return Compare("low", "<=", at)


def keys_differ(places: Sequence[LiteralKey], *, nan: bool) -> Condition:
    """Return the condition that some value may differ from all literals: none is the only value."""
    keys = tuple(sorted({at for at, exact in places if exact and FIRST <= at <= LAST}))
    if not keys:
        return PRESENT
    differs = Negation(SomeValue(keys, equal=True))
    if not nan or NAN_KEY in keys:
        return AllOf((differs, NUMBERS if nan else PRESENT))
    return any_holds([AllOf((differs, NUMBERS)), NAN])


def physical(value: Any) -> Any:
    """Convert a value to its physical form: dates to days, timestamps and durations to microseconds.

    >>> physical(dt.date(1970, 1, 2)), physical(dt.datetime(1970, 1, 1, 0, 0, 1)), physical(np.float32(0.5))
    (1, 1000000, 0.5)
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dt.datetime):
        plain = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
        return (plain - _EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return value.toordinal() - _DAY_ZERO
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(microseconds=1)
    return value


def real_key(value: Any, kind: str | None) -> LiteralKey:
    """Return the key of a literal among doubles; ``kind`` is its type."""
    below, exact = real_below(value, kind)
    return (NAN_KEY, True) if below != below else (int(float_keys(np.array([below]))[0]), exact)


def real_below(value: Any, kind: str | None) -> tuple[float, bool]:
    """Return the greatest double not above a literal of a type, and True if they are equal; NaN for NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise IncomparableError(f"{value!r} is no number")
    if value != value:
        return math.nan, True
    if kind == "float":
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    near = nearest_real(value)
    below = math.nextafter(near, -math.inf) if near > value else near
    return below, below == value


def nearest_real(value: int | float | Decimal | Fraction, *, single: bool = False) -> float:
    """Return the double, or the 32-bit float, nearest to a number.

    >>> nearest_real(10**400), nearest_real(2**24 + 1, single=True), nearest_real(-1e300, single=True)
    (inf, 16777216.0, -inf)
    """
    try:
        double = float(value)
    except OverflowError:
        double = math.inf if value > 0 else -math.inf
    with np.errstate(over="ignore"):
        return float(np.float32(double)) if single else double


def number_key(value: Any, scale: int) -> LiteralKey:
    """Return the key of a literal among numbers that are stored times ``10 ** scale``."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise IncomparableError(f"{value!r} is no number")
    if isinstance(value, int) and scale == 0:
        return value, True
    if value != value or value in (math.inf, -math.inf):
        return (FIRST - 1 if value == -math.inf else LAST + 1), False
    if isinstance(value, Decimal) and value and abs(value.adjusted()) > 400:  # avoid writing out the digits
        if value.adjusted() < 0:
            return -(value < 0), False
        return (FIRST - 1 if value < 0 else LAST + 1), False
    scaled = Fraction(value) * Fraction(10) ** scale
    return math.floor(scaled), scaled.denominator == 1


def comparable(kind: str, literal: Literal) -> bool:
    """True if a literal's type, if known, agrees with an interval's: Spark compares equal types only."""
    named = literal.type
    if isinstance(literal.value, dt.datetime) and (literal.value.tzinfo is None) is (kind == "timestamp"):
        return False  # its time zone is not known
    if isinstance(literal.value, dt.date) and not isinstance(literal.value, dt.datetime) and kind != "date":
        return False
    return named is None or named == kind or (kind == "interval" and named.startswith("interval"))


def literal_prefix(pattern: str, escape: str) -> tuple[str, bool]:
    """Return the prefix of all matches of a LIKE pattern, and True if every text with it matches.

    >>> literal_prefix("a_b%", "!"), literal_prefix("50!%%", "!"), literal_prefix("x%%", "!")
    (('a', False), ('50%', True), ('x', True))
    """
    tokens = like_tokens(pattern, escape) or []
    prefix = _literal(tokens)
    return prefix, _matches_all(tokens[len(prefix) :])


def literal_suffix(pattern: str, escape: str) -> tuple[str, bool]:
    """Return the suffix of all matches of a LIKE pattern, and True if every text with it matches.

    >>> literal_suffix("%b_a", "!"), literal_suffix("%5!%", "!"), literal_suffix("a%", "!"), literal_suffix("a", "!")
    (('a', False), ('5%', True), ('', False), ('a', False))
    """
    tokens = like_tokens(pattern, escape) or []
    suffix = _literal(reversed(tokens))[::-1]
    return suffix, _matches_all(tokens[: len(tokens) - len(suffix)])


def literal_text(pattern: str, escape: str) -> str | None:
    """Return the only text that a LIKE pattern without wildcards matches; None for other patterns.

    >>> literal_text("a!_c", "!"), literal_text("a_c", "!"), literal_text("a!", "!")
    ('a_c', None, None)
    """
    tokens = like_tokens(pattern, escape)
    text = _literal(tokens or [])
    return text if tokens is not None and len(text) == len(tokens) else None


def _literal(tokens: Iterable[tuple[str, bool]]) -> str:
    return "".join(char for char, _ in takewhile(lambda token: not token[1] and _is_decoded(token[0]), tokens))


def _is_decoded(char: str) -> bool:
    return char != "\ufffd" and not "\ud800" <= char <= "\udfff"


def _matches_all(tokens: list[tuple[str, bool]]) -> bool:
    return bool(tokens) and all(token == ("%", True) for token in tokens)
