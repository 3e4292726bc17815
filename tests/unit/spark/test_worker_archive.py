"""The archive for workers: what it is not made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip.errors import InvalidSpecificationError


@pytest.mark.parametrize(
    ("path", "packages", "message"),
    [
        (3, (), r"takes the file to write, a \.tar\.gz, got 3"),
        ("workers.zip", (), r"\.tar\.gz"),
        (None, "h3", r"takes a list of names, as in \[\"h3\", \"shapely\"\], got 'h3'"),
        (None, [3], r"got \[3\]"),
        (None, ["no-such-package"], "no-such-package"),
    ],
)
def test_what_no_archive_is_made_of(
    path: Any, packages: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidSpecificationError, match=message):
        geoskip.worker_archive(path, packages=packages)
    assert not list(tmp_path.iterdir())
