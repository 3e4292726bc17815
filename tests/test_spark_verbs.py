"""The verbs through Spark: what each does to the metadata, and what queries read after it, on against off."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MinMax, ValueList
from geoskip.errors import ConflictError, GeoskipError, InvalidSpecificationError, NotIndexedError, StoreError
from geoskip.spark import data as data_module
from geoskip.stores import ParquetStore
from tests.conftest import same_as_off

pytestmark = pytest.mark.spark


def write(place: Path, name: str, values: list[Any], **columns: Any) -> Path:
    place.mkdir(exist_ok=True, parents=True)
    path = place / name
    pq.write_table(pa.table({"a": pa.array(values, pa.int64()), **columns}), path)
    return path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    found = tmp_path / "data"
    for number in range(4):
        write(found, f"{number}.parquet", [number * 10, number * 10 + 1])
    return found


@pytest.fixture
def handle(spark: Any, place: Path) -> geoskip.Dataset:
    found = geoskip.dataset(spark, str(place))
    found.create_index(MinMax("a"))
    return found


def kept(spark: Any, place: Path, where: str = "a = 31") -> int:
    return same_as_off(lambda: spark.read.parquet(str(place)).where(where)).files_kept


# --- each verb --------------------------------------------------------------------------------------------------------


def test_a_deleted_index_is_not_used_until_it_is_restored(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    handle.create_index(ValueList("a"))
    assert handle.delete_index(MinMax("a")) == ("minmax(a)",)
    assert [str(index) for index in handle.indexes] == ["valuelist(a)"]
    assert kept(spark, place, "a > 25") == 1
    assert handle.delete_index() == ("valuelist(a)",)
    assert handle.indexes == ()
    assert kept(spark, place, "a > 25") == 4
    with pytest.raises(NotIndexedError, match="create one"):
        handle.refresh_index()
    assert handle.restore_index("minmax(a)") == ("minmax(a)",)
    assert kept(spark, place, "a > 25") == 1
    assert {(row["index"], row["state"]) for row in handle.describe().collect()} == {
        ("minmax(a)", "in use"),
        ("valuelist(a)", "deleted"),
    }
    removed = handle.vacuum_index(retain=0)
    assert removed.indexes == ("valuelist(a)",)
    assert kept(spark, place, "a > 25") == 1
    with pytest.raises(NotIndexedError):
        handle.restore_index()


def test_a_quick_refresh_reads_no_data(spark: Any, place: Path, handle: geoskip.Dataset, monkeypatch: Any) -> None:
    write(place, "4.parquet", [40])
    write(place, "1.parquet", [500])
    (place / "0.parquet").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(data_module, "build", lambda *args: pytest.fail("it reads"))
        assert handle.refresh_index("quick").files == 2
        assert handle.refresh_index("quick").snapshot == 2, "nothing more to say"
    report = same_as_off(lambda: spark.read.parquet(str(place)).where("a > 35"))
    assert report.files_kept == 2
    assert "2 files were without metadata at the last quick refresh" in str(report)
    (row,) = handle.describe().collect()
    assert (row.files_covered, row.files_uncovered) == (2, 2)
    assert handle.refresh_index().read == 2
    assert kept(spark, place, "a > 1000") == 0


def test_a_refresh_of_nothing_writes_nothing(
    spark: Any, place: Path, handle: geoskip.Dataset, monkeypatch: Any
) -> None:
    before = sorted(path for path in (place / "_geoskip").rglob("*"))
    monkeypatch.setattr(data_module, "bind", lambda *args: pytest.fail("it analyses"))
    report = handle.refresh_index()
    assert (report.read, report.snapshot, report.files, report.rows) == (0, 1, 4, 8)
    assert sorted(path for path in (place / "_geoskip").rglob("*")) == before


def test_many_refreshes_are_optimized_into_one_part(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    for number in range(4, 7):
        write(place, f"{number}.parquet", [number * 10])
        assert handle.refresh_index().read == 1
    store = ParquetStore(place / "_geoskip")
    assert len(store.load(store.latest()).header.parts) == 4
    handle.optimize_index()
    assert len(store.load(store.latest()).header.parts) == 1
    assert kept(spark, place, "a > 45") == 2
    assert handle.vacuum_index(retain=timedelta(0)).leftovers == 4
    assert kept(spark, place, "a > 45") == 2


def test_the_history_is_worth_reading(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    write(place, "4.parquet", [40])
    handle.refresh_index()
    handle.delete_index("minmax(a)")
    rows = handle.history().collect()
    assert [(row.verb, row.state, row.base, row.snapshot) for row in rows] == [
        ("create", "done", None, 1),
        ("refresh", "done", 1, 2),
        ("delete", "done", 2, 3),
    ]
    assert f"(process {os.getpid()})" in rows[0].who
    assert 'indexes: ["minmax(a)"]' in rows[0].parameters
    assert (rows[1].files_read, rows[1].files_added, rows[1].files_removed, rows[1].files_kept) == (1, 1, 0, 4)
    assert "engine: pyspark" in rows[0].versions
    assert rows[0].began <= rows[1].began


def test_describe_tells_who_read_and_when(handle: geoskip.Dataset) -> None:
    (row,) = handle.describe().collect()
    assert (row.reader, row.files_covered, row.built[:2]) == ("footers", 4, "20")


def test_what_arrives_during_a_build_is_caught_up(spark: Any, place: Path, monkeypatch: Any) -> None:
    build, arrived = data_module.build, []

    def slow(*args: Any) -> Any:
        built = build(*args)
        if len(arrived) < 2:
            arrived.append(write(place, f"late{len(arrived)}.parquet", [1000 + len(arrived)]))
        return built

    monkeypatch.setattr(data_module, "build", slow)
    handle = geoskip.dataset(spark, str(place))
    assert handle.create_index(MinMax("a")).files == 6
    assert kept(spark, place, "a = 1001") == 1
    assert [row.verb for row in handle.history().collect()] == ["create", "refresh", "refresh"]


def test_a_build_that_is_cancelled_leaves_everything_as_it_was(
    spark: Any, place: Path, handle: geoskip.Dataset, monkeypatch: Any
) -> None:
    build, other = data_module.build, geoskip.dataset(spark, str(place))
    cancelled: list[Any] = []

    def called_off(*args: Any) -> Any:
        cancelled.extend(other.cancel())
        return build(*args)

    monkeypatch.setattr(data_module, "build", called_off)
    with pytest.raises(ConflictError, match="cancelled"):
        handle.create_index(ValueList("a"))
    assert [told["verb"] for told in cancelled] == ["create"]
    assert [str(index) for index in handle.indexes] == ["minmax(a)"]
    assert kept(spark, place) == 1
    monkeypatch.undo()
    assert handle.cancel() == []


def test_a_failed_build_is_in_the_history(spark: Any, place: Path, handle: geoskip.Dataset, monkeypatch: Any) -> None:
    def broken(*args: Any) -> Any:
        raise GeoskipError("the cluster is gone")

    write(place, "4.parquet", [40])
    with monkeypatch.context() as patch:
        patch.setattr(data_module, "build", broken)
        with pytest.raises(GeoskipError, match="gone"):
            handle.refresh_index()
    row = handle.history().collect()[-1]
    assert (row.state, row.message) == ("failed", "GeoskipError: the cluster is gone")
    assert handle.refresh_index().read == 1


# --- verify and repair ------------------------------------------------------------------------------------------------


def tampered(place: Path) -> None:
    """Give two files each other's summaries: whole, with right checksums, and wrong."""
    store = ParquetStore(place / "_geoskip")
    snapshot = store.load(store.latest())
    table = snapshot.files.table()
    paths = table["path"].to_pylist()
    order = [
        {"0.parquet": paths.index("3.parquet"), "3.parquet": paths.index("0.parquet")}.get(p, i)
        for i, p in enumerate(paths)
    ]
    swapped = table["minmax(a)"].combine_chunks().take(pa.array(order))
    table = table.set_column(table.schema.get_field_index("minmax(a)"), "minmax(a)", swapped)
    store.commit(snapshot.header, table, expected=snapshot.header.number)


