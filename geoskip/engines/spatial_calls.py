"""Calls of the shapely-backed ``ST_`` functions, made without Spark."""

from __future__ import annotations

from geoskip.predicates import Call, Predicate
from geoskip.sources.offered_functions import implementation_of_offered, offered_by_name


def spatial_call(name: str, *arguments: Predicate) -> Call:
    """A call as a session with :func:`geoskip.register_functions` has it.

    >>> spatial_call("st_isempty").type
    'boolean'
    """
    offered = offered_by_name()[name.lower()]
    implementation, flags = implementation_of_offered(offered)
    return Call(offered.name, arguments, implementation, flags, offered.returns)
