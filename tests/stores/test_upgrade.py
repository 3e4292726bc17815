"""Metadata that an earlier version wrote are read: those of 0.1.0, with an index of every type.

``metadata_0_1`` was built through PySpark 4.0.5 as ``/data/upgrade`` and is never built anew: a later version that
writes another format adds a folder beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import geoskip
from geoskip.errors import MetadataError
from geoskip.metadata import FORMAT
from tests.conftest import kept, same_as_off

WRITTEN = Path(__file__).parent / "metadata_0_1"
WHERE = {
    "minmax(id)": "id = 15",
    "minmax(temp)": "temp > 5 AND temp < 9",
    "minmax(at)": "at = TIMESTAMP '2024-01-16 00:00:00'",
    "minmax(price)": "price BETWEEN 10.10 AND 19.00",
    "gaplist(id)": "id = 15",
    "valuelist(city)": "city LIKE '%y 15'",
    "bloomfilter(id)": "id = 15",
    "hybrid(city)": "city = 'city 15'",
    "prefix(city)": "city LIKE 'city 15%'",
    "suffix(city)": "city LIKE '%15'",
    "geobox(lng, lat)": "ST_Contains(ST_GeomFromText('POLYGON ((14 7, 16 7, 16 9, 14 9, 14 7))'), ST_Point(lng, lat))",
}
"""A condition for each index that it alone can answer, with rows of the second file."""
BY_SPARK = {
    "metricdist(city, metric=levenshtein)": "levenshtein(city, 'city 15') = 0",
    "metricdist(temp, metric=euclidean)": "abs(temp - 7.5) < 0.4",
    "metricdist(lng, lat, metric=haversine)": "ST_DistanceSphere(ST_Point(lng, lat), ST_Point(15, 7.5)) < 1000",
    "minmax(year(at))": "year(at) = 2023",
    r"formatted(agent, template=(?<browser>Firefox|Chrome)/(?<version>\d+))": (
        r"regexp_extract(agent, '(?<browser>Firefox|Chrome)/(?<version>\\d+)', 2) = '1'"
    ),
}
"""The same where Spark names the functions; of the year no file has a row."""

ETAGS = {
    "part-0": "2891-1795734061160012781-13221891",
    "part-1": "2914-1795734061161409227-13221892",
    "part-2": "2900-1795734061173745388-13221893",
    "part-3": "2913-1795734061181745388-13221894",
}
"""What the metadata have of the files beside size and time: size, time of the inode's change, inode."""


def placed(folder: Path, *names: str) -> Path:
    """The dataset in another folder, as if it had been indexed there, with these indexes alone."""
    shutil.copytree(WRITTEN, folder, copy_function=shutil.copy)
    for number in range(4):
        os.utime(folder / f"part-{number}.parquet", (1_700_000_000 + number,) * 2)
    (entry,) = (folder / "_geoskip" / "_log").rglob("*.json")
    header = json.loads(entry.read_bytes())["header"]
    header |= {"root": f"file:{folder}", "source": {**header["source"], "path": str(folder)}}
    header["indexes"] = [index for index in header["indexes"] if index["name"] in (names or WHERE | BY_SPARK)]
    text = json.dumps(header, sort_keys=True, separators=(",", ":"))
    entry.write_text(json.dumps({"crc": zlib.crc32(text.encode("ascii")), "header": header}))
    return folder


@pytest.mark.parametrize("name", WHERE)
def test_each_index_answers_without_spark(name: str, tmp_path: Path) -> None:
    """As where the files had stayed in their place: a copy has other inodes, and is read until the next refresh."""
    folder = placed(tmp_path / "data", name)
    listing = geoskip.listing(folder)
    etags = pa.array([ETAGS[Path(path).stem] for path in listing.path.to_pylist()])
    found = geoskip.files(folder, WHERE[name], listing=replace(listing, etag=etags, token=-1), time_zone="UTC")
    assert [Path(file.path).stem for file in found] == ["part-1"], found.report
    assert len(geoskip.files(folder, WHERE[name])) == 4


def test_all_summaries_are_read(tmp_path: Path) -> None:
    rows = geoskip.statistics(placed(tmp_path / "data")).to_pylist()
    assert {row["index_name"] for row in rows} == WHERE.keys() | BY_SPARK.keys()
    for row in rows:
        assert row["row_count"] == 10, row
    years = [row["max_value"] for row in rows if row["index_name"] == "minmax(year(at))"]
    assert years == ["2024"] * 4


def test_a_refresh_goes_on_with_the_recorded_indexes(tmp_path: Path) -> None:
    folder = placed(tmp_path / "data", *WHERE)
    assert geoskip.build(folder).read == 4
    for name, where in WHERE.items():
        found = geoskip.files(folder, where, time_zone="UTC")
        assert [Path(file.path).stem for file in found] == ["part-1"], name


def test_a_newer_format_is_left_alone(tmp_path: Path) -> None:
    folder = placed(tmp_path / "data")
    (entry,) = (folder / "_geoskip" / "_log").rglob("*.json")
    entry.write_text(entry.read_text().replace(f'"format": {FORMAT}', f'"format": {FORMAT + 1}'))
    assert len(geoskip.files(folder, "id = 15")) == 4
    with pytest.raises(MetadataError):
        geoskip.build(folder, geoskip.MinMax("lat"))


@pytest.mark.slow
def test_spark_repairs_what_was_copied_and_uses_it(plain: Any, tmp_path: Path) -> None:
    folder = placed(tmp_path / "data")
    dataset = geoskip.dataset(plain, str(folder))
    dataset.repair()
    assert {str(index) for index in dataset.indexes} == WHERE.keys() | BY_SPARK.keys()
    frame = plain.read.parquet(str(folder))
    for name, where in BY_SPARK.items():
        report = same_as_off(lambda where=where: frame.where(where))
        assert kept(report) == ("" if "year" in name else "part-1"), name
        assert "metricdist" not in name or "metricdist" in str(report), name
