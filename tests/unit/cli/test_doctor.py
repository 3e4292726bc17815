"""The doctor: a line for each thing that is wrong, with the way out, and exit code 3 where something fails."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip.cli import doctor
from geoskip.cli.datasets import SparkOptions
from geoskip.errors import EnvironmentProblem, StoreError
from geoskip.spark import session_checks
from geoskip.spark.workers import WorkerPython
from tests.support.commands import ran

WORKERS = ("numpy", "pyarrow", "shapely", "rapidfuzz", "pyproj", "geoskip")


def line(subject: str, *words: object, code: int = 3) -> str:
    """The doctor's line on a subject."""
    done = ran("doctor", *words)
    assert done.exit_code == code, done.output
    lines: list[str] = [line for line in done.stdout.splitlines() if line[6:].startswith(f"{subject}: ")]
    assert len(lines) == 1, done.stdout
    return lines[0]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (None, "there is no {java}, where JAVA_HOME points"),
        ("""echo 'openjdk version "11.0.2" 2019-01-15' >&2""", "{java} is Java 11"),
        ("""echo 'openjdk version "25" 2025-09-16' >&2""", "{java} is Java 25"),
        ("echo 'Error: could not find libjava.so' >&2; exit 2",
         "{java} ends with exit code 2 (Error: could not find libjava.so)"),
        ("exit 1", "{java} ends with exit code 1 (it prints nothing)"),
    ],
    ids=["none", "too old", "too new", "broken", "broken and silent"],
)  # fmt: skip
def test_a_java_that_fails_is_named(
    script: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin/java"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if script is not None:
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
    assert line("Java") == (
        f"fail  Java: it needs Java 17 or 21, and {expected.format(java=java)}; install one, as with "
        "`apt-get install openjdk-17-jre-headless` or `brew install openjdk@17`, and let JAVA_HOME name its folder"
    )


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session in which all is well: neither Java nor Spark is started."""
    java = SimpleNamespace(System=SimpleNamespace(getProperty=lambda name: "17.0.9"))
    found = SimpleNamespace(version="4.0.5", _jvm=java, sparkContext=SimpleNamespace(master="local[2]"))

    @contextmanager
    def started(self: SparkOptions, why: str = "") -> Iterator[Any]:
        yield found

    there = WorkerPython(dict.fromkeys(WORKERS), "/usr/bin/python3, Python 3.11.2, on 1 host")
    monkeypatch.setattr("geoskip.spark.session.java_problem", lambda: None)
    monkeypatch.setattr(SparkOptions, "session", started)
    monkeypatch.setattr(session_checks, "is_enabled", lambda spark: True)
    monkeypatch.setattr(session_checks, "is_there", lambda spark: True)
    monkeypatch.setattr(session_checks, "worker_python", lambda spark, names: there)
    checks = dict(session_checks.SESSION_CHECKS) | {"skipping": lambda spark: ("ok", "skipping", "one of two", "")}
    monkeypatch.setattr(session_checks, "SESSION_CHECKS", tuple(checks.items()))
    return found


def test_a_session_in_which_all_is_well_has_no_way_out(session: Any) -> None:
    assert line("Spark", code=0) == "ok    Spark: 4.0.5 on Java 17.0.9, master local[2]"
    assert line("workers", code=0).startswith("ok    workers: /usr/bin/python3, Python 3.11.2, on 1 host, with numpy, ")


def workers_line(there: WorkerPython, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(session_checks, "worker_python", lambda spark, names: there)
    return line("workers")


def test_workers_that_lack_packages_are_named_with_what_mends_them(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks = dict.fromkeys(WORKERS) | {"pyarrow": "pyarrow 21.0.0", "shapely": "shapely 2.1.0"}
    there = WorkerPython(lacks, "/usr/bin/python3, Python 3.11.2, on 1 host")
    missing = (
        "fail  workers: the Python of the workers (/usr/bin/python3, Python 3.11.2, on 1 host) lacks pyarrow 21.0.0 "
        "and shapely 2.1.0; "
    )
    assert workers_line(there, monkeypatch) == f"{missing}let PYSPARK_PYTHON name the Python of this driver"
    session.sparkContext.master = "spark://one:7077"
    on_cluster = workers_line(there, monkeypatch)
    assert on_cluster.startswith(f"{missing}geoskip.worker_archive() writes an archive of it ")
    assert f"pip install 'geoskip=={geoskip.__version__}'" in on_cluster


def test_workers_of_another_python_are_named(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    why = (
        "the workers run Python 3.12 and this driver 3.11, which cannot exchange functions: let PYSPARK_PYTHON, or "
        "spark.pyspark.python, name a Python 3.11 of the workers"
    )
    assert workers_line(WorkerPython({}, unusable=why), monkeypatch) == f"fail  workers: {why.replace(': ', '; ')}"


def test_without_sedona_a_line_says_how_to_have_it(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_checks, "is_there", lambda spark: False)
    missing = "warn  Sedona: its jar is not in the session: the ST_ functions are shapely's; "
    monkeypatch.setattr(session_checks, "candidates", lambda: (("org:sedona:1.8.0", "org:tools:1"),))
    assert line("Sedona", code=0) == f"{missing}--sedona, or spark.jars.packages=org:sedona:1.8.0,org:tools:1"

    def not_installed() -> None:
        raise EnvironmentProblem("sedona=True needs the Python package apache-sedona: pip install 'geoskip[sedona]'")

    monkeypatch.setattr(session_checks, "candidates", not_installed)
    needs = "--sedona needs the Python package apache-sedona: pip install 'geoskip[sedona]'"
    assert line("Sedona", code=0) == missing + needs
    assert line("skipping", code=0).startswith("ok"), "the checks after it are made"


def test_a_check_that_raises_is_a_line_and_the_others_are_made(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_answer(spark: Any, names: Any) -> None:
        raise EnvironmentProblem("no worker answers; look at the workers' logs")

    monkeypatch.setattr(session_checks, "worker_python", no_answer)
    assert line("workers") == "fail  workers: no worker answers; look at the workers' logs"
    assert line("skipping").startswith("ok")


def test_a_session_where_geoskip_is_off_is_named(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_checks, "is_enabled", lambda spark: False)
    assert line("geoskip's rule") == "fail  geoskip's rule: is not in use; spark.geoskip.enabled=true switches it on"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    readable = os.access
    monkeypatch.setattr(os, "access", lambda place, mode: readable(place, mode) and not mode & os.W_OK)  # root may
    assert line("permissions", tmp_path, "--no-session", code=0) == (
        f"warn  permissions: {tmp_path} cannot be written; --metadata FOLDER keeps metadata elsewhere"
    )


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr("geoskip.engines.folder_listing.list_folder", denied)
    assert line("permissions", tmp_path, "--no-session") == (
        f"fail  permissions: {tmp_path} cannot be read; let this user read it, or run as one who may"
    )


def test_temporary_files_that_cannot_be_written_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: Any) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    assert line("temporary files", "--no-session") == (
        "fail  temporary files: cannot be written ([Errno 2] No usable temporary directory found in ['/tmp']); let "
        "TMPDIR name another folder"
    )


def test_a_store_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def unreachable(*_: Any) -> Iterator[None]:
        raise StoreError("s3a://data/weather cannot be reached: connection refused; check spark.hadoop.fs.s3a.endpoint")
        yield

    monkeypatch.setattr(doctor, "store_of", unreachable)
    assert line("dataset", "s3a://data/weather", "--no-session") == (
        "fail  dataset: s3a://data/weather cannot be reached: connection refused; check spark.hadoop.fs.s3a.endpoint"
    )
