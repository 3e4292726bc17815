"""What the tests of mapped functions share: calls as Catalyst's translation makes them, and files of few rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from geoskip.clauses import keep_mask
from geoskip.identity import identity
from geoskip.indexes.base import Index, SourceColumn
from geoskip.labelling import clause_for
from geoskip.metadata import FileMetadata
from geoskip.predicates import Call, Literal, Predicate

CATALYST = "org.apache.spark.sql.catalyst.expressions."


def python(function: Callable[..., Any], *args: Any, type: str = "string", name: str | None = None) -> Call:
    """A call of a Python function, under its own name or another; plain values become literals."""
    return Call(name or function.__name__, _wrapped(args), f"python:{identity(function)}", ("eval:100",), type)


def spark(kind: str, name: str, *args: Any, type: str = "boolean", flags: tuple[str, ...] = ()) -> Call:
    """A call of one of Catalyst's own functions."""
    return Call(name, _wrapped(args), CATALYST + kind, flags, type)


def literal(value: Any) -> Literal:
    """A literal with the type that Spark gives such a value."""
    kinds = {bool: "boolean", int: "int", float: "double", str: "string"}
    return Literal(value, kinds.get(value.__class__))


def _wrapped(args: Sequence[Any]) -> tuple[Predicate, ...]:
    return tuple(arg if isinstance(arg, Predicate) else literal(arg) for arg in args)


def metadata(index: Index, files: Sequence[Sequence[pa.Array]], kinds: Sequence[str]) -> FileMetadata:
    """What an index (bound) stores of files, each given by an array an expression of Spark's types ``kinds``."""
    columns = [
        SourceColumn(text, kind, array.type)
        for text, kind, array in zip(index.expressions(), kinds, files[0], strict=True)
    ]
    summaries = [index.collect(*arrays) for arrays in files]
    return FileMetadata.of(pa.table({str(index): pa.array(summaries, index.metadata_type(*columns))}))


def kept(node: Predicate, index: Index, files: FileMetadata) -> list[bool]:
    """Which files a condition keeps; a rule that fails is an error here."""

    def problem(text: str) -> None:
        raise AssertionError(text)

    return keep_mask(clause_for(node, [index], problem), files).tolist()
