"""Advice on indexes to build: a text table, a dict, HTML, and the Python code that builds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import Any

from geoskip.advisor.query_estimates import WhatIf
from geoskip.errors import InvalidSpecificationError
from geoskip.indexes.base import Index
from geoskip.layout.specification import Layout
from geoskip.rendering import align_rows, element, html_list, html_table, join_children
from geoskip.report import count_of, shorten, size_of

__all__ = ["Advice", "AdvisedIndex", "AdvisedLayout", "SuperfluousIndex", "item_of", "python_of"]

_LONGEST = 70
_QUERIES_SHOWN = 20


@dataclass(frozen=True)
class AdvisedIndex:
    """An index to build, with its estimated savings for one run of all queries, and its costs.

    Attributes
    ----------
    index
        The specification.
    files, bytes
        Files and bytes that this index saves in addition to the existing ones, weighted by the number of runs.
    adds_files, adds_bytes
        Files and bytes that would be read again if only this index were left out of the advice. For indexes that skip
        only together, such as those for both sides of an OR, each has the savings of all.
    metadata_bytes
        Size of its metadata in bytes.
    queries
        Numbers, from 1, of the queries for which it skips files, alone or with other indexes.
    """

    index: Index
    files: int
    bytes: int
    adds_files: int
    adds_bytes: int
    metadata_bytes: int
    queries: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        names = ("files", "bytes", "adds_files", "adds_bytes", "metadata_bytes")
        numbers = {name: getattr(self, name) for name in names}
        return {"index": str(self.index), "python": python_of(self.index), **numbers, "queries": list(self.queries)}


@dataclass(frozen=True)
class SuperfluousIndex:
    """An existing index that saves nothing in addition to the other indexes, with its stored bytes."""

    name: str
    bytes: int

    @property
    def call(self) -> str:
        """The call that drops the index."""
        return f"dataset.delete_index({self.name!r})"


@dataclass(frozen=True)
class AdvisedLayout:
    """A layout in which the queries would read less, with the advised and the existing indexes.

    Attributes
    ----------
    layout
        The layout.
    estimate
        Estimates of what the queries would read from the rewritten dataset.
    indexes
        The indexes to build in it.
    existing
        Names of the existing indexes that skip files in it.
    """

    layout: Layout
    estimate: WhatIf
    indexes: tuple[Index, ...] = ()
    existing: tuple[str, ...] = ()

    @property
    def python(self) -> str:
        """Python code that creates the layout."""
        return f"{type(self.layout).__name__}({', '.join(map(repr, self.layout.expressions))})"

    @property
    def code(self) -> str:
        """Python code that rewrites the dataset with its indexes, and prints the new folder."""
        names = sorted({type(each).__name__ for each in (*self.indexes, self.layout)})
        each = ", ".join(map(python_of, self.indexes))
        built = f"dataset.create_index({each})\n" if each else ""
        rewritten = f"print(dataset.rewrite(layout={self.python}, files={self.estimate.files_after}))"
        return f"from geoskip import {', '.join(names)}\n{built}{rewritten}"


@dataclass(frozen=True)
class Advice:
    """Indexes recommended for some queries; ``print`` shows them, :meth:`apply` builds them.

    Attributes
    ----------
    dataset
        The path or table.
    handle
        Python code that creates a handle of the dataset.
    indexes
        The indexes to build, in decreasing order of savings.
    estimate
        Estimates of what the queries read now and with these indexes.
    layout
        A layout that would save more; None without one, or if it was not requested.
    superfluous
        Existing indexes that save these queries nothing beside the other and the advised ones, also in the advised
        layout.
    unserved
        Queries for which no index skips a file, each with the reason.
    budget
        The largest total size of the new indexes in bytes.
    candidates
        The number of indexes that were evaluated on the sample.
    notes
        Remarks on omissions.
    queries
        The texts of the queries by number; for queries recorded by the session, their conditions.
    """

    dataset: str
    handle: str
    indexes: tuple[AdvisedIndex, ...]
    estimate: WhatIf
    layout: AdvisedLayout | None = None
    superfluous: tuple[SuperfluousIndex, ...] = ()
    unserved: tuple[tuple[str, str], ...] = ()
    budget: int = 0
    candidates: int = 0
    notes: tuple[str, ...] = ()
    queries: Mapping[int, str] = field(default_factory=dict)
    build: Callable[[], Any] = field(default=lambda: None, repr=False, compare=False)
    rewrite: Callable[[], Any] = field(default=lambda: None, repr=False, compare=False)

    @property
    def metadata_bytes(self) -> int:
        """Total size of the advised indexes in bytes."""
        return sum(each.metadata_bytes for each in self.indexes)

    @property
    def code(self) -> str:
        """Python code that builds the advised indexes; superfluous indexes are mentioned in a comment."""
        names = {type(each.index).__name__ for each in self.indexes}
        lines = ["import geoskip", *([f"from geoskip import {', '.join(sorted(names))}"] if names else []), ""]
        lines.append(f"dataset = {self.handle}")
        if self.indexes:
            lines += ["dataset.create_index(", *(f"    {python_of(each.index)}," for each in self.indexes), ")"]
        lines += [f"# saves nothing beside the others: {each.call}" for each in self.superfluous]
        if self.layout:
            lines += ["# or, in a better layout:", *(f"# {line}" for line in self.layout.code.splitlines())]
        return "\n".join(lines)

    def apply(self, *, layout: bool = False) -> Any:
        """Build the advised indexes, and return the report of the build; None if no index is advised.

        Sizes are estimated before. If the built indexes exceed the budget, some are taken out of use, with a warning.
        With ``layout``, rewrite the data in the advised layout, as ``Dataset.rewrite`` does, with the indexes
        for that layout; the report of the rewrite names the new folder. Indexes that the advice does not name are never
        deleted. Raises InvalidSpecificationError for ``layout=True`` if no layout is advised.
        """
        if not isinstance(layout, bool):
            raise InvalidSpecificationError(
                f"apply(layout=) takes True, for the advised layout, or False, got {layout!r}: "
                "dataset.rewrite(layout) rewrites the data in another one"
            )
        if layout and not self.layout:
            raise InvalidSpecificationError(
                f"apply(layout=True) needs a layout that would save more, and none is advised for {self.dataset}; "
                "apply() builds the indexes"
            )
        if layout:
            return self.rewrite()
        return self.build() if self.indexes else None

    def to_dict(self) -> dict[str, Any]:
        """Return the advice as a dict for JSON."""
        layout: dict[str, Any] | None = None
        if self.layout:
            read = self.layout.estimate.to_dict()
            layout = {"python": self.layout.python, "code": self.layout.code, "estimate": read}
        return {
            "dataset": self.dataset,
            "budget": self.budget,
            "metadata_bytes": self.metadata_bytes,
            "indexes": [each.to_dict() for each in self.indexes],
            "layout": layout,
            "superfluous": [
                {"index": each.name, "bytes": each.bytes, "python": each.call} for each in self.superfluous
            ],
            "unserved": [{"query": query, "reason": reason} for query, reason in self.unserved],
            "estimate": self.estimate.to_dict(),
            "candidates": self.candidates,
            "code": self.code,
            "notes": list(self.notes),
            "queries": {str(number): text for number, text in self.queries.items()},
        }

    def __str__(self) -> str:
        lines = [self._title()]
        if self.indexes:
            lines += [f"  {line}" for line in align_rows([_HEAD, *self._rows()], "lrrrrl")]
        lines += [f"  {line}" for line in (*self._remarks(), *self._queries())]
        return "\n".join([*lines, "", *self.code.splitlines()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        title = element("p", element("b", "geoskip"), f": {self._title()}")
        table = html_table(_HEAD, self._rows()) if self.indexes else None
        remarks = html_list((*self._remarks(), *self._queries()))
        return join_children([title, table, remarks, element("pre", self.code)])

    def _title(self) -> str:
        asked = count_of(len(self.estimate.queries), "query").replace("querys", "queries")
        if not self.indexes:
            return f"nothing to build for {asked} over {self.dataset}"
        return f"advice for {asked} over {self.dataset}"

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for each in self.indexes:
            yield (
                shorten(python_of(each.index), _LONGEST),
                f"{each.files:,}",
                size_of(each.bytes),
                size_of(each.adds_bytes),
                size_of(each.metadata_bytes),
                _ranges(each.queries),
            )

    def _remarks(self) -> Iterator[str]:
        """Sentences below the table."""
        read = self.estimate
        now = f"{count_of(read.files_now, 'file')} and {size_of(read.bytes_now)}"
        then = read.bytes_then.text(lambda number: size_of(round(number)))
        of = f"estimated from {read.sampled}, {count_of(self.candidates, 'candidate')}"
        if self.indexes:
            yield f"together: read now {now}, then {read.files_then} and {then}; {of}"
            yield f"stored: about {size_of(self.metadata_bytes)} of metadata, {size_of(self.budget)} allowed"
        else:
            within = size_of(self.budget)
            yield f"read now: {now}; {of}, of which none within {within} saves more bytes than it stores"
        if self.layout:
            found = self.layout.estimate
            size = found.bytes_then.text(lambda number: size_of(round(number)))
            files = f"{found.files_then} files and {size}"
            used = ["its indexes"] * bool(self.layout.indexes) + [*self.layout.existing]
            read_then = f"with {', '.join(used)} they would read {files}"
            yield f"in the layout {self.layout.python} {read_then}: apply(layout=True)"
        for each in self.superfluous:
            stored = size_of(each.bytes)
            yield f"{each.name} saves these queries nothing beside the other indexes, and stores {stored}: {each.call}"
        for query, why in self.unserved:
            yield f"no index serves {shorten(query, _LONGEST)}: {why}"
        for query in self.estimate.untouched:
            yield f"it does not read this dataset: {shorten(query, _LONGEST)}"
        yield from self.notes

    def _queries(self) -> Iterator[str]:
        """The texts of the queries, which the table lists by number."""
        named = sorted({number for each in self.indexes for number in each.queries} & self.queries.keys())
        for number in named[:_QUERIES_SHOWN]:
            yield f"query {number}: {shorten(self.queries[number], _LONGEST)}"
        if len(named) > _QUERIES_SHOWN:
            yield f"and {len(named) - _QUERIES_SHOWN} more queries, in advice.queries"


_HEAD = ("index", "saves files", "saves", "adds", "costs", "for queries")


def python_of(spec: Index) -> str:
    """Return Python code that creates an index, without options that have their default.

    >>> from geoskip import Formatted, GeoBox, MetricDist
    >>> python_of(GeoBox("lng", "lat", boxes=4)), python_of(Formatted("agent", extract="family"))
    ("GeoBox('lng', 'lat', boxes=4)", "Formatted('agent', extract='family')")
    >>> python_of(MetricDist("word", metric="levenshtein"))
    "MetricDist('word', metric='levenshtein')"
    """
    texts, options = _arguments_of(spec)
    return f"{type(spec).__name__}({', '.join([*map(repr, texts), *options])})"


def item_of(spec: Index) -> str:
    """Return an index as an item of a SQL statement, and as a command's ``--index`` takes it.

    >>> from geoskip import Formatted
    >>> item_of(Formatted("agent", extract="f({}, 1)"))
    "formatted(agent, extract='f({}, 1)')"
    """
    texts, options = _arguments_of(spec)
    return f"{spec.kind}({', '.join([*texts, *options])})"


def _arguments_of(spec: Index) -> tuple[list[str], list[str]]:
    """The expressions of an index, and its options that have not their default, as ``name=value``."""
    values = {f.name: (getattr(spec, f.name), f.default) for f in fields(spec)}  # type: ignore[arg-type]
    plain = [name for name in ("expr", "column", "x", "y") if values.get(name, (None,))[0] is not None]
    options = [
        f"{name}={value!r}"
        for name, (value, default) in values.items()
        if name not in (*plain, "exprs") and value is not None and value not in (default, "auto")
    ]
    return [values[name][0] for name in plain] or list(spec.expressions()), options


def _ranges(numbers: Sequence[int]) -> str:
    """Format numbers, consecutive ones as ranges.

    >>> _ranges([1, 3, 4, 5, 9])
    '1, 3-5, 9'
    """
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
