"""The core works where PySpark and every optional package are missing, and says what to install for the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support import core_only

HIDING = f"""
import runpy
import sys
from importlib.machinery import PathFinder

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in {core_only.ABSENT} else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
runpy.run_path({core_only.__file__!r}, run_name="__main__")
"""


def test_the_core_needs_no_spark(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(Path(core_only.__file__).parents[2]), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", HIDING], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == (
        f"geoskip.session needs PySpark, which is not installed in {sys.prefix}: pip install 'geoskip[spark]' (it "
        "brings Spark itself; Java 17 or 21 comes from your system). On a cluster, run the Python that has the "
        "cluster's PySpark. geoskip.build, geoskip.files, geoskip.duckdb, geoskip.scan_polars and "
        "geoskip.pyarrow_dataset need no Spark"
    )
