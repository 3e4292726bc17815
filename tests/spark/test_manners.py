"""The manners of the rule: nothing that Spark does is disturbed, and nothing of a user's harms a query."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geoskip
from geoskip import MinMax
from geoskip.clauses import Clause
from geoskip.spark.session import java
from tests.conftest import four_tens, same_as_off

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return four_tens(tmp_path_factory.mktemp("manners"))


@pytest.fixture(scope="module")
def own(spark: Any, place: Path) -> Any:
    """A session without adaptive execution, so that plans are what was planned; the dataset as ``t``."""
    session = spark.newSession()
    for key, value in {"shuffle.partitions": 1, "adaptive.enabled": False, "autoBroadcastJoinThreshold": -1}.items():
        session.conf.set(f"spark.sql.{key}", str(value).lower())
    geoskip.dataset(session, str(place)).create_index(MinMax("temp"))
    session.read.parquet(str(place)).createOrReplaceTempView("t")
    return session


def plan(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def off_and_on(session: Any, make: Callable[[], Any]) -> tuple[str, str]:
    with geoskip.disabled(session):
        off = plan(make())
    return off, plan(make())


def test_partition_pruning_comes_first_and_broadcasts_stay(own: Any, place: Path) -> None:
    own.sql("DROP TABLE IF EXISTS pruned")
    own.sql("CREATE TABLE pruned USING parquet PARTITIONED BY (p) AS SELECT temp, pad, temp DIV 10 AS p FROM t")
    geoskip.dataset(own, table="pruned").create_index(MinMax("temp"))
    whole = int(str(own.table("pruned")._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    query = "SELECT * FROM pruned a JOIN pruned b ON a.pad = b.pad WHERE {}"
    try:
        own.conf.set("spark.sql.autoBroadcastJoinThreshold", str(whole // 2))
        off, on = off_and_on(own, lambda: own.sql(query.format("b.p = 1")))
        assert "BroadcastHashJoin" in off
        assert "BroadcastHashJoin" in on
        off, on = off_and_on(own, lambda: own.sql(query.format("b.temp > 35")))  # small by what is skipped
        assert "BroadcastHashJoin" not in off
        assert "BroadcastHashJoin" in on
        own.sql("ANALYZE TABLE pruned COMPUTE STATISTICS")
        off, on = off_and_on(own, lambda: own.sql(query.format("b.p = 1")))
        assert ("BroadcastHashJoin" in on) >= ("BroadcastHashJoin" in off)
    finally:
        own.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    assert same_as_off(lambda: own.sql("SELECT * FROM pruned WHERE p = 1 AND temp > 15")).files_kept == 1


def test_plans_are_reused(own: Any) -> None:
    part = "(SELECT city, count(*) AS n FROM t WHERE temp > {} GROUP BY city)"
    query = f"SELECT * FROM {part} a JOIN {part} b ON a.city = b.city"
    off, on = off_and_on(own, lambda: own.sql(query.format(25, 25)))
    assert "ReusedExchange" in off
    assert "ReusedExchange" in on
    report = same_as_off(lambda: own.sql(query.format(25, 25)))
    assert [(scan.files_kept, scan.files_total) for scan in report.scans] == [(2, 4)]
    assert "ReusedExchange" not in plan(own.sql(query.format(25, 35)))
    same_as_off(lambda: own.sql(query.format(25, 35)))


@pytest.mark.slow
def test_dynamic_partition_pruning(spark: Any, place: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.read.parquet(str(place)).selectExpr("temp", "temp DIV 10 AS p").write.partitionBy("p").mode(
        "overwrite"
    ).parquet(str(place.parent / "fact"))
    geoskip.dataset(session, str(place.parent / "fact")).create_index(MinMax("temp"))
    session.read.parquet(str(place.parent / "fact")).createOrReplaceTempView("fact")
    session.sql("SELECT * FROM VALUES (1, 'x'), (3, 'x'), (2, 'y') AS v (p, name)").write.mode("overwrite").parquet(
        str(place.parent / "dim")
    )
    session.read.parquet(str(place.parent / "dim")).createOrReplaceTempView("dim")

    for adaptive in ("true", "false"):
        session.conf.set("spark.sql.adaptive.enabled", adaptive)
        query = "SELECT fact.* FROM fact JOIN dim ON fact.p = dim.p WHERE dim.name = 'x' AND fact.temp > 15"
        off, on = off_and_on(session, lambda query=query: session.sql(query))
        assert "dynamicpruning" in off
        assert "dynamicpruning" in on
        frame = session.sql(query)
        assert len(frame.collect()) == 14
        scan = next(scan for scan in geoskip.report(frame).scans if scan.dataset.endswith("fact"))
        assert (scan.files_kept, scan.files_total) == (2, 4)
        assert sorted(Path(path).parent.name for path in scan.kept_files()) == ["p=1", "p=3"]
        none = session.sql(query.replace("'x'", "'z'"))
        assert none.collect() == []
        assert sum(scan.files_kept for scan in geoskip.report(none).scans if scan.dataset.endswith("fact")) == 0


def test_buckets(own: Any) -> None:
    own.sql("DROP TABLE IF EXISTS bucketed")
    own.table("t").write.bucketBy(4, "city").sortBy("city").saveAsTable("bucketed")
    geoskip.dataset(own, table="bucketed").create_index(MinMax("temp"), MinMax("city"))
    query = "SELECT * FROM bucketed a JOIN bucketed b ON a.city = b.city WHERE a.city = 'c1' AND b.temp > 5"
    off, on = off_and_on(own, lambda: own.sql(query))
    assert off.count("Exchange") == on.count("Exchange") == 0
    assert "SelectedBucketsCount" in on
    same_as_off(lambda: own.sql(query))


def test_explain_names_geoskip_and_files_are_what_they_were(own: Any, place: Path) -> None:
    explained = own.sql("EXPLAIN SELECT * FROM t WHERE temp > 25").collect()[0][0]
    assert "GeoskipFileIndex" in explained
    assert "GeoskipFileIndex" not in own.sql("EXPLAIN SELECT * FROM t").collect()[0][0]
    frame = own.table("t").where("temp > 25")
    with geoskip.disabled(own):
        off = own.table("t").where("temp > 25").inputFiles()
    assert sorted(frame.inputFiles()) == sorted(off)
    assert len(off) == 4
    assert frame.isStreaming is False


def test_the_switch(own: Any) -> None:
    def kept() -> int:
        return geoskip.explain(own.sql("SELECT * FROM t WHERE temp > 25")).files_kept

    own.sql("SET spark.geoskip.enabled = false")
    assert not geoskip.is_enabled(own)
    assert kept() == 4
    assert "switched off" in str(geoskip.explain(own.sql("SELECT * FROM t WHERE temp > 25")))
    own.sql("SET spark.geoskip.enabled = true")
    assert geoskip.is_enabled(own)
    assert kept() == 2
    planned = own.sql("SELECT * FROM t WHERE temp > 25")
    geoskip.explain(planned)
    with geoskip.disabled(own):
        assert kept() == 4
        assert len(planned.collect()) == 14
        assert geoskip.report(planned).files_kept == 2  # a planned frame keeps its plan
    geoskip.enable(own)
    geoskip.enable(own)
    assert kept() == 2


def test_a_dataset_without_metadata_costs_a_look_up_and_no_question(
    own: Any, place: Path, tmp_path: Path, asked: list[str]
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(place, bare, ignore=shutil.ignore_patterns("_geoskip"))
    assert own.read.parquet(str(bare)).where("temp > 25").count() == 14
    assert asked == []
    shutil.copytree(place / "_geoskip", bare / "_geoskip")  # behind geoskip's back: what was looked up stays for now
    report = geoskip.explain(own.read.parquet(str(bare)).where("temp > 25"))
    assert asked == []
    assert any("no metadata" in reason for reason in report.reasons)
    assert own.table("t").where("temp > 25").count() == 14
    assert len(asked) <= 2  # the decision, and the files of a snapshot that the driver has not met


@pytest.fixture
def asked(own: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that come from the rule, from now on."""
    callback, seen = java(own).callback, []  # type: ignore[var-annotated]
    answer = callback.answer
    monkeypatch.setattr(callback, "answer", lambda request: (seen.append(request), answer(request))[1])
    return seen


