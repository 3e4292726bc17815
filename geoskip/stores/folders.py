"""Folders: the few file operations that a store needs, so that any file system can serve.

A name is relative to the folder, with ``/`` between its parts. Local folders are here; Spark's side has one over the
session's own Hadoop client, with the user's credentials.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol

__all__ = ["Folder", "LocalFolder"]


class Folder(Protocol):
    """File operations under one folder; what is missing raises FileNotFoundError, other trouble OSError."""

    location: str
    """What messages call it: a path or URI."""

    def names(self, sub: str) -> list[str]:
        """The names of what is in a sub-folder, without its own; empty if it does not exist."""

    def read(self, name: str, limit: int) -> bytes:
        """A whole file, or its first ``limit`` bytes."""

    def create(self, name: str, data: bytes) -> None:
        """Make a file, exclusively and at once: FileExistsError if it exists, and nobody sees a half of it."""

    def put(self, name: str, source: Path) -> None:
        """Copy a local file to a name that nobody else uses; durable when it returns."""

    def local(self, name: str) -> Path:
        """A local file with the content of an immutable file: itself, or a cached copy."""

    def delete(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing if it does not exist."""

    def exists(self, name: str) -> bool: ...


_ATTEMPTS = 3
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


class LocalFolder:
    """A folder on a local (or mounted) file system.

    ``create`` writes a temporary file, makes it durable and hard-links it into place, which no two processes can do
    for one name, and which a crash either did or did not. Where the file system has no hard links it opens the
    file with O_EXCL: as exclusive, but a reader may see a part of it for a moment, which its checksum tells.
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
        except NotADirectoryError as error:  # the dataset is a single file: nothing lies below it
            raise FileNotFoundError(*error.args) from None

    def create(self, name: str, data: bytes) -> None:
        target = self.path / name

        def write(file: BinaryIO) -> None:
            file.write(data)

        self._made(target, write, lambda scratch: self._link(scratch, target, data))

    def put(self, name: str, source: Path) -> None:
        target = self.path / name

        def write(file: BinaryIO) -> None:
            with open(source, "rb") as given:
                shutil.copyfileobj(given, file, 1 << 20)

        self._made(target, write, lambda scratch: os.replace(scratch, target))

    def _made(self, target: Path, write: Callable[[BinaryIO], None], place: Callable[[Path], None]) -> None:
        """Write a hidden file, make it durable and put it in its place; once more where a sweep took it away."""
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
        except (IsADirectoryError, PermissionError):  # the latter is what macOS says of a folder
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
    """Make a folder, if it is not there. A file in its place is no file that somebody else made first."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        if not os.path.lexists(folder) or folder.is_dir():  # taken away meanwhile, and perhaps made again
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder)) from None
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None


def _flush(file: BinaryIO) -> None:
    file.flush()  # else the disk is asked to keep what Python has not written yet
    os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems do not flush folders
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
