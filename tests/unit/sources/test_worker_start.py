"""What geoskip does in Spark's Python workers before its own work."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from geoskip.sources.arrow_reader import cache_zip_directories


def _written(archive: Path, *names: str) -> None:
    with zipfile.ZipFile(archive, "w") as file:
        for name in names:
            file.writestr(f"{name}.py", f"NAME = {name!r}\n")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python does it itself")
def test_an_archive_is_read_again_only_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "workers.zip"
    _written(archive, "geoskip_first")
    monkeypatch.syspath_prepend(str(archive))
    assert importlib.import_module("geoskip_first").NAME == "geoskip_first"
    cache_zip_directories()
    finder = sys.path_importer_cache[str(archive)]
    assert isinstance(finder, zipimporter)
    before = finder._files  # type: ignore[attr-defined]
    importlib.invalidate_caches()
    assert finder._files is before  # type: ignore[attr-defined]
    _written(archive, "geoskip_first", "geoskip_second")
    importlib.invalidate_caches()
    assert importlib.import_module("geoskip_second").NAME == "geoskip_second"
    archive.unlink()
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("geoskip_third")
