"""State of a DuckDB session that skipping depends on: tables, views, functions and settings."""

from __future__ import annotations

import re
from typing import Any

from geoskip.engines.duckdb_scopes import Json, fold_case
from geoskip.engines.duckdb_statement import Run, literal

SPATIAL = "SELECT loaded FROM duckdb_extensions() WHERE extension_name = 'spatial' AND loaded"
_DEFAULTS = {
    "Calendar": "gregorian", "binary_as_string": "false", "default_collation": "", "file_search_path": "",
    "ieee_floating_point_ops": "true", "integer_division": "false", "old_implicit_casting": "false",
}  # fmt: skip
"""Settings that change what a condition or a path means, with DuckDB's own values."""
_VIEW = re.compile(r'CREATE (?:TEMP |TEMPORARY )?VIEW (?:(?:"(?:[^"]|"")*"|[^\s(".]+)\.?)+ AS (.*?);?\s*', re.DOTALL)


class SessionFacts:
    """Facts of the session at the time of one statement; each is asked for once."""

    def __init__(self, session: Run) -> None:
        self._session = session
        self._cache: dict[str, list[tuple[Any, ...]]] = {}

    def _query(self, key: str, query: str) -> list[tuple[Any, ...]]:
        if key not in self._cache:
            self._cache[key] = self._session(query, [])
        return self._cache[key]

    def definition(self, ref: Json) -> str | None:
        """Return the CREATE VIEW of what an unqualified name means with certainty, None for others."""
        named = self._candidates(ref)
        temporary = [row for row in named if row[0] == "temp"]
        named = temporary or named
        is_certain = len(named) == 1 and named[0][3] is not None and (temporary or named[0][4])
        return str(named[0][3]) if is_certain else None

    def view(self, ref: Json) -> str | None:
        """Return the query of the view that an unqualified name means with certainty, None for others."""
        definition = self.definition(ref)
        found = None if definition is None else _VIEW.fullmatch(definition)
        return found[1] if found else None

    def columns(self, ref: Json) -> list[str] | None:
        """Return the columns of the table that an unqualified name means, None for a view and for others."""
        named = self._candidates(ref)
        if len(named) != 1 or named[0][3] is not None:
            return None
        rows = self._session(
            "SELECT column_name FROM duckdb_columns() WHERE database_name = ? AND schema_name = ? AND table_name = ?",
            list(named[0][:3]),
        )
        return [str(row[0]) for row in rows]

    def _tables(self) -> list[tuple[Any, ...]]:
        """Database, schema, name, text of a view, and True if in the current schema, of each."""
        here = "database_name = current_database() AND schema_name = current_schema()"
        return self._query(
            "tables",
            f"SELECT database_name, schema_name, view_name, sql, {here} FROM duckdb_views() WHERE NOT internal "
            f"UNION ALL SELECT database_name, schema_name, table_name, NULL, {here} FROM duckdb_tables()",
        )

    def _candidates(self, ref: Json) -> list[tuple[Any, ...]]:
        """The tables and views that an unqualified name in FROM may mean."""
        if ref["type"] != "BASE_TABLE" or ref["schema_name"] or ref["catalog_name"]:
            return []
        return [row for row in self._tables() if fold_case(row[2]) == fold_case(ref["table_name"])]

    def is_named(self, ref: Json) -> bool:
        """Return True for a name of a table or a view, which DuckDB prefers to a file of this name."""
        return bool(self._candidates(ref))

    def macros(self) -> frozenset[str]:
        """Return the names of functions that are not DuckDB's."""
        rows = self._query("macros", "SELECT function_name FROM duckdb_functions() WHERE database_name <> 'system'")
        return frozenset(fold_case(row[0]) for row in rows)

    def is_scalar(self, name: str) -> bool:
        """Return True for a function that has one value a row, the same one for the same row."""
        rows = self._query(
            "scalars",
            "SELECT lower(function_name) FROM duckdb_functions() GROUP BY ALL HAVING bool_and(function_type = 'scalar' "
            "AND stability IN ('CONSISTENT', 'CONSISTENT_WITHIN_QUERY'))",
        )
        return (fold_case(name),) in rows

    def has_spatial(self) -> bool:
        """Return True where the spatial extension is loaded."""
        return bool(self._query("spatial", SPATIAL))

    @property
    def zone(self) -> str | None:
        """The session's time zone."""
        return self._settings().get("TimeZone")

    def _settings(self) -> dict[str, str]:
        wanted = ", ".join(map(literal, ("TimeZone", *_DEFAULTS)))
        return dict(self._query("settings", f"SELECT name, value FROM duckdb_settings() WHERE name IN ({wanted})"))

    def unusual_settings(self) -> str | None:
        """Return a sentence on a setting that changes the meaning of conditions, or None."""
        found = self._settings()
        for name, value in _DEFAULTS.items():
            if (now := found.get(name, value)) is not None and str(now).lower() != value:
                return f"the setting {name} is {now!r}: conditions are used only where it is {value!r}"
        return None


def name_in_from(name: str) -> Json:
    """The node of a table in FROM that is an unqualified name."""
    return {"type": "BASE_TABLE", "schema_name": "", "catalog_name": "", "table_name": name}
