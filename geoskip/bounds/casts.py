"""Casts between numeric types that keep every number, or round it to the next double."""

from __future__ import annotations

import re

from geoskip.predicates import Cast, Predicate

__all__ = ["keeps_numbers", "rounds", "uncast"]

_WHOLE = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}


def uncast(node: Predicate) -> Predicate:
    """An expression without the casts over it that keep every number, or round it to a double as collecting does."""
    while isinstance(node, Cast) and node.source is not None and keeps_numbers(node.source, node.type):
        node = node.child
    return node


def rounds(node: Predicate) -> bool:
    """Is it a number that one of the casts over it may round to a double?

    >>> from geoskip.predicates import Column
    >>> [rounds(Cast(Column("n", kind), "double", kind)) for kind in ("int", "bigint", "decimal(5,2)")]
    [False, True, True]
    """
    while isinstance(node, Cast) and node.source is not None and keeps_numbers(node.source, node.type):
        if node.type == "double" and (node.source == "bigint" or node.source.startswith("decimal")):
            return True
        node = node.child
    return False


def keeps_numbers(source: str, target: str) -> bool:
    """Does a cast between these types keep every number, or round it to the next double?

    >>> keeps_numbers("decimal(10,2)", "decimal(12,4)"), keeps_numbers("int", "decimal(11,1)")
    (True, True)
    >>> keeps_numbers("decimal(10,2)", "decimal(12,5)"), keeps_numbers("double", "float")
    (False, False)
    """
    if target == "double":
        return source in _WHOLE or source in ("float", "double") or source.startswith("decimal")
    if source in _WHOLE and target in _WHOLE:
        return _WHOLE[source] <= _WHOLE[target]
    before, after = _digits(source), _digits(target)
    return before is not None and after is not None and all(b <= a for b, a in zip(before, after, strict=True))


def _digits(kind: str) -> tuple[int, int] | None:
    """The digits before and after the point of a whole or decimal type."""
    if kind in _WHOLE:
        return _WHOLE[kind], 0
    found = re.fullmatch(r"decimal\((\d+), ?(\d+)\)", kind)
    return (int(found[1]) - int(found[2]), int(found[2])) if found else None
