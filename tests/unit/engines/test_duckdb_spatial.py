"""Spatial conditions of DuckDB: those of its extension, and of shapely's functions registered there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_spatial as extension
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import geoskip
from geoskip.errors import InvalidSpecificationError

ODD = ["POINT EMPTY", "POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))", None, "POINT (nan 1)"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid of 5 by 5 files with forty points and small polygons each, and one with odd geometries."""
    folder = tmp_path_factory.mktemp("grid")
    random = np.random.default_rng(3)
    for x in range(5):
        for y in range(5):
            lng, lat = x + random.random(40), y + random.random(40)
            shapes = [shapely.Point(a, b).buffer(0.2) for a, b in zip(lng, lat, strict=True)]
            write(folder / f"{x}{y}.parquet", lng, lat, shapely.to_wkb(shapes))
    odd = [None if text is None else shapely.from_wkt(text).wkb for text in ODD]
    write(folder / "odd.parquet", [None, np.nan, np.inf, 1.0], [1.0, 1.0, 1.0, None], odd)
    geoskip.build(folder, [geoskip.GeoBox("lng", "lat"), geoskip.GeoBox("ST_GeomFromWKB(geom)")])
    return folder


def write(path: Path, lng: Any, lat: Any, geom: Any) -> None:
    table = pa.table({"lng": pa.array(lng, pa.float64()), "lat": pa.array(lat, pa.float64()), "geom": list(geom)})
    pq.write_table(table.set_column(2, "geom", table["geom"].cast(pa.binary())), path)


@pytest.fixture(params=["extension", "shapely"])
def con(request: pytest.FixtureRequest) -> Any:
    with geoskip.duckdb(duckdb.connect()) as connection:
        if request.param == "extension":
            (file,) = Path(extension.__file__).parent.glob("extensions/v*/spatial.duckdb_extension")
            connection.execute(f"LOAD '{file}'")
        else:
            assert "st_contains" in connection.register_functions()
        yield connection


SQUARE = "ST_GeomFromText('POLYGON ((1.2 1.2, 1.8 1.2, 1.8 1.8, 1.2 1.8, 1.2 1.2))')"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "most"),
    [
        (f"ST_Contains({SQUARE}, ST_Point(lng, lat))", 2),
        (f"ST_Within(ST_Point(lng, lat), {SQUARE})", 2),
        (f"NOT ST_Contains({SQUARE}, ST_Point(lng, lat))", 26),
        (f"ST_Disjoint(ST_Point(lng, lat), {SQUARE})", 26),
        (f"ST_Intersects(ST_GeomFromWKB(geom), {SQUARE})", 10),
        (f"ST_Intersects({SQUARE}, ST_GeomFromWKB(geom)) AND lng > 1", 10),
        (f"ST_Touches(ST_GeomFromWKB(geom), {SQUARE}) OR ST_Overlaps(ST_GeomFromWKB(geom), {SQUARE})", 10),
        ("ST_Distance(ST_Point(lng, lat), ST_Point(0.5, 0.5)) < 0.5", 5),
        ("0.5e0 >= ST_Distance(ST_Point(lng, lat), ST_Point(0.5, 0.5))", 5),
        ("ST_Distance(ST_Point(lng, lat), ST_Point(0.5, 0.5)) BETWEEN 0.25 AND 0.5", 5),
        ("ST_Distance(ST_Point(lng, lat), ST_Point(0.5, 0.5)) > 5", 6),
        ("ST_DWithin(ST_Point(lng, lat), ST_Point(4.5, 4.5), 0.5)", 5),
        ("ST_DWithin(ST_GeomFromWKB(geom), ST_GeomFromText('LINESTRING (4 4, 4.5 4.5)'), 0)", 5),
        ("ST_Distance(ST_Point(3.5, 3.5), ST_GeomFromWKB(geom)) < 0.1", 10),
        ("ST_Covers(ST_MakeEnvelope(2, 2, 3, 3), ST_GeomFromWKB(geom))", 10),
        ("ST_Contains(ST_GeomFromWKB(geom), ST_Point(3.5, 3.5))", 10),
        ("ST_Equals(ST_GeomFromWKB(geom), ST_GeomFromText('POINT EMPTY'))", 26),
        (f"NOT ST_Disjoint(ST_MakePoint(lng, lat), {SQUARE})", 2),
    ],
)
def test_spatial_conditions_read_fewer_files_and_find_the_same_rows(
    con: Any, folder: Path, condition: str, most: int
) -> None:
    query = f"SELECT lng, lat, hex(geom) FROM '{folder}/*.parquet' WHERE {condition}"
    try:
        alone = con.connection.execute(query).fetchall()
    except duckdb.Error:  # GEOS fails on an invalid geometry
        query = query.replace("*.parquet", "[0-9]*.parquet")
        alone = con.connection.execute(query).fetchall()
    assert list(map(repr, con.execute(query).fetchall())) == list(map(repr, alone))
    (scan,) = con.report.scans
    assert alone or "Equals" in condition
    assert scan.files_kept <= most, con.report


