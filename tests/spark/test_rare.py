"""What is rare: a session after another, modes and codecs of readers, many partitions, sets with NULL and NaN."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import GeoBox, MinMax
from geoskip.errors import DatasetNotFoundError, UnsupportedColumnError
from tests.conftest import files_kept, same_as_off

pytestmark = pytest.mark.spark

TWO_SESSIONS = """
import sys
import geoskip
from pyspark.sql import SparkSession

place = sys.argv[1]
config = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.driver.memory": "512m"}
config["spark.geoskip.planning.budget"] = "60"
config["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
for turn in range(2):
    spark = geoskip.session("one after the other", sedona=False, config=config)
    frame = spark.read.parquet(place).where("a = 2")
    rows = frame.collect()
    print("found", len(rows), geoskip.report(frame).files_kept, len(geoskip.reports(spark)))
    spark.stop()
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
built = geoskip.dataset(spark, place).create_index(geoskip.ValueList("a + 1"))
print("without enable", built.files, geoskip.is_enabled(spark))
geoskip.enable(spark)
print("with it", geoskip.explain(spark.read.parquet(place).where("a + 1 = 3")).files_kept)
"""


@pytest.fixture(scope="module", autouse=True)
def sessions(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """A process with a session after another, which go on while the other tests run."""
    place = tmp_path_factory.mktemp("sessions")
    for value in (1, 2, 3):
        pq.write_table(pa.table({"a": [value]}), place / f"{value}.parquet")
    geoskip.dataset(spark, str(place)).create_index(MinMax("a"))
    command = [sys.executable, "-c", TWO_SESSIONS, str(place)]
    with (
        open(place.parent / "errors.txt", "w") as errors,  # a pipe that nobody reads would stop it
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        yield process
        process.kill()


def test_json_that_fails_fast(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.json").write_text(f'{{"a": {number}, "b": "x"}}\n{{"a": null}}\n')
    (tmp_path / "bad.json").write_text('{"a": 7, "b": "x"}\n{"a": \n')
    options = {"schema": "a int, b string", "mode": "FAILFAST"}
    built = geoskip.dataset(spark, str(tmp_path), format="json", **options).create_index(MinMax("a"))
    assert list(built.excluded) == ["bad.json"]
    (tmp_path / "bad.json").unlink()

    def read(**more: str) -> Any:
        return spark.read.format("json").load(str(tmp_path), **{**options, **more})

    assert files_kept(read(), ["a = 2", "a IS NULL"]) == {"a = 2": 1, "a IS NULL": 3}
    assert same_as_off(lambda: read(mode="PERMISSIVE").where("a = 2")).files_kept == 3  # another mode, another reader


@pytest.mark.slow
def test_more_than_a_thousand_partition_values(spark: Any, tmp_path: Path) -> None:
    """Each has a condition of its own in ``p + n < 9``; beyond a thousand of them all files are read."""
    count = 1005
    for number in range(count):
        folder = tmp_path / f"p={number}"
        folder.mkdir()
        pq.write_table(pa.table({"n": [number * 7 % count]}), folder / "0.parquet")
    schema = "n bigint, p int"
    geoskip.dataset(spark, str(tmp_path), schema=schema).create_index(MinMax("n"))
    frame = spark.read.schema(schema).parquet(str(tmp_path))
    few = frame.where("p < 900 AND n < 3")
    rows = {(number * 7 % count, number) for number in range(count)}
    assert {tuple(row) for row in few.collect()} == {(n, p) for n, p in rows if p < 900 and n < 3}
    assert geoskip.report(few).files_kept <= 3
    assert {tuple(row) for row in frame.where("p + n < 9").collect()} == {(n, p) for n, p in rows if p + n < 9}


@pytest.mark.slow
def test_orc_and_compressed_text_with_awkward_rows(spark: Any, tmp_path: Path) -> None:
    nan, infinite = float("nan"), float("inf")
    rows = [
        [(1.0, "a", 1), (nan, None, None)], [(-0.0, "\U0001f600", 2)], [(None, "\uffff", 3)],
        [(infinite, "x" * 50 + "z", 4), (5.0, "", -(2**31))], [(-infinite, "x" * 50, 2**31 - 1)],
    ]  # fmt: skip
    schema = "f double, s string, n int"
    for part in rows:
        frame = spark.createDataFrame(part, schema).coalesce(1)
        frame.write.mode("append").option("compression", "zstd").orc(str(tmp_path / "zstd"))
    (tmp_path / "text").mkdir()
    for number, part in enumerate(rows):
        lines = "".join(
            ",".join("" if value is None else "NaN" if value != value else str(value) for value in row) + "\n"
            for row in part
        )
        (tmp_path / "text" / f"{number}.csv.gz").write_bytes(gzip.compress(lines.replace("inf", "Inf").encode()))
    wheres = [
        "f > 4", "f = 0", "f = double('nan')", "s = '\U0001f600'", "s >= '\uffff'", f"s = '{'x' * 50}'",
        "n + 1 < -5", "s IS NULL OR n = 2",
    ]  # fmt: skip
    for name, form in (("zstd", "orc"), ("text", "csv")):
        place = str(tmp_path / name)
        geoskip.dataset(spark, place, format=form, schema=schema).create_index(*map(MinMax, "fsn"))
        with without_ansi(spark):  # n + 1 overflows
            found = files_kept(spark.read.schema(schema).format(form).load(place), wheres)
        assert sum(kept < 5 for kept in found.values()) >= len(wheres) - 1


@contextmanager
def without_ansi(session: Any) -> Iterator[None]:
    before = session.conf.get("spark.sql.ansi.enabled")
    session.conf.set("spark.sql.ansi.enabled", "false")
    try:
        yield
    finally:
        session.conf.set("spark.sql.ansi.enabled", before)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["CODEGEN_ONLY", "NO_CODEGEN"])
def test_nan_in_a_set_with_null(spark: Any, parts: Callable[..., Path], mode: str) -> None:
    """Spark's compiled code says NULL of it, its interpreter FALSE."""
    nan = float("nan")
    place = str(parts(*({"x": pa.array(v, pa.float64())} for v in ([nan], [1.0], [None], [nan, 5.0], [99.0]))))
    geoskip.dataset(spark, place).create_index(MinMax("x"), geoskip.ValueList("x"))
    session = spark.newSession()
    geoskip.enable(session)
    session.conf.set("spark.sql.codegen.factoryMode", mode)
    session.conf.set("spark.sql.codegen.wholeStage", str(mode == "CODEGEN_ONLY").lower())
    among = "x IN ({}, NULL)".format(", ".join(f"{n}D" for n in range(1, 13)))
    wheres = [f"NOT coalesce({among}, true)", f"({among}) IS NULL", f"({among}) IS NOT NULL", f"({among}) <=> false"]
    for where in [*wheres, among, f"NOT {among}"]:
        same_as_off(lambda where=where: session.read.parquet(place).where(where))


def test_sentences_about_what_cannot_be_indexed_and_what_was_not_read(spark: Any, parts: Callable[..., Path]) -> None:
    place = parts({"s": ["a"]}, {"s": ["bbbb"]})
    handle = geoskip.dataset(spark, str(place))
    with pytest.raises(
        UnsupportedColumnError, match=r"minmax\(make_ym_interval.*interval year to month.*index the num"
    ):
        handle.create_index(MinMax("make_ym_interval(length(s), 2)"))
    handle.create_index(MinMax("s"))
    assert "of metadata, as before" in str(handle.refresh_index())
    odd = parts({"s": ["a"]}, name="line\nfeed")
    with pytest.raises(DatasetNotFoundError, match="a line feed, which metadata cannot"):
        geoskip.dataset(spark, str(odd)).create_index(MinMax("s"))
    (place / "part-00001.parquet").rename(place / "part\n1.parquet")
    report = geoskip.dataset(spark, str(place)).create_index(MinMax("s"))
    assert (report.files, [why[:31] for why in report.excluded.values()]) == (1, ["its path holds a line feed, whi"])
    assert same_as_off(lambda: spark.read.parquet(str(place)).where("s > 'b'")).files_kept == 1
    assert spark.read.parquet(str(odd)).where("s = 'a'").count() == 1


def test_the_spelling_of_a_function_does_not_matter(spark: Any, parts: Callable[..., Path]) -> None:
    place = str(parts({"s": ["a"]}, {"s": ["bbbb"]}))
    geoskip.dataset(spark, place).create_index(MinMax("char_length(s)"))
    for name in ("length", "len", "CHARACTER_LENGTH"):
        assert same_as_off(lambda name=name: spark.read.parquet(place).where(f"{name}(s) > 3")).files_kept == 1


def test_a_pair_of_coordinates_compared_with_nan(spark: Any, parts: Callable[..., Path]) -> None:
    nan = float("nan")
    tables = ([1.0, 2.0], [nan, 2.0], [None, nan])
    place = str(parts(*({"x": pa.array([x], pa.float64()), "y": [y]} for x, y in tables)))
    geoskip.dataset(spark, place).create_index(GeoBox("x", "y"))
    wheres = ("x = double('nan')", "x > 5", "NOT x <= 5", "y = double('nan')", "x <> double('nan')", "y > 2")
    files_kept(spark.read.parquet(place), wheres)


@pytest.mark.slow
def test_a_table_with_a_padded_column(spark: Any) -> None:
    """Spark finds no ``_metadata`` in it, so the build names the files in another way."""
    spark.sql("CREATE TABLE padded (a CHAR(5), n INT) USING parquet")
    try:
        for number, text in enumerate(("ab", "b", "zz")):
            spark.sql(f"INSERT INTO padded VALUES ('{text}', {number})")
        geoskip.dataset(spark, table="padded").create_index(MinMax("a"), MinMax("n"))
        assert files_kept(spark.table("padded"), ["a = 'ab'", "n > 1"], every=1) == {"a = 'ab'": 1, "n > 1": 1}
    finally:
        spark.sql("DROP TABLE padded")


@pytest.mark.slow
def test_a_session_after_another_in_one_process(sessions: subprocess.Popen[str]) -> None:
    shown, _ = sessions.communicate(timeout=180)
    assert [line for line in shown.splitlines() if line.startswith("found")] == ["found 1 1 1"] * 2, shown
    assert [line for line in shown.splitlines() if "with" in line] == ["without enable 3 False", "with it 1"], shown
