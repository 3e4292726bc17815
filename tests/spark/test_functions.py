"""Python functions over listed values of types that are more than a number or a text, on against off."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import pickle
import sys
import threading
import time
import types
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql import functions as F

import geoskip
from geoskip import ValueList
from geoskip.evaluation import Declined
from geoskip.spark.rule import python_udfs, udf_worker
from geoskip.spark.rule.python_udfs import call_in_worker
from tests.conftest import holding_files, kept, same_as_off
from tests.spark.test_readers import settings
from tests.support import planting

pytestmark = pytest.mark.spark

TIMES = [dt.datetime(2021, 7, 1, 12), dt.datetime(2022, 7, 1, 12, 0, 0, 5), dt.datetime(1950, 7, 1), None]
FILES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "price": (pa.decimal128(10, 8), [Decimal("1.5"), Decimal("0.0000001"), Decimal("-2.25"), None]),
    "large": (pa.decimal128(38, 2), [Decimal(10**35), Decimal("7.25"), Decimal("0.00"), None]),
    "seen": (pa.timestamp("us", "UTC"), [None if t is None else t.replace(tzinfo=dt.UTC) for t in TIMES]),
    "shown": (pa.timestamp("us"), TIMES),
    "hours": (pa.int32(), [5, -24, 0, None]),
    "code": (pa.binary(), [b"ab", b"\x00\xff", b"", None]),
    "day": (pa.date32(), [dt.date(2021, 7, 1), dt.date(2022, 7, 1), dt.date(1950, 1, 1), None]),
}
"""Of each column the type, and the value in each of four files."""


def written(value: Any) -> str:
    """How Python shows a value: of a decimal its digits, of bytes whether they can be changed."""
    return repr(value)


def year_of(value: Any) -> int | None:
    return None if value is None else value.year


def halved(value: Any) -> Any:
    """With more digits than its type has; None for what is small."""
    return None if value is None or abs(value) < 1 else value / 2 + Decimal("0.005")


def a_day_later(value: Any) -> Any:
    return None if value is None else value + dt.timedelta(days=1)


def first_byte(value: Any) -> Any:
    return None if value is None else bytes(value[:1])


def a_tenth(value: Any) -> float:
    return 0.1 if value is None else float(value) / 10


FUNCTIONS = {
    "written": (written, "string"),
    "year_of": (year_of, "int"),
    "halved": (halved, "decimal(12,2)"),
    "as_whole": (lambda value: 3, "decimal(12,2)"),
    "too_much": (lambda value: value, "decimal(3,2)"),
    "later": (a_day_later, "timestamp"),
    "later_shown": (a_day_later, "timestamp_ntz"),
    "in_utc": (lambda value: dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "timestamp"),
    "first_byte": (first_byte, "binary"),
    "a_tenth": (a_tenth, "float"),
    "twice": (lambda value: None if value is None else 2 * value, "interval day to second"),
    "day_after": (a_day_later, "date"),
}

READ = {
    "written(price) = \"Decimal('1.00E-7')\"": "1",
    "written(price) = \"Decimal('1.50000000')\"": "0",
    "written(price) = 'None'": "3",
    "written(large) LIKE '%7.25%'": "1",
    "halved(price) = 0.76": "0",
    "halved(price) < 0": "2",
    "halved(price) IS NULL": "1 3",
    "halved(large) > 1": "0 1",  # of the first nothing is known: it has too many digits
    "as_whole(price) IS NULL": "0 1 2 3",
    "too_much(price) = 1.5": "0",
    "year_of(seen) = 2021": "0",
    "year_of(seen) < 2000": "2",
    "year_of(shown) IN (2021, 2022)": "0 1",
    "written(shown) LIKE '%2022, 7, 1, 12, 0, 0, 5)'": "1",
    "later(seen) = timestamp'2021-07-02 12:00:00'": "0",
    "later_shown(shown) = timestamp_ntz'2022-07-02 12:00:00.000005'": "1",
    "in_utc(seen) = timestamp'2020-01-01 00:00:00'": "0 1 2 3",
    "in_utc(seen) <> timestamp'2020-01-01 00:00:00'": "",
    "first_byte(code) = X'00'": "1",
    "first_byte(code) = X''": "2",
    "written(code) IN (\"b'ab'\", \"bytearray(b'ab')\")": "0",
    "a_tenth(price) = CAST(0.15 AS float)": "0",
    "twice(make_dt_interval(0, hours)) = interval '10' hour": "0",
    "twice(make_dt_interval(0, hours)) < interval '0' hour": "1",
    "written(make_dt_interval(0, hours)) = 'datetime.timedelta(0)'": "2",
    "day_after(day) = date'2022-07-02'": "1",
    "year_of(day) < 2000": "2",
}
"""Condition, and the files that are read; the session's zone is UTC."""


