"""How a dataset is named: files, globs, lists, tables, odd characters, other file systems."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MinMax
from geoskip.errors import InvalidSpecificationError
from geoskip.sources.listed_files import literal_head, shared_folder
from geoskip.spark.filesystem import HadoopFolder
from tests.conftest import files_kept, kept_of_all

pytestmark = pytest.mark.spark


def fill(place: Path, *firsts: int) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    for first in firsts:
        pq.write_table(pa.table({"a": pa.array([first, first + 1], pa.int64())}), place / f"{first}.parquet")
    return place


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """``year=1`` .. ``year=3`` with two files each."""
    for year in (1, 2, 3):
        fill(tmp_path / "data" / f"year={year}", year * 100, year * 100 + 10)
    return tmp_path / "data"


def kept(read: Callable[[], Any], where: str = "a = 210") -> tuple[int, int]:
    return kept_of_all(lambda: read().where(where))


# --- files, globs, lists, subdirectories ------------------------------------------------------------------------------

HANDLES: dict[str, tuple[Callable[[Path], Any], int]] = {
    "directory": (str, 6),
    "glob of directories": (lambda tree: f"{tree}/year=*", 6),
    "glob of one directory": (lambda tree: f"{tree}/year=[2]", 2),
    "glob of files": (lambda tree: f"{tree}/year=*/*10.parquet", 3),
    "braces": (lambda tree: f"{tree}/{{year=1,year=2}}", 4),
    "list of directories": (lambda tree: [f"{tree}/year=1", f"{tree}/year=2"], 4),
    "list of files": (lambda tree: [f"{tree}/year=2/210.parquet", f"{tree}/year=1/100.parquet"], 2),
    "list of a glob and a file": (lambda tree: [f"{tree}/year=1/*", f"{tree}/year=2/210.parquet"], 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", HANDLES)
def test_a_dataset_may_be_named_in_many_ways(spark: Any, tree: Path, how: str) -> None:
    path_of, files = HANDLES[how]
    path = path_of(tree)
    handle = geoskip.dataset(spark, path)
    assert handle.create_index(MinMax("a")).files == files
    assert (tree / "_geoskip").is_dir()
    covered = set(handle.to_df().inputFiles())
    assert kept(handle.to_df) == (1, files)
    # queries of more, of less and of the same under other names are sound, and skip what the index covers
    for paths in (
        [str(tree)],
        [f"{tree}/*"],
        [f"{tree}/*/*"],
        [f"{tree}/year=2"],
        [f"{tree}/year=2/210.parquet"],
        [f"{tree}/year=1", f"{tree}/year=2/210.parquet"],
    ):
        frame = spark.read.parquet(*paths)
        listed = set(frame.inputFiles())
        matching = {file for file in listed & covered if file.endswith("210.parquet")}
        found = geoskip.explain(frame.where("a = 210"))
        assert (found.files_kept, found.files_total) == (len(matching) + len(listed - covered), len(listed)), paths
    report = handle.refresh_index()
    assert (report.files, report.read) == (files, 0)


def test_a_single_file(spark: Any, tmp_path: Path) -> None:
    fill(tmp_path, 0, 10, 20)
    one = geoskip.dataset(spark, str(tmp_path / "0.parquet"))
    assert one.create_index(MinMax("a")).files == 1
    assert kept(lambda: spark.read.parquet(str(tmp_path / "0.parquet")), "a > 5") == (0, 1)
    # another file of the folder shares its metadata, and takes nothing from it
    other = geoskip.dataset(spark, str(tmp_path / "10.parquet"))
    assert other.create_index(MinMax("a")).files == 2
    assert kept(lambda: spark.read.parquet(str(tmp_path)), "a > 15") == (1, 3)
    assert one.refresh_index().files == 2
    assert geoskip.dataset(spark, str(tmp_path)).refresh_index().files == 3


def test_an_index_of_a_subdirectory_is_its_own(spark: Any, tree: Path) -> None:
    geoskip.dataset(spark, str(tree)).create_index(MinMax("a"))
    geoskip.dataset(spark, f"{tree}/year=2").create_index(MinMax("a"))
    assert kept(lambda: spark.read.parquet(f"{tree}/year=2")) == (1, 2)
    assert kept(lambda: spark.read.parquet(str(tree))) == (1, 6)


def test_partition_columns_are_known_without_an_index(spark: Any, tree: Path) -> None:
    handle = geoskip.dataset(spark, str(tree))
    with pytest.raises(InvalidSpecificationError, match="partition column year"):
        handle.create_index(MinMax("year"))
    handle.create_index(MinMax("a"))
    assert kept(lambda: spark.read.parquet(str(tree)), "year = 1 OR a = 310") == (3, 6)
    fill(tree.parent / "odd" / "year of=1", 1)
    with pytest.raises(InvalidSpecificationError, match="partition column `year of`"):
        geoskip.dataset(spark, str(tree.parent / "odd")).create_index(MinMax("a + `year of`"))


def test_a_column_of_the_files_under_a_partition_columns_name(spark: Any, tmp_path: Path) -> None:
    """Read by a glob, p is what the files hold; read from the root, what the directories say."""
    for says in (1, 2):
        place = tmp_path / "data" / f"p={says}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"p": pa.array([says * 100], pa.int32()), "a": [says]}), place / "x.parquet")
    root = str(tmp_path / "data")
    geoskip.dataset(spark, f"{root}/p=*").create_index(MinMax("p"), MinMax("p + a"))
    by_glob = lambda: spark.read.parquet(f"{root}/p=*")  # noqa: E731
    by_root = lambda: spark.read.parquet(root)  # noqa: E731
    assert kept(by_glob, "p = 200") == (1, 2)
    assert kept(by_glob, "p = 2") == (0, 2)
    wheres = ["p = 2", "p = 200", "p = 2 OR a = 1", "p + a = 4", "p > 1 AND p < 3 AND a = 2", "p IN (1, 2) AND a > 1"]
    found = files_kept(by_root(), wheres)
    assert (found["p = 2"], found["p = 200"]) == (1, 0)


def test_paths_that_share_nothing_need_a_place_for_metadata(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecificationError, match="span the file systems"):
        shared_folder(["file:/a", "s3a://b/c"])
    assert literal_head("relative/*.csv") == "relative"


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(spark: Any) -> Iterator[str]:
    spark.sql("DROP TABLE IF EXISTS paths_test")
    yield "paths_test"
    spark.sql("DROP TABLE IF EXISTS paths_test")


@pytest.mark.slow
@pytest.mark.parametrize("external", [True, False], ids=["external", "managed"])
@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "flat"])
def test_tables(spark: Any, table: str, tmp_path: Path, external: bool, partitioned: bool) -> None:
    where = f"LOCATION '{tmp_path}/t'" if external else ""
    by = "PARTITIONED BY (p)" if partitioned else ""
    spark.sql(f"CREATE TABLE {table} (a LONG, p INT) USING parquet {by} {where}")
    for p in range(4):
        spark.sql(f"INSERT INTO {table} VALUES ({p * 10}, {p}), ({p * 10 + 1}, {p})")
    handle = geoskip.dataset(spark, table=table)
    files = handle.create_index(MinMax("a")).files
    assert files >= 4
    assert kept(lambda: spark.table(table), "a = 20")[0] == 1
    assert kept(lambda: spark.sql(f"SELECT * FROM {table} t"), "t.p < 3 AND a > 11")[0] <= files // 2
    spark.sql(f"INSERT INTO {table} VALUES (99, 9)")
    assert handle.refresh_index().read == 1
    assert kept(lambda: spark.table(table), "a = 99") == (1, files + 1)


def test_partitions_outside_the_table_and_under_lying_names(spark: Any, table: str, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE {table} (a LONG, p INT) USING parquet PARTITIONED BY (p) LOCATION '{tmp_path}/t'")
    spark.sql(f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    fill(tmp_path / "outside" / "p=7", 50, 60)
    spark.sql(f"ALTER TABLE {table} ADD PARTITION (p=5) LOCATION '{tmp_path}/outside/p=7'")
    report = geoskip.dataset(spark, table=table).create_index(MinMax("a"))
    assert report.files == 4
    files = {"a = 60": 1, "p = 5 AND a < 55": 1, "p = 7": 0, "p = 1 OR a = 50": 2}
    assert files_kept(spark.table(table), files) == files


# --- odd characters ---------------------------------------------------------------------------------------------------

ODD = [
    "with space",
    "per%cent",
    "a%20b",
    "plus+sign",
    "naïve-日本",
    "e=q",
    "semi;colon",
    "amp&",
    "hash#",
    "quo'te",
    "x,y",
]


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["direct", "spark"])
def test_odd_characters_in_paths(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str) -> None:
    if reader == "spark":
        monkeypatch.setattr("geoskip.spark.build.job._plans", lambda *_: None)
    root = tmp_path / "root with % and + and ü"
    for number, name in enumerate(ODD):
        fill(root / "inner", number * 10)
        (root / "inner" / f"{number * 10}.parquet").rename(root / "inner" / f"{name}.parquet")
    report = geoskip.dataset(spark, str(root / "inner")).create_index(MinMax("a"))
    assert (report.files, report.excluded) == (len(ODD), {})
    for number, name in enumerate(ODD):
        found = geoskip.explain(spark.read.parquet(str(root / "inner")).where(f"a = {number * 10}"))
        assert [Path(path).name for path in found.scans[0].kept_files()] == [f"{name}.parquet"]
    assert kept(lambda: spark.read.parquet(str(root / "inner")), "a % 20 = 0 AND a < 50") == (3, len(ODD))


@pytest.mark.slow
def test_odd_characters_in_partition_values(spark: Any, tmp_path: Path) -> None:
    place = str(tmp_path / "data")
    values = ["a%20b", "a b", "a+b", "a/b", "ü", "x=y", "", "%", 'quo"te', "colon:"]
    rows = [(number, value) for number, value in enumerate(values)]
    spark.createDataFrame(rows, "a long, p string").write.partitionBy("p").parquet(place)
    report = geoskip.dataset(spark, place).create_index(MinMax("a"), MinMax("a * 2"))
    assert (report.files, report.rows) == (len(values), len(values))
    for number in range(len(values)):
        for where in (f"a = {number}", f"a * 2 = {number * 2}"):
            assert geoskip.explain(spark.read.parquet(place).where(where)).files_kept == 1
    assert kept(lambda: spark.read.parquet(place), "a IN (0, 3, 7)")[0] == 3


def test_a_line_feed_in_a_path(spark: Any, tmp_path: Path) -> None:
    fill(tmp_path / "data", 0, 10)
    fill(tmp_path / "data" / "line\nfeed", 20)
    geoskip.dataset(spark, str(tmp_path / "data"), recursiveFileLookup=True).create_index(MinMax("a"))
    read = lambda: spark.read.option("recursiveFileLookup", True).parquet(str(tmp_path / "data"))  # noqa: E731
    assert kept(read, "a = 20")[0] == 1
    assert kept(read, "a = 0")[0] == 2  # the odd one is always read


# --- other file systems -----------------------------------------------------------------------------------------------


@pytest.fixture
def mounted(spark: Any, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A folder of this machine under another scheme, reached by the session's Hadoop client alone."""
    (tmp_path / "store").mkdir()
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    conf.set("fs.viewfs.mounttable.geo.link./store", f"file://{tmp_path}/store")
    conf.set("fs.viewfs.impl.disable.cache", "true")
    yield "viewfs://geo/store", tmp_path / "store"
    conf.unset("fs.viewfs.mounttable.geo.link./store")
    conf.unset("fs.viewfs.impl.disable.cache")


