"""Reports of skipped files with reasons: text, a dict, HTML for a notebook or as a page.

A :class:`Scan` is one read of a file relation in a query's executed plan. Its totals count all files of the relation,
before Spark's own partition pruning; kept files are those that Spark read. Paths and clauses are computed on first
access.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from shapely.geometry.base import BaseGeometry

    from geoskip.clauses import Mask
    from geoskip.planner import Decision
    from geoskip.predicates import Predicate
    from geoskip.vertex_labels import VertexShare


_SUMS = ("files_total", "files_kept", "bytes_total", "bytes_kept")
_COUNTS = ("files_unindexed", "files_audited")


def _empty_tuple() -> tuple[Any, ...]:
    return ()


@dataclass(frozen=True)
class Scan:
    """One file relation that a query read."""

    dataset: str
    """The URI of the relation's root (the first of several)."""
    predicate: str
    """The condition on the files as SQL text; empty without a condition."""
    files_total: int
    files_kept: int
    bytes_total: int
    bytes_kept: int
    planning_seconds: float = 0.0
    """The time of the decision, without listing the files."""
    noted: tuple[str, ...] = ()
    """The reasons recorded when the files were chosen; :attr:`reasons` contains them and more."""
    paths: Callable[[bool], list[str]] = field(default=lambda kept: [], repr=False, compare=False)
    effects: Callable[[], tuple[tuple[str, int], ...]] = field(default=_empty_tuple, repr=False, compare=False)
    decisions: Callable[[], tuple[Decision, ...]] = field(default=_empty_tuple, repr=False, compare=False)
    written: Callable[[], tuple[Predicate, ...]] = field(default=_empty_tuple, repr=False, compare=False)
    """The conjuncts of the condition, with partition columns in place of the values used in the decisions."""
    among: Callable[[], tuple[Mask, ...]] = field(default=_empty_tuple, repr=False, compare=False)
    """The files of each decision's snapshot that the scan listed."""
    rows: Callable[[Sequence[str], int], list[tuple[Any, ...]]] = field(
        default=lambda expressions, most: [], repr=False, compare=False
    )
    """Reads the values of SQL expressions for the matching rows again, up to a number of rows."""
    files_unindexed: int = 0
    """Files read because they have no valid metadata: new, changed or left out of the build. They are counted if
    metadata were used, before Spark's own partition pruning. A change that the listing does not show is counted only if
    the file would have been skipped.
    """
    files_audited: int = 0
    """Skipped files that were read again after the query (``spark.geoskip.audit``), up to now."""
    lost: tuple[str, ...] = ()
    """Sentences on matching rows found in skipped files, which prove a mapping or an index wrong."""
    partitions: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """Columns with one value per file by which the table format prunes files; empty if Spark prunes by folders."""

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Sentences on unusable indexes, relations that were left alone, and conditions without an index.

        A part of the condition that no index supports is listed with the code that creates an index for it. A part that
        is supported but skips nothing is not listed: :func:`geoskip.why_not` shows all parts and all indexes.
        """
        from geoskip.diagnosis.unserved import unserved_reasons

        unserved = unserved_reasons(self.decisions(), self.noted, self.written(), self.partitions)
        return tuple(dict.fromkeys((*self.noted, *unserved)))

    @property
    def files_skipped(self) -> int:
        """Files of the relation that were not read."""
        return self.files_total - self.files_kept

    def kept_files(self) -> list[str]:
        """Full paths of the files that were read."""
        return self.paths(True)

    def skipped_files(self) -> list[str]:
        """Full paths of the files that were not read."""
        return self.paths(False)

    def clauses(self) -> tuple[tuple[str, int], ...]:
        """Each clause with the number of files that it alone would skip, out of ``files_total``."""
        return self.effects()

    def vertices(self) -> tuple[VertexShare, ...]:
        """The predicate as a tree with the number of files that each vertex alone would skip.

        There are several trees if partitions have different conditions, the one with the most files first.
        """
        from geoskip.vertex_labels import shares_of, sum_shares

        found = [
            shares_of(decision.labels(), partial(decision.skips, among=mask), int(mask.sum()))
            for decision, mask in zip(self.decisions(), self.among(), strict=False)
            if decision.labels is not None
        ]
        return tuple(sum_shares(found))

    @property
    def short_name(self) -> str:
        """The last two folders of the dataset."""
        return shorten("/".join(self.dataset.rstrip("/").split("/")[-2:]), 80)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The number of files without metadata and the reasons, or a remark if indexes apply but skip nothing."""
        if not self.files_unindexed:
            if self.reasons or self.files_kept < self.files_total or not self.clauses():
                return self.reasons
            return ("by the indexes that serve the condition, each file may hold a match: see geoskip.why_not()",)
        count = count_of(self.files_unindexed, "file")
        return (
            f"{count} without metadata, new, changed or left out: dataset.refresh_index() indexes what it can",
            *self.reasons,
        )

    def plot_map(
        self,
        ax: Axes | None = None,
        *,
        index: str | None = None,
        rows: int = 2000,
        extent: str | tuple[float, float, float, float] = "query",
        beneath: Sequence[BaseGeometry] | None = None,
    ) -> Axes:
        """Draw a map of the files' boxes, kept and skipped, with the query's shape and matching rows.

        Parameters
        ----------
        ax
            The axes to draw on; new ones by default.
        index
            The text of a GeoBox, if the dataset has several.
        rows
            The largest number of matching rows to draw, chosen at random. They are read from the kept files again; 0
            reads none.
        extent
            ``"query"`` for the region of the query, ``"all"`` for all boxes, or (west, south, east, north).
        beneath
            Polygons to draw beneath; by default, if coordinates are degrees, the borders of countries and of the states
            of the USA.

        Needs ``pip install 'geoskip[plot]'``. Raises InvalidSpecificationError if the scan has no GeoBox.
        """
        from geoskip.plotting import plot_map

        name = self.dataset.rstrip("/").rpartition("/")[2]
        return plot_map(
            self.decisions(), self.kept_files(), self.skipped_files(), self.rows,
            title=f"{name}: {self.files_kept:,} of {count_of(self.files_total, 'file')} kept",
            condition=elide(self.predicate), ax=ax, index=index, most_rows=rows, extent=extent, beneath=beneath,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return totals, reasons and clauses as a dict for JSON."""
        names = ("dataset", "predicate", *_SUMS, "planning_seconds", "reasons", *_COUNTS, "lost")
        plain = {name: list(value) if isinstance(value := getattr(self, name), tuple) else value for name in names}
        return {**plain, "clauses": [{"clause": text, "skips": count} for text, count in self.clauses()]}

    def __str__(self) -> str:
        planned = f"; planned in {1000 * self.planning_seconds:.1f} ms" if self.planning_seconds else ""
        lines = [f"{shorten(self.dataset, 78)}", f"  read {_share(self)}{planned}"]
        if self.predicate:
            lines.append(f"  where {shorten(elide(self.predicate), 110)}")
        skipping = [(text, count) for text, count in self.clauses() if count]
        lines += ["  files that each clause alone skips:"] if skipping else []
        lines += [f"  {count:>9,}  {shorten(text, 108)}" for text, count in skipping]
        lines += [f"  ROWS LOST: {shorten(text, 400)}" for text in self.lost]
        lines += [f"  - {shorten(reason, 400)}" for reason in self.sentences]
        return "\n".join(lines)

    __repr__ = __str__


@dataclass(frozen=True)
class Report:
    """The report of one query, with one entry per scan."""

    scans: tuple[Scan, ...]
    notes: tuple[str, ...] = ()
    """Sentences on data that the query read from other sources than files, and why geoskip does not apply."""
    context: Callable[[], Mapping[str, Any]] = field(default=dict, repr=False, compare=False)
    """Returns the text of the query (``sql``) or its ``plan``, and the ``settings`` of geoskip that were set."""

    @property
    def files_total(self) -> int:
        """Number of files of all relations, summed over the scans."""
        return sum(scan.files_total for scan in self.scans)

    @property
    def files_kept(self) -> int:
        """Number of files read, summed over the scans."""
        return sum(scan.files_kept for scan in self.scans)

    @property
    def bytes_total(self) -> int:
        """Bytes of all relations read."""
        return sum(scan.bytes_total for scan in self.scans)

    @property
    def bytes_kept(self) -> int:
        """Bytes of the files read."""
        return sum(scan.bytes_kept for scan in self.scans)

    @property
    def lost(self) -> tuple[str, ...]:
        """Lost rows that audits found, over all scans."""
        return tuple(dict.fromkeys(text for scan in self.scans for text in scan.lost))

    @property
    def reasons(self) -> tuple[str, ...]:
        """All reasons of all scans and the notes, without duplicates."""
        return tuple(dict.fromkeys([*(reason for scan in self.scans for reason in scan.reasons), *self.notes]))

    @property
    def query(self) -> str:
        """The SQL text of the query, else its plan; empty if neither is available any more."""
        found = self.context()
        return str(found.get("sql") or _without_ids(found.get("plan") or ""))

    @property
    def settings(self) -> dict[str, str]:
        """The settings of geoskip that were set when the query was planned, with their values."""
        return {str(name): str(value) for name, value in (self.context().get("settings") or {}).items()}

    def to_dict(self) -> dict[str, Any]:
        """Return sums and scans as a dict for JSON."""
        scans = [scan.to_dict() for scan in self.scans]
        return {**{name: getattr(self, name) for name in _SUMS}, "scans": scans, "notes": list(self.notes)}

    def __str__(self) -> str:
        notes = [f"  - {shorten(note, 400)}" for note in self.notes]
        if not self.scans:
            return "\n".join(["geoskip: the query reads no files", *notes])
        head = f"geoskip: read {_share(self)}"
        return "\n".join([head, *map(str, self.scans), *notes])

    __repr__ = __str__

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return an HTML page that needs no network: query, skipped files with reasons, map, layout.

        Parameters
        ----------
        path
            A file to write, in an existing folder. By default nothing is written.

        Returns the text of the page. Raises OSError if the file cannot be written.
        """
        from geoskip.report_page import page_of

        text = page_of(self)
        if path is not None:
            Path(path).write_text(text, "utf-8")
        return text

    def _repr_html_(self) -> str:
        from geoskip.report_page import short_form

        return short_form(self)


def _share(read: Report | Scan) -> str:
    """Format the files and bytes that were read, and their totals."""
    files = f"{read.files_kept:,} of {count_of(read.files_total, 'file')}"
    return f"{files}, {size_of(read.bytes_kept)} of {size_of(read.bytes_total)}"


def _without_ids(plan: str) -> str:
    """Return a plan of Spark without expression ids, cut after 60 lines.

    >>> _without_ids("Filter (temp#12L > 5)")
    'Filter (temp > 5)'
    """
    lines = re.sub(r"#\d+L?\b", "", plan).strip().splitlines()
    shown = [line if len(line) <= 400 else line[:399] + "…" for line in lines[:60]]
    return "\n".join([*shown, *(["…"] if len(lines) > 60 else [])])


_LONG = re.compile(r"(?<=\()\(*-?[\d.][-\d., ()eE]{30,}(?=\))|(?<=X')[0-9A-F]{30,}(?=')")


def elide(condition: str) -> str:
    """Return a condition without the coordinates and bytes of its polygons.

    >>> elide("ST_Contains(ST_GeomFromText('POLYGON ((1 1, 9.5 1, 9.5 9.5, 1 9.5, 1 1))'), p) AND a IN (1, 2)")
    "ST_Contains(ST_GeomFromText('POLYGON (…)'), p) AND a IN (1, 2)"
    """
    return _LONG.sub("…", condition)


def condense(condition: str, most: int = 110) -> str:
    """Return a condition on one line of at most ``most`` characters, without coordinates of polygons."""
    return shorten(elide(condition), most)


def shorten(text: str, most: int) -> str:
    """Return a text on one line, cut to ``most`` characters."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def unindexed_at_last(pending: Mapping[str, Any]) -> str:
    """Format a header's ``pending`` as a sentence, whatever its content.

    >>> unindexed_at_last({"files": 1}), unindexed_at_last({"files": 2})[:12]
    ('1 file was without metadata at the last quick refresh', '2 files were')
    """
    files = pending.get("files")
    count = "1 file was" if files == 1 else f"{files} files were"
    return f"{count} without metadata at the last quick refresh"


def join_names(names: Sequence[str]) -> str:
    """Join names for a sentence.

    >>> join_names(["a"]), join_names(["a", "b"]), join_names(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def count_of(number: int, noun: str) -> str:
    """Format a number with its noun.

    >>> count_of(1, "file"), count_of(2000, "row")
    ('1 file', '2,000 rows')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def size_of(count: int) -> str:
    """Format a number of bytes.

    >>> size_of(0), size_of(2048), size_of(5_300_000)
    ('0 B', '2.0 KiB', '5.1 MiB')
    """
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
