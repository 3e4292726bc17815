"""Reasons and ``why_not`` of real queries: the conditions as Spark's optimizer leaves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax
from geoskip.diagnosis.unserved import LabelledCondition
from geoskip.errors import InvalidSpecificationError
from tests.conftest import four_tens

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def own(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A session with the views ``t`` of four files and ``parts`` of a folder a ``p``, each with one MinMax."""
    session = spark.newSession()
    folder = tmp_path_factory.mktemp("why")
    place = four_tens(folder)
    session.range(20).selectExpr("id", "id % 4 AS p").write.partitionBy("p").parquet(str(folder / "parts"))
    for path, name, column in ((str(place), "t", "temp"), (str(folder / "parts"), "parts", "id")):
        geoskip.dataset(session, path).create_index(MinMax(column))
        session.read.parquet(path).createOrReplaceTempView(name)
    return session


REASONS = {
    "SELECT * FROM t WHERE temp > 25": [],
    "SELECT * FROM t WHERE id > 25": ['no index over id: MinMax("id")'],
    "SELECT * FROM t WHERE temp > 25 AND city = 'c1'": ['no index over city: MinMax("city")'],
    "SELECT * FROM t WHERE temp > 25 OR city = 'c1'": [
        "temp > 25 OR city = 'c1' needs an index for each side, but no index over city: MinMax(\"city\")"
    ],
    "SELECT * FROM t WHERE levenshtein(city, 'c1') < 1": [
        'no index over levenshtein(city, \'c1\'): MetricDist("city", metric="levenshtein")'
    ],
    "SELECT * FROM t WHERE pad RLIKE 'x+' AND temp < 5": ["no index over rlike(pad, 'x+'): ValueList(\"pad\")"],
    "SELECT * FROM t a JOIN t b ON a.id = b.id WHERE a.temp > 25": [
        "the other side of a join is known when the query runs: files are chosen by it then",
        "only id IS NOT NULL reaches its files, which few files fail",
    ],
    "SELECT * FROM t WHERE temp + 1 > (SELECT min(id) FROM t WHERE temp > 35)": [
        "a subquery"  # its words are those of the version of Spark
    ],
    "SELECT * FROM t WHERE CASE WHEN temp > 25 THEN city = 'c1' ELSE temp > 39 END": [
        "if(temp > 25, city = 'c1', temp > 39) is served in part: no index over city: MinMax(\"city\")"
    ],
    "SELECT * FROM t WHERE coalesce(pad, city) = 'c1'": [
        "coalesce(pad, city) = 'c1' needs an index for each branch, but no index over pad: MinMax(\"pad\")",
        "coalesce(pad, city) = 'c1' needs an index for each branch, but no index over city: MinMax(\"city\")",
    ],
    "SELECT * FROM t WHERE input_file_name() > 'x' AND temp > 25": [
        "(input_file_name() > x) is not used: it depends on more than the row, or geoskip cannot translate it"
    ],
    "SELECT * FROM parts WHERE p = 2 AND id > 3": [],
    "SELECT * FROM parts WHERE p = 2 OR id > 3": [],
}


@pytest.mark.parametrize("sql", REASONS)
def test_reports_name_what_no_index_serves(own: Any, sql: str) -> None:
    reasons = geoskip.report(own.sql(sql)).reasons
    if REASONS[sql] == ["a subquery"]:
        assert any("(a subquery)" in reason and "subquery is not there" in reason for reason in reasons)
    else:
        assert list(reasons) == REASONS[sql]


