"""A REST catalog over TLS that has one namespace, and nothing else to say."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.helpers.tls import Tls


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"defaults":{},"overrides":{}}' if "config" in self.path else b'{"namespaces":[["lake"]]}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is what some tests want."""


@contextlib.contextmanager
def silent_catalog(tls: Tls, *, certificates: bool = False) -> Iterator[str]:
    """Run it until the end; gives its URI.

    Args:
        tls: Of the authority that has signed its certificate.
        certificates: It takes nobody without one of the same authority.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.keystore)
    if certificates:
        context.load_verify_locations(tls.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    server = _Server(("127.0.0.1", 0), _Answers)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
