"""The Python process that enables geoskip in a JVM with the extension.

``python -m geoskip.spark.jdbc.attach`` reads the port and the secret of the JVM's Py4J server from the environment,
like the Python process of spark-submit. It prints one line when it is ready, and ends when its standard input closes.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from geoskip.spark.session import enable, java
from geoskip.spark.st_functions import register_functions


def attach() -> SparkSession:
    """Wrap the first session of the JVM, enable geoskip and make its functions available to all sessions."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    process = gateway.jvm.geoskip.extension.PythonProcess
    session = process.session()
    context = session.sparkContext()
    sc = SparkContext(
        gateway=gateway,
        jsc=gateway.jvm.org.apache.spark.api.java.JavaSparkContext(context),
        conf=SparkConf(_jconf=context.getConf()),
    )
    spark = SparkSession(sc, session)
    java(spark).geoskip.leaveToOthers()
    enable(spark)
    register_functions(spark)
    java(spark).geoskip.share(session)
    process.connect(java(spark).geoskip.installer())
    return spark


if __name__ == "__main__":
    attach()
    print("attached", flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # the JVM is gone, so nothing in it can be closed
