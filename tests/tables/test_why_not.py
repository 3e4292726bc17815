"""What ``why_not`` and reports say of tables of Delta and Iceberg."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax
from geoskip.errors import InvalidSpecificationError
from tests.support.delta_tables import delta_table
from tests.support.iceberg_tables import make


def of_delta(spark: Any, folder: Path) -> tuple[str, Any]:
    return delta_table(spark, folder / "table"), geoskip.dataset(spark, folder / "table")


def of_iceberg(spark: Any, folder: Path) -> tuple[str, Any]:
    table = make(spark, "ice.db.why_not")
    return table, geoskip.dataset(spark, table=table)


@pytest.mark.parametrize("made", [of_delta, of_iceberg])
def test_a_table_without_metadata_is_given_the_indexes_to_create(
    spark: Any, tmp_path: Path, made: Callable[[Any, Path], tuple[str, Any]]
) -> None:
    table, _ = made(spark, tmp_path)
    condition = "temp > 25 AND levenshtein(name, 'n35') < 1"
    for frame in (
        spark.sql(f"SELECT * FROM {table} WHERE {condition}"),
        spark.sql(f"SELECT count(*) FROM {table} a JOIN (SELECT temp + 1 AS t, name FROM {table}) b USING (name)")
        .crossJoin(spark.table(table).where(condition).select("half"))
        .limit(1),
    ):
        found = geoskip.why_not(frame)
        assert found.suggestions == ('MinMax("temp")', 'MetricDist("name", metric="levenshtein")')
        assert [len(scan.rows) for scan in found.scans if "temp > 25" in str(scan)] == [2]
    spark.sql(f"DROP TABLE IF EXISTS {table}")


def test_advice_on_tables_of_iceberg_points_at_why_not(spark: Any) -> None:
    table = make(spark, "ice.db.advised")
    dataset, query = geoskip.dataset(spark, table=table), f"SELECT * FROM {table} WHERE temp % 50 = 38"
    for advise in (
        lambda: geoskip.recommend(dataset, [query]),
        lambda: geoskip.recommend(dataset),
        lambda: geoskip.what_if(dataset, [MinMax("temp")], queries=[query]),
    ):
        with pytest.raises(InvalidSpecificationError, match=r"is a table of Iceberg.*geoskip\.why_not\(query\) names"):
            advise()
    assert geoskip.why_not(spark.sql(query)).suggestions == ('MinMax("temp")',)


def test_conditions_that_iceberg_settles_by_its_partitions_need_no_index(spark: Any) -> None:
    table = make(spark, "ice.db.why_not_partitions", by="half, bucket(4, name)")
    dataset = geoskip.dataset(spark, table=table)
    for built in (False, True):
        if built:
            dataset.create_index(MinMax("temp"))
        frame = spark.sql(f"SELECT count(*), max(temp) FROM {table} WHERE half = 1 AND name > 'n2' AND temp > 5")
        rows = {row.part: row for row in geoskip.why_not(frame).rows}
        assert rows["half = 1"].reason == "it reads partition columns alone: the table's own format settles it"
        assert not rows["half = 1"].suggestion
        assert rows["name > 'n2'"].suggestion == 'MinMax("name")'
        assert not [text for text in geoskip.report(frame).reasons if "half" in text]
        computed = geoskip.why_not(spark.sql(f"SELECT name FROM {table} WHERE half % 7 = 1"))
        assert computed.suggestions == ('MinMax("half")',)  # Iceberg evaluates no arithmetic
    spark.sql(f"ALTER TABLE {table} DROP PARTITION FIELD half")
    frame = spark.sql(f"SELECT name FROM {table} WHERE half = 1 AND name > 'n2'")
    assert 'MinMax("half")' in geoskip.why_not(frame).suggestions  # files of now have values of several
    spark.sql(f"DROP TABLE {table}")


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
