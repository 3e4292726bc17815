"""Columns of a checked index type; conditions compare a column instead of a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.checking.candidates import source_columns
from geoskip.checking.function import FunctionResults, FunctionUnderTest
from geoskip.checking.strategies import VALUE_TYPES, Sample, constants_of, hint_of, near, sample_of
from geoskip.errors import GeoskipError, InvalidSpecificationError
from geoskip.indexes.base import Index
from geoskip.predicates import Column


@dataclass(frozen=True)
class ColumnUnderTest(FunctionUnderTest):
    """One column of an index, with the index's other columns, in place of the call of a function."""

    def operand(self, constants: Mapping[str, Any]) -> Column:
        """The column itself, regardless of constants."""
        return self.columns()[self.name]

    def evaluate(self, rows: Mapping[str, list[Any]], constants: Mapping[str, Any]) -> FunctionResults:
        """The values of the column."""
        values = pa.array(rows[self.name], self.arguments[self.name].arrow)
        return FunctionResults(values, np.zeros(len(values), dtype=bool))


def columns_under_test(index: Index, rows: Mapping[str, Any] | Sequence[Any] | None) -> list[ColumnUnderTest]:
    """Each column of an index, for each combination of supported types.

    Parameters
    ----------
    index
        The index.
    rows
        Types, hints or values of its expressions, by text or in order; other expressions get all types in turn.

    Raises
    ------
    InvalidSpecificationError
        If the index supports none of these types, or ``rows`` names other expressions.
    """
    texts = list(index.expressions())
    wanted = dict(rows) if isinstance(rows, Mapping) else dict(zip(texts, rows or (), strict=False))
    if unknown := [text for text in wanted if text not in texts] or list(rows or ())[len(texts) :]:
        raise InvalidSpecificationError(f"rows= has {unknown[0]!r}, and {index} is over {', '.join(texts)}")
    given = {text: sample_of(wanted[text]) if text in wanted else hint_of(text, None) for text in texts}
    kind = type(index)
    constants = constants_of([kind.collect, kind.clause, *vars(index).values()])
    subjects, refused = [], ""
    for samples in _combinations(given):
        try:
            index.metadata_type(*source_columns(kind, [(text, s.kind, s.arrow) for text, s in samples.items()]))
        except GeoskipError as error:
            refused = str(error)
            continue
        beside = {text: near(sample, constants) for text, sample in samples.items()}
        subjects += [
            ColumnUnderTest(text, None, beside, sample.kind, constants=tuple(constants))
            for text, sample in samples.items()
        ]
    if not subjects:
        raise InvalidSpecificationError(
            f"{index} takes no values that were tried ({refused}): say which it takes, rows=[...] with a type, a hint "
            "or values of yours for each of its expressions"
        )
    return subjects


def _combinations(given: Mapping[str, Sample | None]) -> Iterator[dict[str, Sample]]:
    """The samples to try: those given, and each type in turn for all other expressions."""
    is_given = all(sample is not None for sample in given.values())
    for kind in VALUE_TYPES[:1] if is_given else VALUE_TYPES:
        yield {text: sample or sample_of(kind) for text, sample in given.items()}
