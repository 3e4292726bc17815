"""Indexes over expressions, over columns with odd names, and over what files lack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from pyspark.sql import functions as F
from pyspark.sql import types as T

import geoskip
from geoskip import GeoBox, MinMax, ValueList
from geoskip.errors import InvalidSpecificationError
from geoskip.sources import bound_indexes
from geoskip.spark import st_functions
from tests.conftest import files_kept, same_as_off
from tests.spark.test_readers import settings

pytestmark = pytest.mark.spark

Parts = Callable[..., Path]


@pytest.fixture(scope="module")
def cities(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("cities")
    names = [["Ulm", "Rom"], ["Paris", "Wien", None], ["Rio de Janeiro", "Buenos Aires"]]
    for number, cities in enumerate(names):
        table = pa.table(
            {
                "city": cities,
                "temp": pa.array([float(number * 10 + n) for n in range(len(cities))]),
                "place": [{"country": {"code": f"{number}{n}"}, "zip": number * 100 + n} for n in range(len(cities))],
            }
        )
        pq.write_table(table, place / f"{number}.parquet")
    return str(place)


EXPRESSIONS = {
    "length(city)": {
        "length(city) > 10": 1,
        "length(city) <= 3": 1,
        "length(city) IS NULL": 1,
    },
    "upper(city)": {"upper(city) = 'ROM'": 2, "upper(city) LIKE 'W%'": 1, "upper( city ) > 'V'": 1},
    "temp * 2": {"temp * 2 > 30": 1, "(temp) * 2.0D = 20": 1, "temp*2 IN (2, 22)": 2},
    "place.zip": {"place.zip = 101": 1, "place.zip < 50": 1},
    "place.country.code": {"place.country.code >= '20'": 1},
    "concat_ws('-', city, 'x')": {"concat_ws('-', city, 'x') > 'X'": 1},
    "city": {"city = 'Rom'": 2, "city > 'X'": 0},
    "coalesce(city, 'nowhere')": {"coalesce(city, 'nowhere') = 'nowhere'": 1},
}


def test_an_index_meets_the_expressions_of_queries(spark: Any, cities: str) -> None:
    handle = geoskip.dataset(spark, cities)
    report = handle.create_index(*map(MinMax, EXPRESSIONS))
    assert set(report.readers.values()) == {"spark"}
    queries = {where: kept for table in EXPRESSIONS.values() for where, kept in table.items()}
    found = files_kept(spark.read.parquet(cities), queries)
    assert {where: kept for where, kept in found.items() if kept > queries[where]} == {}


def test_another_setting_in_an_expression_is_another_expression(spark: Any, cities: str) -> None:
    geoskip.dataset(spark, cities).create_index(MinMax("cast(temp AS int)"))
    where = "cast(temp AS int) > 15"
    assert same_as_off(lambda: spark.read.parquet(cities).where(where)).files_kept == 1
    ansi = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false" if ansi == "true" else "true")
    try:
        same_as_off(lambda: spark.read.parquet(cities).where(where))
    finally:
        spark.conf.set("spark.sql.ansi.enabled", ansi)


# --- functions of the user's ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_python_function_that_changes_does_not_meet_old_summaries(spark: Any, cities: str) -> None:
    def first(text: str | None) -> str | None:
        return text[:1] if text else None

    def last(text: str | None) -> str | None:
        return text[-1:] if text else None

    spark.udf.register("initial", first, "string")
    handle = geoskip.dataset(spark, cities)
    assert set(handle.create_index(MinMax("initial(city)")).readers.values()) == {"arrow, computed by spark"}
    read = lambda: spark.read.parquet(cities).where("initial(city) < 'C'")  # noqa: E731
    assert same_as_off(read).files_kept == 1
    spark.udf.register("initial", last, "string")
    report = same_as_off(lambda: spark.read.parquet(cities).where("initial(city) = 'm'"))
    assert report.files_kept == 3
    with pytest.raises(InvalidSpecificationError, match="function has changed"):
        handle.refresh_index()
    handle.refresh_index("full")
    assert same_as_off(lambda: spark.read.parquet(cities).where("initial(city) = 'm'")).files_kept == 1
    spark.udf.register("initial", first, "string")
    assert same_as_off(read).files_kept == 3


def test_a_pandas_function(spark: Any, cities: str) -> None:
    import pandas as pd

    def vowels(texts: Any) -> Any:
        return texts.str.count("[aeiou]").fillna(0).astype("int64")

    vowels.__annotations__ = {"texts": pd.Series, "return": pd.Series}
    spark.udf.register("vowels", F.pandas_udf(vowels, "long"))
    geoskip.dataset(spark, cities).create_index(MinMax("vowels(city)"))
    assert same_as_off(lambda: spark.read.parquet(cities).where("vowels(city) > 4")).files_kept == 1


def test_a_function_that_changes_its_mind_is_refused(spark: Any, cities: str) -> None:
    import random

    spark.udf.register("dice", F.udf(lambda _: random.random(), "double").asNondeterministic())
    with pytest.raises(InvalidSpecificationError, match="not deterministic"):
        geoskip.dataset(spark, cities).create_index(MinMax("dice(city)"))


def test_functions_that_spark_evaluates_by_an_object_are_refused(spark: Any, cities: str) -> None:
    if spark.version < "4.1":
        pytest.skip("to_json is an expression of its own")
    with pytest.raises(InvalidSpecificationError, match=r"by an object \(StructsToJsonEvaluator\) that geoskip cannot"):
        geoskip.dataset(spark, cities).create_index(MinMax("to_json(struct(city))"))


def test_whole_numbers_through_pandas_are_refused_as_they_depend_on_the_rows_beside(spark: Any, cities: str) -> None:
    spark.udf.register("shown", F.udf(lambda length: str(length), "string", useArrow=True))
    with pytest.raises(InvalidSpecificationError, match="AS double"):
        geoskip.dataset(spark, cities).create_index(MinMax("shown(length(city))"))


# --- geometries -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("shapes")
    for number in range(4):
        geometries = [shapely.box(number * 10 + n, 0, number * 10 + n + 1, 1) for n in range(5)]
        table = pa.table(
            {
                "geom": pa.array([*(shape.wkb for shape in geometries), None], pa.binary()),
                "wkt": pa.array([*(shape.wkt for shape in geometries), "POLYGON EMPTY"]),
                "lng": pa.array([*(float(number * 10 + n) for n in range(5)), None]),
                "lat": pa.array([0.5] * 6),
            }
        )
        pq.write_table(table, place / f"{number}.parquet")
    return str(place)


WINDOW = "ST_GeomFromText('POLYGON((22 0.2, 23 0.2, 23 0.4, 22 0.4, 22 0.2))')"


@pytest.mark.slow
@pytest.mark.parametrize("functions", ["sedona", "shapely"])
def test_boxes_over_geometry_expressions(spark: Any, plain: Any, shapes: str, functions: str) -> None:
    if functions == "sedona" and not st_functions.is_there(spark):
        pytest.skip("Sedona has no release for this Spark")
    session = spark if functions == "sedona" else plain
    shaped = ["ST_GeomFromText(wkt)", "ST_GeomFromWKB(geom)"]
    indexes = [GeoBox(text) for text in (*shaped, "ST_Point(lng, lat)")]
    handle = geoskip.dataset(session, shapes, metadata=f"{shapes}/_of_{functions}")
    handle.use_metadata()
    report = handle.create_index(*indexes, GeoBox("lng", "lat"))
    assert (report.files, report.rows, report.excluded) == (4, 24, {})
    for shape in shaped:
        found = same_as_off(lambda shape=shape: session.read.parquet(shapes).where(f"ST_Intersects({WINDOW}, {shape})"))
        assert found.files_kept == 1, shape
    near = "ST_Distance(ST_Point(lng, lat), ST_Point(31.0D, 0.5D)) < 0.5"
    assert same_as_off(lambda: session.read.parquet(shapes).where(near)).files_kept == 1


def test_geometries_of_sparks_own(spark: Any, shapes: str) -> None:
    if spark.version < "4.1":
        pytest.skip("Spark has geometries of its own since 4.1")
    session = spark.newSession()
    session.conf.set("spark.sql.geospatial.enabled", "true")
    geoskip.enable(session)
    geoskip.register_functions(session)
    own, backed = "ST_GeomFromWKB(geom)", "shapely_ST_GeomFromWKB(geom)"
    assert session.read.parquet(shapes).selectExpr(own).dtypes[0][1] == "geometry(0)"
    handle = geoskip.dataset(session, shapes, metadata=f"{shapes}/_of_spark")
    handle.use_metadata()
    handle.create_index(GeoBox(own))
    window = f"ST_GeomFromWKB(X'{shapely.box(22, 0.2, 23, 0.4).wkb_hex}')"
    for shape in (own, backed, f"ST_SetSRID({own}, 4326)", f"ST_AsBinary({own})", f"shapely_ST_AsBinary({own})"):
        for condition in (f"ST_Intersects({shape}, {window})", f"ST_Distance({WINDOW}, {shape}) < 0.5"):
            frame = session.read.parquet(shapes)
            assert same_as_off(lambda c=condition, f=frame: f.where(c)).files_kept == 1, condition


# --- columns ----------------------------------------------------------------------------------------------------------

NAMES = [
    "a.b",
    "a b",
    "a`b",
    "naïve",
    "a,b",
    "quo'te",
    'quo"te',
    "select",
    "1st",
    "a(b)",
    "x=y",
    "日本",
    "a;b",
    "UPPER",
]


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["arrow", "spark"])
def test_columns_with_odd_names(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str) -> None:
    if reader == "spark":
        monkeypatch.setattr("geoskip.spark.build.job._plans", lambda *_: None)
    for number in range(3):
        columns = {name: pa.array([number * 10 + place]) for place, name in enumerate(NAMES)}
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
    handle = geoskip.dataset(spark, str(tmp_path))
    report = handle.create_index(*map(MinMax, NAMES))
    assert (report.files, report.incomplete) == (3, {})
    for place, name in enumerate(NAMES):
        quoted = "`" + name.replace("`", "``") + "`"
        where = f"{quoted} = {10 + place}"
        assert geoskip.explain(spark.read.parquet(str(tmp_path)).where(where)).files_kept == 1, name
        if place % 5 == 0:
            same_as_off(lambda where=where: spark.read.parquet(str(tmp_path)).where(where))
    assert [str(index) for index in handle.indexes] == [f"minmax({name})" for name in NAMES]


def test_a_column_called_metadata(spark: Any, parts: Parts) -> None:
    place = parts({"_metadata": [1], "a": ["x"]}, {"_metadata": [2], "a": ["yy"]})
    geoskip.dataset(spark, str(place)).create_index(MinMax("length(a)"), MinMax("_metadata"))
    assert same_as_off(lambda: spark.read.parquet(str(place)).where("length(a) = 2")).files_kept == 1
    assert same_as_off(lambda: spark.read.parquet(str(place)).where("_metadata = 1")).files_kept == 1


@pytest.mark.slow
def test_case_of_names(spark: Any, parts: Parts) -> None:
    place = parts({"Temp": [1]}, {"temp": [20]}, {"TEMP": [300]})
    schema = "temp long"
    geoskip.dataset(spark, str(place), schema=schema).create_index(MinMax("temp"))
    read = lambda: spark.read.schema(schema).parquet(str(place))  # noqa: E731
    for where in ("temp = 1", "Temp = 20", "TEMP = 300"):
        assert same_as_off(lambda where=where: read().where(where)).files_kept == 1
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert same_as_off(lambda: read().where("temp IS NULL")).files_kept == 3
        geoskip.dataset(spark, str(place), schema=schema).refresh_index("full")
        assert same_as_off(lambda: read().where("temp IS NOT NULL")).files_kept == 1
        spark.conf.set("spark.sql.caseSensitive", "TRUE")  # the same to Spark
        assert same_as_off(lambda: read().where("temp IS NOT NULL")).files_kept == 1
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert same_as_off(lambda: read().where("temp = 1")).files_kept == 3


def test_a_column_that_some_files_lack(spark: Any, parts: Parts) -> None:
    place = parts({"a": [1]}, {"a": [2], "b": [5]}, {"a": [3], "b": [7]})
    geoskip.dataset(spark, str(place), schema="a long, b long").create_index(MinMax("b"), GeoBox("a", "b"))
    kept = {"b IS NULL": 1, "b = 5": 1, "b IS NOT NULL": 2, "coalesce(b, 5) = 5": 2, "a < 2": 1}
    assert files_kept(spark.read.schema("a long, b long").parquet(str(place)), kept) == kept


@pytest.mark.slow
def test_what_files_without_a_column_read_for_it(spark: Any, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE defaults (a INT) USING parquet LOCATION '{place}'")
    try:
        spark.sql("INSERT INTO defaults VALUES (1)")
        spark.sql("ALTER TABLE defaults ADD COLUMN c INT DEFAULT 5")
        spark.sql("INSERT INTO defaults VALUES (2, 6)")
        handle = geoskip.dataset(spark, table="defaults")
        assert handle.create_index(MinMax("c"), MinMax("c + 1")).files == 2
        kept = {"c = 5": 1, "c IS NULL": 0, "c > 5": 1, "c + 1 = 6": 1}
        assert files_kept(spark.table("defaults"), kept) == kept
        # other readers of the files know of no default
        read = lambda: spark.read.schema("a int, C int").parquet(place)  # noqa: E731
        for where in ("c IS NULL", "c = 5", "c + 1 IS NULL"):
            report = same_as_off(lambda where=where: read().where(where))
            assert report.files_kept == 2
        assert "files that lack c read 5 for it then, None now" in str(report)
        geoskip.dataset(spark, place, schema="a int, c int").create_index(MinMax("c"))
        same_as_off(lambda: spark.table("defaults").where("c = 5"))
        same_as_off(lambda: read().where("c IS NULL"))
    finally:
        spark.sql("DROP TABLE defaults")


def test_a_default_of_structs_is_read_only_with_all_of_their_fields(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.sql(f"CREATE TABLE structs (a INT) USING parquet LOCATION '{tmp_path}'")
    try:
        spark.sql("INSERT INTO structs VALUES (1)")
        default = "named_struct('q', 4, 'r', 5)"
        spark.sql(f"ALTER TABLE structs ADD COLUMN s STRUCT<q: INT, r: INT> DEFAULT {default}")
        spark.sql(f"ALTER TABLE structs ADD COLUMN z ARRAY<STRUCT<q: INT, r: INT>> DEFAULT array({default})")
        spark.sql(f"INSERT INTO structs VALUES (2, {default}, array({default}))")
        handle = geoskip.dataset(spark, table="structs")
        indexes = (MinMax("s.q"), ValueList("z[0].r + 1"))
        for index, column in zip(indexes, "sz", strict=True):
            with pytest.raises(InvalidSpecificationError, match=f"reads {column}, a column of structs with a default"):
                handle.create_index(index)
        with monkeypatch.context() as patch:  # as geoskip did earlier
            patch.setattr(bound_indexes, "default_read_in_part", lambda *_: None)
            handle.create_index(MinMax("a"), *indexes)
        for where in ("s.q = 4", "z[0].r + 1 = 6"):
            report = same_as_off(lambda where=where: spark.table("structs").where(where))
            assert "depends on which of its fields a query reads" in str(report)
        assert same_as_off(lambda: spark.table("structs").where("a = 1 AND s.q = 4")).files_kept == 1
    finally:
        spark.sql("DROP TABLE structs")


@pytest.mark.slow
@pytest.mark.parametrize(("narrow", "wide"), [("int32", "long"), ("int16", "int"), ("float", "double")])
def test_a_column_that_was_widened(spark: Any, tmp_path: Path, narrow: str, wide: str) -> None:
    arrow = {"int32": pa.int32(), "int16": pa.int16(), "float": pa.float32()}[narrow]
    for number in range(3):
        pq.write_table(pa.table({"a": pa.array([number * 10], arrow)}), tmp_path / f"{number}.parquet")
    read = lambda: spark.read.schema(f"a {wide}").parquet(str(tmp_path))  # noqa: E731
    if spark.version >= "4" or narrow == "int16":
        geoskip.dataset(spark, str(tmp_path), schema=f"a {wide}").create_index(MinMax("a"))
        assert same_as_off(lambda: read().where("a = 10")).files_kept == 1
    geoskip.dataset(spark, str(tmp_path)).create_index(MinMax("a"))
    assert same_as_off(lambda: spark.read.parquet(str(tmp_path)).where("a = 10")).files_kept == 1
    if spark.version >= "4" or narrow == "int16":
        report = same_as_off(lambda: read().where("a = 10"))
        assert f"the query reads {read().schema['a'].dataType.simpleString()}" in report.scans[0].reasons[0]


def test_floats(spark: Any, parts: Parts) -> None:
    nan = float("nan")
    place = parts({"x": [1.0, nan]}, {"x": [-0.0]}, {"x": [0.0, None]}, {"x": [5.0]}, {"x": [float("inf")]})
    geoskip.dataset(spark, str(place)).create_index(MinMax("x"), MinMax("x * 2"))
    most = {
        "x > 1e300": 2, "x = 0": 2, "x = -0D": 2, "isnan(x)": 1, "x = double('NaN')": 1, "x < 1": 2,
        "cast(x AS string) = '-0.0'": 5, "x * 2 > 9": 3, "x IS NULL": 1,
    }  # fmt: skip
    found = files_kept(spark.read.parquet(str(place)), most)
    assert {where: kept for where, kept in found.items() if kept > most[where]} == {}


@pytest.mark.slow
@pytest.mark.parametrize("enabled", ["true", "TRUE", "false"])
def test_columns_found_by_field_ids(spark: Any, tmp_path: Path, enabled: str) -> None:
    fields = [pa.field(name, pa.int64(), metadata={"PARQUET:field_id": i}) for i, name in (("1", "a"), ("2", "b"))]
    for number in range(3):
        table = pa.Table.from_arrays([pa.array([number]), pa.array([100 + number])], schema=pa.schema(fields))
        pq.write_table(table, tmp_path / f"{number}.parquet")
    swapped = T.StructType(
        [T.StructField(name, T.LongType(), True, {"parquet.field.id": i}) for i, name in ((2, "a"), (1, "b"))]
    )
    before = spark.conf.get("spark.sql.parquet.fieldId.read.enabled")
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", enabled)
    try:
        by_name = geoskip.dataset(spark, str(tmp_path))
        assert by_name.create_index(MinMax("a")).readers == {"minmax(a)": "footers"}
        for where in ("a = 101", "a = 1"):
            same_as_off(lambda where=where: spark.read.schema(swapped).parquet(str(tmp_path)).where(where))
        assert same_as_off(lambda: spark.read.parquet(str(tmp_path)).where("a = 1")).files_kept == 1
        by_id = geoskip.dataset(spark, str(tmp_path), schema=swapped, metadata=str(tmp_path / "_ids"))
        by_id.use_metadata()
        by_id.create_index(MinMax("a"))
        matching = "a = 101" if enabled.lower() == "true" else "a = 1"
        assert same_as_off(lambda: by_id.to_df().where(matching)).files_kept == 1
        same_as_off(lambda: spark.read.parquet(str(tmp_path)).where("a = 1"))
    finally:
        spark.conf.set("spark.sql.parquet.fieldId.read.enabled", before)


def test_a_function_of_the_jvm_needs_a_version(spark: Any, cities: str) -> None:
    """Its class tells neither the values that it holds nor the release of the jar that it is from."""
    jvm = spark._jvm
    function = getattr(getattr(jvm.org.apache.spark.sql.sources, "IsNull$"), "MODULE$")
    kind = jvm.org.apache.spark.sql.types.DataTypes.StringType
    with settings(spark, {"spark.sql.legacy.allowUntypedScalaUDF": "true"}):
        spark._jsparkSession.udf().register("of_the_jvm", jvm.org.apache.spark.sql.functions.udf(function, kind))
    with pytest.raises(InvalidSpecificationError, match="nobody can tell one version of of_the_jvm"):
        geoskip.dataset(spark, cities).create_index(MinMax("of_the_jvm(city)"))
    spark.sql("DROP TEMPORARY FUNCTION of_the_jvm")
