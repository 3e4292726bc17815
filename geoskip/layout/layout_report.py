"""Reports on the layout of a dataset: clustering of each column, and files out of order.

Files are *in order* if their boxes over the layout's columns do not overlap, or if one write arranged them: the boxes
of consecutive pieces of a curve may overlap although the pieces do not. Spark puts a common id into the names of the
files of one write, and the metadata record the ids of writes that arranged their rows. Files of different partitions
(folders) never overlap.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.errors import InvalidSpecificationError
from geoskip.indexes.geobox.index import GeoBox
from geoskip.indexes.minmax import MinMax
from geoskip.layout.clustering import (
    SHARES,
    Clustering,
    FileRanges,
    box_ranges_of,
    clustering,
    group_numbers,
    overlapping_files,
    ranges_of,
)
from geoskip.rendering import align_rows, element, html_list, html_table, join_children, widths_of
from geoskip.report import count_of, size_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from geoskip.metadata import FileMetadata, Header

WRITES = "writes"
"""The member of a recorded layout that lists the ids of the writes that arranged their rows."""
OTHERS = "others"
"""The member of a recorded layout with other layouts of some partitions: the ids of their writes, by layout text."""
RECORDED_SIZE = "file_size"
"""The member of a recorded layout with the file size in bytes, the default of later rewrites."""
_OF_A_WRITE = re.compile(r"^part-\d+-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_PARTITIONS_SHOWN = 12


def write_of(path: str) -> str | None:
    """Return the id of the Spark write in a file's name; None for other names.

    >>> write_of("day=1/part-00003-0b6ea0d2-3c1c-4c4b-9d6a-8a3a5b2f1c11-c000.snappy.parquet")
    '0b6ea0d2-3c1c-4c4b-9d6a-8a3a5b2f1c11'
    """
    found = _OF_A_WRITE.match(path.rpartition("/")[2])
    return found[1] if found else None


def mean_size(sizes: Collection[int]) -> int:
    """Return the mean size of files in bytes, at least 1."""
    return max(1, sum(sizes) // max(1, len(sizes)))


def with_writes(layout: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """Add the ids of the writes of some files to the JSON of a layout."""
    arranged = {*layout.get(WRITES, ()), *(write_of(path) for path in paths)} - {None}
    return {**layout, WRITES: sorted(arranged)}


def writes_in(recorded: Mapping[str, Any], layout: str) -> list[str]:
    """Return the ids of the writes that used a layout: the recorded one, or one of some partitions.

    >>> recorded = {"kind": "sort", "expressions": ["a"], "writes": ["1"], "others": {"sort(b)": ["2"]}}
    >>> writes_in(recorded, "sort(a)"), writes_in(recorded, "sort(b)"), writes_in({}, "sort(b)")
    (['1'], ['2'], [])
    """
    of_others = recorded.get(OTHERS) or {}
    found = recorded.get(WRITES) if layout_name(recorded) == layout else of_others.get(layout)
    return list(found or ())


def partition_of(path: str) -> str:
    """Return the folder of a file's relative path; empty for a file in the dataset's root folder.

    >>> partition_of("day=1/hour=2/a.parquet"), partition_of("a.parquet")
    ('day=1/hour=2', '')
    """
    return path.rpartition("/")[0]


def out_of_order(ranges: Sequence[FileRanges], paths: Sequence[str], writes: Sequence[str]) -> np.ndarray[Any, Any]:
    """Mark the files that overlap others of their partition in all columns of a layout.

    Parameters
    ----------
    ranges : sequence of FileRanges
        The ranges of the files in each column; without ranges, all files of a partition overlap.
    paths : sequence of str
        The paths of the files.
    writes : sequence of str
        The ids of the writes that arranged their rows; files of one write do not overlap each other.
    """
    arranged = set(writes)
    of_write = [write_of(path) for path in paths]
    groups = group_numbers([each if each in arranged else None for each in of_write])
    folder = group_numbers([partition_of(path) for path in paths])
    ones = np.ones(len(paths))
    partition = FileRanges(folder, folder, np.arange(folder.max(initial=0) + 1, dtype=float), 1.0, ones)
    return overlapping_files([partition, *ranges], groups)


@dataclass(frozen=True)
class LayoutOverlap:
    """Counts of files that overlap others in the columns of the dataset's layout."""

    files: int
    overlapping: int
    columns: tuple[str, ...]
    """Columns of the layout with known bounds; fewer columns give more overlap."""
    unarranged: int = 0
    """Overlapping files that no recorded write arranged, such as appended ones."""

    @classmethod
    def of(
        cls, flags: np.ndarray[Any, Any], paths: Sequence[str], writes: Sequence[str], columns: Sequence[str]
    ) -> LayoutOverlap:
        """Count files that are out of order.

        Parameters
        ----------
        flags, paths
            The result of :func:`out_of_order`, and the paths of the files.
        writes
            The ids of the writes that arranged their rows.
        columns
            The columns with known bounds; without any, the flags are ignored.
        """
        found = [path for path, is_out in zip(paths, flags, strict=True) if is_out] if columns else []
        arranged = set(writes)
        return cls(len(paths), len(found), tuple(columns), sum(write_of(path) not in arranged for path in found))

    @property
    def share(self) -> float:
        """Share of the files that overlap, from 0 to 1."""
        return self.overlapping / self.files if self.files else 0.0

    def __str__(self) -> str:
        share = f"{self.overlapping:,} of {count_of(self.files, 'file')}"
        if not self.columns:
            return "no index has bounds of its columns, so the overlap is unknown: create MinMax, or GeoBox of shapes"
        if not self.overlapping:
            return f"{count_of(self.files, 'file')} in order"
        added = f", {self.unarranged:,} of them not arranged" if 0 < self.unarranged < self.overlapping else ""
        return f"{share} ({100 * self.share:.0f} %) overlap others{added}; rewrite() puts them in order"


