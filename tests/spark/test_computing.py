"""Expressions over one column each, computed by Spark from the distinct values that Python tasks read."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

import geoskip
from geoskip import BloomFilter, Formatted, GapList, Hybrid, Index, MetricDist, MinMax, Prefix, ValueList
from geoskip.errors import GeoskipError
from geoskip.predicates import Column
from geoskip.sources import arrow_reader, worker_tasks
from geoskip.spark.build import distinct_values
from geoskip.spark.build import job as build_module
from geoskip.stores.base import MemoryStore
from tests.spark.test_build import ALL_TYPES, jobs_of, table_of

pytestmark = pytest.mark.spark

COMPUTED = "arrow, computed by spark"
INDEXES: tuple[Index, ...] = (
    *(ValueList(f"cast({name} AS string)") for name in ALL_TYPES.schema.names if name not in ("bytes", "text")),
    *(Hybrid(f"greatest({name}, {name}, NULL)") for name in ("f32", "f64", "text", "d38", "at")),
    GapList("abs(f64)"),
    BloomFilter("hex(bytes)"),
    Prefix("concat(text, '!')", length=3),
    MinMax("shouted(text)"),
    Formatted("text", extract="substring({}, 1, 2)"),
    MetricDist("length(text)", metric="euclidean", origins=[(0,), (9,)]),
    *(MinMax(name) for name in ALL_TYPES.schema.names),
)


def built(spark: Any, place: Path, *indexes: Index) -> tuple[Any, list[dict[str, Any]], int]:
    """The report, what is stored, and how many jobs it took."""
    store = MemoryStore()
    handle = geoskip.dataset(spark, str(place), store=store)
    handle.use_metadata()
    report, jobs = jobs_of(spark, lambda: handle.create_index(*indexes))
    return report, table_of(store), jobs


@pytest.fixture
def all_types(spark: Any, tmp_path: Path) -> Path:
    """Files of all types: rows in several groups, none, NULLs alone, signs of zero, text that is not UTF-8."""
    spark.udf.register("shouted", lambda text: None if text is None else f"{text}!", "string")
    broken = pa.array([b"\xff\xc3", b"\xff", None], pa.binary()).cast(pa.string(), safe=False)
    signs = pa.array([0.0, -0.0, 0.0])
    at = ALL_TYPES.schema.get_field_index
    odd = ALL_TYPES.set_column(at("text"), "text", broken).set_column(at("f64"), "f64", signs)
    files = {
        "mixed": pa.concat_tables([ALL_TYPES] * 3),
        "empty": ALL_TYPES.slice(0, 0),
        "nulls": ALL_TYPES.slice(1, 1),
        "odd": odd,
        "wide": ALL_TYPES.set_column(at("text"), "text", ALL_TYPES["text"].cast(pa.large_string())),
        "encoded": ALL_TYPES.set_column(at("text"), "text", ALL_TYPES["text"].combine_chunks().dictionary_encode()),
    }
    for name, table in files.items():
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=2)
    return tmp_path


@pytest.mark.slow
def test_the_metadata_are_those_of_sparks_reader(spark: Any, all_types: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, ours, jobs = built(spark, all_types, *INDEXES)
    assert jobs == 1
    assert {report.readers[str(index)] for index in INDEXES[: -len(ALL_TYPES.schema)]} == {COMPUTED}
    assert report.readers["minmax(f64)"] == "arrow"
    monkeypatch.setattr(worker_tasks, "_GROUP", 2)
    assert repr(built(spark, all_types, *INDEXES)[1]) == repr(ours)
    monkeypatch.setattr(build_module, "_plans", lambda *_: None)
    slow, theirs, _ = built(spark, all_types, *INDEXES)
    assert set(slow.readers.values()) == {"spark"}
    for one, other in zip(ours, theirs, strict=True):
        assert repr(one) == repr(other)


def test_many_rows_of_a_group_come_in_several_batches(
    spark: Any, parts: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = parts(*({"a": [k % 40 for k in range(i, 9 * i)], "s": [f"{i}"] * 8 * i} for i in range(1, 30)))
    indexes = [ValueList("a * 2"), ValueList("concat(s, 'x')"), MinMax("a")]
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    try:
        report, ours, jobs = built(spark, place, *indexes)
        assert (jobs, report.readers["valuelist(a * 2)"]) == (1, COMPUTED)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    monkeypatch.setattr(build_module, "_plans", lambda *_: None)
    assert repr(built(spark, place, *indexes)[1]) == repr(ours)


def test_files_of_many_rows_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks alone, with nothing between those that read and those that summarise."""
    monkeypatch.setattr(arrow_reader, "_ROWS_AT_ONCE", 5)
    monkeypatch.setattr(worker_tasks, "_ROWS_AT_ONCE", 3)
    monkeypatch.setattr(worker_tasks, "_GROUP", 2)
    paths = []
    for number, rows in enumerate((0, 3, 17, 0, 12)):
        paths.append((f"f{number}", str(tmp_path / f"{number}.parquet")))
        values = [None if k % 7 == 3 else (number * k) % 5 / 2 - 0.0 for k in range(rows)]
        pq.write_table(pa.table({"a": pa.array(values, pa.float64())}), paths[-1][1], row_group_size=4)
    index = ValueList("a").bind([Column("a", "double")])
    plan = arrow_reader.IndexPlan("valuelist(a)", index, (("a", "double"),))
    what = worker_tasks.ExpressionPlan((), plan.columns, (("a", 0),), ((plan.name, index, (0,)),))
    read = worker_tasks.reading_task([paths], what, [pa.float64()], False)(iter([pa.record_batch({"id": [0]})]))
    sent = worker_tasks.expanding_task(what)(read)
    found = [result for batch in sent for payload in batch.column(0).to_pylist() for result in pickle.loads(payload)]
    expected = list(arrow_reader.read_files(paths, [plan], False))
    assert [(f.path, f.rows, f.size, f.summaries) for f in found] == [
        (f.path, f.rows, f.size, f.summaries) for f in expected
    ]


