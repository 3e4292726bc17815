"""Trying mappings: :func:`check_mapping` searches for rows that a mapping, or a property, would lose.

Rows are made by type and by hint (:mod:`geoskip.checking.strategies`) and put into files, each alone, in pairs, close
together and at random. The real function is evaluated on every row, and the mapping on what indexes store of the
files: for the function alone, compared with values that it has, for NULL, and under NOT. A file that is skipped though
one of its rows makes the condition TRUE is a counter-example, and is made as small as can be.

A Python function needs no Spark: its results are taken as Spark takes them (SEMANTICS, section 6). Functions of SQL,
of the JVM and of Sedona are evaluated by Spark (:mod:`geoskip.spark.checking`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from geoskip.checking.candidates import Tally
from geoskip.checking.constants import constants_of, near
from geoskip.checking.declarations import constants, denotations, monotone, repeated
from geoskip.checking.function import FunctionUnderTest, subjects_of
from geoskip.checking.result import CounterExample, Effect, MappingCheck
from geoskip.checking.search import search
from geoskip.errors import MappingError
from geoskip.indexes.base import Index
from geoskip.registry import Given, current

__all__ = ["CounterExample", "Effect", "MappingCheck", "check_mapping", "near_constants"]

_ROUNDS = 24


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
    """Search for a counter-example to what is mapped, declared, denoted and evaluated of a function.

    ``function`` is the Python function or UDF that queries call, or, with ``spark``, a SQL name. ``rows`` says of each
    argument, by its name or in order, which values it takes: a Spark type (``"double"``), a hint (``"longitude"``,
    ``"latitude"``, ``"words"``, ``"agents"``, ``"zip codes"``, ``"addresses"``, ``"urls"``, ``"points"``,
    ``"polygons"``; geometries are WKB), or values of one's own. What is not said is guessed from annotations and names,
    or tried. ``returns`` is the declared type, where the function is no UDF. ``index`` are indexes over the arguments'
    names to try instead of all that fit, ``name`` the SQL name where it is not the function's own.

    Ends with the first counter-example, or after some ``seconds``. Raises MappingError where nothing is declared of the
    function, or its arguments cannot be told.
    """
    indexes = (index,) if isinstance(index, Index) else tuple(index)
    started = time.monotonic()
    if spark is not None:
        checked: MappingCheck = import_module("geoskip.spark.checking").check(
            spark, function, rows=rows, indexes=indexes, name=name, seconds=seconds, seed=seed, returns=returns
        )
        return checked
    plain, name = _plain(function, name)
    subjects = subjects_of(plain, rows=rows, returns=returns, name=name)
    _require(subjects[0])
    subjects = [near_constants(subject) for subject in subjects]
    tally = Tally()
    found = _searched(subjects, indexes, tally, started + seconds, seed)
    effects = tuple(tally.effects.values())
    return MappingCheck(
        subjects[0].name,
        found,
        trials=sum(effect.trials for effect in effects) + sum(tally.agreed.values()),
        skipped=sum(effect.skipped for effect in effects),
        effects=effects,
        problems=tuple(tally.problems)[:5],
        notes=(*(f"{what} agrees for {count:,} values" for what, count in tally.agreed.items()), *tally.notes),
        seconds=time.monotonic() - started,
    )


def _plain(function: Any, name: str | None) -> tuple[Any, str | None]:
    """The function to call; a name is looked up among the functions that something is declared of."""
    if not isinstance(function, str):
        return function, name
    registry = current()
    references = [f for mapping in registry.mappings.values() for f in mapping.functions]
    references += [said.function for said in registry.properties]
    for reference in references:
        if isinstance(reference, Given) and reference.name.lower() == function.lower():
            return reference.function, name or function
    raise MappingError(
        f"{function} is a SQL name, and only Spark knows which function it is: check_mapping({function!r}, "
        "spark=spark); or give the Python function itself"
    )


def _require(subject: FunctionUnderTest) -> None:
    registry, call = current(), subject.called({})
    some = (
        registry.rules_of(call),
        registry.properties_of(call),
        registry.constants_of(call),
        registry.denotations_of(call),
    )
    if not any(some):
        raise MappingError(
            f"nothing is mapped or declared of {subject.name}: decorate a rule with "
            f"@geoskip.maps({subject.name}, index=...), or state a property with geoskip.declare({subject.name}, ...)"
        )


def near_constants(subject: FunctionUnderTest) -> FunctionUnderTest:
    """The subject with arguments near the constants in its code and in that of its mappings."""
    rules = [mapping.rule for mapping in current().rules_of(subject.called({}))]
    constants = constants_of([subject.function, *rules])
    near_them = {name: near(sample, constants) for name, sample in subject.arguments.items()}
    return replace(subject, arguments=near_them, constants=tuple(constants))


def _searched(
    subjects: Sequence[FunctionUnderTest], indexes: Sequence[Index], tally: Tally, deadline: float, seed: int
) -> CounterExample | None:
    for number in range(_ROUNDS):
        for place, subject in enumerate(subjects):
            chance = random.Random(f"{seed} {number} {place}")
            if number == 0:
                for attempt in (constants, denotations):
                    if (found := attempt(subject, chance, tally)) is not None:
                        return found
                for simple in (repeated, monotone):
                    if (found := simple(subject, chance)) is not None:
                        return found
            if (found := search(subject, indexes, chance, tally, deadline)) is not None:
                return found
        if time.monotonic() > deadline or (number >= 3 and tally.problems):
            break
    return None
