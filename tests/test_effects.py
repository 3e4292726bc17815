"""The tables of effects: each predicate reads these files and no more."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from geoskip.clauses import keep_mask
from geoskip.indexes.base import SourceColumn
from geoskip.indexes.minmax import MinMax
from geoskip.labelling import clause_for
from geoskip.metadata import FileMetadata
from geoskip.predicates import Column
from tests.sql import read

_ARROW: dict[str, tuple[pa.DataType, Callable[[str], Any]]] = {
    "int": (pa.int32(), int),
    "double": (pa.float64(), float),
    "string": (pa.string(), str),
    "decimal(10,2)": (pa.decimal128(10, 2), Decimal),
    "date": (pa.date32(), dt.date.fromisoformat),
    "boolean": (pa.bool_(), lambda text: text == "true"),
}


def effects() -> Iterator[Any]:
    """The rows of the tables: the column, its files, a predicate, the files it reads."""
    for path in sorted(Path(__file__).parent.glob("effects/*.txt")):
        column, files = ("", ""), dict[str, list[str]]()
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            if line.startswith("column "):
                _, name, kind = line.split()
                column, files = (name, kind), {}
            elif line.startswith("  "):
                state, *values = line.split()
                files[state] = values
            else:
                predicate, _, kept = line.partition("  ")
                yield pytest.param(column, files, predicate.strip(), kept.split(), id=predicate.strip())


@pytest.mark.parametrize(("column", "files", "predicate", "kept"), [*effects()])
def test_a_predicate_reads(
    column: tuple[str, str], files: dict[str, list[str]], predicate: str, kept: list[str]
) -> None:
    name, kind = column
    arrow, value = _ARROW[kind]
    index = MinMax(name).bind([Column(name, kind)])
    stored = index.metadata_type(SourceColumn(name, kind, arrow))
    summaries = [
        None if values == ["?"] else index.collect(pa.array([None if v == "NULL" else value(v) for v in values], arrow))
        for values in files.values()
    ]
    metadata = FileMetadata.of(pa.table({str(index): pa.array(summaries, stored)}))
    clause = clause_for(read(predicate, {name: kind}), [index])
    assert np.array([*files])[keep_mask(clause, metadata)].tolist() == kept
