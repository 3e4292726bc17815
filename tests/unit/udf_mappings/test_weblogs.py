"""User agents and log lines, mapped: real agents, lines as servers write them."""

from __future__ import annotations

import json
import random
import re
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ua_parser

import geoskip
import udf_mappings.user_agents  # noqa: F401
from geoskip import Formatted, MinMax, Prefix, ValueList
from geoskip.predicates import Column, Comparison, In, Literal, Not
from tests.conftest import same_as_off
from tests.support.mapped import kept, metadata, python, spark
from udf_mappings import user_agents as agents
from udf_mappings import weblogs

AGENT, IP, URL = Column("agent", "string"), Column("ip", "string"), Column("url", "string")
BROWSERS = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
    "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0",
    "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Mobile Safari",
    "curl/8.5.0",
    "Wget/1.21.4",
    "",
    "no such thing",
    "Liferea/beta.1",
    "bPod BMID/E675F2",
]


def crawlers() -> list[str]:
    """Real ones, of the project crawler-user-agents."""
    entries = json.loads((resources("crawleruseragents") / "crawler-user-agents.json").read_text())
    return [agent for entry in entries for agent in entry["instances"]]


TEXTS = [*crawlers()[::17], *BROWSERS]
FAMILIES = sorted({family for text in TEXTS if (family := agents.agent_family(text)) is not None})


# ---- agents


@pytest.mark.parametrize("kind", [ValueList, lambda text: Prefix(text, length=6)], ids=["valuelist", "prefix"])
def test_a_family_is_found_in_the_names(kind: Any) -> None:
    name = python(agents.agent_name, AGENT)
    index = kind("agent_name(agent)").bind((name,))
    found = [agents.agent_name(text) for text in TEXTS]
    files = metadata(index, [(pa.array([one], pa.string()),) for one in found], ("string",))
    for family in FAMILIES[::4]:
        for asked in (
            Comparison("=", python(agents.agent_family, AGENT), Literal(family)),
            In(python(agents.agent_family, AGENT), (Literal(family), Literal("none"), Literal(None))),
        ):
            answer = kept(asked, index, files)
            assert all(answer[n] for n, text in enumerate(TEXTS) if agents.agent_family(text) == family)
            assert answer.count(False) > len(TEXTS) / 2


def test_the_name_alone_would_lose_families_with_a_version() -> None:
    """The mutant: a family is not its name."""
    assert any(agents.agent_family(text) != agents.agent_name(text) for text in TEXTS)


@pytest.mark.parametrize("family", ["Chrome Mobile", "a_b", "100%", "a\\b"])
def test_a_family_is_not_one_that_begins_with_it(family: str) -> None:
    index = ValueList("agent_name(agent)").bind((python(agents.agent_name, AGENT),))
    own = [family, f"{family} 126", f"{family} 0x"]
    others = [f"{family} WebView 126", f"{family} 7 WebView", f"{family}s 1", f"{family} ", "axb 1", "100 1", "a 1"]
    files = metadata(index, [(pa.array([name]),) for name in [*own, *others]], ("string",))
    asked = Comparison("=", python(agents.agent_family, AGENT), Literal(family))
    assert kept(asked, index, files) == [*[True] * len(own), *[False] * len(others)]


def test_a_name_is_a_family_or_has_a_version_that_begins_with_a_digit() -> None:
    """The mutant: with whatever the project calls the major version, families are not told from names."""
    majors = {text: (found := ua_parser.parse_user_agent(text)) and found.major for text in TEXTS}
    assert {majors["Liferea/beta.1"], majors["bPod BMID/E675F2"]} == {"beta", "E675F2"}
    for text in TEXTS:
        family, name = agents.agent_family(text), agents.agent_name(text)
        assert name == family or re.fullmatch(r" [0-9][^ ]*", (name or "").removeprefix(family or ""))


