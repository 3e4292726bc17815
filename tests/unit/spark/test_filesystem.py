"""How entries are created on file systems that this machine has none of."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from geoskip.spark.filesystem import HadoopFolder


class Path:
    """Hadoop's path, as far as it is needed."""

    def __init__(self, head: Any, name: str = "") -> None:
        self.text = f"{head}/{name}" if name else str(head)

    def __str__(self) -> str:
        return self.text

    def getName(self) -> str:
        return PurePosixPath(self.text).name

    def getParent(self) -> Path:
        return Path(self.text.rpartition("/")[0])


class Jvm:
    """The driver's names, of which this is one."""

    org = SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=SimpleNamespace(Path=Path))))


class Azure:
    """A client that shows a file from its creation on, and renames nothing over another one."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.seen: set[tuple[str, bytes]] = set()

    def getUri(self) -> Any:
        return SimpleNamespace(getScheme=lambda: "abfss", toString=lambda: "abfss://container")

    def exists(self, path: Path) -> bool:
        return str(path) in self.files

    def create(self, path: Path, overwrite: bool) -> Any:
        assert not overwrite
        self._show(str(path), b"")
        return SimpleNamespace(
            write=lambda data: self._show(str(path), self.files[str(path)] + data), close=lambda: None
        )

    def rename(self, old: Path, new: Path) -> bool:
        if self.exists(new):
            return False
        self._show(str(new), self.files.pop(str(old)))
        return True

    def delete(self, path: Path, recursive: bool) -> None:
        self.files.pop(str(path), None)

    def _show(self, name: str, data: bytes) -> None:
        self.files[name] = data
        self.seen.add((PurePosixPath(name).name, data))


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Azure:
    system = Azure()
    monkeypatch.setattr(HadoopFolder, "_connected", lambda folder: nullcontext((Jvm(), system)))
    return system


def test_on_azure_an_entry_is_there_whole_or_not_at_all(azure: Azure) -> None:
    HadoopFolder("abfss://container/m").create("_log/_1.json", b"an entry")
    assert azure.files == {"abfss://container/m/_log/_1.json": b"an entry"}
    assert {data for name, data in azure.seen if name == "_1.json"} == {b"an entry"}


def test_on_azure_the_later_of_two_writers_has_lost(azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = HadoopFolder("abfss://container/m")
    folder.create("x", b"first")
    with pytest.raises(FileExistsError):
        folder.create("x", b"second")
    exists = azure.exists
    monkeypatch.setattr(azure, "exists", lambda path: False)  # the first one came after it had looked
    rename = azure.rename
    monkeypatch.setattr(azure, "rename", lambda old, new: not exists(new) and rename(old, new))
    with pytest.raises(FileExistsError):
        folder.create("x", b"second")
    assert azure.files == {"abfss://container/m/x": b"first"}
