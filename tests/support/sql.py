"""SQL parser for the tables of effects: conditions over typed columns, as geoskip's predicates."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

import shapely

from geoskip import predicates as p

_TOKEN = re.compile(r"\s*(<=>|<>|<=|>=|[-+*=<>(),]|\d+\.\d+|\d+|'(?:[^']|'')*'|\w+(?:\(\d+,\d+\))?)")
_CLASSES = {"+": "Add", "-": "Subtract", "*": "Multiply", "isnan": "IsNaN", "coalesce": "Coalesce", "if": "If"}
_CLASSES |= {"levenshtein": "Levenshtein", "sqrt": "Sqrt", "pow": "Pow", "hypot": "Hypot"}
_RESULTS = {"isnan": "boolean", "levenshtein": "int", "sqrt": "double", "pow": "double", "hypot": "double"}
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."


class Reader:
    """Parser of one condition; literals take the type of the other operand."""

    def __init__(self, text: str, types: dict[str, str]) -> None:
        self.types = types
        self.tokens = _TOKEN.findall(text)
        if "".join(self.tokens).replace(" ", "") != re.sub(r"\s", "", text).replace(" ", ""):
            raise ValueError(f"cannot read {text}")

    def condition(self) -> p.Predicate:
        """Parse the whole text."""
        found = self._or()
        assert not self.tokens, f"left over: {self.tokens}"
        return found

    def _next(self, *words: str) -> bool:
        if [t.upper() for t in self.tokens[: len(words)]] != list(words):
            return False
        del self.tokens[: len(words)]
        return True

    def _or(self) -> p.Predicate:
        parts = [self._and()]
        while self._next("OR"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else p.Or(tuple(parts))

    def _and(self) -> p.Predicate:
        parts = [self._not()]
        while self._next("AND"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else p.And(tuple(parts))

    def _not(self) -> p.Predicate:
        return p.Not(self._not()) if self._next("NOT") else self._comparison()

    def _comparison(self) -> p.Predicate:
        left = self._sum()
        negated = self._next("NOT")
        found = self._compared(left)
        return p.Not(found) if negated else found

    def _compared(self, left: p.Predicate) -> p.Predicate:
        if self._next("IS", "NOT", "NULL"):
            return p.Not(p.IsNull(left))
        if self._next("IS", "NULL"):
            return p.IsNull(left)
        if self._next("IN", "("):
            values = [self._typed(self._sum(), left)]
            while self._next(","):
                values.append(self._typed(self._sum(), left))
            assert self._next(")")
            return p.In(left, tuple(v for v in values if isinstance(v, p.Literal)))
        if self._next("BETWEEN"):
            low = self._typed(self._sum(), left)
            assert self._next("AND")
            return p.And((p.Comparison(">=", left, low), p.Comparison("<=", left, self._typed(self._sum(), left))))
        if self._next("LIKE"):
            return _like(left, self.tokens.pop(0)[1:-1])
        if self.tokens and self.tokens[0] in ("=", "<=>", "<>", "<", "<=", ">", ">="):
            op = self.tokens.pop(0)
            right = self._typed(self._sum(), left)
            if op == "<>":
                return p.Not(p.Comparison("=", left, right))
            return p.Comparison(op, self._typed(left, right), right)
        return left

    def _typed(self, node: p.Predicate, like: p.Predicate) -> p.Predicate:
        kind = getattr(like, "type", None)
        if not isinstance(node, p.Literal) or kind is None or node.value is None or node.type == "boolean":
            return node
        value = node.value
        if kind in ("double", "float"):
            value = float(value)
        elif kind.startswith("decimal"):
            value = Decimal(value)
        elif kind == "date":
            value = (dt.date.fromisoformat(value) - dt.date(1970, 1, 1)).days
        return p.Literal(value, kind)

    def _sum(self, operators: str = "+-") -> p.Predicate:
        operand = self._atom if operators == "*" else lambda: self._sum("*")
        left = operand()
        while self.tokens and self.tokens[0] in operators:
            op = self.tokens.pop(0)
            right = self._typed(operand(), left)
            left = self._typed(left, right)
            kind = getattr(left, "type", None)
            left = p.Call(op, (left, right), _EXPRESSIONS + _CLASSES[op], ("ANSI",), kind)
        return left

    def _atom(self) -> p.Predicate:
        token = self.tokens.pop(0)
        word = token.lower()
        if token == "(":
            found = self._or()
            assert self._next(")")
            return found
        if token == "-":
            literal = self._atom()
            assert isinstance(literal, p.Literal)
            return p.Literal(-literal.value, literal.type)
        if token[0] == "'":
            return p.Literal(token[1:-1].replace("''", "'"), "string")
        if token[0].isdigit():
            return p.Literal(Decimal(token) if "." in token else int(token), None)
        if word in ("null", "true", "false"):
            return p.Literal({"null": None, "true": True, "false": False}[word], None if word == "null" else "boolean")
        if word == "nan":
            return p.Literal(float("nan"), "double")
        if word == "cast":
            assert self._next("(")
            child = self._sum()
            assert self._next("AS")
            kind = self.tokens.pop(0)
            assert self._next(")")
            return p.Cast(child, kind, getattr(child, "type", None), True)
        if self.tokens and self.tokens[0] == "(":
            return self._call(word)
        return p.Column(token, self.types[token])

    def _call(self, name: str) -> p.Predicate:
        assert self._next("(")
        args = [self._or()]
        while self._next(","):
            args.append(self._or())
        assert self._next(")")
        if name.startswith("st_"):
            return _spatial(name, tuple(args))
        if name not in _CLASSES:
            return p.Call(name, tuple(args), f"python:{name}#1", (), "boolean")
        kind = _RESULTS.get(name) or getattr(args[-1], "type", None) or "boolean"
        return p.Call(name, tuple(args), _EXPRESSIONS + _CLASSES[name], (), kind)


def _spatial(name: str, args: tuple[p.Predicate, ...]) -> p.Predicate:
    """Create a call of a shapely-backed function; text arguments become literals."""
    match name, args:
        case "st_geomfromtext", (p.Literal(str() as text),):
            return p.Literal(shapely.from_wkt(text), "geometry")
    kind = "double" if name in ("st_x", "st_y") or name.startswith("st_distance") else "boolean"
    return p.Call(name, args, f"python:udf_mappings.shapely_functions.{name}#1", (), kind)


def _like(child: p.Predicate, pattern: str) -> p.Predicate:
    """Create LIKE as Spark's optimizer does: a text with % only at its ends becomes a simpler condition."""
    start, *rest = pattern.split("%")
    if "_" in pattern or "\\" in pattern or len(rest) > 2:
        return p.Like(child, pattern)
    match start, rest:
        case _, []:
            return p.Comparison("=", child, p.Literal(pattern, "string"))
        case "", [end] if end:
            return p.EndsWith(child, end)
        case "", [middle, ""] if middle:
            return p.Contains(child, middle)
        case _, [""] if start:
            return p.StartsWith(child, start)
        case _, [end] if start:
            length = p.Call("length", (child,), _EXPRESSIONS + "Length", (), "int")
            least = p.Comparison(">=", length, p.Literal(len(start) + len(end), "int"))
            return p.And((least, p.StartsWith(child, start), p.EndsWith(child, end)))
    return p.Like(child, pattern)


def read(text: str, types: dict[str, str]) -> p.Predicate:
    """Parse one condition."""
    return Reader(text, types).condition()
