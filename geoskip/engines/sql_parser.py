"""Conditions in SQL as trees of sqlglot, and what a node of such a tree is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geoskip.engines.extras import require_package
from geoskip.errors import InvalidSpecificationError

QUOTES = {"spark": "`", "duckdb": '"'}
"""The mark around names, by dialect."""
COMPARISONS = {"EQ": "=", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
"""The comparisons by sqlglot's names, as are the others."""
_FUNCTIONS = frozenset(("Anonymous", "Contains", "EndsWith", "IsInf", "IsNan", "StartsWith"))
CONDITIONS = _FUNCTIONS | frozenset(("Between", "Escape", "In", "Is", "Like", "NullSafeEQ", "NullSafeNEQ"))
"""Nodes that are TRUE, FALSE or NULL."""


def parse_condition(text: str, dialect: str, names: Sequence[str] = ()) -> Any:
    """Parse a condition; raises InvalidSpecificationError with the position of what is wrong."""
    if dialect not in QUOTES:
        raise InvalidSpecificationError(f"dialect= is one of {', '.join(QUOTES)}, got {dialect!r}")
    sqlglot = require_package("sqlglot", "a condition in SQL")
    try:
        return sqlglot.parse_one(text, read=dialect, into=sqlglot.exp.Condition)
    except sqlglot.errors.SqlglotError as error:
        places = getattr(error, "errors", None) or [{}]
        where, near = places[0], str(places[0].get("highlight") or "")
        position = f" at line {where['line']}, column {where['col']}, near {near!r}" if near else ""
        hint = quoting_hint(text, names, dialect) or "; write what stands after WHERE"
        raise InvalidSpecificationError(f"{text!r} is no condition in the dialect {dialect}{position}{hint}") from None
    except RecursionError:
        raise InvalidSpecificationError("the condition is nested too deep to be parsed; split it") from None


def quoting_hint(text: str, names: Sequence[str], dialect: str) -> str:
    """Return how to write a column whose name needs quotes and stands in a text without, or "".

    >>> quoting_hint("first name = 'x'", ["name", "first name"], "spark")
    '; write `first name` for the column first name'
    """
    mark = QUOTES[dialect]
    for name in names:
        if not name.isidentifier() and name in text and mark + name not in text:
            return f"; write {mark}{name}{mark} for the column {name}"
    return ""


def has_only(node: Any, *names: str) -> bool:
    """True where a node has no further settings, which a newer parser may add."""
    return all(name in names or not value for name, value in node.args.items())


def is_condition(node: Any, *, within: bool = False) -> bool:
    """True for a function, or for a comparison or another condition in parentheses."""
    kind = type(node).__name__
    if kind == "Paren":
        return is_condition(node.this, within=True)
    return kind in _FUNCTIONS or (within and kind in {*CONDITIONS, *COMPARISONS, "And", "Not", "Or"})
