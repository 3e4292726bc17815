"""The notebooks: what is committed is tidy, and they still run."""

from __future__ import annotations

import builtins
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest

import geoskip
from examples import log_analytics  # noqa: F401 (its declarations outlast a notebook)
from examples.run_notebook import NOTEBOOKS, tidied

OF_A_MACHINE = re.compile(r"/(?:tmp|home|root|Users|work|var)/|\\\\Users\\\\")
INLINE = "module://matplotlib_inline.backend_inline"
SMALL = {
    "geospatial_notebook": {"GEOSKIP_FILES": "4", "GEOSKIP_EVERY": "100", "GEOSKIP_SEDONA": ""},
    "log_analytics_notebook": {"GEOSKIP_LINES": "3000", "GEOSKIP_DAYS": "3", "GEOSKIP_FILES": "4"},
    "mappings_notebook": {"GEOSKIP_FILES": "12", "GEOSKIP_EVERY": "20", "GEOSKIP_SECONDS": "1"},
}
"""The size at which each is run here."""
PICTURES = {"geospatial_notebook": 5, "log_analytics_notebook": 2, "mappings_notebook": 2}
SHOWN = {
    "geospatial_notebook": "not in Texas",
    "log_analytics_notebook": "refreshed",
    "mappings_notebook": "kilometres",
}
"""What the last table names."""
each_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def pictures_in(book: Any) -> int:
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    return sum("image/png" in output.get("data", {}) for output in outputs)


@each_notebook
def test_what_is_committed_was_executed_and_names_no_machine(notebook: Path) -> None:
    book = nbformat.read(notebook, as_version=4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert pictures_in(book) >= PICTURES[notebook.stem]
    assert book.metadata["seconds"] < 120
    texts = json.dumps([[{k: v for k, v in o.items() if k != "data"} for o in cell.outputs] for cell in code])
    texts += json.dumps([v for c in code for o in c.outputs for k, v in o.get("data", {}).items() if k != "image/png"])
    assert not OF_A_MACHINE.search(texts), OF_A_MACHINE.search(texts)
    assert '"stderr"' not in texts
    assert notebook.stat().st_size < 1_500_000


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """What runs the cells in a kernel, in this process: a kernel of its own would need a Spark of its own.

    There is one for all notebooks, since matplotlib draws in the first one only.
    """
    from IPython.core.interactiveshell import InteractiveShell
    from matplotlib import pyplot, rc_context
    from matplotlib_inline.backend_inline import configure_inline_support
    from matplotlib_inline.config import InlineBackend
    from traitlets.config import Config

    before, backend = dict(vars(builtins)), pyplot.get_backend()
    found = InteractiveShell.instance(
        config=Config({"HistoryManager": {"enabled": False}}),
        ipython_dir=str(tmp_path_factory.mktemp("ipython")),
        user_module=ModuleType("notebook"),  # and not in the place of pytest's main module
    )
    with rc_context({"interactive": True}):
        pyplot.switch_backend(INLINE)
        configure_inline_support(found, INLINE)
        yield found
    pyplot.close("all")
    pyplot.switch_backend(backend)
    InlineBackend.clear_instance()
    InteractiveShell.clear_instance()
    for name in vars(builtins).keys() - before.keys():
        delattr(builtins, name)


def run(shell: Any, book: Any) -> None:
    """Execute the cells in their order; each cell's outputs are then those of this run."""
    from IPython.utils.capture import capture_output

    shell.reset(new_session=False)
    for cell in book.cells:
        if cell.cell_type == "code":
            with shell.display_trap, capture_output() as captured:
                done = shell.run_cell(cell.source)
            done.raise_error()
            cell.outputs = [nbformat.v4.new_output("display_data", data=shown.data) for shown in captured.outputs]
            cell.outputs.append(nbformat.v4.new_output("stream", name="stdout", text=captured.stdout))


@pytest.mark.slow
@pytest.mark.usefixtures("processor_time")
@each_notebook
def test_it_runs(notebook: Path, plain: Any, shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a session beside the run's own, which its cells find and do not stop; the other Sparks have enough to do."""
    from pyspark.sql import SparkSession

    session, stopped = plain.newSession(), list[Any]()
    monkeypatch.setattr(SparkSession, "_instantiatedSession", session)
    monkeypatch.setattr(SparkSession, "stop", lambda one: stopped.append(one))
    monkeypatch.setattr("geoskip.spark.st_functions.is_there", lambda _: False)  # as where nobody asked for its jar
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(notebook.parent)
    for name, value in SMALL[notebook.stem].items():
        monkeypatch.setenv(name, value)
    book = nbformat.read(notebook, as_version=4)
    with geoskip.mappings():
        run(shell, book)
    book = tidied(book)
    assert stopped == [session]
    assert pictures_in(book) >= PICTURES[notebook.stem]
    assert book.metadata["seconds"] < 120
    (figures,) = [output for output in book.cells[-3].outputs if "text/html" in output.get("data", {})]
    assert SHOWN[notebook.stem] in figures["data"]["text/html"]
    assert not OF_A_MACHINE.search(figures["data"]["text/plain"])
