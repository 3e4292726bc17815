"""The texts that all matches of a LIKE pattern begin and end with.

Spark matches LIKE on the decoded string, where each invalid byte reads as U+FFFD: such a text ends before one.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile


def literal_prefix(pattern: str, escape: str) -> tuple[str, bool]:
    """The text that all matches of a LIKE pattern begin with, and True if all that begins so matches.

    >>> literal_prefix("a_b%", "!"), literal_prefix("50!%%", "!"), literal_prefix("x%%", "!")
    (('a', False), ('50%', True), ('x', True))
    """
    tokens = _tokens(pattern, escape) or []
    prefix = _literal(tokens)
    return prefix, _matches_all(tokens[len(prefix) :])


def literal_suffix(pattern: str, escape: str) -> tuple[str, bool]:
    """The text that all matches of a LIKE pattern end with, and True if all that ends so matches.

    >>> literal_suffix("%b_a", "!"), literal_suffix("%5!%", "!"), literal_suffix("a%", "!"), literal_suffix("a", "!")
    (('a', False), ('5%', True), ('', False), ('a', False))
    """
    tokens = _tokens(pattern, escape) or []
    suffix = _literal(reversed(tokens))[::-1]
    return suffix, _matches_all(tokens[: len(tokens) - len(suffix)])


def literal_text(pattern: str, escape: str) -> str | None:
    """The one text that a LIKE pattern without wildcards matches; None for other patterns.

    >>> literal_text("a!_c", "!"), literal_text("a_c", "!"), literal_text("a!", "!")
    ('a_c', None, None)
    """
    tokens = _tokens(pattern, escape)
    text = _literal(tokens or [])
    return text if tokens is not None and len(text) == len(tokens) else None


def _tokens(pattern: str, escape: str) -> list[tuple[str, bool]] | None:
    """The characters of a pattern, each with True for a wildcard; None for a pattern that Spark refuses."""
    tokens, rest = [], iter(pattern)
    for char in rest:
        escaped = next(rest, None) if char == escape else None
        if char == escape and escaped not in (escape, "_", "%"):
            return None
        tokens.append((escaped or char, escaped is None and char in "_%"))
    return tokens


def _literal(tokens: Iterable[tuple[str, bool]]) -> str:
    return "".join(char for char, _ in takewhile(lambda token: not token[1] and _is_decoded(token[0]), tokens))


def _is_decoded(char: str) -> bool:
    return char != "\ufffd" and not "\ud800" <= char <= "\udfff"


def _matches_all(tokens: list[tuple[str, bool]]) -> bool:
    return bool(tokens) and all(token == ("%", True) for token in tokens)