def test_nothing_is_computed_of_values_that_no_file_has(spark: Any, parts: Callable[..., Path]) -> None:
    """A column with fewer values than another repeats one: NULL, which some functions do not take, would be new."""
    place = parts({"a": list(range(9)), "s": ["x"] * 9}, {"a": [1], "s": ["yy"]})
    fails = "IF(s IS NULL, CAST(raise_error('NULL') AS int), length(s))"
    report, _, jobs = built(spark, place, MinMax(fails), MinMax("a * 2"))
    assert (jobs, set(report.readers.values())) == (1, {COMPUTED})


@pytest.mark.slow
@pytest.mark.parametrize(("texts", "reader"), [(["x" * 99_999, ""], COMPUTED), (["x" * 99_999, "y" * 99_998], "spark")])
def test_what_is_repeated_is_short(spark: Any, parts: Callable[..., Path], texts: list[str], reader: str) -> None:
    """A thousand times each of these texts would be a hundred megabytes."""
    place = parts({"a": list(range(1000)), "s": texts * 500})
    report, (row,), _ = built(spark, place, MinMax("a * 2"), MinMax("length(s)"))
    assert report.readers == {"minmax(a * 2)": reader, "minmax(length(s))": reader}
    assert [row["minmax(length(s))"][end] for end in ("min", "max")] == sorted(map(len, texts))


def test_a_build_that_is_called_off_does_not_start_over(spark: Any, parts: Callable[..., Path], tmp_path: Path) -> None:
    begun, over = tmp_path / "begun", threading.Event()

    def slow(text: str) -> str:
        with begun.open("a") as file:
            file.write(text)
        time.sleep(20)
        return text

    def cancel() -> None:
        while not begun.exists() and not over.wait(0.05):
            pass
        spark.sparkContext.cancelAllJobs()

    spark.udf.register("slow", slow, "string")
    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        with pytest.raises(GeoskipError, match="called off: Job"):
            built(spark, parts({"s": ["x"]}), ValueList("slow(s)"))
    finally:
        over.set()
        thread.join()
    assert begun.read_text() == "x"


