"""The cache of this driver's decisions, for reports and repeated requests.

A decision is reused for a later request with the same text (conditions, partition values, reader options and settings),
over the same snapshots, if the registry has not changed. *Soundness*: such a decision depends on nothing else
(:func:`is_reproducible`), and the files are compared with the snapshot at each use.
"""

from __future__ import annotations

import base64
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoskip.clauses import Mask
from geoskip.indexes.base import Index, is_own
from geoskip.metadata import Snapshot
from geoskip.planner import Decision
from geoskip.predicates import Call, Predicate, walk
from geoskip.registry import Registry, current
from geoskip.registry.functions import CATALYST
from geoskip.rules import Deadline, name_of
from geoskip.spark.rule.translate import Translator, parts_of
from geoskip.top_k import Bound, Order, bound_of

_LOG = logging.getLogger("geoskip")
Json = Mapping[str, Any]
Lasts = Callable[[], bool]
"""A check that a decision depends only on its question, its snapshots and the registry."""
_MOST_DECISIONS = 1000
_MOST_CELLS = 50_000_000
_UNPACKED = 10
"""Estimated memory of a condition and its predicates, as a multiple of the size of its JSON."""
_OWN = ("geoskip", "udf_mappings")
"""Packages with indexes and mappings that always return the same clause until the registry changes."""


@dataclass(frozen=True)
class DecisionCache:
    """Decisions kept for later reports, and for the same question."""

    decisions: tuple[Decision, ...]
    conditions: tuple[Json, ...]
    roots: tuple[str, ...] = ()
    """The dataset of each decision."""
    length: int = 0
    """The length of the request: its conditions may have very many values."""
    reasons: tuple[str, ...] = ()
    orders: tuple[tuple[Order, ...], ...] = ()
    """The orders of which the query needs only the first rows, over the columns of each decision's dataset."""

    def predicate(self) -> str:
        """The condition as text; empty if nothing was decided."""
        if not self.decisions:
            return ""
        return " AND ".join(map(str, parts_of(self.conditions, Translator(), [])))

    def masks(self, root: str) -> list[Mask]:
        """The files of a dataset that are skipped, for each vector of partition values."""
        return [~decision.keep for decision, of in zip(self.decisions, self.roots, strict=True) if of == root]

    def cells(self) -> int:
        """Estimated memory in bytes: one for each value of the masks, and a multiple of the request."""
        return sum(len(decision.keep) for decision in self.decisions) + _UNPACKED * self.length

    def effects(self, listed: str) -> tuple[tuple[str, int], ...]:
        """Each used clause with the number of files ``listed`` by a scan that it skips by itself."""
        sums: dict[str, int] = {}
        for decision, mask in zip(self.decisions, self.listed_masks(listed), strict=True):
            for text, count in decision.effects(mask):
                sums[text] = sums.get(text, 0) + count
        return tuple(sorted(sums.items(), key=lambda pair: -pair[1]))

    def listed_masks(self, listed: str) -> tuple[Mask, ...]:
        """The files of each decision's snapshot that a scan ``listed``, for its dataset and partition values.

        ``listed`` has a line ``bits vector dataset`` for each vector of partition values and dataset.
        """
        lines = (line.split(" ", 2) for line in listed.splitlines())
        packed = {(root, int(vector)): bits for bits, vector, root in lines}
        vectors: dict[str, int] = {}
        masks = []
        for root, decision in zip(self.roots, self.decisions, strict=True):
            vector = vectors[root] = vectors.get(root, -1) + 1
            bits = np.frombuffer(base64.b64decode(packed.get((root, vector), "")), np.uint8)
            mask = np.zeros(len(decision.keep), dtype=bool)
            found = np.unpackbits(bits, bitorder="little")[: len(mask)]
            mask[: len(found)] = found
            masks.append(mask)
        return tuple(masks)

    def bounds(self, listed: str, watch: Deadline, until: float) -> tuple[Bound, ...]:
        """The bound of each order; empty if one of them has none.

        Parameters
        ----------
        listed
            The files of the scan, in lines as for :meth:`listed_masks`.
        watch
            Limits the time of each of the users' rules.
        until
            The time of ``time.monotonic()`` at which the search ends.
        """
        masks, found = self.listed_masks(listed), []
        for orders in zip(*self.orders, strict=True):
            bound = bound_of(self.decisions, orders, masks, watch, until)
            if bound is None:
                return ()
            found.append(bound)
        return tuple(found)


class Decisions:
    """The last decisions by number, and by the questions for which they can be reused."""

    def __init__(self) -> None:
        self._found: OrderedDict[int, tuple[DecisionCache, str]] = OrderedDict()
        self._answers: dict[str, tuple[int, Hashable, tuple[Snapshot, ...], Lasts]] = {}
        self._cells = 0
        self._lock = threading.Lock()

    def get(self, number: int) -> DecisionCache | None:
        """The decisions behind an answer, if they are still cached."""
        with self._lock:
            return self._found.get(number, (None, ""))[0]

    def put(self, number: int, made: DecisionCache) -> None:
        """Cache decisions, and drop the oldest ones beyond the limits."""
        with self._lock:
            self._found[number] = (made, "")
            self._cells += made.cells()
            while len(self._found) > _MOST_DECISIONS or (self._cells > _MOST_CELLS and len(self._found) > 1):
                oldest, (forgotten, question) = self._found.popitem(last=False)
                self._cells -= forgotten.cells()
                if self._answers.get(question, (None,))[0] == oldest:
                    del self._answers[question]

    def reuse(self, question: str, number: int, state: Hashable, snapshots: Iterable[Snapshot], lasts: Lasts) -> None:
        """Allow a decision to be reused for its question.

        Parameters
        ----------
        question, number, state, snapshots
            The text of the request, the number of the decision, and the registry's state and snapshots behind it.
        lasts
            Called when the question is repeated; if False, the decision is not reused.
        """
        with self._lock:
            if number in self._found:
                self._found[number] = (self._found[number][0], question)
                self._answers[question] = (number, state, tuple(snapshots), lasts)

    def recall(
        self, question: str, state: Hashable, snapshots: Sequence[Snapshot]
    ) -> tuple[int, DecisionCache] | tuple[None, None]:
        """Return the number of the decision for a question, and the decision; (None, None) without one.

        Parameters
        ----------
        question, state, snapshots
            The text of the request, the current state of the registry, and the latest snapshots of the datasets.
        """
        with self._lock:
            number, then, before, lasts = self._answers.get(question, (0, None, (), None))
        is_same = then == state and len(before) == len(snapshots)
        if (
            lasts is None
            or not is_same
            or any(a is not b for a, b in zip(before, snapshots, strict=True))
            or not lasts()
        ):
            return None, None
        with self._lock:
            if number not in self._found:
                return None, None
            self._found.move_to_end(number)
            return number, self._found[number][0]


