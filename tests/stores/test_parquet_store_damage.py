"""Metadata in Parquet that are damaged or hostile, and the format as it is documented."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geoskip.errors import MetadataError
from geoskip.metadata import FORMAT, PartFile
from geoskip.stores import LocalFolder, ParquetStore
from geoskip.stores.base import header_json, new_identity
from geoskip.stores.log_files import LARGEST, entry_text
from geoskip.stores.part_files import PartReader, write_part
from tests.support.storing import HEADER, begun, content, entry, table


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "_geoskip"
    values = {f"{i}.parquet": None if i % 7 == 0 else i * i for i in range(300)}
    ParquetStore(path).commit(HEADER, table(values), expected=None)
    return path


def outcome(path: Path) -> Any:
    store = ParquetStore(path)
    try:
        latest = store.latest()
        return None if latest is None else store.load(latest).files.table()
    except MetadataError as error:
        return str(error)


def snapshot_entry(header):
    return entry_text("header", header_json(header), LARGEST["snapshot"])


KINDS = ("_identity.json", "_log/*/*.json", "_parts/*.part")


@pytest.mark.slow
@pytest.mark.parametrize("pattern", KINDS)
def test_a_flipped_bit_is_noticed_or_changes_nothing(sound, tmp_path, pattern):
    path = tmp_path / "m"
    shutil.copytree(sound, path)
    expected = outcome(sound)
    (file,) = path.glob(pattern)
    data, rng, noticed = file.read_bytes(), random.Random(1), 0
    positions = range(len(data)) if len(data) < 500 else sorted(rng.sample(range(len(data)), 500))
    for position in positions:
        flipped = bytearray(data)
        flipped[position] ^= 1 << rng.randrange(8)
        file.write_bytes(flipped)
        found = outcome(path)
        noticed += isinstance(found, str)
        assert found is None or isinstance(found, str) or found.equals(expected)
    assert noticed > 0.3 * len(positions)


@pytest.mark.parametrize("pattern", KINDS)
@pytest.mark.parametrize("left", [0, 1, 8, 0.5, -1], ids=lambda left: f"{left} left")
def test_a_truncated_file_is_noticed(sound, tmp_path, pattern, left):
    path = tmp_path / "m"
    shutil.copytree(sound, path)
    (file,) = path.glob(pattern)
    data = file.read_bytes()
    file.write_bytes(data[: int(left * len(data)) if isinstance(left, float) else left])
    assert isinstance(outcome(path), str)


def test_a_vanished_part_is_noticed_by_new_readers_and_by_old(sound, tmp_path):
    path = tmp_path / "m"
    shutil.copytree(sound, path)
    held = ParquetStore(path).load(1)
    held.files.summary("test_least(a)", "least")
    shutil.rmtree(path / "_parts")
    assert "cannot be read" in outcome(path)
    assert len(held.files.summary("test_least(a)", "least")) == 300, "what was read is still there"
    with pytest.raises(MetadataError):
        held.files.column("path")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 100_000, id="nested deeply"),
        pytest.param('{"crc": ' + "9" * 10_000 + "}", id="a number of thousands of digits"),
        pytest.param('{"crc": NaN, "header": NaN}', id="not a number"),
        pytest.param("[]", id="no object"),
        pytest.param('{"crc": 1}', id="no header"),
        pytest.param("\udcff", id="no text"),
    ],
)
def test_a_hostile_entry_is_refused(sound, tmp_path, text):
    path = tmp_path / "m"
    shutil.copytree(sound, path)
    (file,) = path.glob("_log/*/*.json")
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert "damaged" in outcome(path)


def test_an_oversized_entry_is_refused_unread(sound, tmp_path):
    path = tmp_path / "m"
    shutil.copytree(sound, path)
    (file,) = path.glob("_log/*/*.json")
    with open(file, "r+b") as sparse:
        sparse.truncate(1 << 40)
    assert "more than" in outcome(path)


@pytest.mark.parametrize("pattern", KINDS[:2])
def test_a_newer_format_is_refused_by_both_numbers(sound, tmp_path, pattern):
    path = tmp_path / "m"
    shutil.copytree(sound, path)
    (file,) = path.glob(pattern)
    file.write_text(file.read_text().replace('"format": 1', '"format": 2'))
    assert "format 2" in outcome(path)
    assert f"up to {FORMAT}" in outcome(path)


def test_an_entry_of_another_number_is_refused(sound, tmp_path):
    path = tmp_path / "m"
    shutil.copytree(sound, path)
    (file,) = path.glob("_log/*/*.json")
    file.rename(file.with_name("_00000002.json"))
    assert "another snapshot" in outcome(path)


@pytest.mark.parametrize("text", ["", "{}", '{"format": 1, "identity": "x"}', "[]"])
def test_without_an_identity_the_way_out_is_told(sound, tmp_path, text):
    path = tmp_path / "m"
    shutil.copytree(sound, path)
    (path / "_identity.json").write_text(text)
    assert "remove the folder, and create the indexes anew" in outcome(path)


@pytest.mark.parametrize("name", ["../../secret", "_parts/../_identity.json", "/etc/passwd", "_parts/x.parquet\n"])
def test_a_part_lies_among_the_parts(sound, tmp_path, name):
    path = tmp_path / "m"
    shutil.copytree(sound, path)
    header = ParquetStore(path).load(1).header
    (file,) = path.glob("_log/*/*.json")
    file.write_bytes(snapshot_entry(replace(header, parts=(replace(header.parts[0], name=name),))))
    assert "no name of a part" in outcome(path)


# --- the format -------------------------------------------------------------------------------------------------------


def test_the_format_is_as_documented(sound):
    assert sorted(p.name for p in sound.iterdir()) == ["_identity.json", "_log", "_parts"]
    identity = json.loads((sound / "_identity.json").read_text())
    data = json.loads((sound / "_log" / f"_{identity['identity']}" / "_00000001.json").read_text())
    assert identity["format"] == data["header"]["format"] == 1
    members = "format identity number created operation root source files reasons indexes deleted built pending parts"
    assert " ".join(data["header"]) == members
    assert set(data["header"]["parts"][0]["columns"]) == {"path", "size", "mtime", "etag", "rows", "i0"}
    assert " ".join(data["header"]["indexes"][0]) == "name index bound columns type arrow depends"


def test_a_snapshot_of_several_parts_is_their_rows_in_order(tmp_path):
    store = ParquetStore(tmp_path)
    header = begun(store, f=1)
    other = f"_parts/_{new_identity()}.parquet"
    part = write_part(tmp_path / other, other, table({"g": 2}, "b"))
    both = replace(header, number=2, files=2, parts=(*header.parts, part), entries=(entry(), entry("b")))
    (tmp_path / "_log" / f"_{header.identity}" / "_00000002.json").write_bytes(snapshot_entry(both))
    assert content(store) == {"f": 1, "g": None}
    assert content(store, column="b") == {"f": None, "g": 2}


def test_only_the_columns_asked_for_are_read(sound, tmp_path):
    path = tmp_path / "m"
    shutil.copytree(sound, path)
    (file,) = path.glob("_parts/*.part")
    data = bytearray(file.read_bytes())
    data[100] ^= 255  # in the paths, which come first
    file.write_bytes(data)
    files = ParquetStore(path).load(1).files
    assert files.summary("test_least(a)", "least")[2].as_py() == 4
    with pytest.raises(MetadataError, match="checksum of path"):
        files.paths_text()


def test_only_the_fields_asked_for_are_read_and_checked(tmp_path):
    struct = pa.struct([("low", pa.float64()), ("names", pa.list_(pa.string())), ("n", pa.int64())])
    rows = [{"low": 0.5, "names": ["a", "b"], "n": 1}, None, {"low": None, "names": None, "n": 3}]
    (tmp_path / "_parts").mkdir()
    name = f"_parts/_{new_identity()}.parquet"
    written = write_part(tmp_path / name, name, pa.table({"path": ["x", "y", "z"], "it(s)": pa.array(rows, struct)}))
    (inside,) = [column for column in written.columns.values() if column.name == "it(s)"]
    assert set(inside.leaves) == {"low", "names.list.element", "n"}
    chunk = pq.read_metadata(tmp_path / name).row_group(0).column(3)
    data = bytearray((tmp_path / name).read_bytes())
    data[chunk.data_page_offset + 5] ^= 255
    (tmp_path / name).write_bytes(data)
    assert chunk.path_in_schema.endswith(".n")

    def read(part: PartFile, *fields: str) -> Any:
        kind = pa.struct([struct.field(name) for name in fields])
        return PartReader(LocalFolder(tmp_path), part).read(pa.schema([("it(s)", kind)]))["it(s)"].to_pylist()

    assert read(written, "low") == [{"low": 0.5}, None, {"low": None}]
    assert read(written, "low", "names")[0] == {"low": 0.5, "names": ["a", "b"]}
    older = replace(written, columns={key: replace(column, leaves={}) for key, column in written.columns.items()})
    for part, fields in ((written, ["n"]), (written, ["low", "n"]), (older, ["low"])):
        with pytest.raises(MetadataError, match="checksum of it"):
            read(part, *fields)


def test_a_snapshot_is_loaded_once(sound):
    store = ParquetStore(sound)
    assert store.load(1) is store.load(1)
