"""Folder for metadata on any Hadoop file system, through the session's own client and credentials.

Files that pyarrow opens are first copied to a local cache; they are immutable and have unique names.

*Exclusive creation*, by which one of two writers wins, depends on the file system:

========================= ============================================================================================
S3A                       a conditional put, which fails if the object exists: see below
Google (gs)               creation without overwriting is exclusive, and a file is visible only when it is complete
HDFS, Ozone, Azure (abfs) the bytes are written to a hidden file, which is then renamed: this fails if the target
                          exists, and there are no incomplete entries, neither for readers nor after a crash
a mount table (ViewFs)    as HDFS; files on this machine by a hard link, as in local folders, since a local rename is
                          not exclusive
any other                 unknown: the file is created without overwriting and read again, which detects most lost
                          races, and a warning recommends that only one process at a time writes
========================= ============================================================================================

*S3.* ``create(overwrite=false)`` of S3A, Hadoop's client, checks for an object and then puts its own: two writers may
both find none, and the later one overwrites the object of the earlier. S3 itself has conditional puts
(``If-None-Match: *``; Amazon since 2024), so this request is sent with S3A's own client, its credentials and its
encryption. A store without this feature may ignore the condition silently. Hence the first object of a process in a
bucket is put twice, and the second put must be refused. If it is not, no creation is exclusive, and a warning is issued
once.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from geoskip.stores.log_files import LocalFolder, local_path

_RENAMES_EXCLUSIVELY = frozenset(["hdfs", "webhdfs", "swebhdfs", "viewfs", "ofs", "o3fs", "abfs", "abfss"])
_CREATES_EXCLUSIVELY = frozenset(["gs"])
_PATH = "org.apache.hadoop.fs.Path"
_CHUNK = 8 << 20
_AT_ONCE = 8
"""Number of threads that delete files."""
_MOST_COPIED = 2 << 30
"""Total bytes of copies above which the least recently used are removed; they are copied again when needed."""


class HadoopFolder:
    """A folder given as a URI; implements :class:`geoskip.stores.log_files.Folder`."""

    def __init__(self, uri: str) -> None:
        self.location = uri.rstrip("/")

    def names(self, sub: str) -> list[str]:
        with self._connected() as (jvm, system):
            try:
                found = system.listStatus(self._path(jvm, sub))
            except Py4JJavaError as error:
                if _is(error, "java.io.FileNotFoundException"):
                    return []
                raise
            return [path.rpartition("/")[2] for path in _paths(jvm, found)]

    def read(self, name: str, limit: int) -> bytes:
        with self._connected() as (jvm, system):
            stream = system.open(self._path(jvm, name))
            try:
                bounded = _class(jvm, "org.apache.commons.io.input.BoundedInputStream")(stream, limit)
                return bytes(_class(jvm, "org.apache.commons.io.IOUtils").toByteArray(bounded))
            finally:
                stream.close()

    def create(self, name: str, data: bytes) -> None:
        with self._connected() as (jvm, system):
            path = self._path(jvm, name)
            scheme = str(system.getUri().getScheme())
            if scheme in _RENAMES_EXCLUSIVELY:
                self._create_by_rename(jvm, system, path, data)
            elif scheme in _CREATES_EXCLUSIVELY:
                _write(system.create(path, False), data)
            elif not (is_s3a(system) and self._put_new(system, path, name, data)):
                self._create_and_check(system, path, name, data)

    def _create_by_rename(self, jvm: Any, system: Any, path: Any, data: bytes) -> None:
        if system.exists(path):
            raise self._exists_error(path)
        if (here := _mounted_folder(system, path)) is not None:
            LocalFolder(here).create(path.getName(), data)
            return
        scratch = _class(jvm, _PATH)(path.getParent(), f".{path.getName()}.{uuid.uuid4().hex}.tmp")
        try:
            _write(system.create(scratch, False), data)
            if not system.rename(scratch, path):
                raise self._exists_error(path)
        finally:
            with contextlib.suppress(Py4JJavaError):
                system.delete(scratch, False)

    def _put_new(self, system: Any, path: Any, name: str, data: bytes) -> bool:
        try:
            return put_new(SparkContext._active_spark_context._gateway, system, path, data)  # type: ignore[union-attr]
        except FileExistsError:
            if self._holds(name, data):  # the client has repeated its own request
                return True
            raise

    def _create_and_check(self, system: Any, path: Any, name: str, data: bytes) -> None:
        """Create a file on a file system without exclusive creation."""
        if system.exists(path):
            raise self._exists_error(path)
        warn_of(str(system.getUri().toString()))
        _write(system.create(path, False), data)
        if not self._holds(name, data):
            raise self._exists_error(path)

    def _holds(self, name: str, data: bytes) -> bool:
        try:
            return self.read(name, len(data) + 1) == data
        except FileNotFoundError:
            return False

    def _exists_error(self, path: Any) -> FileExistsError:
        return FileExistsError(f"{path.getName()} exists in {self.location}")

    def put(self, name: str, source: Path) -> None:
        with self._connected() as (jvm, system):
            local = _class(jvm, _PATH)(f"file:{source.absolute()}")
            system.copyFromLocalFile(False, True, local, self._path(jvm, name))

    def local(self, name: str) -> Path:
        kept = _cache() / hashlib.sha256(f"{self.location}/{name}".encode()).hexdigest()
        try:
            os.utime(kept)
        except FileNotFoundError:
            with self._connected() as (jvm, system):
                scratch = kept.with_name(uuid.uuid4().hex)
                target = _class(jvm, _PATH)(f"file:{scratch}")
                system.copyToLocalFile(False, self._path(jvm, name), target, True)
                scratch.replace(kept)
            _shrink(kept)
        return kept

    def delete(self, name: str) -> None:
        with self._connected() as (jvm, system):
            self._delete(jvm, system, name)

    def _delete(self, jvm: Any, system: Any, name: str) -> None:
        path = self._path(jvm, name)
        if not system.delete(path, True) and system.exists(path):
            raise OSError(f"{name} in {self.location} could not be deleted")

    def delete_files(self, names: Sequence[str]) -> None:
        """Delete files, several at a time."""
        with self._connected() as (jvm, system), ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda name: self._delete(jvm, system, name), names))

    def files(self, sub: str = "") -> list[str]:
        """List all files below a sub-folder, by their paths in this folder."""
        with self._connected() as (jvm, system):
            found = system.listFiles(self._path(jvm, sub), True)
            listed = _class(jvm, "org.apache.hadoop.util.functional.RemoteIterators").toList(found).toArray()
            above = len(str(system.makeQualified(self._path(jvm, "")).toString())) + 1
            return [path[above:] for path in _paths(jvm, listed)]

    def delete_if_empty(self, name: str = "") -> None:
        """Delete a folder in this one, or this one itself, unless something is in it."""
        with suppress(OSError), self._connected() as (jvm, system):
            system.delete(self._path(jvm, name), False)

    def exists(self, name: str) -> bool:
        with self._connected() as (jvm, system):
            return bool(system.exists(self._path(jvm, name)))

    @contextmanager
    def _connected(self) -> Iterator[tuple[Any, Any]]:
        """Context with the JVM and the session's client of the file system; its exceptions become OSError."""
        spark: Any = SparkSession._instantiatedSession
        if spark is None:
            raise OSError(f"{self.location} is reached through Spark's client, and there is no session")
        with _os_errors():
            conf = spark._jsparkSession.sessionState().newHadoopConf()
            yield spark._jvm, _class(spark._jvm, _PATH)(self.location).getFileSystem(conf)

    def _path(self, jvm: Any, name: str) -> Any:
        return _class(jvm, _PATH)(f"{self.location}/{name}")


