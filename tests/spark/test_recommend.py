"""Recommendations through Spark: what is advised saves what it says, next to all that could be built."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import geoskip
from geoskip import Advice, Encryption, GeoBox, Hilbert, KDTree, KeyRing, MinMax, ValueList
from geoskip.errors import DatasetNotFoundError, InvalidSpecificationError
from geoskip.spark.advisor.file_sample import FileSample
from geoskip.spark.advisor.judged_candidates import candidates_for
from geoskip.spark.advisor.what_if import asked_queries
from geoskip.spark.session import known
from geoskip.stores.part_files import write_part
from tests.conftest import same_as_off

pytestmark = pytest.mark.spark

SQUARE = "ST_GeomFromText('POLYGON((1 1, 5 1, 5 5, 1 5, 1 1))')"
QUERIES = [
    "SELECT * FROM shop WHERE id = 1234",
    "SELECT * FROM shop WHERE id BETWEEN 2800 AND 2900 AND city LIKE 'c%'",
    f"SELECT * FROM shop WHERE ST_Contains({SQUARE}, ST_Point(lng, lat))",
    "SELECT * FROM shop WHERE city = 'dity3' OR id > 3900",
    "SELECT * FROM shop WHERE levenshtein(word, 'skip1') < 2",
    "SELECT * FROM shop WHERE start > stop",
    "SELECT count(*) FROM shop WHERE upper(city) = 'AITY1'",
]
FILES = 40
WORDS = ("skip", "skap", "data", "index", "table")


@pytest.fixture(scope="module")
def shop(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files in the order of ``id`` and place, the view ``shop`` over them; ``noise`` is in no order."""
    random = np.random.default_rng(0)
    place = tmp_path_factory.mktemp("advice") / "shop"
    place.mkdir()
    rows = 100
    for file in range(FILES):
        table = pa.table(
            {
                "id": random.integers(100 * file, 100 * file + 150, rows),
                "lng": random.uniform(file % 8 * 3, file % 8 * 3 + 4, rows),
                "lat": random.uniform(file // 8 * 3, file // 8 * 3 + 4, rows),
                "city": [f"{chr(97 + file % 26)}ity{row % 7}" for row in range(rows)],
                "word": [f"{WORDS[(file + row % 2) % 5]}{file % 4}" for row in range(rows)],
                "start": random.integers(0, 100, rows) + (200 if file % 8 == 0 else 0),
                "stop": random.integers(100, 200, rows),
                "noise": random.normal(size=rows),
            }
        )  # fmt: skip
        pq.write_table(table, place / f"{file:03}.parquet")
    return place


@pytest.fixture
def fresh(spark: Any, shop: Path) -> Any:
    """A handle of the files without an index."""
    shutil.rmtree(shop / "_geoskip", ignore_errors=True)
    geoskip.register_functions(spark)
    spark.read.parquet(str(shop)).createOrReplaceTempView("shop")
    return geoskip.dataset(spark, str(shop))


def bytes_read(spark: Any, queries: list[str]) -> int:
    return sum(geoskip.explain(spark.sql(query)).bytes_kept for query in queries)


@pytest.mark.slow
def test_the_advice_saves_nearly_all_for_a_quarter_of_the_bytes(spark: Any, shop: Path, fresh: Any) -> None:
    queries = QUERIES[:6]  # over columns, so that one reader serves all that could be built
    before = {str(path) for path in shop.rglob("*")}
    advice = geoskip.recommend(fresh, queries, sample=1, layouts=False)
    assert {str(path) for path in shop.rglob("*")} == before, "recommend() wrote something"
    state = fresh._source.current_state()
    everything = candidates_for(fresh, state, asked_queries(fresh, state, queries)[0])
    unindexed = bytes_read(spark, queries)
    built = advice.apply()
    advised = bytes_read(spark, queries)
    assert advised == advice.estimate.bytes_then.value, "what was estimated from all files is what is read"
    assert {str(each.index): each.metadata_bytes for each in advice.indexes}.items() <= built.metadata_bytes.items()
    same_as_off(lambda: spark.sql(" UNION ALL ".join(queries)))
    again = geoskip.recommend(fresh, queries, sample=1, layouts=False)
    assert (again.indexes, again.superfluous, again.estimate.bytes_now) == ((), (), advised)
    assert str(again).startswith("nothing to build for 6 queries")
    assert ", of which none within 10.0 MiB saves more bytes than it stores\n" in str(again)
    fresh.delete_index()
    full = fresh.create_index(*(entry.index.bind(()) for entry in everything.entries))
    most, every = bytes_read(spark, queries), sum(full.metadata_bytes.values())
    assert unindexed - advised >= 0.95 * (unindexed - most)
    assert sum(built.metadata_bytes.values()) <= 0.25 * every
    assert len(everything.entries) > 25


@pytest.mark.slow
def test_advice_is_a_table_and_the_python_that_builds_it(spark: Any, shop: Path, fresh: Any) -> None:
    queries = [spark.read.parquet(str(shop)).where("city = 'dity3' OR id > 3900"), QUERIES[2], QUERIES[5]]
    advice = geoskip.recommend(fresh, queries, "4 KiB", sample=0.5, seed=3)
    assert isinstance(advice, Advice)
    either = [each for each in advice.indexes if each.queries == (1,)]
    assert len({each.adds_bytes for each in either}) == 1 < len(either), "of an OR, each adds what both save"
    assert advice.metadata_bytes <= 4096
    text, data = str(advice), json.loads(json.dumps(advice.to_dict()))
    assert "20 of 40 files" in text
    assert data["code"] in text
    assert [each["python"] for each in data["indexes"]] == [
        line.strip(" ,") for line in advice.code.splitlines() if line.startswith("    ")
    ]
    assert "<table" in advice._repr_html_()
    exec(advice.code, {"spark": spark})
    assert set(fresh.indexes) == {each.index for each in advice.indexes}


@pytest.mark.parametrize(
    ("format", "options", "pattern", "message"),
    [
        ("json", {"schema": "id BIGINT, n BIGINT"}, "", "rewrite() writes Parquet"),
        ("parquet", {"metadata": "metadata"}, "", "rewrite with a handle without metadata="),
        ("parquet", {}, "/*.parquet", "rewrite() needs a handle of one folder or table"),
        ("parquet", {"recursiveFileLookup": True}, "", "it does not see all files"),
        ("geoparquet", {}, "", "is GeoParquet"),
    ],
    ids=["json", "metadata elsewhere", "glob", "option", "GeoParquet"],
)
def test_no_layout_is_advised_for_files_that_cannot_be_rewritten(
    spark: Any, tmp_path: Path, format: str, options: dict[str, Any], pattern: str, message: str
) -> None:
    place, source = tmp_path / "rows", format.removeprefix("geo")
    rows = spark.range(4000).selectExpr("id", "id % 7 AS n").repartition(4)
    if format == "geoparquet":
        place.mkdir()
        table = rows.toArrow() if hasattr(rows, "toArrow") else pa.Table.from_pandas(rows.toPandas())
        for number in range(4):
            piece = table.slice(1000 * number, 1000).replace_schema_metadata({"geo": "{}"})
            pq.write_table(piece, place / f"{number}.parquet")
    else:
        rows.write.format(source).save(str(place))
    if "metadata" in options:
        options = {"metadata": str(tmp_path / "metadata")}
    dataset = geoskip.dataset(spark, f"{place}{pattern}", format=source, **options)
    frame = dataset.to_df()
    advice = geoskip.recommend(dataset, [frame.where("n = 8"), frame.where("id < 20")], sample=1)
    assert advice.indexes
    assert advice.layout is None
    assert message in str(advice)


@pytest.mark.slow
def test_indexes_that_exist_count_and_those_that_pay_nothing_are_named(spark: Any, fresh: Any) -> None:
    fresh.create_index(MinMax("id"), ValueList("noise"), GeoBox("lng", "lat"))
    advice = geoskip.recommend(fresh, [*QUERIES[:4], "SELECT id FROM shop WHERE rand() < 0.1"], sample=1)
    assert {"minmax(id)", "geobox(lng, lat)"}.isdisjoint(str(each.index) for each in advice.indexes)
    assert [each.name for each in advice.superfluous] == ["valuelist(noise)"]
    assert "dataset.delete_index('valuelist(noise)')" in advice.code
    assert advice.estimate.files_now < 4 * FILES
    saved = advice.estimate.files_now - advice.estimate.files_then.value
    assert all(0 < each.adds_files <= each.files <= saved for each in advice.indexes)
    assert [query for query, _ in advice.unserved] == ["SELECT id FROM shop WHERE rand() < 0.1"]
    before = bytes_read(spark, QUERIES)
    advice.apply()
    fresh.delete_index(*(each.name for each in advice.superfluous))
    assert bytes_read(spark, QUERIES) < before


@pytest.mark.slow
def test_a_layout_is_advised_where_rows_are_in_no_order(spark: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    place = tmp_path / "scattered"
    place.mkdir()
    for file in range(24):
        rows = {"x": random.uniform(0, 100, 300), "y": random.uniform(0, 100, 300), "z": random.normal(size=300)}
        pq.write_table(pa.table(rows), place / f"{file:02}.parquet")
    spark.read.parquet(str(place)).createOrReplaceTempView("scattered")
    queries = [
        f"SELECT count(*) FROM scattered WHERE x BETWEEN {at} AND {at + 8} AND y BETWEEN {90 - at} AND {98 - at}"
        for at in range(5, 90, 20)
    ]
    dataset = geoskip.dataset(spark, str(place))
    advice = geoskip.recommend(dataset, queries)
    assert advice.layout is not None
    assert set(advice.layout.layout.expressions) == {"x", "y"}
    assert advice.layout.estimate.bytes_then.value < 0.25 * advice.estimate.bytes_then.value
    assert f"dataset.rewrite(layout={advice.layout.python}, files=24)" in str(advice)
    named = {type(each).__name__ for each in (*advice.layout.indexes, advice.layout.layout)}
    assert advice.layout.code.startswith(f"from geoskip import {', '.join(sorted(named))}\n")
    counted = [spark.sql(query).first()[0] for query in queries]
    report = advice.apply(layout=True)
    spark.read.parquet(report.path).createOrReplaceTempView("scattered")
    assert [spark.sql(query).first()[0] for query in queries] == counted
    kept = sum(geoskip.explain(spark.sql(query)).files_kept for query in queries)
    assert kept in advice.layout.estimate.files_then
    assert kept <= 0.25 * 24 * len(queries)
    spark.read.parquet(str(place)).createOrReplaceTempView("scattered")
    again = geoskip.recommend(dataset, queries)
    assert again.layout is not None
    assert (again.indexes, again.superfluous) == ((), ()), "they save nothing now, and nearly all in the layout"
    assert set(again.layout.existing) == {str(index) for index in dataset.indexes}
    assert f"with {', '.join(again.layout.existing)} they would read" in str(again)
    assert again.layout.estimate.bytes_after > 0


@pytest.mark.slow
@pytest.mark.parametrize("geometry", ["ST_GeomFromWKB(shape)", "ST_GeomFromText(shape)", "shape"])
def test_a_layout_of_geometries_is_advised_with_their_index(spark: Any, tmp_path: Path, geometry: str) -> None:
    random = np.random.default_rng(5)
    shapes = [shapely.Point(*place).buffer(0.2) for place in random.random((4000, 2)) * 100]
    stored = shapely.to_wkt(shapes) if "Text" in geometry else shapely.to_wkb(shapes)
    place = tmp_path / "shapes"
    place.mkdir()
    for file in range(16):
        pq.write_table(pa.table({"shape": stored[file::16]}), place / f"{file:02}.parquet")
    if geometry == "shape":
        frame = spark.read.parquet(str(place)).selectExpr("ST_GeomFromWKB(shape) AS shape")
        if frame.dtypes == [("shape", "binary")]:
            pytest.skip("geometries have no type of their own without Sedona")
        place = tmp_path / "typed"
        frame.repartition(16).write.parquet(str(place))
    spark.read.parquet(str(place)).createOrReplaceTempView("shapes")
    queries = [
        f"SELECT count(*) FROM shapes WHERE ST_Intersects({geometry}, "
        f"ST_PolygonFromEnvelope({at}D, {at}D, {at + 5}D, {at + 5}D))"
        for at in (10, 40, 80)
    ]
    advice = geoskip.recommend(geoskip.dataset(spark, str(place)), queries)
    assert advice.layout is not None
    assert isinstance(advice.layout.layout, Hilbert | KDTree)
    (index,) = advice.layout.indexes
    assert isinstance(index, GeoBox)
    assert index.expressions() == advice.layout.layout.expressions, "so that the index shows which files are in order"
    assert advice.layout.estimate.files_then.value <= 12
    counted = [spark.sql(query).first()[0] for query in queries]
    report = advice.apply(layout=True)
    spark.read.parquet(report.path).createOrReplaceTempView("shapes")
    assert [spark.sql(query).first()[0] for query in queries] == counted
    kept = sum(geoskip.explain(spark.sql(query)).files_kept for query in queries)
    assert kept in advice.layout.estimate.files_then
    assert str(geoskip.dataset(spark, report.path).layout().overlap) == "16 files in order"


def test_what_a_session_has_seen_is_advised_on(spark: Any, tmp_path: Path) -> None:
    for month in (1, 2):
        for file in range(6):
            folder = tmp_path / "seen" / f"month={month}"
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"Number": range(100 * file, 100 * file + 100)}), folder / f"{file}.parquet")
    own = spark.newSession()  # with a log of its own
    geoskip.enable(own)
    frame = own.read.parquet(str(tmp_path / "seen"))
    dataset = geoskip.dataset(own, str(tmp_path / "seen"))
    with pytest.raises(InvalidSpecificationError, match="conditions on partition columns alone"):
        geoskip.recommend(dataset, [frame.where("month = 2")])
    own.conf.set("spark.geoskip.workload", "literals")
    for _ in range(3):
        assert frame.where("number = 205 AND month > 1").count() == 1
    advice = geoskip.recommend(dataset, layouts=False)
    assert {query.count for query in advice.estimate.queries} == {3}
    assert [(each.index.expressions(), each.files) for each in advice.indexes] == [(("Number",), 15)]
    assert advice.estimate.files_then.value == 3


