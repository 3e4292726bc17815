"""Pages without an engine: what they say, how large they are, how fast a browser draws them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

from geoskip import GeoBox, MinMax, Report, Scan
from geoskip.indexes.base import Index, SourceColumn
from geoskip.metadata import FileMetadata, FileRow, Header, IndexEntry, Snapshot, build_table
from geoskip.planner import decide
from geoskip.predicates import And, Call, Column, Comparison, IsNull, Literal, Not, Or, Predicate
from geoskip.report_page import _drawn, sections
from tests.support.browser import Page, opened_browser

LNG, LAT, TEMP, CITY = Column("lng", "double"), Column("lat", "double"), Column("temp", "int"), Column("city", "string")
EVIL = "<script>alert('&')</script>\"'><img src=x onerror=alert(1)>"


def entry_of(index: Index, *columns: Column) -> IndexEntry:
    pairs = tuple((column.name, column.type or "") for column in columns)
    kinds = {"double": pa.float64(), "int": pa.int32(), "string": pa.string()}
    type_ = index.metadata_type(*(SourceColumn(name, kind, kinds[kind]) for name, kind in pairs))
    return IndexEntry(index.bind(list(columns)), pairs, type_, {})


BOXES = entry_of(GeoBox("lng", "lat"), LNG, LAT)
TEMPS, CITIES = entry_of(MinMax("temp"), TEMP), entry_of(MinMax("city"), CITY)
ENTRIES = [BOXES, TEMPS, CITIES]


def snapshot_of(files: int, boxes: int, *, entries: list[IndexEntry] = ENTRIES) -> Snapshot:
    """Files with random boxes around the Earth, and ascending temperatures."""
    random = np.random.default_rng(0)
    x, y = random.uniform(-170, 170, (files, boxes)), random.uniform(-60, 60, (files, boxes))
    minmax: Any = TEMPS.index
    rows = []
    for number in range(files):
        ends = [
            {"xmin": a, "ymin": b, "xmax": a + 0.5, "ymax": b + 0.5}
            for a, b in zip(x[number].tolist(), y[number].tolist(), strict=True)
        ]
        count = {"rows": 2 * boxes, "boxless": 0, "nonfinite": 0, "null_x": 0, "null_y": 0}
        summaries = {
            str(BOXES.index): {"boxes": ends, **count},
            str(TEMPS.index): minmax.collect(pa.array([number, number + 5], pa.int32())),
            str(CITIES.index): CITIES.index.collect(pa.array([f"a{number % 7}", "b"])),
        }
        own = {str(entry.index): summaries[str(entry.index)] for entry in entries}
        name = f"part-{number:05d}-0b6ea0d2-3c1c-4c4b-9d6a-8a3a5b2f1c11-c000.snappy.parquet"
        rows.append(FileRow(name, 1000, 1, None, 2 * boxes, own))
    return Snapshot(Header("file:/d/places", {}, tuple(entries)), FileMetadata.of(build_table(entries, rows)))


def scan_of(snapshot: Snapshot, predicate: Predicate, **more: Any) -> Scan:
    """The report of a decision over a snapshot."""
    decision = decide(snapshot, predicate)
    paths = np.array([f"{snapshot.header.root}/{path}" for path in snapshot.files.column("path").to_pylist()])
    count, kept = len(paths), int(decision.keep.sum())
    return Scan(
        snapshot.header.root, str(predicate), count, kept, 1000 * count, 1000 * kept, 0.002,
        paths=lambda wanted: paths[decision.keep == wanted].tolist(),
        effects=decision.effects, decisions=lambda: (decision,), among=lambda: (np.ones(count, dtype=bool),),
        **{"noted": decision.reasons, **more},
    )  # fmt: skip


def within(west: float, south: float, east: float, north: float) -> Predicate:
    return Call("ST_Contains", (Literal(shapely.box(west, south, east, north)), Call("ST_Point", (LNG, LAT))))


NEAR = And(
    (Comparison(">", LNG, Literal(5.0)), Comparison("<", LNG, Literal(15.0)), Comparison(">", LAT, Literal(40.0)))
)
TREE = And((
    Or((Comparison(">", TEMP, Literal(30)), Comparison("=", CITY, Literal("zz")))),
    Not(And((Comparison("<", TEMP, Literal(35)), Call("mystery", (TEMP,), type="boolean")))),
))  # fmt: skip


class _Outline(HTMLParser):
    """Elements by name, texts, and what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def outline(text: str) -> _Outline:
    found = _Outline(text)
    assert found.open == []
    return found


