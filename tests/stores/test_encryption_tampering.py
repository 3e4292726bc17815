"""Protected metadata that somebody without keys has changed, or put in another place; and what they tell too much."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from geoskip.errors import MetadataError
from geoskip.lifecycle.actions import delete, vacuum
from geoskip.stores.encryption import Encryption
from tests.stores.test_encryption import (
    DAY,
    HEADER,
    NAME,
    PAY,
    RING,
    SECRETS,
    begun,
    everything,
    reader,
    store_of,
    table,
)


def test_an_entry_serves_in_its_own_place_alone(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    header = begun(store)
    store.commit(header, table({"c": 1}), expected=1)
    log = tmp_path / "_geoskip" / "_log" / f"_{header.identity}"
    operations = tmp_path / "_geoskip" / "_operations" / f"_{header.identity}"
    shutil.copy(log / "_00000001.json", log / "_00000002.json")
    shutil.copy(operations / "_00000001.json", operations / "_00000002.json")
    for action in (lambda: store_of(tmp_path).load(2), lambda: store_of(tmp_path).operation(2)):
        with pytest.raises(MetadataError, match="not what was sealed for this place"):
            action()


def test_a_part_does_not_serve_for_another(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    header = begun(store)
    store.commit(header, table({NAME: 500, "b": 900}), expected=1)
    first, second = (tmp_path / "_geoskip" / store.load(number).header.parts[0].name for number in (1, 2))
    shutil.copy(first, second)
    with pytest.raises(MetadataError, match="is damaged"):
        store_of(tmp_path).load(2)


@pytest.mark.parametrize("paths", [True, False], ids=["sealed paths", "paths in clear"])
def test_a_flipped_bit_is_noticed(tmp_path: Path, paths: bool) -> None:
    keys = Encryption(RING, "base", indexes={PAY: "hr"}, paths=paths)
    begun(store_of(tmp_path, keys))
    expected = store_of(tmp_path).load(1).files.table()
    (part,) = (tmp_path / "_geoskip" / "_parts").iterdir()
    (entry,) = (tmp_path / "_geoskip" / "_log").rglob("*.json")
    for file in (part, entry):
        data = file.read_bytes()
        for position in range(0, len(data), max(1, len(data) // 150)):
            flipped = bytearray(data)
            flipped[position] ^= 4
            file.write_bytes(flipped)
            try:
                assert store_of(tmp_path).load(1).files.table().equals(expected)
            except MetadataError:
                continue
            assert position < 4 or file is entry, "the first bytes of a part are no data, white space in JSON neither"
        file.write_bytes(data)


def test_sealed_entries_name_no_more_than_they_must(tmp_path: Path) -> None:
    header = begun(store_of(tmp_path))
    text = (tmp_path / "_geoskip" / "_log" / f"_{header.identity}" / "_00000001.json").read_text()
    held = json.loads(text)["header"]
    assert set(held) == {"format", "identity", "number", "base", "keys", "sealed"}
    assert sorted(key["master"] for key in held["keys"].values()) == ["base", "hr"]


def test_nothing_is_told_of_an_index_with_another_key_once_it_is_gone(tmp_path: Path) -> None:
    built = {name: {"when": "then", "reader": "arrow"} for name in (PAY, DAY)}
    store_of(tmp_path).commit(replace(HEADER, built=built), table({NAME: 1, "b": 20}), expected=None)
    keys = reader(tmp_path, "base", "hr")
    delete(keys, [PAY])
    assert keys.load(2).header.built == built
    assert vacuum(keys, timedelta(0)).indexes == (PAY,)
    base = reader(tmp_path, "base")
    assert base.load(3).header.built.keys() == {DAY}
    assert not any("Quasimodo" in str(base.operation(number)) for number in base.operations())


@pytest.mark.parametrize("key", [None, "base"])
def test_what_is_begun_anew_by_keys_alone_is_protected_as_it_was(tmp_path: Path, key: str | None) -> None:
    begun(store_of(tmp_path))
    store = store_of(tmp_path, Encryption(RING, key))
    header = store.load(1).header
    store.drop()
    assert store.discreet
    again = store.commit(replace(header, identity=""), table({NAME: 1}), expected=None)
    assert again.identity != header.identity
    store.record(1, {"verb": "create", "says": "Quasimodo rings"}, identity=again.identity)
    shown = everything(tmp_path)
    assert not any(text.encode() in shown for text in SECRETS)
    (apart,) = reader(tmp_path, "base").load(1).header.unread
    assert "needs the key 'hr'" in apart["why"]
