"""Functions of your own, mapped in the open: ``python -m examples.custom_udf_mapping``.

Four functions over real zip codes: a plain Python one, a pandas one, one of two columns, and a distance. Each is mapped
in a few lines, checked by ``check_mapping``, and asked before and after. A wrong mapping shows what the check says.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pandas as pd
import shapely
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf, udf
from pyspark.sql.types import DoubleType, IntegerType, StringType
from rich.console import Console
from rich.table import Table

import geoskip
from datasets.layout import hilbert, read, write_parts
from geoskip import GeoBox, Index, MappingCheck, MetricDist, MinMax, Prefix, check_mapping, declare, maps
from geoskip.clauses import Clause, all_of, any_of
from geoskip.geometry import Point
from geoskip.indexes.geobox.index import Earth
from geoskip.predicates import Call, Comparison, Literal, Predicate, StartsWith

# ---- 1. a plain Python function, mapped to the bounds of its argument


@udf(IntegerType())
def solar_hour(lng: float | None) -> int | None:
    """Hours from Greenwich by the sun: fifteen degrees an hour."""
    return None if lng is None or not math.isfinite(lng) else round(lng / 15)


@maps(solar_hour, index=MinMax)
def within_half_an_hour(node: Predicate, index: Index) -> Clause | None:
    """``solar_hour(lng) = n`` is TRUE only within half an hour of n; a hair more, because division rounds."""
    match node:
        case Comparison("=", Call(_, (lng,)), Literal(int() as hour)):
            west, east = (Literal(15 * (hour + half), "double") for half in (-0.5000001, 0.5000001))
            bounds = (index.clause(Comparison(">=", lng, west)), index.clause(Comparison("<=", lng, east)))
            return all_of(clause for clause in bounds if clause is not None)
    return None


# ---- 2. a pandas function, mapped to what a text begins with


@pandas_udf(StringType())
def soundex_code(names: pd.Series) -> pd.Series:
    """American Soundex: what names that sound alike have in common; NULL for what does not begin with a letter."""
    return names.map(_soundex, na_action="ignore")


def _soundex(name: str) -> str | None:
    digits = {letter: str(digit) for digit, letters in enumerate(_SOUNDS, 1) for letter in letters}
    if not (name[:1].isascii() and name[:1].isalpha()):
        return None
    upper = name.upper()
    code, last = upper[0], digits.get(upper[0], "")
    for letter in upper[1:]:
        digit = digits.get(letter, "")
        if digit and digit != last:
            code += digit
        if letter not in "HW":
            last = digit
    return f"{code:0<4}"[:4]


_SOUNDS = ("BFPV", "CGJKQSXZ", "DT", "L", "MN", "R")


@maps(soundex_code, index=Prefix)
def begins_with_its_letter(node: Predicate, index: Index) -> Clause | None:
    """``soundex_code(name) = 'C220'``: the code's letter is the name's first, in either case."""
    match node:
        case Comparison("=", Call(_, (name,)), Literal(str() as code)) if code:
            begins = [index.clause(StartsWith(name, letter)) for letter in (code[0].upper(), code[0].lower())]
            return any_of(clause for clause in begins if clause is not None) if None not in begins else None
    return None


# ---- 3. a function of two columns, mapped to boxes


@udf(DoubleType())
def kilometres(lng: float | None, lat: float | None, to_lng: float, to_lat: float) -> float | None:
    """From a row's place to another, along the sphere."""
    if lng is None or lat is None:
        return None
    west, south, east, north = map(math.radians, (lng, lat, to_lng, to_lat))
    half = math.sin((north - south) / 2) ** 2 + math.cos(south) * math.cos(north) * math.sin((east - west) / 2) ** 2
    return 2 * _RADIUS * math.asin(min(1.0, math.sqrt(half)))


_RADIUS = 6371.0


@maps(kilometres, index=GeoBox)
def comes_near(node: Predicate, index: GeoBox) -> Clause | None:
    """Some box comes within the distance, measured as the function does."""
    match node:
        case Comparison("<" | "<=", Call(_, (lng, lat, Literal(x), Literal(y))), Literal(most)):
            sight = index.sees(Point(lng, lat))
            return sight and sight.comes_within_on(Earth.of_radius(_RADIUS), shapely.Point(x, y), most)
    return None


# ---- 4. a distance, of which it is enough to say that it is one


@udf(IntegerType())
def steps_apart(one: str | None, other: str | None) -> int | None:
    """How many steps turn one code into the other, where a step takes a digit to the next or the one before."""
    if one is None or other is None:
        return None
    return sum(abs(ord(here) - ord(there)) for here, there in zip_longest(one, other, fillvalue="\0"))


declare(steps_apart, metric=True)  # symmetric, and no way is shorter for a stop: no more need be said


# ---- a wrong mapping, and what is said of it


