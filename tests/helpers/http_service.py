"""HTTP services of tests: answers on a free port of the loopback, by a handler that logs nothing."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class QuietHandler(BaseHTTPRequestHandler):
    """Handler that keeps connections open, and reads and writes whole bodies."""

    protocol_version = "HTTP/1.1"

    def body(self) -> bytes:
        """The request's body."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def say(self, status: int, content: object) -> None:
        """Answer with a document as JSON, or with bytes of one."""
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up, or trusts nobody, is what some tests want."""


@contextlib.contextmanager
def serving_http(handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve until the end of the block; gives the port on 127.0.0.1."""
    with _Server(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()
