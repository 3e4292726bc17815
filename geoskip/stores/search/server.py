"""The client of a search server: requests, their timeouts and retries, and the server's errors.

A query's requests wait for ``timeout`` seconds, and are not repeated on the same host except after a closed connection.
After a slow failure, requests of queries fail immediately for five times its duration, so that a server that hangs does
not delay each query. A build's requests are repeated with growing pauses while the server is busy or unreachable, each
for ``patience`` seconds. After that, the requests with which the build cleans up are tried once.
"""

from __future__ import annotations

import base64
import logging
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from geoskip.errors import EnvironmentProblem, GeoskipError, InvalidSpecificationError, MetadataError

Json = dict[str, Any]

_BUSY = frozenset([408, 429, 500, 502, 503, 504])
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_PAUSES = 5
"""Duration without requests after a slow failure, as a multiple of the failure's duration."""
_SLOW = 0.5
"""Seconds above which a failure counts as slow."""
_LONGEST_BULK, _SHORTEST_BULK = 5 << 20, 1 << 16
_PAGE = 10_000
"""Maximum number of hits in a page; the default limit of servers."""


class NotFoundError(MetadataError, FileNotFoundError):
    """The index, alias or document does not exist."""


class AlreadyExistsError(MetadataError, FileExistsError):
    """The document exists."""


class RefusedError(MetadataError):
    """The server rejects the request as invalid or too large."""


class _TooLargeError(RefusedError):
    """The request is longer than the server, or a proxy in front of it, accepts."""


class ForbiddenError(MetadataError):
    """The credentials do not allow the request."""


