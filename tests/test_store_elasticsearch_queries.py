"""Clauses as the server's queries: what it keeps is what is kept here, or more."""

from __future__ import annotations

import functools
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geoskip import predicates as p
from geoskip.clauses import Clause, all_of, any_of, keep_mask
from geoskip.errors import MetadataError
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.valuelist import ValueList
from geoskip.labelling import Labeller, clause_for, fold_constants, gather
from geoskip.metadata import FileMetadata, FileRow, Header, IndexEntry, Snapshot, build_table, files_schema
from geoskip.stores.elasticsearch import ElasticsearchStore, documents, translation
from geoskip.stores.elasticsearch.cells import encoded
from geoskip.stores.elasticsearch.documents import slots_of
from geoskip.stores.elasticsearch.files import SearchFiles
from geoskip.stores.elasticsearch.keys import keys_of
from geoskip.stores.elasticsearch.translation import translated
from tests.harness import COLUMNS, World, canned, leaves
from tests.servers.proxy import Proxy
from tests.strategies import predicates, worlds
from tests.test_store_elasticsearch import QUICK

NAMES = tuple(COLUMNS)


# --- without a server: its semantics in a few lines -------------------------------------------------------------------


def matches(query: dict[str, Any], document: dict[str, Any]) -> bool:
    """Does a document match, by the server's rules? A member that is missing matches no range and no term."""
    ((kind, inside),) = query.items()
    match kind:
        case "match_all":
            return True
        case "match_none":
            return False
        case "bool":
            return (
                all(matches(part, document) for part in inside.get("filter", ()))
                and not any(matches(part, document) for part in inside.get("must_not", ()))
                and ("should" not in inside or any(matches(part, document) for part in inside["should"]))
            )
        case "exists":
            return value_of(document, inside["field"]) is not None
        case "term":
            ((field, wanted),) = inside.items()
            return value_of(document, field) == wanted
        case "range":
            ((field, limits),) = inside.items()
            value = value_of(document, field)
            return value is not None and all(LIMITS[name](value, limit) for name, limit in limits.items())
    raise AssertionError(f"no query of ours: {query}")


LIMITS = {
    "lt": lambda value, limit: value < limit,
    "lte": lambda value, limit: value <= limit,
    "gt": lambda value, limit: value > limit,
    "gte": lambda value, limit: value >= limit,
}


def value_of(document: Any, path: str) -> Any:
    for name in path.split("."):
        document = (document or {}).get(name)
    return document


def documents_of(world: World) -> tuple[list[dict[str, Any]], dict[str, tuple[str, pa.DataType]]]:
    """The keys of a world's files, and where they are."""
    table = world.metadata.table()
    found: list[dict[str, Any]] = [{} for _ in world.files]
    fields = {}
    for at, index in enumerate(world.types):
        keys = keys_of(table, str(index))
        if keys is not None:
            fields[str(index)] = (f"k{at}", table.schema.field(str(index)).type.field("min").type)
            for document, values in zip(found, keys, strict=True):
                document[f"k{at}"] = values
    return found, fields


def clauses(predicate: p.Predicate, world: World) -> Iterator[Clause]:
    """What represents that the predicate is TRUE, FALSE or NULL."""
    columns = p.columns_of(predicate)
    label = Labeller([i for i in world.types if columns.intersection(i.expressions())])
    node = gather(p.normalise(fold_constants(predicate)))
    yield from (label.true(node), label.false(node), label.null(node))


def compare(clause: Clause, world: World, documents: list[Any], fields: Any) -> bool | None:
    """Is a clause's query exact? None where there is no query. It keeps what the clause keeps in any case."""
    found = translated(clause, fields)
    if found is None:
        return None
    there = np.array([matches(found.query, document) for document in documents], dtype=bool)
    here = keep_mask(clause, world.metadata)
    wrong = (here != there) if found.exact else (here & ~there)
    assert not wrong.any(), f"{clause}: {found.query} differs for {documents[int(np.flatnonzero(wrong)[0])]}"
    return found.exact


def some(items: list[Any], most: int) -> list[Any]:
    """The same few each time."""
    return random.Random(len(items)).sample(items, min(most, len(items)))


