"""Tables of Delta Lake whose columns get other names and types: what is read stays right."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax, ValueList
from geoskip.engines.usable_indexes import reason_unusable_here
from geoskip.errors import GeoskipError, InvalidSpecificationError
from tests.support.delta_tables import ODD, Kept, kept_files


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def kept(spark: Any) -> Kept:
    return partial(kept_files, spark)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_column_mapping(spark: Any, place: Path, kept: Kept, mode: str) -> None:
    schema = "temp bigint, city string, at struct<lat: double, lng: double>"
    spark.sql(
        f"CREATE TABLE delta.`{place}` ({schema}) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}')"
    )
    table = f"delta.`{place}`"
    rows = "id, concat('c', id div 10), named_struct('lat', id * 1D, 'lng', -id * 1D)"
    spark.sql(f"INSERT INTO {table} SELECT {rows} FROM range(0, 40, 1, 4)")
    dataset = geoskip.dataset(spark, place)
    dataset.create_index(ODD, MinMax("city"), MinMax("at.lat"), ValueList("temp"))
    found = f"SELECT * FROM {table} WHERE"
    assert kept(f"{found} temp % 7 = 6 AND temp < 10") == (1, 4)
    assert kept(f"{found} upper(city) = 'C2'")[1] == 4
    assert kept(f"{found} at.lat * 2 > 75") == (1, 4)
    header = dataset.store.load(dataset.store.latest()).header  # other engines go by the table's names
    said = {reason_unusable_here(str(place), header, entry) for entry in header.entries}
    assert len(said) == 1
    assert "other names in the files" in str(said)
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN temp TO heat")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN at.lat TO latitude")
    assert kept(f"{found} heat % 7 = 6 AND heat < 10") == (1, 4)
    assert kept(f"{found} at.latitude * 2 > 75") == (1, 4)
    shown = str(geoskip.explain(spark.sql(f"{found} heat < 10 AND at.latitude * 2 < 75")))
    assert "heat < 10 AND (at.latitude * 2.0) < 75.0" in shown
    assert "col-" not in shown  # as columns are called in the files
    with pytest.raises(GeoskipError, match=r"cannot be resolved.*delete_index\('valuelist\(temp % 7\)'\)"):
        dataset.create_index(ValueList("heat % 7"))
    spark.sql(f"ALTER TABLE {table} ADD COLUMN (temp bigint, at.lat double)")  # others under the old names
    assert kept(f"{found} temp % 7 = 9") == (4, 4)
    assert kept(f"{found} temp % 7 IS NULL") == (4, 4)
    assert kept(f"{found} at.lat IS NULL AND heat % 7 = 6 AND heat < 10") == (1, 4)
    moved = "id, 'c9', named_struct('latitude', 1D, 'lng', 2D, 'lat', 99D), 41L"
    spark.sql(f"INSERT INTO {table} SELECT {moved} FROM range(50, 51)")
    assert kept(f"{found} temp % 7 = 6") == (5, 5)
    assert kept(f"{found} at.lat * 2 > 75") == (5, 5)
    with pytest.raises(InvalidSpecificationError, match=r"valuelist\(temp % 7\) .*\(it reads .* then, .* now"):
        dataset.refresh_index()
    dataset.delete_index(ODD)
    dataset.create_index(ValueList("heat % 7"))
    assert {str(index) for index in dataset.indexes} >= {"minmax(city)", "minmax(at.lat)", "valuelist(heat % 7)"}
    assert kept(f"{found} heat % 7 = 1 AND heat > 45") == (1, 5)
    assert kept(f"{found} at.latitude * 2 < 5") == (2, 5)
    assert dataset.verify().ok
    spark.sql(f"ALTER TABLE {table} DROP COLUMN city")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN (city string)")
    assert kept(f"{found} coalesce(city, 'c7') = 'c7'") == (5, 5)


def test_fields_in_arrays_are_not_used_once_their_names_differ(spark: Any, place: Path, kept: Kept) -> None:
    table = f"delta.`{place}`"
    spark.sql(f"CREATE TABLE {table} (a array<struct<x: bigint, y: bigint>>) USING delta")
    spark.sql(f"INSERT INTO {table} SELECT array(named_struct('x', id, 'y', id)) FROM range(0, 40, 1, 4)")
    geoskip.dataset(spark, place).create_index(ValueList("a[0].y"))
    assert kept(f"SELECT * FROM {table} WHERE a[0].y IS NULL") == (0, 4)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    assert kept(f"SELECT * FROM {table} WHERE a[0].y IS NULL") == (0, 4)
    spark.sql(f"ALTER TABLE {table} DROP COLUMN a.element.y")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN a.element.y bigint")  # another field, though of the same name and type
    query = f"SELECT * FROM {table} WHERE a[0].y IS NULL"
    assert kept(query) == (4, 4)
    why = "a column in it has fields with other names in the files than in the table"
    assert any(why in reason for reason in geoskip.explain(spark.sql(query)).reasons)
    with pytest.raises(InvalidSpecificationError, match="fields within a have other names in the files"):
        geoskip.dataset(spark, place).create_index(MinMax("a[0].x + 1"))


def test_a_widened_column(spark: Any, place: Path, kept: Kept) -> None:
    table = f"delta.`{place}`"
    widening = "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    spark.sql(f"CREATE TABLE {table} (temp int, half int) USING delta {widening}")
    spark.sql(f"INSERT INTO {table} SELECT id, id % 2 FROM range(0, 40, 1, 4)")
    dataset = geoskip.dataset(spark, place)
    dataset.create_index(ODD, MinMax("temp"))
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 6 AND temp < 10") == (1, 4)
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN temp TYPE bigint")
    spark.sql(f"INSERT INTO {table} SELECT id + 5000000000, id % 2 FROM range(0, 10, 1, 1)")
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 9")[0] == 5  # the query reads another type
    assert dataset.refresh_index("full").read == 5
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 9") == (0, 5)
    assert kept(f"SELECT * FROM {table} WHERE temp % 7 = 6 AND temp < 10") == (1, 5)
    assert dataset.verify().ok
