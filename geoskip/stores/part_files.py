"""Files of parts: immutable Parquet files with rows of the files table.

See :mod:`geoskip.stores.parquet` for the format. Checksums are verified: that of the footer when a part is opened, and
at each read those of the single fields if the header has them, else of whole columns. Encrypted columns
(:mod:`geoskip.stores.encryption`) are authenticated instead, and their footer has a cryptographic digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geoskip.errors import MetadataError
from geoskip.metadata import BASE_SCHEMA, Header, PartColumn, PartFile, Wanted, conform, files_schema
from geoskip.stores.encryption import PartKeys
from geoskip.stores.log_files import Folder

PART_SUFFIX = ".part"
"""Not ``.parquet`` (as in earlier versions), so that readers of `folder/**/*.parquet` do not match metadata."""
_PART = re.compile(r"_parts/_[0-9a-f]{32}\.(part|parquet)")
_ROW_GROUP = 1 << 20
_ROWS_A_BYTE = 64
"""Maximum number of rows per byte of a valid part, in which all paths differ."""
_LARGEST_FOOTER = 256 << 20
_LARGEST_READ = 16 << 30


def write_part(path: Path, name: str, table: pa.Table, keys: PartKeys | None = None) -> PartFile:
    """Write a files table as a local Parquet file, and return the part's description for headers.

    Parameters
    ----------
    path, name, table
        The local file to write, the part's name in its folder, and rows of the files table.
    keys
        The encryption of the part, None for a part in clear.
    """
    logical = table.schema.names
    physical = [n if n in BASE_SCHEMA.names else f"i{i - len(BASE_SCHEMA)}" for i, n in enumerate(logical)]
    table = table.rename_columns(physical).replace_schema_metadata(None)
    doubles, others = _leaves_by_kind(table.schema)
    outside = dict(zip(physical, logical, strict=True))
    paths: dict[str, list[str]] = {}
    for leaf in (*doubles, *others):
        paths.setdefault(outside[leaf.partition(".")[0]], []).append(leaf)
    pq.write_table(
        table,
        path,
        compression="zstd",
        row_group_size=_ROW_GROUP,
        write_statistics=False,  # clauses use summaries, not bounds of summaries
        use_dictionary=others,
        use_byte_stream_split=doubles,
        encryption_properties=keys.encryption_properties(paths) if keys else None,
    )
    with open(path, "rb") as file:
        size, crc = _footer(file, keys)
        footer = _metadata(file, keys)
        leaves = _leaves(footer)
        columns = {}
        for inside in physical:
            ranges = list(_chunks(footer, leaves[inside].values()))
            total = sum(length for _, length in ranges)
            if keys is not None and keys.covers(outside[inside]):
                columns[inside] = PartColumn(outside[inside], total, 0)
                continue
            of_leaves = {leaf: _crc(file, _chunks(footer, [at])) for leaf, at in leaves[inside].items() if leaf}
            columns[inside] = PartColumn(outside[inside], total, _crc(file, ranges), of_leaves)
    return PartFile(name, table.num_rows, size, crc, columns)


def _leaves_by_kind(schema: pa.Schema) -> tuple[list[str], list[str]]:
    """The paths of the floating-point leaves, and of all others."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    parquet = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    leaves = [parquet.column(number) for number in range(len(parquet))]
    doubles = [leaf.path for leaf in leaves if leaf.physical_type in ("FLOAT", "DOUBLE")]
    return doubles, [leaf.path for leaf in leaves if leaf.path not in doubles]


