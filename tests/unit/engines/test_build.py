"""geoskip.build: the same metadata of Parquet files, without Spark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import BloomFilter, Hybrid, MinMax, Prefix, ValueList
from geoskip.engines import build as build_module
from geoskip.errors import (
    DatasetNotFoundError,
    InvalidSpecificationError,
    NeedsSparkError,
    NotIndexedError,
    UnknownColumnError,
)
from geoskip.indexes.base import Index
from geoskip.lifecycle import actions
from geoskip.lifecycle.log import latest
from geoskip.metadata import Header, build_table
from geoskip.stores import ParquetStore
from geoskip.stores.encryption import Encryption
from geoskip.stores.keyring import KeyRing
from tests.support.indexed_files import SETTINGS, write_files, write_indexed

Parts = Callable[..., Path]


def summaries(folder: Path, index: Index, metadata: Path | None = None) -> dict[str, Any]:
    """Summaries of an index by the files' paths, from the latest snapshot."""
    snapshot = latest(ParquetStore(metadata or folder / "_geoskip"))
    assert snapshot is not None
    return dict(zip(*(snapshot.files.column(name).to_pylist() for name in ("path", str(index))), strict=True))


def build_one(folder: Path, table: pa.Table, *indexes: Index, **options: Any) -> Any:
    """Build indexes over a folder of one file; return the file's summary of the first one."""
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / "a.parquet", **options)
    geoskip.build(folder, indexes, metadata=folder.with_name(f"{folder.name} metadata"))
    return summaries(folder, indexes[0], folder.with_name(f"{folder.name} metadata"))["a.parquet"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two partitions of a file each, ``n`` from 0 to 9 and from 10 to 19."""
    found = tmp_path / "data"
    tables = {f"day={day}/x.parquet": pa.table({"n": range(10 * day, 10 * day + 10)}) for day in range(2)}
    write_files(found, tables)
    return found


def bounds(summary: Any) -> tuple[Any, Any]:
    return summary["min"], summary["max"]


# --- the verbs --------------------------------------------------------------------------------------------------------


def test_indexes_are_built_added_and_refreshed(folder: Path) -> None:
    report = geoskip.build(folder, MinMax("n"))
    assert (report.files, report.rows, report.read, report.snapshot) == (2, 20, 2, 1)
    assert report.readers == {"minmax(n)": "footers"}
    assert geoskip.build(str(folder), [ValueList("n")]).read == 2
    assert set(geoskip.build(folder).indexes) == {"minmax(n)", "valuelist(n)"}
    assert geoskip.build(folder).read == 0
    write_files(folder, {"day=2/x.parquet": pa.table({"n": [77]}), "day=0/x.parquet": pa.table({"n": [5, None]})})
    (folder / "day=1" / "x.parquet").unlink()
    report = geoskip.build(folder)
    assert (report.files, report.read, report.snapshot) == (2, 2, 3)
    found = summaries(folder, MinMax("n"))
    assert {path: (*bounds(one), one["nulls"]) for path, one in found.items()} == {
        "day=0/x.parquet": (5, 5, 1),
        "day=2/x.parquet": (77, 77, 0),
    }
    assert geoskip.build(folder, mode="full").read == 2


def test_a_quick_refresh_reads_nothing(folder: Path) -> None:
    geoskip.build(folder, [MinMax("n")])
    write_files(folder, {"day=1/y.parquet": pa.table({"n": [1]})})
    report = geoskip.build(folder, mode="quick")
    assert (report.read, report.pending, report.files) == (0, 1, 2)
    assert geoskip.build(folder).read == 1


def test_without_an_index_there_is_nothing_to_refresh(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotIndexedError, match=r"has no index yet.*geoskip.build\(path, \[MinMax\('column'\)\]\)"):
        geoskip.build(folder)
    with pytest.raises(DatasetNotFoundError, match=r"there is no file or folder .*/nowhere"):
        geoskip.build(tmp_path / "nowhere", [MinMax("n")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetNotFoundError, match="has no files to index"):
        geoskip.build(tmp_path / "empty", [MinMax("n")])


def test_several_indexes_are_a_list_or_arguments(folder: Path) -> None:
    assert geoskip.build(folder, MinMax("n"), ValueList("n")).indexes == ("minmax(n)", "valuelist(n)")
    assert geoskip.build(folder, iter([Hybrid("n"), BloomFilter("n")])).indexes[2:] == ("hybrid(n)", "bloomfilter(n)")


def test_the_metadata_of_a_home_folder_are_found(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    geoskip.build(folder, MinMax("n"), metadata="~/kept")
    assert (tmp_path / "kept" / "_identity.json").exists()
    assert list(geoskip.files(folder, "n > 1000000", metadata="~/kept")) == []


def test_arguments_that_make_no_sense(folder: Path) -> None:
    for options, message in (
        ({"mode": "fast"}, r"build\(mode=\) takes 'incremental', 'full', 'quick', got 'fast'"),
        ({"threads": 0}, r"build\(threads=\) takes a number from 1 on, got 0"),
        ({"store": ParquetStore(folder / "m"), "metadata": "m"}, "give store= or metadata=, not both"),
        ({"store": "m"}, "store= takes a geoskip.stores.Store, got 'm'"),
        ({"metadata": 5}, "metadata= takes the path of a folder, got 5"),
        ({"metadata": "s3://bucket/m"}, "metadata= is a local folder without Spark"),
    ):
        with pytest.raises(InvalidSpecificationError, match=message):
            geoskip.build(folder, **options)  # type: ignore[arg-type]
    for wrong in (MinMax, "minmax(n)", None, 5, [[MinMax("n")]], {"n": MinMax("n")}):
        with pytest.raises(InvalidSpecificationError, match=r"build\(\) takes indexes such as MinMax\('temp'\), got "):
            geoskip.build(folder, wrong)  # type: ignore[arg-type]
    for path in (5, [5], ""):
        with pytest.raises(
            InvalidSpecificationError, match=r"build\(\) takes a folder, a file or a glob .* got (5|'')"
        ):
            geoskip.build(path)  # type: ignore[arg-type]
    with pytest.raises(InvalidSpecificationError, match="give it without indexes"):
        geoskip.build(folder, [MinMax("n")], mode="full")
    with pytest.raises(InvalidSpecificationError, match="s3://b/x is not a local path"):
        geoskip.build("s3://b/x", [MinMax("n")])
    with pytest.raises(InvalidSpecificationError, match="named twice"):
        geoskip.build(folder, [MinMax("n"), MinMax("n")])
    with pytest.raises(InvalidSpecificationError, match=r"minmax\(n\) and minmax\(N\) are the same index"):
        geoskip.build(folder, [MinMax("n"), MinMax("N")])


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("nn", UnknownColumnError, "the dataset has no column nn; did you mean n. Its columns are n, day"),
        ("day", InvalidSpecificationError, "reads the partition column day"),
        ("n + 1", InvalidSpecificationError, r"'n \+ 1' needs Spark.*build it by geoskip.dataset\(spark, path\)"),
        ("upper(n)", InvalidSpecificationError, "needs Spark .upper is no function that an installed library offers"),
        ("f(", InvalidSpecificationError, "needs Spark"),
        ("n.x", UnknownColumnError, "there is no x in n, which is bigint"),
        ("packed_address('a')", InvalidSpecificationError, "reads no column"),
        ("CAST(n AS string)", InvalidSpecificationError, "needs Spark"),
    ],
)
def test_texts_that_are_not_indexed(folder: Path, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        geoskip.build(folder, [ValueList(text)])
    assert not (folder / "_geoskip").exists()


@pytest.mark.parametrize("marker", ["_delta_log", ".hoodie", "metadata/v1.metadata.json"])
def test_tables_are_left_to_spark(folder: Path, marker: str) -> None:
    (folder / marker).mkdir(parents=True)
    with pytest.raises(InvalidSpecificationError, match="is a table of"):
        geoskip.build(folder, [MinMax("n")])


def test_many_threads_make_what_one_makes(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    tables = {
        f"{number}.parquet": pa.table({"n": generator.integers(0, 99, 50), "s": list("abcde") * 10})
        for number in range(150)
    }
    write_files(tmp_path, tables)
    indexes = [MinMax("n"), ValueList("s"), Prefix("s"), Hybrid("n"), BloomFilter("n")]
    for threads in (1, 4):
        report = geoskip.build(tmp_path, indexes, threads=threads, metadata=tmp_path / f"_{threads}")
        assert (report.files, report.excluded) == (150, {})
    for index in indexes:
        assert summaries(tmp_path, index, tmp_path / "_1") == summaries(tmp_path, index, tmp_path / "_4")


@pytest.mark.slow
def test_pyspark_is_not_imported(folder: Path) -> None:
    source = (
        "import sys, geoskip\n"
        f"print(geoskip.build({str(folder)!r}, [geoskip.MinMax('n')]).files)\n"
        "print([name for name in sys.modules if name.startswith(('pyspark', 'py4j', 'geoskip.spark'))])"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["2", "[]"]


def test_protected_metadata(folder: Path, tmp_path: Path) -> None:
    keys = KeyRing({"k": b"0" * 32})
    of_layout = Header(f"file:{folder}", {}, layout={"kind": "zorder"})
    ParquetStore(tmp_path / "layout").commit(of_layout, build_table([], []), expected=None)
    for place in (tmp_path / "m", tmp_path / "layout"):
        with pytest.raises(InvalidSpecificationError, match="would be in clear"):
            geoskip.build(folder, [MinMax("n")], store=ParquetStore(place, encryption=Encryption(keys)))
    store = ParquetStore(tmp_path / "m", encryption=Encryption(keys, "k"))
    assert geoskip.build(folder, [MinMax("n")], store=store).files == 2
    assert geoskip.build(folder, store=store).read == 0
    texts = [path.read_bytes() for path in (tmp_path / "m").rglob("*") if path.is_file()]
    assert not any(b"day=1" in text for text in texts)


# --- paths and partitions ---------------------------------------------------------------------------------------------


def test_files_that_spark_would_not_read_are_left_out(folder: Path) -> None:
    (folder / "day=0" / "empty.parquet").touch()
    write_files(
        folder,
        {name: pa.table({"n": [1]}) for name in ("day=0/_x.parquet", "_y/x.parquet", ".z/x.parquet", "beside.parquet")},
    )
    assert geoskip.build(folder, [MinMax("n")]).files == 2


def test_nested_folders_without_partitions_are_left_out_as_spark_does(tmp_path: Path) -> None:
    write_files(tmp_path, {name: pa.table({"n": [1]}) for name in ("x.parquet", "y/x.parquet")})
    geoskip.build(tmp_path, [MinMax("n")])
    assert list(summaries(tmp_path, MinMax("n"))) == ["x.parquet"]


def test_folders_without_partitions_in_common(tmp_path: Path) -> None:
    write_files(tmp_path, {name: pa.table({"n": [1]}) for name in ("a=1/x.parquet", "b=1/x.parquet")})
    with pytest.raises(InvalidSpecificationError, match="no partition columns in common"):
        geoskip.build(tmp_path, [MinMax("n")])


def test_globs_leave_out_hidden_folders(tmp_path: Path) -> None:
    write_files(tmp_path, {name: pa.table({"n": [1]}) for name in ("_y/x.parquet", ".z/x.parquet", "a/x.parquet")})
    geoskip.build(f"{tmp_path}/*", [MinMax("n")])
    assert list(summaries(tmp_path, MinMax("n"))) == ["a/x.parquet"]


def test_globs_lists_and_files_share_the_metadata_of_their_folder(folder: Path) -> None:
    geoskip.build(folder / "day=*", [MinMax("n")])
    assert len(summaries(folder, MinMax("n"))) == 2
    write_files(folder, {"day=1/y.parquet": pa.table({"n": [1]}), "day=3/y.parquet": pa.table({"n": [3]})})
    assert geoskip.build([folder / "day=1", folder / "day=0"]).read == 1
    assert len(summaries(folder, MinMax("n"))) == 3
    assert geoskip.build(f"{folder}/day={{0,3}}").read == 1
    (folder / "day=0" / "x.parquet").unlink()
    assert geoskip.build([folder / "day=1", folder / "day=3"]).files == 4  # day=0 is not of these paths
    assert geoskip.build(f"{folder}/day=[013]").files == 3
    geoskip.build(folder / "day=1" / "x.parquet", [MinMax("n")])
    assert list(summaries(folder / "day=1", MinMax("n"))) == ["x.parquet"]


def test_odd_names(tmp_path: Path) -> None:
    names = ["a b.parquet", "ä%20.parquet", "x\ny.parquet", "a+b?.parquet"]
    folder = tmp_path / "o'dd [1]"
    write_files(folder, {name: pa.table({"a.b": [1], "odd `name": [2]}) for name in names})
    report = geoskip.build(folder, [MinMax("a.b"), MinMax("`odd ``name`")])
    assert sorted(summaries(folder, MinMax("a.b"))) == sorted(name for name in names if "\n" not in name)
    assert ["line feed" in why for why in report.excluded.values()] == [True]


# --- the values -------------------------------------------------------------------------------------------------------


def test_an_index_that_is_spelt_otherwise_is_the_same(tmp_path: Path) -> None:
    pq.write_table(pa.table({"first name": ["a"], "a.b": [1], "a": [{"b": 2}]}), tmp_path / "0.parquet")
    geoskip.build(tmp_path, [MinMax("first name"), MinMax("`a.b`")])
    built = geoskip.build(tmp_path, [MinMax("`first name`"), MinMax("a.b"), MinMax("a.`b`")])
    assert built.indexes == ("minmax(first name)", "minmax(`a.b`)", "minmax(a.`b`)")
    store = ParquetStore(tmp_path / "_geoskip")
    with pytest.raises(NotIndexedError, match=r"no index minmax\(`b`\)"):
        actions.delete(store, ["minmax(`b`)"])
    assert actions.delete(store, ["minmax(`first name`)"]) == ("minmax(first name)",)
    assert actions.restore(store, ["minmax(`first name`)"]) == ("minmax(first name)",)


# --- soundness of the moment ------------------------------------------------------------------------------------------


def test_a_file_that_changes_while_it_is_read_has_no_metadata(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = build_module._read_chunk

    def meanwhile(*args: Any) -> Any:
        found = read(*args)
        write_files(folder, {"day=1/x.parquet": pa.table({"n": [1000]})})
        return found

    with monkeypatch.context() as patch:
        patch.setattr(build_module, "_read_chunk", meanwhile)
        patch.setattr("geoskip.sources.build_verbs._PASSES", 0)
        report = geoskip.build(folder, [MinMax("n")], threads=1)
    assert report.excluded == {"day=1/x.parquet": "it changed while it was indexed"}
    assert geoskip.build(folder).read == 1
    assert bounds(summaries(folder, MinMax("n"))["day=1/x.parquet"]) == (1000, 1000)


def test_files_that_arrive_meanwhile_are_read_in_a_second_pass(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = build_module._read_chunk

    def meanwhile(*args: Any) -> Any:
        if not (folder / "day=2").exists():
            write_files(folder, {"day=2/x.parquet": pa.table({"n": [7]})})
        return read(*args)

    monkeypatch.setattr(build_module, "_read_chunk", meanwhile)
    assert geoskip.build(folder, [MinMax("n")]).files == 3


def test_a_file_that_changes_after_it_was_read_is_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build, later = build_module.ParquetData.build, [pa.table({"n": [1000]})]

    def meanwhile(*args: Any) -> Any:
        built = build(*args)
        if later:
            pq.write_table(later.pop(), folder / "day=1/x.parquet")  # in place: the time of its folder stays
        return built

    geoskip.build(folder, [ValueList("n")])
    monkeypatch.setattr(build_module.ParquetData, "build", meanwhile)
    assert geoskip.build(folder, [MinMax("n")]).snapshot == 3
    assert bounds(summaries(folder, MinMax("n"))["day=1/x.parquet"]) == (1000, 1000)


def test_metadata_that_need_spark_are_not_refreshed(tmp_path: Path) -> None:
    changed = {"spark.sql.parquet.binaryAsString": "true"}
    tables = {"a.parquet": pa.table({"n": pa.array([1], pa.int32())})}
    write_indexed(tmp_path, tables, {"n": "int"}, [MinMax("n")], settings={**SETTINGS, **changed})
    assert geoskip.build(tmp_path).read == 0
    write_files(tmp_path, {"b.parquet": tables["a.parquet"]})
    with pytest.raises(InvalidSpecificationError, match="binaryAsString=true, which only Spark follows"):
        geoskip.build(tmp_path)
    assert list(summaries(tmp_path, MinMax("n"))) == ["a.parquet"]


def test_metadata_of_a_build_through_spark_are_continued(tmp_path: Path) -> None:
    zone = {"spark.sql.session.timeZone": "America/New_York"}
    tables = {"a.parquet": pa.table({"n": pa.array([1], pa.int32())})}
    store = write_indexed(tmp_path, tables, {"n": "int", "late": "int"}, [MinMax("n")], settings={**SETTINGS, **zone})
    write_files(tmp_path, {"b.parquet": tables["a.parquet"]})
    assert geoskip.build(tmp_path, [MinMax("late")]).read == 2
    header = store.header(store.latest() or 0)
    assert header.source["settings"]["spark.sql.session.timeZone"] == "America/New_York"
    assert summaries(tmp_path, MinMax("late"))["a.parquet"]["nulls"] == 1


# --- checks -----------------------------------------------------------------------------------------------------------


def test_summaries_that_contradict_the_data_are_named(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = parts({"a": [1, 2]}, {"a": [3, 4]}, {"a": [5, 6]})
    read = build_module.read_files

    def read_wrongly(*args: Any) -> Any:
        for result in read(*args):
            if result.path.endswith("2.parquet"):
                result.summaries["minmax(a)"]["max"] = 4
            yield result

    with monkeypatch.context() as patch:
        patch.setattr(build_module, "read_files", read_wrongly)
        geoskip.build(folder, geoskip.MinMax("a"))
    found = build_module.verify(folder)
    assert (found.ok, found.files, found.of) == (False, 3, 3)
    assert found.differing == {"part-00002.parquet": ("minmax(a)",)}
    assert build_module.verify(folder, 0.3).files == 1


def test_only_files_as_they_were_indexed_are_compared(parts: Parts) -> None:
    folder = parts({"a": [1, 2]}, {"a": [3, 4]})
    geoskip.build(folder, geoskip.MinMax("a"))
    pq.write_table(pa.table({"a": [7, 8, 9]}), folder / "part-00001.parquet")
    found = build_module.verify(folder)
    assert (found.ok, found.files, found.of) == (True, 1, 1)


def test_a_wrong_share_and_missing_metadata_are_errors(parts: Parts) -> None:
    folder = parts({"a": [1]})
    with pytest.raises(NotIndexedError, match="has no index yet"):
        build_module.verify(folder)
    with pytest.raises(InvalidSpecificationError, match="a share above 0"):
        build_module.verify(folder, 2)


def test_an_index_that_spark_alone_builds_is_named(parts: Parts) -> None:
    folder = parts({"a": [1]})
    store = ParquetStore(folder / "_geoskip")
    assert build_module.reason_for_spark(folder, store) is None
    geoskip.build(folder, geoskip.MinMax("a"))
    assert build_module.reason_for_spark(folder, store) is None


def test_a_refresh_that_reads_no_file_needs_no_spark(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = parts({"a": [1]}, {"a": [2]})
    store = ParquetStore(folder / "_geoskip")
    geoskip.build(folder, geoskip.MinMax("a"))

    def refuse(*_: Any) -> None:
        raise NeedsSparkError("minmax(a) needs Spark")

    monkeypatch.setattr(build_module.ParquetData, "bind", refuse)
    assert build_module.reason_for_spark(folder, store, of_indexes=False) is None
    assert build_module.reason_for_spark(folder, store) == "minmax(a) needs Spark"
    assert geoskip.build(folder).read == 0
    pq.write_table(pa.table({"a": [3]}), folder / "part-00002.parquet")
    assert geoskip.build(folder, mode="quick").pending == 1
    for mode in ("incremental", "full"):
        with pytest.raises(NeedsSparkError, match=r"^minmax\(a\) needs Spark$"):
            geoskip.build(folder, mode=mode)
