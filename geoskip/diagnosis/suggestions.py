"""The index to create for a condition that none serves, and its text as code."""

from __future__ import annotations

from collections.abc import Sequence

from geoskip.advisor.advice import python_of
from geoskip.indexes.affix import Prefix, Suffix
from geoskip.indexes.base import Index
from geoskip.indexes.formatted import Formatted
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.metricdist.index import MetricDist
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.valuelist import ValueList
from geoskip.predicates import Call, Predicate, walk
from geoskip.registry import current
from geoskip.types import sql_type

__all__ = ["best_index", "code_of", "is_of_user"]

_ORDER: tuple[type[Index], ...] = (MinMax, ValueList, Prefix, Suffix, Formatted, MetricDist, GeoBox)
"""Index types, those first that suit most conditions on columns."""


def code_of(index: Index | None) -> str:
    """An index as code, with double quotes where that is possible; empty for None.

    >>> code_of(MetricDist("word", metric="levenshtein"))
    'MetricDist("word", metric="levenshtein")'
    """
    text = "" if index is None else python_of(index)
    return text if '"' in text or "\\" in text else text.replace("'", '"')


def best_index(candidates: Sequence[Index], test: Predicate) -> Index | None:
    """The index to suggest for a test: one made for its functions, else bounds or a list, columns first."""
    calls = [node for node in walk(test) if isinstance(node, Call) and node.name not in ("if", "coalesce")]
    order: list[type[Index]] = [MetricDist, GeoBox] if calls else []
    if any(call.name == "regexp_extract" for call in calls):
        order = [Formatted]
    elif mapped := [kind for call in calls for mapping in current().rules_of(call) for kind in mapping.indexes]:
        order = mapped
    elif any(map(is_of_user, calls)):
        order = [Formatted]
    order += _ORDER

    def rank(index: Index) -> tuple[int, int]:
        computed = [bound for bound in index.bound if isinstance(bound, Call)]
        if isinstance(index, MinMax) and computed:  # as a list of them, but for texts
            of_text = any(sql_type(call.type).is_text for call in computed)
            return (len(order), 0) if of_text else (order.index(ValueList), 1)
        return order.index(type(index)) if type(index) in order else len(order), 2 if computed else 0

    return min(candidates, key=rank, default=None)


def is_of_user(call: Call) -> bool:
    """True for a user's function in Python."""
    return (call.implementation or "").startswith("python:")
