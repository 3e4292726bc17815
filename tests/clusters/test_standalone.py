"""geoskip on a standalone cluster: workers without it, and with it by each way of bringing it there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import Formatted, GeoBox, MetricDist, MinMax
from geoskip.errors import EnvironmentProblem
from geoskip.spark import local_session
from tests.support import cluster_life
from tests.support.cluster import SPARK_HOME, jobs_of, packed_environment, python_with, session_on, zip_of_geoskip
from tests.support.cluster_life import (
    AGENTS,
    DISTANCES,
    GEOMETRIES,
    OWN,
    OWN_AGENTS,
    PLAIN,
    four_files,
    kept,
    live,
    write,
)
from tests.support.commands import as_json, printed
from tests.support.dataset_life import whole_life

ALL = PLAIN | GEOMETRIES | DISTANCES | AGENTS
ROOT = Path(__file__).parents[2]
(NEAR,) = GEOMETRIES.values()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return four_files(tmp_path)


@pytest.fixture
def own_extractors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the user's own, which the driver alone has."""
    place = tmp_path / "modules"
    place.mkdir()
    (place / "own_extractors.py").write_text(OWN)
    monkeypatch.syspath_prepend(place)
    monkeypatch.delitem(sys.modules, "own_extractors", raising=False)
    import own_extractors

    return own_extractors


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_with(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="module")
def with_arrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    packages = ("numpy", "pyarrow", "pandas", "python-dateutil", "pytz", "tzdata")
    return python_with(tmp_path_factory.mktemp("arrow") / "venv", packages)


def test_workers_with_nothing(cluster: str, data: Path, bare: Path, own_extractors: Any, tmp_path: Path) -> None:
    with session_on(cluster, bare) as spark:
        handle = geoskip.dataset(spark, str(data))
        found, jobs = jobs_of(spark, lambda: handle.create_index(*PLAIN, *GEOMETRIES, *DISTANCES))
        assert isinstance(found, EnvironmentProblem)
        assert jobs == 1, "the probe"
        refused = r"geobox\(lng, lat\), metricdist\(word, metric=levenshtein\) cannot be built on this cluster: "
        lacks = r".* lacks geoskip \S+, numpy \S+, pyarrow \S+, rapidfuzz \S+ and shapely \S+\. geoskip\.worker_archive"
        assert re.match(refused + lacks, str(found))
        found, jobs = jobs_of(spark, lambda: handle.create_index(*GEOMETRIES, *DISTANCES))
        assert isinstance(found, EnvironmentProblem)
        assert jobs == 0, "the answer is remembered"

        spark.udf.register("own_family", own_extractors.own_family, "string")
        found, jobs = jobs_of(spark, lambda: handle.create_index(*OWN_AGENTS))
        assert re.match(
            r"formatted\(agent, extract=own_family\) cannot be built on this cluster: .* lacks geoskip \S+, numpy \S+, "
            r"own_extractors and pyarrow \S+\. geoskip\.worker_archive\(\) .*; own_extractors is no installed package: "
            r"send .* by spark\.submit\.pyFiles",
            str(found),
        ), found
        assert jobs == 1, "the probe, of what was not probed yet"

        assert live(spark, data, PLAIN) == {"spark sql"}
        assert {*whole_life(spark, f"{tmp_path}/life", tmp_path).readers.values()} == {"spark sql"}
        fail = (
            r"queries that call ST_Area, ST_AsBinary, ST_AsText and \d+ more functions, .* will fail on this cluster: "
        )
        with pytest.warns(UserWarning, match=f"{fail}.* lacks .*pandas.*pyproj.*udf_mappings. geoskip.worker_archive"):
            _, jobs = jobs_of(spark, lambda: geoskip.register_functions(spark, sedona=False))
        assert jobs == 1, "the probe, of what was not probed yet"


