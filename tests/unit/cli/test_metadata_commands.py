"""The commands that read metadata without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import geoskip
from geoskip.cli import app
from geoskip.lifecycle import actions
from geoskip.stores import ParquetStore
from geoskip.stores.encryption import Encryption
from geoskip.stores.keyring import KeyRing
from tests.support.numbered import Numbers, create, refresh, write

RING = KeyRing({"base": bytes(32)})


def told(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(params=[False, True], ids=["in clear", "protected"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, tuple[str, ...]]:
    """A folder whose metadata were created, refreshed, and one index deleted; and the options to read them with."""
    RING.save(tmp_path / "keys.json")
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(3):
        write(folder, f"f{number}", number)
    encryption = Encryption(RING, "base") if request.param else None
    store, data = ParquetStore(folder / "_geoskip", encryption=encryption), Numbers(folder)
    create(store, data, "a", "b")
    write(folder, "f3", 3)
    refresh(store, data)
    actions.delete(store, ["test_least(b)"])
    return folder, ("--keys", str(tmp_path / "keys.json")) if request.param else ()


def test_what_was_done_and_what_there_is_are_read_without_spark(place: tuple[Path, tuple[str, ...]]) -> None:
    folder, keys = place
    head, *rows = told("history", folder, *keys).splitlines()
    assert head.split()[:4] == ["began", "(UTC)", "verb", "state"]
    assert [row.split()[2:4] for row in rows] == [["create", "done"], ["refresh", "done"], ["delete", "done"]]
    for same in (folder / "_geoskip", f"file:{folder}", f"file://{folder}/"):
        assert told("history", same, *keys).splitlines()[1:] == rows
    described = told("describe", folder, *keys).splitlines()
    assert described[0].startswith("snapshot 3 of 20")
    assert described[0].endswith("4 files")
    assert [line.split()[:4] for line in described[3:5]] == [
        ["test_least(a)", "in", "use", "4"],
        ["test_least(b)", "deleted", "4", described[4].split()[3]],
    ]
    decoder, text, states = json.JSONDecoder(), told("history", folder, "--entries", *keys), []
    while text := text.lstrip():
        entry, end = decoder.raw_decode(text)
        states.append(entry["state"])
        text = text[end:]
    assert states == ["creating", "done", "refreshing", "done", "deleting", "done"]


def test_a_folder_without_metadata_is_said_to_have_none(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["history", str(tmp_path)])
    assert (done.exit_code, "holds no metadata" in done.output) == (1, True)


def test_what_is_protected_is_not_shown_without_keys(tmp_path: Path) -> None:
    write(tmp_path, "f0", 0)
    create(ParquetStore(tmp_path / "_geoskip", encryption=Encryption(RING, "base")), Numbers(tmp_path))
    for verb in ("history", "describe"):
        done = CliRunner().invoke(app, [verb, str(tmp_path)])
        assert (done.exit_code, "no keys were given" in done.output, "test_least" in done.output) == (1, True, False)


def test_of_damaged_metadata_is_told_what_can_be_read(place: tuple[Path, tuple[str, ...]]) -> None:
    folder, keys = place
    for path in ("_log/*/_00000003.json", "_operations/*/_00000002.json"):
        (damaged,) = (folder / "_geoskip").glob(path)
        damaged.write_text("{")
    rows = told("history", folder, *keys).splitlines()[1:]
    assert [row.split()[2] for row in rows] == ["create", "refresh", "delete"]
    done = CliRunner().invoke(app, ["history", str(folder), "--entries", *map(str, keys)])
    assert (done.exit_code, done.stdout.count('"operation":'), "_00000002.json in" in done.stderr) == (1, 5, True)


def test_the_version_is_the_packages() -> None:
    assert told("--version") == f"geoskip {geoskip.__version__}\n"


def test_without_its_extra_the_command_names_it_in_a_sentence() -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        code = "import sys; sys.modules['typer'] = None; from geoskip.__main__ import main; main()"
        return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60)

    without = run("--help")
    assert (without.returncode, without.stdout) == (2, "")
    assert without.stderr == "geoskip: the command needs the package typer: pip install 'geoskip[cli]'\n"
    assert run("--version").stdout == f"geoskip {geoskip.__version__}\n"
