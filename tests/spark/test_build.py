"""Building indexes through Spark: one job, three readers that agree, and everything that can go wrong on the way."""

from __future__ import annotations

import datetime as dt
import itertools
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import GeoBox, MinMax
from geoskip.errors import (
    DatasetNotFoundError,
    EnvironmentProblem,
    GeoskipError,
    InvalidSpecificationError,
    UnknownColumnError,
    UnsupportedColumnError,
)
from geoskip.spark.build import job as build_module
from geoskip.stores.base import MemoryStore
from tests.conftest import same_as_off

pytestmark = pytest.mark.spark

Parts = Callable[..., Path]
_groups = itertools.count()


def jobs_of(spark: Any, action: Callable[[], Any]) -> tuple[Any, int]:
    """What an action returns, and how many Spark jobs it ran."""
    context, group = spark.sparkContext, f"counted-{next(_groups)}"
    context.setJobGroup(group, group)
    try:
        result = action()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    told(spark)
    return result, len(context.statusTracker().getJobIdsForGroup(group))


def told(spark: Any) -> None:
    """Until Spark's tracker has heard of all that was done."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(60_000)


@pytest.fixture
def only_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is read by Spark's own reader."""
    monkeypatch.setattr(build_module, "_plans", lambda *_: None)


def table_of(store: MemoryStore) -> list[dict[str, Any]]:
    number = store.latest()
    assert number is not None
    rows: list[dict[str, Any]] = store.load(number).files.table().drop_columns(["etag"]).to_pylist()
    return sorted(rows, key=lambda row: row["path"])


# --- one job, three readers -------------------------------------------------------------------------------------------


def test_one_job_builds_all_indexes_over_all_files(spark: Any, parts: Parts) -> None:
    place = parts(*({"a": [i], "x": [float(i)], "y": [1.0], "s": ["x" * i]} for i in range(20)))
    handle = geoskip.dataset(spark, str(place))
    report, jobs = jobs_of(spark, lambda: handle.create_index(MinMax("a"), MinMax("s"), GeoBox("x", "y")))
    assert jobs == 1
    assert report.readers == {"minmax(a)": "footers", "minmax(s)": "footers", "geobox(x, y)": "arrow"}
    assert (report.files, report.rows, report.read, report.excluded) == (20, 20, 20, {})
    assert report.bytes == sum(path.stat().st_size for path in place.glob("*.parquet"))
    assert min(report.metadata_bytes.values()) > 0
    report, jobs = jobs_of(spark, lambda: handle.create_index(MinMax("length(s)"), MinMax("a + 1")))
    assert jobs == 1
    assert set(report.readers.values()) == {"arrow, computed by spark"}
    report, jobs = jobs_of(spark, lambda: handle.create_index(MinMax("a + x"), MinMax("a * 2")))
    assert jobs == 1
    assert report.readers == {"minmax(a + x)": "spark", "minmax(a * 2)": "spark"}
    assert "20 files" in str(report)
    assert jobs_of(spark, lambda: handle.refresh_index())[1] == 0


def test_many_files_make_few_tasks(spark: Any, parts: Parts, only_spark: None) -> None:
    place = parts(*({"a": [i]} for i in range(60)))
    spark.conf.set("spark.sql.files.openCostInBytes", "100000000")  # else few small files share one partition anyway
    try:
        handle = geoskip.dataset(spark, str(place), store=MemoryStore())  # under other settings it asks for the columns
        spark.sparkContext.setJobGroup("tasks", "tasks")
        handle.create_index(MinMax("a"))
    finally:
        spark.conf.unset("spark.sql.files.openCostInBytes")
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    told(spark)
    tracker = spark.sparkContext.statusTracker()
    (job,) = tracker.getJobIdsForGroup("tasks")
    stages = [tracker.getStageInfo(stage) for stage in tracker.getJobInfo(job).stageIds]
    assert sum(stage.numTasks for stage in stages) <= 4


