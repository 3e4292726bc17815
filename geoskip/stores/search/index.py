"""The server's index of a dataset's metadata: its mappings, its log, and numbered entries as texts."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from geoskip.errors import MetadataError
from geoskip.metadata import FORMAT, check_format
from geoskip.stores.base import new_identity
from geoskip.stores.log_files import Kind, TextKey
from geoskip.stores.search.server import AlreadyExistsError, ForbiddenError, Json, NotFoundError, RefusedError, Server

DIGITS = "[0-9a-f]{32}"
"""The pattern of identities and names of parts."""
_IDENTITY = re.compile(DIGITS)
_MOST_FIELDS = 3000
_LOG = "log"
_FEW = 10
_ALONE, _TOGETHER = 2, 1000
"""Maximum number of entries that are removed one by one, and with one request."""
_AT_ONCE, _BATCH = 100_000, 5000
"""Maximum number of documents that a request removes, so that it takes seconds, and of a batch on the server.
OpenSearch sends a header for each batch, and Python accepts at most a hundred headers."""

_MAPPINGS: Json = {
    "dynamic": False,
    "properties": {
        "kind": {"type": "keyword"},
        "identity": {"type": "keyword"},
        "number": {"type": "long"},
        "text": {"type": "keyword", "index": False, "doc_values": False},
        "part": {"type": "keyword"},
        "row": {"type": "integer"},
        "column": {"type": "keyword"},
        "path": {"type": "keyword", "ignore_above": 4096},
        "size": {"type": "long"},
        "mtime": {"type": "long"},
        "rows": {"type": "long"},
        "summaries": {"type": "object", "enabled": False},
        "keys": {"type": "object", "dynamic": False},
    },
}


class SearchIndex:
    """One alias of a server, and the index behind it; its texts are documents."""

    def __init__(self, server: Server, name: str, settings: Mapping[str, Any]) -> None:
        self.server, self.name = server, name
        self.location = f"{server.location}/{name}"
        self._settings = settings

    def identity(self) -> str | None:
        """The identity of the log, or None."""
        try:
            return self._identity_in(self.server.document(self.name, _LOG))
        except NotFoundError:
            return None

    def begin(self) -> None:
        """Create the index and the log if they are missing."""
        exists = self._exists() or self._create_index()
        document = {"kind": _LOG, "identity": new_identity(), "number": 2**63 - 1, "format": FORMAT}
        path = f"/{self.name}/_create/{_LOG}"
        try:
            with contextlib.suppress(AlreadyExistsError):
                self.server.tell("PUT", path, document, require_alias="true", refresh="true")
        except NotFoundError:
            if exists:
                raise
            raise MetadataError(
                f"{self.server.location} has an index {self.name}-000001 without the alias {self.name}: give it that "
                "alias again, or remove it if nobody needs it, or give the store another name"
            ) from None

    def _exists(self) -> bool | None:
        """True if the alias exists for an index of geoskip; None if the credentials do not permit the request.

        Raises MetadataError if the name is used for something else, which must not be changed.
        """
        try:
            answer = self.server.ask("GET", f"/{self.name}/_mapping")
        except NotFoundError:
            return False
        except ForbiddenError:
            return None
        with self.server.parsing_answer():
            known = {name: kind.get("mappings", {}).get("properties", {}) for name, kind in answer.items()}
        if len(known) == 1 and self.name not in known and all(map(_is_ours, known.values())):
            return True
        raise MetadataError(
            f"{self.location} should be an alias of one index, made by geoskip, and is "
            f"{'an index' if self.name in known else f'one of {sorted(known)}'}; give the store a name of its own"
        )

    def _create_index(self) -> bool:
        """Create the index; False if it exists."""
        body = {
            "aliases": {self.name: {}},
            "settings": {"index.mapping.total_fields.limit": _MOST_FIELDS, **self._settings},
            "mappings": _MAPPINGS,
        }
        try:
            self.server.tell("PUT", f"/{self.name}-000001", body)
        except RefusedError as error:
            if "already exists" not in str(error):
                raise
            return False
        return True

    def latest(self) -> int | None:
        """The highest number of a snapshot, by one search that returns the document of the log first."""
        order = {"number": {"order": "desc", "unmapped_type": "long"}}  # a foreign index may have no such field
        query = is_one_of("kind", _LOG, "snapshot")
        body = {"query": query, "sort": [order], "size": _FEW, "_source": ["kind", "identity", "format"]}
        try:
            answer = self.server.search(self.name, body)
        except NotFoundError:
            return None
        with self.server.parsing_answer():
            hits = answer["hits"]["hits"]
            if not hits or hits[0]["_source"].get("kind") != _LOG:
                return None
            identity = self._identity_in(hits[0]["_source"])
            found = [int(hit["sort"][0]) for hit in hits[1:] if hit["_source"].get("identity") == identity]
            if found or len(hits) < _FEW:
                return max(found, default=None)
        return max(self.numbers("snapshot", identity), default=None)

    def end(self) -> None:
        """Remove the document of the log, so that readers find none, then all others; the index is kept."""
        if self._exists() is False:
            return
        self.delete(_LOG)
        with contextlib.suppress(NotFoundError):
            self.delete_all({"bool": {"should": [OF_PARTS, OF_ENTRIES], "minimum_should_match": 1}})

    def _identity_in(self, source: Json) -> str:
        if source.get("kind") != _LOG:
            raise MetadataError(
                f"{self.location} is somebody else's, who has a {_LOG!r} there; give the store a name of its own"
            )
        check_format(source)
        found = source.get("identity")
        if not (isinstance(found, str) and _IDENTITY.fullmatch(found)):
            raise MetadataError(f"the log in {self.location} has no identity")
        return found

    def create(self, key: TextKey, text: bytes) -> None:
        """Create a text exclusively; it counts as created if only the response was lost."""
        mark = new_identity()
        document = {**key._asdict(), "mark": mark, "text": text.decode("ascii")}
        path = f"/{self.name}/_create/{_entry(key)}"
        try:
            self.server.tell("PUT", path, document, require_alias="true", refresh="true")
        except NotFoundError:
            raise
        except MetadataError:
            with contextlib.suppress(NotFoundError):
                if self.server.document(self.name, _entry(key)).get("mark") == mark:
                    return
            self.refresh()  # so that the next attempt finds an entry with this number
            raise

    def label(self, key: TextKey) -> str:
        return f"snapshot {key.number}" if key.kind == "snapshot" else f"entry {key.number} of the operation log"

    def read(self, key: TextKey) -> bytes:
        source = self.server.document(self.name, _entry(key))
        if (source.get("kind"), source.get("identity"), source.get("number")) != key:
            raise MetadataError(f"{key.kind} {key.number} in {self.location} is another's")
        return str(source.get("text")).encode("utf-8", "replace")

    def numbers(self, kind: Kind, identity: str) -> tuple[int, ...]:
        query = {"bool": {"filter": [is_one_of("kind", kind), is_one_of("identity", identity)]}}
        body = {"query": query, "sort": [{"number": "asc"}], "_source": False}
        try:
            self.refresh()
            pages = self.server.pages(self.name, body, 0, 10_000)
            with self.server.parsing_answer():
                return tuple(int(hit["sort"][0]) for page in pages for hit in page["hits"]["hits"])
        except NotFoundError:
            return ()

    def forget(self, kind: Kind, identity: str, *numbers: int) -> None:
        names = [_entry(TextKey(kind, identity, number)) for number in numbers]
        if len(names) <= _ALONE:
            for name in names:
                self.delete(name)
            return
        for start in range(0, len(names), _TOGETHER):
            with contextlib.suppress(NotFoundError):
                self.delete_all({"ids": {"values": names[start : start + _TOGETHER]}})

    def refresh(self) -> None:
        """Make written documents visible to searches; without write permission this happens a second later."""
        with contextlib.suppress(NotFoundError, ForbiddenError):
            self.server.tell("POST", f"/{self.name}/_refresh")

    def delete(self, name: str) -> None:
        """Remove a document if it exists."""
        with contextlib.suppress(NotFoundError):
            self.server.tell("DELETE", f"/{self.name}/_doc/{name}", refresh="true")

    def delete_all(self, query: Json) -> int:
        """Remove all documents that match a query; returns their number."""
        self.refresh()
        path, body = f"/{self.name}/_delete_by_query", {"query": query, "max_docs": _AT_ONCE}
        removed = 0
        while True:
            answer = self.server.tell("POST", path, body, conflicts="proceed", refresh="true", scroll_size=str(_BATCH))
            with self.server.parsing_answer():
                deleted, seen = int(answer.get("deleted", 0)), int(answer.get("total", 0))
            removed += deleted
            if not deleted or seen < _AT_ONCE:
                return removed


def is_one_of(member: str, *values: str) -> Json:
    """The query for documents with one of these values in a member."""
    return {"terms": {member: list(values)}}


OF_PARTS: Json = {"bool": {"filter": [is_one_of("kind", "file", "block"), {"regexp": {"part": DIGITS}}]}}
OF_ENTRIES: Json = {"bool": {"filter": [is_one_of("kind", "snapshot", "operation"), {"regexp": {"identity": DIGITS}}]}}
"""The queries for geoskip's documents, except that of the log: the index may have foreign documents."""


def _is_ours(properties: Mapping[str, Any]) -> bool:
    """True for the mappings of an index that geoskip created."""
    types = {name: properties.get(name, {}).get("type") for name in ("kind", "identity", "part", "number", "row")}
    return types == {name: _MAPPINGS["properties"][name]["type"] for name in types} and (
        properties.get("summaries", {}).get("enabled") is False
    )


def _entry(key: TextKey) -> str:
    return f"{key.kind}-{key.identity}-{key.number:08d}"
