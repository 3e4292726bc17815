"""Several writers on one dataset: handles in threads, processes, and Spark drivers that are killed amid their jobs.

With ``GEOSKIP_DRIVERS`` two race, and so many more are killed at random moments: ``make soak`` has some.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax
from geoskip.spark.dataset import source as data_module
from geoskip.stores import ParquetStore
from tests.conftest import same_as_off
from tests.spark.verbs.asking import kept, write
from tests.support.crashes import emptied_elsewhere
from tests.support.drivers import Driver
from tests.support.numbered import check_clean

pytestmark = pytest.mark.spark

DRIVERS = int(os.environ.get("GEOSKIP_DRIVERS", "0"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Four files of two rows each, from 0, 10, 20 and 30 on."""
    found = tmp_path / "data"
    for number in (0, 10, 20, 30):
        pair(found, number)
    return found


def pair(place: Path, number: int) -> None:
    write(place, f"{number}.parquet", [number, number + 1], s=[f"s{number}", f"s{number + 1}"])


@pytest.fixture
def handle(spark: Any, place: Path) -> geoskip.Dataset:
    found = geoskip.dataset(spark, str(place))
    found.create_index(MinMax("a"))
    return found


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[tuple[Driver, Driver]]:
    """Two of them, started side by side."""
    with Driver(tmp_path / "one") as one, Driver(tmp_path / "other") as other:
        assert (one.answer(), other.answer()) == ([], [])
        yield one, other


