"""The ranges of an index's files after monotone steps, kept for the files that they were derived for.

What a literal of a query is part of is not kept: there is no end of such steps.
"""

from __future__ import annotations

from geoskip.clauses import Files
from geoskip.indexes.monotone import Step, apply
from geoskip.indexes.ordering import Incomparable, Keys
from geoskip.indexes.ranges import Range, bounds_of
from geoskip.indexes.texts import Bytes

__all__ = ["keys_of", "spans_of"]


def spans_of(files: Files, name: str, steps: tuple[Step, ...]) -> Range | Bytes | None:
    """The ranges after all steps; raises Incomparable where a step does not fit them."""
    spans = files.cached(_key(name, "range", ()), lambda: bounds_of(files, name))
    if not steps or spans is None:
        return spans
    if not isinstance(spans, Range):
        raise Incomparable(f"no step works on {name}")
    kept = next((at for at, step in enumerate(steps) if step.constant), len(steps))  # no literal of a query is kept
    plain = files.cached(_key(name, "range", steps[:kept]), lambda: apply(steps[:kept], spans))
    return apply(steps[kept:], plain)


def keys_of(files: Files, name: str, steps: tuple[Step, ...], spans: Range) -> Keys:
    """The keys of such ranges."""
    if any(step.constant for step in steps):
        return spans.keys()
    return files.cached(_key(name, "keys", steps), spans.keys)


def _key(name: str, what: str, steps: tuple[Step, ...]) -> tuple[str, ...]:
    return (name, what, *(step.key or step.text for step in steps))
