"""A counter-example that was found through Spark, made small: of many simpler ones at once Spark says which still are.

A step tries every file that lacks a row or has simpler values, and every simpler constant that the function is compared
with, each in one job; the simplest that still loses a row is the next to start from.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from geoskip.checking.candidates import Candidate
from geoskip.checking.result import CounterExample, word
from geoskip.checking.shrinking import simpler, size_of
from geoskip.checking.strategies import physical_value
from geoskip.checking.synthetic_files import IndexedExpression, metadata_of
from geoskip.clauses import Clause, keep_mask
from geoskip.predicates import Call, Comparison, Literal, Not, Predicate, normalise
from geoskip.spark.check_trials import sql_of

__all__ = ["LosingFile", "shrunk", "simplest"]

Row = tuple[Any, ...]
File = tuple[Row, ...]
Tried = Callable[[Mapping[str, list[Any]], Sequence[str]], "tuple[dict[str, IndexedExpression], pa.Table] | None"]
"""From rows, by column, and SQL texts to what indexes may be over and a column a text; None where Spark fails."""
_STEPS, _MOST, _CONSTANTS = 5, 300, 30


@dataclass(frozen=True)
class LosingFile:
    """A file that is wrongly skipped: the condition over ``call``, whose argument is its SQL, and Spark's ``node``."""

    lens: Candidate
    condition: Predicate
    call: Call
    node: Predicate
    columns: tuple[str, ...]
    file: File

    @property
    def function(self) -> str:
        """The function's call as SQL."""
        (text,) = self.call.args
        assert isinstance(text, Literal)
        return str(text.value)

    @property
    def query(self) -> str:
        """The condition as SQL."""
        return sql_of(self.condition, self.call, self.function)


def shrunk(found: LosingFile, tried: Tried) -> CounterExample:
    """The smallest case that still loses a row, as a counter-example."""
    for _ in range(2):
        found = replace(found, file=simplest(found.file, partial(_losing, found, tried)))
        found = next(_with_losses(list(_of_simpler_constants(found)), tried), found)
        found = next(_of_simpler_values(found, tried), found)
    return _shown(found, tried)


def _losing(found: LosingFile, tried: Tried, files: Sequence[File]) -> list[bool]:
    """Which files are skipped though a row of them matches; none of those for which Spark or an index fails."""
    clause = _clause(found)
    rows = [row for file in files for row in file]
    made = tried(_by_column(found, rows), [found.query]) if clause is not None else None
    if made is None or clause is None:
        half = len(files) // 2
        if clause is None or not half or len(files) < _MOST // 16:
            return [False] * len(files)
        return [*_losing(found, tried, files[:half]), *_losing(found, tried, files[half:])]
    ends = list(itertools.accumulate(map(len, files)))
    members = [range(end - len(file), end) for file, end in zip(files, ends, strict=True)]
    truth = np.asarray(made[1].column(0).combine_chunks().fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)
    try:
        keep = keep_mask(clause, metadata_of(found.lens.indexes, made[0], members))
    except Exception:  # values that the index does not take
        return [False] * len(files)
    return [bool(truth[list(rows)].any()) and not keeps for rows, keeps in zip(members, keep.tolist(), strict=True)]


def _of_simpler_constants(found: LosingFile) -> Iterator[LosingFile]:
    """The case with simpler constants to compare with."""
    constant = _constant(found)
    for value in _much_simpler(constant.value)[:_CONSTANTS] if constant is not None else ():
        yield _compared(found, value)


def _with_losses(others: Sequence[LosingFile], tried: Tried) -> Iterator[LosingFile]:
    """Those of some conditions over one file that lose a row of it."""
    made = tried(_by_column(others[0], others[0].file), [other.query for other in others]) if others else None
    for number, other in enumerate(others if made is not None else ()):
        assert made is not None
        if True in made[1].column(number).to_pylist() and _is_skipped(other, made[0], range(len(other.file))):
            yield other


def _of_simpler_values(found: LosingFile, tried: Tried) -> Iterator[LosingFile]:
    """The case over one simpler row, with what the function is for it as the constant that it is compared with."""
    equal = isinstance(found.condition, Comparison) and found.condition.op in ("=", "<=>", "<=", ">=")
    if not equal or _constant(found) is None or len(found.file) > 1:
        return
    files = _simplest_first(found.file)
    made = tried(_by_column(found, [row for (row,) in files]), [found.function]) if files else None
    for number, file in enumerate(files if made is not None else ()):
        assert made is not None
        value = physical_value(made[1].column(0)[number].as_py())
        if value is not None and value == value:
            other = _compared(replace(found, file=file), value)
            if _is_skipped(other, made[0], range(number, number + 1)):
                yield other


