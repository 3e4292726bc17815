"""The notebook: what is committed is tidy, and it still runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nbformat

from examples.run_notebook import NOTEBOOK, executed, tidied

OF_A_MACHINE = re.compile(r"/(?:tmp|home|root|Users|work|var)/|\\\\Users\\\\")
SMALL = {
    "GEOSKIP_FILES": "4",
    "GEOSKIP_EVERY": "100",
    "GEOSKIP_SEDONA": "",
    "SPARK_LOCAL_IP": "127.0.0.1",
    # a short run of small queries, as in conftest.py
    "PYSPARK_SUBMIT_ARGS": "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' "
    "--conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2 pyspark-shell",
}


def pictures_in(book: Any) -> int:
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def test_what_is_committed_was_executed_and_names_no_machine() -> None:
    book = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert pictures_in(book) >= 5
    texts = json.dumps([[{k: v for k, v in o.items() if k != "data"} for o in cell.outputs] for cell in code])
    texts += json.dumps([v for c in code for o in c.outputs for k, v in o.get("data", {}).items() if k != "image/png"])
    assert not OF_A_MACHINE.search(texts), OF_A_MACHINE.search(texts)
    assert '"stderr"' not in texts
    assert NOTEBOOK.stat().st_size < 1_500_000


def test_it_runs(tmp_path: Path) -> None:
    """With a session of its own in a process of its own; the other Sparks have enough to do."""
    book = tidied(executed(environment={**SMALL, "TMPDIR": str(tmp_path)}, seconds=300))
    assert pictures_in(book) >= 5
    (figures,) = [output for output in book.cells[-3].outputs if "text/html" in output.get("data", {})]
    assert "not in Texas" in figures["data"]["text/html"]
    assert not OF_A_MACHINE.search(figures["data"]["text/plain"])
