"""Numbered log entries, JSON with a checksum, and the folders that most stores keep them in.

See :mod:`geoskip.stores.parquet` for the format; entries of protected metadata are sealed
(:mod:`geoskip.stores.encryption`). Any invalid entry raises MetadataError, never another error.

A :class:`Folder` has the few file operations that a store needs, so that any file system can be used: local ones
through :class:`LocalFolder`, others through the session's Hadoop client. Names are relative to the folder, with ``/``
as separator.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import re
import shutil
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol

from geoskip.errors import MetadataError, MissingKeyError, NewerFormatError
from geoskip.metadata import FORMAT, Header, check_format
from geoskip.stores.base import header_json
from geoskip.stores.encryption import Encryption, PartKeys, SnapshotProtection, Vault, is_sealed

_IDENTITY = re.compile(r"[0-9a-f]{32}")
Kind = Literal["snapshot", "operation"]
"""The kinds of entries: headers of snapshots, and entries of the operation log."""
LARGEST: dict[Kind, int] = {"snapshot": 32 << 20, "operation": 1 << 20}
"""Maximum number of bytes of an entry."""


class _UnprotectedError(MetadataError):
    """Unencrypted metadata where encrypted ones are expected; no snapshot may follow them."""


class TextKey(NamedTuple):
    """The key of a text: its kind, the identity of its log, and its number there."""

    kind: Kind
    identity: str
    number: int


class NumberedTexts(Protocol):
    """The texts of a store, which never change."""

    location: str

    def identity(self) -> str | None:
        """The identity of the log, or None."""

    def begin(self) -> None:
        """Create a log with a new identity, unless there is one."""

    def numbers(self, kind: Kind, identity: str) -> tuple[int, ...]:
        """The numbers of the texts of one kind, ascending."""

    def label(self, key: TextKey) -> str:
        """The name of a text in messages."""

    def read(self, key: TextKey) -> bytes:
        """Read a text; raises FileNotFoundError if it is missing, MetadataError for other failures."""

    def create(self, key: TextKey, text: bytes) -> None:
        """Create a text exclusively, whole and durable; raises FileExistsError if the number has another."""

    def forget(self, kind: Kind, identity: str, *numbers: int) -> None:
        """Remove texts that exist."""


class LogEntries:
    """The entries of snapshots and of the operation log, sealed if the metadata are protected."""

    def __init__(self, texts: NumberedTexts, encryption: Encryption | None) -> None:
        self.texts = texts
        self.location = texts.location
        self.vault = None if encryption is None else Vault(encryption, texts.location)
        self._first: dict[str, SnapshotProtection] = {}
        self._met: SnapshotProtection | None = None

    def snapshot(self, identity: str, number: int) -> tuple[Header, SnapshotProtection | None]:
        """Read a snapshot's header and its protection."""
        key = TextKey("snapshot", identity, number)
        try:
            text = self.texts.read(key)
        except FileNotFoundError:
            raise MetadataError(f"there is no snapshot {number} in {self.location}") from None
        what = f"{self.texts.label(key)} in {self.location}"
        data, protection = self._unseal(entry_content(text, "header", what), key)
        header = header_of(data, what)
        if (header.identity, header.number) != (identity, number):
            raise MetadataError(f"{what} is the entry of another snapshot")
        self._met = protection or self._met
        return header, protection

    def operation(self, identity: str, number: int) -> dict[str, Any]:
        """Read an entry of the operation log."""
        key = TextKey("operation", identity, number)
        try:
            text = self.texts.read(key)
        except FileNotFoundError:
            raise MetadataError(f"there is no entry {number} in the operation log of {self.location}") from None
        entry = entry_content(text, "entry", f"{self.texts.label(key)} in {self.location}")
        return self._unseal(entry, key)[0]

    def snapshot_text(self, header: Header, protection: SnapshotProtection | None) -> bytes:
        """The file content of a snapshot's entry."""
        data = header_json(header)
        if self.vault is not None and protection is not None:
            data = self.vault.seal(protection, "snapshot", header.identity, header.number, data)
        return entry_text("header", data, LARGEST["snapshot"])

    def operation_text(self, data: dict[str, Any], identity: str, number: int, latest: int | None) -> bytes:
        """The file content of an operation log's entry, protected like the latest snapshot.

        Parameters
        ----------
        data
            The entry as JSON.
        identity, number
            The identity of the log, and the number of the entry.
        latest
            Number of the latest snapshot, or None.
        """
        protection = self._protection(identity, latest)
        if self.vault is not None and protection is not None:
            data = self.vault.seal(protection, "operation", identity, number, data)
        return entry_text("entry", data, LARGEST["operation"])

    def keys(self, protection: SnapshotProtection | None) -> PartKeys | None:
        """The keys of the parts of a snapshot with this protection; None for unencrypted parts."""
        return PartKeys(self.vault, protection) if self.vault is not None and protection is not None else None

    def has_indexes_apart(self, identity: str, latest: int | None) -> bool:
        """True if an index has its own key, so that entries under the base key must not name it."""
        if self.vault is None:
            return False
        if self._encryption(self.vault).indexes:
            return True
        header, protection = self._last(identity, latest) if latest is not None else (None, None)
        sealed = header is not None and any(map(is_sealed, (*header.unread, *header.unread_deleted)))
        return sealed or (protection is not None and any(key != protection.base for key in protection.indexes.values()))

    def protection_of(self, header: Header) -> SnapshotProtection | None:
        """The protection of a new snapshot; raises MissingKeyError if unreadable indexes would be lost."""
        if self.vault is None:
            self._refuse_if_protected(header.identity, header.number - 1)
            return None
        before, encryption = self._first.get(header.identity), self._encryption(self.vault)
        if header.number > 1:
            encryption = self.vault.encryption
            last, before = self._last(header.identity, header.number - 1)
            unread = next(filter(is_sealed, (*last.unread, *last.unread_deleted)), None) if last else None
            if unread is not None:
                raise MissingKeyError(
                    f"a writer to {self.location} needs the keys of all its indexes, since what it cannot read "
                    f"it would lose; {unread.get('why')}"
                )
        if before is None and encryption.key is None:
            return None  # keys only for reading, and unencrypted metadata
        return self.vault.protection(before, [entry.name for entry in header.stored], encryption)

    def _encryption(self, vault: Vault) -> Encryption:
        """The encryption of a log without a snapshot: that of a dropped log, if this handle has read one."""
        return vault.encryption if self._met is None else self._met.encryption(vault.encryption)

    def _last(self, identity: str, number: int) -> tuple[Header | None, SnapshotProtection | None]:
        """The snapshot before the one to be written; (None, None) if it is damaged and may be replaced."""
        assert self.vault is not None
        try:
            return self.snapshot(identity, number)
        except (MissingKeyError, _UnprotectedError):
            raise
        except MetadataError:
            if self.vault.encryption.key is None:
                raise
            return None, None

    def _refuse_if_protected(self, identity: str, number: int) -> None:
        """Raise an error if a snapshot is sealed: the next one must be encrypted too."""
        key = TextKey("snapshot", identity, number)
        try:
            text = self.texts.read(key)
            data = entry_content(text, "header", "the snapshot before")
        except (FileNotFoundError, MetadataError):
            return
        if is_sealed(data):
            self._unseal(data, key)

    def _protection(self, identity: str, latest: int | None) -> SnapshotProtection | None:
        """The protection of the latest snapshot; without a snapshot, that of the first one to be written."""
        if self.vault is None:
            return None
        last, protection = (None, None) if latest is None else self._last(identity, latest)
        if last is not None:
            return protection
        encryption = self._encryption(self.vault)
        if identity not in self._first and encryption.key is not None:
            self._first[identity] = self.vault.protection(None, (), encryption)
        return self._first.get(identity)

    def _unseal(self, data: dict[str, Any], key: TextKey) -> tuple[dict[str, Any], SnapshotProtection | None]:
        """The content of an entry that may be sealed, and its protection."""
        if is_sealed(data):
            if self.vault is None:
                raise MissingKeyError(
                    f"the metadata in {self.location} are protected and no keys were given: give them as "
                    "dataset(..., encryption=Encryption(keys)) or in spark.geoskip.encryption.keyRing"
                )
            return self.vault.open(data, *key)
        if self.vault is not None and self.vault.encryption.key is not None:
            raise _UnprotectedError(
                f"the metadata in {self.location} are in clear, where protected ones are expected: use them "
                "without encryption=, or remove them and index again"
            )
        return data, None