def test_texts_are_data_wherever_they_come_from() -> None:
    predicate = Comparison("=", CITY, Literal(EVIL))
    scan = scan_of(snapshot_of(3, 1), predicate, noted=(EVIL,), lost=(EVIL,))
    named = replace(scan, dataset=f"file:/d/{EVIL}", paths=lambda kept: [*scan.paths(kept), f"file:/d/{EVIL}"])
    settings = {"spark.geoskip.audit": EVIL}
    report = Report((named,), (EVIL,), lambda: {"sql": f"SELECT '{EVIL}'", "settings": settings})
    for text in (report.to_html(), report._repr_html_()):
        found = outline(text)
        assert "img" not in found.names
        assert found.names.count("script") == (2 if text.startswith("<!doctype") else 0), "the data, and ours"
        assert sum(EVIL in shown for shown in found.texts) >= 3


def test_the_parts_of_a_page() -> None:
    settings = {"spark.geoskip.enabled": "true"}
    report = Report((scan_of(snapshot_of(40, 1), TREE),), (), lambda: {"sql": "SELECT 1", "settings": settings})
    found = outline(report.to_html())
    heads = [text for text in found.texts if text.strip()]
    assert heads[heads.index("geoskip report") + 2].startswith("Read 14 of 40 files, 13.7 of 39.1 KiB")
    for title in (
        "Query",
        "What each clause skips by itself",
        "Where the files are",
        "How the files cluster",
        "Settings",
    ):
        assert title in heads
    assert found.names.count("canvas") == 1
    assert found.names.count("svg") == 2, "of temp and city"
    assert found.names.index("h1") < found.names.index("h2") < found.names.index("h3")


def test_scans_without_boxes_have_no_map_and_several_have_a_section_each() -> None:
    scans = tuple(
        scan_of(snapshot_of(4, 1, entries=[TEMPS]), Comparison(">", TEMP, Literal(least))) for least in (1, 7)
    )
    found = outline(Report(scans).to_html())
    assert "canvas" not in found.names
    assert found.texts.count("places") == 2
    assert found.texts.count("What each clause skips by itself") == 1, "the first skips nothing"


def test_a_query_without_files_and_one_that_nothing_was_decided_for() -> None:
    assert "The query reads no files" in Report((), ("left alone: a stream",)).to_html()
    left = Report((Scan("file:/d", "a > 5", 3, 3, 30, 30, noted=("it has no metadata",)),))
    assert "Read 3 of 3 files, 30 of 30 B" in left.to_html()
    for text in (left.to_html(), left._repr_html_()):
        assert "it has no metadata" in text
        assert "<code>a &gt; 5</code>" in text


def test_values_of_settings_that_may_be_secret_are_not_shown() -> None:
    settings = {"spark.geoskip.encryption.keyRing": "/home/me/keys", "spark.geoskip.audit": "0.02"}
    text = Report((), (), lambda: {"settings": settings}).to_html()
    assert "/home/me/keys" not in text
    assert "set, not shown" in text
    assert "0.02" in text
    assert "spark.geoskip.planning.budget" in text, "with its default"


def test_a_page_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    report = Report(())
    assert report.to_html(tmp_path / "ü.html") == (tmp_path / "ü.html").read_text("utf-8")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        report.to_html(str(tmp_path / "nowhere" / "report.html"))


def test_each_vertex_has_its_share() -> None:
    (root,) = scan_of(snapshot_of(40, 1), TREE).vertices()
    either, negated = root.below
    assert [(share.text, share.skips, share.indexes) for share in either.below] == [
        ("temp > 30", 26, ("minmax(temp)",)),
        ("city = 'zz'", 40, ("minmax(city)",)),
    ]
    assert (root.text, root.skips, either.skips, negated.text, negated.skips) == ("AND", 26, 26, "OR", 0)
    assert [(share.text, share.skips) for share in negated.below] == [("temp >= 35", 30), ("NOT mystery(temp)", 0)]
    assert root.among == 40


def test_partitions_with_the_same_condition_are_summed_and_others_stand_apart() -> None:
    snapshot = snapshot_of(10, 1, entries=[TEMPS])
    decisions = [decide(snapshot, Comparison(">", TEMP, Literal(least))) for least in (8, 8, 3)]
    masks = [np.arange(10) < 4, np.arange(10) == 9, np.arange(10) == 5]
    scan = Scan("file:/d", "", 10, 1, 0, 0, decisions=lambda: tuple(decisions), among=lambda: tuple(masks))
    assert [(share.text, share.skips, share.among) for share in scan.vertices()] == [
        ("temp > 8", 4, 5),
        ("temp > 3", 0, 1),
    ]


