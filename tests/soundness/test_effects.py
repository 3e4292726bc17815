"""The tables of effects: each predicate reads these files and no more.

A table names its columns, the index (MinMax where it does not), the files with their values, then a predicate a line.
An indexed expression has a column of its own, named by its text. Geometries are WKT, with _ for spaces.
"""

from __future__ import annotations

import ast
import datetime as dt
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

import udf_mappings.metrics
import udf_mappings.sedona  # noqa: F401 - their mappings
from geoskip.clauses import keep_mask
from geoskip.indexes.base import Index, SourceColumn, index_kinds
from geoskip.metadata import FileMetadata
from geoskip.planner import clause_for
from geoskip.predicates import Column
from tests.support.sql import read

_ARROW: dict[str, tuple[pa.DataType, Callable[[str], Any]]] = {
    "int": (pa.int32(), int),
    "bigint": (pa.int64(), int),
    "double": (pa.float64(), float),
    "string": (pa.string(), str),
    "decimal(10,2)": (pa.decimal128(10, 2), Decimal),
    "decimal(20,0)": (pa.decimal128(20, 0), Decimal),
    "decimal(38,18)": (pa.decimal128(38, 18), Decimal),
    "date": (pa.date32(), dt.date.fromisoformat),
    "boolean": (pa.bool_(), lambda text: text == "true"),
    "geometry": (pa.binary(), lambda text: shapely.to_wkb(shapely.from_wkt(text.replace("_", " ")))),
}


Columns = dict[str, str]


def effects() -> Iterator[Any]:
    """The rows of the tables: the columns, the index, the files, a predicate, the files it reads."""
    for path in sorted(Path(__file__).parent.glob("effects/*.txt")):
        columns, files, index = Columns(), dict[str, list[str]](), ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            if line.startswith("column "):
                if files:
                    columns, files, index = {}, {}, ""
                _, name, kind = line.split()
                columns[name] = kind
            elif line.startswith("index "):
                index = line.removeprefix("index ")
            elif line.startswith("  "):
                state, *values = line.split()
                files[state] = values
            else:
                predicate, _, kept = (part.strip() for part in line.partition("  "))
                text = index or f"minmax({', '.join(columns)})"
                yield pytest.param(dict(columns), text, dict(files), predicate, kept.split(), id=f"{text}: {predicate}")


def index_of(text: str, columns: Columns) -> Index:
    """The index of a text like ``gaplist(x, gaps=2)``, bound."""
    found = re.fullmatch(r"(\w+)\((.*)\)", text)
    assert found, text
    parts = [part.strip() for part in found[2].split(",")]
    options = dict(part.split("=") for part in parts if "=" in part)
    kind: Any = index_kinds()[found[1]]
    index: Index = kind(*(p for p in parts if "=" not in p), **{k: ast.literal_eval(v) for k, v in options.items()})
    return index.bind([Column(n, columns[n]) if n.isidentifier() else read(n, columns) for n in index.expressions()])


def values_of(values: list[str], columns: Columns, name: str) -> pa.Array:
    """A file's values of one column; those of several stand behind each other, as in ``3|4``."""
    arrow, value = _ARROW[columns[name]]
    texts = [text.split("|")[[*columns].index(name)] for text in values]
    return pa.array([None if text == "NULL" else value(text) for text in texts], arrow)


@pytest.mark.parametrize(("columns", "text", "files", "predicate", "kept"), [*effects()])
def test_a_predicate_reads(
    columns: Columns, text: str, files: dict[str, list[str]], predicate: str, kept: list[str]
) -> None:
    names = index_of(text, columns).expressions()
    rows = [value for values in files.values() if values != ["?"] for value in values]
    index = index_of(text, columns).prepare(*(values_of(rows, columns, name) for name in names))
    stored = index.metadata_type(*(SourceColumn(name, columns[name], _ARROW[columns[name]][0]) for name in names))
    summaries = [
        None if values == ["?"] else index.collect(*(values_of(values, columns, name) for name in names))
        for values in files.values()
    ]
    sizes = [10**9 if state.startswith("large") else 0 for state in files]
    summaries = [
        None if s is None else index.for_files([s], [size])[0] for s, size in zip(summaries, sizes, strict=True)
    ]
    metadata = FileMetadata.of(pa.table({str(index): pa.array(summaries, stored)}))
    clause = clause_for(read(predicate, columns), [index])
    assert np.array([*files])[keep_mask(clause, metadata)].tolist() == kept


def test_every_index_has_a_table() -> None:
    ours = {name for name, kind in index_kinds().items() if kind.__module__.startswith("geoskip.")}
    assert ours == {path.stem for path in Path(__file__).parent.glob("effects/*.txt")}