NAMED = {
    "month(day) = 3": {"minmax(day)", "valuelist(month(day))"},
    r"regexp_extract(line, r'^(?<ip>\S+) (?<word>\S+)', 1) = 'x'": {
        r"formatted(line, template=^(?<ip>\S+) (?<word>\S+))", "valuelist(line)"
    },
    "split(line, ' ')[1] = 'a'": {"formatted(line, extract=split({}, ' ', -1)[1])"},
    "split_part(line, ' ', 2) = 'x'": {"bloomfilter(split_part(line, ' ', 2))"},
    "to_date(line, 'yyyy-MM-dd') = DATE'2024-01-01'": {"minmax(to_timestamp(line, 'yyyy-MM-dd'))"},
    "parse_url(line, 'HOST') = 'x'": {"formatted(line, extract=parse_url({}, 'HOST'))"},
    "line RLIKE 'it\\'s \"a\"'": {"""formatted(line, extract=rlike({}, 'it\\'s "a"'))"""},
    "tags['x'] = 'y'": {"valuelist(tags['x'])"},
    "info.`a b` + 1 = 4": {"minmax(info.`a b`)"},
    "array_contains(words, 'x')": {"minmax(array_contains(words, 'x'))"},
    "n % 7 = 3 OR n % 7 = 5": {"valuelist((n % 7L))"},
    "amount * 2 > 5 OR amount * 2 < 1.5": {"minmax((amount * CAST(2BD AS decimal(1,0))))", "minmax(amount)"},
    "sqrt(pow(x - 1, 2) + pow(y - 2, 2)) < 3": {"geobox(x, y)", "metricdist(x, y, metric=euclidean)", "minmax(x)"},
    "CASE WHEN n > 5 THEN line END LIKE 'b%'": {"minmax(n)", "prefix(line)"},
}  # fmt: skip


