"""Protected metadata: nothing of what a file holds, how an index is spelt or a file is called can be read without keys.

::

    keys = KeyRing.from_file("keys.json")
    store = ParquetStore(folder, encryption=Encryption(keys, "base", indexes={MinMax("salary"): "hr"}))

*Three levels of keys.* A **master key** has a name and stays with its keeper (:mod:`geoskip.stores.keyring`). A **data
key** of 256 bits is made with a log, one for each master key in use; entries hold it wrapped by its master. A part's
**own keys** are made with it, one a column, by Parquet modular encryption (AES-GCM), wrapped by the data keys. So a new
version of a master key needs no more than a new entry with the same data keys wrapped anew
(:func:`geoskip.lifecycle.actions.rotate`); who can open the newest entry can open the older ones after it.

*An entry*, of snapshots and of the operation log alike, says in clear only which format, log and number it is of and
the data keys, wrapped, with the names of their masters; all else is one AES-GCM text under the base key, bound to
kind, log and number, so that it serves in no other place. Inside of it an index with a key of its own is again such a
text, and goes by a random token wherever else it is named: who has the base key alone learns that there is one more
index, and no more.

*A part* is encrypted whole: its footer (or, plain-signed, only signed: then names of types can be read, and no value),
the columns of the files table under the base key, and each index under its own. There are no statistics.
Parts and entries are authenticated by what encrypts them; their checksums tell damage, not malice.

*A reader who lacks a key* uses the other indexes. Without the base key nothing is used and every file is read. A
*writer* who lacks one is refused: it would lose what it cannot read. No index
lies in clear beside protected ones, since one sealed text names them all: who is to use some alone is given ``key``.

What stays in clear: that there is metadata, how much and from when, the names of master keys, and the number of indexes
and files as far as sizes betray them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from geoskip.errors import InvalidSpecificationError, MetadataError, MissingKeyError
from geoskip.indexes.base import Index, index_kinds
from geoskip.metadata import BASE_SCHEMA, FORMAT
from geoskip.stores.keyring import KeyKeeper, decrypted, encrypted

__all__ = ["DataKey", "Encryption", "PartKeys", "SnapshotProtection", "Vault", "is_sealed"]

Json = Mapping[str, Any]
_LARGEST = 128 << 20
"""No entry holds more: a text that unpacks to more is not one of ours."""
_LISTS = ("indexes", "deleted")


def is_sealed(data: Json) -> bool:
    """Is an entry, or an index in one, a sealed text?"""
    return "sealed" in data


class Vault:
    """Seals and opens the entries of one store, and says with what its parts are encrypted.

    Data keys are unwrapped once in a process. A keeper that fails is asked again at the next load.
    """

    def __init__(self, encryption: Encryption, location: str) -> None:
        self.encryption = encryption
        self.location = location
        self._unwrapped: dict[tuple[str, str], bytes] = {}
        self._known: dict[str, DataKey] = {}
        self._clear: dict[str, bytes] = {}
        self._lock = threading.Lock()

    # --- entries ---------------------------------------------------------------------------------------------------

    def protection(
        self, before: SnapshotProtection | None, indexes: Iterable[str], encryption: Encryption
    ) -> SnapshotProtection:
        """The protection of a new snapshot: that of the one before it, with keys for what is new."""
        if before is None and encryption.key is None:
            raise InvalidSpecificationError(
                f"protected metadata in {self.location} need the name of a key: Encryption(keys, 'base')"
            )
        if before is not None and encryption.key not in (None, before.keys[before.base].master):
            raise InvalidSpecificationError(
                f"the metadata in {self.location} are protected by the key {before.keys[before.base].master!r}, not by "
                f"{encryption.key!r}: name that one, or remove them and index again"
            )
        keys = dict(before.keys) if before else {}
        masters = {key.master: key.id for key in reversed(keys.values())}

        def under(master: str) -> str:
            if master not in masters:
                made = self._made(master)
                keys[made.id] = made
                masters[master] = made.id
            return masters[master]

        base = before.base if before else under(encryption.key or "")
        own = dict(before.indexes) if before else {}
        for name in indexes:
            if name in encryption.masters and (name not in own or keys[own[name]].master != encryption.masters[name]):
                own[name] = under(encryption.masters[name])
        if before is not None:
            return replace(before, keys=keys, indexes=own)
        return SnapshotProtection(keys, base, own, encryption.footer, encryption.paths)

    def rewrapped(self, protection: SnapshotProtection) -> SnapshotProtection:
        """The same data keys, wrapped by the newest versions of their masters."""
        keys = {id: self._wrapped(id, key.master, self.data_key(key)) for id, key in protection.keys.items()}
        return replace(protection, keys=keys)

    def seal(self, protection: SnapshotProtection, kind: str, identity: str, number: int, data: Json) -> dict[str, Any]:
        """An entry that says nothing without the base key."""
        base = protection.keys[protection.base]
        inner = self._indexes_sealed(protection, data) if kind == "snapshot" else data
        text = zlib.compress(json.dumps(inner).encode("ascii"))
        used = protection.keys.values() if kind == "snapshot" else [base]
        return {
            "format": FORMAT,
            "identity": identity,
            "number": number,
            "base": base.id,
            "keys": {key.id: {"master": key.master, "wrapped": key.wrapped} for key in used},
            "sealed": _text(encrypted(self.data_key(base), text, _place(kind, identity, number))),
        }

    def open(self, entry: Json, kind: str, identity: str, number: int) -> tuple[dict[str, Any], SnapshotProtection]:
        """What was sealed, and how it is protected; indexes whose key is not to be had stay sealed, with a ``why``.

        Raises MissingKeyError where the base key is not to be had, MetadataError for what was not sealed for this
        place.
        """
        keys, base = _keys(entry, self.location)
        try:
            data = self._opened(keys[base], entry.get("sealed"), _place(kind, identity, number))
        except MissingKeyError as error:
            raise MissingKeyError(f"the metadata in {self.location} are not for everybody: {error}") from None
        protection = SnapshotProtection(keys, base)
        if kind != "snapshot":
            return data, protection
        try:
            return self._indexes_opened(protection, data)
        except (KeyError, TypeError, AttributeError) as error:  # by somebody who has the base key
            raise MetadataError(f"an entry in {self.location} is damaged: {type(error).__name__}") from None

    def _indexes_sealed(self, protection: SnapshotProtection, data: Json) -> dict[str, Any]:
        """A header whose indexes with keys of their own are sealed once more, and named by tokens."""
        own = {name: protection.keys[id] for name, id in protection.indexes.items() if id != protection.base}
        lists: dict[str, list[Any]] = {}
        tokens: dict[str, str] = {}
        for member in _LISTS:
            lists[member] = []
            for entry in data.get(member, []):
                key = own.get(entry.get("name", ""))
                if is_sealed(entry):
                    lists[member].append({name: entry[name] for name in ("key", "token", "sealed")})
                elif key is None:
                    lists[member].append(entry)
                else:
                    name = entry["name"]
                    tokens[name] = self._token(key, name)
                    text = encrypted(self.data_key(key), json.dumps(entry).encode("ascii"), tokens[name].encode())
                    lists[member].append({"key": key.id, "token": tokens[name], "sealed": _text(text)})
        rest = {member: value for member, value in data.items() if member not in _LISTS}
        told = _renamed(rest, tokens)
        return {**told, **lists, "protection": {"footer": protection.footer, "paths": protection.paths}}

    def _indexes_opened(self, protection: SnapshotProtection, data: Json) -> tuple[dict[str, Any], SnapshotProtection]:
        own: dict[str, str] = {}
        names: dict[str, str] = {}
        lists: dict[str, list[Any]] = {}
        for member in _LISTS:
            lists[member] = []
            for entry in data.get(member, []):
                if not is_sealed(entry):
                    lists[member].append(entry)
                    continue
                try:
                    key, token = protection.keys[entry["key"]], entry["token"]
                    found = self._opened(key, entry["sealed"], token.encode(), packed=False)
                    own[found["name"]] = key.id
                    names[token] = found["name"]
                    lists[member].append(found)
                except MissingKeyError as error:
                    lists[member].append({**entry, "why": f"an index is not used: {error}"})
        rest = {member: value for member, value in data.items() if member not in (*_LISTS, "protection")}
        said = data.get("protection", {})
        full = replace(protection, indexes=own, footer=said.get("footer", "encrypted"), paths=said.get("paths", True))
        return {**_renamed(rest, names), **lists}, full

    def _opened(self, key: DataKey, sealed: Any, associated: bytes, *, packed: bool = True) -> dict[str, Any]:
        try:
            data = base64.b64decode(sealed, validate=True)
        except (TypeError, ValueError):
            data = b""
        text = decrypted(self.data_key(key), data, associated)
        try:
            if text is None:
                raise ValueError("it is not what was sealed for this place")
            found = json.loads(_unpacked(text) if packed else text)
        except (ValueError, RecursionError, zlib.error) as error:
            raise MetadataError(f"an entry in {self.location} is damaged: {error}") from None
        if not isinstance(found, dict):
            raise MetadataError(f"an entry in {self.location} is damaged: no JSON object")
        return found

    # --- data keys -------------------------------------------------------------------------------------------------

    def data_key(self, key: DataKey) -> bytes:
        """A data key in clear; raises MissingKeyError where its keeper does not give it."""
        with self._lock:  # before a rotation the same data key was wrapped in another way
            known = self._unwrapped.get((key.master, key.wrapped)) or self._clear.get(key.id)
        if known is None:
            try:
                known = bytes(self.encryption.keys.unwrap_key(key.wrapped.encode(), key.master))
            except Exception as error:  # whatever a client of a service raises
                raise MissingKeyError(_no_key(key.master, error)) from None
        with self._lock:
            self._unwrapped[key.master, key.wrapped] = known
            self._known[key.id] = key
            self._clear.setdefault(key.id, known)
        return known

    def _made(self, master: str) -> DataKey:
        return self._wrapped(secrets.token_hex(8), master, secrets.token_bytes(32))

    def _wrapped(self, id: str, master: str, data_key: bytes) -> DataKey:
        try:
            wrapped = self.encryption.keys.wrap_key(data_key, master)
            text = wrapped if isinstance(wrapped, str) else bytes(wrapped).decode("ascii")
        except Exception as error:
            raise MissingKeyError(_no_key(master, error)) from None
        made = DataKey(id, master, text)
        with self._lock:
            self._unwrapped[master, text] = data_key
        return made

    def _token(self, key: DataKey, name: str) -> str:
        """What an index is called where its name must not stand; the same in every snapshot."""
        return hmac.new(self.data_key(key), name.encode(), hashlib.sha256).hexdigest()[:32]

    # --- parts -----------------------------------------------------------------------------------------------------

    def factory(self, protection: SnapshotProtection) -> Any:
        """What pyarrow makes properties with, for parts under these data keys."""
        with self._lock:
            self._known.update(protection.keys)
        return self._factory

    @cached_property
    def _factory(self) -> Any:
        """To pyarrow the data keys are the masters; it lives as long as the properties that it made."""
        from pyarrow.parquet.encryption import CryptoFactory, KmsClient

        key_of: Callable[[str], bytes] = lambda id: self.data_key(self._known[id])  # noqa: E731

        class DataKeys(KmsClient):  # type: ignore[misc]
            def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
                return _text(encrypted(key_of(master_key_identifier), key_bytes, master_key_identifier.encode()))

            def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
                data = base64.b64decode(wrapped_key)
                found = decrypted(key_of(master_key_identifier), data, master_key_identifier.encode())
                if found is None:
                    raise ValueError("a part's key is damaged")
                return found

        return CryptoFactory(lambda config: DataKeys())


@dataclass(frozen=True)
class PartKeys:
    """What a part is encrypted with; names are those of the files table's columns."""

    vault: Vault
    protection: SnapshotProtection

    def covers(self, column: str) -> bool:
        """Is a column encrypted, and so authenticated?"""
        return self.protection.paths or column not in BASE_SCHEMA.names

    def writing(self, leaves: Mapping[str, list[str]]) -> Any:
        """Properties for pyarrow to write a part with, from the paths of the leaves of each column."""
        from pyarrow.parquet.encryption import EncryptionConfiguration, KmsConnectionConfig

        base = self.protection.base
        by_key: dict[str, list[str]] = {}
        for column, paths in leaves.items():
            if self.covers(column):
                by_key.setdefault(self.protection.key_of(column), []).extend(paths)
        for id in (base, *by_key):
            self.vault.data_key(self.protection.keys[id])
        signed = self.protection.footer == "signed"
        how = EncryptionConfiguration(base, column_keys=by_key, plaintext_footer=signed, data_key_length_bits=256)
        return self.vault.factory(self.protection).file_encryption_properties(KmsConnectionConfig(), how)

    def reading(self) -> Any:
        """Properties for pyarrow to read a part with, once."""
        from pyarrow.parquet.encryption import DecryptionConfiguration, KmsConnectionConfig

        factory = self.vault.factory(self.protection)
        return factory.file_decryption_properties(KmsConnectionConfig(), DecryptionConfiguration())