@pytest.mark.parametrize("executed", [False, True])
def test_each_part_and_one_file(own: Any, executed: bool) -> None:
    frame = own.sql("SELECT * FROM t WHERE temp > 25 AND city = 'c1'")
    if executed:
        frame.collect()
    found = geoskip.why_not(frame, "part-3.parquet")
    assert [(row.part, row.index, row.skips) for row in found.rows] == [
        ("temp > 25", "minmax(temp)", 2),
        ("city = 'c1'", "", 0),
    ]
    verdict = found.scans[0].file
    assert verdict is not None
    assert verdict.kept
    assert str(verdict.clauses[0]) == "temp > 25: minmax(temp): 39 > 25"
    skipped = geoskip.why_not(frame, "part-0.parquet").scans[0].file
    assert skipped is not None
    assert skipped.reason == "skipped by minmax(temp)"
    with pytest.raises(InvalidSpecificationError, match="is no file of this query, which has 4 files"):
        geoskip.why_not(frame, "part-7")


def test_partition_columns_are_named_where_the_decision_has_their_values(own: Any) -> None:
    found = geoskip.why_not(own.sql("SELECT * FROM parts WHERE p > 1 AND (p = 2 OR id > 18)"))
    assert [(row.part, row.index, row.reason) for row in found.rows] == [
        ("p > 1", "", "it reads partition columns alone: Spark settles it by the folders"),
        ("p = 2 OR id > 18", "minmax(id)", "max(id) > 18"),
    ]


def test_no_reason_is_looked_for_when_a_query_is_planned(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    init = LabelledCondition.__init__
    monkeypatch.setattr(LabelledCondition, "__init__", lambda self, *given: (made.append(1), init(self, *given))[1])
    frame = own.sql("SELECT * FROM t WHERE temp > 26 AND city = 'c7'")
    frame.collect()
    report = geoskip.last_report(own)
    assert (report.files_kept, made) == (2, [])
    assert report.reasons == ('no index over city: MinMax("city")',)
    assert made == [1]


def test_files_of_several_scans_and_of_partitions(own: Any) -> None:
    joined = own.sql("SELECT t.id FROM t JOIN parts ON t.id = parts.id WHERE t.temp > 25 AND parts.p = 2")
    found = geoskip.why_not(joined, "part-3.parquet")
    assert sorted(scan.file is not None for scan in found.scans) == [False, True]
    other = next(path for scan in geoskip.report(joined).scans for path in scan.skipped_files() if "p=1" in path)
    (verdict,) = (scan.file for scan in geoskip.why_not(joined, other).scans if scan.file)
    assert verdict.reason == "a condition on partition columns leaves it out: Spark's own pruning"


def test_a_file_that_is_newer_than_its_metadata(own: Any, tmp_path: Path) -> None:
    place = four_tens(tmp_path)
    geoskip.dataset(own, str(place)).create_index(MinMax("temp"))
    (place / "new.parquet").write_bytes((place / "part-0.parquet").read_bytes())
    frame = own.read.parquet(str(place)).where("temp > 25")
    verdict = geoskip.why_not(frame, "new.parquet").scans[0].file
    assert verdict is not None
    assert verdict.kept
    assert verdict.reason.startswith("no metadata: the file is newer than the snapshot")


def test_a_folder_without_metadata_has_its_parts_named_with_the_indexes_to_create(spark: Any, tmp_path: Path) -> None:
    place = four_tens(tmp_path)
    frame = spark.read.parquet(str(place)).where("temp > 25 AND levenshtein(city, 'c1') < 1")
    found = geoskip.why_not(frame)
    assert found.suggestions == ('MinMax("temp")', 'MetricDist("city", metric="levenshtein")')
    assert any("metadata" in note for note in found.scans[0].notes)
    bare = spark.read.parquet(str(place))
    both = bare.where("temp > 26").join(bare.where("city = 'c1'"), "id")
    assert [[row.part for row in scan.rows] for scan in geoskip.why_not(both).scans] == [["temp > 26"], ["city = 'c1'"]]
    assert geoskip.why_not(spark.range(3).where("id > 1")).scans == ()
    geoskip.dataset(spark, str(place)).create_index(MinMax("temp"))
    assert geoskip.why_not(spark.read.parquet(str(place)).where("temp > 25")).suggestions == ()
