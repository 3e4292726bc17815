"""Layouts read few files: beside a lexical order, a regular grid, and another system's Z-order of the same rows."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from geoskip import Hilbert, KDTree, Layout, Sort, ZOrder
from geoskip.layout.arrangement import Arrangement
from geoskip.layout.row_keys import z_order_keys
from tests.support.layout_workloads import (
    KINDS,
    WORKLOADS,
    Ints,
    LayoutWorkload,
    bounds_of_files,
    codes_of,
    distinct_of,
    files_needed,
    files_read,
    ranges,
)

ROWS = 25_600
FILES = 256
LAYOUTS = {ZOrder: 1.4, Hilbert: 1.2, KDTree: 1.05}
"""With the files that a point on one column reads at most, to those of a grid: even files cut across cells."""
MAPS = [workload for workload in WORKLOADS if workload.name == "zip codes"]
QUICK = [workload for workload in WORKLOADS if workload.name in ("uniform", "skewed", "prefixes")] + MAPS


def named(workload: LayoutWorkload) -> str:
    return f"{workload.name} by {', '.join(workload.columns)}"


@cache
def rows_of(workload: LayoutWorkload) -> pa.Table:
    return workload.rows().select(workload.columns).slice(0, ROWS).combine_chunks()


@cache
def coded(workload: LayoutWorkload) -> Ints:
    table = rows_of(workload)
    return np.stack([codes_of(column, distinct_of(column)) for column in table.columns])


@cache
def files_in(workload: LayoutWorkload, kind: type[Layout]) -> Ints:
    columns = [column.combine_chunks() for column in rows_of(workload).columns]
    return Arrangement.fit(kind(*workload.columns), columns, FILES).keys_and_files(columns)[1]


def reads(workload: LayoutWorkload, files: Ints, kind: str) -> float:
    """The mean number of files that queries of a kind read."""
    codes = coded(workload)
    return float(files_read(ranges(codes, kind), *bounds_of_files(codes, files)).mean())


def files_of_a_peer(codes: Ints) -> Ints:
    """Another system's Z-order: the bits of 1,000 even ranges a column interleaved, and the rows cut evenly."""
    random = np.random.default_rng(0)
    ids = [np.searchsorted(np.unique(np.quantile(column, np.arange(1, 1000) / 1000)), column) for column in codes]
    order = np.lexsort((random.random(codes.shape[1]), z_order_keys(np.stack(ids), 10)))
    files = np.empty(codes.shape[1], np.int64)
    files[order] = np.arange(codes.shape[1]) * FILES // codes.shape[1]
    return files


@pytest.mark.parametrize("kind", [*LAYOUTS, Sort])
def test_the_judge_reads_every_file_that_a_query_needs(kind):
    workload = WORKLOADS[3]
    codes, files = coded(workload), files_in(workload, kind)
    for asked in KINDS:
        queries = ranges(codes, asked, queries=40)
        read = files_read(queries, *bounds_of_files(codes, files))
        for low, high, count in zip(queries.low, queries.high, read, strict=True):
            matches = ((codes >= low[:, None]) & (codes <= high[:, None])).all(axis=0)
            assert matches.any()
            assert count >= len(np.unique(files[matches]))
    needed = files_needed(queries, codes, FILES)
    assert (needed >= 1).all()
    assert (needed <= FILES).all()


def test_a_z_order_skips_by_any_column_nearly_what_a_lexical_order_skips_by_its_first():
    """Impala's experiment."""
    workload = WORKLOADS[0]
    codes = coded(workload)
    skipped = {}
    for kind in (ZOrder, Sort):
        for column in (0, 1):
            one = codes[[column]]
            read = files_read(ranges(one, "range 1 %, one column"), *bounds_of_files(one, files_in(workload, kind)))
            skipped[kind, column] = 1 - read.mean() / FILES
    assert skipped[ZOrder, 0] > 0.9 * skipped[Sort, 0]
    assert skipped[ZOrder, 1] > 0.97 * skipped[ZOrder, 0]
    assert skipped[Sort, 1] < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("workload", WORKLOADS[:3], ids=named)
def test_a_point_on_one_uniform_column_reads_what_it_would_in_a_grid(workload, kind):
    dimensions = len(workload.columns)
    grid = FILES ** ((dimensions - 1) / dimensions)
    assert reads(workload, files_in(workload, kind), "point, one column") < LAYOUTS[kind] * grid


@pytest.mark.slow
@pytest.mark.parametrize("workload", QUICK, ids=named)
def test_a_kd_tree_reads_no_more_than_another_z_order_and_fewer_on_maps(workload):
    """On a map a window or a place reads 1.3 times fewer."""
    peer, ours = files_of_a_peer(coded(workload)), files_in(workload, KDTree)
    for kind in KINDS:
        theirs, own = reads(workload, peer, kind), reads(workload, ours, kind)
        assert own <= theirs, kind
        if workload.is_spatial and kind.endswith("all columns"):
            assert 1.3 * own <= theirs, kind


@pytest.mark.slow
@pytest.mark.parametrize("workload", QUICK, ids=named)
def test_a_hilbert_curve_reads_no_more_than_a_z_order(workload):
    """Over all kinds of queries, by the geometric mean."""
    z_order, hilbert = (
        np.mean([np.log(reads(workload, files_in(workload, layout), kind)) for kind in KINDS])
        for layout in (ZOrder, Hilbert)
    )
    assert hilbert < z_order + 0.01
