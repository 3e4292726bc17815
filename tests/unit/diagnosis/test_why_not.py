"""``why_not`` part by part, index by index and for one file: the planner decides, no Spark."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import geoskip
from geoskip import BloomFilter, GapList, GeoBox, MinMax, Prefix, ValueList
from geoskip.diagnosis.explanation import WhyNot
from geoskip.errors import InvalidSpecificationError
from geoskip.indexes.base import Index
from geoskip.predicates import (
    And,
    Call,
    Column,
    Comparison,
    In,
    IsNull,
    Literal,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
)
from geoskip.report import Report
from tests.support.decided import decision, scan_of
from tests.support.indexed_files import write_indexed

TEMP, ID, CITY = Column("temp", "double"), Column("id", "bigint"), Column("city", "string")
LNG, LAT = Column("lng", "double"), Column("lat", "double")
CASE = "org.apache.spark.sql.catalyst.expressions.If"
HOT = Comparison(">", TEMP, Literal(25.0, "double"))
ULM = Comparison("=", CITY, Literal("Ulm", "string"))


def over(index: Index, *bound: Predicate) -> Index:
    return index.bind(bound)


INDEXES = [over(MinMax("temp"), TEMP), over(GapList("id"), ID), over(GeoBox("lng", "lat"), LNG, LAT)]
LISTS = [over(ValueList("city"), CITY), over(Prefix("city"), CITY), over(BloomFilter("id"), ID)]


def explained(predicate: Predicate, indexes: list[Index], file: str | None = None, **options: Any) -> WhyNot:
    return geoskip.why_not(Report((scan_of(decision(predicate, indexes), **options),)), file)


def rows(found: WhyNot) -> list[tuple[str, str, int | None, str, str]]:
    return [(r.part, r.index, r.skips if r.used else None, r.reason, r.suggestion) for r in found.rows]


# ---- each part and each index


def test_each_part_has_its_index_and_each_index_its_part() -> None:
    found = explained(And((HOT, ULM, Not(IsNull(TEMP)))), INDEXES)
    assert rows(found) == [
        ("temp > 25.0", "minmax(temp)", 2, "max(temp) > 25.0", ""),
        ("city = 'Ulm'", "", None, "no index over city", 'MinMax("city")'),
        ("", "gaplist(id)", None, "no part of the condition reads id", ""),
        ("", "geobox(lng, lat)", None, "no part of the condition reads lng, lat", ""),
    ]
    assert found.suggestions == ('MinMax("city")',)


def test_a_part_that_skips_nothing_is_served() -> None:
    found = explained(Comparison(">", TEMP, Literal(-5.0, "double")), INDEXES[:1])
    assert rows(found) == [("temp > -5.0", "minmax(temp)", 0, "max(temp) > -5.0, which no file fails", "")]


def test_several_indexes_serve_one_part_and_one_does_not() -> None:
    found = explained(StartsWith(CITY, "c1"), [*LISTS, over(BloomFilter("city"), CITY)])
    assert [(r.index, r.skips if r.used else r.reason) for r in found.rows if r.part] == [
        ("valuelist(city)", 3),
        ("prefix(city)", 3),
        ("bloomfilter(city)", "it does not serve this part, another index does"),
    ]


def test_an_or_names_its_part_without_an_index() -> None:
    found = explained(Or((HOT, ULM)), INDEXES[:1])
    assert rows(found) == [
        ("temp > 25.0 OR city = 'Ulm'", "", None,
         "no index over city, which every side of an OR needs", 'MinMax("city")'),
        ("temp > 25.0 OR city = 'Ulm'", "minmax(temp)", None, "it serves one side of the OR", ""),
    ]  # fmt: skip


def test_a_branch_of_case_without_an_index_has_a_row_beside_those_that_serve() -> None:
    case = Call("if", (HOT, ULM, Comparison(">", TEMP, Literal(35.0, "double"))), CASE, (), "boolean")
    assert [(r.index, r.used, r.reason, r.suggestion) for r in explained(case, INDEXES[:1]).rows][1:] == [
        ("", False, "no index over city, which would serve more of it", 'MinMax("city")')
    ]
    case = Call("if", (ULM, HOT, Comparison("=", Column("x", "bigint"), Literal(1, "bigint"))), CASE, (), "boolean")
    assert [(r.index, r.reason) for r in explained(case, INDEXES[:1]).rows] == [
        ("", "no index over city, which a branch of it needs"),
        ("", "no index over x, which a branch of it needs"),
        ("minmax(temp)", "it serves a branch of it"),
    ]
    assert lines(explained(And((HOT, case)), INDEXES, "p3"))[-1].endswith("no index over x, so it keeps every file")


def test_an_index_over_the_columns_of_an_unknown_part_is_named_with_it() -> None:
    part = Comparison(">", TEMP, Opaque("scalar-subquery#1 []"))
    assert [(r.part, r.index) for r in explained(part, INDEXES[:1]).rows] == [("temp > (a subquery)", "minmax(temp)")]


@pytest.mark.parametrize("indexes", [INDEXES[:1], []], ids=["indexed", "bare"])
def test_a_condition_that_is_nested_too_deep_has_that_as_its_reason(indexes: list[Index]) -> None:
    levels: Predicate = HOT
    arithmetic: Predicate = TEMP
    for number in range(600):
        levels = (And if number % 2 else Or)((levels, ULM))
        arithmetic = Call("+", (arithmetic, TEMP), CASE.replace("If", "Add"), (), "double")
    for deep, why in (
        (levels, "a condition on city and temp is not used: it has 600 levels, of which 100 are looked at"),
        (Comparison(">", arithmetic, Literal(3.0, "double")), "a condition on temp is not used: it is nested too deep"),
    ):
        found = explained(deep, indexes, "p3")
        scan = scan_of(decision(deep, indexes))
        assert why in scan.reasons
        assert why in {row.reason for row in found.rows}
        assert len(str(Report((scan,)))) + len(str(found)) < 4000


PARTITION, TWO = Column("p", "int"), Comparison("=", Column("p", "int"), Literal(2, "int"))


def test_partition_columns_are_named_in_place_of_their_values() -> None:
    written = (Not(IsNull(PARTITION)), TWO, Or((TWO, HOT)))
    decisions = [
        decision(And((Literal(True, "boolean"), Literal(value, "boolean"), Or((Literal(value, "boolean"), HOT)))),
                 INDEXES[:1])
        for value in (False, True)
    ]  # fmt: skip
    half = np.array([True, True, False, False])
    scan = scan_of(*decisions, written=lambda: written, among=lambda: (half, ~half))
    assert rows(geoskip.why_not(scan)) == [
        ("p = 2", "", None, "it reads partition columns alone: Spark settles it by the folders", ""),
        ("p = 2 OR temp > 25.0", "minmax(temp)", 2, "max(temp) > 25.0", ""),
    ]
    assert scan.reasons == ()


def test_a_part_that_is_served_in_one_partition_and_not_in_another_has_one_reason() -> None:
    side = And((TWO, ULM))
    decisions = [decision(Or((And((Literal(value, "boolean"), ULM)), HOT)), INDEXES[:1]) for value in (False, True)]
    scan = scan_of(*decisions, written=lambda: (Or((side, HOT)),))
    (reason,) = scan.reasons
    assert reason.startswith("(p = 2 AND city = 'Ulm') OR temp > 25.0 needs an index for each side, but no index over")


def test_an_index_that_may_not_be_used_has_its_reason() -> None:
    unusable = scan_of(
        decision(HOT, INDEXES[:1], usable=False),
        noted=["minmax(temp) is not used: it was built with another time zone", "1 file is odd"],
    )
    (scan,) = geoskip.why_not(unusable).scans
    assert [(r.index, r.reason) for r in scan.rows] == [
        ("minmax(temp)", "not used: it was built with another time zone")
    ]
    assert scan.notes == ("1 file is odd",)


def test_counts_are_summed_over_partitions() -> None:
    decided = decision(HOT, INDEXES[:1])
    half = np.array([True, True, False, False])
    scan = scan_of(decided, decided, among=lambda: (half, ~half))
    assert [row.skips for row in geoskip.why_not(scan).rows] == [2]


def test_a_scan_that_was_left_alone_has_its_reasons() -> None:
    found = geoskip.why_not(Report((scan_of(noted=["left alone: a stream"]),), ("a note",)))
    assert rows(found) == []
    assert "left alone: a stream" in str(found)
    assert "a note" in str(found)


# ---- one file


def lines(found: WhyNot) -> list[str]:
    (scan,) = found.scans
    assert scan.file is not None
    return [f"{'keeps' if c.keeps else 'skips'} {c}" for c in scan.file.clauses]


def test_a_kept_file_has_its_stored_values() -> None:
    found = explained(And((HOT, ULM)), INDEXES, "p3.parquet")
    assert found.scans[0].file is not None
    assert (found.scans[0].file.kept, found.scans[0].file.reason) == (True, "no clause skips it")
    assert lines(found) == [
        "keeps temp > 25.0: minmax(temp): 39.0 > 25.0",
        "keeps city = 'Ulm': no index over city, so it keeps every file",
    ]


def test_a_skipped_file_names_the_index_that_skips_it() -> None:
    found = explained(And((HOT, Comparison(">", ID, Literal(0, "bigint")))), INDEXES, "p0")
    assert found.scans[0].file is not None
    assert (found.scans[0].file.kept, found.scans[0].file.reason) == (False, "skipped by minmax(temp)")
    assert lines(found) == [
        "skips temp > 25.0: minmax(temp): 9.0 > 25.0",
        "keeps id > 0: gaplist(id): segment 1 (0 to 9) of 1 segment",
    ]


STORED = [
    (Comparison("=", TEMP, Literal(15.0, "double")), "p1", "keeps temp = 15.0: minmax(temp): 10.0 <= 15.0 <= 19.0"),
    (Not(IsNull(TEMP)), "p1", "keeps temp IS NOT NULL: minmax(temp): 10.0 to 19.0, no NULL"),
    (And((Comparison(">", LAT, Literal(12.5, "double")), Comparison("<", LNG, Literal(13.5, "double")))), "p1",
     "keeps lat > 12.5 AND lng < 13.5: geobox(lng, lat): box 4 (13 13 14 14) of 8 boxes"),
    (And((Comparison(">", LAT, Literal(16.0, "double")), Comparison("<", LNG, Literal(13.0, "double")))), "p1",
     "skips lat > 16.0 AND lng < 13.0: geobox(lng, lat): none of its 8 boxes"),
    (Or((HOT, Comparison(">", LAT, Literal(38.5, "double")))), "p3",
     "keeps temp > 25.0 OR lat > 38.5: minmax(temp): 39.0 > 25.0 or geobox(lng, lat): box 8 (39 39 39 39) of 8 boxes"),
]  # fmt: skip


@pytest.mark.parametrize(("predicate", "file", "expected"), STORED, ids=[str(case[0]) for case in STORED])
def test_stored_values(predicate: Predicate, file: str, expected: str) -> None:
    assert lines(explained(predicate, INDEXES, file)) == [expected]


def test_stored_lists_and_filters() -> None:
    found = explained(StartsWith(CITY, "c11"), LISTS[:2], "p1")
    assert lines(found) == [
        "keeps city LIKE 'c11%': valuelist(city): 'c11' of 10 values",
        "keeps city LIKE 'c11%': prefix(city): 'c11' of 10 values",
    ]
    (line,) = lines(explained(In(ID, (Literal(3, "bigint"), Literal(7, "bigint"))), LISTS[2:], "p1"))
    assert line.startswith("skips id IN (3, 7): bloomfilter(id): filters 1, bits ")


def test_a_comparison_of_two_columns_shows_both() -> None:
    other = Column("other", "double")
    both = [over(MinMax("temp"), TEMP), over(MinMax("other"), other)]
    (line,) = lines(explained(Comparison("<", TEMP, other), both, "p1"))
    assert line == "keeps temp < other: minmax(temp), minmax(other): 10.0 < 19.0"


def test_files_without_metadata_and_changed_ones() -> None:
    decided = decision(HOT, INDEXES[:1])
    (scan,) = geoskip.why_not(scan_of(decided, further={"file:/d/new.parquet": True}), "new.parquet").scans
    assert scan.file is not None
    assert scan.file.reason.startswith("no metadata: the file is newer than the snapshot; dataset.refresh_index()")
    changed = scan_of(
        decided,
        paths=lambda kept: ["file:/d/p0.parquet"] if kept else [],
        among=lambda: (np.array([False, True, True, True]),),
    )
    (scan,) = geoskip.why_not(changed, "p0").scans
    assert scan.file is not None
    assert "it has changed since it was indexed" in scan.file.reason


def test_a_file_that_spark_prunes_by_its_partition() -> None:
    decided = decision(HOT, INDEXES[:1])
    scan = scan_of(decided, paths=lambda kept: [] if kept else ["file:/d/p3.parquet"])
    (found,) = geoskip.why_not(scan, "p3").scans
    assert found.file is not None
    assert found.file.reason == "a condition on partition columns leaves it out: Spark's own pruning"


@pytest.mark.parametrize(
    ("settled", "reason"),
    [
        (Literal(False, "boolean"), "a condition on partition columns leaves it out: Spark's own pruning"),
        (Comparison("=", TEMP, Literal(None, "double")), "the condition is TRUE for no row of any file"),
    ],
    ids=["partition", "never"],
)
def test_a_file_that_no_row_needs(settled: Predicate, reason: str) -> None:
    found = explained(And((settled, HOT)), INDEXES, "p3").scans[0].file
    assert found is not None
    assert (found.kept, found.reason, found.clauses) == (False, reason, ())


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("nope", r"file='nope' is no file of this query, which has 4 files, such as file:/d/p0.parquet; give a path"),
        ("parquet", r"file='parquet' fits 4 files: file:/d/p0.parquet, .*; give the whole path of one of them"),
        ("", r"why_not\(file=\) takes a path or a file's name as text, got ''"),
        (3, r"why_not\(file=\) takes a path or a file's name as text, got 3"),
    ],
)
def test_a_file_that_the_scan_does_not_have(file: Any, message: str) -> None:
    with pytest.raises(InvalidSpecificationError, match=message):
        explained(HOT, INDEXES, file)


@pytest.mark.parametrize("file", ["file:/d/p3.parquet", "file:///d/p3.parquet", "/d/p3.parquet", "p3.parquet", "p3"])
def test_a_file_by_its_path_its_name_or_a_part(file: str) -> None:
    found = explained(HOT, INDEXES, file).scans[0].file
    assert found is not None
    assert found.path == "file:/d/p3.parquet"


def test_a_file_of_one_scan_of_two() -> None:
    scans = scan_of(decision(HOT, INDEXES[:1])), scan_of(noted=["no filter"], further={"file:/e/x.parquet": True})
    found = geoskip.why_not(Report(scans), "x.parquet")
    assert [scan.file and scan.file.reason for scan in found.scans] == [None, "no filter"]


# ---- what people and programs see


class _Tags(HTMLParser):
    """The tags that are open, and the text of all cells."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag != "br":
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


