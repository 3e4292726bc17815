"""A Thrift server for JDBC clients in a Python driver with geoskip.

``python -m geoskip.spark.jdbc.thrift_server --port 10000 --conf spark.master=yarn`` serves until it is interrupted.
Each connection has a session of its own, with the functions that are registered in the driver's session.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from py4j.java_gateway import JavaPackage
from pyspark.sql import SparkSession

from geoskip.errors import EnvironmentProblem
from geoskip.spark.session import enable, java, session

_SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
_PORT = "hive.server2.thrift.port"
_HOST = "hive.server2.thrift.bind.host"


def serve(spark: SparkSession, *, port: int = 10000, host: str = "localhost") -> Any:
    """Start a Thrift server over a session, in this driver; it ends with the session or by ``stop()``.

    Parameters
    ----------
    spark
        A session; geoskip is enabled in it. Its functions, temporary ones included, are those of all connections, its
        settings are not: give these to ``spark.conf`` before the session is made.
    port, host
        The address to listen at. The server asks nobody for a password unless Hive's settings say so: see Spark's
        documentation on ``hive.server2.authentication`` before it listens to a network.

    Raises
    ------
    EnvironmentProblem
        Where the session's Spark has no Thrift server.
    """
    enable(spark)
    java(spark).geoskip.share(spark._jsparkSession)
    settings: Any = spark.sparkContext._jsc.hadoopConfiguration()
    settings.set(_PORT, str(port))
    settings.set(_HOST, host)
    server = getattr(spark._jvm, _SERVER)
    if isinstance(server, JavaPackage):  # Py4J's notion of a class that is not there
        raise EnvironmentProblem(
            "this Spark has no Thrift server: its jars lack spark-hive-thriftserver, which PySpark of PyPI and the "
            "distributions with Hive have"
        )
    return server.startWithContext(spark._jsparkSession.sqlContext())


def run(port: int, host: str, config: Mapping[str, str]) -> None:
    """Serve over a session of its own until it is interrupted; ``config`` has settings of Spark's."""
    spark = session("geoskip-thrift-server", config={"spark.sql.catalogImplementation": "hive", **config})
    serve(spark, port=port, host=host)
    print(f"jdbc:hive2://{host}:{port}", flush=True)
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
    spark.stop()


def main() -> None:
    """Serve from the command line."""
    parser = argparse.ArgumentParser(prog="python -m geoskip.spark.jdbc.thrift_server", description=__doc__)
    parser.add_argument("--port", type=int, default=10000)
    parser.add_argument("--host", default="localhost", help="the address to listen at; 0.0.0.0 for all")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark's")
    given = parser.parse_args()
    run(given.port, given.host, dict(setting.split("=", 1) for setting in given.conf))


if __name__ == "__main__":
    main()
