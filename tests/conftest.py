"""One Spark session a test run, and the comparison that every test through Spark makes: on against off."""

from __future__ import annotations

import gc
import os
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings

# The ordinary run is the same twice, and short: what random examples find is for make soak, which draws others each
# time, and more. Neither minds a machine that stands still while values are drawn.
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", derandomize=True, max_examples=30, **PATIENT)
settings.register_profile("other", **PATIENT)
settings.load_profile(os.environ.get("GEOSKIP_EXAMPLES", "same"))
SOAK = os.environ.get("GEOSKIP_EXAMPLES") == "other"

CONFIG = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
    # many small queries: the second compiler would take half of the processor time, and without it Java has no more
    # than 48 MB for compiled code, which half of the run fills; garbage is young, and no class is unloaded
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC "
    "-Xms1g -Xmn512m -XX:MetaspaceSize=512m -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
    # Hadoop's configuration is copied for each job and read by each task: no defaults of YARN and MapReduce are in it
    "spark.driver.extraClassPath": str(Path(__file__).parent / "support" / "hadoop"),
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ui.explainMode": "simple",  # of a listener that nobody asks
    "spark.broadcast.compress": "false",
    "spark.python.daemon.module": "tests.support.daemon",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # else a task a folder
    "spark.geoskip.planning.budget": "120",  # a machine that stands still for a while keeps no more files
}
if not SOAK:  # rows are few: to compile each query's code would take longer than to interpret its expressions
    CONFIG |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
SEDONA_LINES = ("3.5", "4.0")
DELTA = {"4.0": "io.delta:delta-spark_2.13:4.0.1"}
DELTA_CONFIG = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


JVM_FIXTURES = {"spark", "plain", "search_server"}


def pytest_configure() -> None:
    """Stop if mappings of modules that have moved would be loaded."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for group, stated in project["entry-points"].items():
        if {point.name: point.value for point in entry_points(group=group)} != stated:
            pytest.exit(f"the installed {group} are not those of pyproject.toml: pip install --no-deps -e .", 4)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a JVM, so that the rest can run in parallel: ``make test-core``."""
    for item in items:
        if item.get_closest_marker("spark") or not JVM_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.jvm)


def pytest_collection_finish() -> None:
    """Keep what collection made out of the garbage collector's rounds, which are the rarer the more is allocated."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


SAID = pytest.StashKey[list[str]]()


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes lines that the run prints at its end, such as what share of random queries skipped."""
    return request.config.stash.setdefault(SAID, []).append


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what tests had to say."""
    if lines := config.stash.get(SAID, []):
        terminalreporter.section("not vacuous: leaf shapes that skip (+), plain and negated; random queries that do")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(autouse=True, scope="session")
def unflushed() -> Iterator[None]:
    """No test pulls the plug: files are left to the kernel. A test of the local folder says what is flushed when."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """check_mapping's seconds are those of the processor: a machine that stands still finds no less."""
    for module in ("", ".search"):
        clock = SimpleNamespace(monotonic=time.process_time)
        monkeypatch.setattr(import_module(f"geoskip.checking{module}"), "time", clock)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session of the run: geoskip enabled, the jars of Sedona and Delta where they are released for this Spark."""
    import pyspark

    import geoskip
    from tests.support.java_names import remember_java_names

    os.environ["PYSPARK_PYTHON"] = sys.executable
    place = tmp_path_factory.mktemp("warehouse")
    config = {**CONFIG, "spark.sql.warehouse.dir": str(place / "tables")}
    if delta := delta_package():
        config |= {**DELTA_CONFIG, "spark.jars.packages": delta}
    with pytest.MonkeyPatch.context() as patch:
        remember_java_names(patch)
        found = geoskip.session("geoskip-tests", sedona=_has_sedona(pyspark.__version__) or None, config=config)
        found.sparkContext.setLogLevel("ERROR")
        yield found
        found.stop()


def delta_package() -> str | None:
    """The Maven coordinates of Delta for the installed PySpark, None where the tests know of none."""
    import pyspark

    return next((package for line, package in DELTA.items() if pyspark.__version__.startswith(line)), None)


def _has_sedona(version: str) -> bool:
    return version.startswith(SEDONA_LINES)


@pytest.fixture(scope="session")
def plain(spark: Any) -> Any:
    """A session beside it with the shapely-backed functions, whether or not Sedona's jar is there."""
    import geoskip

    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "UTC")
    other.conf.set("spark.sql.shuffle.partitions", "2")
    geoskip.enable(other)
    geoskip.register_functions(other, sedona=False)
    return other