def test_verify_finds_wrong_summaries_and_repair_builds_them_anew(
    spark: Any, place: Path, handle: geoskip.Dataset
) -> None:
    sound = handle.verify()
    assert (sound.ok, sound.files, sound.of, sound.indexes) == (True, 4, 4, ("minmax(a)",))
    assert "as it should be" in str(sound)
    assert handle.verify(sample=0.5).files == 2
    tampered(place)
    wrong = handle.verify()
    assert not wrong.ok
    assert wrong.differing == {"0.parquet": ("minmax(a)",), "3.parquet": ("minmax(a)",)}
    assert "repair()" in str(wrong)
    write(place, "4.parquet", [40])
    assert handle.repair().files == 5
    assert handle.verify().ok
    assert kept(spark, place) == 1
    assert handle.history().collect()[-1].parameters.startswith("differing: 2")
    with pytest.raises(InvalidSpecificationError, match="share above 0"):
        handle.verify(sample=7)


def damage_part(folder: Path) -> None:
    (part,) = (folder / "_parts").glob("*.parquet")
    text = bytearray(part.read_bytes())
    text[len(text) // 3] ^= 255
    part.write_bytes(bytes(text))


def damage_snapshot(folder: Path) -> None:
    newest = max((folder / "_log").glob("*/*.json"))
    newest.write_bytes(newest.read_bytes()[:-40])


@pytest.mark.parametrize("damage", [damage_part, damage_snapshot])
def test_damaged_metadata_are_repaired(
    damage: Callable[[Path], None], spark: Any, place: Path, handle: geoskip.Dataset
) -> None:
    if damage is damage_snapshot:
        write(place, "4.parquet", [40])
        handle.refresh_index()
    damage(place / "_geoskip")
    fresh = geoskip.dataset(spark, str(place), metadata=str(place / "_geoskip"))  # no cache of what was read before
    assert kept(spark, place) >= 4
    assert fresh.repair().files == len(list(place.glob("*.parquet")))
    assert kept(spark, place) == 1
    assert fresh.verify().ok


def test_what_cannot_be_repaired_says_how_to_go_on(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    damage_snapshot(place / "_geoskip")
    fresh = geoskip.dataset(spark, str(place), metadata=str(place / "_geoskip"))
    with pytest.raises(GeoskipError, match="remove the folder"):
        fresh.repair()


# --- kept up ----------------------------------------------------------------------------------------------------------


def test_appending_indexes_what_is_written(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    report = handle.append(spark.createDataFrame([(70,), (71,)], "a long").coalesce(1))
    assert (report.read, report.files) == (1, 5)
    assert kept(spark, place, "a >= 70") == 1
    with pytest.raises(InvalidSpecificationError, match="where to write"):
        geoskip.dataset(spark, f"{place}/*.parquet").append(spark.range(1))


def test_appending_keeps_partitions_and_reader_options(spark: Any, tmp_path: Path) -> None:
    place = str(tmp_path / "csv")
    spark.sql("SELECT 1 AS a, 'x' AS p UNION ALL SELECT 2, 'y'").write.partitionBy("p").option("sep", "|").csv(place)
    handle = geoskip.dataset(spark, place, format="csv", schema="a int, p string", sep="|")
    assert handle.append(spark.sql("SELECT 3 AS a, 'z' AS p")) is None, "there is no index yet"
    handle.create_index(MinMax("a"))
    assert handle.append(spark.sql("SELECT 4 AS a, 'z' AS p")).read == 1
    assert same_as_off(lambda: handle.to_df().where("a > 3")).files_kept == 1
    assert sorted(row.p for row in handle.to_df().collect()) == ["x", "y", "z", "z"]


def test_a_table_is_appended_to(spark: Any) -> None:
    spark.sql("CREATE TABLE grown (a INT, p STRING) USING parquet PARTITIONED BY (p)")
    try:
        spark.sql("INSERT INTO grown VALUES (1, 'x')")
        handle = geoskip.dataset(spark, table="grown")
        handle.create_index(MinMax("a"))
        assert handle.append(spark.sql("SELECT 'x' AS p, 7 AS a")).read == 1
        assert same_as_off(lambda: spark.sql("SELECT * FROM grown WHERE a > 5")).files_kept == 1
    finally:
        spark.sql("DROP TABLE grown")


@pytest.mark.parametrize(
    ("bound", "refreshed"), [(True, True), (2, True), (1, False), ("1 MiB", True), ("10 B", False)]
)
def test_what_is_new_is_indexed_before_a_query(
    bound: Any, refreshed: bool, spark: Any, place: Path, handle: geoskip.Dataset
) -> None:
    write(place, "4.parquet", [40])
    write(place, "5.parquet", [50])
    keeping = geoskip.dataset(spark, str(place), auto_refresh=bound)
    assert keeping.to_df().where("a = 31").count() == 1
    assert kept(spark, place) == (1 if refreshed else 3)


def test_an_auto_refresh_that_fails_harms_no_query(
    spark: Any, place: Path, handle: geoskip.Dataset, monkeypatch: Any
) -> None:
    def broken(*args: Any) -> Any:
        raise GeoskipError("no")

    write(place, "4.parquet", [40])
    keeping = geoskip.dataset(spark, str(place), auto_refresh=10)
    monkeypatch.setattr(data_module, "build", broken)
    with pytest.warns(UserWarning, match="was not refreshed: no"):
        assert keeping.to_df().where("a = 40").count() == 1
    with pytest.raises(InvalidSpecificationError, match="auto_refresh="):
        geoskip.dataset(spark, str(place), auto_refresh="soon")


def test_a_job_keeps_an_index_fresh(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    with handle.keep_fresh(every=0.01) as keeper:
        write(place, "4.parquet", [40])
        assert keeper.wait(60)
        assert keeper.last is not None
        assert keeper.last.files == 5
    assert kept(spark, place) == 1


def test_what_is_indexed_is_listed(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    assert [str(i) for i in geoskip.datasets(spark)[f"file:{place}"].indexes] == ["minmax(a)"]
    handle.delete_index()
    assert f"file:{place}" not in geoskip.datasets(spark)


# --- places -----------------------------------------------------------------------------------------------------------


def test_datasets_within_one_another_have_metadata_of_their_own(spark: Any, tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    for number in range(3):
        write(outer, f"{number}.parquet", [number])
        write(inner, f"{number}.parquet", [100 + number])
    geoskip.dataset(spark, str(inner)).create_index(MinMax("a"))
    assert geoskip.dataset(spark, str(outer), recursiveFileLookup="true").create_index(MinMax("a")).files == 6
    assert kept(spark, inner, "a = 101") == 1
    assert kept(spark, outer, "a = 1") == 1
    every = same_as_off(lambda: spark.read.option("recursiveFileLookup", True).parquet(str(outer)).where("a = 101"))
    assert every.files_kept == 1
    write(inner, "3.parquet", [103])
    geoskip.dataset(spark, str(inner)).refresh_index()
    assert kept(spark, inner, "a = 103") == 1


def test_a_copied_folder_is_not_mistaken_for_the_original(
    spark: Any, place: Path, handle: geoskip.Dataset, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(place, copy)
    write(copy, "0.parquet", [31])
    assert kept(spark, copy) == 4
    copied = geoskip.dataset(spark, str(copy))
    for verb in (copied.refresh_index, copied.verify, lambda: copied.create_index(MinMax("a"))):
        with pytest.raises(InvalidSpecificationError, match="leave _geoskip out when a dataset is copied"):
            verb()
    shutil.rmtree(copy / "_geoskip")
    copied.create_index(MinMax("a"))
    assert kept(spark, copy) == 2


def test_a_dataset_reached_through_a_symbolic_link(
    spark: Any, place: Path, handle: geoskip.Dataset, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(place)
    assert kept(spark, link) == 1, "a link of the folder leads to the same files"
    (place / "linked.parquet").symlink_to(write(tmp_path / "elsewhere", "5.parquet", [31]))
    assert kept(spark, place) == 2
    assert handle.refresh_index().files == 5
    assert kept(spark, place, "a = 10") == 1
    write(tmp_path / "elsewhere", "5.parquet", [10])
    assert kept(spark, place, "a = 10") == 2


def test_data_that_nobody_may_write_beside(spark: Any, place: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def refuse(self: Any, name: str, content: bytes) -> None:
        raise PermissionError(13, "Permission denied", name)

    handle = geoskip.dataset(spark, str(place))
    with monkeypatch.context() as patch:
        patch.setattr("geoskip.stores.folders.LocalFolder.create", refuse)
        with pytest.raises(StoreError, match="keep them elsewhere: dataset"):
            handle.create_index(MinMax("a"))
    assert kept(spark, place) == 4
    geoskip.dataset(spark, str(place), metadata=str(tmp_path / "meta")).create_index(MinMax("a"))
    assert kept(spark, place) == 1
    assert not list(place.glob("_geoskip/_log/*/*"))


def test_metadata_that_vanish_under_a_session(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    assert kept(spark, place) == 1
    shutil.rmtree(place / "_geoskip")
    assert kept(spark, place) == 4
    assert handle.indexes == ()
    with pytest.raises(NotIndexedError):
        handle.refresh_index()
    handle.create_index(MinMax("a"))
    assert kept(spark, place) == 1


def test_a_vacuum_under_a_planned_query(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    planned = spark.read.parquet(str(place)).where("a = 31")
    planned._jdf.queryExecution().executedPlan()
    handle.refresh_index("full")
    handle.vacuum_index(retain=0)
    assert [row.a for row in planned.collect()] == [31]
    assert kept(spark, place) == 1


def test_an_old_handle_cannot_commit_after_an_overwrite(
    spark: Any, place: Path, handle: geoskip.Dataset, monkeypatch: Any
) -> None:
    write(place, "4.parquet", [40])
    build = data_module.build

    def overwritten(*args: Any) -> Any:
        built = build(*args)
        monkeypatch.undo()
        spark.range(100, 104).selectExpr("id AS a").coalesce(1).write.mode("overwrite").parquet(str(place))
        geoskip.dataset(spark, str(place)).create_index(ValueList("a"))
        return built

    monkeypatch.setattr(data_module, "build", overwritten)
    with pytest.raises(ConflictError, match="overwrite"):
        handle.refresh_index()
    assert [str(index) for index in handle.indexes] == ["valuelist(a)"]
    assert kept(spark, place, "a = 7") == 0


def test_writers_in_threads_and_queries_beside_them(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    errors: list[BaseException] = []
    start = threading.Barrier(3)

    def work(number: int) -> None:
        mine = geoskip.dataset(spark, str(place))
        start.wait()
        try:
            for turn in range(2):
                write(place, f"w{number}-{turn}.parquet", [1000 + 10 * number + turn])
                mine.refresh_index()
            mine.optimize_index()
            mine.vacuum_index(retain=0)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    start.wait()
    for _ in range(5):
        assert [row.a for row in spark.read.parquet(str(place)).where("a = 31").collect()] == [31]
    for thread in threads:
        thread.join()
    assert not errors
    assert handle.refresh_index().files == 8
    assert kept(spark, place, "a = 1011") == 1
