"""Cache of Java names: Py4J looks up each part of ``jvm.org.apache.hadoop.fs.Path`` at every use.

Py4J recognises a package only after finding no class of that name in Spark's 300 archives; these searches took an
eighth of the JVM's time in a test run. PySpark's own modules benefit too: ``jvm.functions`` is searched in every
package that they import from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from py4j.java_gateway import JavaClass, JavaPackage, JVMView


def remember_java_names(patch: pytest.MonkeyPatch) -> None:
    """Make JVM views and packages store the classes and packages that they have found as attributes."""
    for kind in (JVMView, JavaPackage):
        patch.setattr(kind, "__getattr__", _remembering(kind.__getattr__))


def _remembering(look_up: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def attribute(owner: Any, name: str) -> Any:
        found = look_up(owner, name)
        # a class may be compiled later: a name like that of a class is looked up again until it exists
        if isinstance(found, JavaClass) or (isinstance(found, JavaPackage) and name.islower()):
            vars(owner)[name] = found
        return found

    return attribute
