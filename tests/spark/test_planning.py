"""What planning asks and computes: counted, for the same scan, the same question and tables with many indexes."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import BloomFilter, MinMax
from geoskip.registry import Registry, current, release
from geoskip.spark.rule import bridge as module
from geoskip.spark.rule.bridge import Bridge
from geoskip.spark.rule.decision_cache import is_reproducible

pytestmark = pytest.mark.spark

FILES, COLUMNS = 4, 75


@pytest.fixture
def wide(spark: Any, tmp_path: Path) -> Path:
    """A view ``wide`` with 150 indexes: file n has 10 n to 10 n + 9 in every column."""
    root = tmp_path / "planned"
    root.mkdir()
    for file in range(FILES):
        write(root, file, 10 * file)
    indexes = [kind(f"c{n}") for n in range(COLUMNS) for kind in (MinMax, BloomFilter)]
    geoskip.dataset(spark, str(root)).create_index(*indexes)
    spark.read.parquet(str(root)).createOrReplaceTempView("wide")
    return root


def write(root: Path, file: int, least: int) -> None:
    columns = {f"c{n}": np.arange(least, least + 10) for n in range(COLUMNS + 1)}
    place = root / f"part-{file}.parquet"
    pq.write_table(pa.table(columns), place, use_dictionary=False, compression="none")  # always of one size


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the rule asked, a condition was decided, an index was checked and a condition translated."""
    found: Counter[str] = Counter()

    def counted(place: Any, name: str) -> None:
        original = getattr(place, name)

        def call(*arguments: Any, **named: Any) -> Any:
            found[name.strip("_")] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(place, name, call)

    for place, name in ((Bridge, "_decide"), (module, "decide"), (module, "reason_unusable"), (module, "parts_of")):
        counted(place, name)
    return found


def kept(spark: Any, query: str) -> list[int]:
    return [scan.files_kept for scan in geoskip.explain(spark.sql(query)).scans]


@pytest.mark.slow
def test_the_same_scan_in_one_query_is_decided_once(spark: Any, wide: Path, counts: Counter[str]) -> None:
    once = "SELECT c1 FROM wide WHERE c0 > 25"
    rows = spark.sql(f"{once} UNION ALL {once} UNION ALL SELECT c1 FROM wide WHERE c0 > 35 ORDER BY c1")
    assert [scan.files_kept for scan in geoskip.explain(rows).scans] == [2, 2, 1]
    assert counts["decide"] == 4, "two questions, each asked and decided: the third scan needed neither"
    assert len(rows.collect()) == 14 + 14 + 4


