"""Parsers of user agents as SQL functions over ``ua-parser``, mapped to Formatted and ValueList.

An *agent* is the text of the header ``User-Agent``. The families are those of the uap-core project
(https://github.com/ua-parser/uap-core), which also defines crawlers: its device is ``Spider``. Every function is
NULL for NULL; an unknown agent also gives NULL, except for :func:`agent_is_bot`, which is then FALSE.

>>> iphone = (
...     "Mozilla/5.0 (iPhone; CPU iPhone OS 13_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
...     "Version/13.1 Mobile/15E148 Safari/604.1"
... )
>>> agent_family(iphone), agent_name(iphone), agent_os(iphone), agent_device(iphone), agent_is_bot(iphone)
('Mobile Safari', 'Mobile Safari 13', 'iOS', 'iPhone', False)
>>> agent_family("Googlebot/2.1 (+http://www.google.com/bot.html)"), agent_is_bot("Googlebot/2.1")
('Googlebot', True)

A condition on the very expression that is indexed needs no mapping, whatever it is::

    Formatted("user_agent", extract="agent_family")   agent_family(user_agent) LIKE 'Chrome%'
    ValueList("agent_name(user_agent)")               upper(agent_name(user_agent)) = 'CURL 8'

Nor does a condition on the agent's text, ``ValueList("user_agent")``: the parser is called once for each distinct
value. The rules here map conditions on one parser to an index of another.
"""

from __future__ import annotations

import re
from importlib.metadata import version

import ua_parser

from geoskip.clauses import Clause
from geoskip.indexes.affix import Prefix
from geoskip.indexes.base import Index
from geoskip.indexes.formatted import Formatted
from geoskip.indexes.valuelist import ValueList
from geoskip.planner import clause_for
from geoskip.predicates import And, Call, Comparison, In, Like, Literal, Not, Or, Predicate
from geoskip.registry import declare, maps
from udf_mappings import PlainFunction, equality, indexed_call, offered

FUNCTIONS: dict[str, PlainFunction] = {}
CRAWLER = "Spider"
"""The device of crawlers."""
DIGITS = tuple("0123456789")
"""First characters of a version in a name."""


@offered(FUNCTIONS, "string")
def agent_family(agent: str | None) -> str | None:
    """The browser or program: ``Chrome Mobile``, ``curl``, ``Googlebot``."""
    found = ua_parser.parse_user_agent(agent) if agent is not None else None
    return found.family if found is not None else None


@offered(FUNCTIONS, "string")
def agent_name(agent: str | None) -> str | None:
    """The family and its major version, if that is a plain number: ``Chrome Mobile 126``.

    So the family can be told from the name, as in ``Chrome Mobile WebView 126``, which is not of ``Chrome Mobile``.
    """
    found = ua_parser.parse_user_agent(agent) if agent is not None else None
    if found is None:
        return None
    major = found.major or ""
    return f"{found.family} {major}" if major[:1] in DIGITS and " " not in major else found.family


@offered(FUNCTIONS, "string")
def agent_os(agent: str | None) -> str | None:
    """The operating system without its version: ``Android``, ``Windows``."""
    found = ua_parser.parse_os(agent) if agent is not None else None
    return found.family if found is not None else None


@offered(FUNCTIONS, "string")
def agent_device(agent: str | None) -> str | None:
    """The device: ``iPhone``, ``Mac``, ``Spider`` for crawlers."""
    found = ua_parser.parse_device(agent) if agent is not None else None
    return found.family if found is not None else None


@offered(FUNCTIONS, "boolean")
def agent_is_bot(agent: str | None) -> bool | None:
    """True for a crawler."""
    return None if agent is None else agent_device(agent) == CRAWLER


_VERSION = f"2 ua-parser {version('ua-parser')} builtins {version('ua-parser-builtins')}"
for _entry in FUNCTIONS.values():  # their tables are in another distribution, loaded on first use
    declare(_entry.function, version=_VERSION, null_in_null_out=True)


@maps(agent_is_bot, index=(Formatted, ValueList))
def is_bot(node: Predicate, index: Index) -> Clause | None:
    """A bot has the device ``Spider``; an agent with another device, or without one, is no bot."""
    match node:
        case Call(_, (agent,)) if (device := indexed_call(index, agent_device, agent)) is not None:
            return clause_for(Comparison("=", device, Literal(CRAWLER, "string")), [index])
        case Not(Call(_, (agent,))) if (device := indexed_call(index, agent_device, agent)) is not None:
            return clause_for(Not(Comparison("<=>", device, Literal(CRAWLER, "string"))), [index])
    return None


@maps(agent_family, index=(Formatted, ValueList, Prefix))
def family_of_name(node: Predicate, index: Index) -> Clause | None:
    """``agent_family(ua) = 'curl'``: the name is the family, or the family, a blank and a version.

    A version begins with a digit and has no blank, so ``Chrome Mobile WebView 126`` is not of ``Chrome Mobile``.
    """
    match equality(node):
        case (Call(_, (agent,)), families) if (name := indexed_call(index, agent_name, agent)) is not None:
            versions = [_with_version(name, family.value) for family in families]
            return clause_for(Or((In(name, families), *versions)), [index])
    return None


def _with_version(name: Predicate, family: str) -> Predicate:
    """Condition that a name is this family with a version."""
    first, beyond = f"{family} {DIGITS[0]}", f"{family} {chr(ord(DIGITS[-1]) + 1)}"
    plain = re.sub(r"([\\%_])", r"\\\1", family)
    return And((
        Comparison(">=", name, Literal(first, "string")),
        Comparison("<", name, Literal(beyond, "string")),
        Not(Like(name, f"{plain} % %", "\\")),
    ))  # fmt: skip
