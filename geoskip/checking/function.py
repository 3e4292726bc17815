"""The function that is checked: its arguments, what it returns, and its values for some rows."""

from __future__ import annotations

import inspect
import itertools
import random
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from geoskip.checking.constants import edges
from geoskip.checking.python_results import FunctionResults, of_columns, of_rows
from geoskip.checking.strategies import Sample, hint_of, physical_value, sample_of, spark_type
from geoskip.checking.synthetic_files import IndexedExpression
from geoskip.errors import MappingError
from geoskip.predicates import Call, Column, Literal, Predicate
from geoskip.registry.fingerprint import identity
from geoskip.registry.functions import plain_function

__all__ = ["FunctionUnderTest", "subjects_of"]

_ROW_BY_ROW, _SCALAR_PANDAS = (100, 101), 200
_MOST = 4
"""Combinations of argument types that are tried."""


@dataclass(frozen=True)
class FunctionUnderTest:
    """A Python function over arguments of certain types."""

    name: str
    function: Callable[..., Any]
    arguments: Mapping[str, Sample]
    returns: str
    evaluation: int = 100
    """Spark's code of how it is called: row by row, or as a whole column of pandas."""
    constants: tuple[Any, ...] = ()
    """Those in its code and in that of its mappings, near which rows and conditions are tried."""

    def columns(self) -> dict[str, Column]:
        """The arguments as columns."""
        return {name: Column(name, sample.kind) for name, sample in self.arguments.items()}

    def call(self, arguments: Sequence[Predicate]) -> Call:
        """A call as the query's condition has it."""
        implementation = "python:" + identity(self.function)
        return Call(self.name, tuple(arguments), implementation, (f"eval:{self.evaluation}",), self.returns)

    def called(self, constants: Mapping[str, Any]) -> Call:
        """A call with some arguments constant, the others columns."""
        columns = self.columns()
        return self.call(
            [self.literal(name, constants[name]) if name in constants else columns[name] for name in self.arguments]
        )

    def expressions(self, rows: Mapping[str, list[Any]]) -> list[IndexedExpression]:
        """The arguments as what indexes may be over."""
        columns = self.columns()
        return [
            IndexedExpression(name, columns[name], sample.kind, pa.array(rows[name], sample.arrow))
            for name, sample in self.arguments.items()
        ]

    def rows(self, chance: random.Random, count: int) -> dict[str, list[Any]]:
        """Rows of plain values, by argument."""
        found = {name: sample.values(chance, count) for name, sample in self.arguments.items()}
        for number, row in enumerate(edges(self.arguments, self.constants, chance, count // 2)):
            for name, value in row.items():
                found[name][number] = value
        return found

    def literal(self, name: str, value: Any) -> Literal:
        """A value as a literal of an argument's type."""
        return Literal(physical_value(value), self.arguments[name].kind)

    def evaluate(self, rows: Mapping[str, list[Any]], constants: Mapping[str, Any]) -> FunctionResults:
        """The function's values for the rows, some of its arguments constant."""
        length = max((len(values) for values in rows.values()), default=1)
        columns = [[constants[name]] * length if name in constants else rows[name] for name in self.arguments]
        if self.evaluation == _SCALAR_PANDAS:
            arrays = [pa.array(c, s.arrow) for c, s in zip(columns, self.arguments.values(), strict=True)]
            return of_columns(self.function, arrays, self.returns)
        return of_rows(self.function, list(zip(*columns, strict=True)), self.returns)


def subjects_of(
    function: Any, *, rows: Mapping[str, Any] | Sequence[Any] | None, returns: str | None, name: str | None
) -> list[FunctionUnderTest]:
    """The function over every combination of types that is likely; raises MappingError where none can be told."""
    plain = plain_function(function)
    evaluation = 100 if plain is function else int(function.evalType)
    if evaluation not in (*_ROW_BY_ROW, _SCALAR_PANDAS):
        raise MappingError(
            f"{getattr(plain, '__name__', plain)} takes its columns in a way that cannot be tried here (an iterator, "
            "a group or Arrow tables); check it with spark="
        )
    declared = returns or _declared_type(function)
    given = _given(plain, rows)
    subject = FunctionUnderTest(name or str(getattr(plain, "__name__", "f")), plain, {}, declared or "", evaluation)
    found: list[FunctionUnderTest] = []
    for samples in _combinations(given):
        arguments = dict(zip(given, samples, strict=True))
        tried = _tried(replace(subject, arguments=arguments), declared)
        if tried is not None:
            found.append(tried)
        if len(found) == _MOST:
            break
    if not found:
        fails, returns = ("raises", "") if declared else ("raises or returns None", ", and its type: returns='double'")
        raise MappingError(
            f"{subject.name}({', '.join(given)}) {fails} for all values that were tried; say which it takes: rows="
            f"{{{', '.join(f'{argument!r}: ...' for argument in given)}}}, each a type, a hint or values of yours"
            f"{returns}"
        )
    return found


def _declared_type(function: Any) -> str | None:
    kind: Any = getattr(function, "returnType", None)
    return str(kind.simpleString()) if hasattr(kind, "simpleString") else kind if isinstance(kind, str) else None


def _given(plain: Any, rows: Mapping[str, Any] | Sequence[Any] | None) -> dict[str, Sample | None]:
    """Each argument with its sample, None where nothing is said of it."""
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
    said: dict[str, Any] = {}
    if isinstance(rows, Mapping):
        unknown = [name for name in rows if name not in [p.name for p in parameters]] if parameters else []
        if unknown:
            raise MappingError(f"there is no argument {unknown[0]!r}; the function has {', '.join(names) or 'none'}")
        names = names or list(rows)
        said = dict(rows)
    elif rows is not None:
        if parameters and len(rows) > len(parameters):
            raise MappingError(f"rows= says of {len(rows)} arguments; the function has {', '.join(names) or 'none'}")
        names = [p.name for p in parameters][: len(rows)] or [f"x{n}" for n in range(len(rows))]
        said = dict(zip(names, rows, strict=True))
    if not names:
        raise MappingError("the function's arguments are not known; say what they are: rows=['double', 'words']")
    return {name: _sample(name, said.get(name), hints.get(name)) for name in names}


def _sample(name: str, said: Any, annotation: Any) -> Sample | None:
    if said is not None:
        return sample_of(said)
    members = typing.get_args(annotation)
    plain = [kind for kind in (members or (annotation,)) if isinstance(kind, type) and kind is not type(None)]
    kind = spark_type(plain[0]) if len(plain) == 1 else None
    return hint_of(name, kind) or (sample_of(kind) if kind else None)


def _combinations(given: Mapping[str, Sample | None]) -> Iterator[tuple[Sample, ...]]:
    """The samples to try: those said; of the others first the same type for all."""
    free = [name for name, sample in given.items() if sample is None]
    if not free:
        yield tuple(s for s in given.values() if s is not None)
        return
    likely = [sample_of(kind) for kind in ("string", "double", "bigint", "date", "boolean", "binary")]
    mixed = itertools.product(likely[:3], repeat=len(free)) if 1 < len(free) <= 3 else iter(())
    for chosen in [*((sample,) * len(free) for sample in likely), *(m for m in mixed if len(set(m)) > 1)]:
        by_name = dict(zip(free, chosen, strict=True))
        yield tuple(sample or by_name[name] for name, sample in given.items())


def _tried(subject: FunctionUnderTest, declared: str | None) -> FunctionUnderTest | None:
    """The subject with its type, if the function takes such arguments."""
    chance = random.Random(0)
    rows = subject.rows(chance, 60)
    if subject.evaluation == _SCALAR_PANDAS:
        if declared is None:
            raise MappingError(f"say what {subject.name} returns: returns='double'")
        found = subject.evaluate(rows, {})
        return None if found.thrown.all() else subject
    whole = [row for row in zip(*rows.values(), strict=True) if None not in row]
    results = []
    for row in whole:
        try:
            results.append(subject.function(*row))
        except Exception:
            continue
    kinds = Counter(kind for value in results if value is not None and (kind := spark_type(value)))
    if len(results) < max(1, len(whole) // 3) or (not kinds and declared is None):
        return None
    if declared is not None:
        return subject
    return replace(subject, returns="double" if "double" in kinds else kinds.most_common(1)[0][0])
