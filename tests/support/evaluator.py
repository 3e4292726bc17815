"""Evaluation of a predicate on one row as in Spark: the oracle of the tests that need no JVM.

It is written from Spark's semantics and not from geoskip's code. Values are physical (:mod:`geoskip.predicates`), and a
row is a dictionary from column names to values. The result for a condition is the *set* of its possible outcomes among
True, False and None, because an evaluation that throws counts as all three (soundness rule 1).
"""

from __future__ import annotations

import itertools
import math
import re
import zlib
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np

from geoskip import predicates as p

Row = Mapping[str, Any]
Outcomes = frozenset[bool | None]
ALL: Outcomes = frozenset({True, False, None})
WIDTHS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
DAY = 86_400_000_000


class Throws(Exception):
    """An evaluation in which Spark would throw."""


def outcomes(node: p.Predicate, row: Row) -> Outcomes:
    """The possible outcomes of a condition."""
    match node:
        case p.And(children):
            return _combined(_and, [outcomes(c, row) for c in children], True)
        case p.Or(children):
            return _combined(_or, [outcomes(c, row) for c in children], False)
        case p.Not(child):
            return frozenset(None if v is None else not v for v in outcomes(child, row))
        case p.Call("if", (test, then, other)):
            found: Outcomes = frozenset()
            for verdict in outcomes(test, row):
                found |= outcomes(then if verdict else other, row)
            return found
        case p.Call("coalesce", (first, *rest)) if node.type == "boolean":
            found = outcomes(first, row)
            if None in found and rest:
                found = (found - {None}) | outcomes(p.Call("coalesce", tuple(rest), type="boolean"), row)
            return found
        case p.Comparison("<=>", left, p.Literal(bool() as wanted)) if not isinstance(left, p.Column):
            return frozenset(v is wanted for v in outcomes(left, row))
        case p.IsNull(child) if not isinstance(child, p.Column | p.Literal | p.Call | p.Cast):
            return frozenset(v is None for v in outcomes(child, row))
        case p.Opaque(text):
            return frozenset({(True, False, None)[zlib.crc32(repr((text, sorted(row.items(), key=str))).encode()) % 3]})
    try:
        return frozenset({_leaf(node, row)})
    except Throws:
        return ALL - {False} if isinstance(node, p.In) and p.Literal(None) in node.values else ALL


