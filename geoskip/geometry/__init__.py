"""Geometry without an engine: boxes, the shapes that queries name, and what expressions denote.

* :mod:`~geoskip.geometry.boxes` -- closed boxes, many at once;
* :mod:`~geoskip.geometry.shapes` -- a query's constant geometry, prepared to be tested against many boxes;
* :mod:`~geoskip.geometry.raster` -- the same for very many boxes;
* :mod:`~geoskip.geometry.sphere` -- distances from a point to boxes of longitude and latitude;
* :mod:`~geoskip.geometry.denotations` -- what functions denote: ``Point(x, y)``, ``Within(child)``, ...
"""

from geoskip.geometry.boxes import Boxes, Envelope
from geoskip.geometry.denotations import Centre, Flipped, Grown, Itself, Point, Same, Shifted, Vertex, Within
from geoskip.geometry.shapes import Shape

__all__ = [
    "Boxes",
    "Centre",
    "Envelope",
    "Flipped",
    "Grown",
    "Itself",
    "Point",
    "Same",
    "Shape",
    "Shifted",
    "Vertex",
    "Within",
]
