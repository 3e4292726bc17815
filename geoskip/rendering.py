"""Results as text and HTML: aligned tables, and HTML elements in which all other values are escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

_VOID = ("br", "meta")
_CELL = "vertical-align:top;padding:0.4em 1em 0.4em 0;border-bottom:1px solid #8884;font-size:90%"
_SIDES = {"l": "left", "r": "right"}


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


Child = str | int | None | Iterable["Child"]
"""An element, a text, None, or several of these."""


def element(tag: str, /, *inside: Child, **attributes: str | int | bool | None) -> Markup:
    """Make an element.

    Parameters
    ----------
    tag
        Its name.
    *inside
        The child elements and texts; texts are escaped.
    **attributes
        The attributes, without those that are None or False; underscores are written as hyphens, except for one at the
        end, which is removed.

    >>> element("p", "1 < 2, ", element("b", "yes"), class_="a", data_of='"x"')
    '<p class="a" data-of="&quot;x&quot;">1 &lt; 2, <b>yes</b></p>'
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{html.escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    end = "" if tag in _VOID else f"{join_children(inside)}</{tag}>"
    return Markup(f"<{tag}{written}>{end}")


def join_children(inside: Child) -> Markup:
    """Concatenate elements and texts.

    >>> join_children(["a&b", [element("i"), None]])
    'a&amp;b<i></i>'
    """
    if inside is None:
        return Markup()
    if isinstance(inside, Markup):
        return inside
    if isinstance(inside, str | int):
        return Markup(html.escape(str(inside)))
    return Markup("".join(map(join_children, inside)))


def html_table(head: Sequence[Child], rows: Iterable[Sequence[Child]], sides: str = "") -> Markup:
    """Make a table with its own style, as a notebook shows it.

    Parameters
    ----------
    head, rows
        The cells.
    sides
        ``l`` or ``r`` for each column; by default all are aligned to the left.
    """
    styles = [f"text-align:{_SIDES[side]};{_CELL}" for side in sides or "l" * len(head)]
    lines = [("th", head), *(("td", row) for row in rows)]
    return element(
        "table",
        *(
            element("tr", *(element(tag, cell, style=style) for cell, style in zip(cells, styles, strict=True)))
            for tag, cells in lines
        ),
        style="border-collapse:collapse",
    )


def html_list(items: Iterable[Child]) -> Markup | None:
    """Make a list; None without items."""
    found = [element("li", item) for item in items]
    return element("ul", *found) if found else None


def widths_of(rows: Iterable[Sequence[str]]) -> list[int]:
    """The width of each column of a table.

    >>> widths_of([("a", "bc"), ("def", "")])
    [3, 2]
    """
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def align_rows(rows: Sequence[Sequence[str]], sides: str = "", gap: str = "  ") -> list[str]:
    """Write a table as lines.

    Parameters
    ----------
    rows
        The cells.
    sides
        ``l`` or ``r`` for each column; by default all are aligned to the left.
    gap
        The text between columns.

    >>> align_rows([("file", "rows"), ("a", "7")], "lr")
    ['file  rows', 'a        7']
    """
    widths = widths_of(rows)
    pads = [str.rjust if side == "r" else str.ljust for side in sides or "l" * len(widths)]
    padded = ((pad(cell, width) for pad, cell, width in zip(pads, row, widths, strict=True)) for row in rows)
    return [gap.join(cells).rstrip() for cells in padded]
