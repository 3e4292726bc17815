"""geoskip.read_geoparquet: the rows of GeoPandas over a folder, from fewer files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import geopandas
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from pandas.testing import assert_frame_equal

import geoskip
from geoskip.errors import (
    DatasetNotFoundError,
    InvalidSpecificationError,
    UnknownColumnError,
    UnsupportedColumnError,
)
from tests.support.indexed_files import write_indexed
from tests.support.odd_datasets import make_delta, require_feature

SHAPES = [
    lambda x: shapely.Point(x, 1),
    lambda x: shapely.Polygon([(x, 0), (x + 0.5, 0), (x + 0.5, 3), (x, 3)]),
    lambda x: shapely.LineString([(x, 0), (x + 0.9, 5)]),
    lambda x: shapely.Point(),
    lambda x: None,
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten GeoParquet files, each of five shapes around x = 0 to 9, in partitions of two types."""
    for number in range(10):
        frame = geopandas.GeoDataFrame(
            {"n": np.arange(5) + 5 * number}, geometry=[shape(number) for shape in SHAPES], crs="EPSG:4326"
        )
        path = tmp_path / "d" / f"p={number % 2}" / f"q={'x' if number else 7}" / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.to_parquet(path, write_covering_bbox=True)
    return tmp_path / "d"


MASKS = {
    "a polygon": shapely.Polygon([(2.2, 0), (4.1, 0), (4.1, 2), (2.2, 2)]),
    "a box": (2.2, 0, 4.1, 2),
    "a point": shapely.Point(3.25, 3),
    "shapes of two places": geopandas.GeoSeries([shapely.Point(0, 1), shapely.Point(9, 1)]),
    "another CRS": geopandas.GeoSeries([shapely.box(2.2, 0, 4.1, 2)], crs="EPSG:4326").to_crs("EPSG:3857"),
    "nothing there": shapely.box(50, 50, 51, 51),
    "EMPTY": shapely.Polygon(),
    "all": None,
}


def alone(folder: Path, mask: Any, **options: Any) -> geopandas.GeoDataFrame:
    """The rows by GeoPandas alone."""
    frame = geopandas.read_parquet(folder, **options)
    if mask is None:
        return frame
    if isinstance(mask, tuple):
        mask = shapely.box(*mask)
    elif not isinstance(mask, shapely.Geometry):
        mask = (mask if mask.crs is None else mask.to_crs(frame.crs)).union_all()
    return frame[frame.intersects(mask)].reset_index(drop=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mask", "files"), list(zip(MASKS.values(), [3, 3, 1, 2, 3, 0, 10, 10], strict=True)), ids=MASKS
)
def test_rows_are_those_of_geopandas_from_files_that_meet_the_mask(folder: Path, mask: Any, files: int) -> None:
    found = geoskip.read_geoparquet(folder, mask)
    assert_frame_equal(found, alone(folder, mask))
    assert found.crs == "EPSG:4326"
    report = found.attrs["geoskip"]
    assert (report["files_kept"], report["files_total"]) == (files, 10)


def test_options_are_those_of_geopandas(folder: Path) -> None:
    mask = MASKS["a box"]
    found = geoskip.read_geoparquet(folder, mask, columns=["geometry", "n"], filters=[("n", ">", 15)])
    assert_frame_equal(found, alone(folder, mask, columns=["geometry", "n"], filters=[("n", ">", 15)]))
    assert list(found["n"]) == [20, 21, 22, 16, 17]


def test_an_index_of_the_files_is_kept(tmp_path: Path) -> None:
    for number in range(3):
        frame = geopandas.GeoDataFrame(
            {"n": [1, 2]},
            geometry=[shapely.Point(number, 0), shapely.Point(number, 1)],
            index=[f"a{number}", f"b{number}"],
        )
        frame.to_parquet(tmp_path / f"{number}.parquet")
    found = geoskip.read_geoparquet(tmp_path, (1, 1, 2, 2))
    assert list(found.index) == ["b1", "b2"]
    assert found.attrs["geoskip"]["files_kept"] == 2


def test_a_box_in_a_file_is_believed_only_where_it_is_one(tmp_path: Path) -> None:
    def write(number: int, box: Any) -> None:
        table = pa.table({"geometry": [shapely.Point(number, 0).wkb]})
        column = {"encoding": "WKB", "geometry_types": [], **({} if box is None else {"bbox": box})}
        about = f'{{"version": "1.0.0", "primary_column": "geometry", "columns": {{"geometry": {column}}}}}'
        pq.write_table(table.replace_schema_metadata({"geo": about.replace("'", '"')}), tmp_path / f"{number}.parquet")

    for number, box in enumerate([None, [170, 0, -170, 0], [2, 0, 2], [9, 9, 9, 9], [4, 0, -5, 4, 0, 5]]):
        write(number, box)
    found = geoskip.read_geoparquet(tmp_path, shapely.LineString([(0, 0), (4, 0)]))
    assert [point.x for point in found.geometry] == [0, 1, 2, 4]
    bow_tie = shapely.Polygon([(-1, -1), (5, 1), (5, -1), (-1, 1)])
    assert geoskip.read_geoparquet(tmp_path, bow_tie).attrs["geoskip"]["files_kept"] == 4