@pytest.mark.slow
def test_what_queries_compute_is_named_as_spark_parses_it(spark: Any, parts: Callable[..., Path]) -> None:
    words = pa.array([["a"]])
    tags = pa.array([[("x", "y")]], pa.map_(pa.string(), pa.string()))
    columns = {
        "day": [date(2024, 1, 1)],
        "n": [1],
        "line": ["a b"],
        "amount": [Decimal("1.50")],
        "x": [1.0],
        "y": [2.0],
    }
    place = parts({**columns, "info": [{"a b": 4}], "words": words, "tags": tags})
    spark.read.parquet(str(place)).createOrReplaceTempView("texts")
    dataset = geoskip.dataset(spark, str(place))
    state = dataset._source.current_state()
    asked = asked_queries(dataset, state, [f"SELECT * FROM texts WHERE {condition}" for condition in NAMED])[0]
    names = {entry.name for entry in candidates_for(dataset, state, asked).entries}
    missing = {condition: expected - names for condition, expected in NAMED.items() if expected - names}
    assert missing == {}, sorted(names)


WRONG = {
    "no queries": ({"queries": []}, "needs queries"),
    "conditions on no row's value": (
        {"queries": ["SELECT * FROM shop WHERE rand() < 0.5", "SELECT id FROM shop"]},
        r"no index could serve .*rand\(\) < 0.5.*it has no condition",
    ),
    "a budget in which nothing has room": ({"budget": 20}, r"20 B is too small .*the cheapest, .* would store about"),
    "a budget that is no size": ({"budget": "much"}, "takes bytes, as a number or a text such as '10 MiB', got 'much'"),
    "a share above 1": ({"sample": 2}, "sample= takes a number above 0 and up to 1"),
    "a seed that is no number": ({"seed": "x"}, "seed= takes a whole number from 0 to .*, got 'x'"),
    "layouts that are no answer": ({"layouts": "maybe"}, "layouts= takes True or False, got 'maybe'"),
    "a path in the place of a dataset": ({"dataset": "/data"}, "expected a dataset"),
}


