"""What answers where Dagster should is not always Dagster."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from orchestration.cli.dev.graphql import Dagster


@contextmanager
def answering(answer: bytes, times: int) -> Iterator[str]:
    """The address of something that gives each of so many callers the same answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(times):
                caller, _ = server.accept()
                with caller:
                    caller.recv(65536)
                    caller.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            thread.join()


PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>"


@pytest.mark.parametrize("answer", [b"!xn\n", b"", PAGE], ids=["a JVM's gateway", "nothing", "another web server"])
def test_another_program_on_the_port_is_not_taken_for_dagster(answer: bytes) -> None:
    with answering(answer, 2) as url:
        with pytest.raises(ConnectionError):
            Dagster(url).ask("query { version }")
        assert Dagster(url).find(["frazil", "tests", "payments"]) is None