def test_bots_are_found_by_their_device() -> None:
    device = python(agents.agent_device, AGENT)
    index = ValueList("agent_device(agent)").bind((device,))
    found = [agents.agent_device(text) if text is not None else None for text in [*TEXTS, None]]
    files = metadata(index, [(pa.array([one], pa.string()),) for one in found], ("string",))
    bot = python(agents.agent_is_bot, AGENT, type="boolean")
    assert kept(bot, index, files) == [agents.agent_is_bot(text) or False for text in [*TEXTS, None]]
    answer = kept(Not(bot), index, files)
    expected = [agents.agent_is_bot(text) is False for text in [*TEXTS, None]]
    assert all(keeps or not wanted for keeps, wanted in zip(answer, expected, strict=True))
    assert answer.count(False) == sum(map(agents.agent_is_bot, TEXTS)) > 50
    other = python(agents.agent_is_bot, IP, type="boolean")
    assert all(kept(other, index, files))


# ---- lines and URLs

LINES = [
    '10.0.0.7 - ann [10/Oct/2026:13:55:36 -0700] "GET /db/orders?id=7 HTTP/1.1" 404 512 "-" "curl/8.5.0"',
    '::1 - - [11/Oct/2026:00:00:01 +0000] "POST / HTTP/2" 200 - "https://a.org/x?y=\\"z\\"" "a \\"b\\" c"',
    '10.0.0.8 - - [11/Oct/2026:00:00:02 +0000] "-" 408 0 "-" "-"',
    '10.0.0.9 - - [11/Oct/2026:00:00:03 +0000] "\\x16\\x03\\x01" 400 226 "-" "-"',
    "no line of a log",
    "",
]


def test_urls_begin_with_their_scheme() -> None:
    urls = ["https://a.org/x", "HTTPS://a.org", "http://b.org", "httpsx://c", "mailto:a@b.org", "/path", None]
    index = Prefix("url", length=4).bind((URL,))
    files = metadata(index, [(pa.array([url], pa.string()),) for url in urls], ("string",))
    scheme = spark("ParseUrl", "parse_url", URL, "PROTOCOL", type="string")
    assert kept(Comparison("=", scheme, Literal("https")), index, files) == [True, False, True, True, *[False] * 3]
    assert kept(In(scheme, (Literal("mailto"), Literal(None))), index, files) == [False] * 4 + [True, False, False]
    host = spark("ParseUrl", "parse_url", URL, "HOST", type="string")
    assert all(kept(Comparison("=", host, Literal("a.org")), index, files))


@pytest.mark.parametrize(("parts", "word"), [((), "none"), (("agent",), "agent"), (("ip", "host"), "ip, host")])
def test_parts_that_a_format_has_not_are_refused(parts: tuple[str, ...], word: str) -> None:
    with pytest.raises(geoskip.GeoskipError, match=f"got {word}"):
        weblogs.common(*parts)


