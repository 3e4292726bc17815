"""Geometry without an engine: boxes, the shapes that queries name, and what expressions denote.

* :mod:`~geoskip.geometry.boxes` -- closed boxes, many at once;
* :mod:`~geoskip.geometry.shapes` -- a query's constant geometry, prepared to be tested against many boxes;
* :mod:`~geoskip.geometry.raster` -- the same for very many boxes;
* :mod:`~geoskip.geometry.sphere` -- distances from a point to boxes of longitude and latitude;
* :mod:`~geoskip.geometry.denotations` -- what functions denote: ``Point(x, y)``, ``InsideBox(child)``, ...
"""

from geoskip.geometry.boxes import Boxes, Envelope
from geoskip.geometry.denotations import (
    CentroidOf,
    Flipped,
    Grown,
    InsideBox,
    Point,
    SameBox,
    SameGeometry,
    Shifted,
    Vertex,
)
from geoskip.geometry.shapes import Shape

__all__ = [
    "Boxes",
    "CentroidOf",
    "Envelope",
    "Flipped",
    "Grown",
    "SameGeometry",
    "Point",
    "SameBox",
    "Shape",
    "Shifted",
    "Vertex",
    "InsideBox",
]
