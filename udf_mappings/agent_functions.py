"""Parsers of user agents as SQL functions, over the ``ua-parser`` package.

An *agent* is the text of the header ``User-Agent``. The families are those of the uap-core project
(https://github.com/ua-parser/uap-core), which also defines crawlers: its device is ``Spider``. Every function is
NULL for NULL; what the project does not know is NULL too, but for :func:`agent_is_bot`, which is then FALSE.

>>> iphone = (
...     "Mozilla/5.0 (iPhone; CPU iPhone OS 13_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
...     "Version/13.1 Mobile/15E148 Safari/604.1"
... )
>>> agent_family(iphone), agent_name(iphone), agent_os(iphone), agent_device(iphone), agent_is_bot(iphone)
('Mobile Safari', 'Mobile Safari 13', 'iOS', 'iPhone', False)
>>> agent_family("Googlebot/2.1 (+http://www.google.com/bot.html)"), agent_is_bot("Googlebot/2.1")
('Googlebot', True)
"""

from __future__ import annotations

from importlib.metadata import version

import ua_parser

from geoskip.registry import declare
from udf_mappings.library import PlainFunction, offered

__all__ = ["CRAWLER", "DIGITS", "FUNCTIONS"]

FUNCTIONS: dict[str, PlainFunction] = {}
CRAWLER = "Spider"
"""The device of crawlers."""
DIGITS = tuple("0123456789")
"""What the version in a name begins with."""


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
for _entry in FUNCTIONS.values():  # what they reach are tables of another distribution, loaded when first needed
    declare(_entry.function, version=_VERSION, null_in_null_out=True)
