"""Recursive descent over the tokens of a statement."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from geoskip.errors import InvalidSpecificationError, StatementError, misspelt
from geoskip.lifecycle.verbs import duration
from geoskip.statements.index_items import LiteralReader, parse_item
from geoskip.statements.statement import (
    CreateStatement,
    DescribeStatement,
    DropStatement,
    ExplainStatement,
    IndexItem,
    OptimizeStatement,
    RefreshStatement,
    RepairStatement,
    RestoreStatement,
    ShowStatement,
    SkippingStatement,
    StatementTarget,
    VacuumStatement,
)
from geoskip.statements.tokens import Span, Token, error_at, span_of, tokenize

_BLANK = r"(?:\s++|--[^\n]*+\n|/\*[\s\S]*?\*/)"
STATEMENTS = (
    rf"(?i){_BLANK}*(?:(?:CREATE|DROP|SHOW|EXPLAIN){_BLANK}+SKIPPING\b"
    rf"|(?:DESCRIBE|DESC|REFRESH|OPTIMIZE|VACUUM|RESTORE|REPAIR){_BLANK}+SKIPPING{_BLANK}+INDEX{_BLANK}+[^\s;])"
)
"""Beginnings of statements, as a regular expression for Python and Java.

``DESCRIBE skipping index`` is Spark's statement for a column ``index`` of a table ``skipping``, and Delta restores a
table of that name; no other SQL begins in this way.
"""
_STATEMENT = re.compile(STATEMENTS)
_MODES = ("INCREMENTAL", "FULL", "QUICK")
_OWN_OPTIONS = ("metadata", "auto_refresh", "format")
"""geoskip's own options; all others are options of the reader."""
_OF_PYTHON = ("spark", "path", "table", "store", "encryption")
"""Arguments of :func:`geoskip.dataset` that are not options of a statement."""


def is_statement(text: str) -> bool:
    """Test whether a text begins like a statement on skipping indexes.

    >>> is_statement("/* nightly */ show skipping indexes"), is_statement("DESCRIBE skipping index;")
    (True, False)
    """
    return _STATEMENT.match(text) is not None


def parse(text: str) -> SkippingStatement:
    """Parse one statement.

    Raises
    ------
    StatementError
        With the position, the line and the remedy.
    """
    return _StatementParser(text).statement()


