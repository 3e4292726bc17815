"""Clauses as queries of real servers: what they keep is what is kept here, and little travels."""

from __future__ import annotations

import functools
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

from geoskip import predicates as p
from geoskip.clauses import keep_mask
from geoskip.errors import MetadataError
from geoskip.indexes.base import Index
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.valuelist import ValueList
from geoskip.metadata import FileMetadata, FileRow, Header, IndexEntry, Snapshot, build_table, files_schema
from geoskip.planner import clause_for
from geoskip.stores.search import ElasticsearchStore, documents
from geoskip.stores.search.documents import encode, slots_of
from geoskip.stores.search.search_files import SearchFiles, field_of
from tests.stores.test_store_elasticsearch import QUICK
from tests.stores.test_store_elasticsearch_translation import KINDS, PLANE, some
from tests.support import geobox_oracle as geo
from tests.support.harness import canned, leaves
from tests.support.metric_worlds import WORDS, our, powers
from tests.support.metric_worlds import world as distant
from tests.support.servers.proxy import Proxy

Sample = tuple[Index, FileMetadata, list[p.Predicate]]
"""An index, files that have it, and predicates to ask about them."""

ASKED = {
    "minmax": [*"axsdwb", "ts"],
    "valuelist": "nxsd",
    "gaplist": "xdw",
    "hybrid": "s",
    "prefix": "s",
    "suffix": "s",
}
"""Kinds and their columns."""


def samples() -> Iterator[Sample]:
    """Every kind of index that has keys, over canned files, points, shapes and words."""
    for kind, names in ASKED.items():
        for name in names:
            world = canned(name, KINDS[kind][0])
            chosen = some(list(leaves(name)), 3)
            rows = sorted({*range(0, len(world.files), 4), *range(len(world.files) - 3, len(world.files))})
            files = FileMetadata.of(world.metadata.table().take(rows))
            yield next(iter(world.types)), files, [*chosen, *map(p.Not, chosen)]
    chance = random.Random(6)
    corners = [(chance.choice([-0.0, 1.0, 8.5, chance.uniform(-20, 20)]), chance.uniform(-20, 20)) for _ in range(60)]
    files: list[Any] = [chance.sample(corners, chance.randrange(1, 6)) for _ in range(30)]
    files += [[], [(None, 5.0)], [(5.0, None), (1.0, 1.0)], [(float("inf"), 0.0)], [(None, None)]]
    yield geo.PAIR, geo.collected(geo.PAIR, files), of_points()
    points = [[None if None in row else shapely.Point(row) for row in rows] for rows in files[:-2]]
    shapes = [*points, [shapely.Polygon()], [shapely.box(0, 0, 3, 3)], [shapely.LineString([(9, 9), (-9, 9)])]]
    yield geo.SHAPES, geo.collected(geo.SHAPES, shapes), list(about(geo.GEOM))
    spread = [chance.choices(PLANE[:-1], k=2) for _ in range(20)]
    plane = distant("euclidean", ("double", "double"), [*spread, [], PLANE])
    far = powers(list(plane.index.bound), (20.0, 3.0), "ANSI")
    yield plane.index, plane.metadata, [p.Comparison(op, far, p.Literal(n)) for op in ("<", ">") for n in (3.0, 24.0)]
    words = distant("levenshtein", ("string",), [[(word,)] for word in WORDS] + [[(None,)], []])
    edits = our("levenshtein", words.index.bound[0], p.Literal("smith", "string"), type="int")
    yield words.index, words.metadata, [p.Comparison("<=", edits, p.Literal(n)) for n in (0, 1, 3)]


def of_points() -> list[p.Predicate]:
    lng, half = geo.LNG, p.Literal(8.5)
    plain: list[p.Predicate] = [p.Comparison(op, lng, half) for op in ("=", "<", ">=")]
    plain += [p.Comparison("=", lng, p.Literal(0.0)), p.In(lng, (half, p.Literal(1.0))), p.IsNull(lng)]
    window = [p.Comparison(">", lng, p.Literal(0.0)), p.Comparison("<", geo.LAT, p.Literal(-3.0))]
    return [*plain, *map(p.Not, plain), p.And(tuple(window)), *about(geo.call("ST_Point", lng, geo.LAT))]


