"""Clauses that fail when they are evaluated: who made them is found out, and not asked again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from geoskip import MinMax, constant, index, mappings, maps, quarantined, release
from geoskip.clauses import Clause, all_of
from geoskip.metadata import Header
from geoskip.planner import decide
from geoskip.predicates import And, Call, Column, Comparison, Literal
from geoskip.registry.fingerprint import identity
from geoskip.rules import Deadline
from geoskip.stores.base import MemoryStore


def f(x: int) -> bool:
    return x > 5


X = Column("x", "int")
OVER_X = MinMax("x").bind([X])
ABOVE = Comparison(">", X, Literal(5, "int"))
CALL = Call("f", (X,), f"python:{identity(f)}", ("eval:100",), "boolean")


@dataclass
class Clock:
    """Seconds that pass where a test says so, and not while the machine does something else."""

    now: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


CLOCK = Clock()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoskip.rules.time", SimpleNamespace(monotonic=lambda: CLOCK.now))


class Odd(Clause):
    """A clause that does what it is told."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def keep(self, files: Any) -> Any:
        return self.answer(len(files))


@index
@dataclass(frozen=True)
class Own(MinMax):
    """An index of a user's own, whose clauses are odd."""

    kind: ClassVar[str] = "own"

    def clause(self, node: Any) -> Any:
        return Odd(lambda count: None) if isinstance(node, Call) else None


def decided(indexes: list[Any], predicate: Any, most: float = 60.0) -> Any:
    store = MemoryStore()
    table = pa.table({"path": ["a", "b"], "size": [1, 1], "mtime": [1, 1], "etag": [None, None], "rows": [1, 1]})
    store.commit(Header(root="file:/data", source={}, entries=()), table, expected=None)
    return decide(store.load(1), predicate, indexes, watch=Deadline(most=most))


ODD: dict[str, tuple[Any, str]] = {
    "raises": (lambda count: 1 / 0, "it made a clause that failed: ZeroDivisionError: division by zero"),
    "is of another length": (lambda count: [False], "it made a clause that answered list, not a boolean a file"),
    "holds texts": (lambda count: ["no"] * count, "it made a clause that answered list, not a boolean a file"),
    "is slow": (lambda count: CLOCK.sleep(0.02) or [True] * count, "more than the planning budget"),
}


@pytest.mark.parametrize("name", ODD)
def test_a_clause_that_fails_puts_the_mapping_that_made_it_in_quarantine(name: str) -> None:
    answer, said = ODD[name]
    budget = 0.01 if name == "is slow" else 60.0
    with mappings():

        @maps(f, index=MinMax)
        def odd(node: Any, index: Any) -> Any:
            return all_of([index.clause(ABOVE), Odd(answer)])

        @maps(f, index=MinMax)
        def good(node: Any, index: Any) -> Any:
            return index.clause(ABOVE)

        node = And((CALL, Comparison("<", X, Literal(9, "int"))))
        decision = decided([OVER_X], node, budget)
        assert decision.keep.tolist() == [True, True]
        ((left, why),) = quarantined().items()
        assert left.endswith(".odd")
        assert said in why
        assert any(left in reason for reason in decision.reasons)
        assert not any("good" in reason for reason in decision.reasons)
        assert any("is left out" in reason for reason in decided([OVER_X], node).reasons)


def test_a_mapping_that_asks_geoskips_own_index_for_what_fails_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(clause: Any, files: Any) -> Any:
        raise TypeError("no such comparison")

    with mappings():

        @maps(f, index=MinMax)
        def odd(node: Any, index: Any) -> Any:
            return index.clause(ABOVE)

        monkeypatch.setattr(type(OVER_X.clause(ABOVE)), "keep", fails)
        decided([OVER_X], CALL)
        ((left, why),) = quarantined().items()
        assert left.endswith(".odd")
        assert "it made a clause that failed: TypeError: no such comparison" in why
        release()
        monkeypatch.setattr(type(OVER_X.clause(ABOVE)), "keep", lambda clause, files: Path("/no/such").read_text())
        assert decided([OVER_X], CALL).reasons
        assert not quarantined(), "metadata that cannot be read are nobody's fault"


def test_an_index_of_ones_own_whose_clause_fails_is_left_out_for_its_dataset() -> None:
    with mappings():
        own = Own("x").bind([X])
        assert decided([own], CALL).keep.tolist() == [True, True]
        assert quarantined() == {
            "own(x) of file:/data": "it made a clause that answered NoneType, not a boolean a file"
        }


def test_what_evaluates_constants_too_slowly_is_left_out() -> None:
    node = Comparison(">", X, Call("five", (Literal(5, "int"),), "python:five", (), "int"))
    with mappings():

        @constant("five")
        def five(number: int) -> int:
            CLOCK.sleep(0.02)
            return number

        assert decided([OVER_X], node, 0.01).predicate == node
        ((left, why),) = quarantined().items()
        assert left.startswith("constant ")
        assert "more than the planning budget" in why
        assert str(decided([OVER_X], node).clause) == "minmax(x) has values"
        constant("five")(five)
        assert not quarantined()
        assert str(decided([OVER_X], node).clause) == "max(x) > 5"
