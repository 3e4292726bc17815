"""Protected metadata: what a folder of them shows without keys, who can read and write what, and keys that change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geoskip import MinMax, ValueList
from geoskip.errors import InvalidSpecificationError, MetadataError, MissingKeyError
from geoskip.indexes.base import Index
from geoskip.lifecycle.actions import delete, rotate
from geoskip.lifecycle.log import history, latest
from geoskip.metadata import FileRow, Header, IndexEntry, add_indexes, build_table
from geoskip.planner import decide
from geoskip.predicates import Call, Column, Comparison, Literal
from geoskip.stores import MemoryStore, ParquetStore
from geoskip.stores.encryption import Encryption
from geoskip.stores.keyring import KeyRing

RING = KeyRing({"base": bytes(range(32)), "hr": bytes(range(1, 17))})
NAME, PAY, DAY = "salary-of-quasimodo.parquet", "minmax(if(who = 'Quasimodo', pay, 0))", "minmax(day)"
SECRETS = ("quasimodo", "Quasimodo", "hunchback-of-paris", "file:/notre-dame", "Esmeralda")


def bound(index: Index, *nodes: Any) -> Index:
    return index.bind(list(nodes))


def entries() -> tuple[IndexEntry, IndexEntry]:
    text = pa.struct([("min", pa.string()), ("max", pa.string())])
    number = pa.struct([("min", pa.int64()), ("max", pa.int64()), ("rows", pa.int64()), ("nulls", pa.int64())])
    pay = bound(MinMax(PAY[7:-1]), Call("if", (Comparison("=", Column("who", "string"), Literal("Quasimodo")),)))
    day = bound(MinMax("day"), Column("day", "bigint"))
    return (IndexEntry(pay, (("who", "string"),), text), IndexEntry(day, (("day", "bigint"),), number))


def summaries(low: int) -> dict[str, dict[str, Any]]:
    return {
        PAY: {"min": "hunchback-of-paris", "max": f"hunchback-of-paris {low}"},
        DAY: {"min": low, "max": low + 9, "rows": 10, "nulls": 0},
    }


def table(names: dict[str, int]) -> pa.Table:
    return build_table(entries(), [FileRow(name, 5, 6, None, 10, summaries(low)) for name, low in names.items()])


HEADER = Header(
    "file:/notre-dame",
    {"schema": "Esmeralda"},
    entries(),
    reasons={NAME: "no bell, said Quasimodo"},
    operation={"id": "a" * 32, "verb": "create", "indexes": [PAY, DAY]},
)
POLICIES: dict[str, Encryption] = {
    "one key": Encryption(RING, "base"),
    "a key of an index": Encryption(RING, "base", indexes={PAY: "hr"}),
    "signed footers": Encryption(RING, "base", indexes={entries()[0].index: "hr"}, footer="signed"),
    "paths in clear": Encryption(RING, "base", indexes={PAY: "hr"}, paths=False),
}


def store_of(path: Path, encryption: Encryption | None = POLICIES["a key of an index"]) -> ParquetStore:
    return ParquetStore(path / "_geoskip", encryption=encryption)


def begun(store: ParquetStore) -> Header:
    store.record(1, {"verb": "create", "says": "Quasimodo rings"}, identity=store.begin())
    return store.commit(HEADER, table({NAME: 1, "b": 20}), expected=None)


def reader(path: Path, *names: str) -> ParquetStore:
    return store_of(path, Encryption(RING.only(*names)))


def everything(path: Path) -> bytes:
    """All bytes of a folder, and its files' names."""
    files = [file for file in path.rglob("*") if file.is_file()]
    return b"".join([file.read_bytes() + str(file.relative_to(path)).encode() for file in files])


@pytest.fixture(params=POLICIES.values(), ids=list(POLICIES))
def policy(request: pytest.FixtureRequest) -> Encryption:
    found: Encryption = request.param
    return found


