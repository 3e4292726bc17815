"""check_index finds rows that an index type loses, each kind of mistake in its turn, and none in geoskip's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from geoskip import (
    BloomFilter,
    Formatted,
    GapList,
    GeoBox,
    Hybrid,
    Index,
    MetricDist,
    MinMax,
    Prefix,
    Suffix,
    ValueList,
    check_index,
)
from geoskip.clauses import Clause
from geoskip.errors import InvalidSpecificationError, UnsupportedColumnError
from geoskip.predicates import Comparison, In, Literal, Not, Predicate
from tests.conftest import SOAK

pytestmark = [pytest.mark.usefixtures("processor_time"), pytest.mark.hypothesis]


@dataclass(frozen=True)
class Holds(Clause):
    """Files with one of these lengths."""

    index: str
    wanted: frozenset[int]
    negated: bool = False

    def keep(self, files: Any) -> Any:
        stored = files.summary(self.index, "lengths").to_pylist()
        if self.negated:
            return pa.array([None if some is None else bool({*some} - self.wanted) for some in stored])
        return pa.array([None if some is None else not self.wanted.isdisjoint(some) for some in stored])

    def columns(self) -> Any:
        return ((self.index, "lengths"),)


@dataclass(frozen=True)
class Lengths(Index):
    """Lengths of texts; ``mistake`` plants one."""

    expr: str
    mistake: str = ""
    kind: ClassVar[str] = "lengths"

    def metadata_type(self, *columns: Any) -> pa.DataType:
        if columns[0].type != "string":
            raise UnsupportedColumnError(f"{self} needs texts, got {columns[0].type}")
        return pa.struct({"lengths": pa.list_(pa.int64())})

    def collect(self, *values: Any) -> Any:
        texts = values[0].drop_null().to_pylist()
        if self.mistake == "collect leaves out the empty text":
            texts = [text for text in texts if text]
        if self.mistake == "collect raises":
            raise ValueError("no such thing")
        return {"lengths": sorted({len(text) for text in texts})}

    def merge(self, summaries: Sequence[Any]) -> Any:
        if self.mistake == "merge forgets":
            return summaries[0]
        return {"lengths": sorted({length for part in summaries for length in part["lengths"]})}

    def from_statistics(self, kind: str, low: Any, high: Any, nulls: int, rows: int) -> Any:
        if self.mistake == "statistics are taken for values" and low is not None:
            return {"lengths": sorted({len(low), len(high)})}
        return None

    def clause(self, node: Predicate) -> Clause | None:
        match node:
            case Comparison("=", x, Literal(value)) if self.reads(x):
                return Holds(str(self), frozenset({len(value)}))
            case In(x, values) if self.reads(x):
                some = values[:1] if self.mistake == "IN takes the first value" else values
                return Holds(str(self), frozenset(len(each.value) for each in some))
            case Comparison("<", x, Literal(value)) if self.reads(x) and self.mistake == "order is taken for equality":
                return Holds(str(self), frozenset({len(value)}))
            case Not(Comparison("=", x, Literal(value))) if (
                self.reads(x) and self.mistake == "NOT excludes equal lengths"
            ):
                return Holds(str(self), frozenset({len(value)}), negated=True)
            case Not(In(x)) if self.reads(x) and self.mistake == "clause raises":
                raise ValueError("no such thing")
        return None


@pytest.mark.parametrize(
    "mistake",
    [
        "collect leaves out the empty text",
        "merge forgets",
        "statistics are taken for values",
        "IN takes the first value",
        "order is taken for equality",
        "NOT excludes equal lengths",
    ],
)
def test_a_wrong_index_type_is_found(mistake: str) -> None:
    check = check_index(Lengths("s", mistake), seconds=20)
    assert not check
    assert check.counter_example is not None
    assert check.counter_example.lost
    assert len(check.counter_example.rows) <= 3, "the file is shrunk"
    assert "WRONG, rows are lost" in str(check)


def test_a_right_one_is_not_blamed_and_its_effect_is_told() -> None:
    check = check_index(Lengths("s"), seconds=0.3)
    assert check, check
    assert check.skipped > 100
    assert "over s string: a clause for" in str(check)


def test_an_index_over_geometries_gets_points() -> None:
    check = check_index(GeoBox("g"), rows=["points"], seconds=0.2)
    assert check, check
    assert "over g binary: a clause for" in str(check)


def test_what_an_index_raises_is_told() -> None:
    check = check_index(Lengths("s", "clause raises"), seconds=1)
    assert not check
    assert "ValueError: no such thing" in str(check)
    with pytest.raises(InvalidSpecificationError, match="cannot summarise the values of files: ValueError: no such"):
        check_index(Lengths("s", "collect raises"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("s",), "takes an index such as"),
        ((Lengths("s"), {"t": "string"}), "rows= has 't', and lengths.s. is over s"),
        ((Lengths("s"), ["string", "int"]), "rows= has 'int'"),
        ((Lengths("s"), ["double"]), "takes no values that were tried .lengths.s. needs texts, got double.: say which"),
    ],
    ids=["no index", "an unknown expression", "too many", "no type fits"],
)
def test_wrong_arguments_are_named(arguments: Any, message: str) -> None:
    with pytest.raises(InvalidSpecificationError, match=message):
        check_index(arguments[0], rows=arguments[1] if len(arguments) > 1 else None)


OWN = [
    MinMax("x"), GapList("x", gaps=2), ValueList("x"), BloomFilter("x"), Hybrid("x"), Prefix("x", length=2),
    Suffix("x", length=2), MetricDist("x", metric="levenshtein"), GeoBox("x", "y"), Formatted("x", extract="upper"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("index", OWN, ids=str)
def test_no_index_of_ours_loses_a_row(index: Index) -> None:
    check = check_index(index, seconds=8 if SOAK else 2)
    assert check, check
    assert check.skipped > 0
