"""Search servers that are killed, amid a build and amid a query: after a build one is started again, the other not.

This module is the last of those that use a server, by its name: none has to be started again for another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MinMax
from geoskip.errors import GeoskipError
from geoskip.stores import ElasticsearchStore
from tests.conftest import four_tens, kept_of_all, same_as_off
from tests.spark.test_readers import settings

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def each_query_asks(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No query goes by what one before it has learned."""
    monkeypatch.setattr("geoskip.stores.search.server._SLOW", 60.0)
    with settings(spark, {"spark.geoskip.metadata.cacheTtl": "0"}):
        yield


def indexed(spark: Any, server: Any, place: Path) -> geoskip.Dataset:
    """A handle of a dataset that has its metadata on the server, which evaluates the clauses."""
    store = ElasticsearchStore(server.url, "killed", timeout=20, patience=20, ask_above=0)
    store.drop()
    handle = geoskip.dataset(spark, str(place), store=store)
    handle.create_index(MinMax("temp"))
    return handle


@pytest.mark.slow
@pytest.mark.parametrize("search_server", ["opensearch"], indirect=True)
def test_a_server_that_is_killed_during_a_build(
    spark: Any, search_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = four_tens(tmp_path)
    handle = indexed(spark, search_server, place)
    store = handle.store
    pq.write_table(pa.table({"temp": [99]}), place / "part-9.parquet")
    told, server = store.server.tell, store.server

    def killing(method: str, path: str, *rest: Any, **params: Any) -> Any:
        if path.endswith("/_bulk"):  # while it is at it, most often
            server.patience = 0.3
            threading.Timer(0.01, search_server.kill).start()
            told(method, path, *rest, **params)
            search_server.ended.wait(60)
        return told(method, path, *rest, **params)

    with monkeypatch.context() as patch:
        patch.setattr(server, "tell", killing)
        started = time.monotonic()
        with pytest.raises(GeoskipError, match=r"127\.0\.0\.1:\d+ cannot be reached"):
            handle.refresh_index()
        assert time.monotonic() - started < 100, "it gives up after its patience"
    assert everything_is_read(spark, place, "cannot be reached")
    search_server.start()
    server.patience = 20.0
    assert handle.refresh_index().read == 1, "the build can be repeated, and finds its snapshot as it was"
    again = ElasticsearchStore(search_server.url, "killed", timeout=20, patience=20, ask_above=0)
    assert again.latest() == 2
    assert kept_of_all(lambda: spark.read.parquet(str(place)).where("temp = 15")) == (1, 5)


@pytest.mark.slow
def test_a_server_that_is_killed_during_a_query(
    spark: Any, search_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = four_tens(tmp_path)
    server = indexed(spark, search_server, place).store.server
    asked = server.ask

    def killed(method: str, path: str, *rest: Any, **params: Any) -> Any:
        if "aggs" in str(rest):  # what evaluates a clause
            search_server.kill()
        return asked(method, path, *rest, **params)

    monkeypatch.setattr(server, "ask", killed)
    started = time.monotonic()
    assert everything_is_read(spark, place, "could not be evaluated")
    assert time.monotonic() - started < 60


def everything_is_read(spark: Any, place: Path, why: str) -> bool:
    """Does a query read every file, with the rows that it has with geoskip off, and say why?"""
    report = same_as_off(lambda: spark.read.parquet(str(place)).where("temp = 27"))
    return report.files_kept == report.files_total and why in report.scans[0].reasons[0]
