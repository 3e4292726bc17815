"""DuckDB over the files that may contain a matching row: ``geoskip.duckdb(connection).sql(...)``.

DuckDB's Python API has no table functions, and its replacement scans do not get the conditions of a query. So the text
of a query is rewritten before it runs: its Parquet tables are found in DuckDB's own parse tree
(:mod:`geoskip.engines.duckdb_scopes`), the conditions on each single table are translated
(:mod:`geoskip.engines.sql_text`), and the names of the files are replaced by the list of files that may match.
Unsupported parts run unchanged, with a reason in the report.

A condition is used only if the connection has DuckDB's default settings of collation, division and casts, and if no
macro has the name of a function in the condition.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from geoskip.engines.constant_bounds import conjunction
from geoskip.engines.duckdb_files import ParquetFiles
from geoskip.engines.duckdb_scopes import Json, TableScan, cte_names, find_scans, fold_case, table_names
from geoskip.engines.duckdb_session import SPATIAL, SessionFacts, name_in_from
from geoskip.engines.duckdb_statement import (
    BUILT_IN,
    NotUnderstoodError,
    Parquet,
    Run,
    functions_of,
    head_and_query,
    named_parameters,
    parquet_of,
    parse_query,
    quote_name,
    splice,
    text_of_condition,
    token,
    with_parameters,
)
from geoskip.engines.extras import require_package
from geoskip.engines.folder_listing import locate
from geoskip.engines.matched_snapshot import store_of
from geoskip.engines.sql_text import predicate_of_sql
from geoskip.engines.time_texts import is_utc
from geoskip.errors import GeoskipError, InvalidSpecificationError
from geoskip.predicates import TRUE, Predicate, normalise
from geoskip.registry.installed import OfferedFunction, offered_by_name
from geoskip.report import Report, Scan
from geoskip.stores.base import Store
from geoskip.types import sql_type

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

_BY_FILE = re.compile(r"filename|file_row_number", re.IGNORECASE)
_SQL_TYPES = {"binary": "BLOB", "string": "VARCHAR", "double": "DOUBLE", "boolean": "BOOLEAN", "int": "INTEGER"}
"""DuckDB's names of Spark's types of results."""


def duckdb(connection: DuckDBPyConnection | None = None) -> NarrowedConnection:
    """Return a DuckDB connection that reads only the Parquet files that may contain a matching row.

    Sources are paths in FROM (``FROM 'folder/*.parquet'``), ``read_parquet`` with literal arguments, views over these,
    and names that :meth:`NarrowedConnection.register_dataset` gives to folders. The default is DuckDB's default
    connection, as for ``duckdb.sql``. Needs ``pip install 'geoskip[duckdb]'``.
    """
    module = require_package("duckdb", "geoskip.duckdb()")
    if connection is not None and not isinstance(connection, module.DuckDBPyConnection):
        raise InvalidSpecificationError(f"geoskip.duckdb() wraps what duckdb.connect(...) returns, got {connection!r}")
    return NarrowedConnection(module.default_connection() if connection is None else connection)


class NarrowedConnection:
    """A thin wrapper of a DuckDB connection; other attributes are those of the connection.

    Queries on the connection run before each statement to parse it, so that a streaming result of the same connection
    ends with the next statement, as it does with DuckDB's own ``execute``.
    """

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self.connection = connection
        self._own = connection.cursor()
        self._files = ParquetFiles(self._run)
        self._names: dict[str, str] = {}
        self._made: dict[int, int] = {}
        self._refused: dict[str, InvalidSpecificationError] = {}
        self._report = Report(())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def __enter__(self) -> NarrowedConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, and the second one that parses statements."""
        self._own.close()
        self.connection.close()

    @property
    def report(self) -> Report:
        """Report of the last statement: a scan for each table of Parquet files, and reasons."""
        return self._report

    def sql(self, query: str, *, alias: str = "", params: Any = None) -> DuckDBPyRelation:
        """Return the relation of a query, over the files that may hold a matching row at this moment.

        Parameters
        ----------
        query, alias, params
            As for ``DuckDBPyConnection.sql``; parameters count as constants.
        """
        run = partial(self.connection.sql, alias=alias, params=params)
        found: DuckDBPyRelation = self._either(query, params, run, sys._getframe(1))
        return found

    query = sql

    def execute(self, query: Any, parameters: Any = None) -> NarrowedConnection:
        """Run a statement over the files that may hold a matching row; fetch the result from this wrapper."""
        self._either(query, parameters, partial(self.connection.execute, parameters=parameters), sys._getframe(1))
        return self

    def register_dataset(
        self, name: str, path: str | os.PathLike[str], *, store: Store | None = None, metadata: str | None = None
    ) -> None:
        """Give a folder of Parquet files a name for queries: a temporary view, with the files of each moment.

        Parameters
        ----------
        name
            The name; a temporary view of this name is replaced.
        path
            The local folder, with the files that Spark would read: not those whose names begin with ``_`` or ``.``,
            and of a table of Delta or Iceberg those of its log.
        store, metadata
            The store of the metadata, or their folder, where they are not beside the data.

        Raises InvalidSpecificationError for an empty name, a folder without files, a table of Hudi, and one of Delta or
        Iceberg with deleted rows in its files or column mapping; DatasetNotFoundError for no folder.
        """
        if not isinstance(name, str) or not name.strip():
            raise InvalidSpecificationError(f"register_dataset() takes a name for the folder, got {name!r}")
        root, below = locate(path)
        folder = os.path.join(root, below).rstrip("/")
        if store is not None or metadata is not None:
            self._files.datasets[folder] = store_of(root, store, metadata)
        self._files.listings.clear()
        self._make_view(SessionFacts(self._session), name, folder)
        self._names[fold_case(name)] = folder

    def register_functions(self) -> list[str]:
        """Register the shapely-backed ``ST_`` functions over WKB, for databases without the spatial extension.

        Geometries are BLOBs of WKB; the names, arguments and results are those of :func:`geoskip.register_functions` in
        Spark. Returns the names. Raises InvalidSpecificationError where the spatial extension is loaded, which has
        functions of these names.
        """
        if self._session(SPATIAL, []):
            raise InvalidSpecificationError(
                "the spatial extension is loaded and has ST_ functions of its own; use these, or another connection"
            )
        func = require_package("duckdb.func", "register_functions()")
        offered = {name: each for name, each in offered_by_name().items() if name.startswith("st_") and each.vectorised}
        for name, each in offered.items():
            kind = _SQL_TYPES[each.returns]  # SPECIAL: also NULL where no argument is
            self.connection.create_function(
                name, _on_arrow(each), None, kind, type=func.ARROW, null_handling=func.SPECIAL
            )
        self._files.own_functions = frozenset(offered)
        return sorted(offered)

    def _refresh_views(self) -> None:
        """Bring the views of registered folders up to date, for what is not seen through."""
        facts = SessionFacts(self._session)
        names = self._registered(facts)
        self._refused.clear()
        for name, folder in names.items():
            try:
                self._make_view(facts, name, folder)
            except InvalidSpecificationError as error:  # a table that has deletion vectors by now
                self._refused[name] = error
                self._session(f"DROP VIEW IF EXISTS temp.{quote_name(name)}", [])
            except (GeoskipError, NotUnderstoodError, OSError):  # the folder is gone: DuckDB says so if it is read
                continue

    def _registered(self, facts: SessionFacts) -> dict[str, str]:
        """The folders of the names that still mean the views that were made for them, or mean nothing now."""

        def is_ours(name: str) -> bool:
            definition = facts.definition(name_in_from(name))
            return name in self._refused if definition is None else hash(definition) in self._made

        return {name: folder for name, folder in self._names.items() if is_ours(name)}

    def _make_view(self, facts: SessionFacts, name: str, folder: str) -> None:
        """Make the view of a folder, unless its definition, which a rollback restores, shows that it is there."""
        names = self._files.of_folder(folder)
        if not names:
            raise InvalidSpecificationError(f"there are no files in {folder}; give the folder of a Parquet dataset")
        call = self._files.reader(folder).text(names)
        ref = name_in_from(name)
        if self._made.get(hash(facts.definition(ref))) == hash(call):
            return
        self._session(f"CREATE OR REPLACE TEMP VIEW {quote_name(name)} AS SELECT * FROM {call}", [])
        self._made[hash(SessionFacts(self._session).definition(ref))] = hash(call)

    # ---- running

    def _run(self, text: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run a query of our own apart from the session, whose transaction it cannot abort."""
        return list(self._own.execute(text, list(parameters)).fetchall())

    def _session(self, text: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run a query of our own in the session, as its views and macros are."""
        return list(self.connection.execute(text, list(parameters)).fetchall())

    def _either(self, query: Any, parameters: Any, run: Callable[[Any], Any], caller: FrameType) -> Any:
        """Run the narrowed text, or the original where DuckDB cannot bind or run the narrowed one.

        Parameters
        ----------
        query, parameters
            The statement and its parameters.
        run
            DuckDB's own function that runs a text.
        caller
            The frame whose variables are tables for the statement, as for DuckDB's own functions.
        """
        import duckdb as module

        def run_in_caller(text: Any) -> Any:
            seen = {**caller.f_locals, "_geoskip_run": run, "_geoskip_text": text}
            return eval("_geoskip_run(_geoskip_text)", caller.f_globals, seen)

        # DuckDB plans joins of fewer files otherwise, and has not implemented all plans for files of mixed types
        unable = (module.BinderException, module.CatalogException, module.NotImplementedException)
        text = self._narrow(query, parameters) if isinstance(query, str) else None
        if not isinstance(query, str):
            self._report = Report((), ("only statements given as texts are narrowed",))
        if text is not None:
            try:
                return run_in_caller(text)
            except (*unable, module.ParserException) as error:
                why = str(error).partition("\n")[0]
                self._report = Report((), (f"the statement runs as it is written: over fewer files, {why}",))
        self._refresh_views()
        try:
            return run_in_caller(query)
        except module.CatalogException as error:
            for name, reason in self._refused.items():
                if name in fold_case(str(error)):
                    raise reason from error
            raise

    def _narrow(self, query: str, parameters: Any) -> str | None:
        """The text over fewer files, and the report; None for a statement that runs as it is."""
        import duckdb as module

        started = time.perf_counter()
        self._files.listings.clear()
        self._files.matched.clear()
        try:
            head, body = head_and_query(query)
            facts = SessionFacts(self._session)
            names = self._registered(facts)
            statement = _Statement(self._run, facts, self._files, names, query, named_parameters(parameters))
            text = head + statement.narrow(body)
        except (NotUnderstoodError, module.Error, OSError, LookupError, TypeError, ValueError, RecursionError) as error:
            why = str(error).partition("\n")[0]
            self._report = Report((), (f"the statement runs as it is written: {why}",))
            return None
        if statement.unresolved:
            self._refresh_views()
        scans = statement.scans
        seconds = (time.perf_counter() - started) / max(len(scans), 1)
        scans = [replace(scan, planning_seconds=seconds) for scan in scans]
        self._report = Report(tuple(scans), tuple(statement.notes), lambda: {"sql": query})
        return text if text != query else None


def _on_arrow(offered: OfferedFunction) -> Callable[..., pa.Array]:
    """The function over Arrow arrays of equal length; null for a null argument.

    >>> point, text = (_on_arrow(offered_by_name()[name]) for name in ("st_point", "st_astext"))
    >>> text(point(pa.array([1.5, None]), pa.array([2.0, 2.0]))).to_pylist()
    ['POINT (1.5 2)', None]
    """

    def over_arrays(*columns: Any) -> pa.Array:
        series = [column.to_pandas() for column in columns]
        found = offered.vectorised(*series) if offered.vectorised is not None else []
        return pa.array(found, sql_type(offered.returns).arrow, from_pandas=True)

    return over_arrays


@dataclass
class _Statement:
    """One statement, while it is narrowed."""

    run: Run
    facts: SessionFacts
    files: ParquetFiles
    names: Mapping[str, str]
    whole: str
    values: Mapping[str, Any]
    scans: list[Scan] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unresolved: bool = False
    """True where a name may mean a view that is not seen through."""
    ctes: set[str] = field(default_factory=set)
    """The names of common table expressions, which would hide tables of these names from the text of a view."""

    def narrow(self, query: str, above: list[Json] | None = None) -> str:
        """The text of a query over fewer files, given conditions on its output."""
        import duckdb as module

        tree: Json = with_parameters(parse_query(query, self.run), self.values)
        if above is not None:
            if hidden := self.ctes & table_names(tree):
                raise NotUnderstoodError(f"the query has a common table expression {min(hidden)}, which it reads too")
            self.whole += f" {query}"
        self.ctes |= cte_names(tree)
        tokens = [start for start, _ in module.tokenize(query)]
        known: dict[int, Parquet | None] = {}

        def parquet(ref: Json) -> Parquet | None:
            if id(ref) not in known:
                known[id(ref)] = self._parquet(ref, query, tokens)
            return known[id(ref)]

        def columns(ref: Json) -> list[str] | None:
            try:
                found = parquet(ref)
                if found is not None:
                    return [name for name, _ in self.files.columns(found, self.files.names_of(found))]
            except NotUnderstoodError:
                return None
            return self.facts.columns(ref)

        pieces = []
        for scan in find_scans(tree, columns, self.facts.is_scalar, above):
            try:
                found = parquet(scan.ref)
                text = self._view(scan) if found is None else self._answer(found, scan)
                if text is not None:
                    start, stop = (found.start, found.stop) if found else self._span_of(scan.ref, query, tokens)
                    pieces.append((start, stop, text))
            except NotUnderstoodError as error:
                self.notes.append(f"a table of the query is left as it is: {error}")
        return splice(query, pieces) if pieces else query

    # ---- tables

    def _parquet(self, ref: Json, query: str, tokens: Sequence[int]) -> Parquet | None:
        found = None if self.facts.is_named(ref) else parquet_of(ref, query, tokens)
        name = fold_case(ref.get("table_name", ""))
        if found is None and name in self.names and self.facts.definition(ref) is not None:
            start, stop = self._span_of(ref, query, tokens)
            alias = "" if ref.get("alias") else ref["table_name"]
            return self.files.reader(self.names[name], start, stop, alias)
        return found

    def _answer(self, parquet: Parquet, scan: TableScan) -> str | None:
        names = self.files.names_of(parquet)
        predicate, reasons = self._predicate(parquet, names, scan)
        if predicate is None:
            self.scans.append(self.files.scan(parquet, names, names, "", reasons))
            return parquet.text(names) if parquet.folder else None
        by_file = bool(_BY_FILE.search(self.whole))
        zoned = not is_utc(self.facts.zone)
        answer = self.files.narrow(parquet, names, predicate, by_file=by_file, zoned=zoned)
        self.scans.append(replace(answer.scan, noted=(*reasons, *answer.scan.noted)))
        return None if answer.scan.files_kept == len(names) and not parquet.folder else answer.text

    def _predicate(self, parquet: Parquet, names: Sequence[str], scan: TableScan) -> tuple[Predicate | None, list[str]]:
        """The usable conditions with Spark's meaning; None where there are none."""
        import duckdb as module

        if not scan.conditions:
            return None, scan.reasons
        if "file_index" in self.whole.lower():
            return None, ["file_index numbers the files that are read: all are"]
        if why := self.facts.unusual_settings():
            return None, [why]
        usable, reasons = [], list(scan.reasons)
        called = functions_of(scan.conditions)
        for condition in scan.conditions:
            own = functions_of(condition) & self.facts.macros() if called else None
            if own:
                reasons.append(f"{min(own)} is a macro in this database")
            else:
                usable.append(condition)
        if not usable:
            return None, reasons
        types, columns = self.files.types(parquet, names), [name for name, _ in self.files.columns(parquet, names)]
        known = BUILT_IN | {name for name in called if name.startswith("st_") and self._is_spatial()}
        bare = parse_query("SELECT 1 FROM r", self.run)
        parts = []
        for condition in usable:
            try:
                text = text_of_condition(condition, known, bare, self.run)
                part, said = predicate_of_sql(text, types, "duckdb", time_zone=self.facts.zone, names=columns)
            except (InvalidSpecificationError, module.Error) as error:
                reasons.append(f"a condition could not be read: {str(error).partition(chr(10))[0]}")
                continue
            parts.append(part)
            reasons += said
        predicate = normalise(conjunction(parts))
        return (None if predicate == TRUE else predicate), reasons

    def _is_spatial(self) -> bool:
        """True where functions named ``ST_`` are those of the spatial extension, or ours."""
        return bool(self.files.own_functions) or self.facts.has_spatial()

    def _view(self, scan: TableScan) -> str | None:
        """The text of a view over Parquet files in place of its name; None for another table."""
        if scan.ref["type"] != "BASE_TABLE":
            return None
        body = self.facts.view(scan.ref)
        if body is None:
            self.unresolved |= self.facts.columns(scan.ref) is None
            return None
        before = len(self.scans)
        try:
            text = self.narrow(body, scan.conditions)
        except NotUnderstoodError as error:
            del self.scans[before:]
            self.notes.append(f"the view {scan.ref['table_name']} is left as it is: {error}")
            return None
        alias = "" if scan.ref.get("alias") else f" AS {quote_name(scan.ref['table_name'])}"
        return None if text == body else f"({text}){alias}"

    @staticmethod
    def _span_of(ref: Json, query: str, tokens: Sequence[int]) -> tuple[int, int]:
        return token(ref["query_location"], tokens, query.encode())
