"""``python -m geoskip`` is the command ``geoskip``."""

from __future__ import annotations

from geoskip.cli import app

if __name__ == "__main__":
    app()
