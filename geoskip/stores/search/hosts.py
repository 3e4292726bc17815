"""Where a server is, and the client that speaks to it."""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from geoskip.errors import EnvironmentProblem, InvalidSpecificationError

__all__ = ["checked", "headers_with", "is_private", "opensearch"]

_HEADER = re.compile(r"(?! )[ -~\x80-\xff]*(?<! )")


def opensearch() -> tuple[Any, Any]:
    """The client's class and its errors; raises EnvironmentProblem where it is not installed."""
    try:
        import opensearchpy
    except ImportError:
        raise EnvironmentProblem(
            "metadata in Elasticsearch or OpenSearch need opensearch-py: pip install 'geoskip[elasticsearch]'"
        ) from None
    # what failed is an error of ours and no line on the driver's screen; who listens to the log still hears it
    logging.getLogger("opensearch").addHandler(logging.NullHandler())
    return opensearchpy.OpenSearch, opensearchpy.exceptions


def checked(url: str) -> str:
    """A host's URL; raises InvalidSpecificationError without repeating what may be a password."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 9200)
    except (ValueError, TypeError, AttributeError):  # of what is no URL at all it cannot be said what is a password
        raise InvalidSpecificationError("a search store needs URLs such as 'https://search:9200'") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidSpecificationError("give a search store's credentials as user= and password=, not in the URL")
    if parts.query or parts.fragment:
        raise InvalidSpecificationError("a search store's URL ends with its port or path: 'https://search:9200'")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidSpecificationError(f"a search store needs URLs such as 'https://search:9200', got {url!r}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"


def headers_with(headers: Mapping[str, str], user: str | None, password: str | None) -> dict[str, str]:
    """The headers of every request, the credentials among them, in UTF-8 as servers read them. Raises
    InvalidSpecificationError for what no header can hold, such as a key's line break, without repeating it: the client
    would, in a message.
    """
    for name, value in headers.items():
        if not (isinstance(value, str) and _HEADER.fullmatch(value)):
            raise InvalidSpecificationError(
                f"headers= has a value of {name} that no header can hold: a text without line breaks, and without "
                "blanks around it, is needed"
            )
    if user is None or password is None:
        return dict(headers)
    if not (isinstance(user, str) and isinstance(password, str)):
        raise InvalidSpecificationError("a search store's user= and password= are texts")
    told = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
    return {**headers, "Authorization": f"Basic {told}"}


def is_private(url: str) -> bool:
    """Can nobody else read what is sent there?"""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1", "::1")
