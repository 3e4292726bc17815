"""A proxy before a server that does to requests what networks and busy servers do."""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Proxy", "Request"]

Request = tuple[str, str]
"""A request's method and path."""
Fault = Callable[[Request], Any]
"""What to do to a request.

None lets it pass and a number is the status to answer with. ``"cut"`` cuts the connection before it, ``"lost"`` lets it
pass and cuts the connection instead of the answer, ``"hang"`` answers nothing before the proxy is closed. Any other
text is the answer.
"""


class Proxy:
    """Listens on a port of its own; ``fault`` decides about each request, ``seen`` has them all.

    ``certificate`` is a PEM file with a certificate for localhost and its key: it then speaks TLS.
    """

    def __init__(self, target: str, certificate: Path | None = None) -> None:
        self.fault: Fault = lambda request: None
        self.seen: list[Request] = []
        self.credentials: list[str | None] = []
        self.released = threading.Event()
        proxy, address = self, urlsplit(target)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else the body waits until the headers are acknowledged: 40 ms a request

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = (self.command, self.path)
                proxy.seen.append(request)
                proxy.credentials.append(self.headers.get("Authorization"))
                found = "cut" if proxy.released.is_set() else proxy.fault(request)
                if found == "hang":
                    proxy.released.wait(60)
                    found = "cut"
                if found == "cut":
                    self.close_connection = True
                    return
                if isinstance(found, int):
                    self._send(found, b'{"error": {"reason": "injected", "root_cause": [{"reason": "injected"}]}}')
                    return
                if isinstance(found, str) and found != "lost":
                    self._send(200, found.encode())
                    return
                connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
                kept = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "accept-encoding")}
                connection.request(self.command, self.path, body, kept)
                answer = connection.getresponse()
                data = answer.read()
                connection.close()
                if found == "lost":
                    self.close_connection = True
                else:
                    self._send(answer.status, data)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

            def _send(self, status: int, data: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *told: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.url = f"https://localhost:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """As if it were gone: no connection is accepted any more."""
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()
