"""Progress and errors of a build's Spark jobs."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from geoskip.errors import GeoskipError, InvalidSpecificationError, StoreError
from geoskip.metadata import IndexEntry
from geoskip.sources.listed_files import near_path
from geoskip.sources.progress import PATIENCE, progress_display
from geoskip.spark.analysis import arrow_type, sentence
from geoskip.spark.workers import worker_problem

_WAYS_OUT = (
    (r"Unable to infer schema", "no file there has rows of that format: check the path and format=, or give schema="),
    (
        r"Failed to find the data source|Unsupported data source type",
        "format= takes parquet, orc, avro, csv, json or text, and with the jars of these delta, iceberg or hudi",
    ),
    (r"S3AFileSystem not found", "the package org.apache.hadoop:hadoop-aws, of Spark's Hadoop, brings it"),
    (r"No FileSystem for scheme \"?s3n?\b", "Spark reads S3 by addresses that begin with s3a://"),
    (r"stopped SparkContext", "make a session, as with geoskip.session(), and a handle in it"),
)
"""Patterns of Spark's messages, and advice for each."""


def with_way_out(sentence: str) -> str:
    """A message of Spark, followed by advice if there is some."""
    if gone := re.search(r"Path does not exist: file:(/.+?)\.?$", sentence):
        return sentence + near_path(gone[1])
    found = next((way for pattern, way in _WAYS_OUT if re.search(pattern, sentence)), None)
    return sentence if found is None else f"{sentence.rstrip('. ')}; {found}"


def failing_expression(entries: Sequence[IndexEntry], evaluation: Callable[[Sequence[str]], str | None]) -> str | None:
    """Message with the expression that fails and its indexes; None if none fails alone.

    ``evaluation`` returns the error of some expressions, or None. It is called few times, by bisection.
    """
    texts = list(dict.fromkeys(text for entry in entries for text in entry.index.expressions()))
    while len(texts) > 1:
        first, second = texts[: len(texts) // 2], texts[len(texts) // 2 :]
        texts = second if evaluation(first) is None else first
    why = evaluation(texts)
    if why is None:
        return None
    names = [entry.name for entry in entries if texts[0] in entry.index.expressions()]
    if "cannot be resolved" in why:  # the text of an index was resolved when it was made
        why += f"; if the column was renamed, delete_index({names[0]!r}) takes the index out of use"
    return f"{', '.join(names)} cannot be built: {texts[0]} could not be evaluated: {why}"


def reason_of(error: BaseException) -> str:
    """Reason of an error, in one line of Spark's message."""
    return first_line(message_of(error))


def check_not_cancelled(why: str) -> str:
    """Return the reason of an error; raise GeoskipError for a cancelled job, so that it is not retried."""
    if re.match(r"Job \d+ cancelled", why):
        raise GeoskipError(f"the build was called off: {why}")
    return why


def message_of(error: BaseException) -> str:
    """Messages of an error and of all its causes."""
    java_error: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    texts = [] if isinstance(error, Py4JJavaError) else [str(error)]
    for _ in range(20):
        if java_error is None:
            break
        texts.append(str(java_error.getMessage() or java_error.getClass().getSimpleName()))
        java_error = java_error.getCause()
    return "\n".join(texts)


_FRAME = re.compile(r"\s+at |\s*\.\.\. \d+ more|\s*Suppressed|Driver stack")
_PREFIXES = re.compile(
    r"(?:Caused by: |.*Lost task \S+ in stage \S+ \(TID \d+\)(?: \([^)]*\))?: *|(?:[a-z0-9]+\.)+[A-Za-z0-9$]+: *"
    r"|\[[A-Z0-9_.]+\] *)+"
)
# for an exception in a Python function Spark shows the traceback; its last line is the error
_OF_PYTHON = re.compile(r"An exception was thrown from the Python worker|Traceback \(most recent call last\)")
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)")
_SAYS_NOTHING = re.compile(
    r"Exception thrown in awaitResult|Job aborted|An error occurred|Task failed while writing rows|$"
)


def first_line(message: str) -> str:
    """First line of a message with a reason, without Java's class names and stack frames."""
    before = ""
    for line in message.splitlines():
        plain = re.sub(r"\.? *SQLSTATE: *\w+.*$", "", _PREFIXES.sub("", line.strip(), count=1))
        if _FRAME.match(line) or _SAYS_NOTHING.match(plain) or (before and plain == line.strip()):
            continue
        if _OF_PYTHON.match(plain) and (raised := _RAISED.findall(message)):
            return str(raised[-1].strip()[:300])
        if before or not plain.endswith(":"):
            return (before + plain)[:300]
        before = plain + " "  # a heading, such as on schemas that cannot be merged; the cause is in a later line
    return before.rstrip(": ") or "Spark gives no reason"