@pytest.mark.parametrize("name", NAMES)
def test_every_leaf_shape_is_translated_rightly_for_every_state_of_a_file(name: str) -> None:
    world = canned(name)
    documents, fields = documents_of(world)
    chosen = some(list(leaves(name)), 60)
    tally = Counter(compare(clause, world, documents, fields) for leaf in chosen for clause in clauses(leaf, world))
    assert tally[True] >= (30 if name != "w" else 0), tally


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(st.data())
def test_trees_are_translated_rightly(data: Any) -> None:
    names = data.draw(st.sampled_from([("a", "x", "s"), ("n", "f", "s"), ("d", "day", "b")]))
    world, predicate = data.draw(worlds(names)), data.draw(predicates(names))
    if world.files:
        documents, fields = documents_of(world)
        for clause in clauses(predicate, world):
            compare(clause, world, documents, fields)


MUTANTS = {
    "an open bound of strings is a missing member": (
        "_reaches",
        lambda field, end, **limits: field.compared(end, **limits),
    ),
    "a file without values has no bounds": (
        "_text_meets",
        lambda field, op, value: {"bool": {"filter": [{"range": {f"{field.path}.high": {"gte": value.hex()}}}]}},
    ),
    "an inexact place lies above its key": ("_meets", lambda f, op, at, exact: MEETS(f, op, at, True)),
    "the negation of a clause": ("_any", lambda queries: {"bool": {"filter": list(queries)}}),
}
MEETS = translation._meets


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_translation_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation, *MUTANTS[name])
    with pytest.raises(AssertionError, match="differs"):
        compare_all("ds")


def compare_all(names: str) -> None:
    for name in names:
        world = canned(name)
        documents, fields = documents_of(world)
        for clause in (clause for leaf in leaves(name) for clause in clauses(leaf, world)):
            compare(clause, world, documents, fields)


def test_more_literals_than_a_server_takes_become_their_ends() -> None:
    world = canned("n")
    documents, fields = documents_of(world)
    many = p.In(COLUMNS["n"], tuple(p.Literal(n, "bigint") for n in range(0, 10_000, 7)))
    clause = next(clauses(many, world))
    assert compare(clause, world, documents, fields) is False
    found = translated(clause, fields)
    assert found is not None
    assert found.size < 20


def test_what_is_too_deep_or_too_long_is_evaluated_here() -> None:
    world = canned("n")
    _, fields = documents_of(world)
    leaf = next(clauses(p.Comparison(">", COLUMNS["n"], p.Literal(5, "bigint")), world))
    deep = leaf
    for _ in range(10):
        deep = any_of([all_of([deep, Unknown()]), Other()])
    assert translated(deep, fields) is None
    different = [next(clauses(p.Comparison(">", COLUMNS["n"], p.Literal(n, "bigint")), world)) for n in range(1000)]
    assert translated(any_of(different), fields) is None


class Unknown(Clause):
    def keep(self, files: Any) -> Any:
        return np.ones(len(files), dtype=bool)


class Other(Unknown):
    pass


# --- on real servers --------------------------------------------------------------------------------------------------


@functools.cache
def everything() -> tuple[pa.Table, tuple[IndexEntry, ...]]:
    """One table of the canned files of all columns: each has a summary of one column, and none of the others."""
    tables, entries = [], []
    for name in NAMES:
        world = canned(name)
        ((index, stored),) = world.types.items()
        entries.append(IndexEntry(index, ((name, COLUMNS[name].type or ""),), stored))
        files = build_table([], [FileRow(f"{name}-{at}", 5, 6) for at in range(len(world.files))])
        tables.append(files.append_column(str(index), world.metadata.column(str(index))))
    found = pa.concat_tables(tables, promote_options="default").combine_chunks()
    return found.select(files_schema(entries).names), tuple(entries)


@pytest.fixture(scope="module")
def canned_store(search_server: Any) -> ElasticsearchStore:
    store = ElasticsearchStore(search_server.url, "canned", settings=QUICK, ask_above=0)
    store.drop()
    table, entries = everything()
    store.commit(Header("file:/data", {}, entries), table, expected=None)
    return store


