"""Analysis of an index's texts by Spark: expressions, types and dependencies.

Spark analyses and optimises the texts over the dataset's own DataFrame, to the stage at which the rule gets a query's
filter, so that the expressions of indexes and queries are compared by structure.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from geoskip.errors import DatasetNotFoundError, InvalidSpecificationError, UnknownColumnError, UnsupportedColumnError
from geoskip.indexes.base import Index, SourceColumn, as_registered, definition
from geoskip.layout.specification import Layout
from geoskip.metadata import IndexEntry
from geoskip.predicates import Call, Column, Opaque, Predicate, columns_of, walk
from geoskip.sources.dependencies import (
    DEFINITION_OF,
    Reader,
    corrupt_record,
    depends_on,
    reason_declined,
    struct_tested_for_null,
)
from geoskip.sources.settings import CHANGED, recorded_settings
from geoskip.spark.rule.translate import UNIDENTIFIED, Translator, quoted
from geoskip.spark.session import JvmBridge
from geoskip.types import sql_type

Json = Mapping[str, Any]


@dataclass(frozen=True)
class FileRelation(Reader):
    """File relation that a DataFrame reads."""

    roots: tuple[str, ...]
    partitions: tuple[str, ...]
    root: str
    """URI of the folder that identifies the dataset and holds its metadata."""

    def to_json(self) -> dict[str, Any]:
        """JSON that the metadata record of it."""
        return {
            "class": self.file_format,
            "options": self.matching_options(),
            "schema": self.schema,
            "partitions": list(self.partitions),
            "settings": {name: value for name, value in self.settings.items() if name.startswith("spark.sql.")}
            | {CHANGED: recorded_settings(self.settings.get(CHANGED))},
        }


def relation_of(jvm: JvmBridge, frame: DataFrame, name: str, root_of: Callable[[Sequence[str]], str]) -> FileRelation:
    """File relation that a DataFrame reads.

    Parameters
    ----------
    jvm, frame, name
        The Java side, the DataFrame, and the name of the dataset in messages.
    root_of
        Returns the folder that identifies the dataset, given the relation's roots.

    Raises
    ------
    InvalidSpecificationError
        Where it reads no single relation that can be indexed.
    DatasetNotFoundError
        Where the relation has no files.
    """
    text = jvm.geoskip.relation(frame._jdf)
    if text is None:
        raise InvalidSpecificationError(
            f"{name} is not a dataset of files that geoskip can index: it needs Parquet, ORC, Avro, CSV, JSON or text "
            "files read through Spark's own readers (no view that chooses rows or joins, no DataSource V2, no database)"
        )
    answer: Json = json.loads(text)
    if answer["reason"]:
        raise InvalidSpecificationError(f"{name} cannot be indexed; {answer['reason']}")
    if not answer["roots"]:
        raise DatasetNotFoundError(f"{name} has no files")
    relation = FileRelation(
        answer["format"],
        answer["options"],
        answer["settings"],
        answer["schema"],
        tuple(answer["roots"]),
        tuple(answer["partitions"]),
        root_of(answer["roots"]),
    )
    if (why := reason_declined(relation)) is not None:
        raise InvalidSpecificationError(f"{name} cannot be indexed: {why}; read it without that")
    return relation


def columns_for(frame: DataFrame, texts: Sequence[str]) -> list[Any]:
    """Columns of some texts, named ``_g0``, ``_g1`` and so on; a text is a column's name, else SQL."""
    names = set(frame.columns)
    columns = (F.col("`" + text.replace("`", "``") + "`") if text in names else F.expr(text) for text in texts)
    return [column.alias(f"_g{number}") for number, column in enumerate(columns)]


def texts_of(index: Index) -> list[str]:
    """Texts of an index's expressions that keep their meaning whatever columns are added later.

    Beside a struct ``a`` there may be a column named ``a.b``: a bound text keeps the meaning it was bound to.
    """
    texts = list(index.expressions())
    for number, bound in enumerate(index.bound):
        if isinstance(bound, Column) and "." in bound.name:
            parts = re.findall(r"`((?:[^`]|``)*)`|([^.`]+)", bound.name)
            texts[number] = ".".join(f"`{spelt or plain}`" for spelt, plain in parts)
    return texts