@pytest.mark.slow
@pytest.mark.spark
def test_lines_of_a_log_through_spark(spark: Any, tmp_path: Path) -> None:
    place = tmp_path / "log"
    place.mkdir()
    draw = random.Random(7)
    for day in range(8):
        rows = [
            f"10.0.{day}.{draw.randint(0, 255)} - - [{10 + day}/Oct/2026:00:00:0{k % 10} +0000] "
            f'"GET /db/{"abc"[k % 3]}/t{day}?q={k} HTTP/1.1" {500 if day == 3 and k == 5 else 200} {k} "-" '
            f'"{draw.choice(TEXTS).strip()}"'
            for k in range(20)
        ]
        (place / f"part-{day}.txt").write_text("\n".join([*rows, *(LINES if day == 0 else [])]) + "\n")
    parts = ("ip", "day", "method", "path", "query", "status", "bytes", "referrer", "agent")
    template = weblogs.combined(*parts)
    lines = spark.read.text(str(place)).selectExpr("value", *weblogs.columns("value", template))
    with geoskip.disabled(spark):
        first = {row.value: row for row in lines.where("NOT startswith(agent, 'Moz')").collect() if row.value in LINES}
    assert first[LINES[0]][1:] == (
        "10.0.0.7",
        "10/Oct/2026",
        "GET",
        "/db/orders",
        "id=7",
        "404",
        "512",
        "-",
        "curl/8.5.0",
    )
    assert (first[LINES[1]].referrer, first[LINES[1]].agent) == ('https://a.org/x?y=\\"z\\"', 'a \\"b\\" c')
    assert (first[LINES[2]].path, first[LINES[2]].status, first[LINES[3]].status) == ("", "408", "400")
    assert first[LINES[4]].status == ""

    few = weblogs.combined("ip", "day", "path", "status", "agent")
    geoskip.register_functions(spark)
    extracts = Formatted("value", template=few)
    geoskip.dataset(spark, str(place), format="text").create_index(
        extracts,
        Prefix(extracts.part("path"), length=20),
        MinMax(f"packed_address({extracts.part('ip')})"),
        ValueList(f"agent_name({extracts.part('agent')})"),
    )
    view = spark.read.text(str(place)).selectExpr("value", *weblogs.columns("value", few))
    view.createOrReplaceTempView("log_lines")
    expected = {
        "status LIKE '5%'": 1,
        "substring(status, 1, 1) = '4'": 1,
        "day = '12/Oct/2026'": 1,
        "path LIKE '/db/a/t6%'": 1,
        "in_network(ip, '10.0.2.0/23')": 2,
        "NOT in_network(ip, '10.0.0.0/8')": 1,
        "agent = 'curl/8.5.0' AND day = '10/Oct/2026'": 1,
    }
    found = {text: geoskip.explain(view.where(text)).files_kept for text in expected}
    assert found == expected
    report = same_as_off(lambda: spark.sql(f"SELECT * FROM log_lines WHERE {' OR '.join(list(expected)[:3])}"))
    assert report.files_kept == 3
    report = same_as_off(lambda: view.where("agent_family(agent) = 'Wget' OR in_network(ip, '10.0.2.0/23')"))
    assert 1 <= report.files_kept < 8


@pytest.mark.slow
@pytest.mark.spark
def test_parsers_of_agents_through_spark(spark: Any, tmp_path: Path) -> None:
    place = tmp_path / "agents"
    place.mkdir()
    ordered = sorted(TEXTS, key=lambda text: agents.agent_name(text) or "")
    step = -(-len(ordered) // 6)
    for number in range(6):
        some = ordered[number * step : (number + 1) * step]
        urls = [f"{'https' if number < 4 else 'http'}://host{number}.org/x{n}" for n in range(len(some))]
        pq.write_table(pa.table({"agent": some, "url": urls}), place / f"part-{number}.parquet")
    geoskip.register_functions(spark)
    geoskip.dataset(spark, str(place)).create_index(
        Formatted("agent", extract="agent_name"),
        ValueList("agent_device(agent)"),
        Formatted("url", extract="parse_url({}, 'HOST')"),
        Prefix("url", length=6),
    )
    expected = {
        "agent_name(agent) = 'curl 8'": 1,
        "agent_family(agent) IN ('curl', 'Wget')": 1,
        "agent_name(agent) LIKE 'Wget%'": 1,
        "parse_url(url, 'HOST') = 'host3.org'": 1,
        "parse_url(url, 'PROTOCOL') = 'http'": 2,
    }
    frame = spark.read.parquet(str(place))
    found = {text: geoskip.explain(frame.where(text)).files_kept for text in expected}
    assert all(found[text] <= count + 1 for text, count in expected.items()), found
    every = " OR ".join(f"({text} AND NOT agent_is_bot(agent))" for text in expected)
    same_as_off(lambda: spark.read.parquet(str(place)).where(every))
