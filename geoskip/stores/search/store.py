"""The store on an Elasticsearch or OpenSearch server; the package docstring describes the format."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from geoskip.errors import InvalidSpecificationError, MetadataError
from geoskip.metadata import FileMetadata, Header, PartFile
from geoskip.stores.encryption import SnapshotProtection
from geoskip.stores.parts import OWNER, PartStore, part_name
from geoskip.stores.search.documents import PartWriter, key_properties, slots_of
from geoskip.stores.search.index import DIGITS, OF_ENTRIES, OF_PARTS, SearchIndex, is_one_of
from geoskip.stores.search.search_files import SearchFiles, read_parts
from geoskip.stores.search.server import NotFoundError, RefusedError, Server

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")


class ElasticsearchStore(PartStore):
    """Metadata of one dataset on an Elasticsearch or OpenSearch server, for ``dataset(..., store=...)``.

    Parameters
    ----------
    hosts
        The URL of a node, or of several.
    name
        The alias of the metadata, one for each dataset.
    user, password, headers
        Credentials, or headers of every request: ``{"Authorization": "ApiKey ..."}``.
    ca_certs, verify_certs
        A file of certificates (default: the usual authorities) that TLS certificates are verified against.
    timeout
        Seconds after which a query gives up a request, and reads every file.
    patience
        Seconds for which a build repeats requests while the server is busy.
    settings
        Settings of a new index: ``{"number_of_replicas": 2}``.
    ask_above
        The number of files above which the server evaluates clauses, instead of sending columns.

    Notes
    -----
    Queries need the rights to search and to get, and should have those to see mappings, without which they read
    columns, and to open points in time; builds also to write, delete and refresh, and the first one to create the
    index. Metadata are in clear on the server, whatever protects the data: bounds and listed values are values of it.
    """

    kind = "elasticsearch"
    protection = (
        "a search server compares what documents hold, and cannot compare what is encrypted: bounds and listed values "
        "of the data are in clear there, whoever may read the index reads them; protect the server (who may read, TLS, "
        "encrypted disks), or leave store= out, and metadata are kept in files that encryption= protects"
    )
    distant = True
    costs = (
        "two requests a query, but not more often than once a second; once a snapshot its header, the columns that "
        "clauses name or a search a clause, of more than 10,000 files in pages between two requests more"
    )

    def __init__(
        self,
        hosts: str | Sequence[str],
        name: str,
        *,
        user: str | None = None,
        password: str | None = None,
        headers: Mapping[str, str] | None = None,
        ca_certs: str | None = None,
        verify_certs: bool = True,
        timeout: float = 3.0,
        patience: float = 60.0,
        settings: Mapping[str, Any] | None = None,
        ask_above: int = 2000,
    ) -> None:
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise InvalidSpecificationError(
                f"a search store's name needs lower-case letters, digits, dots, dashes and underscores, got {name!r}"
            )
        seconds = all(isinstance(given, int | float) for given in (timeout, patience))
        if not (seconds and timeout > 0 and patience >= 0):
            raise InvalidSpecificationError(f"timeout={timeout!r} and patience={patience!r} are no seconds")
        self.server = Server(
            hosts,
            user=user,
            password=password,
            headers=headers or {},
            ca_certs=ca_certs,
            verify_certs=verify_certs,
            timeout=timeout,
            patience=patience,
        )
        self.name = name
        self.ask_above = ask_above
        self._index = SearchIndex(self.server, name, {"number_of_shards": 1, **(settings or {})})
        super().__init__(self._index)

    def __repr__(self) -> str:
        return f"ElasticsearchStore({self.location!r})"

    def patiently(self) -> contextlib.AbstractContextManager[None]:
        return self.server.patiently()

    def latest(self) -> int | None:
        return self._index.latest()

    def sweep(self, running: Callable[[], Collection[str]]) -> int:
        with self.patiently():
            self._index.refresh()
            identity = self.identity()
            if identity is None:
                return 0
            parts = {"terms": {"field": "part", "size": 10_000, "include": DIGITS}}
            answer = self.server.search(self.name, {"size": 0, "query": OF_PARTS, "aggs": {"parts": parts}})
            with self.server.parsing_answer():
                stored = {bucket["key"] for bucket in answer["aggregations"]["parts"]["buckets"]}
            owned = tuple(operation[:OWNER] for operation in running()) or ("/",)
            named = {part.name for number in self.snapshots() for part in self.header(number).parts}
            left = [name for name in stored - named if not name.startswith(owned)]
            if left:
                self._index.delete_all(is_one_of("part", *left))
            others = {"bool": {"filter": [OF_ENTRIES], "must_not": [is_one_of("identity", identity)]}}
            return len(left) + self._index.delete_all(others)

    def drop(self) -> None:
        with self.patiently():
            self._index.end()
            self._snapshots.clear()

    def _files_of(self, header: Header, protection: SnapshotProtection | None) -> FileMetadata:
        return SearchFiles(self.server, self.name, header, self.ask_above)

    def _read_parts(self, base: Header, parts: Sequence[PartFile], header: Header) -> pa.Table:
        return read_parts(self.server, self.name, parts, slots_of(header.stored), None)

    def _commit_parts(self, header: Header, kept: tuple[PartFile, ...], table: pa.Table) -> Header:
        try:
            return super()._commit_parts(header, kept, table)
        except NotFoundError:  # somebody has removed the index
            raise self._dropped_error() from None

    def _write_part(self, header: Header, table: pa.Table, protection: SnapshotProtection | None) -> PartFile:
        part = PartWriter(part_name(header), table, slots_of(header.stored), self._fields_with_keys(header))
        try:
            self.server.store(self.name, part.documents())
            self._index.refresh()
        except BaseException:
            self._forget_parts([part.part()])
            raise
        return part.part()

    def _fields_with_keys(self, header: Header) -> frozenset[str]:
        """The fields of the indexes with keys, after adding their types to the server's mappings."""
        properties = key_properties(slots_of(header.stored))
        if not properties or self._takes(properties):
            return frozenset(properties)
        return frozenset(name for name, fields in properties.items() if self._takes({name: fields}))

    def _takes(self, properties: Mapping[str, Any]) -> bool:
        """Add types of keys to the mappings; False if the server refuses, so that geoskip evaluates clauses."""
        try:
            self.server.tell("PUT", f"/{self.name}/_mapping", {"properties": {"keys": {"properties": properties}}})
        except RefusedError:  # too many fields
            return False
        return True

    def _forget_parts(self, parts: Sequence[PartFile]) -> None:
        with contextlib.suppress(MetadataError):  # left for sweep
            self._index.delete_all(is_one_of("part", *(part.name for part in parts)))
