"""Analysis of an index's texts by Spark: expressions, types and dependencies.

Spark analyses and optimises the texts over the dataset's own DataFrame, up to the stage at which the rule gets the
filter of a query, so that expressions of indexes and queries can be compared by structure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkValueError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from geoskip.errors import DatasetNotFoundError, InvalidSpecificationError, UnknownColumnError, UnsupportedColumnError
from geoskip.indexes.base import Index, SourceColumn
from geoskip.layout.specification import Layout
from geoskip.metadata import IndexEntry
from geoskip.registry.installed import offered_by_name
from geoskip.sources.bound_indexes import (
    FileRelation,
    check_distinct,
    check_indexes,
    entry_of,
)
from geoskip.sources.column_names import backquote, quote_if_needed
from geoskip.sources.dependencies import (
    reason_declined,
)
from geoskip.spark.rule.translate import Translator
from geoskip.spark.session import JvmBridge, with_rule

Json = Mapping[str, Any]


def relation_of(jvm: JvmBridge, frame: DataFrame, name: str, root_of: Callable[[Sequence[str]], str]) -> FileRelation:
    """The file relation that a DataFrame reads.

    Parameters
    ----------
    jvm, frame, name
        The Java side, the DataFrame, and the name of the dataset in messages.
    root_of
        Returns the folder that identifies the dataset, given the relation's roots.

    Raises
    ------
    InvalidSpecificationError
        If it does not read exactly one relation that can be indexed.
    DatasetNotFoundError
        If the relation has no files.
    """
    text = jvm.geoskip.files().relation(frame._jdf)
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
        answer["table"] or "",
        {".".join(map(quote_if_needed, inner)): ".".join(map(backquote, outer)) for inner, outer in answer["names"]},
        answer["byId"],
        answer.get("reading"),
    )
    for settings in (relation.settings, relation.reading or relation.settings):
        if (why := reason_declined(replace(relation, settings=settings))) is not None:
            raise InvalidSpecificationError(f"{name} cannot be indexed: {why}; read it without that")
    return relation


def columns_for(frame: DataFrame, texts: Sequence[str]) -> list[Any]:
    """Columns for some texts, named ``_g0``, ``_g1`` and so on; a text is a column's name, or else SQL."""
    names = set(column_names(frame))
    columns = (F.col(backquote(text)) if text in names else F.expr(text) for text in texts)
    return [column.alias(f"_g{number}") for number, column in enumerate(columns)]


def select_texts(frame: DataFrame, texts: Sequence[str], of: Index | Layout) -> DataFrame:
    """Select the texts of a specification; raises InvalidSpecificationError if Spark cannot analyse one."""
    try:
        with without_error_log():
            return frame.select(*columns_for(frame, texts))
    except (AnalysisException, ParseException) as error:
        raise analysis_error(of, frame, error) from None


def column_names(frame: DataFrame) -> list[str]:
    """Names of a DataFrame's columns, which may have types that PySpark does not know."""
    return list(frame._jdf.columns())


def check_types(frame: DataFrame, call: str, way_out: str) -> None:
    """Raise UnsupportedColumnError for columns of types that PySpark does not know, such as nanoseconds.

    Parameters
    ----------
    frame
        The rows.
    call, way_out
        The caller's name and a workaround, for the message.
    """
    if _knows_types(frame):
        return
    kinds = {field.name(): field.dataType().simpleString() for field in frame._jdf.schema().fields()}
    unknown = [name for name in kinds if not _knows_types(frame.select(backquote(name)))]
    shown = " and ".join(f"{name} of type {kinds[name]}" for name in unknown)
    raise UnsupportedColumnError(f"{call} does not support the column {shown}, which PySpark does not know; {way_out}")


def _knows_types(frame: DataFrame) -> bool:
    try:
        return frame.schema is not None
    except PySparkValueError:
        return False


def bind(frame: DataFrame, relation: FileRelation, indexes: Sequence[Index]) -> list[IndexEntry]:
    """Entries of some indexes over a dataset.

    Parameters
    ----------
    frame, relation, indexes
        The dataset's DataFrame, the relation that it reads, and the specifications.

    Raises
    ------
    InvalidSpecificationError
        For indexes that are given twice, and expressions that cannot be indexed soundly.
    """
    indexes = check_indexes(indexes)
    together = _analyse(frame, relation, indexes) if len(indexes) > 1 else None
    if together is None:  # analysed alone, each raises its own error
        together = [_analyse_alone(frame, relation, index) for index in indexes]
    entries = [_entry(relation, index, found) for index, found in zip(indexes, together, strict=True)]
    check_distinct(entries, new=not all(index.bound for index in indexes))  # bound indexes exist already
    return entries


