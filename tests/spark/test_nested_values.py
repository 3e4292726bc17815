"""Indexes over what lies inside of a value: a map's values, fields of JSON, the greatest of an array, dates in texts.

And over columns that Spark compares in a way of their own: CHAR, and collated ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

import geoskip
from geoskip import BloomFilter, GapList, Hybrid, MinMax, Prefix, ValueList
from geoskip.errors import UnsupportedColumnError
from tests.conftest import files_kept, same_as_off
from tests.spark.test_readers import settings

pytestmark = pytest.mark.spark

INTS = pa.list_(pa.int32())
USERS = ("ann", "bob", None, "dan")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four files of three rows; in the third the user, the key and the date are missing or malformed."""
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("nested") / "data"
    folder.mkdir()
    for number, user in enumerate(USERS):
        rows = range(3)
        bodies = [f'{{"user": "{user}{row}", "n": {number * 10 + row}, "deep": {{"x": [{row}]}}}}' for row in rows]
        days = [f"2024-0{number + 1}-0{row + 1}" for row in rows]
        if user is None:
            bodies = ['{"n": null}', "{not json", "[]"]
            days = ["2024-13-01", "soon", ""]
        columns = {
            "id": pa.array([number * 10 + row for row in rows], pa.int32()),
            "body": pa.array(bodies),
            "day": pa.array(days),
            "tags": pa.array(
                [[number * 10, number * 10 + row, None] if user else [] for row in rows], pa.list_(pa.int32())
            ),
            "props": pa.array(
                [[("k", f"v{number}{row}"), ("other", "x")] if user else [("other", "y")] for row in rows],
                pa.map_(pa.string(), pa.string()),
            ),
        }
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")
    return str(folder)


INDEXES = (
    ValueList("get_json_object(body, '$.user')"),
    MinMax("cast(get_json_object(body, '$.n') AS int)"),
    MinMax("array_max(tags)"),
    GapList("element_at(tags, 1)"),
    BloomFilter("props['k']"),
    Prefix("element_at(props, 'k')", length=2),
    MinMax("to_date(day, 'yyyy-MM-dd')"),
    Hybrid("map_keys(props)[0]"),
    MinMax("size(tags)"),
    ValueList("exists(tags, tag -> tag > 30)"),
    MinMax("aggregate(tags, 0, (total, tag) -> total * 2 - coalesce(tag, 0))"),
    MinMax("array_contains(tags, 10)"),
)
KEPT = {
    "get_json_object(body, '$.user') = 'bob1'": 1,
    "get_json_object(body, '$.user') LIKE 'an%'": 1,
    "get_json_object(body, '$.user') IS NULL": 1,
    "get_json_object(body, '$.user') <> 'ann0'": 3,
    "cast(get_json_object(body, '$.n') AS int) > 25": 1,
    "cast(get_json_object(body, '$.n') AS int) IS NULL": 1,
    "array_max(tags) = 12": 1,
    "array_max(tags) IS NULL": 1,
    "NOT array_max(tags) < 30": 1,
    "element_at(tags, 1) = 30": 1,
    "props['k'] = 'v11'": 1,
    "props['k'] IN ('v30', 'nothing')": 1,
    "props['k'] IS NULL": 1,
    "element_at(props, 'k') LIKE 'v0%'": 1,
    "element_at(props, 'k') = 'v32' AND id > 0": 1,
    "to_date(day, 'yyyy-MM-dd') >= date'2024-04-01'": 1,
    "to_date(day, 'yyyy-MM-dd') = date'2024-02-02'": 1,
    "NOT to_date(day, 'yyyy-MM-dd') > date'2024-01-31'": 1,
    "to_date(day, 'yyyy-MM-dd') IS NULL": 1,
    "map_keys(props)[0] = 'other'": 1,
    "size(tags) = 0": 1,
    "cardinality(tags) = 0": 1,
    "exists(tags, x -> x > 30)": 1,
    "NOT exists(tags, tag -> tag > 30)": 1,
    "aggregate(tags, 0, (a, b) -> a * 2 - coalesce(b, 0)) < -150": 1,
    "aggregate(tags, 0, (a, b) -> b * 2 - coalesce(a, 0)) < -150": 4,
    "array_contains(tags, 10)": 1,
    "NOT array_contains(tags, 10)": 1,
    "body LIKE '%dan%'": 4,
}


@pytest.mark.slow
def test_what_lies_inside_of_values(spark: Any, place: str) -> None:
    with settings(spark, {"spark.sql.ansi.enabled": "false"}):  # ANSI mode would throw on the malformed ones
        geoskip.dataset(spark, place).create_index(*INDEXES)
        assert files_kept(spark.read.parquet(place), KEPT) == KEPT


