"""What is asked: each mapping, or what is declared, with the indexes that it is asked through."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.checking.python_results import FunctionResults
from geoskip.checking.result import Effect
from geoskip.checking.synthetic_files import IndexedExpression, indexes_for, prepared
from geoskip.clauses import Clause, Mask
from geoskip.errors import GeoskipError
from geoskip.evaluation import IS_TRUE, CandidateValues, outcomes, physical
from geoskip.indexes.base import Index
from geoskip.indexes.metricdist.index import MetricDist
from geoskip.indexes.minmax import MinMax
from geoskip.indexes.valuelist import ValueList
from geoskip.labelling import Labeller
from geoskip.predicates import Call, IsNull, Not, Predicate
from geoskip.registry import FunctionProperties, Registry, current
from geoskip.registry import Mapping as Rule

__all__ = ["Candidate", "Tally", "asked", "lenses_for", "truth_of"]

_MOST_LENSES = 24
Ask = Callable[[Predicate], "Clause | None"]


@dataclass(frozen=True)
class Candidate:
    """One mapping, or what is declared, together with the indexes that it is asked with."""

    name: str
    indexes: tuple[Index, ...]
    ask: Ask
    over: str
    """The indexes in words."""
    rule: Rule | None = None


@dataclass
class Tally:
    """What was tried so far."""

    effects: dict[str, Effect] = field(default_factory=dict)
    problems: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    agreed: dict[str, int] = field(default_factory=dict)
    """For how many values a constant or a denotation is as its function, by its name."""

    def effect(self, name: str) -> Effect:
        return self.effects.setdefault(name, Effect(name))

    def agree(self, name: str) -> None:
        self.agreed[name] = self.agreed.get(name, 0) + 1

    def pass_over(self, lens: Candidate, files: int) -> None:
        """Take in that a lens said nothing of some files."""
        effect = self.effect(lens.name)
        effect.asked += 1
        effect.trials += files

    def count(self, lens: Candidate, matching: Mask, keep: Mask) -> None:
        """Take in what a lens said of some files."""
        self.pass_over(lens, len(matching))
        effect = self.effect(lens.name)
        effect.answered += 1
        effect.skipped += int(np.count_nonzero(~keep))
        effect.skippable += int(np.count_nonzero(~matching))


def lenses_for(
    call: Call, expressions: Sequence[IndexedExpression], indexes: Sequence[Index], tally: Tally
) -> list[Candidate]:
    """Every mapping of a call with every index that it may be asked with, and what is declared of the function."""
    found: list[Candidate] = []
    registry = current()
    for rule in registry.rules_of(call):
        kinds = [
            _given(indexes, kind, expressions) if indexes else list(indexes_for(kind, expressions))
            for kind in rule.indexes
        ]
        effect = tally.effect(f"mapping {rule.name}")
        for together in itertools.islice(_together(rule, kinds), _MOST_LENSES):
            known = tuple(index for index in together if index is not None)
            effect.indexes |= dict.fromkeys(map(str, known))
            found.append(Candidate(effect.name, known, _asking(rule, together), ", ".join(map(str, known)), rule))
    said = registry.properties_of(call)
    if said is not None and said.deterministic is not False:
        found += _declared(call, said, expressions, tally)
    return found


def _given(indexes: Sequence[Index], kind: type, expressions: Sequence[IndexedExpression]) -> list[Index]:
    """The indexes of the user's choice that are of a kind."""
    by_text = {expression.text: expression for expression in expressions}
    found = []
    for index in indexes:
        over = [by_text[text] for text in index.expressions() if text in by_text]
        if isinstance(index, kind) and (bound := prepared(index, over)) is not None:
            found.append(bound)
    return found


def _together(rule: Rule, kinds: Sequence[Sequence[Index]]) -> Iterator[tuple[Index | None, ...]]:
    if not rule.together:
        return ((index,) for index in {str(i): i for some in kinds for i in some}.values())
    choices = [[*some, *([None] if number in rule.optional else [])] for number, some in enumerate(kinds)]
    return itertools.product(*choices)


def _asking(rule: Rule, indexes: Sequence[Index | None]) -> Ask:
    return lambda node: rule.rule(node, *indexes)


_WORDS = ("metric", "monotone", "null_in_null_out", "inverse")


def _declared(
    call: Call, said: FunctionProperties, expressions: Sequence[IndexedExpression], tally: Tally
) -> Iterator[Candidate]:
    """What is declared, asked through the indexes that believe it; the mappings of the function are left aside."""
    words = {name: word for name, word in said.declared().items() if name in _WORDS and word is not False}
    if not words:
        return
    name = f"declare({call.name}, {', '.join(f'{name}={_shown(word)}' for name, word in words.items())})"
    effect = tally.effect(name)
    indexes: list[Index] = [*indexes_for(MinMax, expressions), *indexes_for(ValueList, expressions)]
    if said.metric:
        half = expressions[: max(1, len(expressions) // 2)]
        function = current().function_of(call)
        try:
            metric = prepared(MetricDist(*(e.text for e in half), metric=function), half)
        except GeoskipError as error:
            tally.problems[f"{name}: {error}"] = None
            return
        indexes += [metric] if metric is not None else []
    only = Registry(current())
    only.mappings.clear()
    for index in indexes:
        label = Labeller([index], registry=only)
        effect.indexes[str(index)] = None
        yield Candidate(name, (index,), label.true, str(index))


def _shown(word: Any) -> str:
    return getattr(word, "__name__", "...") if callable(word) else repr(word)


def asked(lens: Candidate, node: Predicate, tally: Tally) -> Clause | None:
    """What a lens says of a condition in its one shape; that it fails is a problem of its mapping."""
    try:
        clause = lens.ask(node)
    except Exception as error:
        tally.problems[f"{lens.name} raises for {node} over {lens.over}: {type(error).__name__}: {error}"] = None
        return None
    if clause is not None and not isinstance(clause, Clause):
        tally.problems[f"{lens.name} returns {clause!r} for {node} instead of a clause or None"] = None
        return None
    return clause


def truth_of(condition: Predicate, call: Call, evaluated: FunctionResults) -> Mask:
    """For which rows a condition is certainly TRUE."""
    match condition:
        case IsNull(child) if child == call:
            truth = np.asarray(evaluated.values.is_null())
        case Not(IsNull(child)) if child == call:
            truth = np.asarray(evaluated.values.is_valid())
        case _:
            try:
                values = CandidateValues(physical(evaluated.values))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # arrays are compared with nothing here
                return np.zeros(len(evaluated.values), dtype=bool)
            truth = outcomes(condition, call, values) == IS_TRUE
    known: Mask = truth & ~evaluated.thrown
    return known
