"""Iceberg tables, and the files that Spark reads from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import geoskip
from geoskip import ValueList
from tests.conftest import rows_of

ODD = ValueList("temp % 7")
"""Values that Iceberg's own skipping does not support: its bounds are those of columns."""
MODES = [("2", "merge-on-read"), ("3", "merge-on-read"), ("2", "copy-on-write")]
"""Position deletes, deletion vectors, rewritten files."""

Kept = Callable[..., Any]


def make(spark: Any, table: str, *, by: str = "", **properties: str) -> str:
    """Create a table of four files with ``temp`` 0..9, 10..19, 20..29 and 30..39, split by partitions."""
    options = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    spark.sql(
        f"CREATE TABLE {table} (temp BIGINT, half BIGINT, name STRING) USING iceberg "
        + (f"PARTITIONED BY ({by}) " if by else "")
        + (f"TBLPROPERTIES ({options})" if options else "")
    )
    for start in range(0, 40, 10):
        add(spark, table, start, start + 10)
    return table


def add(spark: Any, table: str, start: int, end: int) -> None:
    values = "id AS temp, id % 2 AS half, concat('n', id) AS name"
    spark.range(start, end, 1, 1).selectExpr(*values.split(", ", 2)).writeTo(table).append()


def scans(frame: Any) -> list[set[str]]:
    """The data files of each executed Iceberg scan, from the tasks that Spark got."""

    def of(plan: Any) -> Iterator[set[str]]:
        name = plan.getClass().getSimpleName()
        if name == "AdaptiveSparkPlanExec":
            yield from of(plan.executedPlan())
        elif name.endswith("QueryStageExec"):
            yield from of(plan.plan())
        elif name == "BatchScanExec" and plan.scan().getClass().getSimpleName() == "SparkBatchQueryScan":
            partitions = [part for part in plan.inputRDD().partitions() if hasattr(part, "inputPartitions")]
            inputs = [
                part.inputPartitions().apply(n) for part in partitions for n in range(part.inputPartitions().size())
            ]
            yield {str(task.file().location()) for part in inputs for task in part.taskGroup().tasks().toArray()}
        elif name != "ReusedExchangeExec":
            for children in (plan.subqueries(), plan.children()):
                for number in range(children.size()):
                    yield from of(children.apply(number))

    return list(of(frame._jdf.queryExecution().executedPlan()))


def kept_files(spark: Any, query: str | Callable[[], Any], **arguments: Any) -> Any:
    """Count a query's files read and all files, after checking its rows with geoskip on and off."""
    ask = (lambda: spark.sql(query, **arguments)) if isinstance(query, str) else query
    with geoskip.disabled(spark):
        off = rows_of(ask())
    frame = ask()
    assert rows_of(frame) == off
    report = geoskip.report(frame)
    executed = scans(frame)
    assert sorted(scan.files_kept for scan in report.scans) == sorted(map(len, executed))
    assert {path.rpartition("/")[2] for scan in report.scans for path in scan.kept_files()} == {
        path.rpartition("/")[2] for files in executed for path in files
    }
    pairs = [(scan.files_kept, scan.files_total) for scan in report.scans]
    return pairs[0] if len(pairs) == 1 else pairs


def reasons(spark: Any, query: str) -> str:
    report = geoskip.explain(spark.sql(query))
    return "; ".join([*report.notes, *(reason for scan in report.scans for reason in scan.reasons)])


def version(spark: Any, table: str) -> int:
    return int(spark.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at DESC LIMIT 1").head()[0])


def iceberg(spark: Any, table: str) -> Any:
    """Load the table through Iceberg's own interface."""
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)


def delete_by_name(spark: Any, table: str, name: str) -> None:
    """Delete the rows of a name by an equality delete, which Spark itself cannot write."""
    jvm, own = spark._jvm, iceberg(spark, table)
    ids = spark.sparkContext._gateway.new_array(jvm.int, 1)
    ids[0] = own.schema().findField("name").fieldId()
    names = spark.sparkContext._gateway.new_array(jvm.java.lang.String, 1)
    names[0] = "name"
    schema = own.schema().select(names)
    factory = jvm.org.apache.iceberg.data.GenericAppenderFactory(own.schema(), own.spec(), ids, schema, None)
    place = own.io().newOutputFile(f"{own.location()}/data/deletes.parquet")
    output = jvm.org.apache.iceberg.encryption.EncryptedFiles.encryptedOutput(
        place, jvm.java.nio.ByteBuffer.allocate(0)
    )
    writer = factory.newEqDeleteWriter(output, jvm.org.apache.iceberg.FileFormat.PARQUET, None)
    row = jvm.org.apache.iceberg.data.GenericRecord.create(schema)
    row.setField("name", name)
    writer.write(row)
    writer.close()
    own.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
    spark.sql(f"REFRESH TABLE {table}")
