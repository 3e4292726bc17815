"""Parts of a condition that no index supports, each with the reason and the index to create.

Planning a query does not run this module: a decision keeps its labelled tree, and a report traverses it.

A part is *served* if its clause can skip other files than those with nothing but NULL. An AND is served if any of its
members is, so each of its other members is reported; an OR needs all of its members, so its first unserved members are
reported with it. If an index decides several members of an AND together, such as the sides of a box, all of them are
served. A served part may contain unserved tests, in a branch of a CASE or in an AND below an OR: these are reported
too.

Two kinds of conditions are never reported: ``IS NOT NULL`` beside other conditions, which Spark adds for every column
in a filter or join, and conditions on partition columns only, which Spark evaluates on the folders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

from geoskip.advisor.advice import python_of
from geoskip.advisor.index_candidates import index_candidates, presence_texts, serves
from geoskip.bounds import uncast
from geoskip.clauses import KEEP_ALL, Clause, leaves_of, parts_of
from geoskip.diagnosis.condition_parts import Joint, Part, UnservedPart, tests_of
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
    Comparison,
    In,
    IsNull,
    Literal,
    Not,
    Opaque,
    Predicate,
    StartsWith,
    children,
    columns_of,
    normalise,
    walk,
)
from geoskip.registry import current
from geoskip.report import condense, join_names
from geoskip.rewrite import canonical
from geoskip.rules import calls_of
from geoskip.types import sql_type
from geoskip.vertex_labels import labels_of

__all__ = ["LabelledCondition", "unserved_reasons"]

_MOST = 8
"""Maximum number of sentences of a report."""
_MOST_DECISIONS = 16
_MOST_MEMBERS = 2
"""Maximum number of members of an OR that are reported."""
_LONGEST_CODE = 200
_ORDER: tuple[type[Index], ...] = (MinMax, ValueList, Prefix, Suffix, Formatted, MetricDist, GeoBox)
"""Index types, in the order in which they suit conditions on columns."""


def unserved_reasons(
    decisions: Sequence[Decision],
    noted: Sequence[str] = (),
    written: Sequence[Predicate] = (),
    partitions: Sequence[str] = (),
) -> Iterator[str]:
    """Iterate over distinct sentences on tests that no index serves; a long list is shortened.

    Parameters
    ----------
    decisions
        The decisions of a scan.
    noted
        Sentences that are reported already; their subjects are not repeated.
    written
        The members of the query's condition, with partition columns in place of their values.
    partitions
        Columns by which the table format itself skips files.
    """
    found: dict[tuple[str, str], str] = {}
    for decision in decisions[:_MOST_DECISIONS]:
        try:
            for unserved in LabelledCondition(decision, noted, written, partitions).unserved_parts():
                opaque = [node.text for node in walk(unserved.part.condition) if isinstance(node, Opaque)]
                if any(text in sentence for text in opaque for sentence in noted):
                    continue
                key = (str(unserved.within or ""), unserved.why)
                if key not in found or unserved.joint is not Joint.REST:  # another partition may serve it in part
                    found[key] = str(unserved)
        except Exception as error:  # of a user-defined index or mapping; the report is shown anyway
            found["", ""] = f"what no index serves is not known: {type(error).__name__}: {error}"
    texts = list(dict.fromkeys(found.values()))
    yield from texts[:_MOST]
    if len(texts) > _MOST:
        yield f"{len(texts) - _MOST} more parts of the condition are served by no index: geoskip.why_not() shows all"


class LabelledCondition:
    """The condition of a decision, part by part, with the clauses for the parts."""

    def __init__(
        self,
        decision: Decision,
        noted: Sequence[str] = (),
        written: Sequence[Predicate] = (),
        partitions: Sequence[str] = (),
    ) -> None:
        self.decision = decision
        self._noted = tuple(text for text in noted if " is not used: " in text)
        self._written = tuple(written)
        self._partitions = frozenset(partitions)
        labels = decision.labels or (lambda: labels_of(canonical(decision.predicate), {}))
        self.whole = Part(labels())

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The members of the top-level AND that read file columns; ``IS NOT NULL`` only if there is no other."""
        members, every = self.whole.members()
        words: dict[Predicate, Predicate] = {}
        with suppress(RecursionError):
            words.update(self._in_words())
        parts = members if members and every else (self.whole,)
        return _select_parts([replace(part, written=words.get(part.label.vertex)) if words else part for part in parts])

    def partition_conditions(self) -> Iterator[Predicate]:
        """Iterate over the members that Spark evaluates on a partition's values, as written in the query."""
        for member, written in self._members():
            if columns_of(written) and Part.without_clause(member).is_settled:
                every = written.children if isinstance(written, And) else (written,)
                yield from (each for each in every if not Part.without_clause(each).is_presence)

    def _members(self) -> Iterator[tuple[Predicate, Predicate]]:
        """Iterate over the members of the condition, each with its form in the query."""
        predicate = self.decision.predicate
        members = predicate.children if isinstance(predicate, And) else (predicate,)
        if len(members) == len(self._written):
            yield from zip(members, self._written, strict=True)

    def _in_words(self) -> Iterator[tuple[Predicate, Predicate]]:
        """Iterate over rewritten members that contain partition values, each with its form in the query."""
        return ((canonical(member), written) for member, written in self._members() if member != written)

    def is_served(self, part: Part) -> bool:
        """Test whether an index can skip other files for a part than those with nothing but NULL."""
        if part.is_presence:
            return part.clause is not KEEP_ALL
        return not all(map(self.says_presence, parts_of(part.clause)))

    def says_presence(self, clause: Clause) -> bool:
        """Test whether a clause skips no file, or only files with nothing but NULL."""
        return str(clause) in self._presence

    def is_served_together(self, part: Part) -> bool:
        """Test whether an index serves the part only in combination with other parts of the AND."""
        others = tuple(other.condition for other in self.parts if other is not part)
        if not others or any(other.too_deep for other in self.parts) or not self._of_several:
            return False
        fresh = Labeller(self.decision.indexes)
        whole = fresh.true(And((*others, part.condition)))
        rest = fresh.true(normalise(And(others)))
        apart = {str(leaf) for clause in (rest, fresh.true(part.condition)) for leaf in leaves_of(clause)}
        return any(str(leaf) not in apart for leaf in leaves_of(whole))

    def is_pruned(self, part: Part) -> bool:
        """Test for plain conditions on partition columns, by which the table format itself skips files."""
        return not part.too_deep and part.columns <= self._partitions and all(map(_is_plain, tests_of(part.condition)))

    def unserved_parts(self) -> Iterator[UnservedPart]:
        """Iterate over the unserved tests, in the order of the condition."""
        for part in self.parts:
            if self.is_served(part):
                yield from self.rest(part)
            elif not (self.is_pruned(part) or self.is_served_together(part)):
                yield from self.reasons(part)

    def rest(self, part: Part) -> Iterator[UnservedPart]:
        """Iterate over the unserved tests within a served part."""
        if not part.too_deep:
            yield from self._unserved_tests(part, Joint.REST)

    def reasons(self, part: Part) -> Iterator[UnservedPart]:
        """Iterate over the reasons why a part is unserved."""
        members, every = part.members()
        if part.too_deep:
            over = join_names(sorted(part.columns)[:_MOST])
            yield UnservedPart(part, f"a condition on {over} is not used: {part.too_deep}")
        elif not members:
            if branches := list(self._unserved_tests(part, Joint.BRANCH)):
                yield from branches
            elif (found := self._reason(part)) is not None:
                yield found
        elif every:
            for member in _select_parts(members):
                if not self.is_served(member):
                    yield from self.reasons(member)
        else:
            guilty = [member for member in members if not self.is_served(member)]
            open_in = [] if any(member.is_settled for member in guilty) else guilty  # constant TRUE in a partition
            for member in open_in[:_MOST_MEMBERS]:
                found = next(self.reasons(member), None)
                if found is not None:
                    yield replace(found, within=part)

    def _unserved_tests(self, part: Part, joint: Joint) -> Iterator[UnservedPart]:
        """Iterate over a few unserved tests of a part with several tests."""
        tests = tests_of(part.condition)
        several = (test for test in tests if columns_of(test)) if len(tests) > 1 else ()
        unserved = [test for test in several if next(self._clauses(test), None) is None]
        for test in unserved[:_MOST_MEMBERS]:
            if (found := self._reason(Part.without_clause(test))) is not None:
                yield replace(found, within=part, joint=joint)

    def _clauses(self, test: Predicate) -> Iterator[Clause]:
        """Iterate over the clauses for a test being TRUE and for it being FALSE."""
        for verdict in (self._labeller.true(test), self._labeller.true(normalise(Not(test)))):
            yield from (clause for clause in parts_of(verdict) if not self.says_presence(clause))

    def clauses_within(self, part: Part) -> Iterator[Clause]:
        """Iterate over the clauses of a part's tests, if there are several."""
        tests = [] if part.too_deep else tests_of(part.condition)
        return (clause for test in tests if len(tests) > 1 for clause in self._clauses(test))

    @property
    def entries(self) -> tuple[IndexEntry, ...]:
        """The indexes of the dataset, used or not."""
        return self.decision.snapshot.header.entries

    @cached_property
    def _labeller(self) -> Labeller:
        return Labeller(self.decision.indexes)

    @cached_property
    def _presence(self) -> frozenset[str]:
        return presence_texts(self._labeller)

    @cached_property
    def _of_several(self) -> bool:
        """Test whether the AND has clauses that none of its parts has."""
        apart = {str(leaf) for part in self.parts for leaf in leaves_of(part.clause)}
        return any(str(leaf) not in apart for leaf in leaves_of(self.whole.clause))

    def _reason(self, part: Part) -> UnservedPart | None:
        """The reason why a test is unserved; None if another sentence reports it."""
        test = part.condition
        if all(other.is_presence for other in self.parts) and not _is_written_presence(test):
            words = " AND ".join(condense(str(other.condition)) for other in self.parts)
            reach = "reach" if len(self.parts) > 1 else "reaches"
            return UnservedPart(part, f"only {condense(words)} {reach} its files, which few files fail")
        used = set(map(str, self.decision.indexes))
        near = [entry.index for entry in self.entries if not _columns(entry.index).isdisjoint(part.columns)]
        if any(isinstance(node, Opaque) for node in walk(test)):
            names = tuple(str(index) for index in near if str(index) in used)
            return UnservedPart(part, _unknown(part), indexes=names)
        noted = {text.partition(" is not used: ")[0] for text in self._noted}
        if any(str(index) in noted if str(index) in used else serves([index], test) for index in near):
            return None  # the reason why that index is not used is reported
        near = [index for index in near if str(index) in used]
        within = set(walk(test))
        near = [index for index in near if not within.isdisjoint(index.bound)] or near  # those over a part of the test
        candidates = [index for index in index_candidates([test]).indexes if index not in near]
        suggestion = _code_of(_best_index([index for index in candidates if len(str(index)) <= _LONGEST_CODE], test))
        names = tuple(map(str, near))
        over = [_call_mismatch(index, test) for index in near]
        if differing := next((text for text in over if text), ""):
            return UnservedPart(part, differing, suggestion, indexes=names)
        if near and part.columns <= _columns(*near):
            those = [*names[:3], *_mappings(test)]
            verb = "does" if len(those) == 1 else "do"
            return UnservedPart(part, f"{join_names(those)} {verb} not serve {part}", suggestion, indexes=names)
        missing = [subject for subject in _subjects(test) if not columns_of(subject) <= _columns(*near)]
        subject = condense(str(missing[0] if missing else test))
        unmapped = ", a function without a mapping" if missing and _is_unmapped(missing[0]) else ""
        none = "" if suggestion else ", and there is none to suggest"
        return UnservedPart(part, f"no index over {subject}{unmapped}{none}", suggestion, indexes=names)


