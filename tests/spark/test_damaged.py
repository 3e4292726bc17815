"""A handful of damaged and hostile metadata through Spark: queries answer as without geoskip, and say why.

Thousands more, without Spark, are in ``test_metadata_fuzz.py``.
"""

from __future__ import annotations

import json
import shutil
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import geoskip
from geoskip import BloomFilter, GeoBox, MinMax, ValueList
from geoskip.spark.session import known
from geoskip.stores.log_files import checksum
from tests.conftest import same_as_off

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def sound(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import pyarrow.parquet as pq

    place = tmp_path_factory.mktemp("damaged") / "data"
    place.mkdir()
    for number in range(3):
        rows = [number * 10 + row for row in range(4)]
        table = {"n": rows, "x": list(map(float, rows)), "y": list(map(float, rows)), "s": [f"s{row}" for row in rows]}
        pq.write_table(pa.table(table), place / f"{number}.parquet")
    indexes = (MinMax("n"), BloomFilter("n"), ValueList("s"), GeoBox("x", "y"))
    geoskip.dataset(spark, str(place)).create_index(*indexes)
    return place


def the(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def rewritten(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """Hostile, with all checksums right."""

    def write(folder: Path) -> None:
        entry = the(folder, "_log/*/*.json")
        header = json.loads(entry.read_text())["header"]
        change(header)
        entry.write_text(json.dumps({"crc": checksum(header), "header": header}))

    return write


def deep(levels: int) -> dict[str, Any]:
    return {"node": "not", "child": deep(levels - 1)} if levels else {"node": "column", "name": "n"}


def flip(folder: Path, pattern: str, where: float) -> None:
    file = the(folder, pattern)
    data = bytearray(file.read_bytes())
    data[int(len(data) * where)] ^= 16
    file.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "a part is cut short": lambda f: the(f, "_parts/*").write_bytes(the(f, "_parts/*").read_bytes()[:-9]),
    "a bit of the paths": lambda f: flip(f, "_parts/*", 0.002),
    "a bit of a summary": lambda f: flip(f, "_parts/*", 0.2),
    "a bit of the entry": lambda f: flip(f, "_log/*/*.json", 0.5),
    "the identity is a list": lambda f: (f / "_identity.json").write_text("[" * 100_000),
    "no part": lambda f: shutil.rmtree(f / "_parts"),
    "settings that are none": rewritten(lambda h: h["source"].update(schema="{", settings=[], options=7)),
    "an expression without an end": rewritten(lambda h: h["indexes"][0].update(bound=[deep(199)])),
    "a million files": rewritten(lambda h: (h.update(files=10**6), h["parts"][0].update(rows=10**6))),
    "columns that are others": rewritten(
        lambda h: h["parts"][0]["columns"]["i0"].update(name=h["parts"][0]["columns"]["i3"]["name"])
    ),
    "an index of nobody's": rewritten(lambda h: h["indexes"][1]["index"].update(kind="os.system")),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_query_answers(spark: Any, sound: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: str) -> None:
    folder = sound / "_geoskip"
    shutil.copytree(folder, tmp_path / "kept")
    monkeypatch.setattr(known, "_snapshots", OrderedDict())  # as in another driver
    monkeypatch.setattr(known, "_stores", {})
    monkeypatch.setattr(known, "_defaults", {})
    try:
        DAMAGE[damage](folder)
        told = ""
        for where in ("n = 21 AND s LIKE 's%'", "x > 5 AND y < 15"):
            report = same_as_off(lambda where=where: spark.read.parquet(str(sound)).where(where))
            told += " ".join(report.reasons)
        assert told or damage in ("an index of nobody's", "columns that are others", "an expression without an end")
    finally:
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "kept", folder)
