"""Mappings of installed packages, found by entry point."""

from __future__ import annotations

import warnings
from functools import lru_cache
from importlib.metadata import entry_points

from geoskip.registry.registry import lasting_declarations


@lru_cache(maxsize=1)
def load_mappings() -> None:
    """Load the UDF mappings of all installed packages; one that fails is left out with a warning."""
    for point in entry_points(group="geoskip.udf_mappings"):
        try:
            with lasting_declarations():
                point.load()
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and point.extras:
                continue  # the package that it maps is not installed
            warnings.warn(f"the UDF mappings {point.value} could not be loaded and are left out: {error}", stacklevel=2)
