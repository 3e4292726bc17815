"""The runtime audit: some of the files that a query skipped are read again, after it, with its own conditions.

``spark.geoskip.audit`` is the share of them, 0 by default. The JVM's side reads (``jvm/Audit.java``), in a thread of
its own and unseen by listeners; a row that satisfies the conditions in a file that was skipped, and has not changed
since, was lost. Here it is found out which mapping, declaration or index skipped the file. That is put in quarantine
(:class:`geoskip.registry.Registry`), said in the log, and said in the reports of the query.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from geoskip.planner import Decision
from geoskip.registry import current
from geoskip.rules import name_of

__all__ = ["lost_rows"]

_LOG = logging.getLogger("geoskip")


def lost_rows(decisions: Sequence[Decision], roots: Sequence[str], lost: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence on each file that was skipped wrongly; raises the alarm and puts in quarantine what skipped it."""
    return [_lost(decisions, roots, found["file"], found["rows"]) for found in lost]


def _lost(decisions: Sequence[Decision], roots: Sequence[str], file: str, rows: int) -> str:
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
    said = f"{file} was skipped {by}; {count} of it match"
    _LOG.warning("geoskip LOST ROWS: %s. Try geoskip.check_mapping on the function, and report it.", said)
    return " ".join(said.split())


def _number_of(file: str, root: str, decision: Decision) -> int | None:
    """A file's number in a decision's snapshot."""
    files = decision.snapshot.files
    names: dict[str, int] = files.cached(
        "numbers", lambda: {name: number for number, name in enumerate(files.column("path").to_pylist())}
    )
    return names.get(file, names.get(file.removeprefix(root.rstrip("/") + "/")))
