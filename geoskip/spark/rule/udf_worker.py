"""The process that calls a query's Python functions at planning time, like a Spark Python worker.

The source is run by the worker's Python, which need not have geoskip (:mod:`geoskip.spark.rule.python_udfs` starts it).
It answers pickled requests one after the other. For each the function is unpickled from the bytes that Spark sends to
workers, so that its modules, classes, environment, hash seed and time zone are those of a worker. A result that depends
on the task context, or on environment variables that Spark sets for a worker, is unknown.
"""

from __future__ import annotations

import datetime as dt
import decimal
import importlib
import os
import pickle
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

from pyspark import BarrierTaskContext, SparkFiles, TaskContext
from pyspark.sql.types import TimestampType

_PLAIN = (
    type(None), bool, int, float, str, bytes, bytearray, decimal.Decimal, dt.date, dt.datetime, dt.timedelta,
)  # fmt: skip
_OF_SPARK = (b"SPARK_", b"PYSPARK_", b"PYTHON", b"OMP_NUM_THREADS")
"""Prefixes of environment variables that Spark sets for workers, some of them differently for each worker."""
CHANGED = "has changed since it was imported"
"""The end of the reason for which a process is not used any more."""
_unknown: list[str] = []
"""Names of things read since the last call began that may differ in a worker."""
Converter = Callable[[Any], Any]


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until there are no more."""
    _write(answers, b"ready")
    while head := requests.read(4):
        request = pickle.loads(requests.read(*struct.unpack("!i", head)))
        try:
            answer = _answer(**request)
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        _note_imports()
        _write(answers, pickle.dumps(answer))


def _answer(
    command: bytes, columns: list[list[Any]], clocks: list[bool], is_instant: bool, seconds: float, files: list[str]
) -> tuple[list[Any], list[bool]] | str:
    """The function's values and marks of the unknown ones, or the reason why it was not called."""
    deadline = time.monotonic() + seconds
    SparkFiles._root_directory, SparkFiles._is_running_on_worker = files[0], True
    for path in files:
        if path not in sys.path:
            sys.path.insert(1, path)
    importlib.invalidate_caches()
    _unknown.clear()
    found = pickle.loads(command)
    _note_imports()
    if changed := next((name for name, (path, time_then) in _files.items() if _time_of(path) != time_then), None):
        return f"{changed} {CHANGED}"
    function: Converter = found[0] if isinstance(found, tuple) else found
    if _unknown:
        return f"it reads {_unknown[0]}"
    given = [
        [None if value is None else TimestampType().fromInternal(value) for value in column] if shown else column
        for column, shown in zip(columns, clocks, strict=True)
    ]
    values: list[Any] = []
    unknown: list[bool] = []
    for row in zip(*given, strict=True):
        if time.monotonic() > deadline:
            return f"after {len(values):,} calls the planning budget was spent"
        _unknown.clear()
        try:
            value = _plain(function(*row), is_instant)
        except BaseException:  # such a row makes the query fail, unless Spark does not evaluate it
            _unknown.append("what raises")
        values.append(None if _unknown else value)
        unknown.append(bool(_unknown))
    return values, unknown


_files: dict[str, tuple[str, Any]] = {}
"""The file of each imported module, and its time when the module was first seen."""


def _note_imports() -> None:
    """Note the files of modules that were imported: if one changes, workers may import the new one."""
    for name, module in list(sys.modules.items()):
        if name not in _files:
            path = getattr(module, "__file__", None) or ""
            _files[name] = (path, _time_of(path))


def _time_of(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except (OSError, ValueError):
        return None


def _plain(value: Any, is_instant: bool) -> Any:
    """Convert a result to a plain value; a datetime to its instant, or to a datetime without time zone."""
    if type(value) not in _PLAIN:
        raise TypeError(type(value))
    if type(value) is not dt.datetime:
        return value
    if not is_instant:
        return value.replace(tzinfo=None)
    if value.tzinfo is None and value.replace(fold=0).timestamp() != value.replace(fold=1).timestamp():
        raise ValueError("clocks show it twice, or never, where C's mktime is free to choose")
    return TimestampType().toInternal(value)


class _Environment(dict[bytes, bytes]):
    """The environment, which records reads of variables that Spark sets for a worker."""

    def __getitem__(self, name: bytes) -> bytes:
        if name.startswith(_OF_SPARK):
            _unknown.append(os.fsdecode(name))
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[bytes]:
        _unknown.append("the whole environment")
        return super().__iter__()


def _get_task_context(kind: type) -> None:
    _unknown.append("the task's context")


def _write(answers: IO[bytes], data: bytes) -> None:
    answers.write(struct.pack("!i", len(data)) + data)
    answers.flush()


if __name__ == "__main__":
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)  # output of functions must not mix with answers
    if sys.path[0] == "":
        sys.path[0] = os.getcwd()
    daemon, *sys.argv[1:] = sys.argv[1:]  # Spark's daemon reads the first argument when it is imported
    sys.argv[0] = str(importlib.import_module(daemon).__file__)
    TaskContext.get = BarrierTaskContext.get = classmethod(_get_task_context)  # type: ignore[assignment, method-assign]
    os.environ._data = _Environment(os.environ._data)  # type: ignore[attr-defined]
    serve(requests, answers)
