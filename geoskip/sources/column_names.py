"""Parts of a column's name, with and without SQL's backquotes."""

from __future__ import annotations

import re
from collections.abc import Iterable


def quote_if_needed(part: str) -> str:
    """One part of a column's name, in backquotes if it contains dots or spaces.

    >>> quote_if_needed("temp"), quote_if_needed("a.b"), quote_if_needed("odd`name")
    ('temp', '`a.b`', '`odd``name`')
    """
    return part if part.replace("_", "a").isalnum() else backquote(part)


def parts_of_name(name: str) -> list[str]:
    """Parts of a column's name in a predicate.

    >>> parts_of_name("a.`b.c`.`d``e`")
    ['a', 'b.c', 'd`e']
    """
    parts = re.findall(r"`((?:[^`]|``)*)`|([^.`]+)", name)
    return [quoted.replace("``", "`") or plain for quoted, plain in parts]


def backquote(part: str) -> str:
    """One part of a column's name in backquotes."""
    return "`" + part.replace("`", "``") + "`"


def unquote_name(part: str) -> str:
    """One part of a column's name without backquotes."""
    return part[1:-1].replace("``", "`") if part.startswith("`") else part


def matching_names(name: str, names: Iterable[str], *, case_sensitive: bool) -> list[str]:
    """The names that Spark takes for a name.

    >>> matching_names("a", ["A", "b", "a"], case_sensitive=False)
    ['A', 'a']
    """
    return [one for one in names if one == name or (not case_sensitive and one.lower() == name.lower())]
