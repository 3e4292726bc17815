"""Call a query's Python functions for single values at planning time.

Values are converted by Spark's rules for functions that are pickled row by row, as far as these are unambiguous: a
value is passed as the plain Python type of its column, and a result counts only if it has exactly the Python type of
the declared type. Other results are unknown, since Spark's conversion of them depends on its version and on the setting
of Arrow for Python functions. Decimals are passed with the scale of their type, and results are rounded to it half up.

The functions are called by one process for each application, with the Python and environment of its workers, which runs
:mod:`geoskip.spark.rule.udf_worker`. The result of a function depends not only on its code, but also on the worker's
classes and modules, environment, working directory, hash seed and time zone. In local mode workers get all of this from
the JVM, and so does this process. On other machines it is unknown, and no function is called. Only the process converts
between instants and local times, as a worker does; a local time that exists twice or never is unknown, since the result
of C's ``mktime`` is then not defined.

A function that is declared as its own constant evaluation (:func:`geoskip.constant`) depends only on its arguments: it
is called in the driver, without that process, and also on a cluster.
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import os
import pickle
import re
import select
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import SparkContext, SparkFiles
from pyspark.sql import types as T

from geoskip.evaluation import Declined
from geoskip.predicates import Literal
from geoskip.registry.fingerprint import UNIDENTIFIED
from geoskip.spark.rule.translate import implementation_of
from geoskip.spark.rule.udf_worker import CHANGED
from geoskip.types import sql_type

Json = Mapping[str, Any]
_ROW_BY_ROW = (100, 101)
"""Spark's codes of scalar Python UDFs: pickled, and through Arrow."""
_THROUGH_ARROW = 101
_AS_THEY_ARE = frozenset(["string", "boolean"])
"""Types with values that Arrow and pandas do not change. With others a NULL number becomes NaN, NaN becomes NULL, and
integers in a column with NULL become floats."""
_EPOCH = dt.date(1970, 1, 1).toordinal()


def call_udf(
    node: Json,
    arguments: Sequence[pa.Array | Literal],
    kinds: Sequence[str],
    settings: Mapping[str, Any],
    thrown: Any,
    deadline: float,
    pure: Callable[..., Any] | None = None,
) -> tuple[pa.Array, Any]:
    """Call a Python UDF; return physical values, and a mask of the unknown ones.

    Parameters
    ----------
    node, kinds
        The call as JSON from the rule, and Spark's types of its arguments.
    arguments
        Physical values, or one literal for all rows.
    settings, deadline
        The settings of the query, and the monotonic time at which the call is cancelled.
    thrown
        A mask of rows for which an argument threw: the function is not called for them.
    pure
        The function itself, if its values depend only on its arguments.

    Raises
    ------
    geoskip.evaluation.Declined
        If the function cannot be called; the message is the reason.
    """
    name = node["name"]
    if node["evalType"] not in _ROW_BY_ROW:
        raise Declined(f"{name} takes whole columns, and is not called for single values")
    if implementation_of(node["python"]).endswith(UNIDENTIFIED):
        raise Declined(f"{name} cannot be told from another version of itself")
    if any(str(child.get("class", "")).endswith(".NamedArgumentExpression") for child in node["children"]):
        raise Declined(f"{name} is called with named arguments")
    result = node["type"]
    if node["evalType"] == _THROUGH_ARROW and not _AS_THEY_ARE.issuperset([*kinds, result]):
        raise Declined(f"{name} goes through Arrow, where numbers depend on what else is NULL")
    take = _result_converter(result, name)
    columns = [
        _column(argument, _input_converter(kind, name, settings), len(thrown))
        for argument, kind in zip(arguments, kinds, strict=True)
    ]
    unknown = np.array(thrown, dtype=bool)
    for column in columns:
        unknown |= np.fromiter((value is _NONE_SUCH for value in column), bool, len(column))
    asked = np.flatnonzero(~unknown)
    given = [[column[number] for number in asked] for column in columns]
    if pure is not None and "timestamp" not in (*kinds, result):
        returned, failed = _called_here(pure, given, deadline)
    else:
        returned, failed = call_in_worker(
            base64.b64decode(node["python"]),
            given,
            clocks=[kind == "timestamp" for kind in kinds],
            is_instant=result == "timestamp",
            settings=settings,
            deadline=deadline,
        )
    found: list[Any] = [None] * len(thrown)
    for number, value, has_failed in zip(asked, returned, failed, strict=True):
        try:
            found[number] = None if has_failed else take(value)
            unknown[number] = has_failed
        except (TypeError, ValueError, ArithmeticError):
            unknown[number] = True
    return pa.array(found, _arrow(result)), unknown


def _called_here(function: Callable[..., Any], columns: Sequence[Sequence[Any]], deadline: float) -> Rows:
    """The values of a function for each row, and marks of rows for which it raised; may raise Declined."""
    values: list[Any] = []
    failed: list[bool] = []
    for row in zip(*columns, strict=True):
        if time.monotonic() > deadline:
            raise Declined(f"after {len(values):,} calls the planning budget was spent")
        try:
            values.append(function(*row))
            failed.append(False)
        except Exception:  # such a row makes the query fail, unless Spark does not evaluate it
            values.append(None)
            failed.append(True)
    return values, failed


