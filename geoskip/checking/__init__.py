"""Checks of mappings and index types, by searching for rows that they would lose.

Hypothesis draws rows by type and by hint (:mod:`geoskip.checking.strategies`). These are grouped into files: each
alone, in pairs, by neighbouring values and at random. The real function is evaluated for every row, and the mapping on
the metadata of the files: for the function alone, for comparisons with its values, for NULL, and under NOT. A skipped
file with a row for which the condition is TRUE is a counter-example, and Hypothesis shrinks it.

A Python function needs no Spark: its results are converted as Spark does (soundness rule 6). Spark's own functions
and those of the JVM and of Sedona are evaluated by Spark (:mod:`geoskip.spark.checking`). The extra
``geoskip[check]`` installs Hypothesis.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import shapely

from geoskip.errors import EnvironmentProblem, InvalidSpecificationError, MappingError
from geoskip.indexes.base import Index
from geoskip.registry import Given, current
from geoskip.rendering import widths_of
from geoskip.report import shorten

if TYPE_CHECKING:
    from geoskip.checking.candidates import Tally
    from geoskip.checking.function import FunctionUnderTest

__all__ = ["CounterExample", "Effect", "MappingCheck", "UnquotedText", "check_index", "check_mapping", "geometry_of"]

_ROUNDS = 60


def check_mapping(
    function: Any,
    *,
    rows: Mapping[str, Any] | Sequence[Any] | None = None,
    returns: str | None = None,
    index: Index | Sequence[Index] = (),
    name: str | None = None,
    spark: Any = None,
    seconds: float = 5.0,
    seed: int = 0,
) -> MappingCheck:
    """Search for a counter-example to the mappings and declarations of a function.

    Parameters
    ----------
    function
        The Python function or UDF that queries call, or, with ``spark``, a SQL name.
    rows
        The values of arguments, by name or in order: a Spark type (``"double"``), a hint (``"longitude"``,
        ``"latitude"``, ``"words"``, ``"agents"``, ``"zip codes"``, ``"addresses"``, ``"urls"``, ``"points"``,
        ``"polygons"``; geometries are WKB), or your own values. Missing ones are derived from annotations and names.
    returns
        The declared return type, if the function is not a UDF.
    index
        Indexes over the arguments' names to check; default: all that fit. The arguments of a SQL function that ``rows``
        does not name are called ``a0``, ``a1``, ...
    name
        The SQL name, if it differs from the function's name.
    spark
        The session to evaluate the function in; needed for functions of Spark, of the JVM and of Sedona.
    seconds
        The search ends with the first counter-example, or after about this time.
    seed
        The same seed searches in the same order.

    Raises
    ------
    MappingError
        If the function has no declaration, or its arguments are unknown.
    EnvironmentProblem
        If Hypothesis is not installed.
    """
    if not isinstance(function, str) and not callable(function):
        raise MappingError(
            f"check_mapping() takes a Python function, a UDF, or with spark= the SQL name of one, got {function!r}"
        )
    _require_hypothesis("check_mapping")
    from geoskip.checking.candidates import Tally
    from geoskip.checking.function import near_constants, subjects_of

    indexes = (index,) if isinstance(index, Index) else tuple(index)
    started = time.monotonic()
    if spark is not None:
        check: MappingCheck = import_module("geoskip.spark.checking").check(
            spark, function, rows=rows, indexes=indexes, name=name, seconds=seconds, seed=seed, returns=returns
        )
        return check
    plain, name = _plain(function, name)
    subjects = subjects_of(plain, rows=rows, returns=returns, name=name)
    _require_declaration(subjects[0])
    subjects = [near_constants(subject) for subject in subjects]
    tally = Tally()
    counter_example = _search(subjects, indexes, tally, started + seconds, seed)
    return tally.result(subjects[0].name, counter_example, time.monotonic() - started)


def check_index(
    index: Index,
    *,
    rows: Mapping[str, Any] | Sequence[Any] | None = None,
    seconds: float = 5.0,
    seed: int = 0,
) -> MappingCheck:
    """Search for a row that an index type would lose.

    Summarise files of drawn values; every second file in two parts that are merged. Evaluate conditions on each column
    (comparisons, IN, LIKE and its plain forms, NULL, and NOT of these) for every row, and the index's clauses on the
    summaries. Clauses for calls of mapped functions are checked by :func:`check_mapping`; those that the index itself
    returns for other calls, such as ``n % 8 = 3``, are not checked.

    Parameters
    ----------
    index
        The index, such as ``Remainders("id")``; its expressions are used as column names.
    rows
        The values of its expressions, by text or in order, as for :func:`check_mapping`: a Spark type, a hint, or your
        own values. Default: all types that the index supports, and hints derived from names.
    seconds
        The search ends with the first counter-example, or after about this time.
    seed
        The same seed searches in the same order.

    Raises
    ------
    InvalidSpecificationError
        If ``index`` is not an index, supports none of the types, or raises when it summarises values.
    EnvironmentProblem
        If Hypothesis is not installed.
    """
    if not isinstance(index, Index):
        raise InvalidSpecificationError(f"check_index() takes an index such as MinMax('id'), got {index!r}")
    _require_hypothesis("check_index")
    from geoskip.checking.candidates import Tally
    from geoskip.checking.column import columns_under_test

    started = time.monotonic()
    subjects, tally = columns_under_test(index, rows), Tally()
    counter_example = _search(subjects, (index,), tally, started + seconds, seed)
    return tally.result(str(index), counter_example, time.monotonic() - started)


def _require_hypothesis(name: str) -> None:
    """Raise EnvironmentProblem if Hypothesis is not installed."""
    try:
        import_module("hypothesis")
    except ImportError:
        raise EnvironmentProblem(
            f"{name} draws rows with the package hypothesis, which is not installed: pip install 'geoskip[check]'"
        ) from None


def _plain(function: Any, name: str | None) -> tuple[Any, str | None]:
    """The function to call; a SQL name is looked up among functions with mappings or declarations."""
    if not isinstance(function, str):
        return function, name
    registry = current()
    references = [f for mapping in registry.mappings.values() for f in mapping.functions]
    references += [properties.function for properties in registry.properties]
    for reference in references:
        if isinstance(reference, Given) and reference.name.lower() == function.lower():
            return reference.function, name or function
    raise MappingError(
        f"{function} is a SQL name, and only Spark knows which function it is: check_mapping({function!r}, "
        "spark=spark); or give the Python function itself"
    )


def _require_declaration(subject: FunctionUnderTest) -> None:
    registry, call = current(), subject.call({})
    if not (
        registry.rules_of(call)
        or registry.properties_of(call)
        or registry.constants_of(call)
        or registry.denotations_of(call)
    ):
        raise MappingError(
            f"nothing is mapped or declared of {subject.name}: decorate a rule with "
            f"@geoskip.maps({subject.name}, index=...), or state a property with geoskip.declare({subject.name}, ...)"
        )


def _search(
    subjects: Sequence[FunctionUnderTest], indexes: Sequence[Index], tally: Tally, deadline: float, seed: int
) -> CounterExample | None:
    """Check the declarations of each subject once, then its mappings in rounds until the deadline."""
    from geoskip.checking.search import constants, denotations, lost_row, monotone, nondeterministic_row

    for number in range(_ROUNDS):
        for place, subject in enumerate(subjects):
            own_seed = f"{seed} {number} {place}"
            counter_example = None
            if number == 0 and subject.function is not None:
                counter_example = (
                    constants(subject, own_seed, tally)
                    or denotations(subject, own_seed, tally)
                    or nondeterministic_row(subject, own_seed)
                    or monotone(subject, own_seed)
                )
            limit = deadline if number else math.inf  # on a loaded machine the first round also runs to its end
            counter_example = counter_example or lost_row(subject, indexes, tally, limit, own_seed)
            if counter_example is not None:
                return counter_example
        if time.monotonic() > deadline or (number >= 3 and tally.problems):
            break
    return None


@dataclass(frozen=True)
class CounterExample:
    """A file that is skipped although a row of it matches; printed as a table."""

    blame: str
    """The name of the failing mapping, or of a property and its function."""
    why: str
    query: str = ""
    rows: tuple[Mapping[str, Any], ...] = ()
    """The file's rows, by column, with TRUE or not TRUE under ``the query says``."""
    lost: tuple[int, ...] = ()
    """The numbers of the rows that the query selects."""
    summaries: Mapping[str, Any] = field(default_factory=dict)
    """The metadata of the file, by the index's text."""
    clause: str = ""

    def __str__(self) -> str:
        lines = [f"{self.blame}: {self.why}"]
        if self.query:
            lines.append(f"  the query        WHERE {shorten(self.query, 100)}")
        if self.clause:
            lines.append(f"  the clause       {shorten(self.clause, 100)}")
        for index, summary in self.summaries.items():
            lines.append(f"  what is stored   {index}: {shorten(_words(summary), 90)}")
        if self.rows:
            lines.append("  the file's rows")
            lines += ["    " + line for line in _table(self.rows, self.lost)]
        return "\n".join(lines)

    __repr__ = __str__


