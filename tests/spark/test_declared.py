"""Declared properties of a user's functions, through Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import geoskip
from geoskip import MinMax
from geoskip.errors import InvalidSpecificationError
from tests.conftest import same_as_off

pytestmark = pytest.mark.spark


def fahrenheit(celsius: Any) -> Any:
    return None if celsius is None else celsius * 1.8 + 32.0


def coded(number: Any) -> Any:
    return -1 if number is None else 1000 - number


@pytest.mark.slow
def test_what_is_declared_of_functions(spark: Any, parts: Callable[..., Path]) -> None:
    files = [[1.0, 5.0], [20.0, None], [None], [40.0, float("nan")]]
    place = parts(*({"c": pa.array(v, pa.float64()), "n": [n, None][: len(v)]} for n, v in enumerate(files)))
    geoskip.dataset(spark, str(place)).create_index(MinMax("c"), MinMax("n"))
    spark.udf.register("fahrenheit", fahrenheit, "double")
    spark.udf.register("coded", coded, "bigint")

    def reads(where: str) -> int:
        return int(same_as_off(lambda: spark.read.parquet(str(place)).where(where)).files_kept)

    with geoskip.mappings():
        geoskip.declare(fahrenheit, monotone="increasing", null_in_null_out=True)
        geoskip.declare(coded, monotone="decreasing", inverse=lambda code: 1000 - code)
        assert reads("fahrenheit(c) < 45D") == 2  # NaN is not given to it
        assert reads("fahrenheit(c) + 1D BETWEEN 60D AND 70D") == 2
        assert reads("fahrenheit(c) IS NULL") == 4
        assert reads("coded(n) < 998") == 3  # it is -1 of NULL, which three files hold
        assert reads("coded(n) = 1000") == 3
    with geoskip.mappings():
        geoskip.declare(coded, deterministic=False)
        assert reads("coded(n) = 1000 AND n < 1") == 1
        with pytest.raises(InvalidSpecificationError, match="not deterministic"):
            geoskip.dataset(spark, str(place)).create_index(MinMax("coded(n)"))


@pytest.mark.slow
def test_a_version_declared_for_the_name_of_a_function_that_nobody_can_identify(
    spark: Any, parts: Callable[..., Path]
) -> None:
    ballast = bytes(range(256)) * 8192  # what is too large is sent as a broadcast variable, which only workers can read
    spark.udf.register("heavy", lambda n: None if n is None else n + len(ballast), "bigint")
    place = str(parts({"n": [1]}, {"n": [10]}))
    handle = geoskip.dataset(spark, place)

    def reads() -> int:
        return int(same_as_off(lambda: spark.read.parquet(place).where(f"heavy(n) = {len(ballast) + 1}")).files_kept)

    with geoskip.mappings():
        with pytest.raises(InvalidSpecificationError, match=r'geoskip.declare\("heavy", version="1"\)'):
            handle.create_index(MinMax("heavy(n)"))
        geoskip.declare("heavy", version="1")
        handle.create_index(MinMax("heavy(n)"))
        assert reads() == 1
        geoskip.declare("heavy", version="2")
        assert reads() == 2
