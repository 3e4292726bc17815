"""The Python blocks of the README and the guides run in order, and print what stands below them."""

from __future__ import annotations

import re
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import geoskip
from geoskip.cli import app
from geoskip.metadata import bytes_of
from geoskip.metadata.file_table import BUDGET_BYTES
from geoskip.sources.settings import PREFIX, SETTINGS, default_of, settings_table
from tests.conftest import SOAK
from tests.support.readme import GUIDES, README, blocks, matches, run

PAGES = (README, *GUIDES)
MAKEFILE = (README.parent / "Makefile").read_text("utf-8")
SETTINGS_PAGE = README.parent / "examples" / "guides" / "settings.md"


@pytest.fixture(scope="module")
def names(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The names that the README's blocks define, once a test run."""
    with pytest.MonkeyPatch.context() as patch, geoskip.mappings():
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("pages")))
        yield run()


@pytest.mark.spark
def test_the_readme_prints_what_it_shows(names: dict[str, Any]) -> None:
    assert {"weather", "zipcodes", "log", "zone"} <= names.keys()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("processor_time")
@pytest.mark.parametrize("guide", [page for page in GUIDES if any(blocks(page))], ids=lambda page: page.stem)
def test_a_guide_prints_what_it_shows_after_the_readme(
    guide: Path, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a guide checks a mapping, a second is enough for what is wrong in it."""
    monkeypatch.setitem(geoskip.check_mapping.__kwdefaults__, "seconds", 5.0 if SOAK else 1.0)
    with geoskip.mappings():
        run(guide, after=names)


def test_the_readme_is_short_and_leads_to_every_guide() -> None:
    text = README.read_text("utf-8")
    assert len(text.splitlines()) <= 260
    assert len(GUIDES) >= 8
    table = text.partition("\n## Guides\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| \[[^]]+\]\((.+?)\)", table, re.MULTILINE)) == {
        str(guide.relative_to(README.parent)) for guide in GUIDES
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    found = re.findall(r"\]\((?!https?:)([^)\s]+)\)|src=\"([^\"]+)\"", _prose(page))
    for target, _, anchor in ((link or source).partition("#") for link, source in found):
        there = page.parent / target if target else page
        assert there.exists(), target
        assert not anchor or anchor in _anchors(there), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_that_do_not_run_have_no_mistake_of_syntax(page: Path) -> None:
    """They need a cluster or a server; ``text`` is what a block prints."""
    text, commands = page.read_text("utf-8"), set(get_command(app).commands)
    for language, code in re.findall(r"^ *```(\w+)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        match language:
            case "py":
                compile(textwrap.dedent(code), page.name, "exec")
            case "toml":
                tomllib.loads(code)
            case "bash":
                targets = re.findall(r"^make ([\w-]+)", code, re.MULTILINE)
                assert {f"{target}:" for target in targets} <= set(re.findall(r"^[\w-]+:", MAKEFILE, re.MULTILINE))
            case "sh":
                assert set(re.findall(r"^geoskip ([\w-]+)", code, re.MULTILINE)) <= commands
            case _:
                assert language in ("python", "shell", "text", "sql"), language
    assert set(re.findall(r"^ {4}geoskip ([\w-]+)", _prose(page), re.MULTILINE)) <= commands


def _prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [README, README.parent / "examples" / "guides" / "indexes.md"], ids=lambda p: p.stem)
def test_tables_of_indexes_are_complete(page: Path) -> None:
    rows = re.findall(r"^\| (`[A-Z]\w+\(.*?) \|", _prose(page), re.MULTILINE)
    listed = set(re.findall(r"`(\w+)\(", " ".join(rows)))
    types = {name for name in geoskip.__all__ if isinstance(getattr(geoskip, name), type)}
    assert listed == {name for name in types if issubclass(getattr(geoskip, name), geoskip.Index)} - {"Index"}


def test_the_quick_start_imports_nothing_of_the_repository() -> None:
    code = "".join(code for code, _ in blocks(section="Quick start"))
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


def _sources() -> dict[str, str]:
    """The text of every module, Java's too, without doctests, which show settings that are misspelt."""
    paths = [path for path in Path(geoskip.__file__).parent.rglob("*.*") if path.suffix in (".py", ".java")]
    return {path.name: re.sub(r"^ *>>>.*$", "", path.read_text("utf-8"), flags=re.MULTILINE) for path in paths}


def test_settings_are_defined_once() -> None:
    """The guide's table is written from the definition; modules name no other settings, and no other defaults."""
    assert settings_table() in SETTINGS_PAGE.read_text("utf-8"), "python -m geoskip.sources.settings"
    defaults = {PREFIX + setting.name: setting.default for setting in SETTINGS}
    for name, source in _sources().items():
        assert set(re.findall(r"\"(spark\.geoskip\.[a-zA-Z.]+)\"", source)) <= defaults.keys(), name
        for setting, default in re.findall(r"getConfString\(\"(spark\.geoskip\.[\w.]+)\", \"([^\"]*)\"", source):
            assert defaults[setting] == default, f"{name}: {setting}"
    assert bytes_of(default_of("metadata.cacheSize")) == BUDGET_BYTES
    assert all(setting.accepts(setting.default) for setting in SETTINGS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_name_settings_that_exist(page: Path) -> None:
    named = set(re.findall(r"`(spark\.geoskip\.[\w.]+)", page.read_text("utf-8")))
    assert named <= {PREFIX + setting.name for setting in SETTINGS}