class _StatementParser:
    """Parser of one statement."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.at = text, tokenize(text), 0

    def statement(self) -> SkippingStatement:
        verb = self.next()
        rules: dict[str, Callable[[], SkippingStatement]] = {
            "CREATE": self.create,
            "REFRESH": self.refresh,
            "OPTIMIZE": lambda: OptimizeStatement(self.target(), options=self.options()),
            "VACUUM": self.vacuum,
            "DROP": lambda: self.which(DropStatement, if_exists=self._take_if_exists()),
            "RESTORE": lambda: self.which(RestoreStatement),
            "REPAIR": lambda: RepairStatement(self.target(), options=self.options()),
            "DESCRIBE": lambda: DescribeStatement(self.target(), options=self.options()),
            "DESC": lambda: DescribeStatement(self.target(), options=self.options()),
            "SHOW": self.show,
            "EXPLAIN": self.explain,
        }
        rule = rules.get(verb.value.upper()) if verb.kind == "name" else None
        if rule is None:
            raise self.error(f"expected one of {', '.join(rules)}, got {verb}", verb.span)
        self.expect("SKIPPING")
        if not verb.is_word("EXPLAIN"):
            self.expect("INDEXES" if verb.is_word("SHOW") else "INDEX")
        parsed = rule()
        self.take_sign(";")
        if self.peek().kind != "end":
            raise self.error(f"expected the end of the statement, got {self.peek()}", self.peek().span)
        return parsed

    # --- statements --------------------------------------------------------------------------------------------------

    def create(self) -> CreateStatement:
        if_not_exists = self.take("IF")
        if if_not_exists:
            self.expect("NOT")
            self.expect("EXISTS")
        target = self.target()
        opening = self.peek()
        if not self.take_sign("("):
            raise self.error(
                f"expected ( and the indexes to create, got {opening}",
                opening.span,
                "list them in parentheses, as in (temp MINMAX, GEOBOX(lng, lat))",
            )
        items = self.items(opening)
        return CreateStatement(target, items, if_not_exists, options=self.options())

    def refresh(self) -> RefreshStatement:
        target = self.target()
        mode = self.next() if self.peek().kind == "name" and not self.peek().is_word("WITH") else None
        if mode is not None and not mode.is_word(*_MODES):
            raise self.error(f"expected a mode ({', '.join(_MODES)}), got {mode}", mode.span)
        return RefreshStatement(target, mode.value.lower() if mode else "incremental", options=self.options())

    def vacuum(self) -> VacuumStatement:
        target, retain = self.target(), VacuumStatement.retain
        if self.take("RETAIN"):
            first = self.next()
            given = first.string() if first.kind == "text" else ""
            if first.kind == "number":
                unit = self.next() if self.peek().kind == "name" and not self.peek().is_word("WITH") else self.peek()
                given, first = f"{first.value} {unit.value}", Token("", "", span_of([first, unit]))
            try:
                duration(given)
            except InvalidSpecificationError:
                way_out = "give a number and a unit, as in RETAIN 7 DAYS or RETAIN 12 HOURS"
                raise self.error(f"expected a time, got {given.strip() or first}", first.span, way_out) from None
            retain = given.lower()
        return VacuumStatement(target, retain, options=self.options())

    def _take_if_exists(self) -> bool:
        found = self.peek().is_word("IF") and self.tokens[self.at + 1].is_word("EXISTS")
        self.at += 2 * found
        return found

    def which(self, kind: Callable[..., Any], **flags: bool) -> Any:
        which: list[IndexItem] = []
        while not self.peek().is_word("ON") or self._is_called_on():
            first = [self.next()] if self._is_called_on() else []
            which.append(self.index([*first, *self.until(lambda token: token.value == "," or token.is_word("ON"))]))
            if not self.take_sign(","):
                break
        return kind(self.target(), tuple(which), **flags, options=self.options())

    def show(self) -> ShowStatement:
        if not (self.take("IN") or self.take("FROM")):
            return ShowStatement()
        return ShowStatement(self.names("a database")[0])

    def explain(self) -> ExplainStatement:
        first = self.peek()
        query = self.text[first.span.start :].rstrip().removesuffix(";").rstrip()
        if not query:
            raise self.error(
                "expected a query, got the end of the statement", first.span, "as in EXPLAIN SKIPPING SELECT ..."
            )
        self.at = len(self.tokens) - 1
        return ExplainStatement(query, Span(first.span.start, first.span.start + len(query)))

    # --- their parts -------------------------------------------------------------------------------------------------

    def target(self) -> StatementTarget:
        """Parse ON and a dataset."""
        self.expect("ON")
        first = self.peek()
        if first.kind == "text":
            self.next()
            return StatementTarget(path=first.string(), span=first.span)
        parts, span = self.names("a table or a path")
        return StatementTarget(parts, span=span)

    def names(self, expected: str) -> tuple[tuple[str, ...], Span]:
        """Parse a dotted name, and return its parts and its span."""
        taken = [self.next()]
        while taken[-1].is_name() and self.take_sign("."):
            taken.append(self.next())
        if not taken[-1].is_name():
            way_out = "write weather, db.weather, '/data/weather' or csv.`/data/log`"
            raise self.error(f"expected {expected}, got {taken[-1]}", taken[-1].span, way_out)
        return tuple(token.name() for token in taken), span_of(taken)

    def items(self, opening: Token) -> tuple[IndexItem, ...]:
        """Parse the indexes before a closing parenthesis."""
        items: list[IndexItem] = []
        while True:
            part = self.until(lambda token: token.value in (",", ")"))
            items.append(parse_item(self.text, part, self.peek()))
            if self.take_sign(")"):
                return tuple(items)
            if not self.take_sign(","):
                raise self.error(f"expected ) or a comma, got {self.peek()}", opening.span, "close this parenthesis")

    def index(self, part: Sequence[Token]) -> IndexItem:
        """Parse an existing index, given by a specification or by its text in quotes or back-quotes."""
        if len(part) == 1 and part[0].kind == "text":
            return IndexItem(None, part[0].string(), part[0].span)
        if len(part) == 1 and part[0].kind == "quoted" and "(" in part[0].value:
            return IndexItem(None, part[0].name(), part[0].span)
        return parse_item(self.text, part, self.peek())

    def options(self) -> dict[str, Any]:
        """Parse the options of WITH, by name."""
        options: dict[str, Any] = {}
        if not self.take("WITH"):
            return options
        opening = self.next()
        if opening.value != "(":
            raise self.error(
                f"expected ( and the options, got {opening}", opening.span, "as in WITH (metadata = '/meta')"
            )
        while True:
            name = self.next()
            key = self.option(name)
            if key.lower() in map(str.lower, options):
                raise self.error(f"the option {key} is given twice", name.span)
            self.take_sign("=")
            reader = LiteralReader(self.text, self.tokens, self.at)
            options[key], self.at = reader.value(f"the value of {key}"), reader.at
            if self.take_sign(")"):
                return options
            if not self.take_sign(","):
                raise self.error(f"expected ) or a comma, got {self.peek()}", self.peek().span)

    def option(self, name: Token) -> str:
        """Return the name of an option: geoskip's own in lower case, others as written."""
        if name.kind != "text" and not name.is_name():
            raise self.error(f"expected the name of an option, got {name}", name.span, "as in WITH (header = true)")
        key = name.string() if name.kind == "text" else name.name()
        if key.lower() in _OWN_OPTIONS:
            return key.lower()
        if key.lower() in _OF_PYTHON:
            raise self.error(
                f"a statement has no option {key}", name.span, "geoskip.dataset() in Python takes it as an argument"
            )
        if meant := misspelt(key, _OWN_OPTIONS):
            raise self.error(f"there is no option {key}", name.span, f"did you mean {meant}?")
        return key

    # --- tokens ------------------------------------------------------------------------------------------------------

    def until(self, is_end: Callable[[Token], bool]) -> list[Token]:
        """Take the tokens before the first one outside parentheses that meets a condition."""
        taken: list[Token] = []
        depth = 0
        while self.peek().kind != "end" and (depth or not is_end(self.peek())):
            token = self.next()
            depth += (token.value in "([") - (token.value in ")]") if token.kind == "sign" else 0
            taken.append(token)
        return taken

    def _is_called_on(self) -> bool:
        """Test whether ON is the column of an item, as in DROP SKIPPING INDEX on MINMAX ON t."""
        following = self.tokens[self.at + 1 : self.at + 3]
        return len(following) == 2 and following[1].is_word("ON")

    def peek(self) -> Token:
        return self.tokens[self.at]

    def next(self) -> Token:
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        return token

    def take(self, word: str) -> bool:
        """Take a keyword if it is the next token."""
        found = self.peek().is_word(word)
        self.at += found
        return found

    def take_sign(self, sign: str) -> bool:
        found = self.peek().kind == "sign" and self.peek().value == sign
        self.at += found
        return found

    def expect(self, word: str) -> None:
        if not self.take(word):
            raise self.error(f"expected {word}, got {self.peek()}", self.peek().span)

    def error(self, problem: str, span: Span, way_out: str = "") -> StatementError:
        """Create an error at a span; without ``way_out`` it shows the syntax of the statement.

        Parameters
        ----------
        problem
            The expected token and the actual one.
        span
            The position in the statement.
        way_out
            The correction.
        """
        return error_at(self.text, span, problem, way_out or _USAGE.get(self.tokens[0].value.upper(), ""))


