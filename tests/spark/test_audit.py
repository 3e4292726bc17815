"""The runtime audit finds rows that a planted wrong mapping or index loses, and disturbs nobody."""

from __future__ import annotations

import datetime
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MinMax, index, maps
from geoskip.predicates import Call, Comparison, Literal
from tests.conftest import four_tens, rows_of

pytestmark = pytest.mark.spark
AUDIT = "spark.geoskip.audit"


def is_warm(temp: int) -> bool:
    return temp is not None and temp >= 15


def above_thirty(node: Any, index: Any) -> Any:
    """Wrong: what is warm is above 14."""
    match node:
        case Call(_, (temp,)):
            return index.clause(Comparison(">", temp, Literal(30, "int")))


@index
@dataclass(frozen=True)
class Shifted(MinMax):
    """Wrong: it says of 5 what is so of 15."""

    kind: ClassVar[str] = "shifted"

    def clause(self, node: Any) -> Any:
        match node:
            case Comparison(op, column, Literal(int() as value)):
                return super().clause(Comparison(op, column, Literal(value + 10, "int")))


@pytest.fixture(scope="module")
def own(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = spark.newSession()
    geoskip.enable(session)
    session.conf.set("spark.geoskip.planning.budget", "60")
    place = four_tens(tmp_path_factory.mktemp("audit"))
    session.conf.set("test.place", str(place))
    geoskip.dataset(session, str(place)).create_index(MinMax("temp"))
    session.read.parquet(str(place)).createOrReplaceTempView("t")
    session.udf.register("is_warm", is_warm, "boolean")
    yield session
    session.conf.set(AUDIT, "0")


@pytest.mark.slow
def test_rows_that_a_mapping_lost_are_found_and_it_is_not_asked_again(
    own: Any, caplog: pytest.LogCaptureFixture
) -> None:
    own.conf.set(AUDIT, "1.0")
    # beside what decides there are conditions of no use: a random one, and a subquery
    text = "SELECT * FROM t WHERE is_warm(temp) AND rand(5) < 2 AND id <= (SELECT max(id) FROM t)"
    with geoskip.mappings(), caplog.at_level(logging.WARNING, logger="geoskip"):
        maps(is_warm, index=MinMax)(above_thirty)
        count = len(geoskip.reports(own))
        assert len(own.sql(text).collect()) == 10
        assert geoskip.wait_for_audits(own)
        reports = geoskip.reports(own)[count:]
        assert len(reports) == 1, "the audit's own reads are not reported"
        scan = next(scan for scan in reports[0].scans if scan.files_kept == 1)
        assert scan.files_audited == 3
        assert len(scan.lost) == 2
        assert any("part-1.parquet was skipped by mapping" in said and "5 rows of it" in said for said in scan.lost)
        assert any("part-2.parquet was skipped" in said and "10 rows of it match" in said for said in scan.lost)
        assert reports[0].lost == scan.lost
        assert "ROWS LOST" in str(reports[0])
        assert "rows lost" in reports[0]._repr_html_()
        assert scan.to_dict()["lost"] == list(scan.lost)
        assert "geoskip LOST ROWS" in caplog.text
        name = f"mapping {__name__}.above_thirty"
        assert list(geoskip.quarantined()) == [name]
        again = own.sql(text)
        assert len(again.collect()) == 25
        assert any(f"{name} is left out: an audit found 5 rows that it lost" in r or "10 rows" in r
                   for r in geoskip.report(again).reasons)  # fmt: skip
        geoskip.release(name)
        assert not geoskip.quarantined()


@pytest.mark.slow
def test_rows_that_an_index_lost_put_the_index_in_quarantine(own: Any, tmp_path: Path) -> None:
    own.conf.set(AUDIT, "1.0")
    place = four_tens(tmp_path)
    dataset = geoskip.dataset(own, str(place))
    dataset.create_index(Shifted("temp"), MinMax("id"))
    frame = own.read.parquet(str(place))
    with geoskip.mappings():
        assert len(frame.where("temp < 5 AND id < 100").collect()) == 5, "files of more are kept too"
        assert len(frame.where("temp >= 25 AND id < 100").collect()) == 10
        assert geoskip.wait_for_audits(own)
        (scan,) = geoskip.last_report(own).scans
        assert scan.files_audited == 3
        assert len(scan.lost) == 1
        assert list(geoskip.quarantined()) == [f"shifted(temp) of file:{place}"]
        again = own.read.parquet(str(place)).where("temp >= 25 AND id >= 20")
        assert len(again.collect()) == 15
        assert geoskip.report(again).files_kept == 2, "the other index still serves"


@pytest.mark.slow
def test_nothing_is_said_where_nothing_is_lost_or_asked_for(own: Any, tmp_path: Path) -> None:
    place = four_tens(tmp_path)
    geoskip.dataset(own, str(place)).create_index(MinMax("temp"))
    frame = own.read.parquet(str(place))
    for share, audited in (("1.0", 3), ("0", 0), ("much", 0)):
        own.conf.set(AUDIT, share)
        assert len(rows_of(frame.where("temp < 5 AND is_warm(temp + 15)"))) == 5
        assert geoskip.wait_for_audits(own)
        (scan,) = geoskip.last_report(own).scans
        assert (scan.files_kept, scan.files_audited, scan.lost) == (1, audited, ())
    own.conf.set(AUDIT, "1.0")
    listed = frame.where("temp < 6")
    listed.collect()  # its listing is kept, and so is its decision
    changed = place / "part-2.parquet"
    pq.write_table(pa.table({name: [1, 2] for name in ("temp", "id")}), changed)
    os.utime(changed, ns=(10**18, 10**18))
    listed.count()
    assert geoskip.wait_for_audits(own)
    assert not geoskip.last_report(own).lost, "the rows of another file"
    assert not geoskip.quarantined()
    own.conf.set("spark.sql.ansi.enabled", "true")
    with pytest.raises(Exception, match=r"(?i)divi"):
        own.sql("SELECT * FROM t WHERE temp < 5 AND 1 / (temp - 3) > 0").collect()
    assert geoskip.wait_for_audits(own)


@pytest.mark.slow
def test_rows_that_other_settings_than_the_querys_find_are_not_lost(own: Any, tmp_path: Path) -> None:
    for number, year in enumerate((1500, 2020)):
        pq.write_table(pa.table({"d": [datetime.date(year, 3, 3)]}), tmp_path / f"{number}.parquet")
    mode = "spark.sql.parquet.datetimeRebaseModeInRead"
    own.conf.set(mode, "CORRECTED")
    own.conf.set(AUDIT, "1.0")
    geoskip.dataset(own, str(tmp_path)).create_index(MinMax("d"))
    for _ in range(4):  # audits run one after another, so the last one starts when the setting has changed
        assert own.read.parquet(str(tmp_path)).where("d = date'1500-02-22'").collect() == []
    own.conf.set(mode, "LEGACY")
    assert geoskip.wait_for_audits(own)
    own.conf.unset(mode)
    assert [report.lost for report in geoskip.reports(own)[-4:]] == [()] * 4
    assert not geoskip.quarantined()
