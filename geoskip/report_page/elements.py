"""HTML elements as text; all other values are data and are escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable

_VOID = ("meta",)


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
