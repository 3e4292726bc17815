"""Packages that only some calls need, imported when one of these is made."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from geoskip.errors import MissingPackageError

_EXTRAS = {"sqlglot": "sql", "deltalake": "delta"}
"""Extras of geoskip that are not named as their package."""


def required(package: str, caller: str) -> ModuleType:
    """Import an optional package, or raise MissingPackageError that names the extra of geoskip to install.

    >>> required("json", "geoskip.files()").__name__
    'json'
    """
    name = package.partition(".")[0]
    if find_spec(name) is None:
        extra = _EXTRAS.get(name, name)
        raise MissingPackageError(f"{caller} needs the package {name}: pip install 'geoskip[{extra}]'")
    return import_module(package)