_NONE_SUCH = object()
"""Marker of a value that Python cannot represent, such as a day in the year 10000: Spark fails on it."""


def _column(argument: pa.Array | Literal, give: Callable[[Any], Any], length: int) -> list[Any]:
    """An argument's values as a worker would get them."""

    def given(value: Any) -> Any:
        try:
            return None if value is None else give(value)
        except (ValueError, OverflowError, OSError):
            return _NONE_SUCH

    if isinstance(argument, Literal):
        value = argument.value
        return [given(value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value)] * length
    return [given(value) for value in argument.to_pylist()]


def _input_converter(kind: str, name: str, settings: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Function from a physical value to a worker's argument; it raises if Python has no such value."""
    of = sql_type(kind)
    if of.is_decimal:
        return lambda value: Decimal(_of_scale(value, of.scale).to_eng_string())  # as Spark sends it to workers
    if kind == "binary":  # since Spark 4.1 bytes, unless a setting restores bytearray
        return bytes if str(settings.get(_AS_BYTES)).lower() == "true" else bytearray
    if of.is_integral:
        return int
    if of.kind == "interval second":
        return T.DayTimeIntervalType().fromInternal
    if kind not in _GIVEN:
        raise Declined(f"{name} takes a {kind}, which is not given to functions here")
    return _GIVEN[kind]


_AS_BYTES = "spark.sql.execution.pyspark.binaryAsBytes"
_ALL_DIGITS = Context(prec=100, rounding=ROUND_HALF_UP)


def _of_scale(value: Decimal, scale: int) -> Decimal:
    """Round a decimal to a scale, half up."""
    return value.quantize(Decimal((0, (1,), -scale)), context=_ALL_DIGITS)


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise Declined("some of the strings are not UTF-8") from None


_GIVEN: Mapping[str, Callable[[Any], Any]] = {
    "float": float,
    "double": float,
    "boolean": bool,
    "string": _text,
    "date": lambda days: dt.date.fromordinal(_EPOCH + days),
    "timestamp": int,
    "timestamp_ntz": T.TimestampNTZType().fromInternal,
}


def _result_converter(kind: str, name: str) -> Callable[[Any], Any]:
    """Function from a result to its physical value; it raises for another type than declared."""

    def expect(*wanted: type, physical: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def take(value: Any) -> Any:
            if value is None:
                return None
            if type(value) not in wanted:
                raise TypeError(f"{name} returned {type(value).__name__}")
            return physical(value)

        return take

    def fit(values: range, whole: Callable[[Any], Any]) -> Callable[[Any], int]:
        def convert(value: Any) -> int:
            found = int(whole(value))
            if found not in values:
                raise OverflowError(name)
            return found

        return convert

    of = sql_type(kind)
    if of.is_integral:
        return expect(int, physical=fit(of.values, int))
    if of.is_decimal:
        return expect(Decimal, physical=lambda value: _round_decimal(value, of.precision, of.scale))
    if kind == "interval day to second":
        return expect(dt.timedelta, physical=fit(sql_type("bigint").values, T.DayTimeIntervalType().toInternal))
    if kind in _TAKEN:
        *wanted, physical = _TAKEN[kind]
        return expect(*wanted, physical=physical)
    raise Declined(f"{name} returns a {kind}, which is not taken from functions here")


def _single(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


_TAKEN: Mapping[str, tuple[Any, ...]] = {
    "double": (float, float),
    "float": (float, _single),
    "boolean": (bool, int),
    "string": (str, str.encode),
    "binary": (bytes, bytearray, bytes),
    "date": (dt.date, dt.datetime, lambda day: day.toordinal() - _EPOCH),
    "timestamp": (int, int),
    "timestamp_ntz": (dt.datetime, T.TimestampNTZType().toInternal),
}
"""By declared type, the accepted Python types of results, and last the function to the physical value."""


def _round_decimal(value: Decimal, precision: int, scale: int) -> Decimal:
    if not value.is_finite() or (value and value.adjusted() > precision):
        raise OverflowError(f"{value} has more than {precision} digits")
    found = _of_scale(value, scale)
    if len(found.as_tuple().digits) > precision:
        raise OverflowError(f"{value} has more than {precision} digits")
    return found


def _arrow(kind: str) -> pa.DataType:
    of = sql_type(kind)
    if of.is_decimal:
        return of.arrow
    if kind in ("string", "binary"):
        return pa.binary()
    return pa.float64() if of.is_floating else pa.int64()


Rows = tuple[list[Any], list[bool]]
_LOCAL = re.compile(r"local(\[.*\])?")
_PYTHON = "spark.sql.execution.pyspark.python"
_WAIT = 0.5
_GRACE = 0.5
"""Seconds that a call may take beyond its deadline."""
_START = 1.5
"""Additional time for starting the process, as a multiple of the time left for the call."""
_turn = threading.Lock()
_process: _UdfProcess | None = None


def call_in_worker(
    command: bytes,
    columns: Sequence[Sequence[Any]],
    *,
    clocks: Sequence[bool],
    is_instant: bool,
    settings: Mapping[str, Any],
    deadline: float,
) -> Rows:
    """The values of a pickled function for each row, and marks of the unknown ones; may raise Declined.

    Parameters
    ----------
    command, columns
        The pickled function as Spark sends it to workers, and the arguments as workers get them.
    clocks, is_instant
        Marks of arguments that are instants in microseconds, to be converted to the worker's local time; and True if
        returned datetimes are to be converted to instants.
    settings, deadline
        The settings of the query, and the time of ``time.monotonic`` at which a process without an answer is killed.
    """
    global _process
    if not _turn.acquire(timeout=max(0.0, min(_WAIT, deadline - time.monotonic()))):
        raise Declined("another function is being called for another query")
    try:
        context, start = _start(settings)
        if _process is None or _process.start != start or _process.popen.poll() is not None:
            if _process is not None:
                _process.end()
            _process = _UdfProcess(start)
        root = SparkFiles.getRootDirectory()
        answer = _process.answer(
            {
                "command": command,
                "columns": [list(column) for column in columns],
                "clocks": list(clocks),
                "is_instant": is_instant,
                "files": [root, *(os.path.join(root, name) for name in context._python_includes)],
            },
            deadline,
        )
        if isinstance(answer, str) and answer.endswith(CHANGED):
            _process.end()
    except OSError as error:
        raise Declined(f"the process that calls functions failed: {error}") from None
    finally:
        _turn.release()
    if isinstance(answer, str):
        raise Declined(answer)
    return answer


Start = tuple[str, str, str, str, tuple[tuple[str, str], ...]]
"""The application, its workers' Python, the module that starts workers, their working directory and environment."""
_starts: dict[str, Start] = {}


def _start(settings: Mapping[str, Any]) -> tuple[Any, Start]:
    context: Any = SparkContext._active_spark_context
    if context is None or context._jvm is None or not _LOCAL.fullmatch(context.master or ""):
        raise Declined("workers on other machines may have another environment, other files and clocks")
    python = str(settings.get(_PYTHON) or context.pythonExec)
    key = f"{context.applicationId} {python}"
    if key not in _starts:
        system, utils = context._jvm.java.lang.System, context._jvm.org.apache.spark.api.python.PythonUtils
        environment = {str(name): str(value) for name, value in dict(system.getenv()).items()}
        own = {str(name): str(value) for name, value in context.environment.items()}
        paths = (utils.sparkPythonPath(), own.get("PYTHONPATH"), environment.get("PYTHONPATH"))
        own["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        daemon = context.getConf().get("spark.python.daemon.module", "pyspark.daemon")
        environment |= own | {"PYTHONUNBUFFERED": "YES"}
        _starts.clear()
        _starts[key] = (key, python, daemon, system.getProperty("user.dir"), tuple(sorted(environment.items())))
    return context, _starts[key]


class _UdfProcess:
    """The process that calls functions, started in the same way as a Python worker."""

    def __init__(self, start: Start) -> None:
        self.start = start
        _, python, daemon, folder, environment = start
        source = (files("geoskip.spark.rule") / "udf_worker.py").read_text("utf-8")
        self.popen = subprocess.Popen(
            [python, "-c", source, daemon, "pyspark.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
        )
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.requests, self.answers = self.popen.stdin, self.popen.stdout
        self._is_ready = False

    def answer(self, request: Mapping[str, Any], deadline: float) -> Rows | str:
        """Send a request, return the answer; after the deadline the process is killed, unless it is starting."""
        if not self._is_ready:  # the first query waits for the start, longer than its share of the budget
            since = time.monotonic()
            if not self._is_readable(deadline + _START * max(0.0, deadline - since)):
                return "the process that calls functions had not started when the planning budget was spent"
            self._is_ready = self._read_message(deadline + _GRACE) == b"ready"
            deadline += time.monotonic() - since
        data = pickle.dumps({**request, "seconds": deadline - time.monotonic()})
        try:
            self.requests.write(struct.pack("!i", len(data)) + data)
            self.requests.flush()
            found: Rows | str = pickle.loads(self._read_message(deadline + _GRACE))
            return found
        except BaseException:  # an incomplete answer may be in the pipe
            self.end()
            raise

    def _is_readable(self, deadline: float) -> bool:
        return bool(select.select([self.answers], [], [], max(0.0, deadline - time.monotonic()))[0])

    def _read_message(self, deadline: float) -> bytes:
        (size,) = struct.unpack("!i", self._read_exactly(4, deadline))
        return self._read_exactly(size, deadline)

    def _read_exactly(self, size: int, deadline: float) -> bytes:
        found = b""
        while len(found) < size:
            if not self._is_readable(deadline):
                raise Declined("a call was still running when the planning budget was spent, and was ended")
            some = os.read(self.answers.fileno(), size - len(found))
            if not some:
                raise Declined("the process that calls functions has ended")
            found += some
        return found

    def end(self) -> None:
        """Kill the process and its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        for pipe in (self.requests, self.answers):
            with contextlib.suppress(OSError):  # unsent data cannot be flushed
                pipe.close()