def _keys(entry: Json, location: str) -> tuple[dict[str, DataKey], str]:
    """The wrapped data keys of an entry, and the id of its base key."""
    base, keys = entry.get("base"), entry.get("keys")
    found: dict[str, DataKey] = {}
    for id, key in keys.items() if isinstance(keys, dict) else ():
        if isinstance(key, dict) and isinstance(key.get("master"), str) and isinstance(key.get("wrapped"), str):
            found[id] = DataKey(id, key["master"], key["wrapped"])
    if not (isinstance(base, str) and base in found):
        raise MetadataError(f"a sealed entry in {location} is damaged: it holds no base key")
    return found, base


def _renamed(data: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """JSON in which some texts are others, wherever they stand: as members, as values and within values."""
    text = json.dumps(data)
    for old in sorted(names, key=len, reverse=True):
        text = text.replace(json.dumps(old)[1:-1], json.dumps(names[old])[1:-1])
    found: dict[str, Any] = json.loads(text)
    return found


def _place(kind: str, identity: str, number: int) -> bytes:
    return f"geoskip {kind} {identity} {number}".encode()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _unpacked(data: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(data, _LARGEST)
    if not unpacking.eof:
        raise ValueError("it is cut short, or too large")
    return text


def _no_key(master: str, error: Exception) -> str:
    said = f"{type(error).__name__}: {error}" if not isinstance(error, MissingKeyError) else str(error)
    return f"it needs the key {master!r} ({' '.join(said.split())[:200]})"


@dataclass(frozen=True)
class Encryption:
    """How metadata are protected: ``key`` names the master key of everything, ``indexes`` those of single indexes.

    ``footer`` is that of the Parquet files: ``"encrypted"``, or ``"signed"`` for one that tools can read without a
    key. ``paths=False`` leaves the files' names, sizes and times in the parts in clear. Without ``key`` metadata can be
    read, and written as they are protected already.
    """

    keys: KeyKeeper = field(repr=False)
    key: str | None = None
    indexes: Mapping[Index | str, str] = field(default_factory=dict)
    footer: Literal["encrypted", "signed"] = "encrypted"
    paths: bool = True

    def __post_init__(self) -> None:
        if not (hasattr(self.keys, "wrap_key") and hasattr(self.keys, "unwrap_key")):
            raise InvalidSpecificationError(
                "Encryption(keys=) takes what has wrap_key and unwrap_key, such as KeyRing.from_file('keys.json'), "
                f"got {type(self.keys).__name__}"
            )
        if self.footer not in ("encrypted", "signed"):
            raise InvalidSpecificationError(f"Encryption(footer=) takes 'encrypted' or 'signed', got {self.footer!r}")
        if self.indexes and not self.key:
            raise InvalidSpecificationError("Encryption(indexes=) needs key= for all that is not of these indexes")
        for name in self.masters:
            if name.partition("(")[0] not in index_kinds():  # else it would silently be under the base key
                raise InvalidSpecificationError(
                    f"Encryption(indexes=) names {name!r}, which is no index; it takes MinMax('pay') or 'minmax(pay)'"
                )

    @cached_property
    def masters(self) -> dict[str, str]:
        """The master keys of single indexes by their texts."""
        return {str(index): key for index, key in self.indexes.items()}


@dataclass(frozen=True)
class DataKey:
    """A data key as entries hold it: an id of its own, the name of its master key, and itself wrapped by that."""

    id: str
    master: str
    wrapped: str


@dataclass(frozen=True)
class SnapshotProtection:
    """How one snapshot is protected: its data keys, the id of the base key, and the ids of the keys of indexes."""

    keys: Mapping[str, DataKey]
    base: str
    indexes: Mapping[str, str] = field(default_factory=dict)
    footer: str = "encrypted"
    paths: bool = True

    def again(self, given: Encryption) -> Encryption:
        """How to protect in the same way what is begun anew, in so far as the encryption that is given says no more."""
        kinds = index_kinds()
        apart = [name for name, id in self.indexes.items() if id != self.base and name.partition("(")[0] in kinds]
        names: dict[Index | str, str] = {name: self.keys[self.indexes[name]].master for name in apart}
        if given.key is not None:
            return replace(given, indexes={**names, **given.indexes})
        return Encryption(given.keys, self.keys[self.base].master, names, self._footer(), self.paths)

    def _footer(self) -> Literal["encrypted", "signed"]:
        return "signed" if self.footer == "signed" else "encrypted"

    def key_of(self, index: str) -> str:
        """The id of the data key of an index."""
        return self.indexes.get(index, self.base)
