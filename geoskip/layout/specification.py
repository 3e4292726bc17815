"""Specifications of layouts: the expressions that determine which rows are in the same file.

Expressions are texts, as for indexes: a column's name or SQL over the columns. A geometry (as WKB) is ordered by its
centre, as two dimensions. H3 cells need no special support: the bits of a cell's number are its base cell and then a
digit for each resolution, so that cells of one resolution, as numbers or as texts, sort by region.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from geoskip.errors import InvalidSpecificationError

MOST_EXPRESSIONS = 8


@dataclass(frozen=True, init=False)
class Layout:
    """The base class of layouts: :class:`ZOrder`, :class:`Hilbert`, :class:`KDTree`, :class:`Sort`.

    Parameters
    ----------
    *expressions
        One to eight column names or SQL texts, each once.

    Raises
    ------
    InvalidSpecificationError
        For no expression, more than eight, duplicates, and values that are not text.
    """

    expressions: tuple[str, ...]
    kind: ClassVar[str] = ""

    def __init__(self, *expressions: str) -> None:
        name = type(self).__name__
        if type(self) is Layout:
            raise InvalidSpecificationError("Layout is the base of ZOrder, Hilbert, KDTree and Sort; use one of these")
        if not expressions:
            raise InvalidSpecificationError(f"{name} needs a column at least, such as {name}('lng', 'lat'), got none")
        for text in expressions:
            if not isinstance(text, str) or not text.strip():
                raise InvalidSpecificationError(f"{name} takes column names or SQL texts, got {text!r}")
        if len(expressions) > MOST_EXPRESSIONS:
            raise InvalidSpecificationError(
                f"{name} takes at most {MOST_EXPRESSIONS} columns, got {len(expressions)}: each further one spoils the "
                "order of the others, so name those that queries filter most"
            )
        stripped = [text.strip() for text in expressions]
        if twice := sorted({text for text in stripped if stripped.count(text) > 1}):
            raise InvalidSpecificationError(f"{name} names {', '.join(twice)} twice; name each column once")
        object.__setattr__(self, "expressions", tuple(expressions))

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(self.expressions)})"

    def to_json(self) -> dict[str, Any]:
        """Return the specification as JSON: its kind and expressions."""
        return {"kind": self.kind, "expressions": list(self.expressions)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Layout:
        """Return the layout that :meth:`to_json` described; other members are ignored.

        Raises InvalidSpecificationError for an unknown kind, and for expressions that are not text.

        >>> str(Layout.from_json({"kind": "hilbert", "expressions": ["lng", "lat"]}))
        'hilbert(lng, lat)'
        """
        kinds = {layout.kind: layout for layout in (ZOrder, Hilbert, KDTree, Sort)}
        kind, expressions = data.get("kind"), data.get("expressions")
        if kind not in kinds:
            raise InvalidSpecificationError(f"no layout of kind {kind!r} is known here, only {', '.join(kinds)}")
        if not isinstance(expressions, list | tuple):
            raise InvalidSpecificationError(f"the layout {kind} should have a list of expressions, got {expressions!r}")
        return kinds[kind](*expressions)


class ZOrder(Layout):
    """Rows in Z-order: by the interleaved bits of all columns' ranks.

    Conditions on any column skip nearly equally well; rows near each other in all columns are mostly in one file.

    >>> str(ZOrder("lng", "lat", "ts"))
    'zorder(lng, lat, ts)'
    """

    kind = "zorder"


class Hilbert(Layout):
    """Rows in the order of the Hilbert curve, which, unlike the Z-order curve, has no jumps.

    Ranges over several columns at once read fewer files.

    >>> str(Hilbert("lng", "lat"))
    'hilbert(lng, lat)'
    """

    kind = "hilbert"


class KDTree(Layout):
    """Rows in the leaves of a k-d tree, cut near medians of a sample.

    Each file is a box, and boxes overlap only where rows are equal in all columns.

    >>> str(KDTree("lng", "lat"))
    'kdtree(lng, lat)'
    """

    kind = "kdtree"


class Sort(Layout):
    """Rows in lexical order: best for conditions on the first column, of little use for the others.

    >>> str(Sort("ts", "id"))
    'sort(ts, id)'
    """

    kind = "sort"
