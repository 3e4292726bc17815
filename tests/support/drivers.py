"""Spark drivers in separate processes: to append, build and race, and to be killed.

``python -m tests.support.drivers PORT`` is such a process. It receives orders over a connection, runs each in a thread,
and answers when one is done. It ends with the process that started it, and so does its JVM: both are in one process
group.

An order may be *held*: it stops in the middle, reports the place on a connection of its own, and continues when that is
closed: in the task of a build, in the task that writes rows, or after writing parts and before the snapshot.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

__all__ = ["Driver"]

ROOT = Path(__file__).parents[2]
HERE = "127.0.0.1"
PATIENCE = 300.0
CONFIG = {
    "spark.master": "local[4]",  # so that several tasks can be held at once
    "spark.default.parallelism": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m -XX:-UsePerfData",
}


class Driver:
    """A Spark driver that receives orders; the context manager kills it. ``folder`` has its files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._log = folder / "log.txt"
        self._held: list[socket.socket] = []
        self._server = socket.create_server((HERE, 0))
        self._server.settimeout(PATIENCE)
        port = self._server.getsockname()[1]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.drivers", str(port), str(folder)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # its JVM also keeps it open
                stderr=log,
                start_new_session=True,
            )
        try:
            self._orders = self._accepted()
        except BaseException:
            self.kill()
            raise
        self._answers = self._orders.makefile("rb", buffering=0)  # unbuffered, so that is_done() sees every answer

    def order(self, place: Path, *steps: tuple[str, Any], hold: str = "") -> None:
        """Send verbs with an argument each, to run in sequence; other orders run concurrently."""
        told = {"place": str(place), "steps": steps, "hold": hold}
        self._orders.sendall(f"{json.dumps(told)}\n".encode())

    def answer(self) -> list[str]:
        """Return the errors of the next finished order; the first answer signals that the driver is ready."""
        line = self._answers.readline()
        assert line, f"the driver is gone:\n{self.said()}"
        return list(json.loads(line))

    def is_done(self) -> bool:
        """Test whether an answer is available, or the driver has ended."""
        return bool(select.select([self._orders], [], [], 0)[0])

    def held(self) -> str:
        """Wait until an order is held, and return the place."""
        connection = self._accepted()
        self._held.append(connection)
        return connection.makefile("r").readline().strip()

    def kill(self, *, alone: bool = False) -> None:
        """Kill it with its JVM, or with ``alone`` only itself, after which its JVM exits; wait for both."""
        if self._process.returncode is None:
            (os.kill if alone else os.killpg)(self._process.pid, signal.SIGKILL)
        self._process.communicate(timeout=PATIENCE)

    def said(self) -> str:
        """Return the end of its log."""
        return self._log.read_text(errors="replace")[-3000:]

    def _accepted(self) -> socket.socket:
        try:
            connection, _ = self._server.accept()
        except TimeoutError:
            raise AssertionError(f"the driver does not come:\n{self.said()}") from None
        connection.settimeout(PATIENCE)
        return connection

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.kill()
        for connection in (*self._held, self._orders, self._server):
            connection.close()


# --- in the driver ----------------------------------------------------------------------------------------------------


def _rows(handle: Any, first: int, stop: Callable[[], None]) -> Any:
    """Create two rows, numbered from ``first``, in a task."""

    def rows(_: Any) -> Iterator[tuple[int, str]]:
        stop()
        yield from ((value, f"t{value}") for value in (first, first + 1))

    made = handle.spark.sparkContext.parallelize([0], 1).mapPartitions(rows)
    return handle.spark.createDataFrame(made, "a bigint, s string")


def _go_on() -> None:
    """Continue without being held."""


def _stop_at(port: int, where: str) -> None:
    """Report the place, and wait until the connection is closed."""
    with socket.create_connection((HERE, port)) as connection:
        connection.sendall(f"{where}\n".encode())
        connection.recv(1)


VERBS: dict[str, Callable[[Any, Any], Any]] = {
    "create": lambda handle, column: handle.create_index(_minmax(column)),
    "refresh": lambda handle, mode: handle.refresh_index(mode),
    "delete": lambda handle, column: handle.delete_index(_minmax(column)),
    "restore": lambda handle, column: handle.restore_index(_minmax(column)),
    "optimize": lambda handle, _: handle.optimize_index(),
    "vacuum": lambda handle, hours: handle.vacuum_index(hours),
}


def _minmax(column: str) -> Any:
    import geoskip

    return geoskip.MinMax(column)


def _hold(port: int, where: str) -> Callable[[], None]:
    """Hold later builds in their task, or commits before their snapshot; return the hold for row tasks."""
    from geoskip.spark.build import spark_reader
    from geoskip.stores import LocalFolder

    read, create = spark_reader.read_shares, LocalFolder.create

    def read_held(plans: Any, case_sensitive: bool, shares: Any) -> Iterator[Any]:
        _stop_at(port, f"build of {' '.join(plan.name for plan in plans)}")
        yield from read(plans, case_sensitive, shares)

    def create_held(self: Any, name: str, data: bytes) -> None:
        if name.startswith("_log/"):
            _stop_at(port, "commit")
        create(self, name, data)

    if where == "build":
        spark_reader.read_shares = read_held
    if where == "commit":
        LocalFolder.create = create_held  # type: ignore[method-assign]
    return partial(_stop_at, port, "rows") if where == "rows" else _go_on


def _carry_out(spark: Any, port: int, order: dict[str, Any], answer: Callable[[list[str]], None]) -> None:
    import geoskip

    wrong: list[str] = []
    warnings.filterwarnings("error", message="the rows are in")  # the rows are written, but not indexed
    stop = _hold(port, order["hold"])
    for verb, argument in order["steps"]:
        try:
            handle = geoskip.dataset(spark, order["place"])
            if verb == "append":
                handle.append(_rows(handle, argument, stop))
            else:
                VERBS[verb](handle, argument)
        except Exception as error:
            wrong.append(f"{verb} {argument}: {type(error).__name__}: {error}")
    answer(wrong)


def _serve(port: int, folder: str) -> None:
    orders = socket.create_connection((HERE, port))
    import geoskip

    os.fsync = lambda descriptor: None  # no test simulates a power failure
    config = {**CONFIG, "spark.local.dir": folder, "spark.sql.warehouse.dir": folder}
    config["spark.driver.extraJavaOptions"] += f" -Djava.io.tmpdir={folder}"
    spark = geoskip.session("driver", sedona=False, config=config)
    spark.sparkContext.setLogLevel("ERROR")
    lock = threading.Lock()

    def answer(wrong: list[str]) -> None:
        with lock:
            orders.sendall(f"{json.dumps(wrong)}\n".encode())

    answer([])
    for line in orders.makefile("r"):
        arguments = (spark, port, json.loads(line), answer)
        threading.Thread(target=_carry_out, args=arguments, daemon=True).start()


if __name__ == "__main__":
    try:
        _serve(int(sys.argv[1]), sys.argv[2])
    finally:
        os.killpg(0, signal.SIGKILL)
