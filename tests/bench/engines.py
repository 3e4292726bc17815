"""Queries of pyarrow, polars and DuckDB over 2,000 files of which they need few, alone and with geoskip's metadata.

The files are flights by origin and departure. Alone, an engine opens every file's footer and prunes row groups by the
bounds in it: that serves the range, and neither the destination, which every file has in its middle, nor the list.
With geoskip the folder is listed, the metadata are asked, and the engine opens the files that are left. The schema and
the listing are part of both times. *MB read* are those of system calls, footers included. The rows themselves are
compared, in one order.
"""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import geoskip
from datasets.layout import laid_out_once, lay_out, write_parts
from tests.bench.measure import PLACE, console, interleaved, judged, milliseconds, table

FILES = 2_000
ROUNDS = 7
UTC = dt.UTC


@dataclass(frozen=True)
class EngineQuery:
    """One query: a range of departures, and airports; None for any."""

    name: str
    origins: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ()
    hours: tuple[dt.datetime, dt.datetime] | None = None

    def arrow(self) -> pc.Expression:
        """The condition for pyarrow."""
        return self._of_columns(pc.field, lambda column, values: column.isin(values))

    def polars(self) -> Any:
        """The condition for polars."""
        import polars as pl

        return self._of_columns(pl.col, lambda column, values: column.is_in(values))

    def _of_columns(self, column: Callable[[str], Any], is_in: Callable[[Any, list[str]], Any]) -> Any:
        parts = [column("delay") >= 0]
        for name, values in (("origin", self.origins), ("destination", self.destinations)):
            parts += [is_in(column(name), list(values))] if values else []
        if self.hours:
            parts += [column("time") >= self.hours[0], column("time") < self.hours[1]]
        return reduce(operator.and_, parts)

    def sql(self) -> str:
        """The condition for DuckDB."""
        parts = ["delay >= 0"]
        for name, values in (("origin", self.origins), ("destination", self.destinations)):
            parts += [f"{name} IN ({', '.join(repr(value) for value in values)})"] if values else []
        if self.hours:
            low, high = (f"TIMESTAMPTZ '{hour:%Y-%m-%d %H:%M:%S}+00'" for hour in self.hours)
            parts += [f"time >= {low} AND time < {high}"]
        return " AND ".join(parts)


def folder() -> Path:
    """Flights by origin and departure as even files, with their metadata."""

    def write(empty: Path) -> None:
        source = lay_out(PLACE, which=["flights_clustered"])["flights_clustered"]
        rows = ds.dataset(source, format="parquet").to_table()
        cuts = np.linspace(0, len(rows), FILES + 1).astype(int)
        write_parts(empty, FILES, lambda number: rows.slice(cuts[number], cuts[number + 1] - cuts[number]))

    place = laid_out_once(PLACE / f"flights_{FILES}", {"files": FILES}, write)
    if not (place / "_geoskip").exists():
        indexes = [geoskip.MinMax("time"), geoskip.MinMax("delay")]
        geoskip.build(place, [*indexes, geoskip.ValueList("origin"), geoskip.ValueList("destination")])
    return place


def queries(place: Path) -> list[EngineQuery]:
    """Queries that need one to ten files, found in the data."""
    few = pc.value_counts(ds.dataset(place, format="parquet").to_table(columns=["destination"])["destination"])
    rare = few.field("values").take(pc.sort_indices(few.field("counts")))[:400].to_pylist()
    wanted: dict[int, str] = {}
    for airport in rare:
        kept = len(geoskip.files(place, pc.field("destination") == airport))
        if 1 <= kept <= 10:
            wanted.setdefault(kept, airport)
    least, most = min(wanted), max(wanted)
    start = ds.dataset(place, format="parquet").head(1)["time"][0].as_py().replace(tzinfo=UTC)
    hours = (start, start + dt.timedelta(hours=6))
    busy = ds.dataset(place, format="parquet").to_table(columns=["origin"])["origin"]
    origin = pc.mode(busy.dictionary_encode().combine_chunks().indices)[0]["mode"].as_py()
    home = busy.dictionary_encode().combine_chunks().dictionary[origin].as_py()
    return [
        EngineQuery("six hours of an airport", origins=(home,), hours=hours),
        EngineQuery(f"a destination of {least} file(s)", destinations=(wanted[least],)),
        EngineQuery(f"a destination of {most} file(s)", destinations=(wanted[most],)),
        EngineQuery("no such airport", destinations=("QQQ",)),
    ]


Answer = Callable[[EngineQuery], pa.Table]


def readers(place: Path) -> dict[str, tuple[Answer, Answer]]:
    """Each engine alone and with geoskip: the rows of a query."""
    import duckdb
    import polars as pl

    pattern = f"{place}/*.parquet"
    connection = duckdb.connect()
    narrowed = geoskip.duckdb(duckdb.connect())
    sql = f"SELECT * FROM read_parquet('{pattern}') WHERE "
    return {
        "pyarrow": (
            lambda query: ds.dataset(place, format="parquet").filter(query.arrow()).to_table(),
            lambda query: geoskip.pyarrow_dataset(place, query.arrow()).to_table(),
        ),
        "polars": (
            lambda query: pl.scan_parquet(pattern).filter(query.polars()).collect().to_arrow(),
            lambda query: geoskip.scan_polars(place).filter(query.polars()).collect().to_arrow(),
        ),
        "DuckDB": (
            lambda query: connection.sql(sql + query.sql()).to_arrow_table(),
            lambda query: narrowed.sql(sql + query.sql()).to_arrow_table(),
        ),
    }


def _bytes_read() -> int:
    """Bytes that this process has asked the system for."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])


def in_order(rows: pa.Table) -> pa.Table:
    """The rows in the order of all their columns, so that equal rows are equal tables."""
    return rows.sort_by([(name, "ascending") for name in rows.column_names]).combine_chunks()


def _measured(answer: Answer, query: EngineQuery) -> tuple[pa.Table, float]:
    before = _bytes_read()
    rows = answer(query)
    return rows, (_bytes_read() - before) / 1e6


def _repeating(answer: Answer, query: EngineQuery) -> Callable[[int], pa.Table]:
    return lambda _: answer(query)


def run() -> None:
    """Print a table of all engines and queries."""
    with console.status(f"writing {FILES:,} files"):
        place = folder()
        asked = queries(place)
    shown = table(
        f"{FILES:,} files, milliseconds", "", "rows", "kept", "alone", "geoskip", "times", "MB alone", "MB geoskip", ""
    )
    for engine, (alone, with_geoskip) in readers(place).items():
        for query in asked:
            expected, all_bytes = _measured(alone, query)
            found, few_bytes = _measured(with_geoskip, query)
            timed = [_repeating(reader, query) for reader in (alone, with_geoskip)]
            slow, quick = interleaved(timed, times=ROUNDS, of=min)
            kept = len(geoskip.files(place, query.arrow()))
            shown.add_row(
                f"{engine}: {query.name}", f"{len(expected):,}", f"{kept}", milliseconds(slow), milliseconds(quick),
                f"{slow / quick:.1f}", f"{all_bytes:.1f}", f"{few_bytes:.1f}",
                judged("rows equal", in_order(expected).equals(in_order(found))),
            )  # fmt: skip
        shown.add_section()
    console.print(shown)
