"""From a snapshot and a predicate to a decision: which files cannot hold a matching row.

:func:`decide` is the whole query path of the core, without an engine: fold constants, label, merge, evaluate over all
files at once. It never raises: what fails keeps every file and leaves a sentence in the decision's reasons.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from geoskip.clauses import KEEP_ALL, Clause, Mask, parts_of
from geoskip.errors import MetadataError
from geoskip.evaluation import Evaluator, evaluating
from geoskip.indexes.base import Index
from geoskip.labelling import clause_for
from geoskip.metadata import Snapshot
from geoskip.predicates import Predicate
from geoskip.registry import current
from geoskip.rewrite.sql_functions import Template
from geoskip.rules import Deadline, RuleSubject, leave_out

__all__ = ["Decision", "decide"]


@dataclass(frozen=True)
class Decision:
    """The files of a snapshot that a query has to read, and the reasons."""

    snapshot: Snapshot
    predicate: Predicate
    clause: Clause
    keep: Mask
    """One entry a file of the snapshot: False skips."""
    reasons: tuple[str, ...] = ()
    seconds: float = 0.0
    sources: tuple[RuleSubject, ...] = field(default=(), repr=False, compare=False)
    """What the clause was made of: each answer of an index or mapping, with its name."""

    def skippers(self, file: int) -> tuple[str, ...]:
        """Names of what skips a file: mappings if any, else declarations, else indexes."""
        alone = [s.name for s in self.sources if not _safely(s.clause, self.snapshot, [])[file]]
        found = dict.fromkeys(alone or [s.name for s in self.sources])  # or boxes that skip it only together
        for kind in ("mapping ", "what is declared of "):
            if some := tuple(name for name in found if name.startswith(kind)):
                return some
        return tuple(found)

    def effects(self, among: Mask | None = None) -> tuple[tuple[str, int], ...]:
        """Used clauses with the number of files that each alone skips, in descending order."""
        found = []
        for part in parts_of(self.clause):
            if part is not KEEP_ALL:
                skipped = ~_safely(part, self.snapshot, [])
                found.append((str(part), int(np.count_nonzero(skipped if among is None else skipped & among))))
        return tuple(sorted(found, key=lambda pair: -pair[1]))


def decide(
    snapshot: Snapshot,
    predicate: Predicate,
    indexes: Sequence[Index] | None = None,
    *,
    evaluator: Evaluator | None = None,
    watch: Deadline | None = None,
    templates: Sequence[Template] = (),
) -> Decision:
    """Decide which files of a snapshot may hold a row that makes a predicate TRUE; never raises.

    Parameters
    ----------
    snapshot
        The metadata of the dataset's files.
    predicate
        The condition of the query on the dataset's columns.
    indexes
        The indexes that may be used; all of the snapshot by default.
    evaluator
        The engine's evaluator of conditions on single values that cannot be looked up.
    watch
        Limits the time of each rule and makes the running one visible to another thread.
    templates
        Bodies of SQL functions that the engine has inlined.
    """
    seen = watch or Deadline()
    seen.sources, seen.faults, seen.root = [], {}, seen.root or snapshot.header.root
    started = time.perf_counter()
    reasons: list[str] = []
    usable = snapshot.indexes if indexes is None else tuple(indexes)
    with evaluating(evaluator, reasons.append):
        try:
            clause = clause_for(predicate, usable, report=reasons.append, watch=seen, templates=templates)
        except BaseException as error:  # a query is never harmed: not by SystemExit in a mapping either
            reasons.append(f"the predicate could not be labelled: {_named(error)}")
            clause = KEEP_ALL
        failed: list[BaseException] = []
        with seen.evaluating():
            keep = _safely(clause, snapshot, reasons, failed)
    _find_fault(seen, snapshot, failed)
    for name, (rule, why) in seen.faults.items():
        reasons.append(f"{name} {why}")
        leave_out(current(), name, rule, why, seen.root)
    unique = tuple(dict.fromkeys(reason if len(reason) <= 300 else reason[:299] + "…" for reason in reasons))
    return Decision(snapshot, predicate, clause, keep, unique, time.perf_counter() - started, tuple(seen.sources))


def _safely(clause: Clause, snapshot: Snapshot, reasons: list[str], failed: list[BaseException] | None = None) -> Mask:
    """Evaluate a clause part by part; a part that raises keeps every file and goes to ``failed``."""
    keep: Mask = np.ones(len(snapshot.files), dtype=bool)
    try:
        return keep & snapshot.files.kept(clause)
    except BaseException as error:
        parts = parts_of(clause)
        if len(parts) == 1:
            reasons.append(f"{_text(clause)} could not be evaluated: {_named(error)}")
            if failed is not None:
                failed.append(error)
            return keep
    for part in parts:
        keep &= _safely(part, snapshot, reasons, failed)
    return keep


def _find_fault(seen: Deadline, snapshot: Snapshot, failed: list[BaseException]) -> None:
    """Blame the mappings whose clauses fail, unless metadata could not be read."""
    if seen.faults or all(isinstance(error, OSError | MetadataError) for error in failed):
        return
    for source in seen.of_functions():
        try:
            snapshot.files.kept(source.clause)
        except BaseException as error:
            seen.blame(source, f"made a clause that failed: {_named(error)}")


def _text(clause: Clause) -> str:
    try:
        return str(clause)
    except Exception:  # a clause of others
        return type(clause).__name__


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
