"""The Parquet files of a DuckDB query, their columns, and the files that may contain matching rows.

DuckDB takes the columns of many files from the first one, and the types of columns in paths from all. So a reader of
fewer files is used only if DuckDB describes it as the reader of all of them, else the first file is read beside.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from geoskip.engines.duckdb_scopes import GLOB_MARKS, fold_case
from geoskip.engines.duckdb_statement import NotUnderstoodError, Parquet, Run, literal, quote_name
from geoskip.engines.files import KeptFiles, files
from geoskip.engines.folder_listing import FolderListing, list_files, locate, path_keys, refuse_unlike, table_format
from geoskip.engines.iceberg_columns import spark_type
from geoskip.errors import DatasetNotFoundError, InvalidSpecificationError
from geoskip.predicates import Column, Predicate, walk
from geoskip.report import Scan
from geoskip.sources.listed_files import NULL_VALUE
from geoskip.stores.base import Store
from geoskip.types import outer_parts

_SPARK_TYPES = {
    "BOOLEAN": "boolean", "TINYINT": "tinyint", "SMALLINT": "smallint", "INTEGER": "int", "BIGINT": "bigint",
    "FLOAT": "float", "DOUBLE": "double", "VARCHAR": "string", "BLOB": "binary", "DATE": "date",
    "TIMESTAMP": "timestamp_ntz", "TIMESTAMP WITH TIME ZONE": "timestamp",
}  # fmt: skip
"""Spark's types of the same values; an index over a column of another type is not asked."""
_OWN_TYPES = {kind: own for own, kind in _SPARK_TYPES.items()}
_UNSIGNED = {"UTINYINT": "smallint", "USMALLINT": "int", "UINTEGER": "bigint", "UBIGINT": "decimal(20,0)"}
"""Spark's types of unsigned integers, which hold further values."""
_MOST_DESCRIPTIONS = 256
_THREADS = 8


@dataclass(frozen=True)
class Answer:
    """Answer to one reader of Parquet files."""

    text: str
    """The text to write in its place."""
    scan: Scan


