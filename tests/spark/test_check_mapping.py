"""check_mapping through Spark: functions of SQL, of Catalyst, of Sedona and UDFs by their name."""

from __future__ import annotations

from typing import Any

import pytest

import geoskip
from geoskip import GeoBox, MinMax, Prefix, check_mapping, constant, declare, denotes, mappings, maps
from geoskip.errors import MappingError
from geoskip.geometry import Point, SameGeometry
from geoskip.predicates import Call, Comparison, Literal, StartsWith

pytestmark = pytest.mark.spark
SECONDS = 0.1


@pytest.fixture(scope="module")
def own(plain: Any) -> Any:
    """A session with the shapely-backed functions."""
    return plain


def begins_reversed(node: Any, index: Any) -> Any:
    match node:
        case Comparison("=", Call(_, (text,)), Literal(str() as value)) if value:
            return index.clause(StartsWith(text, value[0]))


def always_encloses(node: Any, index: Any) -> Any:
    match node:
        case Call(_, (Literal(shape), g)) if (sight := index.sees(g)) is not None:
            return sight.encloses(shape)


@pytest.mark.slow
def test_what_is_declared_of_sparks_own_functions_is_true(own: Any) -> None:
    for name, rows in (("year", ["date"]), ("levenshtein", ["words", "words"]), ("floor", ["double"])):
        found = check_mapping(name, spark=own, rows=rows, seconds=SECONDS)
        assert found.ok, str(found)
        assert found.skipped, str(found)
        assert found.function == name


@pytest.mark.slow
def test_wrong_declarations_of_sparks_own_functions_are_found(own: Any) -> None:
    with mappings():
        declare("abs", monotone="increasing", null_in_null_out=True)
        found = check_mapping("abs", spark=own, rows=["int"], seconds=SECONDS)
        assert "declare(abs, monotone='increasing')" in str(found)
        assert found.counter_example is not None
    with mappings():
        constant("ascii")(len)
        said = str(check_mapping("ascii", spark=own, rows=["words"], seconds=SECONDS))
        assert "is evaluated to " in said
    with mappings():
        maps("reverse", index=Prefix)(begins_reversed)
        found = check_mapping("reverse", spark=own, rows=["words"], seconds=SECONDS)
        assert found.counter_example is not None
        assert found.counter_example.blame.endswith("begins_reversed")
        (row,) = found.counter_example.rows
        assert len(row["a0"]) <= 3, str(found)  # 'ab', or as short
        assert "TRUE" in str(found)
        with pytest.raises(MappingError, match="nothing is mapped or declared of soundex"):
            check_mapping("soundex", spark=own, rows=["words"], seconds=SECONDS)
        with pytest.raises(MappingError, match=r"cannot compute 'id' .* called a0.*: use these names"):
            check_mapping("reverse", spark=own, rows=["words"], index=Prefix("id"), seconds=SECONDS)
        with pytest.raises(MappingError, match="takes none of the arguments that were tried"):
            check_mapping("no_such_function", spark=own, seconds=SECONDS)


@pytest.mark.slow
def test_spatial_functions(spark: Any, own: Any) -> None:
    session = spark if spark.catalog.functionExists("ST_MinimumBoundingCircle") else own  # Sedona's, where it is there
    asked = {"ST_Contains": ["polygons", "points"], "ST_SetSRID": ["points", [4326]]}
    for name, rows in asked.items():
        found = check_mapping(name, spark=session, rows=rows, seconds=SECONDS)
        assert found.ok, str(found)
        assert found.trials > 50, str(found)
    with mappings():
        maps("ST_Contains", index=GeoBox)(always_encloses)
        found = check_mapping("ST_Contains", spark=session, rows=["polygons", "points"], seconds=60)
        assert found.counter_example is not None, str(found)
        assert found.counter_example.blame.endswith("always_encloses")
    with mappings():
        denotes("ST_FlipCoordinates")(lambda call: SameGeometry(call.args[0]))
        assert "it makes POINT" in str(check_mapping("ST_FlipCoordinates", spark=session, rows=["points"], seconds=60))
    with mappings():
        denotes("ST_Point")(lambda call: Point(call.args[1], call.args[0]))
        said = str(check_mapping("ST_Point", spark=session, rows=["longitude", "latitude"], seconds=SECONDS))
        assert "and not at (" in said


