"""Parts of metadata that are none, with all checksums right; and that nothing in metadata is code."""

from __future__ import annotations

import ast
import base64
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest

from geoskip.stores import ParquetStore, part_files
from geoskip.stores.log_files import checksum
from tests.stores.test_metadata_fuzz import asked, asked_for_people, latest_entry, made

# --- parts that are none ----------------------------------------------------------------------------------------------


def plain(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def of_other_types(table: pa.Table) -> bytes:
    columns = {name: pa.array(["x"] * table.num_rows) for name in table.schema.names}
    return plain(pa.table(columns))


def of_other_fields(table: pa.Table) -> bytes:
    structs = {name: [{"min": "x", "boxes": 7, "values": [b""]}] * table.num_rows for name in table.schema.names}
    return plain(pa.table({**structs, "path": table["path"]}))


def of_extension_types(table: pa.Table) -> bytes:
    """What older pyarrow unpickled."""
    meta = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": "cos\nsystem\n(S'true'\ntR."}
    fields = [field.with_metadata(meta) for field in table.schema]
    return plain(table.cast(pa.schema(fields)))


def signed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    factory = encryption.CryptoFactory(lambda config: AnyKey())
    how = encryption.EncryptionConfiguration(footer_key="k", column_keys={"k": ["path"]}, plaintext_footer=True)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), how)
    with pq.ParquetWriter(sink, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


class AnyKey(encryption.KmsClient):
    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


OTHERS: dict[str, Callable[[pa.Table], bytes]] = {
    "other types": of_other_types,
    "other fields": of_other_fields,
    "extension types": of_extension_types,
    "encrypted columns": signed,
    "no columns": lambda table: plain(table.select([])),
    "half of the columns": lambda table: plain(table.select(table.schema.names[:7])),
    "many row groups": lambda table: plain(table, row_group_size=1),
    "no rows": lambda table: plain(table.slice(0, 0)),
    "a million rows of nothing": lambda table: plain(pa.table({"path": pa.nulls(1_000_000)})),
    "no Parquet": lambda table: b"PAR1" + bytes(40) + b"\x10\x00\x00\x00PAR1",
    "a footer of four gigabytes": lambda table: b"PAR1" + bytes(40) + b"\xff\xff\xff\xffPAR1",
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_part_that_is_none_harms_nothing(tmp_path: Path, kind: str) -> None:
    """All checksums are those of what lies there: the header is hostile too."""
    place = made(tmp_path / "_geoskip", None)
    snapshot = ParquetStore(place).load(2)
    part = place / snapshot.header.parts[0].name
    replacement = OTHERS[kind](pq.read_table(part))
    part.write_bytes(replacement)
    length = int.from_bytes(replacement[-8:-4], "little") + 8
    try:
        rows = pq.read_metadata(part).num_rows
    except (OSError, pa.ArrowException):
        rows = 4
    data = json.loads(latest_entry(place).read_text())["header"]
    data["parts"][0] |= {"bytes": len(replacement), "crc": zlib.crc32(replacement[-length:]), "rows": rows}
    data["files"] = rows + 2
    for column in data["parts"][0]["columns"].values():
        column |= {"crc": 0, "leaves": {}}
    latest_entry(place).write_text(json.dumps({"crc": checksum(data), "header": data}))
    asked(place, None)
    asked_for_people(place, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_files, "_crc", lambda *_: 0)  # as if those were right as well
        asked(place, None)
        asked_for_people(place, None)


# --- no code ----------------------------------------------------------------------------------------------------------


def test_nothing_that_reads_metadata_can_run_code() -> None:
    """Of what reads a header, a part or an entry no module imports what turns bytes into code."""
    root = Path(part_files.__file__).parents[1]
    readers = [
        root / "codec.py",
        *(f for name in ("stores", "metadata", "indexes") for f in (root / name).rglob("*.py")),
    ]
    assert len(readers) > 30
    for file in readers:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [node.func.id] if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else []
            bad = {"pickle", "marshal", "shelve", "cloudpickle", "dill", "eval", "exec", "compile", "__import__"}
            assert not bad & set(names), f"{file.name} line {getattr(node, 'lineno', 0)}"
