"""Intervals of strings and binary, all files at once, in Spark's order: by unsigned bytes.

Arrow compares so too. (The order of UTF-16 units, the JVM's own, differs above U+FFFF.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from geoskip.bounds.sort_keys import PRESENT, IncomparableError
from geoskip.clauses import Mask
from geoskip.conditions import AllOf, Compare, Condition, Negation, SomeValue
from geoskip.evaluation.values import successor
from geoskip.predicates import Literal

__all__ = [
    "ByteStrings",
    "certain",
    "encoded",
    "literal_prefix",
    "literal_suffix",
    "literal_text",
    "prefix_differs",
    "prefix_meets",
    "successor",
    "texts_differ",
    "texts_meet",
]


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


def texts_meet(op: str, values: Sequence[bytes]) -> Condition:
    """The condition that some value may stand in ``op`` to one of these; several are for ``=``."""
    if op == "=":
        return AllOf((SomeValue(tuple(sorted(set(values)))), PRESENT))
    return AllOf((Compare("high" if op[0] == ">" else "low", op, values[0]), PRESENT))


def texts_differ(values: Sequence[bytes]) -> Condition:
    """The condition that some value may differ from all of these: not where one of them is the only value."""
    same = SomeValue(tuple(sorted(set(values))), equal=True)
    return AllOf((Negation(AllOf((same, Compare("exact", "=", True)))), PRESENT))


def prefix_meets(prefix: bytes) -> Condition:
    """The condition that some value may begin with a prefix."""
    above = successor(prefix)
    begins = () if above is None else (Compare("low", "<", above),)
    return AllOf((Compare("high", ">=", prefix), *begins, PRESENT))


def prefix_differs(prefix: bytes) -> Condition:
    """The condition that some value may not begin with a prefix: not where both bounds begin so."""
    above = successor(prefix)
    ends = () if above is None else (Compare("high", "<", above),)
    return AllOf((Negation(AllOf((Compare("low", ">=", prefix), *ends))), PRESENT))


def encoded(literal: Literal) -> bytes:
    """A string or binary literal as bytes."""
    value = literal.value
    try:
        return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(memoryview(value))
    except (TypeError, UnicodeEncodeError):
        raise IncomparableError(f"{literal} is neither a string nor binary") from None


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
