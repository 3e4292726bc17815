"""One process a session that calls Python functions with the Python and environment of workers.

What a function makes of a value depends on more than its code: on classes and modules as workers have them, on the
environment, the working directory, hashes and clocks. Where Spark runs within this machine, its workers have all of it
from the JVM, and so has this process, which runs :mod:`geoskip.spark.rule.udf_worker`. Of other machines nothing is
known, and nothing is called.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import select
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from pyspark import SparkContext, SparkFiles

from geoskip.evaluation import Declined

__all__ = ["Rows", "call_in_worker"]

Rows = tuple[list[Any], list[bool]]
_LOCAL = re.compile(r"local(\[.*\])?")
_PYTHON = "spark.sql.execution.pyspark.python"
_WAIT = 0.5
_GRACE = 0.5
"""Seconds that a call may take beyond its deadline."""
_START = 1.5
"""How many times as long as a call may take its process may take to start, beyond that."""
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
    """The values of a pickled function for each row, and for which rows nothing is known; raises Declined.

    Parameters
    ----------
    command
        What Spark sends to its workers.
    columns
        The arguments, as workers get them.
    clocks
        Which of them are microseconds that the worker's clocks are to show.
    is_instant
        Whether times that the function returns are instants, which the worker's clocks tell.
    settings
        The query's.
    deadline
        Of ``time.monotonic``; a process that has not answered by then is killed.
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
    """The process, started with all that a worker is started with."""

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
        """Return its answer; without one by the deadline it is killed, unless it is just starting."""
        if not self._is_ready:  # once a session a query waits for it, for more than its share of the budget
            since = time.monotonic()
            if not self._is_readable(deadline + _START * max(0.0, deadline - since)):
                return "the process that calls functions had not started when the planning budget was spent"
            self._is_ready = self._read(deadline + _GRACE) == b"ready"
            deadline += time.monotonic() - since
        data = pickle.dumps({**request, "seconds": deadline - time.monotonic()})
        try:
            self.requests.write(struct.pack("!i", len(data)) + data)
            self.requests.flush()
            found: Rows | str = pickle.loads(self._read(deadline + _GRACE))
            return found
        except BaseException:  # half an answer may be under way
            self.end()
            raise

    def _is_readable(self, deadline: float) -> bool:
        return bool(select.select([self.answers], [], [], max(0.0, deadline - time.monotonic()))[0])

    def _read(self, deadline: float) -> bytes:
        (size,) = struct.unpack("!i", self._exactly(4, deadline))
        return self._exactly(size, deadline)

    def _exactly(self, size: int, deadline: float) -> bytes:
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
        """Kill it, and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        for pipe in (self.requests, self.answers):
            with contextlib.suppress(OSError):  # what was not sent yet
                pipe.close()
