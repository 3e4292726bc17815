"""Summaries by Spark's own aggregates, which clusters use whose workers lack geoskip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MinMax, ValueList
from geoskip.errors import EnvironmentProblem
from geoskip.spark.build import job
from geoskip.spark.workers import WorkerPython
from tests.conftest import same_as_off
from tests.spark.test_build import ALL_TYPES
from tests.spark.test_computing import all_types, built
from tests.spark.test_readers import write_old_times

pytestmark = pytest.mark.spark
__all__ = ["all_types"]

COLUMNS = ALL_TYPES.schema.names
SERVED = (
    *map(MinMax, COLUMNS),
    *map(ValueList, COLUMNS),
    *(ValueList(name, limit=1) for name in ("f32", "text", "d38")),
    *map(MinMax, ("repeat(text, 50)", "-f64", "length(text) + 1")),
    ValueList("-f64"),
)


@pytest.fixture
def without_python(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A cluster whose workers have nothing, but for the cluster."""
    monkeypatch.setattr(job, "is_cluster", lambda spark: True)
    monkeypatch.setattr(job, "worker_python", lambda spark, names: WorkerPython({name: name for name in names}))
    return monkeypatch


@pytest.mark.slow
def test_the_metadata_are_those_of_python_tasks(
    spark: Any, all_types: Path, without_python: pytest.MonkeyPatch
) -> None:
    report, ours, _ = built(spark, all_types, *SERVED)
    assert {reader for of in report.readers.values() for reader in of.split(", ")} == {"spark sql"}
    without_python.undo()
    report, expected, _ = built(spark, all_types, *SERVED)
    assert "spark sql" not in report.readers.values()
    for one, other in zip(ours, expected, strict=True):
        for name in other:
            assert repr(one[name]) == repr(other[name]), (other["path"], name)


def test_partitions_names_and_json(spark: Any, tmp_path: Path, without_python: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "p=a%20b"
    odd.mkdir()
    pq.write_table(pa.table({"a.b": [1, 2], "Ü": ["x", None]}), odd / "part one.parquet")
    _, ours, _ = built(spark, tmp_path, MinMax("`a.b`"), ValueList("Ü"))
    without_python.undo()
    assert repr(ours) == repr(built(spark, tmp_path, MinMax("`a.b`"), ValueList("Ü"))[1])


def test_malformed_json_is_left_out(spark: Any, tmp_path: Path, without_python: pytest.MonkeyPatch) -> None:
    for name, lines in (("good", [{"a": 1}, {"a": 2}]), ("bad", ["{"])):
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        (tmp_path / f"{name}.json").write_text("\n".join(texts))
    handle = geoskip.dataset(spark, str(tmp_path), format="json", schema="a INT")
    report = handle.create_index(MinMax("a"))
    assert [*report.excluded] == ["bad.json"]
    frame = spark.read.schema("a INT").json(str(tmp_path)).where("a > 5")
    assert geoskip.report(frame).files_kept == 1


def test_old_times_of_the_jvms_zone_are_left_out(
    spark: Any, tmp_path: Path, without_python: pytest.MonkeyPatch
) -> None:
    write_old_times(tmp_path, int96=True)
    report, _, _ = built(spark, tmp_path, MinMax("ts"))
    assert [*report.excluded] == ["old.parquet"]
    where = "ts < timestamp'1900-01-01'"
    assert same_as_off(lambda: spark.read.parquet(str(tmp_path)).where(where)).files_kept == 3


def test_what_needs_python_is_refused_at_once(spark: Any, all_types: Path, without_python: pytest.MonkeyPatch) -> None:
    spark.udf.register("shouted", lambda text: text and f"{text}!", "string")
    indexes = [MinMax("i32"), geoskip.GeoBox("f64", "f64"), geoskip.MetricDist("text", metric="levenshtein")]
    with pytest.raises(EnvironmentProblem) as raised:
        geoskip.dataset(spark, str(all_types)).create_index(*indexes, MinMax("shouted(text)"))
    text = str(raised.value)
    assert text.startswith("geobox(f64, f64), metricdist(text, metric=levenshtein), minmax(shouted(text)) cannot be")
    assert "lacks geoskip, numpy, pyarrow, rapidfuzz and shapely. geoskip.worker_archive()" in text
