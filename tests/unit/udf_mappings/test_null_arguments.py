"""IS NULL of spatial functions: files are skipped only if no argument of any row is NULL."""

from __future__ import annotations

import pyarrow as pa
import pytest
import shapely

from geoskip import GeoBox, MetricDist
from geoskip.planner import Labeller
from geoskip.predicates import Call, Column, IsNull, Literal, Predicate
from udf_mappings import metrics  # noqa: F401 - registers its mappings
from udf_mappings.sedona import SEDONA
from udf_mappings.shapely_functions import FUNCTIONS

X, Y, Z, RADIUS = (Column(name, "double") for name in ("x", "y", "z", "radius"))
GEOMETRY = Column("geom", "geometry")
HERE = Literal(shapely.Point(1, 2), "geometry")
POINTS = (pa.array([0.0, 1.0, 2.0]), pa.array([1.0, 2.0, 4.0]))
INDEXES = [
    GeoBox("x", "y").bind([X, Y]),
    GeoBox("geom").bind([GEOMETRY]),
    *(MetricDist("x", "y", metric=metric).bind([X, Y]).prepare(*POINTS) for metric in ("euclidean", "haversine")),
]


def call(name: str, *args: Predicate, kind: str = "double", python: bool = False) -> Call:
    where = f"python:{FUNCTIONS[name].implementations[1]}#1" if python else SEDONA + name
    return Call(name, args, where, (), kind)


def point(*args: Predicate, name: str = "ST_Point") -> Call:
    return call(name, *args, kind="geometry")


@pytest.mark.parametrize(
    ("value", "skips"),
    [
        (call("ST_Distance", point(X, Y), HERE), True),
        (call("ST_Distance", HERE, GEOMETRY), True),
        (call("ST_Contains", GEOMETRY, HERE, kind="boolean"), True),
        (call("ST_DWithin", GEOMETRY, HERE, Literal(3.0, "double"), kind="boolean"), True),
        (call("ST_DWithin", GEOMETRY, HERE, RADIUS, kind="boolean"), False),
        (call("ST_DWithin", GEOMETRY, HERE, Literal(None, "double"), kind="boolean"), False),
        (call("ST_DistanceSphere", point(X, Y), HERE, RADIUS), False),
        (call("ST_DistanceSphere", point(X, Y), HERE, Literal(float("nan"), "double")), False),
        (call("ST_Distance", point(X, Y, Z, name="ST_PointZ"), HERE), False),
        (call("ST_Distance", point(X, Y, Z, name="ST_MakePoint"), HERE), False),
        (call("ST_Distance", call("ST_Force3D", GEOMETRY, Z, kind="geometry"), HERE), False),
        (call("ST_DistanceSphere", point(X, Y, Z, name="ST_PointZ"), HERE), False),
        *(
            (call("ST_DistanceSphere", point(X, Y), Literal(shapely.from_wkt(text), "geometry")), False)
            for text in ("POINT (inf 5)", "POINT (NaN 5)", "POINT EMPTY")
        ),
        (call("ST_DistanceSpheroid", point(X, Y), HERE), True),
        (call("ST_DistanceSpheroid", point(X, Y), HERE, python=True), False),  # NaN beyond the poles
    ],
    ids=str,
)
def test_is_null_needs_a_null_argument(value: Call, skips: bool) -> None:
    clause = Labeller(INDEXES).true(IsNull(value))
    assert (str(clause) != "keep every file") is skips, clause


def test_no_distance_on_the_sphere_is_nan() -> None:
    from udf_mappings.shapely_functions import st_distancesphere

    assert st_distancesphere(shapely.Point(-180, -82), shapely.Point(0, 82)) == pytest.approx(20_015_116, rel=1e-4)
    beyond_the_pole = shapely.Point(66.95690589438549, 95.16892218538675)
    assert st_distancesphere(beyond_the_pole, shapely.Point(-113.04309410561451, 84.83107781461325)) == 0
