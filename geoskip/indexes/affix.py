"""The common part of Prefix and Suffix: collecting entries, merging them, and clauses over them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from geoskip.bounds.sort_keys import IncomparableError
from geoskip.bounds.strings import encoded
from geoskip.clauses import Clause
from geoskip.errors import InvalidSpecificationError, UnsupportedColumnError
from geoskip.indexes.affix_postings import EntryPasses, Interval, beginning, exactly, lists_of
from geoskip.indexes.base import Index, SourceColumn, Summary
from geoskip.indexes.stored_bounds import bound_type, ordered
from geoskip.indexes.summary_cache import distinct
from geoskip.predicates import (
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
from geoskip.types import sql_type

__all__ = ["Affix"]

LIMIT = 10_000
_LONGEST = 1000


class Affix(Index):
    """An index of what texts begin with, or end with (``backwards``); its fields are ``expr, length, limit``."""

    expr: str
    length: int
    limit: int
    backwards: ClassVar[bool]

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not isinstance(self.expr, str) or not self.expr.strip():
            raise InvalidSpecificationError(f"{name} needs a column name or SQL text, got {self.expr!r}")
        if type(self.length) is not int or not 1 <= self.length <= _LONGEST:
            raise InvalidSpecificationError(
                f"{name}({self.expr!r}) keeps from 1 to {_LONGEST:,} characters, got length={self.length!r}; "
                "15 serve well"
            )
        if type(self.limit) is not int or self.limit < 1:
            raise InvalidSpecificationError(
                f"{name}({self.expr!r}) keeps at least one entry a file, got limit={self.limit!r}; {LIMIT:,} is usual"
            )

    def metadata_type(self, *columns: SourceColumn) -> pa.DataType:
        """``struct<whole: list<binary>, cut: list<binary>, nulls, rows>``."""
        (column,) = columns
        if not sql_type(column.type).is_text:
            way = f"BloomFilter({column.text!r}) serves equality"
            try:
                bound_type(column, self.kind)
            except UnsupportedColumnError as error:
                way = str(error).partition(": ")[2]
            raise UnsupportedColumnError(f"{self.kind}({column.text}) needs text, got {column.type}: {way}")
        entries = pa.list_(pa.large_binary())
        return pa.struct([("whole", entries), ("cut", entries), ("nulls", pa.int64()), ("rows", pa.int64())])

    def collect(self, *values: pa.Array) -> Summary | None:
        """The entries of one file's texts, or of a part of them."""
        (array,) = values
        whole, cut = self._entries(distinct(array))
        return {**lists_of(whole, cut, self.limit), "nulls": array.null_count, "rows": len(array)}

    def merge(self, summaries: Sequence[Summary]) -> Summary:
        """The unions of the parts' entries; the sums of the counts."""
        counts = {name: sum(part[name] for part in summaries) for name in ("nulls", "rows")}
        found: dict[str, set[bytes]] = {"whole": set(), "cut": set()}
        for part in summaries:
            if part["whole"] is None or part["cut"] is None:
                return {"whole": None, "cut": None, **counts}
            for side, entries in found.items():
                entries.update(part[side])
        if sum(map(len, found.values())) > self.limit:
            return {"whole": None, "cut": None, **counts}
        return {**{side: sorted(entries) for side, entries in found.items()}, **counts}

    @abstractmethod
    def entry(self, text: bytes) -> bytes | None:
        """The entry of a text that is longer than one; None where the text is its own."""

    @abstractmethod
    def _sliced(self, texts: pa.Array) -> pa.Array:
        """The entries of texts that are all UTF-8."""

    def _entries(self, array: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The entries of distinct texts: those that are whole texts, and those that are not."""
        none = pa.array([], pa.large_binary())
        if not len(array):
            return none, none
        raw = ordered(array).cast(pa.large_binary())
        try:
            texts = raw.cast(pa.large_string())  # checks that they are UTF-8
        except pa.ArrowInvalid:
            return self._one_by_one(raw)
        longer = pc.greater(pc.utf8_length(texts), self.length)
        cut = self._sliced(texts.filter(longer)).cast(pa.large_binary())
        return raw.filter(pc.invert(longer)), cut

    def _one_by_one(self, raw: pa.Array) -> tuple[pa.Array, pa.Array]:
        whole: list[bytes] = []
        cut: list[bytes] = []
        for text in raw.to_pylist():
            entry = self.entry(text)
            (whole if entry is None else cut).append(text if entry is None else entry)
        return pa.array(whole, pa.large_binary()), pa.array(cut, pa.large_binary())

    def clause(self, node: Predicate) -> Clause | None:
        """What a row must make TRUE, as a condition on the entries."""
        try:
            return self._plain(node.child, negated=True) if isinstance(node, Not) else self._plain(node, negated=False)
        except IncomparableError:
            return self._values()

    def _plain(self, node: Predicate, *, negated: bool) -> Clause | None:
        match node:
            case IsNull(child) if self.reads(child):
                return self._values() if negated else self._passes("has nulls", null=True, values=False)
            case Comparison("=", child, Literal() as literal) if self.reads(child):
                return self._equal((literal,), negated=negated)
            case In(child, values) if self.reads(child):
                return self._equal(values, negated=negated)
            case Comparison("<" | "<=" | ">" | ">=" as op, child, Literal() as literal) if self.reads(child):
                return self._compared(op, encoded(literal))
            case Comparison(op, left, right) if op != "<=>" and (self.reads(left) or self.reads(right)):
                return self._values()
            case StartsWith(child) | EndsWith(child) | Contains(child) | Like(child) if self.reads(child):
                start, sure = self._start(node)
                if start is None or (negated and not sure):
                    return self._values()
                return self._begins(encoded(Literal(start)), negated=negated)
        return None

    @abstractmethod
    def _start(self, node: Predicate) -> tuple[str | None, bool]:
        """What every match begins (ends) with, None where that is not known; and whether all that does so matches."""

    def _compared(self, op: str, text: bytes) -> Clause:
        """An order comparison."""
        return self._values()

    def _equal(self, literals: Sequence[Literal], *, negated: bool) -> Clause:
        whole, cut = [], []
        for literal in literals:
            text = encoded(literal)
            entry = self.entry(text)
            if entry is None:
                whole.append(exactly(self._turned(text)))
            elif not negated:  # other long texts share the entry
                cut.append(exactly(self._turned(entry)))
        shown = str(literals[0]) if len(literals) == 1 else f"one of {len(literals)} values"
        return self._passes(f"may {'differ from' if negated else 'be'} {shown}", whole, cut, inverted=negated)

    def _begins(self, text: bytes, *, negated: bool) -> Clause:
        whole, cut = [beginning(self._turned(text))], [beginning(self._turned(text))]
        entry = self.entry(text)
        if entry is not None:  # longer than an entry: texts that share it may begin otherwise
            cut = [] if negated else [exactly(self._turned(entry))]
        verb = "end" if self.backwards else "begin"
        shown = f"may {'not ' * negated}{verb} with {Literal(text.decode('utf-8', 'surrogateescape'))}"
        return self._passes(shown, whole, cut, inverted=negated)

    def _turned(self, text: bytes) -> bytes:
        return text[::-1] if self.backwards else text

    def _values(self) -> Clause:
        return self._passes("has values", inverted=True)

    def _passes(
        self, text: str, whole: Sequence[Interval] = (), cut: Sequence[Interval] = (), *,
        inverted: bool = False, null: bool = False, values: bool = True,
    ) -> Clause:  # fmt: skip
        return EntryPasses(str(self), text, tuple(whole), tuple(cut), inverted, null, values, self.backwards)
