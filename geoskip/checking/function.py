"""The checked function: its arguments, return type and values, and conditions on it.

Results of Python functions are converted to the declared type as in Spark without Arrow, the default (soundness rule
6): if a function declared ``int`` returns ``'5'``, ``5.0`` or ``True``, the value is NULL; a function declared
``string`` may return numbers, which are converted to text.
"""

from __future__ import annotations

import datetime as dt
import decimal
import inspect
import itertools
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from geoskip.checking.strategies import (
    Sample,
    Strategy,
    arrow_type,
    constants_of,
    hint_of,
    near,
    physical_value,
    rows_of,
    sample_of,
    samples,
    spark_type,
)
from geoskip.errors import MappingError
from geoskip.predicates import (
    Call,
    Column,
    Comparison,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Predicate,
    StartsWith,
)
from geoskip.registry import current
from geoskip.registry.fingerprint import identity
from geoskip.registry.functions import plain_function
from geoskip.types import sql_type

ROW_BY_ROW, _SCALAR_PANDAS = (100, 101), 200
"""Spark's codes for ways of calling Python functions."""
_MOST = 4
"""Maximum number of combinations of argument types to try."""


@dataclass(frozen=True)
class FunctionUnderTest:
    """A Python function with arguments of fixed types."""

    name: str
    function: Any
    arguments: Mapping[str, Sample]
    returns: str
    evaluation: int = 100
    """Spark's code for the way of calling it: row by row, or with pandas columns."""
    constants: tuple[Any, ...] = ()
    """Constants in its code and in that of its mappings, which rows and conditions should be near."""

    def columns(self) -> dict[str, Column]:
        """The arguments as columns."""
        return {name: Column(name, sample.kind) for name, sample in self.arguments.items()}

    def call(self, constants: Mapping[str, Any]) -> Call:
        """The call as in a query's condition, with some arguments constant and the others columns."""
        arguments: list[Predicate] = [
            Literal(physical_value(constants[name]), column.type) if name in constants else column
            for name, column in self.columns().items()
        ]
        implementation = "python:" + identity(self.function)
        return Call(self.name, tuple(arguments), implementation, (f"eval:{self.evaluation}",), self.returns)

    def operand(self, constants: Mapping[str, Any]) -> Call | Column:
        """The operand of conditions, here the call."""
        return self.call(constants)

    def rows(self) -> Strategy:
        """The strategy of rows, each a dict by argument."""
        return rows_of(self.arguments, self.constants)

    def columns_of(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
        """The values of rows by argument."""
        return {name: [row[name] for row in rows] for name in self.arguments}

    def evaluate(self, rows: Mapping[str, list[Any]], constants: Mapping[str, Any]) -> FunctionResults:
        """Call the function for each row, with some arguments constant."""
        length = max((len(values) for values in rows.values()), default=1)
        columns = [[constants[name]] * length if name in constants else rows[name] for name in self.arguments]
        if self.evaluation == _SCALAR_PANDAS:
            arrays = [pa.array(c, s.arrow) for c, s in zip(columns, self.arguments.values(), strict=True)]
            return _results_of_columns(self.function, arrays, self.returns)
        return results_of_rows(self.function, list(zip(*columns, strict=True)), self.returns)


def near_constants(subject: FunctionUnderTest) -> FunctionUnderTest:
    """Mix values near constants in the code of the function and of its mappings into its arguments."""
    rules = [mapping.rule for mapping in current().rules_of(subject.call({}))]
    constants = constants_of([subject.function, *rules])
    arguments = {name: near(sample, constants) for name, sample in subject.arguments.items()}
    return replace(subject, arguments=arguments, constants=tuple(constants))


def subjects_of(
    function: Any, *, rows: Mapping[str, Any] | Sequence[Any] | None, returns: str | None, name: str | None
) -> list[FunctionUnderTest]:
    """The function with each likely combination of argument types.

    Parameters
    ----------
    function
        A Python function or a UDF.
    rows
        Types, hints or values of arguments, by name or in order; the others are guessed from annotations and names.
    returns
        The declared type; None for that of the UDF, or for one inferred from results.
    name
        The SQL name; None for the function's own name.

    Raises
    ------
    MappingError
        If the arguments are unknown, or the function raises for all values that were tried.
    """
    plain = plain_function(function)
    evaluation = 100 if plain is function else int(function.evalType)
    if evaluation not in (*ROW_BY_ROW, _SCALAR_PANDAS):
        raise MappingError(
            f"{getattr(plain, '__name__', plain)} takes its columns in a way that cannot be tried here (an iterator, "
            "a group or Arrow tables); check it with spark="
        )
    declared = returns or _declared_type(function)
    given = _given_samples(plain, rows)
    subject = FunctionUnderTest(name or str(getattr(plain, "__name__", "f")), plain, {}, declared or "", evaluation)
    combinations = (dict(zip(given, some, strict=True)) for some in _combinations(given))
    fitting = (_infer_returns(replace(subject, arguments=arguments), declared) for arguments in combinations)
    subjects = list(itertools.islice((one for one in fitting if one is not None), _MOST))
    if not subjects:
        returns = "" if declared else ", and its type, such as returns='string'"
        raise MappingError(
            f"{subject.name}({', '.join(given)}) raises or returns None for all values that were tried; say which it "
            f"takes: rows={{{', '.join(f'{argument!r}: ...' for argument in given)}}}, each a type, a hint or values "
            f"of yours{returns}"
        )
    return subjects


def _declared_type(function: Any) -> str | None:
    kind: Any = getattr(function, "returnType", None)
    return str(kind.simpleString()) if hasattr(kind, "simpleString") else kind if isinstance(kind, str) else None


def _given_samples(plain: Any, rows: Mapping[str, Any] | Sequence[Any] | None) -> dict[str, Sample | None]:
    """The sample of each argument, None if its type is unknown."""
    try:
        parameters = [
            p
            for p in inspect.signature(plain).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        hints = typing.get_type_hints(plain)
    except (TypeError, ValueError, NameError):
        parameters, hints = [], {}
    names = [p.name for p in parameters if p.default is p.empty or (isinstance(rows, Mapping) and p.name in rows)]
    wanted: dict[str, Any] = {}
    if isinstance(rows, Mapping):
        unknown = [name for name in rows if name not in [p.name for p in parameters]] if parameters else []
        if unknown:
            raise MappingError(f"there is no argument {unknown[0]!r}; the function has {', '.join(names) or 'none'}")
        names = names or list(rows)
        wanted = dict(rows)
    elif rows is not None:
        if parameters and len(rows) > len(parameters):
            raise MappingError(f"rows= says of {len(rows)} arguments; the function has {', '.join(names) or 'none'}")
        names = [p.name for p in parameters][: len(rows)] or [f"x{n}" for n in range(len(rows))]
        wanted = dict(zip(names, rows, strict=True))
    if not names:
        raise MappingError("the function's arguments are not known; say what they are: rows=['double', 'words']")
    return {name: _sample(name, wanted.get(name), hints.get(name)) for name in names}


def _sample(name: str, wanted: Any, annotation: Any) -> Sample | None:
    if wanted is not None:
        return sample_of(wanted)
    members = typing.get_args(annotation)
    plain = [kind for kind in (members or (annotation,)) if isinstance(kind, type) and kind is not type(None)]
    kind = spark_type(plain[0]) if len(plain) == 1 else None
    return hint_of(name, kind) or (sample_of(kind) if kind else None)


def _combinations(given: Mapping[str, Sample | None]) -> Iterator[tuple[Sample, ...]]:
    """The samples to try: those given; for the other arguments first one type for all of them."""
    free = [name for name, sample in given.items() if sample is None]
    if not free:
        yield tuple(s for s in given.values() if s is not None)
        return
    likely = [sample_of(kind) for kind in ("string", "double", "bigint", "date", "boolean", "binary")]
    mixed = itertools.product(likely[:3], repeat=len(free)) if 1 < len(free) <= 3 else iter(())
    for chosen in [*((sample,) * len(free) for sample in likely), *(m for m in mixed if len(set(map(id, m))) > 1)]:
        by_name = dict(zip(free, chosen, strict=True))
        yield tuple(sample or by_name[name] for name, sample in given.items())


def _infer_returns(subject: FunctionUnderTest, declared: str | None) -> FunctionUnderTest | None:
    """The subject with its return type; None if the function has no results for most of these arguments."""
    rows = samples(subject.rows(), "fitting", 60)
    if subject.evaluation == _SCALAR_PANDAS:
        if declared is None:
            raise MappingError(f"say what {subject.name} returns: returns='double'")
        return None if subject.evaluate(subject.columns_of(rows), {}).thrown.all() else subject
    whole = [row for row in rows if None not in row.values()]
    results = []
    for row in whole:
        try:
            results.append(subject.function(*(row[name] for name in subject.arguments)))
        except Exception:
            continue
    kinds = Counter(kind for value in results if value is not None and (kind := spark_type(value)))
    if len(results) < max(1, len(whole) // 3) or all(value is None for value in results):
        return None
    if declared is not None:
        return subject
    if not kinds:
        return None
    return replace(subject, returns="double" if "double" in kinds else kinds.most_common(1)[0][0])


# ---- conditions on its calls

_COMPARED, _COMPARED_ALONE, _ARGUMENTS, _CODED = 3, 8, 2, 6


def literals_of(
    call: Call | Column, results: pa.Array, arguments: Sequence[Any], constants: Sequence[Any]
) -> SearchStrategy[list[Any]]:
    """Strategy of lists of values to compare a call with.

    Parameters
    ----------
    call
        The call, or the column, with its type.
    results
        Its values; some of these and neighbouring values are compared.
    arguments
        Plain values of arguments of the call's type, as in ``f(s) <> 'apple'`` where ``s`` is 'apple'.
    constants
        Constants in the code of the function and of its mappings; those of the call's type are compared.
    """
    try:
        known = list(dict.fromkeys(physical_value(value) for value in results.drop_null().to_pylist()))
    except (TypeError, OverflowError):
        known = []
    if not known:
        return st.just([])
    kind, some = sql_type(call.type), st.sampled_from(known)
    coded: list[Any] = []
    beside: Strategy = st.nothing()
    if kind.is_integral:
        coded = [int(c) for c in constants if isinstance(c, int | float) and abs(c) < 100 and c == c // 1]
        beside = st.builds(lambda value, step: value + step if abs(value) < 2**7 else 0, some, st.sampled_from([-1, 1]))
    elif kind.is_floating:
        coded = [float(c) for c in constants if isinstance(c, int | float) and abs(c) < 100 and call.type == "double"]
        of_kind = np.float32 if kind.name == "float" else float
        beside = st.one_of(st.just(0.0), some.map(lambda value: float(of_kind(round(value, 1)))))
    elif kind.name == "string":  # a prefix of a value, or a longer string
        coded = [c for c in constants if isinstance(c, str)]
        beside = st.builds(lambda value, cut: value[:-cut] if cut else value + "a", some, st.integers(0, 5))
    given = list(dict.fromkeys(physical_value(value) for value in arguments if value is not None))
    most = _COMPARED_ALONE if isinstance(call, Column) or len(call.args) == 1 else _COMPARED
    lists = [some_of(known, most), some_of(given, _ARGUMENTS), some_of(coded, _CODED)]
    lists += [st.lists(beside, min_size=2, max_size=2)] if not beside.is_empty else []
    return st.tuples(*lists).map(lambda drawn: list(dict.fromkeys(itertools.chain.from_iterable(drawn))))


def some_of(values: Sequence[Any], most: int) -> SearchStrategy[list[Any]]:
    """Strategy of lists of at most ``most`` distinct values."""
    distinct = list(dict.fromkeys(values))
    count = min(most, len(distinct))
    return st.lists(st.sampled_from(distinct), unique=True, min_size=count, max_size=count) if distinct else st.just([])


def conditions(call: Call | Column, literals: Sequence[Any]) -> Iterator[Predicate]:
    """Conditions on a call or a column: NULL tests, comparisons or the boolean itself, and negations."""
    yield IsNull(call)
    yield Not(IsNull(call))
    if call.type == "boolean":
        yield call
        yield Not(call)
        yield Comparison("<=>", call, Literal(True, "boolean"))
        return
    for value in literals:
        literal = Literal(value, call.type)
        for op in ("=", "<", "<=", ">", ">=", "<=>"):
            yield Comparison(op, call, literal)
        yield Not(Comparison("=", call, literal))
        yield Not(Comparison("<=>", call, literal))
        if isinstance(value, str) and value:
            yield StartsWith(call, value[: 1 + len(value) // 2])
            yield from _text_tests(call, value) if isinstance(call, Column) else ()
    among = tuple(Literal(value, call.type) for value in literals)
    if among:
        yield In(call, among)
        yield Not(In(call, among))


def _text_tests(column: Column, value: str) -> Iterator[Predicate]:
    """Further tests of a string column: suffix, substring and pattern, and negations."""
    half = len(value) // 2
    middle = Contains(column, value[half // 2 : half + 1])
    for test in (EndsWith(column, value[half:]), middle, Like(column, f"{value[0]}%_")):
        yield test
        yield Not(test)
    yield Not(StartsWith(column, value[: 1 + half]))


# ---- results as Spark takes them

_EXACT: dict[str, tuple[type, ...]] = {
    "boolean": (bool,), "float": (float,), "double": (float,), "binary": (bytes, bytearray), "date": (dt.date,),
    "timestamp_ntz": (dt.datetime,), "timestamp": (dt.datetime,),
}  # fmt: skip


@dataclass(frozen=True)
class FunctionResults:
    """Values of a function for some rows; ``thrown`` marks rows for which it raised."""

    values: pa.Array
    thrown: Any
    notes: tuple[str, ...] = ()


def results_of_rows(function: Callable[..., Any], rows: Sequence[tuple[Any, ...]], kind: str) -> FunctionResults:
    """Call a function of declared type ``kind`` for each row."""
    values: list[Any] = []
    thrown = np.zeros(len(rows), dtype=bool)
    notes: dict[str, None] = {}
    for number, row in enumerate(rows):
        value = None
        try:
            value = function(*row)
        except Exception:
            thrown[number] = True
        values.append(_convert_result(value, kind))
        if values[-1] is None and value is not None:
            name = type(value).__name__
            article = "an" if name[:1] in "aeiou" else "a"
            notes[f"it returns {article} {name} where {kind} is declared, of which Spark makes NULL"] = None
    try:
        array = pa.array(values, arrow_type(kind))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        for number, value in enumerate(values):
            try:
                pa.scalar(value, arrow_type(kind))
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
                values[number], thrown[number] = None, True
        array = pa.array(values, arrow_type(kind))
    return FunctionResults(array, thrown, tuple(notes))


def _results_of_columns(function: Callable[..., Any], columns: Sequence[pa.Array], kind: str) -> FunctionResults:
    """Call a function with pandas columns; if it raises, it fails for all rows."""
    length = len(columns[0])
    try:
        returned = function(*(column.to_pandas(date_as_object=True) for column in columns))
        values = pa.Array.from_pandas(returned, type=arrow_type(kind))
    except Exception as error:
        values, note = None, f"it raises {type(error).__name__} for some of the rows tried: {error}"
    else:
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        note = f"it returns {len(values)} values for {length}"
    if values is None or len(values) != length:
        return FunctionResults(pa.nulls(length, arrow_type(kind)), np.ones(length, dtype=bool), (note,))
    return FunctionResults(values, np.zeros(length, dtype=bool))


def _convert_result(value: Any, kind: str) -> Any:
    """Convert a result to the declared type as Spark does; None if Spark returns NULL."""
    if value is None:
        return None
    if sql_type(kind).is_integral:
        if type(value) is not int:
            return None
        half = sql_type(kind).values.stop
        fits = -(2**63) <= value < 2**63
        return (value + half) % (2 * half) - half if fits else None  # wider integers wrap around
    if kind == "string":
        if isinstance(value, str):
            return value
        return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else None
    if sql_type(kind).kind == "decimal":
        return value if isinstance(value, decimal.Decimal) else None
    if sql_type(kind).kind == "array":
        return list(value) if isinstance(value, list | tuple) else None
    return value if type(value) in _EXACT.get(kind, ()) else None
