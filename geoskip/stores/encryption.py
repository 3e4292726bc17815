"""Encrypted metadata: values, index texts and file names cannot be read without keys.

::

    keys = KeyRing.from_file("keys.json")
    store = ParquetStore(folder, encryption=Encryption(keys, "base", indexes={MinMax("salary"): "hr"}))

*Three levels of keys.* A **master key** has a name and never leaves its key service (:mod:`geoskip.stores.keyring`). A
**data key** of 256 bits is created for each master key in use, once for a log; entries contain it wrapped with its
master key. Each column of a part has its **own key**, created by Parquet modular encryption (AES-GCM) and wrapped with
a data key. So a new version of a master key needs only a new entry with the same data keys wrapped again
(:func:`geoskip.lifecycle.actions.rotate`); a process that has read the newest entry can then read older ones.

*An entry* of a snapshot or of the operation log has its format, log and number and the wrapped data keys with the names
of their master keys in clear. The rest is one AES-GCM text under the base key, bound to kind, log and number, so that
it is valid in no other place. In it, each index with its own key is another such text, and everywhere else its name is
replaced by a token derived from its key: with only the base key one sees that there is another index, but no more.

*A part* is encrypted completely: its footer (or, as *plaintext footer*, only signed: then types can be read, but no
value), the columns of the files table under the base key, and each index under its own key. There are no statistics.
Encryption authenticates parts and entries; their checksums detect damage, not manipulation.

*A reader without the key of an index* uses the other indexes; without the base key none is used and every file is read.
A *writer* without one is refused, since it would lose the indexes that it cannot read. Encrypted and unencrypted
indexes cannot be mixed, since one sealed text names them all: readers of some indexes need the base key.

Not encrypted are: the existence, size and time of metadata, the names of master keys, and the number of indexes and
files as far as sizes show them.
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
from geoskip.stores.keyring import KeyKeeper, decrypt, encrypt

Json = Mapping[str, Any]
_LARGEST = 128 << 20
"""Maximum uncompressed size of an entry in bytes."""
_LISTS = ("indexes", "deleted")


def is_sealed(data: Json) -> bool:
    """True if an entry, or an index in one, is a sealed text."""
    return "sealed" in data


@dataclass(frozen=True)
class Encryption:
    """The encryption of a dataset's metadata.

    Parameters
    ----------
    keys
        The master keys: a :class:`~geoskip.KeyRing`, or a client of a key management service.
    key, indexes
        Names of the base key, and of the master keys of single indexes. Without ``key``, metadata can be read, and are
        written with their present keys.
    footer
        Footers of the Parquet files: ``"encrypted"``, or ``"signed"`` to let tools read them without a key.
    paths
        False leaves names, sizes and times of the files in the parts unencrypted.
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
            if name.partition("(")[0] not in index_kinds():  # it would be under the base key
                raise InvalidSpecificationError(
                    f"Encryption(indexes=) names {name!r}, which is no index; it takes MinMax('pay') or 'minmax(pay)'"
                )

    @cached_property
    def masters(self) -> dict[str, str]:
        """The master keys of single indexes, by index text."""
        return {str(index): key for index, key in self.indexes.items()}


@dataclass(frozen=True)
class DataKey:
    """A data key in an entry: its id, the name of its master key, and the key wrapped with that."""

    id: str
    master: str
    wrapped: str


@dataclass(frozen=True)
class SnapshotProtection:
    """The data keys of one snapshot, the id of its base key, and by index the id of its data key."""

    keys: Mapping[str, DataKey]
    base: str
    indexes: Mapping[str, str] = field(default_factory=dict)
    footer: str = "encrypted"
    paths: bool = True

    def encryption(self, given: Encryption) -> Encryption:
        """The encryption of a new log that replaces this one; what ``given`` specifies takes precedence."""
        kinds = index_kinds()
        apart = [name for name, id in self.indexes.items() if id != self.base and name.partition("(")[0] in kinds]
        names: dict[Index | str, str] = {name: self.keys[self.indexes[name]].master for name in apart}
        if given.key is not None:
            return replace(given, indexes={**names, **given.indexes})
        footer: Literal["encrypted", "signed"] = "signed" if self.footer == "signed" else "encrypted"
        return Encryption(given.keys, self.keys[self.base].master, names, footer, self.paths)

    def key_of(self, index: str) -> str:
        """The id of the data key of an index."""
        return self.indexes.get(index, self.base)


