"""Intervals of strings and binary, all files at once, in Spark's order: by unsigned bytes.

Arrow compares so too. (The order of UTF-16 units, the JVM's own, differs above U+FFFF.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.bounds.sort_keys import IncomparableError
from geoskip.clauses import Mask
from geoskip.evaluation.values import successor
from geoskip.predicates import Literal

__all__ = ["ByteStrings", "certain", "encoded", "literal_prefix", "literal_suffix", "literal_text", "successor"]


@dataclass(frozen=True)
class ByteStrings:
    """Bounds of strings or binary; null is unbounded, ``empty`` marks files without values."""

    low: pa.Array
    high: pa.Array
    empty: Mask
    exact: Mask

    @property
    def present(self) -> Mask:
        """Files that may hold a value."""
        return np.asarray(~self.empty)

    def reaches(self, least: bytes) -> Mask:
        """Files where some value may be ``least`` or above."""
        return _or_unbounded(pc.greater_equal(self.high, _scalar(least, self.high))) & ~self.empty

    def begins(self, most: bytes | None, *, below: bool = False) -> Mask:
        """Files where some value may be ``most`` or below, or strictly below; None is above everything."""
        if most is None:
            return self.present
        compare = pc.less if below else pc.less_equal
        return _or_unbounded(compare(self.low, _scalar(most, self.low))) & ~self.empty

    def meets(self, op: str, value: bytes) -> Mask:
        """Files where some value may stand in ``op`` to this one."""
        match op:
            case ">":
                return _or_unbounded(pc.greater(self.high, _scalar(value, self.high))) & ~self.empty
            case ">=":
                return self.reaches(value)
            case "<" | "<=":
                return self.begins(value, below=op == "<")
        return self.reaches(value) & self.begins(value)

    def meets_any(self, values: list[bytes]) -> Mask:
        """Files where some value may be equal to one of these."""
        ordered = sorted(set(values))
        if not ordered:
            return np.zeros(len(self.empty), dtype=bool)
        found = self.reaches(ordered[0]) & self.begins(ordered[-1])
        if len(ordered) > 1:
            chosen = np.flatnonzero(found)
            table = np.array([*ordered, None], dtype=object)
            low, high = self.low.take(pa.array(chosen)).to_pylist(), self.high.take(pa.array(chosen)).to_pylist()
            at = np.searchsorted(table[:-1], np.array([b"" if v is None else v for v in low], dtype=object))
            found[chosen] = [
                i < len(ordered) and (top is None or table[i] <= top) for i, top in zip(at, high, strict=True)
            ]
        return found

    def leaves_all(self, values: list[bytes]) -> Mask:
        """Files where some value may differ from all of these: not where one of them is the only value."""
        same = certain(pc.equal(self.low, self.high)) & self.exact
        same &= certain(pc.is_in(self.low, pa.array(sorted(set(values)), self.low.type)))
        return np.asarray(~same & ~self.empty)

    def leaves_prefix(self, prefix: bytes) -> Mask:
        """Files where some value may not begin with the prefix: not where both bounds begin so."""
        inside = certain(pc.greater_equal(self.low, _scalar(prefix, self.low)))
        above = successor(prefix)
        if above is not None:
            inside = inside & certain(pc.less(self.high, _scalar(above, self.high)))
        return np.asarray(~inside & ~self.empty)


def encoded(literal: Literal) -> bytes:
    """A string or binary literal as bytes."""
    value = literal.value
    try:
        return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(memoryview(value))
    except (TypeError, UnicodeEncodeError):
        raise IncomparableError(f"{literal} is neither a string nor binary") from None


def _scalar(value: bytes, like: pa.Array) -> pa.Scalar:
    return pa.scalar(value, like.type)


def _or_unbounded(answer: pa.Array) -> Mask:
    return np.asarray(answer.fill_null(True).to_numpy(zero_copy_only=False), dtype=bool)


def certain(answer: pa.Array) -> Mask:
    """A boolean array as a mask, null as False."""
    return np.asarray(answer.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)


def literal_prefix(pattern: str, escape: str) -> tuple[str, bool]:
    """The text that all matches of a LIKE pattern begin with, and True if all that begins so matches.

    Spark matches LIKE on the decoded string, where each invalid byte reads as U+FFFD: the prefix ends before one.

    >>> literal_prefix("a_b%", "!"), literal_prefix("50!%%", "!"), literal_prefix("x%%", "!")
    (('a', False), ('50%', True), ('x', True))
    """
    prefix, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        if char == escape:
            at += 1
            if pattern[at : at + 1] not in (escape, "_", "%") or at >= len(pattern):
                return "", False  # Spark refuses such a pattern
            char = pattern[at]
        elif char in "_%":
            break
        if char == "\ufffd" or "\ud800" <= char <= "\udfff":
            return prefix, False
        prefix += char
        at += 1
    rest = pattern[at:]
    return prefix, bool(rest) and set(rest) == {"%"}


def literal_text(pattern: str, escape: str) -> str | None:
    """The one text that a LIKE pattern without wildcards matches; None for other patterns.

    >>> literal_text("a!_c", "!"), literal_text("a_c", "!"), literal_text("a!", "!")
    ('a_c', None, None)
    """
    text, _ = literal_prefix(pattern, escape)
    written = "".join(escape + char if char in (escape, "_", "%") else char for char in text)
    return text if written == pattern else None


def literal_suffix(pattern: str, escape: str) -> tuple[str, bool]:
    """The text that all matches of a LIKE pattern end with, and True if all that ends so matches.

    >>> literal_suffix("%b_a", "!"), literal_suffix("%5!%", "!"), literal_suffix("a%", "!"), literal_suffix("a", "!")
    (('a', False), ('5%', True), ('', False), ('a', False))
    """
    parts: list[str | None] = []  # None for a wildcard
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == escape:
            at += 1
            if pattern[at : at + 1] not in (escape, "_", "%") or at >= len(pattern):
                return "", False  # Spark refuses such a pattern
            parts.append(pattern[at])
        else:
            parts.append(None if char in "_%" else char)
        at += 1
    plain = len(parts)
    while plain and (char_at := parts[plain - 1]) is not None and not _undecoded(char_at):
        plain -= 1
    suffix = "".join(filter(None, parts[plain:]))
    return suffix, plain > 0 and set(pattern[: len(pattern) - _width(parts[plain:], escape)]) == {"%"}


def _undecoded(char: str) -> bool:
    return char == "\ufffd" or "\ud800" <= char <= "\udfff"


def _width(parts: list[str | None], escape: str) -> int:
    """The number of characters of a pattern that these literal ones take."""
    return sum(2 if part in (escape, "_", "%") else 1 for part in parts)
