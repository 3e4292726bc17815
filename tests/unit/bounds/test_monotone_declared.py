"""What is declared of a user's function has its effect, and loses no row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip.bounds.monotone import call_at_ends
from geoskip.clauses import keep_mask
from geoskip.errors import MappingError
from geoskip.indexes.minmax import MinMax
from geoskip.metadata import FileMetadata
from geoskip.planner import clause_for
from geoskip.predicates import Call, Column, Comparison, In, IsNull, Literal, Not, Predicate
from geoskip.registry import constant, current, declare, mappings
from geoskip.registry.fingerprint import identity
from geoskip.rewrite import invert
from tests.support.strategies import examples

X = Column("x", "int")
INDEX = MinMax("x").bind([X])


def halved(x: Any) -> Any:
    """Increasing, NULL for 13, and -99 for NULL."""
    return -99 if x is None else None if x == 13 else x // 2


def mirrored(x: Any) -> Any:
    return None if x is None else -x


def odd(x: Any) -> Any:
    """Not what it is declared to be of the whole, which no bound may believe."""
    if x > 50:
        raise ValueError("too large")
    return math.nan if x == 0 else "text" if x == 7 else float(x)


def call(function: Callable[..., Any], kind: str = "int") -> Call:
    return Call(function.__name__, (X,), "python:" + identity(function), ("eval:100",), kind)


def files_of(*files: list[int | None]) -> FileMetadata:
    summaries = [INDEX.collect(pa.array(values, pa.int32())) for values in files]
    kept = [{name: s[name] for name in ("min", "max", "nulls", "rows")} for s in summaries if s is not None]
    return FileMetadata.of(pa.table({"path": [str(n) for n in range(len(files))], "minmax(x)": kept}))


def kept(node: Predicate, *files: list[int | None]) -> list[bool]:
    return [bool(keep) for keep in keep_mask(clause_for(node, [INDEX]), files_of(*files))]


VALUES = st.lists(st.one_of(st.none(), st.integers(-30, 30)), max_size=4)
SQL: dict[str, Callable[[Any, Any], bool | None]] = {
    "=": lambda a, b: None if a is None else a == b,
    "<": lambda a, b: None if a is None else a < b,
    ">=": lambda a, b: None if a is None else a >= b,
    "<=>": lambda a, b: a == b,
}


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(VALUES, min_size=1, max_size=3), st.sampled_from(sorted(SQL)), st.integers(-20, 20), st.booleans(),
    st.sampled_from([(halved, "increasing", False), (mirrored, "decreasing", True), (mirrored, "decreasing", None)]),
)  # fmt: skip
def test_no_row_is_lost(files: list[list[int | None]], op: str, bound: int, negated: bool, how: Any) -> None:
    function, monotone, strict = how
    node: Predicate = Comparison(op, call(function), Literal(bound, "int"))
    with mappings():
        declare(function, monotone=monotone, null_in_null_out=strict)
        masks = [kept(Not(node) if negated else node, *files), kept(IsNull(call(function)), *files)]
        masks.append(kept(Not(IsNull(call(function))), *files))
    tests = [lambda v: SQL[op](v, bound), lambda v: v is None, lambda v: v is not None]
    for number, (mask, test) in enumerate(zip(masks, tests, strict=True)):
        wanted = not (negated and number == 0)
        for keep, values in zip(mask, files, strict=True):
            assert keep or not any(test(function(value)) is wanted for value in values)


def test_a_monotone_function_is_served_by_the_bounds_of_its_argument() -> None:
    files: tuple[list[int | None], ...] = ([1, 5], [20, 30], [None], [40, None])
    above = Comparison(">", call(halved), Literal(12, "int"))
    with mappings():
        assert kept(above, *files) == [True] * 4
        declare(halved, monotone="increasing")
        assert kept(above, *files) == [False, True, True, True]  # -99 for NULL is for the function alone to know
        declare(halved, null_in_null_out=True)
        assert kept(above, *files) == [False, True, False, True]
    with mappings():
        declare(mirrored, monotone="decreasing", null_in_null_out=True)
        assert kept(Comparison(">", call(mirrored), Literal(-6, "int")), *files) == [True, False, False, False]


def test_a_bound_that_has_no_value_of_the_declared_type_is_unknown() -> None:
    with mappings():
        declare(odd, monotone="increasing", null_in_null_out=True)
        above = Comparison(">", call(odd, "double"), Literal(40.0, "double"))
        assert kept(above, [1, 2], [1, 60], [0, 2], [1, 7], [7]) == [False, True, True, True, True]
        assert kept(Comparison(">", call(odd, "string"), Literal("a", "string")), [1, 2]) == [True]
        vectorised = Call("odd", (X,), "python:" + identity(odd), ("eval:200",), "double")
        assert kept(Comparison(">", vectorised, Literal(40.0, "double")), [1, 2]) == [True]


def test_long_whole_numbers_through_arrow_are_rounded_beside_null() -> None:
    with mappings():
        declare(mirrored, monotone="decreasing", inverse=mirrored)
        for kind, code, known in (("bigint", "100", True), ("bigint", "101", False), ("int", "101", True)):
            x = Column("x", kind)
            through = Call("mirrored", (x,), "python:" + identity(mirrored), (f"eval:{code}",), "bigint")
            assert (call_at_ends(through) is not None) is known
            assert (invert(Comparison("=", through, Literal(-5, "bigint"))) is not None) is known


def test_an_inverse_asks_for_the_argument() -> None:
    five = Comparison("=", call(mirrored), Literal(-5, "int"))
    among = In(call(mirrored), (Literal(-5, "int"), Literal(-45, "int")))
    files: tuple[list[int | None], ...] = ([1, 5], [20, 30], [None], [40, 50])
    with mappings():
        declare(mirrored, inverse=mirrored)
        assert kept(five, *files) == [True, False, True, False]
        assert kept(among, *files) == [True, False, True, True]
        assert kept(Not(five), *files) == [True] * 4
        declare(mirrored, null_in_null_out=True)
        assert kept(five, *files) == [True, False, False, False]
        declare(mirrored, inverse=lambda y: str(y))
        assert kept(five, *files) == [True, True, False, True]


def test_null_in_null_out() -> None:
    files: tuple[list[int | None], ...] = ([1], [None])
    needing = [Comparison("=", call(odd), Literal(5)), Not(Comparison("=", call(odd), Literal(5))),
               Not(IsNull(call(odd))), call(odd, "boolean"), Not(call(odd, "boolean"))]  # fmt: skip
    others = [IsNull(call(odd)), Comparison("<=>", call(odd), Literal(None)),
              Not(Comparison("<=>", call(odd), Literal(5)))]  # fmt: skip
    with mappings():
        declare(odd, null_in_null_out=True)
        assert [kept(node, *files) for node in needing] == [[True, False]] * len(needing)
        assert [kept(node, *files) for node in others] == [[True, True]] * len(others)


def test_of_each_property_the_newest_word_counts() -> None:
    with mappings():
        declare(halved, metric=True, monotone="increasing", deterministic=False)
        declare(halved, version="3")
        declare(halved, deterministic=True)
        said = current().properties_of(call(halved))
    assert said is not None
    assert (said.metric, said.monotone, said.deterministic, said.version) == (True, "increasing", True, "3")


def test_what_could_have_no_effect_is_refused() -> None:
    with mappings():
        with pytest.raises(MappingError, match="needs a function to call"):
            declare("f", metric=True)
        with pytest.raises(MappingError, match="takes a function, got 'g'"):
            declare("f", inverse="g")
        constant("halved")(halved)
        declare("halved", monotone="increasing", null_in_null_out=True)
        assert kept(Comparison(">", call(halved), Literal(12, "int")), [1, 5], [30, 40]) == [False, True]
