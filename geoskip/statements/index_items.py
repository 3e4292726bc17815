"""Indexes as items of a statement: ``temp MINMAX``, ``GEOBOX(lng, lat)``, ``city PREFIX(length = 8)``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from geoskip.errors import InvalidSpecificationError, StatementError
from geoskip.indexes.base import Index, index_kinds
from geoskip.statements.python_calls import in_statements
from geoskip.statements.statement import IndexItem
from geoskip.statements.tokens import Token, error_at, source_of, span_of

_EXPRESSIONS = ("column", "expr", "exprs", "x", "y")
"""Fields of index types that are indexed expressions; the others are parameters."""
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}


def parse_item(text: str, tokens: Sequence[Token], following: Token) -> IndexItem:
    """Parse an index from the tokens of an item; ``following`` is the token after them.

    Raises StatementError.
    """
    if not tokens:
        raise error_at(text, following.span, f"expected an index, got {following}", _FORMS)
    if (unclosed := _unclosed_parenthesis(tokens)) is not None:
        raise error_at(text, unclosed.span, "this parenthesis is not closed", "close it with )")
    opening = _opening_parenthesis(tokens)
    before = tokens if opening is None else tokens[:opening]
    if len(tokens) == 1 and _plain(tokens[0]) not in _types_by_name():
        way_out = f"name it after the expression, as in {tokens[0]} MINMAX; the types are {_names()}"
        if tokens[0].kind == "quoted" and "(" in tokens[0].name():
            way_out = f"write the text of an index without back-quotes: {tokens[0].name()}"
        raise error_at(text, tokens[0].span, f"expected an index type for {tokens[0]}, got none", way_out)
    *expression, name = before if before else [tokens[0]]
    _check_one(text, expression)
    kind = _kind_of(text, name, tokens)
    arguments = _Arguments(text, kind, tokens, name)
    if expression:
        arguments.expressions.append(_expression(expression))
    if opening is not None:
        for part in _split(tokens[opening + 1 : -1]):
            arguments.take(part, tokens[-1], is_trailing=bool(expression))
    index = arguments.index()
    return IndexItem(index, str(index), span_of(tokens))


def _check_one(text: str, expression: Sequence[Token]) -> None:
    """Raise StatementError if a comma is missing between two items: a name, a type and a name."""
    for place in range(1, len(expression) - 1):
        before, token, following = expression[place - 1 : place + 2]
        if before.is_name() and following.is_name() and _plain(token) in _types_by_name():
            way_out = f"put a comma after {source_of(expression[: place + 1])}"
            raise error_at(text, following.span, f"expected ) or a comma, got {following}", way_out)


_FORMS = "an index is written as temp MINMAX, city PREFIX(length = 8) or GEOBOX(lng, lat)"


def _names() -> str:
    return ", ".join(kind.upper() for kind in sorted(index_kinds()))


def _opening_parenthesis(tokens: Sequence[Token]) -> int | None:
    """Position of the parenthesis that the last token closes, or None."""
    if tokens[-1].value != ")" or tokens[-1].kind != "sign":
        return None
    depth = 0
    for place in range(len(tokens) - 1, -1, -1):
        if tokens[place].kind == "sign":
            depth += (tokens[place].value == ")") - (tokens[place].value == "(")
        if depth == 0:
            return place
    return None


def _unclosed_parenthesis(tokens: Sequence[Token]) -> Token | None:
    """The last parenthesis without a closing one, or None."""
    opened: list[Token] = []
    for token in tokens:
        if token.kind == "sign" and token.value == "(":
            opened.append(token)
        elif token.kind == "sign" and token.value == ")" and opened:
            opened.pop()
    return opened[-1] if opened else None


def _types_by_name() -> dict[str, type[Index]]:
    """Registered index types by name, in upper case."""
    return {kind.replace("_", "").upper(): found for kind, found in index_kinds().items()}


def _plain(name: Token) -> str:
    return name.value.replace("_", "").upper() if name.kind == "name" else ""


def _kind_of(text: str, name: Token, tokens: Sequence[Token]) -> type[Index]:
    known, wanted = _types_by_name(), _plain(name)
    if wanted in known:
        return known[wanted]
    near = get_close_matches(wanted, known, 1)
    if near:
        way_out = f"did you mean {near[0]}? The types are {_names()}"
    elif len(tokens) > 1 and _plain(tokens[0]) in known:
        way_out = f"name the type after the expression, as in {source_of(tokens[1:])} {tokens[0]}"
    else:
        shown = tokens[: tokens.index(name)] or tokens
        way_out = f"name it after the expression, as in {source_of(shown)} MINMAX; the types are {_names()}"
    raise error_at(text, name.span, f"expected an index type, got {name}", way_out)


def _expression(tokens: Sequence[Token]) -> str:
    """SQL text of an expression; needless back-quotes around a name are removed."""
    if len(tokens) == 1 and tokens[0].kind == "quoted" and re.fullmatch(r"[A-Za-z_]\w*", tokens[0].name(), re.ASCII):
        return tokens[0].name()
    return source_of(tokens)


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split at commas outside parentheses; without tokens the result is empty."""
    parts: list[list[Token]] = [[]] if tokens else []
    depth = 0
    for token in tokens:
        depth += (token.value in "([") - (token.value in ")]") if token.kind == "sign" else 0
        if token.value == "," and token.kind == "sign" and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


