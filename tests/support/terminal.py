"""Standard error as a terminal or a file, to test what is shown there."""

from __future__ import annotations

import io
import sys

import pytest


class Terminal(io.StringIO):
    """Text written to a terminal."""

    def isatty(self) -> bool:
        return True


def replaced_error_output(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> io.StringIO:
    """Replace standard error; call it in the test, since pytest replaces it after fixtures."""
    monkeypatch.setattr(sys, "stderr", written := Terminal() if is_terminal else io.StringIO())
    return written
