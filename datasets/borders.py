"""Make ``geoskip/plotting/borders.parquet``, what maps draw beneath, from two pinned public packages.

    python -m datasets.borders

Countries are those of world-atlas (npm), which repackages Natural Earth 1:50m (public domain); the states of the USA
are those of us-atlas (npm), which repackages the Census Bureau's cartographic boundaries (not copyrighted) and leaves
the Great Lakes out. Coordinates are thinned to 0.02 degrees and rounded to 0.01: for drawing, and for nothing else.
Needs npm and geopandas.
"""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

SOURCES = {  # level: package, file in it, its digest, layer of it
    "country": (
        "world-atlas@2.0.2",
        "countries-50m.json",
        "04342cdc1e3016bcd7db1630de95684d67b79fe3c8c460321e87aef469502394",
        "countries",
    ),
    "state": (
        "us-atlas@3.0.1",
        "states-10m.json",
        "d76b391ccfa8bff601d51e3e3da5d43a89fa46cd5caca72ce731b383be5596d0",
        "states",
    ),
}
SHOWN_AS_STATES = "United States of America"
TARGET = Path(__file__).parent.parent / "geoskip" / "plotting" / "borders.parquet"
TOLERANCE = 0.02
DIGITS = 2


def fetched(package: str, name: str, digest: str, layer: str) -> geopandas.GeoDataFrame:
    """One layer of a package's TopoJSON file."""
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        subprocess.run(["npm", "pack", "--silent", package], check=True, cwd=work, stdout=subprocess.DEVNULL)
        with tarfile.open(next(work.glob("*.tgz"))) as archive:
            data = archive.extractfile(f"package/{name}").read()
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError(f"{name} is not what the pinned {package} held; see SOURCES in {__file__}")
        topology = work / name
        topology.write_bytes(data)
        return geopandas.read_file(topology, layer=layer)


def cut_at_antimeridian(shape: Any) -> Any:
    """The same shape without an edge across the whole map, where the source joins what meets at 180 degrees.

    >>> cut_at_antimeridian(shapely.Polygon([(170, 0), (-170, 0), (-170, 10), (170, 10)])).bounds
    (-180.0, 0.0, 180.0, 10.0)
    """
    parts = []
    for part in shapely.get_parts(shape):
        eastward = shapely.transform(part, lambda xy: np.column_stack([xy[:, 0] % 360, xy[:, 1]]))
        if not _jumps(part) or _jumps(eastward):  # the latter goes around a pole
            parts.append(part)
            continue
        eastward = shapely.make_valid(eastward)
        parts.append(shapely.intersection(eastward, shapely.box(0, -90, 180, 90)))
        west = shapely.intersection(eastward, shapely.box(180, -90, 360, 90))
        parts.append(shapely.transform(west, lambda xy: xy - (360, 0)))
    flat = [one for part in parts for one in shapely.get_parts(part) if one.geom_type == "Polygon"]
    return flat[0] if len(flat) == 1 else shapely.MultiPolygon(flat)


def _jumps(polygon: Any) -> bool:
    return bool((abs(np.diff(shapely.get_coordinates(polygon.exterior)[:, 0])) > 180).any())


def thinned(shapes: Any) -> Any:
    """The same shapes with the vertices that a map can show."""
    return shapely.transform(shapely.simplify(shapes, TOLERANCE), lambda xy: xy.round(DIGITS))


def main() -> None:
    """Write the file and say what is in it."""
    rows = []
    for level, source in SOURCES.items():
        frame = fetched(*source)
        shapes = thinned([cut_at_antimeridian(shape) for shape in frame.geometry])
        named = zip(frame["name"], shapes, strict=True)
        rows += [
            {"level": level, "name": name, "geometry": shapely.to_wkb(shape)}
            for name, shape in named
            if name != SHOWN_AS_STATES and not shape.is_empty
        ]
    pq.write_table(pa.Table.from_pylist(rows), TARGET, compression="zstd", compression_level=22, write_statistics=False)
    print(f"{TARGET.name}: {len(rows)} shapes, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