@pytest.mark.slow
def test_functions_of_ones_own_by_name(own: Any) -> None:
    from pyspark.sql.functions import pandas_udf, udf

    @pandas_udf("double")
    def in_fahrenheit(celsius):  # type: ignore[no-untyped-def]
        return celsius * 1.8 + 32

    @udf("string")
    def zone(code: str) -> str:
        return code and code[:1]

    def wrong(node: Any, index: Any) -> Any:
        match node:
            case Comparison(">", Call(_, (celsius,)), Literal(float() as value)):
                return index.clause(Comparison("<", celsius, Literal((value - 32) / 1.8, "double")))

    def begins(node: Any, index: Any) -> Any:
        match node:
            case Comparison("=", Call(_, (text,)), Literal(str() as digit)):
                return index.clause(StartsWith(text, digit))

    with mappings():
        maps(in_fahrenheit, index=MinMax)(wrong)
        own.udf.register("in_fahrenheit", in_fahrenheit)
        assert not check_mapping(in_fahrenheit), "without Spark"
        found = check_mapping("in_fahrenheit", spark=own, rows=["double"], seconds=SECONDS)
        assert found.counter_example is not None
        (row,) = found.counter_example.rows
        assert len(repr(row["a0"])) <= 4, str(found)
        assert len(found.counter_example.query) <= len("(in_fahrenheit(a0)) > double('32.0')"), str(found)
        maps(zone, index=MinMax)(begins)
        found = check_mapping(zone, spark=own, rows=["zip codes"], seconds=SECONDS)  # registered for the while
        assert found.ok, str(found)
        assert found.skipped
        assert geoskip.is_enabled(own)
        assert not own.catalog.functionExists("zone")


@pytest.mark.slow
def test_a_plain_function_is_registered_with_the_type_that_it_returns(own: Any) -> None:
    from pyspark.sql.functions import udf

    def total(one: int, other: int) -> int:
        return one + other  # which raises of NULL

    @udf("int")
    def never(one: int) -> int:
        raise ValueError

    def size(number: float) -> float:
        return -number

    def of_the_first(node: Any, index: Any) -> Any:
        match node:
            case Comparison(">", Call(_, (one, Literal(int()))), Literal(int()) as value):
                return index.clause(Comparison("<", one, value))

    with mappings():
        maps(total, index=MinMax)(of_the_first)
        found = check_mapping(total, spark=own, rows=["smallint", "smallint"], returns="bigint", seconds=SECONDS)
        assert found.counter_example is not None, str(found)
        declare(never, null_in_null_out=True)
        assert "never: FAILS" in str(check_mapping(never, spark=own, rows=["int"], seconds=SECONDS))
        declare(size, monotone="increasing")
        with pytest.raises(MappingError, match="size is a function of Spark's own, and not the one that was given"):
            check_mapping(size, spark=own)


@pytest.mark.slow
def test_constants_in_code_and_functions_without_annotations(own: Any) -> None:
    def is_odd_one(number):  # type: ignore[no-untyped-def]
        return number is not None and 7_411 <= number < 7_413

    def narrow(node: Any, index: Any) -> Any:
        match node:
            case Call(_, (number,)):
                return index.clause(Comparison("=", number, Literal(7_411, "bigint")))

    with mappings():
        maps(is_odd_one, index=MinMax)(narrow)
        assert check_mapping(is_odd_one, rows=["bigint"], returns="boolean").counter_example is not None
        for rows in (None, ["bigint"]):
            found = check_mapping(is_odd_one, spark=own, rows=rows, returns="boolean", seconds=SECONDS)
            assert found.counter_example is not None, str(found)
            assert "7412" in str(found)