@dataclass
class ParquetFiles:
    """The files of readers, asked through one connection."""

    run: Run
    datasets: dict[str, Store] = field(default_factory=dict)
    """The stores of datasets by their folder, where the metadata are not beside the data."""
    own_functions: frozenset[str] = frozenset()
    """Functions that were registered in the database, by which its ``ST_`` names mean the shapely-backed ones."""
    matched: dict[Any, list[str]] = field(default_factory=dict)
    """The files of readers; cleared with each statement, as are the listings."""
    listings: dict[tuple[str, str], FolderListing] = field(default_factory=dict)
    """The files of datasets by their folder and what is read below it; cleared with each statement."""
    _same_times: dict[Any, bool] = field(default_factory=dict)
    _described: OrderedDict[Any, list[tuple[str, str]]] = field(default_factory=OrderedDict)

    def names_of(self, parquet: Parquet) -> list[str]:
        """The files of a reader in DuckDB's order; raises NotUnderstoodError for anything but local paths."""
        key = (parquet.folder, parquet.patterns)
        if key not in self.matched:
            self.matched[key] = self.of_folder(parquet.folder) if parquet.folder else self._expand_patterns(parquet)
        return self.matched[key]

    def _expand_patterns(self, parquet: Parquet) -> list[str]:
        names: list[str] = []
        for pattern in parquet.patterns:
            if "://" in pattern or pattern.startswith(("file:", "~")):
                raise NotUnderstoodError(f"{pattern} is not a plain path of a local file")
            if ".." in re.sub(r"^(\.\./)+", "", pattern).split("/"):
                raise NotUnderstoodError(f"{pattern} goes up in the middle of a path")
            rows = self.run("SELECT file FROM glob(?)", [pattern])
            if not rows:
                raise NotUnderstoodError(f"no file matches {pattern}; name those of a folder as 'folder/*.parquet'")
            names += [str(row[0]) for row in rows]
        if any(mark in name for name in names for mark in GLOB_MARKS):
            raise NotUnderstoodError("the name of a file has a sign of globs, one of * ? [")
        return names

    def of_folder(self, folder: str) -> list[str]:
        """The files of a registered dataset, in the order of their paths."""
        found = self._of_table(folder)
        head = found.root.rstrip("/") + "/"
        names = [head + path for path in found.path.to_pylist()]
        if any(mark in name for name in names for mark in GLOB_MARKS) or found.unnameable:
            raise NotUnderstoodError(f"the name of a file in {folder} is not Unicode, or has one of * ? [")
        return names

    def reader(self, folder: str, start: int = 0, stop: int = 0, alias: str = "") -> Parquet:
        """The reader of a registered dataset, with the options that give it the columns of a table.

        Parameters
        ----------
        folder
            The dataset.
        start, stop, alias
            The place in the query of the name that stands for it, and the alias to write there.

        Raises InvalidSpecificationError for a Delta table with partitions that DuckDB takes otherwise from the paths,
        and for an Iceberg table with columns that DuckDB does not find by their ids.
        """
        found = self._of_table(folder)
        options: dict[str, str] = {}
        if found.columns is not None:
            options = {"schema": _columns_by_id(found), "hive_partitioning": "false"}
        elif found.partitions is not None:
            options = _options_of_delta(found)
        text = "".join(f", {name} = {value}" for name, value in options.items())
        return Parquet((folder,), text, frozenset(options), start, stop, alias, folder=folder)

    def _of_table(self, folder: str) -> FolderListing:
        """The files of a registered dataset; those of a Delta table are those of its log."""
        return refuse_unlike(self._listing(*locate(folder)), "geoskip.duckdb()")

    def columns(
        self, parquet: Parquet, names: Sequence[str], hive: Mapping[str, str] | None = None
    ) -> list[tuple[str, str]]:
        """Names and types of the columns that DuckDB gives a reader of these files, in order.

        Parameters
        ----------
        parquet, names
            The reader, and its files.
        hive
            The types of the columns that paths hold; None for those of the reader.
        """
        by_all = "union_by_name" in parquet.named
        if not by_all and not any("=" in name for name in names):
            names = names[:1]
        dated = [_stamp(name) for name in (names if by_all else names[:1])]
        key = (parquet.options, tuple(names), tuple(dated), tuple((hive or {}).items()))
        if (known := self._described.get(key)) is not None:
            self._described.move_to_end(key)
            return known
        bare = dataclasses.replace(parquet, alias="")
        found = [(str(row[0]), str(row[1])) for row in self.run(f"DESCRIBE SELECT * FROM {bare.text(names, hive)}", [])]
        if any("INTEGER" in kind for _, kind in found) and not by_all:  # so DESCRIBE shows the type of NULL
            first = dataclasses.replace(parquet, alias="r").text(names[:1], hive)
            (kinds,) = self.run(f"SELECT typeof(COLUMNS(r.*)) FROM (SELECT 1) LEFT JOIN {first} ON false", [])
            pairs = zip(found, kinds, strict=False)  # the path of one file alone may hold further columns
            found = [(name, of if '"NULL"' in of else kind) for (name, kind), of in pairs]
        self._described[key] = found
        while len(self._described) > _MOST_DESCRIPTIONS:
            self._described.popitem(last=False)
        return found

    def types(self, parquet: Parquet, names: Sequence[str]) -> dict[str, str]:
        """Spark's types of the columns that conditions may use: those in the files, not in their paths.

        Not those of names outside of ASCII in files joined by name: Spark takes É and é for one, DuckDB for two. In a
        table all files have the names of its log.
        """
        needs_ascii = "union_by_name" in parquet.named and not parquet.folder
        left_out = {"file_row_number", fold_case(parquet.filename), *map(fold_case, _path_keys(parquet, names))}
        columns = [pair for pair in self.columns(parquet, names) if not needs_ascii or "".join(pair).isascii()]
        types = ((name, _spark_type(kind)) for name, kind in columns)
        return {name: kind for name, kind in types if kind is not None and fold_case(name) not in left_out}

    def scan(
        self, parquet: Parquet, names: Sequence[str], kept: Sequence[str], predicate: str, reasons: Sequence[str]
    ) -> Scan:
        """The report of a reader.

        Parameters
        ----------
        parquet, names, kept
            The reader, its files, and those of them that are read.
        predicate, reasons
            The condition as geoskip understood it, and sentences on what could not be used.
        """

        def paths(are_kept: bool) -> list[str]:
            read = set(kept)
            return [name for name in names if (name in read) is are_kept]

        return Scan(
            ", ".join(parquet.patterns[:3]), predicate, len(names), len(kept), self._bytes(names), self._bytes(kept),
            noted=tuple(reasons), paths=paths,
        )  # fmt: skip

    def narrow(self, parquet: Parquet, names: list[str], predicate: Predicate, *, by_file: bool, zoned: bool) -> Answer:
        """Return the reader of the files that may hold a row for which a predicate is TRUE.

        Parameters
        ----------
        parquet
            The reader.
        names
            All its files.
        predicate
            The condition with Spark's meaning.
        by_file
            True where the statement may use DuckDB's columns on files, which a relation without files has not.
        zoned
            True where the session's zone is not UTC, so that DuckDB shifts the times of files that have others than the
            first file: with a zone or without, INT96 among the latter.
        """
        answers, reasons = self._answers(names, predicate, parquet.folder)
        skipped = {path for answer in answers for path in answer.report.skipped_files()}
        if zoned and (times := _times_of(predicate)):
            skipped = self._of_same_times(skipped, times)
        kept = [name for name in names if _absolute(name) not in skipped]
        reasons = list(dict.fromkeys([*reasons, *(reason for answer in answers for reason in answer.report.noted)]))
        text, kept = self._text(parquet, names, kept, by_file, reasons)
        reports = [answer.report for answer in answers]
        scan = dataclasses.replace(
            self.scan(parquet, names, kept, str(predicate), reasons),
            effects=lambda: tuple(effect for report in reports for effect in report.effects()),
            decisions=lambda: tuple(decision for report in reports for decision in report.decisions()),
            among=lambda: tuple(mask for report in reports for mask in report.among()),
            files_unindexed=sum(report.files_unindexed for report in reports),
        )
        return Answer(text, scan)

    def _of_same_times(self, paths: Collection[str], times: Mapping[str, str]) -> set[str]:
        """The files whose columns of times have a zone, or none, as the types say."""
        zoned = {name: kind == "timestamp" for name, kind in times.items()}

        def has_same_times(path: str) -> bool:
            key = (path, _stamp(path), tuple(times.items()))
            if key not in self._same_times:
                schema = pq.read_schema(path)
                kinds = {fold_case(name): kind for name, kind in zip(schema.names, schema.types, strict=True)}
                found = {name: kinds.get(fold_case(name.strip("`"))) for name in times}
                self._same_times[key] = all(
                    kind is not None and pa.types.is_timestamp(kind) and (kind.tz is not None) is zoned[name]
                    for name, kind in found.items()
                )
            return self._same_times[key]

        with ThreadPoolExecutor(_THREADS) as pool:
            paths = list(paths)
            return {path for path, alike in zip(paths, pool.map(has_same_times, paths), strict=True) if alike}

    def _answers(self, names: Sequence[str], predicate: Predicate, given: str) -> tuple[list[KeptFiles], list[str]]:
        """The answers of the datasets in which the files lie, or of the one that was ``given``, and reasons."""
        if given:
            found = self._listing(*locate(given))
            return [files(given, predicate, store=self.datasets.get(given), listing=found)], []
        answers: dict[str, KeptFiles] = {}
        tables: dict[str, str] = {}
        for folder in dict.fromkeys(_absolute(name).rpartition("/")[0] for name in names):
            if any(folder == root or folder.startswith(root.rstrip("/") + "/") for root in (*answers, *tables)):
                continue
            root = next((known for known in self.datasets if f"{folder}/".startswith(f"{known}/")), None)
            try:
                root = root or locate(folder)[0]
                if (kind := table_format(root)) is not None:
                    tables[root] = kind
                    continue
                answers[root] = files(root, predicate, store=self.datasets.get(root), listing=self._listing(root))
            except DatasetNotFoundError:  # gone since: DuckDB says so
                continue
        return list(answers.values()), [
            f"{root} is a table of {kind}, and a path reads files that its log may have removed or whose columns have "
            "other names: all are read; register_dataset() reads a table by its log"
            for root, kind in tables.items()
        ]

    def _listing(self, root: str, below: str = "") -> FolderListing:
        """The files of a dataset or of a folder in it, listed once a statement."""
        if (root, below) not in self.listings:
            self.listings[root, below] = list_files(root, below)
        return self.listings[root, below]

    def _bytes(self, names: Sequence[str]) -> int:
        """The bytes of files, by the listings where they are in one."""
        known: dict[str, int] = {}
        for (root, _), listing in self.listings.items():
            head = root.rstrip("/") + "/"
            known.update(zip((head + path for path in listing.path.to_pylist()), listing.sizes.tolist(), strict=True))
        return sum(known[path] if (path := _absolute(name)) in known else _stamp(path)[0] for name in names)

    def _text(
        self, parquet: Parquet, names: list[str], kept: list[str], by_file: bool, reasons: list[str]
    ) -> tuple[str, list[str]]:
        """The reader's text over the kept files, with the columns of all files, and the files that it reads."""
        if len(kept) == len(names):
            return parquet.text(names), names
        columns = self.columns(parquet, names)
        keys = {fold_case(key) for key in _path_keys(parquet, names)}
        if keys and "hive_partitioning" not in parquet.named and not _have_same_keys(names):
            options = f"{parquet.options}, hive_partitioning = false"  # as DuckDB finds for all files, not for fewer
            parquet = dataclasses.replace(parquet, options=options, without_partitions=True)
        keys = set() if parquet.without_partitions else keys
        hive = {name: kind for name, kind in columns if fold_case(name) in keys}
        if not kept:
            if self.columns(parquet, names[:1], hive) == columns:
                return parquet.text(names[:1], hive, empty=not by_file), names[:1] if by_file else []
        elif self.columns(parquet, kept, hive) == columns:
            return parquet.text(kept, hive), kept
        kept = kept if kept[:1] == names[:1] else [names[0], *kept]
        if self.columns(parquet, kept, hive) == columns:
            reasons.append("the first file is read, since DuckDB takes the columns from it")
            return parquet.text(kept, hive), kept
        reasons.append("all files are read: their columns differ, and DuckDB takes them from all of them")
        return parquet.text(names), names


