"""Every setting of Spark that can change a value keeps files where it differs between build and query.

A list of those that matter lacked the tables by which letters change case and the modes of JSON: rows were lost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip import MinMax, ValueList
from geoskip.errors import InvalidSpecificationError
from geoskip.sources import settings as sql_settings
from geoskip.sources.settings import kind_of
from tests.conftest import same_as_off
from tests.spark.test_readers import settings
from tests.support.planting import function

pytestmark = pytest.mark.spark

ICU = "spark.sql.icu.caseMappings.enabled"
PARTIAL = "spark.sql.json.enablePartialResults"
CORRUPT = "spark.sql.columnNameOfCorruptRecord"
DUPLICATES = "spark.sql.mapKeyDedupPolicy"
JSON = "from_json(s, 'a int, b int, _corrupt_record string, other string', map('mode', 'PERMISSIVE'))"
# a setting; values of two files; what is indexed; a condition that under the setting's other value is TRUE of the first
CASES = {
    "case": (ICU, "false", ["\u1c89", "x"], "lower(s)", "lower(s) = '\u1c8a'"),
    "corrupt": (CORRUPT, "other", ['{"a": 1, "b": oops}', '{"a": 2}'], f"{JSON}.other", f"{JSON}.other LIKE '%oops%'"),
    "partial": (PARTIAL, "false", ['{"a": 1, "b": "x"}', '{"a": 2}'], f"{JSON}.a", f"{JSON}.a = 1"),
}


def defined(spark: Any, name: str) -> bool:
    """Is it a setting of this version of Spark?"""
    return getattr(spark._jvm.org.apache.spark.sql.internal, "SQLConf$").__getattr__("MODULE$").containsConfigKey(name)


def indexed(spark: Any, place: Path, texts: list[str], index: Any) -> Any:
    for number, text in enumerate(texts):
        spark.createDataFrame([(number, text)], "id int, s string").coalesce(1).write.parquet(
            str(place / f"p={number}")
        )
    handle = geoskip.dataset(spark, str(place))
    handle.create_index(index)
    return handle


COUNTED = r"""
(charAsVarchar|chunkBase64String|collation|csv|datetime|decimalOperations|function|functionResolution|geospatial|icu|json
|jsonGenerator|legacy|mapKeyDedupPolicy|mapZipWithUsesJavaCollections|parquet|orc|avro|timeType
|runCollationTypeCastsBeforeAliasAssignment|timestampNanosTypes|timestampType|udt|variant|xml)(\..*)?
(binaryOutputStyle|columnNameOfCorruptRecord|preserveCharVarcharTypeInfo|readSideCharPadding)
(defaultColumn.useNullsForMissingDefaultValues|execution.datasources.hadoopLineRecordReader.enabled)
files.(archive.*|supportSecondOffsetFormat)
optimizer.(enableCsvExpression.*|enableJsonExpression.*|getJsonObjectSharedParsing.*|mapLookupHashThreshold)
parser.(escapedStringLiterals|quotedRegexColumnNames|singleCharacterPipeOperator.enabled)
"""
"""The other settings of Spark so far, on which expressions depend: a new one is to be reviewed."""
REVIEWED = re.compile("|".join(f"(?:{line})" for line in COUNTED.strip().replace("\n|", "|").splitlines()))


def test_every_setting_of_this_spark_is_on_a_list(spark: Any) -> None:
    conf = getattr(spark._jvm.org.apache.spark.sql.internal, "SQLConf$").__getattr__("MODULE$")
    entries = conf.getConfigEntries().iterator()
    names = []
    while entries.hasNext():
        names.append(entries.next().key())
    names = [name for name in names if name.startswith("spark.sql.")]
    assert len(names) > 400
    others = [name.removeprefix("spark.sql.") for name in names if kind_of(name) is None]
    assert [name for name in others if not REVIEWED.fullmatch(name)] == []
    counted = [name for name in names if kind_of(name) not in ("neutral", "carried")]
    assert [name for name in counted if conf.isStaticConfigKey(name)] == []  # a refresh sets what counts as it was


@pytest.mark.parametrize("at_build", [True, False], ids=["set at the build", "set at the query"])
@pytest.mark.parametrize("case", CASES)
def test_a_setting_that_differs_keeps_files(spark: Any, tmp_path: Path, case: str, at_build: bool) -> None:
    name, value, texts, expression, where = CASES[case]
    if not defined(spark, name):
        pytest.skip(f"Spark {spark.version} has no {name}")
    built: Mapping[str, str] = {name: value} if at_build else {}
    queried: Mapping[str, str] = {} if at_build else {name: value}
    with settings(spark, built):
        indexed(spark, tmp_path / "data", texts, MinMax(expression))

    def query() -> Any:
        return same_as_off(lambda: spark.read.parquet(str(tmp_path / "data")).where(where))

    with settings(spark, queried):
        report = query()
    assert report.files_kept == 2
    assert any(name in reason and value in reason for reason in report.scans[0].reasons)
    with settings(spark, {**built, "spark.sql.shuffle.partitions": "3", "spark.sql.adaptive.enabled": "false"}):
        assert query().files_kept < 2  # with the setting as it was, whatever decides how a plan runs


def test_the_suite_sees_a_setting_that_is_taken_for_neutral(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: a list of settings that matter, which lacks the one."""
    name, value, texts, expression, where = CASES["corrupt"]
    function(monkeypatch, kind_of, lambda original, one: "neutral" if one == name else original(one))
    sql_settings._of_scopes.cache_clear()
    try:
        indexed(spark, tmp_path / "data", texts, MinMax(expression))
        with settings(spark, {name: value}):
            frame = spark.read.parquet(str(tmp_path / "data")).where(where)
            assert frame.count() == 0  # lost
            with geoskip.disabled(spark):
                assert spark.read.parquet(str(tmp_path / "data")).where(where).count() == 1
    finally:
        monkeypatch.undo()
        sql_settings._of_scopes.cache_clear()


