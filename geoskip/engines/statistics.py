"""The statistics table: stored summaries in readable form, one row for each file and index.

For people, BI and data-quality jobs, and as an interface for other engines: version 1.

=============================== ==============================================================================
path                            string: relative to the dataset's root; a whole URI for a file outside of it
uri                             string: as ``input_file_name()`` of Spark writes it, percent-encoded
file_size, modified             int64 bytes and timestamp (UTC) of the file when it was indexed; Iceberg has no times
row_count                       int64
index_name, kind                string: ``minmax(temp)``, ``minmax``
expression, type                string: ``temp``, ``double``; of several expressions, joined by commas
null_count                      int64: rows in which the expression, or one of several, is NULL
nan_count                       int64: rows that are not NULL and lie outside of min to max and of the boxes: NaN, and
                                geometries with non-finite coordinates
min_value, max_value            string, as ``CAST(... AS STRING)`` writes it (timestamps in UTC)
is_exact                        boolean: min and max are values of the file (of timestamps, to the microsecond), or it
                                has none; false where they may lie outside of its values, as those of long texts do
min_number, max_number          double: bounds that are numbers, rounded outwards
min_time, max_time              timestamp without zone: bounds that are dates or timestamps, as clocks in UTC show them,
                                in the years 1 to 9999
distinct_count, distinct_values int64 and list of strings: the values but NULL where they are listed, in Spark's order
boxes                           binary, WKB: a MultiPolygon that covers all geometries but NULL, EMPTY and ``nan_count``
xmin, ymin, xmax, ymax          double: the ends of all boxes
stored_bytes                    int64: the file's share of the bytes that the store keeps of the index
details                         string, JSON: whatever else is stored, such as segments or the sizes of filters
reason                          string: why nothing is known of the file, where that is known
=============================== ==============================================================================

**Null means unknown**, never zero, empty or unbounded. min and max are also null if ``null_count + nan_count`` equals
``row_count``, so that there is no other value. A reader that skips files by this table must read every file that has a
null in a column that it uses, that has another size or modification time than in the table, or that is not in the
table. An index over several parts of a text (``Formatted`` with a template) has one row for each part.

*Versions*: the metadata of the Arrow schema contain ``geoskip.statistics.version``, the snapshot's number and the
dataset's root. A later minor release may add columns at the end, kinds of indexes and members of ``details``; a change
of a column's name, type or meaning changes the version. The format of ``details`` is not part of the interface.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely
from numpy.typing import NDArray

from geoskip.engines.folder_listing import locate
from geoskip.engines.matched_snapshot import store_of
from geoskip.errors import NotIndexedError
from geoskip.evaluation.value_texts import round_outwards, texts_of
from geoskip.indexes.file_statistics import FileStatistics
from geoskip.lifecycle.log import latest
from geoskip.metadata import IndexEntry, Snapshot, unread_reason
from geoskip.sources.listed_files import absolute_uri
from geoskip.stores.base import Store
from geoskip.stores.log_files import local_path
from geoskip.types import DAY, sql_type

VERSION = 1
SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("uri", pa.string(), nullable=False),
        pa.field("file_size", pa.int64(), nullable=False),
        ("modified", pa.timestamp("us", "UTC")),
        ("row_count", pa.int64()),
        pa.field("index_name", pa.string(), nullable=False),
        ("kind", pa.string()),
        ("expression", pa.string()),
        ("type", pa.string()),
        ("null_count", pa.int64()),
        ("nan_count", pa.int64()),
        ("min_value", pa.string()),
        ("max_value", pa.string()),
        ("is_exact", pa.bool_()),
        ("min_number", pa.float64()),
        ("max_number", pa.float64()),
        ("min_time", pa.timestamp("us")),
        ("max_time", pa.timestamp("us")),
        ("distinct_count", pa.int64()),
        ("distinct_values", pa.list_(pa.string())),
        ("boxes", pa.binary()),
        ("xmin", pa.float64()),
        ("ymin", pa.float64()),
        ("xmax", pa.float64()),
        ("ymax", pa.float64()),
        ("stored_bytes", pa.int64()),
        ("details", pa.string()),
        ("reason", pa.string()),
    ]
)
"""The columns of the table, version 1."""
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999, in microseconds since 1970."""

