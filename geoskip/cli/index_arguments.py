"""Indexes given as text, as ``str(index)`` writes them: ``prefix(city, length=8)``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from geoskip.errors import InvalidSpecificationError

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

_CALL = re.compile(r"\s*(\w+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_OPENING, _CLOSING, _QUOTES = "([{", ")]}", "'\"`"


def parse_index(text: str) -> Index:
    """Return the index of a text such as ``geobox(lng, lat, boxes=4)``.

    The expressions come first, then options by name. The value of an option, with or without quotes, ends where the
    next option begins. Raises InvalidSpecificationError.

    >>> str(parse_index("prefix(city, length=8)")), parse_index("formatted(agent, extract='get_agent_name')").extract
    ('prefix(city, length=8)', 'get_agent_name')
    >>> str(parse_index("minmax(length(city))"))
    'minmax(length(city))'
    """
    found = _CALL.fullmatch(text)
    if found is None or found[2] is None:
        raise InvalidSpecificationError(
            f"{text!r} is no index: write a kind with a column or SQL expression, such as minmax(temp) or "
            "prefix(path, length=20)"
        )
    return index_of(found[1], found[2])


def index_of(name: str, inside: str) -> Index:
    """Return the index of a kind and the text between its parentheses, such as ``path, length=20``."""
    from geoskip.indexes.base import index_from_json

    kind = _kind_named(name)
    taken = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    positional = [each for each in ("column", "expr", "exprs", "x", "y") if each in taken]
    optional = [each for each in taken if each not in (*positional, "function")]
    expressions, options = _split(inside, optional)
    example = f"{name}({KINDS.get(name.lower(), 'column')})"
    if not expressions or not all(expressions):
        raise InvalidSpecificationError(f"{name}({inside}) needs a column or SQL expression, as in {example}")
    spec: dict[str, Any] = {option: _value(name, taken[option], text) for option, text in options.items()}
    if "exprs" in taken:
        spec["exprs"] = expressions
    elif len(expressions) <= len(positional):
        spec |= dict(zip(positional, expressions, strict=False))
    else:
        raise InvalidSpecificationError(_too_many(name, expressions[len(positional) - 1 :], optional, len(positional)))
    return index_from_json({"kind": name.lower(), **spec})


def _kind_named(name: str) -> type[Index]:
    from geoskip.indexes.base import index_kinds

    kinds: Mapping[str, type[Index]] = index_kinds()
    if (kind := kinds.get(name.lower())) is not None:
        return kind
    near = get_close_matches(name.lower(), kinds, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise InvalidSpecificationError(
        f"{name} is no kind of index; {hint}there are {', '.join(sorted(kinds))}; --import a module with others"
    )


def _too_many(name: str, surplus: list[str], optional: list[str], most: int) -> str:
    """Message for surplus expressions of an index; one of them may be a misspelt option."""
    count = "one column or expression" if most == 1 else f"at most {most} columns or expressions"
    for text in surplus[1:]:
        if option := re.match(r"(\w+)\s*=[^=]", text):
            known = ", ".join(f"{each}=" for each in optional) or "none"
            return f"{name} has no option {option[1]}=; its options are {known}"
    others = f"--{name.lower()} {surplus[1]!r}" if name.lower() in KINDS else f"{name}({surplus[1]})"
    return f"{name} takes {count}, got {surplus[1]!r} besides; give an index of its own for it: {others}"


def _value(name: str, field: dataclasses.Field[Any], text: str) -> Any:
    """Value of an option: a number if the field has a numeric type, else the text without its quotes."""
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        return text[1:-1]
    numbers = [kind for kind in (int, float) if kind.__name__ in str(field.type) or str(field.type) == "Any"]
    for kind in numbers:
        try:
            return kind(text.replace("_", "") if kind is int else text)
        except ValueError:
            continue
    if numbers and str(field.type) != "Any":
        raise InvalidSpecificationError(f"{name}({field.name}=) takes a number, got {text!r}")
    return text


def _split(inside: str, options: list[str]) -> tuple[list[str], dict[str, str]]:
    """Expressions and options between the parentheses of an index; an option ends where the next begins.

    >>> _split("f(a, 'x,y'), b, length=8", ["length"])
    (["f(a, 'x,y')", 'b'], {'length': '8'})
    >>> _split(r"line, template=^(?<day>[(]+), x, limit=5", ["template", "limit"])
    (['line'], {'template': '^(?<day>[(]+), x', 'limit': '5'})
    """
    begins = re.compile(rf"\s*({'|'.join(options) or '(?!)'})\s*=(?![=>])", re.IGNORECASE)
    starts = [start for start in _starts(inside) if begins.match(inside, start)][:1]
    named: dict[str, str] = {}
    for first in starts:
        rest = inside[first:]
        found = list(re.finditer(rf"(?:^|,){begins.pattern}", rest, begins.flags))
        ends = [*(match.start() for match in found[1:]), len(rest)]
        named |= {match[1].lower(): rest[match.end() : end].strip() for match, end in zip(found, ends, strict=True)}
        inside = inside[:first].rstrip().removesuffix(",")
    starts = list(_starts(inside))
    ends = [*(start - 1 for start in starts[1:]), len(inside)]
    return [inside[start:end].strip() for start, end in zip(starts, ends, strict=True)], named


def _starts(text: str) -> Iterator[int]:
    """Positions after commas that are outside of brackets and quotes, and 0."""
    depth, quote = 0, ""
    yield 0
    for place, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in _QUOTES:
            quote = sign
        elif sign in _OPENING:
            depth += 1
        elif sign in _CLOSING:
            depth -= 1
        elif sign == "," and depth <= 0:
            yield place + 1
