"""Master keys: the protocol of a key management service, and a local key ring.

A *master key* has a name and never leaves the key management service, which wraps and unwraps *data keys*. Data keys
encrypt the metadata and are stored wrapped with them (:mod:`geoskip.stores.encryption`). A key management service needs
the two methods of :class:`pyarrow.parquet.encryption.KmsClient`::

    class Kms:
        def wrap_key(self, key_bytes, master_key_identifier): ...  # bytes or text that unwrap_key accepts
        def unwrap_key(self, wrapped_key, master_key_identifier): ...  # the bytes; raises if access is denied

Neither method receives data: a data key is wrapped when it is created or rotated, and unwrapped when a process first
uses it.
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

_LENGTHS = (16, 24, 32)
_NONCE = 12
_LARGEST = 1 << 20


class KeyKeeper(Protocol):
    """A service with master keys: a :class:`KeyRing`, or a client of a key management service."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes | str:
        """Encrypt a data key with a master key; raises an error if there is no such key."""

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        """Decrypt a data key; raises an error if the master key is missing or denied."""


class KeyRing:
    """Master keys in this process, from a file or an environment variable; for laptops and tests.

    The JSON contains keys of 128, 192 or 256 bits in base64: ``{"base": "mZq..."}``, or with versions
    ``{"base": {"1": "mZq...", "2": "Xw8..."}}``. The highest version wraps data keys; all versions unwrap them.

    >>> ring = KeyRing({"base": bytes(32)})
    >>> ring
    KeyRing(base)
    """

    def __init__(self, keys: Mapping[str, bytes | Mapping[int, bytes]]) -> None:
        if not isinstance(keys, Mapping):
            raise InvalidSpecificationError(
                f"KeyRing() takes keys by name, got {type(keys).__name__}; KeyRing.from_file(path) reads a file"
            )
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
        """Create random keys of 256 bits in a new file that only its owner may read."""
        if not names:
            raise InvalidSpecificationError("KeyRing.create() takes the names of the keys to make, such as 'base'")
        ring = cls({name: secrets.token_bytes(32) for name in names})
        ring._write(path)
        return ring

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> KeyRing:
        """Read the keys in a file; raise InvalidSpecificationError with a message that contains no key."""
        try:
            with open(path, "rb") as file:
                text = file.read(_LARGEST)
        except OSError as error:
            raise InvalidSpecificationError(f"the key ring {os.fspath(path)} cannot be read: {error}") from None
        return cls._parse(text, f"the key ring {os.fspath(path)}")

    @classmethod
    def from_environment(cls, variable: str = "GEOSKIP_KEYS") -> KeyRing:
        """Read the keys in an environment variable."""
        text = os.environ.get(variable)
        if not text:
            raise InvalidSpecificationError(
                f"the environment variable {variable} holds no keys; it takes JSON such as "
                '{"base": "<32 bytes in base64>"}'
            )
        return cls._parse(text.encode(), f"the environment variable {variable}")

    @classmethod
    def _parse(cls, text: bytes, what: str) -> KeyRing:
        """Parse JSON; errors and their causes do not quote the text, which contains keys."""
        shape = f'{what} should be JSON such as {{"base": "<32 bytes in base64>"}}'
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict) or not data:
            raise InvalidSpecificationError(shape)
        return cls({name: _versions(name, value, shape) for name, value in data.items()})

    def rotated(self, *names: str) -> KeyRing:
        """Return a ring with a new version of these keys (default: all), used for wrapping."""
        keys = {name: dict(versions) for name, versions in self._keys.items()}
        for name in names or tuple(keys):
            self._versions_of(name)
            keys[name][max(keys[name]) + 1] = secrets.token_bytes(32)
        return KeyRing(keys)

    def without_old(self) -> KeyRing:
        """Return a ring with only the newest versions, which cannot unwrap data keys of older ones."""
        return KeyRing({name: {max(versions): versions[max(versions)]} for name, versions in self._keys.items()})

    def only(self, *names: str) -> KeyRing:
        """Return a ring with only these keys, for readers of some indexes."""
        return KeyRing({name: self._versions_of(name) for name in names})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ring to a file that only its owner may read, replacing an old one."""
        target = Path(path)
        scratch = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
        self._write(scratch)
        os.replace(scratch, target)

    def _write(self, path: str | os.PathLike[str]) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(self.to_json())

    def to_json(self) -> str:
        """Return the ring as JSON with unencrypted keys."""
        keys = {
            name: {str(version): base64.b64encode(key).decode("ascii") for version, key in versions.items()}
            for name, versions in self._keys.items()
        }
        return json.dumps(keys, indent=1)

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """Encrypt a data key by AES-GCM under the newest version, as ``<version>.<base64>``."""
        versions = self._versions_of(master_key_identifier)
        version = max(versions)
        sealed = encrypt(versions[version], key_bytes, _associated_data(master_key_identifier, version))
        return f"{version}.{base64.b64encode(sealed).decode('ascii')}"

    def unwrap_key(self, wrapped_key: bytes | str, master_key_identifier: str) -> bytes:
        """Return the data key; raise MissingKeyError without the master key of that name and version."""
        versions = self._versions_of(master_key_identifier)
        text = wrapped_key if isinstance(wrapped_key, str) else wrapped_key.decode("ascii", "replace")
        number, _, sealed = text.partition(".")
        version = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else -1
        if version not in versions:
            raise MissingKeyError(f"version {number[:10]} of the key {master_key_identifier!r} is not in the key ring")
        try:
            data = base64.b64decode(sealed, validate=True)
        except binascii.Error:
            data = b""
        key = decrypt(versions[version], data, _associated_data(master_key_identifier, version))
        if key is None:
            raise MissingKeyError(
                f"the key {master_key_identifier!r} of the key ring is not the one that was used, or what it wrapped "
                "is damaged"
            )
        return key

    def _versions_of(self, name: str) -> dict[int, bytes]:
        if name not in self._keys:
            raise MissingKeyError(f"the key {name!r} is not in the key ring, which has {', '.join(self._keys)}")
        return self._keys[name]

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._keys)})"


def _versions(name: str, value: Any, shape: str) -> dict[int, bytes]:
    versions = value if isinstance(value, dict) else {"1": value}
    keys: dict[int, bytes] = {}
    for version, text in versions.items():
        if not (version.isascii() and version.isdigit() and len(version) < 10 and isinstance(text, str)):
            raise InvalidSpecificationError(f"{shape}; the key {name!r} is neither a text nor versions of one")
        try:
            keys[int(version)] = base64.b64decode(text, validate=True)
        except ValueError:
            raise InvalidSpecificationError(f"{shape}; the key {name!r} is no base64") from None
    return keys


def _associated_data(name: str, version: int) -> bytes:
    return f"geoskip key {version} {name}".encode()


def encrypt(key: bytes, data: bytes, associated: bytes) -> bytes:
    """Encrypt by AES-GCM, and authenticate ``associated``: a random nonce, then ciphertext and tag."""
    nonce = secrets.token_bytes(_NONCE)
    sealed: bytes = nonce + _cipher(key).encrypt(nonce, data, associated)
    return sealed


def decrypt(key: bytes, data: bytes, associated: bytes) -> bytes | None:
    """Decrypt the result of :func:`encrypt`; None if the key, the data or ``associated`` differs."""
    cipher = _cipher(key)  # before the import below, since its error message is better
    from cryptography.exceptions import InvalidTag

    try:
        clear: bytes = cipher.decrypt(data[:_NONCE], data[_NONCE:], associated)
    except (InvalidTag, ValueError):
        return None
    return clear


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise EnvironmentProblem(
            "protected metadata needs the package cryptography: pip install geoskip[encryption]"
        ) from None
    return AESGCM(key)