def is_reproducible(
    conditions: Iterable[Json], decisions: Iterable[Decision], indexes: Iterable[Index], registry: Registry
) -> bool:
    """True if a decision depends only on its question, its snapshots and the registry.

    This requires that all expressions are Catalyst's, which are identified by their text (unlike closures of Scala or
    Python, which may have the same text), and that all rules are geoskip's own, since users' rules may read state that
    changes. An expression without a text form keeps every file, whatever it is; so do its literals, unless Spark
    evaluates them.

    Parameters
    ----------
    conditions, decisions
        The conditions as JSON from the rule, and the decisions on them.
    indexes, registry
        The indexes that may be used, and the declarations of the current scope.
    """
    predicates = [decision.predicate for decision in decisions]
    calls = (vertex for predicate in predicates for vertex in walk(predicate) if isinstance(vertex, Call))
    return (
        all(map(_is_of_catalyst, _nodes(conditions)))
        and all(map(is_settled, indexes))
        and not has_rules_of_others(predicates, registry)
        and not any(registry.properties_of(call) for call in calls)
    )


def is_settled(index: Index) -> bool:
    """True if the usability of an index depends only on a snapshot and a query's environment.

    A user's index type may be redefined while the driver runs, and the prerequisites of an index that overrides
    ``unavailable`` may change too.
    """
    return type(index).unavailable is Index.unavailable and is_own(type(index))


def has_rules_of_others(predicates: Iterable[Predicate], registry: Registry) -> bool:
    """True if users' mappings, constant functions or denotations apply to calls in these predicates."""
    calls = (vertex for predicate in predicates for vertex in walk(predicate) if isinstance(vertex, Call))
    modules = (str(getattr(rule, "__module__", "")) for call in calls for rule in _rules(registry, call))
    return not all(module.partition(".")[0] in _OWN for module in modules)


def _is_of_catalyst(node: Json) -> bool:
    if "class" in node and "opaque" in node:  # such as a subquery or a nondeterministic expression; keeps all files
        return True
    kind = str(node.get("class", CATALYST))
    return kind.startswith(CATALYST) and "." not in kind.removeprefix(CATALYST) and not node.keys() & _UNCLEAR


_UNCLEAR = {"opaque", "python"}


def _nodes(conditions: Iterable[Json]) -> Iterator[Json]:
    waiting = list(conditions)
    while waiting:
        node = waiting.pop()
        yield node
        for name in ("children", "values", "array", "struct"):
            below = node.get(name, [])
            waiting.extend(below if isinstance(below, list) else [below])


def _rules(registry: Registry, call: Call) -> Iterator[Any]:
    yield from (mapping.rule for mapping in registry.rules_of(call))
    yield from (constant.evaluate for constant in registry.constants_of(call))
    yield from (denotation.meaning for denotation in registry.denotations_of(call))


def lost_rows(decisions: Sequence[Decision], roots: Sequence[str], lost: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe files that an audit found to be skipped wrongly; log them and quarantine the rules.

    ``spark.geoskip.audit`` is the share of skipped files that the Java side (``jvm/Audit.java``) reads after a query
    with the query's conditions. A row of an unchanged file that satisfies them was lost. The mapping, declaration or
    index that skipped the file is put in quarantine (:class:`geoskip.registry.Registry`).
    """
    return [_lost_file(decisions, roots, found["file"], found["rows"]) for found in lost]


def _lost_file(decisions: Sequence[Decision], roots: Sequence[str], file: str, rows: int) -> str:
    guilty: dict[str, None] = {}
    for decision, root in zip(decisions, roots, strict=True):
        number = _number_of(file, root, decision)
        if number is not None and not decision.keep[number]:
            for name in decision.skippers(number):
                of_function = name.startswith(("mapping ", "what is declared of "))
                guilty[name if of_function else name_of(name, root)] = None
    count = f"{rows:,} row" + ("" if rows == 1 else "s")
    for name in guilty:
        current().leave_out(name, f"an audit found {count} that it lost, in {file}")
    by = f"by {' and '.join(guilty)}, not used any more" if guilty else "by a decision that is forgotten by now"
    sentence = f"{file} was skipped {by}; {count} of it match"
    _LOG.warning("geoskip LOST ROWS: %s. Try geoskip.check_mapping on the function, and report it.", sentence)
    return " ".join(sentence.split())


def _number_of(file: str, root: str, decision: Decision) -> int | None:
    """Number of a file in a decision's snapshot, or None."""
    names = decision.snapshot.files.numbers()
    return names.get(file, names.get(file.removeprefix(root.rstrip("/") + "/")))
