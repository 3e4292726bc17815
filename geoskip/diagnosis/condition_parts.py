"""Parts of a labelled condition, and the tests in each part."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from geoskip.clauses import KEEP_ALL, Clause
from geoskip.predicates import And, Call, IsNull, Literal, Not, Opaque, Or, Predicate, children, columns_of, walk
from geoskip.report import condense
from geoskip.rewrite.composed import choice, is_builtin
from geoskip.vertex_labels import VertexLabel

__all__ = ["DEEPEST", "Joint", "Part", "UnservedPart", "tests_of", "words_of"]

DEEPEST = 100
"""Maximum number of levels of a condition."""
_SUBQUERY = re.compile(r"(?:[\w-]*subquery|list|exists)#\d+(?:, \[[^\]]*\])?(?: \[[^\]]*\])?")
_NUMBER = re.compile(r"#\d+L?\b")
"""Suffix that Spark appends to the names of columns."""


@dataclass(frozen=True, eq=False)
class Part:
    """A vertex of a labelled condition in which NOT occurs only above tests."""

    label: VertexLabel
    written: Predicate | None = None
    """The part as written in the query, if the condition has values of partitions."""

    @property
    def clause(self) -> Clause:
        """The clause that represents the part; KEEP_ALL for a test that is nested too deep to be evaluated."""
        return KEEP_ALL if self.too_deep and not self.label.below else self.label.clause

    @cached_property
    def condition(self) -> Predicate:
        """The condition that a row must meet, with NOT only above tests."""
        members, every = self.members()
        within = tuple(member.condition for member in members)
        if members:
            return And(within) if every else Or(within)
        return self.label.vertex

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns that the part reads."""
        return columns_of(self.label.vertex)

    @cached_property
    def is_settled(self) -> bool:
        """Test for a condition that does not depend on rows: on constants, or on values of a partition."""
        return not self.columns and not any(isinstance(node, Opaque) for node in walk(self.label.vertex))

    @cached_property
    def too_deep(self) -> str:
        """The reason why a part is nested too deep to be used; empty for other parts."""
        levels = _levels(self.label.vertex)
        if levels > DEEPEST:
            return f"it has {levels} levels, of which {DEEPEST} are looked at"
        try:
            str(self.label.clause), hash(self.label.vertex)
        except RecursionError:
            return "it is nested too deep"
        return ""

    @property
    def is_presence(self) -> bool:
        """Test for ``x IS NOT NULL``."""
        return isinstance(self.condition, Not) and isinstance(self.condition.child, IsNull)

    def members(self) -> tuple[tuple[Part, ...], bool]:
        """The operands of AND or OR, and True for AND; no operands for a test."""
        return tuple(map(Part, self.label.below)), isinstance(self.label.vertex, And)

    def __str__(self) -> str:
        return words_of(self.written or self.condition)

    @classmethod
    def without_clause(cls, condition: Predicate) -> Part:
        """Return a condition as a part without a clause."""
        return cls(VertexLabel(condition, KEEP_ALL))


def words_of(condition: Predicate) -> str:
    """A condition as text for people, shortened if it is long."""
    text = _NUMBER.sub("", _SUBQUERY.sub("(a subquery)", str(condition)))
    return condense(text[1:-1] if isinstance(condition, And | Or) else text)


class Joint(Enum):
    """Relation of an unserved test to its enclosing part: text for a sentence, and text for a table row."""

    SIDE = ("needs an index for each side, but", "which every side of an OR needs")
    BRANCH = ("needs an index for each branch, but", "which a branch of it needs")
    REST = ("is served in part:", "which would serve more of it")


@dataclass(frozen=True)
class UnservedPart:
    """A test that no index serves.

    Attributes
    ----------
    part
        The test.
    why
        The reason, without the index to create.
    suggestion
        The index to create, as code; empty if none is known.
    within
        The OR or CASE that is not served, or only in part, because of this test; None for a separate test.
    indexes
        The names of the indexes over the test's columns that do not serve it.
    joint
        The relation of the test to ``within``.
    """

    part: Part
    why: str
    suggestion: str = ""
    within: Part | None = None
    indexes: tuple[str, ...] = ()
    joint: Joint = Joint.SIDE

    @property
    def reason(self) -> str:
        """The reason, as shown for the whole part."""
        return self.why if self.within is None else f"{self.why}, {self.joint.value[1]}"

    def __str__(self) -> str:
        reason = f"{self.why}: {self.suggestion}" if self.suggestion else self.why
        return reason if self.within is None else f"{self.within} {self.joint.value[0]} {reason}"


def tests_of(condition: Predicate) -> list[Predicate]:
    """The tests in a condition, including those in branches of CASE and in coalesce.

    >>> from geoskip.predicates import Column, Comparison
    >>> x, y = Column("x", "int"), Column("y", "int")
    >>> five = Literal(5, "int")
    >>> tests_of(Comparison("<", Call("if", (IsNull(x), Literal(1, "int"), y), type="int"), five))
    [x IS NULL, y < 5]
    """
    tests: list[Predicate] = []
    waiting = [condition]
    while waiting:
        match waiting.pop():
            case Not(child):
                waiting.append(child)
            case And(members) | Or(members):
                waiting.extend(reversed(members))
            case Call("if", (_, Literal() as then, Literal() as other)) if then == other:
                pass
            case Call("if" | "coalesce", args, type="boolean") as call if is_builtin(call):
                waiting.extend(reversed(args))
            case Literal():
                pass
            case test:
                chosen = choice(test)
                (tests if chosen is None else waiting).append(test if chosen is None else chosen)
    return list(dict.fromkeys(tests))


def _levels(condition: Predicate) -> int:
    """Number of nested levels of conditions."""
    level, levels = [condition], 0
    while level:
        level, levels = [each for above in level for each in children(above) if each.type == "boolean"], levels + 1
    return levels
