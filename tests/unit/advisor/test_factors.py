"""The paper's indicators as fractions of counted rows, their sums over scans and their means over queries."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoskip.advisor.indicators import Extent, Indicators, ScanIndicators, Workload


@st.composite
def scans(draw: st.DrawFn) -> ScanIndicators:
    """Counts as a scan without lost rows has them: each file that holds a match is read."""
    files = draw(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.booleans()), min_size=1, max_size=6))
    rows = [(matching, matching + others, read or matching > 0) for matching, others, read in files]

    def extent(chosen: list[tuple[int, int, bool]]) -> Extent:
        return Extent(len(chosen), sum(count for _, count, _ in chosen), 100 * len(chosen))

    holding, read = [row for row in rows if row[0]], [row for row in rows if row[2]]
    return ScanIndicators("file:/d", "a > 1", sum(row[0] for row in rows), extent(holding), extent(read), extent(rows))


queries = st.lists(scans(), min_size=1, max_size=3).map(lambda found: Indicators(tuple(found)))


@given(queries)
def test_psi_is_sigma_over_lambda_and_mu_exactly_or_undefined(query: Indicators) -> None:
    for one in (*query, query):
        if one.rows_matching == 0:
            assert (one.lambda_, one.mu, one.psi) == (None, None, None)
            assert one.sigma == (0 if one.total.rows else None)
        else:
            assert one.psi == one.sigma / (one.lambda_ * one.mu)
            assert all(isinstance(value, Fraction) and 0 < value <= 1 for value in one.indicators().values())


@given(st.lists(queries, max_size=5))
def test_means_satisfy_the_identity_and_leave_out_what_is_undefined(found: list[Indicators]) -> None:
    workload = Workload(tuple(found))
    defined = [query for query in found if query.rows_matching]
    assert workload.left_out == len(found) - len(defined)
    if not defined:
        assert set(workload.means().values()) == {None}
        return
    sigma, layout, mu, psi = workload.means().values()
    assert psi == pytest.approx(sigma / (layout * mu), rel=1e-12)
    assert min(query.lambda_ or 1 for query in defined) <= layout * (1 + 1e-12)


@given(st.lists(queries, max_size=3))
def test_everything_is_shown_and_written(found: list[Indicators]) -> None:
    workload = Workload(tuple(found))
    assert json.loads(json.dumps(workload.to_dict()))["left_out"] == workload.left_out
    assert ("left out" in str(workload)) == (workload.left_out > 0)
    for query in workload:
        assert ("neither lambda nor mu nor psi" in str(query)) == (
            not all(one.rows_matching for one in (*query, query))
        )
        assert query._repr_html_().count("<tr>") == len(query) + (2 if len(query) > 1 else 1)


def test_a_query_over_no_file_says_so() -> None:
    assert str(Indicators(())).startswith("geoskip: the query has no scan in which geoskip skips files")
    assert Workload((Indicators(()),)).left_out == 1
