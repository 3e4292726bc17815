"""Run Python and shell blocks of the README and the guides, and compare their output with the text.

    python -P tests/support/readme.py "Quick start"

runs the blocks of one section of the README. It needs the standard library and the imports of the blocks, so that it
runs with only geoskip's wheel installed. A figure written with ``~`` matches any figure of that unit, and a last line
of ``...`` matches further lines; everything else is compared literally.

A page with shell blocks runs in a new folder. ``geoskip`` is the command of this Python, and its standard error counts
as printed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["GUIDES", "README", "blocks", "matches", "run"]

README = Path(__file__).parents[2] / "README.md"
GUIDES = tuple(sorted((README.parent / "examples" / "guides").glob("*.md")))
"""Pages with blocks that continue those of the README."""
_BLOCK = re.compile(r"^```(python|shell)\n(.*?)^```\n+(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_SHELL = 'set -o pipefail; geoskip() {{ {python} -m geoskip "$@"; }}; exec 2>&1; {code}'
_VARYING = re.compile(r"~[\d.,]+ (m?s|B|[KM]iB)\b")
_FIGURES = {"s": r"[\d.,]+ m?s", "B": r"[\d.,]+ (?:[KM]i)?B"}


def blocks(page: Path = README, section: str | None = None, language: str = "python") -> Iterator[tuple[str, str]]:
    """The code of each block in a language, and the text below it, of the whole page or of one section."""
    yield from ((code, shown) for found, code, shown in _blocks(page, section) if found == language)


def _blocks(page: Path, section: str | None) -> Iterator[tuple[str, str, str]]:
    """The language, the code and the text below each block."""
    text = page.read_text("utf-8")
    if section is not None:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    yield from _BLOCK.findall(text)


def matches(printed: str, shown: str) -> bool:
    """Compare an output with the text of the page."""
    lines = [line.rstrip() for line in printed.strip().splitlines()]
    expected = [line.rstrip() for line in shown.strip().splitlines()]
    if expected[-1:] == ["..."]:
        del expected[-1], lines[len(expected) :]
    return len(lines) == len(expected) and all(map(_line_matches, lines, expected))


def _line_matches(line: str, expected: str) -> bool:
    literal = _VARYING.split(expected)  # text, unit, text, unit, ..., text
    pattern = "".join(_FIGURES[part[-1]] if place % 2 else re.escape(part) for place, part in enumerate(literal))
    return re.fullmatch(pattern, line) is not None


def run(page: Path = README, section: str | None = None, *, after: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run the blocks as in a notebook, and return the names that they define.

    Parameters
    ----------
    page, section
        The Markdown file, and one of its sections; by default all sections.
    after
        The names that an earlier page defined, which are copied.
    """
    names: dict[str, Any] = {**(after or {}), "__name__": "__main__"}  # objects defined there are pickled by value
    all_blocks = list(_blocks(page, section))
    with contextlib.ExitStack() as stack:
        if any(language == "shell" for language, _, _ in all_blocks):
            stack.enter_context(contextlib.chdir(stack.enter_context(tempfile.TemporaryDirectory())))
        for language, code, shown in all_blocks:
            printed = _python(code, page, names) if language == "python" else _shell(code)
            if not matches(printed, shown):
                raise AssertionError(f"{page.name} shows\n\n{shown}\nbut printed is\n\n{printed}\nafter\n\n{code}")
    return names


def _python(code: str, page: Path, names: dict[str, Any]) -> str:
    """The output of a Python block, which may define names."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, str(page), "exec", dont_inherit=True), names)
    return output.getvalue()


def _shell(code: str) -> str:
    """The output of a shell block."""
    environment = {**os.environ, "COLUMNS": "100", "PYTHONPATH": str(README.parent)}
    script = _SHELL.format(python=shlex.quote(sys.executable), code=code)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, check=False)
    return done.stdout


if __name__ == "__main__":
    run(README, sys.argv[1])
    print(len(list(blocks(README, sys.argv[1]))), "blocks of the README print what it shows")
