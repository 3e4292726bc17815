"""Lists of values through real queries."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import geoskip
from geoskip import Hybrid, ValueList
from geoskip.spark.rule import bridge
from geoskip.spark.rule.evaluator import SparkEvaluator
from tests.conftest import holding_files, kept, same_as_off

pytestmark = pytest.mark.spark

FILES: list[list[str | None]] = [
    ["Ulm", "Rom"],
    ["Paris", "Wien", None],
    ["Rio de Janeiro", "Buenos Aires"],
    ["ulm", "köln"],
    [None],
    [],
]

CITIES = {
    "city = 'Ulm'": "0",
    "city <> 'Ulm'": "0 1 2 3",
    "city IN ('Ulm', 'Wien')": "0 1",
    "city NOT IN ('ulm', 'köln')": "0 1 2",
    "city IS NULL": "1 4",
    "city <=> NULL": "1 4",
    "city > 'R' AND city < 'S'": "0 2",
    "city > 'Rp' AND city < 'S'": "",
    "city LIKE '_lm'": "0 3",
    "city NOT LIKE '_lm'": "0 1 2 3",
    "city RLIKE '^[A-Z][a-z]+$'": "0 1",
    "NOT city RLIKE '^[A-Z]'": "3",
    "upper(city) = 'ULM'": "0 3",
    "NOT upper(city) = 'ULM'": "0 1 2 3",
    "upper(city) IN ('ULM', NULL)": "0 3",
    "upper(city) IN ('WIEN', 'ULM')": "0 1 3",
    "upper(city) NOT IN ('ULM', 'KÖLN')": "0 1 2",
    "length(city) > 5": "2",
    "length(city) > 5 AND city LIKE 'B%s'": "2",
    "length(city) < 5 AND city LIKE 'B%s'": "",
    "CASE WHEN city = 'Ulm' THEN 1 WHEN city IS NULL THEN 2 ELSE 0 END = 2": "1 4",
    "coalesce(city, 'nowhere') = 'nowhere'": "1 4",
    "(upper(city) = 'ULM') IS NULL": "1 4",
    "(upper(city) = 'ULM') <=> false": "0 1 2 3",
    "concat(city, '-', reverse(city)) = 'Ulm-mlU'": "0",
    "exists(split(city, ' '), part -> part = 'de')": "2",
    "upper(city) = 'ULM' OR n = 5": "0 1 2 3 4 5",
    "upper(city) = 'ULM' AND n = 5": "0 3",
    "shout(city) = 'ULM!'": "0 3",
    "NOT shout(city) = 'ULM!'": "0 1 2 3",
    "shout(city) IS NULL": "1 4",
    "length(shout(lower(city))) > 6": "2",
    "shout(city) = concat(upper(city), '!')": "0 1 2 3",
    "mumble(city) = 'rom'": "0 1 2",
    "vowels(city) > 2": "2",
}
"""Condition, and the files that are read."""


def shout(text: str | None) -> str | None:
    return None if text is None else text.upper() + "!"


def mumble(text: str | None) -> Any:
    """A string for what is short, and for the rest none of the declared type: what Spark makes of it is unknown."""
    return (text or "").lower() if len(text or "") < 5 else len(text or "")


def vowels(text: str | None) -> int | None:
    return None if text is None else sum(letter in "aeiouAEIOU" for letter in text)


@pytest.fixture(scope="module")
def cities(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("cities")
    for number, names in enumerate(FILES):
        table = pa.table({"city": pa.array(names, pa.string()), "n": pa.array(range(len(names)), pa.int32())})
        pq.write_table(table, place / f"{number}.parquet")
    spark.udf.register("shout", shout, "string")
    spark.udf.register("mumble", mumble, "string")
    spark.udf.register("vowels", vowels, "int")
    geoskip.dataset(spark, str(place)).create_index(ValueList("city"))
    return str(place)


@pytest.mark.slow
def test_every_deterministic_condition_reads_the_files_that_hold_such_a_value(spark: Any, cities: str) -> None:
    frame = spark.read.parquet(cities)
    read = {where: kept(geoskip.explain(frame.where(where))) for where in CITIES}
    assert read == CITIES
    holding = holding_files(frame, [*CITIES])
    assert {where for where in CITIES if not set(holding[where]) <= set(read[where].split())} == set()
    for where in [*CITIES][::9]:
        assert kept(same_as_off(lambda where=where: spark.read.parquet(cities).where(where))) == CITIES[where]


UNDECIDED = {
    "CAST(city AS int) = 1": ("0 1 2 3", ""),
    "whole(city) = 'ulm'": ("0 1 2 3 4", "whole takes whole columns"),
    "slow(city) = 'Ulm'": ("0 1 2 3 4", "the planning budget was spent"),
    "blank(city) IS NULL": ("0 1 2 3 4", "blank goes through Arrow"),
    "vowels(city) + rand() > 1": ("0 1 2 3 4 5", ""),
    "upper(city) = 'ULM' AND translate(city, 'U', n) = '0lm'": ("0 3", ""),
}
"""Condition, the files that are read, and what the reasons say."""


def test_what_throws_or_takes_too_long_is_kept_with_a_reason(
    spark: Any, cities: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(text: str | None) -> str | None:
        time.sleep(0.4)
        return text

    def blank(text: str | None) -> float:
        return float("nan")  # of which Arrow makes NULL

    import pandas as pd

    def whole(texts: Any) -> Any:
        return texts.str.lower()

    whole.__annotations__ = {"texts": pd.Series, "return": pd.Series}
    for where, (files, says) in UNDECIDED.items():
        settings = {"spark.sql.ansi.enabled": "true"}  # a cast throws
        monkeypatch.setattr(bridge, "_EVALUATION", 0.002 if "slow" in where else 0.2)  # of a budget of two minutes
        session = spark.newSession()
        for name, value in settings.items():
            session.conf.set(name, value)
        session.udf.register("slow", slow, "string")
        session.udf.register("vowels", vowels, "int")
        session.udf.register("blank", F.udf(blank, "double", useArrow=True))
        session.udf.register("whole", F.pandas_udf(whole, "string"))
        scan = geoskip.explain(session.read.parquet(cities).where(where)).scans[0]
        assert " ".join(sorted(Path(path).stem for path in scan.kept_files())) == files, where
        assert says in " ".join(scan.reasons), where
        assert bool(scan.reasons) >= bool(says)


def counted(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[str]:
    """The calls of an evaluator's methods, as they happen."""
    calls: list[str] = []

    def count(name: str) -> None:
        whole = getattr(SparkEvaluator, name)

        def counting(*args: Any, **options: Any) -> Any:
            calls.append(name)
            return whole(*args, **options)

        monkeypatch.setattr(SparkEvaluator, name, counting)

    for name in names:
        count(name)
    return calls