def bind(jvm: JvmBridge, frame: DataFrame, relation: FileRelation, indexes: Sequence[Index]) -> list[IndexEntry]:
    """Entries of some indexes over a dataset.

    Parameters
    ----------
    jvm, frame, relation, indexes
        The Java side, the dataset's DataFrame, the relation that it reads, and the specifications.

    Raises
    ------
    InvalidSpecificationError
        For indexes that are given twice, and expressions that cannot be indexed soundly.
    """
    for index in indexes:
        if not isinstance(index, Index):
            raise InvalidSpecificationError(f"expected indexes such as MinMax('temp'), got {index!r}")
        texts = index.expressions()
        if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
            raise InvalidSpecificationError(f"{index.kind} needs a column name or SQL text, got {texts!r}")
    indexes = [as_registered(index) for index in indexes]
    twice = sorted(name for name, count in Counter(map(str, indexes)).items() if count > 1)
    if twice:
        raise InvalidSpecificationError(f"{', '.join(twice)} is named twice; name each index once")
    together = _analyse(jvm, frame, indexes) if len(indexes) > 1 else None
    if together is None:  # alone, each gives its own error
        together = [_analyse_alone(jvm, frame, index) for index in indexes]
    entries = [_entry(relation, index, found) for index, found in zip(indexes, together, strict=True)]
    meant: dict[Any, str] = {}
    for entry in entries:
        before = meant.setdefault(_meaning(entry), entry.name)
        if before != entry.name and not all(index.bound for index in indexes):  # bound ones exist already
            raise InvalidSpecificationError(f"{before} and {entry.name} are the same index; name it once")
    return entries


def _meaning(entry: IndexEntry) -> tuple[Any, ...]:
    """Key of an index that does not depend on the spelling of its expressions."""
    texts = entry.index.expressions()
    options = [item for item in entry.index.to_json().items() if item[1] not in texts and item[1] != texts]
    return (entry.index.bound, repr(options))


Analysis = list[tuple[Json, T.StructField]]
"""Analysed node and field of each expression of an index."""


def _analyse(jvm: JvmBridge, frame: DataFrame, indexes: Sequence[Index]) -> list[Analysis] | None:
    """Analysis of the expressions of all indexes at once; None where one of them cannot be analysed."""
    texts = [text for index in indexes for text in texts_of(index)]
    try:
        with without_error_log():
            selected = frame.select(*columns_for(frame, texts))
    except (AnalysisException, ParseException):
        if len(indexes) == 1:
            raise
        return None
    written = json.loads(jvm.geoskip.analyse(selected._jdf))
    if len(written) != len(texts):
        return None
    analyses = iter(zip(written, selected.schema.fields, strict=True))
    return [list(islice(analyses, len(index.expressions()))) for index in indexes]


def _analyse_alone(jvm: JvmBridge, frame: DataFrame, index: Index) -> Analysis:
    try:
        analysis = _analyse(jvm, frame, [index])
    except (AnalysisException, ParseException) as error:
        raise analysis_error(index, frame, error) from None
    if analysis is None:
        raise InvalidSpecificationError(
            f"{index} is over more than one file's row (an aggregate, a window, a subquery or a generator); "
            "index an expression over the columns of one row"
        )
    return analysis[0]


def _entry(relation: FileRelation, index: Index, analysis: Analysis) -> IndexEntry:
    bound = [Translator().predicate(node) for node, _ in analysis]
    for predicate in bound:
        _check(index, predicate, relation)
    try:
        columns = [
            SourceColumn(text, predicate.type or field.dataType.simpleString(), arrow_type(field))
            for text, predicate, (_, field) in zip(index.expressions(), bound, analysis, strict=True)
        ]
    except UnsupportedColumnError as error:
        raise UnsupportedColumnError(f"{index} cannot be built: {error}") from None
    kind = index.metadata_type(*columns)
    reads = sorted(set().union(*map(typed_columns, bound)))
    depends = depends_on(bound, relation)
    if (code := definition(index)) is not None:
        depends[DEFINITION_OF + index.kind] = code
    return IndexEntry(index.bind(bound), tuple(reads), kind, depends)