_REFUSED = re.compile(
    r"IOException|FSError|AccessControlException|No space left|Mkdirs failed|not a directory|denied|quota|Read-only"
)


_NO_ROOM = re.compile("No space left|quota")
_NOT_WRITABLE = re.compile("AccessControlException|Mkdirs failed|not a directory|denied|Read-only")


def storage_reason(message: str) -> str | None:
    """Reason of the file system in a message with causes, the deepest one; None if it has none."""
    lines = [line for line in message.splitlines() if _REFUSED.search(line) and not _FRAME.match(line)]
    if not lines:
        return None
    reason = first_line(lines[-1])
    if _NO_ROOM.search(reason):
        return f"{reason}; make room, and try again"
    return f"{reason}; get permission there, or name another folder" if _NOT_WRITABLE.search(reason) else reason


@contextmanager
def explain_errors(what: str, options: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Turn an error of Spark or a file system into a GeoskipError or StoreError that begins with ``what``."""
    try:
        yield
    except GeoskipError:
        raise
    except OSError as error:
        raise StoreError(f"{what}: {storage_reason(str(error)) or error}") from error
    except (PySparkException, Py4JJavaError) as error:
        text = re.search(r'For input string: "(.*?)"', message_of(error))
        named = [name for name, value in (options or {}).items() if text and str(value) == text[1]]
        if options and named:
            raise InvalidSpecificationError(
                f"{what}: the option {named[0]} takes a number, got {options[named[0]]!r}; give one, or leave it out"
            ) from None
        if isinstance(error, AnalysisException | IllegalArgumentException):
            raise InvalidSpecificationError(f"{what}: {sentence(error)}") from None
        if why := storage_reason(message_of(error)):
            raise StoreError(f"{what}: {why}") from error
        raise GeoskipError(f"{what}: {check_not_cancelled(reason_of(error))}") from error


OF_A_FILE = re.compile(
    r"(?:\): |Caused by: |^)(?:java\.io|java\.util\.zip|org\.apache\.(?:orc|parquet|hadoop))\."
    r"|\[MALFORMED_RECORD_IN_PARSING|\[INCONSISTENT_BEHAVIOR_CROSS_VERSION\.",
    re.MULTILINE,
)


_CLOSED_WORKER = re.compile(r"ClosedChannelException|SocketException: Socket (is )?closed")
_MOST_CLOSED = 8
_Result = TypeVar("_Result")


def run_job(action: Callable[[], _Result]) -> _Result:
    """Run a Spark job with Python tasks, again if Spark gave it a worker that was closed.

    Spark may keep a closed worker of a cancelled job for a later one (SPARK-54217), and in local mode a failed task is
    not repeated.

    Raises
    ------
    EnvironmentProblem
        If a worker lacks a package or Python.
    """
    closed = 0
    while True:
        try:
            return action()
        except Exception as error:
            if (problem := worker_problem(error)) is not None:
                raise problem from error
            closed += 1
            if closed > _MOST_CLOSED or not _CLOSED_WORKER.search(message_of(error)):
                raise


def collect_table(frame: DataFrame) -> pa.Table:
    """The rows of a DataFrame as an Arrow table with Spark's types."""
    rows: Any = frame
    batches = run_job(rows._collect_as_arrow)
    if batches:
        return pa.Table.from_batches(batches)
    return pa.schema([pa.field(field.name, arrow_type(field)) for field in frame.schema.fields]).empty_table()


# --- progress ---------------------------------------------------------------------------------------------------------


@contextmanager
def show_progress(spark: SparkSession, title: str, tasks: int | None = None) -> Iterator[None]:
    """Show the progress of the Spark jobs of this block after two seconds.

    ``tasks`` is their number, shown until stages run; then the tasks of the running stages are counted.
    """
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, title, tasks, done), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join(timeout=2)


def _watch(spark: SparkSession, title: str, tasks: int | None, done: threading.Event) -> None:
    if done.wait(PATIENCE):
        return
    tracker = spark.sparkContext.statusTracker()
    with progress_display(title, "tasks") as show:
        while not done.wait(0.2):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            finished = sum(stage.numCompletedTasks for stage in stages if stage)
            show(finished, sum(stage.numTasks for stage in stages if stage) or tasks)
