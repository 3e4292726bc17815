"""Conditions: numpy, Arrow and three-valued logic agree on which units are kept."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geoskip.conditions import (
    ALWAYS,
    NEVER,
    AllOf,
    Among,
    AnyOf,
    Compare,
    Condition,
    Negation,
    Refine,
    SomeValue,
    UnitTable,
    all_hold,
    any_holds,
    evaluate,
    expression_of,
    is_exact,
    necessary,
)


@dataclass(frozen=True)
class _Table(UnitTable):
    table: pa.Table

    def __len__(self) -> int:
        return self.table.num_rows

    def column(self, name: str) -> Any:
        array = self.table[name].combine_chunks()
        plain = all(column.null_count == 0 for column in self.table.columns)  # as ends are, both of one kind
        return array.to_numpy(zero_copy_only=False) if plain else array

    def files_with(self, units: Any) -> Any:
        return units


_OPERATORS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def _truth(condition: Condition, row: dict[str, Any]) -> bool | None:
    """Kleene's logic, one row at a time."""
    match condition:
        case Compare(column, op, value):
            held = row[column]
            if held is None:
                return None
            return bool(_OPERATORS[op](held, value))
        case Among(column, intervals):
            held = row[column]
            if held is None:
                return True if (None, None) in intervals else None if intervals else False
            return any((low is None or low <= held) and (high is None or held < high) for low, high in intervals)
        case SomeValue(values, equal):
            ops = ("=", "=") if equal else ("<=", ">=")
            return _truth(AnyOf(tuple(AllOf(tuple(map(Compare, ("low", "high"), ops, (v, v)))) for v in values)), row)
        case Negation(part):
            found = _truth(part, row)
            return None if found is None else not found
    answers = [_truth(part, row) for part in condition.parts]
    decisive = isinstance(condition, AnyOf)
    return decisive if decisive in answers else None if None in answers else not decisive


_LEAVES = st.one_of(
    st.builds(
        Compare, st.sampled_from(["low", "high"]), st.sampled_from(["=", "<", "<=", ">", ">="]), st.integers(0, 6)
    ),
    st.builds(
        lambda ends: Among("low", tuple(ends)),
        st.sampled_from([(), ((1, 2),), ((None, 1), (3, 5)), ((4, None),), ((None, None),)]),
    ),
    st.builds(lambda values, equal: SomeValue(tuple(sorted(values)), equal), st.sets(st.integers(0, 6)), st.booleans()),
)
_CONDITIONS = st.recursive(
    _LEAVES,
    lambda inside: st.one_of(
        st.lists(inside, max_size=3).map(lambda parts: AllOf(tuple(parts))),
        st.lists(inside, max_size=3).map(lambda parts: AnyOf(tuple(parts))),
        inside.map(Negation),
    ),
    max_leaves=8,
)
_ROWS = st.lists(st.tuples(st.integers(0, 6) | st.none(), st.integers(0, 6) | st.none()), min_size=1, max_size=8)


@given(condition=_CONDITIONS, rows=_ROWS)
@example(condition=SomeValue((3,)), rows=[(3, 4), (2, 3), (2, 4), (4, 5), (1, 2)])
def test_numpy_and_arrow_keep_what_is_true_or_unknown(
    condition: Condition, rows: list[tuple[int | None, int | None]]
) -> None:
    columns = {name: pa.array([row[place] for row in rows], pa.int64()) for place, name in enumerate(("low", "high"))}
    table = pa.table(columns)
    truths = [_truth(condition, row) for row in table.to_pylist()]
    kept = evaluate(condition, _Table(table)).tolist()
    numbered = table.append_column("n", pa.array(range(len(rows))))
    by_arrow = set(numbered.filter(expression_of(condition))["n"].to_pylist())
    for number, truth in enumerate(truths):  # where comparisons of null contradict, more may be kept
        assert kept[number] or truth is False
        assert (number in by_arrow) == kept[number]
        assert kept[number] is not True or truth is not False or None in rows[number]


def test_code_decides_on_what_the_other_parts_leave() -> None:
    seen = []

    def keep(table: Any, places: Any) -> Any:
        seen.append(places.tolist())
        return np.asarray(table.column("high"))[places] != 9

    table = _Table(pa.table({"low": [1, 2, 3, 4], "high": [5, 9, 9, 6]}))
    condition = AllOf((Refine(Compare("low", ">", 1), keep, "is not nine"), Compare("high", ">", 5)))
    assert evaluate(condition, table).tolist() == [False, False, False, True]
    assert seen == [[1, 2, 3]]
    assert str(condition) == "(is not nine AND high > 5)"
    assert not is_exact(condition)
    assert evaluate(necessary(condition), table).tolist() == [False, True, True, True]


def test_a_table_answers_what_it_knows_better() -> None:
    class Rings(_Table):
        def answer(self, condition: Any) -> Any:
            within = isinstance(condition, Among) and condition.column == "ring"
            return np.array([True, False, True]) if within else None

    table = Rings(pa.table({"low": [1, 2, 3]}))
    assert evaluate(AllOf((Among("ring", ()), Among("low", ((2, None),)))), table).tolist() == [False, False, True]


def test_code_is_never_negated() -> None:
    code = Refine(ALWAYS, lambda table, places: places > 0, "code")
    with pytest.raises(ValueError, match="the negation of code would drop what code has not decided"):
        Negation(code)
    with pytest.raises(ValueError, match="would drop"):
        Negation(AnyOf((Compare("low", "=", 1), code)))


def test_constants_fold() -> None:
    one = Compare("low", "=", 1)
    assert all_hold([ALWAYS, one]) is one
    assert all_hold([NEVER, one]) == NEVER
    assert any_holds([ALWAYS, one]) == ALWAYS
    assert any_holds([NEVER, one, AnyOf((one, one))]) == AnyOf((one, one, one))