ALL_TYPES = pa.table(
    {
        "i8": pa.array([1, None, -3], pa.int8()),
        "i16": pa.array([1, None, -3], pa.int16()),
        "i32": pa.array([1, None, -3], pa.int32()),
        "i64": pa.array([2**63 - 1, None, -(2**63)], pa.int64()),
        "f32": pa.array([1.5, None, float("nan")], pa.float32()),
        "f64": pa.array([-0.0, None, float("nan")], pa.float64()),
        "flag": pa.array([True, None, False]),
        "day": pa.array([dt.date(2024, 1, 1), None, dt.date(1600, 1, 1)]),
        "at": pa.array([dt.datetime(2024, 1, 1, 5), None, dt.datetime(9999, 12, 31)], pa.timestamp("us", "UTC")),
        "ms": pa.array([dt.datetime(2024, 1, 1, 5), None, dt.datetime(1970, 1, 1)], pa.timestamp("ms", "UTC")),
        "ntz": pa.array([dt.datetime(2024, 1, 1, 5), None, dt.datetime(1950, 1, 1)], pa.timestamp("us")),
        "d5": pa.array([Decimal("-1.25"), None, Decimal("0.00")], pa.decimal128(5, 2)),
        "d18": pa.array([Decimal("-1.25"), None, Decimal("7.50")], pa.decimal128(18, 2)),
        "d38": pa.array([Decimal(10) ** 27, None, Decimal("-0.0000000001")], pa.decimal128(38, 10)),
        "text": pa.array(["z" * 99, None, "\U0001f600"]),
        "bytes": pa.array([b"\xff" * 40, None, b""]),
        "none": pa.array([None, None, None], pa.int32()),
        "x": pa.array([1.0, None, 3.0]),
        "y": pa.array([1.0, 2.0, float("nan")]),
    }
)


