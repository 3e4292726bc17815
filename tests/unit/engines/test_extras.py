"""Optional packages: each call that needs one says which extra to install."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import geoskip
from geoskip.errors import MissingPackageError

CALLS: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "SQL": (lambda folder: geoskip.files(folder, "a = 1"), "a condition in SQL", "sqlglot: pip install 'geoskip[sql]'"),
    "polars": (geoskip.scan_polars, "geoskip.scan_polars()", "polars: pip install 'geoskip[polars]'"),
    "DuckDB": (lambda folder: geoskip.duckdb(), "geoskip.duckdb()", "duckdb: pip install 'geoskip[duckdb]'"),
    "GeoPandas": (
        geoskip.read_geoparquet, "geoskip.read_geoparquet()", "geopandas: pip install 'geoskip[geopandas]'",
    ),
    "files of Delta": (
        lambda folder: geoskip.files(folder / "delta"), "a Delta table", "deltalake: pip install 'geoskip[delta]'",
    ),
    "files of Iceberg": (
        lambda folder: geoskip.files(folder / "iceberg"), "a table of Iceberg",
        "pyiceberg: pip install 'geoskip[iceberg]'",
    ),
    "pyarrow over Delta": (
        lambda folder: geoskip.pyarrow_dataset(folder / "delta"), "geoskip.pyarrow_dataset() of a Delta table",
        "deltalake: pip install 'geoskip[delta]'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_without_its_package_a_call_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    call, caller, way_out = CALLS[name]
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "iceberg" / "metadata").mkdir(parents=True)
    (tmp_path / "iceberg" / "metadata" / "v1.metadata.json").touch()
    monkeypatch.setattr("geoskip.engines.extras.find_spec", lambda package: None)
    with pytest.raises(MissingPackageError) as raised:
        call(tmp_path)
    assert str(raised.value) == f"{caller} needs the package {way_out}"
