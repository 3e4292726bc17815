"""Files of Delta tables without Spark: those that the log names, with its times and the current columns."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import predicates as p
from geoskip.errors import InvalidSpecificationError, NeedsSparkError, UnknownColumnError
from tests.support.indexed_files import write_indexed
from tests.support.odd_datasets import require_feature

INDEX = geoskip.MinMax("a")
ABOVE = p.Comparison(">", p.Column("a", "int"), p.Literal(15, "int"))


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    """A Delta table with odd partition values and metadata, one file of which a DELETE has replaced."""
    folder = tmp_path / "delta"
    for number, part in enumerate(["x y", "a/b%20", "é+"]):
        data = pa.table({"a": pa.array(range(10 * number, 10 * number + 10), pa.int32()), "part": [part] * 10})
        deltalake.write_deltalake(folder, data, partition_by=["part"], mode="append")
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.parquet"))
    tables = {name: pq.ParquetFile(folder / name).read() for name in files}
    write_indexed(folder, tables, {"a": "int"}, [INDEX], partitions=["part"], written=True)
    for name in files:  # the log's times count
        os.utime(folder / name)
    deltalake.DeltaTable(folder).delete("a = 5")
    return folder


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        (None, 3),
        (p.Comparison(">", p.Column("a", "int"), p.Literal(15, "int")), 3),
        ("a > 25", 2),
        ("part = 'a/b%20'", 1),
        ("part = 'é+' AND a < 5", 0),
        ("a < 5", 1),
    ],
    ids=str,
)
def test_the_files_of_a_delta_table_are_those_of_its_log(delta: Path, where: object, kept: int) -> None:
    found = geoskip.files(delta, where)
    expected = deltalake.DeltaTable(delta).file_uris()
    paths = {file.path for file in found}
    assert paths <= {os.path.realpath(path.removeprefix("file://")) for path in expected}
    assert (len(found), found.report.files_total) == (kept, 3)
    assert {file.partitions["part"] for file in found} <= {"x y", "a/b%20", "é+"}


@pytest.mark.parametrize("indexed", [True, False])
def test_a_folder_inside_of_a_delta_table_has_the_files_of_its_log(delta: Path, indexed: bool) -> None:
    if not indexed:
        shutil.rmtree(delta / "_geoskip")
    live = {os.path.realpath(path.removeprefix("file://")) for path in deltalake.DeltaTable(delta).file_uris()}
    for folder in delta.glob("part=*"):
        found = {file.path for file in geoskip.files(folder)}
        assert found == {path for path in live if Path(path).parent.samefile(folder)}
        for read in (geoskip.pyarrow_dataset, geoskip.scan_polars):
            with pytest.raises(InvalidSpecificationError, match=rf"{folder} is inside of the Delta table {delta}, .*"):
                read(folder)
        with pytest.raises(NeedsSparkError, match=f"{delta} is a table of Delta, whose log says which"):
            geoskip.build(folder, INDEX)
    (folder,) = (folder for folder in delta.glob("part=*") if len(list(folder.glob("*.parquet"))) == 2)
    rows = geoskip.read_geoparquet(folder, points=("a", "a"))  # without the file that had the deleted row
    assert sorted(rows["a"]) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    con = geoskip.duckdb(duckdb.connect())
    con.register_dataset("t", folder)
    assert con.sql("SELECT count(*) FROM t").fetchall() == [(9,)]


def test_conditions_on_a_delta_table_have_the_types_of_now(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, pa.table({"a": pa.array([1, 2], pa.int32()), "b": [30, 40]}))
    (name,) = (path.name for path in tmp_path.glob("*.parquet"))
    tables = {name: pq.ParquetFile(tmp_path / name).read()}
    indexes = [geoskip.MinMax("a"), geoskip.MinMax("b")]
    write_indexed(tmp_path, tables, {"a": "int", "b": "bigint"}, indexes, written=True)
    os.utime(tmp_path / name)
    assert [len(geoskip.files(tmp_path, where)) for where in ("a = 9999999999", "b < 3", "b > 3")] == [0, 0, 1]
    require_feature(tmp_path, "columnMapping", **{"delta.columnMapping.mode": "name"})
    entry = tmp_path / "_delta_log" / f"{1:020}.json"
    text = entry.read_text()
    for old, new in (("a", "x"), ("b", "a"), ("x", "b")):  # the names change places, those in the file stay
        text = text.replace(f'\\"name\\": \\"{old}\\"', f'\\"name\\": \\"{new}\\"')
    entry.write_text(text)
    for where in ("b < 3", p.Comparison("<", p.Column("b", "bigint"), p.Literal(3, "bigint"))):
        assert len(geoskip.files(tmp_path, where)) == 1
        assert "its columns have other names in the files" in str(geoskip.files(tmp_path, where).report)
    assert "the table has no column b of this name in its files" in str(geoskip.files(tmp_path, where).report)
    entry.unlink()
    wider = pa.table({"a": pa.array([9999999999]), "b": [30], "late": ["x"]})
    deltalake.write_deltalake(tmp_path, wider, mode="overwrite", schema_mode="overwrite")
    for where in ("a = 9999999999", "late = 'x'"):
        assert len(geoskip.files(tmp_path, where)) == 1
    assert "built over a as int, the table has bigint now" in str(geoskip.files(tmp_path, "a = 1").report)
    with pytest.raises(UnknownColumnError, match="no column c"):
        geoskip.files(tmp_path, "c = 1")


def test_a_file_that_was_replaced_and_converted_to_delta_again(tmp_path: Path) -> None:
    """A file of the same name and size has another time in the new log."""
    for start in (0, 1000):
        tables = {"0.parquet": pa.table({"a": pa.array(range(start, start + 10), pa.int32())})}
        pq.write_table(tables["0.parquet"], tmp_path / "0.parquet", compression="none")
        os.utime(tmp_path / "0.parquet", (start + 1, start + 1))
        shutil.rmtree(tmp_path / "_delta_log", ignore_errors=True)
        deltalake.convert_to_deltalake(tmp_path)
        if not start:
            write_indexed(tmp_path, tables, {"a": "int"}, [INDEX], written=True)
            assert geoskip.files(tmp_path, "a = 1005") == []
    assert len(geoskip.files(tmp_path, "a = 1005")) == 1


def test_a_delta_table_whose_folder_looks_encoded_is_refused(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "a b", pa.table({"a": [1]}))
    shutil.copytree(tmp_path / "a b", tmp_path / "a%20b")  # deltalake would read the log of the other one
    assert len(geoskip.files(tmp_path / "a b")) == 1
    for read in (geoskip.files, geoskip.pyarrow_dataset, geoskip.scan_polars):
        with pytest.raises(InvalidSpecificationError, match="whose name looks encoded"):
            read(tmp_path / "a%20b")