def _is_skipped(found: LosingFile, expressions: Mapping[str, IndexedExpression], rows: range) -> bool:
    clause = _clause(found)
    if clause is None:
        return False
    try:
        return not keep_mask(clause, metadata_of(found.lens.indexes, expressions, [rows])).all()
    except Exception:  # values that the index does not take
        return False


def _clause(found: LosingFile) -> Clause | None:
    try:
        clause = found.lens.ask(normalise(found.node))
    except Exception:  # a constant that the mapping does not take
        return None
    return clause if isinstance(clause, Clause) else None


def _by_column(found: LosingFile, rows: Sequence[Row]) -> dict[str, list[Any]]:
    return {name: [row[place] for row in rows] for place, name in enumerate(found.columns)}


def _shown(found: LosingFile, tried: Tried) -> CounterExample:
    """The case as a table."""
    columns, lens = _by_column(found, found.file), found.lens
    made = tried(columns, [found.query])
    assert made is not None
    truth = [value is True for value in made[1].column(0).to_pylist()]
    shown = tuple(
        {**dict(zip(found.columns, row, strict=True)), "the query says": word("TRUE" if matches else "not TRUE")}
        for row, matches in zip(found.file, truth, strict=True)
    )
    metadata = metadata_of(lens.indexes, made[0], [range(len(found.file))])
    summaries = {str(index): metadata.column(str(index))[0].as_py() for index in lens.indexes}
    why = f"a file that {lens.over} summarises is skipped, though a row of it matches"
    lost = tuple(number for number, matches in enumerate(truth) if matches)
    return CounterExample(lens.name, why, found.query, shown, lost, summaries, str(_clause(found)))


def simplest(file: File, loses: Callable[[Sequence[File]], Sequence[bool]]) -> File:
    """The simplest file that still loses a row; ``loses`` says of many at once whether they do.

    >>> simplest(((70, "x"), (4711, "abc")), lambda files: [any(n >= 50 and s for n, s in file) for file in files])
    ((70, 'a'),)
    """
    best = file
    for _ in range(_STEPS):
        tried = _simplest_first(best)
        found = next((one for one, lost in zip(tried, loses(tried) if tried else (), strict=True) if lost), None)
        if found is None:
            break
        best = found
    return best


def _simplest_first(file: File) -> list[File]:
    """The files that are simpler in one step, each once."""
    return sorted({repr(one): one for one in _smaller(file)}.values(), key=_size)[:_MOST]


def _size(file: File) -> tuple[int, int]:
    return len(file), sum(size_of(value) for row in file for value in row)


def _smaller(file: File) -> Iterator[File]:
    """The files of fewer rows or simpler values; of a single row, several values at once."""
    for place in range(len(file) if len(file) > 1 else 0):
        yield (file[place],)
        yield file[:place] + file[place + 1 :]
    if len(file) == 1:
        choices = [[value, *_much_simpler(value)] for value in file[0]]
        fewer = max(2, math.floor((2 * _MOST) ** (1 / len(choices))))
        rows = itertools.product(*(some[:fewer] if len(choices) > 1 else some for some in choices))
        yield from ((row,) for row in rows if any(a is not b for a, b in zip(row, file[0], strict=True)))
    for number, row in enumerate(file):
        for place, value in enumerate(row):
            for other in _much_simpler(value):
                yield (*file[:number], (*row[:place], other, *row[place + 1 :]), *file[number + 1 :])


def _much_simpler(value: Any) -> list[Any]:
    """What is simpler than a value, and than that; the simplest first."""
    found: dict[str, Any] = {}
    waiting = [value]
    while waiting and len(found) < 60:
        for other in simpler(waiting.pop(0)):
            if repr(other) not in found:
                found[repr(other)] = other
                waiting.append(other)
    return sorted(found.values(), key=size_of)


def _constant(found: LosingFile) -> Literal | None:
    """What the function is compared with, if Spark has left it as it was."""
    asked, met = (part.child if isinstance(part, Not) else part for part in (found.condition, normalise(found.node)))
    match asked, met:
        case Comparison(_, _, Literal() as literal), Comparison(_, _, Literal() as other):
            return literal if (literal.value, literal.type) == (other.value, other.type) else None
    return None


def _compared(found: LosingFile, value: Any) -> LosingFile:
    """The case with another constant to compare with."""

    def changed(node: Predicate) -> Predicate:
        if isinstance(node, Not):
            return Not(changed(node.child))
        assert isinstance(node, Comparison)
        assert isinstance(node.right, Literal)
        return replace(node, right=replace(node.right, value=value))

    return replace(found, condition=changed(found.condition), node=changed(normalise(found.node)))
