"""What a handle is given, and what it looks at."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import geoskip
from geoskip import MinMax, Sort
from geoskip.errors import DatasetNotFoundError, EnvironmentProblem, InvalidSpecificationError, StoreError
from geoskip.spark.build.spark_jobs import first_line, storage_reason, with_way_out
from tests.spark.verbs.asking import write

GLOBS = {
    "of folders": lambda place: f"{place}/day=*",
    "of files": lambda place: f"{place}/*/[0-9].parquet",
    "of alternatives": lambda place: f"{place}/day={{1,2/1.parquet,3}}",
    "among others": lambda place: [f"{place}/day=1", f"{place}/day=[!1]"],
}


@pytest.mark.parametrize("glob", GLOBS)
def test_a_glob_forgets_what_it_finds_no_more(spark: Any, tmp_path: Path, glob: str) -> None:
    for day in range(1, 4):
        write(tmp_path / f"day={day}", "1.parquet", [day])
    write(tmp_path / "other", "x.parquet", [0])
    handle = geoskip.dataset(spark, GLOBS[glob](tmp_path))
    handle.create_index(MinMax("a"))
    beside = geoskip.dataset(spark, [f"{tmp_path}/other", f"{tmp_path}/day=1"])
    assert beside.refresh_index().files == 4
    (tmp_path / "day=2" / "1.parquet").unlink()
    (tmp_path / "day=2").rmdir()
    (tmp_path / "other" / "x.parquet").unlink()
    assert handle.refresh_index().files == 3, "day=2 is forgotten; what is below other is another handle's to forget"
    assert beside.refresh_index().files == 2


def test_folders_that_contradict_each_other_are_told_of_in_a_sentence(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "day=1", "1.parquet", [1])
    handle = geoskip.dataset(spark, str(tmp_path))
    handle.create_index(MinMax("a"))
    write(tmp_path / "day=2" / "hour=3", "1.parquet", [2])
    for verb in (handle.refresh_index, handle.describe, handle.verify):
        with pytest.raises(InvalidSpecificationError, match=r"cannot be read: .*onflicting partition column"):
            verb()
    (tmp_path / "day=2" / "hour=3" / "1.parquet").rename(tmp_path / "day=2" / "1.parquet")
    (tmp_path / "day=2" / "hour=3").rmdir()
    assert handle.refresh_index().files == 2


@pytest.mark.parametrize("option", ["pathGlobFilter", "modifiedAfter"])
def test_files_that_a_handle_chooses_not_to_look_at_are_not_forgotten(spark: Any, tmp_path: Path, option: str) -> None:
    for name in ("a1", "a2", "b1"):
        os.utime(write(tmp_path, f"{name}.parquet", [1]), (1e9 if name == "b1" else 1.7e9,) * 2)
    geoskip.dataset(spark, str(tmp_path)).create_index(MinMax("a"))
    value = {"pathGlobFilter": "a*", "modifiedAfter": "2020-01-01T00:00:00"}[option]
    some = geoskip.dataset(spark, str(tmp_path), **{option: value})
    (tmp_path / "a1.parquet").unlink()
    assert some.refresh_index().files == 2, "b1 is not forgotten, and a1 is"


def test_paths_are_texts_or_path_objects(spark: Any, place: Path, tmp_path: Path) -> None:
    handle = geoskip.dataset(spark, place, metadata=tmp_path / "apart")
    assert handle.create_index([MinMax("a")]).files == 4
    assert geoskip.dataset(spark, [place / "0.parquet", str(place / "1.parquet")]).to_df().count() == 4


WRONG: dict[str, tuple[Callable[[Any, Any], object], str]] = {
    "a number as path": (lambda spark, handle: geoskip.dataset(spark, 3), "takes the path of a folder, got 3"),
    "an empty path": (lambda spark, handle: geoskip.dataset(spark, ""), "takes the path of a folder, got ''"),
    "a number in a list": (lambda spark, handle: geoskip.dataset(spark, ["x", 3]), "takes the path of a folder, got 3"),
    "a number as metadata": (lambda spark, handle: geoskip.dataset(spark, handle.path, metadata=3), "metadata="),
    "an empty path to rewrite to": (
        lambda spark, handle: handle.rewrite(Sort("a"), to=""),
        "rewrite(to=) takes the path of a folder, got ''",
    ),
    "an unknown column to report on": (
        lambda spark, handle: handle.layout("nope"),
        "a range of nope: the dataset has no column nope; its columns are a",
    ),
    "a negative time": (lambda spark, handle: handle.remove_replaced(-1), "and not negative, got -1"),
    "a text as store": (lambda spark, handle: geoskip.dataset(spark, handle.path, store="x"), "stores.Store, got 'x'"),
    "a misspelt argument": (
        lambda spark, handle: geoskip.dataset(spark, handle.path, metadta="x"),
        "dataset() has no argument metadta; did you mean metadata=?",
    ),
    "a text as index to try": (
        lambda spark, handle: geoskip.what_if(handle, "a", queries=["SELECT 1"]),
        "what_if(indexes=) takes indexes such as MinMax('temp'), got 'a'",
    ),
    "indexes to try one by one": (
        lambda spark, handle: geoskip.what_if(handle, MinMax("a"), MinMax("b"), queries=["SELECT 1"]),
        "what_if() takes several indexes as a list, got MinMax(expr='b') as layout=",
    ),
    "a number as index": (
        lambda spark, handle: handle.create_index(MinMax("a"), 3),
        "create_index() takes indexes such as MinMax('temp'), got 3",
    ),
    "a text as keys": (lambda spark, handle: geoskip.dataset(spark, handle.path, encryption="x"), "Encryption, got"),
    "a text as share": (lambda spark, handle: handle.verify("half"), "takes a share above 0 and up to 1, got 'half'"),
    "a text as interval": (lambda spark, handle: handle.keep_fresh("hourly"), "takes seconds above 0, got 'hourly'"),
    "options in a dictionary": (
        lambda spark, handle: geoskip.dataset(spark, handle.path, options={"header": True}),
        "dataset(options=) takes one option's value, got {'header': True}: the reader's options are arguments",
    ),
    "rows without a column": (
        lambda spark, handle: handle.append(spark.range(3)),
        "these lack a, so nothing was written",
    ),
    "an unknown format": (
        lambda spark, handle: geoskip.dataset(spark, handle.path, format="parket"),
        "format= takes parquet, orc, avro, csv, json or text",
    ),
    "rows that are no DataFrame": (lambda spark, handle: handle.append([(1,)]), "takes a DataFrame of Spark, got list"),
}


def test_what_is_no_argument_is_refused_at_once(spark: Any, handle: geoskip.Dataset) -> None:
    for what, (attempt, why) in WRONG.items():
        with pytest.raises(InvalidSpecificationError) as refused:
            attempt(spark, handle)
        assert why in str(refused.value), what
    assert handle.refresh_index().files == 4


@pytest.mark.parametrize(
    ("sentence", "way_out"),
    [
        ("Unable to infer schema for Parquet. It must be specified manually.", "manually; no file there has rows"),
        ("Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", "the package org.apache.hadoop:hadoop-aws"),
        ('No FileSystem for scheme "s3"', "addresses that begin with s3a://"),
        ("Cannot call methods on a stopped SparkContext.", "SparkContext; make a session"),
    ],
)
def test_what_spark_says_of_a_beginners_mistake_has_a_way_out(sentence: str, way_out: str) -> None:
    assert way_out in with_way_out(sentence)
    assert with_way_out("A sentence of another kind.") == "A sentence of another kind."


def test_an_empty_folder_and_a_table_of_delta_are_named(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetNotFoundError, match="check the path and format="):
        geoskip.dataset(spark, tmp_path / "empty")
    with pytest.raises(DatasetNotFoundError, match=f"does not exist: .*; did you mean {tmp_path}/empty"):
        geoskip.dataset(spark, tmp_path / "emty")
    write(tmp_path / "delta", "0.parquet", [1])
    (tmp_path / "delta/_delta_log").mkdir()
    with pytest.warns(UserWarning, match="is a table of Delta: .* not where they read it as delta"):
        assert geoskip.dataset(spark, tmp_path / "delta").create_index(MinMax("a")).files == 1
    write(tmp_path / "hudi", "0.parquet", [1])
    (tmp_path / "hudi/.hoodie").mkdir()
    (tmp_path / "hudi/.hoodie/hoodie.properties").touch()
    with pytest.raises(DatasetNotFoundError, match=r"a table of Hudi, .* no jar of .*'parquet'"):
        geoskip.dataset(spark, tmp_path / "hudi")


def test_a_session_that_was_stopped_is_named() -> None:
    class Stopped:
        _jsparkSession = None
        sparkContext = SimpleNamespace(_jsc=None)

    for attempt in (lambda spark: geoskip.dataset(spark, "x"), geoskip.last_report, geoskip.enable):
        with pytest.raises(EnvironmentProblem, match="this session was stopped: make another"):
            attempt(Stopped())


def test_rows_that_cannot_be_stored_get_the_reason_of_the_file_system(spark: Any, tmp_path: Path) -> None:
    write(tmp_path, "0.parquet", [1])
    handle = geoskip.dataset(spark, tmp_path)
    (tmp_path / "_temporary").write_text("where Spark makes a folder")
    with pytest.raises(StoreError, match="could not be written: "):
        handle.append(handle.to_df())


def test_a_column_that_is_gone_has_a_way_out(spark: Any, tmp_path: Path) -> None:
    place = tmp_path / "data"
    write(place, "0.parquet", [1], b=[1])
    handle = geoskip.dataset(spark, str(place))
    handle.create_index(MinMax("a"), MinMax("b"))
    write(place, "0.parquet", [1])
    with pytest.raises(InvalidSpecificationError, match=r"or take it out of use with delete_index\('minmax\(b\)'\)"):
        handle.refresh_index()
    with pytest.raises(InvalidSpecificationError, match=r"no column b; .*; delete_index\(\) takes out of use"):
        handle.refresh_index("full")
    assert handle.delete_index("minmax(b)") == ("minmax(b)",)
    assert handle.history().collect()[-1].parameters == 'which: ["minmax(b)"], indexes: ["minmax(b)"]'
    assert handle.refresh_index().read == 1


def test_a_reason_that_spark_gives_in_two_lines() -> None:
    said = 'x.Error: [A] Failed merging schemas:\nInitial:\n"S"\n[B] Failed to merge "INT" and "BIGINT". SQLSTATE: 1'
    assert first_line(said) == 'Failed merging schemas: Failed to merge "INT" and "BIGINT"'
    assert first_line("Failed merging schemas:\n") == "Failed merging schemas"
    said = "[TASK_WRITE_FAILED] Task failed while writing rows to file:/a. SQLSTATE: 58030\n\tat a.B.c(D.scala:1)\n"
    said += "Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n\tat a.B"
    assert first_line(said) == "No space left on device"
    said = "[TASK_WRITE_FAILED] Task failed. SQLSTATE: 58030\nUnable to close resource\n" + said[said.index("Caused") :]
    assert storage_reason(said) == "No space left on device; make room, and try again"
    assert storage_reason("Division by zero\n\tat java.io.IOException.of(A.java:1)") is None
