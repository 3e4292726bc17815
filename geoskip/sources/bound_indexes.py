"""Indexes bound to a dataset: their expressions, restrictions on these, and header entries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from geoskip.errors import InvalidSpecificationError, UnsupportedColumnError
from geoskip.indexes.base import Index, SourceColumn, as_registered, definition
from geoskip.metadata import IndexEntry
from geoskip.predicates import Call, Column, Literal, Opaque, Predicate, columns_of, walk
from geoskip.registry.fingerprint import UNIDENTIFIED
from geoskip.registry.functions import CATALYST
from geoskip.sources.column_names import backquote, parts_of_name, quote_if_needed
from geoskip.sources.dependencies import (
    DEFINITION_OF,
    Reader,
    corrupt_record,
    default_read_in_part,
    depends_on,
    struct_tested_for_null,
)
from geoskip.sources.settings import CHANGED, recorded_settings
from geoskip.types import sql_type


@dataclass(frozen=True)
class FileRelation(Reader):
    """File relation that a DataFrame reads."""

    roots: tuple[str, ...]
    partitions: tuple[str, ...]
    root: str
    """URI of the folder that identifies the dataset and holds its metadata."""
    table: str = ""
    """The table format that lists the files, which then never change; empty for folders of files."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The table's names of columns and their fields, by their names in the files; empty if these are equal."""
    by_id: bool = False
    """Whether columns are found by field id, so that files may use any names."""
    reading: Mapping[str, str | None] | None = None
    """Settings of the session that reads the files, if it is another one with other settings."""

    def texts_of(self, index: Index) -> list[str]:
        """Texts of an index's expressions, with the table's current column names; see :func:`texts_of`."""
        texts = texts_of(index)
        for number, bound in enumerate(index.bound if self.names else ()):
            if isinstance(bound, Column):
                texts[number] = self.names.get(bound.name, texts[number])
        return texts

    def to_json(self) -> dict[str, Any]:
        """JSON of the relation for the metadata."""
        return {
            "class": self.file_format,
            "options": self.matching_options(),
            "schema": self.schema,
            "partitions": list(self.partitions),
            "settings": {name: value for name, value in self.settings.items() if name.startswith("spark.sql.")}
            | {CHANGED: recorded_settings(self.settings.get(CHANGED))},
            **({"mapped": True} if self.names or self.by_id else {}),  # indexes use the names in the files
        }


def texts_of(index: Index) -> list[str]:
    """Texts of an index's expressions that keep their meaning when columns are added later.

    A column named ``a.b`` may be added beside a struct ``a``: the text of a bound expression keeps its first meaning.
    """
    texts = list(index.expressions())
    for number, bound in enumerate(index.bound):
        if isinstance(bound, Column) and "." in bound.name:
            texts[number] = ".".join(map(backquote, parts_of_name(bound.name)))
    return texts


def indexes_of(call: str, *given: object) -> list[Index]:
    """The indexes passed to a call, one by one or as lists.

    Raises InvalidSpecificationError for an argument that is not an index.

    >>> from geoskip.indexes.minmax import MinMax
    >>> indexes_of("build()", MinMax("a"), [MinMax("b")])
    [MinMax(expr='a'), MinMax(expr='b')]
    """
    found = _flatten(given)
    for index in found:
        if not isinstance(index, Index):
            raise InvalidSpecificationError(f"{call} takes indexes such as MinMax('temp'), got {index!r}")
    return found


def names_of(call: str, *given: object) -> list[str]:
    """The texts of the indexes passed to a call, as specifications or texts, one by one or as lists.

    Raises InvalidSpecificationError for another argument, and for an empty list.

    >>> from geoskip.indexes.minmax import MinMax
    >>> names_of("delete_index()", [MinMax("a"), "minmax(b)"])
    ['minmax(a)', 'minmax(b)']
    """
    found = _flatten(given)
    for index in found:
        if not isinstance(index, Index | str):
            raise InvalidSpecificationError(f"{call} takes indexes or their texts, as 'minmax(temp)', got {index!r}")
    if given and not found:
        raise InvalidSpecificationError(f"{call} got an empty list; call it without one for all indexes")
    return list(map(str, found))


