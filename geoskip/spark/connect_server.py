"""Spark Connect server in a driver with geoskip, so that queries of its clients skip files.

A client of Spark Connect has no optimizer. The server's sessions are derived from the driver's session and share its
extensions, including the rule and the statements on skipping indexes.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from geoskip.errors import EnvironmentProblem
from geoskip.spark.session import enable

_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService"
_PORT = "spark.connect.grpc.binding.port"


def connect_server(spark: SparkSession) -> str:
    """Serve Spark Connect from a session's driver; return the address for ``builder.remote()``.

    Queries of the clients skip files, and their ``spark.sql`` accepts the statements on skipping indexes, such as
    ``CREATE SKIPPING INDEX`` and ``EXPLAIN SKIPPING``. The port is that of ``spark.connect.grpc.binding.port``, 15002
    by default, and 0 selects a free one. The server stops with the session.

    Parameters
    ----------
    spark
        A classic session; geoskip is enabled in it.

    Raises
    ------
    EnvironmentProblem
        For a Spark Connect session, if the jar of Spark Connect is missing, or if the port is in use.
    """
    enable(spark)
    jvm: Any = spark._jvm
    loader = jvm.org.apache.spark.util.Utils
    try:
        loader.classForName(_SERVICE, True, False)
    except Py4JJavaError:
        scala = "2.12" if spark.version.startswith("3.") else "2.13"
        raise EnvironmentProblem(
            f"Spark {spark.version} has no server of Spark Connect on its class path; give the session "
            f"spark.jars.packages=org.apache.spark:spark-connect_{scala}:{spark.version}"
        ) from None
    service = getattr(getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    if not service.started():
        context: Any = spark.sparkContext
        try:
            service.start(context._jsc.sc())
        except Py4JJavaError as error:
            port = spark.conf.get(_PORT, "15002")
            raise EnvironmentProblem(
                f"Spark Connect cannot serve at port {port}: {error.java_exception.getMessage()}; name another one, or "
                f"0 for a free one, in {_PORT} before the session is made"
            ) from error
    return f"sc://localhost:{service.localPort()}"