def test_a_column_of_geometries_is_one_of_wkb(folder: Path, tmp_path: Path) -> None:
    import geopandas

    for number in range(4):
        frame = geopandas.GeoDataFrame(geometry=[shapely.Point(number, 0)], crs="EPSG:4326")
        frame.to_parquet(tmp_path / f"{number}.parquet")
    geoskip.build(tmp_path, [geoskip.GeoBox("ST_GeomFromWKB(geometry)")])
    with geoskip.duckdb(duckdb.connect()) as con:
        (file,) = Path(extension.__file__).parent.glob("extensions/v*/spatial.duckdb_extension")
        con.execute(f"LOAD '{file}'")
        with pytest.raises(InvalidSpecificationError, match="functions of its own"):
            con.register_functions()
        box = "ST_MakeEnvelope(1.5, -1, 9, 1)"
        query = f"SELECT ST_X(geometry) FROM '{tmp_path}/*.parquet' WHERE ST_Within(geometry, {box})"
        assert con.execute(query).fetchall() == [(2.0,), (3.0,)]
        assert con.report.files_kept == 2
        cast = "'POLYGON ((1.5 -1, 9 -1, 9 1, 1.5 1, 1.5 -1))'::GEOMETRY"
        assert con.execute(query.replace(box, cast)).fetchall() == [(2.0,), (3.0,)]
        assert con.report.files_kept == 2
        con.execute("CREATE MACRO st_makeenvelope(a, b, c, d) AS ST_GeomFromText('POINT (0 0)')")
        assert con.execute(query).fetchall() == [(0.0,)]
        assert con.report.files_kept == 4


@pytest.mark.parametrize("condition", ["ST_Distance(g, {}) < 1", "ST_DWithin({}, g, 1)"])
def test_a_distance_of_polygons_that_duckdb_takes_for_zero_is_not_used(tmp_path: Path, condition: str) -> None:
    for n in range(3):
        box = shapely.box(0, 10 * n, 1, 10 * n + 1).wkb
        pq.write_table(pa.table({"n": [n], "g": pa.array([box], pa.binary())}), tmp_path / f"{n}.parquet")
    geoskip.build(tmp_path, [geoskip.GeoBox("ST_GeomFromWKB(g)")])
    with geoskip.duckdb(duckdb.connect()) as con:
        (file,) = Path(extension.__file__).parent.glob("extensions/v*/spatial.duckdb_extension")
        con.execute(f"LOAD '{file}'")
        condition = condition.replace("g", "ST_GeomFromWKB(g)").format("ST_MakeEnvelope(0, 0, 1, 1)")
        query = f"SELECT n FROM '{tmp_path}/*.parquet' WHERE {condition} ORDER BY n"
        assert con.execute(query).fetchall() == con.connection.execute(query).fetchall()
        assert con.report.files_kept == 3


def test_a_function_may_be_null_where_no_argument_is() -> None:
    with geoskip.duckdb(duckdb.connect()) as con:
        con.register_functions()
        shapes = "VALUES ('POINT (1 2)'), ('POINT EMPTY'), ('LINESTRING (0 0, 1 1)'), (NULL)"
        query = f"SELECT ST_X(ST_GeomFromText(s)), ST_YMax(ST_GeomFromText(s)) FROM ({shapes}) v(s)"
        assert con.execute(query).fetchall() == [(1.0, 2.0), (None, None), (None, 1.0), (None, None)]
        assert con.execute("SELECT ST_AsText(ST_Point('nan'::DOUBLE, 0))").fetchall() == [(None,)]


def test_functions_of_other_meaning_are_not_used(folder: Path) -> None:
    """Without the extension and without ours, a function of such a name is anyone's."""
    condition = "st_contains(st_point(9, 9), st_point(lng, lat))"
    with geoskip.duckdb(duckdb.connect()) as con:
        con.connection.create_function("st_contains", lambda a, b: True, ["DOUBLE", "DOUBLE"], "BOOLEAN")
        con.connection.create_function("st_point", lambda x, y: x, ["DOUBLE", "DOUBLE"], "DOUBLE")
        ((count,),) = con.execute(f"SELECT count(*) FROM '{folder}/*.parquet' WHERE {condition}").fetchall()
        assert (count > 1000, con.report.files_kept) == (True, 26)
