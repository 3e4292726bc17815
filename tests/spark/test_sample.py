"""An index that chooses parameters once a dataset has a first small job read a sample; the build reads all files."""

from __future__ import annotations

import ctypes
import os
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

import geoskip
from geoskip import GeoBox, MetricDist, MinMax
from geoskip.sources import sampled_values
from geoskip.stores.base import MemoryStore
from tests.spark.test_build import jobs_of, table_of

pytestmark = pytest.mark.spark

FILES = 12
WIDENED = pyspark.__version__ >= "4"  # before, no float is read as a double
PLAIN = MetricDist("x", "y", metric="euclidean", origins=5), MetricDist("word", metric="levenshtein", origins=3)
COMPUTED = (MetricDist("abs(x)", "y", metric="euclidean", origins=5), PLAIN[1])
BY_SPARK = (MetricDist("x + y", "y", metric="euclidean", origins=5),)
OTHERS = MinMax("x"), GeoBox("x", "y")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve files: one without rows, one of NULLs, one that pyarrow wrote with another type."""
    root = tmp_path_factory.mktemp("once")
    for number in range(FILES):
        rows = 0 if number == 5 else 30
        x = [None if number == 7 else 10.0 * number + k / 7 for k in range(rows)]
        words = [f"{'abc' * (number % 4)}{k % 5}" for k in range(rows)]
        text = pa.large_string() if number == 2 else pa.string()
        kinds = [pa.float64(), pa.float32() if number == 9 and WIDENED else pa.float64(), text]
        columns = [pa.array(values, kind) for values, kind in zip((x, x, words), kinds, strict=True)]
        pq.write_table(pa.table(columns, names=["x", "y", "word"]), root / f"part-{number:02d}.parquet")
    return root


@contextmanager
def opened(place: Path) -> Iterator[Counter[str]]:
    """How often each file is opened within the block, by whatever process; the kernel counts (inotify).

    A reader that opens a file twice before it reads has opened it once: the kernel reports events that follow each
    other and are alike as one, and whether another file's come between is chance.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    opening, access_or_close = 0x20, 0x1 | 0x10
    assert libc.inotify_add_watch(watch, os.fsencode(place), opening | access_or_close) >= 0
    found: Counter[str] = Counter()
    unread: set[str] = set()
    try:
        yield found
        while data := _read(watch):
            at = 0
            while at < len(data):
                _, event, _, length = struct.unpack_from("iIII", data, at)
                name = data[at + 16 : at + 16 + length].rstrip(b"\0").decode()
                if event & access_or_close:
                    unread.discard(name)
                elif name.endswith(".parquet") and name not in unread:
                    unread.add(name)
                    found[name] += 1
                at += 16 + length
    finally:
        os.close(watch)


def _read(watch: int) -> bytes:
    try:
        return os.read(watch, 1 << 16)
    except BlockingIOError:
        return b""


def resolved(data: Any, indexes: tuple[MetricDist, ...]) -> list[MetricDist]:
    """The same indexes with the origins that a dataset's have."""
    chosen = {str(index): index.origins for index in data.indexes if isinstance(index, MetricDist)}
    return [MetricDist(*index.exprs, metric=index.metric, origins=chosen[str(index)]) for index in indexes]


@pytest.mark.parametrize("sampled", [2, 64], ids=["some files sampled", "all files sampled"])
@pytest.mark.parametrize("who", ["driver", "tasks", "computing", "spark"])
def test_a_choosing_index_costs_one_more_reading_of_the_sampled_files_alone(
    plain: Any, place: Path, monkeypatch: pytest.MonkeyPatch, who: str, sampled: int
) -> None:
    monkeypatch.setattr(sampled_values, "_FILES", sampled)
    if who == "tasks":
        monkeypatch.setattr(sampled_values, "_IN_THE_DRIVER", 0)
    indexes = {"computing": COMPUTED, "spark": BY_SPARK}.get(who, PLAIN)
    stores = [MemoryStore(), MemoryStore()]
    first, then = (geoskip.dataset(plain, str(place), store=store) for store in stores)
    first.use_metadata()
    schema = first.to_df().schema
    assert schema == then.to_df().schema  # which opens one
    with opened(place) as choosing:
        report, jobs = jobs_of(plain, lambda: first.create_index(*indexes, *OTHERS))
    assert not report.incomplete
    assert not report.excluded
    assert [len(index.origins) for index in first.indexes[: len(indexes)]] == [i.origins for i in indexes]
    then.use_metadata()
    with opened(place) as chosen:
        _, jobs_then = jobs_of(plain, lambda: then.create_index(*resolved(first, indexes), *OTHERS))
    more = choosing - chosen
    assert len(more) == min(sampled, FILES)
    assert max(more.values()) <= 3
    by_spark = WIDENED and sampled >= FILES and who != "spark"  # the file of another type is for Spark's reader
    assert jobs - jobs_then == (who != "driver") + by_spark
    one, other = map(table_of, stores)
    assert repr(one) == repr(other)


def test_nothing_is_sampled_for_indexes_that_have_chosen(plain: Any, place: Path) -> None:
    plainly = MetricDist("word", metric="levenshtein", origins=["", "abc"]), MinMax("x")
    data = geoskip.dataset(plain, str(place), store=MemoryStore())
    data.use_metadata()
    _, jobs = jobs_of(plain, lambda: data.create_index(*plainly))
    assert jobs == 1


def test_a_sample_has_rows_of_all_its_files_and_at_most_so_many(
    plain: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[list[int]] = []

    def prepare(index: MetricDist, *values: pa.Array) -> Any:
        given.append([int(x // 10) for x in values[0].drop_null().to_pylist()])
        return MetricDist(*index.exprs, metric=index.metric, origins=[(0.0, 0.0)]).bind(index.bound)

    monkeypatch.setattr(sampled_values, "_ROWS", 4 * FILES)
    monkeypatch.setattr(MetricDist, "prepare", prepare)
    data = geoskip.dataset(plain, str(place), store=MemoryStore())
    data.use_metadata()
    data.create_index(PLAIN[0])
    (files,) = given
    assert set(files) == set(range(FILES)) - {5, 7}  # without rows, of NULLs
    assert max(Counter(files).values()) == 4