def test_queries_have_the_numbers_that_they_were_given_with(spark: Any, fresh: Any, parts: Callable[..., Path]) -> None:
    spark.read.parquet(str(parts({"other": [1]}))).createOrReplaceTempView("elsewhere")
    queries = ["SELECT * FROM elsewhere WHERE other > 0", "SELECT id FROM shop", QUERIES[0]]
    advice = geoskip.recommend(fresh, queries, sample=1, layouts=False)
    assert {each.queries for each in advice.indexes} == {(3,)}
    assert f"it does not read this dataset: {queries[0]}" in str(advice)
    assert f"query 3: {QUERIES[0][:60]}" in str(advice)
    assert advice.to_dict()["queries"] == {"2": queries[1], "3": QUERIES[0]}
    assert advice.layout is None
    with pytest.raises(InvalidSpecificationError, match="none is advised"):
        advice.apply(layout=True)
    with pytest.raises(InvalidSpecificationError, match=r"apply\(layout=\) takes True, .*, got 'hilbert'"):
        advice.apply(layout="hilbert")  # type: ignore[arg-type]
    assert fresh.indexes == ()


def test_an_index_that_skips_a_file_beside_the_sample_is_not_superfluous(spark: Any, fresh: Any, shop: Path) -> None:
    fresh.create_index(ValueList("city"), ValueList("word"))
    query = "SELECT * FROM shop WHERE city != 'aity0' AND word NOT IN ('skip0', 'skap0')"
    found = [geoskip.recommend(fresh, [query], sample=0.05, seed=seed, layouts=False) for seed in range(4)]
    assert {each.name for advice in found for each in advice.superfluous} == {"valuelist(city)"}


