"""Parts of a condition that no index serves, each with the reason and the index to create.

Nothing here runs when a query is planned: a decision keeps its labelled tree, and a report walks over it.

A part is *served* if its clause says more than that there is a value. An AND is served by any of its members, so each
of the others is named; an OR needs all of its members, so the first ones that are not served are named with it. What an
index decides for several members of an AND together, such as the sides of a box, serves each of them.

Never named are ``IS NOT NULL`` beside other conditions, which Spark adds for every column that a condition or a join
reads, and conditions without a column of the files, such as those on partitions that Spark has settled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from geoskip.advisor.advice import python_of
from geoskip.advisor.index_candidates import index_candidates, presence_texts, serves
from geoskip.bounds import uncast
from geoskip.clauses import KEEP_ALL, Clause, leaves_of, parts_of
from geoskip.indexes.affix import Prefix, Suffix
from geoskip.indexes.base import Index
from geoskip.indexes.formatted import Formatted
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.metricdist.index import MetricDist
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.valuelist import ValueList
from geoskip.metadata import IndexEntry
from geoskip.planner import Decision, Labeller
from geoskip.predicates import (
    And,
    Call,
    Column,
    IsNull,
    Not,
    Opaque,
    Or,
    Predicate,
    children,
    columns_of,
    normalise,
    walk,
)
from geoskip.registry import current
from geoskip.report import condensed
from geoskip.rewrite import canonical
from geoskip.rules import calls_of
from geoskip.vertex_labels import VertexLabel, labels_of

__all__ = ["LabelledCondition", "Part", "UnservedPart", "code_of", "unserved_reasons"]

_MOST = 8
"""Sentences of a report."""
_MOST_DECISIONS = 16
_MOST_MEMBERS = 2
"""Members of an OR that are named."""
_LONGEST = 110
_LONGEST_CODE = 200
_ORDER: tuple[type[Index], ...] = (MinMax, ValueList, Prefix, Suffix, Formatted, MetricDist, GeoBox)
"""Index types, those first that suit most conditions on columns."""
_SUBQUERY = re.compile(r"(?:[\w-]*subquery|list|exists)#\d+(?:, \[[^\]]*\])?(?: \[[^\]]*\])?")
_NUMBER = re.compile(r"#\d+L?\b")
"""What Spark appends to the names of columns."""


@dataclass(frozen=True, eq=False)
class Part:
    """A vertex of a labelled condition, in which NOT stands at the leaves."""

    label: VertexLabel

    @property
    def clause(self) -> Clause:
        """The clause that represents the part."""
        return self.label.clause

    @cached_property
    def condition(self) -> Predicate:
        """The condition that a row must meet, with NOT above tests alone."""
        members, every = self.members()
        within = tuple(member.condition for member in members)
        if members:
            return And(within) if every else Or(within)
        return self.label.vertex

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns that it reads."""
        return columns_of(self.label.vertex)

    @property
    def is_presence(self) -> bool:
        """True for ``x IS NOT NULL``."""
        return isinstance(self.condition, Not) and isinstance(self.condition.child, IsNull)

    def members(self) -> tuple[tuple[Part, ...], bool]:
        """The parts that this one is made of, and True if all of them are needed; none for a test."""
        return tuple(map(Part, self.label.below)), isinstance(self.label.vertex, And)

    def __str__(self) -> str:
        text = _NUMBER.sub("", _SUBQUERY.sub("(a subquery)", str(self.condition)))
        return condensed(text[1:-1] if isinstance(self.condition, And | Or) else text, _LONGEST)


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
        The index to create, as code; empty where none is known.
    within
        The OR that is not served because of this test; None where there is no such OR.
    indexes
        The names of the indexes over the test's columns that do not serve it.
    """

    part: Part
    why: str
    suggestion: str = ""
    within: Part | None = None
    indexes: tuple[str, ...] = ()

    def __str__(self) -> str:
        reason = f"{self.why}: {self.suggestion}" if self.suggestion else self.why
        return reason if self.within is None else f"{self.within} needs an index for each side, but {reason}"


def unserved_reasons(decisions: Sequence[Decision], noted: Sequence[str] = ()) -> Iterator[str]:
    """Iterate over sentences on what no index serves, each once, a few of many.

    Parameters
    ----------
    decisions
        Those of a scan.
    noted
        Sentences that are there already: what they name is not named again.
    """
    texts: dict[str, None] = {}
    for decision in decisions[:_MOST_DECISIONS]:
        try:
            for unserved in LabelledCondition(decision, noted).unserved():
                opaque = [node.text for node in walk(unserved.part.condition) if isinstance(node, Opaque)]
                if not any(text in sentence for text in opaque for sentence in noted):
                    texts[str(unserved)] = None
        except Exception as error:  # of an index or mapping of others: a report is shown in any case
            texts[f"what no index serves is not known: {type(error).__name__}: {error}"] = None
    yield from list(texts)[:_MOST]
    if len(texts) > _MOST:
        yield f"{len(texts) - _MOST} more parts of the condition are served by no index: geoskip.why_not() shows all"


class LabelledCondition:
    """The condition of a decision, part by part, with the clauses that were made of them."""

    def __init__(self, decision: Decision, noted: Sequence[str] = ()) -> None:
        self.decision = decision
        self._noted = tuple(text for text in noted if " is not used: " in text)
        labels = decision.labels or (lambda: labels_of(canonical(decision.predicate), {}))
        self.whole = Part(labels())

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The members of the condition's AND that read columns of the files; ``IS NOT NULL`` only if alone."""
        members, every = self.whole.members()
        return _telling(members if members and every else (self.whole,))

    def is_served(self, part: Part) -> bool:
        """True if some index says more of a part than that there is a value."""
        if part.is_presence:
            return part.clause is not KEEP_ALL
        return not all(map(self.says_presence, parts_of(part.clause)))

    def says_presence(self, clause: Clause) -> bool:
        """True if a clause keeps every file, or says no more than that there is a value."""
        return str(clause) in self._presence

    def is_served_together(self, part: Part) -> bool:
        """True if some index serves a part of the AND together with other parts."""
        others = tuple(other.condition for other in self.parts if other is not part)
        if not others or not self._of_several:
            return False
        fresh = Labeller(self.decision.indexes)
        whole = fresh.true(And((*others, part.condition)))
        rest = fresh.true(normalise(And(others)))
        apart = {str(leaf) for clause in (rest, fresh.true(part.condition)) for leaf in leaves_of(clause)}
        return any(str(leaf) not in apart for leaf in leaves_of(whole))

    def unserved(self) -> Iterator[UnservedPart]:
        """Iterate over the tests that no index serves, in the order of the condition."""
        for part in self.parts:
            if not self.is_served(part) and not self.is_served_together(part):
                yield from self.reasons(part)

    def reasons(self, part: Part) -> Iterator[UnservedPart]:
        """Iterate over the reasons why a part is not served."""
        members, every = part.members()
        if not members:
            if (found := self._reason(part)) is not None:
                yield found
        elif every:
            for member in _telling(members):
                if not self.is_served(member):
                    yield from self.reasons(member)
        elif all(member.columns for member in members):
            guilty = [member for member in members if not self.is_served(member)]
            for member in guilty[:_MOST_MEMBERS]:
                found = next(self.reasons(member), None)
                if found is not None:
                    yield replace(found, within=part)

    @property
    def entries(self) -> tuple[IndexEntry, ...]:
        """The indexes of the dataset, whether or not they were used."""
        return self.decision.snapshot.header.entries

    @cached_property
    def _presence(self) -> frozenset[str]:
        return presence_texts(Labeller(self.decision.indexes))

    @cached_property
    def _of_several(self) -> bool:
        """True if the AND has clauses that none of its parts has."""
        apart = {str(leaf) for part in self.parts for leaf in leaves_of(part.clause)}
        return any(str(leaf) not in apart for leaf in leaves_of(self.whole.clause))

    def _is_noted(self, index: Index) -> bool:
        """True if a sentence says that an index is over another type or function than the query's."""
        return any(text.startswith(f"{index} is not used: ") for text in self._noted)

    def _reason(self, part: Part) -> UnservedPart | None:
        """The reason why a test is not served; None where another sentence says it."""
        test = part.condition
        if part.is_presence and len(self.parts) == 1:
            return UnservedPart(part, f"only {_words(test)} reaches its files, which few files fail")
        if any(isinstance(node, Opaque) for node in walk(test)):
            return UnservedPart(part, _unknown(part))
        used = set(map(str, self.decision.indexes))
        near = [entry.index for entry in self.entries if not _columns(entry.index).isdisjoint(part.columns)]
        if any(self._is_noted(index) if str(index) in used else serves([index], test) for index in near):
            return None  # why that index is not used is noted
        near = [index for index in near if str(index) in used]
        candidates = [index for index in index_candidates([test]).indexes if index not in near]
        suggestion = code_of(_best([index for index in candidates if len(str(index)) <= _LONGEST_CODE], test))
        names = tuple(map(str, near))
        over = [_differing(index, test) for index in near]
        if differing := next((text for text in over if text), ""):
            return UnservedPart(part, differing, suggestion, indexes=names)
        if near and part.columns <= _all_columns(near):
            those = [*names[:3], *_mappings(test)]
            verb = "does" if len(those) == 1 else "do"
            return UnservedPart(part, f"{_joined(those)} {verb} not serve {part}", suggestion, indexes=names)
        missing = [subject for subject in _subjects(test) if not columns_of(subject) <= _all_columns(near)]
        subject = condensed(str(missing[0] if missing else test), _LONGEST)
        unmapped = ", a function without a mapping" if missing and _is_unmapped(missing[0]) else ""
        return UnservedPart(part, f"no index over {subject}{unmapped}", suggestion, indexes=names)


