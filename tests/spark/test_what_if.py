"""What-if through Spark: the truth lies in its intervals, nothing is written, and bad input is told by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import BloomFilter, GeoBox, KDTree, MetricDist, MinMax, Sort, ValueList, ZOrder
from geoskip.errors import (
    DatasetNotFoundError,
    GeoskipError,
    InvalidSpecificationError,
    UnknownColumnError,
    UnsupportedColumnError,
)
from geoskip.spark.advisor import simulated_layout
from tests.bench.what_if import HELD_OUT, LEAST_HELD, covered
from tests.conftest import SOAK, four_tens

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def many(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty files in two partitions, with ids in order and a value that each file has alone."""
    place = tmp_path_factory.mktemp("many")
    for number in range(40):
        folder = place / "data" / f"part={number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        ids = list(range(10 * number, 10 * number + 10))
        pad = ["x" * (100 * number)] * 10
        tags = pa.array([[("a", 1)]] * 10, pa.map_(pa.string(), pa.int32()))
        table = pa.table({"id": ids, "word": [f"w{number}"] * 10, "pad": pad, "pair": [{"a": 1}] * 10, "tags": tags})
        pq.write_table(table, folder / f"{number:02}.parquet", compression="none")
    spark.read.parquet(str(place / "data")).createOrReplaceTempView("many_files")
    return place / "data"


def parquet_files(place: Path) -> list[Path]:
    return list((place / "written").glob("*.parquet"))


