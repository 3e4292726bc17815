"""GeoBox serves what is computed from its coordinates, box by box, with Spark's own results."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import GeoBox, MinMax
from tests.conftest import files_kept, holding_files, kept

pytestmark = pytest.mark.spark

PLACES = [(-100.0, -40.0), (-60.0, 10.0), (0.0, 50.0), (47.25, 8.5)]
HAVERSINE = """6371 * 2 * asin(sqrt(pow(sin(radians(lat - 50) / 2), 2)
    + cos(radians(50)) * cos(radians(lat)) * pow(sin(radians(lng - 1) / 2), 2)))"""
SQUARE = """(sin((50 - lat) * pi() / 360) * sin((50 - lat) * pi() / 360)
    + cos(radians(lat)) * cos(radians(50)) * pow(sin((lng - 1) * pi() / 360), 2))"""
BY_TANGENT = f"6371 * 2 * atan2(sqrt({SQUARE}), sqrt(1 - {SQUARE}))"
BY_COSINES = """6371 * acos(sin(radians(50)) * sin(radians(lat))
    + cos(radians(50)) * cos(radians(lat)) * cos(radians(lng) - radians(1)))"""
KEPT = {
    "lat * 2 + 1 > 90": "2 far half nan",
    "abs(lng) < 10": "2 far half nan",
    "NOT (abs(lng) >= 10)": "2 far half nan",
    "lng + lat > 100": "far nan",
    "lng - lat BETWEEN 30 AND 45": "3 nan",
    "abs(lng + lat) < 1": "nan",
    "lng * lat > 3500": "0 far nan none",
    "lng + 1 < lat - 200": "nan",
    "floor(lng) = 47": "3 half nan",
    "round(lng, 1) BETWEEN 47.1 AND 47.4": "3 half nan",
    "try_cast(lat AS int) IN (9, 8)": "3 far half nan",
    "NOT (floor(lat) IN (9, 8))": "0 1 2 3 far half nan none",
    "-lat > 39": "0 half nan none",
    "sqrt(abs(lat)) > 7.1": "2 far half nan",
    "sqrt(pow(lng - 1, 2) + pow(lat - 51, 2)) < 2": "2 nan",
    "power(lng - 1, 2) + (lat - 51) * (lat - 51) < 4": "2 nan",
    "NOT (sqrt(pow(lng, 2) + pow(lat, 2)) < 100)": "0 far nan none",
    "sqrt(pow(i - 48, 2) + pow(j - 9, 2)) <= 2": "3",
    "sqrt((m - 9) * (m - 9) + (p - 12) * (p - 12)) < 1.5": "3",
    "sqrt(pow(p - 12, 2) + pow(m - 9, 2)) < 1.5": "3",
    **{
        f"{text} {op}": reads
        for text in (HAVERSINE, BY_TANGENT, BY_COSINES)
        for op, reads in (("< 150", "2 nan"), ("> 13000", "0 nan none"), ("BETWEEN 5800 AND 6100", "3 nan"))
    },
    "(lat + lng) IS NULL": "half none nulls",
    "(lat * 2) IS NULL": "half none nulls",
    "(lat * 2) IS NOT NULL": "0 1 2 3 far half nan none",
    "isnan(lat * 2)": "half nan",
    "i * 3 > 140": "3 far half nan",
    "abs(j - 8) <= 1": "3 far half",
    "i div 10 = 4 AND j % 100 = 8": "3",
    "n + n > 5": "3 far half nan",
    "i + j > 100": "far",
    "i - j BETWEEN 35 AND 45": "3",
    "i * j > 3000": "0 far none",
    "n + k > 9007199254740000": "far",
    "p + m > 13": "2 3 far",
    "f + g > 100F": "far nan",
    "f * g > 3500F": "0 far nan none",
    "2 * lng + 3 * lat > 200": "far nan",
    "n * 2 > 18014398509481980": "far half nan",
    "m + 1.5 > 51": "2 far half",
    "abs(m) * 2 < 25": "1 3 far half nan",
    "f * 2 > 100F": "far half nan",
    "abs(lng + 60) < 3 AND abs(lat - 10) < 3": "1 nan",
    "abs(lng + 60) < 3 AND lat > 45": "nan",
    "abs(lng - 500) < 3 AND lat BETWEEN 49 AND 52": "far nan",
    "abs(lng - 500) < 3 AND floor(lat) BETWEEN 8 AND 12": "nan",
    "abs(lng - 500) < 3 AND ST_Contains(ST_GeomFromText('POLYGON((0 0, 9 0, 9 99, 0 0))'), ST_Point(lng, lat))": "nan",
}
"""A condition -> the files read: four around a place each, one with two places, NULLs in one coordinate, NaN, ..."""


def around(place: tuple[float, float], number: int) -> list[tuple[float, float]]:
    rng = np.random.default_rng(number)
    return [(place[0] + round(x, 3), place[1] + round(y, 3)) for x, y in rng.uniform(0, 2, (20, 2))]


def table_of(rows: list[tuple[float | None, float | None]]) -> pa.Table:
    x, y = ([row[axis] for row in rows] for axis in (0, 1))
    whole = [[None if v is None or math.isnan(v) else int(v) for v in values] for values in (x, y)]
    exact = [[None if v is None else Decimal(v) / 4 for v in values] for values in whole]
    large = [None if v is None else 2**53 + 1 if v >= 500 else v for v in whole[0]]
    return pa.table(
        {
            "lng": pa.array(x, pa.float64()),
            "lat": pa.array(y, pa.float64()),
            "i": pa.array(whole[0], pa.int32()),
            "j": pa.array(whole[1], pa.int32()),
            "n": pa.array(large, pa.int64()),
            "k": pa.array(whole[1], pa.int64()),
            "m": pa.array([None if v is None else v * 4 for v in exact[1]], pa.decimal128(10, 2)),
            "p": pa.array(exact[0], pa.decimal128(10, 2)),
            "f": pa.array(x, pa.float32()),
            "g": pa.array(y, pa.float32()),
        }
    )


PAIRS = [GeoBox("lng", "lat"), GeoBox("i", "j"), GeoBox("n", "k"), GeoBox("p", "m"), GeoBox("f", "g")]


@pytest.fixture(scope="module")
def frame(plain: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("boxes") / "data"
    root.mkdir()
    files: dict[str, list[Any]] = {str(number): around(place, number) for number, place in enumerate(PLACES)}
    files["far"] = [*around((500.0, 50.0), 8), *around((0.5, 9.0), 9)]
    files["half"] = [(-100.5, None), (None, 48.0)]
    files["nan"] = [(-60.0, math.nan), (-61.0, 10.0)]
    files["nulls"] = [(None, None)]
    files["none"] = [*around((-100.0, -40.0), 7), (None, None)]
    for name, rows in files.items():
        pq.write_table(table_of(rows), root / f"{name}.parquet")
    geoskip.dataset(plain, str(root)).create_index(*PAIRS)
    return plain.read.parquet(str(root))


@pytest.mark.slow
def test_what_is_computed_from_coordinates_is_served_box_by_box(frame: Any) -> None:
    found = {text: kept(geoskip.explain(frame.where(text))) for text in KEPT}
    needed = holding_files(frame, list(KEPT))
    assert [text for text, files in found.items() if not {*needed[text]} <= {*files.split()}] == []
    assert [(t[:30], t[-20:], f) for t, f in found.items() if f != KEPT[t]] == []


def test_numbers_are_compared_with_what_they_were_rounded_to(plain: Any, parts: Callable[..., Path]) -> None:
    rows = [("0.10", 2**53 - 5, "99999999.99"), ("0.30", 2**53 + 1, "-99999999.99")]
    kind = pa.decimal128(10, 2)
    tables = ({"p": pa.array([Decimal(p)], kind), "n": [n], "q": pa.array([Decimal(q)], kind)} for p, n, q in rows)
    root = parts(*map(pa.table, tables))
    geoskip.dataset(plain, str(root)).create_index(GeoBox("CAST(p AS double)", "CAST(n AS double)"), GeoBox("q", "p"))
    conditions = {"p <= 0.10": 1, "p >= 0.30": 1, "n > 9007199254740992": 1, "n < 9007199254740990": 1, "p <> 0.1": 1}
    conditions |= {"floor(q) > 6": 1, "q * 2 < 6": 1}  # no bound has more digits than the type
    assert files_kept(plain.read.parquet(str(root)), conditions) == conditions


OF_TWO = {
    **{
        f"{text} {op}": reads
        for text in (HAVERSINE, BY_TANGENT, BY_COSINES)
        for op, reads in (("< 150", "2 far"), ("> 13000", "0 far nan none"), ("BETWEEN 5800 AND 6100", "3 far"))
    },
    "lng + lat > 100": "far nan",
    "NOT (lng + lat <= 100)": "far nan",
    "abs(lng + lat) < 1": "",
    "i * j > 3000": "0 far none",
    "f - g BETWEEN 30 AND 45": "3 far nan",
    "sqrt(pow(lng - 1, 2) + pow(lat - 51, 2)) < 2": "2 far",
    "(lat + lng) IS NULL": "half none nulls",
    "n + k > 100": "far",
}
"""As above, with the bounds of each column alone: ``far`` is two places, between which anything may be."""


def test_what_is_computed_from_two_columns_is_bounded_by_both(plain: Any, frame: Any, tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    for path in frame.inputFiles():
        shutil.copy(path.removeprefix("file://"), root)
    geoskip.dataset(plain, str(root)).create_index(*map(MinMax, ("lng", "lat", "i", "j", "f", "g", "n", "k")))
    single = plain.read.parquet(str(root))
    found = {text: kept(geoskip.explain(single.where(text))) for text in OF_TWO}
    needed = holding_files(single, list(OF_TWO))
    assert [text for text, files in found.items() if not {*needed[text]} <= {*files.split()}] == []
    assert [(t[:30], t[-20:], f) for t, f in found.items() if f != OF_TWO[t]] == []


def test_two_columns_are_compared(plain: Any, parts: Callable[..., Path]) -> None:
    hours = [[(8, 9), (10, 12)], [(8, 8)], [(20, 3)], [(None, 5), (7, None)]]
    tables = []
    for rows in hours:
        start, end = ([None if v is None else v * 3_600_000_000 for v in axis] for axis in zip(*rows, strict=True))
        low, high = ([None if v is None else Decimal(v) for v in axis] for axis in zip(*rows, strict=True))
        times, kind = pa.timestamp("us", "UTC"), pa.decimal128(10, 2)
        days = [
            pa.array([None if v is None else v // 3_600_000_000 for v in axis], pa.date32()) for axis in (start, end)
        ]
        columns = {"start": pa.array(start, times), "end": pa.array(end, times), "low": pa.array(low, kind)}
        tables.append(pa.table({**columns, "high": pa.array(high, kind), "first": days[0], "last": days[1]}))
    root = parts(*tables)
    geoskip.dataset(plain, str(root)).create_index(*map(MinMax, ("start", "end", "low", "high", "first", "last")))
    conditions = {
        "start < end": 1,
        "NOT (start < end)": 4,
        "start = end": 2,
        "low >= high": 4,
        "first < last": 1,
        "first + 1 < last": 1,
        "high - low > 3": 1,
        "datediff(last, first) > 1": 1,
        "unix_timestamp(end) - unix_timestamp(start) > 4000": 1,
        "end - start > INTERVAL 70 MINUTES": 1,
        "hour(start) > hour(end)": 3,
    }
    assert files_kept(plain.read.parquet(str(root)), conditions) == conditions
