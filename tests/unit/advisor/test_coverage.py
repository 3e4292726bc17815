"""Masks of sets of indexes, merged from those of single ones, beside labelling anew."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geoskip.advisor.coverage import Coverage, VertexMasks, bundles_of, masks_of, undominated_indexes
from geoskip.clauses import Mask
from geoskip.indexes.base import Index
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.valuelist import ValueList
from geoskip.metadata import FileMetadata
from geoskip.planner import clause_for
from geoskip.predicates import And, Column, Comparison, Literal, Not, Or, Predicate
from geoskip.rewrite import canonical
from tests.support.strategies import examples

NAMES = ("x", "y", "z")
COLUMNS = [Column(name, "int") for name in NAMES]
INDEXES: list[Index] = [
    *(kind(column.name).bind([column]) for column in COLUMNS for kind in (MinMax, ValueList)),
    GeoBox("x", "y", boxes=4).bind(COLUMNS[:2]),
]
FILES = 10


def metadata(seed: int, apart: int = 0) -> FileMetadata:
    """Summaries of small files; x is so much larger in every second one."""
    random = np.random.default_rng(seed)
    columns: dict[str, list[object]] = {str(index): [] for index in INDEXES}
    for file in range(FILES):
        rows = {name: pa.array(random.integers(0, 20, 3), pa.int32()) for name in NAMES}
        rows["x"] = pc.add(rows["x"], pa.scalar(file % 2 * apart, pa.int32()))
        for index in INDEXES:
            columns[str(index)].append(index.collect(*(rows[name] for name in index.expressions())))
    return FileMetadata.of(pa.table(columns))


def real(files: FileMetadata, condition: Predicate, indexes: Sequence[Index]) -> Mask:
    return files.evaluate(clause_for(condition, indexes))


def _equals(value: int) -> Predicate:
    return Comparison("=", COLUMNS[0], Literal(value, "int"))


literals = st.builds(Literal, st.integers(0, 19), st.just("int"))
comparisons = st.builds(Comparison, st.sampled_from(["=", "<", ">="]), st.sampled_from(COLUMNS), literals)
conditions: st.SearchStrategy[Predicate] = st.recursive(
    comparisons,
    lambda below: st.one_of(
        st.builds(Not, below),
        st.builds(And, st.lists(below, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(below, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=5,
)


@settings(max_examples=examples(60), deadline=None)
@example(And((_equals(0), Or((_equals(1), Comparison(">=", COLUMNS[0], Literal(1, "int")))))), 0)
@given(conditions, st.integers(0, 5))
def test_merged_masks_are_those_of_labelling(condition: Predicate, seed: int) -> None:
    files = metadata(seed)
    masks = masks_of(canonical(condition), lambda node, some: real(files, node, some), INDEXES)
    for size in (0, 1, 2, len(INDEXES)):
        for some in itertools.combinations(INDEXES, size):
            merged = masks.mask(frozenset(map(str, some)), FILES)
            labelled = real(files, condition, some)
            alone = [real(files, condition, [index]) for index in some]
            kept = np.logical_and.reduce([labelled, *alone])
            assert not (kept & ~merged).any(), "a file that labelling keeps was skipped"
            if size < 2:
                assert np.array_equal(merged, labelled)


@pytest.mark.parametrize("value", [False, None])
def test_a_member_that_is_never_true_leaves_the_others_to_decide(value: bool | None) -> None:
    files, condition = metadata(1), Comparison("<", COLUMNS[2], Literal(4, "int"))
    either = Or((condition, And((Literal(value, "boolean"), Comparison("=", COLUMNS[0], Literal(3, "int"))))))
    masks = masks_of(either, lambda node, some: real(files, node, some), INDEXES)
    names = frozenset(["minmax(z)"])
    assert np.array_equal(masks.mask(names, FILES), real(files, condition, INDEXES[4:5]))
    assert not masks.mask(names, FILES).all()
    assert bundles_of(coverage(masks), dict.fromkeys(map(str, INDEXES), 1.0)) == []


def test_a_group_decides_a_comparison_of_two_columns() -> None:
    files = metadata(1, apart=50)
    x, y = COLUMNS[:2]
    pair = [INDEXES[0], INDEXES[2]]
    condition = Comparison("<", x, y)
    masks = masks_of(condition, lambda node, some: real(files, node, some), INDEXES, [pair])
    names = frozenset(map(str, pair))
    assert np.array_equal(masks.mask(names, FILES), real(files, condition, pair))
    assert not masks.mask(names, FILES).all()
    assert masks.mask(frozenset(list(names)[:1]), FILES).all()
    covered = coverage(masks)
    assert bundles_of(covered, dict.fromkeys(names, 1.0)) == [tuple(sorted(names))]
    assert set(undominated_indexes(covered, dict.fromkeys(names, 1.0))) == names


def mask(*skipped: int) -> Mask:
    found = np.ones(4, dtype=bool)
    found[list(skipped)] = False
    return found


def of(**masks: Mask) -> VertexMasks:
    return VertexMasks({frozenset([name]): one for name, one in masks.items()})


def coverage(*queries: VertexMasks, weights: Sequence[float] = (), base: str = "") -> Coverage:
    files = len(next(iter(queries[0].vertices())).mask(frozenset(), 4)) if weights else FILES
    files = 4 if weights else files
    every = np.ones(files, dtype=bool)
    sizes = np.array([1, 10, 100, 1000] if weights else [1] * files)
    return Coverage([[(masks, every)] for masks in queries], sizes, weights or [1.0] * len(queries), frozenset(base))


def test_savings_are_bytes_not_read_with_the_weights_of_queries() -> None:
    covered = coverage(of(a=mask(0, 1), b=mask(1, 2)), of(b=mask(3)), weights=[1.0, 5.0])
    assert covered.saving(frozenset()) == 0
    assert covered.saving(frozenset("a")) == 11
    assert covered.saving(frozenset("b")) == 110 + 5 * 1000
    assert covered.saving(frozenset("ab")) == 111 + 5 * 1000
    assert (covered.queries_of("a"), covered.queries_of("b")) == ([0], [0, 1])


def test_what_is_there_already_is_not_saved_again() -> None:
    assert coverage(of(a=mask(0, 1), b=mask(1)), weights=[1.0], base="b").saving(frozenset("a")) == 1


def test_an_index_that_a_cheaper_one_covers_is_left_out() -> None:
    covered = coverage(of(a=mask(0, 1), b=mask(1), c=mask(2)), of(a=mask(0), c=mask(0)), weights=[1.0, 1.0])
    assert undominated_indexes(covered, {"a": 2.0, "b": 3.0, "c": 9.0, "d": 0.0}) == ["a", "c"]
    assert undominated_indexes(covered, {"a": 4.0, "b": 3.0, "c": 9.0}) == ["a", "b", "c"]


def test_members_of_an_or_are_bundled() -> None:
    either = VertexMasks({}, (of(a=mask(0), b=mask(0, 1)), of(c=mask(1, 2))), every=False)
    covered = coverage(either, weights=[1.0])
    assert [covered.saving(frozenset(names)) for names in ("a", "c", "bc")] == [0, 0, 10]
    assert set(bundles_of(covered, {"a": 1.0, "b": 1.0, "c": 1.0})) == {("a", "c"), ("b", "c")}


@pytest.mark.parametrize("every", [True, False])
def test_files_that_sparks_pruning_leaves_out_are_not_read(every: bool) -> None:
    left = np.array([every, True, True, False])
    covered = Coverage([[(of(a=mask(1)), left)]], np.array([1, 10, 100, 1000]), [1.0])
    assert covered.bytes_read(0, frozenset()) == 110 + every
    assert covered.bytes_read(0, frozenset("a")) == 100 + every
