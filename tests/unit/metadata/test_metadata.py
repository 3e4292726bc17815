"""The header, the files as clauses see them, and the tables of files."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip import predicates as p
from geoskip.errors import InvalidSpecificationError, MappingError, MetadataError
from geoskip.indexes.base import Index, as_registered, index, index_kinds
from geoskip.indexes.minmax import MinMax
from geoskip.metadata import (
    BASE_SCHEMA,
    FORMAT,
    FileMetadata,
    FileRow,
    Header,
    IndexEntry,
    PartColumn,
    PartFile,
    add_indexes,
    build_table,
    files_schema,
)
from geoskip.metadata.file_table import size_of
from tests.support.strategies import examples
from tests.unit.test_codec import anything, texts, through_json


@index
@dataclass(frozen=True)
class Span(Index):
    """The least and greatest value; what the tests of metadata need of an index."""

    column: str
    digits: int = 3
    kind: ClassVar[str] = "test_span"

    def metadata_type(self, *columns): ...
    def collect(self, *values): ...
    def merge(self, summaries): ...
    def clause(self, node): ...


SPAN = pa.struct([("low", pa.float64()), ("high", pa.float64()), ("words", pa.list_(pa.string()))])


def entry(column: str = "temp", **depends: str) -> IndexEntry:
    bound = Span(column).bind([p.Call("abs", (p.Column(column, "double"),), "org.apache.Abs", ("ansi",), "double")])
    return IndexEntry(bound, ((column, "double"),), SPAN, depends)


def span(low: float, high: float, *words: str) -> dict[str, Any]:
    return {"low": low, "high": high, "words": list(words)}


def row(path: str, *, size: int = 1, mtime: int = 1, etag: str | None = None, **spans: Any) -> FileRow:
    return FileRow(path, size, mtime, etag, 10, {f"test_span({name})": value for name, value in spans.items()})


# --- the header -------------------------------------------------------------------------------------------------------

HEADER = Header(
    root="file:/data/a%20b",
    source={"paths": ["file:/data"], "table": None, "format": "parquet", "options": {}, "schema": '{"type":"struct"}'},
    entries=(entry("temp", zone="UTC"), entry("`a.b`")),
    identity="0" * 32,
    number=3,
    created="2026-01-01T00:00:00.000+00:00",
    files=2,
    parts=(PartFile("parts/x.parquet", 2, 99, 2**32 - 1, {"i0": PartColumn("test_span(temp)", 10, 1, {"low": 7})}),),
    reasons={"bad \udcff.parquet": "truncated"},
    operation={"verb": "create", "rows": 5},
    layout={"kind": "zorder", "expressions": ["lng", "lat"]},
)


def test_a_header_comes_back_exactly():
    back = Header.from_json(through_json(HEADER.to_json()))
    assert back == HEADER
    assert [e.index.bound for e in back.entries] == [e.index.bound for e in HEADER.entries]


def test_a_header_written_before_layouts_were_recorded_has_none():
    earlier = {name: value for name, value in HEADER.to_json().items() if name != "layout"}
    assert Header.from_json(earlier) == replace(HEADER, layout={})
    assert replace(HEADER, layout={}).to_json() == earlier


@given(st.dictionaries(texts, texts, max_size=3), texts, texts)
def test_a_header_keeps_whatever_text_it_is_given(depends, root, reason):
    header = replace(HEADER, root=root, entries=(replace(HEADER.entries[0], depends=depends),), reasons={"a": reason})
    assert through_json(Header.from_json(through_json(header.to_json())).to_json()) == through_json(header.to_json())


@pytest.mark.parametrize(
    "arrow",
    [
        pa.struct([("low", pa.decimal128(38, 10)), ("high", pa.large_binary())]),
        pa.struct([pa.field("t", pa.timestamp("us", "UTC")), pa.field("d", pa.date32(), nullable=False)]),
        pa.struct([("boxes", pa.list_(pa.struct([("xmin", pa.float64())])))]),
    ],
    ids=str,
)
def test_an_arrow_type_comes_back_exactly(arrow):
    assert IndexEntry.from_json(through_json(replace(entry(), arrow=arrow).to_json())).arrow == arrow


@pytest.mark.parametrize("arrow", [pa.int64(), pa.struct([])], ids=str)
def test_an_index_stores_a_struct(arrow):
    with pytest.raises(MetadataError, match="struct"):
        replace(entry(), arrow=arrow)


def test_a_part_has_each_column_once():
    (part,) = HEADER.parts
    with pytest.raises(MetadataError, match="2 columns with 1 names"):
        replace(part, columns={"i0": part.columns["i0"], "i1": part.columns["i0"]})


def test_a_newer_format_is_refused_by_both_numbers():
    with pytest.raises(MetadataError, match=rf"format {FORMAT + 1}.* up to {FORMAT}"):
        Header.from_json({"format": FORMAT + 1})


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"index": {"kind": "of another package"}}, id="an index type that is not known"),
        pytest.param({"index": {"kind": "test_span", "column": "temp", "colour": 1}}, id="an option that is not known"),
        pytest.param({"bound": [{"node": "lambda"}]}, id="an expression that is not known"),
        pytest.param({"arrow": "AAAA"}, id="a damaged type"),
        pytest.param({"name": "span(other)"}, id="another name"),
    ],
)
def test_an_index_that_cannot_be_read_leaves_the_others_in_use(change):
    data = through_json(HEADER.to_json())
    data["indexes"][0].update(change)
    header = Header.from_json(data)
    assert header.entries == HEADER.entries[1:]
    assert header.unread == (data["indexes"][0],)
    assert header.to_json()["indexes"][-1] == data["indexes"][0], "and it stays written"


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_a_header_with_a_changed_member_is_read_or_refused(data):
    changed = through_json(HEADER.to_json())
    holder: Any = changed
    while True:
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        key = data.draw(st.sampled_from(list(keys)))
        if not holder[key] or not isinstance(holder[key], dict | list) or data.draw(st.booleans()):
            break
        holder = holder[key]
    holder[key] = data.draw(anything)
    with contextlib.suppress(MetadataError):
        Header.from_json(changed)


# --- files ------------------------------------------------------------------------------------------------------------


def files(*rows: FileRow, entries: tuple[IndexEntry, ...] = (entry(),)) -> FileMetadata:
    return FileMetadata.of(build_table(entries, rows))


def test_a_file_without_a_summary_reads_as_null():
    found = files(row("a", temp=span(1, 2)), row("b", temp=None), row("c"))
    assert found.summary("test_span(temp)", "low").to_pylist() == [1.0, None, None]
    assert isinstance(found.summary("test_span(temp)", "high"), pa.Array)


@pytest.mark.parametrize("name", [("test_span(other)", "low"), ("test_span(temp)", "median"), ("path", "low")])
def test_what_is_not_stored_reads_as_null(name):
    assert files(row("a", temp=span(1, 2)), row("b")).summary(*name).to_pylist() == [None, None]


def test_no_files_are_fine():
    found = files()
    assert (len(found), found.summary("test_span(temp)", "low").to_pylist(), found.paths_text()) == (0, [], b"")


def test_columns_are_loaded_when_asked_for_and_once():
    table = build_table([entry("a"), entry("b")], [row("x", a=span(1, 2), b=span(3, 4))])
    asked: list[Any] = []

    def load(names: Any) -> pa.Table:
        asked.append(list(names))
        return table.select(names)

    found = FileMetadata(1, load)
    found.prefetch(["test_span(a)", "test_span(b)", "test_span(a)"])
    found.prefetch(["test_span(a)"])
    found.summary("test_span(a)", "low"), found.summary("test_span(b)", "high"), found.summary("test_span(a)", "high")
    assert asked == [["test_span(a)", "test_span(b)"]]


def test_single_fields_are_loaded_when_asked_for_and_once():
    table = build_table([entry("a"), entry("b")], [row("x", a=span(1, 2), b=span(3, 4))])
    asked: list[Any] = []

    def load(wanted: Any) -> pa.Table:
        asked.append(list(wanted))
        return FileMetadata.of(table)._load(wanted)

    found, low, high = FileMetadata(1, load), ("test_span(a)", "low"), ("test_span(a)", "high")
    found.prefetch([low, ("test_span(a)", "median"), ("unheard(of)", "low"), "path"])
    assert [found.summary(*low).to_pylist(), found.summary("unheard(of)", "low").to_pylist()] == [[1], [None]]
    assert (len(asked), found.summary(*high).to_pylist(), asked[1:]) == (1, [2], [[high]])
    found.prefetch([low, high, "test_span(a)"])
    found.prefetch([("test_span(a)", "words")])
    assert found.summary("test_span(a)", "words").to_pylist() == [span(1, 2)["words"]]
    assert asked[2:] == [["test_span(a)"]]


def test_a_value_is_computed_once_by_however_many_threads():
    found, computed, start = files(row("a")), [], threading.Barrier(8)

    def compute() -> None:
        time.sleep(0.02)  # long enough for the others to arrive
        computed.append(found.cached("inner", lambda: 1))

    def ask() -> None:
        start.wait()
        found.cached("key", compute)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert computed == [1]


def test_what_raised_is_tried_anew():
    found = files(row("a"))
    with pytest.raises(ZeroDivisionError):
        found.cached("key", lambda: 1 // 0)
    assert found.cached("key", lambda: 5) == 5


def test_bytes_shared_by_arrays_count_once():
    found = files(*(row(str(i), temp=span(i, i)) for i in range(1000)))
    column = found.column("test_span(temp)")
    before = size_of(column)
    low, high = found.summary("test_span(temp)", "low"), found.summary("test_span(temp)", "high")
    assert 16_000 <= before < 40_000
    assert size_of(column, low, high, np.zeros(1000)) == before + 8000


def test_paths_go_to_the_jvm_as_lines_in_file_order():
    names = ["a b%20+.parquet", "new\nline", "p=ü/\U0001f30d", "\n", "x"]
    found = files(*(row(name, size=i, mtime=10**12 + i) for i, name in enumerate(names)))
    lines = ["0 1000000000000 a b%20+.parquet", "", "2 1000000000002 p=ü/\U0001f30d", "", "4 1000000000004 x"]
    assert found.paths_text().decode().split("\n") == [*lines, ""]
    assert files(row("only\n")).paths_text() == b"\n"
    odd = [row(f"e{number}", etag=etag) for number, etag in enumerate(("x y", "", "\n"))]
    found = files(row("a b", etag='"1-f"'), row("c"), row("d\n", etag="x"), *odd)
    assert found.paths_text(etags=True).decode().split("\n") == ['1 1:"1-f" a b', "1 1 c", "", "", "", "", ""]
    assert found.paths_text(etags=False).startswith(b"1 1 a b\n1 1 c\n\n")


# --- tables -----------------------------------------------------------------------------------------------------------


def listing(table: pa.Table, *columns: str) -> dict[str, tuple[Any, ...]]:
    low = [name for name in table.schema.names if name.startswith("test_span")]
    wanted = table.select([*(columns or ()), *low]).to_pylist()
    return {
        path: tuple(v["low"] if isinstance(v, Mapping) else v for v in found.values())
        for path, found in zip(table["path"].to_pylist(), wanted, strict=True)
    }


def test_a_table_has_the_types_of_its_entries():
    table = build_table([entry()], [row("a", etag="e", temp=span(1, 2, "x"))])
    assert table.schema == files_schema([entry()]) == pa.schema([*BASE_SCHEMA, ("test_span(temp)", SPAN)])
    summary = {"low": 1.0, "high": 2.0, "words": ["x"]}
    expected = {"path": "a", "size": 1, "mtime": 1, "etag": "e", "rows": 10, "test_span(temp)": summary}
    assert table.to_pylist() == [expected]


def test_a_summary_that_does_not_fit_leaves_its_file_without_one():
    rows = [row("a", temp=span(1, 2)), row("b", temp=span("x", 2)), row("c", temp=span(1, 2, "\udcff")), row("\udcff")]
    table = build_table([entry()], rows)
    assert listing(table) == {"a": (1,), "b": (None,), "c": (None,)}


def test_adding_an_index_matches_rows_by_path_and_fingerprint():
    old = build_table(
        [entry("a")],
        [
            row("same", a=span(1, 1)),
            row("grown", a=span(2, 2)),
            row("touched", a=span(3, 3)),
            row("tagged", a=span(4, 4)),
            row("retagged", etag="1", a=span(5, 5)),
            row("gone", a=span(6, 6)),
        ],
    )
    new = build_table(
        [entry("b")],
        [
            row("new", b=span(9, 9)),
            row("retagged", etag="2", b=span(5, 9)),
            row("tagged", etag="1", b=span(4, 9)),
            row("touched", mtime=2, b=span(3, 9)),
            row("grown", size=2, b=span(2, 9)),
            row("same", b=span(1, 9)),
        ],
    )
    both = add_indexes(old, new)
    assert both.schema == files_schema([entry("a"), entry("b")])
    assert listing(both, "size", "mtime", "etag") == {
        "new": (1, 1, None, None, 9),
        "retagged": (1, 1, "2", None, 5),
        "tagged": (1, 1, "1", 4, 4),
        "touched": (1, 2, None, None, 3),
        "grown": (2, 1, None, None, 2),
        "same": (1, 1, None, 1, 1),
        "gone": (1, 1, None, 6, None),
    }


def test_an_index_built_again_has_no_old_summaries_left():
    old = build_table([entry()], [row("a", temp=span(1, 1)), row("gone", temp=span(2, 2))])
    new = build_table([entry()], [row("a", temp=span(3, 3))])
    assert listing(add_indexes(old, new)) == {"a": (3,), "gone": (None,)}


def test_adding_keeps_row_counts_of_unchanged_files_only():
    old = build_table([entry("a")], [row("same"), row("grown")])
    new = build_table([entry("b")], [row("same")._replace(rows=None), row("grown", size=2)._replace(rows=None)])
    assert add_indexes(old, new)["rows"].to_pylist() == [10, None]


def test_tables_of_no_rows_are_merged_too():
    empty, one = build_table([entry("a")], []), build_table([entry("b")], [row("x", b=span(1, 1))])
    assert listing(add_indexes(empty, one)) == {"x": (None, 1)}
    assert listing(add_indexes(one, empty)) == {"x": (1, None)}


def test_an_index_type_needs_a_kind_of_its_own() -> None:
    with pytest.raises(MappingError, match="Kindless needs a `kind` that names it, such as 'kindless', got ''"):

        @index
        @dataclass(frozen=True)
        class Kindless(Span):
            kind: ClassVar[str] = ""

    with pytest.raises(MappingError, match="'minmax' is the kind of geoskip's MinMax; give Second another one"):

        @index
        @dataclass(frozen=True)
        class Second(Span):
            kind: ClassVar[str] = "minmax"

    assert index_kinds()["minmax"] is MinMax


def test_a_type_that_is_not_registered_is_refused() -> None:
    """The class that is registered under its kind would read its summaries, of which its clauses may be wrong."""

    @dataclass(frozen=True)
    class Wider(Span):
        pass

    @dataclass(frozen=True)
    class Nowhere(Span):
        kind: ClassVar[str] = "nowhere"

    with pytest.raises(InvalidSpecificationError, match=r"Wider is not a registered .* \(not 'test_span', .* of Span"):
        as_registered(Wider("x"))
    with pytest.raises(InvalidSpecificationError, match=r"Nowhere is not a registered index type: put @geoskip\.index"):
        as_registered(Nowhere("x"))
    assert as_registered(Span("x")) == Span("x")
