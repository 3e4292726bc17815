"""Runs of the command line in this process and in others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from geoskip.cli import app


def ran(*words: object) -> Any:
    """The result of a command, run here: ``exit_code``, ``stdout``, ``stderr``."""
    done = CliRunner().invoke(app, list(map(str, words)), prog_name="geoskip")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def printed(*words: object) -> str:
    """Standard output of a command that must succeed."""
    done = ran(*words)
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def as_json(*words: object) -> Any:
    """The JSON object that a command prints with ``--json``."""
    return json.loads(printed(*words, "--json"))


def process(*words: object, shell: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, or with ``shell`` a line of the shell that calls ``geoskip``."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "80"}
    command = [sys.executable, "-m", "geoskip", *map(str, words)]
    if shell:
        environment["GEOSKIP_PYTHON"] = sys.executable
        command = ["bash", "-c", f'geoskip() {{ "$GEOSKIP_PYTHON" -m geoskip "$@"; }}; {shell}']
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=cwd, check=False)
