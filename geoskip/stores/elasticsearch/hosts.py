"""Where a server is, and the client that speaks to it."""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import urlsplit

from geoskip.errors import EnvironmentProblem, InvalidSpecificationError

__all__ = ["checked", "is_private", "opensearch"]


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
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise InvalidSpecificationError("give a search store's credentials as user= and password=, not in the URL")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidSpecificationError(f"a search store needs URLs such as 'https://search:9200', got {url!r}")
    port = parts.port or (443 if parts.scheme == "https" else 9200)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"


def is_private(url: str) -> bool:
    """Can nobody else read what is sent there?"""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1", "::1")