# --- what a folder shows ----------------------------------------------------------------------------------------------


def test_metadata_in_clear_show_all_of_it(tmp_path: Path) -> None:
    """Or the next test would prove nothing."""
    begun(store_of(tmp_path, None))
    shown = everything(tmp_path)
    assert [secret for secret in SECRETS if secret.encode() not in shown] == []


def test_protected_metadata_show_nothing(tmp_path: Path, policy: Encryption) -> None:
    store = store_of(tmp_path, policy)
    header = begun(store)
    removed = pa.array([False, True])
    store.amend(header, removed, table({"Esmeralda": 7}), expected=1)
    store.record(2, {"verb": "refresh", "failed": "Quasimodo"}, identity=header.identity)
    shown = everything(tmp_path)
    secrets = [secret for secret in SECRETS if policy.paths or secret not in ("quasimodo", "Esmeralda")]
    assert [secret for secret in secrets if secret.encode() in shown] == []
    assert (b"quasimodo" in shown) == (not policy.paths)


def test_errors_and_texts_show_no_key_and_no_secret(tmp_path: Path) -> None:
    begun(store_of(tmp_path))
    texts = [repr(POLICIES["one key"]), repr(store_of(tmp_path))]
    for other in (None, Encryption(KeyRing({"other": bytes(16)})), Encryption(KeyRing({"base": bytes(16)}))):
        with pytest.raises(MissingKeyError) as caught:
            store_of(tmp_path, other).load(1)
        texts.append(str(caught.value))
    texts += [entry["why"] for entry in reader(tmp_path, "base").load(1).header.unread]
    for text in texts:
        assert not any(secret in text for secret in SECRETS)
        assert repr(bytes(range(32)))[2:-1] not in text


def test_footers_are_encrypted_or_signed_and_have_no_statistics(tmp_path: Path, policy: Encryption) -> None:
    header = begun(store_of(tmp_path, policy))
    (part,) = (tmp_path / "_geoskip" / "_parts").iterdir()
    if policy.footer == "encrypted":
        assert part.read_bytes()[-4:] == b"PARE"
        with pytest.raises(OSError, match="encrypted"):
            pq.read_metadata(part)
    else:
        assert pq.read_metadata(part).num_rows == 2
    log = store_of(tmp_path, policy)._entries
    keys = log.keys(log.snapshot(header.identity, 1)[1])
    assert keys is not None
    group = pq.read_metadata(part, decryption_properties=keys.decryption_properties()).row_group(0)
    assert not any(group.column(number).is_stats_set for number in range(group.num_columns))


# --- who reads what ---------------------------------------------------------------------------------------------------


def test_what_was_protected_is_read_with_its_keys(tmp_path: Path, policy: Encryption) -> None:
    header = begun(store_of(tmp_path, policy))
    found = reader(tmp_path, "base", "hr").load(1)
    assert found.header == header
    assert found.files.table().equals(table({NAME: 1, "b": 20}))
    assert found.files.summary(PAY, "min").to_pylist() == ["hunchback-of-paris"] * 2
    assert reader(tmp_path, "base", "hr").operation(1) == {"verb": "create", "says": "Quasimodo rings"}
    sizes = store_of(tmp_path, policy).size()
    assert sizes.keys() == {"files", PAY, DAY}
    assert min(sizes.values()) > 0


def test_an_index_whose_key_is_missing_is_not_used_and_the_others_are(tmp_path: Path) -> None:
    begun(store_of(tmp_path))
    snapshot = reader(tmp_path, "base").load(1)
    assert [entry.name for entry in snapshot.header.entries] == [DAY]
    (sealed,) = snapshot.header.unread
    assert "needs the key 'hr'" in sealed["why"]
    assert decide(snapshot, Comparison(">", Column("day", "bigint"), Literal(15))).keep.tolist() == [False, True]
    assert set(snapshot.files.table().schema.names) == {"path", "size", "mtime", "etag", "rows", DAY}
    assert snapshot.files.column(PAY).null_count == 2


