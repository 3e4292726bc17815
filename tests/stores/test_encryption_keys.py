"""Key rings: what they take, wrap and unwrap, and that they never show a key."""

from __future__ import annotations

import base64
import json
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoskip.errors import InvalidSpecificationError, MissingKeyError
from geoskip.stores.keyring import KeyRing, decrypt, encrypt

RING = KeyRing({"base": bytes(range(32)), "short": bytes(16), "middle": bytes(24)})


@given(st.binary(max_size=64), st.sampled_from(["base", "short", "middle"]))
def test_what_was_wrapped_is_unwrapped(data, name):
    wrapped = RING.wrap_key(data, name)
    assert RING.unwrap_key(wrapped.encode(), name) == RING.unwrap_key(wrapped, name) == data


def test_wrapping_twice_shows_nothing():
    assert RING.wrap_key(b"data", "base") != RING.wrap_key(b"data", "base")


def test_a_new_version_wraps_and_the_old_ones_unwrap():
    before = RING.wrap_key(b"data", "base")
    rotated = RING.rotated("base")
    after = rotated.wrap_key(b"data", "base")
    assert (before[:2], after[:2]) == ("1.", "2.")
    assert rotated.unwrap_key(before, "base") == rotated.unwrap_key(after, "base") == b"data"
    newest = rotated.without_old()
    assert newest.unwrap_key(after, "base") == b"data"
    with pytest.raises(MissingKeyError, match="version 1 of the key 'base'"):
        newest.unwrap_key(before, "base")
    with pytest.raises(MissingKeyError, match="version 2"):
        RING.unwrap_key(after, "base")


@pytest.mark.parametrize(
    "wrapped",
    ["", ".", "1", "1.", "1.!!", "-1.AAAA", "١.AAAA", "9" * 5000 + ".AAAA", "1." + "A" * 400, b"\xff\xfe"],
    ids=lambda text: repr(text)[:12],
)
def test_what_was_not_wrapped_here_is_refused(wrapped):
    with pytest.raises(MissingKeyError):
        RING.unwrap_key(wrapped, "base")


def test_a_flipped_bit_or_another_name_is_noticed():
    ring = KeyRing({"a": bytes(32), "b": bytes(32)})
    wrapped = ring.wrap_key(b"data", "a")
    with pytest.raises(MissingKeyError, match="damaged"):
        ring.unwrap_key(wrapped, "b")
    sealed = bytearray(base64.b64decode(wrapped[2:]))
    for position in range(len(sealed)):
        flipped = sealed.copy()
        flipped[position] ^= 1
        with pytest.raises(MissingKeyError, match="damaged"):
            ring.unwrap_key("1." + base64.b64encode(flipped).decode(), "a")


def test_what_is_associated_is_authenticated():
    sealed = encrypt(bytes(16), b"data", b"here")
    assert decrypt(bytes(16), sealed, b"here") == b"data"
    assert decrypt(bytes(16), sealed, b"there") is None
    assert decrypt(bytes(16), sealed[:5], b"here") is None


def test_a_ring_in_a_file_is_for_its_owner_alone(tmp_path):
    made = KeyRing.create(tmp_path / "keys.json", "base", "hr")
    assert stat.S_IMODE((tmp_path / "keys.json").stat().st_mode) == 0o600
    read = KeyRing.from_file(tmp_path / "keys.json")
    assert read.unwrap_key(made.wrap_key(b"data", "hr"), "hr") == b"data"
    with pytest.raises(FileExistsError):
        KeyRing.create(tmp_path / "keys.json", "base")
    read.rotated().save(tmp_path / "keys.json")
    assert stat.S_IMODE((tmp_path / "keys.json").stat().st_mode) == 0o600
    again = KeyRing.from_file(tmp_path / "keys.json")
    assert again.unwrap_key(made.wrap_key(b"data", "hr"), "hr") == b"data"
    assert again.wrap_key(b"data", "hr").startswith("2.")
    assert [path.name for path in tmp_path.iterdir()] == ["keys.json"]


def test_a_ring_in_the_environment(monkeypatch):
    monkeypatch.setenv("GEOSKIP_KEYS", json.dumps({"base": base64.b64encode(bytes(32)).decode()}))
    assert KeyRing.from_environment().wrap_key(b"data", "base")
    monkeypatch.delenv("GEOSKIP_KEYS")
    with pytest.raises(InvalidSpecificationError, match="GEOSKIP_KEYS holds no keys"):
        KeyRing.from_environment()


SECRET = base64.b64encode(b"not to be shown, ever, to anyone").decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        SECRET,
        f'{{"base": "{SECRET}"',
        f'{{"base": "{SECRET}="}}',
        f'{{"base": "{SECRET}AAAA"}}',
        f'{{"base": ["{SECRET}"]}}',
        f'{{"base": {{"one": "{SECRET}"}}}}',
        '{"base": {}}',
        '{"base": 7}',
        "[" * 50_000,
    ],
    ids=lambda text: text[:20] or "empty",
)
def test_a_ring_that_makes_no_sense_is_refused_without_its_keys(tmp_path, text):
    (tmp_path / "keys.json").write_text(text)
    with pytest.raises(InvalidSpecificationError) as caught:
        KeyRing.from_file(tmp_path / "keys.json")
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_ring_has_names_and_bytes(tmp_path):
    with pytest.raises(InvalidSpecificationError, match="names of the keys"):
        KeyRing.create(tmp_path / "keys.json")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidSpecificationError, match=r"got str; KeyRing.from_file\(path\) reads a file"):
        KeyRing("keys.json")  # type: ignore[arg-type]
    with pytest.raises(InvalidSpecificationError, match="'base' should be bytes, got str"):
        KeyRing({"base": SECRET})  # type: ignore[dict-item]


def test_a_ring_shows_no_key():
    ring = KeyRing({"base": base64.b64decode(SECRET)})
    assert repr(ring) == str(ring) == "KeyRing(base)"
    with pytest.raises(MissingKeyError, match="'hr' is not in the key ring, which has base"):
        ring.only("hr")
    assert repr(ring.only("base")) == "KeyRing(base)"
