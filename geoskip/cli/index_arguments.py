"""Indexes given as text: items of SQL statements, such as ``prefix(city, length=8)``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from geoskip.errors import InvalidSpecificationError, StatementError

if TYPE_CHECKING:
    from geoskip.indexes.base import Index

KINDS = {
    "minmax": "temp",
    "gaplist": "temp",
    "valuelist": "city",
    "bloomfilter": "account",
    "hybrid": "account",
    "prefix": "path, length=20",
    "suffix": "host",
    "formatted": "user_agent, extract=get_agent_name",
    "metricdist": "word, metric=levenshtein",
    "geobox": "lng, lat",
}
"""The kinds of geoskip's own indexes, each with an example of the text in its parentheses."""

_POSITION = re.compile(r" \(line \d+, position \d+\)$")


def parse_index(text: str) -> Index:
    """Return the index of a text such as ``geobox(lng, lat, boxes=4)``.

    Raises InvalidSpecificationError.

    >>> str(parse_index("prefix(city, length=8)")), parse_index("formatted(agent, extract='get_agent_name')").extract
    ('prefix(city, length=8)', 'get_agent_name')
    """
    from geoskip.statements.index_items import parse_item
    from geoskip.statements.tokens import tokenize

    try:
        *tokens, end = tokenize(text)
        item = parse_item(text, tokens, end)
    except StatementError as error:  # of several lines: the problem, the text, carets, the remedy
        problem, _, _, *way_out = str(error).splitlines()
        raise InvalidSpecificationError("; ".join([_POSITION.sub("", problem), *way_out])) from None
    assert item.index is not None
    return item.index


def index_of(name: str, inside: str) -> Index:
    """Return the index of a kind and the text between its parentheses, such as ``path, length=20``."""
    return parse_index(f"{name}({inside})")