def files_below(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.slow
def test_of_over_a_hundred_held_out_queries_the_intervals_hold_the_truth(spark: Any, tmp_path: Path) -> None:
    found = [each for held_out in HELD_OUT for each in covered(spark, held_out, tmp_path, samples=9)]
    assert len(found) >= 100
    missed = [
        (each.dataset, each.condition, str(each.estimate.files), each.files) for each in found if not each.files_hold
    ]
    assert len(missed) <= (1 - LEAST_HELD) * len(found), missed
    assert sum(each.bytes_hold for each in found) >= LEAST_HELD * len(found)
    assert sum(each.files < each.estimate.files_now / 2 for each in found) > len(found) / 3  # the queries do skip
    guessed = sum(each.estimate.files.value for each in found)
    assert guessed == pytest.approx(sum(each.files for each in found), rel=0.25)


def test_a_sample_of_all_files_is_the_truth_and_nothing_is_written(spark: Any, many: Path) -> None:
    dataset = geoskip.dataset(spark, str(many))
    frame = spark.read.parquet(str(many))
    frame.createOrReplaceTempView("many")
    before = files_below(many)
    recent = len(geoskip.reports(spark))
    found = geoskip.what_if(
        dataset,
        [MinMax("id"), ValueList("word"), MetricDist("word", metric="levenshtein")],
        queries=[
            "SELECT count(*) FROM many WHERE id BETWEEN 95 AND 104",
            frame.where("word = 'w7' OR id > 390"),
            "SELECT a.id FROM many a JOIN many b ON a.id = b.id WHERE a.word = 'w3' AND b.part = 1 AND b.id < 50",
            "SELECT * FROM many WHERE levenshtein(word, 'w11') <= 0",
            "SELECT * FROM many WHERE length(pad) = 3",
        ],
        sample=1,
    )
    assert files_below(many) == before
    assert dataset.indexes == ()
    assert len(geoskip.reports(spark)) == recent  # nothing was run
    assert [query.files_now for query in found.queries] == [40, 40, 60, 40, 40]
    assert all(query.files.is_exact for query in found.queries)
    report = dataset.create_index(MinMax("id"), ValueList("word"), MetricDist("word", metric="levenshtein"))
    truth = [
        geoskip.explain(spark.read.parquet(str(many)).where(condition)).files_kept
        for condition in ("id BETWEEN 95 AND 104", "word = 'w7' OR id > 390", "levenshtein(word, 'w11') <= 0")
    ]
    assert truth == [2, 2, 1]
    assert [found.queries[number].files.value for number in (0, 1, 3)] == truth
    assert found.queries[2].files.value == 1 + 2  # of a by its word, of b the odd ones of the first five
    assert found.queries[4].files.value == 40
    sizes = {path.name: path.stat().st_size for path in many.rglob("*.parquet") if path.parent.name != "_geoskip"}
    assert found.queries[0].bytes.value == sizes["09.parquet"] + sizes["10.parquet"]
    for name, size in found.metadata_bytes.items():
        assert size == report.metadata_bytes[name]
    assert geoskip.what_if(dataset, [MinMax("id")], queries=["SELECT * FROM many WHERE id = 3"]).files_now == 1
    dataset.delete_index()
    dataset.vacuum_index(0)


def test_what_exists_is_known_exactly_and_only_the_rest_is_estimated(spark: Any, tmp_path: Path) -> None:
    place = four_tens(tmp_path)
    dataset = geoskip.dataset(spark, str(place))
    dataset.create_index(MinMax("temp"))
    dataset.to_df().createOrReplaceTempView("tens")
    found = geoskip.what_if(
        dataset, [ValueList("id")], queries=["SELECT * FROM tens WHERE temp >= 20", "SELECT * FROM tens WHERE id = 25"],
        sample=0.5, seed=3,
    )  # fmt: skip
    by_temp, by_id = found.queries
    assert (by_temp.files_now, by_id.files_now) == (2, 4)
    assert by_temp.files.high == 2
    assert by_id.files.low <= 1 <= by_id.files.high
    assert dataset.indexes == (MinMax("temp"),)
    assert found.files_now == 6
    assert found.bytes_then.low <= found.bytes_then.value <= found.bytes_then.high <= found.bytes_now


def test_print_dict_and_html_say_the_same(spark: Any, many: Path) -> None:
    spark.read.parquet(str(many)).createOrReplaceTempView("many")
    spark.range(3).createOrReplaceTempView("numbers")
    dataset = geoskip.dataset(spark, str(many))
    found = geoskip.what_if(
        dataset, MinMax("id"), queries=["SELECT * FROM many WHERE id < 5", "SELECT * FROM numbers WHERE id < 5"]
    )
    text = str(found)
    assert text.splitlines()[0] == "what if data had minmax(id)"
    assert "2 of 40 files read in" in text
    assert "SELECT * FROM many WHERE id < 5" in text
    assert "it does not read this dataset: SELECT * FROM numbers WHERE id < 5" in text
    assert "wide with 2 sampled files of 40: sample=0.25 or more narrows them" in text
    assert found.to_dict()["queries"][0]["files"] == found.queries[0].files.to_dict()
    assert "SELECT * FROM many WHERE id &lt; 5" in found._repr_html_()


def test_queries_that_the_session_has_seen_count_as_often_as_they_ran(spark: Any, many: Path) -> None:
    dataset = geoskip.dataset(spark, str(many))
    with pytest.raises(InvalidSpecificationError, match=r"spark\.geoskip\.workload"):
        geoskip.what_if(geoskip.dataset(spark.newSession(), str(many)), [MinMax("id")])
    session = spark.newSession()
    geoskip.enable(session)
    session.conf.set("spark.geoskip.workload", "literals")
    for _ in range(3):
        session.read.parquet(str(many)).where("id = 207").collect()
    session.read.parquet(str(many)).where("word = 'w5'").collect()
    found = geoskip.what_if(geoskip.dataset(session, str(many)), [MinMax("id")], sample=1)
    assert sorted(query.count for query in found.queries) == [1, 3]
    assert (found.files_now, found.files_then.value) == (4 * 40, 3 * 1 + 40)
    assert "(3 times)" in str(found)
    assert dataset.indexes == ()


LAYOUTS = [ZOrder("lng", "lat"), KDTree("state", "lat"), Sort("zip")]


@pytest.mark.parametrize("layout", LAYOUTS if SOAK else LAYOUTS[:1], ids=str)
def test_a_layout_is_foretold_before_it_is_written(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Any
) -> None:
    zipcodes = HELD_OUT[0]
    monkeypatch.setattr(simulated_layout, "_LEAST_ROWS", 8_000)
    dataset = geoskip.dataset(spark, str(zipcodes.write(tmp_path / "zipcodes")))
    frame = dataset.to_df()
    random = np.random.default_rng(2)
    rows = [row.asDict() for row in frame.sample(fraction=0.01, seed=2).limit(3).collect()]
    conditions = [condition for row in rows for condition in zipcodes.conditions(row, random)]
    asked = [frame.where(condition) for condition in conditions]
    foretold = geoskip.what_if(dataset, zipcodes.indexes, layout=layout, queries=asked, files=60)
    assert f"rows of {foretold.files} files read" in foretold.sampled
    assert f"the layout {layout}" in str(foretold)
    geoskip.write(frame, tmp_path / "written", layout=layout, files=60, indexes=list(zipcodes.indexes))
    written = spark.read.parquet(str(tmp_path / "written"))
    reports = [geoskip.explain(written.where(condition)) for condition in conditions]
    truth = [report.files_kept for report in reports]
    found = [query.files for query in foretold.queries]
    pairs = list(zip(conditions, found, truth, strict=True))
    missed = [(condition, str(estimate), kept) for condition, estimate, kept in pairs if kept not in estimate]
    assert len(missed) <= (1 - LEAST_HELD) * len(truth), missed
    sizes = [query.bytes for query in foretold.queries]
    in_bytes = [report.bytes_kept in size for report, size in zip(reports, sizes, strict=True)]
    assert sum(in_bytes) >= LEAST_HELD * len(in_bytes)
    assert foretold.bytes_after == pytest.approx(sum(path.stat().st_size for path in parquet_files(tmp_path)), rel=0.15)
    assert np.mean([abs(estimate.value - kept) for _, estimate, kept in pairs]) < 6


def test_metadata_bytes_of_one_sampled_file_count_headers_once(spark: Any, parts: Callable[..., Path]) -> None:
    frame = spark.read.parquet(str(parts(*({"a": [number, number + 1]} for number in range(20)))))
    dataset = geoskip.dataset(spark, frame.inputFiles()[0].rpartition("/")[0])
    index = MinMax("a")
    found = geoskip.what_if(dataset, [index], queries=[frame.where("a = 5")], sample=0.05).metadata_bytes
    built = dataset.create_index(index).metadata_bytes
    assert built[str(index)] / 2 < found[str(index)] < 4 * built[str(index)]  # headers 20 times: 20 times as much


def test_metadata_bytes_follow_from_both_halves_of_the_sample(spark: Any, tmp_path: Path) -> None:
    for number in range(60):
        ids = np.arange(2000) * 60 + number if number < 30 else [number] * 2000
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), tmp_path / f"{number:02}.parquet")
    dataset = geoskip.dataset(spark, str(tmp_path))
    frame = dataset.to_df()
    found = geoskip.what_if(dataset, [BloomFilter("id")], queries=[frame.where("id = 5")], sample=0.4).metadata_bytes
    built = dataset.create_index(BloomFilter("id")).metadata_bytes
    assert found["bloomfilter(id)"] == pytest.approx(built["bloomfilter(id)"], rel=0.05)