def test_points_are_made_of_two_columns(tmp_path: Path) -> None:
    tables = {
        f"{n}.parquet": pa.table({"lng": np.arange(5) + 5.0 * n, "lat": [0.0, 1, 2, np.nan if n == 5 else 9, None]})
        for n in range(6)
    }
    write_indexed(tmp_path, tables, {"lng": "double", "lat": "double"}, [geoskip.GeoBox("lng", "lat")])
    found = geoskip.read_geoparquet(tmp_path, (10.5, 0, 13, 3), points=("lng", "lat"), crs="EPSG:4326")
    plain = pandas.read_parquet(tmp_path)
    every = geopandas.GeoDataFrame(plain, geometry=geopandas.points_from_xy(plain.lng, plain.lat), crs="EPSG:4326")
    assert_frame_equal(found, every[every.intersects(shapely.box(10.5, 0, 13, 3))].reset_index(drop=True))
    assert [list(row) for row in found[["lng", "lat"]].to_numpy()] == [[11, 1], [12, 2]]
    assert found.attrs["geoskip"]["files_kept"] == 2  # the other has a NaN
    only = geoskip.read_geoparquet(tmp_path, (10.5, 0, 13, 3), points=("lng", "lat"), columns=["lat"])
    assert list(only.columns) == ["lat", "geometry"]
    (tmp_path / "5.parquet").unlink()
    none = geoskip.read_geoparquet(tmp_path, (90, 0, 91, 3), points=("lng", "lat"))
    assert (len(none), none.attrs["geoskip"]["files_kept"]) == (0, 0)
    assert list(none.columns) == ["lng", "lat", "geometry"]


def test_what_cannot_be_read_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecificationError, match="in this order"):
        geoskip.read_geoparquet(folder, (4, 0, 2, 2))
    with pytest.raises(InvalidSpecificationError, match="in this order"):
        geoskip.read_geoparquet(folder, "POINT (1 1)")
    with pytest.raises(UnknownColumnError, match="there are geometry"):
        geoskip.read_geoparquet(folder, columns=["n"])
    with pytest.raises(DatasetNotFoundError):
        geoskip.read_geoparquet(folder / "none")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "plain.parquet")
    with pytest.raises(InvalidSpecificationError, match="points="):
        geoskip.read_geoparquet(tmp_path / "plain.parquet")
    with pytest.raises(UnknownColumnError, match="'lng'"):
        geoskip.read_geoparquet(tmp_path / "plain.parquet", points=("lng", "lat"))
    with pytest.raises(InvalidSpecificationError, match="takes two names of columns"):
        geoskip.read_geoparquet(tmp_path / "plain.parquet", points="x")  # type: ignore[arg-type]
    pq.write_table(pa.table({"x": ["1"]}), tmp_path / "texts.parquet")
    with pytest.raises(UnsupportedColumnError, match="takes columns of numbers, and 'x' is string"):
        geoskip.read_geoparquet(tmp_path / "texts.parquet", points=("x", "x"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidSpecificationError, match="no files"):
        geoskip.read_geoparquet(tmp_path / "empty")


def test_a_delta_table_has_the_rows_of_its_log_or_is_refused(tmp_path: Path) -> None:
    tables = {f"{n}.parquet": pa.table({"lng": np.arange(5) + 5.0 * n, "lat": np.arange(5.0)}) for n in range(4)}
    write_indexed(tmp_path / "d", tables, {"lng": "double", "lat": "double"}, [geoskip.GeoBox("lng", "lat")])
    make_delta(tmp_path / "d")
    deltalake.DeltaTable(tmp_path / "d").delete("lng >= 7 AND lng < 12")
    found = geoskip.read_geoparquet(tmp_path / "d", (3.5, -1, 14.5, 9), points=("lng", "lat"))
    assert sorted(found.lng) == [4, 5, 6, 12, 13, 14]
    assert found.attrs["geoskip"]["files_kept"] < found.attrs["geoskip"]["files_total"] == 3
    require_feature(tmp_path / "d", "deletionVectors")
    with pytest.raises(InvalidSpecificationError, match=r"read_geoparquet\(\) reads .* deletion vectors"):
        geoskip.read_geoparquet(tmp_path / "d", points=("lng", "lat"))