Analysis = list[tuple[Json, T.StructField]]
"""Analysed node and field of each expression of an index."""


def _analyse(frame: DataFrame, relation: FileRelation, indexes: Sequence[Index]) -> list[Analysis] | None:
    """Analyse the expressions of all indexes at once; None if one of them cannot be analysed."""
    texts = [text for index in indexes for text in relation.texts_of(index)]
    try:
        with without_error_log():
            selected = frame.select(*columns_for(frame, texts))
    except (AnalysisException, ParseException):
        if len(indexes) == 1:
            raise
        return None
    written = json.loads(with_rule(frame.sparkSession).analyse(selected._jdf))
    if len(written) != len(texts):
        return None
    try:
        fields = selected.schema.fields
    except PySparkValueError:  # a type that PySpark does not know
        if len(indexes) > 1:
            return None
        kinds = {field.dataType().simpleString() for field in selected._jdf.schema().fields()}
        raise UnsupportedColumnError(_no_arrow(" or ".join(sorted(kinds)))) from None
    analyses = iter(zip(written, fields, strict=True))
    return [list(islice(analyses, len(index.expressions()))) for index in indexes]


def _analyse_alone(frame: DataFrame, relation: FileRelation, index: Index) -> Analysis:
    try:
        analysis = _analyse(frame, relation, [index])
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

    def columns() -> list[SourceColumn]:
        return [
            SourceColumn(text, predicate.type or field.dataType.simpleString(), arrow_type(field))
            for text, predicate, (_, field) in zip(index.expressions(), bound, analysis, strict=True)
        ]

    return entry_of(relation, index, bound, columns)


@contextmanager
def without_error_log() -> Iterator[None]:
    """Context in which PySpark 4.0 does not log the stack trace of an analysis error."""
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
    """The message of Spark's error without its code, its position and its advice on configuration."""
    line = next((line for line in str(error).splitlines() if line.strip()), repr(error))
    plain = re.sub(r"^\[[A-Z0-9_.]+\] *|;? *line \d+,? pos \d+.*$|\.? *SQLSTATE: *\w+.*$", "", line.strip())
    return re.sub(r"^\[[A-Z0-9_.]+\] *", "", plain).strip(" ;.")


def analysis_error(index: Index | Layout, frame: DataFrame, error: Exception) -> InvalidSpecificationError:
    """Error for a text of a specification that Spark could not analyse."""
    message = sentence(error)
    names = column_names(frame)
    known = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    missing = re.search(r"with name (`.+?`) cannot be resolved", message)
    if missing:
        name = missing[1].strip("`") if missing[1].count("`") == 2 else missing[1]
        return UnknownColumnError(f"{index}: {UnknownColumnError.of(name, names)}")
    if isinstance(error, ParseException):
        return InvalidSpecificationError(
            f"{index} is no SQL that Spark can parse ({message}); put the name of a column that is no plain word "
            f"in backquotes. The dataset's columns are {known}"
        )
    function = re.search(r"Cannot resolve (?:routine|function) `(.+?)`", message)
    if function:
        offered = offered_by_name().get(function[1].lower())
        out = (
            f"geoskip.register_functions(spark) registers {offered.name}"
            if offered is not None
            else "register it in this session, or correct its name"
        )
        return InvalidSpecificationError(f"{index}: the session has no function {function[1]}; {out}")
    return UnknownColumnError(f"{index} cannot be built over this dataset: {message}. Its columns are {known}")


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
    """Error message for a type with values that Spark does not pass to Python, with a workaround."""
    out = "index a function of it whose values are numbers, texts or times"
    if kind.startswith("interval") and "day" not in kind:
        out = "index the number of its months, such as extract(YEAR FROM i) * 12 + extract(MONTH FROM i)"
    if kind.startswith("timestamp_"):
        out = "index its microseconds, such as CAST(t AS TIMESTAMP_NTZ), and use that in conditions"
    return f"an index needs values that Spark hands to Python, and of type {kind} it hands none; {out}"
