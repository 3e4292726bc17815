"""The search for a file that is skipped although one of its rows matches."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from geoskip.checking.candidates import Tally, asked, lenses_for, truth_of
from geoskip.checking.conditions import conditions
from geoskip.checking.constants import edges
from geoskip.checking.function import FunctionUnderTest
from geoskip.checking.result import CounterExample
from geoskip.checking.shrinking import Case, shrunk
from geoskip.checking.synthetic_files import SyntheticFiles
from geoskip.clauses import Mask, keep_mask
from geoskip.indexes.base import Index
from geoskip.predicates import normalise

__all__ = ["search"]

_ROWS = 100
_CONSTANTS = 4
_OTHERS = 5


def search(
    subject: FunctionUnderTest, indexes: Sequence[Index], chance: random.Random, tally: Tally, deadline: float
) -> CounterExample | None:
    """One round: rows, files of them, conditions over the function with some arguments constant."""
    rows = subject.rows(chance, _ROWS)
    expressions = subject.expressions(rows)
    lenses = lenses_for(subject.called({}), expressions, indexes, tally)
    world = SyntheticFiles(expressions, chance)
    for constants in _constants(subject, chance):
        call = subject.called(constants)
        evaluated = subject.evaluate(rows, constants)
        tally.notes.update(dict.fromkeys(evaluated.notes))
        alike = [v for n, sample in subject.arguments.items() if sample.kind == call.type for v in rows[n]]
        for condition in conditions(call, evaluated.values, chance, alike, subject.constants):
            truth = truth_of(condition, call, evaluated)
            matching: Mask = np.any(world.members & truth, axis=1)
            node = normalise(condition)
            for lens in lenses:
                clause = asked(lens, node, tally)
                if clause is None:
                    tally.pass_over(lens, len(matching))
                    continue
                keep = keep_mask(clause, world.metadata(lens.indexes))
                tally.count(lens, matching, keep)
                if wrong := np.flatnonzero(matching & ~keep).tolist():
                    file = min((world.files[number] for number in wrong), key=len)
                    found = {name: [values[row] for row in file] for name, values in rows.items()}
                    return shrunk(Case(found, constants, condition, call), subject, lens)
            if time.monotonic() > deadline:
                return None
    return None


def _constants(subject: FunctionUnderTest, chance: random.Random) -> Iterator[dict[str, Any]]:
    """Which arguments are constant, and their values: none, and every choice that leaves a column."""
    names = list(subject.arguments)
    yield {}
    # columns first, as most functions take them, and as many constants
    usual = sorted((tuple(names[n:]) for n in range(1, len(names))), key=lambda some: abs(2 * len(some) - len(names)))
    every = [some for count in range(1, len(names)) for some in itertools.combinations(names, count)]
    others = [some for some in every if some not in usual]
    for _ in range(_CONSTANTS):
        for some in [*usual, *chance.sample(others, min(_OTHERS, len(others)))]:
            at_edges = edges(subject.arguments, subject.constants, chance, 1) if chance.random() < 0.5 else []
            drawn = {name: subject.arguments[name].draw(chance) for name in some}
            yield drawn | {name: value for row in at_edges for name, value in row.items() if name in some}
