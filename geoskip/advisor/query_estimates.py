"""Estimates of the files that queries would read, as text and as a dict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from geoskip.advisor.estimates import Estimate, total
from geoskip.rendering import align_rows, element, html_list, html_table, join_children
from geoskip.report import count_of, shorten, size_of

_LONGEST = 60
_FEW = 10
"""With fewer sampled files, intervals are so wide that a larger sample is advised."""


@dataclass(frozen=True)
class QueryEstimate:
    """One query: the files and bytes of the dataset that it reads now, and those that it would read.

    Attributes
    ----------
    query
        The text of the query, or the condition of a DataFrame.
    files_now, bytes_now
        Known exactly; a file that the query scans twice counts twice.
    files, bytes
        Estimates; the interval of bytes follows from that of files.
    count
        The number of times that the query was recorded; 1 for a query given by the caller.
    reasons
        Sentences on what could not be used.
    """

    query: str
    files_now: int
    bytes_now: int
    files: Estimate
    bytes: Estimate
    count: int = 1
    reasons: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        return {
            "query": self.query,
            "count": self.count,
            "files_now": self.files_now,
            "bytes_now": self.bytes_now,
            "files": self.files.to_dict(),
            "bytes": self.bytes.to_dict(),
            "reasons": list(self.reasons),
        }


@dataclass(frozen=True)
class WhatIf:
    """Estimates of what queries would read with other indexes or another layout; ``print`` shows it.

    Attributes
    ----------
    dataset
        The path or table.
    indexes, layout
        The texts of the proposed indexes, and of the proposed layout or None.
    queries
        The queries that read the dataset.
    files, bytes
        Current files and bytes of the dataset.
    files_after
        Number of files in the proposed layout; without one, the current number.
    bytes_after
        Their estimated bytes.
    sampled
        Description of the sample.
    confidence
        The probability that an interval contains the true value.
    metadata_bytes
        Estimated size of each proposed index in bytes.
    build_seconds
        Estimated seconds for building the proposed indexes, without writing a layout.
    sample_seconds
        Seconds for reading the sample.
    untouched
        Queries that read no file of the dataset.
    notes
        Remarks on the estimates.
    """

    dataset: str
    indexes: tuple[str, ...]
    layout: str | None
    queries: tuple[QueryEstimate, ...]
    files: int
    bytes: int
    files_after: int
    sampled: str
    bytes_after: int = 0
    confidence: float = 0.9
    metadata_bytes: Mapping[str, int] = field(default_factory=dict)
    build_seconds: float = 0.0
    sample_seconds: float = 0.0
    untouched: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def files_now(self) -> int:
        """Files that all queries read now, each query weighted by its count."""
        return sum(query.count * query.files_now for query in self.queries)

    @property
    def bytes_now(self) -> int:
        """Bytes that all queries read now, each query weighted by its count."""
        return sum(query.count * query.bytes_now for query in self.queries)

    @property
    def files_then(self) -> Estimate:
        """Files that all queries would read; the interval is the (conservative) sum of their intervals."""
        return total(query.files * query.count for query in self.queries)

    @property
    def bytes_then(self) -> Estimate:
        """Bytes that all queries would read."""
        return total(query.bytes * query.count for query in self.queries)

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as a dict for JSON."""
        return {
            "dataset": self.dataset,
            "indexes": list(self.indexes),
            "layout": self.layout,
            "files": self.files,
            "bytes": self.bytes,
            "files_after": self.files_after,
            "bytes_after": self.bytes_after,
            "sampled": self.sampled,
            "confidence": self.confidence,
            "files_now": self.files_now,
            "bytes_now": self.bytes_now,
            "files_then": self.files_then.to_dict(),
            "bytes_then": self.bytes_then.to_dict(),
            "metadata_bytes": dict(self.metadata_bytes),
            "build_seconds": self.build_seconds,
            "sample_seconds": self.sample_seconds,
            "queries": [query.to_dict() for query in self.queries],
            "untouched": list(self.untouched),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = [self._title(), *(f"  {line}" for line in self._remarks()[:1])]
        for number, line in enumerate(align_rows([_HEAD, *self._rows()], "lrrrr")):
            lines.append(f"  {line}")
            lines += [f"    - {reason}" for reason in self._reasons(number - 1)]
        lines += [f"  {line}" for line in self._remarks()[1:]]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [
            ([element("code", name), *(element("div", element("i", why)) for why in self._reasons(number))], *cells)
            for number, (name, *cells) in enumerate(self._rows())
        ]
        title = element("p", element("b", "geoskip"), f": {self._title()}")
        return join_children([title, html_table(_HEAD, rows), html_list(self._remarks())])

    def _title(self) -> str:
        proposed = [*self.indexes, *([f"the layout {self.layout}"] if self.layout else [])]
        folder = self.dataset.rstrip("/").rpartition("/")[2] if not self.dataset.startswith("[") else self.dataset
        return f"what if {folder} had {', '.join(proposed)}"

    def _rows(self) -> list[tuple[str, ...]]:
        """One row per query, and the sums of several."""
        rows = [
            _row(_label(query), query.files_now, query.files, query.bytes_now, query.bytes) for query in self.queries
        ]
        if len(rows) > 1:
            rows.append(_row("all of them", self.files_now, self.files_then, self.bytes_now, self.bytes_then))
        return rows

    def _reasons(self, number: int) -> Sequence[str]:
        return self.queries[number].reasons if 0 <= number < len(self.queries) else ()

    def _remarks(self) -> list[str]:
        """Sentences around the table: on the sample, then on costs and omissions."""
        interval = f"in parentheses the interval that holds the truth with a probability of {self.confidence:.0%}"
        lines = [f"{self.sampled} in {_seconds(self.sample_seconds)}; {interval}"]
        if self.indexes:
            each = ", ".join(f"{name} {size_of(size)}" for name, size in self.metadata_bytes.items())
            stored = size_of(sum(self.metadata_bytes.values()))
            lines.append(f"stored: about {stored} of metadata ({each}), built in about {_seconds(self.build_seconds)}")
        if self.layout:
            lines.append(f"written: {count_of(self.files_after, 'file')} of about {size_of(self.bytes_after)} together")
        lines += [f"it does not read this dataset: {shorten(text, _LONGEST)}" for text in self.untouched]
        return [*lines, *self.notes]


_HEAD = ("query", "files now", "then", "bytes now", "then")


def _row(name: str, files_now: int, files: Estimate, bytes_now: int, size: Estimate) -> tuple[str, ...]:
    shown = size.text(lambda number: size_of(round(number)))
    return (name, f"{files_now:,}", str(files), size_of(bytes_now), shown)


def _seconds(time: float) -> str:
    return f"{time:.1f} s" if time >= 1 else f"{1000 * time:.0f} ms"


def _label(query: QueryEstimate) -> str:
    return shorten(query.query, _LONGEST) + (f" ({query.count:,} times)" if query.count > 1 else "")


def wide_intervals(sampled: int, files: int) -> str | None:
    """Return the advice to sample more if the sample is too small for narrow intervals; else None."""
    if sampled >= min(_FEW, files):
        return None
    more = f"sample={_FEW / files:.2g} or more narrows them" if files > _FEW else "sample=1 gives exact numbers"
    return f"the intervals are wide with {count_of(sampled, 'sampled file')} of {files:,}: {more}"
