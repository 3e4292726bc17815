"""Metrics over strings, counted in code points as in Spark, and over the bits of whole numbers.

Distances of strings are rapidfuzz's, computed for all distinct strings of a file in one call. A string that is not
UTF-8 is odd: what its characters are, Spark and Python see differently.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from rapidfuzz import process
from rapidfuzz.distance import Hamming as _HammingOfTexts
from rapidfuzz.distance import Levenshtein as _LevenshteinOfTexts

from geoskip.metrics.base import Floats, Metric, Points
from geoskip.metrics.string_heads import GROUP, LONGEST, StringHeads, merge_outlines, outline_of
from geoskip.types import sql_type

__all__ = ["Hamming", "Levenshtein", "MOST", "MOST_BYTES", "StringLists", "few"]

_LONGEST = 1 << 30
"""A length that no string has."""
_BITS = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)


def _texts(values: pa.Array) -> Points:
    """Return the distinct strings of an array as points."""
    kind = values.type
    distinct = (values.dictionary if pa.types.is_dictionary(kind) else values.drop_null()).unique()
    nulls = values.null_count
    if not (pa.types.is_string(distinct.type) or pa.types.is_large_string(distinct.type)):
        distinct = distinct.cast(pa.large_string())
    try:
        distinct.validate(full=True)
        return Points(distinct.to_pylist(), len(values), nulls, nulls, 0)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        pass
    raw = distinct.cast(pa.large_binary())
    found = [(place, _decoded(value)) for place, value in enumerate(raw.to_pylist())]
    bad = pa.array([place for place, text in found if text is None], pa.int32())
    if pa.types.is_dictionary(kind):
        odd = int(pc.sum(pc.is_in(values.indices, value_set=bad)).as_py() or 0)
    else:
        same = values.cast(pa.large_binary())
        odd = int(pc.sum(pc.is_in(same, value_set=raw.take(bad))).as_py() or 0)
    return Points([text for _, text in found if text is not None], len(values), nulls, nulls, odd)


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None


class _OfTexts(Metric):
    """The base of metrics over one string; many points are a list of texts."""

    whole: ClassVar[bool] = True
    slack: ClassVar[float] = 0.0
    scorer: ClassVar[Callable[..., int]]

    def refusal(self, types: Sequence[str]) -> str | None:
        if len(types) != 1:
            return f"{self.name} is over one expression, got {len(types)}"
        if not sql_type(types[0]).is_text:
            return f"{self.name} needs a string, got {types[0]}; index a string expression"
        return None

    def points(self, values: Sequence[pa.Array], like: Any = None) -> Points:
        return _texts(values[0])

    def point(self, constants: Sequence[Any], like: Any = None) -> str | None:
        (value,) = constants
        if not isinstance(value, str):
            return None
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return None
        return value

    def of(self, points: Sequence[Any]) -> list[Any]:
        return list(points)

    def take(self, data: list[Any], places: Sequence[int]) -> list[Any]:
        return [data[place] for place in places]

    def distances(self, origin: Any, data: list[Any]) -> Floats:
        if not data:
            return np.empty(0)
        found = process.cdist([origin], data, scorer=type(self).scorer, dtype=np.int32)
        return np.asarray(found[0], dtype=np.float64)

    def count(self, data: Any) -> int:
        return len(data)

    def default_origins(self, dimensions: int) -> Sequence[Any]:
        return [""]


class Levenshtein(_OfTexts):
    """The least number of insertions, deletions and substitutions of code points."""

    name: ClassVar[str] = "levenshtein"
    outlined: ClassVar[Mapping[str, pa.DataType]] = {
        "texts": pa.list_(pa.string()),
        "outline": pa.list_(pa.string()),
        "groups": pa.list_(GROUP),
    }
    scorer = _LevenshteinOfTexts.distance

    def outline(self, data: list[str]) -> dict[str, Any]:
        texts = few(data)
        return {"texts": texts, **(outline_of(data) if texts is None else {"outline": [], "groups": []})}

    def outline_of(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        texts = [part["texts"] for part in parts if part["texts"] is not None]
        if len(texts) == len(parts):
            return self.outline(list(set().union(*texts)))
        heads = [part if part["texts"] is None else outline_of(part["texts"]) for part in parts]
        return {"texts": None, **merge_outlines(heads)}

    def outlines(self, fields: Sequence[pa.Array]) -> tuple[StringLists, StringHeads]:
        texts, *heads = fields
        return StringLists.of(texts), StringHeads.of(*heads)

    def between(
        self, outlines: tuple[StringLists, StringHeads], point: str, low: float, high: float
    ) -> NDArray[np.bool_]:
        kept, heads = outlines
        most = math.floor(min(high, _LONGEST))
        found = np.ones(len(kept.known), dtype=bool)
        if kept.texts:
            exact = process.cdist([point], kept.texts, scorer=type(self).scorer, score_cutoff=most, dtype=np.int32)[0]
            found &= kept.files_holding((exact >= low) & (exact <= most))
        if len(heads.codes) and high < LONGEST:
            found &= heads.within(point, most)
        return found


class Hamming(_OfTexts):
    """Differing bits of whole numbers (``bit_count(a ^ b)``), or differing code points of strings.

    Numbers are taken as 64 bits with their sign, as Spark counts them; the characters that the longer of two strings
    has more count as different.
    """

    name: ClassVar[str] = "hamming"
    scorer = _HammingOfTexts.distance

    def refusal(self, types: Sequence[str]) -> str | None:
        if len(types) == 1 and sql_type(types[0]).is_integral:
            return None
        said = super().refusal(types)
        return said and said.replace("needs a string", "needs a whole number or a string")

    def points(self, values: Sequence[pa.Array], like: Any = None) -> Points:
        (array,) = values
        if not pa.types.is_integer(array.type):
            return _texts(array)
        nulls = array.null_count
        return Points(array.drop_null().cast(pa.int64()).to_numpy(), len(array), nulls, nulls, 0)

    def point(self, constants: Sequence[Any], like: Any = None) -> Any:
        (value,) = constants
        if isinstance(value, bool) or (like is not None and type(value) is not type(like)):
            return None
        if isinstance(value, int):
            return value if -(2**63) <= value < 2**63 else None
        return super().point(constants)

    def of(self, points: Sequence[Any]) -> Any:
        return np.array(points, dtype=np.int64) if points and isinstance(points[0], int) else list(points)

    def take(self, data: Any, places: Sequence[int]) -> list[Any]:
        return [int(data[place]) if isinstance(data, np.ndarray) else data[place] for place in places]

    def distances(self, origin: Any, data: Any) -> Floats:
        if not isinstance(data, np.ndarray):
            return super().distances(origin, data)
        differing = (data ^ np.int64(origin)).view(np.uint8).reshape(len(data), 8)
        return np.asarray(_BITS[differing].sum(axis=1, dtype=np.float64))

    def default_origins(self, dimensions: int) -> Sequence[Any]:
        return ()


MOST = 1024
"""Distinct strings that a file may keep."""
MOST_BYTES = 1 << 13
"""Bytes of UTF-8 that they may have together."""


def few(texts: Sequence[str]) -> list[str] | None:
    """Return distinct strings in order; None if they are too many, or too long, to be kept.

    >>> few(["b", "a"]), few(["a" * 9000])
    (['a', 'b'], None)
    """
    if len(texts) > MOST or sum(len(text.encode("utf-8")) for text in texts) > MOST_BYTES:
        return None
    return sorted(texts)


@dataclass(frozen=True)
class StringLists:
    """The distinct strings of all files that keep theirs, and the files of each.

    A file with few distinct strings keeps them in full: its distances are computed, and not bounded. Of words in no
    order every file has some of any length, with any letters and at any distance from the pivots: of 116 files of 770
    surnames no bound excludes one. The words take seven bytes each and exclude every file that can be excluded.
    """

    texts: list[str]
    counts: NDArray[np.int64]
    """The number of files that have each string."""
    owners: NDArray[np.int32]
    """The files of all strings, string by string."""
    known: NDArray[np.bool_]
    """Files that keep theirs."""

    @classmethod
    def of(cls, lists: pa.Array) -> StringLists:
        """Return the strings given a list a file; files whose list is null, empty or has a null keep none."""
        if not pa.types.is_list(lists.type):
            lists = pa.nulls(len(lists), pa.list_(pa.string()))
        lengths = np.asarray(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
        owners = np.repeat(np.arange(len(lists), dtype=np.int32), lengths)
        flat = lists.drop_null().flatten().dictionary_encode()
        known = lengths > 0
        known[owners[np.asarray(flat.indices.is_null())]] = False
        codes = np.asarray(flat.indices.fill_null(0).to_numpy(zero_copy_only=False))
        codes, owners = codes[known[owners]], owners[known[owners]]
        counts = np.bincount(codes, minlength=len(flat.dictionary))
        return cls(flat.dictionary.to_pylist(), counts, owners[np.argsort(codes, kind="stable")], known)

    def files_holding(self, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the mask of the files that may hold a wanted string: those that have it, or keep none."""
        found = ~self.known
        found[self.owners[np.repeat(wanted, self.counts)]] = True
        return found
