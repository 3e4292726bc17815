"""Columns whose own names hold dots, alone and beside structs with a field that is written alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import BloomFilter, GapList, MinMax, Prefix, ValueList
from tests.conftest import same_as_off

pytestmark = pytest.mark.spark

KEPT = {
    "`x.y` = 11": 1,
    "`x.y` IN (1, 21)": 2,
    "`X.Y` + 1 > 25": 1,
    "`x.y` IS NULL": 0,
    "NOT `x.y` < 20": 1,
    "`p.q` = '11'": 1,
    "`p.q` LIKE '2%'": 2,
    "`x.y` > 11 AND `p.q` IS NOT NULL": 2,
    "x.y = 11": 3,
}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", "orc", "json"])
def test_a_column_with_a_dot_in_its_name_skips(spark: Any, tmp_path: Path, form: str) -> None:
    place = str(tmp_path / "data")
    for start in (0, 10, 20):
        rows = spark.range(10).selectExpr(
            f"id + {start} AS `x.y`",
            f"CAST(id + {start} AS string) AS `p.q`",
            "named_struct('y', 11 + id % 5) AS x",
        )
        rows.coalesce(1).write.mode("append").format(form).save(place)
    schema = "`x.y` bigint, `p.q` string, x struct<y: bigint>"
    handle = geoskip.dataset(spark, place, format=form, schema=schema)
    handle.create_index(*(kind("x.y") for kind in (MinMax, BloomFilter, GapList)), ValueList("p.q"), Prefix("p.q"))
    for where, kept in KEPT.items():
        assert same_as_off(lambda where=where: handle.to_df().where(where)).files_kept == kept, where


@pytest.mark.slow
def test_a_struct_field_stays_one_beside_a_column_named_alike(spark: Any, tmp_path: Path) -> None:
    """What an index was built over is not read anew from its text, which by now means another column first."""
    place = str(tmp_path / "data")

    def add(first: int, more: str = "") -> None:
        for n in range(first, first + 3):
            spark.sql(f"SELECT named_struct('b', {n * 10}) AS a1{more.format(n)}").write.mode("append").parquet(place)

    add(0)
    geoskip.dataset(spark, place).create_index(MinMax("a1.b"))
    add(3, ", {} AS `a1.b`")
    handle = geoskip.dataset(spark, place, mergeSchema="true")
    handle.refresh_index()
    assert same_as_off(lambda: handle.to_df().where("a1.b = 40")).files_kept == 1
    assert same_as_off(lambda: handle.to_df().where("`a1.b` = 4")).files_kept == 6
    handle.create_index(ValueList("a1.b"), MinMax("`a1.b`"))  # of the column, in the same breath as the field's
    for mode in ("incremental", "full"):
        handle.refresh_index(mode)
        assert same_as_off(lambda: handle.to_df().where("a1.b = 40")).files_kept == 1
        assert same_as_off(lambda: handle.to_df().where("a1.b = 4")).files_kept == 0
        assert same_as_off(lambda: handle.to_df().where("`a1.b` = 4")).files_kept == 1
    assert handle.verify().ok