def folder_at(uri: str) -> LocalFolder | HadoopFolder:
    """The folder at a URI, local or through Hadoop's file system."""
    path = local_path(uri)
    return HadoopFolder(uri) if path is None else LocalFolder(path)


@functools.lru_cache(maxsize=8)
def _class(jvm: Any, name: str) -> Any:
    """Java class by its name, cached, since Py4J looks up each part of a name in the JVM."""
    return functools.reduce(getattr, name.split("."), jvm)


def _paths(jvm: Any, statuses: Any) -> list[str]:
    """Paths in a listing, passed as one text, since one call for each would cost more than the listing."""
    predef = _class(jvm, "scala.Predef")
    plain = _class(jvm, "java.lang.Class").forName("org.apache.hadoop.fs.FileStatus")  # S3A has its own subclass
    listed = predef.genericWrapArray(statuses).toArray(_class(jvm, "scala.reflect.ClassTag").apply(plain))
    paths = _class(jvm, "org.apache.hadoop.fs.FileUtil").stat2Paths(listed)
    joined = str(predef.genericWrapArray(paths).mkString("\0"))
    return [path for path in joined.split("\0") if path]


def _mounted_folder(system: Any, path: Any) -> str | None:
    """Local folder that a mount table maps a path's parent to, created if missing; None for other paths."""
    if str(system.getUri().getScheme()) != "viewfs":
        return None
    system.mkdirs(path.getParent())
    return local_path(str(system.resolvePath(path.getParent()).toString()))