def identity_text(identity: str) -> bytes:
    """The content of ``_identity.json``."""
    return json.dumps({"format": FORMAT, "identity": identity, "crc": checksum(identity)}).encode("ascii")


@functools.lru_cache(256)
def identity_of(text: bytes, what: str) -> str:
    """Read the content of ``_identity.json``; the first versions wrote no checksum."""
    try:
        data = json_object(text, what)
        check_format(data)
        identity = data.get("identity")
        if not (isinstance(identity, str) and _IDENTITY.fullmatch(identity)):
            raise MetadataError(f"{what} holds no identity")
        if data.get("crc", checksum(identity)) != checksum(identity):
            raise MetadataError(f"{what} is damaged: its checksum differs")
    except MetadataError as error:
        message = str(error) if what in str(error) else f"{what}: {error}"
        if not isinstance(error, NewerFormatError):
            message += "; nothing there is found without it: remove the folder, and create the indexes anew"
        raise type(error)(message) from None
    return identity


def checksum(data: Any) -> int:
    return zlib.crc32(json.dumps(data, sort_keys=True, separators=(",", ":")).encode("ascii"))


def entry_text(member: str, data: dict[str, Any], limit: int) -> bytes:
    """The file content of an entry; raises MetadataError if it is longer than ``limit`` bytes."""
    text = json.dumps({"crc": checksum(data), member: data}, indent=1).encode("ascii")
    if len(text) > limit:
        raise MetadataError(f"a {member} of {len(text)} bytes is more than the {limit} that are read")
    return text


