"""`frazil state copy` from a folder to another: who has to be stopped, what goes on afterwards, what is the same."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from jobs.clients.state_store.document_copy import documents_of
from jobs.clients.state_store.lease import Lease
from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.store import NotWrittenError
from jobs.config.settings.settings import load_settings
from jobs.streaming.supervision.documents.control_request import (
    ControlRequest,
    read_control,
    write_control,
)
from orchestration.cli.main import main
from orchestration.cli.streams.state import _where
from tests.unit.orchestration.deployments import deployment_in


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = deployment_in(tmp_path / "home", "payments", "refunds", "held", "daily", "looked-at")
    daily = home / "streams" / "daily.yaml"
    daily.write_text(daily.read_text() + "trigger: available_now\n")
    (home / "frazil.yaml").write_text(yaml.safe_dump({"state": str(home / "old")}))
    (home / "next.yaml").write_text(yaml.safe_dump({"state": str(home / "new")}))
    return home


def ask(home: Path, stream: str, control: ControlRequest) -> None:
    write_control(LocalStore(home / "old" / "streams" / stream), control)


def stop_all(home: Path) -> None:
    for stream in ("payments", "refunds", "daily", "gone"):
        ask(home, stream, ControlRequest("stopped", 0, "stop", "it moves", "ann", 20.0))
    ask(home, "looked-at", ControlRequest("stopped", 0, "stop", "it moves", "ann", 20.0, "a look at it, by Ann"))
    ask(home, "held", ControlRequest("stopped", 0, "stop", "a suspicion", "bob", 10.0))


def copy(home: Path) -> Result:
    arguments = ["--home", str(home), "state", "copy", "--to", str(home / "next.yaml")]
    result = CliRunner().invoke(main, arguments)
    assert "Traceback" not in result.output
    return result


def test_it_says_what_has_the_streams_go_on_that_were_stopped_for_it(home: Path) -> None:
    stop_all(home)
    result = copy(home)
    assert result.exit_code == 0, result.output
    assert "frazil start --all" not in result.stdout
    said = result.stdout.split("all streams are stopped; then\n")[1]
    assert [line.removeprefix("    ") for line in said.splitlines()] == [
        "what was stopped by ann: it moves",
        "  frazil start payments refunds",
        "  frazil resume daily",
        "  frazil pause looked-at --reason 'a look at it, by Ann'",
        "  gone has no file that can be read, and stays stopped",
        "what was stopped by bob: a suspicion",
        "  frazil start held",
    ]


@pytest.mark.parametrize("stream", ["daily", "payments"])
def test_a_stream_that_was_never_launched_has_to_be_stopped_too(home: Path, stream: str) -> None:
    stop_all(home)
    (home / "old" / "streams" / stream / "control.json").unlink()
    result = copy(home)
    assert result.exit_code == 1
    assert f"stream {stream} is not stopped, so it may be started at any time" in result.stderr
    assert "Next: frazil stop --all" in result.stderr
    assert not list((home / "new").rglob("*.json"))


def test_nothing_is_copied_while_something_runs_and_nothing_is_overwritten(home: Path) -> None:
    stop_all(home)
    old, new = LocalStore(home / "old"), LocalStore(home / "new")
    pending = "streams/payments/pending-00000003.json"
    old.put(pending, b'{"v":1}')

    def refused(words: str) -> None:
        result = copy(home)
        assert result.exit_code == 1
        assert words in result.stderr

    payments = old.below("streams/payments")
    driver = Lease(payments, "payments", 30.0)
    driver.acquire(above=0)
    refused("stream payments is run by process ")
    driver.release()
    replay = Lease(payments.below("replay"), "payments~replay", 30.0)
    replay.acquire(above=0)
    refused("stream payments~replay is run by process ")
    replay.release()
    former = read_control(payments)
    write_control(payments, ControlRequest("running", 0, "start", "", "ann", 30.0), former)
    refused("stream payments is not stopped")
    write_control(payments, former, read_control(payments))
    assert documents_of(new) == []

    new.put(pending, b"of another")
    refused("pending-00000003.json exists already, and is no part of this copy")
    assert new.get(pending) == b"of another"
    new.delete(pending)
    new.put("streams/strange/lease-00000001.json", b"{}")
    refused("lease-00000001.json exists already")


@pytest.mark.parametrize(
    ("number", "words", "fix"),
    [
        (errno.ENOSPC, "There is no space for the copy: ", "free space, then run this again: it continues"),
        (errno.EACCES, "A state store may not be used: ", "give this user the right to, then run this again"),
        (errno.EIO, "A state store cannot be reached: ", "run this again when it answers"),
    ],
)
def test_a_store_that_does_not_take_the_copy(
    home: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str, fix: str
) -> None:
    def fail(*_: object) -> None:
        raise NotWrittenError(number, "it says so", "/new/a.json")

    stop_all(home)
    monkeypatch.setattr("orchestration.cli.streams.state.copy_documents", fail)
    result = copy(home)
    assert result.exit_code == 1
    assert f"{words}it says so (/new/a.json)." in result.stderr and fix in result.stderr


def test_two_services_may_have_a_bucket_of_the_same_name(tmp_path: Path) -> None:
    def where(name: str, endpoint: str | None) -> tuple[str, str]:
        properties: dict[str, Any] = {"s3.endpoint": endpoint} if endpoint else {}
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump({"state": {"store": "s3://state/frazil", "properties": properties}}))
        return _where(load_settings(file, home=tmp_path))

    assert where("old", "http://old.internal:9000") != where("new", "http://new.internal:9000")
    assert where("aws", None) != where("new", "http://new.internal:9000")
    assert where("new", "http://new.internal:9000/") == where("again", "http://new.internal:9000")
