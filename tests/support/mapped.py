"""Helpers for tests of mapped functions: calls as from Catalyst's translation, and files of few rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from geoskip.clauses import keep_mask
from geoskip.indexes.base import Index, SourceColumn
from geoskip.metadata import FileMetadata
from geoskip.planner import clause_for
from geoskip.predicates import Call, Literal, Predicate
from geoskip.registry.fingerprint import identity

CATALYST = "org.apache.spark.sql.catalyst.expressions."


def python(function: Callable[..., Any], *args: Any, type: str = "string", name: str | None = None) -> Call:
    """Create a call of a Python function, under its own name or another; plain values become literals."""
    return Call(name or function.__name__, _wrapped(args), f"python:{identity(function)}", ("eval:100",), type)


def spark(kind: str, name: str, *args: Any, type: str = "boolean", flags: tuple[str, ...] = ()) -> Call:
    """Create a call of one of Catalyst's own functions."""
    return Call(name, _wrapped(args), CATALYST + kind, flags, type)


def literal(value: Any) -> Literal:
    """Create a literal with the type that Spark gives such a value."""
    kinds = {bool: "boolean", int: "int", float: "double", str: "string"}
    return Literal(value, kinds.get(value.__class__))


def _wrapped(args: Sequence[Any]) -> tuple[Predicate, ...]:
    return tuple(arg if isinstance(arg, Predicate) else literal(arg) for arg in args)


def metadata(index: Index, files: Sequence[Sequence[pa.Array]], kinds: Sequence[str]) -> FileMetadata:
    """Metadata of a bound index for files with one array for each expression, of Spark's types ``kinds``."""
    return together((index, files, kinds))


def together(*stored: tuple[Index, Sequence[Sequence[pa.Array]], Sequence[str]]) -> FileMetadata:
    """Metadata of several indexes for the same files."""
    table = {}
    for index, files, kinds in stored:
        columns = [
            SourceColumn(text, kind, array.type)
            for text, kind, array in zip(index.expressions(), kinds, files[0], strict=True)
        ]
        summaries = [index.collect(*arrays) for arrays in files]
        table[str(index)] = pa.array(summaries, index.metadata_type(*columns))
    return FileMetadata.of(pa.table(table))


def kept(node: Predicate, index: Index | Sequence[Index], files: FileMetadata) -> list[bool]:
    """The files that a condition keeps; an exception of a rule is an error here."""

    def problem(text: str) -> None:
        raise AssertionError(text)

    indexes = [index] if isinstance(index, Index) else index
    return keep_mask(clause_for(node, indexes, problem), files).tolist()


def files_kept(frame: Any, conditions: Iterable[str]) -> dict[str, int]:
    """Count the files that each condition reads in a DataFrame; no matching row may be lost.

    Spark evaluates the conditions for the rows in one query with geoskip off.
    """
    import geoskip

    texts = list(conditions)
    with geoskip.disabled(frame.sparkSession):
        rows = frame.selectExpr("_metadata.file_name AS file", *(f"({text}) AS c{n}" for n, text in enumerate(texts)))
        found = rows.collect()
    kept = {}
    for number, text in enumerate(texts):
        (scan,) = geoskip.explain(frame.where(text)).scans
        read = {path.rpartition("/")[2] for path in scan.kept_files()}
        lost = {row["file"] for row in found if row[f"c{number}"] is True} - read
        assert not lost, f"{text} is TRUE for a row of {lost}, and only {read} are read"
        kept[text] = scan.files_kept
    return kept