def recorded_overlap(header: Header, files: FileMetadata) -> LayoutOverlap | None:
    """Return the overlap of files from the summaries of a snapshot; None without a recorded layout.

    Parameters
    ----------
    header : Header
        The header of the snapshot.
    files : FileMetadata
        Its files.
    """
    texts = header.layout.get("expressions")
    if not isinstance(texts, list) or not texts:
        return None
    known: dict[str, FileRanges] = {}
    for index in (entry.index for entry in header.entries):
        for text, ranges in stored_ranges(files, index).items():
            known.setdefault(text, ranges)
    columns = [name for text in texts for name in (text, f"{text} (x)", f"{text} (y)") if name in known]
    paths = files.column("path").to_pylist()
    if not columns:
        return LayoutOverlap(len(paths), 0, ())
    writes = header.layout.get(WRITES) or ()
    return LayoutOverlap.of(out_of_order([known[name] for name in columns], paths, writes), paths, writes, columns)


def layout_name(layout: Mapping[str, Any]) -> str:
    """Return a recorded layout as text; empty without one.

    >>> layout_name({"kind": "zorder", "expressions": ["lng", "lat"]})
    'zorder(lng, lat)'
    """
    return f"{layout.get('kind')}({', '.join(map(str, layout.get('expressions') or ()))})" if layout else ""


def stored_ranges(files: FileMetadata, index: object) -> dict[str, FileRanges]:
    """Return the ranges of an index with bounds, by text of the column; empty for other indexes."""
    if isinstance(index, MinMax):
        ranges = ranges_of(files, str(index))
        return {} if ranges is None else {index.expr: ranges}
    if isinstance(index, GeoBox):
        found = box_ranges_of(files, index)
        texts = index.expressions()
        names = texts if len(texts) == 2 else (f"{texts[0]} (x)", f"{texts[0]} (y)")
        return {} if found is None else dict(zip(names, found, strict=True))
    return {}


