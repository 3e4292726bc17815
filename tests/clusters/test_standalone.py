"""geoskip on a standalone cluster: workers without it, and with it by each way of bringing it there."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import Formatted, GeoBox, Index, MetricDist, MinMax, ValueList
from geoskip.errors import EnvironmentProblem
from geoskip.spark import local_session
from tests.conftest import same_as_off
from tests.support.cluster import PATIENCE, jobs_of, python_with, session_on, zip_of_geoskip
from tests.support.commands import as_json, printed
from tests.support.dataset_life import whole_life

ALL: tuple[Index, ...] = (
    MinMax("a"),
    ValueList("word"),
    GeoBox("lng", "lat"),
    MetricDist("word", metric="levenshtein"),
    Formatted("agent", extract="agent_family"),
)
NEAR = "ST_DistanceSphere(ST_Point(lng, lat), ST_Point(0.0, 0.0)) < 100000"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Four files, in which every index of ``ALL`` can skip."""
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(4):
        write(folder, number)
    return folder


def write(folder: Path, number: int) -> None:
    browser = ("Firefox/128.0", "Chrome/126.0.0.0 Safari/537.36")[number % 2]
    rows = {
        "a": [*range(10 * number, 10 * number + 10)],
        "word": [f"{'abcdefgh'[number] * 9}{row}" for row in range(10)],
        "lng": [20.0 * number + row / 10 for row in range(10)],
        "lat": [row / 10 for row in range(10)],
        "agent": [f"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 {browser}"] * 10,
    }
    pq.write_table(pa.table(rows), folder / f"{number}.parquet")


def kept(spark: Any, data: Path, where: str) -> int:
    """How many files a query reads, whose rows are those with geoskip off."""
    return same_as_off(lambda: spark.read.parquet(str(data)).where(where)).files_kept


def everything(spark: Any, data: Path) -> None:
    """Build and use indexes of all kinds, Python functions in the build and in queries among them."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        geoskip.register_functions(spark, sedona=False)
    handle = geoskip.dataset(spark, str(data))
    handle.create_index(*ALL)
    assert kept(spark, data, "levenshtein(word, 'aaaaaaaaa1') <= 1") == 1
    assert kept(spark, data, NEAR) == 1
    assert kept(spark, data, "agent_family(agent) = 'Firefox'") == 2
    spark.conf.set("spark.geoskip.audit", "1.0")
    spark.read.parquet(str(data)).where("agent_family(agent) = 'Chrome' AND a = 15").collect()
    assert geoskip.wait_for_audits(spark, PATIENCE)
    (scan,) = geoskip.last_report(spark).scans
    assert (scan.files_kept, scan.files_audited, scan.lost) == (1, 3, ())
    spark.conf.set("spark.geoskip.audit", "0")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_with(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="module")
def with_arrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    packages = ("numpy", "pyarrow", "pandas", "python-dateutil", "pytz", "tzdata")
    return python_with(tmp_path_factory.mktemp("arrow") / "venv", packages)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return geoskip.worker_archive(tmp_path_factory.mktemp("archive") / "workers.tar.gz")


def test_workers_with_nothing(cluster: str, data: Path, bare: Path, tmp_path: Path) -> None:
    with session_on(cluster, bare) as spark:
        handle = geoskip.dataset(spark, str(data))
        found, jobs = jobs_of(spark, lambda: handle.create_index(MinMax("a"), *ALL[2:4]))
        assert isinstance(found, EnvironmentProblem)
        assert jobs == 1, "the probe"
        refused = r"geobox\(lng, lat\), metricdist\(word, metric=levenshtein\) cannot be built on this cluster: "
        lacks = r".* lacks geoskip \S+, numpy \S+, pyarrow \S+, rapidfuzz \S+ and shapely \S+\. geoskip\.worker_archive"
        assert re.match(refused + lacks, str(found))
        _, jobs = jobs_of(spark, lambda: handle.create_index(*ALL[2:4]))
        assert jobs == 0, "the answer is remembered"
        assert {*whole_life(spark, f"{tmp_path}/life", tmp_path).readers.values()} == {"spark sql"}
        fail = (
            r"queries that call ST_Area, ST_AsBinary, ST_AsText and \d+ more functions, .* will fail on this cluster: "
        )
        with pytest.warns(UserWarning, match=f"{fail}.* lacks .*pandas.*pyproj.*udf_mappings. geoskip.worker_archive"):
            _, jobs = jobs_of(spark, lambda: geoskip.register_functions(spark, sedona=False))
        assert jobs == 1, "the probe, of what was not probed yet"


def test_geoskip_by_py_files(cluster: str, data: Path, with_arrow: Path, tmp_path: Path) -> None:
    with session_on(cluster, with_arrow) as spark:
        spark.sparkContext.addPyFile(str(zip_of_geoskip(tmp_path / "geoskip.zip")))
        assert "arrow" in whole_life(spark, f"{tmp_path}/life", tmp_path).readers.values()
        handle = geoskip.dataset(spark, str(data))
        spark.udf.register("initial", lambda word: word[:1], "string")
        handle.create_index(Formatted("word", extract="initial"))
        assert kept(spark, data, "initial(word) = 'b'") == 1
        with pytest.raises(EnvironmentProblem, match=r"^metricdist.* lacks rapidfuzz [\d.]+ and shapely [\d.]+\. geo"):
            handle.create_index(MetricDist("word", metric="levenshtein"))


def test_geoskip_by_an_archive(cluster: str, data: Path, bare: Path, archive: Any) -> None:
    with session_on(cluster, bare, archive.config) as spark:
        everything(spark, data)


def test_geoskip_installed(cluster: str, data: Path, tmp_path: Path) -> None:
    with session_on(cluster, sys.executable) as spark:
        everything(spark, data)
        assert "arrow" in whole_life(spark, f"{tmp_path}/life", tmp_path).readers.values()


def test_a_python_that_is_not_there(cluster: str, data: Path) -> None:
    with session_on(cluster, "/no/such/python") as spark:
        handle = geoskip.dataset(spark, str(data))
        with pytest.raises(EnvironmentProblem, match=r"^geobox.*the workers have no /no/such/python: let"):
            handle.create_index(GeoBox("lng", "lat"))
        handle.create_index(MinMax("a"))
        assert kept(spark, data, "a = 15") == 1
        with pytest.warns(
            UserWarning, match=r"fail on this cluster: the workers have no /no/such/python: .*there\. All"
        ):
            geoskip.register_functions(spark, sedona=False)


def test_commands(cluster: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    masters = []

    def recorded(*arguments: Any, **settings: Any) -> Any:
        spark = geoskip.session(*arguments, **settings)
        masters.append(spark.sparkContext.master)
        return spark

    monkeypatch.setattr(local_session, "session", recorded)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    options = ["--master", cluster]
    for conf in ("driver.host=127.0.0.1", "driver.memory=1g", "executor.memory=512m", "geoskip.planning.budget=120"):
        options += ["--conf", f"spark.{conf}"]
    indexes = ["--minmax", "a", "--minmax", "length(word)", "--geobox", "lng,lat"]
    built = as_json("index", data, *indexes, *options)
    assert (built["read"], built["excluded"]) == (4, {})
    write(data, 4)
    assert as_json("refresh", data, *options)["read"] == 1
    assert as_json("verify", data, *options)["ok"]
    explained = as_json("explain", data, "WHERE a = 15 AND length(word) = 10", *options)
    assert [Path(file).name for file in explained["files"]] == ["1.parquet"]
    assert "read 1 of 5 files" in printed("report", data, NEAR, *options)
    assert masters == [cluster] * 5
