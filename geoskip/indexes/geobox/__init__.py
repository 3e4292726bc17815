"""GeoBox: up to k closed boxes a file, for longitude and latitude columns or for geometries."""

from __future__ import annotations

from geoskip.indexes.geobox.index import GeoBox

__all__ = ["GeoBox"]
