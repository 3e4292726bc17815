"""The fixed workloads of the section on effectiveness: indexes of every kind, and conditions through every mapping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from datasets.layout import counties, states
from examples.demo_queries import inside
from geoskip import (
    BloomFilter,
    Formatted,
    GapList,
    GeoBox,
    Hybrid,
    Index,
    MetricDist,
    MinMax,
    Prefix,
    Suffix,
    ValueList,
)

__all__ = ["WORKLOADS", "Workload"]


@dataclass(frozen=True)
class Workload:
    """Conditions that one index serves, by itself or through a module of ``udf_mappings``."""

    what: str
    index: Index
    conditions: tuple[str, ...]


def _near(function: str, *limits: str) -> tuple[str, ...]:
    """Conditions on the distance from three cities."""
    cities = (("-87.65", "41.85"), ("-104.99", "39.74"), ("-84.39", "33.75"))
    return tuple(function.format(lng=lng, lat=lat) + limit for lng, lat in cities for limit in limits)


POINT = "ST_Point(lng, lat)"
PLACES = tuple(inside(states()[name]) for name in ("Virginia", "Texas", "Ohio"))
HOLED = inside(counties()["Roanoke County, Virginia"])
WEST = "POLYGON((-130 20, -95 20, -95 50, -130 50, -130 20))"

READINGS = (
    Workload("MinMax", MinMax("day"), ("day = DATE'2024-02-29'", "day BETWEEN DATE'2024-05-01' AND DATE'2024-06-30'")),
    Workload("MinMax, monotone", MinMax("day"), ("month(day) = 3", "date_trunc('MONTH', day) = DATE'2024-07-01'",
             "trunc(day, 'QUARTER') = DATE'2024-04-01'", "year(day) = 2023 OR day = DATE'2024-12-24'")),
    Workload("MinMax, spark_sql", MinMax("day"), ("date_format(day, 'yyyy-MM') = '2024-03'",)),
    Workload("MinMax, arithmetic", MinMax("temp"), ("temp * 1.8 + 32 > 98", "floor(temp) >= 37", "abs(temp) > 37")),
    Workload("ValueList", ValueList("city"), ("city LIKE 'San %'", "upper(city) = 'CHICAGO'", "length(city) > 20")),
    Workload("Prefix, spark_texts", Prefix("city"), ("lower(city) LIKE 'san %'", "city RLIKE '^Spring'",
             "substring(city, 1, 4) = 'Port'", "substring_index(city, ' ', 1) = 'New'")),
    Workload("Suffix", Suffix("city"), ("city LIKE '%ville'", "city LIKE '%burg'", "right(city, 4) = 'port'")),
    Workload("GeoBox, sedona: inside", GeoBox("lng", "lat"), (*PLACES, HOLED)),
    Workload("GeoBox, sedona: near", GeoBox("lng", "lat"), (
        *_near(f"ST_DistanceSphere({POINT}, ST_Point({{lng}}, {{lat}}))", " <= 50000", " < 200000"),
        *_near(f"ST_Distance({POINT}, ST_Point({{lng}}, {{lat}}))", " < 1"))),
    Workload("GeoBox, sedona: not inside", GeoBox("lng", "lat"), (
        f"NOT ST_Contains(ST_GeomFromText('{WEST}'), {POINT})",
        f"ST_Disjoint({POINT}, ST_GeomFromText('{WEST}'))",
        *_near(f"ST_DistanceSphere({POINT}, ST_Point({{lng}}, {{lat}}))", " > 2000000"))),
    Workload("GeoBox, geodesy", GeoBox("lng", "lat"), (
        *_near("geodesic_distance(lng, lat, {lng}D, {lat}D)", " < 100000"),
        *_near("haversine(lng, lat, {lng}D, {lat}D)", " < 100000"))),
    Workload("GeoBox, h3", GeoBox("lng", "lat"), (
             "h3_latlng_to_cell(lat, lng, 3) = h3_latlng_to_cell(41.85D, -87.65D, 3)",
             "h3_latlng_to_cell(lat, lng, 4) = h3_latlng_to_cell(39.74D, -104.99D, 4)")),
    Workload("MetricDist, haversine", MetricDist("lng", "lat", metric="haversine"),
             _near("haversine(lng, lat, {lng}D, {lat}D)", " < 100000")),
    Workload("MetricDist, metrics: plane", MetricDist("lng", "lat", metric="euclidean"),
             _near("sqrt(pow(lng - {lng}D, 2) + pow(lat - {lat}D, 2))", " < 1", " > 40")),
)  # fmt: skip

FLIGHTS = (
    Workload("MinMax", MinMax("delay"), ("delay > 1000", "delay < -90")),
    Workload("GapList", GapList("distance", gaps=64), ("distance = 733", "distance BETWEEN 2100 AND 2110",
             "distance IN (4502, 1999)")),
    Workload("GeoBox, sedona: inside", GeoBox("lng", "lat"), PLACES),
    Workload("ValueList", ValueList("destination"), ("destination = 'ANC'", "destination LIKE 'M_I'")),
    Workload("Hybrid", Hybrid("destination", fpp=1e-6), ("destination = 'HNL'", "destination IN ('JFK', 'OGG')")),
)  # fmt: skip

NAME = "cobalt-heron"
LOGS = (
    Workload("BloomFilter", BloomFilter("session", fpp=1e-6), ("session = '{session}'",)),
    Workload("Hybrid", Hybrid("session", fpp=1e-6), ("session = '{session}'",)),
    Workload("ValueList", ValueList("db_name"), ("db_name = '{db_name}'", "db_name LIKE '%orders%shard03'")),
    Workload("Prefix", Prefix("db_name"), ("db_name LIKE '{account}%'", "db_name = '{db_name}'")),
    Workload("Suffix", Suffix("db_name"), ("db_name LIKE '%{tail}'",)),
    Workload("Formatted", Formatted("http_request", template=r"^(?<method>\S+) /(?<session>[0-9a-f]+)/"),
             ("regexp_extract(http_request, r'^(?<method>\\S+) /(?<session>[0-9a-f]+)/', 2) = '{session}'",)),
    Workload("Formatted", Formatted("user_agent", extract="agent_name"), ("agent_name(user_agent) LIKE 'Chrome 1%'",)),
    Workload("Formatted, user_agents: family", Formatted("user_agent", extract="agent_name"),
             ("agent_family(user_agent) = 'Googlebot'", "agent_family(user_agent) = 'Chrome Mobile'")),
    Workload("Formatted, user_agents: bots", Formatted("user_agent", extract="agent_device"),
             ("agent_is_bot(user_agent)", "NOT agent_is_bot(user_agent)")),
    Workload("MinMax, networks", MinMax("packed_address(ip)"),
             ("in_network(ip, '10.7.0.0/16')", "in_network(ip, '10.32.0.0/11')")),
    Workload("MetricDist, metrics", MetricDist("region", metric="levenshtein"),
             ("levenshtein(region, 'us-wast') <= 1", "levenshtein(region, 'jp-kok', 2) BETWEEN 0 AND 2")),
    Workload("MetricDist, text_metrics", MetricDist("region", metric="levenshtein"),
             ("damerau_levenshtein(region, 'su-east') <= 1", "indel(region, 'eu-d') <= 1")),
    Workload("MetricDist, sets", MetricDist("split(region, '-')", metric="jaccard"),
             ("jaccard(split(region, '-'), array('us', 'south')) < 0.1",)),
)  # fmt: skip

WORKLOADS: Mapping[str, tuple[Workload, ...]] = {"readings": READINGS, "flights": FLIGHTS, "logs": LOGS}