def _and(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _or(a: bool | None, b: bool | None) -> bool | None:
    if a is True or b is True:
        return True
    return None if a is None or b is None else False


def _combined(merge: Any, parts: list[Outcomes], start: bool) -> Outcomes:
    found: Outcomes = frozenset({start})
    for part in parts:
        found = frozenset(itertools.starmap(merge, itertools.product(found, part)))
    return found


def _leaf(node: p.Predicate, row: Row) -> bool | None:
    match node:
        case p.Comparison(op, _, p.Literal(None)) if op != "<=>":
            return None  # Spark folds this to NULL
        case p.Comparison("<=>", left, right):
            a, b = value(left, row), value(right, row)
            return (a is None) is (b is None) and (a is None or compare(a, b) == 0)
        case p.Comparison(op, left, right):
            a, b = value(left, row), value(right, row)
            return None if a is None or b is None else _stands(op, compare(a, b))
        case p.In(child, literals):
            a = value(child, row)
            if a is None:
                return None
            if any(v.value is not None and compare(a, v.value) == 0 for v in literals):
                return True
            return None if any(v.value is None for v in literals) else False
        case p.IsNull(child):
            return value(child, row) is None
        case p.StartsWith(child, text):
            return _on_bytes(value(child, row), text, bytes.startswith)
        case p.EndsWith(child, text):
            return _on_bytes(value(child, row), text, bytes.endswith)
        case p.Contains(child, text):
            return _on_bytes(value(child, row), text, bytes.__contains__)
        case p.Like(child, pattern, escape):
            a = value(child, row)
            return None if a is None else _like(a, pattern, escape)
    found = value(node, row)
    return None if found is None else bool(found)


def _stands(op: str, order: int) -> bool:
    return {"=": order == 0, "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[op]


def compare(a: Any, b: Any) -> int:
    """Compare in Spark's order (-1, 0, 1): strings by bytes, NaN equal to itself and greatest, -0.0 = 0.0."""
    if isinstance(a, str):
        a, b = as_bytes(a), as_bytes(b)
    if isinstance(a, float) or isinstance(b, float):
        nan, other = math.isnan(a), math.isnan(b)
        if nan or other:
            return int(nan) - int(other)
    return (a > b) - (a < b)


def as_bytes(text: str) -> bytes:
    """The bytes of a string, including invalid UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _on_bytes(a: str | None, text: str, test: Any) -> bool | None:
    return None if a is None else bool(test(as_bytes(a), as_bytes(text)))


def _like(a: str, pattern: str, escape: str) -> bool:
    """Match LIKE on the decoded string, as Spark does, with U+FFFD for invalid UTF-8."""
    regex, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        if char == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in (escape, "_", "%"):
                raise Throws
            regex += re.escape(pattern[at])
        else:
            regex += {"_": ".", "%": ".*"}.get(char, re.escape(char))
        at += 1
    return re.fullmatch(regex, as_bytes(a).decode("utf-8", "replace"), re.DOTALL) is not None


def value(node: p.Predicate, row: Row) -> Any:
    """The value of an expression; None is NULL."""
    match node:
        case p.Column(name):
            return row[name]
        case p.Literal(content):
            return content
        case p.Cast(child, target):
            a = value(child, row)
            return None if a is None else _cast(a, child.type, target, node.ansi)  # type: ignore[attr-defined]
        case p.Call("negative", (child,)):
            a = value(child, row)
            return None if a is None else _fitted(-a, node)
        case p.Call("+" | "-" as op, (left, right)):
            a, b = value(left, row), value(right, row)
            return None if a is None or b is None else _sum(op, a, b, node)
        case p.Call("*", (left, right)) if node.type in WIDTHS:
            a, b = value(left, row), value(right, row)
            return None if a is None or b is None else _fitted(a * b, node)
        case p.Call("date_add" | "date_sub" as name, (left, right)):
            a, b = value(left, row), value(right, row)
            if a is None or b is None:
                return None
            return _wrapped(a + b if name == "date_add" else a - b, 32)
        case p.Call("substring", (text, at, length)):
            a, start, count = value(text, row), value(at, row), value(length, row)
            if a is None:
                return None
            characters = _characters(as_bytes(a))
            first = start - 1 if start > 0 else max(0, len(characters) + start) if start < 0 else 0
            assert start >= 0 or count >= -start
            return b"".join(characters[first:][:count]).decode("utf-8", "surrogateescape")
        case p.Call("instr", (text, part)):
            a = value(text, row)
            return None if a is None else 1 if as_bytes(a).startswith(as_bytes(value(part, row))) else 99
        case p.Call("locate", (part, text, _)):
            return value(p.Call("instr", (text, part)), row)
        case p.Call("if", (test, then, other)):
            (verdict,) = outcomes(test, row)
            return value(then if verdict else other, row)
        case p.Call("coalesce", args):
            return next((found for found in (value(arg, row) for arg in args) if found is not None), None)
        case p.Call("isnan", (child,)):
            a = value(child, row)
            return a is not None and math.isnan(a)
        case p.Call("rlike", (text, pattern)):
            a = value(text, row)
            found = a is not None and re.search(value(pattern, row), as_bytes(a).decode("utf-8", "replace"), re.DOTALL)
            return None if a is None else found is not None
    raise AssertionError(f"the evaluator does not know {node}")


def _characters(raw: bytes) -> list[bytes]:
    """Split bytes into characters as UTF8String does, by the first byte of each."""
    found, at = [], 0
    while at < len(raw):
        lead = raw[at]
        size = 2 if 0xC2 <= lead <= 0xDF else 3 if 0xE0 <= lead <= 0xEF else 4 if 0xF0 <= lead <= 0xF4 else 1
        found.append(raw[at : at + size])
        at += size
    return found


def _sum(op: str, a: Any, b: Any, node: p.Call) -> Any:
    if node.type in ("float", "double"):
        width: Any = np.float32 if node.type == "float" else np.float64
        with np.errstate(all="ignore"):
            return float(width(a) + width(b) if op == "+" else width(a) - width(b))
    return _fitted(a + b if op == "+" else a - b, node)


def _fitted(a: Any, node: p.Call) -> Any:
    """Fit an integer to the width of its type: wrap, return NULL or throw, depending on the mode."""
    if node.type not in WIDTHS:
        return a
    bits = WIDTHS[node.type]
    if -(2 ** (bits - 1)) <= a < 2 ** (bits - 1):
        return a
    if "ANSI" in node.flags:
        raise Throws
    return None if "TRY" in node.flags else _wrapped(a, bits)


def _wrapped(a: int, bits: int) -> int:
    return (a + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def _cast(a: Any, source: str, target: str, ansi: bool) -> Any:
    if target in WIDTHS:
        bits = WIDTHS[target]
        if ansi and not -(2 ** (bits - 1)) <= int(a) < 2 ** (bits - 1):
            raise Throws
        return _wrapped(int(a), bits)
    if target == "double":
        return float(a)
    if target == "float":
        with np.errstate(over="ignore"):
            return float(np.asarray(a, dtype=np.int64 if isinstance(a, int) else np.float64).astype(np.float32))
    if target.startswith("decimal"):
        precision, scale = map(int, re.findall(r"\d+", target))
        exact = Decimal(a).quantize(Decimal((0, (1,), -scale)), ROUND_HALF_UP, Context(prec=99))
        if abs(exact) >= Decimal(10) ** (precision - scale):
            if ansi:
                raise Throws
            return None
        return exact
    if (source, target) == ("date", "timestamp_ntz"):
        return a * DAY
    if (source, target) == ("timestamp_ntz", "date"):
        return a // DAY
    raise AssertionError(f"the evaluator does not know casts from {source} to {target}")
