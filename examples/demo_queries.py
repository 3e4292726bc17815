"""The demo's queries, and the functions of the paper's own two, registered and mapped in the open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import shapely
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf
from pyspark.sql.types import BinaryType, BooleanType

from datasets.layout import counties, states
from examples import custom_udf_mapping, log_analytics
from geoskip import Formatted, GeoBox, Index, MinMax, Prefix, constant, denotes, maps
from geoskip.clauses import Clause
from geoskip.geometry import Point
from geoskip.predicates import Call, Literal, Predicate

INDEXES: Mapping[str, tuple[Index, ...]] = {
    "zipcodes": (GeoBox("lng", "lat"), MinMax("city")),
    "flights": (GeoBox("lng", "lat"), MinMax("delay"), MinMax("distance")),
    "weblog": (Formatted("user_agent", extract="get_agent_name"), Prefix("path", length=40)),
}

# ---- the paper's functions (Extensible Data Skipping, sections I and V-C): latitude comes first in both


@pandas_udf(BinaryType())
def st_wkttosql(text: pd.Series) -> pd.Series:
    """ST_WKTToSQL(text): a polygon from its text."""
    distinct = {one: shapely.to_wkb(shapely.from_wkt(one)) for one in text.unique()}
    return text.map(distinct)


@pandas_udf(BinaryType())
def st_point(lat: pd.Series, lng: pd.Series) -> pd.Series:
    """ST_POINT(lat, lng): a point, so written."""
    return pd.Series(shapely.to_wkb(shapely.points(lng, lat)))


@pandas_udf(BooleanType())
def st_contains(polygon: pd.Series, *place: pd.Series) -> pd.Series:
    """ST_CONTAINS(polygon, lat, lon) or ST_CONTAINS(polygon, point)."""
    areas = {one: shapely.from_wkb(one) for one in polygon.unique()}
    shapely.prepare(list(areas.values()))
    points = shapely.points(place[1], place[0]) if len(place) == 2 else shapely.from_wkb(place[0])
    return pd.Series(shapely.contains(polygon.map(areas).to_numpy(), points))


@constant(st_wkttosql)
def polygon_of(text: str) -> bytes:
    """Its value where the text is a literal; Spark leaves a Python function unfolded."""
    return bytes(shapely.to_wkb(shapely.from_wkt(text)))


@denotes(st_point)
def a_point(call: Call) -> Point:
    """The point at (lng, lat)."""
    lat, lng = call.args
    return Point(lng, lat)


@maps(st_contains, index=GeoBox)
def in_the_polygon(node: Predicate, index: GeoBox) -> Clause | None:
    """A row in the polygon has a box that meets it."""
    match node:
        case Call(_, (Literal(polygon), lat, lng)) if sight := index.sees(Point(lng, lat)):
            return sight.meets(polygon)
        case Call(_, (Literal(polygon), point)) if sight := index.sees(point):
            return sight.meets(polygon)
    return None


def register_paper(spark: SparkSession) -> None:
    """Register the three under the paper's names; in a session of their own, for Sedona has two of them as well."""
    spark.udf.register("ST_WKTToSQL", st_wkttosql)
    spark.udf.register("ST_POINT", st_point)
    spark.udf.register("ST_CONTAINS", st_contains)


def register_own(spark: SparkSession) -> None:
    """Register the functions that the other examples map: one of two columns, and a parser of user agents."""
    spark.udf.register("kilometres", custom_udf_mapping.kilometres)
    log_analytics.register(spark)


# ---- the queries


@dataclass(frozen=True)
class Query:
    """One query over ``zipcodes``, ``flights`` or ``weblog``, in the paper's dialect or in Sedona's."""

    title: str
    table: str
    sql: str
    paper: bool = False
    both: bool = True
    """Is it asked of both layouts, or of the clustered one alone?"""


TRIANGLE = "POLYGON((-78.63 35.77, -78.91 36.02, -79.06 35.90, -78.87 35.70, -78.63 35.77))"
"""Raleigh, Durham and Chapel Hill: the Research Triangle of the paper's figure 9."""
VIRGINIA = "POLYGON((-83.68 36.54, -75.87 36.55, -75.24 38.03, -77.04 38.85, -77.72 39.32, -78.35 39.46, -83.68 36.54))"


def inside(shape: Any) -> str:
    """Sedona's spelling of "in this polygon", with all of its vertices."""
    return f"ST_Contains(ST_GeomFromText('{shape.wkt}'), ST_Point(lng, lat))"


def queries() -> tuple[Query, ...]:
    """All queries, those over zip codes first."""
    zips = "SELECT zip, city, state, county FROM zipcodes WHERE "
    flown = "SELECT origin, destination, time, delay, distance FROM flights WHERE "
    two_states = inside(states()["Indiana"].union(states()["Illinois"]))
    roanoke = inside(counties()["Roanoke County, Virginia"])  # the city of Salem is a hole in it
    chicago = "ST_DistanceSphere(ST_Point(lng, lat), ST_Point(-87.65, 41.85)) <= 50000"
    denver = "kilometres(lng, lat, -104.99D, 39.74D) < 40"
    hostile = "SELECT * FROM weblog WHERE get_agent_name(user_agent) = 'Hacker'"
    in_triangle = f"ST_CONTAINS(ST_WKTToSQL('{TRIANGLE}'), ST_POINT(lat, lng))"
    in_virginia = f"ST_CONTAINS(ST_WKTToSQL('{VIRGINIA}'), lat, lng)"
    return (
        Query(
            "paper, I: max(zip) in a polygon AND LIKE",
            "zipcodes",
            f"SELECT max(zip) FROM zipcodes WHERE {in_virginia} AND city LIKE 'Pur%'",
            paper=True,
        ),
        Query(
            "paper, V-C: the Research Triangle",
            "zipcodes",
            f"SELECT * FROM zipcodes WHERE {in_triangle}",
            paper=True,
        ),
        Query(
            "Sedona: Virginia AND city LIKE 'Pur%'",
            "zipcodes",
            zips + inside(states()["Virginia"]) + " AND city LIKE 'Pur%'",
        ),
        Query("Roanoke County, which has a hole", "zipcodes", zips + roanoke),
        Query("Indiana or Illinois, as one shape", "zipcodes", zips + two_states),
        Query("NOT in Texas", "zipcodes", zips + "NOT " + inside(states()["Texas"])),
        Query("within 50 km of Chicago", "zipcodes", zips + chicago),
        Query("a function of one's own: near Denver", "zipcodes", zips + denver, both=False),
        Query("lat and lng BETWEEN", "zipcodes", zips + "lat BETWEEN 35 AND 37 AND lng BETWEEN -80 AND -77"),
        Query(
            "paper, I: max(delay) in a polygon",
            "flights",
            f"SELECT max(delay) FROM flights WHERE {in_triangle.replace('ST_POINT(lat, lng)', 'lat, lng')}",
            paper=True,
        ),
        Query("Indiana or Illinois, as one shape", "flights", flown + two_states, both=False),
        Query("within 50 km of Chicago", "flights", flown + chicago),
        Query("Roanoke County OR distance > 4900", "flights", f"{flown}{roanoke} OR distance > 4900"),
        Query("delay > 1000", "flights", flown + "delay > 1000"),
        Query("paper, V-F: hostile agents", "weblog", hostile),
    )