class Vault:
    """Seals and opens the entries of one store, and unwraps the data keys of its parts.

    Data keys are unwrapped once in a process; after a failure of the key service, again at the next load.
    """

    def __init__(self, encryption: Encryption, location: str) -> None:
        self.encryption = encryption
        self.location = location
        self._known: dict[str, DataKey] = {}
        self._clear: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def protection(
        self, before: SnapshotProtection | None, indexes: Iterable[str], encryption: Encryption
    ) -> SnapshotProtection:
        """The protection of a new snapshot: that of the previous one, with keys for new indexes.

        Parameters
        ----------
        before, indexes
            The protection of the previous snapshot, if any, and the texts of all indexes of the new one.
        encryption
            The names of the master keys.
        """
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

        def key_under(master: str) -> str:
            if master not in masters:
                key = self._wrap(secrets.token_hex(8), master, secrets.token_bytes(32))
                keys[key.id] = key
                masters[master] = key.id
            return masters[master]

        base = before.base if before else key_under(encryption.key or "")
        own = dict(before.indexes) if before else {}
        for name in indexes:
            if name in encryption.masters and (name not in own or keys[own[name]].master != encryption.masters[name]):
                own[name] = key_under(encryption.masters[name])
        if before is not None:
            return replace(before, keys=keys, indexes=own)
        return SnapshotProtection(keys, base, own, encryption.footer, encryption.paths)

    def rewrap(self, protection: SnapshotProtection) -> SnapshotProtection:
        """The same data keys, wrapped with the newest versions of their master keys."""
        keys = {id: self._wrap(id, key.master, self.data_key(key)) for id, key in protection.keys.items()}
        return replace(protection, keys=keys)

    def seal(self, protection: SnapshotProtection, kind: str, identity: str, number: int, data: Json) -> dict[str, Any]:
        """An entry that cannot be read without the base key.

        Parameters
        ----------
        protection, data
            The data keys, and the entry as JSON.
        kind, identity, number
            ``"snapshot"`` or ``"operation"``, and the log and number; the text is bound to all three.
        """
        base = protection.keys[protection.base]
        inner = self._seal_indexes(protection, data) if kind == "snapshot" else data
        text = zlib.compress(json.dumps(inner).encode("ascii"))
        used = protection.keys.values() if kind == "snapshot" else [base]
        return {
            "format": FORMAT,
            "identity": identity,
            "number": number,
            "base": base.id,
            "keys": {key.id: {"master": key.master, "wrapped": key.wrapped} for key in used},
            "sealed": _text(encrypt(self.data_key(base), text, _associated_data(kind, identity, number))),
        }

    def open(self, entry: Json, kind: str, identity: str, number: int) -> tuple[dict[str, Any], SnapshotProtection]:
        """The content of a sealed entry, and its protection.

        Indexes with a missing key stay sealed, with the reason as ``why``. Raises MissingKeyError without the base
        key, MetadataError for a text that is damaged or was sealed for another place.

        Parameters
        ----------
        entry
            The sealed entry.
        kind, identity, number
            As for :meth:`seal`.
        """
        keys, base = _keys(entry, self.location)
        try:
            data = self._unseal(keys[base], entry.get("sealed"), _associated_data(kind, identity, number))
        except MissingKeyError as error:
            raise MissingKeyError(f"the metadata in {self.location} are not for everybody: {error}") from None
        protection = SnapshotProtection(keys, base)
        if kind != "snapshot":
            return data, protection
        try:
            return self._unseal_indexes(protection, data)
        except (KeyError, TypeError, AttributeError) as error:  # written by a holder of the base key
            raise MetadataError(f"an entry in {self.location} is damaged: {type(error).__name__}") from None

    def _seal_indexes(self, protection: SnapshotProtection, data: Json) -> dict[str, Any]:
        """The header with sealed entries and tokens as names for the indexes that have their own keys."""
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
                    digest = hmac.new(self.data_key(key), name.encode(), hashlib.sha256)  # the same in every snapshot
                    tokens[name] = digest.hexdigest()[:32]
                    text = encrypt(self.data_key(key), json.dumps(entry).encode("ascii"), tokens[name].encode())
                    lists[member].append({"key": key.id, "token": tokens[name], "sealed": _text(text)})
        rest = {member: value for member, value in data.items() if member not in _LISTS}
        return {
            **_rename(rest, tokens),
            **lists,
            "protection": {"footer": protection.footer, "paths": protection.paths},
        }

    def _unseal_indexes(self, protection: SnapshotProtection, data: Json) -> tuple[dict[str, Any], SnapshotProtection]:
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
                    index = self._unseal(key, entry["sealed"], token.encode(), packed=False)
                    own[index["name"]] = key.id
                    names[token] = index["name"]
                    lists[member].append(index)
                except MissingKeyError as error:
                    lists[member].append({**entry, "why": f"an index is not used: {error}"})
        rest = {member: value for member, value in data.items() if member not in (*_LISTS, "protection")}
        options = data.get("protection", {})
        footer, paths = options.get("footer", "encrypted"), options.get("paths", True)
        full = replace(protection, indexes=own, footer=footer, paths=paths)
        return {**_rename(rest, names), **lists}, full

    def _unseal(self, key: DataKey, sealed: Any, associated: bytes, *, packed: bool = True) -> dict[str, Any]:
        try:
            data = base64.b64decode(sealed, validate=True)
        except (TypeError, ValueError):
            data = b""
        text = decrypt(self.data_key(key), data, associated)
        try:
            if text is None:
                raise ValueError("it is not what was sealed for this place")
            content = json.loads(_unpack(text) if packed else text)
        except (ValueError, RecursionError, zlib.error) as error:
            raise MetadataError(f"an entry in {self.location} is damaged: {error}") from None
        if not isinstance(content, dict):
            raise MetadataError(f"an entry in {self.location} is damaged: no JSON object")
        return content

    def data_key(self, key: DataKey) -> bytes:
        """Unwrap a data key; raises MissingKeyError if the key service refuses."""
        with self._lock:
            clear = self._clear.get(key.id)  # a rotation wraps the same data key again
        if clear is None:
            try:
                clear = bytes(self.encryption.keys.unwrap_key(key.wrapped.encode(), key.master))
            except Exception as error:  # the client of a service may raise anything
                raise MissingKeyError(_no_key(key.master, error)) from None
        with self._lock:
            self._known[key.id] = key
            self._clear.setdefault(key.id, clear)
        return clear

    def _wrap(self, id: str, master: str, data_key: bytes) -> DataKey:
        try:
            wrapped = self.encryption.keys.wrap_key(data_key, master)
            text = wrapped if isinstance(wrapped, str) else bytes(wrapped).decode("ascii")
        except Exception as error:
            raise MissingKeyError(_no_key(master, error)) from None
        with self._lock:
            self._clear[id] = data_key
        return DataKey(id, master, text)

    def factory(self, protection: SnapshotProtection) -> Any:
        """The factory of pyarrow's encryption properties, for parts under these data keys."""
        with self._lock:
            self._known.update(protection.keys)
        return self._factory

    @cached_property
    def _factory(self) -> Any:
        """A factory with the data keys as its master keys; it must outlive the properties that it creates."""
        from pyarrow.parquet.encryption import CryptoFactory, KmsClient

        key_of: Callable[[str], bytes] = lambda id: self.data_key(self._known[id])  # noqa: E731

        class DataKeys(KmsClient):  # type: ignore[misc]
            def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
                return _text(encrypt(key_of(master_key_identifier), key_bytes, master_key_identifier.encode()))

            def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
                data = base64.b64decode(wrapped_key)
                key = decrypt(key_of(master_key_identifier), data, master_key_identifier.encode())
                if key is None:
                    raise ValueError("a part's key is damaged")
                return key

        return CryptoFactory(lambda config: DataKeys())


