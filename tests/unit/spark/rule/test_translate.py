"""What Spark leaves in a filter, as geoskip's predicates: pairs of SQL and predicate in ``fixtures/catalyst.txt``.

Below each condition stands what the rule and :mod:`geoskip.spark.rule.translate` make of it: literals with their types,
casts with their source type, mode and zone, functions with the class or function that implements them. Conditions
after a line ``-- 4`` are for Spark 4 and later.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax
from geoskip.predicates import Call, Cast, Column, Literal, Opaque, Predicate, children
from geoskip.spark.rule.translate import Translator, parts_of
from geoskip.spark.session import java

pytestmark = pytest.mark.spark

FIXTURES = Path(__file__).parents[3] / "soundness" / "fixtures" / "catalyst.txt"
COLUMNS = (
    "b boolean, t tinyint, i int, l bigint, f float, d double, m decimal(10,2), s string, c char(5), v varchar(5), "
    "x binary, day date, ts timestamp, ntz timestamp_ntz, a array<int>, st struct<n:int,`odd.name`:string>, "
    "`a b` int, p int"
)


FAMILIES = """'<=>' Not(IsNull( In( StartsWith( EndsWith( Contains( Like( rlike( isnan( coalesce( if( ansi decimal
date timestamp_ntz interval binary plus_one getfield staticinvoke collate America/New_York opaque("""


def pairs() -> list[tuple[str, str, str]]:
    """Condition, expected predicate, least Spark."""
    found, least, condition = [], "3", None
    for line in FIXTURES.read_text("utf-8").splitlines():
        if line.startswith("--"):
            least = re.sub(r"\D", "", line) or least
        elif line.startswith("    "):
            assert condition is not None
            found.append((condition, line.strip(), least))
        elif line:
            condition = line
    return found


def described(node: Predicate) -> str:
    """A predicate with what its plain text leaves out."""
    below = [described(child) for child in children(node)]
    match node:
        case Column(name):
            return name
        case Literal(value, kind):
            return f"{value!r}:{kind}"
        case Opaque(_, columns):
            return f"opaque({', '.join(columns)})"
        case Cast(_, kind, source, ansi, zone, tries):
            mode = f"{', ansi' if ansi else ''}{', ' + zone if zone else ''}"
            return f"{'try_' * tries}cast({below[0]}: {source} -> {kind}{mode})"
        case Call(name, _, implementation):
            short = re.sub(r"#.*|.*\.", "", implementation or "").removeprefix("python:")
            return f"{name}({', '.join(below)}){'@' + short if short else ''}"
    extras = [repr(getattr(node, field)) for field in ("op", "pattern", "escape", "text") if hasattr(node, field)]
    values = getattr(node, "values", None)
    if values:
        extras.append("[" + ", ".join(sorted(map(described, values))) + "]")
    return f"{type(node).__name__}({', '.join([*below, *extras])})"


def plus_one(value: int | None) -> int | None:
    return None if value is None else value + 1


class Requests:
    """Listens to what the rule asks."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.callback = java(session).callback
        self.answer = self.callback.answer
        self.last: Any = None

    def __enter__(self) -> Requests:
        self.callback.answer = self.listen
        return self

    def __exit__(self, *_: object) -> None:
        self.callback.answer = self.answer

    def listen(self, request: str) -> str:
        if request.startswith("{"):  # who asks when, then the question
            self.last = json.loads(request.split("\n")[1])
        return self.answer(request)

    def predicate(self, condition: str) -> str:
        self.last = None
        geoskip.explain(self.session.table("catalyst").where(condition))
        if self.last is None:
            return "no filter"
        reasons: list[str] = []
        found = list(parts_of(self.last["conditions"], Translator(), reasons))
        assert not reasons
        return " & ".join(sorted(map(described, found)))


@pytest.fixture(scope="module")
def requests(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Requests]:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "America/New_York")
    own.conf.set("spark.sql.ansi.enabled", "true")
    own.sql("DROP TABLE IF EXISTS catalyst")
    own.sql(f"CREATE TABLE catalyst ({COLUMNS}) USING parquet PARTITIONED BY (p)")
    row = "true, 1, 1, 1, 1, 1, 1, 's', 'c', 'v', x'00', DATE'2024-01-01', TIMESTAMP'2024-01-01 00:00:00', "
    own.sql(
        f"INSERT INTO catalyst VALUES ({row} TIMESTAMP_NTZ'2024-01-01 00:00:00', array(1), "
        "named_struct('n', 1, 'odd.name', 'x'), 1, 1)"
    )
    own.udf.register("plus_one", plus_one, "int")
    geoskip.dataset(own, table="catalyst").create_index(MinMax("i"))
    with Requests(own) as listening:
        yield listening


@pytest.mark.slow
def test_what_spark_leaves_in_a_filter_is_translated(requests: Requests) -> None:
    wrong = []
    for condition, expected, least in pairs():
        if requests.session.version < least:
            continue
        found = requests.predicate(condition)
        if found != expected:
            wrong.append(f"{condition}\n    {found}\n  not\n    {expected}")
    assert not wrong, "\n".join(wrong)


def test_the_fixtures_name_every_family() -> None:
    text = FIXTURES.read_text("utf-8")
    for word in FAMILIES.split():
        assert word.lower() in text.lower(), word


def test_dates_are_days_and_timestamps_microseconds(requests: Requests) -> None:
    days = (datetime.date(2024, 3, 1) - datetime.date(1970, 1, 1)).days
    assert f"{days}:date" in requests.predicate("day = DATE'2024-03-01'")
    micros = int(datetime.datetime(2024, 3, 1, 5, tzinfo=datetime.UTC).timestamp()) * 10**6
    assert f"{micros}:timestamp" in requests.predicate("ts = TIMESTAMP'2024-03-01 00:00:00'")  # in New York