@pytest.mark.slow
def test_a_layout_keeps_partitions_and_counts_existing_indexes(spark: Any, many: Path) -> None:
    dataset = geoskip.dataset(spark, str(many))
    dataset.create_index(MinMax("id"))
    spark.read.parquet(str(many)).createOrReplaceTempView("many")
    found = geoskip.what_if(
        dataset,
        layout=Sort("id"),
        queries=[
            "SELECT * FROM many WHERE part = 1 AND id < 100",
            "SELECT * FROM many WHERE id < 100",
            "SELECT * FROM many WHERE part = 0",
        ],
        files=8,
    )
    assert found.files_after == 8
    assert [query.files_now for query in found.queries] == [5, 10, 20]
    assert [query.files.value for query in found.queries] == [1, 2, 4]
    assert found.indexes == ()
    sized = geoskip.what_if(dataset, layout=Sort("id"), queries=["SELECT * FROM many WHERE id < 9"], file_size="1m")
    assert sized.files_after == 2  # one a partition
    dataset.delete_index()
    dataset.vacuum_index(0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"indexes": []}, InvalidSpecificationError, "needs indexes to try"),
        ({"queries": []}, InvalidSpecificationError, "needs queries, such as"),
        ({"queries": ["SELECT * FROM range(3)"]}, InvalidSpecificationError, "none of the queries reads a file of"),
        ({"queries": 7}, InvalidSpecificationError, "queries= takes a list of SQL texts or DataFrames, got 7"),
        ({"indexes": None}, InvalidSpecificationError, "needs indexes to try"),
        ({"queries": ["SELECT * FROM nowhere"]}, InvalidSpecificationError, "Spark cannot plan the query"),
        ({"queries": [3]}, InvalidSpecificationError, "a query is a text in SQL or a DataFrame, got 3"),
        ({"indexes": [MinMax("idd")]}, UnknownColumnError, "the dataset has no column idd; did you mean id"),
        ({"indexes": [MinMax("pair")]}, UnsupportedColumnError, r"minmax\(pair\)"),
        ({"indexes": [GeoBox("word", "id")]}, GeoskipError, r"geobox\(word, id\)"),
        ({"indexes": ["id"]}, InvalidSpecificationError, "takes indexes such as"),
        ({"layout": "zorder(id)"}, InvalidSpecificationError, r"layout= takes a layout such as ZOrder\('lng', 'lat'\)"),
        ({"layout": ZOrder("idd")}, UnknownColumnError, "did you mean id"),
        ({"layout": ZOrder("tags")}, UnsupportedColumnError, r"zorder\(tags\): tags is of type map"),
        ({"layout": ZOrder("tags"), "indexes": []}, UnsupportedColumnError, r"tags is of type map"),
        ({"layout": ZOrder("id"), "files": 0}, InvalidSpecificationError, "files=. takes a number from 1 to"),
        ({"layout": ZOrder("id"), "file_size": "big"}, InvalidSpecificationError, "takes a number of bytes"),
        ({"layout": ZOrder("id"), "files": 2, "file_size": 9}, InvalidSpecificationError, ", not both"),
        ({"files": 3}, InvalidSpecificationError, "give layout= too"),
        ({"layout": ZOrder("id"), "indexes": []}, InvalidSpecificationError, "saves nothing without an index"),
        ({"sample": 0}, InvalidSpecificationError, "sample= takes a number above 0 and up to 1"),
        ({"sample": 1.5}, InvalidSpecificationError, "sample= takes a number above 0 and up to 1"),
        ({"seed": -1}, InvalidSpecificationError, "seed= takes a whole number from 0"),
        ({"confidence": 1}, InvalidSpecificationError, "confidence= takes a number between 0 and 1"),
    ],
)  # fmt: skip
def test_bad_input_is_told_by_name(
    spark: Any, many: Path, arguments: dict[str, Any], error: type[GeoskipError], message: str
) -> None:
    given = {"indexes": [MinMax("id")], "queries": ["SELECT * FROM many_files WHERE id = 3"], **arguments}
    with pytest.raises(error, match=message):
        geoskip.what_if(geoskip.dataset(spark, str(many)), **given)


def test_no_dataset_an_empty_one_and_one_of_one_file(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecificationError, match=r"expected a dataset, as of geoskip\.dataset"):
        geoskip.what_if(str(tmp_path), [MinMax("id")], queries=["SELECT 1"])  # type: ignore[arg-type]
    empty = tmp_path / "empty"
    empty.mkdir()
    handle = geoskip.dataset(spark, str(empty), schema="id int")
    with pytest.raises(DatasetNotFoundError, match="no files"):
        geoskip.what_if(handle, [MinMax("id")], queries=[handle.to_df().where("id = 3")])
    one = tmp_path / "one"
    one.mkdir()
    pq.write_table(pa.table({"id": [1, 2, 3]}), one / "a.parquet")
    dataset = geoskip.dataset(spark, str(one))
    asked = [dataset.to_df().where("id = 2"), dataset.to_df().where("id = 9")]
    found = geoskip.what_if(dataset, [MinMax("id")], queries=asked)
    assert [(query.files_now, str(query.files)) for query in found.queries] == [(1, "1"), (1, "0")]