def about(g: p.Predicate) -> Iterator[p.Predicate]:
    for shape in (shapely.box(-3, -3, 2, 4), shapely.Point(9, 9), shapely.Polygon([(0, 0), (9, 1), (4, 12)])):
        yield from (geo.call(name, g, shape) for name in ("ST_Intersects", "ST_Contains", "ST_Within"))
        yield p.Comparison("<", geo.call("ST_Distance", g, shape), p.Literal(1.5))
    inside, near = (geo.call("ST_Intersects", g, shape) for shape in (shapely.box(0, 0, 9, 9), shapely.Point(1, 1)))
    yield from (p.And((inside, p.Not(near))), p.Or((inside, near)), p.Not(p.Or((inside, near))))


@functools.cache
def everything() -> tuple[pa.Table, list[Sample], tuple[IndexEntry, ...]]:
    """One table of the files of all samples: each has a summary of one index, and none of the others."""
    tables, entries, found = [], [], list(samples())
    for at, (index, files, _) in enumerate(found):
        column = files.column(str(index))
        entries.append(IndexEntry(index, (("c", "binary"),), column.type))
        rows = build_table([], [FileRow(f"{at}-{row}", 5, 6) for row in range(len(files))])
        tables.append(rows.append_column(str(index), column))
    table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    return table.select(files_schema(entries).names), found, tuple(entries)


@pytest.fixture(scope="module")
def canned_store(search_server: Any) -> ElasticsearchStore:
    store = ElasticsearchStore(search_server.url, "canned", settings=QUICK, ask_above=0, timeout=20)
    store.drop()
    table, _, entries = everything()
    header = store.commit(Header("file:/data", {}, entries), table, expected=None)
    without = [slot.entry.name for slot in slots_of(entries) if field_of(slot, header.parts) is None]
    assert without == ["minmax(w)", "gaplist(w, gaps=2)"], "decimals of more digits than a key has"
    return store


def fresh(store: ElasticsearchStore) -> SearchFiles:
    """The files of the store, nothing of them read yet."""
    return SearchFiles(store.server, store.name, store.load(1).header, store.ask_above)


@pytest.mark.slow
def test_all_summaries_come_back(canned_store: ElasticsearchStore) -> None:
    table, _, entries = everything()
    found = fresh(canned_store).table()
    assert found.schema.equals(files_schema(entries))
    for name in table.schema.names:
        there, here = found[name].combine_chunks(), table[name].combine_chunks()
        assert there.is_valid().equals(here.is_valid())
        pairs = zip(there.flatten(), here.flatten(), strict=True) if pa.types.is_struct(here.type) else [(there, here)]
        assert all(encode(a) == encode(b) for a, b in pairs), name  # NaN is not equal to itself


@pytest.mark.slow
def test_the_server_keeps_what_is_kept_here(canned_store: ElasticsearchStore, search_server: Any) -> None:
    """All that is asked of one server, and half of that of the other: the queries are the same."""
    table, found, _ = everything()
    step = 1 if search_server.kind == "opensearch" else 2
    local, tally = FileMetadata.of(table), Counter[str]()
    header, checked = canned_store.load(1).header, set[str]()
    for index, _, asked in found:
        for predicate in asked[::step]:
            clause = clause_for(predicate, [index])
            files = SearchFiles(canned_store.server, canned_store.name, header, canned_store.ask_above)
            files._checked = checked  # of the one index on the server, that its keys have their types
            assert files.evaluate(clause).tolist() == keep_mask(clause, local).tolist(), str(clause)
            tally[index.kind] += not any(key[0] == "summary" for key in files._known.held)
    # ranges of floats are finished here: NaN stands beside them, above every number
    least = {"minmax": 20, "valuelist": 10, "gaplist": 4, "prefix": 4, "suffix": 4, "geobox": 30, "metricdist": 5}
    assert all(tally[kind] >= most // step for kind, most in least.items()), (
        f"that many read no column of all files: {tally}"
    )


N, S = p.Column("n", "bigint"), p.Column("s", "string")
_VALUES = pa.struct([("values", pa.list_(pa.binary())), ("nulls", pa.int64()), ("rows", pa.int64())])
LEAST = IndexEntry(
    MinMax("n").bind([N]),
    (("n", "bigint"),),
    pa.struct([(name, pa.int64()) for name in ("min", "max", "nulls", "rows")]),
)
LISTED = IndexEntry(ValueList("s").bind([S]), (("s", "string"),), _VALUES)
BOTH = (LEAST, LISTED)