@dataclass(frozen=True)
class PartKeys:
    """The keys of a snapshot's parts, by column of the files table."""

    vault: Vault
    protection: SnapshotProtection

    def covers(self, column: str) -> bool:
        """True if a column is encrypted, and thereby authenticated."""
        return self.protection.paths or column not in BASE_SCHEMA.names

    def encryption_properties(self, leaves: Mapping[str, list[str]]) -> Any:
        """Properties for pyarrow to write a part, from the paths of the leaves of each column."""
        from pyarrow.parquet.encryption import EncryptionConfiguration, KmsConnectionConfig

        base = self.protection.base
        by_key: dict[str, list[str]] = {}
        for column, paths in leaves.items():
            if self.covers(column):
                by_key.setdefault(self.protection.key_of(column), []).extend(paths)
        for id in (base, *by_key):
            self.vault.data_key(self.protection.keys[id])
        signed = self.protection.footer == "signed"
        options = EncryptionConfiguration(base, column_keys=by_key, plaintext_footer=signed, data_key_length_bits=256)
        return self.vault.factory(self.protection).file_encryption_properties(KmsConnectionConfig(), options)

    def decryption_properties(self) -> Any:
        """Properties for pyarrow to read a part, for one reader."""
        from pyarrow.parquet.encryption import DecryptionConfiguration, KmsConnectionConfig

        factory = self.vault.factory(self.protection)
        return factory.file_decryption_properties(KmsConnectionConfig(), DecryptionConfiguration())


def _keys(entry: Json, location: str) -> tuple[dict[str, DataKey], str]:
    """The wrapped data keys of an entry, and the id of its base key."""
    base, keys = entry.get("base"), entry.get("keys")
    data_keys: dict[str, DataKey] = {}
    for id, key in keys.items() if isinstance(keys, dict) else ():
        if isinstance(key, dict) and isinstance(key.get("master"), str) and isinstance(key.get("wrapped"), str):
            data_keys[id] = DataKey(id, key["master"], key["wrapped"])
    if not (isinstance(base, str) and base in data_keys):
        raise MetadataError(f"a sealed entry in {location} is damaged: it holds no base key")
    return data_keys, base


def _rename(data: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """JSON with some texts replaced everywhere: as member names, as values and within values."""
    text = json.dumps(data)
    for old in sorted(names, key=len, reverse=True):
        text = text.replace(json.dumps(old)[1:-1], json.dumps(names[old])[1:-1])
    renamed: dict[str, Any] = json.loads(text)
    return renamed


def _associated_data(kind: str, identity: str, number: int) -> bytes:
    return f"geoskip {kind} {identity} {number}".encode()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _unpack(data: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(data, _LARGEST)
    if not unpacking.eof:
        raise ValueError("it is cut short, or too large")
    return text


def _no_key(master: str, error: Exception) -> str:
    reason = f"{type(error).__name__}: {error}" if not isinstance(error, MissingKeyError) else str(error)
    return f"it needs the key {master!r} ({' '.join(reason.split())[:200]})"
