"""A process of its own that changes a table of Iceberg for some seconds: ``python -m tests.tables.iceberg_writer``."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from tests.conftest import CONFIG
from tests.tables.conftest import iceberg_package, table_config

MERGE = (
    "MERGE INTO {t} AS t USING (SELECT id * 7 + {n} AS temp FROM range(20)) AS s ON t.temp = s.temp "
    "WHEN MATCHED THEN UPDATE SET name = 'merged{n}' "
    "WHEN NOT MATCHED THEN INSERT (temp, half, name) VALUES (s.temp, 0, 'new')"
)
CHANGES = (
    MERGE,
    "DELETE FROM {t} WHERE temp % 11 = {n} % 11",
    "INSERT INTO {t} SELECT id, id % 2, 'again' FROM range({n}, {n} + 30, 1, 2)",
    "UPDATE {t} SET temp = temp + 1 WHERE temp % 13 = {n} % 13",
    "CALL ice.system.rewrite_data_files(table => '{t}', options => map('min-input-files', '2'))",
)


def main(warehouse: str, table: str, seconds: float, seed: int) -> None:
    """Make each change once, and then others until so many seconds after the first; ``<warehouse>.changed`` counts."""
    from pyspark.sql import SparkSession

    settings = {**CONFIG, **table_config(Path(warehouse)), "spark.master": "local[1]", "spark.driver.memory": "1g"}
    settings |= {
        "spark.jars.packages": str(iceberg_package()),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }
    builder = SparkSession.builder.appName("writer")
    for name, value in settings.items():
        if name not in ("spark.python.daemon.module", "spark.sql.catalog.spark_catalog"):
            builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    numbers, made, until = random.Random(seed), 0, 0.0
    while made < len(CHANGES) or time.monotonic() < until:
        change = CHANGES[made % len(CHANGES)] if made < len(CHANGES) else numbers.choice(CHANGES)
        spark.sql(change.format(t=table, n=numbers.randrange(300)))
        made += 1
        until = until or time.monotonic() + seconds
        Path(f"{warehouse}.changed").write_text(str(made))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
