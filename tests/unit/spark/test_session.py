"""How Spark is started: which of Sedona's jars are looked for, and what is said where it does not start."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest

import geoskip
from geoskip.errors import EnvironmentProblem, InvalidSpecificationError
from geoskip.spark import session as launch
from geoskip.spark import st_functions as sedona_jar


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], list[str]]:
    """The jars that are looked for with an installed PySpark and apache-sedona."""

    def jars(spark: str, package: str) -> list[str]:
        monkeypatch.setattr(pyspark, "__version__", spark)
        monkeypatch.setattr(sedona_jar, "version", lambda name: package)
        return [
            packages[0].removeprefix("org.apache.sedona:sedona-spark-shaded-") for packages in sedona_jar.candidates()
        ]

    return jars


def test_the_jar_is_the_newest_that_the_python_package_and_spark_allow(installed: Any) -> None:
    assert installed("4.0.5", "1.8.0") == ["4.0_2.13:1.8.0"]
    assert installed("3.5.9", "1.8.1") == ["3.5_2.12:1.8.1", "3.5_2.12:1.8.0"]
    assert installed("4.1.4", "1.9.1") == ["4.1_2.13:1.9.1", "4.1_2.13:1.9.0"]
    assert installed("4.3.0", "1.10.0") == ["4.3_2.13:1.10.0"]  # it may have one: the repository knows
    assert installed("4.0.5", "1.10.0")[:2] == ["4.0_2.13:1.10.0", "4.0_2.13:1.9.1"]


@pytest.mark.parametrize(
    ("spark", "package", "expected"),
    [
        (
            "4.3.0",
            "1.9.1",
            "no jar for Spark 4.3 in the releases known here .*, only for Spark 3.4, 3.5, 4.0, 4.1:",
        ),
        ("4.1.4", "1.8.0", "a jar for Spark 4.1 from 1.9.0 on, and apache-sedona 1.8.0 is installed: pip install"),
    ],
)
def test_a_spark_without_a_jar_is_named(installed: Any, spark: str, package: str, expected: str) -> None:
    with pytest.raises(EnvironmentProblem, match=expected):
        installed(spark, package)


class Builder:
    """A builder whose repository has the packages named; others end the JVM, as Ivy's failure does."""

    def __init__(self, *resolved: str) -> None:
        self.resolved, self.tried, self._options = resolved, [], {"spark.jars.packages": "a:b:1"}

    def config(self, key: str, value: str) -> None:
        self._options[key] = value

    def make(self) -> str:
        self.tried.append(self._options["spark.jars.packages"])
        if not self.tried[-1].endswith(self.resolved):
            raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")
        return "a session"


RELEASES = (("sedona:1.9.1",), ("sedona:1.8.1", "tools:1.8.1"))


def test_the_next_release_is_tried_where_no_repository_has_one() -> None:
    builder: Any = Builder("tools:1.8.1")
    with pytest.warns(UserWarning, match="jar is sedona:1.8.1, older .* no repository has sedona:1.9.1; pip install"):
        assert launch.start_session(builder, builder.make, RELEASES) == "a session"
    assert builder.tried == ["a:b:1,sedona:1.9.1", "a:b:1,sedona:1.8.1,tools:1.8.1"]


def test_what_was_looked_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "java_problem", lambda: None)
    builder: Any = Builder("nothing")
    with pytest.raises(EnvironmentProblem, match=r"looked for, .*: sedona:1.9.1, sedona:1.8.1\. .*leave out"):
        launch.start_session(builder, builder.make, RELEASES)
    with pytest.raises(RuntimeError, match=r"^.JAVA_GATEWAY_EXITED"):  # without Sedona it is Spark's own error
        launch.start_session(builder, builder.make)


@pytest.mark.parametrize(
    ("java", "expected"),
    [
        (None, "there is no .*bin/java, where JAVA_HOME points: install one"),
        ('openjdk version "11.0.2" 2019-01-15', ".*bin/java is Java 11: install one"),
        ('java version "1.8.0_411"', ".*bin/java is Java 8: install one"),
        ('openjdk version "25" 2025-09-16', ".*bin/java is Java 25: install one"),
        ('openjdk version "17.0.12" 2024-07-16', None),
        ('openjdk version "21" 2023-09-19 LTS', None),
    ],
)
def test_java_is_named_where_it_is_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, java: str | None, expected: str | None
) -> None:
    monkeypatch.setattr("geoskip.spark.session.SparkContext._active_spark_context", None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if java is not None:
        command = tmp_path / "bin/java"
        command.parent.mkdir()
        command.write_text(f"#!/bin/sh\necho '{java}' >&2\n")
        os.chmod(command, 0o755)
    builder: Any = Builder("nothing")
    kind, match = (EnvironmentProblem, "Spark did not start: it needs Java 17 or 21, and ") if expected else (
        RuntimeError, "GATEWAY",
    )  # fmt: skip
    with pytest.raises(kind, match=match + (expected or "")):
        launch.start_session(builder, builder.make)


def test_a_java_that_is_nowhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    assert "neither JAVA_HOME nor PATH leads to one" in str(launch.java_problem())


def test_a_session_of_spark_connect_is_answered_by_what_its_server_can_do() -> None:
    remote: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    for call in (geoskip.enable, geoskip.last_report, lambda spark: geoskip.dataset(spark, "/data")):
        with pytest.raises(EnvironmentProblem, match=r"got one of Spark Connect.*geoskip\.connect_server\(spark\)"):
            call(remote)
    for call in (geoskip.enable, geoskip.register_functions, geoskip.datasets):
        with pytest.raises(EnvironmentProblem, match="driver is here, got 'spark'"):
            call("spark")  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [{"app_name": 5}, {"config": "spark.master"}], ids=str)
def test_a_session_takes_a_name_and_settings(arguments: Any) -> None:
    with pytest.raises(InvalidSpecificationError, match=r"takes a name and config=\{'spark.master': .* got "):
        geoskip.session(**arguments)
