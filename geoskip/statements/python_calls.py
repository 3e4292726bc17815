"""Messages of geoskip's Python interface, rewritten with the equivalent statements."""

from __future__ import annotations

import re

_STATEMENTS = (
    (r"create_index\(MinMax\('column'\)\)", "CREATE SKIPPING INDEX ON {} (column MINMAX)"),
    (r"create_index\([^()]*\)", "CREATE SKIPPING INDEX ON {} (...)"),
    (r"refresh_index\(mode='(\w+)'\)", r"REFRESH SKIPPING INDEX ON {} \1"),
    (r"refresh_index\(\)", "REFRESH SKIPPING INDEX ON {}"),
    (r"restore_index\(\)", "RESTORE SKIPPING INDEX ON {}"),
    (r"delete_index\('([^']*)'\)", r"DROP SKIPPING INDEX \1 ON {}"),
    (r"delete_index\(\)", "DROP SKIPPING INDEX ON {}"),
    (r"vacuum_index\(\)", "VACUUM SKIPPING INDEX ON {}"),
    (r"repair\(\)", "REPAIR SKIPPING INDEX ON {}"),
)
"""Python calls in messages, and the equivalent statements; the order matters."""
INDEX_CALL = re.compile(
    r"\b(MinMax|GapList|ValueList|BloomFilter|Hybrid|Prefix|Suffix|Formatted|MetricDist|GeoBox)"
    r"\(((?:[^()]|\([^()]*\))+)\)"
)
"""The specification of an index in Python: its class, and its arguments."""


def in_statements(text: str, target: str = "...") -> str:
    """Rewrite the Python calls in a message as statements on a target, with its items.

    >>> in_statements("towns has no index yet; create one: dataset.create_index(MinMax('column'))", "towns")
    'towns has no index yet; create one: CREATE SKIPPING INDEX ON towns (column MINMAX)'
    >>> in_statements("prefix(id) needs text, got bigint: BloomFilter('id') serves equality")
    'prefix(id) needs text, got bigint: BLOOMFILTER(id) serves equality'
    """
    for call, statement in _STATEMENTS:
        text = re.sub(rf"(?:\bdataset\.|\b){call}", statement.replace("{}", target.replace("\\", r"\\")), text)
    return INDEX_CALL.sub(_item, text)


def _item(found: re.Match[str]) -> str:
    """Convert an index in Python to an item."""
    inside = re.sub(r"(^|, ?)(['\"])(.*?)\2(?=,|$)", r"\1\3", found[2])
    return f"{found[1].upper()}({inside})"
