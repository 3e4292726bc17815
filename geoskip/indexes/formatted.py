r"""Formatted: the distinct values of parts of formatted text.

The index of Extensible Data Skipping, table I and section V-F.

A user-agent string, a log line or a path has parts, and queries extract a part by a function:
``get_agent_name(user_agent) = 'Hacker'``. The text itself has too many values to list, its parts have few.

*Extractors*: a function by its SQL name (a Python UDF that was registered, or one of Spark's), an SQL expression with
``{}`` for the column, or a *template*: a regular expression with named groups, where each group is an indexed part.

*Stored per file*: for each part the list of its distinct values, as in :mod:`geoskip.indexes.valuelist`, and the number
of NULLs.

*Why skipping is sound*: the lists are used only if the query contains the indexed expression, and a deterministic
condition over that is decided value by value as for ValueList. User functions are compared by their identity: the
version that the author declared, else a digest of the function's code and of the code that it calls, with the releases
of the libraries that it calls (:mod:`geoskip.registry.fingerprint`). With another body, or another release of a
parser's library, nothing is skipped.

*How to query a part*: ``Formatted("line", template=r"^(?<ip>\S+) \S+ \S+ \[(?<day>[^:]+)")`` supports conditions on
``regexp_extract(line, r'...', 1)`` with the template's text and the group's number; :meth:`Formatted.part` returns this
call::

    log = Formatted("line", template=r"^(?<ip>\S+) \S+ \S+ \[(?<day>[^:]+)")
    spark.sql(f"SELECT count(*) FROM log WHERE {log.part('day')} = '01/Jul/1995'")

Spark returns '' for a line that does not match the template; the index stores the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from geoskip.clauses import Clause, all_of
from geoskip.errors import InvalidSpecificationError
from geoskip.indexes.base import Index, SourceColumn, Summary, index, require_text
from geoskip.indexes.file_statistics import FileStatistics
from geoskip.indexes.stored_bounds import bound_type
from geoskip.indexes.valuelist import list_clause, list_of, list_statistics, merged_list
from geoskip.predicates import Predicate


@index
@dataclass(frozen=True)
class Formatted(Index):
    r"""The distinct values of what is extracted from a column, up to ``limit`` a file and part.

    Supports any deterministic condition over an extracted part: ``= <> IN LIKE``, functions of it, their negations.

    >>> str(Formatted("user_agent", extract="get_agent_name"))
    'formatted(user_agent, extract=get_agent_name)'
    >>> Formatted("user_agent", extract="get_agent_name").part()
    'get_agent_name(user_agent)'
    >>> Formatted("url", extract="parse_url({}, 'HOST')").part()
    "parse_url(url, 'HOST')"
    >>> Formatted("line", template=r"^(?<ip>\S+) .*\[(?<day>[^:]+)").part("day")
    "regexp_extract(line, r'^(?<ip>\\S+) .*\\[(?<day>[^:]+)', 2)"
    """

    column: str
    extract: str | None = None
    template: str | None = None
    limit: int = 10_000
    kind: ClassVar[str] = "formatted"

    def __post_init__(self) -> None:
        require_text(self, self.column)
        if (self.extract is None) == (self.template is None):
            raise InvalidSpecificationError(
                f"Formatted({self.column!r}) needs either extract=, a function's name or an SQL expression, or "
                "template=, a regular expression with named groups such as r'^(?<ip>\\S+) '"
            )
        if type(self.limit) is not int or self.limit < 1:
            raise InvalidSpecificationError(
                f"Formatted(limit=) takes a number from 1 on, got {self.limit!r}; 10_000 serves well"
            )
        if self.extract is not None:
            _check_extract(self.extract)
        else:
            _check_template(self.template)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the template's parts; one empty name for an extractor."""
        return tuple(_groups(self.template)) if self.template is not None else ("",)

    def part(self, name: str = "") -> str:
        """Return the SQL text of a part, which conditions must contain for the index to be used."""
        if name not in self.parts:
            known = ", ".join(self.parts) if self.template is not None else "one without a name"
            raise InvalidSpecificationError(f"{self} has no part {name!r}; its parts are {known}")
        column = _quote_column(self.column)
        if self.template is not None:
            quote = '"' if "'" in self.template else "'"
            return f"regexp_extract({column}, r{quote}{self.template}{quote}, {_groups(self.template)[name]})"
        extract = self.extract or ""
        return extract.replace("{}", column) if "(" in extract else f"{extract}({column})"

    def expressions(self) -> tuple[str, ...]:
        """Return the parts as SQL."""
        return tuple(map(self.part, self.parts))

    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        """``struct<values: list, nulls, rows>``; a template's ``<part>_values`` and ``<part>_nulls``."""
        fields: list[tuple[str, pa.DataType]] = []
        for prefix, column in zip(self._prefixes(), columns, strict=True):
            fields.append((f"{prefix}values", pa.list_(bound_type(column, self.kind))))
            fields.append((f"{prefix}nulls", pa.int64()))
        return pa.struct([*fields, ("rows", pa.int64())])

    def collect(self, *values: pa.Array) -> Summary | None:
        """Return the distinct values of each part of the text, in one file or in a part of it."""
        return self._named_lists(list_of(array, self.limit) for array in values)

    def merge(self, summaries: Sequence[Summary]) -> Summary:
        """Return the union of the values of each part of the text."""
        merged = []
        for prefix in self._prefixes():
            lists = [
                {"values": s[f"{prefix}values"], "nulls": s[f"{prefix}nulls"], "rows": s["rows"]} for s in summaries
            ]
            merged.append(merged_list(lists, self.limit))
        return self._named_lists(merged)

    def statistics(self, summaries: pa.StructArray) -> Sequence[FileStatistics]:
        """Return the values of each part of the text."""
        parts = zip(self.expressions(), self.bound, self._prefixes(), strict=True)
        return [list_statistics(text, bound.type or "unknown", summaries, prefix) for text, bound, prefix in parts]

    def clause(self, node: Predicate) -> Clause | None:
        """Return the condition that a vertex implies for the values of the part that it reads."""
        found = [
            list_clause(str(self), over, node, prefix)
            for prefix, over in zip(self._prefixes(), self.bound, strict=True)
        ]
        clauses = [clause for clause in found if clause is not None]
        return all_of(clauses) if clauses else None

    def _prefixes(self) -> list[str]:
        return [f"{name}_" if name else "" for name in self.parts]

    def _named_lists(self, lists: Sequence[Summary] | Iterator[Summary]) -> dict[str, object]:
        summary: dict[str, object] = {}
        for prefix, found in zip(self._prefixes(), lists, strict=True):
            summary |= {f"{prefix}values": found["values"], f"{prefix}nulls": found["nulls"], "rows": found["rows"]}
        return summary

    def _spec_text(self) -> str:
        how = f"extract={self.extract}" if self.extract is not None else f"template={self.template}"
        limit = "" if self.limit == type(self).limit else f", limit={self.limit}"
        return f"{self.kind}({self.column}, {how}{limit})"


