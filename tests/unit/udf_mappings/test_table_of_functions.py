"""The table of mapped functions is what the registry says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from geoskip import GeoBox, MinMax, mappings, maps
from geoskip.registry import Function

TABLE = Path(__file__).parents[3] / "udf_mappings" / "README.md"


@pytest.mark.slow
def test_the_table_is_current() -> None:
    done = subprocess.run([sys.executable, "-m", "geoskip", "mappings"], capture_output=True, text=True, check=True)
    assert done.stdout == TABLE.read_text("utf-8"), f"python -m geoskip mappings > {TABLE.parent.name}/{TABLE.name}"


def test_a_function_is_shown_with_its_arguments_and_the_rules_that_serve_it() -> None:
    from geoskip.cli.mappings_table import table
    from geoskip.registry.installed import load_mappings

    load_mappings()  # not within the block, at whose end they would be gone for the tests that follow
    with mappings():

        @maps(Function("km_between", python=("our.km",), arguments="lng, lat, lng, lat"), index=(GeoBox, MinMax))
        def near_by(node: object, boxes: object, bounds: object) -> None:
            return None

        assert "| `km_between(lng, lat, lng, lat)` | `our` | GeoBox and MinMax | near by |" in table().splitlines()