def test_another_mode_keeps_what_depends_on_it(spark: Any, place: str) -> None:
    """Each of these gives NULL where ANSI mode throws: the recorded expression is another."""
    with settings(spark, {"spark.sql.ansi.enabled": "false"}):
        geoskip.dataset(spark, place).create_index(*INDEXES)
    with settings(spark, {"spark.sql.ansi.enabled": "true"}):
        for where in ("element_at(tags, 1) = 30", "to_date(day, 'yyyy-MM-dd') >= date'2024-04-01'"):
            assert geoskip.explain(spark.read.parquet(place).where(where)).files_kept == 4, where
        report = same_as_off(lambda: spark.read.parquet(place).where("array_max(tags) = 12").select("id"))
        assert report.files_kept == 1  # the mode does not bear on it


@pytest.mark.slow
@pytest.mark.skipif(pyspark.__version__.startswith("3."), reason="Spark 3.5 has no collations")
def test_columns_compared_in_a_way_of_their_own(spark: Any, tmp_path: Path) -> None:
    place = str(tmp_path / "data")
    spark.sql("CREATE DATABASE IF NOT EXISTS own_ways")
    spark.sql("DROP TABLE IF EXISTS own_ways.words")
    spark.sql(
        "CREATE TABLE own_ways.words (id INT, code CHAR(4), name STRING COLLATE UTF8_LCASE) USING parquet "
        f"LOCATION '{place}'"
    )
    try:
        for number, word in enumerate(("ab", "Cd", "EF")):
            rows = f"VALUES ({number}, '{word}', '{word}'), ({number}, '{word}x', '{word}x')"
            spark.sql(f"INSERT INTO own_ways.words SELECT /*+ COALESCE(1) */ * FROM {rows}")
        handle = geoskip.dataset(spark, table="own_ways.words")
        for index in (MinMax("name"), BloomFilter("name"), Prefix("name"), Hybrid("name")):
            with pytest.raises(UnsupportedColumnError, match=r"ValueList\('name'\), or index name COLLATE UTF8_BINARY"):
                handle.create_index(index)
        handle.create_index(MinMax("id"), ValueList("code"), MinMax("code"))
        expected = {
            "code = 'ab'": 1,
            "code = 'ab  '": 1,
            "code > 'EF'": 2,
            "code LIKE 'C%'": 1,
            "name = 'cD'": 3,
            "name = 'cD' AND id = 1": 1,
            "id = 2": 1,
        }
        assert files_kept(spark.table("own_ways.words"), expected, every=1) == expected
        handle.create_index(ValueList("name"), MinMax("name COLLATE UTF8_BINARY"))
        expected = {  # each file has two spellings; Spark compares them
            "name = 'cD'": 1,
            "name IN ('CDX', 'q')": 1,
            "name <> 'cd'": 3,
            "name NOT IN ('AB', 'aBX')": 2,
            "name > 'CZ'": 1,
            "startswith(name, 'E')": 1,
            "lower(name) = 'CDX'": 1,
            "name <=> 'EF' OR name IS NULL": 1,
            "length(name) > 3": 0,
            "name COLLATE UTF8_BINARY = 'Cd'": 1,
            "name COLLATE UTF8_BINARY = 'cd'": 0,
            "name COLLATE UTF8_BINARY RLIKE 'c'": 0,
            "code COLLATE UTF8_LCASE = 'CD  '": 1,
        }
        assert files_kept(spark.table("own_ways.words"), expected, every=1) == expected
    finally:
        spark.sql("DROP DATABASE own_ways CASCADE")


@pytest.mark.slow
def test_lines_of_text_by_what_is_in_them(spark: Any, tmp_path: Path) -> None:
    """JSON lines read as text, and a log's date."""
    for number in range(3):
        lines = [f'2024-0{number + 1}-1{row} {{"user": "u{number}"}}' for row in range(3)]
        (tmp_path / f"{number}.log").write_text("\n".join(lines))
    handle = geoskip.dataset(spark, str(tmp_path), format="text")
    user, day = "get_json_object(substring(value, 12), '$.user')", "to_date(left(value, 10), 'yyyy-MM-dd')"
    handle.create_index(ValueList(user), MinMax(day))

    def where(condition: str) -> Any:
        return same_as_off(lambda: spark.read.text(str(tmp_path)).where(condition))

    assert where(f"{user} = 'u1'").files_kept == 1
    assert where(f"{day} < date'2024-02-01'").files_kept == 1
    assert where(f"{day} BETWEEN date'2024-02-01' AND date'2024-02-29'").files_kept == 1
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        assert where(f"{day} = date'2024-02-10'").files_kept == 3
        handle.create_index(MinMax(day))
        assert where(f"{day} = date'2024-02-10'").files_kept == 1
    handle.create_index(MinMax(day))
    assert where(f"{day} < date'2024-02-01' AND {user} = 'u1'").files_kept == 0
