"""Tools that some tests need beside the packages of the environment."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def without(tool: str, way_out: str) -> NoReturn:
    """Skip the test for want of a tool; in CI, where the tool is to be had, let it fail."""
    why = f"no {tool}: {way_out}"
    if os.environ.get("CI"):
        pytest.fail(f"{why} (CI is set, so tests are not skipped for want of a tool)")
    pytest.skip(why)
