"""Clauses: three values, merges of them, and what a wrong answer does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from geoskip.clauses import (
    KEEP_ALL,
    KEEP_NONE,
    Clause,
    UnitClause,
    all_of,
    any_of,
    as_mask,
    keep_mask,
    parts_of,
    size_of,
)
from geoskip.metadata import FileMetadata

FILES = FileMetadata.of(pa.table({"path": ["one", "two", "three"]}))


@dataclass(frozen=True)
class Says(Clause):
    """Answers what it is told, and counts how often it is asked."""

    answer: Any
    asked: ClassVar[list[Any]] = []

    def keep(self, files: Any) -> Any:
        self.asked.append(self.answer)
        return self.answer


def kept(clause: Clause) -> list[bool]:
    return keep_mask(clause, FILES).tolist()


@pytest.mark.parametrize(("merged", "keeps"), [(all_of, [True, False, False]), (any_of, [True, True, True])])
def test_merging_leaves_the_masks_that_clauses_keep_as_they_are(merged: Any, keeps: list[bool]) -> None:
    masks = [np.array(answer) for answer in ([True, True, False], [True, False, True], [True, False, False])]
    before = [mask.copy() for mask in masks]
    assert kept(merged([Says(mask) for mask in masks])) == keeps
    assert all(np.array_equal(mask, old) for mask, old in zip(masks, before, strict=True))


def test_texts_of_merged_clauses_name_each_once() -> None:
    one, same, other = Says(True), Says(True), Says(False)
    assert str(all_of([one, same])) == str(one)
    assert str(any_of([one, other, same])) == f"({one} OR {other})"


@pytest.mark.parametrize(
    ("answer", "keeps"),
    [
        (np.array([True, False, False]), [True, False, False]),
        (pa.array([True, None, False]), [True, True, False]),
        (pa.chunked_array([[True], [None, False]]), [True, True, False]),
        (np.ma.masked_array([False, False, True], [True, False, False]), [True, False, True]),
        ([True, None, False], [True, True, False]),
        ([np.False_, np.True_, None], [False, True, True]),
        (None, [True] * 3),
        (False, [True] * 3),
        (np.False_, [True] * 3),
        (np.array([False]), [True] * 3),
        (np.array([0, 0, 0]), [True] * 3),
        (np.array([[False], [False], [False]]), [True] * 3),
        (np.array([False, None, True], dtype=object), [True] * 3),
        (pa.array([0, 1, 0]), [True] * 3),
        ("abc", [True] * 3),
        ([0, "", 1.5], [True] * 3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_null_and_a_wrong_answer_keep(answer: Any, keeps: list[bool]) -> None:
    assert as_mask(answer, 3).tolist() == keeps
    assert kept(Says(answer)) == keeps


def test_merging_is_kleenes_and_or_over_keep_skip_unknown() -> None:
    values = [True, False, None]
    for one in values:
        for other in values:
            pair = [Says([v] * 3) for v in (one, other)]
            both, either = (one, other).count(False) == 0, (one, other) != (False, False)
            assert kept(all_of(pair)) == [both] * 3
            assert kept(any_of(pair)) == [either] * 3


def test_a_clause_without_words_of_its_own_is_told_by_its_parameters() -> None:
    @dataclass(frozen=True)
    class Even(Clause):
        index: str

        def keep(self, files: Any) -> Any:
            raise NotImplementedError

    assert str(Even("parity(n)")).endswith("Even(index='parity(n)')")


def test_constants_fold_and_nested_merges_are_flat() -> None:
    one, two, three = (Says([bool(n)] * 3) for n in range(3))
    assert all_of([one, KEEP_ALL]) is one
    assert any_of([one, KEEP_NONE]) is one
    assert all_of([one, KEEP_NONE]) is KEEP_NONE
    assert any_of([one, KEEP_ALL]) is KEEP_ALL
    assert all_of([]) is KEEP_ALL
    assert any_of([]) is KEEP_NONE
    assert parts_of(all_of([all_of([one, two]), three, one])) == (one, two, three)
    assert size_of(any_of([any_of([one, two]), all_of([two, three])])) == 4


def test_a_merge_asks_no_further_than_it_must_and_harms_no_answer() -> None:
    Says.asked.clear()
    nothing, everything = np.zeros(3, dtype=bool), np.ones(3, dtype=bool)
    assert kept(all_of([Says(everything), Says(nothing), Says(None)])) == [False] * 3
    assert kept(any_of([Says(nothing), Says(everything), Says(None)])) == [True] * 3
    assert None not in [answer if answer is None else 0 for answer in Says.asked]
    assert (nothing.any(), everything.all()) == (False, True)


class Unit(UnitClause):
    """Units 0 and 1 are those of file one, 2 of file two; file three has something unknown."""

    index = "boxes"

    def __init__(self, *units: bool) -> None:
        self.units = np.array(units)

    def keep_units(self, files: Any) -> Any:
        return self.units

    def files_of(self, files: Any, units: Any) -> Any:
        return np.array([units[:2].any(), units[2], True])


def test_clauses_over_units_are_merged_unit_by_unit() -> None:
    left, right = Unit(True, False, True), Unit(False, True, True)
    assert kept(all_of([left, right])) == [False, True, True], "no single unit of file one satisfies both"
    assert kept(any_of([left, right])) == [True, True, True]
    assert kept(all_of([all_of([left, right]), Says([True] * 3)])) == [False, True, True]
