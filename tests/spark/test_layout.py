"""Datasets written in a layout: exactly the rows, in so many even files, that skip."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import geoskip
from datasets.layout import read
from geoskip import GeoBox, Hilbert, KDTree, MinMax, Sort, ZOrder
from geoskip.errors import (
    GeoskipError,
    InvalidSpecificationError,
    StoreError,
    UnknownColumnError,
    UnsupportedColumnError,
)
from geoskip.lifecycle.log import latest
from geoskip.spark.build import arrange as arrange_module
from geoskip.spark.build.arrange import gain_of_neighbours, parquet_bytes, partition_numbers
from tests.conftest import SOAK, same_as_off
from tests.support.layout_files import files_of

pytestmark = pytest.mark.spark

LAYOUTS = [ZOrder, Hilbert, KDTree, Sort]
ROWS = 6000


@pytest.fixture(scope="module")
def places(spark: Any) -> Any:
    """Points, with many equal towns and some NULLs."""
    frame = spark.range(ROWS).selectExpr(
        "id",
        "IF(id % 50 = 0, NULL, pmod(xxhash64(id), 36000) / 100D) AS lng",
        "pmod(xxhash64(id, 1), 18000) / 100D AS lat",
        "concat('a common prefix of towns/', IF(id % 3 = 0, 0, pmod(xxhash64(id, 2), 90))) AS town",
        "CAST(id % 4 AS INT) AS region",
    )
    return frame.persist()


@pytest.fixture(scope="module")
def expected(places: Any) -> list[Any]:
    """The rows of places by their ids."""
    return by_id(places)


def by_id(frame: Any) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: row["id"])


def rows_of(folder: Path | str) -> list[int]:
    return [pq.read_metadata(file).num_rows for file in files_of(folder)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_layout_has_so_many_even_files_that_skip_and_is_recorded(
    spark: Any, places: Any, expected: Any, tmp_path: Path, kind: Any
) -> None:
    folder = tmp_path / "places"
    written = geoskip.write(places, folder, layout=kind("lng", "lat"), files=25, indexes=[MinMax("lng"), MinMax("lat")])
    rows = rows_of(folder)
    assert len(rows) == 25
    assert sum(rows) == ROWS
    assert max(rows) <= 1.4 * ROWS / 25
    assert min(rows) >= 0.6 * ROWS / 25
    back = written.to_df()
    assert back.columns == places.columns
    assert by_id(back) == expected
    back.createOrReplaceTempView("places")
    query = "SELECT * FROM places WHERE lng BETWEEN 100 AND 120 AND lat BETWEEN 30 AND 40"
    assert same_as_off(lambda: spark.sql(query)).files_kept <= (4 if kind is not Sort else 5)
    same_as_off(lambda: back.where("lng IS NULL OR lat = 77.5"))
    header = latest(written.store).header
    assert header.layout["expressions"] == ["lng", "lat"]
    assert header.layout["kind"] == kind.kind
    if kind is ZOrder or SOAK:  # an append knows of no kind
        written.append(places.limit(10))
        assert latest(written.store).header.layout == header.layout
        geoskip.write(places.limit(20), folder, layout=kind("lng", "lat"), files=1, mode="append")
        overlap = written.layout().overlap
        assert (overlap.files, overlap.unarranged) == (27, 1), "the append that named the layout is recorded"


@pytest.mark.slow
def test_folders_of_partitions_have_files_in_their_own_order(places: Any, expected: Any, tmp_path: Path) -> None:
    few = places.where("region > 0 OR id < 40")
    folder = tmp_path / "p"
    written = geoskip.write(
        few, folder, layout=Hilbert("lng", "lat"), files=13, partition_by="REGION", indexes=MinMax("lng")
    )
    counts = {region: len(files_of(folder / f"region={region}")) for region in range(4)}
    assert counts == {0: 1, 1: 4, 2: 4, 3: 4}
    rows = [row for row in expected if row["region"] > 0 or row["id"] < 40]
    assert by_id(written.to_df().select(*few.columns)) == rows
    same_as_off(lambda: written.to_df().where("region = 2 AND lng < 20"))
    before = len(files_of(folder))
    again = geoskip.write(
        few,
        folder,
        layout=Hilbert("lng", "lat"),
        files=4,
        partition_by=["region"],
        mode="append",
        indexes=MinMax("lng"),
    )
    assert len(files_of(folder)) == before + 4
    assert again.to_df().count() == 2 * len(rows)
    assert len(latest(again.store).header.layout["writes"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ZOrder, KDTree])
def test_equal_rows_fill_as_many_files_as_were_asked_for(spark: Any, tmp_path: Path, kind: Any) -> None:
    same = spark.range(30, numPartitions=3).selectExpr("1 AS a", "CAST(NULL AS STRING) AS b")
    geoskip.write(same, tmp_path / "same", layout=kind("a", "b"), files=10)
    assert rows_of(tmp_path / "same") == [3] * 10
    distinct = spark.range(30, numPartitions=3).selectExpr("id", "1 AS a", "map(id, id) AS m")
    geoskip.write(distinct, tmp_path / "one", layout=kind("a"), files=40)
    assert rows_of(tmp_path / "one") == [1] * 30
    maps = spark.range(30).selectExpr("map('k', array(id)) AS m", "named_struct('m', map(1, 'x')) AS n")
    assert maps.select(arrange_module._tie_of(maps)).distinct().count() == 30, "no turns, which a retry could change"


def test_of_columns_that_differ_by_case_the_one_named_becomes_folders(spark: Any, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        frame = spark.range(20).selectExpr("id", "id % 2 AS k", "id % 5 AS K")
        geoskip.write(frame, tmp_path / "twins", layout=ZOrder("id", "K"), files=4, partition_by="k")
        assert sorted(each.name for each in (tmp_path / "twins").glob("*=*")) == ["k=0", "k=1"]
        assert sorted(spark.read.parquet(str(tmp_path / "twins")).select("id", "k", "K").collect()) == frame.collect()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_rows_may_be_read_from_what_they_overwrite(spark: Any, tmp_path: Path) -> None:
    folder, link = tmp_path / "read", tmp_path / "link"
    spark.range(20).write.parquet(str(folder))
    link.symlink_to(folder)
    spark.read.parquet(str(folder)).createOrReplaceTempView("rows_read")
    for reading, rows in (
        (lambda: spark.table("rows_read").where("id > 3").cache(), 16),
        (lambda: spark.range(50).where("id > (SELECT max(id) FROM rows_read)"), 30),
        (lambda: spark.read.parquet(str(link)).where("id % 2 = 0"), 15),
    ):
        frame = reading()
        assert geoskip.write(frame, folder, layout=Sort("id"), files=3, mode="overwrite").to_df().count() == rows
        spark.catalog.refreshTable("rows_read")
        assert spark.table("rows_read").count() == rows
        frame.unpersist()
    assert sorted(path.name for path in folder.iterdir() if path.name[0] not in "p.") == ["_SUCCESS", "_geoskip"]


def test_an_overwrite_that_fails_leaves_the_old_files(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "full"
    geoskip.write(spark.range(20), folder, layout=Sort("id"), files=2, indexes=MinMax("id"))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    broken = spark.range(3000).selectExpr("id", "IF(id > 2000, raise_error('No space left on device'), 1) AS one")
    with pytest.raises(GeoskipError, match=r"full could not be overwritten, and is as it was: .*No space left.*"):
        geoskip.write(broken, folder, mode="overwrite")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_rows_that_spark_could_not_read_with_the_old_ones_are_refused(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(4).selectExpr("id AS a", "id % 2 AS Day")
    for folders, frame, partition_by, message in (
        ("Day", rows, (), r"write\(partition_by=\) takes the partition columns .*\['Day'\], got \[\]"),
        ((), rows, "Day", r"\[\], got \['Day'\]"),
        ((), rows.drop("a"), (), r"write\(\) takes rows with the columns .* lack a, so nothing was written"),
        ((), rows.selectExpr("string(a) AS A", "Day"), (), r"a is of type bigint there, got string"),
    ):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        geoskip.write(rows, folder, partition_by=folders, files=1)
        with pytest.raises(InvalidSpecificationError, match=message):
            geoskip.write(frame, folder, partition_by=partition_by, mode="append")
        geoskip.write(rows, folder, partition_by=folders, mode="append")
        assert spark.read.parquet(str(folder)).count() == 8


@pytest.mark.slow
def test_partitions_that_an_overwrite_leaves_are_not_taken_for_arranged(
    spark: Any, places: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "dynamic"
    places.repartition(2).write.partitionBy("region").parquet(str(folder))
    one = places.where("region = 1")
    options = {"layout": Sort("lat"), "files": 2, "partition_by": "region", "indexes": MinMax("lat")}
    written = geoskip.write(one, folder, mode="overwrite", partitionOverwriteMode="dynamic", **options)
    assert written.to_df().count() == ROWS
    assert len(files_of(folder / "region=1")) == 2
    shown = written.layout().overlap
    assert (shown.overlapping, shown.files) == (6, 8)


@pytest.mark.slow
def test_geometries_are_laid_out_by_their_centres(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    shapes = [shapely.Point(*xy).buffer(0.1) for xy in rng.random((900, 2)) * 100]
    rows = [(n, shapely.to_wkb(shape)) for n, shape in enumerate(shapes)]
    frame = spark.createDataFrame([*rows, (900, None), (901, shapely.to_wkb(shapely.Point()))], "id INT, shape BINARY")
    geometry = "ST_GeomFromWKB(shape)"
    written = geoskip.write(frame, tmp_path / "g", layout=Hilbert(geometry), files=16, indexes=GeoBox(geometry))
    inside = "ST_Intersects(ST_GeomFromWKB(shape), ST_PolygonFromEnvelope(10D, 10D, 20D, 20D))"
    assert same_as_off(lambda: written.to_df().where(inside)).files_kept <= 5
    written.delete_index(GeoBox(geometry))
    report = written.layout()
    assert list(report.columns) == [f"{geometry} (x)", f"{geometry} (y)"], "read from the files, not as bytes"
    assert max(each.files_read[0] for each in report.columns.values()) < 8
    with pytest.raises(InvalidSpecificationError, match=r"geometries as WKB, .* name ST_GeomFromWKB\(shape\)"):
        written.layout("shape")


@pytest.mark.slow
def test_a_size_of_files_is_met_by_a_sample(spark: Any, places: Any, tmp_path: Path) -> None:
    wide = places.selectExpr("*", "uuid() AS note")
    wide = spark.createDataFrame(wide.collect(), wide.schema)
    written = geoskip.write(wide, tmp_path / "s", layout=ZOrder("lng", "lat"), file_size="40 KiB")
    sizes = [Path(file).stat().st_size for file in files_of(tmp_path / "s")]
    assert len(sizes) > 4
    assert 0.6 < np.mean(sizes) / (40 << 10) < 1.4
    report = written.layout()
    assert (report.layout, report.overlap.overlapping, written.indexes) == ("zorder(lng, lat)", 0, ())
    indexed = geoskip.dataset(spark, tmp_path / "s", mergeSchema=True)  # no index was built with other options
    assert indexed.create_index(MinMax("lat")).layout.startswith("zorder(lng, lat)")


def test_the_size_of_a_file_is_as_spark_encodes_its_columns(spark: Any, tmp_path: Path) -> None:
    values = "xxhash64(id) / 7e18 AS value", "pmod(xxhash64(id, 1), 9) AS few", "concat(id % 7, uuid()) AS name"
    frame = spark.range(2000).selectExpr(*values)
    frame.coalesce(1).write.parquet(str(tmp_path / "one"))
    (file,) = files_of(tmp_path / "one")
    assert parquet_bytes(frame, pq.read_table(file)) == pytest.approx(Path(file).stat().st_size, rel=0.06)


def test_rows_of_a_file_compress_better_than_sampled_ones() -> None:
    frame: Any = None  # without a session, as the codec is given
    rows = read("flights").slice(0, 200_000).sort_by([("destination", "ascending"), ("distance", "ascending")])
    sampled = rows.take(np.arange(0, len(rows), 10))

    def bytes_of_files(table: pa.Table) -> float:
        starts = np.linspace(0, len(table) - 4000, 5).astype(int).tolist()
        return float(np.mean([parquet_bytes(frame, table.slice(start, 4000), "snappy") for start in starts]))

    size, truth = bytes_of_files(sampled), bytes_of_files(rows)
    assert size > 1.15 * truth
    assert size * gain_of_neighbours(frame, sampled, len(rows), "snappy") == pytest.approx(truth, rel=0.12)
    assert gain_of_neighbours(frame, sampled, len(sampled), "snappy") == 1


def test_a_dataframe_without_rows_is_written_with_its_columns(spark: Any, places: Any, tmp_path: Path) -> None:
    none = places.where("id < 0")
    written = geoskip.write(none, tmp_path / "none", layout=Hilbert("lng", "lat"), files=4)
    assert written.to_df().dtypes == places.dtypes
    assert written.to_df().count() == 0
    empty = geoskip.write(none, tmp_path / "p", layout=Hilbert("lng"), partition_by="region", indexes=MinMax("lng"))
    assert empty.path == str(tmp_path / "p")


def test_what_spark_cannot_compute_or_write_is_an_error_that_says_so(spark: Any, places: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StoreError, match=r"inside could not be written: .*; get permission there, or name another"):
        geoskip.write(places, tmp_path / "file" / "inside", layout=Sort("lng"), files=1)
    with pytest.raises(GeoskipError, match=r"could not be arranged, and nothing was written: .*zero"):
        geoskip.write(places, tmp_path / "not", layout=Sort("IF(id < 0, id, raise_error('zero'))"), files=2)
    assert not (tmp_path / "not").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"layout": ZOrder("lgn", "lat")}, UnknownColumnError, r"no column lgn; did you mean lng\?"),
        ({"layout": Sort("a b c")}, InvalidSpecificationError, "no SQL that Spark can parse"),
        ({"layout": Hilbert("map(id, 1)")}, UnsupportedColumnError, "of type map<bigint,int>, whose values have no"),
        ({"layout": Hilbert("array(id)")}, UnsupportedColumnError, "of type array<bigint>"),
        ({"layout": ZOrder("lng", "rand()")}, InvalidSpecificationError, "rand.. is not deterministic"),
        ({"layout": ZOrder("lng", "now()")}, InvalidSpecificationError, "now.. reads no column, so it puts rows in no"),
        ({"layout": ZOrder("sum(lng)")}, InvalidSpecificationError, "over more than one row"),
        ({"layout": ZOrder("explode(array(1))")}, InvalidSpecificationError, "over more than one row"),
        ({"layout": ZOrder("row_number() OVER (ORDER BY id)")}, InvalidSpecificationError, "over more than one row"),
        ({"layout": ZOrder("lng", "LNG")}, InvalidSpecificationError, "LNG has the values of one before it"),
        ({"layout": Hilbert("id + 1", "lat", "`ID` + 1")}, InvalidSpecificationError, "ID. . 1 has the values of one"),
        ({"layout": "lng"}, InvalidSpecificationError, r"takes a layout such as ZOrder\('lng', 'lat'\), got 'lng'"),
        ({"files": 0}, InvalidSpecificationError, "takes a number from 1 to 100,000, got 0"),
        ({"files": True}, InvalidSpecificationError, "got True"),
        ({"files": 3, "file_size": "1m"}, InvalidSpecificationError, "files= or file_size=, not both"),
        ({"file_size": "much"}, InvalidSpecificationError, "such as '128 MiB', got 'much'"),
        ({"file_size": "1 GiB"}, InvalidSpecificationError, "needs a layout="),
        ({"file_size": 0}, InvalidSpecificationError, "bytes above 0"),
        ({"mode": "Replace"}, InvalidSpecificationError, "'overwrite', 'append', 'ignore', got 'Replace'"),
        ({"partition_by": "regoin"}, UnknownColumnError, r"no column regoin; did you mean region\?"),
        ({"partition_by": ["id", "ID"]}, InvalidSpecificationError, "each column once"),
        ({"indexes": [MinMax("lgn")]}, UnknownColumnError, r"minmax\(lgn\): the dataset has no column lgn"),
        ({"indexes": ["lng"]}, InvalidSpecificationError, "takes indexes such as"),
        ({"indexes": MinMax("Region + 1"), "partition_by": "region"}, InvalidSpecificationError, "reads a partition"),
        ({"partitionBy": "region"}, InvalidSpecificationError, "no argument partitionBy; did you mean partition_by="),
        ({"format": "delta"}, InvalidSpecificationError, "writes Parquet, got format='delta'"),
        ({"metadata": 5}, InvalidSpecificationError, r"write\(metadata=\) takes the path of a folder, got 5"),
        ({"store": 5}, InvalidSpecificationError, r"write\(store=\) takes a geoskip.stores.Store, got 5"),
        ({"compression": "best"}, InvalidSpecificationError, r"\(compression=\) takes a codec .* got 'best': .*snappy"),
        ({"compression": "lzo"}, GeoskipError, "could not be written: .*LzoCodec"),
        (
            {"maxRecordsPerFile": "few"},
            InvalidSpecificationError,
            "written: the option maxR.* takes a number, got 'few'",
        ),
        (
            {"parquet.block.size": "big"},
            InvalidSpecificationError,
            "the option parquet.block.size takes a number, got 'big'",
        ),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_what_cannot_be_written_is_refused_before_anything_is(
    places: Any, tmp_path: Path, arguments: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        geoskip.write(places, tmp_path / "not", **arguments)
    assert not (tmp_path / "not").exists()


@pytest.mark.parametrize("value", ["map(id, 1)", "array(id)", "struct(id)"])
def test_no_folder_is_named_by_a_value_of_several_parts(places: Any, tmp_path: Path, value: str) -> None:
    rows = places.selectExpr("*", f"{value} AS parts")
    with pytest.raises(UnsupportedColumnError, match=r"partition_by=\): parts is of type .*, which no folder"):
        geoskip.write(rows, tmp_path / "not", layout=Sort("id"), files=2, partition_by="parts")
    assert not (tmp_path / "not").exists()


@pytest.mark.slow
def test_a_folder_that_exists_is_kept_unless_it_is_to_be_overwritten(spark: Any, places: Any, tmp_path: Path) -> None:
    folder = tmp_path / "twice"
    small = places.limit(20).cache()
    geoskip.write(small, folder, layout=Sort("lng"), files=2, indexes=MinMax("lng"))
    before = files_of(folder)
    with pytest.raises(InvalidSpecificationError, match="exists already: write to another folder, or give mode="):
        geoskip.write(places, folder, layout=Sort("lng"))
    assert geoskip.write(places, folder, layout=Sort("lng"), mode="IGNORE").to_df().count() == 20
    assert files_of(folder) == before
    again = geoskip.write(small, folder, layout=ZOrder("lat"), files=3, mode="overwrite", indexes=MinMax("lat"))
    assert len(files_of(folder)) == 3
    assert [str(index) for index in again.indexes] == ["minmax(lat)"]
    assert again.to_df().count() == 20
    for wrong in ("*", 7, ""):
        with pytest.raises(InvalidSpecificationError, match="the path of one folder"):
            geoskip.write(places, wrong)
    with pytest.raises(InvalidSpecificationError, match="takes a DataFrame of Spark, got SimpleNamespace"):
        geoskip.write(SimpleNamespace(), folder)
    for write in (again.append, lambda rows: geoskip.write(rows, folder, mode="append")):
        with pytest.raises(InvalidSpecificationError, match="takes rows that are there, got a stream"):
            write(spark.readStream.format("rate").load())


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"compression": "brotli"}, {"parquet.block.size": "large"}], ids=str)
@pytest.mark.parametrize("partition_by", [(), "region"], ids=str)
def test_options_that_the_writer_refuses_leave_a_folder_that_was_to_be_overwritten(
    spark: Any, places: Any, tmp_path: Path, options: Any, partition_by: Any
) -> None:
    folder = tmp_path / "kept"
    geoskip.write(places.limit(20), folder, files=2, indexes=MinMax("lng"))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(GeoskipError, match=r"kept could not be overwritten, and is as it was: "):
        geoskip.write(places, folder, layout=Sort("lng"), mode="overwrite", partition_by=partition_by, **options)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("partitions", [1, 2, 7, 64, 1000])
def test_a_number_is_known_for_each_partition_of_sparks_hash(spark: Any, partitions: int) -> None:
    numbers = partition_numbers(partitions).tolist()
    sent = spark.createDataFrame([(n,) for n in numbers], "n BIGINT").selectExpr(f"pmod(hash(n), {partitions})")
    assert [row[0] for row in sent.collect()] == list(range(partitions))


@pytest.mark.parametrize("verb", ["append", "dynamic overwrite"])
def test_rows_that_are_added_and_cannot_be_indexed_are_not_to_be_written_again(
    spark: Any, tmp_path: Path, verb: str
) -> None:
    folder = tmp_path / "data"
    geoskip.write(spark.range(10).selectExpr("id", "0 AS p"), folder, partition_by="p", indexes=MinMax("id"))
    log = folder / "_geoskip" / "_operations"
    shutil.rmtree(log)
    log.touch()  # so that nothing can be written there
    more = spark.range(10, 15).selectExpr("id", "1 AS p")
    options = {"mode": "append"} if verb == "append" else {"mode": "overwrite", "partitionOverwriteMode": "dynamic"}
    with pytest.warns(UserWarning, match="the rows are in .*, and are not indexed: .* cannot be written") as found:
        geoskip.write(more, folder, partition_by="p", **options)
    assert found[0].filename == __file__
    assert spark.read.parquet(str(folder)).count() == 15
