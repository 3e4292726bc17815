"""Mappings of every kind of function, through queries: geoskip on against off, and which files were read."""

from __future__ import annotations

import functools
import types
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql.functions import col, pandas_udf, udf

import geoskip
from geoskip import MinMax, ValueList, check_mapping, constant, mappings, maps
from geoskip.errors import MappingError
from geoskip.predicates import Call, Comparison, Literal
from tests.conftest import four_tens, same_as_off

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def own(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = spark.newSession()
    geoskip.enable(session)
    session.conf.set("spark.geoskip.planning.budget", "60")
    place = four_tens(tmp_path_factory.mktemp("mapped"))
    geoskip.dataset(session, str(place)).create_index(MinMax("temp"), ValueList("city"), MinMax("id"))
    session.read.parquet(str(place)).createOrReplaceTempView("t")
    return session


def above(bound: int) -> Any:
    """A rule that says of every comparison that the column is above this; each is named as the others are."""

    def rule(node: Any, index: Any) -> Any:
        match node:
            case Comparison(">", Call(_, (temp, *_)), Literal()):
                return index.clause(Comparison(">", temp, Literal(bound, "bigint")))

    return rule


def half(node: Any, index: Any) -> Any:
    """``half(t) > v`` where t > 2 v + 1: the half is rounded down."""
    match node:
        case Comparison(">", Call(_, (temp,)), Literal(int() as value)):
            return index.clause(Comparison(">", temp, Literal(2 * value + 1, "bigint")))


def plain(temp: int) -> int:
    return temp // 2


def test_python_functions_of_every_kind(own: Any) -> None:
    vectorised: Any = pandas_udf(lambda temp: temp // 2, "bigint")
    arrow: Any = udf(plain, "bigint", useArrow=True)
    with mappings():
        maps(plain, vectorised, index=MinMax)(half)
        own.udf.register("halved", plain, "bigint")  # under whatever name
        own.udf.register("halved_at_once", vectorised)
        for text in ("HALVED(t.temp) > 14 AND id >= 0", "halved_at_once(temp) > 14"):
            assert same_as_off(lambda text=text: own.table("t").where(text)).files_kept == 1, text
        frames: dict[str, Callable[[], Any]] = {
            "udf": lambda: own.table("t").where(udf(plain, "bigint")(col("temp")) > 14),
            "arrow": lambda: own.table("t").where(arrow(col("temp")) > 14),
            "pandas": lambda: own.table("t").where(vectorised("temp") > 14),
            "an alias": lambda: own.table("t").select(col("temp").alias("x")).where(arrow("x") > 14),
        }
        for name, make in frames.items():
            if name in ("arrow", "an alias") and pyspark.__version__.startswith("3."):
                continue  # its Arrow functions are wrapped in another
            assert geoskip.report(make()).files_kept == 1, name
        own.udf.register("halved", lambda temp: 40 - temp, "bigint")  # another one of that name
        assert geoskip.report(own.table("t").where("halved(temp) > 14")).files_kept == 4


def test_a_name_is_the_function_that_is_met_first_and_cells_are_run_again(own: Any) -> None:
    with mappings():
        own.udf.register("by_name", plain, "bigint")
        maps("By_Name", index=MinMax)(above(29))
        frame = own.table("t").where("by_name(temp) > 14")
        assert geoskip.report(frame).files_kept == 1
        own.udf.register("by_name", lambda temp: temp // 2 + 100, "bigint")
        report = same_as_off(lambda: own.table("t").where("by_name(temp) > 14"))
        assert report.files_kept == 4
        assert any("for another function that was named by_name" in reason for reason in report.reasons)
        maps("By_Name", index=MinMax)(above(15))  # a cell that is run again
        report = same_as_off(lambda: own.table("t").where("by_name(temp) > 107"))
        assert (report.files_kept, report.reasons) == (3, ())
    report = geoskip.report(own.table("t").where("by_name(temp) > 107"))
    said = "minmax(temp) does not serve by_name(temp) > 107: "
    assert (report.files_kept, [reason.startswith(said) for reason in report.reasons]) == (4, [True]), "the scope ends"


@pytest.mark.skipif(pyspark.__version__.startswith(("3.", "4.0")), reason="Spark has a time type since 4.1")
def test_a_constant_of_a_time_is_left_to_spark(own: Any) -> None:
    def written(time: Any) -> int:  # 03:00:00; Spark's own value is a number of 14 digits
        return len(str(time))

    own.conf.set("spark.sql.timeType.enabled", "true")
    with mappings():
        constant(written)(written)
        own.udf.register("written", written, "bigint")
        same_as_off(lambda: own.table("t").where("temp = written(TIME'03:00:00')"))


@pytest.mark.slow
def test_in_is_mapped_as_its_equalities_and_wrappers_inherit_nothing(own: Any) -> None:
    def equal(node: Any, index: Any) -> Any:
        match node:
            case Comparison("=", Call(_, (temp,)), Literal(int() as n)):
                return index.clause(Comparison("=", temp, Literal(2 * n, "bigint")))

    def exactly(temp: int) -> int:
        return temp // 2 if temp % 2 == 0 else -1

    @functools.wraps(exactly)
    def negated(temp: int) -> int:
        return -exactly(temp)

    with mappings():
        maps(exactly, index=MinMax)(equal)
        own.udf.register("exactly", exactly, "bigint")
        either = same_as_off(lambda: own.table("t").where("exactly(temp) = 3 OR exactly(temp) = 4")).files_kept
        assert same_as_off(lambda: own.table("t").where("exactly(temp) IN (3, 4)")).files_kept == either < 4
        many = ", ".join(map(str, range(3, 1_104)))
        report = same_as_off(lambda: own.table("t").where(f"exactly(temp) IN ({many})"))
        assert any("one by one, up to 1,000: they were not used for 1,101" in reason for reason in report.reasons)
        again = types.FunctionType(exactly.__code__.replace(co_firstlineno=9), globals())  # at another line
        own.udf.register("exactly", again, "bigint")
        assert same_as_off(lambda: own.table("t").where("exactly(temp) IN (3, 4)")).files_kept == either
        own.udf.register("exactly", negated, "bigint")
        for where in ("exactly(temp) = -3", "exactly(temp) IN (-3, -4)"):
            assert same_as_off(lambda where=where: own.table("t").where(where)).files_kept == 4


def test_two_indexes_at_once(own: Any) -> None:
    def hot_there(temp: int, city: str) -> bool:
        return temp > 28 and city == "c1"

    def both(node: Any, bounds: Any, values: Any) -> Any:
        match node:
            case Call(_, (temp, city)):
                hot = bounds.clause(Comparison(">", temp, Literal(28, "bigint")))
                there = values.clause(Comparison("=", city, Literal("c1", "string")))
                return there and hot

    with mappings():
        maps(hot_there, index=(MinMax, ValueList))(both)
        own.udf.register("hot_there", hot_there, "boolean")
        assert same_as_off(lambda: own.table("t").where("hot_there(temp, city)")).files_kept == 2
        assert check_mapping(hot_there, rows={"temp": "bigint", "city": ["c1", "c2"]}, seconds=0.5).ok


def test_functions_of_the_jvm_by_name(own: Any, tmp_path: Path) -> None:
    jvm: Any = own._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
    compiler.cook(
        "package house; public class Half implements org.apache.spark.sql.api.java.UDF1 { public Object call(Object x) "
        "{ return x == null ? null : Long.valueOf(((Long) x).longValue() / 2); } }"
    )
    gateway = own.sparkContext._gateway
    with zipfile.ZipFile(tmp_path / "house.jar", "w") as jar:
        for name in compiler.getBytecodes():
            jar.writestr(name.replace(".", "/") + ".class", bytes(compiler.getBytecodes()[name]))
    own.sql(f"ADD JAR '{tmp_path / 'house.jar'}'")
    kind = own._jsparkSession.sharedState().jarClassLoader().loadClass("house.Half")
    instance = kind.getConstructor(gateway.new_array(jvm.Class, 0)).newInstance(gateway.new_array(jvm.Object, 0))
    own._jsparkSession.udf().register("java_half", instance, jvm.org.apache.spark.sql.types.DataTypes.LongType)
    with mappings():
        assert same_as_off(lambda: own.table("t").where("java_half(temp) > 14")).files_kept == 4
        maps("JAVA_HALF", index=MinMax)(half)
        assert same_as_off(lambda: own.table("t").where("java_half(temp) > 14")).files_kept == 1
        found = check_mapping("java_half", spark=own, rows=[[*range(40)]], seconds=0.1)
        assert found.ok, str(found)
        assert found.skipped


@pytest.mark.slow
@pytest.mark.skipif(pyspark.__version__.startswith("3."), reason="Spark 3.5 has no functions of SQL")
def test_functions_of_sql_are_what_they_are_made_of_and_cannot_be_mapped(own: Any) -> None:
    own.sql("CREATE OR REPLACE TEMPORARY FUNCTION warm(t BIGINT) RETURNS BOOLEAN RETURN t > 25")
    own.sql("CREATE OR REPLACE TEMPORARY FUNCTION fahrenheit(t DOUBLE) RETURNS DOUBLE RETURN t * 1.8 + 32")
    own.sql("CREATE OR REPLACE TEMPORARY FUNCTION fourth(t BIGINT) RETURNS DOUBLE RETURN t / 4")
    own.sql("CREATE OR REPLACE FUNCTION is_high(t BIGINT, most BIGINT) RETURNS BOOLEAN RETURN t > 2 * most")
    try:
        for text, kept in {
            "warm(temp)": 2,
            "NOT warm(temp)": 3,
            "fahrenheit(temp) < 35": 1,
            "fourth(temp) BETWEEN 5 AND 6": 1,
            "is_high(temp, 15)": 1,
            "is_high(temp, 10) AND warm(id)": 2,
        }.items():
            assert same_as_off(lambda text=text: own.table("t").where(text)).files_kept == kept, text
        own.sql("CREATE OR REPLACE TEMPORARY FUNCTION even(t BIGINT, n BIGINT) RETURNS BIGINT RETURN t - (t & 1) - n")
        assert same_as_off(lambda: own.table("t").where("even(temp, 0) > 27")).files_kept == 4
        with mappings():
            maps("even", index=MinMax)(above(27))
            assert same_as_off(lambda: own.table("t").where("even(temp, 0) > 27")).files_kept == 4
            with pytest.raises(MappingError, match=r"calls of even by .* is never used: map"):
                check_mapping("even", spark=own, rows=[[*range(100)], [0, 1]], seconds=0.1)
    finally:
        own.sql("DROP FUNCTION IF EXISTS is_high")
