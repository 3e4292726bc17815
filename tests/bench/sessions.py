"""The Spark session that the sections share, and the files that they read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

from datasets.generate import many_files
from datasets.layout import LAYOUTS, lay_out
from examples import demo
from tests.bench.measure import PLACE, bars, console

__all__ = ["flights", "jobs_of", "no_jobs", "readings", "session"]


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