# --- what a user's clauses do ---------------------------------------------------------------------------------------


class Garbage(Clause):
    """A clause whose answers are none."""

    def __init__(self, answer: Callable[[int], Any]) -> None:
        self.answer = answer

    def columns(self) -> Iterator[Any]:
        return iter(())

    def keep(self, files: Any) -> Any:
        return self.answer(len(files))

    def __str__(self) -> str:
        return "garbage"


def test_threads_that_ask_python_stay(own: Any) -> None:
    """Py4J closes neither the connection nor Python's thread of one that ends: they would pile up, one a query."""
    field = java(own).geoskip.getClass().getDeclaredField("workers")
    field.setAccessible(True)
    workers = field.get(None)
    assert workers.getKeepAliveTime(own._jvm.java.util.concurrent.TimeUnit.DAYS) > 10_000


def test_a_long_condition_is_sent_at_once(own: Any) -> None:
    def planned(values: int) -> float:
        texts = ", ".join(f"'{number:050}'" for number in range(values))
        query = f"SELECT * FROM t WHERE temp > 25 AND city NOT IN ({texts})"
        return min(geoskip.explain(own.sql(query)).scans[0].planning_seconds for _ in range(8))

    assert planned(300) < planned(3) + 0.030  # held back until its beginning is acknowledged, it takes 0.040 longer


