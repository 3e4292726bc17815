"""The result of :func:`geoskip.why_not`: a table for each scan as text, dict and HTML."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from geoskip.diagnosis.file_verdict import FileVerdict, matching_file, verdict_on
from geoskip.diagnosis.index_effects import IndexEffect, effects_of
from geoskip.diagnosis.unserved import unserved_reasons
from geoskip.errors import InvalidSpecificationError
from geoskip.rendering import Markup, element, html_list, html_table, join_children
from geoskip.report import Report, Scan, condense, count_of

__all__ = ["ScanExplanation", "WhyNot", "why_not_of"]

_WIDTH = 116


@dataclass(frozen=True)
class ScanExplanation:
    """The parts of one scan's condition with the indexes, and the verdict on a file.

    Attributes
    ----------
    dataset, predicate
        The URI of the scan's root, and its condition.
    files_total, files_kept
        The scan's files, and those that it reads.
    rows
        A row for each part of the condition and each index.
    notes
        Sentences on the scan as a whole: why no index was used, which metadata could not be used.
    file
        The verdict on the requested file; None without one, and if this scan does not list the file.
    """

    dataset: str
    predicate: str
    files_total: int
    files_kept: int
    rows: tuple[IndexEffect, ...] = ()
    notes: tuple[str, ...] = ()
    file: FileVerdict | None = field(default=None)

    def to_dict(self) -> dict[str, Any]:
        """The totals, rows, notes and verdict, ready for JSON."""
        names = ("dataset", "predicate", "files_total", "files_kept")
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        found["rows"] = [row.to_dict() for row in self.rows]
        return {**found, "notes": list(self.notes), "file": None if self.file is None else self.file.to_dict()}

    def __str__(self) -> str:
        lines = [self.dataset, f"  read {self.files_kept:,} of {count_of(self.files_total, 'file')}"]
        if self.predicate:
            lines.append(f"  where {condense(self.predicate, 106)}")
        if self.rows:
            lines += _table(_HEAD, list(_cells(self.rows)))
        lines += [line for note in self.notes for line in textwrap.wrap(f"- {note}", _WIDTH - 4)]
        if self.file is not None:
            lines += _file_lines(self.file)
        return "\n".join(line if line.startswith("  ") or line == self.dataset else f"  {line}" for line in lines)

    __repr__ = __str__


@dataclass(frozen=True)
class WhyNot:
    """Explanation of what a query reads: each part of its conditions and each index, scan by scan."""

    scans: tuple[ScanExplanation, ...]
    notes: tuple[str, ...] = ()
    """Sentences on inputs of the query other than file relations."""

    @property
    def rows(self) -> tuple[IndexEffect, ...]:
        """The rows of all scans."""
        return tuple(row for scan in self.scans for row in scan.rows)

    @property
    def suggestions(self) -> tuple[str, ...]:
        """The indexes to create, as code, each once."""
        return tuple(dict.fromkeys(row.suggestion for row in self.rows if row.suggestion))

    def to_dict(self) -> dict[str, Any]:
        """Return the scans and notes as a dict for JSON."""
        return {"scans": [scan.to_dict() for scan in self.scans], "notes": list(self.notes)}

    def __str__(self) -> str:
        if not self.scans:
            return "\n".join(["geoskip: the query reads no files", *(f"  - {note}" for note in self.notes)])
        return "\n".join([*map(str, self.scans), *(f"  - {note}" for note in self.notes)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        sections = map(_section, self.scans) if self.scans else [element("p", "geoskip: the query reads no files")]
        return join_children([*sections, html_list(self.notes)])


def why_not_of(report: Report, file: str | None = None) -> WhyNot:
    """Return the explanation of a report, with the verdict on a file.

    Parameters
    ----------
    report
        The report of a query.
    file
        The path of a file, its name, or a part of the path.

    Raises
    ------
    InvalidSpecificationError
        If the query has no such file, or several.
    """
    if file is not None and (not isinstance(file, str) or not file):
        raise InvalidSpecificationError(f"why_not(file=) takes a path or a file's name as text, got {file!r}")
    path = None if file is None else matching_file(report.scans, file)
    return WhyNot(tuple(_explain_scan(scan, path) for scan in report.scans), report.notes)


def _explain_scan(scan: Scan, path: str | None) -> ScanExplanation:
    rows = effects_of(scan)
    unused = tuple(f"{row.index} is " for row in rows if not row.part)
    unserved = set(unserved_reasons(scan.decisions(), scan.noted, scan.written(), scan.partitions))
    notes = tuple(text for text in scan.reasons if text not in unserved and not text.startswith(unused))
    verdict = None if path is None else verdict_on(scan, path)
    return ScanExplanation(scan.dataset, scan.predicate, scan.files_total, scan.files_kept, rows, notes, verdict)


_HEAD = ("part of the condition", "index", "skips", "why, and what would help")


def _cells(rows: Sequence[IndexEffect]) -> Iterator[tuple[str, ...]]:
    """The cells of a table's rows; a part is shown only in the first of its rows."""
    before = None
    for row in rows:
        why = f"{row.reason}: create {row.suggestion}" if row.suggestion else row.reason
        part = "" if row.part == before else condense(row.part, 60) or "-"
        yield part, condense(row.index, 60) or "-", f"{row.skips:,}" if row.used else "-", why
        before = row.part


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table with wrapped columns."""
    most = (34, 26, 7)
    widths = [min(limit, max(len(row[n]) for row in (head, *rows))) for n, limit in enumerate(most)]
    widths.append(_WIDTH - 2 - sum(widths) - 2 * len(widths))
    for row in (head, *rows):
        cells = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)]
        for n in range(max(map(len, cells))):
            parts = [(cell[n] if n < len(cell) else "").ljust(width) for cell, width in zip(cells, widths, strict=True)]
            yield "  " + "  ".join(parts).rstrip()


def _file_lines(file: FileVerdict) -> Iterator[str]:
    yield f"{file.path} is {'read' if file.kept else 'not read'}: {file.reason}"
    for verdict in file.clauses:
        yield from textwrap.wrap(
            f"{'keeps' if verdict.keeps else 'skips'}  {verdict}",
            _WIDTH - 4,
            initial_indent="    ",
            subsequent_indent=" " * 11,
        )


def _section(scan: ScanExplanation) -> Markup:
    """The HTML of one scan."""
    folder = "/".join(scan.dataset.rstrip("/").split("/")[-2:])
    where = [element("br"), f"where {condense(scan.predicate, 240)}"] if scan.predicate else None
    reads = f" reads {scan.files_kept:,} of {count_of(scan.files_total, 'file')}"
    title = element("p", element("b", "geoskip"), ": ", element("code", folder), reads, where)
    cells = [
        (*shown[:3], [row.reason, [element("br"), element("code", row.suggestion)] if row.suggestion else None])
        for row, shown in zip(scan.rows, _cells(scan.rows), strict=True)
    ]
    table = html_table(_HEAD, cells) if cells else None
    return join_children([title, table, html_list(scan.notes), None if scan.file is None else _html_file(scan.file)])


def _html_file(file: FileVerdict) -> Markup:
    words = "read" if file.kept else "not read"
    title = element("p", element("code", file.path), f" is {words}: {file.reason}")
    rows = [(c.part, c.clause or "-", "keeps" if c.keeps else element("b", "skips"), c.stored) for c in file.clauses]
    return join_children([title, html_table(("part", "clause", "the file", "stored"), rows) if rows else None])
