"""Packages that the tasks of a build import in a worker, which has no more than those."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from geoskip import BloomFilter, Formatted, GapList, GeoBox, Hybrid, MetricDist, MinMax, Prefix, Suffix, ValueList
from geoskip.indexes.base import Index
from geoskip.predicates import Column
from geoskip.sources.footers import IndexPlan
from geoskip.sources.worker_tasks import ExpressionPlan, expanding_task, read_shares, reading_task, summarising_task
from geoskip.spark import workers
from geoskip.spark.worker_archive import distributions_for_workers
from geoskip.spark.workers import lack_of_functions, packages_of, way_out, worker_problem

PLAIN = [MinMax("s"), GapList("s"), ValueList("s"), BloomFilter("s"), Hybrid("s"), Prefix("s"), Suffix("s")]
UNPICKLE = """
import pickle, sys
import pyspark.cloudpickle
pickle.load(sys.stdin.buffer)
found = {name.partition(".")[0] for name in sys.modules}
print(*sorted(found - {"psutil", "py4j", "pyspark"} - set(sys.stdlib_module_names)))
"""


def tasks(*indexes: Index) -> list[Any]:
    """All kinds of tasks, which have these indexes to build."""
    columns = (("s", "string"),)
    bound = [index.bind([Column("s", "string") for _ in index.expressions()]) for index in indexes]
    plans = [IndexPlan(str(index), index, columns) for index in bound]
    plan = ExpressionPlan(tuple(plans), columns, (("upper(s)", 0),), tuple((str(each), each, (0,)) for each in bound))
    return [
        partial(read_shares, plans, False),
        summarising_task([(index, (0,)) for index in bound], 1, str),
        reading_task([], plan, [pa.string()], False),
        expanding_task(plan),
    ]


def imported(task: Any) -> set[str]:
    """Packages that a fresh Python imports to unpickle a task, beside PySpark with what it uses."""
    done = subprocess.run(
        [sys.executable, "-c", UNPICKLE], input=cloudpickle.dumps(task), capture_output=True, check=True
    )
    return {name for name in done.stdout.decode().split() if not name.startswith(("_", "cython"))}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("indexes", "packages"),
    [
        ((*PLAIN, Formatted("s", extract="upper")), {"geoskip", "numpy", "pyarrow"}),
        ((GeoBox("s"),), {"geoskip", "numpy", "pyarrow", "shapely"}),
        ((MetricDist("s", metric="levenshtein"),), {"geoskip", "numpy", "pyarrow", "shapely", "rapidfuzz"}),
    ],
    ids=["plain indexes", "geobox", "metricdist"],
)
def test_workers_import_what_the_index_at_hand_needs(indexes: Sequence[Index], packages: set[str]) -> None:
    some = tasks(*indexes)
    assert imported(some) == packages
    assert packages_of(some) == packages


def test_an_archive_holds_what_tasks_and_functions_import() -> None:
    names = {each.metadata["Name"].lower() for each in distributions_for_workers()}
    assert names >= {"numpy", "pyarrow", "shapely", "rapidfuzz", "pyproj", "pandas", "h3", "ua-parser"}
    assert not names & {"geoskip", "pyspark", "py4j", "rich"}, "geoskip's own files are added, and PySpark is Spark's"


def test_no_worker_is_probed_where_spark_is_local() -> None:
    local: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))
    assert lack_of_functions(local, {"f": None}) is None


@pytest.mark.parametrize("error", [TimeoutError(), Py4JError(), PySparkException("no worker")])
def test_functions_are_registered_where_the_workers_cannot_be_asked(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(*_: Any) -> None:
        raise error

    monkeypatch.setattr(workers, "worker_python", probe)
    cluster: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://one:7077"))
    assert lack_of_functions(cluster, {"f": SimpleNamespace(func=len, evalType=100)}) is None


@pytest.mark.parametrize(
    ("lacking", "advice"),
    [
        (["geoskip", "numpy", "ua_parser"], r"geoskip\.worker_archive\(\) .*: pip install 'geoskip==[^']+'$"),
        (["numpy", "hypothesis"], r".*\(packages=\['hypothesis'\]\) .*: pip install 'geoskip==[^']+' hypothesis$"),
        (["own"], r"own is no installed package: send the \.py file, .* by spark\.submit\.pyFiles"),
        (["geoskip", "mine", "yours"], r"geoskip\.worker_archive\(\) .*; mine and yours are no installed packages: "),
    ],
)
def test_the_way_out_brings_all_that_is_lacking(lacking: list[str], advice: str) -> None:
    assert re.match(advice, way_out(lacking))


@pytest.mark.parametrize(
    ("module", "advice"),
    [
        ("shapely.geometry", "lack the package shapely.geometry; set PYSPARK_PYTHON to the Python of this driver"),
        ("geoskip.indexes", "lack the package geoskip.indexes; set PYSPARK_PYTHON"),
        ("own.index", "lack the package own.index; own is no installed package: send the .py file, "),
    ],
)
def test_a_module_that_a_session_of_this_machine_lacks(module: str, advice: str) -> None:
    problem = worker_problem(RuntimeError(f"ModuleNotFoundError: No module named '{module}'"))
    assert f"the session's Python workers {advice}" in str(problem)