def _stamp(name: str) -> tuple[int, int]:
    """The size and modification time of a file; zeros where it is gone."""
    try:
        found = os.stat(name)
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


_PLAIN_PATH = re.compile(r"(?:/(?!\.{0,2}(?:/|$))[^/]+)+")


def _absolute(name: str) -> str:
    """The absolute form of a path; quick where it is one already.

    >>> _absolute("/a/b.parquet"), _absolute("/a/../b//c")
    ('/a/b.parquet', '/b/c')
    """
    return name if _PLAIN_PATH.fullmatch(name) else os.path.abspath(name)


def _path_keys(parquet: Parquet, names: Sequence[str]) -> set[str]:
    """The names of the columns that a reader takes from paths; none where it finds columns by ids."""
    folders = () if "schema" in parquet.named else {os.path.dirname(name) for name in names}
    return {key for folder in folders for key in path_keys(folder)}


_KEYS = re.compile(r"(?<=[/\\])([^=/\\?\n]+)=[^=/\\?\n]*(?=[/\\])")


def _have_same_keys(names: Sequence[str]) -> bool:
    """True if all files have the same partition keys, without which DuckDB uses none by itself.

    The pattern is that of DuckDB, which takes fewer folders for partitions than Spark does.

    >>> _have_same_keys(["/d/x=1/y=2/a", "/d/y=1/x=2/b"]), _have_same_keys(["/d/x=1/a", "/d/b"])
    (True, False)
    """
    folders = {os.path.dirname(name) + "/" for name in names}
    return len({frozenset(_KEYS.findall(f"/{folder}")) for folder in folders}) == 1


