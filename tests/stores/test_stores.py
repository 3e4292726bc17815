"""One suite over all stores; one of one's own joins :data:`tests.support.storing.STORES`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from geoskip.errors import ConflictError, MetadataError
from geoskip.metadata import FORMAT, add_indexes
from geoskip.predicates import Column
from geoskip.stores import Store
from tests.support.storing import HEADER, STORES, append, begun, content, entry, in_threads, removed, table


@pytest.fixture(params=STORES.values(), ids=list(STORES))
def reopen(request, tmp_path) -> Callable[[], Store]:
    return lambda: request.param(tmp_path / "_geoskip")


@pytest.fixture
def store(reopen) -> Store:
    return reopen()


def test_an_empty_store_has_nothing(store):
    assert (store.latest(), store.identity(), store.size()) == (None, None, {})
    with pytest.raises(MetadataError):
        store.load(1)
    store.drop()


def test_what_was_committed_is_read_by_another_handle(store, reopen):
    header = begun(store, f=1, g=None)
    other = reopen()
    assert (other.latest(), other.identity()) == (1, header.identity)
    snapshot = other.load(1)
    assert snapshot.header == header
    assert (header.number, header.files, header.format, header.created[:2]) == (1, 2, FORMAT, "20")
    assert snapshot.header.entries == HEADER.entries
    assert snapshot.indexes[0].bound == (Column("a", "bigint"),)
    assert snapshot.files.table().equals(table({"f": 1, "g": None}))
    assert snapshot.files.summary("test_least(a)", "words").to_pylist() == [["x", None], None]


def test_snapshots_are_numbered_and_stay(store, reopen):
    header = begun(store, f=1)
    second = store.commit(header, table({"f": 2}), expected=1)
    third = reopen().commit(second, table({"f": 3}), expected=2)
    assert [header.identity] * 2 == [second.identity, third.identity]
    assert [content(reopen(), n) for n in (1, 2, 3)] == [{"f": 1}, {"f": 2}, {"f": 3}]
    assert reopen().latest() == 3


def test_a_writer_of_another_snapshot_than_the_latest_is_told(store):
    header = begun(store)
    store.commit(header, table({"f": 2}), expected=1)
    for expected in (None, 0, 1, 3):
        with pytest.raises(ConflictError, match="snapshot 2 is the latest"):
            store.commit(header, table({"f": 9}), expected=expected)
    assert content(store) == {"f": 2}


def test_a_reader_keeps_its_snapshot_while_another_commits(store, reopen):
    header = begun(store, f=1)
    held = reopen().load(1)
    store.commit(header, table({"f": 2}), expected=1)
    assert held.files.summary("test_least(a)", "least").to_pylist() == [1]


def test_an_old_writer_cannot_commit_into_a_log_begun_since(store, reopen):
    old = begun(store, f=1)
    assert content(store) == {"f": 1}
    reopen().drop()
    assert (store.latest(), store.identity()) == (None, None)
    with pytest.raises(ConflictError):
        store.commit(old, table({"f": 2}), expected=1)
    new = begun(reopen(), f=7)
    assert (new.number, new.identity != old.identity) == (1, True)
    with pytest.raises(ConflictError, match="begun anew"):
        store.commit(old, table({"f": 2}), expected=1)
    assert content(store) == {"f": 7}, "and the old log's snapshot 1 is not mistaken for the new one"


def test_an_index_is_added(store):
    header = begun(store, f=1, g=2)
    both = add_indexes(store.load(1).files.table(), table({"g": 3, "h": 4}, "`x.y (z)`"))
    store.commit(replace(header, entries=(entry(), entry("`x.y (z)`"))), both, expected=1)
    assert content(store) == {"f": 1, "g": 2, "h": None}
    assert content(store, column="`x.y (z)`") == {"f": None, "g": 3, "h": 4}
    assert store.size().keys() == {"files", "test_least(a)", "test_least(`x.y (z)`)"}


def test_a_column_without_an_index_is_not_stored(store):
    store.commit(replace(HEADER, entries=()), table({"f": 1}), expected=None)
    assert content(store) == {"f": None}
    assert store.load(1).header.entries == ()


def test_no_files_are_a_snapshot_too(store):
    store.commit(HEADER, table({}), expected=None)
    assert (content(store), store.load(1).header.files) == ({}, 0)


def test_odd_paths_come_back(store, reopen):
    paths = ["a b", "%20", "a+b", "ü/\U0001f30d", "line\nfeed", "p=a%2520b/x=''\"`\\", "s3a://b/k"]
    begun(store, **{path: number for number, path in enumerate(paths)})
    assert content(reopen()) == {path: number for number, path in enumerate(paths)}


def test_a_log_begins_without_a_snapshot(store, reopen):
    identity = store.begin()
    assert (store.begin(), reopen().identity()) == (identity, identity)
    assert (reopen().latest(), reopen().snapshots()) == (None, ())
    assert store.commit(replace(HEADER, identity=identity), table({"f": 1}), expected=None).identity == identity
    reopen().drop()
    assert store.begin() != identity
    with pytest.raises(ConflictError, match="begun anew"):
        store.commit(replace(HEADER, identity=identity), table({"f": 1}), expected=None)
    assert store.latest() is None


def test_entries_of_the_operation_log_are_created_once(store, reopen):
    assert store.operations() == ()
    identity = store.begin()
    entry = {"verb": "refresh", "who": "Zoë", "counts": {"files": 3}, "open": [1, None]}
    store.record(1, entry, identity=identity)
    reopen().record(12, {"verb": "vacuum"}, identity=identity)
    assert (reopen().operations(), reopen().operation(1)) == ((1, 12), entry)
    for number in (1, 12):
        with pytest.raises(ConflictError, match=f"entry {number} "):
            store.record(number, {"verb": "lost"}, identity=identity)
    with pytest.raises(MetadataError):
        store.operation(2)
    with pytest.raises(MetadataError, match="JSON"):
        store.record(13, {"verb": object()}, identity=identity)
    assert (store.operations(), store.operation(12)) == ((1, 12), {"verb": "vacuum"})
    assert store.latest() is None, "and they are no snapshots"


def test_an_old_writer_cannot_record_into_a_log_begun_since(store, reopen):
    old = store.begin()
    store.record(1, {"verb": "create"}, identity=old)
    reopen().drop()
    assert store.operations() == ()
    with pytest.raises(ConflictError):
        store.record(2, {"verb": "create"}, identity=old)
    store.begin()
    with pytest.raises(ConflictError):
        store.record(2, {"verb": "create"}, identity=old)
    assert store.operations() == ()


def test_of_many_writers_one_creates_an_entry(store, reopen):
    identity = store.begin()
    start, outcomes = threading.Barrier(6), []

    def write(who: int) -> None:
        mine = reopen()
        start.wait()
        try:
            mine.record(1, {"who": who}, identity=identity)
            outcomes.append(who)
        except ConflictError:
            outcomes.append("lost")

    in_threads(write, 6)
    assert outcomes.count("lost") == 5
    assert store.operation(1)["who"] in outcomes


def test_a_snapshot_is_amended(store, reopen):
    header = begun(store, f=1, g=2, h=3)
    header = store.amend(header, removed(1, of=3), table({"i": 4}), expected=1)
    assert (header.number, header.files) == (2, 3)
    header = reopen().amend(header, removed(0, 2, of=3), table({"j": None, "k": 6}), expected=2)
    assert [content(reopen(), n) for n in (1, 2, 3)] == [
        {"f": 1, "g": 2, "h": 3},
        {"f": 1, "h": 3, "i": 4},
        {"h": 3, "j": None, "k": 6},
    ]
    header = store.amend(header, removed(0, 1, 2, of=3), table({}), expected=3)
    assert (content(store), header.files) == ({}, 0)
    header = store.amend(header, removed(of=0), table({"l": 7}), expected=4)
    assert content(reopen()) == {"l": 7}
    with pytest.raises(ConflictError, match="snapshot 5 is the latest"):
        store.amend(header, removed(of=1), table({}), expected=4)


def test_amending_many_times_is_the_same_as_committing(store, reopen):
    header, expected = begun(store, f=1), {"f": 1}
    for turn in range(20):
        gone = sorted(expected)[turn % len(expected)] if turn % 3 else None
        where = [path == gone for path in expected]
        expected = {path: value for path, value in expected.items() if path != gone} | {f"n{turn}": turn, f"m{turn}": 0}
        header = store.amend(header, pa.array(where), table({f"n{turn}": turn, f"m{turn}": 0}), expected=header.number)
        assert header.files == len(expected)
    assert list(content(reopen()).items()) == list(expected.items())


def test_the_deleted_indexes_keep_their_summaries(store, reopen):
    both = replace(HEADER, entries=(entry(), entry("b")))
    header = store.commit(both, add_indexes(table({"f": 1}), table({"f": 2}, "b")), expected=None)
    header = replace(header, entries=(entry(),), deleted=(entry("b"),))
    header = store.amend(header, removed(of=1), table({"g": 3}), expected=1)
    snapshot = reopen().load(2)
    assert (snapshot.header.entries, snapshot.header.deleted) == ((entry(),), (entry("b"),))
    assert snapshot.files.table()["test_least(b)"].null_count == 1, "of f it is there when parts are written anew"
    header = store.amend(replace(header, entries=both.entries, deleted=()), removed(of=2), table({}), expected=2)
    assert content(reopen()) == {"f": 1, "g": 3}
    assert content(reopen(), column="b") == {"f": 2, "g": None}


def test_snapshots_and_entries_are_forgotten(store, reopen):
    header = begun(store, f=1)
    header = store.amend(header, removed(of=1), table({"g": 2}), expected=1)
    header = store.commit(header, table({"h": 3}), expected=2)
    store.record(1, {}, identity=header.identity)
    store.record(2, {}, identity=header.identity)
    reopen().forget(snapshots=(1, 3, 77), operations=(1, 77))
    assert (store.snapshots(), store.operations(), store.latest()) == ((2, 3), (2,), 3), "the latest stays"
    with pytest.raises(MetadataError):
        reopen().load(1)
    assert content(reopen(), 2) == {"f": 1, "g": 2}, "what it shares with the forgotten one stays"
    store.sweep(tuple)
    assert content(reopen(), 2) == {"f": 1, "g": 2}
    reopen().forget(snapshots=(2,))
    store.sweep(tuple)
    assert store.sweep(tuple) == 0, "nothing is left to sweep"
    assert content(reopen(), 3) == {"h": 3}


def test_a_store_describes_itself(store):
    begun(store, f=1)
    told = store.describe()
    assert (told["snapshot"], told["files"], told["format"], told["location"]) == (1, 1, FORMAT, store.location)
    assert told["bytes"] == sum(told["bytes_by_index"].values()) > 0
    assert told["bytes_by_index"].keys() == {"files", "test_least(a)"}


def test_a_header_that_json_cannot_hold_is_refused(store):
    with pytest.raises(MetadataError, match="JSON"):
        store.commit(replace(HEADER, source={"x": object()}), table({"f": 1}), expected=None)
    assert store.latest() is None


def test_reasons_are_bounded(store):
    reasons = {f"{i}.parquet": "truncated" for i in range(5000)}
    header = store.commit(replace(HEADER, reasons=reasons), table({"f": 1}), expected=None)
    assert len(header.reasons) == 1000


def test_of_many_writers_at_once_one_wins(store, reopen):
    header = begun(store)
    outcomes: list[str] = []
    start = threading.Barrier(6)

    def write(value: int) -> None:
        mine = reopen()
        start.wait()
        try:
            mine.commit(header, table({"f": value}), expected=1)
            outcomes.append("won")
        except ConflictError:
            outcomes.append("lost")

    in_threads(write, 6)
    assert sorted(outcomes) == ["lost"] * 5 + ["won"]
    assert store.latest() == 2


@pytest.mark.slow
def test_writers_that_retry_lose_nothing(store, reopen):
    begun(store)
    in_threads(lambda who: append(reopen(), f"writer{who}", 4), 4)
    assert content(reopen()) == {"f": 1, **{f"writer{who}-{i}": i for who in range(4) for i in range(4)}}
    assert store.latest() == 17


@pytest.mark.slow
def test_readers_never_see_a_half(store, reopen):
    begun(store)
    stop = threading.Event()

    def read() -> list[bool]:
        mine, whole = reopen(), []
        while not stop.wait(0.001) or not whole:  # they leave the writer a turn
            snapshot = mine.load(mine.latest())
            whole.append(snapshot.header.files == snapshot.header.number == len(snapshot.files.column("path")))
        return whole

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        append(store, "w", 10)
        stop.set()
        assert all(all(reader.result()) for reader in readers)
