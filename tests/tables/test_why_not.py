"""What ``why_not`` and reports say of tables of Delta and Iceberg."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax
from tests.tables.test_delta import delta_table
from tests.tables.test_iceberg import make


def of_delta(spark: Any, folder: Path) -> tuple[str, Any]:
    return delta_table(spark, folder / "table"), geoskip.dataset(spark, folder / "table")


def of_iceberg(spark: Any, folder: Path) -> tuple[str, Any]:
    table = make(spark, "ice.db.why_not")
    return table, geoskip.dataset(spark, table=table)


@pytest.mark.parametrize("made", [of_delta, of_iceberg])
def test_each_part_of_a_condition_on_a_table_is_explained(
    spark: Any, tmp_path: Path, made: Callable[[Any, Path], tuple[str, Any]]
) -> None:
    table, dataset = made(spark, tmp_path)
    dataset.create_index(MinMax("temp"))
    frame = spark.sql(f"SELECT * FROM {table} WHERE temp > 25 AND levenshtein(name, 'n35') < 1")
    found = geoskip.why_not(frame)
    assert [(row.part, row.index) for row in found.rows] == [
        ("temp > 25", "minmax(temp)"),
        ("levenshtein(name, 'n35') < 1", ""),
    ]
    assert found.suggestions == ('MetricDist("name", metric="levenshtein")',)
    assert [text for text in geoskip.report(frame).reasons if "levenshtein" in text] == [
        'no index over levenshtein(name, \'n35\'): MetricDist("name", metric="levenshtein")'
    ]
    spark.sql(f"DROP TABLE IF EXISTS {table}")
