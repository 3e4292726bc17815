"""The recommended layout for some queries, selected by simulation with sampled rows.

Layouts over the columns in the queries' filters, weighted by the bytes that the queries would still read with the
chosen indexes, are tried: lexical order, both curves and a k-d tree. Rows are sampled once for all of them
(:mod:`geoskip.spark.advisor.simulated_layout`). Each layout needs its own indexes, since bounds that are useless for
unordered rows can be very selective for ordered ones. So indexes are selected for each layout, by the same rule and
within the same budget as for the current data.

A layout is advised only if the queries would read a fifth less than with only the chosen indexes, and less even at the
upper end of the interval, since rewriting data costs more than indexing them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from geoskip.advisor.advice import AdvisedLayout
from geoskip.advisor.index_candidates import filtered_columns
from geoskip.advisor.query_estimates import WhatIf
from geoskip.indexes.base import Index
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.minmax import MinMax
from geoskip.layout.ranks import is_geometry
from geoskip.layout.specification import Hilbert, KDTree, Layout, Sort, ZOrder
from geoskip.metadata import IndexEntry, Snapshot
from geoskip.predicates import Column, columns_of
from geoskip.report import count_of
from geoskip.sources.column_names import quote_if_needed
from geoskip.sources.progress import delayed_progress
from geoskip.spark.advisor.file_sample import FileSample
from geoskip.spark.advisor.judged_candidates import JudgedCandidates, judge
from geoskip.spark.advisor.simulated_layout import SampledRows, SimulatedLayout, sample_rows, simulate_layout
from geoskip.spark.advisor.what_if import AskedQuery, layout_estimate
from geoskip.types import sql_type

_MOST_COLUMNS = 3
_MOST_READ = 0.8
"""Maximum bytes read in an advised layout, as a fraction of the bytes read with only the indexes."""


@dataclass(frozen=True)
class LayoutTrial:
    """A simulated layout, with the indexes selected for it and the bytes that the queries would read."""

    layout: Layout
    simulated: SimulatedLayout
    judged: JudgedCandidates
    names: frozenset[str]
    read: float


def advised_layout(
    sampled: FileSample,
    asked: Sequence[AskedQuery],
    indexed: WhatIf,
    select: Callable[[JudgedCandidates], frozenset[str]],
    *,
    share: float,
    seed: int,
) -> AdvisedLayout | None:
    """Return the layout with which the queries would read least, with its indexes; None if none pays.

    Parameters
    ----------
    sampled
        The sampled files, with all candidates.
    asked
        The queries.
    indexed
        Estimates for the queries with the chosen indexes and the current files.
    select
        Function that returns the names of the indexes to build, given the candidates for a layout.
    share
        The minimum fraction of rows to sample.
    seed
        Seed of the sample.

    Raises
    ------
    GeoskipError
        If rows cannot be sampled, or cannot be ordered by the filtered columns.
    """
    geometries = _geometries(sampled)
    columns = _columns(sampled, asked, indexed, geometries)
    if not columns:
        return None
    entries = _entries(sampled, columns, indexed.indexes)
    names = [geometries.get(column.name, column.name) for column in columns]
    rows = sample_rows(sampled.state, ZOrder(*names), entries, share, seed)
    if len(rows.ordering) != len(names):
        return None
    shapes = [name for name, values in zip(names, rows.ordering, strict=True) if is_geometry(values)]
    trials, layouts = list[LayoutTrial](), _layouts(names, shapes)
    with delayed_progress("trying layouts", "layouts", len(layouts)) as advance:
        for layout in layouts:
            trials.append(_try_layout(layout, rows, names, sampled, asked, select, seed))
            advance(len(trials))
    best = min(trials, key=lambda trial: trial.read)
    simulated = _restrict_indexes(best.simulated, best.names | best.judged.coverage.base)
    estimates = tuple(layout_estimate(query, sampled, simulated, indexed.confidence) for query in asked)
    chosen = [entry for entry in sampled.proposed if entry.name in best.names]
    what_if = replace(
        indexed,
        indexes=tuple(entry.name for entry in chosen),
        layout=str(best.layout),
        queries=estimates,
        files_after=best.simulated.files,
        bytes_after=round(simulated.bytes_a_row.value * rows.rows / rows.share),
        sampled=f"{rows.rows:,} rows of {count_of(rows.files_read, 'file')}",
        metadata_bytes={name: best.judged.costs[name] for name in best.names},
    )
    now, then = indexed.bytes_then, what_if.bytes_then
    if then.value > _MOST_READ * now.value or then.high >= now.value:
        return None
    return AdvisedLayout(best.layout, what_if, tuple(entry.index.bind(()) for entry in chosen), _needed_indexes(best))


def _needed_indexes(trial: LayoutTrial) -> tuple[str, ...]:
    """Names of the existing indexes without which the queries would read more in a layout."""
    coverage, base = replace(trial.judged.coverage, base=frozenset()), trial.judged.coverage.base
    left = frozenset(base | trial.names)
    for name in sorted(base):
        if coverage.saving(left - {name}) == coverage.saving(left):
            left = left - {name}
    return tuple(sorted(left & base))


def _geometries(sampled: FileSample) -> dict[str, str]:
    """Texts of geometries that a GeoBox computes from one column, by column; the shortest of several."""
    found: dict[str, str] = {}
    for entry in sampled.snapshot.header.entries:
        texts, read = entry.index.expressions(), columns_of(*entry.index.bound)
        if isinstance(entry.index, GeoBox) and len(texts) == len(read) == 1:
            (name,) = read
            found[name] = min(found.get(name, texts[0]), texts[0], key=lambda text: (len(text), text))
    return found


def _columns(
    sampled: FileSample, asked: Sequence[AskedQuery], indexed: WhatIf, geometries: Mapping[str, str]
) -> list[Column]:
    """The columns with an order or a geometry that are filtered by the queries that still read most."""
    partitions = set(map(quote_if_needed, sampled.state.relation.partitions))
    weights: Counter[Column] = Counter()
    for query, estimate in zip(asked, indexed.queries, strict=True):
        read: set[Column] = set()
        for scan in query.scans:
            if scan.condition:
                read |= filtered_columns(scan.predicates_over(sampled.snapshot)[0])
        for column in read:
            kind = sql_type(column.type)
            if column.name not in partitions and (kind.is_plain or kind.is_text or column.name in geometries):
                weights[column] += round(query.count * estimate.bytes.value)
    ordered = sorted(weights, key=lambda column: (-weights[column], column.name))
    return [column for column in ordered if weights[column] > 0][:_MOST_COLUMNS]


def _entries(sampled: FileSample, columns: Sequence[Column], chosen: Sequence[str]) -> list[IndexEntry]:
    """The existing and the chosen indexes, and bounds of the columns of a layout."""
    proposed = {entry.name for entry in sampled.proposed}

    def is_wanted(index: Index) -> bool:
        if isinstance(index, GeoBox):  # a geometry is computed from a column of WKB or text
            return columns_of(*index.bound) <= {column.name for column in columns}
        return isinstance(index, MinMax) and set(index.bound) <= set(columns)

    entries = sampled.snapshot.header.entries
    return [e for e in entries if e.name not in proposed or e.name in chosen or is_wanted(e.index)]


def _layouts(names: Sequence[str], shapes: Sequence[str]) -> list[Layout]:
    """The layouts over the first columns to try; a single geometry can also be ordered along a curve."""
    found: list[Layout] = [Sort(name) for name in names]
    found += [kind(name) for name in shapes for kind in (Hilbert, KDTree)]
    for count in range(2, len(names) + 1):
        found += [kind(*names[:count]) for kind in (ZOrder, Hilbert, KDTree)]
    return found


def _try_layout(
    layout: Layout,
    rows: SampledRows,
    names: Sequence[str],
    sampled: FileSample,
    asked: Sequence[AskedQuery],
    select: Callable[[JudgedCandidates], frozenset[str]],
    seed: int,
) -> LayoutTrial:
    """Simulate a layout of sampled rows, and select its indexes."""
    ordering = tuple(rows.ordering[names.index(name)] for name in layout.expressions)
    simulated = simulate_layout(replace(rows, layout=layout, ordering=ordering), len(sampled.state.files), seed)
    snapshot = simulated.snapshots[0]
    proposed = {entry.name for entry in sampled.proposed}
    stored = sampled.encoded_bytes(snapshot.files.table())
    costs = {entry.name: stored[entry.name] for entry in rows.entries if entry.name in proposed}
    judged = judge(snapshot, sampled.state, costs, asked, ())
    chosen = select(judged)
    return LayoutTrial(layout, simulated, judged, chosen, judged.coverage.workload_bytes(chosen) * judged.bytes)


def _restrict_indexes(simulated: SimulatedLayout, names: frozenset[str]) -> SimulatedLayout:
    """The simulation with only some of its indexes."""
    entries = tuple(entry for entry in simulated.rows.entries if entry.name in names)
    snapshots = tuple(Snapshot(replace(s.header, entries=entries), s.files) for s in simulated.snapshots)
    return replace(simulated, snapshots=snapshots, rows=replace(simulated.rows, entries=entries))