def _flatten(given: Sequence[object]) -> list[Any]:
    """Arguments, with the items of those that are lists."""
    found: list[Any] = []
    for each in given:
        try:
            found += [each] if isinstance(each, str | bytes | Mapping | Index) else list(each)  # type: ignore[call-overload]
        except TypeError:  # not iterable
            found.append(each)
    return found


def check_indexes(indexes: Sequence[Index]) -> list[Index]:
    """Indexes as instances of their registered types.

    Raises InvalidSpecificationError for indexes without expressions, and for duplicates.
    """
    for index in indexes:
        texts = index.expressions()
        if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
            raise InvalidSpecificationError(f"{index.kind} needs a column name or SQL text, got {texts!r}")
    found = [as_registered(index) for index in indexes]
    twice = sorted(name for name, count in Counter(map(str, found)).items() if count > 1)
    if twice:
        raise InvalidSpecificationError(f"{', '.join(twice)} is named twice; name each index once")
    return found


def check_distinct(entries: Sequence[IndexEntry], *, new: bool) -> None:
    """Raise InvalidSpecificationError if two new entries are the same index in different spellings."""
    meant: dict[Any, str] = {}
    for entry in entries:
        before = meant.setdefault(_key(entry), entry.name)
        if before != entry.name and new:
            raise InvalidSpecificationError(f"{before} and {entry.name} are the same index; name it once")


def as_spelt_before(entries: Sequence[IndexEntry], existing: Sequence[IndexEntry]) -> list[IndexEntry]:
    """Replace the specification of entries that exist in another spelling by the existing one."""
    before = {_key(entry): entry.index for entry in existing}
    spelt = [before.get(_key(entry), entry.index) for entry in entries]
    return [replace(entry, index=index.bind(entry.index.bound)) for entry, index in zip(entries, spelt, strict=True)]


def _key(entry: IndexEntry) -> tuple[Any, ...]:
    """Key of an index that does not depend on the spelling of its expressions."""
    texts = entry.index.expressions()
    options = [item for item in entry.index.to_json().items() if item[1] not in texts and item[1] != texts]
    return (entry.index.bound, repr(options))


def entry_of(
    relation: FileRelation, index: Index, bound: Sequence[Predicate], columns_of_index: Callable[[], list[SourceColumn]]
) -> IndexEntry:
    """Entry of an index over a dataset.

    Parameters
    ----------
    relation, index
        The file relation of the dataset, and the specification.
    bound
        The index's expressions as predicates.
    columns_of_index
        Returns the expressions with their types; may raise UnsupportedColumnError.

    Raises
    ------
    InvalidSpecificationError
        For expressions that cannot be indexed soundly.
    """
    for predicate in bound:
        _check(index, predicate, relation)
    try:
        columns = columns_of_index()
    except UnsupportedColumnError as error:
        raise UnsupportedColumnError(f"{index} cannot be built: {error}") from None
    kind = index.metadata_type(*columns)
    reads = sorted(set().union(*map(typed_columns, bound)))
    depends = depends_on(bound, relation)
    if relation.reading is not None and depends_on(bound, replace(relation, settings=relation.reading)) != depends:
        raise InvalidSpecificationError(
            f"{index} cannot be built: another session reads these files, with other settings; "
            "index the files themselves"
        )
    if (code := definition(index)) is not None:
        depends[DEFINITION_OF + index.kind] = code
    return IndexEntry(index.bind(bound), tuple(reads), kind, depends)


def typed_columns(predicate: Predicate) -> set[tuple[str, str]]:
    """Columns that an expression reads, each with its type."""
    return {(v.name, v.type or "") for v in walk(predicate) if isinstance(v, Column)}


def calls_python(index: Index) -> bool:
    """Test whether an index is over calls of Python functions."""
    calls = (vertex for bound in index.bound for vertex in walk(bound) if isinstance(vertex, Call))
    return any((call.implementation or "").startswith("python:") for call in calls)


