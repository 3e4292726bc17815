"""Table II of the paper: what an index of one column stores and takes to build, over 4,000 files of a database's log.

*plain* is what the paper's stores hold, the entries of each file as they are; *stored* is what ours hold, where Parquet
keeps a value once a column. The cost by the rule (section IV-E) is what queries for one value read: the plain metadata,
and the files that a filter's false positives make them read, in bits as the rule counts both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from examples import log_analytics
from geoskip import BloomFilter, Formatted, Hybrid, Index, MinMax, Prefix, Suffix, ValueList
from geoskip.lifecycle.log import latest
from geoskip.stores import ParquetStore
from tests.bench.build import building
from tests.bench.measure import console, judged, table
from tests.bench.sessions import logs, session

__all__ = ["costs", "plain_bytes", "run", "stored"]

LISTS, FILTERS, EITHER = ValueList("db_name"), BloomFilter("db_name"), Hybrid("db_name")
PREFIXES = Prefix("db_name", length=15)
AGENTS = Formatted("user_agent", extract="get_agent_name")
PAIRS: tuple[Index, ...] = (
    LISTS,
    FILTERS,
    EITHER,
    PREFIXES,
    Suffix("db_name", length=15),
    ValueList("account_name"),
    BloomFilter("account_name"),
    Hybrid("account_name"),
    AGENTS,
    MinMax("time"),
    MinMax("micros"),
)
COUNTS = ("nulls", "nans", "rows", "version", "blanks", "odd")
LEAST_FEWER = 8


@dataclass(frozen=True)
class Built:
    """What one index came to."""

    seconds: float
    stored: int
    plain: int
    summaries: pa.StructArray
    told: str


def run() -> None:
    """Print the tables."""
    folder = logs()
    log_analytics.register(session())
    found: dict[Index, Built] = {}
    sizes = np.zeros(0, dtype=np.int64)
    with console.status("building") as status:
        for index in PAIRS:
            status.update(f"building {index}")
            report = building(folder, [index])(0)
            snapshot_sizes, summaries = stored(folder, index)
            sizes = snapshot_sizes
            told = report.details.get(str(index), "")
            found[index] = Built(
                report.seconds, report.metadata_bytes[str(index)], plain_bytes(summaries), summaries, told
            )
        status.update("sizes of columns")
        columns = {name: _column_bytes(folder, name) for name in {_column(index) for index in PAIRS}}
    shown = table(
        f"Table II: {len(sizes):,} files, {sizes.sum() / 1e6:,.0f} MB", "", "column MB", "plain KB", "stored KB",
        "seconds", "",
    )  # fmt: skip
    for index, one in found.items():
        column = columns[_column(index)]
        shown.add_row(
            str(index), f"{column / 1e6:.1f}", f"{one.plain / 1e3:,.1f}", f"{one.stored / 1e3:,.1f}",
            f"{one.seconds:.1f}", one.told,
        )  # fmt: skip
    console.print(shown)
    _relations(found, sizes)


def _relations(found: dict[Index, Built], sizes: Any) -> None:
    for lists, filters, either in ((LISTS, FILTERS, EITHER), PAIRS[5:8]):
        summaries = found[lists].summaries, found[filters].summaries, found[either].summaries
        rule, made = (costs(*summaries, sizes, as_made=as_made) for as_made in (False, True))
        told = ", ".join(f"{kb / 8e3:,.0f}" for kb in rule)
        console.print(
            f"{either} at or below both by the rule's own cost, KB of ValueList, BloomFilter, Hybrid: "
            f"{judged(told, rule[2] <= min(rule[:2]))}; with the filters' bits as made: "
            + ", ".join(f"{kb / 8e3:,.0f}" for kb in made)
        )
    fewer = found[LISTS].plain / found[PREFIXES].plain
    console.print(
        f"{PREFIXES} at least {LEAST_FEWER} times below the distinct values' plain size: "
        f"{judged(f'{fewer:.1f}', fewer >= LEAST_FEWER)} plain, "
        f"{found[LISTS].plain / found[PREFIXES].stored:.1f} stored"
    )
    listing = [index for index in PAIRS if index.kind not in ("minmax", "bloomfilter") and index != AGENTS]
    filtering = [index for index in PAIRS if index.kind == "bloomfilter"]
    for words, others, beside in (("plain", listing, "lists"), ("stored", [*listing, *filtering], "lists or filters")):
        least = min(getattr(found[index], words) for index in others)
        own = getattr(found[AGENTS], words)
        console.print(
            f"{AGENTS} the smallest, {words} KB beside the next of those with {beside}: "
            f"{judged(f'{own / 1e3:,.1f} and {least / 1e3:,.1f}', own < least)}"
        )


def stored(folder: Path, index: Index) -> tuple[Any, pa.StructArray]:
    """The sizes of the indexed files, and their summaries."""
    snapshot = latest(ParquetStore(str(folder / "_geoskip")))
    assert snapshot is not None
    return np.asarray(snapshot.files.column("size")), snapshot.files.column(str(index))


def plain_bytes(summaries: pa.Array) -> int:
    """The bytes of all entries of some summaries, counts apart.

    >>> plain_bytes(pa.array([{"values": [b"ab", b"c"], "nulls": 0}, {"values": None, "nulls": 0}, {"values": []}]))
    3
    >>> plain_bytes(pa.array([{"min": 1, "max": 2}, None]))
    16
    """
    kind = summaries.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind if field.name not in COUNTS]
        return sum(plain_bytes(pc.struct_field(summaries, name)) for name in names)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return plain_bytes(summaries.drop_null().flatten())
    if pa.types.is_null(kind):
        return 0
    if pa.types.is_primitive(kind):
        return int((len(summaries) - summaries.null_count) * max(1, kind.bit_width // 8))
    return int(pc.sum(pc.binary_length(summaries)).as_py() or 0)


def costs(
    lists: pa.StructArray,
    filters: pa.StructArray,
    either: pa.StructArray,
    sizes: Any,
    *,
    fpp: float = 0.01,
    psi: float = 0.01,
    as_made: bool = False,
) -> tuple[float, float, float]:
    """The bits that a query for one value costs through lists, through filters, and through Hybrid's choices.

    A file without a list where only lists are stored is read in any case. ``as_made`` counts the bits that filters
    have, rounded up as they are, in place of those that the rule gives them.
    """
    values = pc.struct_field(lists, "values")
    listed = np.asarray(values.is_valid())
    bits = np.array([8 * plain_bytes(values.slice(number, 1)) for number in range(len(values))], dtype=np.float64)
    distinct = np.asarray(values.value_lengths().fill_null(0))
    if as_made:
        lengths = pc.struct_field(filters, "filters")
        made = np.array([8.0 * plain_bytes(lengths.slice(number, 1)) for number in range(len(lengths))])
    else:
        made = -distinct * math.log(fpp) / math.log(2) ** 2
    false = (1 - psi) * 8 * sizes
    by_list = np.where(listed, bits, false)
    by_filter = made + fpp * false
    chosen = np.asarray(pc.struct_field(either, "values").is_valid())
    return float(by_list.sum()), float(by_filter.sum()), float(np.where(chosen, by_list, by_filter).sum())


def _column(index: Index) -> str:
    """The column that it is over."""
    return index.column if isinstance(index, Formatted) else index.expressions()[0]


def _column_bytes(folder: Path, name: str) -> int:
    """The bytes of all values of a column."""
    found = 0
    for batch in pads.dataset(folder, exclude_invalid_files=False).to_batches(columns=[name]):
        found += plain_bytes(batch.column(0))
    return found