def test_a_plain_column_depends_on_its_reader_alone(spark: Any, tmp_path: Path) -> None:
    handle = indexed(spark, tmp_path / "data", ["a", "b"], MinMax("s"))
    others = {
        DUPLICATES: "LAST_WIN",
        PARTIAL: "false",
        "spark.sql.parquet.filterPushdown": "false",
        "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.of.tomorrow": "1",
    }
    with settings(spark, others):
        assert same_as_off(lambda: handle.to_df().where("s = 'a'")).files_kept == 1
    with settings(spark, {"spark.sql.parquet.of.tomorrow": "1"}):
        report = same_as_off(lambda: handle.to_df().where("s = 'a'"))
    assert report.files_kept == 2
    assert any("the default of spark.sql.parquet.of.tomorrow, the session has 1" in r for r in report.scans[0].reasons)


def test_listed_values_are_evaluated_under_the_querys_settings(spark: Any, tmp_path: Path) -> None:
    name, value, texts, _, where = CASES["corrupt"]
    handle = indexed(spark, tmp_path / "data", texts, ValueList("s"))
    assert same_as_off(lambda: handle.to_df().where(where)).files_kept == 0
    with settings(spark, {name: value}):
        assert same_as_off(lambda: handle.to_df().where(where)).files_kept == 1


def test_a_refresh_reads_new_files_under_the_settings_of_the_first(spark: Any, tmp_path: Path) -> None:
    name, value, texts, expression, where = CASES["corrupt"]
    with settings(spark, {name: value}):
        handle = indexed(spark, tmp_path / "data", texts, MinMax(expression))
    row = spark.createDataFrame([(2, texts[0])], "id int, s string").coalesce(1)
    row.write.parquet(str(tmp_path / "data" / "p=2"))
    with settings(spark, {DUPLICATES: "LAST_WIN"}):
        handle.refresh_index()
    with settings(spark, {name: value}):
        assert same_as_off(lambda: handle.to_df().where(where)).files_kept == 2
    assert spark.conf.get(name) == "_corrupt_record"


@pytest.mark.slow
@pytest.mark.parametrize(("value", "on"), [("yes", True), ("1", True), ("True", True), ("off", False), ("0", False)])
def test_odd_truth_values(spark: Any, tmp_path: Path, value: str, on: bool) -> None:
    handle = indexed(spark, tmp_path / "data", ["a", "b"], MinMax("s"))
    with settings(spark, {"spark.geoskip.enabled": value}):
        report = geoskip.explain(handle.to_df().where("s = 'a'"))
    assert report.files_kept == (1 if on else 2)
    assert any(f"{value!r}" in reason or f"={value}" in reason for reason in report.scans[0].reasons) == (
        value != "True"
    )


def test_an_unknown_setting_of_geoskip_is_told_of_with_the_nearest(spark: Any, tmp_path: Path) -> None:
    handle = indexed(spark, tmp_path / "data", ["a", "b"], MinMax("s"))
    with settings(spark, {"spark.geoskip.planing.budget": "5"}):
        report = geoskip.explain(handle.to_df().where("s = 'a'"))
    assert report.files_kept == 1
    assert report.scans[0].reasons == (
        "spark.geoskip.planing.budget is no setting of geoskip; the nearest is spark.geoskip.planning.budget",
    )


def test_types_of_columns_of_csv_that_are_not_read(spark: Any, tmp_path: Path) -> None:
    """Of CSV inferred and CSV with a schema: what differs is named with its types, where the query reads it."""
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text(f"{number},{number}.5,b{number}\n{number},none,b\n")
    handle = geoskip.dataset(spark, str(tmp_path), format="csv", schema="a int, b string, c string")
    handle.create_index(MinMax("a"))
    for other in ("double", "int", "date"):
        frame = spark.read.csv(str(tmp_path), schema=f"a int, b {other}, c string")
        report = same_as_off(lambda frame=frame: frame.where("a = 1").select("a", "b"))
        assert report.files_kept == 1
        assert report.scans[0].reasons == ()
    frame = spark.read.csv(str(tmp_path), schema="a bigint, b string, c string")
    report = same_as_off(lambda: frame.where("a = 1"))
    assert report.files_kept == 3
    assert report.scans[0].reasons == ("minmax(a) is not used: it was built over a as int, the query reads bigint",)


@pytest.mark.parametrize(
    ("name", "said"),
    {
        "one.csv": r"one\.csv is not parquet by its name; give format='csv' to dataset\(\)$",
        "one.csv.gz": r"one\.csv\.gz is not parquet by its name; give format='csv' to dataset\(\)$",
        "one": r"if the files are not parquet, give format= to dataset\(\), such as format='csv'$",
    }.items(),
)
def test_csv_that_is_taken_for_parquet_is_named_with_its_format(
    spark: Any, tmp_path: Path, name: str, said: str
) -> None:
    (tmp_path / name).write_text("a,b\n1,2\n")
    with pytest.raises(InvalidSpecificationError, match=said):
        geoskip.dataset(spark, str(tmp_path)).create_index(MinMax("a"))
