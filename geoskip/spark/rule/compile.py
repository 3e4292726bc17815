"""The rule's Java source, compiled in the driver by Janino, and Python's side of the connection.

Janino comes with every Spark distribution. Its class loader's parent is the one that sees the session's jars, so that
nothing is put on a class path and nothing is built.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from py4j.java_gateway import JavaGateway
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

__all__ = ["JvmBridge", "jvm_of"]

_CLASSES = {
    "Dataset": "org.apache.spark.sql.{classic}Dataset",
    "SparkSession": "org.apache.spark.sql.{classic}SparkSession",
    "Seq": "scala.collection.{immutable}Seq",
}

Answer = Callable[[str, Any], str]
"""What answers the rule's requests, given the side that asks, an instance of ``geoskip.Geoskip``."""


class JvmBridge:
    """The Java side of one driver: an instance of ``geoskip.Geoskip``, connected to a Python function."""

    def __init__(self, spark: SparkSession, answer: Answer) -> None:
        gateway: Any = spark.sparkContext._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        self.geoskip = (
            _compiled(spark)
            .getConstructor(gateway.new_array(gateway.jvm.java.lang.Class, 0))
            .newInstance(gateway.new_array(gateway.jvm.java.lang.Object, 0))
        )
        self.callback = _JavaFunction(lambda request: answer(request, self.geoskip))
        self.geoskip.connect(self.callback, gateway.java_gateway_server.getCallbackClient())


class _JavaFunction:
    """A Python function as a ``java.util.function.Function``."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self.answer = answer

    def apply(self, request: str) -> str:
        return self.answer(request) if request else ""

    class Java:
        implements = ["java.util.function.Function"]  # noqa: RUF012 - Py4J's own convention


def _compiled(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    source = _source()
    old = spark.version.startswith("3.")
    for name, where in _CLASSES.items():
        full = where.format(classic="" if old else "classic.", immutable="" if old else "immutable.")
        source = source.replace(f"@{name}@", full)
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    scan = loader.loadClass("org.apache.spark.sql.execution.FileSourceScanExec").getConstructors()[0]
    types = [kind.getName() for kind in scan.getParameterTypes()]  # each Spark has further ones
    source = source.replace("@ScanParameters@", ", ".join(f"{kind} p{number}" for number, kind in enumerate(types)))
    source = source.replace("@ScanArguments@", ", ".join(f"p{number}" for number in range(len(types))))
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(source)
    return compiler.getClassLoader().loadClass("geoskip.Geoskip")


def _source() -> str:
    """The Java files as the one compilation unit that Janino takes."""
    imports: dict[str, None] = {}
    classes: list[str] = []
    for file in sorted(files("geoskip.spark").joinpath("jvm").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".java"):
            lines = file.read_text("utf-8").splitlines()
            imports.update(dict.fromkeys(line for line in lines if line.startswith("import ")))
            classes.extend(line for line in lines if not line.startswith(("import ", "package ")))
    return "\n".join(["package geoskip;", *imports, *classes])


_connected: dict[int, tuple[JavaGateway, JvmBridge]] = {}
_lock = threading.Lock()


def jvm_of(spark: SparkSession, answer: Answer) -> JvmBridge:
    """The Java side of this session's driver; compiled and connected once a driver."""
    gateway = spark.sparkContext._gateway
    with _lock:
        known = _connected.get(id(gateway))
        if known is None or known[0] is not gateway:
            known = (gateway, JvmBridge(spark, answer))
            _connected[id(gateway)] = known
        return known[1]
