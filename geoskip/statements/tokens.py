"""Tokens of SQL with their positions, and errors that point at them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from geoskip.errors import StatementError

_TOKEN = re.compile(
    r"(?P<space>\s+|--[^\n]*|/\*.*?\*/)"
    r"|(?P<text>[rR]?(?:'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"))"
    r"|(?P<quoted>`(?:[^`]|``)*`)"
    r"|(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?!\w))"
    r"|(?P<name>\w+)"
    r"|(?P<sign>.)",
    re.DOTALL,
)
_OPENED = {"'": "string", '"': "string", "`": "back-quoted name"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_LONGEST = 100
"""Characters of a line that an error shows."""


@dataclass(frozen=True)
class Span:
    """Span of a text between two positions."""

    start: int
    end: int

    def pointer(self, text: str) -> str:
        """Show the line of a text with carets below the span; a long line is shortened.

        >>> print(Span(7, 9).pointer("SELECT it"))
          SELECT it
                 ^^
        """
        first = text.rfind("\n", 0, self.start) + 1
        line = text[first:].partition("\n")[0].replace("\t", " ")
        column, length = self.start - first, max(1, min(self.end, first + len(line)) - self.start)
        cut = max(0, column - _LONGEST // 2) if len(line) > _LONGEST else 0
        before, after = "…" if cut else "", "…" if len(line) > cut + _LONGEST else ""
        shown = f"{before}{line[cut : cut + _LONGEST]}{after}"
        carets = min(length, max(1, cut + _LONGEST - column))
        return f"  {shown.rstrip()}\n  {' ' * (column - cut + len(before))}{'^' * carets}"

    def position(self, text: str) -> str:
        """Line and position of the start, both from 1."""
        line = text.count("\n", 0, self.start) + 1
        return f"line {line}, position {self.start - text.rfind(chr(10), 0, self.start)}"


@dataclass(frozen=True)
class Token:
    """A token: ``kind`` is name, quoted, text, number, sign or end; ``value`` is as written."""

    kind: str
    value: str
    span: Span

    def __str__(self) -> str:
        return self.value or "the end of the statement"

    def is_word(self, *words: str) -> bool:
        """Test for an unquoted name that equals one of these, ignoring case."""
        return self.kind == "name" and self.value.upper() in words

    def is_name(self) -> bool:
        return self.kind in ("name", "quoted")

    def name(self) -> str:
        """Name without back-quotes."""
        return self.value[1:-1].replace("``", "`") if self.kind == "quoted" else self.value

    def string(self) -> str:
        """Content of a string literal as Spark reads it; a doubled quote is one quote."""
        raw = self.value[0] in "rR"
        quote, body = self.value[raw], self.value[raw + 1 : -1]
        if raw:
            return body.replace(quote * 2, quote)
        escapes = re.compile(rf"\\(.)|{quote}{quote}", re.DOTALL)
        return escapes.sub(lambda match: _ESCAPES.get(match[1], match[1]) if match[1] else quote, body)


def tokenize(text: str) -> list[Token]:
    """Split a text into tokens, without comments; the last token is of kind end.

    Raises StatementError for a string, name or comment that is not closed.
    """
    tokens: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind, value = str(match.lastgroup), match[0]
        span = Span(match.start(), match.end())
        if kind == "sign" and (value in _OPENED or text.startswith("/*", span.start)):
            opened = _OPENED.get(value, "comment")
            close = value if value in _OPENED else "*/"
            raise error_at(text, span, f"this {opened} is not closed", f"close it with {close}")
        if kind != "space":
            tokens.append(Token(kind, value, span))
    end = len(text.rstrip())
    return [*tokens, Token("end", "", Span(end, end))]


def source_of(tokens: Sequence[Token]) -> str:
    """Text of some tokens, with gaps and comments replaced by one space."""
    parts = [tokens[0].value]
    for before, token in pairwise(tokens):
        parts.append((" " if token.span.start > before.span.end else "") + token.value)
    return "".join(parts)


def span_of(tokens: Sequence[Token]) -> Span:
    """Span from the first to the last of some tokens."""
    return Span(tokens[0].span.start, tokens[-1].span.end)


def error_at(text: str, span: Span, problem: str, way_out: str = "") -> StatementError:
    """Create an error with the position, the line with carets, and the remedy.

    Parameters
    ----------
    text, span
        The statement, and the span of the error.
    problem
        The expected token and the actual one.
    way_out
        The correction, on a line of its own.
    """
    message = f"{problem} ({span.position(text)})\n{span.pointer(text)}"
    return StatementError(f"{message}\n{way_out}" if way_out else message)