def rows_of_both(bounds: Sequence[int | None], words: Sequence[list[bytes]]) -> list[FileRow]:
    """Files of one row, with the number, or an unknown one, and the texts that they hold."""
    rows = []
    for place, (number, texts) in enumerate(zip(bounds, words, strict=True)):
        least = {"min": number, "max": number, "nulls": int(number is None), "rows": 1}
        listed = {"values": texts, "nulls": 0, "rows": 1}
        rows.append(FileRow(f"f{place}", 5, 6, summaries={LEAST.name: least, LISTED.name: listed}))
    return rows


def test_the_rest_of_a_clause_is_evaluated_over_what_the_server_kept(search_server: Any) -> None:
    rows = rows_of_both(range(40), [[b"a", b"b"], [b"b"], [b"c"], [b"a"]] * 10)
    with Proxy(search_server.url) as proxy:
        store = ElasticsearchStore(proxy.url, "rest", settings=QUICK, ask_above=0, timeout=20)
        store.drop()
        header = store.commit(Header("file:/data", {}, BOTH), build_table(BOTH, rows), expected=None)
        gone = pa.array([number == 12 for number in range(40)])
        header = store.amend(header, gone, build_table(BOTH, rows[12:13]), expected=1)
        snapshot: Snapshot = store.load(2)
        big = p.Comparison(">=", N, p.Literal(10, "bigint"))
        clause = clause_for(p.And((big, p.EndsWith(S, "a"))), snapshot.indexes)
        del proxy.seen[:]
        kept = snapshot.files.evaluate(clause)
        assert len(proxy.seen) == 3, "a search for the clause, one for the lists of what it left, and once the mappings"
        paths = np.array(snapshot.files.column("path").to_pylist())
        assert sorted(paths[kept]) == sorted(f"f{n}" for n in range(10, 40) if n % 4 in (0, 3))
        del proxy.seen[:]
        assert snapshot.files.evaluate(clause).tolist() == kept.tolist()
        assert proxy.seen == [], "what the server said of a snapshot holds"


def test_a_clause_that_looks_at_more_than_it_names_is_told_it(search_server: Any) -> None:
    """A comparison with one end looks at the other where the end has nulls; files that are left are asked for both."""
    bounds = [None if number % 2 else number for number in range(40)]
    rows = rows_of_both(bounds, [[b"a" if number < 20 else b"b"] for number in range(40)])
    store = ElasticsearchStore(search_server.url, "more", settings=QUICK, ask_above=0, timeout=20)
    store.drop()
    store.commit(Header("file:/data", {}, BOTH), build_table(BOTH, rows), expected=None)
    snapshot = store.load(1)
    big = p.Comparison(">", N, p.Literal(10, "bigint"))
    odd, one_of = p.EndsWith(S, "z"), p.Comparison("=", S, p.Literal("a", "string"))
    clause = clause_for(p.And((one_of, p.Or((big, odd)))), snapshot.indexes)
    assert np.flatnonzero(snapshot.files.evaluate(clause)).tolist() == [12, 14, 16, 18]


def test_large_summaries_are_read_from_the_documents_of_the_files(search_server: Any) -> None:
    lists = [None if n == 3 else [b"%05d" % (100 * n + i) for i in range(100)] for n in range(8)]
    summaries = [None if found is None else {"values": found, "nulls": 0, "rows": 9} for found in lists]
    rows = [FileRow(f"f{n}", 5, 6, summaries={LISTED.name: summary}) for n, summary in enumerate(summaries)]
    store = ElasticsearchStore(search_server.url, "large", settings=QUICK, timeout=20)
    store.drop()
    header = store.commit(Header("file:/data", {}, (LISTED,)), build_table([LISTED], rows), expected=None)
    (part,) = header.parts
    store.amend(header, pa.array([n == 1 for n in range(8)]), build_table([LISTED], []), expected=1)
    found = store.load(2).files
    assert found.column("path").to_pylist() == [f"f{n}" for n in range(8) if n != 1]
    assert found.summary(LISTED.name, "values").to_pylist() == [lists[n] for n in range(8) if n != 1]
    assert found.column(LISTED.name).is_valid().to_pylist() == [n != 3 for n in range(8) if n != 1]
    change = {"doc": {"summaries": {slots_of([LISTED])[0].name: {"nulls": 1}}}}
    store.server.tell("POST", f"/large/_update/{part.name}-5", change, refresh="true")
    with pytest.raises(MetadataError, match=r"valuelist\(s\) of .* is damaged: its checksum differs"):
        ElasticsearchStore(search_server.url, "large", timeout=20).load(2).files.table()
    store.server.tell("DELETE", f"/large/_doc/{part.name}-5", refresh="true")
    with pytest.raises(MetadataError, match="has lost row 5"):
        ElasticsearchStore(search_server.url, "large", timeout=20).load(2).files.table()


