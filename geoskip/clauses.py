"""Clauses: boolean conditions on one file's metadata.

A clause *represents* a predicate if it holds for every file with a row that makes the predicate TRUE (Extensible Data
Skipping, definitions 1 and 2). Clauses are evaluated for all files at once:

* input: the metadata of n files (:class:`Files`);
* output: n booleans: True keep, False skip, null unknown, and **null keeps**.

:func:`all_of` and :func:`any_of` merge clauses by Kleene's AND and OR over {keep, skip, unknown}, and fold constants.
No clause is ever negated: ``NOT (max > 5)`` does not represent ``NOT temp > 5``, but ``min <= 5`` does.

>>> str(all_of([KEEP_ALL, KEEP_NONE])), str(any_of([KEEP_ALL, KEEP_NONE])), str(all_of([]))
('skip every file', 'keep every file', 'keep every file')
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, is_dataclass
from typing import Any, ClassVar, Protocol, TypeGuard, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
T = TypeVar("T")


class Files(Protocol):
    """The metadata of n files, by column; missing metadata are null."""

    def __len__(self) -> int: ...

    def summary(self, index: str, field: str) -> pa.Array:
        """Return a field of an index's summaries, one entry for each file; null without a summary."""

    def cached(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the cached result of ``compute``, for arrays derived from summaries."""


@dataclass(frozen=True, eq=False)
class DerivedFiles(ABC):
    """Units of files, each with summaries like a file's; implements :class:`Files`."""

    known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    @abstractmethod
    def __len__(self) -> int: ...

    def cached(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the result of the first call for this key."""
        if key not in self.known:
            self.known[key] = compute()
        value: T = self.known[key]
        return value


class Clause(ABC):
    """A condition on one file's metadata. Names of subclasses are predicates of the file."""

    guarded: ClassVar[bool] = False
    """True for users' clauses, which :data:`guard` evaluates."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.guarded = cls.__module__.partition(".")[0] != "geoskip"

    @abstractmethod
    def keep(self, files: Files) -> Any:
        """Return a numpy or pyarrow bool array, one entry per file: True keep, False skip, null unknown."""

    def columns(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata columns that it reads, as (index, field)."""
        return ()

    def __str__(self) -> str:
        return repr(self) if is_dataclass(self) else type(self).__name__


guard: ContextVar[Callable[[Clause, Files], Any] | None] = ContextVar("what evaluates clauses of others", default=None)
"""Evaluates users' clauses during a decision; records those that fail, return a wrong type or are slow."""


@dataclass(frozen=True)
class _ConstantClause(Clause):
    value: bool

    def keep(self, files: Files) -> Mask:
        return np.full(len(files), self.value)

    def __str__(self) -> str:
        return "keep every file" if self.value else "skip every file"


KEEP_ALL: Clause = _ConstantClause(True)
KEEP_NONE: Clause = _ConstantClause(False)


class UnitClause(Clause):
    """A clause on parts of a file, its *units*, such as the boxes of a GeoBox.

    Every row of a file lies in at least one unit, so for a row that satisfies ``a AND b`` some unit may satisfy both.
    Merging two such clauses of the same index unit by unit therefore skips more files than merging them file by file.
    """

    index: str

    @abstractmethod
    def keep_units(self, files: Files) -> Mask:
        """Return one entry for each unit, in the order of the index's ``unit_files``."""

    @abstractmethod
    def files_of(self, files: Files, units: Mask) -> Mask:
        """Return one entry for each file: True if a kept unit, or missing metadata, keeps the file."""

    def keep(self, files: Files) -> Mask:
        return self.files_of(files, self.keep_units(files))

    def implies(self, other: UnitClause) -> bool:
        """True if every unit that this clause keeps passes the other, which is then redundant."""
        return False


@dataclass(frozen=True)
class _MergedClause(Clause):
    """The AND (``every``) or OR of clauses; callers put cheap clauses first."""

    parts: tuple[Clause, ...]
    every: bool
    size: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", sum(map(size_of, self.parts)))

    def keep(self, files: Files) -> Mask:
        result, merged, ours = keep_mask(self.parts[0], files), np.logical_and if self.every else np.logical_or, False
        for part in self.parts[1:]:
            if not result.any() if self.every else result.all():
                break  # the other parts cannot change the result
            result = merged(result, keep_mask(part, files), out=result if ours else None)
            ours = True  # the first mask may be cached by a clause, so it is not changed in place
        return result

    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple(dict.fromkeys(column for part in self.parts for column in part.columns()))

    def __str__(self) -> str:
        texts = dict.fromkeys(map(str, self.parts))  # each once
        joined = (" AND " if self.every else " OR ").join(texts)
        return joined if len(texts) == 1 else f"({joined})"


@dataclass(frozen=True)
class _MergedUnitClause(UnitClause):
    """The AND (``every``) or OR of clauses over the units of one index."""

    parts: tuple[UnitClause, ...]
    every: bool
    size: int = 0

    @property
    def index(self) -> str:  # type: ignore[override]
        return self.parts[0].index

    def keep_units(self, files: Files) -> Mask:
        result = np.array(self.parts[0].keep_units(files), copy=True)
        for part in self.parts[1:]:
            if self.every:
                result &= part.keep_units(files)
            else:
                result |= part.keep_units(files)
        return result

    def files_of(self, files: Files, units: Mask) -> Mask:
        return self.parts[0].files_of(files, units)

    def __post_init__(self) -> None:
        _MergedClause.__post_init__(self)  # type: ignore[arg-type]

    columns = _MergedClause.columns
    __str__ = _MergedClause.__str__


_MERGED = (_MergedClause, _MergedUnitClause)


def _is_merged(clause: Clause) -> TypeGuard[_MergedClause | _MergedUnitClause]:
    """True for a merged clause, by its exact class: isinstance is much slower for abstract classes."""
    return type(clause) in _MERGED


def all_of(clauses: Iterable[Clause]) -> Clause:
    """Return the AND of clauses, which represents the AND of their predicates.

    Clauses over the units of one index are merged unit by unit.
    """
    parts = [c for c in _flatten(clauses, every=True) if c is not KEEP_ALL]
    if len(parts) < 2:
        return parts[0] if parts else KEEP_ALL
    if any(c is KEEP_NONE for c in parts):
        return KEEP_NONE
    units: dict[str, list[UnitClause]] = {}
    for part in parts:
        if isinstance(part, UnitClause):
            units.setdefault(part.index, []).append(part)
    merged: list[Clause] = [p for p in parts if not isinstance(p, UnitClause)]
    for every in units.values():
        same = [part for part in every if not any(other.implies(part) for other in every if other is not part)]
        merged.append(same[0] if len(same) == 1 else _MergedUnitClause(tuple(same), True))
    return merged[0] if len(merged) == 1 else _MergedClause(tuple(merged), True)


def any_of(clauses: Iterable[Clause]) -> Clause:
    """Return the OR of clauses, which represents the OR of their predicates."""
    parts = [c for c in _flatten(clauses, every=False) if c is not KEEP_NONE]
    if any(c is KEEP_ALL for c in parts):
        return KEEP_ALL
    if not parts:
        return KEEP_NONE
    if len(parts) == 1:
        return parts[0]
    units = [p for p in parts if isinstance(p, UnitClause)]
    if len(units) == len(parts) and len({u.index for u in units}) == 1:
        return _MergedUnitClause(tuple(units), False)
    return _MergedClause(tuple(parts), False)


def any_known(clauses: Iterable[Clause | None]) -> Clause | None:
    """Return the OR of clauses; None (unknown) if one of them is None."""
    found = list(clauses)
    return any_of(clause for clause in found if clause is not None) if None not in found else None


def all_known(clauses: Iterable[Clause | None]) -> Clause:
    """Return the AND of the clauses that are not None."""
    return all_of(clause for clause in clauses if clause is not None)


def _flatten(clauses: Iterable[Clause], *, every: bool) -> Iterator[Clause]:
    seen: set[int] = set()
    for clause in clauses:
        same = _is_merged(clause) and clause.every is every
        for part in clause.parts if same else (clause,):  # type: ignore[attr-defined]
            if id(part) not in seen:
                seen.add(id(part))
                yield part


def size_of(clause: Clause) -> int:
    """Return the number of clauses that are evaluated for a clause."""
    return clause.size if _is_merged(clause) else 1


def parts_of(clause: Clause) -> tuple[Clause, ...]:
    """Return the conjuncts of a merged clause; each of them represents the predicate.

    >>> parts_of(KEEP_NONE)[0] is KEEP_NONE
    True
    """
    if _is_merged(clause) and clause.every:
        return tuple(p for part in clause.parts for p in parts_of(part))
    return (clause,)


def conjuncts_of(clause: Clause) -> tuple[Clause, ...]:
    """Return the conjuncts of a merged clause; those over the units of one index stay together.

    >>> conjuncts_of(KEEP_NONE)[0] is KEEP_NONE
    True
    """
    if _is_merged(clause) and clause.every and not isinstance(clause, UnitClause):
        return tuple(p for part in clause.parts for p in conjuncts_of(part))
    return (clause,)


def alternatives_of(clause: Clause) -> tuple[Clause, ...]:
    """Return the alternatives of an OR of clauses; for any other clause, the clause itself.

    >>> alternatives_of(KEEP_NONE)[0] is KEEP_NONE
    True
    """
    if _is_merged(clause) and not clause.every:
        return clause.parts
    return (clause,)


def leaves_of(clause: Clause) -> Iterator[Clause]:
    """Iterate over the clauses that a clause was merged from; over the clause itself if not merged."""
    if _is_merged(clause):
        for part in clause.parts:
            yield from leaves_of(part)
    else:
        yield clause


def keep_mask(clause: Clause, files: Files) -> Mask:
    """Evaluate a clause; null and results of another type keep files, exceptions are propagated."""
    evaluate = guard.get() if clause.guarded else None
    return as_mask(clause.keep(files) if evaluate is None else evaluate(clause, files), len(files))


def as_mask(answer: Any, length: int) -> Mask:
    """Convert a clause's result to n booleans: null keeps, as does a result of wrong length or type.

    >>> as_mask([True, None, False], 3).tolist(), as_mask([False], 3).tolist(), as_mask(np.bool_(False), 2).tolist()
    ([True, True, False], [True, True, True], [True, True])
    """
    mask = answer_mask(answer, length)
    return np.ones(length, dtype=bool) if mask is None else mask


def answer_mask(answer: Any, length: int) -> Mask | None:
    """Convert a clause's result to n booleans, null as keep; None if it is not such a result."""
    if type(answer) is np.ndarray and answer.dtype == np.bool_:  # a masked array may have False under its mask
        mask = answer
    else:
        mask = _coerce_answer(answer)
    return mask if mask.shape == (length,) else None


def _coerce_answer(answer: Any) -> Mask:
    if isinstance(answer, pa.Array | pa.ChunkedArray):
        if not pa.types.is_boolean(answer.type):
            return _NO_ANSWER
        return np.asarray(answer.fill_null(True).to_numpy(zero_copy_only=False), dtype=bool)
    if isinstance(answer, np.ma.MaskedArray) and answer.dtype == np.bool_:
        return np.asarray(answer.filled(True))
    is_list = isinstance(answer, Sequence) and not isinstance(answer, str | bytes)
    if is_list and all(value is None or isinstance(value, bool | np.bool_) for value in answer):
        return np.array([value is None or bool(value) for value in answer], dtype=bool)
    return _NO_ANSWER


_NO_ANSWER: Mask = np.ones((0, 0), dtype=bool)
