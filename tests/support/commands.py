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
    """Run a command in this process and return its result: ``exit_code``, ``stdout``, ``stderr``."""
    done = CliRunner().invoke(app, list(map(str, words)), prog_name="geoskip")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def printed(*words: object) -> str:
    """Run a command that must succeed, and return its standard output."""
    done = ran(*words)
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def as_json(*words: object) -> Any:
    """Run a command with ``--json``, and return the JSON object that it prints."""
    return json.loads(printed(*words, "--json"))


def process(*words: object, shell: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in a new process, or with ``shell`` a line of the shell that calls ``geoskip``."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "80"}
    command = [sys.executable, "-m", "geoskip", *map(str, words)]
    if shell:
        environment["GEOSKIP_PYTHON"] = sys.executable
        command = ["bash", "-c", f'geoskip() {{ "$GEOSKIP_PYTHON" -m geoskip "$@"; }}; {shell}']
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=cwd, check=False)
