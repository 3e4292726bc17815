"""The operation log as a table: a row an operation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from geoskip.errors import MetadataError, MissingKeyError
from geoskip.lifecycle.log import UNTOLD, Log, is_dead, person_of
from geoskip.lifecycle.transaction import latest
from geoskip.lifecycle.verbs import CANCELLED, DONE
from geoskip.stores.base import Store

__all__ = ["HistoryRow", "history"]


@dataclass(frozen=True)
class HistoryRow:
    """One operation of the log.

    Attributes
    ----------
    state
        The final state, or ``running: ...`` or ``dead: ...`` while there is no last entry.
    base, snapshot
        Numbers of the latest snapshot when it began, and of the one that it committed.
    files_read, files_added, files_removed, files_kept
        Counts of files: read, indexed (new or changed), without metadata now, and with the metadata that they had.
    bytes
        Bytes of the data that were indexed.
    """

    operation: str
    verb: str
    state: str
    began: str
    seconds: float | None
    who: str
    base: int | None
    snapshot: int | None
    files_read: int | None
    files_added: int | None
    files_removed: int | None
    files_kept: int | None
    bytes: int | None
    parameters: str
    versions: str
    message: str


def history(store: Store) -> list[HistoryRow]:
    """The operations, oldest first; those without an entry in the log by their snapshots.

    Raises MissingKeyError where no operation can be read without a key, so that the result is not mistaken for none.
    """
    identity = store.identity()
    if identity is None:
        return []
    refused = None
    try:
        latest(store)  # its keys open older entries too
    except MissingKeyError as error:
        refused = error
    except MetadataError:
        pass
    log = Log(store, identity)
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in log.entries():
        groups.setdefault(str(entry.get("operation")), []).append(entry)
    if refused is not None and not groups:
        raise refused
    running = log.open()
    rows = {name: _row(name, entries, running) for name, entries in groups.items()}
    for row in _unlogged_rows(store, {row.snapshot for row in rows.values()}):
        logged = rows.get(row.operation)  # committed, and its last entry is missing
        rows[row.operation or str(row.snapshot)] = replace(logged, state=DONE, snapshot=row.snapshot) if logged else row
    return sorted(rows.values(), key=lambda row: row.began)


def _row(name: str, entries: list[dict[str, Any]], running: Mapping[str, Any]) -> HistoryRow:
    first, last = entries[0], entries[-1]
    state = str(last.get("state"))
    if name in running:
        state = f"{'dead' if name in UNTOLD or is_dead(running[name]) else 'running'}: {state}"
    files = last.get("files") or {}
    parameters = {
        **(first.get("parameters") or {}),
        **{k: last[k] for k in ("indexes", "parts", "snapshots", "after") if k in last},
        **{k: files[k] for k in ("left out",) if k in files},
    }
    by = last.get("closed by")
    by_whom = f"{'by' if state == CANCELLED else 'written down by'} {person_of(by)}" if by else ""
    why = ": ".join(str(last[k]) for k in ("error", "message") if last.get(k))
    return HistoryRow(
        operation=name,
        verb=str(first.get("verb")),
        state=state,
        began=str(first.get("when")),
        seconds=last.get("seconds"),
        who=person_of(first.get("who") or {}),
        base=first.get("base"),
        snapshot=last.get("snapshot"),
        files_read=files.get("read"),
        files_added=files.get("added"),
        files_removed=files.get("removed"),
        files_kept=files.get("kept"),
        bytes=last.get("bytes"),
        parameters=_comma_separated(parameters),
        versions=_comma_separated(first.get("versions") or {}),
        message=", ".join(text for text in (why, by_whom) if text),
    )


def _unlogged_rows(store: Store, logged: Iterable[int | None]) -> list[HistoryRow]:
    """Snapshots without an entry: older than the log, or of a writer that died right after its commit."""
    rows = []
    for number in set(store.snapshots()) - set(logged):
        with suppress(MetadataError):
            header = store.header(number)
            by = header.operation
            versions = {name: by[name] for name in ("geoskip", "pyspark", "engine") if name in by}
            verb, who = str(by.get("verb", "")), person_of(by)
            rest = (None, None, None, None, None, "", _comma_separated(versions), "as its snapshot tells")
            name = str(by.get("id", ""))
            rows.append(HistoryRow(name, verb, DONE, header.created, None, who, number - 1 or None, number, *rest))
    return rows


def _comma_separated(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value)}" for name, value in values.items()
    )
