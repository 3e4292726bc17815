"""What is extracted from formatted text, through real queries."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

import geoskip
from geoskip import Formatted
from geoskip.registry import fingerprint
from geoskip.spark.rule import translate
from tests.conftest import kept, same_as_off

pytestmark = pytest.mark.spark

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


@pytest.mark.slow
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
        fingerprint._distribution_version.cache_clear()
        translate._implementations.clear()
        library = importlib.import_module("agents_of_log")
        cloudpickle.register_pickle_by_value(library)

        def get_agent_name(agent: str | None) -> str | None:
            return library.name_of(agent)

        spark.udf.register("get_agent_name", get_agent_name, "string")

    def read(where: str = "get_agent_name(`user agent`) = 'Hacker'") -> str:
        return kept(geoskip.explain(spark.read.parquet(log).where(where)))

    monkeypatch.syspath_prepend(str(tmp_path))
    fingerprint._distributions.cache_clear()
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
    assert "get_agent_name is another function, or version, than it was built with" in str(
        geoskip.explain(spark.read.parquet(log).where("get_agent_name(`user agent`) = 'Hacker'"))
    )
    release("1.0")
    assert read() == "0"
    spark.udf.register("get_agent_name", lambda agent: agent, "string")
    assert read() == "0 1 2"