_TARGET = "{ table | 'path' | format.`path` }"
_USAGE = {
    "CREATE": f"CREATE SKIPPING INDEX [IF NOT EXISTS] ON {_TARGET} (temp MINMAX, GEOBOX(lng, lat), ...) [WITH (...)]",
    "REFRESH": f"REFRESH SKIPPING INDEX ON {_TARGET} [INCREMENTAL | FULL | QUICK]",
    "OPTIMIZE": f"OPTIMIZE SKIPPING INDEX ON {_TARGET}",
    "VACUUM": f"VACUUM SKIPPING INDEX ON {_TARGET} [RETAIN 7 DAYS]",
    "DROP": f"DROP SKIPPING INDEX [IF EXISTS] [temp MINMAX, ...] ON {_TARGET}",
    "RESTORE": f"RESTORE SKIPPING INDEX [temp MINMAX, ...] ON {_TARGET}",
    "REPAIR": f"REPAIR SKIPPING INDEX ON {_TARGET}",
    **dict.fromkeys(("DESCRIBE", "DESC"), f"DESCRIBE SKIPPING INDEX ON {_TARGET}"),
    "SHOW": "SHOW SKIPPING INDEXES [IN database], and for one table DESCRIBE SKIPPING INDEX ON table",
    "EXPLAIN": "EXPLAIN SKIPPING SELECT ...",
}
_USAGE = {verb: f"the statement is {usage}" for verb, usage in _USAGE.items()}
