"""geoskip.pyarrow_dataset: pyarrow's own rows and schema, from fewer files."""

from __future__ import annotations

import datetime as dt
import json
import math
import shutil
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given

import geoskip
from geoskip import predicates as p
from geoskip.errors import InvalidSpecificationError
from geoskip.sources.arrow_reader import read_files
from tests.support import indexed_files
from tests.support.engine_rows import conditions
from tests.support.indexed_files import write_indexed
from tests.support.odd_datasets import FILES, make_delta, odd_dataset, require_feature
from tests.unit.engines.test_arrow_expression import rendered

F = pc.field


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of adversarial values in two levels of partitions, with indexes over most columns."""
    return odd_dataset(tmp_path_factory.mktemp("odd"))


def alone(folder: Path, where: pc.Expression | None = None) -> pa.Table:
    """The rows by pyarrow alone."""
    whole = ds.dataset(folder, partitioning="hive")
    return (whole if where is None else whole.filter(where)).to_table()


def is_same(one: pa.Table, other: pa.Table) -> bool:
    """True for equal schemas and rows, where NaN is itself and -0.0 is not 0.0."""
    return one.schema.equals(other.schema, check_metadata=True) and repr(one.to_pydict()) == repr(other.to_pydict())


def test_rows_are_those_of_all_files(odd: Path) -> None:
    left_out: list[int] = []

    @given(conditions(texts=("starts", "ends", "contains", "like")))
    def check(condition: tuple[Any, ...]) -> None:
        try:
            where = rendered(condition)
            expected = alone(odd, where)
        except (
            pa.ArrowException,
            TypeError,
            ValueError,
            OverflowError,
        ):  # types that do not compare, values that overflow
            return
        dataset = geoskip.pyarrow_dataset(odd, where)
        assert is_same(dataset.to_table(), expected)
        left_out.append(geoskip.report(dataset).scans[0].files_skipped)

    check()
    assert sum(left_out) > len(left_out) > 15, left_out


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        (F("small") > 10_000, 0),
        (F("number") == 3, 1),
        (F("part") == 2, FILES // 3),
        ((F("part") == 2) & (F("number") < 6), 2),
        (F("day") == "2024-01-01", FILES),  # a date for Spark, a text for pyarrow, which prunes by itself
        (F("number").isin([1, 4, 7]), 3),
        (~(F("number") < FILES - 1), 1),
        (F("nowhere") > 1, FILES),
    ],
    ids=str,
)
def test_files_that_cannot_match_are_left_out(odd: Path, where: pc.Expression, kept: int) -> None:
    dataset = geoskip.pyarrow_dataset(odd, where)
    assert geoskip.report(dataset).files_kept == kept
    assert geoskip.report(dataset).files_total == FILES
    if "nowhere" not in str(where):
        assert is_same(dataset.to_table(), alone(odd, where))
        assert dataset.schema.equals(ds.dataset(odd, partitioning="hive").schema, check_metadata=True)


def test_without_a_condition_or_with_a_predicate_there_is_no_filter(odd: Path) -> None:
    assert is_same(geoskip.pyarrow_dataset(odd).to_table(), alone(odd))
    dataset = geoskip.pyarrow_dataset(odd, p.Comparison("=", p.Column("number", "int"), p.Literal(3, "int")))
    assert dataset.to_table()["number"].unique().to_pylist() == [3]
    assert len(dataset.to_table()) == len(alone(odd)) // FILES
    assert geoskip.report(dataset).files_kept == 1


def test_a_file_that_came_later_is_read(odd: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(odd, folder, copy_function=shutil.copy2)
    shutil.copytree(odd / "part=1", folder / "part=9")
    where = F("number") == 1
    assert len(geoskip.pyarrow_dataset(folder, where).to_table()) == len(alone(folder, where)) > 0


def test_a_column_that_pyarrow_reads_as_another_type_decides_nothing(tmp_path: Path) -> None:
    single = pa.table({"f": pa.array([0.5], pa.float32())})
    double = pa.table({"f": pa.array([0.1], pa.float64())})
    write_indexed(tmp_path, {"b.parquet": double, "c.parquet": double}, {"f": "double"}, [geoskip.MinMax("f")])
    write_indexed(tmp_path / "other", {"a.parquet": single}, {"f": "float"}, [])
    (tmp_path / "other" / "a.parquet").rename(tmp_path / "a.parquet")
    where = F("f") > 0.1  # of what was 0.1 and is cast to 32 bits, as the first file has it
    dataset = geoskip.pyarrow_dataset(tmp_path, where)
    assert len(dataset.to_table()) == len(alone(tmp_path, where)) == 3
    assert "f is no column with a known type" in str(geoskip.report(dataset))


def test_a_column_that_a_file_spells_otherwise_is_null_for_pyarrow(tmp_path: Path) -> None:
    tables = {f"{n}.parquet": pa.table({name: [n]}) for n, name in enumerate(("Temp", "temp", "TEMP"), 1)}
    write_indexed(tmp_path, tables, {"Temp": "bigint"}, [geoskip.MinMax("Temp")])
    for where, kept in ((F("Temp").is_null(), 2), (~F("Temp").isin([1]), 2), (F("Temp") == 1, 1), (F("Temp") > 1, 2)):
        dataset = geoskip.pyarrow_dataset(tmp_path, where)
        assert is_same(dataset.to_table(), alone(tmp_path, where))
        report = geoskip.report(dataset)
        assert (report.files_kept, len(report.scans[0].kept_files())) == (kept, kept)
        assert len(report.scans[0].skipped_files()) == 3 - kept


def test_one_file_and_a_folder_below_are_datasets_too(odd: Path) -> None:
    where = F("number") == 4
    below = geoskip.pyarrow_dataset(odd / "part=1", where)
    assert is_same(below.to_table(), alone(odd / "part=1", where))
    assert geoskip.report(below).files_kept == 1
    (file,) = (odd / "part=1").rglob("4.parquet")
    assert len(geoskip.pyarrow_dataset(file, where).to_table()) > 0
    assert len(geoskip.pyarrow_dataset(file, F("number") == 5).to_table()) == 0


def test_an_object_of_others_has_no_report(odd: Path) -> None:
    with pytest.raises(InvalidSpecificationError, match=r"geoskip\.pyarrow_dataset\(\)"):
        geoskip.report(ds.dataset(odd))  # type: ignore[arg-type]


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    """A Delta table of six files with metadata, one of which a DELETE has taken out of the table."""
    folder = tmp_path / "delta"
    tables = {
        f"part={n % 2}/{n}.parquet": pa.table({"a": pa.array(range(10 * n, 10 * n + 10), pa.int32())}) for n in range(6)
    }
    write_indexed(folder, tables, {"a": "int", "part": "int"}, [geoskip.MinMax("a")], partitions=("part",))
    make_delta(folder, part="integer")
    deltalake.DeltaTable(folder).delete("a >= 20 AND a < 30")
    return folder


def test_a_delta_table_is_read_by_its_log(delta: Path) -> None:
    own = deltalake.DeltaTable(delta).to_pyarrow_dataset()
    for where, kept in ((F("a") > 45, 1), (F("a") < 25, 3), ((F("part") == 1) & (F("a") < 25), 1)):
        dataset = geoskip.pyarrow_dataset(delta, where)
        assert is_same(dataset.to_table().sort_by("a"), own.filter(where).to_table().sort_by("a"))
        assert geoskip.report(dataset).files_kept <= kept + 1  # and what DELETE wrote, which has no metadata


def test_a_folder_inside_of_a_delta_table_is_refused(delta: Path) -> None:
    with pytest.raises(InvalidSpecificationError, match="give the table, and a condition on its partitions"):
        geoskip.pyarrow_dataset(delta / "part=0")


def test_a_delta_table_of_features_that_deltalake_lacks_is_refused(tmp_path: Path) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    protocol["writerFeatures"] = protocol["readerFeatures"]
    fields = {"type": "struct", "fields": []}
    about = {"id": "1", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(fields)}
    about |= {"partitionColumns": [], "configuration": {}}
    (tmp_path / "_delta_log").mkdir()
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    log.write_text("\n".join(json.dumps(action) for action in ({"protocol": protocol}, {"metaData": about})))
    with pytest.raises(InvalidSpecificationError, match="deltalake cannot give to pyarrow"):
        geoskip.pyarrow_dataset(tmp_path)


def test_times_that_arrow_reads_as_others_are_found_as_arrow_finds_them(tmp_path: Path) -> None:
    times = [dt.datetime(9999, 12, 31), dt.datetime(2020, 1, 1), dt.datetime(2021, 1, 1)]
    for number, time in enumerate(times):
        table = pa.table({"t": pa.array([time], pa.timestamp("us"))})
        pq.write_table(table, tmp_path / f"{number}.parquet", use_deprecated_int96_timestamps=True)
    built = geoskip.build(tmp_path, [geoskip.MinMax("t")])
    assert built.read == 3
    for where in (F("t") < dt.datetime(2019, 1, 1), ~(F("t") > dt.datetime(2020, 6, 1)), F("t") == times[2]):
        dataset = geoskip.pyarrow_dataset(tmp_path, where)
        assert is_same(dataset.to_table(), alone(tmp_path, where))
        assert len(dataset.to_table()) > 0
        assert geoskip.report(dataset).files_kept < 3


def test_times_of_int96_in_a_delta_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow reads its own times before 1970 wrongly in microseconds, in which deltalake has it read INT96."""
    times = [dt.datetime(1960, 1, 1, 12), dt.datetime(1980, 1, 1), dt.datetime(2020, 1, 1), dt.datetime(1950, 1, 1)]
    tables = {
        f"{number}.parquet": pa.table({"t": pa.array([time], pa.timestamp("us", "UTC"))})
        for number, time in enumerate(times)
    }
    delta, plain = tmp_path / "delta", tmp_path / "plain"
    for folder, is_old in ((delta, True), (plain, False)):
        folder.mkdir()
        for name, table in tables.items():
            pq.write_table(table, folder / name, use_deprecated_int96_timestamps=is_old and name != "3.parquet")

    def read_as_spark_does(files: list[tuple[str, str]], *arguments: Any) -> Any:
        return read_files([(path, str(plain / Path(local).name)) for path, local in files], *arguments)

    monkeypatch.setattr(indexed_files, "read_files", read_as_spark_does)
    write_indexed(delta, tables, {"t": "timestamp"}, [geoskip.MinMax("t")], written=True)
    make_delta(delta)
    whole = geoskip.pyarrow_dataset(delta).to_table()
    moment = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
    assert whole.filter(F("t") > moment).num_rows == 2
    dataset = geoskip.pyarrow_dataset(delta, F("t") > moment)
    assert is_same(dataset.to_table().sort_by("t"), whole.filter(F("t") > moment).sort_by("t"))
    report = geoskip.report(dataset)
    assert any(reason.startswith("read, since they hold times as INT96") for reason in report.reasons)
    assert (report.files_kept, len(report.scans[0].skipped_files())) == (2, 2)
    lazy = geoskip.scan_polars(delta)
    assert lazy.filter(pl.col("t") > moment).collect().height == 2


