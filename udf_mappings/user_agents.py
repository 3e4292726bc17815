"""Parsers of user agents, mapped to lists of values: Formatted and ValueList.

Bound to the functions of :mod:`udf_mappings.agent_functions`. A condition on the very expression that is indexed needs
no mapping, whatever it is::

    Formatted("user_agent", extract="agent_family")   agent_family(user_agent) LIKE 'Chrome%'
    ValueList("agent_name(user_agent)")               upper(agent_name(user_agent)) = 'CURL 8'

Nor does one on the agent's text, ``ValueList("user_agent")``: the parser is called once a distinct value. The rules
here answer for one parser by an index of another.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from geoskip.clauses import Clause
from geoskip.indexes.base import Index
from geoskip.indexes.formatted import Formatted
from geoskip.indexes.prefix import Prefix
from geoskip.indexes.valuelist import ValueList
from geoskip.labelling import clause_for
from geoskip.predicates import And, Call, Comparison, In, Like, Literal, Not, Or, Predicate
from geoskip.registry import maps
from geoskip.registry.fingerprint import identity
from udf_mappings.agent_functions import CRAWLER, DIGITS, agent_device, agent_family, agent_is_bot, agent_name


def indexed(index: Index, parser: Callable[..., Any], agent: Predicate) -> Call | None:
    """The call of a parser on a text, where the index is over it."""
    for bound in index.bound:
        if isinstance(bound, Call) and bound.implementation == f"python:{identity(parser)}" and bound.args == (agent,):
            return bound
    return None


@maps(agent_is_bot, index=(Formatted, ValueList))
def is_bot(node: Predicate, index: Index) -> Clause | None:
    """A bot is what has the device ``Spider``; any other device, or none, is no bot's."""
    match node:
        case Call(_, (agent,)) if (device := indexed(index, agent_device, agent)) is not None:
            return clause_for(Comparison("=", device, Literal(CRAWLER, "string")), [index])
        case Not(Call(_, (agent,))) if (device := indexed(index, agent_device, agent)) is not None:
            return clause_for(Not(Comparison("<=>", device, Literal(CRAWLER, "string"))), [index])
    return None


@maps(agent_family, index=(Formatted, ValueList, Prefix))
def family_in_name(node: Predicate, index: Index) -> Clause | None:
    """``agent_family(ua) = 'curl'`` over names: the family alone, or it, a blank and a version.

    A version begins with a digit and has no blank, so ``Chrome Mobile WebView 126`` is not of ``Chrome Mobile``.
    """
    match node:
        case Comparison("=", Call(_, (agent,)), Literal(str()) as family):
            families: tuple[Literal, ...] = (family,)
        case In(Call(_, (agent,)), families):
            pass
        case _:
            return None
    name = indexed(index, agent_name, agent)
    if name is None:
        return None
    versions = [_with_version(name, family.value) for family in families]
    return clause_for(Or((In(name, families), *versions)), [index])


def _with_version(name: Predicate, family: str) -> Predicate:
    """True if a name is this family with a version."""
    first, beyond = f"{family} {DIGITS[0]}", f"{family} {chr(ord(DIGITS[-1]) + 1)}"
    plain = re.sub(r"([\\%_])", r"\\\1", family)
    return And((
        Comparison(">=", name, Literal(first, "string")),
        Comparison("<", name, Literal(beyond, "string")),
        Not(Like(name, f"{plain} % %", "\\")),
    ))  # fmt: skip
