"""A session with the jars, extensions and catalogues of Delta and Iceberg, for ``make test-tables``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import CONFIG, delta_package

ICEBERG = {"4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1"}


def iceberg_package() -> str | None:
    """The Maven coordinates of Iceberg for the installed PySpark, None where the tests know of none."""
    import pyspark

    return next((package for line, package in ICEBERG.items() if pyspark.__version__.startswith(line)), None)


def table_config(warehouse: Path) -> dict[str, str]:
    """Settings of a session with both formats: Delta in ``spark_catalog``, Iceberg in ``ice``."""
    return {
        "spark.jars.packages": f"{delta_package()},{iceberg_package()}",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(warehouse / "ice"),
        "spark.sql.warehouse.dir": str(warehouse / "tables"),
        "spark.databricks.delta.snapshotPartitions": "1",
    }


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, which the other targets leave out."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.tables)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session of the run: geoskip enabled, tables of Delta and Iceberg."""
    import geoskip

    if delta_package() is None or iceberg_package() is None:
        pytest.skip("no releases of Delta and Iceberg for this Spark are known to the tests")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    config = {**CONFIG, **table_config(tmp_path_factory.mktemp("warehouse"))}
    found = geoskip.session("geoskip-tables", sedona=False, config=config)
    found.sparkContext.setLogLevel("ERROR")
    geoskip.register_functions(found, sedona=False)
    yield found
    found.stop()


@pytest.fixture
def table(spark: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a table of Iceberg that is dropped in the end."""
    name = f"ice.db.t{abs(hash(request.node.nodeid))}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")