def a_wrong_mapping() -> MappingCheck:
    """A mapping that takes rounding for rounding down, and how it is found out."""
    with geoskip.mappings():  # what is registered here is forgotten at the end

        @udf(IntegerType())
        def zone(lng: float | None) -> int | None:
            return None if lng is None or not math.isfinite(lng) else round(lng / 15)

        @maps(zone, index=MinMax)
        def rounds_down(node: Predicate, index: Index) -> Clause | None:
            match node:
                case Comparison("=", Call(_, (lng,)), Literal(int() as hour)):
                    return index.clause(Comparison(">=", lng, Literal(15.0 * hour, "double")))
            return None

        return check_mapping(zone, rows={"lng": "longitude"}, seconds=5)


# ---- before and after

FUNCTIONS = (solar_hour, soundex_code, kilometres, steps_apart)
INDEXES: tuple[Index, ...] = (
    GeoBox("lng", "lat"),
    MinMax("lng"),
    Prefix("city", length=2),
    MetricDist("zip", metric="steps_apart"),
)
QUERIES = (
    ("plain: the hour of the Aleutians", "solar_hour(lng) = -11"),
    ("pandas: sounds like Xenia", "soundex_code(city) = 'X500'"),
    ("two columns: within 40 km of Denver", "kilometres(lng, lat, -104.99D, 39.74D) < 40"),
    ("a metric: three steps from 80202", "steps_apart(zip, '80202') <= 3"),
)


@dataclass(frozen=True)
class Outcome:
    """One query, before (geoskip off) and after."""

    title: str
    rows: int
    files_before: int
    files_after: int
    before: float
    after: float


def ask(spark: SparkSession, title: str, condition: str) -> Outcome:
    """The query both ways; raises AssertionError where the rows are not the same."""
    sql = f"SELECT zip, city, state FROM zipcodes WHERE {condition}"
    with geoskip.disabled(spark):
        began = time.perf_counter()
        plain = spark.sql(sql)
        expected = sorted(map(tuple, plain.collect()))
        before = time.perf_counter() - began
        files_before = geoskip.report(plain).files_kept
    began = time.perf_counter()
    frame = spark.sql(sql)
    found = sorted(map(tuple, frame.collect()))
    after = time.perf_counter() - began
    if found != expected:
        raise AssertionError(f"{title}: {len(expected):,} rows before, {len(found):,} after")
    return Outcome(title, len(found), files_before, geoskip.report(frame).files_kept, before, after)


def table(outcomes: Sequence[Outcome]) -> Table:
    """One row a query."""
    shown = Table(title="\nThe same rows, before and after", title_justify="left", header_style="bold")
    shown.add_column("query", min_width=28)
    for head in ("rows", "files before", "after", "seconds before", "after"):
        shown.add_column(head, justify="right", no_wrap=True)
    for one in outcomes:
        counts = (f"{number:,}" for number in (one.rows, one.files_before, one.files_after))
        shown.add_row(one.title, *counts, f"{one.before:.2f}", f"{one.after:.2f}")
    return shown


def run(spark: SparkSession, folder: Path, console: Console, *, files: int, every: int = 1) -> list[Outcome]:
    """Everything but the session, over some or all zip codes."""
    for function in FUNCTIONS:
        spark.udf.register(function.__name__, function)  # the mappings are bound to the functions themselves
    zipcodes: Any = read("zipcodes")
    zipcodes = zipcodes.take(list(range(0, len(zipcodes), every)))
    zipcodes = zipcodes.take(hilbert(zipcodes["lng"], zipcodes["lat"]).argsort(kind="stable"))
    starts = [len(zipcodes) * number // files for number in range(files + 1)]
    write_parts(folder, files, lambda number: zipcodes.slice(starts[number], starts[number + 1] - starts[number]))
    built = geoskip.dataset(spark, str(folder)).create_index(*INDEXES)
    console.print(str(built), highlight=False, soft_wrap=True)
    spark.read.parquet(str(folder)).createOrReplaceTempView("zipcodes")
    outcomes = [ask(spark, title, condition) for title, condition in QUERIES]
    console.print(table(outcomes))
    return outcomes


def main(arguments: Sequence[str] | None = None) -> None:
    """Check the mappings, ask before and after, print."""
    parser = argparse.ArgumentParser(description="Map functions of one's own.")
    parser.add_argument("--files", type=int, default=300)
    files = parser.parse_args(arguments).files
    console = Console(width=120)
    console.print("What check_mapping says of a right mapping:", style="bold")
    console.print(str(check_mapping(solar_hour, rows={"lng": "longitude"}, seconds=3)), highlight=False, markup=False)
    console.print("\nand of a wrong one:", style="bold")
    console.print(str(a_wrong_mapping()), highlight=False, markup=False)
    spark = geoskip.session("mappings", config={"spark.ui.showConsoleProgress": "false"})
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        run(spark, Path(folder), console, files=files)
    spark.stop()


if __name__ == "__main__":
    main()
