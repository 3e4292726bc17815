"""Partition columns of a listing, and conditions on them, evaluated folder by folder.

Values are parsed from the names of folders (``day=2024-01-05``), unescaped once, as Hive and Spark write them. The type
of a column is the one recorded by a build through Spark, or the one that Spark certainly infers: ``int``, ``bigint``,
``date`` or ``string``. A column of another or an unknown type excludes no file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoskip.engines.folder_listing import FolderListing
from geoskip.evaluation import outcomes, reads_only
from geoskip.evaluation.values import (
    ANY,
    IS_FALSE,
    IS_NULL,
    IS_TRUE,
    CandidateValues,
    Outcomes,
    conjunction_outcomes,
    negation,
    physical,
)
from geoskip.predicates import FALSE, TRUE, And, Column, Literal, Not, Opaque, Or, Predicate, columns_of
from geoskip.sources.listed_files import NULL_VALUE
from geoskip.types import sql_type

_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
_INTEGER = re.compile(r"-?\d{1,18}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TEXT = re.compile(r"(?!nan$|inf$|infinity$|true$|false$|null$)[A-Za-z][^\d:]*", re.IGNORECASE)
"""Values that no reader can parse as a number, date or time, so their column has the type string."""
_TYPED = ("int", "bigint", "date", "string")
Folders = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True)
class PartitionColumns:
    """The partition columns of a listing.

    Attributes
    ----------
    types
        Spark's name of the type by column, in the order of the folders; None if unknown.
    folders
        The number of each listed file's folder.
    values
        For each folder the values by column: int, date or str, None for NULL; the text if the type is unknown.
    notes
        Sentences on unusable columns, by column; a sentence on all of them has an empty key.
    """

    types: Mapping[str, str | None]
    folders: Folders
    values: Sequence[Mapping[str, Any]]
    notes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, listing: FolderListing, recorded: Mapping[str, str]) -> PartitionColumns:
        """Find the partition columns of a listing; ``recorded`` maps their names to types."""
        if listing.partitions is not None and listing.partitions.num_columns:
            return _from_table(listing.partitions, recorded)
        count = len(listing.path)
        none = cls({}, np.zeros(count, dtype=np.int32), ({},))
        if listing.partitions is not None or not _names_partitions(listing.path):
            return none
        split = pc.split_pattern(listing.path, "/", max_splits=1, reverse=True)
        lengths = np.asarray(pc.list_value_length(split))
        parts = split.values if hasattr(split, "values") else pc.list_flatten(split)
        starts = np.cumsum(lengths) - lengths
        folder = pc.if_else(pa.array(lengths > 1), parts.take(pa.array(starts)), "").dictionary_encode()
        paths = folder.dictionary.to_pylist()
        named = [_named_values(path) for path in paths]
        if any(one is None or [*one] != [*(named[0] or {})] for one in named):
            return cls(
                {}, none.folders, none.values, {"": "the folders differ in their partition columns: none is used"}
            )
        return _typed_columns(np.asarray(folder.indices), [one or {} for one in named], recorded)

    def residuals(self, predicate: Predicate) -> tuple[list[Predicate], np.ndarray[Any, np.dtype[np.int64]]]:
        """Distinct remaining conditions, and the number of the one that applies to each folder.

        Parts that read only partition columns are replaced by their value in the folder: TRUE, FALSE or NULL.
        """
        if not self.types or columns_of(predicate).isdisjoint(self.types):
            return [predicate], np.zeros(len(self.values), dtype=np.int64)
        found: list[tuple[Predicate, Outcomes]] = []
        self._collect(predicate, found)
        if not found:
            return [predicate], np.zeros(len(self.values), dtype=np.int64)
        kinds, which = np.unique(np.stack([bits for _, bits in found], axis=1), axis=0, return_inverse=True)
        left = []
        for kind in kinds:
            known = {id(node): bits for (node, _), bits in zip(found, kind.tolist(), strict=True)}
            left.append(_substitute(predicate, known))
        return left, which.reshape(-1)

    def _collect(self, node: Predicate, found: list[tuple[Predicate, Outcomes]]) -> None:
        """Collect the largest conditions that read only partition columns, with their outcomes by folder."""
        columns = columns_of(node)
        if columns and columns <= self.types.keys() and node.type == "boolean":
            found.append((node, self._outcomes(node)))
        elif isinstance(node, And | Or):
            for child in node.children:
                self._collect(child, found)
        elif isinstance(node, Not):
            self._collect(node.child, found)

    def _outcomes(self, node: Predicate) -> Outcomes:
        match node:
            case And(parts):
                return conjunction_outcomes([self._outcomes(part) for part in parts])
            case Or(parts):
                return negation(conjunction_outcomes([negation(self._outcomes(part)) for part in parts]))
            case Not(child):
                return negation(self._outcomes(child))
            case Literal(value):
                bits = IS_TRUE if value is True else IS_FALSE if value is False else IS_NULL if value is None else ANY
                return np.full(len(self.values), bits, dtype=np.uint8)
        unknown = np.full(len(self.values), ANY, dtype=np.uint8)
        columns = columns_of(node)
        if len(columns) != 1:
            return unknown
        (name,) = columns
        kind = self.types[name]
        if kind is None or kind not in _TYPED or not reads_only(node, Column(name, kind)):
            return unknown
        values = pa.array([folder[name] for folder in self.values], sql_type(kind).arrow).dictionary_encode()
        distinct = outcomes(node, Column(name, kind), CandidateValues(physical(values.dictionary)))
        null = outcomes(node, Column(name, kind), CandidateValues(physical(pa.nulls(1, values.type.value_type))))
        where = np.asarray(values.indices.fill_null(len(distinct)))
        of_folder: Outcomes = np.concatenate([distinct, null])[where]
        return of_folder


_KNOWN = {IS_TRUE: TRUE, IS_FALSE: FALSE, IS_NULL: Literal(None, "boolean")}


def _substitute(node: Predicate, known: Mapping[int, int]) -> Predicate:
    """Replace conditions by their outcomes, or by Opaque if the outcome is uncertain."""
    bits = known.get(id(node))
    if bits is not None:
        return _KNOWN.get(bits) or Opaque(str(node), tuple(columns_of(node)))
    match node:
        case And(parts) | Or(parts):
            return type(node)(tuple(_substitute(part, known) for part in parts))
        case Not(child):
            return Not(_substitute(child, known))
    return node


def _named_values(folder: str) -> dict[str, str | None] | None:
    """Partition values in a folder's path as text, or None if they are ambiguous.

    >>> _named_values("raw/year=2024/city=a%2Fb"), _named_values("a=1/b"), _named_values("a=%C3%A9")
    ({'year': '2024', 'city': 'a/b'}, {}, None)
    >>> _named_values("a=1/a=2"), _named_values("a=%5f"), _named_values("=1"), _named_values("a=")
    (None, {'a': '_'}, None, None)
    """
    found: dict[str, str | None] = {}
    for part in reversed(folder.split("/")):
        name, sign, value = part.partition("=")
        if not sign:
            break
        if not (plain := _unescape(name)) or (text := _unescape(value)) is None or not text or plain in found:
            return None
        found[plain] = None if text == NULL_VALUE else text
    return dict(reversed(found.items()))


def _unescape(text: str) -> str | None:
    """Replace escapes such as ``%2F`` once; None for escapes beyond ASCII, where readers differ."""
    if any(int(match[1], 16) > 127 for match in _ESCAPED.finditer(text)):
        return None
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def _names_partitions(paths: pa.Array) -> bool:
    """Test whether a path contains an equals sign; usually the concatenated paths contain none."""
    text = paths.buffers()[-1]
    if text is None or re.search(b"=", text) is None:  # several times faster than a compute kernel
        return False
    return bool(pc.any(pc.match_substring(paths, "=")).as_py())


def _from_table(table: pa.Table, recorded: Mapping[str, str]) -> PartitionColumns:
    """The partition columns of a table's log, which has their values as text."""
    rows = table.to_pylist()
    distinct = {tuple(row.items()): number for number, row in enumerate({tuple(r.items()): r for r in rows}.values())}
    folders = np.array([distinct[tuple(row.items())] for row in rows], dtype=np.int32)
    return _typed_columns(folders, [dict(items) for items in distinct], recorded)


