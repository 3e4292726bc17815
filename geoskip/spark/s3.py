"""Objects in S3 and what is compatible with it, created by one of many writers alone.

``create(overwrite=false)`` of S3A, Hadoop's client, looks for an object and then puts its own: two writers may both
find none, and the later one takes the place of the earlier. The stores themselves can do better: they put an object on
the condition that there is none (``If-None-Match: *``; Amazon's since 2024). So S3A's own client, with its credentials
and its encryption, is asked for that. A store that does not know the condition may leave it out silently; hence the
first object of a process in a bucket is put twice, and the second time must be refused.

Where it is not, there is no creation that only one writer can win, and a warning says so once.
"""

from __future__ import annotations

import threading
import time
import warnings
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

__all__ = ["is_s3a", "put_new", "warn_of"]

_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_CONDITION = ("If-None-Match", "*")
_TAKEN = (409, 412)
_CONFLICT = 409
_PAUSES = (0.1, 0.4, 1.6)
"""Seconds after which a put is tried again that met another request for the object: maybe neither was done."""
_UNKNOWN = 501
_UNKNOWN_CODES = ("InvalidArgument", "NotImplemented")
"""What servers say with 400 that do not know the condition."""

_heeds: dict[str, bool] = {}
"""By bucket: is the condition heeded there?"""
_warned: set[str] = set()
_lock = threading.Lock()


def is_s3a(system: Any) -> bool:
    """Is this client S3A, and new enough to give its own client away (Hadoop 3.4)?"""
    kind = system.getClass()
    while kind is not None:
        if kind.getName() == _S3A:
            return any(method.getName() == "getS3AInternals" for method in kind.getMethods())
        kind = kind.getSuperclass()
    return False


def put_new(gateway: Any, system: Any, path: Any, data: bytes) -> bool:
    """Put an object if there is none; False where the store cannot tell, and nothing was put.

    Raises FileExistsError where there is one, and Py4JJavaError for other trouble.
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
        _heeds[bucket] = False  # who looks and then puts warns of that
        return False
    if bucket not in _heeds and status is None:
        with suppress(Py4JJavaError):  # the object is there already: the next one will tell
            _heeds[bucket] = _put(gateway, system, path, data) in _TAKEN
            if not _heeds[bucket]:
                warn_of(bucket)
    if status in _TAKEN:
        raise FileExistsError(f"{path.getName()} exists in {path.getParent().toString()}")
    return True


def warn_of(place: str) -> None:
    """Say once of a place that it has no exclusive creation."""
    with _lock:
        if place in _warned:
            return
        _warned.add(place)
    warnings.warn(
        f"{place} has no way of creating a file that only one of two writers can win: let one process at a time index "
        "the datasets there, or what another has done may be lost",
        stacklevel=2,
    )


def _put(gateway: Any, system: Any, path: Any, data: bytes) -> int | None:
    """The status that a conditional PUT was refused with, None where the object was put."""
    try:
        client = system.getS3AInternals().getAmazonS3Client("geoskip creates an entry of its log")
        request, body = _request(gateway, system, client.getClass().getClassLoader(), path, data)
    except (Py4JError, StopIteration):  # S3A's inside is not what it was when this was written
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
    """What a refusal says of the condition: that it does not hold, or is not known; None for any other failure."""
    try:
        status = int(error.java_exception.statusCode())
        code = str(error.java_exception.awsErrorDetails().errorCode())
    except Py4JError:  # it is not the server's answer
        return None
    if status in _TAKEN or status == _UNKNOWN or (status == 400 and code in _UNKNOWN_CODES):
        return status if status in _TAKEN else _UNKNOWN
    return None


def _request(gateway: Any, system: Any, loader: Any, path: Any, data: bytes) -> tuple[Any, Any]:
    """The request as S3A makes it, with the condition; and what to put."""
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
    """A static method's value; the class may be on the class path of the user's jars alone."""
    named = (found for found in loader.loadClass(name).getMethods() if found.getName() == method)
    chosen = next(found for found in named if found.getParameterCount() == len(arguments))
    given = gateway.new_array(gateway.jvm.java.lang.Object, len(arguments))
    for number, argument in enumerate(arguments):
        given[number] = argument
    return chosen.invoke(None, given)
