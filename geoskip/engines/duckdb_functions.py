"""The shapely-backed ``ST_`` functions as DuckDB calls them: over Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from geoskip.registry.installed import OfferedFunction

SQL_TYPES = {"binary": "BLOB", "string": "VARCHAR", "double": "DOUBLE", "boolean": "BOOLEAN", "int": "INTEGER"}
"""DuckDB's names of Spark's types of results."""
_ARROW = {
    "binary": pa.binary(), "string": pa.string(), "double": pa.float64(), "boolean": pa.bool_(), "int": pa.int32(),
}  # fmt: skip


def on_arrow(offered: OfferedFunction) -> Callable[..., pa.Array]:
    """The function over Arrow arrays of equal length; null for a null argument.

    >>> from geoskip.registry.installed import offered_by_name
    >>> point, text = (on_arrow(offered_by_name()[name]) for name in ("st_point", "st_astext"))
    >>> text(point(pa.array([1.5, None]), pa.array([2.0, 2.0]))).to_pylist()
    ['POINT (1.5 2)', None]
    """

    def over_arrays(*columns: Any) -> pa.Array:
        series = [column.to_pandas() for column in columns]
        found = offered.vectorised(*series) if offered.vectorised is not None else []
        return pa.array(found, _ARROW[offered.returns], from_pandas=True)

    return over_arrays