@pytest.mark.skipif(
    not pyspark.__version__.startswith(("3.5.", "4.0.")),
    reason="the test looks into Spark's pool of workers, which is elsewhere in later versions",
)
@pytest.mark.parametrize(("expression", "reader"), [("concat(s, '1')", COMPUTED), ("concat(s, a)", "spark")])
def test_workers_that_spark_has_closed_are_passed_over(
    spark: Any, parts: Callable[..., Path], expression: str, reader: str
) -> None:
    """As after a cancelled job, whose workers Spark may close while they wait for the next task."""
    place = parts({"s": ["x"], "a": [1]})
    built(spark, place, ValueList("upper(s)"))
    stopped = []
    try:
        for worker, pid in idle_workers(spark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)  # one that has ended would not be reused
                stopped.append(pid)
            worker.close()
        assert stopped
        report, (row,), _ = built(spark, place, ValueList(expression))
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):  # Spark may have ended it
                os.kill(pid, signal.SIGKILL)
    assert report.readers == {f"valuelist({expression})": reader}
    assert row[f"valuelist({expression})"]["values"] == [b"x1"]


def idle_workers(spark: Any) -> Iterator[tuple[Any, int]]:
    """Channel, or socket on Spark 3.5, and process of each Python worker that waits for a task."""

    def private(owner: Any, name: str) -> Any:
        field = owner.getClass().getDeclaredField(name)
        field.setAccessible(True)
        return field.get(owner)

    factories = private(spark._jvm.org.apache.spark.SparkEnv.get(), "pythonWorkers").values().iterator()
    while factories.hasNext():
        factory = factories.next()
        idle = private(factory, "idleWorkers").iterator()
        while idle.hasNext():
            worker = idle.next()
            process = private(factory, "daemonWorkers").apply(worker)
            yield (worker, process) if isinstance(process, int) else (worker.channel(), process.pid())


def test_files_that_arrow_reads_otherwise_are_handed_back(spark: Any, parts: Callable[..., Path]) -> None:
    place = parts({"a": pa.array([1], pa.int32()), "s": ["x"]}, {"a": pa.array([2], pa.int16()), "s": ["y"]})
    (place / "corrupt.parquet").write_bytes(b"garbage" * 10)
    store = MemoryStore()
    handle = geoskip.dataset(spark, str(place), store=store, schema="a int, s string")
    report = handle.create_index(ValueList("a * 2"), ValueList("upper(s)"))
    assert list(report.excluded) == ["corrupt.parquet"]
    assert report.readers["valuelist(upper(s))"] == f"{COMPUTED} and spark"
    assert [row["valuelist(a * 2)"]["values"] for row in table_of(store)] == [[2], [4]]


@pytest.mark.slow
def test_what_fails_is_said_by_sparks_reader(spark: Any, parts: Callable[..., Path]) -> None:
    place = parts({"s": ["1"]}, {"s": ["one"]})
    said = r"^minmax\(cast\(s AS int\)\) cannot be built: cast\(s AS int\) could not be evaluated: .*'one'"
    ansi = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "true")
    try:
        with pytest.raises(GeoskipError, match=said):
            built(spark, place, MinMax("s"), MinMax("cast(s AS int)"), MinMax("length(s)"))
    finally:
        spark.conf.set("spark.sql.ansi.enabled", ansi)
    spark.udf.register("sixth_letter", lambda s: s[5], "string")
    with pytest.raises(GeoskipError, match=r"sixth_letter\(s\) could not be evaluated: .*IndexError: string"):
        built(spark, place, ValueList("sixth_letter(s)"))


def test_large_files_and_views_are_for_sparks_reader(
    spark: Any, parts: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = parts({"s": ["a"]})
    spark.read.parquet(str(place)).selectExpr("concat(s, s) AS s").createOrReplaceTempView("computed_twice")
    view = geoskip.dataset(spark, table="computed_twice", store=MemoryStore())
    assert view.create_index(ValueList("upper(s)")).readers == {"valuelist(upper(s))": "spark"}
    monkeypatch.setattr(distinct_values, "_LARGEST", 1)
    assert built(spark, place, ValueList("upper(s)"))[0].readers == {"valuelist(upper(s))": "spark"}