def _write(stream: Any, data: bytes) -> None:
    try:
        for start in range(0, len(data), _CHUNK):
            stream.write(bytearray(data[start : start + _CHUNK]))
    finally:
        stream.close()


@contextmanager
def _os_errors() -> Iterator[None]:
    """Context that turns Java's exceptions into Python's OSError and its subclasses."""
    try:
        yield
    except Py4JJavaError as error:
        message = str(error.java_exception.getMessage())
        if _is(error, "java.io.FileNotFoundException"):
            raise FileNotFoundError(message) from error
        if _is(error, "org.apache.hadoop.fs.FileAlreadyExistsException"):
            raise FileExistsError(message) from error
        raise OSError(message) from error


def _is(error: Py4JJavaError, name: str) -> bool:
    return any(kind.getName() == name for kind in _classes(error.java_exception))


def _classes(instance: Any) -> Iterator[Any]:
    """The class of a Java object, and the classes above it."""
    kind = instance.getClass()
    while kind is not None:
        yield kind
        kind = kind.getSuperclass()


_lock = threading.Lock()
_made: list[Path] = []


def _cache() -> Path:
    """Folder of this process for copies, removed at exit."""
    with _lock:
        if not _made or not _made[0].is_dir():
            _made[:] = [Path(tempfile.mkdtemp(prefix="geoskip-copies-"))]
            atexit.register(shutil.rmtree, _made[0], ignore_errors=True)
        return _made[0]


def _shrink(newest: Path) -> None:
    """Remove the least recently used copies, but not the newest one."""
    with _lock, contextlib.suppress(OSError), os.scandir(newest.parent) as found:
        copies = [(file.stat(), file.path) for file in found if len(file.name) == len(newest.name)]
        left = sum(about.st_size for about, _ in copies)
        for about, path in sorted(copies, key=lambda copy: copy[0].st_mtime_ns):
            if left > _MOST_COPIED and path != str(newest):
                os.unlink(path)
                left -= about.st_size


# --- S3 ---------------------------------------------------------------------------------------------------------------


_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_CONDITION = ("If-None-Match", "*")
_TAKEN = (409, 412)
_CONFLICT = 409
_PAUSES = (0.1, 0.4, 1.6)
"""Seconds before each retry of a put that conflicted with another one, since neither may have succeeded."""
_UNKNOWN = 501
_UNKNOWN_CODES = ("InvalidArgument", "NotImplemented")
"""Error codes with status 400 of servers that do not support the condition."""

_heeds: dict[str, bool] = {}
"""True if the store supports the condition, by bucket."""
_warned: set[str] = set()
_warning = threading.Lock()


def is_s3a(system: Any) -> bool:
    """Test whether a file system is an S3A that exposes its client (Hadoop 3.4)."""
    found = next((kind for kind in _classes(system) if kind.getName() == _S3A), None)
    return found is not None and any(method.getName() == "getS3AInternals" for method in found.getMethods())