def fresh(store: ElasticsearchStore) -> SearchFiles:
    """The files of the store, nothing of them read yet."""
    return SearchFiles(store.server, store.name, store.load(1).header, store.ask_above)


def test_all_summaries_come_back(canned_store: ElasticsearchStore) -> None:
    table, _ = everything()
    found = fresh(canned_store).table()
    assert found.schema.equals(files_schema(everything()[1]))
    for name in table.schema.names:
        there, here = found[name].combine_chunks(), table[name].combine_chunks()
        assert there.is_valid().equals(here.is_valid())
        pairs = zip(there.flatten(), here.flatten(), strict=True) if pa.types.is_struct(here.type) else [(there, here)]
        assert all(encoded(a) == encoded(b) for a, b in pairs), name  # NaN is not equal to itself


def test_the_server_keeps_what_is_kept_here(canned_store: ElasticsearchStore) -> None:
    table, entries = everything()
    local = FileMetadata.of(table)
    tally = Counter[bool]()
    for entry in entries:
        ((name, _),) = entry.columns
        for leaf in some(list(leaves(name)), 4):
            for predicate in (leaf, p.Not(leaf)):
                clause = clause_for(predicate, [entry.index])
                files = fresh(canned_store)
                assert files.kept(clause).tolist() == keep_mask(clause, local).tolist(), str(clause)
                tally[files.nbytes == 0 or not any(key[0] == "summary" for key in files._known.held)] += 1
    assert tally[True] > 30, "that many were answered by the server alone"


def test_the_rest_of_a_clause_is_evaluated_over_what_the_server_kept(search_server: Any) -> None:
    words = [["a", "b"], ["b"], ["c"], ["a"]]
    least, listed = MinMax("n").bind([p.Column("n", "bigint")]), ValueList("s").bind([p.Column("s", "string")])
    arrow = pa.struct([(name, pa.int64()) for name in ("min", "max", "nulls", "rows")])
    values = pa.struct([("values", pa.list_(pa.binary())), ("nulls", pa.int64()), ("rows", pa.int64())])
    entries = (IndexEntry(least, (("n", "bigint"),), arrow), IndexEntry(listed, (("s", "string"),), values))
    rows = [
        FileRow(
            f"f{number}",
            5,
            6,
            summaries={
                str(least): {"min": number, "max": number, "nulls": 0, "rows": 1},
                str(listed): {"values": [w.encode() for w in words[number % 4]], "nulls": 0, "rows": 1},
            },
        )
        for number in range(40)
    ]
    with Proxy(search_server.url) as proxy:
        store = ElasticsearchStore(proxy.url, "rest", settings=QUICK, ask_above=0)
        store.drop()
        header = store.commit(Header("file:/data", {}, entries), build_table(entries, rows), expected=None)
        gone = pa.array([number == 12 for number in range(40)])
        header = store.amend(header, gone, build_table(entries, rows[12:13]), expected=1)
        snapshot: Snapshot = store.load(2)
        big = p.Comparison(">=", p.Column("n", "bigint"), p.Literal(10, "bigint"))
        an_a = p.Comparison("=", p.Column("s", "string"), p.Literal("a", "string"))
        clause = clause_for(p.And((big, an_a)), snapshot.indexes)
        del proxy.seen[:]
        kept = snapshot.files.kept(clause)
        assert len(proxy.seen) == 2, "one search for the clause, one for the lists of what it left"
        paths = np.array(snapshot.files.column("path").to_pylist())
        assert sorted(paths[kept]) == sorted(f"f{n}" for n in range(10, 40) if n % 4 in (0, 3))
        del proxy.seen[:]
        assert snapshot.files.kept(clause).tolist() == kept.tolist()
        assert proxy.seen == [], "what the server said of a snapshot holds"