@pytest.fixture(scope="module")
def moments(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("moments")
    for number in range(4):
        columns = {name: pa.array([values[number]], kind) for name, (kind, values) in FILES.items()}
        pq.write_table(pa.table(columns), place / f"{number}.parquet")
    for name, (function, kind) in FUNCTIONS.items():
        spark.udf.register(name, F.udf(function, kind, useArrow=False))
    geoskip.dataset(spark, str(place)).create_index(*map(ValueList, FILES))
    yield str(place)
    for name in FUNCTIONS:
        spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {name}")


@pytest.mark.slow
def test_functions_get_and_give_what_workers_get_and_give(spark: Any, moments: str) -> None:
    frame = spark.read.parquet(moments)
    fails = ("halved(large)", "too_much(price)")
    assert {where: kept(geoskip.explain(frame.where(where))) for where in READ} == READ
    decided = [text for text in READ if not text.startswith(fails)]
    holding = holding_files(frame, decided)
    assert {text: " ".join(holding[text]) for text in decided} == {text: READ[text] for text in decided}
    for where in ("year_of(seen) < 2000", "halved(price) = 0.76 OR first_byte(code) = X'00'"):
        assert 0 < same_as_off(lambda where=where: spark.read.parquet(moments).where(where)).files_kept < 3


class Limit:
    """Assigned to in the driver alone, by the tests."""

    OF_ALL = 100


TABLE = {"limit": 100}
ENDINGS = frozenset(["lm", "m", "n", "ris", "x", "zz"])


def is_within(value: int) -> bool:
    return value < is_within.most  # type: ignore[attr-defined]


is_within.most = 100  # type: ignore[attr-defined]


def changed(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """What the driver does after its functions were registered, of which workers know nothing."""
    monkeypatch.setattr(Limit, "OF_ALL", 2)
    monkeypatch.setitem(TABLE, "limit", 2)
    monkeypatch.setattr(is_within, "most", 2)
    monkeypatch.setenv("LIMIT_OF_HOUSE", "2")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setattr(sys, "argv", ["other", "2"])
    monkeypatch.setattr(threading.current_thread(), "name", "the driver's")
    monkeypatch.setattr(multiprocessing.current_process(), "_name", "the driver's")
    monkeypatch.chdir(place)


def local_limit() -> tuple[type, Any]:
    class Local:
        """Pickled with what it holds, while the driver goes on with the same class."""

        limit = 100

    return Local, lambda value: value < Local.limit


def surroundings(place: Path) -> dict[str, Any]:
    """Functions of what surrounds them: what workers answer is TRUE of 5, or what hashing 5 makes of it."""
    file = place / "limit.txt"
    return {
        "a class": lambda value: value < Limit.OF_ALL,
        "a dict": lambda value: value < TABLE["limit"],
        "an attribute": is_within,
        "the environment": lambda value: value < int(os.environ.get("LIMIT_OF_HOUSE", "100")),
        "a zone": lambda value: dt.datetime.fromtimestamp(3600 * value).hour == value,
        "the arguments": lambda value: value < len(sys.argv[0]),
        "a thread": lambda value: (value == 5) == (threading.current_thread().name == "MainThread"),
        "a process": lambda value: (value == 5) == (multiprocessing.current_process().name != "the driver's"),
        "a folder": lambda value: (value == 5) == (os.getcwd() != str(place)),
        "a file": lambda value: value < int(file.read_text()),
        "hashes": lambda value: (hash(f"{value}") + len([w for w in ENDINGS if w < "n"])) % 2 == 0,
        "an order": lambda value: list(ENDINGS)[value % 5] < "n",
    }


UNKNOWN = {
    "a task": lambda value: value < (100 if TaskContext.get() is not None else 0),
    "a setting of Spark's": lambda value: value < (100 if "SPARK_REUSE_WORKER" in os.environ else 0),
    "all of the environment": lambda value: value < len(list(os.environ)),
    "what raises": lambda value: value < 100 or sys.exit(1),
}
"""Functions of the very task that calls them."""


@pytest.fixture(scope="module")
def numbers(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("numbers")
    for number in (5, 6, 7, 200):
        pq.write_table(pa.table({"n": pa.array([number], pa.int32())}), place / f"{number}.parquet")
    geoskip.dataset(spark, str(place)).create_index(ValueList("n"))
    return str(place)


def in_the_driver(_: Any, command: bytes, columns: Any, **__: Any) -> Any:
    """The mutant: a function is called here, as the driver has it by now."""
    called = pickle.loads(command)[0]
    rows = [None if None in row else called(*row) for row in zip(*columns, strict=True)]
    return rows, [None in row for row in zip(*columns, strict=True)]


def holding_numbers(spark: Any, numbers: str, functions: dict[str, Any]) -> dict[str, set[str]]:
    """The files in which each function is true, by one job with geoskip off."""
    with geoskip.disabled(spark):
        rows = spark.read.parquet(numbers).select("n", *(function("n") for function in functions.values())).collect()
    return {name: {f"{row[0]}" for row in rows if row[place]} for place, name in enumerate(functions, start=1)}


def differing_of(
    spark: Any, numbers: str, functions: dict[str, Any], holding: dict[str, set[str]], *, want_skips: bool
) -> set[str]:
    """The functions of which a condition or its negation skips a file with a row that it holds for."""
    found, every, frame = set(), {"5", "6", "7", "200"}, spark.read.parquet(numbers)
    for name, function in functions.items():
        holds = function("n")
        read = [{*kept(geoskip.explain(frame.where(c))).split()} for c in (holds, ~holds)]
        if not (read[0] >= holding[name] and read[1] >= every - holding[name]):
            found.add(name)
        assert not want_skips or (len(read[0]) + len(read[1]) == len(every)), name
    return found


@pytest.mark.slow
def test_functions_see_what_workers_see_and_not_what_the_driver_has_by_now(
    spark: Any, numbers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "limit.txt").write_text("7")
    local, reads_local = local_limit()
    functions = {**surroundings(tmp_path), "a class of the driver's own": reads_local}
    registered = {name: F.udf(function, "boolean", useArrow=False) for name, function in functions.items()}
    for function in registered.values():
        function("n")  # pickled now
    with monkeypatch.context() as patch:
        changed(patch, tmp_path)
        local.limit = 2  # type: ignore[attr-defined]
        holding = holding_numbers(spark, numbers, registered)
        assert differing_of(spark, numbers, registered, holding, want_skips=True) == set()
        for name in ("a class", "hashes"):
            read = spark.read.parquet(numbers).where(registered[name]("n"))
            assert same_as_off(lambda read=read: read.select("*")).files_kept == len(holding[name]), name
        planting.function(patch, call_in_worker, in_the_driver)
        wrong = differing_of(spark, numbers, registered, holding, want_skips=False)
    assert {"a class", "an attribute", "the environment", "a thread", "a folder", "a process"} <= wrong


@pytest.mark.slow
def test_what_depends_on_the_task_is_unknown(spark: Any, numbers: str) -> None:
    for name, function in UNKNOWN.items():
        holds = F.udf(function, "boolean", useArrow=False)("n")
        read = spark.read.parquet(numbers).where(holds & (F.col("n") < 100))
        assert same_as_off(lambda read=read: read.select("*")).files_kept == 3, name


NESTED = {
    "float": (lambda n: n / 10, lambda value: value == 0.6),
    "decimal(10,2)": (Decimal, lambda value: str(value) == "6"),
    "date": (lambda n: dt.datetime(2020, 1, 1, n % 24), lambda value: str(value) == "2020-01-01 06:00:00"),
    "int": (str, lambda value: value == "6"),
    "string": (str, lambda value: value == "6"),
}
"""By the inner function's declared type, two functions of which the outer one is TRUE of 6."""


@pytest.mark.slow
def test_a_function_gets_what_another_returns_as_it_is(spark: Any, numbers: str) -> None:
    """Spark converts a result to the declared type only if a projection is evaluated between the two functions."""
    rules = "org.apache.spark.sql.catalyst.optimizer."
    apart = {"spark.sql.optimizer.excludedRules": f"{rules}PushDownPredicates,{rules}CollapseProject"}
    found = {}
    for kind, functions in NESTED.items():
        inner, outer = (F.udf(f, k, useArrow=False) for f, k in zip(functions, (kind, "boolean"), strict=True))
        name = f"inner_{kind.partition('(')[0]}"
        spark.udf.register(name, inner)
        handle = geoskip.dataset(spark, numbers)
        handle.create_index(ValueList(f"{name}(n)"), ValueList("n"))

        def files_kept(condition: Any, handle: Any = handle, inner: Any = inner) -> int:
            read = handle.to_df().select(inner("n").alias("y")).where(condition)
            return int(same_as_off(lambda: read.select("*")).files_kept)

        found[kind] = [files_kept(outer("y"))]
        with settings(spark, apart):
            found[kind] += [files_kept(outer("y")), files_kept(F.col("y").isNull())]
        spark.sql(f"DROP TEMPORARY FUNCTION {name}")
    expected = {"int": [4, 4, 4], "string": [1, 4, 0]}
    assert found == {kind: expected.get(kind, [4, 4, 0]) for kind in NESTED}


def test_what_clocks_show_twice_or_never_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        assert udf_worker._plain(dt.datetime(2024, 7, 1), True) == 1_719_806_400_000_000
        for unclear in (dt.datetime(2024, 11, 3, 1, 30), dt.datetime(2024, 3, 10, 2, 30)):
            with pytest.raises(ValueError, match="twice, or never"):
                udf_worker._plain(unclear, True)
    time.tzset()


@pytest.mark.slow
def test_modules_that_change_after_they_were_imported(spark: Any, tmp_path: Path) -> None:
    """New workers import the new one."""
    (tmp_path / "edited.py").write_text("def one(n): return n + 1\n")
    command = cloudpickle.dumps((types.FunctionType(_imported.__code__, {"path": str(tmp_path)}), None))

    def called() -> Any:
        until = time.monotonic() + 60
        return call_in_worker(command, [[1]], clocks=[False], is_instant=False, settings={}, deadline=until)

    assert called() == ([2], [False])
    (tmp_path / "edited.py").write_text("def one(n): return n + 22\n")
    with pytest.raises(Declined, match="edited has changed since it was imported"):
        called()
    assert called() == ([23], [False])


def _imported(n: int) -> Any:
    import sys

    sys.dont_write_bytecode = True
    sys.path.insert(0, path)  # type: ignore[name-defined]  # noqa: F821
    import edited  # type: ignore[import-not-found]

    return edited.one(n)


@pytest.mark.slow
def test_the_process_is_ended_at_its_deadline_and_started_anew(spark: Any) -> None:
    def called(function: Any, seconds: float) -> Any:
        return call_in_worker(
            cloudpickle.dumps((function, None)),
            [[1]],
            clocks=[False],
            is_instant=False,
            settings={},
            deadline=time.monotonic() + seconds,
        )

    assert called(lambda value: value + 1, 60) == ([2], [False])
    with pytest.raises(Declined, match="still running"):
        called(lambda value: time.sleep(600), 4)  # of which a busy machine takes some before the call
    with pytest.raises(Declined, match="has ended"):
        called(lambda value: os._exit(1), 60)
    with pytest.raises(Declined, match="ModuleNotFoundError"):
        call_in_worker(
            b"cno_such_module\nf\n.",
            [[1]],
            clocks=[False],
            is_instant=False,
            settings={},
            deadline=time.monotonic() + 60,
        )
    assert called(lambda value: value + 1, 60) == ([2], [False])


def test_the_process_starts_with_the_daemon_of_spark_itself(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    context, (*names, _, folder, environment) = python_udfs._start({})
    default = (*names, "pyspark.daemon", folder, environment)
    monkeypatch.setattr(python_udfs, "_start", lambda settings: (context, default))
    found = call_in_worker(
        cloudpickle.dumps((lambda value: " ".join([Path(sys.argv[0]).stem, *sys.argv[1:]]), None)),
        [[1]],
        clocks=[False],
        is_instant=False,
        settings={},
        deadline=time.monotonic() + 60,
    )
    assert found == (["daemon pyspark.worker"], [False])


def test_where_workers_are_on_other_machines_nothing_is_called(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "master", "spark://elsewhere:7077")
    with pytest.raises(Declined, match="other machines"):
        call_in_worker(b"", [[1]], clocks=[False], is_instant=False, settings={}, deadline=time.monotonic() + 60)