def put_new(gateway: Any, system: Any, path: Any, data: bytes) -> bool:
    """Put an object if there is none; returns False, without a put, if conditions are not supported.

    Parameters
    ----------
    gateway, system, path, data
        Py4J's gateway, the file system (an S3A), Hadoop's path of the object, and the content.

    Raises
    ------
    FileExistsError
        If the object exists.
    Py4JJavaError
        For any other failure.
    """
    bucket = str(system.getUri().toString())
    if not _heeds.get(bucket, True):
        return False
    status = _put(gateway, system, path, data)
    for pause in _PAUSES:
        if status != _CONFLICT:
            break
        time.sleep(pause)
        status = _put(gateway, system, path, data)
    if status == _UNKNOWN:
        _heeds[bucket] = False  # the caller then creates the file unconditionally, with a warning
        return False
    if bucket not in _heeds and status is None:
        with suppress(Py4JJavaError):  # the object was created; the next creation tests again
            _heeds[bucket] = _put(gateway, system, path, data) in _TAKEN
            if not _heeds[bucket]:
                warn_of(bucket)
    if status in _TAKEN:
        raise FileExistsError(f"{path.getName()} exists in {path.getParent().toString()}")
    return True


def warn_of(place: str) -> None:
    """Warn once for a location without exclusive creation."""
    with _warning:
        if place in _warned:
            return
        _warned.add(place)
    warnings.warn(
        f"{place} has no way of creating a file that only one of two writers can win: let one process at a time index "
        "the datasets there, or what another has done may be lost",
        stacklevel=2,
    )


def _put(gateway: Any, system: Any, path: Any, data: bytes) -> int | None:
    """Put an object conditionally; returns the status of the refusal, or None on success."""
    try:
        client = system.getS3AInternals().getAmazonS3Client("geoskip creates an entry of its log")
        request, body = _request(gateway, system, client.getClass().getClassLoader(), path, data)
    except (Py4JError, StopIteration):  # a version of S3A with other internals
        return _UNKNOWN
    try:
        client.putObject(request, body)
    except Py4JJavaError as error:
        status = _status(error)
        if status is None:
            raise
        return status
    return None


def _status(error: Py4JJavaError) -> int | None:
    """Status of a refusal, as the object exists or the condition is unsupported; None for other failures."""
    try:
        status = int(error.java_exception.statusCode())
        code = str(error.java_exception.awsErrorDetails().errorCode())
    except Py4JError:  # not an answer of the server
        return None
    if status in _TAKEN or status == _UNKNOWN or (status == 400 and code in _UNKNOWN_CODES):
        return status if status in _TAKEN else _UNKNOWN
    return None


def _request(gateway: Any, system: Any, loader: Any, path: Any, data: bytes) -> tuple[Any, Any]:
    """S3A's put request with the condition added, and its body."""
    key = str(path.toUri().getPath()).lstrip("/")
    made = system.getRequestFactory().newPutObjectRequestBuilder(key, None, len(data), False)
    further = made.overrideConfiguration()
    if further is None:
        further = _static(gateway, loader, "software.amazon.awssdk.awscore.AwsRequestOverrideConfiguration", "builder")
    else:
        further = further.toBuilder()
    further.putHeader(*_CONDITION)
    made.overrideConfiguration(further.build())
    body = _static(gateway, loader, "software.amazon.awssdk.core.sync.RequestBody", "fromBytes", bytearray(data))
    return made.build(), body


def _static(gateway: Any, loader: Any, name: str, method: str, *arguments: Any) -> Any:
    """Call a static method of a class that may be visible only to the class loader of the user's jars."""
    named = (found for found in loader.loadClass(name).getMethods() if found.getName() == method)
    chosen = next(found for found in named if found.getParameterCount() == len(arguments))
    given = gateway.new_array(gateway.jvm.java.lang.Object, len(arguments))
    for number, argument in enumerate(arguments):
        given[number] = argument
    return chosen.invoke(None, given)
