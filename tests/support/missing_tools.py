"""Tools that some tests need in addition to Python packages."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def without(tool: str, way_out: str) -> NoReturn:
    """Skip the test because a tool is missing; in CI, where it can be installed, fail."""
    why = f"no {tool}: {way_out}"
    if os.environ.get("CI"):
        pytest.fail(f"{why} (CI is set, so tests are not skipped for want of a tool)")
    pytest.skip(why)
