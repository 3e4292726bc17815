"""Countries and states to draw beneath a map, from ``borders.parquet`` beside this module.

``python -m datasets.borders`` makes that file: countries of the world by Natural Earth (1:50 million, public domain)
and, in place of the United States, their states by the Census Bureau. Both are thinned for the eye: nothing here is
exact enough to compute with.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import shapely
from numpy.typing import NDArray

__all__ = ["within"]


def within(west: float, south: float, east: float, north: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Polygons of the countries and states that meet a window.

    Parameters
    ----------
    west, south, east, north
        The window, in degrees.

    >>> countries, states = within(-88.5, 41, -87, 42.5)  # around Chicago
    >>> len(countries), len(states)
    (2, 4)
    """
    window = shapely.box(west, south, east, north)
    shown = [shapes[shapely.intersects(shapely.envelope(shapes), window)] for shapes in _borders()]
    return shown[0], shown[1]


@cache
def _borders() -> tuple[NDArray[Any], NDArray[Any]]:
    with as_file(files(__package__).joinpath("borders.parquet")) as path:
        table = pq.read_table(path)
    shapes = np.asarray(shapely.from_wkb(table["geometry"].to_pylist()), dtype=object)
    is_state = np.asarray(table["level"].to_pylist()) == "state"
    return shapes[~is_state], shapes[is_state]
