"""The demo's queries at a small size: the same rows from fewer files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import geoskip
from datasets import layout
from datasets.layout import LAYOUTS, lay_out, read
from datasets.weblog import weblog
from examples import demo
from examples.demo_queries import INDEXES, Query, queries, register_own, register_paper

pytestmark = pytest.mark.spark

NOTHING_TO_SKIP = "NOT in Texas"  # its files also hold rows elsewhere, when there are so few of them
FILES = 24
EVERY = 40


def _fewer_rows(name: str, **options: Any) -> pa.Table:
    table = read(name, **options)
    return table.take(pa.array(range(0, len(table), EVERY))) if name == "flights" else table


@pytest.fixture(scope="module")
def sessions(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Any]:
    """The two dialects' sessions over small clustered layouts, indexed."""
    place = tmp_path_factory.mktemp("demo")
    ours, paper = spark.newSession(), spark.newSession()
    geoskip.register_functions(ours)
    register_paper(paper)
    register_own(ours)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "LAYOUTS", {name: replace(LAYOUTS[name], files=FILES) for name in LAYOUTS})
        patch.setattr(layout, "read", _fewer_rows)
        folders = lay_out(place, which=("zipcodes_clustered", "flights_clustered"))
    folders["weblog"] = weblog(place / "weblog", 6000, days=FILES // 4, files=4)
    for name, folder in folders.items():
        demo.with_views((ours, paper), folder, name)
        geoskip.dataset(ours, str(folder)).create_index(*INDEXES[name.partition("_")[0]])
    return {False: ours, True: paper}


@pytest.mark.slow
@pytest.mark.parametrize("query", queries(), ids=lambda query: f"{query.table}: {query.title}")
def test_rows_are_equal_and_files_are_skipped(sessions: dict[bool, Any], query: Query) -> None:
    outcome = demo.compare(sessions, query, "clustered", repeat=1)
    assert outcome.rows > 0
    assert outcome.report.files_total == FILES
    if query.title != NOTHING_TO_SKIP:
        assert outcome.report.files_kept < FILES, str(outcome.report)


def test_rows_that_differ_stop_the_demo() -> None:
    import pandas as pd

    query = queries()[0]
    with pytest.raises(demo.RowsDiffer, match="2 rows with geoskip off, 1 rows with it on"):
        demo._check(query, "clustered", pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1]}))


def test_the_demo_says_which_functions_it_uses(spark: Any) -> None:
    assert demo._functions_of(spark).startswith(("Apache Sedona", "shapely-backed"))


def test_folders_of_the_demo_are_ignored_by_git() -> None:
    assert f"/{demo.PLACE.name}/" in (Path(demo.__file__).parents[1] / ".gitignore").read_text().split()
