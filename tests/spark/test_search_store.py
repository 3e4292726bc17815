"""Metadata on a search server through Spark: the same rows, fewer files, and every file where the server is away."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MinMax, ValueList
from geoskip.errors import GeoskipError, InvalidSpecificationError
from geoskip.metadata import BUDGET
from geoskip.stores import ElasticsearchStore
from geoskip.stores.encryption import Encryption
from geoskip.stores.keyring import KeyRing
from geoskip.stores.search import server
from tests.conftest import four_tens, kept_of_all, same_as_off
from tests.spark.test_readers import settings
from tests.stores.test_store_elasticsearch import QUICK
from tests.support.servers.proxy import Proxy

pytestmark = [
    pytest.mark.spark,
    pytest.mark.parametrize("search_server", ["opensearch"], indirect=True),
]


@pytest.fixture(autouse=True)
def each_query_asks(spark: Any) -> Iterator[None]:
    """The tests here say what each query asks for."""
    with settings(spark, {"spark.geoskip.metadata.cacheTtl": "0"}):
        yield


@pytest.fixture
def proxy(search_server: Any) -> Iterator[Proxy]:
    with Proxy(search_server.url) as found:
        yield found


def store_at(proxy: Proxy, **options: Any) -> ElasticsearchStore:
    return ElasticsearchStore(proxy.url, "spark", **{"settings": QUICK, "timeout": 20.0, "patience": 20.0, **options})


def reading(spark: Any, place: Path, where: str) -> Any:
    return spark.read.schema("temp BIGINT, id BIGINT, pad STRING").parquet(str(place)).where(where)


def kept(spark: Any, place: Path, where: str) -> tuple[int, int]:
    return kept_of_all(lambda: reading(spark, place, where))


@pytest.mark.slow
def test_a_dataset_whose_metadata_are_on_a_server(spark: Any, proxy: Proxy, tmp_path: Path) -> None:
    place, store = four_tens(tmp_path), store_at(proxy, ask_above=0)  # so that the server evaluates the clauses
    store.drop()
    handle = geoskip.dataset(spark, str(place), store=store)
    with pytest.raises(InvalidSpecificationError, match=r"cannot compare what is encrypted.* or leave store= out"):
        geoskip.dataset(spark, str(place), store=store, encryption=Encryption(KeyRing({"k": bytes(16)}), "k"))
    assert handle.create_index(MinMax("temp"), ValueList("pad")).files == 4
    assert not (place / "_geoskip").exists()
    (tmp_path / "other").mkdir()
    other = geoskip.dataset(spark, str(four_tens(tmp_path / "other")), store=store_at(proxy))
    with pytest.raises(InvalidSpecificationError, match=r"those of .*/data, not of .*; keep .* in a store of its own"):
        other.create_index(MinMax("temp"))
    assert kept(spark, place, "temp = 15") == (1, 4)
    assert kept(spark, place, "temp >= 20 AND pad = 'xx'") == (0, 4)
    assert kept(spark, place, "NOT temp < 30 OR pad = 'xx'") == (2, 4)
    for where, requests in (("temp = 15", 2), ("temp = 27", 3)):
        del proxy.seen[:]
        geoskip.explain(reading(spark, place, where))
        assert len(proxy.seen) == requests, "as its description says: one more for a clause that was not asked before"
    assert store.describe()["costs"].startswith("two requests a query")
    with settings(spark, {"spark.geoskip.metadata.cacheTtl": "60"}):
        del proxy.seen[:]
        assert kept(spark, place, "temp = 15") == (1, 4)
        assert len(proxy.seen) == 0, "another query has asked in the same minute"
    shutil.copy(place / "part-0.parquet", place / "part-9.parquet")
    assert kept(spark, place, "temp = 15") == (2, 5)
    assert handle.refresh_index().read == 1
    assert kept(spark, place, "temp = 15") == (1, 5)
    assert {row["index"]: row["files_covered"] for row in handle.describe().collect()} == {
        "minmax(temp)": 5,
        "valuelist(pad)": 5,
    }
    handle.delete_index(ValueList("pad"))
    assert kept(spark, place, "pad = 'xx'")[0] == 5
    handle.restore_index(ValueList("pad"))
    assert kept(spark, place, "pad = 'xx'")[0] == 2
    assert [row["verb"] for row in handle.history().collect()].count("refresh") == 1


@pytest.mark.slow
def test_queries_read_every_file_while_the_server_is_away(
    spark: Any, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, store = four_tens(tmp_path), store_at(proxy, patience=0)
    store_at(proxy).drop()
    geoskip.dataset(spark, str(place), store=store_at(proxy)).create_index(MinMax("temp"))
    handle = geoskip.dataset(spark, str(place), store=store)
    monkeypatch.setattr(server, "_PAUSES", 1000)  # the second failure counts until after the third, and the first does
    for fault, why, timeout, slow in (  # not, on a slow machine either
        (503, "answered 503", 20.0, 60.0),
        ("hang", "did not answer within 0.7 s", 0.7, 0.5),
        ("cut", "asked again in", 20.0, 0.5),
    ):
        proxy.fault = lambda request, fault=fault: fault
        monkeypatch.setattr(server, "_SLOW", slow)
        store.server.timeout = timeout
        started = time.monotonic()
        frame = reading(spark, place, "temp = 15")
        report = geoskip.explain(frame)
        assert (report.files_kept, frame.count()) == (4, 1)
        assert why in report.scans[0].reasons[0]
        assert time.monotonic() - started < 60
    pq.write_table(pa.table({"temp": [99]}), place / "part-9.parquet")
    with pytest.raises(GeoskipError):
        handle.refresh_index()
    proxy.fault = lambda request: None
    again = geoskip.dataset(spark, str(place), store=store_at(proxy))
    assert again.refresh_index().read == 1
    assert kept(spark, place, "temp = 15") == (1, 5)
    store.server.tell("DELETE", "/spark-000001")
    lost = geoskip.explain(reading(spark, place, "temp = 15"))
    assert (lost.files_kept, "has none" in lost.scans[0].reasons[0]) == (5, True)
    again.create_index(MinMax("temp"))
    assert kept(spark, place, "temp = 15") == (1, 5)
    proxy.close()
    report = same_as_off(lambda: reading(spark, place, "temp = 15"))
    assert (report.files_kept, report.files_total) == (5, 5)
    assert "cannot be reached" in report.scans[0].reasons[0]


def test_the_session_says_how_much_memory_metadata_take(spark: Any, search_server: Any, tmp_path: Path) -> None:
    place, before = four_tens(tmp_path), BUDGET.limit
    geoskip.dataset(spark, str(place)).create_index(MinMax("temp"), MinMax("id"))
    try:
        spark.conf.set("spark.geoskip.metadata.cacheSize", "100")
        assert kept(spark, place, "temp = 15 AND id > 3") == (1, 4)
        assert (BUDGET.limit, BUDGET.used_bytes <= 100) == (100, True)
        spark.conf.set("spark.geoskip.metadata.cacheSize", "much")
        reasons = geoskip.explain(reading(spark, place, "temp = 16")).scans[0].reasons
        assert any("should be a size such as 512m, got 'much'" in reason for reason in reasons)
    finally:
        spark.conf.unset("spark.geoskip.metadata.cacheSize")
        BUDGET.limit = before
