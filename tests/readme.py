"""Run Python blocks of the README and compare what they print with what stands below them.

    python -P tests/readme.py "Quick start"

runs the blocks of one section. It needs the standard library and what the blocks import, so that it runs where nothing
but geoskip's wheel is installed. Figures written with ``~`` stand for any figure of such a unit, and a last line of
``...`` for further lines; all else is compared literally.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["README", "blocks", "matches", "run"]

README = Path(__file__).parents[1] / "README.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```\n+(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_VARYING = re.compile(r"~[\d.,]+ (m?s|B|[KM]iB)\b")
_FIGURES = {"s": r"[\d.,]+ m?s", "B": r"[\d.,]+ (?:[KM]i)?B"}


def blocks(section: str | None = None) -> Iterator[tuple[str, str]]:
    """The code of each block, and the text below it, of the whole page or of one section."""
    text = README.read_text("utf-8")
    if section is not None:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    yield from _BLOCK.findall(text)


def matches(printed: str, shown: str) -> bool:
    """Whether an output is what the page shows."""
    lines = [line.rstrip() for line in printed.strip().splitlines()]
    expected = [line.rstrip() for line in shown.strip().splitlines()]
    if expected[-1:] == ["..."]:
        del expected[-1], lines[len(expected) :]
    return len(lines) == len(expected) and all(map(_line_matches, lines, expected))


def _line_matches(line: str, expected: str) -> bool:
    literal = _VARYING.split(expected)  # text, unit, text, unit, ..., text
    pattern = "".join(_FIGURES[part[-1]] if place % 2 else re.escape(part) for place, part in enumerate(literal))
    return re.fullmatch(pattern, line) is not None


def run(section: str | None = None) -> int:
    """Run the blocks as a notebook does, and return how many there were."""
    names: dict[str, Any] = {"__name__": "__main__"}  # what is defined there travels to Spark's workers by value
    found = list(blocks(section))
    for code, shown in found:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, str(README), "exec", dont_inherit=True), names)
        if not matches(output.getvalue(), shown):
            raise AssertionError(f"the README shows\n\n{shown}\nbut printed is\n\n{output.getvalue()}\nafter\n\n{code}")
    return len(found)


if __name__ == "__main__":
    print(run(sys.argv[1]), "blocks of the README print what it shows")