_THROUGH_PANDAS = frozenset(["eval:101", "eval:200", "eval:204"])
"""Spark's codes of plain functions with Arrow, of functions of pandas columns, and of iterators of these."""
_OWN = ("python:udf_mappings.", "python:geoskip.")
"""Functions that accept a float in place of an integer."""


def _through_pandas(call: Call) -> Predicate | None:
    """Integer argument that pandas converts to floats in a batch with NULLs, or None."""
    if _THROUGH_PANDAS.isdisjoint(call.flags) or (call.implementation or "").startswith(_OWN):
        return None
    return next((arg for arg in call.args if sql_type(arg.type).is_integral and columns_of(arg)), None)


def _check(index: Index, predicate: Predicate, relation: FileRelation) -> None:
    if not columns_of(predicate):
        is_text = isinstance(predicate, Literal) and isinstance(predicate.value, str)
        hint = f"; {predicate} is a text: without its quotes it is a column" if is_text else ""
        raise InvalidSpecificationError(f"{index} reads no column, so it says nothing about a file{hint}")
    for vertex in walk(predicate):
        match vertex:
            case Call(_, (Opaque(text, ()), *_), implementation) if implementation == f"{CATALYST}objects.Invoke":
                raise InvalidSpecificationError(
                    f"{index} cannot be indexed: Spark evaluates a function in it by an object "
                    f"({text.partition('(')[0]}) that geoskip cannot compare with those of queries; index a column "
                    "that the function reads, or another function of it"
                )
        if isinstance(vertex, Opaque):
            text = re.sub(r"#\d+L?", "", vertex.text)  # Spark numbers the attributes of a plan
            if vertex.renamed:
                raise InvalidSpecificationError(
                    f"{index} cannot be indexed: fields within {text} have other names in the files than in the "
                    "table; index single fields of structs, which are found by either name, but not those within "
                    "arrays and maps"
                )
            raise InvalidSpecificationError(
                f"{index} cannot be indexed: {text} is not deterministic, a subquery, a file's metadata or not "
                "known; index an expression whose value depends on the row alone"
            )
        if isinstance(vertex, Call) and (vertex.implementation or "").endswith(UNIDENTIFIED):
            raise InvalidSpecificationError(
                f"{index} cannot be built: nobody can tell one version of {vertex.name} from another; "
                f'state one that you raise with every change: geoskip.declare("{vertex.name}", version="1")'
            )
        if isinstance(vertex, Call) and (whole := _through_pandas(vertex)) is not None:
            raise InvalidSpecificationError(
                f"{index} cannot be built: {vertex.name} is given whole numbers through pandas, which makes floats of "
                f"them where others of the batch are NULL; index {vertex.name} of CAST({whole} AS double) and ask for "
                "that, or register it as a plain function"
            )
    corrupt = corrupt_record([predicate], relation)
    if corrupt is not None:
        raise InvalidSpecificationError(
            f"{index} reads {corrupt}, the column of records that could not be parsed: which those are depends on the "
            "columns that a query reads beside it; index other columns"
        )
    if (struct := struct_tested_for_null([predicate], relation)) is not None:
        raise InvalidSpecificationError(
            f"{index} asks whether {struct} is NULL: where a file lacks some of its fields, that depends on which of "
            "them a query reads; index a field of it instead"
        )
    if (column := default_read_in_part([predicate], relation)) is not None:
        raise InvalidSpecificationError(
            f"{index} reads {column}, a column of structs with a default: whether files that lack it hold the default "
            "or NULL depends on which of its fields a query reads; index other columns"
        )
    partitions = {*map(quote_if_needed, relation.partitions), *map(backquote, relation.partitions)}
    partitioned = {relation.names.get(name, name) for name in columns_of(predicate)} & partitions
    if partitioned:
        raise InvalidSpecificationError(
            f"{index} reads the partition column {', '.join(sorted(partitioned))}, which is known exactly already; "
            "queries on it skip without an index"
        )
