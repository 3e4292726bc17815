"""Run the Python blocks of the README and the guides, and compare what they print with the text below them.

    python -P tests/support/readme.py "Quick start"

runs the blocks of one section of the README. It needs the standard library and what the blocks import, so that it runs
where nothing but geoskip's wheel is installed. Figures written with ``~`` stand for any figure of such a unit, and a
last line of ``...`` for further lines; all else is compared literally.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["GUIDES", "README", "blocks", "matches", "run"]

README = Path(__file__).parents[2] / "README.md"
GUIDES = tuple(sorted((README.parent / "examples" / "guides").glob("*.md")))
"""Pages whose blocks continue those of the README."""
_BLOCK = re.compile(r"^```python\n(.*?)^```\n+(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_VARYING = re.compile(r"~[\d.,]+ (m?s|B|[KM]iB)\b")
_FIGURES = {"s": r"[\d.,]+ m?s", "B": r"[\d.,]+ (?:[KM]i)?B"}


def blocks(page: Path = README, section: str | None = None) -> Iterator[tuple[str, str]]:
    """The code of each block, and the text below it, of the whole page or of one section."""
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
    """Run the blocks as a notebook does, and return the names that they define.

    Parameters
    ----------
    page, section
        The Markdown file, and one of its sections; all of them where none is given.
    after
        The names that an earlier page defined. They are copied.
    """
    names: dict[str, Any] = {**(after or {}), "__name__": "__main__"}  # what is defined there goes to workers by value
    for code, shown in blocks(page, section):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, str(page), "exec", dont_inherit=True), names)
        if not matches(output.getvalue(), shown):
            raise AssertionError(
                f"{page.name} shows\n\n{shown}\nbut printed is\n\n{output.getvalue()}\nafter\n\n{code}"
            )
    return names


if __name__ == "__main__":
    run(README, sys.argv[1])
    print(len(list(blocks(README, sys.argv[1]))), "blocks of the README print what it shows")