@dataclass
class Effect:
    """Statistics of a mapping; files are counted once for each condition."""

    name: str
    indexes: dict[str, None] = field(default_factory=dict)
    asked: int = 0
    """Number of conditions that were tried."""
    answered: int = 0
    """Number of conditions for which it had a clause."""
    trials: int = 0
    skipped: int = 0
    skippable: int = 0
    """Number of files without a matching row, over the conditions with a clause."""

    def __str__(self) -> str:
        more = f" and {len(self.indexes) - 3} more" if len(self.indexes) > 3 else ""
        over = f" over {', '.join(list(self.indexes)[:3])}{more}" if self.indexes else ""
        if not self.indexes:
            return f"{self.name}: useless, no index that it takes can be made of these arguments; say which: index=..."
        if not self.answered:
            return f"{self.name}{over}: useless, it has no clause for any of {self.asked:,} conditions"
        if not self.skipped:
            return f"{self.name}{over}: useless, its clauses skip none of {self.trials:,} files"
        share = 100 * self.skipped / max(1, self.skippable)
        return (
            f"{self.name}{over}: a clause for {self.answered:,} of {self.asked:,} conditions, which skips "
            f"{share:.0f} % of the files that could be skipped"
        )

    __repr__ = __str__


@dataclass(frozen=True)
class MappingCheck:
    """The outcome of :func:`geoskip.check_mapping` or :func:`geoskip.check_index`; ``print`` it."""

    function: str
    counter_example: CounterExample | None
    trials: int
    """Number of files that were tested, counted for each condition and mapping."""
    skipped: int
    """Number of files that were rightly skipped."""
    effects: tuple[Effect, ...] = ()
    problems: tuple[str, ...] = ()
    """Faults that lose no row: queries leave out a mapping that raises or returns no clause."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Test whether neither a counter-example nor a problem was found."""
        return self.counter_example is None and not self.problems

    @property
    def useless(self) -> tuple[str, ...]:
        """The names of the mappings that never skip."""
        return tuple(effect.name for effect in self.effects if not effect.skipped)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        tried = f"{self.trials:,} trials in {self.seconds:.1f} s"
        if self.counter_example is not None:
            lines = [f"{self.function}: WRONG, rows are lost ({tried})", str(self.counter_example)]
        elif self.problems:
            lines = [f"{self.function}: FAILS ({tried})"]
        else:
            lines = [f"{self.function}: no counter-example in {tried}; {self.skipped:,} files skipped, all rightly"]
        lines += [f"  - {problem}" for problem in self.problems]
        if self.counter_example is None:
            lines += [f"  - {effect}" for effect in self.effects]
        lines += [f"  - {note}" for note in self.notes]
        return "\n".join(lines)

    __repr__ = __str__


def _table(rows: Sequence[Mapping[str, Any]], lost: Sequence[int]) -> list[str]:
    names = list(rows[0])
    cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
    widths = widths_of(cells)
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    lines[1:] = [line + ("   <- lost" if number in lost else "") for number, line in enumerate(lines[1:])]
    return [lines[0].rstrip(), "-+-".join("-" * width for width in widths), *(line.rstrip() for line in lines[1:])]


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        text = value.decode("utf-8", "replace")
        return shorten(
            repr(text) if text.isprintable() and "\ufffd" not in text else str(geometry_of(value) or repr(value)), 60
        )
    return shorten(repr(value) if not isinstance(value, UnquotedText) else str(value), 60)


class UnquotedText(str):
    """A text that tables show without quotes."""


def geometry_of(value: Any) -> Any:
    """The geometry of a value that is a geometry or WKB, else None."""
    if isinstance(value, bytes):
        try:
            return shapely.from_wkb(value)
        except shapely.errors.ShapelyError:
            return None
    return value if isinstance(value, shapely.Geometry) else None


def _words(summary: Any) -> str:
    if not isinstance(summary, Mapping):
        return _cell(summary)
    return ", ".join(f"{name}={_cell(value)}" for name, value in summary.items())