@dataclass(frozen=True)
class LayoutReport:
    """Clustering of some columns by the files of a dataset; ``print(report)`` shows it.

    Attributes
    ----------
    dataset : str
        The dataset.
    layout : str
        The recorded layout, such as ``zorder(lng, lat)``; empty without one.
    files, rows, bytes : int
        The files listed, their rows, and their size.
    columns : mapping
        The figures of each column, over all files.
    overlap : LayoutOverlap, optional
        The overlap of files in the layout's columns; None without a recorded layout.
    partitions : mapping
        The figures of each column within each partition, by the partition's folder; empty without partitions.
    notes : tuple of str
        Columns without figures, with the reason.
    """

    dataset: str
    layout: str
    files: int
    rows: int
    bytes: int
    columns: Mapping[str, Clustering]
    overlap: LayoutOverlap | None = None
    partitions: Mapping[str, Mapping[str, Clustering]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    ranges: Mapping[str, FileRanges] = field(default_factory=dict, repr=False, compare=False)
    out_of_order: np.ndarray[Any, Any] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls, dataset: str, layout: str, table: pa.Table, ranges: Mapping[str, FileRanges], **more: Any
    ) -> LayoutReport:
        """Report on files by their ranges.

        Parameters
        ----------
        dataset, layout
            The dataset and the recorded layout, as texts.
        table
            The columns ``path``, ``size`` and ``rows`` of the files.
        ranges
            The ranges of the same files by column.
        **more
            ``overlap``, ``notes`` and ``out_of_order``.
        """
        folders = np.array([partition_of(path) for path in table["path"].to_pylist()], dtype=object)
        names = sorted(set(folders)) if len(set(folders)) > 1 else []
        within = {
            folder: {name: clustering(each.take(folders == folder)) for name, each in ranges.items()}
            for folder in names
        }  # fmt: skip
        return cls(
            dataset, layout, len(table), pc.sum(table["rows"]).as_py() or 0, pc.sum(table["size"]).as_py() or 0,
            {name: clustering(each) for name, each in ranges.items()},
            partitions=within, ranges=ranges, **more,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dict for JSON; ``files_read`` by share of the rows, 0 for a point."""

        def figures(columns: Mapping[str, Clustering]) -> dict[str, Any]:
            return {
                name: {
                    "files": each.files,
                    "empty": each.empty,
                    "overlap": each.overlap,
                    "deepest": each.deepest,
                    "files_read": dict(zip(map(str, SHARES), each.files_read, strict=True)),
                    "ideal": dict(zip(map(str, SHARES), each.ideal(), strict=True)),
                }
                for name, each in columns.items()
            }

        found = None if self.overlap is None else {
            "files": self.overlap.files, "overlapping": self.overlap.overlapping, "share": self.overlap.share,
            "unarranged": self.overlap.unarranged,
            "columns": list(self.overlap.columns),
        }  # fmt: skip
        return {
            "dataset": self.dataset,
            "layout": self.layout,
            "files": self.files,
            "rows": self.rows,
            "bytes": self.bytes,
            "overlap": found,
            "columns": figures(self.columns),
            "partitions": {folder: figures(columns) for folder, columns in self.partitions.items()},
            "notes": list(self.notes),
        }

    def _head(self) -> str:
        size = f"{count_of(self.files, 'file')}, {count_of(self.rows, 'row')}, {size_of(self.bytes)}"
        return f"{self.dataset}: {size}"

    def _lines(self) -> list[str]:
        """Sentences below the table."""
        found = [] if self.overlap is None else [f"layout {self.layout}: {self.overlap}"]
        shown = list(self.partitions.items())[:_PARTITIONS_SHOWN]
        for folder, columns in shown:
            points = ", ".join(f"{name} {_number(each.files_read[0])}" for name, each in columns.items())
            count = max((each.files for each in columns.values()), default=0)
            found.append(f"{folder or 'no partition'}: {count_of(count, 'file')}; a point reads {points}")
        if len(self.partitions) > len(shown):
            found.append(f"and {count_of(len(self.partitions) - len(shown), 'more partition')}")
        return [*found, *self.notes]

    def __str__(self) -> str:
        cells = [_HEADS, *self._cells()]
        widths = widths_of(cells)
        head, *rows = align_rows(cells, _SIDES)
        rule = "  ".join("─" * width for width in widths)
        above = f"{'':{sum(widths[:3]) + 6}}files read of a point, or of a range with"
        return "\n".join([self._head(), above, head, rule, *rows, *(f"- {line}" for line in self._lines())])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        table = html_table(_HEADS, self._cells(), _SIDES)
        return join_children([element("p", self._head()), table, html_list(self._lines())])

    def _cells(self) -> list[tuple[str, ...]]:
        found = [
            (name, _number(each.overlap), f"{each.deepest:,}", *map(_number, each.files_read))
            for name, each in self.columns.items()
        ]
        most = max(self.columns.values(), key=lambda each: each.files - each.empty, default=None)
        return [*found, ("ideal", "0", "1", *map(_number, most.ideal()))] if most is not None else found

    def plot(self, *columns: str, ax: Axes | None = None) -> Axes:
        """Draw the files as spans of one column, or as boxes over two.

        Files that overlap others of the recorded layout are orange, the others blue.

        Parameters
        ----------
        *columns
            One or two columns of the report; by default the first two.
        ax
            The axes to draw on; new ones by default.

        Needs ``pip install 'geoskip[plot]'``. Raises InvalidSpecificationError for other columns.
        """
        from geoskip.plotting.file_spans import plot_spans

        names = columns or tuple(self.ranges)[:2]
        if not 1 <= len(names) <= 2 or any(name not in self.ranges for name in names):
            raise InvalidSpecificationError(
                f"plot() takes one or two of the report's columns, {', '.join(self.ranges) or 'of which it has none'}, "
                f"got {', '.join(map(str, names)) or 'none'}"
            )
        title = f"{self.dataset.rstrip('/').rpartition('/')[2]}: {count_of(self.files, 'file')}"
        title += f", {self.layout}" if self.layout else ""
        drawn = {name: self.ranges[name] for name in names}
        return plot_spans(drawn, self.out_of_order, title=title, ax=ax)


_HEADS = ("column", "overlap", "deepest", "point", *(f"{100 * share:g} %" for share in SHARES[1:]))
_SIDES = "l" + "r" * (len(_HEADS) - 1)


def _number(value: float) -> str:
    """Format a figure with three significant digits.

    >>> _number(1.0), _number(17.234), _number(256.4), _number(0.0)
    ('1.00', '17.2', '256', '0')
    """
    return "0" if value == 0 else f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"
