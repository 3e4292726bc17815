"""Metadata of one dataset in several places: no handle changes by being made what queries and other handles use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax
from geoskip.errors import InvalidSpecificationError
from geoskip.spark.session import known
from geoskip.stores import MemoryStore
from tests.spark.verbs.asking import write


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for number in range(3):
        write(tmp_path / "data", f"{number}.parquet", [number * 10])
    return tmp_path / "data"


def kept(spark: Any, place: Path) -> int:
    frame = spark.read.parquet(str(place)).where("a = 10")
    assert frame.count() == 1
    return int(geoskip.report(frame).files_kept)


def reasons(spark: Any, place: Path) -> str:
    return " ".join(geoskip.report(spark.read.parquet(str(place)).where("a = 10")).reasons)


@pytest.mark.parametrize("beside", [True, False], ids=["beside the data", "elsewhere"])
def test_a_mistyped_folder_changes_nothing(spark: Any, place: Path, tmp_path: Path, beside: bool) -> None:
    first = {} if beside else {"metadata": str(tmp_path / "metadata")}
    older = geoskip.dataset(spark, str(place), **first)
    older.create_index(MinMax("a"))
    mistyped = geoskip.dataset(spark, str(place), metadata=str(tmp_path / "metadat"))
    in_memory = geoskip.dataset(spark, str(place), store=MemoryStore())
    assert kept(spark, place) == 1
    older.append(spark.createDataFrame([(70,)], "a BIGINT").coalesce(1))
    assert [row.files_covered for row in older.describe().collect()] == [4]
    assert geoskip.dataset(spark, str(place)).indexes == older.indexes
    for other in (mistyped, in_memory):
        with pytest.raises(InvalidSpecificationError, match=r"use the metadata of .* use_metadata\(\)"):
            other.create_index(MinMax("a"))
    assert not (tmp_path / "metadat").exists()
    assert kept(spark, place) == 1


def test_another_place_is_chosen_by_a_verb(spark: Any, place: Path, tmp_path: Path) -> None:
    older = geoskip.dataset(spark, str(place))
    older.create_index(MinMax("a"))
    other = geoskip.dataset(spark, str(place), metadata=str(tmp_path / "metadata"))
    other.use_metadata()
    assert kept(spark, place) == 3
    assert f"{tmp_path}/metadata has none" in reasons(spark, place)
    other.create_index(MinMax("a"))
    assert kept(spark, place) == 1
    write(place, "3.parquet", [30])
    assert older.refresh_index().files == 4, "an older handle keeps its place"
    assert [row.files_covered for row in other.describe().collect()] == [3]
    assert kept(spark, place) == 2
    older.use_metadata()
    assert kept(spark, place) == 1
    assert not known.is_chosen(f"file:{place}")


def test_the_only_place_is_found_by_queries(spark: Any, place: Path, tmp_path: Path) -> None:
    folder = str(tmp_path / "metadata")
    geoskip.dataset(spark, str(place), metadata=str(tmp_path / "metadat"))
    assert f"{tmp_path}/metadat has none" in reasons(spark, place)
    geoskip.dataset(spark, str(place), metadata=folder).create_index(MinMax("a"))
    assert kept(spark, place) == 1
    known._stores.clear()  # another driver
    geoskip.dataset(spark, str(place), metadata=folder)
    assert kept(spark, place) == 1


def test_a_report_names_where_metadata_were_looked_for(spark: Any, place: Path) -> None:
    assert f"no metadata in file:{place}/_geoskip, nor in a folder above" in reasons(spark, place)