def _times_of(predicate: Predicate) -> dict[str, str]:
    """The types of the columns of times in a predicate, by name."""
    columns = (vertex for vertex in walk(predicate) if isinstance(vertex, Column))
    return {each.name: each.type for each in columns if each.type in ("timestamp", "timestamp_ntz")}


def _options_of_delta(found: FolderListing) -> dict[str, str]:
    """The options by which a reader gives files of a Delta table the columns of the table."""
    assert found.partitions is not None
    hive = {name: _OWN_TYPES.get(found.types.get(name, "")) for name in found.partitions.column_names}
    for name, kind in hive.items():
        if kind is None or not _are_in_paths(name, found.path, found.partitions[name]):
            raise InvalidSpecificationError(
                f"{found.root} is a Delta table with a partition column {name} that DuckDB does not read from the "
                "paths of its files as Delta does; use geoskip.pyarrow_dataset() or geoskip.scan_polars()"
            )
    options = {"union_by_name": "true"}  # files of one table have the columns of the times when they were written
    if hive:
        types = ", ".join(f"{quote_name(name)}: {kind}" for name, kind in hive.items())
        options |= {"hive_partitioning": "true", "hive_types": f"{{{types}}}"}
    return options


def _columns_by_id(found: FolderListing) -> str:
    """The option ``schema`` of ``read_parquet``, by which DuckDB finds the columns of a table of Iceberg.

    Fields in structs and lists it finds by names, columns in files without ids not at all, and floats it compares with
    constants that it has made floats, so the schemas of files are read where there may be such.
    """
    assert found.columns is not None
    fields = found.columns.schema.fields
    if found.columns.differ_in_files or any(
        not each.field_type.is_primitive or each.initial_default is not None for each in fields
    ):
        paths = [os.path.join(found.root, name) for name in found.path.to_pylist()]
        found.columns.refuse_files(paths, "geoskip.duckdb()", by_id=True)
    columns = (
        f"{each.field_id}: {{name: {literal(each.name)}, type: {literal(_duckdb_type(each.field_type))}, "
        "default_value: NULL}"
        for each in fields
    )
    return f"MAP {{{', '.join(columns)}}}"


