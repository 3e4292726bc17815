"""The progress of long work: bars on a terminal, lines in a log, nothing for what is quick."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import geoskip
from geoskip import MinMax
from geoskip.sources import progress
from geoskip.sources.progress import delayed_progress, progress_display
from tests.support.terminal import replaced_error_output


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No patience: progress is shown at once."""
    monkeypatch.setattr(progress, "PATIENCE", 0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A hundred and forty files of a row each, which a thread reads in three turns."""
    for number in range(140):
        pq.write_table(pa.table({"n": [number]}), tmp_path / f"{number}.parquet")
    return tmp_path


def test_a_build_without_spark_has_a_bar_on_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = replaced_error_output(monkeypatch, is_terminal=True)
    geoskip.build(folder, MinMax("n"), threads=1)
    assert "reading 140 files" in terminal.getvalue()
    assert "geoskip:" not in terminal.getvalue()


def test_a_build_without_spark_writes_plain_lines_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = replaced_error_output(monkeypatch, is_terminal=False)
    geoskip.build(folder, MinMax("n"), threads=1)
    assert log.getvalue() == "geoskip: reading 140 files: 64 of 140 files\n"  # the next line is due in ten seconds


def test_what_is_quick_shows_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = replaced_error_output(monkeypatch, is_terminal=True)
    monkeypatch.setattr(progress, "PATIENCE", 600.0)
    geoskip.build(folder, MinMax("n"))
    assert terminal.getvalue() == ""


def test_a_terminal_without_rich_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = replaced_error_output(monkeypatch, is_terminal=True)
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    with delayed_progress("copying 3 files", "files", 3) as advance:
        advance(1)
    assert terminal.getvalue() == "geoskip: copying 3 files: 1 of 3 files\n"


def test_a_log_has_no_count_where_none_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    log = replaced_error_output(monkeypatch, is_terminal=False)
    with progress_display("sampling rows", "tasks") as show:
        show(0, None)
    assert log.getvalue() == "geoskip: sampling rows\n"


def test_bars_of_several_threads_share_a_display_that_ends_with_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = replaced_error_output(monkeypatch, is_terminal=True)
    started, ended = threading.Event(), threading.Event()

    def other_thread() -> None:
        with progress_display("reading [1] files", "tasks") as show:
            show(1, 2)
            started.set()
            ended.wait(10)

    with progress_display("recommending indexes", ""):
        thread = threading.Thread(target=other_thread)
        thread.start()
        assert started.wait(10)
        display = progress._bars.display
        display.refresh()
    assert progress._bars.display is display, "the other bar needs it"
    ended.set()
    thread.join()
    assert progress._bars.display is None
    shown = terminal.getvalue()
    assert [each for each in ("recommending indexes", "reading [1] files", "1 of 2 tasks") if each not in shown] == []


def test_what_is_printed_meanwhile_goes_to_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = replaced_error_output(monkeypatch, is_terminal=True)
    with progress_display("writing", "tasks") as show:
        show(0, 2)
        print("a line for a pipe")
    assert capsys.readouterr().out == "a line for a pipe\n"
    assert "a line" not in terminal.getvalue()


def test_an_error_removes_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced_error_output(monkeypatch, is_terminal=True)
    with pytest.raises(KeyError), progress_display("writing", "tasks"):
        raise KeyError
    assert progress._bars.display is None
