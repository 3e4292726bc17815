"""Commands through Spark: other formats, expressions, verification, and a session of their own."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen, run
from typing import Any

import pytest

import geoskip
from tests.conftest import four_tens
from tests.support.commands import as_json, printed, process, ran


@pytest.fixture(autouse=True)
def active(spark: Any) -> None:
    """The commands use the session of the tests, and leave it running."""
    spark.range(1).collect()


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["csv", "json", "orc"])
def test_other_formats_are_read_again_as_they_were_indexed(format_: str, spark: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / format_)
    options = {"header": "true"} if format_ == "csv" else {}
    frame = spark.range(40).selectExpr("int(id) AS a", "concat('x', id) AS b").repartitionByRange(4, "a")
    frame.write.format(format_).options(**options).save(folder)
    given = ["--format", format_, *(("--option", "header=true", "--option", "inferSchema=true") if options else ())]
    assert as_json("index", folder, *given, "--minmax", "a")["files"] == 4
    frame.where("a < 5").coalesce(1).write.format(format_).options(**options).mode("append").save(folder)
    assert as_json("refresh", folder)["read"] == 1
    if format_ == "csv":
        assert as_json("verify", folder)["ok"]
    assert as_json("explain", folder, "WHERE a = 35")["files_kept"] == 1
    assert as_json("describe", folder)["changes"] == {"new or changed": 0, "gone": 0}


@pytest.mark.slow
def test_what_spark_alone_evaluates_is_built_by_it_and_serves_its_conditions(tmp_path: Path) -> None:
    folder = four_tens(tmp_path)
    done = ran("index", folder, "--minmax", "temp % 7 + temp")
    assert done.exit_code == 0
    assert done.stderr.startswith("geoskip: minmax(temp % 7 + temp): 'temp % 7 + temp' needs Spark")
    assert as_json("files", folder, "temp % 7 + temp > 41", "--spark")["files"] == [str(folder / "part-3.parquet")]
    assert as_json("refresh", folder, "--mode", "full")["read"] == 4
    assert ran("refresh", folder).stderr == "", "nothing is new, and so no Spark is needed"
    assert as_json("index", folder, "--minmax", "id", "--spark")["indexes"] == ["minmax(temp % 7 + temp)", "minmax(id)"]
    page = tmp_path / "page.html"
    printed("report", folder, "temp > 35", "--spark", "--html", page)
    assert "temp &gt; 35" in page.read_text("utf-8")


def test_how_files_cluster_and_what_to_create_for_conditions_and_queries(spark: Any, tmp_path: Path) -> None:
    folder = four_tens(tmp_path)
    assert as_json("layout", folder, "temp")["files"] == 4
    assert "temp" in printed("layout", folder, "temp")
    query = f"SELECT * FROM parquet.`{folder}` WHERE temp = 7"
    for words in (("temp > 35", query), ("temp > 35",)):
        assert "minmax(temp)" in json.dumps(as_json("recommend", folder, *words, "--budget", "1 MiB", "--no-layouts"))
    advice = printed("recommend", folder, "temp > 35", "--no-layouts").splitlines()
    assert advice[-1] == f"geoskip index {folder} --index 'minmax(temp)'"
    wrong = ran("recommend", folder, "temp > 35", "--budget", "much")
    assert (wrong.exit_code, "'much'" in wrong.stderr) == (1, True), wrong.stderr
    jar = tmp_path / "geoskip-extension.jar"
    assert as_json("extension-jar", jar)["jar"] == str(jar)
    assert jar.read_bytes().startswith(b"PK")


@pytest.mark.slow
def test_a_table_of_the_catalogue_stands_in_place_of_a_path(spark: Any, tmp_path: Path) -> None:
    folder = four_tens(tmp_path)
    spark.sql(f"CREATE TABLE cli_table USING parquet LOCATION '{folder}'")
    given = ("table:cli_table",)
    try:
        assert as_json("index", *given, "--minmax", "temp")["files"] == 4
        assert as_json("explain", *given, "WHERE temp > 35")["files_kept"] == 1
        assert as_json("files", *given, "temp > 35")["files"] == [str(folder / "part-3.parquet")]
        assert as_json("report", *given, "temp > 35")["files_kept"] == 1
        assert [each["index"] for each in as_json("describe", *given)["indexes"]] == ["minmax(temp)"]
        assert as_json("refresh", *given)["read"] == 0
        assert as_json("verify", *given)["ok"]
        assert as_json("layout", *given, "temp")["files"] == 4
        assert "minmax(id)" in json.dumps(as_json("recommend", *given, "id = 3", "--no-layouts"))
        assert as_json("drop", *given, "minmax(temp)") == {"dropped": ["minmax(temp)"]}
        assert as_json("restore", *given) == {"restored": ["minmax(temp)"]}
        assert as_json("optimize", *given)["optimized"] is False
        assert as_json("vacuum", *given)["indexes"] == []
        verbs = [each["verb"] for each in as_json("history", *given)["operations"]]
        assert verbs == ["create", "delete", "restore", "vacuum"]
    finally:
        spark.sql("DROP TABLE cli_table")
    wrong = ran("describe", *given)
    assert (wrong.exit_code, "cli_table" in wrong.stderr, "--conf" in wrong.stderr) == (1, True, True), wrong.stderr


def test_what_spark_says_is_one_line(tmp_path: Path) -> None:
    folder = four_tens(tmp_path)
    geoskip.build(folder, geoskip.MinMax("temp"))
    for words, wrong in (
        (("explain", folder, "tempp > 1", "--spark"), "tempp"),
        (("explain", folder, "temp >", "--spark"), "Syntax error"),
        (("index", folder, "--minmax", "nofunction(temp)"), "nofunction"),
        (("index", folder, "--format", "nothing", "--minmax", "a"), "nothing"),
    ):
        done = ran(*words)
        lines = done.stderr.splitlines()
        assert (done.exit_code, wrong in lines[-1]) == (1, True), done.stderr
        assert all(line.startswith("geoskip: ") for line in lines), done.stderr


@pytest.mark.slow
def test_a_session_of_its_own_is_quiet_and_the_doctor_lets_it_skip(tmp_path: Path) -> None:
    folder = four_tens(tmp_path)
    done = process("doctor", folder, "--master", "local[2]", "--conf", "spark.driver.memory=1g", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stderr.splitlines() if not line.startswith("geoskip: ")] == []
    found = {each["subject"]: each for each in json.loads(done.stdout)["findings"]}
    assert {found[name]["state"] for name in ("Spark", "geoskip's rule", "workers", "skipping")} == {"ok"}
    assert "master local[2]" in found["Spark"]["text"]
    wrong = process("files", folder, "--master", "local[2]", "--conf", "spark.driver.memory=much")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1), wrong.stderr
    log = wrong.stderr.rpartition(" ")[2].strip()
    assert "much" in Path(log).read_text()
    Path(log).unlink()


@pytest.mark.slow
def test_ctrl_c_while_spark_starts_leaves_no_jvm(tmp_path: Path) -> None:
    """One that is interrupted right after its launch would run on, and hold the standard output."""
    command = [sys.executable, "-m", "geoskip", "explain", str(four_tens(tmp_path)), "temp > 1", "--spark"]
    started = Popen(command, stdout=PIPE, stderr=PIPE, start_new_session=True)
    while not run(["pgrep", "-P", str(started.pid)], capture_output=True, check=False).stdout:
        assert started.poll() is None
        time.sleep(0.1)
    os.killpg(started.pid, signal.SIGINT)
    started.communicate(timeout=120)
    assert started.returncode == 130
