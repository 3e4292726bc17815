"""Prefix: what the texts of each file begin with (Extensible Data Skipping, sections V-A and V-E and table I).

*Stored a file*: ``whole``, the texts of at most ``length`` characters, each once; ``cut``, the first ``length``
characters of longer ones, each once; ``nulls`` and ``rows``. A file with more than ``limit`` entries stores its counts
alone and is kept. Characters are code points, as in Spark's ``substring``.

*Collecting* cuts the texts and drops repetitions; *merging* unites the lists.

*Why skipping is sound*: a text that begins with ``p`` has an entry that begins with ``p`` or, where ``p`` is longer
than an entry, the entry of ``p`` (:mod:`geoskip.indexes.affix_postings`, for any bytes). So ``LIKE 'ab%'`` needs such
an entry, ``=`` a whole entry or the cut one of its text, ``c < 'k'`` an entry below ``'k'`` since no text is below its
own beginning, and ``NOT LIKE 'ab%'`` an entry that does not begin with ``ab``: where ``ab`` is longer than an entry,
any cut one.

*What it costs*: the bytes of the distinct entries, which is little where beginnings repeat; at a query two searches in
one sorted dictionary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from geoskip.bounds.strings import literal_prefix
from geoskip.clauses import Clause
from geoskip.indexes.affix import LIMIT, Affix
from geoskip.indexes.affix_postings import CUT, all_above, all_below
from geoskip.indexes.base import index
from geoskip.predicates import Like, Predicate, StartsWith

__all__ = ["Prefix"]


@index
@dataclass(frozen=True)
class Prefix(Affix):
    """The beginnings of texts, for ``LIKE 'ab%'``, ``= IN < <= > >=``, ``substring(c, 1, n) = 'ab'`` and negations.

    >>> str(Prefix("path")), str(Prefix("path", length=20))
    ('prefix(path)', 'prefix(path, length=20)')
    """

    expr: str
    length: int = 15
    limit: int = LIMIT
    kind: ClassVar[str] = "prefix"
    backwards: ClassVar[bool] = False

    def entry(self, text: bytes) -> bytes | None:
        r"""The entry of a text that is longer than one; None where the text is its own.

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

    def _sliced(self, texts: pa.Array) -> pa.Array:
        return pc.utf8_slice_codeunits(texts, 0, self.length)

    def _start(self, node: Predicate) -> tuple[str | None, bool]:
        match node:
            case StartsWith(_, text):
                return text, True
            case Like(_, pattern, escape):
                return literal_prefix(pattern, escape)
        return None, False

    def _compared(self, op: str, text: bytes) -> Clause:
        shown = f"may be {op} {text.decode('utf-8', 'replace')!r}"
        if op in ("<", "<="):  # a longer text is above its entry
            return self._passes(shown, [all_below(text, op == "<=")], [all_below(text, False)])
        entry = self.entry(text) or text
        while entry and entry[-1] & 0xC0 == 0x80:  # an entry may end within what is a character here
            entry = entry[:-1]
        return self._passes(shown, [all_above(text, op == ">=")], [all_above(entry, True)])
