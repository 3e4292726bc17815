"""Lists of values through real queries, and Spark's own evaluator against Spark itself."""

from __future__ import annotations

import datetime as dt
import importlib
import random
import sys
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F

import geoskip
from geoskip import Formatted, Hybrid, ValueList, identity
from geoskip.spark import catalyst, functions
from geoskip.spark.evaluator import SparkEvaluator
from tests.conftest import same_as_off

pytestmark = pytest.mark.spark

BUDGET = "spark.geoskip.planning.budget"
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


@pytest.fixture(scope="module", autouse=True)
def patient(spark: Any) -> Iterator[None]:
    """Spark's first upper() loads tables for seconds, which on a busy machine takes longer than the budget."""
    spark.conf.set(BUDGET, "120")
    yield
    spark.conf.unset(BUDGET)


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


def kept(report: Any) -> str:
    return " ".join(sorted(Path(path).stem for path in report.scans[0].kept_files()))


def test_every_deterministic_condition_reads_the_files_that_hold_such_a_value(spark: Any, cities: str) -> None:
    frame = spark.read.parquet(cities)
    read = {where: kept(geoskip.explain(frame.where(where))) for where in CITIES}
    assert read == CITIES
    holding = holding_files(frame, [*CITIES])
    assert {where for where in CITIES if not set(holding[where]) <= set(read[where].split())} == set()
    for where in [*CITIES][::9]:
        assert kept(same_as_off(lambda where=where: spark.read.parquet(cities).where(where))) == CITIES[where]


def holding_files(frame: Any, conditions: list[str]) -> dict[str, list[str]]:
    """The files with a row that makes each condition TRUE, by one job with geoskip off."""
    texts = [f"max({text}) AS q{number}" for number, text in enumerate(conditions)]
    with geoskip.disabled(frame.sparkSession):
        rows = frame.groupBy("_metadata.file_name").agg(*map(F.expr, texts)).collect()
    rows = sorted(rows, key=lambda row: row[0])
    return {text: [Path(row[0]).stem for row in rows if row[f"q{n}"]] for n, text in enumerate(conditions)}


UNDECIDED = {
    "CAST(city AS int) = 1": ("0 1 2 3", ""),
    "whole(city) = 'ulm'": ("0 1 2 3 4", "whole takes whole columns"),
    "slow(city) = 'Ulm'": ("0 1 2 3 4", "the planning budget was spent"),
    "bucket(city) = 1": ("0 1 2 3 4", "bucket hashes or goes through a set"),
    "vowels(city) + rand() > 1": ("0 1 2 3 4 5", ""),
    "upper(city) = 'ULM' AND concat(city, n) = 'Ulm0'": ("0 3", ""),
}
"""Condition, the files that are read, and what the reasons say."""


def test_what_throws_or_takes_too_long_is_kept_with_a_reason(spark: Any, cities: str) -> None:
    def slow(text: str | None) -> str | None:
        time.sleep(0.4)
        return text

    def bucket(text: str | None) -> int:
        return sum(abs(hash(part)) for part in [text]) % 2

    import pandas as pd

    def whole(texts: Any) -> Any:
        return texts.str.lower()

    whole.__annotations__ = {"texts": pd.Series, "return": pd.Series}
    for where, (files, says) in UNDECIDED.items():
        settings = {
            BUDGET: "2" if "slow" in where else "120",
            "spark.sql.ansi.enabled": "true",  # a cast throws
        }
        session = spark.newSession()
        for name, value in settings.items():
            session.conf.set(name, value)
        for function in (slow, bucket):
            session.udf.register(function.__name__, function, "int" if function is bucket else "string")
        session.udf.register("vowels", vowels, "int")
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


