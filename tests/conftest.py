"""One Spark session for a test run, and the comparison of every Spark test: geoskip on against off."""

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

# The ordinary run is short and deterministic; make soak searches with more random examples, different each time.
# Neither has a deadline, since a machine may pause while values are drawn.
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
    # with many small queries the second compiler would take half of the processor time; without it Java limits compiled
    # code to 48 MB, which half of a run fills; garbage is short-lived, and no class is unloaded
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC "
    "-Xms1g -Xmn512m -XX:MetaspaceSize=512m -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
    # Hadoop's configuration is copied for each job and parsed by each task, so this one has no defaults of YARN and
    # MapReduce
    "spark.driver.extraClassPath": str(Path(__file__).parent / "support" / "hadoop"),
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ui.explainMode": "simple",  # for a listener that nothing here uses
    "spark.broadcast.compress": "false",
    "spark.python.daemon.module": "tests.support.daemon",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # by default one task for each folder
    "spark.geoskip.planning.budget": "120",  # so that a pause of the machine keeps no more files
}
if not SOAK:  # with few rows, compiling a query's code takes longer than interpreting its expressions
    CONFIG |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
SEDONA_LINES = ("3.5", "4.0")
DELTA = {"4.0": "io.delta:delta-spark_2.13:4.0.1"}
DELTA_CONFIG = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


JVM_FIXTURES = {"spark", "plain", "search_server"}


def pytest_configure() -> None:
    """Stop if the installed entry points differ from pyproject.toml, as after moving a module."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for group, stated in project["entry-points"].items():
        if {point.name: point.value for point in entry_points(group=group)} != stated:
            pytest.exit(f"the installed {group} are not those of pyproject.toml: pip install --no-deps -e .", 4)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a JVM, so that the others can run in parallel: ``make test-core``."""
    for item in items:
        if item.get_closest_marker("spark") or not JVM_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.jvm)


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


SAID = pytest.StashKey[list[str]]()


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Function that takes lines to print at the end of the run, such as the share of queries that skipped."""
    return request.config.stash.setdefault(SAID, []).append


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the lines that tests have passed to ``say``."""
    if lines := config.stash.get(SAID, []):
        terminalreporter.section("not vacuous: leaf shapes that skip (+), plain and negated; random queries that do")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(autouse=True, scope="session")
def unflushed() -> Iterator[None]:
    """Disable fsync, since no test simulates a power failure; the local folder's tests check flushes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the seconds of check_mapping in processor time, so that a paused machine finds no less."""
    for module in ("", ".search"):
        clock = SimpleNamespace(monotonic=time.process_time)
        monkeypatch.setattr(import_module(f"geoskip.checking{module}"), "time", clock)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session of the run: geoskip enabled, with the jars of Sedona and Delta if there are any."""
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
    """The Maven coordinates of Delta for the installed PySpark, or None."""
    import pyspark

    return next((package for line, package in DELTA.items() if pyspark.__version__.startswith(line)), None)


def _has_sedona(version: str) -> bool:
    return version.startswith(SEDONA_LINES)


@pytest.fixture(scope="session")
def plain(spark: Any) -> Any:
    """A second session with the shapely-backed functions, whether or not Sedona's jar is present."""
    import geoskip

    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "UTC")
    other.conf.set("spark.sql.shuffle.partitions", "2")
    geoskip.enable(other)
    geoskip.register_functions(other, sedona=False)
    return other


