"""Python's answers to the rule: which files of which snapshots may be skipped.

The callback runs in another thread than the user's, so nothing here is thread-local. It never raises: not even
SystemExit, which would hang the query for good.

An answer is one line of JSON for reports, then a line ``dataset snapshot bits bits ...`` a dataset: the bits in
base64, little-endian by file number, one for each vector of partition values; a set bit skips.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoskip.asking import Watch, leave_out, name_of
from geoskip.clauses import Mask
from geoskip.indexes.base import Index
from geoskip.inlining import Template
from geoskip.metadata import IndexEntry, Snapshot
from geoskip.predicates import And, Predicate, columns_of
from geoskip.registry import current
from geoskip.report import unindexed_at_last
from geoskip.skipping import Decision, decide
from geoskip.spark.audit import lost_rows
from geoskip.spark.catalyst import AND, Translator, inlined
from geoskip.spark.evaluator import Answers, SparkEvaluator
from geoskip.spark.known import KEYS, Known, key_of, local_path
from geoskip.spark.own_settings import look_up_again, most_looked_at, share_memory, unread
from geoskip.spark.signature import redefined, renamer, retyped, unusable

__all__ = ["Bridge"]

Json = Mapping[str, Any]
_MOST_DECISIONS = 1000
_MOST_CELLS = 50_000_000
_UNPACKED = 10
"""So many times as much as its JSON a condition takes in memory, with what was made of it."""
_LONGEST = 1000
"""So many characters of a reason are told, whatever lies in the metadata."""
_LOOKED_FOR_AGAIN = 5.0
"""Seconds after which it is asked again what a function of SQL is made of. An old answer loses nothing."""
_FEW = 16
"""So many indexes are not worth a look at which of them a query concerns."""
_EVALUATION = 0.2
"""The share of the budget for evaluating conditions over single values: planning must not outlast what it saves."""


@dataclass(frozen=True)
class Remembered:
    """What a report may ask for later."""

    decisions: tuple[Decision, ...]
    conditions: tuple[Json, ...]
    roots: tuple[str, ...] = ()
    """Of each decision the dataset that it is about."""
    length: int = 0
    """That of the request: its conditions may hold very many values."""

    def predicate(self) -> str:
        """The condition in words; empty where nothing was decided."""
        if not self.decisions:
            return ""
        return " AND ".join(map(str, _parts(self.conditions, Translator(), [])))

    def cells(self) -> int:
        """What remembering costs, in entries of masks, a byte each."""
        return sum(len(decision.keep) for decision in self.decisions) + _UNPACKED * self.length

    def effects(self) -> tuple[tuple[str, int], ...]:
        """Each used clause with the files that it alone skips, over all datasets and partition vectors."""
        sums: dict[str, int] = {}
        for decision in self.decisions:
            for text, count in decision.effects():
                sums[text] = max(sums.get(text, 0), count)
        return tuple(sorted(sums.items(), key=lambda pair: -pair[1]))


@dataclass(frozen=True)
class _Running:
    """A decision under way: since when, until when it may run, over which datasets."""

    since: float
    until: float
    roots: frozenset[str]
    watch: Watch


class Bridge:
    """Answers the rule's requests, over the datasets known to this driver."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self._remembered: OrderedDict[int, Remembered] = OrderedDict()
        self._cells = 0
        self._numbers = itertools.count(1)
        self._running: dict[int, _Running] = {}
        self._lock = threading.Lock()
        self._inlined: dict[tuple[str, str], tuple[Template | None, float]] = {}

    def answer(self, request: str, java: Any = None) -> str:
        """The answer to one request; never raises. ``java`` is who asks, and evaluates for single values."""
        try:
            if request.startswith("files "):
                snapshot = self.known.by_key(request[6:])
                return _lines(snapshot) if snapshot else ""
            if request.startswith("audit "):
                return self._audited(json.loads(request[6:]))
            return self._decide({**json.loads(request), "length": len(request)}, java)
        except BaseException as error:
            if request.startswith("files "):
                return ""
            return json.dumps({"reasons": [f"no decision: {type(error).__name__}: {error}"]})

    def _audited(self, found: Json) -> str:
        """What to say of rows that an audit found in skipped files; what skipped them is put in quarantine."""
        behind = self.remembered(int(found["report"].get("decision", -1)))
        return "\n".join(lost_rows(behind.decisions if behind else (), behind.roots if behind else (), found["lost"]))

    def remembered(self, number: int) -> Remembered | None:
        """The decisions behind an answer, while they are remembered."""
        with self._lock:
            return self._remembered.get(number)

    def _decide(self, request: Json, java: Any) -> str:
        """The answer, unless an earlier decision over one of the datasets has not ended within its budget.

        Where that is the fault of a mapping or of an index of others, it is put in quarantine, and the rest is asked.
        """
        now, roots = time.monotonic(), frozenset(request["datasets"])
        budget = float(request.get("budget", 5.0))
        asked = now - min(max(time.time() - float(request.get("asked", time.time())), 0.0), budget)
        overdue = [run for run in list(self._running.values()) if run.roots & roots and now > run.until]
        late = [now - run.since for run in overdue if not _left_out(run, now)]
        if late:
            why = f"an earlier decision over this dataset has run for {max(late):.0f} s: meanwhile every file is read"
            return json.dumps({"reasons": [why, *request["barriers"]]})
        me = next(self._numbers)
        watch = Watch(most=budget)
        self._running[me] = _Running(asked, asked + budget, roots, watch)
        try:
            return self._decided(request, java, watch)
        finally:
            self._running.pop(me, None)

    def _decided(self, request: Json, java: Any, watch: Watch) -> str:
        settings = request.get("settings", {})
        share_memory(settings)
        reasons: list[str] = [*unread(settings), *request["barriers"]]
        try:
            self.known.read_keys(settings.get(KEYS))
        except Exception as error:
            reasons.append(str(error))
        lines: list[str] = []
        decisions: list[Decision] = []
        roots: list[str] = []
        age = look_up_again(settings)
        for number, root in enumerate(request["datasets"]):
            try:
                snapshot = self.known.snapshot(root, age=age)
            except BaseException as error:
                reasons.append(f"the metadata of {root} could not be read: {error}")
                continue
            if snapshot is None:
                continue
            reasons += [str(entry["why"]) for entry in snapshot.header.unread if "why" in entry]
            if not (snapshot.header.entries or snapshot.header.unread):
                back = ", restore_index() brings back a deleted one" if snapshot.header.deleted else ""
                reasons.append(f"no index of {root} is in use: create_index() makes one{back}")
            if pending := snapshot.header.pending:
                reasons.append(f"{unindexed_at_last(pending)} of {root}")
            watch.root = root
            bits = self._bits(root, snapshot, request, java, watch, decisions, reasons)
            roots.extend([root] * (len(decisions) - len(roots)))
            if bits:
                lines.append(" ".join([str(number), key_of(snapshot), *bits]))
        key = next(self._numbers)
        with self._lock:
            self._remember(
                key, Remembered(tuple(decisions), tuple(request["conditions"]), tuple(roots), request["length"])
            )
        report = json.dumps({"decision": key, "reasons": list(dict.fromkeys(text[:_LONGEST] for text in reasons))})
        return "\n".join([report, *lines])

    def _remember(self, key: int, answer: Remembered) -> None:
        self._remembered[key] = answer
        self._cells += answer.cells()
        while len(self._remembered) > _MOST_DECISIONS or (self._cells > _MOST_CELLS and len(self._remembered) > 1):
            self._cells -= self._remembered.popitem(last=False)[1].cells()

    def _bits(
        self,
        root: str,
        snapshot: Snapshot,
        request: Json,
        java: Any,
        watch: Watch,
        decisions: list[Decision],
        reasons: list[str],
    ) -> list[str]:
        rename = renamer(snapshot.header, request)
        indexes = self._usable(root, snapshot, request, rename, reasons)
        if not indexes:
            return []
        masks: list[Mask] = []
        deadline = time.monotonic() + float(request["budget"]) / 2
        last = time.monotonic() + float(request["budget"]) * _EVALUATION
        answers: Answers = {}
        for slots in request["vectors"]:
            if masks and time.monotonic() > deadline:
                reasons.append("too many different partitions for the planning budget: the files of some are all read")
                break
            translator = Translator(slots=slots, names=rename)
            predicate: Predicate = And(tuple(_parts(request["conditions"], translator, reasons)))
            if not masks:
                reasons.extend(retyped(snapshot.header, predicate))
                reasons.extend(redefined(snapshot.header, predicate))
            templates = self._templates(request, java)
            evaluator = None
            if java is not None:
                evaluator = SparkEvaluator(java, request, slots=slots, names=rename, deadline=last, answers=answers)
            decision = decide(snapshot, predicate, indexes, evaluator=evaluator, watch=watch, templates=templates)
            reasons.extend(decision.reasons)
            decisions.append(decision)
            masks.append(~decision.keep)
        if not any(mask.any() for mask in masks):
            return []
        changed = self._changed(root, snapshot, masks, request)
        if changed is None or not changed.any():
            return [_packed(mask) for mask in masks]
        return [*(_packed(mask & ~changed) for mask in masks), f"?{_packed(changed)}"]

    def _usable(
        self, root: str, snapshot: Snapshot, request: Json, rename: Callable[[str], str], reasons: list[str]
    ) -> tuple[Index, ...]:
        usable: list[Index] = []
        for entry in _concerned(snapshot, request, rename):
            why = current().quarantine.get(name_of(entry.name, root)) or unusable(root, snapshot.header, entry, request)
            if why is None:
                usable.append(entry.index)
            else:
                reasons.append(f"{entry.name} is not used: {why}")
        return tuple(usable)

    def _templates(self, request: Json, java: Any) -> list[Template]:
        """The functions of SQL that mappings name, as what Spark replaces them by in this session."""
        found = [self._template(name, request, java) for name in current().bare_names()] if java is not None else []
        return [template for template in found if template is not None]

    def _template(self, name: str, request: Json, java: Any) -> Template | None:
        key = (name, json.dumps(request.get("settings", {}), sort_keys=True))
        known = self._inlined.get(key)
        if known is None or time.monotonic() > known[1]:
            try:
                made = inlined(name, java.inlined(request["number"], name))
            except Exception:
                made = None
            known = self._inlined[key] = (made, time.monotonic() + _LOOKED_FOR_AGAIN)
        return known[0]

    def _changed(self, root: str, snapshot: Snapshot, masks: list[Mask], request: Json) -> Mask | None:
        """Files to be skipped that have another content by now, where asking is cheap: local files, not too many.

        A listing may be older than a file. Inode and change time also show a file that was replaced by one of the same
        size and modification time.
        """
        path = local_path(root)
        skipped = np.flatnonzero(np.logical_or.reduce(masks))
        if path is None or len(skipped) > most_looked_at(request.get("settings", {})):
            return None
        names = snapshot.files.cached("names", lambda: snapshot.files.column("path").to_pylist())
        etags = snapshot.files.cached("etags", lambda: snapshot.files.column("etag").to_pylist())
        changed = np.zeros(len(names), dtype=bool)
        prefix = path.rstrip("/") + "/"
        for number in skipped:
            if etags[number] is not None:
                name = names[number]
                where = local_path(name) if ":/" in name else prefix + name
                changed[number] = where is not None and local_etag(where) != etags[number]
        return changed


