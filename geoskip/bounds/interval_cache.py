"""The ranges of an index's files after monotone steps, kept for the files that they were derived for.

What a literal of a query is part of is not kept: there is no end of such steps.
"""

from __future__ import annotations

from geoskip.bounds.interval import Interval, bounds_of
from geoskip.bounds.sort_keys import IncomparableError, SortKeys
from geoskip.bounds.strings import ByteStrings
from geoskip.bounds.transfer import TransferStep, apply
from geoskip.clauses import Files

__all__ = ["keys_of", "spans_of"]


def spans_of(files: Files, name: str, steps: tuple[TransferStep, ...]) -> Interval | ByteStrings | None:
    """The ranges after all steps; raises Incomparable where a step does not fit them."""
    spans = files.cached(_key(name, "range", ()), lambda: bounds_of(files, name))
    if not steps or spans is None:
        return spans
    if not isinstance(spans, Interval):
        raise IncomparableError(f"no step works on {name}")
    kept = next((at for at, step in enumerate(steps) if step.constant), len(steps))  # no literal of a query is kept
    plain = files.cached(_key(name, "range", steps[:kept]), lambda: apply(steps[:kept], spans))
    return apply(steps[kept:], plain)


def keys_of(files: Files, name: str, steps: tuple[TransferStep, ...], spans: Interval) -> SortKeys:
    """The keys of such ranges."""
    if any(step.constant for step in steps):
        return spans.keys()
    return files.cached(_key(name, "keys", steps), spans.keys)


def _key(name: str, what: str, steps: tuple[TransferStep, ...]) -> tuple[str, ...]:
    return (name, what, *(step.key or step.text for step in steps))
