"""Metrics over strings, counted in code points as in Spark, and over the bits of whole numbers.

Distances of strings are computed by rapidfuzz, for all distinct strings of a file in one call. A string that is not
UTF-8 is odd, since Spark and Python decode it differently.

**Outlines** bound Levenshtein's distance where pivots hardly do, since all distances between words are similar. A file
with few distinct strings stores them in full (:class:`StringLists`); others store *heads* (:class:`StringHeads`),
prefixes of at most eight code points: up to 16, or one per four strings and up to 128. In a sorted dataset the strings
of a file have common prefixes. An alignment of a string x with q aligns the head h of x with some prefix of q, at no
higher cost: ``d(x, q) >= min over j of d(h, q[:j])``, the least entry of the last row of Wagner and Fischer's table for
h and q.

For each *group* of strings with a common head, the least and the greatest length and the set of letters are stored. An
edit changes the length by at most one, and removes at most one letter of q: so the distance of x is at least the
difference of the lengths, and at least the number of q's letters that occur in no string of the group. Letters are
stored as 32 bits, by their code points modulo 32: a letter with a bit that is not set does not occur.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from rapidfuzz import process
from rapidfuzz.distance import Hamming as _HammingOfTexts
from rapidfuzz.distance import Levenshtein as _LevenshteinOfTexts

from geoskip.metrics import Floats, Metric, Points
from geoskip.types import sql_type

_LONGEST_STRING = 1 << 30
"""More than the length of any string."""
_BITS = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)
MOST = 1024
"""The most distinct strings that a file stores in full."""
MOST_BYTES = 1 << 13
"""The most bytes of these strings in UTF-8, in total."""
_LEAST_HEADS, _MOST_HEADS = 16, 128
_STRINGS_A_HEAD = 4
_LONGEST_HEAD = 8
_BEGIN = 3
GROUP = pa.struct([("letters", pa.int64()), ("shortest", pa.int64()), ("longest", pa.int64())])
_ANY = {"letters": -1, "shortest": 0, "longest": 2**62}
_MOST_COMPARED = 1 << 15
"""The most heads that one query compares in full (about 2 ms); if more, only their prefixes are compared."""


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
    found = [(place, _decode_text(value)) for place, value in enumerate(raw.to_pylist())]
    bad = pa.array([place for place, text in found if text is None], pa.int32())
    if pa.types.is_dictionary(kind):
        odd = int(pc.sum(pc.is_in(values.indices, value_set=bad)).as_py() or 0)
    else:
        same = values.cast(pa.large_binary())
        odd = int(pc.sum(pc.is_in(same, value_set=raw.take(bad))).as_py() or 0)
    return Points([text for _, text in found if text is not None], len(values), nulls, nulls, odd)


def _decode_text(value: bytes) -> str | None:
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

    def distances(self, origin: Any, data: list[Any]) -> Floats:
        if not data:
            return np.empty(0)
        found = process.cdist([origin], data, scorer=type(self).scorer, dtype=np.int32)
        return np.asarray(found[0], dtype=np.float64)

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

    def files_between(
        self, outlines: tuple[StringLists, StringHeads], point: str, low: float, high: float
    ) -> NDArray[np.bool_]:
        kept, heads = outlines
        most = math.floor(min(high, _LONGEST_STRING))
        found = np.ones(len(kept.known), dtype=bool)
        if kept.texts:
            exact = process.cdist([point], kept.texts, scorer=type(self).scorer, score_cutoff=most, dtype=np.int32)[0]
            found &= kept.files_holding((exact >= low) & (exact <= most))
        if len(heads.codes) and high < _LONGEST_HEAD:
            found &= heads.files_within(point, most)
        return found


class Hamming(_OfTexts):
    """Differing bits of whole numbers (``bit_count(a ^ b)``), or differing code points of strings.

    Numbers are compared as signed 64-bit integers, as in Spark; the additional characters of the longer string count as
    different.
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


def few(texts: Sequence[str]) -> list[str] | None:
    """Return distinct strings in order; None if they are too many or too long to be stored in full.

    >>> few(["b", "a"]), few(["a" * 9000])
    (['a', 'b'], None)
    """
    if len(texts) > MOST or sum(len(text.encode("utf-8")) for text in texts) > MOST_BYTES:
        return None
    return sorted(texts)


