"""All that is long in Spark shows its progress: writes, appends, rewrites, advice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax, Sort
from geoskip.sources import progress
from geoskip.spark.build import spark_jobs
from tests.support.terminal import replaced_error_output


@pytest.mark.slow
def test_writes_rewrites_and_advice_show_what_they_do(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (progress, spark_jobs):
        monkeypatch.setattr(module, "PATIENCE", 0.0)
    terminal = replaced_error_output(monkeypatch, is_terminal=True)

    def check_shown(*titles: str) -> None:
        text = terminal.getvalue()
        assert [title for title in titles if title not in text] == []
        terminal.seek(0)
        terminal.truncate()

    place = str(tmp_path / "data")
    numbers = spark.range(4000).selectExpr("id", "pmod(xxhash64(id), 1000) AS n")
    data = geoskip.write(numbers, place, layout=Sort("n"), files=8, indexes=MinMax("n"))
    check_shown("arranging rows by sort(n)", "writing ", "reading 8 files")
    data.append(numbers.limit(10))
    check_shown("writing to ", "reading 1 file")
    data.rewrite(Sort("id"), files=4)
    check_shown("arranging rows by sort(id)", "writing 4 files", "reading 4 files")
    query = data.to_df().where("id = 7")
    geoskip.what_if(data, [MinMax("id")], layout=Sort("id"), queries=[query])
    check_shown("counting rows", "sampling rows")
    geoskip.recommend(data, [query])
    check_shown("trying indexes", "sampling rows", "trying layouts")


def test_nothing_is_shown_of_what_is_quick(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = replaced_error_output(monkeypatch, is_terminal=True)
    for module in (progress, spark_jobs):
        monkeypatch.setattr(module, "PATIENCE", 600.0)
    geoskip.write(spark.range(10), tmp_path / "data", files=2, indexes=MinMax("id"))
    assert terminal.getvalue() == ""
