"""The progress of builds, in a terminal, a notebook and a log."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from geoskip.spark.build import spark_jobs as progress
from tests.support.terminal import replaced_error_output


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session of which three of four tasks are done, and hardly any patience."""
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    stage = SimpleNamespace(numCompletedTasks=3, numTasks=4)
    tracker = SimpleNamespace(getActiveStageIds=lambda: [7], getStageInfo=lambda number: stage)
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))


def shown(spark: Any, seconds: float = 0.6) -> None:
    with progress.show_progress(spark, "reading 40 files", 4):
        time.sleep(seconds)


def test_a_log_gets_a_line_now_and_then(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = replaced_error_output(monkeypatch, is_terminal=False)
    shown(spark)
    assert log.getvalue() == "geoskip: reading 40 files: 3 of 4 tasks\n"
    shown(spark, 0.0)
    assert log.getvalue().count("\n") == 1


def test_a_terminal_gets_a_bar(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = replaced_error_output(monkeypatch, is_terminal=True)
    shown(spark)
    assert "reading 40 files" in terminal.getvalue()
    assert "geoskip:" not in terminal.getvalue()


def test_a_notebook_gets_a_line_that_changes_and_goes(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    displays: list[Any] = []

    def display(content: Any, **options: Any) -> Any:
        displays.append(content["text/plain"])
        return SimpleNamespace(update=lambda new, raw: displays.append(new["text/plain"]))

    module = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", module)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))  # type: ignore[arg-type]
    log = replaced_error_output(monkeypatch, is_terminal=False)
    shown(spark)
    assert (displays[0], displays[1], displays[-1]) == (
        "reading 40 files", "reading 40 files: 3 of 4 tasks", "",
    )  # fmt: skip
    assert log.getvalue() == ""