def test_advice_on_encrypted_metadata_measures_and_builds_them_so(
    spark: Any, shop: Path, fresh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "encryption", None)
    written = []

    def watched(path: Path, *given: Any) -> Any:
        part = write_part(path, *given)
        written.append(path.read_bytes())
        return part

    monkeypatch.setattr("geoskip.spark.advisor.file_sample.write_part", watched)
    encryption = Encryption(KeyRing({"base": bytes(32)}), "base")
    dataset = geoskip.dataset(spark, str(shop), encryption=encryption)
    advice = geoskip.recommend(dataset, QUERIES[:4], sample=1, layouts=False)
    assert written
    assert not any(b"000.parquet" in part or b"bity3" in part for part in written)
    assert "encryption=encryption)" in advice.code
    built = advice.apply().metadata_bytes
    assert {str(each.index): each.metadata_bytes for each in advice.indexes}.items() <= built.items()


def test_indexes_that_exceed_the_budget_are_taken_out_of_use(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    full = geoskip.recommend(fresh, QUERIES[:4], sample=1, layouts=False)
    assert len(full.indexes) > 1
    measured = FileSample.metadata_bytes
    monkeypatch.setattr(FileSample, "metadata_bytes", lambda self: {n: s // 2 for n, s in measured(self).items()})
    budget = full.metadata_bytes * 3 // 4
    advice = geoskip.recommend(fresh, QUERIES[:4], budget, sample=1, layouts=False)
    with pytest.warns(UserWarning, match="taken out of use: "):
        built = advice.apply()
    assert 0 < sum(built.metadata_bytes.values()) <= budget
    assert set(fresh.restore_index()) == {str(each.index) for each in advice.indexes} - set(built.indexes)


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_advised_is_told(spark: Any, fresh: Any, given: dict[str, Any], message: str) -> None:
    arguments = {"dataset": fresh, "queries": QUERIES[:1], "sample": 0.2, **given}
    with pytest.raises(InvalidSpecificationError, match=message):
        geoskip.recommend(**arguments)


def test_advice_again_with_a_budget_that_is_too_small_for_more_is_no_error(fresh: Any) -> None:
    fresh.create_index(MinMax("noise"))
    advice = geoskip.recommend(fresh, QUERIES[:1], 20, sample=0.2, layouts=False)
    assert (advice.indexes, [each.name for each in advice.superfluous]) == ((), ["minmax(noise)"])
    assert "20 B is too small for any index that pays: the cheapest, " in str(advice)
    assert "minmax(noise) saves these queries nothing beside the other indexes" in str(advice)


def test_a_dataset_without_files_is_told(spark: Any, parts: Callable[..., Path]) -> None:
    place = parts({"a": [1]})
    dataset = geoskip.dataset(spark, str(place))
    spark.read.parquet(str(place)).createOrReplaceTempView("gone")
    for path in place.glob("*.parquet"):
        path.unlink()
    with pytest.raises(DatasetNotFoundError):
        geoskip.recommend(dataset, ["SELECT * FROM gone WHERE a = 1"])