@pytest.fixture(scope="session", params=["opensearch", "elasticsearch"])
def search_server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A real search server; all tests run on OpenSearch first, then on Elasticsearch."""
    from tests.support.servers import SearchServer

    with SearchServer(request.param) as server:
        yield server


@pytest.fixture
def parts(tmp_path: Path) -> Callable[..., Path]:
    """Write one Parquet file for each table: ``parts({"a": [1, 2]}, {"a": [3]})`` returns the folder."""

    def write(*tables: dict[str, list[Any]] | pa.Table, name: str = "data") -> Path:
        place = tmp_path / name
        place.mkdir(exist_ok=True)
        for number, table in enumerate(tables):
            arrow = table if isinstance(table, pa.Table) else pa.table(table)
            pq.write_table(arrow, place / f"part-{number:05d}.parquet")
        return place

    return write


def four_tens(root: Path) -> Path:
    """Create four files in a folder ``data``, with ``temp`` and ``id`` 0..9, 10..19, 20..29 and 30..39."""
    place = root / "data"
    place.mkdir()
    for number in range(4):
        temps = list(range(10 * number, 10 * number + 10))
        columns = {"temp": temps, "id": temps, "city": [f"c{t % 3}" for t in temps], "pad": ["x" * t for t in temps]}
        pq.write_table(pa.table(columns), place / f"part-{number}.parquet")
    return place


def view_of_tens(session: Any, root: Path) -> Path:
    """Create the view ``t`` over the files of :func:`four_tens`, with MinMax of ``temp``; return their folder."""
    import geoskip

    place = four_tens(root)
    geoskip.dataset(session, str(place)).create_index(geoskip.MinMax("temp"))
    session.read.parquet(str(place)).createOrReplaceTempView("t")
    return place


def rows_of(frame: Any) -> list[str]:
    """The rows of a DataFrame as sorted texts, so that any values can be compared."""
    return sorted(repr(row) for row in frame.collect())


def same_as_off(make: Callable[[], Any]) -> Any:
    """Run ``make()`` with geoskip off and on, check that rows are equal, and return the run's report.

    The report's totals are checked against the metrics of the scans that were executed.
    """
    import geoskip

    frame = make()  # planned on collect
    with geoskip.disabled(frame.sparkSession):
        off = rows_of(frame.select("*"))  # a new plan over the same listing
    on = rows_of(frame)
    assert on == off
    report = geoskip.report(frame)
    assert report.files_kept == executed_files(frame)
    return report


def kept_of_all(make: Callable[[], Any]) -> tuple[int, int]:
    """Count the files that ``make()`` reads and all its files, as :func:`same_as_off` checks them."""
    report = same_as_off(make)
    return report.files_kept, report.files_total


def files_kept(frame: Any, conditions: Iterable[str], *, every: int = 4) -> dict[str, int]:
    """Count the files that ``frame.where(condition)`` reads, checking its rows against geoskip off.

    With geoskip off one job evaluates all conditions, as columns beside the rows. Filter pushdown is disabled
    meanwhile, since some readers of files lose NaN, -0.0 and invalid UTF-8. With geoskip on one of ``every`` conditions
    is run, and all in ``make soak``; for the others, the plan must keep each file with a matching row. If a table hides
    Spark's column of file names, or encodes characters in it, use ``every=1``.
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
    """A file's path without a scheme and percent-encoding."""
    return "/" + unquote(path.partition(":")[2] or path).lstrip("/")


@contextmanager
def without_pushdown(session: Any) -> Iterator[None]:
    """Disable filter pushdown into Spark's file readers within a block."""
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
    """The stems of the files that the first scan reads, sorted."""
    return " ".join(sorted(Path(path).stem for path in report.scans[0].kept_files()))


def holding_files(frame: Any, conditions: list[str]) -> dict[str, list[str]]:
    """The files with a row for which each condition is TRUE, by one job with geoskip off."""
    import geoskip

    own = [f"{text} AS q{number}" for number, text in enumerate(conditions)]  # in the frame's session and its time zone
    with geoskip.disabled(frame.sparkSession):
        values = frame.selectExpr("_metadata.file_name AS file", *own)
        rows = values.groupBy("file").agg({f"q{number}": "max" for number in range(len(conditions))}).collect()
    rows = sorted(rows, key=lambda row: row[0])
    return {text: [Path(row[0]).stem for row in rows if row[f"max(q{n})"]] for n, text in enumerate(conditions)}


def executed_files(frame: Any) -> int:
    """The number of files that the executed scans of a DataFrame read, from Spark's own metrics."""
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
