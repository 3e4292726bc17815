"""The effect of each index on each part of a scan's condition, as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from geoskip.clauses import Clause, Mask, all_of, conjuncts_of, leaves_of
from geoskip.diagnosis.condition_parts import Part, UnservedPart, words_of
from geoskip.diagnosis.unserved import LabelledCondition
from geoskip.predicates import columns_of
from geoskip.report import Scan, condense

__all__ = ["IndexEffect", "effects_of", "indexes_of"]

_MOST_DECISIONS = 64
_SETTLED = "it reads partition columns alone: Spark settles it by the folders"
_PRUNED = "it reads partition columns alone: the table's own format settles it"


@dataclass(frozen=True)
class IndexEffect:
    """A part of a condition and an index: a row of :func:`geoskip.why_not`.

    Attributes
    ----------
    part
        The part of the condition; empty for an index that no part reads.
    index
        The index, or several that support the part together; empty if there is none.
    used
        True if the index supports the part.
    skips
        The number of listed files that the part alone skips with the index.
    reason
        The condition on files, or the reason why the index does not support the part.
    suggestion
        The index to create, as code; empty if none is known.
    """

    part: str
    index: str
    used: bool = False
    skips: int = 0
    reason: str = ""
    suggestion: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return asdict(self)


def effects_of(scan: Scan) -> tuple[IndexEffect, ...]:
    """Return a row for each part of a scan's condition and each index of its datasets."""
    rows: dict[tuple[str, str, str], IndexEffect] = {}
    written = scan.written()
    conditions = [
        LabelledCondition(decision, scan.noted, written, scan.partitions)
        for decision in scan.decisions()[:_MOST_DECISIONS]
    ]
    masks = scan.among()
    for number, condition in enumerate(conditions):
        among = masks[number] if number < len(masks) else None
        for row in (row for part in condition.parts for row in _rows(condition, part, among)):
            key = (row.part, row.index, row.suggestion)
            rows[key] = row if (before := rows.get(key)) is None else _add_effects(before, row)
    settled = dict.fromkeys(words_of(member) for condition in conditions for member in condition.partition_conditions())
    named = {name for row in rows.values() for name in row.index.split(" + ")}
    return (
        *(IndexEffect(text, "", reason=_SETTLED) for text in settled),
        *rows.values(),
        *_unread(conditions, scan.noted, named),
    )


def _add_effects(first: IndexEffect, second: IndexEffect) -> IndexEffect:
    """Add the counts of two partitions' rows; the texts are those of the row that skips more."""
    most = max(first, second, key=lambda row: (row.used, row.skips))
    return replace(most, skips=first.skips + second.skips)


def indexes_of(clause: Clause) -> tuple[str, ...]:
    """Return the names of the indexes that a clause reads."""
    return tuple(dict.fromkeys(index for index, _ in clause.columns()))


def _rows(condition: LabelledCondition, part: Part, among: Mask | None) -> Iterator[IndexEffect]:
    """The rows of one part: the indexes that serve it, or the reasons why none does."""
    if not condition.is_served(part):
        if condition.is_served_together(part):
            yield IndexEffect(str(part), "", used=True, reason="decided together with the other parts")
            return
        if condition.is_pruned(part):
            yield IndexEffect(str(part), "", reason=_PRUNED)
            return
        for found in condition.reasons(part):
            yield _unserved_effect(part, found)
        what = "one side of the OR" if part.members()[0] else "a branch of it"
        for name in dict.fromkeys(name for clause in condition.clauses_within(part) for name in indexes_of(clause)):
            yield IndexEffect(str(part), name, reason=f"it serves {what}")
        return
    pieces: dict[tuple[str, ...], list[Clause]] = {}
    for piece in conjuncts_of(part.clause):
        if part.is_presence or not condition.says_presence(piece):
            pieces.setdefault(indexes_of(piece), []).append(piece)
    for names, clauses in pieces.items():
        clause = all_of(clauses)
        skips = condition.decision.skips(clause, among)
        left = "file that is left" if among is not None and among.any() and not among.all() else "file"
        said = _words(clause) if skips else f"{_words(clause)}, which no {left} fails"
        yield IndexEffect(str(part), " + ".join(names), True, skips, said)
    for found in condition.rest(part):
        yield _unserved_effect(part, replace(found, indexes=()))
    served = {name for names in pieces for name in names}
    for index in condition.decision.indexes:
        if str(index) not in served and not part.columns.isdisjoint(columns_of(*index.bound)):
            yield IndexEffect(str(part), str(index), reason="it does not serve this part, another index does")


def _unserved_effect(part: Part, found: UnservedPart) -> IndexEffect:
    """The row for a test that no index serves."""
    return IndexEffect(str(part), " + ".join(found.indexes), reason=found.reason, suggestion=found.suggestion)


def _words(clause: Clause) -> str:
    return condense(" AND ".join(dict.fromkeys(map(str, conjuncts_of(clause)))))


def _unread(conditions: Sequence[LabelledCondition], noted: Sequence[str], named: set[str]) -> Iterator[IndexEffect]:
    """The rows of the indexes that no part uses, because they are unusable or over other columns."""
    entries = {entry.name: entry for condition in conditions for entry in condition.entries}
    for name, entry in entries.items():
        prefix = f"{name} is not used: "
        why = next((text.removeprefix(prefix) for text in noted if text.startswith(prefix)), "")
        if why:
            yield IndexEffect("", name, reason=f"not used: {why}")
        elif name not in named:
            over = ", ".join(entry.index.expressions())
            yield IndexEffect("", name, reason=f"no part of the condition reads {condense(over, 80)}")


def leaf_ids(clause: Clause) -> frozenset[int]:
    """Return the identities of the leaf clauses of a clause."""
    return frozenset(map(id, leaves_of(clause)))
