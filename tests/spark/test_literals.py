"""Shapely geometries given to Spark's functions as they are, where Sedona's jar is there and where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import geoskip
from geoskip import GeoBox
from tests.conftest import same_as_off

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def place(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four files of two points each, ten degrees apart."""
    folder: Path = tmp_path_factory.mktemp("literals")
    for number in range(4):
        table = pa.table({"lng": [10.0 * number, 10.0 * number + 1], "lat": [0.0, 1.0]})
        pq.write_table(table, folder / f"part-{number}.parquet")
    geoskip.dataset(spark, str(folder)).create_index(GeoBox("lng", "lat"))
    return str(folder)


@pytest.mark.parametrize("which", ["spark", "plain"])
def test_a_polygon_is_a_literal(request: pytest.FixtureRequest, place: str, which: str) -> None:
    from pyspark.sql import functions as F

    session = request.getfixturevalue(which)
    point = F.call_function("ST_Point", F.col("lng"), F.col("lat"))
    inside = F.call_function("ST_Contains", F.lit(shapely.box(-1, -1, 5, 5)), point)
    near = F.call_function("ST_DistanceSphere", point, F.lit(shapely.Point(20, 0))) < 1000
    report = same_as_off(lambda: session.read.parquet(place).where(inside | near))
    assert report.files_kept == 2


def test_a_literal_keeps_its_srid(spark: Any) -> None:
    from pyspark.sql import functions as F

    from geoskip.spark.st_functions import is_there

    if not is_there(spark):
        pytest.skip("Sedona has no release for this Spark")
    geometry = shapely.set_srid(shapely.Point(1, 2), 4326)
    row = spark.range(1).select(F.call_function("ST_SRID", F.lit(geometry)), F.lit(geometry)).first()
    assert row[0] == 4326
    assert row[1].equals(geometry)