def test_who_has_the_base_key_alone_learns_nothing_of_the_other_index(tmp_path: Path) -> None:
    begun(store_of(tmp_path))
    store = reader(tmp_path, "base")
    header = store.load(1).header
    told = repr(replace(header, reasons={}))
    assert PAY not in told
    assert "Quasimodo" not in told
    assert "hunchback" not in told
    assert store_of(tmp_path / "other", POLICIES["one key"]).discreet is False


def test_the_log_is_under_the_base_key_and_tells_of_no_index_with_another(tmp_path: Path) -> None:
    store_of(tmp_path).commit(HEADER, table({NAME: 1, "b": 20}), expected=None)
    delete(reader(tmp_path, "base", "hr"), [PAY])
    log = reader(tmp_path, "base")
    told = [log.operation(number) for number in log.operations()]
    assert [entry["verb"] for entry in told] == ["delete", "delete"]
    assert "Quasimodo" not in str(told)


def test_metadata_that_are_in_clear_are_read_with_keys_at_hand(tmp_path: Path) -> None:
    begun(store_of(tmp_path, None))
    store = reader(tmp_path, "base")
    assert store.load(1).header.entries == entries()
    store.commit(store.load(1).header, table({"c": 1}), expected=1)
    assert store_of(tmp_path, None).load(2).header.files == 1


# --- who writes what --------------------------------------------------------------------------------------------------


def test_keys_alone_write_as_it_was_protected(tmp_path: Path, policy: Encryption) -> None:
    begun(store_of(tmp_path, policy))
    store = reader(tmp_path, "base", "hr")
    header = store.load(1).header
    store.amend(header, pa.array([False, True]), table({"c": 30}), expected=1)
    shown = everything(tmp_path)
    assert b"hunchback" not in shown
    assert b"Quasimodo" not in shown
    again = store_of(tmp_path, policy).load(2)
    assert again.files.column("path").to_pylist() == [NAME, "c"]
    assert again.files.summary(DAY, "min").to_pylist() == [1, 30]
    base = reader(tmp_path, "base").load(2).header
    assert len(base.unread) == len(policy.indexes)


def test_to_lack_a_key_is_told_and_is_no_reason_to_build_anew(tmp_path: Path) -> None:
    begun(store_of(tmp_path))
    with pytest.raises(MissingKeyError, match=r"not for everybody: it needs the key 'base' \(the key 'base' is not"):
        latest(reader(tmp_path))
    with pytest.raises(MissingKeyError, match="not for everybody: it needs the key 'base'"):
        history(reader(tmp_path))  # which would look as if nothing had ever been done


def test_many_indexes_are_read_together_without_the_key_of_another(tmp_path: Path) -> None:
    pay, day = entries()
    days = [replace(day, index=bound(MinMax(f"day + {n}"), Column("day", "bigint"))) for n in range(7)]
    made = {entry.name: summaries(1)[PAY if entry is pay else DAY] for entry in (pay, *days)}
    rows = build_table([pay, *days], [FileRow("b", 5, 6, None, 10, made)])
    store_of(tmp_path).commit(replace(HEADER, entries=(pay, *days)), rows, expected=None)
    for names in (["path", "size", *(entry.name for entry in days)], [entry.name for entry in days], None):
        expected = rows.select(names) if names else rows.drop_columns([PAY])
        assert reader(tmp_path, "base").load(1).files._load(names).equals(expected)