# --- Spark's evaluator against Spark ----------------------------------------------------------------------------------

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int32(), [None, -(2**31), -7, -1, 0, 1, 2, 3, 10, 77, 2**31 - 1]),
    "t": (pa.int8(), [None, -128, -1, 0, 1, 2, 3, 9, 10, 99, 127]),
    "l": (pa.int64(), [None, -(2**63), -(2**53) - 1, -1, 0, 1, 2, 2**53, 2**53 + 1, 10**15, 2**63 - 1]),
    "x": (pa.float64(), [None, float("-inf"), -1.5, -0.0, 0.0, 0.1, 1.5, 2.0, 1e300, float("inf"), float("nan")]),
    "f": (pa.float32(), [None, -1.5, -0.0, 0.0, 0.10000000149011612, 0.5, 1.5, 2.0, 1e30, float("inf"), float("nan")]),
    "s": (pa.string(), [None, "", "a", "A", "ab", "Ab%c", "a_b", "été", "\U0001f600x", "zz top", "x" * 40]),
    "m": (pa.decimal128(12, 3), [None, *(Decimal(n).scaleb(-3) for n in (-(10**11), -1, 0, 1, 999, 1000, 1500, 2001))]),
    "w": (pa.decimal128(38, 10), [None, *(Decimal(n).scaleb(-10) for n in (-(10**37), -1, 0, 1, 10**10, 10**37))]),
    "d": (pa.date32(), [None, *map(dt.date.fromisoformat, ("1582-10-15", "1970-01-01", "2024-02-29", "2024-12-31"))]),
    "z": (pa.timestamp("us", "UTC"), [None, *(10**6 * n + 7 for n in (-1, 0, 1_700_000_000, 1_709_251_199))]),
    "y": (pa.timestamp("us"), [None, *(10**6 * n + 7 for n in (-1, 0, 1_700_000_000, 1_709_251_199))]),
    "b": (pa.bool_(), [None, True, False]),
    "r": (pa.binary(), [None, b"", b"a", b"ab", b"\xff\x00", b"\x00"]),
}
NUMBERS = [
    "{c}",
    "{c} % 3",
    "abs(cast({c} AS double))",
    "cast({c} AS double) / 3",
    "sqrt(cast({c} AS double))",
    "sign({c})",
]
EXPRESSIONS: dict[str, tuple[list[str], list[str]]] = {
    **dict.fromkeys("it", (NUMBERS, ["0", "1", "2", "-1", "1.5D", "77"])),
    "l": (NUMBERS, ["0", "1", "9007199254740993", "-1", "1e15D"]),
    "x": (
        [*NUMBERS[:1], "-{c}", "floor({c} * 0)", "nanvl({c}, 7D)", "{c} + 1"],
        ["0D", "1.5D", "double('NaN')", "0.1D"],
    ),
    "f": ([*NUMBERS[:1], "cast({c} AS double)", "-{c}"], ["0F", "1.5F", "0.1F", "0.1D", "float('NaN')"]),
    "s": (
        [
            "{c}",
            "upper({c})",
            "reverse({c})",
            "substring({c}, 2, 3)",
            "concat({c}, 'x')",
            "coalesce({c}, 'a')",
            "trim({c})",
            "regexp_replace({c}, '[aeiou]', '*')",
            "translate({c}, 'ab', 'ba')",
            "rpad({c}, 3, '.')",
        ],
        ["''", "'a'", "'A'", "'ab'", "'été'", "'x'", "'zz top'", "'Ab%c'"],
    ),
    "m": (["{c}", "-{c}", "{c} * 2", "round({c}, 1)", "cast({c} AS bigint)"], ["0", "1.5", "0.001", "1.500", "2"]),
    "w": (["{c}", "-{c}", "cast({c} AS double)"], ["0", "1", "0.0000000001", "1e27D"]),
    "d": (
        ["{c}", "{c} + 1", "date_trunc('month', {c})", "cast({c} AS timestamp)"],
        ["DATE'2024-02-29'", "DATE'1970-01-01'"],
    ),
    "z": (
        ["{c}", "cast({c} AS date)", "date_trunc('hour', {c})"],
        ["TIMESTAMP'1970-01-01 00:00:00Z'", "DATE'2023-11-14'"],
    ),
    "y": (
        ["{c}", "cast({c} AS date)", "{c} + INTERVAL 1 DAY"],
        ["TIMESTAMP_NTZ'1970-01-01 00:00:00'", "DATE'2023-11-14'"],
    ),
    "b": (["{c}", "NOT {c}", "coalesce({c}, true)"], ["true", "false"]),
    "r": (["{c}", "substring({c}, 1, 1)"], ["X'FF'", "X''", "X'6162'"]),
}
WHOLE = {
    "s": [
        *["length({c}) > 2", "{c} LIKE 'a_b'", "{c} LIKE '%b%c'", "{c} LIKE 'A_!%c' ESCAPE '!'", "ascii({c}) = 97"],
        *["levenshtein({c}, 'ab') <= 1", "{c} LIKE 'a%'", "contains({c}, 'b')", "{c} RLIKE '^[a-z]+$'"],
    ],
    "d": ["year({c}) = 2024", "dayofweek({c}) IN (1, 5)", "date_format({c}, 'MMM') = 'Feb'"],
    "z": ["hour({c}) = 18", "date_format({c}, 'yyyy') = '2023'", "year({c}) < 1970"],
    "y": ["hour({c}) = 22", "minute({c}) > 12"],
    "x": ["isnan({c})", "cast({c} AS string) = '-0.0'", "{c} BETWEEN 0 AND 2"],
    "r": ["hex({c}) LIKE '61%'", "length({c}) = 1"],
    "i": ["cast({c} AS string) LIKE '-%'", "bit_count({c}) > 3", "{c} IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, NULL)"],
}


