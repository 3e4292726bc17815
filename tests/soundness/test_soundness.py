"""The property: no skipped file holds a row that makes the predicate TRUE; nor FALSE nor NULL for those verdicts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geoskip import predicates as p
from tests.support.harness import World, sound
from tests.support.strategies import examples, predicates, worlds

NAMES = st.sampled_from([("a", "x", "s"), ("n", "f", "s"), ("d", "day", "b"), ("w", "ts", "x")])
LEAST = examples(500)


@st.composite
def cases(draw: Any) -> tuple[World, p.Predicate]:
    """Files and a predicate over the same three columns."""
    names = draw(NAMES)
    return draw(worlds(names)), draw(predicates(names))


@pytest.mark.hypothesis
def test_no_skipped_file_holds_a_row_that_matches_and_enough_is_skipped() -> None:
    tally: Counter[str] = Counter()

    @settings(max_examples=3 * LEAST // 2, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(cases())
    def holds(case: tuple[World, p.Predicate]) -> None:
        world, predicate = case
        said = sound(predicate, world)
        if any(world.files):
            held = [bool(rows) for rows in world.files]
            tally["queries"] += 1
            tally["skip"] += any(has and not kept for has, kept in zip(held, said.true, strict=True))

    holds()
    assert tally["queries"] >= LEAST
    assert tally["skip"] >= 0.3 * tally["queries"], f"only {tally['skip']} of {tally['queries']} skip a file with rows"
