"""Runs of a deployment's Dagster: which ones end with its services, and what a failed one reports."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin

from jobs.base.errors import FrazilError
from orchestration.cli.local.dev.dagster_api import DagsterClient, end_runs, why_failed

HOME = Path("/home/of/dagster")
STATUS = dg.DagsterRunStatus


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        monkeypatch.setattr(dg.DagsterInstance, "from_config", lambda _: contextlib.nullcontext(made))

        def cancel(run_id: str) -> None:
            run = made.get_run_by_id(run_id)
            assert run is not None
            made.report_run_canceled(run)

        monkeypatch.setattr(made.run_coordinator, "cancel_run", cancel)
        yield made


@dg.op
def fail() -> None:
    raise dg.Failure("stream payments: topic payments does not exist.")


@dg.op
def break_down() -> None:
    raise KeyError("amount")


@dg.job
def failing() -> None:
    fail()


@dg.job
def broken() -> None:
    break_down()


def begun(instance: dg.DagsterInstance, socket: str, status: dg.DagsterRunStatus = STATUS.STARTED) -> str:
    """A run that was given to a code server."""
    server = json.dumps({"host": "localhost", "socket": socket})
    return instance.create_run_for_job(failing, status=status, tags={".dagster/grpc_info": server}).run_id


def statuses(instance: dg.DagsterInstance, *runs: str) -> list[dg.DagsterRunStatus]:
    found = [instance.get_run_by_id(run) for run in runs]
    return [run.status for run in found if run is not None]


def test_runs_of_another_code_server_go_on(instance: dg.DagsterInstance) -> None:
    mine, starting = begun(instance, "/tmp/mine"), begun(instance, "/tmp/mine", STATUS.STARTING)
    other = begun(instance, "/tmp/other")
    done = begun(instance, "/tmp/mine", STATUS.SUCCESS)
    end_runs(HOME, {"/tmp/mine"}, time.time() + 60, 60.0)
    assert statuses(instance, mine, starting, other, done) == [
        STATUS.CANCELED,
        STATUS.CANCELED,
        STATUS.STARTED,
        STATUS.SUCCESS,
    ]


def test_runs_that_wait_end_if_they_were_made_since_the_services_began(instance: dg.DagsterInstance) -> None:
    origin = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "frazil").get_job_origin("failing")
    run = instance.create_run_for_job(failing, status=STATUS.QUEUED, remote_job_origin=origin)
    waiting = run.run_id
    end_runs(HOME, (), time.time() + 60, 60.0)
    assert statuses(instance, waiting) == [STATUS.QUEUED]
    end_runs(HOME, (), time.time() - 60, 60.0)
    assert statuses(instance, waiting) == [STATUS.CANCELED]


def test_a_failed_run_reports_a_sentence(instance: dg.DagsterInstance) -> None:
    stopped = failing.execute_in_process(instance=instance, raise_on_error=False)
    assert why_failed(HOME, stopped.run_id) == "stream payments: topic payments does not exist."
    crashed = broken.execute_in_process(instance=instance, raise_on_error=False)
    assert 'executing op "break_down"' in why_failed(HOME, crashed.run_id)
    assert why_failed(HOME, begun(instance, "/tmp/mine")) == "it does not say why"


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
