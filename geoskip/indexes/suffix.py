"""Suffix: what the texts of each file end with (Extensible Data Skipping, sections V-A and V-E and table I).

*Stored a file*: ``whole``, the texts of at most ``length`` characters, each once; ``cut``, the last ``length``
characters of longer ones, each once; ``nulls`` and ``rows``. A file with more than ``limit`` entries stores its counts
alone and is kept. Characters are code points, as in Spark's ``substring``.

*Collecting* cuts the texts and drops repetitions; *merging* unites the lists.

*Why skipping is sound*: as with :mod:`~geoskip.indexes.prefix`, read backwards: a text that ends with ``p`` has an
entry that ends with ``p`` or, where ``p`` is longer than an entry, the entry of ``p``. An end says nothing of order, so
ranges are not served.

*What it costs*: the bytes of the distinct entries; at a query two searches in one dictionary, sorted backwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from geoskip.bounds.strings import literal_suffix
from geoskip.indexes.affix import LIMIT, Affix
from geoskip.indexes.affix_postings import CUT
from geoskip.indexes.base import index
from geoskip.predicates import EndsWith, Like, Predicate

__all__ = ["Suffix"]


@index
@dataclass(frozen=True)
class Suffix(Affix):
    """The ends of texts, for ``LIKE '%ab'``, ``= IN``, ``right(c, n) = 'ab'`` and negations.

    >>> str(Suffix("path")), str(Suffix("path", length=3))
    ('suffix(path)', 'suffix(path, length=3)')
    """

    expr: str
    length: int = 15
    limit: int = LIMIT
    kind: ClassVar[str] = "suffix"
    backwards: ClassVar[bool] = True

    def entry(self, text: bytes) -> bytes | None:
        r"""The entry of a text that is longer than one; None where the text is its own.

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

    def _sliced(self, texts: pa.Array) -> pa.Array:
        return pc.utf8_slice_codeunits(texts, -self.length)

    def _start(self, node: Predicate) -> tuple[str | None, bool]:
        match node:
            case EndsWith(_, text):
                return text, True
            case Like(_, pattern, escape):
                return literal_suffix(pattern, escape)
        return None, False
