"""Parsed statements, and the columns of their results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from geoskip.indexes.base import Index
from geoskip.statements.tokens import Span

_BUILT = (
    "index string, files bigint, rows bigint, bytes bigint, files_read bigint, metadata_bytes bigint, reader string, "
    "seconds double, snapshot bigint, remarks array<string>"
)
_STATES = "index string, state string"


@dataclass(frozen=True)
class StatementTarget:
    """Dataset of a statement: the parts of a table's name, or a path."""

    parts: tuple[str, ...] = ()
    path: str | None = None
    span: Span = field(default=Span(0, 0), repr=False, compare=False)

    def __str__(self) -> str:
        return repr(self.path) if self.path is not None else ".".join(self.parts)


@dataclass(frozen=True)
class IndexItem:
    """Index in a statement: its specification, or its text if it was given as text."""

    index: Index | None
    text: str
    span: Span = field(default=Span(0, 0), repr=False, compare=False)


@dataclass(frozen=True)
class SkippingStatement:
    """A statement; ``answer`` has the columns of its result in Spark's DDL, without NOT NULL."""

    answer: ClassVar[str]


@dataclass(frozen=True)
class TargetStatement(SkippingStatement):
    """A statement on the indexes of one dataset; ``options`` are those of :func:`geoskip.dataset`."""

    target: StatementTarget
    options: dict[str, Any] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True)
class CreateStatement(TargetStatement):
    """Build indexes; with ``if_not_exists`` only those that are not in use."""

    items: tuple[IndexItem, ...] = ()
    if_not_exists: bool = False
    answer: ClassVar[str] = _BUILT


@dataclass(frozen=True)
class RefreshStatement(TargetStatement):
    """Update the metadata to the current files."""

    mode: str = "incremental"
    answer: ClassVar[str] = _BUILT


@dataclass(frozen=True)
class RepairStatement(TargetStatement):
    """Rebuild metadata that are damaged or contradict the data."""

    answer: ClassVar[str] = _BUILT


@dataclass(frozen=True)
class OptimizeStatement(TargetStatement):
    """Merge the small parts that refreshes write."""

    answer: ClassVar[str] = "index string, snapshot bigint"


@dataclass(frozen=True)
class VacuumStatement(TargetStatement):
    """Remove deleted indexes and old snapshots for good."""

    retain: str = "7 days"
    answer: ClassVar[str] = "indexes array<string>, snapshots array<bigint>, leftovers bigint"


@dataclass(frozen=True)
class DropStatement(TargetStatement):
    """Take indexes out of use, by default all; with ``if_exists`` indexes not in use are ignored."""

    which: tuple[IndexItem, ...] = ()
    if_exists: bool = False
    answer: ClassVar[str] = _STATES


@dataclass(frozen=True)
class RestoreStatement(TargetStatement):
    """Take deleted indexes into use again, by default all."""

    which: tuple[IndexItem, ...] = ()
    answer: ClassVar[str] = _STATES


@dataclass(frozen=True)
class DescribeStatement(TargetStatement):
    """Show the indexes of a dataset."""

    answer: ClassVar[str] = (
        "index string, kind string, columns string, files_covered bigint, files_uncovered bigint, bytes bigint, "
        "built string, snapshot bigint, keeps string, state string, reader string"
    )


@dataclass(frozen=True)
class ShowStatement(SkippingStatement):
    """Show the indexes in use of all datasets that the driver has accessed, or of a database's tables."""

    database: tuple[str, ...] = ()
    answer: ClassVar[str] = "dataset string, index string, files bigint, snapshot bigint, built string"


@dataclass(frozen=True)
class ExplainStatement(SkippingStatement):
    """Show the files that a query would read, and why."""

    query: str
    span: Span = field(default=Span(0, 0), repr=False, compare=False)
    answer: ClassVar[str] = (
        "dataset string, files_read bigint, files_total bigint, bytes_read bigint, bytes_total bigint, "
        "condition string, skipped_by array<string>, reasons array<string>"
    )
