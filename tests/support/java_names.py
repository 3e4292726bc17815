"""Names of Java that are looked up once: Py4J asks for each part of ``jvm.org.apache.hadoop.fs.Path`` at every use.

A package is only known as one when no class of that name is in any of Spark's 300 archives; these searches took an
eighth of the JVM's time in a run of the tests. PySpark's own modules are served by it too: ``jvm.functions`` is looked
for in every package that they import from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from py4j.java_gateway import JavaClass, JavaPackage, JVMView


def remember_java_names(patch: pytest.MonkeyPatch) -> None:
    """Let views of the JVM and packages keep the classes and packages that they have found as attributes."""
    for kind in (JVMView, JavaPackage):
        patch.setattr(kind, "__getattr__", _remembering(kind.__getattr__))


def _remembering(look_up: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def attribute(owner: Any, name: str) -> Any:
        found = look_up(owner, name)
        # a class may be compiled later: what is written like one, and is none yet, is looked up again
        if isinstance(found, JavaClass) or (isinstance(found, JavaPackage) and name.islower()):
            vars(owner)[name] = found
        return found

    return attribute
