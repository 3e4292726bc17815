"""Choice of the files to rewrite: those out of order, and those of an unsuitable size.

In each partition these are files that overlap others in the layout, files smaller than 0.6 or larger than 2 times the
wanted size, and the files between them, so that new files do not overlap kept ones. A single small file is kept. With
several columns, bounds do not show whether files that no recorded write has arranged are in order: if there are several
of these they are rewritten, unless the layout is lexical and they do not overlap in its first column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import types as T

from geoskip.errors import InvalidSpecificationError
from geoskip.layout.clustering import FileRanges
from geoskip.layout.layout_report import RECORDED_SIZE, out_of_order, partition_of, write_of, writes_in
from geoskip.layout.specification import Layout, Sort
from geoskip.metadata import Snapshot
from geoskip.sources.bound_indexes import FileRelation
from geoskip.sources.listed_files import ListedFile, relative_path
from geoskip.sources.worker_tasks import plain_uri
from geoskip.spark.analysis import sentence, without_error_log
from geoskip.spark.build.arrange import FILE_SIZE
from geoskip.spark.build.listing import SourceState, open_parquet
from geoskip.spark.build.spark_jobs import reason_of
from geoskip.spark.dataset.dataset_layout import dataset_ranges, layout_in, own_rewrite
from geoskip.spark.dataset.source import DatasetSource, SparkData

Mask = NDArray[np.bool_]
_MOST_MERGES = 500
"""Maximum number of groups of files for which columns are read if their types differ."""
_CODECS = ("uncompressed", "snappy", "gzip", "lz4", "lz4_raw", "zstd")
"""Codecs that every supported Spark writes without additional libraries."""
_SMALL = 0.6
"""Fraction of the wanted size below which a file is merged with others."""


@dataclass(frozen=True)
class Chosen:
    """The files of a dataset that are rewritten, and those that are kept.

    Attributes
    ----------
    rewritten, kept
        The files.
    is_whole
        True if no condition has excluded files.
    files, file_size
        The number of new files, or the bytes of one; one of the two is None.
    """

    rewritten: list[ListedFile]
    kept: list[ListedFile]
    is_whole: bool
    files: int | None
    file_size: int | None


def check_is_rewritable(source: DatasetSource, relation: FileRelation) -> None:
    """Raise an error unless the files are Parquet files that are not managed by a table format."""
    if relation.table:
        raise InvalidSpecificationError(
            f"rewrite() does not write {source.name}, a table of {relation.table}, whose own log names its files: "
            f"{own_rewrite(relation.table)} does that, and refresh_index() then indexes the new files"
        )
    if not relation.is_of("Parquet"):
        raise InvalidSpecificationError(
            f"rewrite() writes Parquet, and {source.name} is {source.format}: "
            "geoskip.write(dataset.to_df(), path, layout=...) writes its rows as Parquet to another folder"
        )


def files_where(state: SourceState, where: str | None) -> set[str] | None:
    """URIs of the files in the partitions that satisfy a condition; None for all files.

    Raises InvalidSpecificationError for a condition on anything but partition columns.
    """
    if where is None:
        return None
    partitions = state.relation.partitions
    names = ", ".join(partitions)
    if not isinstance(where, str) or not where.strip():
        raise InvalidSpecificationError(
            f"rewrite(where=) takes a condition in SQL, such as \"day = '2024-01-01'\", got {where!r}"
        )
    if not partitions:
        raise InvalidSpecificationError("rewrite(where=) chooses partitions, and the dataset has none; leave it out")
    kinds = [field for field in state.frame.schema.fields if field.name in partitions]
    alone = state.spark.createDataFrame([], T.StructType(kinds))
    try:
        with without_error_log():
            plan: Any = alone.where(where)._jdf.queryExecution().analyzed()
    except (AnalysisException, ParseException) as error:
        raise InvalidSpecificationError(
            f"rewrite(where=) takes a condition over partition columns only ({names}), got {where!r}: {sentence(error)}"
        ) from None
    if not plan.deterministic():
        raise InvalidSpecificationError(
            f"rewrite(where=) takes a condition that is deterministic, got {where!r}, which chooses files by chance"
        )
    # tables with CHAR columns have a projection above the scan, which hides the column _metadata
    try:
        found = state.frame.where(where).selectExpr("input_file_name() AS path").distinct().collect()
    except (PySparkException, Py4JJavaError) as error:
        raise InvalidSpecificationError(
            f"rewrite(where=) cannot evaluate {where!r} for all partitions: {reason_of(error)}"
        ) from error
    return {plain_uri(unquote(row["path"])) for row in found}


def choose_files(
    data: SparkData,
    snapshot: Snapshot | None,
    layout: Layout,
    among: set[str] | None,
    *,
    files: int | None,
    file_size: int | None,
) -> Chosen:
    """Choose the files to rewrite.

    Parameters
    ----------
    data, snapshot
        The dataset and its metadata.
    layout
        The wanted layout.
    among
        URIs of the files that may be rewritten; None for all.
    files, file_size
        The number of new files in place of these, or the bytes of a file. Default: the recorded size, or 128 MiB.
    """
    recorded = layout_in(snapshot)
    if files is None and file_size is None:
        known = recorded.get(RECORDED_SIZE)
        file_size = known if isinstance(known, int) and known > 0 else FILE_SIZE
    listed = list(data.state.files)
    allowed = np.array([among is None or plain_uri(file.uri) in among for file in listed], dtype=bool)
    sizes = np.array([file.size for file in listed], dtype=np.float64)
    target = float(file_size) if file_size is not None else sizes[allowed].sum() / max(files or 1, 1)
    folders_of = {name.lower() for name in data.state.relation.partitions}  # each file has one value of these
    texts = [text for text in layout.expressions if text.strip().strip("`").lower() not in folders_of]
    found = dataset_ranges(data, snapshot, texts)
    ranges = list(found.of(texts).values())
    paths = found.table["path"].to_pylist()
    writes = writes_in(recorded, str(layout))
    order = {path: at for at, path in enumerate(paths)}
    at = np.array([order[relative_path(file.uri, data.root)] for file in listed], dtype=np.int64)
    ranges = [each.take(at) for each in ranges]
    paths = [paths[number] for number in at]
    folders = np.array([partition_of(path) for path in paths], dtype=object)
    stray = out_of_order(ranges, paths, writes)
    unarranged = np.array([write_of(path) not in writes for path in paths], dtype=bool)
    if not texts:
        stray = np.zeros(len(listed), dtype=bool)
    elif not all(found.of([text]) for text in texts):  # without bounds only recorded writes are known to be in order
        stray = stray | unarranged
    elif isinstance(layout, Sort):  # files sorted by another column need not overlap in all columns either
        stray = stray | (unarranged & out_of_order(ranges[:1], paths, writes))
    elif len(ranges) > 1:
        stray = stray | _several_unarranged(folders, unarranged)
    chosen = np.zeros(len(listed), dtype=bool)
    for folder in dict.fromkeys(folders):
        here = np.flatnonzero((folders == folder) & allowed)
        chosen[here] = _of_partition([each.take(here) for each in ranges], sizes[here], stray[here], target)
    count = None
    if files is not None:
        count = max(1, round(files * sizes[chosen].sum() / sizes[allowed].sum())) if chosen.any() else 0
        if chosen[allowed].all():
            count = files
    return Chosen(
        [file for file, is_chosen in zip(listed, chosen, strict=True) if is_chosen],
        [file for file, is_chosen in zip(listed, chosen, strict=True) if not is_chosen],
        among is None,
        count,
        file_size if files is None else None,
    )


def _several_unarranged(folders: NDArray[np.object_], unarranged: Mask) -> Mask:
    """Mask of the files that no recorded write has arranged, if their partition has several.

    The boxes of files that are sorted by only one column do not overlap, but the files are not in a curve's order.
    """
    counts = Counter(folders[unarranged])
    several: Mask = np.array([counts[folder] > 1 for folder in folders], dtype=bool)
    return several & unarranged


def _of_partition(ranges: Sequence[FileRanges], sizes: NDArray[np.float64], stray: Mask, target: float) -> Mask:
    """Mask of the files of one partition to rewrite."""
    odd = (sizes < _SMALL * target) | (sizes > 2 * target)
    chosen = stray | odd
    if chosen.sum() == 1 and not stray.any() and sizes[chosen][0] <= 2 * target:
        return np.zeros(len(sizes), dtype=bool)
    while chosen.any():
        inside = np.ones(len(sizes), dtype=bool)
        for each in ranges:
            low, high = (np.where(each.present, end, -1) for end in (each.low, each.high))
            least, most = low[chosen].min(), high[chosen].max()
            inside &= ((low < most) & (high > least)) | ((low == least) & (high == most))
        if not (inside & ~chosen).any():
            break
        chosen = chosen | inside
    return chosen


def columns_of_files(source: DatasetSource, files: Sequence[ListedFile]) -> set[str]:
    """Names of the columns of files that have columns of different types.

    The files are halved until Spark can merge their types. They are sorted by age, so that files with the same
    types are mostly adjacent. Raises InvalidSpecificationError if types change too often.
    """
    reader = source.spark.read.option("mergeSchema", "true").option("__globPaths__", "false")
    names: set[str] = set()
    uris = [file.uri for file in sorted(files, key=lambda file: (file.mtime, file.uri))]
    left, reads = [uris], 0
    while left:
        group = left.pop()
        reads += 1
        if reads > _MOST_MERGES:
            raise InvalidSpecificationError(
                f"the files of {source.name} have columns whose types change too often to find columns that this "
                "handle does not read, which would be lost; rewrite some partitions at a time with where="
            )
        try:
            names |= column_names(reader.parquet(*group).schema)
        except (PySparkException, Py4JJavaError):
            if len(group) < 2:
                raise
            left += [group[: len(group) // 2], group[len(group) // 2 :]]
    return names


def column_names(kind: T.DataType, above: str = "") -> set[str]:
    """Paths of all fields; nested fields are prefixed with their parents' names."""
    match kind:
        case T.StructType():
            inner = [(f"{above}.{field.name}".lstrip("."), field.dataType) for field in kind.fields]
            return {name for name, _ in inner}.union(*(column_names(each, name) for name, each in inner))
        case T.ArrayType():
            return column_names(kind.elementType, above)
        case T.MapType():
            return column_names(kind.keyType, f"{above}.key") | column_names(kind.valueType, f"{above}.value")
    return set()


