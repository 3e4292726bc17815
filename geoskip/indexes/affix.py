"""Prefix and Suffix: the first or last characters of each file's texts.

The indexes of Extensible Data Skipping, sections V-A and V-E and table I; Suffix is Prefix on reversed texts.

*Stored per file*: ``whole``, the distinct texts of at most ``length`` characters; ``cut``, the distinct first (last)
``length`` characters of longer texts; ``nulls`` and ``rows``. A file with more than ``limit`` entries stores only its
counts and is kept. Characters are code points, as in Spark's ``substring``.

*Collecting* truncates the distinct texts; *merging* unites the lists.

Code points are counted by their first bytes, so that texts which are not UTF-8 have entries too; an entry has at most
four bytes per code point.

*Why skipping is sound*: all clauses rely on two properties, which hold for any bytes:

* the entry of a text depends only on the text's first bytes, so texts with the same first bytes have the same entry;
* a text that begins with ``p`` has an entry that begins with ``p`` or, if ``p`` is longer than an entry, the entry of
  ``p``.

So ``LIKE 'ab%'`` needs such an entry, ``=`` the whole entry or the cut entry of the literal, and ``c < 'k'`` an entry
below ``'k'``, since no text is below its own prefix. ``NOT LIKE 'ab%'`` needs an entry that does not begin with ``ab``
or, if ``ab`` is longer than an entry, any cut entry. A suffix implies no order, so Suffix does not support ranges.

*Cost*: the bytes of the distinct entries, which are few if prefixes repeat; for a query, two searches in a sorted
dictionary.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from geoskip.bounds.interval import bytes_of
from geoskip.bounds.sort_keys import IncomparableError, literal_prefix, literal_suffix
from geoskip.clauses import Clause, Files
from geoskip.conditions import Condition, Interval, complement, union
from geoskip.errors import InvalidSpecificationError, UnsupportedColumnError
from geoskip.evaluation.values import interval_of, prefix_interval, singleton
from geoskip.indexes.base import Index, SourceColumn, Summary, index, require_text
from geoskip.indexes.file_statistics import FileStatistics, ends_of_lists, field_of, json_texts, zeros
from geoskip.indexes.postings import ListedClause, Postings, passes, postings_of
from geoskip.indexes.stored_bounds import bound_type, cast_to_ordered, distinct
from geoskip.predicates import Comparison, Contains, EndsWith, In, IsNull, Like, Literal, Not, Predicate, StartsWith
from geoskip.types import sql_type

CUT = 4
"""The most bytes of a code point."""
LIMIT = 10_000
_LONGEST = 1000


class Affix(Index):
    """The common base of Prefix and Suffix (``backwards``): entries, merging, clauses.

    The fields are ``expr``; ``length``, the characters of an entry; and ``limit``, the entries that a file may store.
    """

    expr: str
    length: int
    limit: int
    backwards: ClassVar[bool]

    def __post_init__(self) -> None:
        name = type(self).__name__
        require_text(self, self.expr)
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
        """Return the entries of one file's texts, or of a part of them."""
        (array,) = values
        whole, cut = (entries.unique().to_numpy(zero_copy_only=False) for entries in self._entries(distinct(array)))
        return self._summary(whole, cut, array.null_count, len(array))

    def merge(self, summaries: Sequence[Summary]) -> Summary:
        """Unite the parts' entries and add their counts."""
        nulls, rows = (sum(part[name] for part in summaries) for name in ("nulls", "rows"))
        if any(part["whole"] is None for part in summaries):
            return {"whole": None, "cut": None, "nulls": nulls, "rows": rows}
        whole, cut = ({entry for part in summaries for entry in part[side]} for side in ("whole", "cut"))
        return self._summary(whole, cut, nulls, rows)

    def _summary(self, whole: Collection[bytes], cut: Collection[bytes], nulls: int, rows: int) -> Summary:
        fits = len(whole) + len(cut) <= self.limit
        lists = {"whole": sorted(whole), "cut": sorted(cut)} if fits else {"whole": None, "cut": None}
        return {**lists, "nulls": nulls, "rows": rows}

    @abstractmethod
    def entry(self, text: bytes) -> bytes | None:
        """Return the entry of a text that is longer than an entry, or None."""

    @abstractmethod
    def _slice_texts(self, texts: pa.Array) -> pa.Array:
        """Truncate UTF-8 texts that are longer than an entry."""

    def _entries(self, array: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the whole and the cut entries of distinct texts."""
        none = pa.array([], pa.large_binary())
        if not len(array):
            return none, none
        raw = cast_to_ordered(array).cast(pa.large_binary())
        try:
            texts = raw.cast(pa.large_string())  # raises if not UTF-8
        except pa.ArrowInvalid:
            return self._one_by_one(raw)
        longer = pc.greater(pc.utf8_length(texts), self.length)
        cut = self._slice_texts(texts.filter(longer)).cast(pa.large_binary())
        return raw.filter(pc.invert(longer)), cut

    def _one_by_one(self, raw: pa.Array) -> tuple[pa.Array, pa.Array]:
        whole: list[bytes] = []
        cut: list[bytes] = []
        for text in raw.to_pylist():
            entry = self.entry(text)
            (whole if entry is None else cut).append(text if entry is None else entry)
        return pa.array(whole, pa.large_binary()), pa.array(cut, pa.large_binary())

    def statistics(self, summaries: pa.StructArray) -> Sequence[FileStatistics]:
        """Return the texts of files in which none was cut; entries of others as details."""
        whole, cut, nulls = (field_of(summaries, name) for name in ("whole", "cut", "nulls"))
        none_cut = pc.equal(pc.list_value_length(cut), 0).fill_null(False)
        values = pc.if_else(none_cut, whole, pa.scalar(None, whole.type))
        low, high, _ = ends_of_lists(values)
        exact = pc.if_else(none_cut, True, pa.scalar(None, pa.bool_()))
        details = json_texts(summaries, lambda entries: {side: entries[side] for side in ("whole", "cut")})
        found = FileStatistics(*self.subject(), nulls=nulls, nans=zeros(nulls), low=low, high=high, exact=exact)
        return (replace(found, values=values, details=details),)

    def clause(self, node: Predicate) -> Clause | None:
        """Return the condition on the entries that a vertex implies."""
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
            case Comparison("<" | "<=" | ">" | ">=" as op, child, Literal() as literal) if (
                self.reads(child) and not negated
            ):
                return self._comparison(op, bytes_of(literal))
            case Comparison(op, left, right) if op != "<=>" and (self.reads(left) or self.reads(right)):
                return self._values()
            case StartsWith(child) | EndsWith(child) | Contains(child) | Like(child) if self.reads(child):
                start, sure = self._start(node)
                if start is None or (negated and not sure):
                    return self._values()
                return self._begins(bytes_of(Literal(start)), negated=negated)
        return None

    @abstractmethod
    def _start(self, node: Predicate) -> tuple[str | None, bool]:
        """Return the prefix (suffix) of every match, and True if all texts with it match.

        The text is None if it is unknown.
        """

    def _comparison(self, op: str, text: bytes) -> Clause:
        """Return the clause of an order comparison."""
        return self._values()

    def _equal(self, literals: Sequence[Literal], *, negated: bool) -> Clause:
        whole, cut = [], []
        for literal in literals:
            text = bytes_of(literal)
            entry = self.entry(text)
            if entry is None:
                whole.append(singleton(self._turn_text(text)))
            elif not negated:  # other long texts share the entry
                cut.append(singleton(self._turn_text(entry)))
        shown = str(literals[0]) if len(literals) == 1 else f"one of {len(literals)} values"
        return self._passes(f"may {'differ from' if negated else 'be'} {shown}", whole, cut, inverted=negated)

    def _begins(self, text: bytes, *, negated: bool) -> Clause:
        whole, cut = [prefix_interval(self._turn_text(text))], [prefix_interval(self._turn_text(text))]
        entry = self.entry(text)
        if entry is not None:  # other texts with this entry may have another prefix
            cut = [] if negated else [singleton(self._turn_text(entry))]
        verb = "end" if self.backwards else "begin"
        shown = f"may {'not ' * negated}{verb} with {Literal(text.decode('utf-8', 'surrogateescape'))}"
        return self._passes(shown, whole, cut, inverted=negated)

    def _turn_text(self, text: bytes) -> bytes:
        return text[::-1] if self.backwards else text

    def _values(self) -> Clause:
        return self._passes("has values", inverted=True)

    def _passes(
        self, text: str, whole: Sequence[Interval] = (), cut: Sequence[Interval] = (), *,
        inverted: bool = False, null: bool = False, values: bool = True,
    ) -> Clause:  # fmt: skip
        return EntryPasses(str(self), text, tuple(whole), tuple(cut), inverted, null, values, self.backwards)


@index
@dataclass(frozen=True)
class Prefix(Affix):
    """The beginnings of texts.

    For ``LIKE 'ab%'``, ``= IN < <= > >=``, ``substring(c, 1, n) = 'ab'`` and negations.

    >>> str(Prefix("path")), str(Prefix("path", length=20))
    ('prefix(path)', 'prefix(path, length=20)')
    """

    expr: str
    length: int = 15
    limit: int = LIMIT
    kind: ClassVar[str] = "prefix"
    backwards: ClassVar[bool] = False

    def entry(self, text: bytes) -> bytes | None:
        r"""Return the entry of a text that is longer than an entry, or None.

        >>> Prefix("c", length=2).entry("héllo".encode()), Prefix("c", length=2).entry("hé".encode())
        (b'h\xc3\xa9', None)
        """
        most = CUT * self.length
        if text[: most + 1].isascii():
            return text[: self.length] if len(text) > self.length else None
        seen = 0
        for at, byte in enumerate(text[:most]):
            seen += byte & 0xC0 != 0x80
            if seen > self.length:
                return text[:at]
        return text[:most] if len(text) > most else None

    def _slice_texts(self, texts: pa.Array) -> pa.Array:
        return pc.utf8_slice_codeunits(texts, 0, self.length)

    def _start(self, node: Predicate) -> tuple[str | None, bool]:
        match node:
            case StartsWith(_, text):
                return text, True
            case Like(_, pattern, escape):
                return literal_prefix(pattern, escape)
        return None, False

    def _comparison(self, op: str, text: bytes) -> Clause:
        shown = f"may be {op} {text.decode('utf-8', 'replace')!r}"
        if op in ("<", "<="):  # a cut text is above its entry
            return self._passes(shown, [interval_of(op, *singleton(text))], [interval_of("<", *singleton(text))])
        entry = self.entry(text) or text
        while entry and entry[-1] & 0xC0 == 0x80:  # remove an incomplete code point at the end
            entry = entry[:-1]
        return self._passes(shown, [interval_of(op, *singleton(text))], [interval_of(">=", *singleton(entry))])


@index
@dataclass(frozen=True)
class Suffix(Affix):
    """The ends of texts.

    For ``LIKE '%ab'``, ``= IN``, ``right(c, n) = 'ab'`` and negations.

    >>> str(Suffix("path")), str(Suffix("path", length=3))
    ('suffix(path)', 'suffix(path, length=3)')
    """

    expr: str
    length: int = 15
    limit: int = LIMIT
    kind: ClassVar[str] = "suffix"
    backwards: ClassVar[bool] = True

    def entry(self, text: bytes) -> bytes | None:
        r"""Return the entry of a text that is longer than an entry, or None.

        >>> Suffix("c", length=2).entry("hallé".encode()), Suffix("c", length=2).entry("lé".encode())
        (b'l\xc3\xa9', None)
        """
        least = max(0, len(text) - CUT * self.length)
        tail = text[least:]
        if tail.isascii():
            return text[-self.length :] if len(text) > self.length else None
        seen = 0
        for at in range(len(text) - 1, least - 1, -1):
            seen += text[at] & 0xC0 != 0x80
            if seen == self.length:
                return text[at:] if at else None
        return tail if least else None

    def _slice_texts(self, texts: pa.Array) -> pa.Array:
        return pc.utf8_slice_codeunits(texts, -self.length)

    def _start(self, node: Predicate) -> tuple[str | None, bool]:
        match node:
            case EndsWith(_, text):
                return text, True
            case Like(_, pattern, escape):
                return literal_suffix(pattern, escape)
        return None, False


@dataclass(frozen=True)
class EntryPasses(ListedClause):
    """Some entry of the file lies in the intervals, or (inverted) outside of them.

    ``whole`` are the intervals for whole texts, ``cut`` those for the entries of longer texts. ``null`` is True if NULL
    passes, ``values`` if the unlisted texts of a file over the limit pass.
    """

    index: str
    text: str
    whole: tuple[Interval, ...] = ()
    cut: tuple[Interval, ...] = ()
    inverted: bool = False
    null: bool = False
    values: bool = True
    backwards: bool = False

    def units(self, files: Files) -> Postings:
        return postings_of(files, self.index, ("whole", "cut"), backwards=self.backwards)

    def where(self, table: Postings) -> Condition:
        lists = {"whole": union(self.whole), "cut": union(self.cut)}
        if self.inverted:
            lists = {name: complement(intervals) for name, intervals in lists.items()}
        return passes(lists, "", null=self.null, unlisted=self.values)

    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((self.index, name) for name in ("whole", "cut", "nulls", "rows"))

    def __str__(self) -> str:
        return f"{self.index} {self.text}"