def test_deep_conditions_and_very_many_points_have_a_page_too() -> None:
    deep: Predicate = Comparison(">", TEMP, Literal(1))
    for number in range(150):
        deep = (And, Or)[number % 2]((deep, Comparison(">", TEMP, Literal(number))))
    many = shapely.MultiPoint(np.random.default_rng(1).uniform(-80, 80, (30_000, 2)))
    inside = Call("ST_Intersects", (Literal(many), Call("ST_Point", (LNG, LAT))))
    for predicate in (deep, inside):
        report = Report((scan_of(snapshot_of(5, 1), predicate),))
        assert len(outline(report.to_html()).names) > 50


def test_metadata_that_are_gone_are_named() -> None:
    def gone(wanted: bool) -> list[str]:
        raise OSError("no such folder")

    drawn = _drawn(sections.map_figure, replace(scan_of(snapshot_of(5, 1), NEAR), paths=gone))
    assert drawn == '<p class="muted">It cannot be drawn: no such folder</p>'


# ---- in a browser


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with opened_browser() as found:
        yield found


@pytest.mark.slow
def test_ten_thousand_files_and_fifty_thousand_boxes(page: Page, tmp_path: Path) -> None:
    scan = scan_of(snapshot_of(10_000, 5), NEAR)
    path = tmp_path / "large.html"
    assert len(Report((scan,)).to_html(path).encode()) < 3_000_000
    page.open(path)
    page.run(
        "document.querySelector('canvas').focus(); "
        "window.frames_ = (key) => new Promise((done) => { const start = performance.now(); "
        "document.querySelector('canvas').dispatchEvent(new KeyboardEvent('keydown', { key })); "
        "requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start))); })"
    )
    keys = ["-", "-", "-", *["ArrowLeft", "ArrowRight"] * 6]
    took = [page.run(f"frames_('{key}')") for key in keys]
    print(took, f"{median(took):.0f} ms a frame")
    assert median(took) < 100, "without a graphics card; what else runs on the machine delays few frames"
    assert page.problems == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1100])
def test_no_page_is_wider_than_its_window(page: Page, tmp_path: Path, width: int) -> None:
    long = Or(tuple(Comparison("=", CITY, Literal("x" * 90 + str(n))) for n in range(70)))
    text = "SELECT " + "x" * 500
    path = tmp_path / "page.html"
    Report((scan_of(snapshot_of(20, 1), long, noted=("y" * 300,)),), (), lambda: {"sql": text}).to_html(path)
    page.open(path, width=width)
    assert page.run("document.documentElement.scrollWidth") == width
    assert page.problems == []


def luminance(colour: str) -> float:
    values = [float(part) / 255 for part in re.findall(r"[\d.]+", colour)[:3]]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast(page: Page, tmp_path: Path, scheme: str) -> None:
    """Every text has 4.5 times the luminance of its ground or the other way about, as WCAG wants."""
    path = tmp_path / "page.html"
    scan = scan_of(snapshot_of(40, 1), TREE, lost=("gone",), noted=("so",))
    Report((scan,), ("note",), lambda: {"sql": "SELECT 1", "settings": {"spark.geoskip.audit": "1"}}).to_html(path)
    page.scheme(scheme)
    page.open(path)
    script = """(() => {
      const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
      const solid = (colours) => {
        context.clearRect(0, 0, 1, 1);
        colours.forEach((colour) => { context.fillStyle = colour; context.fillRect(0, 0, 1, 1); });
        return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).join(" ");
      };
      const found = {};
      for (const node of document.querySelectorAll("h1, h2, h3, p, span, li, code, b, summary, button, td, th")) {
        if (![...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim())) continue;
        const grounds = [];
        for (let above = node; above; above = above.parentElement) {
          grounds.unshift(getComputedStyle(above).backgroundColor);
        }
        found[solid([...grounds, getComputedStyle(node).color])] = solid(grounds);
      }
      return JSON.stringify(found);
    })()"""
    pairs: dict[str, str] = json.loads(page.run(script))
    assert len(pairs) >= 3
    for text, ground in pairs.items():
        darker, lighter = sorted((luminance(text), luminance(ground)))
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (text, ground)
    page.scheme("light")


@pytest.mark.parametrize(("word", "is_shown"), [(And, False), (Or, True)])
def test_what_spark_adds_to_a_condition_is_left_out_of_its_tree(word: Any, is_shown: bool) -> None:
    predicate = word((Not(IsNull(CITY)), Comparison(">", TEMP, Literal(30, "int"))))
    text = Report((scan_of(snapshot_of(20, 1), predicate),)).to_html()
    tree = text[text.index('class="tree"') :]
    assert ("city IS NOT NULL" in tree, "temp &gt; 30" in tree) == (is_shown, True)
