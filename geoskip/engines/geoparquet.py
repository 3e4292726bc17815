"""GeoPandas over the files with boxes that intersect a region: :func:`read_geoparquet`."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from geoskip.engines.agreed_functions import spatial_call
from geoskip.engines.extras import require_package
from geoskip.engines.files import KeptFiles, files, listing
from geoskip.engines.folder_listing import refuse_unlike
from geoskip.errors import InvalidSpecificationError, UnknownColumnError, UnsupportedColumnError
from geoskip.predicates import TRUE, Column, Literal, Predicate
from geoskip.stores.base import Store

if TYPE_CHECKING:
    from geopandas import GeoDataFrame

_CALLER = "geoskip.read_geoparquet()"
_THREADS = 8


def read_geoparquet(
    path: str | os.PathLike[str],
    mask: Any = None,
    *,
    columns: Sequence[str] | None = None,
    points: tuple[str, str] | None = None,
    crs: Any = None,
    store: Store | None = None,
    metadata: str | None = None,
    **options: Any,
) -> GeoDataFrame:
    """Read the rows of a dataset with a geometry that intersects a region, from files that may match.

    The result has the columns and CRS of ``geopandas.read_parquet(path)`` and its rows with a geometry that intersects
    the mask, in the order of the files; rows are numbered from 0 unless the files contain an index. Files are skipped
    by ``GeoBox`` metadata over the geometry column, ``GeoBox("ST_GeomFromWKB(geometry)")``, or over the two coordinate
    columns; otherwise by the bounding box in each file's GeoParquet metadata. ``.attrs["geoskip"]`` is the scan's
    report, in the form of ``Scan.to_dict()``.

    Parameters
    ----------
    path
        A local folder or file.
    mask
        A shapely geometry or (xmin, ymin, xmax, ymax) in the coordinates of the data, or a GeoSeries or GeoDataFrame,
        which is transformed to the CRS of the data if both have one. None for all rows.
    columns
        The columns to read, including a geometry column; by default all.
    points
        The columns of x and y (longitude and latitude) from which points are created, for files without a geometry
        column.
    crs
        The CRS of these points.
    store, metadata
        The store of the metadata, or their folder, if they are not beside the data.
    options
        Arguments of ``geopandas.read_parquet``, or of ``pandas.read_parquet`` for points.

    Returns
    -------
    GeoDataFrame
        The matching rows.

    Raises
    ------
    InvalidSpecificationError, UnknownColumnError, DatasetNotFoundError
        For an invalid mask, a name that is not a geometry column, a path without files, and a Delta or Iceberg table
        with deleted rows or other column names in its files, which only a reader of the format can read.

    Needs ``pip install 'geoskip[geopandas]'``.
    """
    geopandas = require_package("geopandas", _CALLER)
    import pandas

    found = refuse_unlike(listing(path, store=store, metadata=metadata), _CALLER)
    every = files(path, None, store=store, metadata=metadata, listing=found)
    if not every:
        raise InvalidSpecificationError(f"there are no files in {os.fspath(path)}; give the folder of a dataset")
    folders = (
        "hive" if found.columns is None else None
    )  # files of Iceberg have the columns by which they are partitioned
    dataset = pq.ParquetDataset([file.path for file in every], partitioning=folders)
    schema = dataset.schema
    if found.columns is not None:  # its types may be wider than those in some files
        schema = found.columns.arrow().with_metadata(schema.metadata)
    if points is None:
        geometry, target = _geometry_column(schema, columns, os.fspath(path))
        seen: Predicate = Column(geometry, "binary")
    else:
        geometry, target = "", crs
        axes = [Column(name, every.columns.get(name)) for name in _check_points(points, schema)]
        seen = spatial_call("ST_Point", tuple(axes), "spark") or TRUE
    region = _region(mask, target, geopandas)
    kept = every
    if region is not None:
        where = spatial_call("ST_Intersects", (seen, Literal(region, "geometry")), "spark")
        kept = files(path, where, store=store, metadata=metadata, listing=found)
        if geometry and not any(count for _, count in kept.report.clauses()):
            kept = _with_box_in(kept, geometry, region)
    names = [file.path for file in kept]
    if found.columns is not None:
        found.columns.refuse_files(names, _CALLER)
    options = {"schema": schema, "partitioning": dataset.partitioning if folders else None, **options}
    if points is None:
        frame = geopandas.read_parquet(names or every[0].path, columns=columns, **options)
    else:
        wanted = None if columns is None else list(dict.fromkeys([*columns, *points]))
        rows = pandas.read_parquet(names or every[0].path, columns=wanted, **options)
        shapes = geopandas.points_from_xy(*(rows[axis] for axis in points))
        frame = geopandas.GeoDataFrame(rows if columns is None else rows[list(columns)], geometry=shapes, crs=crs)
    if not names:
        frame = frame.iloc[:0]
    if region is not None:
        numbered = frame.index.name is None and frame.index.equals(pandas.RangeIndex(len(frame)))
        frame = frame[frame.intersects(region)]
        frame = frame.reset_index(drop=True) if numbered else frame
    frame.attrs["geoskip"] = kept.report.to_dict()
    return frame


def _check_points(points: tuple[str, str], schema: pa.Schema) -> tuple[str, str]:
    if isinstance(points, str) or len(points) != 2:
        raise InvalidSpecificationError(f"points= takes two names of columns such as ('lng', 'lat'), got {points!r}")
    for name in points:
        if name not in schema.names:
            raise UnknownColumnError(f"points= names {name!r}; the columns are {', '.join(schema.names)}")
        kind = schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise UnsupportedColumnError(f"points= takes columns of numbers, and {name!r} is {kind}")
    return points


def _geometry_column(schema: pa.Schema, columns: Sequence[str] | None, path: str) -> tuple[str, Any]:
    """The geometry column of a frame with these columns, and its CRS, or None if that is unknown."""
    about = json.loads((schema.metadata or {}).get(b"geo", b"null"))
    if about is None:
        raise InvalidSpecificationError(
            f"the files in {path} have no GeoParquet metadata; for columns of x and y give points=('lng', 'lat')"
        )
    of_columns: Mapping[str, Any] = about["columns"]
    name = about["primary_column"]
    if columns is not None and name not in columns:
        name = next((column for column in of_columns if column in columns), None)
    if name is None:
        raise UnknownColumnError(f"columns= names no geometry column; there are {', '.join(of_columns)}")
    return name, of_columns[name].get("crs", "OGC:CRS84")


def _region(mask: Any, crs: Any, geopandas: Any) -> Any:
    """Convert the mask to one geometry in the coordinates of the data, or None."""
    if mask is None or isinstance(mask, shapely.Geometry):
        return mask
    if isinstance(mask, geopandas.GeoSeries | geopandas.GeoDataFrame):
        there = mask if mask.crs is None or crs is None else mask.to_crs(crs)
        return there.geometry.union_all()
    try:
        west, south, east, north = map(float, mask)
    except (TypeError, ValueError):
        west = south = east = north = math.nan
    if not (west <= east and south <= north):
        raise InvalidSpecificationError(
            f"mask= is a geometry, a GeoSeries or (xmin, ymin, xmax, ymax) in this order, got {mask!r}"
        )
    return shapely.box(west, south, east, north)


def _with_box_in(kept: KeptFiles, geometry: str, region: Any) -> KeptFiles:
    """The files with a bounding box, in their GeoParquet metadata, that intersects a region."""
    if region.is_empty:
        return kept
    with ThreadPoolExecutor(_THREADS) as pool:
        meets = list(pool.map(lambda file: _box_meets(file.path, geometry, region), kept))
    fewer = KeptFiles(file for file, met in zip(kept, meets, strict=True) if met)
    fewer.__dict__.update(kept.__dict__)
    told = f"{len(kept) - len(fewer)} files left out by the bounding box in their GeoParquet metadata"
    fewer.report = replace(
        kept.report,
        files_kept=len(fewer),
        bytes_kept=sum(file.size for file in fewer),
        noted=(*kept.report.noted, told),
        paths=lambda are_kept: [file.path for file, met in zip(kept, meets, strict=True) if met is are_kept],
    )
    return fewer


def _box_meets(path: str, geometry: str, region: Any) -> bool:
    """Test whether a file's bounding box of a column may intersect a region; True if there is none.

    The box is enlarged by a billionth of its coordinates, so that it has an area. An invalid region is replaced by its
    bounding box.
    """
    try:
        about = json.loads((pq.read_schema(path).metadata or {}).get(b"geo", b"{}"))
        box = [float(side) for side in about["columns"][geometry]["bbox"]]
    except (OSError, KeyError, TypeError, ValueError):
        return True
    half = len(box) // 2
    if len(box) not in (4, 6) or not all(map(math.isfinite, box)):
        return True
    (xmin, ymin), (xmax, ymax) = box[:2], box[half : half + 2]
    if xmin > xmax or ymin > ymax:  # a box that crosses the antimeridian
        return True
    slack = 1e-9 * max(1.0, *map(abs, box))
    grown = shapely.box(xmin - slack, ymin - slack, xmax + slack, ymax + slack)
    return bool(grown.intersects(region if region.is_valid else shapely.box(*region.bounds)))