@pytest.mark.parametrize("deleted", [False, True], ids=["of an index in use", "of a deleted index"])
@pytest.mark.parametrize("write", ["commit", "amend", "rotate"])
def test_a_writer_who_lacks_a_key_is_refused(tmp_path: Path, write: str, deleted: bool) -> None:
    made = begun(store_of(tmp_path))
    if deleted:
        pay, day = made.entries
        changed = replace(made, entries=(day,), deleted=(pay,))
        store_of(tmp_path).commit(changed, table({NAME: 1, "b": 20}), expected=1)
    last = 1 + deleted
    store = reader(tmp_path, "base")
    header = store.load(last).header
    actions: dict[str, Callable[[], Any]] = {
        "commit": lambda: store.commit(header, table({"c": 1}), expected=last),
        "amend": lambda: store.amend(header, pa.array([True, False]), table({"c": 1}), expected=last),
        "rotate": lambda: store.rotate(header, expected=last),
    }
    with pytest.raises(MissingKeyError, match=r"needs the keys of all its indexes.*'hr'"):
        actions[write]()
    assert store_of(tmp_path).latest() == last
    assert len(list((tmp_path / "_geoskip" / "_parts").iterdir())) == last


def test_a_writer_without_keys_is_refused(tmp_path: Path) -> None:
    header = begun(store_of(tmp_path))
    with pytest.raises(MissingKeyError, match="no keys were given"):
        store_of(tmp_path, None).commit(header, table({"c": 1}), expected=1)


def test_metadata_in_clear_are_not_taken_for_protected_ones(tmp_path: Path) -> None:
    header = begun(store_of(tmp_path, None))
    store = store_of(tmp_path)
    for action in (
        lambda: store.load(1),
        lambda: store.operation(1),
        lambda: store.commit(header, table({"c": 1}), expected=1),
    ):
        with pytest.raises(MetadataError, match="in clear, where protected ones are expected"):
            action()


def test_an_index_that_is_added_has_its_own_key(tmp_path: Path) -> None:
    store = store_of(tmp_path, Encryption(RING, "base", indexes={"valuelist(who)": "hr"}))
    header = begun(store)
    added = IndexEntry(
        bound(ValueList("who"), Column("who", "string")),
        (("who", "string"),),
        pa.struct([("values", pa.list_(pa.string()))]),
    )
    rows = [FileRow(NAME, 5, 6, None, 10, {"valuelist(who)": {"values": ["Frollo"]}})]
    both = add_indexes(store.load(1).files.table(), build_table([added], rows))
    store.commit(replace(header, entries=(*header.entries, added)), both, expected=1)
    assert [e.name for e in reader(tmp_path, "base").load(2).header.entries] == [PAY, DAY]
    whole = reader(tmp_path, "base", "hr").load(2)
    assert whole.files.summary("valuelist(who)", "values").to_pylist() == [["Frollo"], None]
    assert b"Frollo" not in everything(tmp_path)


def test_a_key_is_given_where_one_is_needed(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecificationError, match="needs key="):
        Encryption(RING, indexes={PAY: "hr"})
    with pytest.raises(InvalidSpecificationError, match=r"names 'MinMax\(pay\)', which is no index"):
        Encryption(RING, "base", indexes={"MinMax(pay)": "hr"})
    with pytest.raises(InvalidSpecificationError, match="'encrypted' or 'signed'"):
        Encryption(RING, "base", footer="plain")  # type: ignore[arg-type]
    with pytest.raises(InvalidSpecificationError, match="wrap_key and unwrap_key"):
        Encryption({"base": b""})  # type: ignore[arg-type]
    with pytest.raises(MissingKeyError, match="'other'"):
        begun(store_of(tmp_path, Encryption(RING, "other")))
    assert store_of(tmp_path).latest() is None
    header = begun(store_of(tmp_path))
    with pytest.raises(InvalidSpecificationError, match="protected by the key 'base', not by 'hr'"):
        store_of(tmp_path, Encryption(RING, "hr")).commit(header, table({"c": 1}), expected=1)


# --- keys that change -------------------------------------------------------------------------------------------------


