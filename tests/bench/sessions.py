"""The Spark session that the sections share, and the files that they read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

from datasets.generate import many_files
from datasets.generate_logs import database_log
from datasets.generate_weather import weather
from datasets.layout import LAYOUTS, lay_out
from examples import demo
from geoskip.spark import st_functions
from tests.bench.measure import PLACE, bars, console

__all__ = ["flights", "functions", "jobs_of", "logs", "months", "no_jobs", "readings", "session"]

MONTHS = 60
"""Of the weather, each a folder."""


@cache
def session() -> SparkSession:
    """The demo's session: two cores, a driver of 2 GB."""
    return demo.session(console)


@cache
def readings(files: int, rows: int = 100) -> Path:
    """Temperature readings in many small files, or in some with more rows."""
    name = f"readings-{files}" if rows == 100 else f"readings-{files}-of-{rows}"
    with bars() as shown:
        bar = shown.add_task(f"writing {files:,} files", total=files)
        return many_files(
            PLACE / name, files, rows=rows, progress=lambda _, done, total: shown.update(bar, completed=done)
        )


@cache
def flights() -> Path:
    """Three million flights, clustered in space."""
    name = "flights_clustered"
    with bars() as shown:
        bar = shown.add_task(f"writing {name}", total=LAYOUTS[name].files)
        done = lay_out(PLACE, which=[name], progress=lambda _, count, total: shown.update(bar, completed=count))
    return done[name]


@cache
def logs(files: int = 4_000) -> Path:
    """The log of a database service, laid out by day and account."""
    with bars() as shown:
        bar = shown.add_task(f"writing {files:,} files of a log", total=files)
        return database_log(
            PLACE / f"logs-{files}", files, progress=lambda _, done, total: shown.update(bar, completed=done)
        )


@cache
def months() -> Path:
    """Five years of weather, laid out by a kd-tree: one month, and hard links to its files."""
    with bars() as shown:
        bar = shown.add_task("writing a month of weather")
        return weather(
            PLACE / "weather", MONTHS, progress=lambda _, done, total: shown.update(bar, total=total, completed=done)
        )


def functions(spark: SparkSession) -> str:
    """Which ST_ functions a session has, in words."""
    return f"Apache Sedona {st_functions.release(spark)}" if st_functions.is_there(spark) else "shapely-backed"


def jobs_of(spark: SparkSession) -> int:
    """How many Spark jobs this driver has begun."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


@contextmanager
def no_jobs(spark: SparkSession) -> Iterator[None]:
    """A block that begins no Spark job."""
    before = jobs_of(spark)
    yield
    begun = jobs_of(spark) - before
    if begun:
        raise AssertionError(f"{begun} Spark jobs ran while nothing but planning was asked for")
