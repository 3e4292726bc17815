"""A dataset whose data and metadata are in an S3-compatible store, by Hadoop's S3A."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError, Py4JJavaError

import geoskip
from geoskip import MinMax
from geoskip.errors import ConflictError
from geoskip.metadata import Header
from geoskip.sources import listed_files
from geoskip.spark import filesystem as s3
from geoskip.spark.filesystem import HadoopFolder
from geoskip.stores import ParquetStore
from tests.conftest import kept_of_all
from tests.spark.test_readers import settings
from tests.support.dataset_life import whole_life
from tests.support.missing_tools import without
from tests.support.races import race_to_create
from tests.support.servers.s3 import HADOOP, fetched, s3a

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def bucket(spark: Any) -> Iterator[str]:
    version = spark._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    if version != HADOOP:
        pytest.skip(f"S3A is fetched for Hadoop {HADOOP}, and this Spark has {version}")
    try:
        fetched()
    except RuntimeError as error:
        without("S3-compatible server", str(error))
    with s3a(spark) as uri:
        yield uri


def put(uri: str, scratch: Path, name: str, *values: int) -> None:
    """A file of two numbers; all of them are of one size."""
    pq.write_table(pa.table({"a": pa.array(values, pa.int64())}), scratch / name)
    HadoopFolder(uri).put(name, scratch / name)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is replaced here within a tick of the store's clock, so nothing need be waited for."""
    monkeypatch.setattr(listed_files, "_REMOTE_TICK_MS", 1)


def kept(spark: Any, uri: str, where: str) -> tuple[int, int]:
    return kept_of_all(lambda: spark.read.schema("a BIGINT").parquet(uri).where(where))


@pytest.mark.slow
def test_the_whole_life_of_a_dataset(spark: Any, bucket: str, tmp_path: Path) -> None:
    whole_life(spark, f"{bucket}/my data", tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
def test_etags_are_the_stores_own(spark: Any, bucket: str, tmp_path: Path) -> None:
    uri = f"{bucket}/tagged"
    put(uri, tmp_path, "x.parquet", 1, 2)
    handle = geoskip.dataset(spark, uri)
    handle.create_index(MinMax("a"))
    store = ParquetStore(HadoopFolder(f"{uri}/_geoskip"))
    number = store.latest()
    assert number is not None
    (etag,) = store.load(number).files.column("etag").to_pylist()
    assert len(etag.strip('"')) == 32
    with settings(spark, {"spark.sql.sources.ignoreDataLocality": "true"}):  # then Spark's listing has it too
        assert kept(spark, uri, "a = 2") == (1, 1)
        assert kept(spark, uri, "a = 7") == (0, 1)
        assert geoskip.dataset(spark, uri).refresh_index().read == 0


def test_of_many_writers_one_creates_an_object(bucket: str, spark: Any) -> None:
    won = race_to_create(f"{bucket}/race", 5)
    assert sorted(name for names in won for name in names) == [*"01234"]
    folder = HadoopFolder(f"{bucket}/race/sub")
    assert all(folder.read(name, 9) == str(who).encode() for who, names in enumerate(won) for name in names)
    assert s3._heeds[bucket], "and it was the store that refused, not a look before"


def test_a_writer_that_comes_late_has_lost(bucket: str, spark: Any) -> None:
    def store() -> ParquetStore:
        return ParquetStore(HadoopFolder(f"{bucket}/late/_geoskip"))

    header = Header(root=f"{bucket}/late", source={})
    files = pa.table({"path": ["x"], "size": [1], "mtime": [1]})
    first = store().commit(header, files, expected=None)
    store().commit(first, files, expected=first.number)
    with pytest.raises(ConflictError, match="another writer"):
        store().commit(first, files, expected=first.number)
    assert (store().snapshots(), store().latest()) == ((1, 2), 2)


@pytest.mark.slow
def test_no_update_of_many_writers_is_lost(bucket: str, spark: Any) -> None:
    """Each commit adds a name to those of the snapshot that it was made from."""
    files = pa.table({"path": ["x"], "size": [1], "mtime": [1]})

    def write(who: int) -> None:
        store = ParquetStore(HadoopFolder(f"{bucket}/many/_geoskip"))
        for turn in range(3):
            while True:
                last = store.latest()
                before = store.header(last) if last else Header(root=f"{bucket}/many", source={})
                with suppress(ConflictError):
                    reasons = {**before.reasons, f"{who}.{turn}": ""}
                    store.commit(replace(before, reasons=reasons), files, expected=last)
                    break

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    store = ParquetStore(HadoopFolder(f"{bucket}/many/_geoskip"))
    assert store.latest() == 9
    assert set(store.header(9).reasons) == {f"{who}.{turn}" for who in range(3) for turn in range(3)}


def test_a_store_that_leaves_the_condition_out_is_found_out(
    bucket: str, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "_CONDITION", ("x-amz-meta-none", "*"))
    monkeypatch.setattr(s3, "_heeds", {})
    monkeypatch.setattr(s3, "_warned", set())
    folder = HadoopFolder(f"{bucket}/heedless")
    with pytest.warns(UserWarning, match="let one process at a time index the datasets there"):
        folder.create("x", b"1")
    folder.create("y", b"2")  # without another word
    with pytest.raises(FileExistsError):
        folder.create("x", b"3")
    assert (folder.read("x", 9), folder.read("y", 9), s3._heeds) == (b"1", b"2", {bucket: False})


def test_a_client_of_another_make_is_not_relied_upon(bucket: str, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(*_: Any) -> Any:
        raise Py4JError("no such method")

    monkeypatch.setattr(s3, "_request", changed)
    monkeypatch.setattr(s3, "_heeds", {})
    monkeypatch.setattr(s3, "_warned", set())
    with pytest.warns(UserWarning, match="let one process at a time index the datasets there"):
        HadoopFolder(f"{bucket}/older").create("x", b"1")
    with pytest.raises(FileExistsError):
        HadoopFolder(f"{bucket}/older").create("x", b"2")
    assert HadoopFolder(f"{bucket}/older").read("x", 9) == b"1"


class Somewhere:
    """Stands for a client and for a path of it."""

    def __getattr__(self, name: str) -> Any:
        return lambda: self

    def toString(self) -> str:
        return "s3a://elsewhere"


ANSWERS: dict[str, tuple[list[Any], bool, dict[str, bool]]] = {
    "it is put, and the condition holds": ([None, 412], True, {"s3a://elsewhere": True}),
    "another request was in the way, and has failed": ([409, 409, None, 412], True, {"s3a://elsewhere": True}),
    "another request was in the way, and was done": ([409, 412], False, {}),
    "others are in the way all the time": ([409] * 4, False, {}),
    "whether the condition holds could not be asked": ([None, Py4JJavaError.__new__(Py4JJavaError)], True, {}),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_what_a_store_answers(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    answers, is_put, known = ANSWERS[case]
    left = iter(answers)

    def answer(*_: Any) -> Any:
        found = next(left)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(s3, "_put", answer)
    monkeypatch.setattr(s3, "_heeds", {})
    monkeypatch.setattr(s3, "_PAUSES", (0.0, 0.0, 0.0))
    with nullcontext() if is_put else pytest.raises(FileExistsError):
        assert s3.put_new(None, Somewhere(), Somewhere(), b"1")
    assert s3._heeds == known
    assert next(left, None) is None, "no answer more, no answer less"