def _lines(snapshot: Snapshot) -> str:
    """The files for the JVM. A file system's own etags are compared there, those of local files by :class:`Bridge`."""
    return snapshot.files.paths_text(etags=local_path(snapshot.header.root) is None).decode("utf-8")


def _concerned(snapshot: Snapshot, request: Json, rename: Callable[[str], str]) -> Sequence[IndexEntry]:
    """The indexes over columns that the query's conditions read: of thousands, a few."""
    entries = snapshot.header.entries
    if len(entries) <= _FEW:
        return entries
    parts = _parts(request["conditions"], Translator(names=rename), [])
    read = frozenset[str]().union(*map(columns_of, parts))
    known = snapshot.files.cached("columns of indexes", lambda: [_columns_of(entry) for entry in entries])
    return [entry for entry, columns in zip(entries, known, strict=True) if not columns or columns & read]


def _left_out(run: _Running, now: float) -> bool:
    """Is it a mapping, or an index of others, that a decision still waits for? Then it is not asked again."""
    name, rule = run.watch.running or ("", None)
    if rule is None:
        return False
    why = f"has run for {now - run.since:.0f} s, and the planning budget is {run.until - run.since:g} s"
    return leave_out(current(), name, rule, why, run.watch.root)


def _columns_of(entry: IndexEntry) -> frozenset[str]:
    return frozenset[str]().union(*map(columns_of, entry.index.bound))


def _parts(conditions: Iterable[Json], translator: Translator, reasons: list[str]) -> Iterator[Predicate]:
    """The conditions and the members of their ANDs; one that cannot be translated leaves the others in use."""
    for node in conditions:
        evaluated = "slot" in node and translator.slots  # over partition columns alone: Spark's own answer stands
        if node.get("class") == AND and not evaluated:
            yield from _parts(node["children"], translator, reasons)
            continue
        try:
            yield translator.predicate(node)
        except BaseException as error:
            reasons.append(f"a condition could not be translated: {type(error).__name__}: {error}")


def local_etag(path: str) -> str | None:
    """Size, change time and inode of a local file: what changes with its content, whatever is set back."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return f"{found.st_size}-{found.st_ctime_ns}-{found.st_ino}"


def _packed(mask: Mask) -> str:
    return base64.b64encode(np.packbits(mask, bitorder="little").tobytes()).decode("ascii")
