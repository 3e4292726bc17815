"""Run what needs no Spark, with only geoskip's wheel: ``python -P tests/support/core_only.py``.

This module needs the standard library and the requirements of the wheel.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import geoskip
from geoskip import BloomFilter, GeoBox, MetricDist, MinMax, Prefix, ValueList
from geoskip.errors import MissingPackageError

__all__ = ["main"]

ABSENT = ("pyspark", "py4j", "pandas", "rich", "typer", "sqlglot", "hypothesis")
_WITHOUT_SPARK = "geoskip.session geoskip.dataset geoskip.enable geoskip.last_report geoskip.write geoskip.what_if"


def _reasons() -> dict[str, str]:
    """Return the error messages of the public names that need Spark."""
    found = {}
    for name in _WITHOUT_SPARK.split():
        try:
            getattr(geoskip, name.removeprefix("geoskip."))
        except MissingPackageError as error:
            found[name] = str(error)
    return found


def main() -> None:
    """Build indexes, select and read files, and check the messages on Spark."""
    folder = Path(tempfile.mkdtemp())
    for number in range(4):
        values = range(10 * number, 10 * number + 10)
        columns = {"temp": values, "lng": [float(v) for v in values], "lat": [0.5 * v for v in values]}
        pq.write_table(pa.table({**columns, "city": [f"city {v}" for v in values]}), folder / f"{number}.parquet")
    indexes = [MinMax("temp"), ValueList("city"), BloomFilter("temp"), Prefix("city"), GeoBox("lng", "lat")]
    report = geoskip.build(folder, [*indexes, MetricDist("city", metric="levenshtein")])
    assert (report.files, report.read) == (4, 4), report
    for where in (pc.field("temp") == 15, pc.field("city") == "city 15", pc.field("lat") < 1):
        found = geoskip.files(folder, where)
        assert len(found) == 1, (where, found)
    assert geoskip.pyarrow_dataset(folder, pc.field("temp") > 37).to_table().num_rows == 2
    assert geoskip.statistics(folder).num_rows > 0
    reasons = _reasons()
    assert " ".join(reasons) == _WITHOUT_SPARK, reasons
    assert all("pip install 'geoskip[spark]'" in reason for reason in reasons.values()), reasons
    loaded = [name for name in ABSENT if sys.modules.get(name)]
    assert not loaded, loaded
    print("without Spark:", report)
    print(reasons["geoskip.session"])


if __name__ == "__main__":
    main()