def test_long_answers_of_the_jvm_are_sent_at_once(own: Any) -> None:
    java(own)
    repeat = own._jvm.org.apache.commons.lang3.StringUtils.repeat

    def seconds(length: int) -> float:
        started = time.perf_counter()
        assert len(repeat("a", length)) == length
        return time.perf_counter() - started

    assert min(seconds(20_000) for _ in range(8)) < 0.030


def raises(error: BaseException) -> Any:
    raise error


RULES: dict[str, Callable[[Any], Any]] = {
    "raises": lambda session: raises(ValueError("a bug in a mapping")),
    "SystemExit": lambda session: raises(SystemExit(3)),
    "KeyboardInterrupt": lambda session: raises(KeyboardInterrupt()),
    "StopIteration": lambda session: raises(StopIteration()),
    "a number": lambda session: 42,
    "a NumPy bool": lambda session: np.bool_(False),
    "clause raises": lambda session: Garbage(lambda count: raises(RuntimeError("no"))),
    "clause exits": lambda session: Garbage(lambda count: raises(SystemExit(1))),
    "clause of another length": lambda session: Garbage(lambda count: np.zeros(count + 1, dtype=bool)),
    "clause without an answer": lambda session: Garbage(lambda count: None),
    "clause of a NumPy bool": lambda session: Garbage(lambda count: np.bool_(False)),
    "clause of texts": lambda session: Garbage(lambda count: ["no"] * count),
    "a Spark query": lambda session: session.range(5).count() and None,
    "a query of the same": lambda session: session.table("t").where("temp > 25").count() and None,
}


@pytest.fixture(scope="module")
def hot(own: Any) -> Any:
    own.udf.register("hot", lambda temp: temp > 33, "boolean")
    own.conf.set("spark.geoskip.planning.budget", "60")
    return own


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("rule", RULES)
def test_a_mapping_harms_no_query(hot: Any, rule: str) -> None:
    calls = []
    with geoskip.mappings():

        @geoskip.maps("hot", index=MinMax)
        def mapped(node: Any, index: Any) -> Any:
            calls.append(node)
            return RULES[rule](hot)

        frame = hot.table("t").where("hot(temp) AND temp > 25")
        report = geoskip.explain(frame)
        print(report)
        assert report.files_kept == 2  # by the other condition
        assert calls
        left = [] if "a query" in rule or "Spark" in rule else ["mapped"]
        assert [name.rpartition(".")[2] for name in geoskip.quarantined()] == left, geoskip.quarantined()
        assert any("mapped " in reason for reason in report.reasons) == bool(left)
        if rule in ("raises", "clause raises"):
            calls.clear()
            assert len(frame.collect()) == 6
            assert not calls, "from the next query on it is not asked"