@contextmanager
def without_error_log() -> Iterator[None]:
    """Context without PySpark 4.0's log of the stack of an analysis error."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:
        yield
        return
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def sentence(error: Exception) -> str:
    """Sentence of Spark's error without its code, its position and its advice on configuration."""
    line = next((line for line in str(error).splitlines() if line.strip()), repr(error))
    plain = re.sub(r"^\[[A-Z0-9_.]+\] *|;? *line \d+,? pos \d+.*$|\.? *SQLSTATE: *\w+.*$", "", line.strip())
    return re.sub(r"^\[[A-Z0-9_.]+\] *", "", plain).strip(" ;.")


def analysis_error(index: Index | Layout, frame: DataFrame, error: Exception) -> InvalidSpecificationError:
    """Error for a text of a specification that Spark could not analyse."""
    message = sentence(error)
    known = ", ".join(frame.columns[:20]) + (", ..." if len(frame.columns) > 20 else "")
    missing = re.search(r"with name (`.+?`) cannot be resolved", message)
    if missing:
        name = missing[1].strip("`") if missing[1].count("`") == 2 else missing[1]
        lowered = {column.lower(): column for column in frame.columns}
        near = difflib.get_close_matches(name.lower(), lowered, 1)
        hint = f"did you mean {lowered[near[0]]}? Its columns are" if near else "its columns are"
        return UnknownColumnError(f"{index}: the dataset has no column {name}; {hint} {known}")
    if isinstance(error, ParseException):
        return InvalidSpecificationError(
            f"{index} is no SQL that Spark can parse ({message}); put the name of a column that is no plain word "
            f"in backquotes. The dataset's columns are {known}"
        )
    return UnknownColumnError(f"{index} cannot be built over this dataset: {message}. Its columns are {known}")


def typed_columns(predicate: Predicate) -> set[tuple[str, str]]:
    """Columns that an expression reads, each with its type."""
    return {(v.name, v.type or "") for v in walk(predicate) if isinstance(v, Column)}


_THROUGH_PANDAS = frozenset(["eval:101", "eval:200", "eval:204"])
"""Spark's codes of plain functions through Arrow, and of functions of pandas columns and of iterators of them."""
_OWN = ("python:udf_mappings.", "python:geoskip.")
"""Functions that accept a float in place of a whole number."""


def _through_pandas(call: Call) -> Predicate | None:
    """Argument of whole numbers that pandas makes floats where other rows are NULL, or None."""
    if _THROUGH_PANDAS.isdisjoint(call.flags) or (call.implementation or "").startswith(_OWN):
        return None
    return next((arg for arg in call.args if sql_type(arg.type).is_integral and columns_of(arg)), None)


def _check(index: Index, predicate: Predicate, relation: FileRelation) -> None:
    if not columns_of(predicate):
        raise InvalidSpecificationError(f"{index} reads no column, so it says nothing about a file")
    for vertex in walk(predicate):
        if isinstance(vertex, Opaque):
            text = re.sub(r"#\d+L?", "", vertex.text)  # Spark numbers the attributes of a plan
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
    partitioned = columns_of(predicate) & set(map(quoted, relation.partitions))
    if partitioned:
        raise InvalidSpecificationError(
            f"{index} reads the partition column {', '.join(sorted(partitioned))}, which is known exactly already; "
            "queries on it skip without an index"
        )


def arrow_type(field: T.StructField) -> pa.DataType:
    """Arrow type of a selected expression's values; (E)WKB for geometries."""
    kind = field.dataType
    if is_geometry_type(kind):
        return pa.binary()
    if isinstance(kind, T.TimestampType):  # newer versions of PySpark need a zone
        return pa.timestamp("us", "UTC")
    try:
        return to_arrow_type(kind)
    except Exception:
        raise UnsupportedColumnError(_no_arrow(kind.simpleString())) from None


def is_geometry_type(kind: T.DataType) -> bool:
    """Test whether a type is Sedona's geometry or Spark's own."""
    return isinstance(kind, (T.UserDefinedType, SPARKS_GEOMETRY))


SPARKS_GEOMETRY: type = getattr(T, "GeometryType", type(None))
"""Type of Spark's own geometries, since 4.1."""


def _no_arrow(kind: str) -> str:
    """Sentence on a type whose values Spark does not pass to Python, with the way out."""
    out = "index a function of it whose values are numbers, texts or times"
    if kind.startswith("interval") and "day" not in kind:
        out = "index the number of its months, such as extract(YEAR FROM i) * 12 + extract(MONTH FROM i)"
    return f"an index needs values that Spark hands to Python, and of type {kind} it hands none; {out}"