def test_large_summaries_are_read_from_the_documents_of_the_files(search_server: Any) -> None:
    listed = ValueList("s").bind([p.Column("s", "string")])
    values = pa.struct([("values", pa.list_(pa.binary())), ("nulls", pa.int64()), ("rows", pa.int64())])
    entry = IndexEntry(listed, (("s", "string"),), values)
    lists = [None if n == 3 else [b"%05d" % (100 * n + i) for i in range(100)] for n in range(8)]
    summaries = [None if found is None else {"values": found, "nulls": 0, "rows": 9} for found in lists]
    rows = [FileRow(f"f{n}", 5, 6, summaries={str(listed): summary}) for n, summary in enumerate(summaries)]
    store = ElasticsearchStore(search_server.url, "large", settings=QUICK, timeout=20)
    store.drop()
    header = store.commit(Header("file:/data", {}, (entry,)), build_table([entry], rows), expected=None)
    (part,) = header.parts
    store.amend(header, pa.array([n == 1 for n in range(8)]), build_table([entry], []), expected=1)
    found = store.load(2).files
    assert found.column("path").to_pylist() == [f"f{n}" for n in range(8) if n != 1]
    assert found.summary(str(listed), "values").to_pylist() == [lists[n] for n in range(8) if n != 1]
    assert found.column(str(listed)).is_valid().to_pylist() == [n != 3 for n in range(8) if n != 1]
    change = {"doc": {"summaries": {slots_of([entry])[0].name: {"nulls": 1}}}}
    store.server.tell("POST", f"/large/_update/{part.name}-5", change, refresh="true")
    with pytest.raises(MetadataError, match=r"valuelist\(s\) of .* is damaged: its checksum differs"):
        ElasticsearchStore(search_server.url, "large", timeout=20).load(2).files.table()
    store.server.tell("DELETE", f"/large/_doc/{part.name}-5", refresh="true")
    with pytest.raises(MetadataError, match="has lost row 5"):
        ElasticsearchStore(search_server.url, "large", timeout=20).load(2).files.table()


def test_columns_whose_later_values_are_large_are_not_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_BLOCK", 4)
    monkeypatch.setattr(documents, "_LARGEST_BLOCK", 1000)
    monkeypatch.setattr(documents, "_SMALL", 400)
    paths = [*"abcdefgh", *("x" * 500 + str(n) for n in range(4)), *"ijkl"]
    writer = documents.PartWriter("p", build_table([], [FileRow(path, 5, 6) for path in paths]), (), frozenset())
    made = [json.loads(text) for _, text in writer.documents()]
    assert len([document for document in made if document["kind"] == "file"]) == 16
    leaves = {name: column.leaves for name, column in writer.part().columns.items()}
    assert [name for name in leaves if documents.BLOCKS in leaves[name]] == ["size", "mtime", "etag", "rows"]


def test_many_files_are_read_and_asked_about_page_by_page(search_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoskip.stores.elasticsearch.server._PAGE", 100)
    index = MinMax("n").bind([p.Column("n", "bigint")])
    arrow = pa.struct([(name, pa.int64()) for name in ("min", "max", "nulls", "rows")])
    entry = IndexEntry(index, (("n", "bigint"),), arrow)
    summaries = [{"min": n, "max": n, "nulls": 0, "rows": 1} for n in range(450)]
    rows = [FileRow(f"f{n}", 5, 6, summaries={str(index): summary}) for n, summary in enumerate(summaries)]
    with Proxy(search_server.url) as proxy:
        store = ElasticsearchStore(proxy.url, "pages", settings=QUICK, ask_above=0)
        store.drop()
        header = Header("file:/data", {}, (entry,))
        header = store.commit(header, build_table([entry], rows[:200]), expected=None)
        store.amend(header, pa.array([False] * 200), build_table([entry], rows[200:]), expected=1)
        clause = clause_for(p.Comparison(">", p.Column("n", "bigint"), p.Literal(99, "bigint")), [index])
        files = store.load(2).files
        del proxy.seen[:]
        assert np.flatnonzero(files.kept(clause)).tolist() == list(range(100, 450))
        searches = [path for method, path in proxy.seen if "/_search?" in path]
        assert len(searches) == 4
        one_view = [path for path in searches if path.startswith("/_search")]
        assert len(one_view) == (4 if search_server.kind == "opensearch" else 0), "pages are of one point in time"
        assert store.load(2).files.column("path").to_pylist() == [f"f{n}" for n in range(450)]