@pytest.mark.parametrize("where", ["mapping", "clause"])
def test_an_endless_mapping_is_waited_for_within_the_budget_and_not_asked_again(hot: Any, where: str) -> None:
    stop, begun = threading.Event(), threading.Event()

    def wait(count: int = 0) -> None:
        begun.set()
        stop.wait(100)

    try:
        with geoskip.mappings():

            @geoskip.maps("hot", index=MinMax)
            def endless(node: Any, index: Any) -> Any:
                return Garbage(wait) if where == "clause" else wait()

            hot.conf.set("spark.geoskip.planning.budget", "0.5" if where == "mapping" else "500ms")
            frame = hot.table("t").where("hot(temp) AND temp > 25")
            started = time.monotonic()
            report = geoskip.explain(frame)
            assert time.monotonic() - started < 30
            assert report.files_kept == 4
            assert any("planning budget of 0.5 s" in reason for reason in report.reasons)
            assert begun.wait(60)  # on a busy machine the budget may be over before the mapping is asked
            hot.conf.set("spark.geoskip.planning.budget", "60")
            # from the next query on it is not asked
            report = geoskip.explain(hot.table("t").where("hot(temp) AND temp > 25"))
            assert report.files_kept == 2
            assert any("endless is left out: it has run for" in reason for reason in report.reasons)
            assert [name.rpartition(".")[2] for name in geoskip.quarantined()] == ["endless"]

            @geoskip.maps("hot", index=MinMax)
            def endless(node: Any, index: Any) -> Any:  # noqa: F811 - as in a cell that is run again
                return None  # mended

            stop.set()
            assert not geoskip.quarantined()
            (reason,) = geoskip.explain(hot.table("t").where("hot(temp) AND temp > 25")).reasons
            assert reason.startswith("minmax(temp) and the mapping of hot do not serve hot(temp)")
    finally:
        stop.set()
        hot.conf.set("spark.geoskip.planning.budget", "60")


def test_a_query_is_cancelled_while_it_is_planned(hot: Any) -> None:
    stop, begun = threading.Event(), threading.Event()
    threads: list[Any] = []

    def run() -> Any:
        threads.append(hot._jvm.java.lang.Thread.currentThread())
        return hot.table("t").where("hot(temp) AND temp > 25").collect()

    hot.conf.set("spark.geoskip.planning.budget", "60")
    try:
        with geoskip.mappings(), ThreadPoolExecutor(1) as pool:

            @geoskip.maps("hot", index=MinMax)
            def endless(node: Any, index: Any) -> Any:
                begun.set()
                stop.wait(100)

            running = pool.submit(run)
            assert begun.wait(60)
            started = time.monotonic()
            threads[0].interrupt()
            error = running.exception(timeout=60)  # cancelled, or run to its end without a decision
            assert time.monotonic() - started < 40
            assert error is not None or len(running.result()) == 6
    finally:
        stop.set()
        hot.conf.set("spark.geoskip.planning.budget", "60")
    _until(lambda: geoskip.explain(hot.table("t").where("temp > 25")).files_kept == 2)


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_wrong_setting_is_no_reason_to_fail_and_is_said(own: Any) -> None:
    before = own.conf.get("spark.geoskip.planning.budget", "5")
    wrong = {"planning.budget": "soon", "audit": "2%", "fingerprint.maxRechecks": "few", "metadata.cacheTtl": "-1"}
    try:
        for key, value in wrong.items():
            own.conf.set(f"spark.geoskip.{key}", value)
        (scan,) = geoskip.explain(own.table("t").where("temp > 25")).scans
        assert len(scan.kept_files()) == 2
        for key, value in wrong.items():
            assert any(f"spark.geoskip.{key} should be a" in why and repr(value) in why for why in scan.reasons)
    finally:
        for key in wrong:
            own.conf.unset(f"spark.geoskip.{key}")
        own.conf.set("spark.geoskip.planning.budget", before)