_ENCODED = re.compile(r"[^\w/.!~*'():@&=+$,;\-\u00a1-\U0010ffff]|[\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
"""Characters that java.net.URI encodes: ASCII except letters, digits and these signs; control characters; spaces."""

Columns = dict[str, pa.Array]


def statistics(
    path: str | os.PathLike[str], *, store: Store | None = None, metadata: str | os.PathLike[str] | None = None
) -> pa.Table:
    """Return the statistics table of a dataset's latest snapshot, one row for each file and index.

    Needs no Spark and reads no data. :mod:`geoskip.engines.statistics` describes the columns.

    Parameters
    ----------
    path
        The dataset's folder, or a folder or file in it, to restrict the rows to its files.
    store
        Another store of the metadata, with keys if they are encrypted:
        ``ParquetStore(folder, encryption=Encryption(keys))``.
    metadata
        The folder of the metadata, if they are not in ``<dataset>/_geoskip``.

    Returns
    -------
    pyarrow.Table
        With the columns of ``SCHEMA``, ordered by index; null means unknown.

    Raises
    ------
    NotIndexedError
        If there are no metadata.
    MetadataError
        If they cannot be read; MissingKeyError without the keys.
    """
    root, below = locate(path)
    found = statistics_of(store_of(root, store, metadata))
    if not below:
        return found
    return found.filter(pc.or_(pc.starts_with(found["path"], f"{below}/"), pc.equal(found["path"], below)))


def statistics_of(store: Store) -> pa.Table:
    """Return the statistics table of the metadata in a store: of all files, with :data:`SCHEMA`."""
    snapshot = latest(store)
    if snapshot is None:
        raise NotIndexedError(
            f"there are no metadata in {store.location}: build an index first, as with "
            "geoskip.dataset(spark, path).create_index(...)"
        )
    sizes = store.size()
    base = _files(snapshot)
    tables = [
        _table(base, columns)
        for entry in snapshot.header.entries
        for columns in _index_columns(entry, snapshot, sizes.get(entry.name, 0))
    ]
    tables += [_table(base, _unread_columns(entry)) for entry in snapshot.header.unread]
    about = {"version": VERSION, "snapshot": snapshot.header.number, "root": snapshot.header.root}
    found = pa.concat_tables(tables) if tables else SCHEMA.empty_table()
    return found.replace_schema_metadata({f"geoskip.statistics.{name}": str(value) for name, value in about.items()})


def _files(snapshot: Snapshot) -> Columns:
    """The columns that are the same for all indexes."""
    snapshot.files.prefetch(["path", "size", "mtime", "rows"])
    path, size, mtime, rows = (snapshot.files.column(name) for name in ("path", "size", "mtime", "rows"))
    names, known = path.to_pylist(), snapshot.header.reasons
    if snapshot.header.source.get("class") == "iceberg":  # its mtime column holds sequence numbers
        mtime = pa.nulls(len(mtime), mtime.type)
    return {
        "path": path,
        "uri": pa.array([_uri(snapshot.header.root, each) for each in names], pa.string()),
        "file_size": size,
        "modified": pc.multiply(mtime, 1000).cast(pa.timestamp("us", "UTC")),
        "row_count": rows,
        "reason": pa.array([known.get(each) for each in names], pa.string()),
    }


def _uri(root: str, path: str) -> str:
    """The URI of a file as Spark's ``input_file_name()`` writes it.

    >>> _uri("file:/data/a b", "day=1/x%.parquet"), _uri("s3a://bucket/data", "s3a://bucket/other/x.parquet")
    ('file:///data/a%20b/day=1/x%25.parquet', 's3a://bucket/other/x.parquet')
    >>> _uri("file:/é", "a\u2003b"), _uri("file:/", "[a]")
    ('file:///é/a%E2%80%83b', 'file:///%5Ba%5D')
    """
    whole = absolute_uri(path, root)
    local = local_path(whole)
    scheme, mark, rest = ("file", "://", local) if local is not None else whole.partition("://")
    return scheme + mark + _ENCODED.sub(lambda found: quote(found[0], safe=""), rest)


def _table(base: Columns, columns: Mapping[str, Any]) -> pa.Table:
    count = len(base["path"])
    found = {**base, **{name: column for name, column in columns.items() if column is not None}}
    values = []
    for field in SCHEMA:
        value = found.get(field.name)
        if not isinstance(value, pa.Array):
            value = pa.nulls(count, field.type) if value is None else pa.repeat(pa.scalar(value, field.type), count)
        values.append(value.cast(field.type))
    return pa.Table.from_arrays(values, schema=SCHEMA)


def _unread_columns(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of an index that cannot be read here: its names and the reason."""
    name, spec = entry.get("name"), entry.get("index")
    kind = spec.get("kind") if isinstance(spec, dict) else None
    return {"index_name": str(name), "kind": kind if isinstance(kind, str) else None, "reason": unread_reason(entry)}


def _index_columns(entry: IndexEntry, snapshot: Snapshot, size: int) -> Iterator[dict[str, Any]]:
    summaries = snapshot.files.column(entry.name)
    if not pa.types.is_struct(summaries.type):  # no file has a summary
        summaries = pa.nulls(len(summaries), entry.arrow)
    several = entry.index.statistics(summaries)
    shares = _shares(summaries, size // max(len(several), 1))
    named = {"index_name": entry.name, "kind": entry.index.kind, "stored_bytes": shares}
    for figures in several:
        yield {**named, **_figures(figures)}


def _figures(of: FileStatistics) -> dict[str, Any]:
    """The columns of one indexed expression."""
    found: dict[str, Any] = {
        "expression": of.expression,
        "type": of.type,
        "null_count": of.nulls,
        "nan_count": of.nans,
        "is_exact": of.exact,
        "details": of.details,
    }
    for end, bound in (("min", of.low), ("max", of.high)):
        if bound is not None:
            found |= _bound(bound, of.type, end)
    if of.values is not None:
        found["distinct_count"] = of.values.value_lengths()
        found["distinct_values"] = _replace_values(of.values, texts_of(of.values.flatten(), of.type))
    return found if of.boxes is None else found | _box_columns(of.boxes)


def _bound(bound: pa.Array, kind: str, end: str) -> Columns:
    """One bound as text, number and time; zero without a sign, since a bound's sign may not be a value's."""
    if pa.types.is_floating(bound.type):
        bound = pc.if_else(pc.equal(bound, 0), pa.scalar(0, bound.type), bound)
    found = {f"{end}_value": texts_of(bound, kind)}
    if sql_type(kind).is_numeric:
        numbers = round_outwards(bound, up=end == "max")
        found[f"{end}_number"] = pa.array(numbers, mask=np.asarray(bound.is_null()))
    elif pa.types.is_date(bound.type) or pa.types.is_timestamp(bound.type):
        micros = pc.multiply(bound.cast(pa.int32()).cast(pa.int64()), DAY) if pa.types.is_date(bound.type) else bound
        micros = micros.cast(pa.int64())
        shown = pc.and_(pc.greater_equal(micros, _FIRST), pc.less_equal(micros, _LAST))
        found[f"{end}_time"] = pc.if_else(shown, micros, pa.scalar(None, pa.int64())).cast(pa.timestamp("us"))
    return found


def _replace_values(lists: pa.Array, flat: pa.Array) -> pa.Array:
    """Replace the values of lists; null lists stay null."""
    null = np.asarray(lists.is_null())
    ends = np.cumsum(np.asarray(lists.value_lengths().fill_null(0)))
    offsets = pa.array(np.append(0, ends).astype(np.int32), mask=np.append(null, False))
    return pa.ListArray.from_arrays(offsets, flat)


def _box_columns(boxes: pa.Array) -> Columns:
    """The boxes of each file as one MultiPolygon, and their common bounds."""
    known = np.asarray(boxes.is_valid())
    lengths = np.asarray(boxes.value_lengths().fill_null(0)).astype(np.int64)
    owner = np.repeat(np.arange(len(boxes)), lengths)
    flat = boxes.flatten()
    ends = {name: _doubles(pc.struct_field(flat, name)) for name in ("xmin", "ymin", "xmax", "ymax")}
    shapes = np.full(len(boxes), shapely.MultiPolygon(), dtype=object)
    if len(owner):
        rectangles = shapely.box(ends["xmin"], ends["ymin"], ends["xmax"], ends["ymax"])
        shapes[np.unique(owner)] = shapely.multipolygons(rectangles, indices=np.unique(owner, return_inverse=True)[1])
    shapes[~known] = None
    found: Columns = {"boxes": pa.array(shapely.to_wkb(shapes), pa.binary())}
    for name, end in ends.items():
        outer = np.full(len(boxes), np.inf if name in ("xmin", "ymin") else -np.inf)
        (np.minimum if name in ("xmin", "ymin") else np.maximum).at(outer, owner, end)
        found[name] = pa.array(outer, mask=lengths == 0)
    return found


def _doubles(values: pa.Array) -> NDArray[np.float64]:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)


def _shares(summaries: pa.Array, size: int) -> pa.Array:
    """Split the stored bytes of an index among the files by the size of their summaries in memory."""
    weights = np.cumsum(_value_bytes(summaries))
    if not len(weights) or not weights[-1]:
        return pa.array(np.zeros(len(summaries), dtype=np.int64))
    return pa.array(np.diff(np.floor(weights / weights[-1] * size), prepend=0).astype(np.int64))


def _value_bytes(values: pa.Array) -> NDArray[np.float64]:
    """Bytes of each value in memory, without marks of nulls and offsets; 0 for null.

    >>> _value_bytes(pa.array([{"n": 1, "texts": ["ab", "c"]}, {"n": None, "texts": []}, None]))
    array([11.,  0.,  0.])
    """
    kind = values.type
    if pa.types.is_struct(kind):
        found = np.sum([_value_bytes(field) for field in values.flatten()], axis=0)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        inside = [values.keys, values.items] if pa.types.is_map(kind) else [values.values]
        sums = np.append(0.0, np.cumsum(np.sum(list(map(_value_bytes, inside)), axis=0)))
        found = np.diff(sums[np.asarray(values.offsets)])
    elif pa.types.is_null(kind):
        found = np.zeros(len(values))
    elif pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        found = np.full(len(values), kind.bit_width / 8)
    else:
        found = np.asarray(pc.binary_length(values).fill_null(0), dtype=np.float64)
    return np.where(np.asarray(values.is_valid()), found, 0.0)
