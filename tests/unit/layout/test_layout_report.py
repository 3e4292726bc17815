"""Reports on layouts: which files overlap, the table, the picture."""

from __future__ import annotations

import json
from dataclasses import replace

import matplotlib
import pyarrow as pa
import pytest

from geoskip.errors import InvalidSpecificationError
from geoskip.indexes.base import SourceColumn
from geoskip.indexes.minmax import MinMax
from geoskip.layout.clustering import ranges_of
from geoskip.layout.layout_report import (
    LayoutOverlap,
    LayoutReport,
    layout_name,
    out_of_order,
    recorded_overlap,
    with_writes,
)
from geoskip.metadata import FileMetadata, FileRow, Header, IndexEntry, build_table

ONE, OTHER = (f"{digit}b6ea0d2-3c1c-4c4b-9d6a-8a3a5b2f1c11" for digit in "01")
INTEGER = SourceColumn("a", "int", pa.int32())
TEXT = SourceColumn("name", "string", pa.string())
ENTRIES = [
    IndexEntry(MinMax(column.text), ((column.text, column.type),), MinMax(column.text).metadata_type(column))
    for column in (INTEGER, TEXT)
]
LAYOUT = {"kind": "zorder", "expressions": ["a", "name"], "writes": [ONE]}


def files(*found: tuple[str, list[int], list[str]]) -> FileMetadata:
    """Files with the least and greatest ``a`` and ``name``."""
    rows = (
        FileRow(
            path,
            1024,
            1,
            None,
            2,
            {
                "minmax(a)": MinMax("a").collect(pa.array(a, pa.int32())),
                "minmax(name)": MinMax("name").collect(pa.array(name, pa.string())),
            },
        )
        for path, a, name in found
    )
    return FileMetadata.of(build_table(ENTRIES, rows))


def header(**layout: object) -> Header:
    return Header("file:/data", {}, tuple(ENTRIES), layout={**LAYOUT, **layout})


def overlap(found: FileMetadata, **layout: object) -> tuple[int, int]:
    result = recorded_overlap(header(**layout), found)
    assert result is not None
    return result.overlapping, result.files


ARRANGED = [(f"part-0000{n}-{ONE}-c000.parquet", [n, n + 5], ["a", "z"]) for n in range(3)]


def test_files_that_one_write_arranged_do_not_overlap():
    assert overlap(files(*ARRANGED)) == (0, 3)
    assert overlap(files(*ARRANGED), writes=[]) == (3, 3)
    assert overlap(files(*ARRANGED), writes=[OTHER]) == (3, 3)


def test_appended_files_overlap_where_all_columns_of_the_layout_do():
    beside = (f"part-00000-{OTHER}-c000.parquet", [40, 50], ["a", "z"])
    across = (f"part-00000-{OTHER}-c000.parquet", [0, 50], ["b", "c"])
    below = (f"part-00000-{OTHER}-c000.parquet", [0, 50], ["0", "1"])
    assert overlap(files(*ARRANGED, beside)) == (0, 4)
    assert overlap(files(*ARRANGED, below)) == (0, 4)
    assert overlap(files(*ARRANGED, across)) == (4, 4)
    assert "4 of 4 files (100 %) overlap others, 1 of them not arranged" in str(
        recorded_overlap(header(), files(*ARRANGED, across))
    )


def test_files_of_different_partitions_never_overlap():
    assert overlap(files(("day=1/x.parquet", [0, 9], ["a", "z"]), ("day=2/x.parquet", [0, 9], ["a", "z"]))) == (0, 2)


def test_without_an_index_of_its_columns_the_overlap_is_not_known():
    found = recorded_overlap(header(expressions=["lng"]), files(*ARRANGED))
    assert found is not None
    assert "create MinMax" in str(found)
    assert recorded_overlap(replace(header(), layout={}), files(*ARRANGED)) is None


def test_the_writes_that_arranged_files_are_recorded_beside_earlier_ones():
    paths = [f"day=1/part-00001-{OTHER}.c000.snappy.parquet", "data.parquet"]
    assert with_writes(LAYOUT, paths)["writes"] == [ONE, OTHER]
    assert with_writes({"kind": "sort"}, ["data.parquet"]) == {"kind": "sort", "writes": []}


@pytest.fixture
def report() -> LayoutReport:
    found = files(*(("day=1/" + path, a, name) for path, a, name in ARRANGED), ("day=2/b.parquet", [1], ["k"]))
    ranges = {text: ranges_of(found, f"minmax({text})") for text in ("a", "name")}
    table = found.table()
    flags = out_of_order(list(ranges.values()), table["path"].to_pylist(), [])
    known = LayoutOverlap(4, int(flags.sum()), ("a", "name"))
    return LayoutReport.of(
        "/d", layout_name(LAYOUT), table, ranges, overlap=known, out_of_order=flags, notes=("m: no",)
    )


def test_a_report_says_what_is_read_of_each_column_and_partition(report):
    text = str(report)
    assert text.startswith("/d: 4 files, 8 rows, 4.0 KiB")
    assert "layout zorder(a, name): 3 of 4 files (75 %) overlap others; rewrite() puts them in order" in text
    assert "- day=2: 1 file; a point reads a 1.00, name 1.00" in text
    assert text.endswith("- m: no")
    found = json.loads(json.dumps(report.to_dict()))
    assert found["columns"]["a"]["overlap"] == 2.5
    assert found["partitions"]["day=1"]["a"]["overlap"] == 2
    assert found["overlap"]["share"] == 0.75
    html = report._repr_html_()
    assert "<td" in html
    assert "zorder(a, name)" in html


@pytest.mark.parametrize("columns", [(), ("a",), ("name",), ("name", "a")], ids=str)
def test_a_picture_has_a_span_or_a_box_for_each_file(report, columns):
    matplotlib.use("Agg")
    axes = report.plot(*columns)
    assert [len(drawn.get_paths()) for drawn in axes.collections] == [1, 3]
    assert axes.get_xlabel() == (columns or ("a",))[0]
    axes.figure.canvas.draw()
    if columns and columns[0] == "name":
        assert {"a", "k", "z"} <= {label.get_text() for label in axes.get_xticklabels()}


def test_a_picture_leaves_out_a_far_end_that_would_make_dots_of_the_other_files():
    matplotlib.use("Agg")
    found = files(
        *((f"{number}.parquet", [number, number + 1], ["k"]) for number in range(7)), ("far", [8, 10**9], ["k"])
    )
    ranges = {"a": ranges_of(found, "minmax(a)")}
    axes = LayoutReport.of("/d", "", found.table(), ranges).plot()
    assert axes.get_xlim()[1] < 30
    assert axes.get_title(loc="left").endswith(", without far ends")


def test_a_picture_of_an_unknown_column_names_the_known_ones(report):
    with pytest.raises(InvalidSpecificationError, match="one or two of the report's columns, a, name, got b"):
        report.plot("b")
    with pytest.raises(InvalidSpecificationError, match="got a, name, a"):
        report.plot("a", "name", "a")
