"""A session for one command: the active one, or a new one with its output in a file."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from types import FrameType

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from geoskip.errors import EnvironmentProblem, GeoskipError
from geoskip.spark.build.spark_jobs import first_line, message_of
from geoskip.spark.session import enable, session

_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}


@contextmanager
def local_session(
    master: str | None = None, config: Mapping[str, str] | None = None, *, sedona: bool = False
) -> Iterator[SparkSession]:
    """Session of this process, or a new one that ends with the block.

    Parameters
    ----------
    master
        Spark's master, such as ``local[4]`` or ``yarn``. Default: that of Spark's configuration, else ``local[*]``.
    config
        Spark's settings.
    sedona
        True adds Sedona's jar.

    Raises
    ------
    EnvironmentProblem
        If Spark does not start; the message names the file with its output.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        enable(active)
        yield active
        return
    settings = {**_QUIET, **({"spark.master": master} if master else {}), **(config or {})}
    descriptor, log = tempfile.mkstemp(prefix="geoskip-spark-", suffix=".log")
    try:
        with _error_output_in(descriptor), _interrupted_later():
            spark = session("geoskip", sedona=sedona or None, config=settings)
    except Exception as error:
        reason = reason_printed(Path(log).read_text("utf-8", "replace")) or sentence_of(error) or error
        why = str(error) if isinstance(error, GeoskipError) else f"Spark did not start: {str(reason).rstrip('.')}"
        raise EnvironmentProblem(f"{why}; what Spark printed is in {log}") from error
    except KeyboardInterrupt:
        os.unlink(log)
        raise
    finally:
        os.close(descriptor)
    try:
        yield spark
    finally:
        with suppress(Py4JError, OSError):
            spark.stop()
        os.unlink(log)


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Delay Ctrl-C until the end of a block, since an interrupted launch would leave the JVM running."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        waiting.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is note:  # not the handler of Spark's context, which cancels jobs
            signal.signal(signal.SIGINT, before)
    if waiting:
        raise KeyboardInterrupt


def reason_printed(text: str) -> str | None:
    """Reason in Spark's output why it did not start, or None."""
    found = re.search(r'^Exception in thread "main" [\w.$]+: (.+)$|Reason: (All masters are .+)$', text, re.MULTILINE)
    return found and (found[1] or found[2]).strip()


@contextmanager
def _error_output_in(descriptor: int) -> Iterator[None]:
    """Redirect standard error of processes started in the block to a file, but not that of this process."""
    before = os.dup(2)
    with os.fdopen(before, "w", buffering=1, errors="backslashreplace") as own, redirect_stderr(own):
        os.dup2(descriptor, 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)


def sentence_of(error: BaseException) -> str | None:
    """Spark's reason for an error in one line; None for an error that is not Spark's."""
    if isinstance(error, Py4JJavaError | PySparkException):
        return first_line(message_of(error))
    return f"its JVM does not answer ({error})" if isinstance(error, Py4JError) else None


def schema_of(text: str) -> StructType:
    """Spark's schema from the JSON in the metadata."""
    return StructType.fromJson(json.loads(text))