def test_columns_whose_later_values_are_large_are_not_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "BLOCK", 4)
    monkeypatch.setattr(documents, "_LARGEST_BLOCK", 1000)
    monkeypatch.setattr(documents, "_SMALL", 400)
    paths = [*"abcdefgh", *("x" * 500 + str(n) for n in range(4)), *"ijkl"]
    writer = documents.PartWriter("p", build_table([], [FileRow(path, 5, 6) for path in paths]), (), frozenset())
    made = [json.loads(text) for _, text in writer.documents()]
    assert len([document for document in made if document["kind"] == "file"]) == 16
    leaves = {name: column.leaves for name, column in writer.part().columns.items()}
    assert [name for name in leaves if documents.BLOCKS in leaves[name]] == ["size", "mtime", "etag", "rows"]


@pytest.mark.slow
def test_conditions_with_more_clauses_than_the_server_takes_are_evaluated_here(search_server: Any) -> None:
    index = MinMax("n").bind([p.Column("n", "bigint")])
    entry = IndexEntry(index, (("n", "bigint"),), pa.struct([(f, pa.int64()) for f in ("min", "max", "nulls", "rows")]))
    summaries = [{"min": n, "max": n, "nulls": 0, "rows": 1} for n in range(40)]
    rows = [FileRow(f"f{n}", 5, 6, summaries={str(index): summary}) for n, summary in enumerate(summaries)]
    store = ElasticsearchStore(search_server.url, "clauses", settings=QUICK, ask_above=0, timeout=20)
    store.drop()
    store.commit(Header("file:/data", {}, (entry,)), build_table([entry], rows), expected=None)
    n = p.Column("n", "bigint")

    def between(low: int) -> p.Predicate:
        ends = p.Literal(low, "bigint"), p.Literal(low + 3, "bigint")
        return p.And((p.Comparison(">=", n, ends[0]), p.Comparison("<", n, ends[1])))

    clause = clause_for(p.Or(tuple(between(10 * at) for at in range(200))), [index])
    assert np.flatnonzero(store.load(1).files.evaluate(clause)).tolist() == [at for at in range(40) if at % 10 < 3]


