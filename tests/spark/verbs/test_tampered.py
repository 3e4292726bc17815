"""Metadata that are damaged while a driver has them in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import Index, MinMax
from geoskip.clauses import Clause
from geoskip.errors import MetadataError
from geoskip.indexes import base
from geoskip.lifecycle.log import latest
from geoskip.predicates import Comparison, Literal, Predicate
from geoskip.stores import ParquetStore
from geoskip.stores.log_files import entry_text
from tests.conftest import same_as_off
from tests.spark.verbs.asking import kept, write


def bounds(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "the header": ("_log/*/*.json", lambda path: path.write_text("{}")),
    "the bounds": ("_parts/*.part", bounds),
    "all of a part": ("_parts/*.part", lambda path: path.write_bytes(b"")),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_verify_and_repair_look_at_what_is_there_and_not_at_what_was_read(
    spark: Any, place: Path, handle: geoskip.Dataset, what: str
) -> None:
    pattern, damage = DAMAGES[what]
    assert handle.verify().ok
    assert kept(spark, place) == 1
    (path,) = (place / "_geoskip").glob(pattern)
    damage(path)
    try:
        assert not handle.verify().ok
    except MetadataError as error:
        assert "repair() builds anew" in str(error)  # noqa: PT017 - either way it is said
    assert handle.repair().read == 4
    found = latest(ParquetStore(place / "_geoskip"))
    assert found is not None
    assert found.files.column("minmax(a)").null_count == 0
    assert handle.verify().ok
    assert kept(spark, place) == 1


def test_the_log_tells_of_files_that_cannot_be_indexed(spark: Any, place: Path, handle: geoskip.Dataset) -> None:
    write(place, "z.parquet", [1]).write_bytes(b"PAR1 and no more")
    assert len(handle.refresh_index().excluded) == 1
    last = handle.history().collect()[-1]
    assert (last.message, last.parameters, last.files_added, last.files_kept) == ("nothing to do", "left out: 1", 0, 4)


def test_an_identity_that_is_damaged_is_named(place: Path, handle: geoskip.Dataset) -> None:
    (place / "_geoskip" / "_identity.json").write_text('{"crc": 0}')
    with pytest.raises(MetadataError, match=r"_identity\.json in .*'format' is missing; nothing there is found"):
        handle.refresh_index()


def test_what_a_later_version_wrote_is_not_built_anew(place: Path, handle: geoskip.Dataset) -> None:
    (entry,) = (place / "_geoskip").glob("_log/*/*.json")
    entry.write_text(text := entry.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(MetadataError, match="upgrade geoskip"):
        handle.repair()
    assert entry.read_text() == text


def name_a_later_index(place: Path) -> None:
    """Add to the header an index of a type that this version does not know."""
    (entry,) = (place / "_geoskip").glob("_log/*/*.json")
    header = json.loads(entry.read_text())["header"]
    header["indexes"].append({"name": "later(a)", "index": {"type": "later"}})
    entry.write_bytes(entry_text("header", header, 1 << 20))


def test_an_index_that_only_others_know_is_not_lost(place: Path, handle: geoskip.Dataset) -> None:
    name_a_later_index(place)
    bounds(next((place / "_geoskip").glob("_parts/*.part")))
    assert [str(index) for index in handle.indexes] == ["minmax(a)"]
    with pytest.raises(MetadataError, match=r"cannot be read: later\(a\) is of a kind that is unknown here"):
        handle.repair()


def test_reports_name_an_index_that_only_others_know(spark: Any, tmp_path: Path) -> None:
    place = tmp_path / "data"
    place.mkdir()
    for low in (0, 10):
        pq.write_table(pa.table({"a": [low, low + 5]}), place / f"{low}.parquet")
    geoskip.build(place, MinMax("a"))
    name_a_later_index(place)
    why = "later(a) is of a kind that is unknown here: import the module that defines it"
    query = spark.read.parquet(str(place)).filter("a > 7")
    assert query.count() == 2
    scan = geoskip.report(query).scans[0]
    assert (scan.files_kept, scan.files_total) == (1, 2)
    assert why in scan.reasons
    assert why in geoskip.files(place, "a > 7").report.reasons


@dataclass(frozen=True)
class Odd(Index):
    """Whether a file has odd numbers; its module is imported late."""

    expr: str
    kind: ClassVar[str] = "odd"

    def metadata_type(self, *columns: Any) -> pa.DataType:
        return pa.struct({"odd": pa.bool_()})

    def collect(self, *values: Any) -> Any:
        return {"odd": any(number % 2 for number in values[0].drop_null().to_pylist())}

    def merge(self, summaries: Any) -> Any:
        return {"odd": any(part["odd"] for part in summaries)}

    def clause(self, node: Predicate) -> Clause | None:
        match node:
            case Comparison("=", x, Literal(value)) if self.reads(x) and value % 2:
                return HasOdd(str(self))
        return None


@dataclass(frozen=True)
class HasOdd(Clause):
    index: str

    def keep(self, files: Any) -> Any:
        return files.summary(self.index, "odd")

    def columns(self) -> Any:
        return ((self.index, "odd"),)


def test_an_index_type_that_is_imported_late_is_used_from_then_on(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "data"
    place.mkdir()
    for first in (0, 10):
        pq.write_table(pa.table({"a": [first, first + 2]}), place / f"{first}.parquet")
    query = "a = 5"
    with monkeypatch.context() as patch:
        patch.setitem(base._kinds, "odd", Odd)
        geoskip.build(place, [MinMax("a"), Odd("a")])
    pq.write_table(pa.table({"a": [4, 6]}), place / "later.parquet")
    report = geoskip.dataset(spark, str(place)).refresh_index()
    why = "odd(a) is of a kind that is unknown here: import the module that defines it"
    assert f"not built: {why}, then refresh_index('full') for the new files" in str(report)
    scan = geoskip.report(spark.read.parquet(str(place)).filter(query)).scans[0]
    assert (scan.files_kept, why in scan.reasons) == (1, True)
    assert why in geoskip.files(place, query).report.reasons
    monkeypatch.setitem(base._kinds, "odd", Odd)
    scan = geoskip.report(spark.read.parquet(str(place)).filter(query)).scans[0]
    assert (scan.files_kept, why in scan.reasons) == (1, False)
    assert why not in geoskip.files(place, query).report.reasons
    geoskip.dataset(spark, str(place)).refresh_index("full")
    scan = same_as_off(lambda: spark.read.parquet(str(place)).filter(query))
    assert scan.files_kept == 0
