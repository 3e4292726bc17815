"""Checks of mappings: :func:`check_mapping` searches for rows that a mapping would lose.

Hypothesis draws rows by type and by hint (:mod:`geoskip.checking.strategies`), which are put into files: each alone, in
pairs, close together and at random. The real function is evaluated for every row, and the mapping on the metadata of
the files: for the function alone, compared with values that it has, for NULL, and under NOT. A file that is skipped
though one of its rows makes the condition TRUE is a counter-example, and Hypothesis shrinks it.

A Python function needs no Spark: its results are converted as Spark does (SEMANTICS, section 6). Functions of SQL, of
the JVM and of Sedona are evaluated by Spark (:mod:`geoskip.spark.checking`). The extra ``geoskip[check]`` installs
Hypothesis.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from geoskip.checking.result import CounterExample, Effect, MappingCheck
from geoskip.errors import EnvironmentProblem, MappingError
from geoskip.indexes.base import Index
from geoskip.registry import Given, current

if TYPE_CHECKING:
    from geoskip.checking.candidates import Tally
    from geoskip.checking.function import FunctionUnderTest

__all__ = ["CounterExample", "Effect", "MappingCheck", "check_mapping"]

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
    """Search for a counter-example to what is registered and declared for a function.

    Parameters
    ----------
    function
        The Python function or UDF that queries call, or, with ``spark``, a SQL name.
    rows
        The values of arguments, by name or in order: a Spark type (``"double"``), a hint (``"longitude"``,
        ``"latitude"``, ``"words"``, ``"agents"``, ``"zip codes"``, ``"addresses"``, ``"urls"``, ``"points"``,
        ``"polygons"``; geometries are WKB), or values of one's own. Others are guessed from annotations and names.
    returns
        The declared type, if the function is no UDF.
    index
        Indexes over the arguments' names to try instead of all that fit.
    name
        The SQL name, if it is not the function's own.
    spark
        The session to evaluate the function in; needed for functions of SQL, of the JVM and of Sedona.
    seconds
        The search ends with the first counter-example, or after about this time.
    seed
        The same seed searches in the same order.

    Raises
    ------
    MappingError
        If nothing is declared of the function, or its arguments are unknown.
    EnvironmentProblem
        If Hypothesis is not installed.
    """
    try:
        import_module("hypothesis")
    except ImportError:
        raise EnvironmentProblem(
            "check_mapping draws rows with the package hypothesis, which is not installed: pip install 'geoskip[check]'"
        ) from None
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


def _plain(function: Any, name: str | None) -> tuple[Any, str | None]:
    """The function to call; a SQL name is looked up among the functions with mappings or declarations."""
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
    from geoskip.checking.declarations import constants, denotations, monotone, repeated
    from geoskip.checking.search import lost_row

    for number in range(_ROUNDS):
        for place, subject in enumerate(subjects):
            own_seed = f"{seed} {number} {place}"
            counter_example = None
            if number == 0:
                counter_example = (
                    constants(subject, own_seed, tally)
                    or denotations(subject, own_seed, tally)
                    or repeated(subject, own_seed)
                    or monotone(subject, own_seed)
                )
            counter_example = counter_example or lost_row(subject, indexes, tally, deadline, own_seed)
            if counter_example is not None:
                return counter_example
        if time.monotonic() > deadline or (number >= 3 and tally.problems):
            break
    return None
