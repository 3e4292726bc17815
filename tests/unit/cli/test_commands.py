"""Commands on local Parquet, without Spark."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip.cli import application
from geoskip.stores.keyring import KeyRing
from tests.support.commands import as_json, printed, process, ran


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the folder ``data``: temp 0..5, 10..15, 20..25, not indexed."""
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(3):
        temps = list(range(10 * number, 10 * number + 6))
        cities = [f"{'ABC'[number]}{temp}" for temp in temps]
        columns = {"temp": temps, "city": cities, "at": pa.array(temps, pa.timestamp("us", "UTC"))}
        columns["tags"] = [["x"]] * 6
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """No PySpark can be found or imported."""
    from geoskip.cli import build_commands, datasets, doctor

    for module in (build_commands, datasets, doctor):
        find = module.find_spec
        monkeypatch.setattr(module, "find_spec", lambda name, find=find: None if name == "pyspark" else find(name))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("pyspark", "py4j")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)


@pytest.mark.usefixtures("data", "without_spark")
def test_a_dataset_lives_by_commands_without_spark(data: Path) -> None:
    built = as_json("index", "data", "--minmax", "temp", "--prefix", "city, length=1")
    assert (built["indexes"], built["read"], built["rows"]) == (["minmax(temp)", "prefix(city, length=1)"], 3, 18)
    assert as_json("files", "data", "WHERE temp > 12 AND city LIKE 'B%'")["files"] == [str(data / "1.parquet")]
    assert printed("files", data, "temp > 12", "--skipped") == f"{data}/0.parquet\n"
    assert printed("files", data, "temp > 12", "-0") == f"{data}/1.parquet\0{data}/2.parquet\0"
    explained = as_json("explain", "data", "temp > 12")
    assert (explained["files_kept"], explained["files_total"], len(explained["files"])) == (2, 3, 2)
    assert "read 2 of 3 files" in printed("explain", "data", "temp > 12")
    assert printed("explain", "data", "temp > 12").splitlines()[-2].split()[0] == "1.parquet"
    assert as_json("report", "data", "temp > 12")["scans"][0]["clauses"] == [{"clause": "max(temp) > 12", "skips": 1}]
    assert ran("report", "data", "temp > 12", "--html", "page.html").stdout == ""
    assert "temp &gt; 12" in Path("page.html").read_text("utf-8")
    pq.write_table(pa.table({"temp": [90], "city": ["Z"]}), data / "3.parquet")
    assert as_json("describe", "data")["changes"] == {"new or changed": 1, "gone": 0}
    assert printed("describe", "data").splitlines()[-1] == "1 file new or changed since, 0 gone: geoskip refresh data"
    assert as_json("refresh", "data", "--mode", "quick")["pending"] == 1
    assert as_json("refresh", "data")["read"] == 1
    assert (as_json("verify", "data")["ok"], as_json("verify", "data")["files"]) == (True, 4)
    assert as_json("verify", "data", "--sample", "0.5")["files"] == 2
    assert as_json("optimize", "data") == {"optimized": True, "snapshot": 4}
    assert as_json("drop", "data", "PREFIX(city,length = 1)") == {"dropped": ["prefix(city, length=1)"]}
    assert [each["state"] for each in as_json("describe", "data")["indexes"]] == ["in use", "deleted"]
    assert as_json("restore", "data") == {"restored": ["prefix(city, length=1)"]}
    assert len(as_json("vacuum", "data", "--retain", "0 minutes")["snapshots"]) > 0
    verbs = [each["verb"] for each in as_json("history", "data")["operations"]]
    assert verbs == ["create", "refresh quick", "refresh", "optimize", "delete", "restore", "vacuum"]
    rows = as_json("statistics", "data", "--index", "minmax(temp)")["statistics"]
    assert [(row["path"], row["max_value"]) for row in rows][:2] == [("0.parquet", "5"), ("1.parquet", "15")]
    assert "and 7 more rows" in printed("statistics", "data", "--limit", "1")


