"""Figures 11 and 12 of the paper: how much of what must be read, and of what is read, comes of layout and of metadata.

Of a query there are the rows that match, the rows of the files that hold one, the rows of the files that are read, and
all rows. *sigma*, the selectivity, is the first to the last; *lambda*, the layout factor, the first to the second;
*mu*, the metadata factor, the second to the third; *psi*, the scanning factor, the third to the last (section IV-A). So
psi = sigma / (lambda * mu). They are those of ``geoskip.workload``, which Spark counts with geoskip on, and each count
is compared with what pyarrow finds in the files, so that one row lost would show. Factors are geometric means over a
workload, as in the paper.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import geoskip
from examples import log_analytics
from geoskip import Formatted, Index, Prefix, Suffix
from tests.bench.measure import console, judged, table
from tests.bench.sessions import logs, session
from tests.bench.sizes import plain_bytes, stored

__all__ = ["Column", "run"]

QUERIES, FEWER = 50, 20
LEAST_MU = 0.9
LENGTHS = (2, 4, 8, 10, 12, 15, 20)
REACHES = 15
EQUAL = 1e-3
"""psi and sigma / lambda are the same to the three digits that the paper shows."""
AGENT = "get_agent_name(user_agent)"


class Column:
    """The values of a text column, or of what a function makes of them, file by file."""

    def __init__(self, folder: Path, name: str, of: Callable[[str], str | None] | None = None) -> None:
        self.names = sorted(path.name for path in folder.glob("*.parquet"))
        parts = [pq.read_table(folder / file, columns=[name])[name].combine_chunks() for file in self.names]
        self.rows = np.array([len(part) for part in parts])
        encoded = pa.chunked_array(parts).combine_chunks().dictionary_encode()
        self.dictionary, codes = encoded.dictionary, np.asarray(encoded.indices)
        if of is not None:
            made = pa.array([of(text) for text in self.dictionary.to_pylist()], pa.string()).dictionary_encode()
            self.dictionary, codes = made.dictionary, np.asarray(made.indices)[codes]
        pairs = np.repeat(np.arange(len(parts)), self.rows) * len(self.dictionary) + codes
        found, self.counts = np.unique(pairs, return_counts=True)
        self.file, self.value = np.divmod(found, len(self.dictionary))

    def some(self, random: np.random.Generator, count: int, *, values: bool = False) -> list[str]:
        """Values of random rows, or random ones of the different values."""
        chosen = random.integers(len(self.dictionary), size=count)
        if not values:
            chosen = random.choice(self.value, count, p=self.counts / self.counts.sum())
        return [self.dictionary[int(number)].as_py() for number in chosen]

    def rows_of(self, matches: pa.BooleanArray, read: Sequence[str]) -> tuple[int, int, int, int]:
        """Matching rows, rows of the files that hold one, of the files that were read, and all rows."""
        holds = np.zeros(len(self.rows), dtype=bool)
        holds[self.file[np.asarray(matches)[self.value]]] = True
        places = {name: number for number, name in enumerate(self.names)}
        were_read = np.array([places[path.rpartition("/")[2]] for path in read], dtype=np.int64)
        held = int(self.counts[np.asarray(matches)[self.value]].sum())
        return held, int(self.rows[holds].sum()), int(self.rows[were_read].sum()), int(self.rows.sum())


Question = tuple[str, "pa.BooleanArray"]
"""A condition, and which values of the column it matches."""


def run() -> None:
    """Print the tables."""
    spark, folder = session(), logs()
    log_analytics.register(spark)
    random = np.random.default_rng(0)
    with console.status("reading the columns") as status:
        names, requests = Column(folder, "db_name"), Column(folder, "http_request")
        agents = Column(folder, "user_agent", log_analytics.get_agent_name)
        workloads: list[tuple[Index, Column, list[Question]]] = [
            (Prefix("db_name", length=15), names, prefixes("db_name", names, random, QUERIES)),
            (Suffix("db_name", length=15), names, prefixes("db_name", names, random, QUERIES, ends=True)),
            (Prefix("http_request", length=20), requests, prefixes("http_request", requests, random, QUERIES)),
            (Formatted("user_agent", extract="get_agent_name"), agents, equal(AGENT, agents, random, QUERIES)),
        ]
        shown = table(
            f"Figure 11: {QUERIES} queries each, geometric means", "", "sigma", "lambda", "mu", "psi", "sigma / lambda",
            "target",
        )  # fmt: skip
        exact = True
        for index, column, questions in workloads:
            status.update(str(index))
            _indexed(spark, folder, index)
            sigma, layout, mu, psi, same = _asked(spark, column, questions)
            exact &= same
            shown.add_row(
                str(index), *(f"{value:.3g}" for value in (sigma, layout)), judged(f"{mu:.3f}", mu >= LEAST_MU),
                f"{psi:.3g}", f"{sigma / layout:.3g}", f"mu at least {LEAST_MU:g}",
            )  # fmt: skip
        lengths, exactly = _lengths(spark, folder, names, prefixes("db_name", names, random, FEWER), status)
    console.print(shown)
    console.print(lengths)
    asked = len(workloads) * QUERIES + len(LENGTHS) * FEWER
    console.print(
        "psi = sigma / (lambda * mu), of rows that pyarrow counts too:",
        judged(f"in each of {asked} queries", exact and exactly),
    )


def _lengths(spark: Any, folder: Path, column: Column, questions: list[Question], status: Any) -> tuple[Any, bool]:
    shown = table(
        f"Figure 12: prefixes of db_name, {FEWER} queries", "length", "plain KB", "stored KB", "mu", "psi",
        "sigma / lambda", "target",
    )  # fmt: skip
    exact = True
    for length in LENGTHS:
        index = Prefix("db_name", length=length)
        status.update(str(index))
        report = _indexed(spark, folder, index)
        _, summaries = stored(folder, index)
        sigma, layout, mu, psi, same = _asked(spark, column, questions)
        exact &= same
        reached = abs(psi * layout / sigma - 1) <= EQUAL
        shown.add_row(
            str(length), f"{plain_bytes(summaries) / 1e3:,.1f}", f"{report.metadata_bytes[str(index)] / 1e3:,.1f}",
            f"{mu:.3f}", judged(f"{psi:.4g}", reached) if length == REACHES else f"{psi:.4g}", f"{sigma / layout:.4g}",
            "psi = sigma / lambda" if length == REACHES else "",
        )  # fmt: skip
    return shown, exact


def prefixes(
    name: str, column: Column, random: np.random.Generator, count: int, *, ends: bool = False
) -> list[Question]:
    """LIKE with prefixes of random length of random values, or suffixes."""
    found: list[Question] = []
    for value in column.some(random, count):
        length = int(random.integers(1, len(value) + 1))
        part = value[-length:] if ends else value[:length]
        pattern = part.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%")
        like = f"%{pattern}" if ends else f"{pattern}%"
        matches = (pc.ends_with if ends else pc.starts_with)(column.dictionary, part)
        found.append((f"{name} LIKE r'{like}'", matches))
    return found


def equal(expression: str, column: Column, random: np.random.Generator, count: int) -> list[Question]:
    """Equality with random ones of the different values."""
    return [
        ("{} = '{}'".format(expression, value.replace("'", "\\'")), pc.equal(column.dictionary, value))
        for value in column.some(random, count, values=True)
    ]


def _indexed(spark: Any, folder: Path, index: Index) -> geoskip.BuildReport:
    shutil.rmtree(folder / "_geoskip", ignore_errors=True)
    report = geoskip.dataset(spark, str(folder)).create_index(index)
    spark.read.parquet(str(folder)).createOrReplaceTempView("logs")
    return report


def _asked(spark: Any, column: Column, questions: Sequence[Question]) -> tuple[float, float, float, float, bool]:
    """The means of sigma, lambda, mu and psi, and whether each query's rows are those that pyarrow counts."""
    frames = [spark.sql(f"SELECT count(*) FROM logs WHERE {condition}") for condition, _ in questions]
    found = geoskip.workload(frames)
    same = True
    for query, frame, (_, matches) in zip(found, frames, questions, strict=True):
        counted = (query.rows_matching, query.matching.rows, query.read.rows, query.total.rows)
        read = geoskip.report(frame).scans[0].kept_files()
        same &= (*frame.first(), *counted[1:]) == counted == column.rows_of(matches, read)
        same &= query.psi == query.sigma / (query.lambda_ * query.mu)  # type: ignore[operator]
    return *found.means().values(), same  # type: ignore[return-value]