@pytest.fixture(scope="session", params=["opensearch", "elasticsearch"])
def search_server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A real search server; first all tests run on the one, then on the other."""
    from tests.support.servers import SearchServer

    with SearchServer(request.param) as server:
        yield server


@pytest.fixture
def parts(tmp_path: Path) -> Callable[..., Path]:
    """Writes one Parquet file a table: ``parts({"a": [1, 2]}, {"a": [3]})`` gives the directory."""

    def write(*tables: dict[str, list[Any]] | pa.Table, name: str = "data") -> Path:
        place = tmp_path / name
        place.mkdir(exist_ok=True)
        for number, table in enumerate(tables):
            arrow = table if isinstance(table, pa.Table) else pa.table(table)
            pq.write_table(arrow, place / f"part-{number:05d}.parquet")
        return place

    return write


def four_tens(root: Path) -> Path:
    """Four files in a new folder ``data``, with ``temp`` and ``id`` 0..9, 10..19, 20..29 and 30..39."""
    place = root / "data"
    place.mkdir()
    for number in range(4):
        temps = list(range(10 * number, 10 * number + 10))
        columns = {"temp": temps, "id": temps, "city": [f"c{t % 3}" for t in temps], "pad": ["x" * t for t in temps]}
        pq.write_table(pa.table(columns), place / f"part-{number}.parquet")
    return place


def rows_of(frame: Any) -> list[str]:
    """The rows of a DataFrame in an order of their own, comparable whatever is in them."""
    return sorted(repr(row) for row in frame.collect())


def same_as_off(make: Callable[[], Any]) -> Any:
    """Runs ``make()`` with geoskip off and on, checks that the rows are equal and returns the report of the run.

    The report's totals are checked against the metrics of the scans that were executed.
    """
    import geoskip

    frame = make()  # planned when it is collected
    with geoskip.disabled(frame.sparkSession):
        off = rows_of(frame.select("*"))  # planned anew, over the same listing
    on = rows_of(frame)
    assert on == off
    report = geoskip.report(frame)
    assert report.files_kept == executed_files(frame)
    return report


def files_kept(frame: Any, conditions: Iterable[str], *, every: int = 4) -> dict[str, int]:
    """How many files ``frame.where(condition)`` reads for each condition, its rows the same as with geoskip off.

    With geoskip off one job answers all conditions, as columns beside the rows. No filter is pushed into the files'
    readers meanwhile, where some lose NaN, -0.0 and what is no UTF-8 by themselves. With geoskip on one of ``every``
    conditions is run, and all in ``make soak``; of the others, the plan has to keep each file with a row that matches.
    Tables that hide the column of Spark's with the files' names, or encode characters there, have all of them run.
    """
    import geoskip

    conditions, found, every = list(conditions), {}, 1 if SOAK else every
    with without_pushdown(frame.sparkSession):
        with geoskip.disabled(frame.sparkSession):
            path = "_metadata.file_path" if every > 1 else "NULL"
            rows = frame.selectExpr("struct(*)", path, *conditions).collect()
        for place, condition in enumerate(conditions):
            asked = frame.where(condition)
            matching = [row for row in rows if row[place + 2]]
            if place % every == 0:
                assert rows_of(asked) == sorted(repr(row[0]) for row in matching), condition
                report = geoskip.report(asked)
                assert report.files_kept == executed_files(asked), condition
            else:
                report = geoskip.explain(asked)
                files = {_plain(file) for scan in report.scans for file in scan.kept_files()}  # Spark may need no scan
                assert {_plain(row[1]) for row in matching} <= files, condition
            found[condition] = report.files_kept
    return found


def _plain(path: str) -> str:
    """A file's path without a scheme, and with no character encoded."""
    return "/" + unquote(path.partition(":")[2] or path).lstrip("/")


@contextmanager
def without_pushdown(session: Any) -> Iterator[None]:
    """A block in which Spark's readers of files know nothing of the query's filters."""
    names = [f"spark.sql.{name}.filterPushdown" for name in ("parquet", "orc")]
    before = [session.conf.get(name) for name in names]
    for name in names:
        session.conf.set(name, "false")
    try:
        yield
    finally:
        for name, value in zip(names, before, strict=True):
            session.conf.set(name, value)


def kept(report: Any) -> str:
    """The stems of the files that the first scan reads, in order."""
    return " ".join(sorted(Path(path).stem for path in report.scans[0].kept_files()))


def holding_files(frame: Any, conditions: list[str]) -> dict[str, list[str]]:
    """The files with a row that makes each condition TRUE, by one job with geoskip off."""
    import geoskip

    own = [f"{text} AS q{number}" for number, text in enumerate(conditions)]  # in the frame's session and its zone
    with geoskip.disabled(frame.sparkSession):
        values = frame.selectExpr("_metadata.file_name AS file", *own)
        rows = values.groupBy("file").agg({f"q{number}": "max" for number in range(len(conditions))}).collect()
    rows = sorted(rows, key=lambda row: row[0])
    return {text: [Path(row[0]).stem for row in rows if row[f"max(q{n})"]] for n, text in enumerate(conditions)}


def executed_files(frame: Any) -> int:
    """The files that the executed scans of a DataFrame read, by Spark's own metrics."""
    plan = frame._jdf.queryExecution().executedPlan()
    return sum(_files_of(plan))


def _files_of(plan: Any) -> Iterator[int]:
    name = plan.getClass().getSimpleName()
    if name == "AdaptiveSparkPlanExec":
        yield from _files_of(plan.executedPlan())
        return
    if name.endswith("QueryStageExec"):
        yield from _files_of(plan.plan())
        return
    if name == "ReusedExchangeExec":
        return
    if name == "FileSourceScanExec":
        yield int(plan.metrics().apply("numFiles").value())
    if name == "InMemoryTableScanExec":
        yield from _files_of(plan.relation().cachedPlan())
    for children in (plan.subqueries(), plan.children()):
        for number in range(children.size()):
            yield from _files_of(children.apply(number))