def _duckdb_type(kind: Any) -> str:
    """DuckDB's name of an Iceberg type; raises InvalidSpecificationError where it has none."""
    if kind.is_struct:
        return (
            f"STRUCT({', '.join(f'{quote_name(each.name)} {_duckdb_type(each.field_type)}' for each in kind.fields)})"
        )
    if hasattr(kind, "element_type"):
        return f"{_duckdb_type(kind.element_type)}[]"
    if hasattr(kind, "key_type"):
        return f"MAP({_duckdb_type(kind.key_type)}, {_duckdb_type(kind.value_type)})"
    own = {"time": "TIME", "uuid": "UUID"}.get(str(kind))
    text = spark_type(kind) or ""
    found = own or (text if text.startswith("decimal(") else _OWN_TYPES.get(text))
    if found is None:
        raise InvalidSpecificationError(f"DuckDB has no type for Iceberg's {kind}; read the table by scan_polars()")
    return found.upper()


def _are_in_paths(column: str, paths: pa.Array, values: pa.ChunkedArray) -> bool:
    """True if DuckDB reads a partition column from the folders of the paths as the log has it.

    >>> _are_in_paths("p", pa.array(["p=a%20b/1.parquet"]), pa.chunked_array([["a b"]]))
    True
    """
    return all(
        f"{column}={NULL_VALUE}" in path.split("/")[:-1]
        if value is None
        else value.upper() not in ("", "NULL", NULL_VALUE) and f"{column}={value}" in map(unquote, path.split("/")[:-1])
        for path, value in zip(paths.to_pylist(), values.to_pylist(), strict=True)
    )


_FIELD = re.compile(r'"?(\w+)"? (.+)', re.DOTALL)
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")


def _spark_type(kind: str) -> str | None:
    if kind.startswith("GEOMETRY"):
        return "geometry"
    if found := _DECIMAL.fullmatch(kind):
        return f"decimal({found[1]},{found[2]})"
    if kind.startswith("STRUCT(") and kind.endswith(")"):
        fields = [_FIELD.fullmatch(part.strip()) for part in outer_parts(kind[len("STRUCT(") : -1])]
        known = [f"{field[1]}:{of}" for field in fields if field and (of := _spark_type(field[2])) is not None]
        return f"struct<{','.join(known)}>" if len(known) == len(fields) else None
    return _SPARK_TYPES.get(kind) or _UNSIGNED.get(kind)