def test_metadata_of_files_are_named_and_found(data: Path, tmp_path: Path) -> None:
    done = ran("index", data / "0.parquet", "--minmax", "temp")
    assert done.stderr.splitlines()[-1] == f"geoskip: the metadata are in {data}/_geoskip"
    assert "minmax(temp)  in use  1" in printed("describe", data / "0.parquet")
    assert "new or changed" not in printed("describe", data / "0.parquet")
    dropped = ran("drop", data / "0.parquet")
    assert dropped.exit_code == 1
    assert f"0.parquet is one file; its metadata are those of its folder: name {data}" in dropped.stderr
    shutil.copytree(data, tmp_path / "two 2")
    done = ran("index", "data", "two 2", "--minmax", "temp")
    assert done.stderr.splitlines()[-1] == f"geoskip: the metadata are in {tmp_path}/_geoskip"
    assert "metadata are in" not in ran("index", "data", "--minmax", "temp").stderr


def test_of_copied_data_a_repair_is_advised(data: Path, tmp_path: Path) -> None:
    printed("index", "data", "--minmax", "temp")
    shutil.copytree(data, tmp_path / "my copy")
    described = printed("describe", "my copy")
    assert "they came with data that were moved or copied: geoskip repair 'my copy'" in described
    assert "minmax(temp)  not used here  3" in described
    assert "geoskip repair PATH builds it anew" in printed("explain", "my copy", "temp > 12")


def test_the_folder_of_other_metadata_is_named(data: Path, tmp_path: Path) -> None:
    printed("index", "data", "--minmax", "temp")
    for verb in ("refresh", "verify"):
        done = ran(verb, "data", "--metadata", tmp_path / "nothing")
        assert done.exit_code == 1
        assert f"has no index yet in {tmp_path}/nothing; create one: " in done.stderr


def test_of_damaged_metadata_a_repair_is_advised_and_no_index(data: Path) -> None:
    printed("index", "data", "--minmax", "temp")
    (log,) = (data / "_geoskip" / "_log").glob("*/*.json")
    log.write_text("x")
    explained = printed("explain", "data", "temp > 12")
    assert "is damaged: " in explained
    assert "; geoskip repair PATH builds anew what cannot be read" in explained
    assert "--minmax" not in explained


def test_verify_counts_what_it_does_not_compare(data: Path) -> None:
    printed("index", "data", "--minmax", "temp")
    pq.write_table(pa.table({"temp": [90], "city": ["Z"]}), data / "2.parquet")
    (data / "junk.parquet").write_text("no Parquet")
    lines = printed("verify", "data").splitlines()
    assert lines[0] == "2 of 2 files read again for minmax(temp)"
    assert lines[1] == "  2 files new, changed or left out, which queries read: geoskip refresh PATH"


@pytest.mark.usefixtures("without_spark")
def test_metadata_may_be_elsewhere_and_protected(data: Path) -> None:
    KeyRing({"base": bytes(32)}).save("keys.json")
    elsewhere = ("--metadata", "meta", "--keys", "keys.json")
    printed("index", "data", "--minmax", "temp", "--key", "base", *elsewhere)
    assert not (data / "_geoskip").exists()
    assert as_json("files", "data", "temp = 3", *elsewhere)["files"] == [str(data / "0.parquet")]
    assert as_json("verify", "data", *elsewhere)["ok"]
    assert as_json("describe", "data", *elsewhere)["files"] == 3
    done = ran("describe", "data", "--metadata", "meta")
    assert (done.exit_code, "no keys were given" in done.stderr) == (1, True)


