"""The README's Python blocks run in order, and print what stands below them."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

import geoskip
from tests.readme import README, blocks, matches, run


@pytest.mark.spark
@pytest.mark.usefixtures("processor_time", "spark")
def test_blocks_run_and_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with geoskip.mappings():
        assert run() >= 10


def test_the_quick_start_imports_nothing_of_the_repository() -> None:
    code = "".join(code for code, _ in blocks("Quick start"))
    imported = set(re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE))
    assert imported == {"tempfile", "pathlib", "geoskip", "numpy", "pyarrow"}


SHOWN = "indexed 3 files, ~1.3 MiB, in ~2.1 s (snapshot 1)\n  minmax(a): ~70 B\n"


@pytest.mark.parametrize(
    ("printed", "same"),
    [
        ("indexed 3 files, 1,001.4 KiB, in 930 ms (snapshot 1)\n  minmax(a): 1.1 KiB", True),
        ("indexed 4 files, 1.3 MiB, in 2.1 s (snapshot 1)\n  minmax(a): 70 B", False),  # a figure that does not vary
        ("indexed 3 files, 2.1 s, in 1.3 MiB (snapshot 1)\n  minmax(a): 70 B", False),  # another unit
        ("indexed 3 files, 1.3 MiB, in 2.1 s (snapshot 1)", False),
        ("indexed 3 files, 1.3 MiB, in 2.1 s (snapshot 1)\n  minmax(a): 70 B\nand more", False),
    ],
)
def test_only_figures_with_a_tilde_vary(printed: str, same: bool) -> None:
    assert matches(printed, SHOWN) is same
    assert matches(printed + "\nand more", SHOWN + "...\n") is (same or "and more" in printed)


def test_settings_are_those_of_the_code() -> None:
    described = set(re.findall(r"^\| `(spark\.geoskip\.[\w.]+)`", README.read_text("utf-8"), re.MULTILINE))
    sources = [path.read_text("utf-8") for path in Path(geoskip.__file__).parent.rglob("*.*") if path.suffix in _CODE]
    used = {
        name
        for source in sources
        for name in re.findall(r"\"(spark\.geoskip\.[a-zA-Z.]+)\"", _without_doctests(source))
    }
    assert described == used


def _without_doctests(source: str) -> str:
    return re.sub(r"^ *>>>.*$", "", source, flags=re.MULTILINE)  # which show settings that are misspelt


_CODE = (".py", ".java")
