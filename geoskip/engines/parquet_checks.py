"""Checks of indexed Parquet without Spark: summaries against data, and indexes that need Spark."""

from __future__ import annotations

import os
from collections.abc import Sequence

from geoskip.engines.build import ParquetData
from geoskip.errors import GeoskipError, NeedsSparkError
from geoskip.lifecycle.log import latest
from geoskip.metadata import Snapshot
from geoskip.sources.build_verbs import check_same, with_index
from geoskip.sources.settings import PARQUET
from geoskip.sources.verification import VerifyResult, check_sample, compare_with_data
from geoskip.stores.base import Store

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def verify(
    path: Paths,
    sample: float | None = None,
    *,
    store: Store | None = None,
    metadata: str | os.PathLike[str] | None = None,
    threads: int | None = None,
) -> VerifyResult:
    """Collect summaries of Parquet files again, without Spark, and compare them with the stored ones.

    Parameters
    ----------
    path
        A local folder, a file, a glob, or a list of these, as in :func:`geoskip.build`.
    sample
        The share of the files to read, above 0 and up to 1; None for all of them.
    store, metadata
        The store of the metadata, or the folder that holds them. Default: ``_geoskip`` beside the data.
    threads
        The number of threads that read files. Default: one for each processor.

    Raises
    ------
    NotIndexedError
        If there are no metadata, or no index is in use.
    InvalidSpecificationError
        For a wrong share, and for metadata of another dataset.
    """
    check_sample(sample)
    data = ParquetData.of(path, store, metadata, threads)
    data.store.reread()

    def compare(snapshot: Snapshot) -> VerifyResult:
        check_same(data, snapshot.header)
        return compare_with_data(data, snapshot, sample)

    with data.store.patiently():
        return with_index(data, compare)


def reason_for_spark(path: Paths, store: Store, *, of_indexes: bool = True) -> str | None:
    """Return why only Spark can collect the summaries of the indexes in use, or None.

    Parameters
    ----------
    path, store
        The dataset, and the store of its metadata.
    of_indexes
        Consider the indexed expressions too; False for a caller that finds out itself.
    """
    snapshot = latest(store)
    if snapshot is None:
        return None
    source = snapshot.header.source
    if source.get("class") != PARQUET or source.get("options"):
        return f"{path} was indexed by Spark as {str(source.get('class')).rpartition('.')[2]}"
    if not of_indexes:
        return None
    try:
        ParquetData.of(path, store, None).bind([entry.index for entry in snapshot.header.entries])
    except NeedsSparkError as error:
        return str(error)
    except GeoskipError:  # the command itself reports the error
        return None
    return None
