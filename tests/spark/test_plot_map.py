"""``scan.plot_map()`` of queries that ran: which rows it draws, and what it leaves as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from matplotlib import pyplot

import geoskip
from geoskip import GeoBox, MinMax

pytestmark = pytest.mark.spark

SQUARE = "ST_GeomFromText('POLYGON ((0 0, 3 0, 3 3, 0 3, 0 0))')"


@pytest.fixture(scope="module")
def views(spark: Any, plain: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The view ``places`` in both sessions: four files of nine points on a grid, ten degrees apart."""
    place = tmp_path_factory.mktemp("maps") / "places"
    place.mkdir()
    for number in range(4):
        grid = [(10 * number + x, y) for x in range(3) for y in range(3)]
        columns = {"lng": [float(x) for x, _ in grid], "lat": [float(y) for _, y in grid], "id": list(range(9))}
        wkt = [shapely.Point(x, y).wkt for x, y in grid]
        pq.write_table(pa.table({**columns, "wkt": wkt}), place / f"part-{number}.parquet")
    geoskip.dataset(plain, str(place)).create_index(GeoBox("lng", "lat"), GeoBox("ST_GeomFromText(wkt)"), MinMax("id"))
    for session in (spark, plain):
        session.read.parquet(str(place)).createOrReplaceTempView("places")
    return place


@pytest.fixture(autouse=True)
def no_windows(views: Path) -> Iterator[None]:
    mpl.use("agg")
    yield
    pyplot.close("all")


def drawn(frame: Any, **options: Any) -> tuple[list[str], Any]:
    """The legend of a query's map, and the scan."""
    frame.collect()
    (scan,) = geoskip.report(frame).scans
    ax = scan.plot_map(**options)
    return [text.get_text() for text in ax.get_legend().get_texts()], scan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "kept", "rows"),
    [
        (f"ST_Contains({SQUARE}, ST_Point(lng, lat)) AND id % 2 = 0", 1, 2),
        ("ST_DistanceSphere(ST_Point(lng, lat), ST_Point(11, 1)) < 120000", 1, 5),
        (f"ST_Intersects({SQUARE}, ST_GeomFromText(wkt))", 1, 9),
        ("lng BETWEEN 10 AND 21 AND lat > 1", 2, 5),
    ],
    ids=["in a polygon, and more", "within a distance", "of WKT", "coordinates"],
)
def test_the_rows_that_matched_are_drawn(plain: Any, condition: str, kept: int, rows: int) -> None:
    frame = plain.sql(f"SELECT id FROM places WHERE {condition}")
    assert frame.count() == rows
    index = "geobox(ST_GeomFromText(wkt))" if "wkt)" in condition else "geobox(lng, lat)"
    legend, scan = drawn(frame, index=index)
    assert scan.files_kept == kept
    assert legend[:2] == [f"skipped: {4 - kept} files", f"kept: {kept} file" + ("s" if kept > 1 else "")]
    assert legend[2:] == ["the query", f"{rows} matching rows"]


def test_rows_are_chosen_among_all_that_matched(plain: Any) -> None:
    frame = plain.sql("SELECT id FROM places WHERE lat > 0")
    frame.collect()
    (scan,) = geoskip.report(frame).scans
    some = scan.rows(["lng", "id + 1"], 6)
    assert len(some) == 6
    assert len({lng // 10 for lng, _ in some}) > 1, "not those of the first file alone"
    assert all(isinstance(number, int) for _, number in some)


def test_a_map_leaves_no_trace_in_reports(plain: Any) -> None:
    frame = plain.sql("SELECT id FROM places WHERE lng > 25")
    frame.collect()
    before = len(geoskip.reports(plain))
    last = geoskip.last_report(plain)
    assert last.scans[0].plot_map().get_title("left").startswith("places: 1 of 4 files kept")
    assert str(geoskip.last_report(plain)) == str(last)
    assert len(geoskip.reports(plain)) == before


def test_rows_that_cannot_be_read_again_are_not_drawn(plain: Any) -> None:
    frame = plain.sql("SELECT id FROM places WHERE lng > 5 AND (id IN (SELECT max(id) - 5 FROM places) OR id < 0)")
    legend = [
        text.get_text() for text in next(s for s in _scans(frame) if s.files_kept == 3).plot_map().get_legend().texts
    ]
    assert legend == ["skipped: 1 file", "kept: 3 files", "the query"]
    frame = plain.sql("SELECT id FROM places WHERE lng > 15")
    frame.collect()
    (scan,) = geoskip.report(frame).scans
    with pytest.warns(UserWarning, match="could not be read again, so none are drawn: .*no_such"):
        assert scan.rows(["no_such_column"], 5) == []


def _scans(frame: Any) -> tuple[geoskip.Scan, ...]:
    frame.collect()
    return geoskip.report(frame).scans


def test_queries_of_sedona_are_drawn_too(spark: Any) -> None:
    legend, scan = drawn(spark.sql(f"SELECT id FROM places WHERE ST_Contains({SQUARE}, ST_Point(lng, lat))"))
    assert (scan.files_kept, legend[-1]) == (1, "4 matching rows")
