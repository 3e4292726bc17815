"""GapList, BloomFilter, Prefix and Suffix through Spark: one build, a dozen queries, each with geoskip off and on."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import geoskip
from geoskip import BloomFilter, GapList, GeoBox, Prefix, Suffix
from geoskip.indexes.base import definition
from geoskip.stores.base import MemoryStore, Store
from geoskip.stores.parquet import ParquetStore
from tests.conftest import same_as_off

pytestmark = pytest.mark.spark

DAY = dt.date(2024, 1, 1)
LONG = "/very/long/path/to/the/file-"
FILES: list[dict[str, list[Any]]] = [
    {
        "n": [1, 2, 101, None],
        "x": [-0.0, 1.5, 2.5, math.nan],
        "day": [DAY, DAY, DAY + dt.timedelta(300), None],
        "price": [Decimal("1.00"), Decimal("1.10"), None, Decimal("99.99")],
        "path": ["/api/users/1", "/api/users/2", "/api/items", None],
    },
    {
        "n": [50, 51, 52, 53],
        "x": [10.0, 20.0, 30.0, 40.0],
        "day": [DAY + dt.timedelta(100 + i) for i in range(4)],
        "price": [Decimal("5.00")] * 4,
        "path": ["index.html", "about.html", "Ünïcödé.html", "x.html"],
    },
    {
        "n": [1000, 1001, 1002, 1003],
        "x": [math.inf, -math.inf, 7.0, None],
        "day": [None] * 4,
        "price": [None] * 4,
        "path": [LONG + "1.png", LONG + "2.png", "a.png", "\U0001f600.png"],
    },
]
ARROW = {"n": pa.int32(), "x": pa.float64(), "day": pa.date32(), "price": pa.decimal128(10, 2), "path": pa.string()}
INDEXES = (
    GapList("n", gaps=1),
    GapList("day", gaps=1),
    GapList("x"),
    BloomFilter("n"),
    BloomFilter("price"),
    BloomFilter("x"),
    BloomFilter("path"),
    BloomFilter("upper(path)"),
    Prefix("path"),
    Suffix("path", length=6),
)

READS = [
    ("n BETWEEN 60 AND 99", []),
    ("n > 3 AND n < 49", []),
    ("n > 3", [0, 1, 2]),
    ("n + 1 BETWEEN 61 AND 100", []),
    ("day BETWEEN DATE'2024-02-01' AND DATE'2024-03-01'", []),
    ("day > DATE'2024-10-01'", [0]),
    ("year(day) = 2025", []),
    ("last_day(day) = DATE'2024-10-31'", [0]),
    ("CAST(n AS bigint) = 101 OR n = 52", [0, 1]),
    ("n IN (2, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 1003)", [0, 2]),
    ("n <=> 51 AND NOT n <=> 7", [1]),
    ("price = 1.1", [0]),
    ("price = 1.1BD OR price = 5", [0, 1]),
    ("price IS NULL AND n > 3", [0, 2]),
    ("x = 0.0", [0]),
    ("x = double('NaN')", [0]),
    ("isnan(x)", [0]),
    ("x > 1e300", [0, 2]),
    ("upper(path) = '/API/ITEMS'", [0]),
    ("path LIKE '/api/%'", [0]),
    ("path LIKE '/very/long/path/to/%'", [2]),
    ("path NOT LIKE '%.html'", [0, 2]),
    ("path LIKE '%.html'", [1]),
    ("path LIKE '/very%.png'", [2]),
    ("path LIKE '%e-2.png'", [2]),
    ("substring(path, 1, 4) = '/api'", [0]),
    ("left(path, 2) = 'Ün'", [1]),
    ("right(path, 4) = '.png' AND n > 0", [2]),
    ("right(path, 4) IN ('.png', '.gif')", [2]),
    ("path >= 'b' AND path < 'f'", []),
    ("path IN ('about.html', 'nothing')", [1]),
    ("coalesce(path, 'none') = 'a.png'", [2]),
    ("path = '\U0001f600.png'", [2]),
]


def write(place: Path, *, row_groups: int | None = None) -> None:
    """One Parquet file each."""
    place.mkdir()
    for number, columns in enumerate(FILES):
        table = pa.table({name: pa.array(values, ARROW[name]) for name, values in columns.items()})
        pq.write_table(table, place / f"part-{number}.parquet", row_group_size=row_groups)


@pytest.fixture(scope="module")
def place(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset with all indexes, built at once: with an expression among them, by Spark's own reader."""
    place = tmp_path_factory.mktemp("indexes") / "data"
    write(place)
    geoskip.dataset(spark, str(place)).create_index(*INDEXES)
    return place


@pytest.fixture
def exact(spark: Any) -> Iterator[Any]:
    """Without Spark's own use of Parquet's statistics, which loses NaN and -0.0 (soundness rule 3)."""
    spark.conf.set("spark.sql.parquet.filterPushdown", "false")
    yield spark
    spark.conf.unset("spark.sql.parquet.filterPushdown")