@pytest.mark.usefixtures("data")
def test_verify_exits_with_three_where_a_summary_contradicts_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    printed("index", "data", "--minmax", "temp")
    from geoskip.sources import verification

    real = verification.compare_with_data

    def wrong(*args: Any) -> Any:
        from dataclasses import replace

        return replace(real(*args), differing={"1.parquet": ("minmax(temp)",)})

    monkeypatch.setattr(verification, "compare_with_data", wrong)
    done = ran("verify", "data")
    assert done.exit_code == application.FAULT == 3
    assert "1.parquet: minmax(temp) differs" in done.stdout
    assert "geoskip repair PATH drops what is inconsistent" in done.stdout


NEEDED = "pip install 'geoskip[spark]'"
WRONG: list[tuple[str, int, str, str]] = [
    ("index", 2, "Missing argument 'PATH'", "geoskip index --help"),
    ("indx data", 2, "No such command 'indx'", "Did you mean 'index'"),
    ("index data", 2, "name at least one index", "--minmax COLUMN"),
    ("index data --minmx temp", 2, "--minmx", "--minmax"),
    ("index data --minmax temp --threads 0", 2, "--threads", "geoskip index --help"),
    ("refresh data --mode fast", 2, "fast", "'incremental', 'full', 'quick'"),
    ("index nowhere --minmax temp", 1, "there is no file or folder", "quote a glob"),
    ("index data --minmax tempp", 1, "no column tempp", "did you mean temp?"),
    ("index data --minmax temp,city", 1, "takes one expression, got 2", "GEOBOX(lng, lat)"),
    ("index data --prefix city,len=3", 1, "no parameter len", "did you mean length?"),
    ("index data --prefix city,length=x", 1, "got length='x'", "15 serve well"),
    ("index data --prefix city,length=0", 1, "got length=0", "15 serve well"),
    ("index data --prefix temp", 1, "needs text, got bigint", "--bloomfilter temp"),
    ("index data --minmax tags", 1, "needs an ordered type", "size(tags)"),
    ("index data --minmax ,", 1, "expected an argument of minmax", "got )"),
    ("index data --minmax temp --minmax temp", 1, "named twice", "once"),
    ("index data --index minmax", 1, "takes one expression, got none", "temp MINMAX"),
    ("index data --index minmx(temp)", 1, "expected an index type, got minmx", "did you mean MINMAX?"),
    ("index data --metricdist city", 1, "needs metric=", "levenshtein"),
    ("index data --geobox temp", 1, "needs a geometry, got bigint", "--geobox 'lng, lat'"),
    ("index data --minmax year(at)", 1, "needs Spark", NEEDED),
    ("index empty --minmax a", 1, "has no files to index", "name the folder"),
    ("index text --minmax a", 1, "not readable as Parquet", "--format csv"),
    ("index text --format csv --minmax a", 1, "csv needs Spark", NEEDED),
    ("index s3a://bucket/data --minmax a", 1, "not on a local file system", NEEDED),
    ("index data --minmax temp --import nomodule", 1, "No module named 'nomodule'", "PYTHONPATH"),
    ("index data --minmax temp --key base", 1, "--key base", "--keys FILE"),
    ("index data --minmax temp --keys none.json", 1, "none.json", "key"),
    ("index data --minmax temp --metadata s3://a/b", 1, "s3://a/b", NEEDED),
    ("files data temp>3 --metadata s3://a/b", 1, "s3://a/b is not on a local file system", NEEDED),
    ("describe data --metadata s3://a/b", 1, "s3://a/b is not on a local file system", NEEDED),
    ("refresh data --metadata s3://a/b", 1, "s3://a/b is not on a local file system", NEEDED),
    ("refresh bare", 1, "has no index yet", "geoskip index PATH --minmax COLUMN"),
    ("verify bare", 1, "has no index yet", "geoskip index PATH --minmax COLUMN"),
    ("verify data --sample 2", 1, "got 2.0", "above 0 and up to 1"),
    ("describe bare", 1, "holds no metadata", "geoskip index bare --minmax COLUMN"),
    ("history nowhere", 1, "there is no folder nowhere", "name the dataset"),
    ("describe s3a://bucket/data", 1, "not on a local file system", NEEDED),
    ("drop data minmax(city)", 1, "no index minmax(city)", "only minmax(temp)"),
    ("restore data", 1, "no index that is deleted", "geoskip describe PATH"),
    ("vacuum data --retain soon", 1, "got 'soon'", "'7 days'"),
    ("statistics data --index minmax(x)", 1, "no index minmax(x)", "minmax(temp)"),
    ("explain data tempp>3", 1, "no column tempp", "did you mean temp?"),
    ("explain data temp>", 1, "is no condition", "write what stands after WHERE"),
    ("files data 'SELECT 1'", 1, "is a query", "give its condition alone"),
    ("files data temp>3 --time-zone Mars", 1, "no time zone Mars", "Europe/Oslo"),
    ("files data temp > 3", 2, "extra argument", "geoskip files --help"),
    ("extension-jar empty", 2, "'empty' is a directory", "geoskip extension-jar --help"),
    ("files nowhere", 1, "there is no file or folder", "check the path"),
    (
        "report data temp>3 --html nowhere/page.html",
        2,
        "there is no folder nowhere",
        "name a file in one that is there",
    ),
    ("repair data", 1, "repair needs Spark", NEEDED),
    ("describe", 2, "Missing argument 'PATH'", "geoskip describe --help"),
    ("explain table:db.t temp>3", 1, "the table db.t needs Spark", NEEDED),
    ("history table:db.t", 1, "the table db.t needs Spark", NEEDED),
    ("layout data temp", 1, "layout needs Spark", NEEDED),
    ("recommend data temp>3", 1, "recommend needs Spark", NEEDED),
    ("recommend data", 2, "Missing argument 'QUERY", "geoskip recommend --help"),
    ("thrift-server", 1, "a Thrift server needs Spark", NEEDED),
    ("thrift-server --conf spark.master", 1, "got 'spark.master'", "--conf spark.driver.memory=4g"),
    ("thrift-server --port 70000", 2, "less than or equal to 65535", "geoskip thrift-server --help"),
    ("extension-jar nowhere/a.jar", 2, "there is no folder nowhere", "name a file in one that is there"),
    ("extension-jar a.jar", 1, "the compiler of the jar is one of Spark's", NEEDED),
]


