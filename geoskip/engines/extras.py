"""Optional packages, imported by the calls that need them."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from geoskip.errors import MissingPackageError

_INSTALL = {
    "sqlglot": "'geoskip[sql]'",
    "deltalake": "'geoskip[delta]'",
    "pyiceberg": "'geoskip[iceberg]'",
    "pandas": "pandas",
}
"""Arguments of pip for packages that are not the extra of their own name."""


def require_package(package: str, caller: str) -> ModuleType:
    """Import an optional package, or raise MissingPackageError that names the extra of geoskip to install.

    >>> require_package("json", "geoskip.files()").__name__
    'json'
    """
    name = package.partition(".")[0]
    if find_spec(name) is None:
        install = _INSTALL.get(name, f"'geoskip[{name}]'")
        raise MissingPackageError(f"{caller} needs the package {name}: pip install {install}")
    return import_module(package)