def test_all_readers_make_the_same_metadata(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    pq.write_table(ALL_TYPES, tmp_path / "data" / "a.parquet", row_group_size=2)
    pq.write_table(ALL_TYPES.slice(0, 0), tmp_path / "data" / "empty.parquet")
    indexes = [*(MinMax(name) for name in ALL_TYPES.schema.names), GeoBox("x", "y")]
    stores = [MemoryStore(), MemoryStore()]
    mixed = geoskip.dataset(spark, str(tmp_path / "data"), store=stores[0]).create_index(*indexes)
    monkeypatch.setattr(build_module, "_plans", lambda *_: None)
    second = geoskip.dataset(spark, str(tmp_path / "data"), store=stores[1])
    second.use_metadata()
    slow = second.create_index(*indexes)
    assert set(slow.readers.values()) == {"spark"}
    assert {mixed.readers[f"minmax({name})"] for name in ("f32", "f64")} == {"arrow"}
    # the file without rows has no statistics, so that it is read
    exact = ("i8", "day", "at", "ms", "d38", "text", "bytes")
    assert {mixed.readers[f"minmax({name})"] for name in exact} == {"arrow and footers"}
    for one, other in zip(table_of(stores[0]), table_of(stores[1]), strict=True):
        assert repr(one) == repr(other)  # NaN, and the sign of zero


def test_the_ends_of_text_that_spark_wrote_are_those_in_the_footers(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = ("cast(x'ff41c3' AS string)", "NULL", "'\U0001f600'", "''", "'\ud7ff'", "repeat('z', 99)")
    for some in (values, values[2:4]):
        rows = spark.sql(f"SELECT s, cast(s AS binary) AS b FROM VALUES {', '.join(f'({v})' for v in some)} AS t(s)")
        rows.selectExpr("cast(s AS string) AS s", "b").coalesce(1).write.mode("append").parquet(str(tmp_path / "data"))
    stores = [MemoryStore(), MemoryStore()]
    data = [geoskip.dataset(spark, str(tmp_path / "data"), store=store) for store in stores]
    assert set(data[0].create_index(MinMax("s"), MinMax("b")).readers.values()) == {"footers"}
    monkeypatch.setattr(build_module, "_plans", lambda *_: None)
    data[1].use_metadata()
    assert set(data[1].create_index(MinMax("s"), MinMax("b")).readers.values()) == {"spark"}
    assert table_of(stores[0]) == table_of(stores[1])


def test_a_file_without_rows_is_skipped_whoever_read_it(spark: Any, parts: Parts, only_spark: None) -> None:
    place = parts({"a": [1]}, pa.table({"a": pa.array([], pa.int64())}))
    geoskip.dataset(spark, str(place)).create_index(MinMax("a"))
    assert same_as_off(lambda: spark.read.parquet(str(place)).where("a IS NOT NULL")).files_kept == 1


# --- files that change while they are read ----------------------------------------------------------------------------

WHILE_READING: dict[str, tuple[Callable[[Path], None], str]] = {
    "appended": (lambda path: path.write_bytes(path.read_bytes() + b"more"), "changed"),
    "replaced": (lambda path: replace_kept(path), "changed"),
    "vanished": (lambda path: path.unlink(), "vanished"),
    "of the future": (lambda path: os.utime(path, (4e9, 4e9)), "changed"),
}


def replace_kept(path: Path) -> None:
    """Another content of the same size under the same name and modification time."""
    before = path.stat()
    content = path.read_bytes()
    other = path.with_name(".other")
    other.write_bytes(content)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


@pytest.mark.slow
@pytest.mark.parametrize("event", WHILE_READING)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_file_that_changes_while_it_is_indexed_has_no_metadata(
    spark: Any, parts: Parts, monkeypatch: pytest.MonkeyPatch, event: str, when: str
) -> None:
    place = parts({"a": [1]}, {"a": [2]})
    victim = place / "part-00000.parquet"
    happen, why = WHILE_READING[event]
    read = build_module.read_through_arrow

    def disturbed(*args: Any, **named: Any) -> Any:
        if when == "before":
            happen(victim)
        found = read(*args, **named)
        if when == "after":
            happen(victim)
        return found

    handle = geoskip.dataset(spark, str(place))
    monkeypatch.setattr(build_module, "read_through_arrow", disturbed)
    report = handle.create_index(MinMax("a"))
    assert list(report.excluded) == ["part-00000.parquet"]
    assert why in report.excluded["part-00000.parquet"]
    assert report.files == 1
    assert "part-00000.parquet" in str(report)


def test_a_file_from_the_future_is_not_trusted(spark: Any, parts: Parts) -> None:
    place = parts({"a": [1]}, {"a": [2]})
    os.utime(place / "part-00001.parquet", (4e9, 4e9))
    report = geoskip.dataset(spark, str(place)).create_index(MinMax("a"))
    assert "future" in report.excluded["part-00001.parquet"]


def test_a_file_just_written_is_indexed_once_its_tick_is_over(spark: Any, parts: Parts) -> None:
    place = parts({"a": [1]})
    handle = geoskip.dataset(spark, str(place))
    (place / "part-00000.parquet").touch()
    assert handle.create_index(MinMax("a")).excluded == {}


# --- files that cannot be read ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reader", "ignoring"), [("arrow", "session"), ("arrow", "nobody"), ("spark", "options"), ("spark", "nobody")]
)
def test_a_corrupt_file_is_left_out_and_never_taken_for_a_whole_one(
    spark: Any, parts: Parts, monkeypatch: pytest.MonkeyPatch, reader: str, ignoring: str
) -> None:
    place = parts(*({"a": [i] * 1000, "b": [float(i)] * 1000} for i in range(4)))
    whole = (place / "part-00001.parquet").read_bytes()
    (place / "part-00001.parquet").write_bytes(whole[: len(whole) // 2])
    (place / "part-00002.parquet").write_bytes(b"garbage" * 10)
    options = {"ignoreCorruptFiles": True, "ignoreMissingFiles": True} if ignoring == "options" else {}
    if reader == "spark":
        monkeypatch.setattr(build_module, "_plans", lambda *_: None)
    names = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
    if ignoring == "session":
        for name in names:
            spark.conf.set(name, "true")
    try:
        handle = geoskip.dataset(spark, str(place), schema="a long, b double", **options)
        report = handle.create_index(MinMax("a"))
        assert sorted(report.excluded) == ["part-00001.parquet", "part-00002.parquet"]
        assert all(why.startswith("unreadable: ") for why in report.excluded.values()), report.excluded
        assert report.files == 2
        if ignoring != "nobody":
            frame = spark.read.options(**options).schema("a long, b double")
            assert same_as_off(lambda: frame.parquet(str(place)).where("a = 3")).files_kept == 3
    finally:
        for name in names:
            spark.conf.unset(name)


@pytest.mark.slow
def test_nothing_is_lost_when_a_build_fails(spark: Any, parts: Parts) -> None:
    place = parts({"a": [1], "s": ["x"]}, {"a": [9], "s": ["y"]})
    handle = geoskip.dataset(spark, str(place))
    handle.create_index(MinMax("a"))
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "true")
    try:
        with pytest.raises(GeoskipError, match="cannot be cast"):
            handle.create_index(MinMax("cast(s AS int)"))
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    assert [str(index) for index in handle.indexes] == ["minmax(a)"]
    assert same_as_off(lambda: spark.read.parquet(str(place)).where("a > 5")).files_kept == 1


# --- what is refused before anything is read --------------------------------------------------------------------------

REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "tmp": (MinMax("tmp"), UnknownColumnError, "no column tmp; did you mean temp?"),
    "function": (MinMax("no_such(temp)"), InvalidSpecificationError, "has no function no_such; register it"),
    "field": (MinMax("temp.x"), UnknownColumnError, "temp"),
    "syntax": (MinMax("a b c"), InvalidSpecificationError, "backquotes"),
    "aggregate": (MinMax("max(temp)"), InvalidSpecificationError, "one row"),
    "window": (MinMax("sum(temp) OVER (ORDER BY s)"), InvalidSpecificationError, "one row"),
    "generator": (MinMax("explode(array(temp))"), InvalidSpecificationError, "one row"),
    "subquery": (MinMax("temp + (SELECT max(id) FROM range(3))"), InvalidSpecificationError, "subquery"),
    "random": (MinMax("temp + rand()"), InvalidSpecificationError, "not deterministic"),
    "constant": (MinMax("1 + 1"), InvalidSpecificationError, "reads no column"),
    "metadata": (MinMax("_metadata.file_size"), InvalidSpecificationError, r"indexed: _metadata(?!#)"),
    "struct": (MinMax("st"), UnsupportedColumnError, "index a field of it"),
    "array": (MinMax("list"), UnsupportedColumnError, "ordered type"),
    "box of texts": (GeoBox("s", "s"), UnsupportedColumnError, "geobox"),
    "no index": ("temp", InvalidSpecificationError, r"MinMax\('temp'\)"),
}


@pytest.fixture(scope="module")
def plain_parquet(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("refused")
    table = pa.table({"temp": [1], "s": ["x"], "st": [{"f": 1}], "list": [[1]]})
    pq.write_table(table, place / "a.parquet")
    return str(place)


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_in_a_sentence(spark: Any, plain_parquet: str, case: str) -> None:
    index, kind, text = REFUSED[case]
    with pytest.raises(kind, match=text) as caught:
        geoskip.dataset(spark, plain_parquet).create_index(index)
    assert "\n" not in str(caught.value)
    assert not (Path(plain_parquet) / "_geoskip").exists()


def test_an_error_on_an_offered_function_names_what_registers_it(spark: Any, plain_parquet: str) -> None:
    handle = geoskip.dataset(spark.newSession(), plain_parquet)
    with pytest.raises(
        InvalidSpecificationError, match=r"geoskip.register_functions\(spark\) registers packed_address"
    ):
        handle.create_index(MinMax("Packed_Address(s)"))


@pytest.mark.parametrize("again", ["temp", "Temp", "`temp`"])
def test_an_index_named_twice_is_refused(spark: Any, plain_parquet: str, again: str) -> None:
    with pytest.raises(InvalidSpecificationError, match="once"):
        geoskip.dataset(spark, plain_parquet).create_index(MinMax("temp"), MinMax(again))


@pytest.mark.slow
def test_a_dataset_that_is_not_there_or_no_dataset(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.parquet").write_bytes(b"no parquet at all")
    for path in (str(tmp_path / "nowhere"), str(tmp_path / "empty"), []):
        with pytest.raises(DatasetNotFoundError):
            geoskip.dataset(spark, path)
    with pytest.raises(InvalidSpecificationError, match=r"x\.parquet"):
        geoskip.dataset(spark, str(tmp_path / "bad"))
    with pytest.raises(DatasetNotFoundError, match="no files"):
        geoskip.dataset(spark, str(tmp_path / "empty"), schema="a int").create_index(MinMax("a"))
    with pytest.raises(DatasetNotFoundError, match="no_such_table"):
        geoskip.dataset(spark, table="no_such_table")
    with pytest.raises(InvalidSpecificationError, match="no_such_format"):
        geoskip.dataset(spark, str(tmp_path / "bad"), format="no_such_format")


def test_a_view_may_rename_columns_but_not_choose_rows(spark: Any, parts: Parts) -> None:
    place = parts({"a": [1, 2]}, {"a": [8, 9]})
    spark.read.parquet(str(place)).createOrReplaceTempView("all_rows")
    spark.sql("CREATE OR REPLACE TEMP VIEW renamed AS SELECT a + 0L AS same, a AS b FROM all_rows")
    spark.sql("CREATE OR REPLACE TEMP VIEW some_rows AS SELECT * FROM all_rows WHERE a > 1")
    geoskip.dataset(spark, table="renamed").create_index(MinMax("b"))
    assert same_as_off(lambda: spark.table("all_rows").where("a > 5")).files_kept == 1
    with pytest.raises(InvalidSpecificationError, match="chooses rows"):
        geoskip.dataset(spark, table="some_rows")


def test_a_python_of_the_workers_that_is_missing_is_named_and_no_file_is_called_unreadable(
    spark: Any, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = geoskip.dataset(spark, str(parts({"id": [1, 2]}, {"id": [3]})), store=MemoryStore())
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/such/python")
    with pytest.raises(EnvironmentProblem, match=r"^the workers have no /no/such/python: let PYSPARK_PYTHON"):
        dataset.create_index(MinMax("pmod(id, 3)"))
    assert dataset.store.latest() is None
