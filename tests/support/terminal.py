"""Standard error as a terminal or a file, for what is shown there."""

from __future__ import annotations

import io
import sys

import pytest


class Terminal(io.StringIO):
    """Text that was written to a terminal."""

    def isatty(self) -> bool:
        return True


def replaced_error_output(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> io.StringIO:
    """What goes to standard error from now on; call it in the test, since pytest's own comes after fixtures."""
    monkeypatch.setattr(sys, "stderr", written := Terminal() if is_terminal else io.StringIO())
    return written
