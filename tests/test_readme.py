"""The README's Python blocks run in order, and print what stands below them."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

import geoskip

pytestmark = pytest.mark.spark

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```\n+(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
VARYING = re.compile(r"(?<=in )[\d.]+(?= m?s)|[\d.]+(?= [KM]iB)|\b(arrow|spark|footers)\b")


def settled(text: str) -> list[str]:
    """The lines of an output without what differs from run to run."""
    return [VARYING.sub("…", line.rstrip()) for line in text.strip().splitlines()]


@pytest.mark.usefixtures("processor_time")
def test_blocks_run_and_print_what_is_said(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    blocks = BLOCK.findall(README.read_text("utf-8"))
    assert len(blocks) >= 5
    names: dict[str, Any] = {"__name__": "__main__"}  # as in a notebook: what is defined there travels by value
    with geoskip.mappings():
        for code, said in blocks:
            exec(compile(code, str(README), "exec", dont_inherit=True), names)
            printed = capsys.readouterr().out
            shown = settled(said)
            assert settled(printed)[: len(shown)] == shown, f"{printed}\nafter\n{code}"


def test_settings_are_those_of_the_code() -> None:
    described = set(re.findall(r"^\| `(spark\.geoskip\.[\w.]+)`", README.read_text("utf-8"), re.MULTILINE))
    sources = [path.read_text("utf-8") for path in Path(geoskip.__file__).parent.rglob("*.*") if path.suffix in _CODE]
    used = {name for source in sources for name in re.findall(r"\"(spark\.geoskip\.[a-zA-Z.]+)\"", source)}
    assert described == used


_CODE = (".py", ".java")