@pytest.mark.slow
def test_a_dataset_on_another_file_system(spark: Any, mounted: tuple[str, Path]) -> None:
    uri, place = mounted
    fill(place / "my data", 0, 10, 20)
    for path in (place / "my data").iterdir():
        os.utime(path, (1.7e9, 1.7e9))
    handle = geoskip.dataset(spark, f"{uri}/my data")
    report = handle.create_index(MinMax("a"))
    assert (report.files, report.excluded, report.readers) == (3, {}, {"minmax(a)": "spark"})
    assert kept(lambda: spark.read.parquet(f"{uri}/my data"), "a = 10") == (1, 3)
    # the same files under their local names are another dataset: their metadata say so
    assert kept(lambda: spark.read.parquet(str(place / "my data")), "a = 10") == (3, 3)
    elsewhere = geoskip.dataset(spark, str(place / "my data"), metadata=f"{uri}/meta")
    elsewhere.use_metadata()
    assert elsewhere.create_index(MinMax("a")).readers == {"minmax(a)": "footers"}
    assert kept(lambda: spark.read.parquet(str(place / "my data")), "a = 10") == (1, 3)


def test_a_hadoop_folder_does_what_a_local_one_does(spark: Any, mounted: tuple[str, Path], tmp_path: Path) -> None:
    uri, place = mounted
    folder = HadoopFolder(f"{uri}/a b")
    assert (folder.names("none"), folder.exists("x")) == ([], False)
    folder.create("sub/x", b"12345")
    assert (folder.read("sub/x", 3), folder.read("sub/x", 99)) == (b"123", b"12345")
    with pytest.raises(FileExistsError):
        folder.create("sub/x", b"other")
    with pytest.raises(FileNotFoundError):
        folder.read("sub/y", 3)
    with pytest.raises(FileNotFoundError):
        folder.local("sub/y")
    assert [name for name in folder.names("sub") if not name.startswith(".")] == ["x"]
    (tmp_path / "given file").write_bytes(b"part")
    folder.put("sub/part", tmp_path / "given file")
    assert folder.local("sub/part").read_bytes() == b"part"
    folder.delete("sub")
    folder.delete("sub")
    assert not folder.exists("sub/x")
    assert unquote(folder.location) == f"{uri}/a b"
    assert not list(place.glob("**/*.tmp"))
