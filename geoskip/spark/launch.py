"""Start Spark's JVM, and explain in a sentence why it did not start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from geoskip.errors import EnvironmentProblem

__all__ = ["java_problem", "start"]

_JAVAS = (17, 21)  # Spark 3.5 and 4.0 fail on Java 24 and newer, Spark 4 on 11 and older
_PACKAGES = "spark.jars.packages"


def start(
    builder: SparkSession.Builder, make: Callable[[], SparkSession], sedona: Sequence[tuple[str, ...]] = ()
) -> SparkSession:
    """Make the session with the first of Sedona's packages that can be resolved.

    Packages are resolved before there is a JVM to talk to, and one that no repository has ends it: then Spark is
    started again with the next. Raises EnvironmentProblem where none can be had, and where Java is the reason.
    """
    given = getattr(builder, "_options", {}).get(_PACKAGES)
    failure: Exception | None = None
    for packages in sedona or ((),):
        if packages:
            builder.config(_PACKAGES, ",".join(filter(None, (given, *packages))))
        try:
            spark = make()
        except Exception as error:
            if SparkContext._active_spark_context is None and (why := java_problem()):
                raise EnvironmentProblem(f"Spark did not start: {why}") from error
            if not sedona or "JAVA_GATEWAY_EXITED" not in str(error):
                raise
            failure = error
        else:
            if failure is not None:
                warnings.warn(
                    f"Sedona's jar is {packages[0]}, older than the Python package: no repository has {sedona[0][0]}; "
                    f"pip install 'apache-sedona=={packages[0].rpartition(':')[2]}' spares the search",
                    stacklevel=5,
                )
            return spark
    jars = ", ".join(packages[0] for packages in sedona)
    raise EnvironmentProblem(
        f"Spark did not start with Sedona's jar; looked for, in this order: {jars}. What Spark printed says why: where "
        "no repository has one, name another in spark.jars.repositories, install the apache-sedona whose jar is there, "
        "as in pip install 'apache-sedona==1.8.0', or leave out sedona=True for the shapely-backed functions"
    ) from failure


def java_problem() -> str | None:
    """Return why Spark cannot run on the Java that it would start here, None where it can."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin/java")) if home else "java"
    needed = "it needs Java 17 or 21"
    way_out = (
        "install one, as with `apt-get install openjdk-17-jre-headless` or `brew install openjdk@17`, and let "
        "JAVA_HOME name its folder"
    )
    if shutil.which(command) is None:
        place = f"there is no {command}, where JAVA_HOME points" if home else "neither JAVA_HOME nor PATH leads to one"
        return f"{needed}, and {place}: {way_out}"
    try:
        told = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.SubprocessError) as error:
        return f"{needed}, and {command} cannot be run ({error}): {way_out}"
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version is None or int(version[1]) in _JAVAS:
        return None
    return f"{needed}, and {command} is Java {version[1]}: {way_out}"
