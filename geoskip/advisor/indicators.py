"""The paper's indicators of skipping effectiveness (Extensible Data Skipping, section IV-A).

A query over a dataset of files has matching rows, rows in files with a matching row, rows in files that are read, and
all rows. With these

* the selectivity *sigma* is the ratio of matching rows to all rows (definition 4),
* the layout factor *lambda* is the ratio of matching rows to rows in files with a matching row (definition 5),
* the metadata factor *mu* is the ratio of rows in files with a matching row to rows in files read (definition 6),
* the scanning factor *psi* is the ratio of rows in files read to all rows (definition 7),

so that psi = sigma / (lambda * mu) (equation 1), computed here as exact fractions. A low lambda suggests another
layout, a low mu other indexes. The indicators of a workload are geometric means, for which the equation holds too
(equation 2).

For a query without matching rows lambda is 0 / 0, and the paper does not define psi for a selectivity of 0: lambda, mu
and psi are None then, and the query is left out of means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, overload

from geoskip.rendering import html_table
from geoskip.report import count_of, shorten, size_of

_SHOWN = 100
"""The number of characters of a query that are printed."""
_UNDEFINED = "no row matches, so that the paper defines neither lambda nor mu nor psi (section IV-A)"


class Extent(NamedTuple):
    """Some files of a dataset: their number, their rows and their bytes."""

    files: int
    rows: int
    bytes: int

    def __str__(self) -> str:
        return f"{count_of(self.files, 'file')}, {count_of(self.rows, 'row')}, {size_of(self.bytes)}"


class Factors:
    """The four indicators, from counts of rows."""

    rows_matching: int
    matching: Extent
    read: Extent
    total: Extent

    @property
    def sigma(self) -> Fraction | None:
        """Selectivity: matching rows to all rows; None for a dataset without rows."""
        return _share(self.rows_matching, self.total.rows)

    @property
    def lambda_(self) -> Fraction | None:
        """Layout factor: matching rows to rows in files with a matching row; None if no row matches."""
        return _share(self.rows_matching, self.matching.rows)

    @property
    def mu(self) -> Fraction | None:
        """Metadata factor: rows in files with a matching row to rows in files read; None if no row matches."""
        return _share(self.matching.rows, self.read.rows) if self.rows_matching else None

    @property
    def psi(self) -> Fraction | None:
        """Scanning factor: rows in files read to all rows; None if no row matches."""
        return _share(self.read.rows, self.total.rows) if self.rows_matching else None

    @property
    def layout_factor(self) -> Fraction | None:
        """The same as ``lambda_``."""
        return self.lambda_

    def counts(self) -> dict[str, Any]:
        """Counts and indicators, ready for JSON: fractions as floats."""
        found: dict[str, Any] = {"rows_matching": self.rows_matching}
        for name, extent in (("matching", self.matching), ("read", self.read), ("total", self.total)):
            found |= {f"files_{name}": extent.files, f"bytes_{name}": extent.bytes}
            found["rows_in_matching_files" if name == "matching" else f"rows_{name}"] = extent.rows
        return found | {name: None if value is None else float(value) for name, value in self.indicators().items()}

    def indicators(self) -> dict[str, Fraction | None]:
        """The four indicators by their names in the paper."""
        return {"sigma": self.sigma, "lambda": self.lambda_, "mu": self.mu, "psi": self.psi}


def _share(part: int, whole: int) -> Fraction | None:
    return Fraction(part, whole) if whole else None


@dataclass(frozen=True)
class ScanIndicators(Factors):
    """The indicators of one scan of a query, under the conditions on only that relation."""

    dataset: str
    """The URI of the relation's root (the first of several)."""
    condition: str
    """The condition of the scan in SQL; empty without one."""
    rows_matching: int
    """Rows that satisfy the condition."""
    matching: Extent
    """The files with a matching row."""
    read: Extent
    """The files that are read."""
    total: Extent
    """All files."""
    notes: tuple[str, ...] = ()
    """Sentences on conditions that were left out, with the reason."""

    def to_dict(self) -> dict[str, Any]:
        """Counts, indicators and notes, ready for JSON."""
        return {"dataset": self.dataset, "condition": self.condition, **self.counts(), "notes": list(self.notes)}

    def __str__(self) -> str:
        where = [f"  where {shorten(self.condition, _SHOWN)}"] if self.condition else []
        return "\n".join([shorten(self.dataset, _SHOWN), *where, *(f"  {line}" for line in _lines(self))])

    __repr__ = __str__


@dataclass(frozen=True, repr=False)
class Indicators(Factors, Sequence[ScanIndicators]):
    """The indicators of one query: a sequence of its scans, with indicators of their sums.

    >>> tight = Extent(1, 10, 500)
    >>> scan = ScanIndicators("file:/logs", "city = 'Aachen'", 5, tight, Extent(2, 20, 1000), Extent(4, 40, 2000))
    >>> query = Indicators((scan,))
    >>> query.sigma, query.lambda_, query.mu, query.psi == query.sigma / (query.lambda_ * query.mu)
    (Fraction(1, 8), Fraction(1, 2), Fraction(1, 2), True)
    """

    scans: tuple[ScanIndicators, ...]
    query: str = ""
    """The query if it was given as a text."""

    rows_matching: int = field(init=False)
    matching: Extent = field(init=False)
    read: Extent = field(init=False)
    total: Extent = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows_matching", sum(scan.rows_matching for scan in self.scans))
        for name in ("matching", "read", "total"):
            object.__setattr__(self, name, _sum(getattr(scan, name) for scan in self.scans))

    @overload
    def __getitem__(self, place: int) -> ScanIndicators: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[ScanIndicators, ...]: ...
    def __getitem__(self, place: int | slice) -> ScanIndicators | tuple[ScanIndicators, ...]:
        return self.scans[place]

    def __len__(self) -> int:
        return len(self.scans)

    def to_dict(self) -> dict[str, Any]:
        """Sums and scans, ready for JSON."""
        return {"query": self.query, **self.counts(), "scans": [scan.to_dict() for scan in self.scans]}

    def __str__(self) -> str:
        if not self.scans:
            return "geoskip: the query has no scan in which geoskip skips files; scans of Iceberg are not counted"
        head = [f"geoskip: {shorten(self.query, _SHOWN)}"] if self.query else []
        sums = ["all scans together", *(f"  {line}" for line in _lines(self))] if len(self) > 1 else []
        return "\n".join([*head, *map(str, self.scans), *sums])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [(scan.condition or scan.dataset, scan) for scan in self.scans]
        return _table([*rows, ("all scans together", self)] if len(self) > 1 else rows)