def _check_extract(extract: object) -> None:
    if not isinstance(extract, str):
        name = getattr(extract, "__name__", "parse")
        raise InvalidSpecificationError(
            f"Formatted(extract=) takes the SQL name of a function, got {extract!r}; register it and name it: "
            f"spark.udf.register({name!r}, ...), extract={name!r}"
        )
    if "(" in extract and "{}" not in extract:
        raise InvalidSpecificationError(
            f"Formatted(extract={extract!r}) must say where the column stands, with {{}}: \"parse_url({{}}, 'HOST')\""
        )
    if "(" not in extract and not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,2}", extract):
        raise InvalidSpecificationError(
            f"Formatted(extract={extract!r}) is neither a function's name nor an SQL expression over {{}}, the column"
        )


def _check_template(template: object) -> None:
    if not isinstance(template, str):
        raise InvalidSpecificationError(f"Formatted(template=) takes a regular expression, got {template!r}")
    if "(?P<" in template:
        raise InvalidSpecificationError(
            f"Formatted(template={template!r}) is not in Java's syntax, which Spark's is; write (?<name>...)"
        )
    if "'" in template and '"' in template:
        raise InvalidSpecificationError(
            f"Formatted(template={template!r}) holds both kinds of quotes; write one of them as \\x27 or \\x22"
        )
    if not _groups(template):
        raise InvalidSpecificationError(
            f"Formatted(template={template!r}) names no part; give its groups names: (?<name>...)"
        )


_TOKEN = re.compile(r"\\Q.*?(?:\\E|$)|\\.|\[\^?\]?|\]|\(\?<([A-Za-z][A-Za-z0-9]*)>|\(\?|\(", re.DOTALL)


def _groups(template: str) -> dict[str, int]:
    r"""Return the numbers of the named groups of a Java regular expression.

    >>> _groups(r"(a(?<b>\(c)[(](?:d)(?<=e)(?<f>g))")
    {'b': 2, 'f': 3}
    """
    groups: dict[str, int] = {}
    number = depth = 0
    for token in _TOKEN.finditer(template):
        text = token[0]
        if text.startswith("["):
            depth += 1  # character classes can be nested in Java
        elif text == "]":
            depth -= depth > 0
        elif text.startswith("(") and depth == 0 and (text == "(" or token[1]):
            number += 1
            if token[1]:
                groups[token[1]] = number
    return groups


def _quote_column(column: str) -> str:
    """Return a column as SQL, in backquotes if its name is not a plain word; expressions are unchanged.

    >>> _quote_column("line"), _quote_column("request.line"), _quote_column("user agent"), _quote_column("lower(line)")
    ('line', 'request.line', '`user agent`', 'lower(line)')
    """
    plain = re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", column)
    return column if plain or "(" in column or "`" in column else f"`{column}`"