class PartReader:
    """An opened part with a verified footer, which reads and verifies columns."""

    def __init__(self, folder: Folder, part: PartFile, keys: PartKeys | None = None) -> None:
        self.part, self.keys, self.folder = part, keys, folder
        self.what = f"{part.name} in {folder.location}"
        if not _PART.fullmatch(part.name):
            raise MetadataError(f"{self.what} is no name of a part")
        with self._errors_as_metadata_errors():
            self.path = folder.local(part.name)
            with open(self.path, "rb") as file:
                if _footer(file, keys) != (part.bytes, part.crc):  # Arrow may abort on a damaged footer
                    raise MetadataError(f"{self.what} is damaged: its size or its footer's checksum differs")
                self.footer = _metadata(file, keys)
            self.leaves = _leaves(self.footer)
            if self.footer.num_rows != part.rows:
                raise MetadataError(f"{self.what} has {self.footer.num_rows} rows, its header says {part.rows}")
            if not part.rows <= _ROWS_A_BYTE * part.bytes:
                raise MetadataError(f"{self.what} cannot hold {part.rows} rows in {part.bytes} bytes")
            left = np.ones(part.rows, dtype=bool)
            left[list(part.removed)] = False
            self.left = pa.array(left)

    def read(self, wanted: pa.Schema) -> pa.Table:
        """Read the wanted columns and fields that the part has, under their names in the files table."""
        inside = {key: column for key, column in self.part.columns.items() if column.name in wanted.names}
        if not inside:
            return pa.table({})
        with self._errors_as_metadata_errors():
            self.path = self.folder.local(self.part.name)  # a copy may have been removed
            paths: list[str] = []
            if self.keys is None and self._unpacked_bytes(inside) > _LARGEST_READ:
                raise ValueError(f"its columns unpack to more than {_LARGEST_READ} bytes")
            with open(self.path, "rb") as file:
                for key, column in inside.items():
                    paths += self._verified_paths(file, key, column, wanted.field(column.name).type)
            if not paths:
                return pa.table({})
            table = self._table(paths)
            table = table.rename_columns([inside[key].name for key in table.schema.names])
        return table.filter(self.left) if self.part.removed else table

    def _unpacked_bytes(self, columns: Iterable[str]) -> int:
        numbers = [number for key in columns for number in self.leaves.get(key, {}).values()]
        groups = [self.footer.row_group(place) for place in range(self.footer.num_row_groups)]
        return sum(abs(group.column(number).total_uncompressed_size) for group in groups for number in numbers)

    def _table(self, paths: Sequence[str]) -> pa.Table:
        """Read some leaves, as columns.

        To read n columns, pyarrow looks up the positions of the file's first n leaves, which fails without their keys.
        So an encrypted part is read in groups of at most as many columns as there are base columns: these come first,
        and are under the base key.
        """
        if self.keys is None:
            with pq.ParquetFile(self.path, metadata=self.footer, pre_buffer=False) as parquet:
                return parquet.read(columns=paths)
        wanted = list(dict.fromkeys(path.partition(".")[0] for path in paths))
        columns: dict[str, pa.ChunkedArray] = {}
        for start in range(0, len(wanted), len(BASE_SCHEMA)):
            some = wanted[start : start + len(BASE_SCHEMA)]
            keys = self.keys.decryption_properties()  # for one reader
            with pq.ParquetFile(self.path, decryption_properties=keys, pre_buffer=False) as parquet:
                table = parquet.read(columns=[path for path in paths if path.partition(".")[0] in some])
            columns |= dict(zip(table.schema.names, table.columns, strict=True))
        return pa.table(columns)

    def _verified_paths(self, file: BinaryIO, key: str, column: PartColumn, kind: pa.DataType) -> list[str]:
        """Verify the leaves of a column that a type needs, and return their paths.

        All are needed if the type has no fields, or field names with dots. Encrypted columns are not verified: pyarrow
        aborts the process when it looks up the position of a column without its key.
        """
        leaves = self.leaves.get(key, {})
        fields = [field.name for field in kind] if pa.types.is_struct(kind) else []
        dotted = not fields or any("." in name for name in fields)
        needed = [leaf for leaf in leaves if dotted or leaf.split(".", 1)[0] in fields]
        if self.keys is not None and self.keys.covers(column.name):
            return [f"{key}.{leaf}" if leaf else key for leaf in needed]
        if set(needed) <= set(column.leaves):
            sound = all(_crc(file, _chunks(self.footer, [leaves[leaf]])) == column.leaves[leaf] for leaf in needed)
            paths = [f"{key}.{leaf}" for leaf in needed]
        else:
            sound = _crc(file, _chunks(self.footer, leaves.values())) == column.crc
            paths = [key]
        if not sound:
            raise MetadataError(f"{self.what} is damaged: the checksum of {column.name} differs")
        return paths

    @contextlib.contextmanager
    def _errors_as_metadata_errors(self) -> Iterator[None]:
        try:
            yield
        except MetadataError:
            raise
        except Exception as error:  # pyarrow may raise anything for a hostile file
            raise MetadataError(f"{self.what} cannot be read: {error}") from error


