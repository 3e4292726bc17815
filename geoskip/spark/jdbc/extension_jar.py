"""Create the jar that enables geoskip by ``spark.sql.extensions``.

``python -m geoskip.spark.jdbc.extension_jar geoskip-extension.jar`` compiles it with Janino from PySpark's jars, in a
separate JVM: neither a JDK nor a download is needed. The same jar works with every Spark that geoskip supports.
"""

from __future__ import annotations

import os
import sys
import zipfile
from importlib.resources import files
from typing import Any

from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway

EXTENSION = "geoskip.extension.SkippingExtension"
"""The class for ``spark.sql.extensions``."""
USE = f"give it to Spark by --jars, with --conf spark.sql.extensions={EXTENSION}"
"""Instructions for using the jar."""
_SOURCES = ("SkippingExtension.java", "PythonProcess.java")
_MANIFEST = "Manifest-Version: 1.0\r\nCreated-By: geoskip\r\n\r\n"


def extension_jar(path: str | os.PathLike[str]) -> None:
    """Write the jar to a file; starts a JVM if none is running."""
    own = None if SparkContext._gateway is not None else launch_gateway()  # type: ignore[no-untyped-call]
    gateway: Any = own or SparkContext._gateway
    try:
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(_source())
        classes = compiler.getBytecodes()
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as jar:
            jar.writestr("META-INF/MANIFEST.MF", _MANIFEST)
            for name in sorted(classes):
                jar.writestr(f"{name.replace('.', '/')}.class", classes[name])
    finally:
        if own is not None:
            own.shutdown()


def _source() -> str:
    """The Java files as one compilation unit for Janino."""
    lines = [line for name in _SOURCES for line in files(__package__).joinpath(name).read_text("utf-8").splitlines()]
    imports = [line for line in lines if line.startswith("import ")]
    return "\n".join(
        ["package geoskip.extension;", *imports, *(x for x in lines if not x.startswith(("import ", "package ")))]
    )


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m geoskip.spark.jdbc.extension_jar geoskip-extension.jar")
    extension_jar(sys.argv[1])
    print(f"{sys.argv[1]}: {USE}")