def codec_of(source: DatasetSource, files: Sequence[ListedFile]) -> str:
    """Spark's name of the codec of most bytes of Parquet files.

    It is the session's codec if Spark cannot write that of the files without additional libraries.

    Raises InvalidSpecificationError if a file is encrypted, since its rows would be written unencrypted, or if it is
    GeoParquet, since Spark's writer does not write the geometry metadata of the footer.
    """
    sizes: Counter[str] = Counter()
    for file in files:
        encryption, codec, is_geoparquet = _footer(source, file)
        if encryption != "UNENCRYPTED":
            raise InvalidSpecificationError(
                f"{file.uri} is an encrypted Parquet file, and rewrite() would write its rows in clear; "
                "geoskip.write(dataset.to_df(), path, layout=...) takes the options of an encrypting writer"
            )
        if is_geoparquet:
            raise InvalidSpecificationError(
                f"{file.uri} is GeoParquet, and rewrite() would lose what its footer says of the geometries, such as "
                "their reference system: geoskip.write(dataset.to_df(), path, layout=...) writes a copy without it, "
                "the format 'geoparquet' of Sedona one with it"
            )
        if codec is not None:
            sizes[codec.lower()] += file.size
    found = sizes.most_common(1)[0][0] if sizes else ""
    return found if found in _CODECS else str(source.spark.conf.get("spark.sql.parquet.compression.codec"))


def _footer(source: DatasetSource, file: ListedFile) -> tuple[str, str | None, bool]:
    """Encryption of a Parquet file, codec of its first column (None: no rows), and True for GeoParquet.

    A damaged footer has none of them: the job that reads the file reports it.
    """
    try:
        with closing(open_parquet(source.spark, file.uri)) as reader:
            described, groups = reader.getFileMetaData(), reader.getRowGroups()
            encryption = str(described.getEncryptionType().toString())
            is_geoparquet = bool(described.getKeyValueMetaData().containsKey("geo"))
            if encryption != "UNENCRYPTED" or groups.isEmpty() or groups.get(0).getColumns().isEmpty():
                return encryption, None, is_geoparquet
            return encryption, str(groups.get(0).getColumns().get(0).getCodec().toString()), is_geoparquet
    except Py4JJavaError as error:
        is_encrypted = "parquet.crypto" in str(error.java_exception.getClass().getName())
        return ("no key for its footer" if is_encrypted else "UNENCRYPTED"), None, False
