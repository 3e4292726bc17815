"""Indexes that are valid for Spark alone, and not for other readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import geoskip
from geoskip.engines.agreed_functions import CATALYST
from geoskip.engines.usable_indexes import reason_unusable_here
from geoskip.predicates import Call, Column
from geoskip.sources.dependencies import DEFINITION_OF
from tests.support.indexed_files import write_indexed

A = Column("a", "bigint")


@pytest.mark.parametrize(
    ("source", "depends", "why"),
    [
        ({}, {}, None),
        ({"class": "org.x.OrcFileFormat"}, {}, "OrcFileFormat"),
        ({"class": "iceberg"}, {}, "only Parquet is read"),
        ({"mapped": True}, {}, "other names"),
        ({"options": {"datetimeRebaseMode": "LEGACY"}}, {}, "reader options"),
        ({}, {DEFINITION_OF + "minmax": "version:2"}, "another definition"),
        ({}, {"spark.sql.parquet.binaryAsString": "True"}, "binaryAsString=True"),
        ({}, {"spark.sql.caseSensitive": "true"}, "caseSensitive=true"),
        ({}, {"default of a": "5"}, "its default 5"),
        ({}, {"field id of a": "5"}, "its field id 5"),
        ({}, {"settings of expressions": '{"x": "y"}'}, "only Spark follows"),
        ({}, {"settings of expressions": "{}", "default of a": "None"}, None),
    ],
)
def test_what_only_spark_follows(
    tmp_path: Path, source: Mapping[str, Any], depends: Mapping[str, str], why: str | None
) -> None:
    store = write_indexed(tmp_path, {"x": pa.table({"a": [1]})}, {"a": "bigint"}, [geoskip.MinMax("a")])
    header = store.load(1).header
    header = replace(header, source={**header.source, **source})
    entry = replace(header.entries[0], depends={**header.entries[0].depends, **depends})
    found = reason_unusable_here(str(tmp_path), header, entry)
    assert found is None if why is None else why in (found or "")


def test_data_elsewhere_and_calls_that_another_reader_evaluates_otherwise(tmp_path: Path) -> None:
    store = write_indexed(tmp_path, {"x": pa.table({"a": [1]})}, {"a": "bigint"}, [geoskip.MinMax("a")])
    header = store.load(1).header
    elsewhere = reason_unusable_here(f"{tmp_path}/x", header, header.entries[0])
    assert "built for" in (elsewhere or "")
    found = []
    for name in ("Add", "Abs"):
        call = Call(name, (A,), CATALYST + name, (), "bigint")
        entry = replace(header.entries[0], index=header.entries[0].index.bind([call]))
        found.append(reason_unusable_here(str(tmp_path), header, entry))
    assert (found[0], "function Abs" in (found[1] or "")) == (None, True)
