"""Keys: who keeps the master keys that protect metadata, and a key ring for machines without such a service.

A *master key* has a name and never leaves its keeper. The keeper wraps and unwraps *data keys*, which are what data is
encrypted with and which are stored wrapped beside it (:mod:`geoskip.stores.encryption`). A key management service
fits in by two methods, those of :class:`pyarrow.parquet.encryption.KmsClient`::

    class Kms:
        def wrap_key(self, key_bytes, master_key_identifier): ...  # bytes or text; whatever unwrap_key takes
        def unwrap_key(self, wrapped_key, master_key_identifier): ...  # the bytes; raises where it may not

Neither ever sees data: a call a data key when metadata is begun, and a call a data key when a process first reads it.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from geoskip.errors import EnvironmentProblem, InvalidSpecificationError, MissingKeyError

__all__ = ["KeyKeeper", "KeyRing", "decrypted", "encrypted"]

_LENGTHS = (16, 24, 32)
_NONCE = 12
_LARGEST = 1 << 20


class KeyKeeper(Protocol):
    """What keeps master keys: a :class:`KeyRing`, or a client of a key management service."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes | str:
        """The data key, encrypted under a master key; raises where there is no such key."""

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        """The data key again; raises where the master key is not to be had."""


class KeyRing:
    """Master keys in this process, from a file or an environment variable; for laptops and tests.

    Written as JSON, keys in base64 of 128, 192 or 256 bits: ``{"base": "mZq..."}``, or with versions
    ``{"base": {"1": "mZq...", "2": "Xw8..."}}``, of which the highest wraps and all unwrap.

    >>> ring = KeyRing({"base": bytes(32)})
    >>> ring
    KeyRing(base)
    """

    def __init__(self, keys: Mapping[str, bytes | Mapping[int, bytes]]) -> None:
        self._keys = {name: dict(key) if isinstance(key, Mapping) else {1: key} for name, key in keys.items()}
        for name, versions in self._keys.items():
            if not versions:
                raise InvalidSpecificationError(f"the key {name!r} has no version")
            for version, key in versions.items():
                if not isinstance(key, bytes):
                    raise InvalidSpecificationError(f"the key {name!r} should be bytes, got {type(key).__name__}")
                if len(key) not in _LENGTHS:
                    raise InvalidSpecificationError(
                        f"version {version} of the key {name!r} has {8 * len(key)} bits; AES takes 128, 192 or 256"
                    )

    @classmethod
    def create(cls, path: str | os.PathLike[str], *names: str) -> KeyRing:
        """New random keys of 256 bits, written to a new file that only its owner may read."""
        if not names:
            raise InvalidSpecificationError("KeyRing.create() takes the names of the keys to make, such as 'base'")
        ring = cls({name: secrets.token_bytes(32) for name in names})
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(ring.to_json())
        return ring

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> KeyRing:
        """The keys in a file; raises InvalidSpecificationError, in which no key is quoted."""
        try:
            with open(path, "rb") as file:
                text = file.read(_LARGEST)
        except OSError as error:
            raise InvalidSpecificationError(f"the key ring {os.fspath(path)} cannot be read: {error}") from None
        return cls._parsed(text, f"the key ring {os.fspath(path)}")

    @classmethod
    def from_environment(cls, variable: str = "GEOSKIP_KEYS") -> KeyRing:
        """The keys in an environment variable."""
        text = os.environ.get(variable)
        if not text:
            raise InvalidSpecificationError(
                f"the environment variable {variable} holds no keys; it takes JSON such as "
                '{"base": "<32 bytes in base64>"}'
            )
        return cls._parsed(text.encode(), f"the environment variable {variable}")

    @classmethod
    def _parsed(cls, text: bytes, what: str) -> KeyRing:
        """Errors are raised without the text and without causes that quote it."""
        shape = f'{what} should be JSON such as {{"base": "<32 bytes in base64>"}}'
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict) or not data:
            raise InvalidSpecificationError(shape)
        return cls({name: _versions(name, value, shape) for name, value in data.items()})

    def rotated(self, *names: str) -> KeyRing:
        """A ring in which these keys (all, if none is named) have a new version, which wraps from now on."""
        keys = {name: dict(versions) for name, versions in self._keys.items()}
        for name in names or tuple(keys):
            self._known(name)
            keys[name][max(keys[name]) + 1] = secrets.token_bytes(32)
        return KeyRing(keys)

    def without_old(self) -> KeyRing:
        """A ring of the newest versions alone: what was wrapped under older ones is lost to it."""
        return KeyRing({name: {max(versions): versions[max(versions)]} for name, versions in self._keys.items()})

    def only(self, *names: str) -> KeyRing:
        """A ring with these keys and no others, for those who may read no more."""
        return KeyRing({name: self._known(name) for name in names})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ring to a file, in place of what is there; only its owner may read it."""
        target = Path(path)
        scratch = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(self.to_json())
        os.replace(scratch, target)

    def to_json(self) -> str:
        """The ring as it is written; the keys in clear."""
        keys = {
            name: {str(version): base64.b64encode(key).decode("ascii") for version, key in versions.items()}
            for name, versions in self._keys.items()
        }
        return json.dumps(keys, indent=1)

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """``<version>.<base64>``: encrypted by AES-GCM under the newest version."""
        versions = self._known(master_key_identifier)
        version = max(versions)
        sealed = encrypted(versions[version], key_bytes, _associated(master_key_identifier, version))
        return f"{version}.{base64.b64encode(sealed).decode('ascii')}"

    def unwrap_key(self, wrapped_key: bytes | str, master_key_identifier: str) -> bytes:
        """The data key; raises MissingKeyError for a key or version that is not here, or another key of the name."""
        versions = self._known(master_key_identifier)
        text = wrapped_key if isinstance(wrapped_key, str) else wrapped_key.decode("ascii", "replace")
        number, _, sealed = text.partition(".")
        version = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else -1
        if version not in versions:
            raise MissingKeyError(f"version {number[:10]} of the key {master_key_identifier!r} is not in the key ring")
        try:
            data = base64.b64decode(sealed, validate=True)
        except binascii.Error:
            data = b""
        found = decrypted(versions[version], data, _associated(master_key_identifier, version))
        if found is None:
            raise MissingKeyError(
                f"the key {master_key_identifier!r} of the key ring is not the one that was used, or what it wrapped "
                "is damaged"
            )
        return found

    def _known(self, name: str) -> dict[int, bytes]:
        if name not in self._keys:
            raise MissingKeyError(f"the key {name!r} is not in the key ring, which has {', '.join(self._keys)}")
        return self._keys[name]

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._keys)})"


def _versions(name: str, value: Any, shape: str) -> dict[int, bytes]:
    versions = value if isinstance(value, dict) else {"1": value}
    found: dict[int, bytes] = {}
    for version, text in versions.items():
        if not (version.isascii() and version.isdigit() and len(version) < 10 and isinstance(text, str)):
            raise InvalidSpecificationError(f"{shape}; the key {name!r} is neither a text nor versions of one")
        try:
            found[int(version)] = base64.b64decode(text, validate=True)
        except ValueError:
            raise InvalidSpecificationError(f"{shape}; the key {name!r} is no base64") from None
    return found


def _associated(name: str, version: int) -> bytes:
    return f"geoskip key {version} {name}".encode()


def encrypted(key: bytes, data: bytes, associated: bytes) -> bytes:
    """Data under AES-GCM: a random nonce, then the ciphertext with its tag; ``associated`` is authenticated too."""
    nonce = secrets.token_bytes(_NONCE)
    found: bytes = nonce + _cipher(key).encrypt(nonce, data, associated)
    return found


def decrypted(key: bytes, data: bytes, associated: bytes) -> bytes | None:
    """What :func:`encrypted` was given; None where the key, the data or what is associated is another."""
    cipher = _cipher(key)  # first: it says so where the package is missing
    from cryptography.exceptions import InvalidTag

    try:
        found: bytes = cipher.decrypt(data[:_NONCE], data[_NONCE:], associated)
    except (InvalidTag, ValueError):
        return None
    return found


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise EnvironmentProblem(
            "protected metadata needs the package cryptography: pip install geoskip[encryption]"
        ) from None
    return AESGCM(key)