def test_statistics_of_a_delta_log_are_no_bounds_for_arrow(tmp_path: Path) -> None:
    values = [[math.nan, None, 0.1, -math.inf], [-0.0, math.inf], [math.nan]]
    times = [dt.datetime(9999, 12, 31, 23, 59, 59, 999999), dt.datetime(1, 1, 1), dt.datetime(2020, 1, 1)]
    for number, (some, time) in enumerate(zip(values, times, strict=True)):
        table = pa.table({"x": some, "t": pa.array([time] * len(some), pa.timestamp("us"))})
        pq.write_table(table, tmp_path / f"{number}.parquet", use_deprecated_int96_timestamps=True)
    deltalake.convert_to_deltalake(tmp_path)
    entry = tmp_path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    bounds = {"0.parquet": ("-Infinity", "NaN"), "1.parquet": (-0.0, "Infinity"), "2.parquet": ("NaN", "NaN")}
    for action in actions:  # as Spark writes them
        if "add" in action:
            low, high = bounds[action["add"]["path"]]
            stats = {"numRecords": 4, "minValues": {"x": low}, "maxValues": {"x": high}, "nullCount": {"x": 0}}
            action["add"]["stats"] = json.dumps(stats)
    entry.write_text("\n".join(map(json.dumps, actions)))
    whole = pa.table({"x": [one for some in values for one in some]})
    for condition in ("col('x') >= 0", "col('x') < 0", "~(col('x') < 0.1)", "col('x') > 1"):
        arrow, polars = (eval(condition, {"col": col}) for col in (F, pl.col))
        found = geoskip.pyarrow_dataset(tmp_path, arrow).to_table()["x"].to_pylist()
        assert sorted(map(str, found)) == sorted(map(str, whole.filter(arrow)["x"].to_pylist())), condition
        expected = sorted(map(str, pl.from_arrow(whole).filter(polars)["x"].to_list()))
        for frame in (geoskip.scan_polars(tmp_path, polars), geoskip.scan_polars(tmp_path).filter(polars)):
            assert sorted(map(str, frame.collect()["x"].to_list())) == expected, condition
    assert set(geoskip.pyarrow_dataset(tmp_path).to_table()["t"].to_pylist()) == set(times)


def test_null_is_in_no_list_and_out_of_none_for_polars(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, pa.table({"n": [1, None, 3]}))
    condition = ~pl.col("n").is_in([3])
    for frame in (geoskip.scan_polars(tmp_path, condition), geoskip.scan_polars(tmp_path).filter(condition)):
        assert frame.collect()["n"].to_list() == [1]


def test_a_delta_table_with_column_mapping_is_refused(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, pa.table({"a": [1]}))
    require_feature(tmp_path, "columnMapping", **{"delta.columnMapping.mode": "name"})
    entry = tmp_path / "_delta_log" / f"{1:020}.json"
    old = {"minReaderVersion": 2, "minWriterVersion": 5}  # without a list of features, as Spark writes it
    entry.write_text("\n".join([json.dumps({"protocol": old}), *entry.read_text().splitlines()[1:]]))
    for read in (geoskip.pyarrow_dataset, geoskip.scan_polars):
        with pytest.raises(InvalidSpecificationError, match="columns have other names in the files"):
            read(tmp_path)