def code_of(index: Index | None) -> str:
    """An index as code, with double quotes where that is possible; empty for None.

    >>> code_of(MetricDist("word", metric="levenshtein"))
    'MetricDist("word", metric="levenshtein")'
    """
    text = "" if index is None else python_of(index)
    return text if '"' in text or "\\" in text else text.replace("'", '"')


def _words(test: Predicate) -> str:
    """A test for NULL as SQL writes it."""
    match test:
        case Not(IsNull(child)):
            return f"{condensed(str(child), _LONGEST)} IS NOT NULL"
    return condensed(str(test), _LONGEST)


def _telling(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts that read columns; of ``IS NOT NULL`` only those of a condition that says no more."""
    reading = tuple(part for part in parts if part.columns)
    return tuple(part for part in reading if not part.is_presence) or reading


def _subjects(test: Predicate) -> list[Predicate]:
    """The operands of a test that read columns: those that an index could be over."""
    inner = test.child if isinstance(test, Not) else test
    operands = [inner] if isinstance(inner, Call) else [uncast(child) for child in children(inner)]
    return [operand for operand in operands if columns_of(operand)]


def _columns(index: Index) -> frozenset[str]:
    return frozenset[str]().union(*map(columns_of, index.bound))


def _all_columns(indexes: Sequence[Index]) -> frozenset[str]:
    return frozenset[str]().union(*map(_columns, indexes))


def _unknown(part: Part) -> str:
    """The reason for a part of which geoskip has no translation."""
    text = str(part)
    if "(a subquery)" in text:
        return f"{text} is not used: the answer of a subquery is not there when files are chosen"
    return f"{text} is not used: it depends on more than the row, or geoskip cannot translate it"


def _differing(index: Index, test: Predicate) -> str:
    """The reason why an index over a call does not serve another call of its function; empty for none."""
    calls = [node for node in walk(test) if isinstance(node, Call)]
    for bound in index.bound:
        for call in calls:
            if not isinstance(bound, Call) or bound.name != call.name or bound == call:
                continue
            if columns_of(bound) != columns_of(call):
                continue
            what = "another pattern" if bound.name.startswith("regexp") else "another call"
            of_template = isinstance(index, Formatted) and index.template is not None
            way = "; query the template's own text, as Formatted.part() writes it" if of_template else ""
            return f"{condensed(str(index), 80)} is over {what} than {condensed(str(call), 80)}{way}"
    return ""


def _mappings(test: Predicate) -> list[str]:
    """The mappings of a test's functions, in words."""
    names = [call.name for call in calls_of(test) if current().rules_of(call)]
    return [f"the mapping of {name}" for name in dict.fromkeys(names)]


def _is_unmapped(subject: Predicate) -> bool:
    """True for a user's function of which no mapping is registered."""
    return isinstance(subject, Call) and _is_of_user(subject) and not current().rules_of(subject)


def _is_of_user(call: Call) -> bool:
    return (call.implementation or "").startswith("python:")


def _best(candidates: Sequence[Index], test: Predicate) -> Index | None:
    """The index to suggest for a test: one made for its functions, else bounds of columns, else lists."""
    calls = [node for node in walk(test) if isinstance(node, Call)]
    order: list[type[Index]] = [MetricDist, GeoBox] if calls else []
    if any(call.name == "regexp_extract" for call in calls):
        order = [Formatted]
    elif mapped := [kind for call in calls for mapping in current().rules_of(call) for kind in mapping.indexes]:
        order = mapped
    elif any(map(_is_of_user, calls)):
        order = [Formatted]
    order += _ORDER

    def rank(index: Index) -> int:
        of_calls = isinstance(index, MinMax) and not all(isinstance(bound, Column) for bound in index.bound)
        return order.index(type(index)) if type(index) in order and not of_calls else len(order)

    return min(candidates, key=rank, default=None)


def _joined(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