def test_the_jvm_is_asked_only_for_what_is_not_looked_up(
    spark: Any, cities: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted(monkeypatch, "_find", "_evaluate", "_send")
    handle = geoskip.dataset(spark, cities)
    handle.refresh_index("full")  # a dictionary that the JVM has not seen
    frame = spark.read.parquet(cities)
    for where in ("city = 'Ulm'", "city IN ('a', 'b') OR city IS NULL", "city > 'R' AND city LIKE 'R%'", "n = 1"):
        geoskip.explain(frame.where(where))
    assert calls == []
    geoskip.explain(frame.where("upper(city) = 'ULM'"))
    assert calls == ["_find", "_evaluate", "_send"]
    geoskip.explain(frame.where("lower(city) = 'ulm'"))
    assert calls[3:] == ["_find", "_evaluate"]


def test_lists_in_partitions_and_of_fields(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE codes (code string, at struct<zip:int>, p int) USING parquet PARTITIONED BY (p) "
        f"LOCATION '{place}'"
    )
    try:
        for p, code, number in ((1, "ab", 7), (2, "ab", 8), (2, "cd", 9)):
            spark.sql(f"INSERT INTO codes VALUES ('{code}', named_struct('zip', {number}), {p})")
        handle = geoskip.dataset(spark, table="codes")
        handle.create_index(ValueList("code"), ValueList("at.zip"), ValueList("upper(code)"))
        queries = {
            "code = 'ab'": 2,
            "code = 'zz'": 0,
            "upper(code) LIKE 'C%'": 1,
            "at.zip % 2 = 0": 1,
            "at.zip % 2 = 0 OR p = 1": 2,
            "at.zip + p = 8": 3,
            "p = 2 AND length(code) = 2": 2,
        }
        frame = spark.table("codes")
        assert {where: geoskip.explain(frame.where(where)).files_kept for where in queries} == queries
        calls = counted(monkeypatch, "_evaluate")
        assert geoskip.explain(frame.where("lower(code) = 'cd' OR p = 1")).files_kept == 2
        assert calls == ["_evaluate"]  # for two partitions
        for where in [*queries][-3:-1]:
            assert same_as_off(lambda where=where: spark.table("codes").where(where)).files_kept == queries[where]
    finally:
        spark.sql("DROP TABLE codes")


def test_hybrid_has_lists_and_filters(spark: Any, parts: Callable[..., Path]) -> None:
    many = [f"{n:05}" for n in range(20_000)]
    place = str(parts({"id": ["a", "b", None]}, {"id": many}, {"id": [*many[::2], "b"]}))
    report = geoskip.dataset(spark, place).create_index(Hybrid("id"), ValueList("id", limit=5))
    assert report.details == {"hybrid(id)": "1 lists of values, 2 Bloom filters"}
    assert "1 lists of values, 2 Bloom filters" in str(report)
    queries = {"id = 'a'": 1, "id = 'b'": 2, "id = '00001'": 1, "upper(id) = 'A'": 3, "id IN ('00001', '00002')": 2}
    frame = spark.read.parquet(place)
    assert {where: geoskip.explain(frame.where(where)).files_kept for where in queries} == queries
    assert same_as_off(lambda: spark.read.parquet(place).where("id = 'b'")).files_kept == 2
