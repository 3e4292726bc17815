"""A Thrift server for JDBC clients in a Python driver with geoskip.

The command ``geoskip thrift-server`` runs it until it is interrupted. Each connection has its own session, with the
functions that are registered in the driver's session.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from py4j.java_gateway import JavaPackage
from pyspark.sql import SparkSession

from geoskip.errors import EnvironmentProblem
from geoskip.spark.session import enable, java, session

_SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
_PORTS = ("hive.server2.thrift.port", "hive.server2.thrift.http.port")
_HOST = "hive.server2.thrift.bind.host"
_PATIENCE = 10.0
"""Timeout in seconds for a connection to the new server."""


def serve(spark: SparkSession, *, port: int = 10000, host: str = "localhost") -> Any:
    """Start a Thrift server for a session in this driver; it ends with the session or by ``stop()``.

    Parameters
    ----------
    spark
        A session; geoskip is enabled in it. All connections share its functions, including temporary ones, but not its
        settings: set these when the session is created.
    port, host
        The address to listen on. Without Hive's settings the server requires no password: see Spark's documentation on
        ``hive.server2.authentication`` before you make it accessible from a network.

    Raises
    ------
    EnvironmentProblem
        If the session's Spark has no Thrift server, or it does not listen on the address.
    """
    enable(spark)
    java(spark).geoskip.share(spark._jsparkSession)
    jvm: Any = spark._jvm
    settings = [spark.sparkContext._jsc.hadoopConfiguration()]
    hive = jvm.org.apache.hadoop.hive.ql.session.SessionState
    if not isinstance(hive, JavaPackage) and (client := hive.get()) is not None:
        settings.append(client.getConf())  # if a metastore client exists, the server uses its settings
    for each in settings:
        each.set(_HOST, host)
        for name in _PORTS:
            each.set(name, str(port))
    server = getattr(jvm, _SERVER)
    if isinstance(server, JavaPackage):  # Py4J returns this for a missing class
        raise EnvironmentProblem(
            "this Spark has no Thrift server: its jars lack spark-hive-thriftserver, which PySpark of PyPI and the "
            "distributions with Hive have"
        )
    started = server.startWithContext(spark._jsparkSession.sqlContext())
    try:
        socket.create_connection((host, port), _PATIENCE).close()
    except OSError as error:
        started.stop()
        raise EnvironmentProblem(
            f"the Thrift server does not listen at {host}:{port} ({error.strerror or error}); look for settings of "
            "hive.server2 in hive-site.xml that say otherwise"
        ) from None
    return started


def free_port(host: str, port: int) -> int:
    """Return the port, or a free one for 0; raises EnvironmentProblem if a server cannot listen on it."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.create_server(address[:2], family=family) as opened:
            return int(opened.getsockname()[1])
    except OSError as error:
        why = str(error.strerror).partition(" (while")[0]
        raise EnvironmentProblem(
            f"a server cannot listen at {host}:{port}: {why}; give another --port, 0 for a free one, or another --host"
        ) from None


def run(port: int, host: str, config: Mapping[str, str]) -> None:
    """Start a session and a Thrift server, which runs until it is interrupted or terminated.

    Parameters
    ----------
    port, host
        The address to listen on; port 0 for a free one. Raises EnvironmentProblem if it is in use.
    config
        Spark's settings.
    """
    port = free_port(host, port)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print("geoskip: starting Spark", file=sys.stderr, flush=True)
    spark = session("geoskip-thrift-server", config={"spark.sql.catalogImplementation": "hive", **config})
    try:
        serve(spark, port=port, host=host)
        print(f"jdbc:hive2://{host}:{port}", flush=True)
        print("geoskip: serves JDBC clients at this address until Ctrl-C", file=sys.stderr, flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    finally:
        spark.stop()
