"""Rows and files of queries by geoskip.duckdb, compared with those of DuckDB alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import geoskip

TYPES = {"a": "int", "s": "string", "month": "int"}
INDEXES = (geoskip.MinMax("a"), geoskip.ValueList("s"))


def table(number: int) -> pa.Table:
    return pa.table({"a": pa.array(range(10 * number, 10 * number + 10), pa.int32()), "s": [f"s{number}"] * 10})


def rows_and_files(con: Any, query: str, parameters: Any = None) -> tuple[list[Any], str]:
    """The rows, which are those of DuckDB alone in its order, but for joins; and the files of each table."""

    def rows(result: Any) -> list[Any]:
        found = result.fetchall()
        return sorted(found, key=repr) if "JOIN" in query else found

    alone = rows(con.connection.execute(query, parameters))
    assert rows(con.execute(query, parameters)) == alone
    assert rows(con.sql(query, params=parameters)) == alone
    return alone, kept(con)


def kept(con: Any) -> str:
    return "|".join("".join(sorted(Path(file).stem for file in scan.kept_files())) for scan in con.report.scans)