@pytest.fixture(scope="module", autouse=True)
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Another one, which gets ready while tests without it run."""
    with Driver(tmp_path_factory.mktemp("drivers") / "driver") as found:
        yield found


def test_the_slower_of_two_writers_looks_again(spark: Any, place: Path, monkeypatch: Any) -> None:
    one, other = (geoskip.dataset(spark, str(place)) for _ in range(2))
    one.create_index(MinMax("a"))
    build, interrupted = data_module.build, []

    def overtaken(*args: Any) -> Any:
        built = build(*args)
        if not interrupted:
            interrupted.append(True)
            other.create_index(MinMax("s"))
        return built

    monkeypatch.setattr(data_module, "build", overtaken)
    report = one.create_index(MinMax("a + 1"))
    assert report.snapshot == 3
    assert [str(index) for index in one.indexes] == ["minmax(a)", "minmax(s)", "minmax(a + 1)"]


def test_handles_in_threads_lose_nothing(spark: Any, place: Path) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            geoskip.dataset(spark, str(place)).create_index(MinMax(f"a + {number}"))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(geoskip.dataset(spark, str(place)).indexes) == 3
    assert kept(spark, place, "a + 2 = 32") == 1


@pytest.mark.slow
def test_another_process_that_indexes_is_seen(spark: Any, place: Path) -> None:
    geoskip.dataset(spark, str(place)).create_index(MinMax("a"))
    assert kept(spark, place) == 1
    emptied_elsewhere(place / "_geoskip")
    assert kept(spark, place) == 4


@pytest.mark.slow
def test_writers_in_threads_and_queries_beside_them(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    errors: list[BaseException] = []
    start = threading.Barrier(3)

    def work(number: int) -> None:
        mine = geoskip.dataset(spark, str(place))
        start.wait()
        try:
            for turn in range(2):
                write(place, f"w{number}-{turn}.parquet", [1000 + 10 * number + turn], s=["t"])
                mine.refresh_index()
            mine.optimize_index()
            mine.vacuum_index(retain=0)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    start.wait()
    for _ in range(5):
        assert [row.a for row in spark.read.parquet(str(place)).where("a = 31").collect()] == [31]
    for thread in threads:
        thread.join()
    assert not errors
    assert handle.refresh_index().files == 8
    assert kept(spark, place, "a = 1011") == 1


@pytest.mark.skipif(not DRIVERS, reason="make soak has them")
def test_drivers_that_race(spark: Any, place: Path, handle: geoskip.Dataset, drivers: tuple[Driver, Driver]) -> None:
    one, other = drivers
    added = range(100, 400 + 100 * DRIVERS, 100)
    one.order(place, *(("append", number) for number in added))
    other.order(place, ("refresh", "full"), ("refresh", "quick"), ("refresh", "incremental"))
    other.order(place, ("create", "s"), ("delete", "s"), ("vacuum", 0), ("create", "s"), ("optimize", 0))
    answers, turns, until = 0, 0, time.monotonic() + 300 + 10 * DRIVERS
    while answers < 3 and time.monotonic() < until:
        frame = spark.read.parquet(str(place))  # what both of its queries read
        same_as_off(lambda frame=frame: frame.where("a = 31"))
        same_as_off(lambda frame=frame: frame.where("s = 't200'"))
        turns += 1
        for driver in drivers:
            if driver.is_done():
                assert driver.answer() == []
                answers += 1
    assert (answers, turns > 1) == (3, True)
    assert handle.refresh_index().files == 4 + len(added)
    assert len(check_settled(handle, place, 0, 10, 20, 30, *added)) == 2 * (4 + len(added))
    assert kept(spark, place, "s = 't200'", "a BIGINT, s STRING") == 1
    assert [str(index) for index in handle.indexes] == ["minmax(a)", "minmax(s)"]


@pytest.mark.slow
def test_a_driver_that_is_killed_amid_its_jobs(
    spark: Any, place: Path, handle: geoskip.Dataset, driver: Driver
) -> None:
    pair(place, 40)
    assert driver.answer() == []
    for step, hold, where in (
        (("refresh", "full"), "commit", "commit"),
        (("append", 100), "rows", "rows"),
        (("refresh", "incremental"), "build", "build of minmax(a)"),
        (("create", "s"), "build", "build of minmax(s)"),
    ):
        driver.order(place, step, hold=hold)
        assert driver.held() == where
    assert kept(spark, place) == 2, "as before them"
    driver.kill()
    assert kept(spark, place) == 2
    assert [(row.verb, row.state) for row in handle.history().collect()] == [
        ("create", "done"),
        ("refresh full", "dead: rebuilding"),
        ("refresh", "dead: refreshing"),
        ("create", "dead: creating"),
    ]
    assert handle.refresh_index().read == 1, "the file that the dead had found"
    assert len(check_settled(handle, place, 0, 10, 20, 30, 40)) == 10
    assert [str(index) for index in handle.indexes] == ["minmax(a)"]


STEPS = [("append", 0)] * 4 + [("refresh", mode) for mode in ("incremental", "full", "quick")]
STEPS += [("create", "s"), ("optimize", 0), ("vacuum", 0)]


@pytest.mark.skipif(not DRIVERS, reason="make soak has them")
def test_drivers_that_are_killed_at_random_moments(
    spark: Any, place: Path, handle: geoskip.Dataset, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for turn in range(DRIVERS):
        with Driver(tmp_path / f"driver{turn}") as driver:
            assert driver.answer() == []
            steps = [rng.choice(STEPS) for _ in range(30)]
            first = itertools.count(1000 * (turn + 1), 10)
            driver.order(place, *((verb, next(first) if verb == "append" else by) for verb, by in steps))
            time.sleep(rng.random() * 6)
            assert not driver.is_done()
            driver.kill(alone=rng.random() < 0.5)
            same_as_off(lambda: spark.read.parquet(str(place)).where("a = 31"))
        handle.refresh_index()
        check_settled(handle, place, 0, 10, 20, 30)


def check_settled(handle: geoskip.Dataset, place: Path, *pairs: int) -> list[int]:
    """After a refresh: no row is there twice, each of these pairs is found in one file, and no writer has left
    anything. Returns all values.
    """
    frame = handle.to_df()
    with geoskip.disabled(handle.spark):
        rows = sorted(row.a for row in frame.select("a").collect())
    assert len(rows) == len(set(rows))
    for number in pairs:
        assert number in rows
        assert same_as_off(lambda number=number: frame.where(f"a = {number}")).files_kept == 1
    assert same_as_off(lambda: frame.where("a < 0")).files_kept == 0, "every file is covered"
    verified = handle.verify()
    assert verified.ok, verified
    assert verified.files == verified.of == len(list(place.glob("*.parquet")))
    handle.vacuum_index(retain=0)  # closes what the dead have left, too: a refresh of what is unchanged does not
    assert {row.state for row in handle.history().collect()} <= {"done", "rolled back"}
    check_clean(ParquetStore(place / "_geoskip"))
    assert same_as_off(lambda: frame.where("a < 0")).files_kept == 0
    return rows
