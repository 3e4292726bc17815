"""The registry of what is known about functions, declared by decorators.

Four declarations, each returns its function unchanged and is validated when it is made:

* :func:`maps` -- a predicate over a function, or a comparison of the function's value, mapped to a clause;
* :func:`constant` -- a function that geoskip may evaluate when its arguments are literals;
* :func:`denotes` -- what an expression denotes over columns: ``ST_Point(x, y)`` is the point at (x, y);
* :func:`declare` -- properties of a function (metric, monotone, ...).

A declaration binds to an *implementation*: the Catalyst class, or the Python function that was registered under the
name. A function is given as one of

* a :class:`Function`, a name together with the implementations meant (what libraries use);
* the Python function or UDF object itself;
* a SQL name: it binds to the one implementation that geoskip first meets under that name, so that another function
  registered under it later does not meet the mapping.

A declaration repeated by the same module replaces the earlier one, so that a notebook's cell can be run twice. A
declaration that contradicts one of another module raises MappingError.

:func:`mappings` opens a scope for tests; the current scope is one for the process, because the planning thread is
not the user's. What fails at query time is put in *quarantine* (:meth:`Registry.leave_out`): it is not called until
it is registered again or released.
"""

from __future__ import annotations

from geoskip.registry.decorators import constant, declare, denotes, maps
from geoskip.registry.functions import SPELLINGS, Function, Given, Named
from geoskip.registry.registry import (
    ConstantDeclaration,
    DenotationDeclaration,
    FunctionProperties,
    Mapping,
    Registry,
    constant_name,
    current,
    lasting,
    mappings,
    quarantined,
    release,
)

__all__ = [
    "SPELLINGS",
    "ConstantDeclaration",
    "DenotationDeclaration",
    "Function",
    "Given",
    "Mapping",
    "Named",
    "FunctionProperties",
    "Registry",
    "constant",
    "constant_name",
    "current",
    "declare",
    "denotes",
    "lasting",
    "mappings",
    "maps",
    "quarantined",
    "release",
]