def test_indexes_of_others_on_workers_with_nothing(cluster: str, data: Path, bare: Path) -> None:
    geoskip.build(str(data), [MinMax("a"), *GEOMETRIES])
    write(data, 4)
    with session_on(cluster, bare) as spark:
        handle = geoskip.dataset(spark, str(data))
        assert kept(spark, data, "lng > 25 AND lat < 1 AND lng < 45 AND lat > 0 AND a < 40") == 1 + 1, "the new one too"
        refused = r"geobox\(lng, lat\) cannot be .* lacks geoskip .* and shapely \S+\. geoskip\.worker_archive\(\)"
        for verb in (handle.refresh_index, handle.verify):
            with pytest.raises(EnvironmentProblem, match=f"^{refused}"):
                verb()
        with pytest.warns(UserWarning, match=f"the rows are in .* and are not indexed: {refused}"):
            handle.append(handle.to_df().where("a = 33").coalesce(1))
        assert kept(spark, data, "a = 15") == 1 + 2, "and both new ones"
        handle.delete_index(*GEOMETRIES)
        assert handle.refresh_index().read == 2
        assert kept(spark, data, "a = 15") == 1


@pytest.mark.parametrize("way", ["spark-submit --py-files", "spark.submit.pyFiles"])
def test_geoskip_by_py_files(cluster: str, data: Path, with_arrow: Path, tmp_path: Path, way: str) -> None:
    own = tmp_path / "own_extractors.py"
    own.write_text(OWN)
    archive = zip_of_geoskip(tmp_path / "geoskip.zip", own)
    job = [cluster_life.__file__, cluster, data]
    if way == "spark-submit --py-files":
        command = [SPARK_HOME / "bin" / "spark-submit", "--master", cluster, "--py-files", archive, *job]
    else:
        command = [sys.executable, *job, f"spark.submit.pyFiles={archive}"]
    pythons = {"PYSPARK_PYTHON": str(with_arrow), "PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", **pythons}
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert ("geoskip.zip" in answer["geoskip"]) == (way == "spark-submit --py-files"), "the driver has it from there"
    assert "spark sql" not in answer["readers"]


def test_files_that_are_sent_later(cluster: str, data: Path, with_arrow: Path, tmp_path: Path) -> None:
    with session_on(cluster, with_arrow) as spark:
        handle = geoskip.dataset(spark, str(data))
        spark.udf.register("initial", lambda word: word[:1], "string")
        initial = Formatted("word", extract="initial")
        with pytest.raises(EnvironmentProblem, match=r"^formatted.* lacks geoskip \S+\. geo"):
            handle.create_index(initial)
        spark.sparkContext.addPyFile(str(zip_of_geoskip(tmp_path / "geoskip.zip")))
        live(spark, data, PLAIN | {initial: "initial(word) = 'b'"})
        with pytest.raises(EnvironmentProblem, match=r"^metricdist.* lacks rapidfuzz [\d.]+ and shapely [\d.]+\. geo"):
            handle.create_index(MetricDist("word", metric="levenshtein"))


def by_worker_archive(folder: Path) -> tuple[str, dict[str, str]]:
    archive = geoskip.worker_archive(folder / "workers.tar.gz")
    return str(python_with(folder / "venv")), archive.config


def by_venv_pack(folder: Path) -> tuple[str, dict[str, str]]:
    return "./env/bin/python", {"spark.archives": f"{packed_environment(folder)}#env"}


def installed(_: Path) -> tuple[str, dict[str, str]]:
    return sys.executable, {}


@pytest.mark.parametrize("way", [by_worker_archive, by_venv_pack, installed])
def test_workers_with_all(
    cluster: str, data: Path, tmp_path: Path, way: Callable[[Path], tuple[str, dict[str, str]]]
) -> None:
    python, config = way(tmp_path)
    with session_on(cluster, python, config) as spark:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            geoskip.register_functions(spark, sedona=False)
        assert "spark sql" not in live(spark, data, ALL)
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
