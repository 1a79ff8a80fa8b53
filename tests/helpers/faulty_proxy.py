"""Proxy before a service: passes bytes on, cuts connections, and sends requests of HTTP twice, as a test says."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Fault = Literal["", "cut", "twice", "silent", "refused", "409"]
_CONFLICT = b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass
class FaultyProxy:
    """Fault of the proxy for the next connections with a request.

    Attributes:
        port: Port of the proxy, on 127.0.0.1.
        fault: `cut`: the request is passed on, and the connection ends before the answer; `twice`: the request is
            passed on a second time, and the second answer counts; `silent`: nothing is passed on, and nothing
            answered; `refused`: the connection ends at once; `409`: the proxy itself answers so.
        times: Number of requests with the fault; further ones pass.
        only: Bytes that a request must contain to get the fault.
    """

    target: tuple[str, int]
    port: int = 0
    fault: Fault = ""
    times: int = 0
    only: bytes = b""
    ended: threading.Event = field(default_factory=threading.Event)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def arm(self, fault: Fault, times: int = 1, only: bytes = b"") -> None:
        """Treat the next requests so."""
        self.fault, self.times, self.only = fault, times, only

    def take(self, request: bytes) -> Fault:
        with self.guard:
            if self.times <= 0 or self.only not in request:
                return ""
            self.times -= 1
            return self.fault

    def serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self.target) as server:
            client.settimeout(60)
            server.settimeout(60)
            while request := client.recv(1 << 16):
                fault = self.take(request)
                if fault == "refused":
                    return
                if fault == "409":
                    client.sendall(_CONFLICT)
                    return
                if fault == "silent":
                    self.ended.wait(60)
                    return
                request = _whole(client, request)
                if fault == "twice":
                    with socket.create_connection(self.target) as before:
                        before.sendall(request)
                        before.recv(1 << 16)
                server.sendall(request)
                answer = server.recv(1 << 16)
                if fault == "cut":
                    return
                client.sendall(answer)
                self.pass_rest(server, client)

    def pass_rest(self, server: socket.socket, client: socket.socket) -> None:
        """Pass on the rest of the server's response, until the next request."""
        server.setblocking(False)
        try:
            while more := self.soon(server):
                client.sendall(more)
        finally:
            server.settimeout(60)

    def soon(self, server: socket.socket) -> bytes:
        deadline = time.monotonic() + 0.02
        while time.monotonic() < deadline:
            try:
                return server.recv(1 << 16)
            except BlockingIOError:
                time.sleep(0.001)
        return b""


@contextlib.contextmanager
def faulty_proxy(port: int) -> Iterator[FaultyProxy]:
    """Pass on what comes to a free port of the loopback to another one, until the end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy = FaultyProxy(("127.0.0.1", port), listening.getsockname()[1])
        listening.settimeout(0.1)

        def accept() -> None:
            while not proxy.ended.is_set():
                with contextlib.suppress(TimeoutError, OSError):
                    client, _ = listening.accept()
                    threading.Thread(target=proxy.serve, args=(client,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.ended.set()
            thread.join()


def _whole(client: socket.socket, request: bytes) -> bytes:
    """A request of HTTP with all of its body; of another protocol what has come."""
    head, blank, body = request.partition(b"\r\n\r\n")
    if not blank or not head.startswith((b"GET ", b"PUT ", b"HEAD ", b"DELETE ", b"POST ")):
        return request
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"expect":
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            request = request.replace(line + b"\r\n", b"")
        if name.lower() == b"content-length":
            while len(body) < int(value):
                more = client.recv(1 << 16)
                if not more:
                    break
                body, request = body + more, request + more
    return request
