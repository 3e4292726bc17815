"""Releases of table formats that geoskip does not fit: their tables are left alone, and reports say why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip.spark import session

UNFIT = {"Delta": "preparedScan()", "Iceberg": "stageTasks("}
"""What the Java side calls of each format, and another release may not have."""
FORMATS = [each for each in session._TABLE_FORMATS if each.name in UNFIT]


@pytest.fixture
def java(spark: Any) -> Iterator[Any]:
    """The driver's Java side without any table format; it has them again in the end."""
    found = session.java(spark).geoskip
    loader = found.getClass().getClassLoader()
    fields = [("TableFormat", "formats"), ("TableFormat", "problems"), ("TableScan", "format")]
    statics = [loader.loadClass(f"geoskip.{name}").getDeclaredField(field) for name, field in fields]
    for field in statics:
        field.setAccessible(True)
    formats, problems, scanned = (field.get(None) for field in statics)
    before = spark._jvm.java.util.ArrayList(formats)
    assert len(before)
    assert scanned is not None
    formats.removeAll(before)
    statics[-1].set(None, None)
    yield found
    problems.clear()
    formats.retainAll(before)
    formats.addAllAbsent(before)
    statics[-1].set(None, scanned)


@pytest.fixture(params=FORMATS, ids=lambda found: found.name)
def table_format(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def query(spark: Any, table_format: Any, tmp_path: Path) -> Iterator[str]:
    """A query of an indexed table of two files, one of which it needs."""
    rows = spark.range(20).selectExpr("id AS temp").repartitionByRange(2, "temp")
    name = "ice.db.unfit" if table_format.name == "Iceberg" else f"delta.`{tmp_path}/t`"
    if table_format.name == "Iceberg":
        rows.writeTo(name).using("iceberg").create()
        geoskip.dataset(spark, table=name).create_index(geoskip.ValueList("temp % 50"))
    else:
        rows.write.format("delta").save(f"{tmp_path}/t")
        geoskip.dataset(spark, f"{tmp_path}/t").create_index(geoskip.ValueList("temp % 50"))
    text = f"SELECT * FROM {name} WHERE temp % 50 = 15"
    assert geoskip.explain(spark.sql(text)).files_kept == 1
    yield text
    spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.parametrize("change", ["a release that is not known", "classes without a method", "no class"])
def test_a_release_that_does_not_fit_is_left_alone(
    spark: Any, query: str, java: Any, table_format: Any, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, name = session._source, table_format.name
    match change:
        case "a release that is not known":
            unfit, reason = replace(table_format, known=("0.9.",)), f"geoskip knows {name} 0.9.*, and this is "
        case "classes without a method":
            monkeypatch.setattr(session, "_source", lambda of="": source(of).replace(UNFIT[name], "unheardOf("))
            assert UNFIT[name] in source(name)
            unfit, reason = table_format, f"geoskip does not fit {name} "
        case _:
            monkeypatch.setattr(session, "_source", lambda of="": "package geoskip; class Other {}")
            unfit, reason = table_format, f"geoskip does not fit {name} "
    session._add_format(spark, java, unfit)
    frame = spark.sql(query)
    assert [row.temp for row in frame.collect()] == [15]
    report = geoskip.report(frame)
    notes = [*report.notes, *(note for scan in report.scans for note in scan.reasons)]
    assert any(note.startswith(f"left alone: {reason}") for note in notes), notes
    assert all(scan.files_kept == scan.files_total for scan in report.scans)


def test_a_release_that_fits_is_added_again(spark: Any, query: str, java: Any, table_format: Any) -> None:
    session._add_format(spark, java, table_format)
    assert geoskip.explain(spark.sql(query)).files_kept == 1
