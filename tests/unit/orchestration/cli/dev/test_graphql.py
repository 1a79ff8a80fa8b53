"""What answers where Dagster should is not always Dagster."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jobs.errors import FrazilError
from orchestration.cli.dev.dagster_api import DagsterClient


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
    with answering(answer, 3) as url:
        with pytest.raises(ConnectionError):
            DagsterClient(url).ask("query { version }")
        assert DagsterClient(url).find(["frazil", "tests", "payments"]) is None
        assert DagsterClient(url).status("0c5e") is None


def told(answer: dict[str, Any]) -> bytes:
    body = json.dumps(answer).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)


def test_a_query_that_dagster_refuses_is_not_taken_for_no_answer() -> None:
    refused = told({"errors": [{"message": "database is locked"}, {"message": "cannot go on"}]})
    with answering(refused, 2) as url:
        with pytest.raises(FrazilError, match="refused a query: database is locked; cannot go on"):
            DagsterClient(url).find(["frazil", "tests", "payments"])
        with pytest.raises(FrazilError, match="refused a query: database is locked"):
            DagsterClient(url).status("0c5e")


def test_the_status_of_a_run_and_of_one_that_dagster_does_not_know() -> None:
    with answering(told({"data": {"runOrError": {"status": "STARTED"}}}), 1) as url:
        assert DagsterClient(url).status("0c5e") == "STARTED"
    unknown = told({"data": {"runOrError": {"message": "Run 0c5e could not be found."}}})
    with answering(unknown, 1) as url, pytest.raises(FrazilError, match="Run 0c5e could not be found"):
        DagsterClient(url).status("0c5e")
