"""The verbs through Spark: what each does to the metadata, and what queries read after it, on against off."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import geoskip
from geoskip import MinMax, ValueList
from geoskip.errors import ConflictError, GeoskipError, InvalidSpecificationError, NotIndexedError
from geoskip.spark.dataset import source as data_module
from geoskip.stores import ParquetStore
from tests.conftest import same_as_off
from tests.spark.verbs.asking import kept, write

pytestmark = pytest.mark.spark


def test_a_deleted_index_is_not_used_until_it_is_restored(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    handle.create_index(ValueList("a"))
    assert handle.delete_index(MinMax("a")) == ("minmax(a)",)
    assert [str(index) for index in handle.indexes] == ["valuelist(a)"]
    assert kept(spark, place, "a > 25") == 1
    assert handle.delete_index() == ("valuelist(a)",)
    assert handle.indexes == ()
    assert kept(spark, place, "a > 25") == 4
    reason, unserved = geoskip.last_report(spark).reasons
    assert unserved == 'no index over a: MinMax("a")'
    assert reason.endswith("is in use: create_index() makes one, restore_index() brings back a deleted one")
    with pytest.raises(NotIndexedError, match=r"in use; deleted are minmax\(a\), valuelist\(a\): restore_"):
        handle.refresh_index()
    assert [row["state"] for row in handle.describe().collect()] == ["deleted", "deleted"]
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
        quick = handle.refresh_index("quick")
        assert (quick.files, quick.pending, "  2 files without metadata yet" in str(quick)) == (2, 2, True)
        assert handle.refresh_index("quick").snapshot == 2, "nothing more to say"
    report = same_as_off(lambda: spark.read.parquet(str(place)).where("a > 35"))
    assert (report.files_kept, report.scans[0].files_unindexed) == (2, 2)
    assert "2 files without metadata, new, changed or left out" in str(report)
    assert "2 files were without metadata at the last quick refresh" in str(report)
    (row,) = handle.describe().collect()
    assert (row.files_covered, row.files_uncovered) == (2, 2)
    assert handle.refresh_index().read == 2
    report = same_as_off(lambda: spark.read.parquet(str(place)).where("a > 1000"))
    assert (report.files_kept, report.scans[0].files_unindexed) == (0, 0)


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
    told = handle.store.describe()
    assert (told["bytes_by_index"]["minmax(a)"], "a listing a query" in told["costs"]) == (row.bytes, True)


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


def test_unchanged_files_are_listed_once_for_a_handle_and_a_create(spark: Any, place: Path, monkeypatch: Any) -> None:
    anew: list[bool] = []
    listing = data_module.listing

    def counted(*args: Any, refresh: bool = True) -> Any:
        anew.append(refresh)
        return listing(*args, refresh=refresh)

    monkeypatch.setattr(data_module, "listing", counted)
    handle = geoskip.dataset(spark, str(place))
    assert handle.create_index(MinMax("a")).files == 4
    assert anew == [False]
    write(place, "4.parquet", [40])
    assert handle.refresh_index().read == 1
    assert anew == [False, True]


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


def test_what_is_cached_is_indexed_from_its_files(spark: Any, place: Path) -> None:
    cached = spark.read.parquet(str(place)).cache()
    try:
        assert cached.count() == 8
        handle = geoskip.dataset(spark, str(place))
        handle.create_index(MinMax("a"), ValueList("hash(a) % 7"))
        write(place, "1.parquet", [500, 501])
        assert handle.refresh_index().read == 1
        assert handle.verify().ok
    finally:
        cached.unpersist()
    assert kept(spark, place, "a = 500") == 1


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


def test_what_was_indexed_while_an_index_was_deleted_is_no_damage(
    spark: Any, place: Path, handle: geoskip.Dataset
) -> None:
    handle.create_index(ValueList("a"))
    assert handle.delete_index([MinMax("a"), "minmax(a)"]) == ("minmax(a)",)
    write(place, "4.parquet", [40])
    handle.refresh_index()
    handle.restore_index(MinMax("a"))
    built = {row["index"]: (row["built"], row["reader"]) for row in handle.describe().collect()}
    assert built["minmax(a)"] < built["valuelist(a)"], "each tells of its own build"
    assert built["minmax(a)"][1] == "footers"
    found = handle.verify()
    assert (found.ok, found.differing, found.uncovered) == (True, {}, {"4.parquet": ("minmax(a)",)})
    assert "1 file not covered by minmax(a): dataset.repair() builds what is missing" in str(found)
    handle.delete_index(ValueList("a"))
    assert kept(spark, place, "a = 11") == 2
    handle.restore_index(ValueList("a"))
    handle.repair()
    assert handle.verify().uncovered == {}
    handle.delete_index(ValueList("a"))
    assert kept(spark, place, "a = 11") == 1


def damage_part(folder: Path) -> None:
    (part,) = (folder / "_parts").iterdir()
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


def test_a_repair_of_everything_takes_nothing_back(
    spark: Any, place: Path, handle: geoskip.Dataset, monkeypatch: Any
) -> None:
    write(place, "4.parquet", [40])
    handle.refresh_index()
    damage_snapshot(place / "_geoskip")
    one, other = (geoskip.dataset(spark, str(place), metadata=str(place / "_geoskip")) for _ in range(2))
    build = data_module.build

    def overtaken(*args: Any) -> Any:
        monkeypatch.undo()
        other.repair()
        other.create_index(ValueList("a"))
        return build(*args)

    monkeypatch.setattr(data_module, "build", overtaken)
    with pytest.raises(ConflictError, match=r"this repair came after repair .* and create .*: .* as it was before"):
        one.repair()
    assert [str(index) for index in one.indexes] == ["minmax(a)", "valuelist(a)"]


def test_what_cannot_be_repaired_says_how_to_go_on(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    damage_snapshot(place / "_geoskip")
    fresh = geoskip.dataset(spark, str(place), metadata=str(place / "_geoskip"))
    with pytest.raises(GeoskipError, match="remove the folder"):
        fresh.repair()


def test_a_handle_sees_columns_that_change(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    write(place, "4.parquet", [40])
    assert handle.refresh_index().read == 1
    frame = handle._source.current_state().frame
    write(place, "+.parquet", [50])
    assert handle._source.current_state().frame is frame, "the first file has the columns that the first one had"
    write(place, "1.parquet", [50], b=pa.array(["x"]))
    assert handle._source.current_state().frame is frame, "Spark would not look at it"
    write(place, "+.parquet", [50], b=pa.array(["x"]))
    assert handle.create_index(MinMax("b")).read == 6
    assert kept(spark, place, "b = 'y'", "a BIGINT, b STRING") == 0


def test_a_handle_sees_partitions_that_change(spark: Any, tmp_path: Path) -> None:
    for name in ("p=1", "p=2"):
        write(tmp_path / name, "0.parquet", [1])
    handle = geoskip.dataset(spark, str(tmp_path))
    handle.create_index(MinMax("a"))
    write(tmp_path / "p=1", "1.parquet", [7])
    assert handle._source.current_state().frame.schema["p"].dataType.typeName() == "integer"
    write(tmp_path / "p=x", "0.parquet", [1])
    assert handle._source.current_state().frame.schema["p"].dataType.typeName() == "string"
    assert handle.refresh_index().read == 2
    assert kept(spark, tmp_path, "a = 7") == 1