def test_each_query_reads_its_files_and_finds_its_rows(exact: Any, place: Path) -> None:
    from pyspark.sql import functions as F

    conditions = [F.expr(condition).alias(f"c{number}") for number, (condition, _) in enumerate(READS)]
    with geoskip.disabled(exact):
        everything = [tuple(row) for row in exact.read.parquet(str(place)).select("*", *conditions).collect()]
    for number, (condition, files) in enumerate(READS):
        frame = exact.read.parquet(str(place)).where(condition)
        found = sorted(repr(tuple(row)) for row in frame.collect())
        assert found == sorted(repr(row[:5]) for row in everything if row[5 + number]), condition
        (scan,) = geoskip.report(frame).scans
        assert sorted(int(Path(path).stem[-1]) for path in scan.kept_files()) == files, condition


def test_python_tasks_make_the_summaries_that_spark_s_reader_made(spark: Any, place: Path, tmp_path: Path) -> None:
    plain = [index for index in INDEXES if "upper" not in str(index)]
    write(tmp_path / "data", row_groups=2)
    built = MemoryStore()
    report = geoskip.dataset(spark, str(tmp_path / "data"), store=built).create_index(*plain)
    assert "arrow" in str(report)
    stored = ParquetStore(str(place / "_geoskip"))

    def rows(store: Store) -> list[dict[str, Any]]:
        table = store.load(store.latest() or 0).files.table()
        return sorted(table.select(["path", *map(str, plain)]).to_pylist(), key=lambda row: str(row["path"]))

    assert rows(built) == rows(stored)


CELL = """
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from geoskip import Index, index
from geoskip.clauses import Clause
from geoskip.predicates import Comparison, Literal

@dataclass(frozen=True)
class SomeLetter(Clause):
    index: str
    letter: str
    def columns(self):
        return ((self.index, "letters"),)
    def keep(self, files):
        return pc.match_substring(files.summary(self.index, "letters"), self.letter)

@index
@dataclass(frozen=True)
class CellLetters(Index):
    column: str
    kind: ClassVar[str] = "cell_letters"
    def metadata_type(self, column):
        return pa.struct({"letters": pa.string()})
    def letters(self, values):
        return [value[PLACE] for value in values.drop_null().to_pylist()]
    def collect(self, values):
        return {"letters": "".join(self.letters(values))}
    def merge(self, summaries):
        return {"letters": "".join(summary["letters"] for summary in summaries)}
    def clause(self, node):
        match node:
            case Comparison("=", text, Literal(str() as value)) if self.reads(text):
                return SomeLetter(str(self), value[PLACE])
"""


def test_an_index_type_of_a_cell_that_is_edited_does_not_read_what_it_made_before(spark: Any, tmp_path: Path) -> None:
    notebook: dict[str, Any] = {"__name__": "__main__"}

    def run(cell: str) -> Any:
        exec(cell, notebook)
        return notebook["CellLetters"]

    def kept() -> Any:
        return same_as_off(lambda: spark.read.parquet(str(tmp_path)).where("name = 'ab'"))

    for number, name in enumerate(("ab", "cd")):
        pq.write_table(pa.table({"name": [name]}), tmp_path / f"{number}.parquet")
    dataset = geoskip.dataset(spark, str(tmp_path))
    dataset.create_index(run(CELL.replace("PLACE", "0"))("name"))
    assert kept().files_kept == 1
    run(CELL.replace("PLACE", "0"))
    assert kept().files_kept == 1
    run(CELL.replace("PLACE", "1"))
    before = kept()
    assert before.files_kept == 2
    assert "another definition of its type" in str(before)
    dataset.refresh_index("full")
    assert kept().files_kept == 1
    made = definition(dataset.indexes[0])
    run(CELL.replace("PLACE", "1").replace("if self.reads(text)", "if self.reads(text) and value[1:]"))
    assert definition(dataset.indexes[0]) == made  # another clause over the same summaries
    assert kept().files_kept == 1


def test_summaries_of_an_earlier_version_are_not_used(
    plain: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        pq.write_table(pa.table({"geom": [shapely.Point(number, 0).wkb]}), tmp_path / f"{number}.parquet")
    dataset = geoskip.dataset(plain, str(tmp_path))
    with monkeypatch.context() as earlier:
        earlier.setattr(GeoBox, "version", None)
        dataset.create_index(GeoBox("ST_GeomFromWKB(geom)"))

    def near() -> Any:
        box = "ST_GeomFromText('POLYGON ((-1 -1, 0.5 -1, 0.5 1, -1 1, -1 -1))')"
        frame = plain.read.parquet(str(tmp_path))
        return same_as_off(lambda: frame.where(f"ST_Intersects(ST_GeomFromWKB(geom), {box})"))

    before = near()
    assert before.files_kept == 3
    assert "another definition of its type" in str(before)
    dataset.refresh_index("full")
    assert near().files_kept == 1
