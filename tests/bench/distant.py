"""A Hadoop file system for this driver that serves its own files as ``distant:///``, each request after a delay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

__all__ = ["Counted", "distant"]

SOURCE = Path(__file__).with_name("Distant.java")


@dataclass
class Counted:
    """What a block has asked of the file system."""

    requests: int = 0
    bytes: int = 0


@contextmanager
def distant(spark: SparkSession, milliseconds: int) -> Iterator[Counted]:
    """A block in which each range read of ``distant:///`` takes so long; afterwards none does."""
    system = _served(spark)
    system.delay(milliseconds)
    counted = Counted()
    try:
        yield counted
    finally:
        counted.requests, counted.bytes = system.requests(), system.bytes()
        system.delay(0)


@cache
def _served(spark: SparkSession) -> Any:
    """Compiled in the driver, as geoskip's own rule is."""
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
    compiler.cook(SOURCE.read_text("utf-8"))
    made = compiler.getClassLoader().loadClass("geoskip.bench.Distant")
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    gateway: Any = spark.sparkContext._gateway
    kinds = gateway.new_array(jvm.java.lang.Class, 1)
    kinds[0] = conf.getClass()
    given = gateway.new_array(jvm.java.lang.Object, 1)
    given[0] = conf
    return made.getMethod("serve", kinds).invoke(None, given)
