"""Metrics over one array: the angle between vectors, and Jaccard's distance of sets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geoskip.metrics.base import Floats, Metric, Points
from geoskip.metrics.numbers import LARGEST, doubles
from geoskip.types import sql_type

__all__ = ["Angular", "Jaccard"]

_SHORTEST = 1e-100


class Angular(Metric):
    """The angle between two vectors, in radians: ``acos`` of the cosine similarity.

    Many points are a matrix of unit vectors, one a row. A zero vector, one with NULL or NaN, and one of another
    dimension than the pivots have no angle.
    """

    name: ClassVar[str] = "angular"
    slack: ClassVar[float] = 1e-6
    """Radians: where the cosine is near 1, the error of ``acos`` is the root of a rounding error."""

    def refusal(self, types: Sequence[str]) -> str | None:
        if len(types) == 1 and sql_type(types[0]).element.is_numeric:
            return None
        return f"angular is over one array of numbers, got {', '.join(types)}"

    def points(self, values: Sequence[pa.Array], like: Any = None) -> Points:
        (array,) = values
        nulls = array.null_count
        present = array.drop_null()
        lengths = np.asarray(present.value_lengths().to_numpy(zero_copy_only=False), dtype=np.int64)
        wanted = len(like) if like is not None else _commonest(lengths)
        same = np.flatnonzero(lengths == wanted)
        chosen = present if len(same) == len(present) else present.take(pa.array(same))
        matrix = doubles(chosen.flatten()).reshape(len(chosen), wanted) if len(chosen) else np.empty((0, wanted))
        with np.errstate(all="ignore"):
            norms = np.sqrt((matrix * matrix).sum(axis=1))
            good = (norms > _SHORTEST) & (norms < LARGEST)
            units = matrix[good] / norms[good, None]
        return Points(units, len(array), nulls, nulls, len(array) - nulls - len(units))

    def point(self, constants: Sequence[Any], like: Any = None) -> tuple[float, ...] | None:
        (value,) = constants
        if not isinstance(value, tuple | list) or not value or (like is not None and len(value) != len(like)):
            return None
        if any(isinstance(v, bool) or not isinstance(v, int | float | Decimal) for v in value):
            return None
        numbers = tuple(map(float, value))
        norm = math.sqrt(sum(v * v for v in numbers))
        return numbers if _SHORTEST < norm < LARGEST else None

    def of(self, points: Sequence[Any]) -> Floats:
        matrix = np.array(points, dtype=np.float64)
        return np.asarray(matrix / np.sqrt((matrix * matrix).sum(axis=1))[:, None])

    def take(self, data: Floats, places: Sequence[int]) -> list[tuple[float, ...]]:
        return [tuple(map(float, data[place])) for place in places]

    def distances(self, origin: Any, data: Floats) -> Floats:
        unit = np.asarray(origin) / math.sqrt(sum(v * v for v in origin))
        return np.asarray(np.arccos(np.clip(data @ unit, -1.0, 1.0)))

    def count(self, data: Any) -> int:
        return len(data)


def _commonest(lengths: NDArray[np.int64]) -> int:
    return int(Counter(lengths.tolist()).most_common(1)[0][0]) if len(lengths) else 0


@dataclass(frozen=True)
class _Sets:
    """Many sets: the rows and codes of all their distinct elements, and their sizes."""

    rows: NDArray[np.int64]
    codes: NDArray[np.int64]
    sizes: NDArray[np.int64]
    elements: list[Any]


class Jaccard(Metric):
    """``1 - |a and b| / |a or b|`` of arrays as sets, NULL an element like others; 0 for two empty ones."""

    name: ClassVar[str] = "jaccard"
    slack: ClassVar[float] = 1e-12

    def refusal(self, types: Sequence[str]) -> str | None:
        element = sql_type(types[0]).element
        if len(types) == 1 and (element.is_integral or element.kind in ("boolean", "string")):
            return None
        return (
            f"jaccard is over one array of strings, whole numbers or booleans, got {', '.join(types)}; "
            "index transform(array, x -> cast(x AS string))"
        )

    def points(self, values: Sequence[pa.Array], like: Any = None) -> Points:
        (array,) = values
        nulls = array.null_count
        present = array.drop_null()
        lengths = np.asarray(present.value_lengths().to_numpy(zero_copy_only=False), dtype=np.int64)
        flat = present.flatten()
        if pa.types.is_string(flat.type) or pa.types.is_large_string(flat.type):
            flat = flat.cast(pa.large_binary())  # elements need not be UTF-8
        encoded = flat.dictionary_encode(null_encoding="encode")
        elements = [_text(element) for element in encoded.dictionary.to_pylist()]
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return Points(_sets(np.repeat(np.arange(len(lengths)), lengths), codes, len(lengths), elements),
                      len(array), nulls, nulls, 0)  # fmt: skip

    def point(self, constants: Sequence[Any], like: Any = None) -> tuple[Any, ...] | None:
        (value,) = constants
        if not isinstance(value, tuple | list | set | frozenset):
            return None
        if not all(element is None or isinstance(element, str | int) for element in value):
            return None
        return tuple(sorted(set(value), key=repr))

    def of(self, points: Sequence[Any]) -> _Sets:
        places: dict[Any, int] = {}
        rows = [row for row, point in enumerate(points) for _ in point]
        codes = [places.setdefault(element, len(places)) for point in points for element in point]
        return _sets(np.array(rows, dtype=np.int64), np.array(codes, dtype=np.int64), len(points), list(places))

    def take(self, data: _Sets, places: Sequence[int]) -> list[tuple[Any, ...]]:
        found = []
        for place in places:
            codes = data.codes[data.rows == place]
            found.append(tuple(sorted((data.elements[code] for code in codes.tolist()), key=repr)))
        return found

    def distances(self, origin: Any, data: _Sets) -> Floats:
        members = set(origin)
        known = np.array([element in members for element in data.elements], dtype=np.float64)
        common = np.bincount(data.rows, weights=known[data.codes], minlength=len(data.sizes))
        either = data.sizes + len(members) - common
        return np.asarray(np.where(either > 0, 1 - common / np.maximum(either, 1), 0.0))

    def count(self, data: _Sets) -> int:
        return len(data.sizes)

    def default_origins(self, dimensions: int) -> Sequence[Any]:
        return [()]


def _sets(rows: NDArray[Any], codes: NDArray[np.int64], count: int, elements: list[Any]) -> _Sets:
    many = max(len(elements), 1)
    once = np.unique(rows.astype(np.int64) * many + codes)
    rows, codes = once // many, once % many
    return _Sets(rows, codes, np.bincount(rows, minlength=count), elements)


def _text(element: Any) -> Any:
    return element.decode("utf-8", "surrogateescape") if isinstance(element, bytes) else element
