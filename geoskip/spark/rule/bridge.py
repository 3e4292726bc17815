"""The Python side of the rule: decide which files of snapshots to skip.

The callback runs in another thread than the user's, so nothing here is thread-local. It never raises, not even
SystemExit, which would make the query hang forever.

An answer is one line of JSON for reports, then a line ``dataset snapshot bits bits ...`` for each dataset. There is one
mask for each vector of partition values, in base64, little-endian by file number; a set bit skips the file. If local
files were checked for changes, ``?`` and the mask of changed files follow: the others are checked again at each run.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from geoskip.advisor.condition_text import shape_of
from geoskip.clauses import KEEP_ALL, Mask
from geoskip.indexes.base import Index
from geoskip.lifecycle.log import reason_unreadable
from geoskip.metadata import IndexEntry, Snapshot
from geoskip.planner import Decision, decide
from geoskip.predicates import And, Predicate
from geoskip.registry import current
from geoskip.report import unindexed_at_last
from geoskip.rules import Deadline, leave_out, name_of
from geoskip.sources.dependencies import (
    reason_unusable,
    reasons_of_functions,
    reasons_of_types,
    renamer,
    same_place,
    top_level_columns,
)
from geoskip.sources.listed_files import local_etag
from geoskip.sources.settings import apply_cache_size, cache_ttl, max_rechecks, setting_problems
from geoskip.spark.catalog import KEYS, DatasetCatalog, key_of
from geoskip.spark.rule.decision_cache import (
    DecisionCache,
    Decisions,
    has_rules_of_others,
    is_reproducible,
    is_settled,
    lost_rows,
)
from geoskip.spark.rule.evaluator import Answers, SparkEvaluator
from geoskip.spark.rule.translate import Translator, parts_of
from geoskip.stores.log_files import local_path
from geoskip.top_k import Order

Json = Mapping[str, Any]
_LONGEST = 1000
"""Maximum number of characters of a reason, since metadata may contain any text."""
_MOST_ENVIRONMENTS = 64
_EVALUATION = 0.2
"""Share of the budget for evaluating conditions for single values: planning must not cost more than it saves."""


@dataclass(frozen=True)
class _Running:
    """A running decision: its start, its deadline and its datasets."""

    since: float
    until: float
    roots: frozenset[str]
    watch: Deadline


class _NewDecisions:
    """The decisions on one request, while they are made."""

    def __init__(self, request: Json) -> None:
        self.request = request
        self.indexes: list[Index] = []
        """The indexes that were used."""
        self.reasons: list[str] = []
        self.decisions: list[tuple[str, Decision, tuple[Order, ...]]] = []
        """Each dataset with a decision, and the orders over its columns."""

    def translate(self, translator: Translator) -> tuple[tuple[Predicate, ...], tuple[Order, ...]]:
        """Translate the conditions, and the orders of which the query needs the first rows."""
        firsts = self.request.get("first", ())
        compared = [part for first in firsts for part in parts_of([first["by"]], translator, [])]
        orders = [
            Order(by, first["descending"], first["nulls_first"], first["rows"], first["groups"])
            for by, first in zip(compared, firsts, strict=True)
        ]
        return tuple(parts_of(self.request["conditions"], translator, self.reasons)), tuple(orders)

    def cached(self) -> DecisionCache:
        """Return the decisions as they are kept."""
        roots, decisions, orders = zip(*self.decisions, strict=True) if self.decisions else ((), (), ())
        conditions, length = tuple(self.request["conditions"]), self.request["length"]
        return DecisionCache(decisions, conditions, roots, length, tuple(self.reasons), orders)


class Bridge:
    """Answers the rule's requests over the datasets in this driver's catalog."""

    def __init__(self, known: DatasetCatalog) -> None:
        self.known = known
        self.decisions = Decisions()
        self._environments: dict[str, Json] = {}
        self._numbers = itertools.count(1)
        self._running: dict[int, _Running] = {}

    def answer(self, request: str, java: Any = None) -> str:
        """Answer one request; never raises. ``java`` is the calling JVM side, which evaluates single values."""
        try:
            if request.startswith("files "):
                snapshot = self.known.by_key(request[6:])
                return snapshot.files.paths_text(etags=True).decode("utf-8") if snapshot else ""
            if request.startswith("shape "):
                conditions = json.loads(request[6:].partition("\n")[0])["conditions"]
                return shape_of(And(tuple(parts_of(conditions, Translator(), []))))
            if request.startswith("statement "):
                answer_statement = import_module("geoskip.spark.statement_answers").answer_request
                return str(answer_statement(*request.split("\n", 1), java))
            if request.startswith("audit "):
                return self._answer_audit(json.loads(request[6:]))
            if request.startswith("first "):
                return self._answer_first(json.loads(request[6:]))
            return self._decide(self._parse_request(request), java)
        except BaseException as error:
            if request.startswith(("files ", "first ")):
                return ""
            return json.dumps({"reasons": [f"no decision: {type(error).__name__}: {error}"]})

    def _parse_request(self, request: str) -> Json:
        """Parse a request of three lines: its number and time, the question, and the environment.

        The environment (format, options, schema, settings) rarely differs between queries, and is parsed once.
        """
        head, question, environment = request.split("\n")
        if (under := self._environments.get(environment)) is None:
            if len(self._environments) >= _MOST_ENVIRONMENTS:
                self._environments = {}
            under = json.loads(environment)
            under["unread"] = tuple(setting_problems(under["settings"]))
            self._environments[environment] = under
        about = {**under, **json.loads(head), **json.loads(question)}
        return {**about, "question": question, "environment": environment, "length": len(request)}

    def _answer_audit(self, found: Json) -> str:
        """Describe lost rows that an audit found, and put the rules that skipped them in quarantine."""
        behind = self.recall_decision(int(found["report"].get("decision", -1)))
        return "\n".join(lost_rows(behind.decisions if behind else (), behind.roots if behind else (), found["lost"]))

    def _answer_first(self, found: Json) -> str:
        """Bound the orders of which a query needs only the first rows; empty if this proves nothing.

        The answer is a line with a bound's value for each order, as text in base64, then a line ``bits dataset`` for
        each dataset, with the files that were counted.
        """
        behind = self.recall_decision(int(found["report"].get("decision", -1)))
        if behind is None:
            return ""
        with self._run(time.monotonic(), float(found["budget"]), frozenset(behind.roots)) as watch:
            bounds = behind.bounds(found["listed"], watch, time.monotonic() + float(found["left"]) / 2)
        if not bounds:
            return ""
        counted: dict[str, Mask] = {}
        for bound in bounds:
            for root, mask in zip(behind.roots, bound.counted, strict=True):
                counted[root] = counted.get(root, False) | mask
        lines = [f"{_encode_mask(mask)} {root}" for root, mask in counted.items()]
        values = (str(bound.value.value).encode("utf-8", "surrogateescape") for bound in bounds)
        return "\n".join([" ".join(base64.b64encode(value).decode("ascii") for value in values), *lines])

    def recall_decision(self, number: int) -> DecisionCache | None:
        """The decisions behind an answer, if they are still cached."""
        return self.decisions.get(number)

    def _decide(self, request: Json, java: Any) -> str:
        """Decide, unless an earlier decision over one of the datasets has not ended within its budget.

        If a user's mapping or index is still running in that one, it is put in quarantine, and the decision is made
        without it.
        """
        now, roots = time.monotonic(), frozenset(request["datasets"])
        budget = float(request["budget"])
        asked = now - min(max(time.time() - float(request["asked"]), 0.0), budget)
        overdue = [run for run in list(self._running.values()) if run.roots & roots and now > run.until]
        late = [now - run.since for run in overdue if not _quarantine_running(run, now)]
        if late:
            why = f"an earlier decision over this dataset has run for {max(late):.0f} s: meanwhile every file is read"
            return json.dumps({"reasons": [why, *request["barriers"]]})
        with self._run(asked, budget, roots) as watch:
            return self._decide_datasets(request, java, watch)

    @contextmanager
    def _run(self, since: float, budget: float, roots: frozenset[str]) -> Iterator[Deadline]:
        """Let later decisions over these datasets see that this one is running."""
        me, watch = next(self._numbers), Deadline(most=budget)
        self._running[me] = _Running(since, since + budget, roots, watch)
        try:
            yield watch
        finally:
            self._running.pop(me, None)

    def _decide_datasets(self, request: Json, java: Any, watch: Deadline) -> str:
        settings = request["settings"]
        apply_cache_size(settings)
        reasons: list[str] = [*request["unread"], *request["barriers"]]
        try:
            self.known.read_keys(settings.get(KEYS))
        except Exception as error:
            reasons.append(str(error))
        found: list[tuple[int, str, Snapshot]] = []
        age = cache_ttl(settings)
        for number, root in enumerate(request["datasets"]):
            try:
                snapshot = self.known.snapshot(root, age=age)
            except BaseException as error:
                reasons.append(reason_unreadable(f"the metadata of {root}", error))
                continue
            if snapshot is None:
                reasons.append(f"there are no metadata in {self.known.store(root).location}: create_index() makes them")
                continue
            found.append((number, root, snapshot))
            reasons += snapshot.header.unread_reasons
            if not (snapshot.header.entries or snapshot.header.unread):
                back = ", restore_index() brings back a deleted one" if snapshot.header.deleted else ""
                reasons.append(f"no index of {root} is in use: create_index() makes one{back}")
            if pending := snapshot.header.pending:
                reasons.append(f"{unindexed_at_last(pending)} of {root}")
        key, made = self._decide_or_recall([(root, snapshot) for _, root, snapshot in found], request, java, watch)
        lines = [
            " ".join([str(number), key_of(snapshot), *bits])
            for number, root, snapshot in found
            if (bits := self._bits(root, snapshot, made.masks(root), request))
        ]
        told = dict.fromkeys(text[:_LONGEST] for text in (*reasons, *made.reasons))
        return "\n".join([json.dumps({"decision": key, "reasons": list(told)}), *lines])

    def _decide_or_recall(
        self, found: Sequence[tuple[str, Snapshot]], request: Json, java: Any, watch: Deadline
    ) -> tuple[int, DecisionCache]:
        """Return the decisions over these snapshots with their number, from the cache if possible.

        A decision that took so long that it may be incomplete is not reused for the same question.
        """
        question, snapshots = f"{request['question']}\n{request['environment']}", [snapshot for _, snapshot in found]
        state = current().version_key
        key, made = self.decisions.recall(question, state, snapshots)
        if key is not None and made is not None:
            return key, made
        began = time.monotonic()
        new = _NewDecisions(request)
        for root, snapshot in found:
            watch.root = root
            self._answer_query(root, snapshot, request, java, watch, new)
        key, made = next(self._numbers), new.cached()
        self.decisions.put(key, made)
        if time.monotonic() - began < float(request["budget"]) * _EVALUATION:
            asked = [*made.conditions, *(order["by"] for order in request.get("first", ()))]
            lasts = functools.cache(lambda: is_reproducible(asked, made.decisions, new.indexes, current()))
            self.decisions.reuse(question, key, state, snapshots, lasts)
        return key, made

    def _bits(self, root: str, snapshot: Snapshot, masks: list[Mask], request: Json) -> list[str]:
        """The masks of the answer for one dataset; empty if no file is skipped, or may be for the first rows."""
        if not (any(mask.any() for mask in masks) or request.get("first")):
            return []
        changed = self._changed_files(root, snapshot, masks, request)
        if changed is None:
            return [_encode_mask(mask) for mask in masks]
        return [*(_encode_mask(mask & ~changed) for mask in masks), f"?{_encode_mask(changed)}"]

    def _answer_query(
        self, root: str, snapshot: Snapshot, request: Json, java: Any, watch: Deadline, new: _NewDecisions
    ) -> None:
        """Decide over one dataset, for each vector of partition values."""
        sensitive = str(request["settings"].get("spark.sql.caseSensitive")).lower()
        rename = snapshot.files.cached(("renamer", sensitive), lambda: renamer(snapshot.header, request))
        parts, orders = new.translate(Translator(names=rename))
        asked = (*parts, *(order.by for order in orders))
        entries = _relevant_entries(snapshot, asked)
        indexes = self._usable(root, snapshot, entries, request, new.reasons)
        wholes = (*request["conditions"], *(first["by"] for first in request.get("first", ())))
        if not indexes and not any("slot" in whole for whole in wholes):  # nor by partition columns alone
            if slots := next(iter(request["vectors"]), ()):
                parts, orders = new.translate(Translator(slots=slots, names=rename))
            every = np.broadcast_to(np.True_, len(snapshot.files))
            new.decisions.append((root, Decision(snapshot, And(parts), KEEP_ALL, every), orders))  # for reports
            return
        new.indexes += indexes
        concerned = replace(snapshot.header, entries=tuple(entries))
        new.reasons.extend(reasons_of_types(concerned, And(asked)))
        new.reasons.extend(reasons_of_functions(concerned, And(asked)))
        deadline = time.monotonic() + float(request["budget"]) / 2
        last = time.monotonic() + float(request["budget"]) * _EVALUATION
        answers: Answers = {}
        for number, slots in enumerate(request["vectors"]):
            if number and time.monotonic() > deadline:
                new.reasons.append(
                    "too many different partitions for the planning budget: the files of some are all read"
                )
                break
            if slots:
                parts, orders = new.translate(Translator(slots=slots, names=rename))
            evaluator = None
            if java is not None:
                evaluator = SparkEvaluator(java, request, slots=slots, names=rename, deadline=last, answers=answers)
            decision = decide(snapshot, And(parts), indexes, evaluator=evaluator, watch=watch)
            new.reasons.extend(decision.reasons)
            new.decisions.append((root, decision, orders))

    def _usable(
        self, root: str, snapshot: Snapshot, entries: Sequence[IndexEntry], request: Json, reasons: list[str]
    ) -> tuple[Index, ...]:
        """The usable ones of these indexes; appends the reason for each other one."""
        environment = hashlib.sha256(request["environment"].encode()).digest()  # kept as long as the snapshot
        key = ("unusable", environment, root, same_place(root, snapshot.header.root))
        checked: dict[str, str | None] = snapshot.files.cached(key, dict)
        usable: list[Index] = []
        for entry in entries:
            why = current().quarantine.get(name_of(entry.name, root))
            if why is None and (entry.name not in checked or not is_settled(entry.index)):
                checked[entry.name] = reason_unusable(root, snapshot.header, entry, request)
            why = why or checked[entry.name]
            if why is None:
                usable.append(entry.index)
            else:
                reasons.append(f"{entry.name} is not used: {why}")
        return tuple(usable)

    def _changed_files(self, root: str, snapshot: Snapshot, masks: list[Mask], request: Json) -> Mask | None:
        """The files to be skipped that have changed, or None; only for local files, up to a limit.

        A listing may be older than a file. Inode and change time also detect a file that was replaced by one with the
        same size and modification time.
        """
        path = local_path(root)
        skipped = np.flatnonzero(np.logical_or.reduce(masks))
        if path is None or len(skipped) > max_rechecks(request["settings"]):
            return None
        names = snapshot.files.paths()
        etags = snapshot.files.cached("etags", lambda: snapshot.files.column("etag").to_pylist())
        changed = np.zeros(len(names), dtype=bool)
        prefix = path.rstrip("/") + "/"
        for number in skipped:
            if etags[number] is not None:
                name = names[number]
                where = local_path(name) if ":/" in name else prefix + name
                changed[number] = where is not None and local_etag(where) != etags[number]
        return changed


def _relevant_entries(snapshot: Snapshot, parts: Sequence[Predicate]) -> list[IndexEntry]:
    """The indexes over columns that the query's conditions read, in their order: of thousands, a few.

    If a user's mapping may be used, all indexes are returned, since it may refer to any of them.
    """
    entries = snapshot.header.entries
    if has_rules_of_others(parts, current()):
        return list(entries)
    by_column = snapshot.files.cached("indexes by column", lambda: _by_column(entries))
    read = top_level_columns(*parts)  # a struct is compared by its fields, which may be indexed
    return [entries[number] for number in sorted({n for name in ("", *read) for n in by_column.get(name, ())})]


def _by_column(entries: Sequence[IndexEntry]) -> dict[str, list[int]]:
    """The positions of indexes by their columns; those without columns under the empty name."""
    found: dict[str, list[int]] = {}
    for number, entry in enumerate(entries):
        for name in top_level_columns(*entry.index.bound) or ("",):
            found.setdefault(name, []).append(number)
    return found


def _quarantine_running(run: _Running, now: float) -> bool:
    """Quarantine the mapping or user's index that a decision is still waiting for; True if there was one."""
    name, rule = run.watch.running or ("", None)
    if rule is None:
        return False
    why = f"has run for {now - run.since:.0f} s, and the planning budget is {run.until - run.since:g} s"
    return leave_out(current(), name, rule, why, run.watch.root)


def _encode_mask(mask: Mask) -> str:
    return base64.b64encode(np.packbits(mask, bitorder="little").tobytes()).decode("ascii")