def load_columns(header: Header, parts: Sequence[PartReader], names: Sequence[Wanted] | None) -> pa.Table:
    """Read the wanted columns of a snapshot's parts, None for all; null for parts without them."""
    full = files_schema(header.stored)
    wanted = full if names is None else pa.schema([f for column in full if (f := _narrow(column, names))])
    tables = [part.read(wanted) for part in parts]
    try:
        sound = [conform(table, wanted, rows=part.part.rows_left) for table, part in zip(tables, parts, strict=True)]
        return pa.concat_tables(sound) if sound else wanted.empty_table()
    except (pa.ArrowException, ValueError) as error:
        raise MetadataError(
            f"a column of {header.root}'s metadata has another type than its header says: {error}"
        ) from error


def _narrow(column: pa.Field, wanted: Sequence[Wanted]) -> pa.Field | None:
    """A column with only its wanted fields; None if no field is wanted."""
    if column.name in wanted:
        return column
    names = {what[1] for what in wanted if not isinstance(what, str) and what[0] == column.name}
    fields = [field for field in column.type if field.name in names] if pa.types.is_struct(column.type) else []
    return column.with_type(pa.struct(fields)) if fields else None


def _metadata(file: BinaryIO, keys: PartKeys | None) -> pq.FileMetaData:
    if keys is None:
        footer = pq.read_metadata(file)
        if footer.serialized_size != _footer_length(file):  # reading an encrypted column would abort the process
            raise ValueError("it is signed, and the metadata are not protected")
        return footer
    return pq.read_metadata(file, decryption_properties=keys.decryption_properties())


def _footer(file: BinaryIO, keys: PartKeys | None) -> tuple[int, int]:
    """The file's size and the checksum of its footer: a CRC-32, or 63 bits of a SHA-256 if encrypted."""
    length, size = _footer_length(file), file.seek(0, os.SEEK_END)
    if not 12 < length + 12 <= size:
        raise ValueError("no Parquet footer")
    if length > _LARGEST_FOOTER:
        raise ValueError(f"a footer of {length} bytes")
    file.seek(size - length - 8)
    footer = file.read(length + 8)
    file.seek(0)
    if keys is None:
        return size, zlib.crc32(footer)
    return size, int.from_bytes(hashlib.sha256(footer).digest()[:8], "big") >> 1


def _footer_length(file: BinaryIO) -> int:
    file.seek(max(0, file.seek(0, os.SEEK_END) - 8))
    return int.from_bytes(file.read(4), "little")


def _leaves(footer: pq.FileMetaData) -> dict[str, dict[str, int]]:
    """The numbers of all leaves by column and path inside the column; the path is empty for flat columns."""
    leaves: dict[str, dict[str, int]] = {}
    for number in range(footer.num_columns):
        column, _, leaf = footer.schema.column(number).path.partition(".")
        leaves.setdefault(column, {})[leaf] = number
    return leaves


def _chunks(footer: pq.FileMetaData, leaves: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The byte ranges of some leaves, as (start, length)."""
    leaves = list(leaves)
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for leaf in leaves:
            chunk = group.column(leaf)
            starts = [chunk.data_page_offset, *([chunk.dictionary_page_offset] if chunk.has_dictionary_page else [])]
            yield min(starts), chunk.total_compressed_size


def _crc(file: BinaryIO, ranges: Iterator[tuple[int, int]] | Sequence[tuple[int, int]]) -> int:
    crc, size = 0, file.seek(0, os.SEEK_END)
    for start, length in ranges:
        if not 0 <= start <= start + length <= size:
            raise ValueError("a column lies outside of the file")
        file.seek(start)
        crc = zlib.crc32(file.read(length), crc)
    return crc