def conditions(chance: random.Random, column: str) -> str:
    """A random condition over one column."""

    def leaf() -> str:
        if column in WHOLE and chance.random() < 0.4:
            return chance.choice(WHOLE[column]).format(c=column)
        expressions, literals = EXPRESSIONS[column]
        expression = chance.choice(expressions).format(c=column)
        shape = chance.randrange(8)
        if shape == 0:
            return f"{expression} IS NULL"
        if shape == 1:
            return f"{expression} IN ({', '.join(chance.sample(literals, 2))})"
        return f"{expression} {chance.choice(['=', '<>', '<', '<=', '>', '>=', '<=>'])} {chance.choice(literals)}"

    match chance.randrange(8):
        case 0:
            return f"(({leaf()}) AND ({leaf()}))"
        case 1:
            return f"(({leaf()}) OR NOT ({leaf()}))"
        case 2:
            return f"CASE WHEN {leaf()} THEN {leaf()} ELSE {leaf()} END"
    return f"({leaf()})"


@pytest.fixture(scope="module")
def values(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A file a row, in a session whose zone is not UTC."""
    place = tmp_path_factory.mktemp("values")
    for number in range(11):
        row = {name: pa.array([pool[number % len(pool)]], kind) for name, (kind, pool) in COLUMNS.items()}
        pq.write_table(pa.table(row), place / f"{number:02}.parquet")
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/Chicago")
    session.conf.set(BUDGET, "120")
    geoskip.dataset(session, str(place)).create_index(*map(ValueList, COLUMNS))
    return session.read.parquet(str(place))


def test_random_conditions_are_decided_exactly(values: Any) -> None:
    """One job says what Spark makes of them; which files are read needs none."""
    chance = random.Random(4)
    texts = [conditions(chance, name) for name in COLUMNS for _ in range(8)]
    texts = [chance.choice(["{}", "NOT {}", "{} IS NULL", "{} <=> false"]).format(text) for text in texts]
    texts = list(dict.fromkeys(texts))
    holding = holding_files(values, texts)
    wrong = {}
    for text in texts:
        report = geoskip.explain(values.where(text))
        if report.scans and kept(report).split() != holding[text]:
            wrong[text] = (kept(report), holding[text], report.scans[0].reasons)
    assert not wrong


# --- what is extracted from formatted text ----------------------------------------------------------------------------

LINES = [
    ['10.0.0.1 - - [01/Jul/1995:00:00:01] "GET /"', "10.0.0.2 - - [01/Jul/1995:00:00:09]"],
    ["10.0.0.1 - - [02/Jul/1995:00:00:01]", None],
    ["no such line", "::1 - - [03/Jul/1995:07:00:00]"],
]
LOG = Formatted("line", template=r"^(?<ip>\S+) \S+ \S+ \[(?<day>[^:]+)")
HOST = Formatted("user agent", extract="split({}, '/')[0]")
LIBRARY = """
def name_of(agent):
    return None if agent is None else agent.partition("/")[0]{change}
"""


@pytest.fixture(scope="module")
def log(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("log")
    agents = [["Hacker/1", "Mozilla/5"], ["Mozilla/4", "Opera/9"], [None, "curl/7"]]
    for number, (lines, names) in enumerate(zip(LINES, agents, strict=True)):
        pq.write_table(pa.table({"line": lines, "user agent": names}), place / f"{number}.parquet")
    return str(place)


def test_parts_of_a_template_and_of_an_expression(spark: Any, log: str) -> None:
    report = geoskip.dataset(spark, log).create_index(LOG, HOST)
    assert report.indexes == (str(LOG), str(HOST))
    ip, day = LOG.part("ip"), LOG.part("day")
    queries = {
        f"{day} = '01/Jul/1995'": "0",
        f"{day} LIKE '%Jul/1995' AND {ip} = '10.0.0.1'": "0 1",
        f"{ip} IN ('::1', '10.0.0.2')": "0 2",
        f"{ip} <> '10.0.0.1'": "0 2",
        f"{day} = ''": "2",
        f"{day} IS NULL": "1",
        f"length({ip}) < 4": "2",
        "regexp_extract(line, r'[(]', 0) = ''": "0 1 2",
        f"{HOST.part()} = 'Hacker'": "0",
        "split(`user agent`, '/')[0] LIKE 'M%'": "0 1",
    }
    frame = spark.read.parquet(log)
    assert {where: kept(geoskip.explain(frame.where(where))) for where in queries} == queries
    for where in [*queries][::4]:
        assert kept(same_as_off(lambda where=where: spark.read.parquet(log).where(where))) == queries[where]


def test_an_extractor_with_another_body_or_a_library_of_another_release_does_not_meet_old_lists(
    spark: Any, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def release(version: str, change: str = "") -> None:
        """Installs the library and registers a function that calls it, as a new driver would find them."""
        info = tmp_path / "agents_of_log.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: agents-of-log\nVersion: {version}\n")
        (info / "top_level.txt").write_text("agents_of_log\n")
        (tmp_path / "agents_of_log.py").write_text(LIBRARY.format(change=change))
        sys.modules.pop("agents_of_log", None)
        for cached in (identity._distributions, identity._released, catalyst._implementation, functions._unpickled):
            cached.cache_clear()
        library = importlib.import_module("agents_of_log")
        cloudpickle.register_pickle_by_value(library)

        def get_agent_name(agent: str | None) -> str | None:
            return library.name_of(agent)

        spark.udf.register("get_agent_name", get_agent_name, "string")

    def read(where: str = "get_agent_name(`user agent`) = 'Hacker'") -> str:
        return kept(geoskip.explain(spark.read.parquet(log).where(where)))

    monkeypatch.syspath_prepend(str(tmp_path))
    release("1.0")
    handle = geoskip.dataset(spark, log)
    handle.create_index(Formatted("user agent", extract="get_agent_name"))
    assert kept(same_as_off(lambda: spark.read.parquet(log).where("get_agent_name(`user agent`) = 'Hacker'"))) == "0"
    assert read("get_agent_name(`user agent`) LIKE '%la'") == "0 1"
    assert read("NOT get_agent_name(`user agent`) IN ('Opera', 'Mozilla')") == "0 2"
    assert read("get_agent_name(`user agent`) IS NULL") == "2"
    release("1.0")
    assert read() == "0"
    release("2.0", change=".lower()")
    assert read() == "0 1 2"
    release("1.0")
    assert read() == "0"
    spark.udf.register("get_agent_name", lambda agent: agent, "string")
    assert read() == "0 1 2"