def _typed_columns(
    folders: Folders, texts: Sequence[Mapping[str, str | None]], recorded: Mapping[str, str]
) -> PartitionColumns:
    types: dict[str, str | None] = {}
    values: list[dict[str, Any]] = [dict(one) for one in texts]
    notes = {}
    for name in texts[0] if texts else ():
        column = [one[name] for one in texts]
        kind = recorded.get(name) or _type_of([text for text in column if text is not None])
        read = [_value(text, kind) for text in column]
        types[name] = kind
        if kind not in _TYPED or any(
            value is None and text is not None for value, text in zip(read, column, strict=True)
        ):
            notes[name] = (
                f"conditions on the partition column {name} keep every file: its type is not known for certain"
            )
            types[name] = kind if kind not in _TYPED else None
            continue
        for one, value in zip(values, read, strict=True):
            one[name] = value
    return PartitionColumns(types, folders, values, notes)


def _type_of(texts: Sequence[str]) -> str | None:
    """The type that Spark infers for these values, or None if another reader could infer a different one.

    >>> _type_of(["01", "12"]), _type_of(["2024-02-29"]), _type_of(["1", "x"]), _type_of(["1.5"]), _type_of([])
    ('int', 'date', 'string', None, None)
    """
    if not texts:
        return None
    if any(_TEXT.fullmatch(text) for text in texts):
        return "string"
    if all(_INTEGER.fullmatch(text) for text in texts):
        return "int" if all(int(text) in sql_type("int").values for text in texts) else "bigint"
    return "date" if all(_value(text, "date") is not None for text in texts) else None


def _value(text: str | None, kind: str | None) -> Any:
    """Parse a partition value as a type; None if the text is invalid."""
    if text is None or kind == "string":
        return text
    if kind in ("int", "bigint"):
        return int(text) if _INTEGER.fullmatch(text) and int(text) in sql_type(kind).values else None
    if kind == "date" and _DATE.fullmatch(text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            return None
    return None
