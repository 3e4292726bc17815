"""Indexed expressions without Spark: columns, nested fields, and calls of offered functions.

A text has the meaning that it has in a Spark session with default settings and :func:`geoskip.register_functions`, so
that an index built here equals one built by Spark. Any other SQL needs Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from geoskip.errors import NeedsSparkError, UnknownColumnError, UnsupportedColumnError
from geoskip.indexes.base import Index
from geoskip.predicates import Call, Column, Literal, Predicate
from geoskip.registry.fingerprint import Unidentifiable
from geoskip.registry.installed import implementation_of_offered, offered_by_name
from geoskip.sources.column_names import matching_names, quote_if_needed, unquote_name
from geoskip.types import sql_type

_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*|`(?:[^`]|``)+`)|(?P<number>-?\s*\d+(?:\.\d+)?)(?![\w.])|(?P<text>'[^'\\]*')"
    r"|(?P<sign>[(),.]))",
    re.ASCII,
)
_WORDS = frozenset(["null", "true", "false", "case", "not", "cast", "interval", "exists"])
"""Words that SQL does not parse as a column."""
_PASSED = frozenset(["timestamp", "timestamp_ntz"])
"""Types that are passed to Python functions in the session's time zone."""


@dataclass(frozen=True)
class TextBinder:
    """Binder of texts to the columns of a dataset; ``types`` has Spark's names of their types."""

    types: Mapping[str, str]
    case_sensitive: bool = False
    unread: Mapping[str, str] = field(default_factory=dict)
    """Arrow's names of the types of columns that Spark does not read."""

    def bind(self, index: Index, text: str) -> Predicate:
        """Parse the text of an index's expression.

        Raises
        ------
        UnknownColumnError
            For a column that the dataset does not have.
        NeedsSparkError
            For SQL that only Spark evaluates.
        """
        if text in self.types and self._matching_name(text, self.types) is not None:
            return Column(quote_if_needed(text), self.types[text])
        return _Parser(self, index, text).whole()

    def column(self, index: Index, parts: list[str]) -> Column:
        """Column or nested field with a path of names."""
        known = self._matching_name(parts[0], self.types)
        if known is None:
            unknown = UnknownColumnError(f"{index}: {UnknownColumnError.of(parts[0], self.types)}")
            raise self._unread_column(index, parts[0]) or unknown
        name, kind = quote_if_needed(known), sql_type(self.types[known])
        for part in parts[1:]:
            fields = dict(kind.fields)
            found = self._matching_name(part, fields)
            if found is None:
                shown = f"is {kind.name}" if not fields else f"has the fields {', '.join(fields)}"
                raise UnknownColumnError(f"{index}: there is no {part} in {name}, which {shown}")
            name, kind = f"{name}.{quote_if_needed(found)}", fields[found]
        return Column(name, kind.name)

    def _matching_name(self, name: str, names: Iterable[str]) -> str | None:
        found = matching_names(name, names, case_sensitive=self.case_sensitive)
        return found[0] if len(found) == 1 else None

    def _unread_column(self, index: Index, name: str) -> UnsupportedColumnError | None:
        kind = self.unread.get(self._matching_name(name, self.unread) or "")
        if kind is None:
            return None
        out = (
            "write it in microseconds, as with coerce_timestamps='us'" if "[ns" in kind else "write it as another type"
        )
        return UnsupportedColumnError(f"{index} cannot be built: {name} is {kind}, which Spark does not read; {out}")


class _Parser:
    """Parser of one text."""

    def __init__(self, binder: TextBinder, index: Index, text: str) -> None:
        self.binder, self.index, self.text = binder, index, text
        if _TOKEN.sub("", text).strip():
            raise self.refusal()
        found = [(str(token.lastgroup), token[str(token.lastgroup)]) for token in _TOKEN.finditer(text)]
        self.tokens = [("end", ""), *reversed(found)]
        """The tokens that are left, the next one last."""

    def whole(self) -> Predicate:
        found = self.expression()
        if len(self.tokens) > 1:
            raise self.refusal()
        return found

    def expression(self) -> Predicate:
        kind, token = self.tokens.pop()
        if kind == "number" and (number := _number(re.sub(r"\s", "", token))) is not None:
            return number
        if kind == "text":
            return Literal(token[1:-1], "string")
        if kind != "name" or token.lower() in _WORDS:
            raise self.refusal()
        if self._next_is("(") and not token.startswith("`"):
            return self._call(token)
        parts = [unquote_name(token)]
        while self._next_is("."):
            self.tokens.pop()
            kind, token = self.tokens.pop()
            if kind != "name":
                raise self.refusal()
            parts.append(unquote_name(token))
        return self.binder.column(self.index, parts)

    def _call(self, name: str) -> Predicate:
        self.tokens.pop()
        arguments: list[Predicate] = []
        while not self._next_is(")"):
            if arguments and self.tokens.pop()[1] != ",":
                raise self.refusal()
            arguments.append(self.expression())
        self.tokens.pop()
        function = offered_by_name().get(name.lower())
        if function is None:
            raise self.refusal(f"{name} is no function that an installed library offers to geoskip")
        for argument in arguments:
            kind = sql_type(argument.type)
            if not kind.is_plain or kind.kind in _PASSED:
                raise self.refusal(f"{name} is given {argument}, of type {kind.name}")
        try:
            implementation, flags = implementation_of_offered(function)
        except Unidentifiable as error:
            raise self.refusal(str(error)) from None
        return Call(function.name, tuple(arguments), implementation, flags, function.returns)

    def _next_is(self, sign: str) -> bool:
        return self.tokens[-1] == ("sign", sign)

    def refusal(self, why: str = "") -> NeedsSparkError:
        """Error for a text that only Spark can evaluate."""
        return NeedsSparkError(
            f"{self.index}: {self.text!r} needs Spark{f' ({why})' if why else ''}; without it geoskip.build() indexes "
            "columns, fields of structs, and calls of functions that geoskip offers over them, such as "
            "GeoBox('ST_GeomFromWKB(shape)'); build it by geoskip.dataset(spark, path).create_index(...)"
        )


def _number(text: str) -> Literal | None:
    """Numeric literal of SQL; None if no type can hold its digits."""
    if "." not in text:
        kind = next((kind for kind in ("int", "bigint") if int(text) in sql_type(kind).values), None)
        return None if kind is None else Literal(int(text), kind)
    whole, _, digits = text.lstrip("-").partition(".")
    precision = max(len(whole.lstrip("0")) + len(digits), 1)
    kind = f"decimal({precision},{len(digits)})"
    return Literal(Decimal(text), kind) if precision <= 38 else None