def test_rotation_wraps_anew_and_rewrites_nothing(tmp_path: Path) -> None:
    store_of(tmp_path).commit(HEADER, table({NAME: 1, "b": 20}), expected=None)
    parts = sorted((tmp_path / "_geoskip" / "_parts").iterdir())
    newer = RING.rotated()
    store = store_of(tmp_path, Encryption(newer))
    header = rotate(store)
    assert header is not None
    assert header.number == 2
    assert sorted((tmp_path / "_geoskip" / "_parts").iterdir()) == parts
    assert store.load(2).files.table().equals(store.load(1).files.table())
    with pytest.raises(MissingKeyError, match="version 2"):
        reader(tmp_path, "base", "hr").load(2)
    assert [row.verb for row in history(store)] == ["create", "rotate keys"]
    assert [row.state for row in history(store)][1:] == ["done"]
    store.forget(snapshots=[1])
    newest = store_of(tmp_path, Encryption(newer.without_old()))
    assert history(newest)[-1].verb == "rotate keys"
    assert len(newest.operations()) == len([newest.operation(number) for number in newest.operations()]) > 1
    assert newest.load(2).files.summary(PAY, "min").null_count == 0
    newest.commit(newest.load(2).header, table({"c": 3}), expected=2)
    assert newest.load(3).files.summary(DAY, "min").to_pylist() == [3]


def test_there_is_nothing_to_rotate_without_keys(tmp_path: Path) -> None:
    assert rotate(store_of(tmp_path)) is None
    begun(store_of(tmp_path, None))
    with pytest.raises(InvalidSpecificationError, match="no keys to rotate"):
        rotate(store_of(tmp_path, None))
    assert rotate(MemoryStore()) is None


class Service:
    """A key management service: it counts its calls, and is down at times."""

    def __init__(self, ring: KeyRing) -> None:
        self.ring, self.calls, self.down = ring, [], False

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        self.calls.append(("wrap", master_key_identifier))
        return self.ring.wrap_key(key_bytes, master_key_identifier).encode()

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        self.calls.append(("unwrap", master_key_identifier))
        if self.down:
            raise TimeoutError("503, try later")
        return self.ring.unwrap_key(wrapped_key, master_key_identifier)


def test_a_service_is_asked_once_a_key(tmp_path: Path) -> None:
    service = Service(RING)
    header = begun(store_of(tmp_path, Encryption(service, "base", indexes={PAY: "hr"})))
    assert service.calls == [("wrap", "base"), ("wrap", "hr")]
    service = Service(RING)
    store = store_of(tmp_path, Encryption(service))
    for number in range(1, 4):
        header = store.commit(store.load(number).header, table({"c": number}), expected=number)
    assert store.load(header.number).files.table().num_rows == 1
    assert service.calls == [("unwrap", "base"), ("unwrap", "hr")]


def test_a_service_that_is_down_is_asked_again(tmp_path: Path) -> None:
    begun(store_of(tmp_path))
    service = Service(RING)
    service.down = True
    store = store_of(tmp_path, Encryption(service))
    with pytest.raises(MissingKeyError, match="TimeoutError: 503"):
        store.load(1)
    service.down = False
    assert store.load(1).header.files == 2


def test_a_damaged_snapshot_can_be_replaced_by_who_says_how(tmp_path: Path) -> None:
    header = begun(store_of(tmp_path))
    (entry,) = (tmp_path / "_geoskip" / "_log").rglob("*.json")
    entry.write_bytes(entry.read_bytes()[:-40])
    with pytest.raises(MetadataError):
        reader(tmp_path, "base", "hr").commit(header, table({"c": 1}), expected=1)
    store_of(tmp_path).record(7, {"verb": "repair", "says": "Quasimodo"}, identity=header.identity)
    store_of(tmp_path).commit(header, table({"c": 1}), expected=1)
    assert reader(tmp_path, "base", "hr").load(2).header.files == 1
    assert reader(tmp_path, "base", "hr").operation(7)["says"] == "Quasimodo"
    assert b"Quasimodo" not in everything(tmp_path)
    assert b"hunchback" not in everything(tmp_path)