def test_a_file_written_later_is_read_by_both_scans_that_one_decision_answered(spark: Any, wide: Path) -> None:
    """The plan is run again: what the second scan took from the first looks at its skipped files too."""
    once = "SELECT c1 FROM wide WHERE c0 > 1000"
    rows = spark.sql(f"{once} UNION ALL {once}")
    assert rows.collect() == []
    before = (wide / "part-0.parquet").stat()
    write(wide, 0, 1001)
    os.utime(wide / "part-0.parquet", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert len(rows.collect()) == 20


def test_scans_that_are_written_alike_and_differ_are_decided_each(spark: Any, wide: Path, counts: Counter[str]) -> None:
    query = "SELECT a.c1 FROM wide a JOIN wide b ON a.c2 = b.c2 WHERE a.c0 > 25 AND b.c0 > 15"
    assert kept(spark, query) == [2, 3]
    spark.read.schema("c0 BIGINT, c1 BIGINT").parquet(str(wide)).createOrReplaceTempView("narrow")
    again = "SELECT c1 FROM narrow WHERE c0 > 25 UNION ALL SELECT c1 FROM wide WHERE c0 > 35"
    assert kept(spark, again) == [2, 1]


def test_the_same_question_is_decided_once_while_nothing_changes(spark: Any, wide: Path, counts: Counter[str]) -> None:
    query = "SELECT c1 FROM wide WHERE c0 > 25 AND c1 < 35"
    assert kept(spark, query) == [2]
    assert counts["reason_unusable"] == 4, "two columns with two indexes each, of 150"
    assert counts["parts_of"] == 1
    before = dict(counts)
    assert kept(spark, query) == [2]
    assert counts - Counter(before) == Counter(decide=1), "it is asked, and nothing is computed"
    assert kept(spark, "SELECT c1 FROM wide WHERE c0 > 35 AND c1 < 35") == [1]
    assert counts["reason_unusable"] == 4, "indexes are checked once a snapshot and environment"


@pytest.mark.slow
def test_questions_with_subqueries_are_decided_once(spark: Any, wide: Path, counts: Counter[str]) -> None:
    """Spark numbers them anew each time, and their values are not known: another subquery changes no decision."""
    few = "c4 < (SELECT avg(c5) - 1000 FROM wide)"
    query = f"SELECT c1 FROM wide WHERE c0 > 25 AND (c2 > (SELECT avg(c3) {{0}} FROM wide) OR {few})"
    last = spark.sql(query.format("+ 1000"))
    assert min(scan.files_kept for scan in geoskip.explain(last).scans) == 2
    before = dict(counts)
    again = spark.sql(query.format("- 1000"))
    planned = geoskip.explain(again).scans
    assert min(scan.files_kept for scan in planned) == 2
    assert counts - Counter(before) == Counter(decide=1)
    texts = {scan.predicate for scan in planned if "subquery" in (scan.predicate or "")}
    assert texts
    assert all(len(set(re.findall(r"subquery#(\d+)", text))) == 2 for text in texts), "two are two"
    assert last.collect() == []  # with Spark 4 it is asked again, once the values are known
    assert len(again.collect()) == 14
    assert min(scan.files_kept for scan in geoskip.report(again).scans) == 2


def test_columns_without_an_index_cost_no_decision(spark: Any, wide: Path, counts: Counter[str]) -> None:
    assert kept(spark, f"SELECT c1 FROM wide WHERE c{COLUMNS} > 1000") == [FILES]
    assert counts == Counter(decide=1, parts_of=1), "asked and translated; no index is checked, none decides"


@pytest.mark.slow
def test_what_changes_is_decided_anew(spark: Any, wide: Path) -> None:
    query = "SELECT c1 FROM wide WHERE c0 > 1000"
    assert kept(spark, query) == kept(spark, query) == [0]
    current().quarantine[f"minmax(c0) of file:{wide}"] = "a test says so"
    try:
        assert kept(spark, query) == [FILES], "indexes in quarantine are not used"
    finally:
        release()
    assert kept(spark, query) == [0]
    file = wide / "part-0.parquet"
    before = file.stat()
    write(wide, 0, 1000)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size, "only the times of its inode tell"
    assert kept(spark, query) == [1], "files are looked at for each query"
    geoskip.dataset(spark, str(wide)).refresh_index()
    spark.catalog.refreshByPath(str(wide))
    assert kept(spark, query) == [1], "another snapshot"


def test_mutant_an_answer_that_outlives_the_registry(spark: Any, wide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: decisions are taken again though an index is in quarantine by now."""
    monkeypatch.setattr(Registry, "version_key", property(lambda registry: None))
    with pytest.raises(AssertionError, match="quarantine"):
        test_what_changes_is_decided_anew(spark, wide)


CATALYST = "org.apache.spark.sql.catalyst.expressions."


@pytest.mark.parametrize(
    ("node", "lasts"),
    [
        ({"class": CATALYST + "GreaterThan", "children": [{"type": "int", "literal": 1}]}, True),
        ({"class": CATALYST + "PythonUDF", "python": "AAAA", "children": []}, False),
        ({"class": "Main$$$Lambda$12", "name": "f", "children": []}, False),
        ({"class": CATALYST + "objects.Invoke", "children": []}, False),
        ({"class": CATALYST + "Not", "children": [{"class": "x", "opaque": "scalar-subquery#1"}]}, True),
        ({"class": CATALYST + "Not", "children": [{"type": "interval", "opaque": "1 days"}]}, False),
        ({"class": CATALYST + "InSet", "children": [], "values": [{"type": "x", "opaque": "?"}]}, False),
    ],
)
def test_only_what_its_text_identifies_answers_again(node: Any, lasts: bool) -> None:
    """Two closures of Scala are written alike; a Python function may read what changes."""
    assert is_reproducible([json.loads(json.dumps(node))], [], [], current()) is lasts


def test_rules_and_indexes_of_others_are_asked_each_time() -> None:
    class Theirs(MinMax):
        pass

    theirs = Theirs("x")
    assert is_reproducible([], [], [MinMax("x")], current())
    assert not is_reproducible([], [], [theirs], current())