def json_object(text: bytes, what: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MetadataError(f"{what} is damaged: {error}") from None
    if not isinstance(data, dict):
        raise MetadataError(f"{what} is damaged: no JSON object")
    return data


def header_of(data: dict[str, Any], what: str) -> Header:
    try:
        return Header.from_json(data)
    except MetadataError:
        raise
    except Exception as error:  # hostile JSON may raise anything
        raise MetadataError(f"{what} is damaged: {type(error).__name__}: {str(error)[:200]}") from None


def entry_content(text: bytes, member: str, what: str) -> dict[str, Any]:
    """Parse an entry's file, verify format and checksum, and return the member."""
    data = json_object(text, what)
    held = data.get(member)
    if isinstance(held, dict) and isinstance(held.get("format"), int):
        check_format(held)  # before the checksum, which may differ in a newer format
    try:
        if isinstance(held, dict) and data.get("crc") == checksum(held):
            return held
    except (ValueError, RecursionError):
        pass
    raise MetadataError(f"{what} is damaged: its checksum differs")


class Folder(Protocol):
    """File operations in one folder; a missing file raises FileNotFoundError, other failures OSError.

    ``location`` is the path or URI of the folder for messages. The empty name is that of the folder itself.
    """

    location: str

    def names(self, sub: str) -> list[str]:
        """List a sub-folder: names without the folder's; empty if it does not exist."""

    def read(self, name: str, limit: int) -> bytes:
        """Read a file, or its first ``limit`` bytes."""

    def create(self, name: str, data: bytes) -> None:
        """Create a file exclusively and atomically; raises FileExistsError if it exists."""

    def put(self, name: str, source: Path) -> None:
        """Copy a local file to a name that no other process uses; durable when it returns."""

    def local(self, name: str) -> Path:
        """The path of an immutable file, or of a cached local copy."""

    def delete(self, name: str) -> None:
        """Remove a file or a folder with its content, if it exists."""

    def exists(self, name: str) -> bool: ...


_ATTEMPTS = 3
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


class LocalFolder:
    """A folder on a local (or mounted) file system.

    ``create`` writes a temporary file, flushes it to disk and hard-links it to its name: this is exclusive and atomic.
    If the file system has no hard links, it opens the file with O_EXCL. This is exclusive too, but readers may briefly
    see an incomplete file, which the checksum detects.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.location = str(self.path)
        self._root = str(self.path)

    def names(self, sub: str) -> list[str]:
        try:
            return os.listdir(f"{self._root}/{sub}")
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, name: str, limit: int) -> bytes:
        try:
            with open(f"{self._root}/{name}", "rb") as file:
                return file.read(limit)
        except NotADirectoryError as error:  # the dataset is a single file
            raise FileNotFoundError(*error.args) from None

    def create(self, name: str, data: bytes) -> None:
        target = self.path / name

        def write(file: BinaryIO) -> None:
            file.write(data)

        self._write_and_place(target, write, lambda scratch: self._link(scratch, target, data))

    def put(self, name: str, source: Path) -> None:
        target = self.path / name

        def write(file: BinaryIO) -> None:
            with open(source, "rb") as given:
                shutil.copyfileobj(given, file, 1 << 20)

        self._write_and_place(target, write, lambda scratch: os.replace(scratch, target))

    def _write_and_place(self, target: Path, write: Callable[[BinaryIO], None], place: Callable[[Path], None]) -> None:
        """Write a hidden file, flush it to disk and place it; retry if a sweep has removed it."""
        for attempt in range(_ATTEMPTS):
            scratch = target.with_name(f".{target.name.lstrip('.')}.{uuid.uuid4().hex}.tmp")
            try:
                _make(target.parent)
                with open(scratch, "xb") as file:
                    write(file)
                    _flush(file)
                place(scratch)
                break
            except FileNotFoundError:
                if attempt == _ATTEMPTS - 1:
                    raise
            finally:
                with contextlib.suppress(OSError):
                    scratch.unlink()
        _flush_folder(target.parent)

    def local(self, name: str) -> Path:
        return self.path / name

    def delete(self, name: str) -> None:
        target = self.path / name
        try:
            target.unlink()
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):  # the latter on macOS
            if not target.is_dir():
                raise
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(target)

    def exists(self, name: str) -> bool:
        return os.path.lexists(self.path / name)

    def _link(self, scratch: Path, target: Path, data: bytes) -> None:
        try:
            os.link(scratch, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with open(target, "xb") as file:
                file.write(data)
                _flush(file)


def _make(folder: Path) -> None:
    """Create a folder; a file of that name raises NotADirectoryError, not FileExistsError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        if not os.path.lexists(folder) or folder.is_dir():  # removed meanwhile, and perhaps created again
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder)) from None
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems do not flush folders
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def local_path(uri: str) -> str | None:
    """The path of a ``file:`` URI in Hadoop's form, not percent-encoded; None for other file systems.

    >>> local_path("file:/data/a b"), local_path("s3a://bucket/data")
    ('/data/a b', None)
    """
    if uri.startswith("file:"):
        return "/" + uri[5:].lstrip("/")
    return uri if uri.startswith("/") else None
