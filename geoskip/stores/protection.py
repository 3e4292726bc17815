"""How metadata are protected: what is asked for, and what a snapshot says of it (:mod:`geoskip.stores.encryption`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from geoskip.errors import InvalidSpecificationError
from geoskip.indexes.base import Index, index_kinds
from geoskip.stores.keyring import KeyKeeper

__all__ = ["DataKey", "Encryption", "SnapshotProtection"]


@dataclass(frozen=True)
class Encryption:
    """How metadata are protected: ``key`` names the master key of everything, ``indexes`` those of single indexes.

    ``footer`` is that of the Parquet files: ``"encrypted"``, or ``"signed"`` for one that tools can read without a
    key. ``paths=False`` leaves the files' names, sizes and times in the parts in clear. Without ``key`` metadata can be
    read, and written as they are protected already.
    """

    keys: KeyKeeper = field(repr=False)
    key: str | None = None
    indexes: Mapping[Index | str, str] = field(default_factory=dict)
    footer: Literal["encrypted", "signed"] = "encrypted"
    paths: bool = True

    def __post_init__(self) -> None:
        if not (hasattr(self.keys, "wrap_key") and hasattr(self.keys, "unwrap_key")):
            raise InvalidSpecificationError(
                "Encryption(keys=) takes what has wrap_key and unwrap_key, such as KeyRing.from_file('keys.json'), "
                f"got {type(self.keys).__name__}"
            )
        if self.footer not in ("encrypted", "signed"):
            raise InvalidSpecificationError(f"Encryption(footer=) takes 'encrypted' or 'signed', got {self.footer!r}")
        if self.indexes and not self.key:
            raise InvalidSpecificationError("Encryption(indexes=) needs key= for all that is not of these indexes")
        for name in self.masters:
            if name.partition("(")[0] not in index_kinds():  # else it would silently be under the base key
                raise InvalidSpecificationError(
                    f"Encryption(indexes=) names {name!r}, which is no index; it takes MinMax('pay') or 'minmax(pay)'"
                )

    @cached_property
    def masters(self) -> dict[str, str]:
        """The master keys of single indexes by their texts."""
        return {str(index): key for index, key in self.indexes.items()}


@dataclass(frozen=True)
class DataKey:
    """A data key as entries hold it: an id of its own, the name of its master key, and itself wrapped by that."""

    id: str
    master: str
    wrapped: str


@dataclass(frozen=True)
class SnapshotProtection:
    """How one snapshot is protected: its data keys, the id of the base key, and the ids of the keys of indexes."""

    keys: Mapping[str, DataKey]
    base: str
    indexes: Mapping[str, str] = field(default_factory=dict)
    footer: str = "encrypted"
    paths: bool = True

    def again(self, given: Encryption) -> Encryption:
        """How to protect in the same way what is begun anew, in so far as the encryption that is given says no more."""
        kinds = index_kinds()
        apart = [name for name, id in self.indexes.items() if id != self.base and name.partition("(")[0] in kinds]
        names: dict[Index | str, str] = {name: self.keys[self.indexes[name]].master for name in apart}
        if given.key is not None:
            return replace(given, indexes={**names, **given.indexes})
        return Encryption(given.keys, self.keys[self.base].master, names, self._footer(), self.paths)

    def _footer(self) -> Literal["encrypted", "signed"]:
        return "signed" if self.footer == "signed" else "encrypted"

    def key_of(self, index: str) -> str:
        """The id of the data key of an index."""
        return self.indexes.get(index, self.base)