def _is_plain(test: Predicate) -> bool:
    """Test for a condition on a column itself with constants, which table formats evaluate on partitions."""
    match test:
        case Column() | IsNull(Column()) | In(Column()) | StartsWith(Column()) | Comparison(_, Column(), Literal()):
            return True
    return False


def _is_written_presence(test: Predicate) -> bool:
    """Test for ``f(x) IS NOT NULL``, which Spark does not add by itself."""
    return isinstance(test, Not) and isinstance(test.child, IsNull) and isinstance(test.child.child, Call)


def _select_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts that depend on rows; ``IS NOT NULL`` only if there is no other."""
    reading = tuple(part for part in parts if not part.is_settled)
    return tuple(part for part in reading if not part.is_presence) or reading


def _subjects(test: Predicate) -> list[Predicate]:
    """The operands of a test that read columns, for which an index could be built."""
    inner = test.child if isinstance(test, Not) else test
    operands = [inner] if isinstance(inner, Call) else [uncast(child) for child in children(inner)]
    return [operand for operand in operands if columns_of(operand)]


def _columns(*indexes: Index) -> frozenset[str]:
    return columns_of(*(expression for index in indexes for expression in index.bound))


def _unknown(part: Part) -> str:
    """The reason for a part that geoskip cannot translate."""
    text = str(part)
    if "(a subquery)" in text:
        return f"{text} is not used: the answer of a subquery is not there when the query is planned"
    if any(isinstance(node, Opaque) and node.renamed for node in walk(part.condition)):
        return f"{text} is not used: a column in it has fields with other names in the files than in the table"
    return f"{text} is not used: it depends on more than the row, or geoskip cannot translate it"


def _call_mismatch(index: Index, test: Predicate) -> str:
    """The reason why an index over a call does not serve another call of the function; empty if none."""
    calls = [node for node in walk(test) if isinstance(node, Call)]
    for bound in index.bound:
        for call in calls:
            if not isinstance(bound, Call) or bound.name != call.name or bound in calls:
                continue
            if columns_of(bound) != columns_of(call):
                continue
            if str(bound) == str(call):
                return f"{condense(str(index), 80)} is over this call with other errors, as of a try_ function or get()"
            what = "another pattern" if bound.name.startswith("regexp") else "another call"
            of_template = isinstance(index, Formatted) and index.template is not None
            way = "; query the template's own text, as Formatted.part() writes it" if of_template else ""
            return f"{condense(str(index), 80)} is over {what} than {condense(str(call), 80)}{way}"
    return ""


def _mappings(test: Predicate) -> list[str]:
    """The names of the mappings of a test's functions, as text."""
    names = [call.name for call in calls_of(test) if current().rules_of(call)]
    return [f"the mapping of {name}" for name in dict.fromkeys(names)]