def test_many_files_are_read_and_asked_about_page_by_page(search_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoskip.stores.search.server._PAGE", 100)
    index = MinMax("n").bind([p.Column("n", "bigint")])
    arrow = pa.struct([(name, pa.int64()) for name in ("min", "max", "nulls", "rows")])
    entry = IndexEntry(index, (("n", "bigint"),), arrow)
    summaries = [{"min": n, "max": n, "nulls": 0, "rows": 1} for n in range(450)]
    rows = [FileRow(f"f{n}", 5, 6, summaries={str(index): summary}) for n, summary in enumerate(summaries)]
    with Proxy(search_server.url) as proxy:
        store = ElasticsearchStore(proxy.url, "pages", settings=QUICK, ask_above=0, timeout=20)
        store.drop()
        header = Header("file:/data", {}, (entry,))
        header = store.commit(header, build_table([entry], rows[:200]), expected=None)
        store.amend(header, pa.array([False] * 200), build_table([entry], rows[200:]), expected=1)
        clause = clause_for(p.Comparison(">", p.Column("n", "bigint"), p.Literal(99, "bigint")), [index])
        files = store.load(2).files
        del proxy.seen[:]
        assert np.flatnonzero(files.evaluate(clause)).tolist() == list(range(100, 450))
        searches = [path for method, path in proxy.seen if "/_search?" in path]
        assert len(searches) == 4
        one_view = [path for path in searches if path.startswith("/_search")]
        assert len(one_view) == (4 if search_server.kind == "opensearch" else 0), "pages are of one point in time"
        assert store.load(2).files.column("path").to_pylist() == [f"f{n}" for n in range(450)]
        files = SearchFiles(store.server, "pages", store.load(2).header, 0)
        proxy.fault = lambda request: 403 if "point_in_time" in request[1] or "_pit" in request[1] else None
        assert np.flatnonzero(files.evaluate(clause)).tolist() == list(range(100, 450)), (
            "who may open no view has pages too"
        )
        files, pages = SearchFiles(store.server, "pages", store.load(2).header, 0), iter([None, 404])
        proxy.fault = lambda request: next(pages, None) if request[1].startswith("/_search?") else None
        assert np.flatnonzero(files.evaluate(clause)).tolist() == list(range(100, 450)), (
            "nor is a view needed that ends"
        )
        assert (next(pages, "asked") == "asked") is (search_server.kind == "opensearch")
        proxy.fault = lambda request: None
        monkeypatch.setattr(store.server, "_answer", telling_ties_apart(store.server._answer))
        files = SearchFiles(store.server, "pages", store.load(2).header, 0)
        assert np.flatnonzero(files.evaluate(clause)).tolist() == list(range(100, 450))
        monkeypatch.setattr("geoskip.stores.search.index._AT_ONCE", 200)
        monkeypatch.setattr("geoskip.stores.search.index._BATCH", 90)
        del proxy.seen[:]
        store.drop()
        assert sum("_delete_by_query" in path for _, path in proxy.seen) > 2, "what is removed is removed in pages too"
        assert store.server.ask("GET", "/pages/_count")["count"] == 0


def telling_ties_apart(answer: Any) -> Any:
    """What a server's point in time answers that adds a value to those that hits are sorted by, and wants it back."""

    def answered(method: str, path: str, body: Any, *rest: Any) -> Any:
        if not (isinstance(body, dict) and "pit" in body):
            return answer(method, path, body, *rest)
        if "search_after" in body:
            *after, tie = body["search_after"]
            assert tie == 7
            body = {**body, "search_after": after}
        found = answer(method, path, body, *rest)
        for hit in found["hits"]["hits"]:
            hit["sort"].append(7)
        return found

    return answered


def test_documents_that_were_moved_are_asked_about_if_their_keys_have_the_same_types(search_server: Any) -> None:
    index, files, _ = next(sample for sample in samples() if str(sample[0]) == "minmax(s)")
    entry = IndexEntry(index, (("c", "binary"),), files.column(str(index)).type)
    rows = build_table([], [FileRow(f"f{row}", 5, 6) for row in range(len(files))])
    table = rows.append_column(str(index), files.column(str(index)))
    store = ElasticsearchStore(search_server.url, "moved", settings=QUICK, ask_above=0, timeout=20)
    store.drop()
    store.commit(Header("file:/data", {}, (entry,)), table, expected=None)
    clause = clause_for(p.Comparison(">", p.Column("s", "string"), p.Literal("ab", "string")), [index])
    told = store.server.tell("GET", "/moved-000001/_mapping")["moved-000001"]["mappings"]
    guessed = {"properties": {name: kind for name, kind in told["properties"].items() if name != "keys"}}
    for mappings, asked in ((told, True), (guessed, False)):
        store.server.tell("PUT", "/moved-000002", {"mappings": mappings, "settings": QUICK})
        copy = {"source": {"index": "moved-000001"}, "dest": {"index": "moved-000002"}}
        store.server.tell("POST", "/_reindex", copy, refresh="true")
        to = [{"remove": {"index": "moved-*", "alias": "moved"}}, {"add": {"index": "moved-000002", "alias": "moved"}}]
        store.server.tell("POST", "/_aliases", {"actions": to})
        found = fresh(store)
        assert found.evaluate(clause).tolist() == keep_mask(clause, files).tolist()
        assert any(key[0] == "summary" for key in found._known.held) is not asked
        store.server.tell("DELETE", "/moved-000002")
        store.server.tell("POST", "/_aliases", {"actions": [{"add": {"index": "moved-000001", "alias": "moved"}}]})
