"""Proxy before an S3 server: fails uploads as a test says, whether or not it has carried them out."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from tests.helpers.http_service import QuietHandler, serving_http

Fault = Literal["", "503", "done 503", "cut", "half"]
_OWN_HEADERS = ("expect", "connection")
_BUSY = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)


@dataclass
class StoreProxy:
    """Treatment of the next requests that write.

    Attributes:
        target: The port of the server.
        port: Port of the proxy, on 127.0.0.1.
        fault: `503`: it is answered so, and nothing else happens; `done 503`: the same, but it was carried out; `cut`:
            it is carried out, and the connection ends before the answer; `half`: the connection ends amid the request.
        times: Number of requests that are treated so; further ones pass.
        only: A request is meant only if its path has this in it.
    """

    target: int
    port: int = 0
    fault: Fault = ""
    times: int = 0
    only: str = ""
    guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def endpoint(self) -> str:
        """The endpoint of the store through the proxy."""
        return f"http://127.0.0.1:{self.port}"

    def arm(self, fault: Fault, times: int = 1, only: str = "") -> None:
        """Treat the next requests so."""
        with self.guard:
            self.fault, self.times, self.only = fault, times, only

    def take(self, path: str) -> Fault:
        with self.guard:
            if self.times <= 0 or self.only not in path:
                return ""
            self.times -= 1
            return self.fault


@contextmanager
def store_proxy(port: int) -> Iterator[StoreProxy]:
    """Pass on what comes to a free port of the loopback to the server, until the end."""
    proxy = StoreProxy(port)

    class Handler(QuietHandler):
        def handle_any(self) -> None:
            fault = proxy.take(self.path) if self.command in ("PUT", "POST") else ""
            if fault == "half":
                self.rfile.read(1)
                self.close_connection = True
                return
            body = self.body()
            if fault == "503":
                self.busy()
                return
            answer, content = self.passed_on(body)
            if fault == "cut":
                self.close_connection = True
            elif fault == "done 503":
                self.busy()
            else:
                self.give(answer, content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815

        def body(self) -> bytes:
            """Raw body of the request, including the frames of its chunks."""
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return super().body()
            raw = b""
            while True:
                line = self.rfile.readline()
                raw += line
                size = int(line.split(b";")[0], 16)
                if size == 0:
                    break
                raw += self.rfile.read(size + 2)
            while (line := self.rfile.readline()) not in (b"\r\n", b""):
                raw += line
            return raw + b"\r\n"

        def passed_on(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", proxy.target, timeout=60)
            try:
                # The host is signed, too.
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in _OWN_HEADERS:
                        connection.putheader(name, value)
                connection.endheaders()
                connection.send(body)
                answer = connection.getresponse()
                return answer, answer.read()
            finally:
                connection.close()

        def give(self, answer: http.client.HTTPResponse, content: bytes) -> None:
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            self.wfile.write(content)

        def busy(self) -> None:
            self.send_response_only(503)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(_BUSY)))
            self.end_headers()
            self.wfile.write(_BUSY)

    with serving_http(Handler) as proxy.port:
        yield proxy