def test_text_dict_and_html() -> None:
    odd = Comparison("=", CITY, Literal("<script>", "string"))
    found = explained(And((HOT, odd)), INDEXES, "p3", noted=["a <b>note</b>"])
    text = str(found)
    assert max(map(len, text.splitlines())) <= 120
    assert 'no index over city: create MinMax("city")' in text
    assert "p3.parquet is read: no clause skips it" in text
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["scans"][0]["rows"][0]["skips"] == 2
    assert plain["scans"][0]["file"]["clauses"][0]["stored"] == "minmax(temp): 39.0 > 25.0"
    page = found._repr_html_()
    tags = _Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.cells[:8] == [
        "part of the condition", "index", "skips", "why, and what would help",
        "temp > 25.0", "minmax(temp)", "2", "max(temp) > 25.0",
    ]  # fmt: skip
    assert "city = '<script>'" in tags.cells
    assert "<script" not in page
    assert "<b>note" not in page


def test_what_is_no_query_is_refused() -> None:
    with pytest.raises(geoskip.GeoskipError, match=r"why_not\(\) takes a DataFrame, a report, .* got 5"):
        geoskip.why_not(5)


def test_files_and_frames_of_other_engines(tmp_path: Path) -> None:
    tables = {f"p{n}.parquet": pa.table({"a": range(10 * n, 10 * n + 10), "b": ["x"] * 10}) for n in range(3)}
    a = Column("a", "bigint")
    write_indexed(tmp_path, tables, {"a": "bigint", "b": "string"}, [MinMax("a").bind([a])])
    kept = geoskip.files(str(tmp_path), "a > 15 AND b = 'x'")
    assert kept.report.reasons == ('no index over b: MinMax("b")',)
    expected = [("a > 15", 1), ("b = 'x'", 0)]
    assert [(row.part, row.skips) for row in geoskip.why_not(kept).rows] == expected
    found = geoskip.why_not(kept, "p2.parquet").scans[0].file
    assert found is not None
    assert str(found.clauses[0]) == "a > 15: minmax(a): 29 > 15"
    dataset = geoskip.pyarrow_dataset(str(tmp_path), (pa.compute.field("a") > 15) & (pa.compute.field("b") == "x"))
    assert [(row.part, row.skips) for row in geoskip.why_not(dataset).rows] == expected


def test_a_function_is_named_as_it_is_called() -> None:
    call = Call("zone", (CITY,), "python:shop.zone#1", ("eval:100",), "string")
    (row,) = (r for r in explained(Comparison("=", call, Literal("6", "string")), []).rows if r.part)
    assert row.reason == "no index over zone(city), a function without a mapping"
    assert row.suggestion == 'Formatted("city", extract="zone")'