@dataclass(frozen=True, repr=False)
class Workload(Sequence[Indicators]):
    """The indicators of several queries, one row for each, with their geometric means.

    Means are over the queries for which all four are defined, so that psi = sigma / (lambda * mu) also holds for the
    means.
    """

    queries: tuple[Indicators, ...]

    @property
    def defined(self) -> tuple[Indicators, ...]:
        """The queries with a matching row, used for the means."""
        return tuple(query for query in self.queries if query.rows_matching)

    @property
    def left_out(self) -> int:
        """Number of queries without a matching row, or without a file."""
        return len(self.queries) - len(self.defined)

    @property
    def sigma(self) -> float | None:
        """Geometric mean of the selectivity; None without a query for which it is defined."""
        return _mean([query.sigma for query in self.defined])

    @property
    def lambda_(self) -> float | None:
        """Geometric mean of the layout factor."""
        return _mean([query.lambda_ for query in self.defined])

    @property
    def mu(self) -> float | None:
        """Geometric mean of the metadata factor."""
        return _mean([query.mu for query in self.defined])

    @property
    def psi(self) -> float | None:
        """Geometric mean of the scanning factor."""
        return _mean([query.psi for query in self.defined])

    @property
    def layout_factor(self) -> float | None:
        """The same as ``lambda_``."""
        return self.lambda_

    def means(self) -> dict[str, float | None]:
        """The geometric means by their names in the paper."""
        return {"sigma": self.sigma, "lambda": self.lambda_, "mu": self.mu, "psi": self.psi}

    @overload
    def __getitem__(self, place: int) -> Indicators: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Indicators, ...]: ...
    def __getitem__(self, place: int | slice) -> Indicators | tuple[Indicators, ...]:
        return self.queries[place]

    def __len__(self) -> int:
        return len(self.queries)

    def to_dict(self) -> dict[str, Any]:
        """Means and queries, ready for JSON."""
        return {**self.means(), "left_out": self.left_out, "queries": [query.to_dict() for query in self.queries]}

    def __str__(self) -> str:
        if not self.queries:
            return "geoskip: a workload without a query"
        head = f"{'sigma':>10} {'lambda':>10} {'mu':>10} {'psi':>10}  {'files read':>16}  query"
        rows = [f"{_figures(query)}  {_files(query):>16}  {shorten(_name(query), 60)}" for query in self.queries]
        means = " ".join(f"{_figure(value):>10}" for value in self.means().values())
        return "\n".join([head, *rows, f"{means}  {'':>16}  {self._caption()}"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _table([(_name(query), query) for query in self.queries], (self._caption(), self.means()))

    def _caption(self) -> str:
        left = f" of {len(self.defined)}; left out, as no row matches: {self.left_out}" if self.left_out else ""
        return f"geometric means{left}"


def _sum(extents: Iterable[Extent]) -> Extent:
    found = list(extents)
    return Extent(*(sum(values) for values in zip(*found, strict=True))) if found else Extent(0, 0, 0)


def _mean(values: Sequence[Fraction | None]) -> float | None:
    """Return the geometric mean of positive fractions; none of them is None."""
    logs = [math.log(value.numerator) - math.log(value.denominator) for value in values if value is not None]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def _lines(counted: Factors) -> list[str]:
    lines = [
        f"{count_of(counted.rows_matching, 'row')} match, in {counted.matching}",
        f"read {counted.read} of {counted.total}",
        ", ".join(f"{name} {_figure(value)}" for name, value in counted.indicators().items()),
    ]
    lines += [] if counted.rows_matching else [f"- {_UNDEFINED}"]
    return lines + [f"- {note}" for note in getattr(counted, "notes", ())]


def _figure(value: Fraction | float | None) -> str:
    return "undefined" if value is None else f"{float(value):.4g}"


def _figures(counted: Factors) -> str:
    return " ".join(f"{_figure(value):>10}" for value in counted.indicators().values())


def _files(counted: Factors) -> str:
    return f"{counted.read.files:,} of {counted.total.files:,}"


def _name(query: Indicators) -> str:
    conditions = (scan.condition or scan.dataset for scan in query.scans)
    return query.query or "; ".join(conditions) or "reads no files"


def _table(rows: Sequence[tuple[str, Factors]], last: tuple[str, dict[str, float | None]] | None = None) -> str:
    """Format rows as an HTML table."""
    lines = [
        [
            shorten(name, _SHOWN),
            *map(_figure, counted.indicators().values()),
            _files(counted),
            size_of(counted.read.bytes),
        ]
        for name, counted in rows
    ]
    if last is not None:
        lines.append([last[0], *map(_figure, last[1].values()), "", ""])
    return html_table(("", "sigma", "lambda", "mu", "psi", "files read", "bytes read"), lines)