def _is_unmapped(subject: Predicate) -> bool:
    """Test for a user-defined function without a mapping."""
    return isinstance(subject, Call) and _is_of_user(subject) and not current().rules_of(subject)


# --- the index to create ----------------------------------------------------------------------------------------------


def _code_of(index: Index | None) -> str:
    """An index as code, with double quotes if possible; empty for None.

    >>> _code_of(MetricDist("word", metric="levenshtein"))
    'MetricDist("word", metric="levenshtein")'
    """
    text = "" if index is None else python_of(index)
    return text if '"' in text or "\\" in text else text.replace("'", '"')


def _best_index(candidates: Sequence[Index], test: Predicate) -> Index | None:
    """The index to suggest for a test: one for its functions, else bounds or a list; columns first."""
    calls = [node for node in walk(test) if isinstance(node, Call) and node.name not in ("if", "coalesce")]
    order: list[type[Index]] = [MetricDist, GeoBox] if calls else []
    if any(call.name in ("regexp_extract", "get_json_object") for call in calls):
        order = [Formatted]
    elif mapped := [kind for call in calls for mapping in current().rules_of(call) for kind in mapping.indexes]:
        order = mapped
    elif any(map(_is_of_user, calls)):
        order = [Formatted]
    order += _ORDER

    def rank(index: Index) -> tuple[int, int]:
        computed = [bound for bound in index.bound if isinstance(bound, Call)]
        if isinstance(index, MinMax) and computed:  # ranked like a list over them, but last for text
            of_text = any(sql_type(call.type).is_text for call in computed)
            return (len(order), 0) if of_text else (order.index(ValueList), 1)
        return order.index(type(index)) if type(index) in order else len(order), 2 if computed else 0

    return min(candidates, key=rank, default=None)


def _is_of_user(call: Call) -> bool:
    """Test for a user-defined function in Python."""
    return (call.implementation or "").startswith("python:")
