"""JSON records: the limits of Spark's parser, and a test of records that Spark could not convert."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

_LIMITS = {"maxStringLen": 20_000_000, "maxNumLen": 1000, "maxNestingDepth": 1000}
"""Options with their defaults: Spark compares with these limits only some of what a query does not read."""


def reason_of_limits(options: Mapping[str, str]) -> str | None:
    """Return why an option, named in small letters, makes values depend on the columns read, or None."""
    for name, usual in _LIMITS.items():
        limit = options.get(name.lower(), str(usual))
        if not limit.isdecimal() or int(limit) < usual:
            return f"with {name}={limit} what a column holds depends on the columns read beside it"
    return None


def is_json(record: Any) -> bool:
    """Test whether a record that Spark could not convert is valid JSON, with values of other types."""
    try:
        text = record.as_py()
        json.loads(text, parse_constant=int)  # fails for NaN and Infinity, which are not JSON
    except (ValueError, RecursionError):
        return False
    if len(text) > _LIMITS["maxStringLen"] or _depth(text) > _LIMITS["maxNestingDepth"]:
        return False
    return re.search(rf"\d{{{_LIMITS['maxNumLen']}}}", text) is None


def _depth(text: str) -> int:
    """Number of arrays and objects within each other in valid JSON."""
    brackets = re.findall(r"[][{}]", re.sub(r'"(?:[^"\\]|\\.)*"', "", text))
    return max(itertools.accumulate(1 if bracket in "[{" else -1 for bracket in brackets), default=0)
