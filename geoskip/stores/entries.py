"""Numbered entries as files: JSON with a checksum (see :mod:`geoskip.stores.parquet`). What is wrong raises
MetadataError, never another error.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from geoskip.errors import MetadataError
from geoskip.metadata import Header
from geoskip.metadata.header import check_format

__all__ = ["LARGEST_OPERATION", "LARGEST_SNAPSHOT", "checked", "checksum", "header_of", "parsed", "written"]

LARGEST_SNAPSHOT = 32 << 20
LARGEST_OPERATION = 1 << 20


def checksum(data: Any) -> int:
    return zlib.crc32(json.dumps(data, sort_keys=True, separators=(",", ":")).encode("ascii"))


def written(member: str, data: dict[str, Any], limit: int) -> bytes:
    """The text of an entry; raises MetadataError where it is longer than what is read."""
    text = json.dumps({"crc": checksum(data), member: data}, indent=1).encode("ascii")
    if len(text) > limit:
        raise MetadataError(f"a {member} of {len(text)} bytes is more than the {limit} that are read")
    return text


def parsed(text: bytes, what: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MetadataError(f"{what} is damaged: {error}") from None
    if not isinstance(data, dict):
        raise MetadataError(f"{what} is damaged: no JSON object")
    return data


def header_of(text: bytes, what: str) -> Header:
    try:
        return Header.from_json(checked(text, "header", what))
    except (ValueError, RecursionError) as error:
        raise error if isinstance(error, MetadataError) else MetadataError(f"{what} is damaged: {error}") from None


def checked(text: bytes, member: str, what: str) -> dict[str, Any]:
    """What an entry holds, its format one that is known and its checksum right."""
    data = parsed(text, what)
    held = data.get(member)
    if isinstance(held, dict) and isinstance(held.get("format"), int):
        check_format(held)  # first: a newer format may have another checksum
    try:
        if isinstance(held, dict) and data.get("crc") == checksum(held):
            return held
    except (ValueError, RecursionError):
        pass
    raise MetadataError(f"{what} is damaged: its checksum differs")