@pytest.fixture(scope="module")
def wrong_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with indexed, bare, empty and other folders."""
    place = tmp_path_factory.mktemp("wrong")
    for name in ("data", "bare", "empty", "text"):
        (place / name).mkdir()
    table = pa.table({"temp": [1], "city": ["a"], "at": pa.array([1], pa.timestamp("us", "UTC")), "tags": [["x"]]})
    for name in ("data", "bare"):
        pq.write_table(table, place / name / "0.parquet")
    (place / "text" / "0.csv").write_text("a,b\n1,2\n")
    geoskip.build(place / "data", geoskip.MinMax("temp"))
    return place


@pytest.mark.usefixtures("without_spark")
@pytest.mark.parametrize(("line", "code", "wrong", "way_out"), WRONG, ids=[line for line, *_ in WRONG])
def test_a_wrong_line_is_answered_by_what_is_wrong_and_what_to_do(
    line: str, code: int, wrong: str, way_out: str, wrong_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(wrong_place)
    done = ran(*shlex.split(line))
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.startswith("geoskip: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert wrong in done.stderr
    assert way_out in done.stderr
    assert "dataset(" not in done.stderr
    assert ".build(" not in done.stderr


def test_there_are_thirty_wrong_lines_and_more() -> None:
    assert len({line for line, *_ in WRONG}) >= 30


@pytest.mark.usefixtures("data")
def test_an_error_that_is_not_foreseen_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoskip.engines.files.files", lambda *_, **__: 1 / 0)
    done = ran("files", "data", "temp = 1")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "unexpected ZeroDivisionError: division by zero" in done.stderr
    assert "GEOSKIP_TRACEBACK=1" in done.stderr


@pytest.mark.slow
def test_in_processes_codes_pipes_and_paths_are_those_of_a_shell(data: Path) -> None:
    odd = data / "a b\n'c'.parquet"
    os.rename(data / "2.parquet", odd)
    geoskip.build(data, geoskip.MinMax("temp"))
    piped = process(shell="geoskip files data 'WHERE temp > 20' -0 | xargs -0 stat -c %s", cwd=data.parent)
    assert (piped.returncode, piped.stdout, piped.stderr) == (0, f"{odd.stat().st_size}\n", "")
    gone = process(shell="geoskip files data | true; echo ${PIPESTATUS[0]}", cwd=data.parent)
    assert (gone.stdout.strip(), gone.stderr) in [("0", ""), ("141", "")]
    for words in ("--help", "files --help", "--version"):
        gone = process(shell=f"geoskip {words} | true; echo ${{PIPESTATUS[0]}}", cwd=data.parent)
        assert (gone.stdout.strip(), gone.stderr) in [("0", ""), ("141", "")], words
    codes = process(shell="geoskip files data x; echo $?; geoskip files --nope; echo $?", cwd=data.parent)
    assert codes.stdout.split() == ["1", "2"]
    assert "Traceback" not in codes.stderr


@pytest.mark.slow
def test_help_and_version_import_nothing_that_is_slow() -> None:
    code = "import sys; sys.argv[1:] = {}; from geoskip.__main__ import main\ntry: main()\nexcept SystemExit: pass\n"
    code += "print(*sorted({{'pyspark', 'numpy', 'pyarrow', 'shapely', 'sqlglot', 'pandas'}} & set(sys.modules)), '!')"
    for words in (["--help"], ["index", "--help"], ["--version"]):
        done = subprocess.run([sys.executable, "-c", code.format(words)], capture_output=True, text=True, timeout=60)
        assert done.stdout.splitlines()[-1] == "!", done


def test_every_command_has_examples_and_the_help_the_exit_codes() -> None:
    text = printed("--help")
    for code in ("0    done", "1    an error", "2    a missing", "3    verify or doctor", "130", "141"):
        assert code in text
    for command in application.app.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "")
        assert command.help, name
        assert name == "mappings" or f"geoskip {name} " in (command.epilog or "") + " ", name


@pytest.mark.usefixtures("data", "without_spark")
def test_the_doctor_says_what_is_missing_and_what_to_do(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = as_json("doctor", "data")
    lines = {each["subject"]: each for each in found["findings"]}
    assert found["ok"]
    assert (lines["Spark"]["state"], "pip install 'geoskip[spark]'" in lines["Spark"]["way_out"]) == ("warn", True)
    assert (lines["metadata"]["state"], lines["permissions"]["state"]) == ("warn", "ok")
    printed("index", "data", "--minmax", "temp")
    pq.write_table(pa.table({"temp": [7]}), data / "9.parquet")
    shown = printed("doctor", "data")
    assert "ok    metadata: " in shown
    assert "warn  files: 1 file new or changed, 0 gone since snapshot 1; geoskip refresh data" in shown
    (data / "_geoskip" / "_identity.json").write_text("{")
    done = ran("doctor", "data")
    assert done.exit_code == 3
    assert "fail  dataset: " in done.stdout
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 5 << 20}))
    assert "warn  temporary files: " in ran("doctor").stdout


@pytest.mark.slow
def test_a_table_is_aligned_in_a_pipe_and_ruled_on_a_terminal(data: Path) -> None:
    geoskip.build(data, geoskip.MinMax("temp"))
    line = f"{sys.executable} -m geoskip describe data"
    on_terminal = process(shell=f"script -qec {json.dumps(line)} /dev/null", cwd=data.parent)
    assert "──" in on_terminal.stdout
    assert max(len(row) for row in on_terminal.stdout.splitlines() if "──" in row or "minmax" in row) <= 80
    assert "──" not in process("describe", "data", cwd=data.parent).stdout
