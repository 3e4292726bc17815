"""A user's own folder of Parquet files: create it, or run a query that skips some of them.

``python -P tests/support/own_folder.py make FOLDER`` needs only pyarrow, ``... query FOLDER`` geoskip with Spark.
"""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

__all__ = ["FILES", "make", "query"]

FILES, ROWS = 200, 500


def make(folder: Path) -> None:
    """Write orders, one file for each hour."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    for file in range(FILES):
        begin = dt.datetime(2025, 3, 1, tzinfo=dt.UTC) + dt.timedelta(hours=file)
        times = [begin + dt.timedelta(seconds=7 * row) for row in range(ROWS)]
        amounts = [float((file * 31 + row * 17) % 997) for row in range(ROWS)]
        table = {"id": range(file * ROWS, (file + 1) * ROWS), "at": times, "amount": amounts}
        pq.write_table(pa.table(table), folder / f"part-{file:05}.snappy.parquet")


def query(folder: Path) -> None:
    """Index a column and run a query, as in the README; raise SystemExit if no file was skipped."""
    import geoskip
    from geoskip import MinMax

    spark = geoskip.session("own data")
    print(geoskip.dataset(spark, str(folder)).create_index(MinMax("id")))
    spark.read.parquet(str(folder)).createOrReplaceTempView("orders")
    wanted = spark.sql("SELECT at, amount FROM orders WHERE id BETWEEN 41000 AND 41999")
    print(wanted.count(), "rows")
    report = geoskip.report(wanted)
    print(report)
    spark.stop()
    if (report.files_kept, report.files_total) != (2, FILES):
        raise SystemExit(f"2 of {FILES} files were to be read")


if __name__ == "__main__":
    {"make": make, "query": query}[sys.argv[1]](Path(sys.argv[2]))