def _dictionary_of(lists: pa.Array) -> tuple[NDArray[np.int64], pa.DictionaryArray]:
    """Return the length of each list, 0 for null, and all strings of the lists."""
    if not pa.types.is_list(lists.type):
        lists = pa.nulls(len(lists), pa.list_(pa.string()))
    lengths = np.asarray(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
    return lengths, lists.drop_null().flatten().dictionary_encode()


@dataclass(frozen=True)
class StringLists:
    """The distinct strings of all files that store them in full, and the files of each string.

    For a file with few distinct strings, distances are computed instead of bounded. In an unsorted dataset every file
    has words of any length, with any letters and at any distance from the pivots: for 116 files of 770 surnames the
    bounds exclude no file. The words take seven bytes each and exclude every file without a match.
    """

    texts: list[str]
    counts: NDArray[np.int64]
    """The number of files with each string."""
    owners: NDArray[np.int32]
    """The files of all strings, grouped by string."""
    known: NDArray[np.bool_]
    """Files that store their strings in full."""

    @classmethod
    def of(cls, lists: pa.Array) -> StringLists:
        """Return the strings from one list per file; a list that is null, empty or contains a null is unknown."""
        lengths, flat = _dictionary_of(lists)
        owners = np.repeat(np.arange(len(lists), dtype=np.int32), lengths)
        known = lengths > 0
        known[owners[np.asarray(flat.indices.is_null())]] = False
        codes = np.asarray(flat.indices.fill_null(0).to_numpy(zero_copy_only=False))
        codes, owners = codes[known[owners]], owners[known[owners]]
        counts = np.bincount(codes, minlength=len(flat.dictionary))
        return cls(flat.dictionary.to_pylist(), counts, owners[np.argsort(codes, kind="stable")], known)

    def files_holding(self, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Mark the files that may contain a wanted string: those that list it, and those without a list."""
        found = ~self.known
        found[self.owners[np.repeat(wanted, self.counts)]] = True
        return found


def group_by_beginning(texts: Iterable[str], most: int) -> dict[str, list[str]]:
    """Group distinct strings by at most ``most`` prefixes; the most frequent are lengthened first.

    >>> group_by_beginning(["smile", "smith", "smoke", "snake"], 3)
    {'smi': ['smile', 'smith'], 'smoke': ['smoke'], 'snake': ['snake']}
    """
    found: dict[str, list[str]] = {}
    waiting, count = [(0, "", list(texts))], 1
    while waiting:
        _, head, members = heapq.heappop(waiting)
        first, last = min(members)[:_LONGEST_HEAD], max(members)[:_LONGEST_HEAD]
        head = first[: next((at for at, letter in enumerate(first) if last[at : at + 1] != letter), _LONGEST_HEAD)]
        parts: dict[str, list[str]] = {}
        for text in members if len(head) < _LONGEST_HEAD and len(members) > 1 else ():
            parts.setdefault(text[: len(head) + 1], []).append(text)
        if not parts or count + len(parts) - 1 > most:
            found[head] = members
            continue
        count += len(parts) - 1
        for begin, part in parts.items():
            heapq.heappush(waiting, (-len(part), begin, part))
    return dict(sorted(found.items()))


def outline_of(texts: Sequence[str]) -> dict[str, Any]:
    """Return the heads of some distinct strings, and the group of each.

    >>> outline_of(["ab", "b"])["groups"]
    [{'letters': 6, 'shortest': 2, 'longest': 2}, {'letters': 4, 'shortest': 1, 'longest': 1}]
    """
    heads = group_by_beginning(texts, min(_MOST_HEADS, max(_LEAST_HEADS, len(texts) // _STRINGS_A_HEAD)))
    return {"outline": [*heads], "groups": [_group_of(members) for members in heads.values()]}


def _group_of(texts: Sequence[str]) -> dict[str, int]:
    lengths = [*map(len, texts)]
    letters = {ord(letter) & 31 for letter in set().union(*texts)}
    return _group(sum(1 << letter for letter in letters), min(lengths), max(lengths))


def _group(letters: int, shortest: int, longest: int) -> dict[str, int]:
    return {"letters": letters, "shortest": shortest, "longest": longest}


def merge_outlines(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the outline of a file, given those of its parts.

    >>> merge_outlines([outline_of(["bbbbbbbb" + rest]) for rest in ("a", "cc", "", "d")])
    {'outline': ['bbbbbbbb'], 'groups': [{'letters': 30, 'shortest': 8, 'longest': 10}]}
    """
    groups: dict[str, dict[str, int]] = {}
    for part in parts:
        for head, group in zip(part["outline"], part["groups"], strict=True):
            groups[head] = _both(groups.get(head, group), group)
    heads = group_by_beginning(groups, _MOST_HEADS)
    return {
        "outline": [*heads],
        "groups": [functools.reduce(_both, [groups[head] for head in members]) for members in heads.values()],
    }


def _both(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return _group(
        one["letters"] | other["letters"],
        min(one["shortest"], other["shortest"]),
        max(one["longest"], other["longest"]),
    )


@dataclass(frozen=True)
class _DistinctStrings:
    """Distinct strings: one row of code points per position, and the lengths."""

    points: NDArray[np.uint32]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Sequence[str]) -> _DistinctStrings:
        points = np.zeros((_LONGEST_HEAD, len(texts)), dtype=np.uint32)
        for number, text in enumerate(texts):
            points[: len(text), number] = [ord(letter) for letter in text]
        return cls(points, np.array([len(text) for text in texts], dtype=np.int64))

    def take(self, places: NDArray[np.int64]) -> _DistinctStrings:
        return _DistinctStrings(self.points[:, places], self.lengths[places])

    def near(self, text: str, distance: int) -> NDArray[np.bool_]:
        """Mark the strings within a distance of some prefix of the text."""
        beyond = np.full(len(self.lengths), distance + 1, dtype=np.int8)
        row = {j: np.full(len(self.lengths), j, dtype=np.int8) for j in range(min(distance, len(text)) + 1)}
        near = self.lengths == 0
        for i in range(1, int(self.lengths.max(initial=0)) + 1):
            below: dict[int, NDArray[np.int8]] = {}
            for j in range(max(0, i - distance), min(len(text), i + distance) + 1):
                cell = row.get(j, beyond) + np.int8(1)
                if j:
                    replaced = row.get(j - 1, beyond) + (self.points[i - 1] != ord(text[j - 1])).view(np.int8)
                    cell = np.minimum(np.minimum(cell, replaced), below.get(j - 1, beyond) + np.int8(1))
                below[j] = np.minimum(cell, beyond)
            row = below
            if row and (ends := self.lengths == i).any():
                near |= ends & (np.minimum.reduce(list(row.values())) <= distance)
        return np.asarray(near)


@dataclass(frozen=True)
class StringHeads:
    """The heads of all files, the prefixes of the heads, and the files of each head."""

    heads: _DistinctStrings
    begins: _DistinctStrings
    begin_of: NDArray[np.int64]
    codes: NDArray[np.int64]
    owner: NDArray[np.int64]
    unknown: NDArray[np.bool_]
    letters: NDArray[np.int64]
    """The letters of the group, for each head in each file; the lengths are in the next fields."""
    shortest: NDArray[np.int64]
    longest: NDArray[np.int64]

    @classmethod
    def of(cls, lists: pa.Array, groups: pa.Array) -> StringHeads:
        """Return the heads of all files, given their lists of strings and of groups.

        Metadata of earlier versions have no groups: then any letters and lengths are possible.
        """
        counts, flat = _dictionary_of(lists)
        texts = [(text or "")[:_LONGEST_HEAD] for text in flat.dictionary.to_pylist()]
        places: dict[str, int] = {}
        begin_of = np.array([places.setdefault(text[:_BEGIN], len(places)) for text in texts], dtype=np.int64)
        codes = np.asarray(flat.indices.fill_null(0).to_numpy(zero_copy_only=False)).astype(np.int64)
        owner = np.repeat(np.arange(len(counts)), counts)
        found = [np.full(len(owner), unknown) for unknown in _ANY.values()]
        if pa.types.is_list(groups.type):
            sizes = np.asarray(groups.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
            agree = (sizes == counts) & (counts > 0)
            flat_groups = groups.filter(pa.array(agree)).flatten()
            for values, (name, unknown) in zip(found, _ANY.items(), strict=True):
                values[agree[owner]] = np.asarray(flat_groups.field(name).fill_null(unknown))
        return cls(
            _DistinctStrings.of(texts), _DistinctStrings.of(list(places)), begin_of, codes, owner, counts == 0, *found
        )

    def files_within(self, text: str, distance: int) -> NDArray[np.bool_]:
        """Mark the files that may contain a string within a distance of a text."""
        start = text[: _LONGEST_HEAD + distance]
        near = self.begins.near(start, distance)[self.begin_of]
        left = np.flatnonzero(near)
        if len(left) <= _MOST_COMPARED:
            near[left] = self.heads.take(left).near(start, distance)
        there = np.flatnonzero(near[self.codes])
        there = there[(self.shortest[there] - distance <= len(text)) & (len(text) <= self.longest[there] + distance)]
        absent = np.zeros(len(there), dtype=np.int64)
        for letter in text:
            absent += (self.letters[there] >> (ord(letter) & 31) & 1) == 0
        found = self.unknown.copy()
        found[self.owner[there[absent <= distance]]] = True
        return found