class _Arguments:
    """Expressions and parameters of an index."""

    def __init__(self, text: str, kind: type[Index], tokens: Sequence[Token], name: Token) -> None:
        self.text, self.kind, self.tokens, self.name = text, kind, tokens, name
        fields = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
        self.places = [field for field in fields if field in _EXPRESSIONS]
        self.parameters = [field for field in fields if field not in _EXPRESSIONS]
        self.expressions: list[str] = []
        self.values: dict[str, Any] = {}

    def take(self, part: Sequence[Token], closing: Token, *, is_trailing: bool) -> None:
        """Take an argument: a named parameter, a literal for the next parameter, or an expression.

        Parameters
        ----------
        part
            The argument's tokens.
        closing
            The token after it, for errors.
        is_trailing
            True after an expression (``city PREFIX(8)``), where every argument is a parameter's value.
        """
        if not part:
            raise self._error(f"expected an argument of {self.name}, got {closing}", [closing])
        if len(part) > 1 and part[0].kind == "name" and part[1].value == "=":
            name = self._parameter(part[0])
            self._set(name, _literal(self.text, part[2:], f"the value of {name}", closing), part)
        elif is_trailing or _is_literal(part):
            unset = [name for name in self.parameters if name not in self.values]
            if not unset:
                takes = f"takes {_count(self.parameters, 'parameter')}"
                raise self._error(f"{self.name} {takes}, got {source_of(part)}", part)
            self._set(unset[0], _literal(self.text, part, f"the value of {unset[0]}", closing), part)
        else:
            self.expressions.append(_expression(part))

    def _parameter(self, token: Token) -> str:
        name = token.value.lower()
        if name in self.parameters:
            return name
        near = get_close_matches(name, self.parameters, 1)
        takes = f"did you mean {near[0]}? I{self._takes()[1:]}" if near else self._takes()
        raise self._error(f"{self.name} has no parameter {token}", [token], takes)

    def _takes(self) -> str:
        listed = ", ".join(self.parameters)
        return f"its parameters are {listed}" if listed else "it has no parameters"

    def _set(self, name: str, value: Any, part: Sequence[Token]) -> None:
        if name in self.values:
            raise self._error(f"the parameter {name} is given twice", part)
        self.values[name] = value

    def index(self) -> Index:
        """Create the specification; its errors are reported at the item's position."""
        most = len(self.places) if self.places and "exprs" not in self.places else len(self.expressions)
        if not self.expressions or len(self.expressions) > most:
            wanted = _count(self.places, "expression") if most else "an expression"
            got = len(self.expressions) or "none"
            raise self._error(f"{self.name} takes {wanted}, got {got}", self.tokens, _FORMS)
        try:
            return self.kind(*self.expressions, **self.values)
        except (InvalidSpecificationError, TypeError) as error:
            raise error_at(self.text, span_of(self.tokens), in_statements(str(error))) from None

    def _error(self, problem: str, tokens: Sequence[Token], way_out: str = "") -> StatementError:
        return error_at(self.text, span_of(tokens), problem, way_out or self._takes())


def _count(names: Sequence[str], noun: str) -> str:
    if not names:
        return f"no {noun}"
    return f"one {noun}" if len(names) == 1 else f"up to {len(names)} {noun}s"


def _is_literal(tokens: Sequence[Token]) -> bool:
    *sign, last = tokens
    return last.kind in ("text", "number") and [token.value for token in sign] in ([], ["-"])


def _literal(text: str, tokens: Sequence[Token], expected: str, closing: Token) -> Any:
    """Parse tokens as one literal; raises StatementError if it is followed by other tokens."""
    end = Token("end", closing.value, closing.span)
    reader = LiteralReader(text, [*tokens, end], 0)
    value = reader.value(expected)
    if reader.at < len(tokens):
        raise error_at(text, span_of(tokens), f"expected {expected} as a literal, got {source_of(tokens)}", _VALUES)
    return value


_VALUES = "a value is a number, a string, TRUE, FALSE, NULL, a name or a list in parentheses"


class LiteralReader:
    """Reader of literals from a position in tokens, which must end with a token of kind end."""

    def __init__(self, text: str, tokens: Sequence[Token], at: int) -> None:
        self.text, self.tokens, self.at = text, tokens, at

    def value(self, expected: str) -> Any:
        """Read a number, string, constant, name (as a string) or list (as a tuple), or raise StatementError."""
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        following = self.tokens[self.at] if token.kind != "end" else token
        if token.kind == "text":
            return token.string()
        if token.kind == "number" or (token.value == "-" and following.kind == "number"):
            number = token if token.kind == "number" else following
            self.at += number is following
            value = int(number.value) if number.value.isdigit() else float(number.value)
            return value if number is token else -value
        if token.is_name():
            return _CONSTANTS.get(token.value.upper(), token.name())
        if token.kind == "sign" and token.value == "(":
            return self._list(expected)
        raise error_at(self.text, token.span, f"expected {expected}, got {token}", _VALUES)

    def _list(self, expected: str) -> tuple[Any, ...]:
        values = [self.value(expected)]
        while self.tokens[self.at].value == ",":
            self.at += 1
            values.append(self.value(expected))
        closing = self.tokens[self.at]
        if closing.value != ")":
            raise error_at(self.text, closing.span, f"expected ) or a comma, got {closing}", _VALUES)
        self.at += 1
        return tuple(values)
