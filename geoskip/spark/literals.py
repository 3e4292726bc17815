"""Shapely geometries as literals of the DataFrame API: ``call_function("ST_Contains", lit(polygon), ...)``.

Py4J is told how a geometry goes to the JVM: as a ``Column``, which Spark's ``lit`` and functions take as it is. It is
the geometry's WKB, read by Sedona's constructor where Sedona's jar is there; the shapely-backed functions take WKB.
"""

from __future__ import annotations

from typing import Any

import shapely
from py4j.java_gateway import JavaClass
from py4j.protocol import register_input_converter
from pyspark.sql import SparkSession
from shapely.geometry.base import BaseGeometry

from geoskip.spark import sedona_jar

__all__ = ["register_literals"]

_FUNCTIONS = "org.apache.spark.sql.functions"


class _Converter:
    """What Py4J asks for each argument that is no plain value."""

    def can_convert(self, value: Any) -> bool:
        return isinstance(value, BaseGeometry)

    def convert(self, value: BaseGeometry, client: Any) -> Any:
        functions = JavaClass(_FUNCTIONS, client)
        literal = functions.lit(bytes(shapely.to_wkb(value, include_srid=True)))
        spark = SparkSession.getActiveSession()
        if spark is None or not sedona_jar.is_there(spark):
            return literal
        gateway: Any = spark.sparkContext._gateway
        arguments = gateway.new_array(JavaClass("org.apache.spark.sql.Column", client), 1)
        arguments[0] = literal
        return functions.call_function("ST_GeomFromEWKB" if shapely.get_srid(value) else "ST_GeomFromWKB", arguments)


_converter = _Converter()


def register_literals() -> None:
    """Let Spark's functions take shapely geometries; once a process."""
    global _registered
    if not _registered:
        register_input_converter(_converter, prepend=True)
        _registered = True


_registered = False