class Server:
    """A client of a cluster, which uses any of its hosts."""

    def __init__(
        self,
        hosts: str | Sequence[str],
        *,
        user: str | None,
        password: str | None,
        headers: Mapping[str, str],
        ca_certs: str | None,
        verify_certs: bool,
        timeout: float,
        patience: float,
    ) -> None:
        urls = [checked_url(host) for host in ([hosts] if isinstance(hosts, str) else hosts or ())]
        if not urls:
            raise InvalidSpecificationError("a search store needs the URL of a host, such as 'https://search:9200'")
        if (user is None) is not (password is None):
            raise InvalidSpecificationError("a search store needs user= and password= together")
        secret = user is not None or bool(headers)
        if secret and (plain := next((url for url in urls if not is_private(url)), None)) is not None:
            raise InvalidSpecificationError(f"credentials would go to {plain} in clear: use https://, or a local host")
        self.location = urls[0] if len(urls) == 1 else f"{urls[0]} and {len(urls) - 1} others"
        self.timeout, self.patience = timeout, patience
        self._resting, self._why = 0.0, ""
        self._longest = _LONGEST_BULK
        self._local = threading.local()
        client, self._errors = opensearch()
        self._client = client(
            urls,
            headers=headers_with(headers, user, password),
            ca_certs=ca_certs,
            verify_certs=verify_certs,
            ssl_show_warn=False,
            http_compress=True,
            timeout=timeout,
            max_retries=max(1, len(urls) - 1),
            pool_maxsize=8,
        )

    def ask(self, method: str, path: str, body: Any = None, **params: Any) -> Json:
        """Send a query's request.

        Parameters
        ----------
        method, path, body, params
            The HTTP request, its JSON body or None, and the parameters of the URL.

        Returns
        -------
        Json
            The response, within the timeout.

        Raises
        ------
        MetadataError
            If the request fails; the subclasses above name some causes.
        """
        if getattr(self._local, "patient", False):
            return self.tell(method, path, body, **params)
        now = time.monotonic()
        if now < self._resting:
            raise MetadataError(f"{self._why}; it is asked again in {self._resting - now:.0f} s")
        try:
            return self._answer(method, path, body, params, self.timeout)
        except (NotFoundError, AlreadyExistsError, RefusedError, ForbiddenError):
            raise
        except MetadataError as error:
            took = time.monotonic() - now
            if took > _SLOW:
                self._resting, self._why = time.monotonic() + _PAUSES * took, str(error)
            raise

    @contextmanager
    def patiently(self) -> Iterator[None]:
        """A block in which all requests of this thread count as requests of a build."""
        before, self._local.patient = getattr(self._local, "patient", False), True
        self._local.gone = before and self._local.gone
        try:
            yield
        finally:
            self._local.patient = before

    def tell(self, method: str, path: str, body: Any = None, **params: Any) -> Json:
        """Send a build's request; repeat it while the server is busy.

        Parameters
        ----------
        method, path, body, params
            As for :meth:`ask`; result and errors are the same too.
        """
        until, pause = time.monotonic() + (0 if getattr(self._local, "gone", False) else self.patience), _FIRST_PAUSE
        while True:
            left = max(until - time.monotonic(), self.timeout)
            try:
                return self._answer(method, path, body, params, left)
            except _BusyError as error:
                if time.monotonic() + pause > until:
                    self._local.gone = True
                    raise MetadataError(str(error)) from error
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def store(self, index: str, documents: Iterable[tuple[str, str]]) -> None:
        """Write documents, given as (id, JSON), replacing those with the same ids."""
        lines: list[str] = []
        size = 0
        for name, document in documents:
            lines += [f'{{"index":{{"_id":"{name}"}}}}\n', document, "\n"]
            size += len(document)
            if size > self._longest:
                self._bulk(index, lines)
                lines, size = [], 0
        if lines:
            self._bulk(index, lines)

    def _bulk(self, index: str, lines: list[str]) -> None:
        until, pause = time.monotonic() + self.patience, _FIRST_PAUSE
        while lines:
            try:
                answer = self.tell("POST", f"/{index}/_bulk", "".join(lines), require_alias="true")
            except _TooLargeError:
                if len(lines) == 3:
                    raise
                self._longest = max(self._longest // 2, _SHORTEST_BULK)
                half = len(lines) // 6 * 3
                self._bulk(index, lines[:half])
                lines = lines[half:]
                continue
            with self.parsing_answer():
                items = [item["index"] for item in answer["items"]]
                failed = [(at, item) for at, item in enumerate(items) if item["status"] >= 300]
            if len(items) != len(lines) // 3:
                raise MetadataError(f"{self.location} answered for {len(items)} of {len(lines) // 3} documents")
            lasting = next((item for _, item in failed if item["status"] not in _BUSY), None)
            if failed and (lasting or time.monotonic() > until):
                _, item = failed[0] if lasting is None else (0, lasting)
                reason = item.get("error", {}).get("reason", "")
                kind = NotFoundError if item["status"] == 404 else MetadataError
                raise kind(f"{self.location} did not store a document: {item['status']} {reason}"[:500])
            if failed:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            lines = [line for at, _ in failed for line in lines[3 * at : 3 * at + 3]]

    def search(self, index: str, body: Json, **params: Any) -> Json:
        """Search an index; raises MetadataError for a partial result."""
        answer = self.ask("POST", f"/{index}/_search", body, allow_partial_search_results="false", **params)
        self._check_whole(answer)
        if "filter_path" not in params and not isinstance(answer.get("hits"), dict):
            raise MetadataError(f"{self.location} was not understood: a search's answer without hits")
        return answer

    @contextmanager
    def parsing_answer(self) -> Iterator[None]:
        """A block that turns errors from unexpected JSON into MetadataError."""
        try:
            yield
        except GeoskipError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            reason = f"{type(error).__name__}: {_short(error)}"
            raise MetadataError(f"{self.location} was not understood: an answer of another shape: {reason}") from None

    def document(self, index: str, name: str) -> Json:
        """The current content of a document, without a refresh; raises NotFoundError if it is missing."""
        source = self.ask("GET", f"/{index}/_doc/{name}").get("_source")
        if not isinstance(source, dict):
            raise MetadataError(f"{self.location} was not understood: a document without content")
        return source

    def pages(self, index: str, body: Json, expected: int, size: int, **params: Any) -> Iterator[Json]:
        """Search page by page.

        Parameters
        ----------
        index, body, params
            The index or alias, the search with a ``sort`` that is unique for each hit, and the parameters of the URL.
        expected
            The expected number of hits: more than one page is read from a point in time, if the server supports it.
        size
            The maximum number of hits in a page.
        """
        size = min(size, _PAGE)
        request = {**body, "size": size}
        pit = self._point_in_time(index) if expected > size else None
        try:
            while True:
                if pit is None:
                    answer = self.search(index, request, **params)
                else:
                    request["pit"] = {"id": pit, "keep_alive": "1m"}
                    try:
                        answer = self.ask("POST", "/_search", request, **params)
                    except NotFoundError:  # expired, or the server was restarted
                        pit = None
                        del request["pit"]
                        if "search_after" in request:
                            request["search_after"] = request["search_after"][: len(body["sort"])]
                        continue
                    self._check_whole(answer)
                    pit = answer.get("pit_id", pit)
                with self.parsing_answer():
                    hits = answer.get("hits", {}).get("hits", [])
                    after = hits[-1]["sort"] if len(hits) >= size else None
                    for hit in hits:  # Elasticsearch since 7.12 appends a tiebreaker
                        hit["sort"] = hit["sort"][: len(body["sort"])]
                yield answer
                if after is None:
                    return
                request["search_after"] = after
                request.pop("aggs", None)
        finally:
            if pit is not None:
                self._close(pit)

    def _point_in_time(self, index: str) -> str | None:
        """Open a point in time; None if the server has none, as without Elasticsearch's basic licence.

        Pages are correct without it: parts do not change, and counting the rows detects documents deleted meanwhile.
        """
        for path, member in (("_search/point_in_time", "pit_id"), ("_pit", "id")):
            with suppress(MetadataError, LookupError, TypeError):
                return str(self._answer("POST", f"/{index}/{path}", None, {"keep_alive": "1m"}, self.timeout)[member])
        return None

    def _close(self, pit: str) -> None:
        with suppress(MetadataError):  # it expires anyway
            self._answer("DELETE", "/_search/point_in_time", {"pit_id": [pit]}, {}, self.timeout)
            return
        with suppress(MetadataError):
            self._answer("DELETE", "/_pit", {"id": pit}, {}, self.timeout)

    def _check_whole(self, answer: Json) -> None:
        if answer.get("timed_out") or answer.get("_shards", {}).get("failed"):
            raise MetadataError(f"{self.location} answered a search in part")

    def _answer(self, method: str, path: str, body: Any, params: Mapping[str, Any], timeout: float) -> Json:
        errors = self._errors
        try:
            answer = self._client.transport.perform_request(
                method, path, params=dict(params), body=body, timeout=timeout
            )
        except errors.NotFoundError as error:
            raise NotFoundError(f"{self.location} has no {path[1:].partition('/')[0]}: {_reason(error)}") from None
        except errors.ConflictError as error:
            raise AlreadyExistsError(f"{self.location}: {_reason(error)}") from None
        except errors.RequestError as error:
            raise RefusedError(f"{self.location} refused a request: {_reason(error)}") from None
        except (errors.AuthenticationException, errors.AuthorizationException) as error:
            if error.error == "cluster_block_exception":  # such as a read-only index
                raise MetadataError(f"{self.location} answered {error.status_code}: {_reason(error)}") from None
            raise ForbiddenError(
                f"{self.location} refused the credentials: {error.status_code} {_reason(error)}"
            ) from None
        except errors.ConnectionTimeout:
            raise _BusyError(f"{self.location} did not answer within {timeout:.1f} s") from None
        except errors.SSLError as error:
            raise MetadataError(f"{self.location} cannot be trusted: {_short(error.error)}") from None
        except errors.ConnectionError as error:
            raise _BusyError(f"{self.location} cannot be reached: {_short(error.error)}") from None
        except errors.TransportError as error:
            kind = (
                _TooLargeError
                if error.status_code == 413
                else _BusyError
                if error.status_code in _BUSY
                else MetadataError
            )
            if "maxClauseCount" in _reason(error):  # OpenSearch answers 500
                kind = RefusedError
            raise kind(f"{self.location} answered {error.status_code}: {_reason(error)}") from None
        except GeoskipError:
            raise
        except Exception as error:  # such as a response that is not JSON
            raise MetadataError(
                f"{self.location} was not understood: {type(error).__name__}: {_short(error)}"
            ) from None
        if method == "HEAD" or not isinstance(answer, dict):
            raise MetadataError(f"{self.location} was not understood: {_short(answer)}")
        return answer


class _BusyError(MetadataError):
    """The server is busy or unreachable."""


def _reason(error: Any) -> str:
    """The server's reason for an error, shortened."""
    info = error.info if isinstance(error.info, dict) else {}
    told = info.get("error")
    if isinstance(told, dict):
        causes = told.get("root_cause") or [told]
        return _short(causes[0].get("reason", told.get("reason", "")))
    return _short(told or error.error)


def _short(text: object) -> str:
    return " ".join(str(text).split())[:300]


_HEADER = re.compile(r"(?! )[ -~\x80-\xff]*(?<! )")


def opensearch() -> tuple[Any, Any]:
    """The client class and its exceptions; raises EnvironmentProblem if it is not installed."""
    try:
        import opensearchpy
    except ImportError:
        raise EnvironmentProblem(
            "metadata in Elasticsearch or OpenSearch need opensearch-py: pip install 'geoskip[elasticsearch]'"
        ) from None
    # failures are raised, not printed to the driver's console; handlers of the user still get the records
    logging.getLogger("opensearch").addHandler(logging.NullHandler())
    return opensearchpy.OpenSearch, opensearchpy.exceptions


def checked_url(url: str) -> str:
    """Check and complete a host's URL; raises InvalidSpecificationError without quoting a password."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 9200)
    except (ValueError, TypeError, AttributeError):  # any part of it may be a password
        raise InvalidSpecificationError("a search store needs URLs such as 'https://search:9200'") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidSpecificationError("give a search store's credentials as user= and password=, not in the URL")
    if parts.query or parts.fragment:
        raise InvalidSpecificationError("a search store's URL ends with its port or path: 'https://search:9200'")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidSpecificationError(f"a search store needs URLs such as 'https://search:9200', got {url!r}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"


def headers_with(headers: Mapping[str, str], user: str | None, password: str | None) -> dict[str, str]:
    """The headers of every request, with the credentials encoded in UTF-8 as servers expect.

    Raises InvalidSpecificationError for a value that is not valid in a header, such as a key with a line break; unlike
    the client's error, it does not quote the value.
    """
    for name, value in headers.items():
        if not (isinstance(value, str) and _HEADER.fullmatch(value)):
            raise InvalidSpecificationError(
                f"headers= has a value of {name} that no header can hold: a text without line breaks, and without "
                "blanks around it, is needed"
            )
    if user is None or password is None:
        return dict(headers)
    if not (isinstance(user, str) and isinstance(password, str)):
        raise InvalidSpecificationError("a search store's user= and password= are texts")
    credentials = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
    return {**headers, "Authorization": f"Basic {credentials}"}


def is_private(url: str) -> bool:
    """True if requests to this URL are encrypted or stay on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1", "::1")
