"""Datasets that change in all the ways that datasets do: schemas, tables of the catalogue, and any verbs in any order.

The oracle is geoskip off; a change that metadata cannot follow keeps files, never loses rows.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import geoskip
from geoskip import MinMax, ValueList
from geoskip.errors import GeoskipError, InvalidSpecificationError, NotIndexedError
from geoskip.stores import ParquetStore
from tests.conftest import files_kept, same_as_off

pytestmark = pytest.mark.spark

MACHINES = int(os.environ.get("GEOSKIP_MACHINES", "2"))
PARTITIONS = int(os.environ.get("GEOSKIP_PARTITIONS", "300"))
"""``make soak`` has ten thousand."""


def write(place: Path, name: str, table: dict[str, Any] | pa.Table) -> None:
    place.mkdir(exist_ok=True, parents=True)
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), place / f"{name}.parquet")


def reading(spark: Any, place: Path, where: str, **options: Any) -> Any:
    return same_as_off(lambda: spark.read.options(**options).parquet(str(place)).where(where))


# --- schemas that change ----------------------------------------------------------------------------------------------


@pytest.fixture
def place(spark: Any, tmp_path: Path) -> Path:
    """Two files with a int 0..1 and 10..11 and b string, indexed on both."""
    found = tmp_path / "data"
    for number in range(2):
        low = number * 10
        write(found, f"{number}", {"a": pa.array([low, low + 1], pa.int32()), "b": [f"b{low}", f"b{low + 1}"]})
    geoskip.dataset(spark, str(found)).create_index(MinMax("a"), MinMax("b"))
    return found


@pytest.mark.slow
def test_an_added_column(spark: Any, place: Path) -> None:
    write(place, "2", {"a": pa.array([20], pa.int32()), "b": ["b20"], "c": [7]})
    merged = {"mergeSchema": "true"}
    assert reading(spark, place, "a = 10", **merged).files_kept == 2, "the indexed file, and the new one"
    assert reading(spark, place, "c IS NULL AND a < 5", **merged).files_kept == 2
    handle = geoskip.dataset(spark, str(place), mergeSchema="true")
    assert handle.refresh_index().read == 1
    handle.create_index(MinMax("c"))
    assert reading(spark, place, "c = 7", **merged).files_kept == 1
    assert reading(spark, place, "c IS NULL", **merged).files_kept == 2
    assert reading(spark, place, "a = 10", **merged).files_kept == 1


def test_a_dropped_column(spark: Any, place: Path) -> None:
    for number in range(2):
        write(place, f"{number}", {"a": pa.array([number * 10], pa.int32())})
    assert reading(spark, place, "a = 10").files_kept == 2, "both have changed"
    handle = geoskip.dataset(spark, str(place))
    with pytest.raises(InvalidSpecificationError, match=r"minmax\(b\) was built under other .* has no column b"):
        handle.refresh_index()
    handle.delete_index("minmax(b)")
    assert handle.refresh_index().read == 2
    assert reading(spark, place, "a = 10").files_kept == 1


@pytest.mark.slow
def test_a_renamed_column_and_one_added_again(spark: Any, place: Path) -> None:
    for number in range(2):
        write(place, f"{number}", {"z": pa.array([number * 10], pa.int32()), "b": ["x", "y"][number : number + 1]})
    assert reading(spark, place, "z = 10").files_kept == 2
    handle = geoskip.dataset(spark, str(place))
    handle.delete_index("minmax(a)")
    handle.refresh_index()
    assert reading(spark, place, "b = 'y'").files_kept == 1
    for number in range(2):
        write(place, f"{number}", {"a": pa.array([100 + number], pa.int32()), "b": ["x", "y"][number : number + 1]})
    handle.restore_index("minmax(a)")
    assert reading(spark, place, "a = 100").files_kept == 2, "its old summaries are of other files"
    assert handle.refresh_index().read == 2
    assert reading(spark, place, "a = 100").files_kept == 1


@pytest.mark.slow
def test_a_widened_column(spark: Any, place: Path) -> None:
    if spark.version < "4":
        pytest.skip("this Spark reads no file of int as bigint")
    write(place, "2", {"a": pa.array([2**40], pa.int64()), "b": ["z"]})
    wide = "a bigint, b string"
    read = lambda where: same_as_off(lambda: spark.read.schema(wide).parquet(str(place)).where(where))  # noqa: E731
    assert read("a = 10").files_kept <= 3
    assert read(f"a = {2**40}").files_kept <= 3
    handle = geoskip.dataset(spark, str(place), schema=wide)
    with pytest.raises(InvalidSpecificationError, match="a was int then, bigint now"):
        handle.refresh_index()
    assert handle.refresh_index("full").read == 3
    assert read("a = 10").files_kept == 1
    assert read(f"a = {2**40}").files_kept == 1


@pytest.mark.slow
def test_a_full_refresh_is_the_way_to_other_settings(spark: Any, tmp_path: Path) -> None:
    place = tmp_path / "data"

    def at(hour: int) -> None:
        write(place, f"{hour}", {"at": pa.array([hour * 3_600_000_000], pa.timestamp("us", tz="UTC"))})

    at(1)
    at(2)
    handle = geoskip.dataset(spark, str(place))
    handle.create_index(MinMax("hour(at)"))
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert reading(spark, place, "hour(at) = 10").files_kept == 2
        handle.refresh_index("full")
        assert reading(spark, place, "hour(at) = 10").files_kept == 1
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    at(3)
    assert handle.refresh_index().read == 1, "under the settings of the full refresh"
    assert reading(spark, place, "hour(at) = 10").files_kept == 3


# --- tables of the catalogue ------------------------------------------------------------------------------------------


@pytest.fixture
def table(spark: Any) -> Iterator[Callable[[str], tuple[geoskip.Dataset, Callable[[str], int]]]]:
    """Makes a table with a = 0..3, a partition each, and an index; with what says how many files a condition keeps."""

    def made(name: str, where: str = "") -> tuple[geoskip.Dataset, Callable[[str], int]]:
        names.append(name)
        spark.sql(f"CREATE TABLE {name} (a INT, p INT) USING parquet PARTITIONED BY (p) {where}")
        spark.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, id FROM range(4)")
        handle = geoskip.dataset(spark, table=name)
        handle.create_index(MinMax("a"))
        return handle, lambda where: same_as_off(lambda: spark.sql(f"SELECT * FROM {name} WHERE {where}")).files_kept

    names: list[str] = []
    yield made
    for name in names:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.slow
def test_an_external_table(spark: Any, table: Any, tmp_path: Path) -> None:
    place = tmp_path / "external"
    handle, files = table("life_external", f"LOCATION '{place}'")
    assert (place / "_geoskip").is_dir()
    assert files("a = 2") == 1
    spark.sql("ALTER TABLE life_external DROP PARTITION (p = 1)")
    assert (files("a <= 1"), len(list(place.glob("p=1/*.parquet")))) == (1, 1), "the file outlives its partition"
    spark.sql("INSERT OVERWRITE life_external PARTITION (p = 2) SELECT 22")
    assert files("a >= 20") == 1
    report = handle.refresh_index()
    assert (report.read, report.files) == (1, 3)
    spark.sql("ALTER TABLE life_external ADD PARTITION (p = 1)")
    assert files("a = 1") == 1


@pytest.mark.slow
def test_a_table_whose_partitions_come_and_go(spark: Any, table: Any, tmp_path: Path) -> None:
    handle, files = table("life")
    assert files("a = 2") == 1
    spark.sql("ALTER TABLE life DROP PARTITION (p = 1)")
    assert files("a <= 1") == 1
    write(tmp_path / "extra", "x", {"a": pa.array([50], pa.int32())})
    spark.sql(f"ALTER TABLE life ADD PARTITION (p = 9) LOCATION '{tmp_path / 'extra'}'")
    assert files("a = 2") == 2, "the new partition is unknown"
    report = handle.refresh_index()
    assert (report.read, report.files) == (1, 4)
    assert files("a = 2") == 1
    assert files("a = 50") == 1
    spark.sql("INSERT OVERWRITE life PARTITION (p = 2) SELECT 22")
    assert files("a >= 20") == 2
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        spark.sql("INSERT OVERWRITE life SELECT /*+ COALESCE(1) */ 33, 3")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert files("a >= 20") == 3
    report = handle.refresh_index()
    assert (report.read, report.files) == (2, 4)
    assert files("a = 33") == 1
    assert files("a = 3") == 0
    write(tmp_path / "moved", "y", {"a": pa.array([60], pa.int32())})
    spark.sql(f"ALTER TABLE life PARTITION (p = 9) SET LOCATION '{tmp_path / 'moved'}'")
    assert files("a >= 50") == 1
    handle.refresh_index()
    assert files("a = 50") == 0


@pytest.mark.slow
def test_a_table_that_is_emptied_and_filled_again(spark: Any, tmp_path: Path) -> None:
    spark.sql("CREATE TABLE emptied (a INT) USING parquet")
    try:
        spark.sql("INSERT INTO emptied SELECT /*+ COALESCE(1) */ * FROM VALUES (1), (2)")
        handle = geoskip.dataset(spark, table="emptied")
        handle.create_index(MinMax("a"))
        for change in (
            "TRUNCATE TABLE emptied",
            "INSERT OVERWRITE emptied VALUES (7)",
            "INSERT INTO emptied VALUES (8)",
        ):
            spark.sql(change)
            same_as_off(lambda: spark.sql("SELECT * FROM emptied WHERE a > 1"))
            same_as_off(lambda: spark.sql("SELECT * FROM emptied WHERE a = 7"))
        try:
            handle.refresh_index()
        except NotIndexedError:  # emptying a table empties its folder, metadata included
            handle.create_index(MinMax("a"))
        assert same_as_off(lambda: spark.sql("SELECT * FROM emptied WHERE a = 7")).files_kept == 1
    finally:
        spark.sql("DROP TABLE emptied")


@pytest.mark.slow
def test_many_partitions(spark: Any, tmp_path: Path) -> None:
    """Each a folder with a file, most of them links to one; to remove one would change the times of all."""
    place = tmp_path / "data"
    write(place / "p=0", "x", {"a": [0]})
    for number in range(1, PARTITIONS):
        (place / f"p={number}").mkdir()
        (shutil.copy if number == 8 else os.link)(place / "p=0" / "x.parquet", place / f"p={number}" / "x.parquet")
    write(place / "p=7", "y", {"a": [7]})
    handle = geoskip.dataset(spark, str(place))
    assert handle.create_index(MinMax("a")).files == PARTITIONS + 1
    frame = spark.read.parquet(str(place))  # listed once: that is what takes the time
    assert same_as_off(lambda: frame.where("a = 7")).files_kept == 1
    assert same_as_off(lambda: frame.where("p = 11 AND a < 5")).files_kept == 1
    assert same_as_off(lambda: frame.where("p = 11 AND a > 5")).files_kept == 0
    shutil.rmtree(place / "p=8")
    write(place / "p=9", "y", {"a": [9]})
    report = handle.refresh_index()
    assert (report.read, report.files) == (1, PARTITIONS + 1)
    (_, row) = handle.history().collect()
    assert (row.files_added, row.files_removed, row.files_kept) == (1, 1, PARTITIONS)


# --- any verbs in any order -------------------------------------------------------------------------------------------


class Lives(RuleBasedStateMachine):
    """A folder of files that is written to, and two handles that do whatever they can."""

    spark: Any
    base: Path
    numbers = itertools.count()

    @initialize()
    def begin(self) -> None:
        self.place = self.base / f"{next(self.numbers)}"
        self.rng = random.Random(5)
        for name in ("x", "y", "z"):
            self.write(name, 5)
        self.handle = geoskip.dataset(self.spark, str(self.place))
        self.other = geoskip.dataset(self.spark, str(self.place))
        self.handle.create_index(MinMax("a"), ValueList("s"))

    @rule(name=st.sampled_from("xyzuvw"), low=st.integers(0, 40))
    def write(self, name: str, low: int) -> None:
        values = [low, low + self.rng.randrange(3)]
        write(self.place, name, {"a": values, "s": [f"s{value}" for value in values]})

    @precondition(lambda self: len(list(self.place.glob("*.parquet"))) > 1)
    @rule(pick=st.integers(0, 5))
    def remove(self, pick: int) -> None:
        files = sorted(self.place.glob("*.parquet"))
        files[pick % len(files)].unlink()

    @rule(mode=st.sampled_from(["incremental", "incremental", "full", "quick"]), by=st.booleans())
    def refresh(self, mode: str, by: bool) -> None:
        self.can(lambda: (self.handle if by else self.other).refresh_index(mode))

    @rule(by=st.booleans(), index=st.sampled_from([MinMax("a"), MinMax("a + 1"), ValueList("s")]))
    def create(self, by: bool, index: Any) -> None:
        (self.handle if by else self.other).create_index(index)

    @rule(which=st.sampled_from([(), ("minmax(a)",), ("valuelist(s)",)]))
    def delete(self, which: tuple[str, ...]) -> None:
        self.can(lambda: self.handle.delete_index(*which))

    @rule(which=st.sampled_from([(), ("minmax(a)",)]))
    def restore(self, which: tuple[str, ...]) -> None:
        self.can(lambda: self.other.restore_index(*which))

    @rule(retain=st.sampled_from([0.0, 1.0]))
    def vacuum(self, retain: float) -> None:
        self.can(lambda: self.handle.vacuum_index(retain))

    @rule()
    def optimize(self) -> None:
        self.can(self.other.optimize_index)

    @rule()
    def repair(self) -> None:
        self.can(self.handle.repair)

    @rule()
    def lose(self) -> None:
        shutil.rmtree(self.place / "_geoskip", ignore_errors=True)

    def can(self, verb: Callable[[], Any]) -> None:
        """A verb may say that there is nothing to work on, and nothing else."""
        with suppress(NotIndexedError):
            verb()

    @invariant()
    def queries_are_right(self) -> None:
        value = self.rng.randrange(45)
        frame = self.spark.read.parquet(str(self.place))
        files_kept(frame, [f"a = {value} OR s = 's{value + 1}'", f"a + 1 > {value}"])

    @invariant()
    def metadata_are_whole(self) -> None:
        store = ParquetStore(self.place / "_geoskip")
        number = store.latest()
        if number is not None:
            paths = store.load(number).files.table()["path"].to_pylist()
            assert len(paths) == len(set(paths))

    def teardown(self) -> None:
        if hasattr(self, "place"):
            self.handle.create_index(MinMax("a"))
            assert self.handle.verify().ok
            files = len(list(self.place.glob("*.parquet")))
            assert {row.files_covered for row in self.handle.describe().collect() if row["index"] == "minmax(a)"} == {
                files
            }


@pytest.mark.slow
def test_any_verbs_in_any_order(spark: Any, tmp_path: Path) -> None:
    Lives.spark, Lives.base = spark, tmp_path
    run_state_machine_as_test(
        Lives,
        settings=settings(
            max_examples=MACHINES,
            stateful_step_count=12,
            deadline=None,
            database=None,
            derandomize=MACHINES < 10,
            phases=[Phase.generate] if MACHINES < 10 else [Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_vacuum_takes_a_time_or_hours(spark: Any, place: Path) -> None:
    handle = geoskip.dataset(spark, str(place))
    handle.refresh_index("full")
    assert handle.vacuum_index().snapshots == ()
    assert handle.vacuum_index(timedelta(hours=1)).snapshots == ()
    with pytest.raises(GeoskipError, match="not negative"):
        handle.vacuum_index(-1)
    assert handle.vacuum_index("7 days").snapshots == ()
    for odd in ("soon", 10**30, float("inf"), float("nan"), "9999999999 days"):
        with pytest.raises(InvalidSpecificationError, match="7 days"):
            handle.vacuum_index(odd)
    assert handle.vacuum_index(0).snapshots == (1, 2, 3, 4, 5)
