"""Connectors as they are read: states of drivers, offsets of heartbeats and tables, damaged files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.state_store.stream_folder import state_store
from jobs.streaming.supervision.documents.heartbeat import LastError, Work
from orchestration.connect_api.connectors import Connectors, UnknownConnector
from orchestration.reconcile.supervisor_heartbeat import SupervisorHeartbeat, write_supervisor_heartbeat
from tests.unit.orchestration.cli.status.test_collection import commit
from tests.unit.orchestration.deployments import create_table
from tests.unit.orchestration.reconcile.supervised_deployment import World, dead_process

POSITION = {"payments.v1": {"0": 40, "1": 60}}


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write("payments")
    return made


@pytest.fixture
def connectors(world: World) -> Connectors:
    return Connectors(world.deployment, "here:8083")


def test_a_driver_that_lives_reports_offsets_and_topics(world: World, connectors: Connectors) -> None:
    world.drive("payments", state="running", work=Work(position=POSITION | {"refunds.v1": {"0": 1}}))
    found = connectors.one("payments")
    assert (found.state, found.trace) == ("RUNNING", "")
    assert found.topics == ("payments.v1", "refunds.v1")
    assert connectors.offsets("payments") == POSITION | {"refunds.v1": {"0": 1}}


def test_without_a_driver_the_table_has_the_offsets(world: World, connectors: Connectors) -> None:
    settings, spec = world.deployment.prepared_settings(), world.deployment.stream("payments")
    catalog = connect_catalog(settings)
    assert connectors.offsets("payments") == {}, "the table does not exist yet"
    create_table(catalog, spec)
    assert connectors.offsets("payments") == {}, "nothing has landed"
    commit(catalog, spec)
    assert connectors.offsets("payments") == {"payments.v1": {"0": 40}}


@pytest.mark.parametrize(
    ("state", "word"),
    [("failed", "FAILED"), ("fenced", "FAILED"), ("terminated", "UNASSIGNED"), ("retrying", "RUNNING")],
)
def test_an_error_is_the_trace(world: World, connectors: Connectors, state: str, word: str) -> None:
    error = LastError("the catalog is away.", "away", time.time(), "frazil doctor", trace="Traceback: internals")
    ended = {} if state == "retrying" else {"lease_state": "released", **dead_process()}
    world.drive("payments", state=state, error=error, **ended)
    found = connectors.one("payments")
    assert found.state == word
    shown = found.status()["connector"].get("trace", "")
    if state == "terminated":
        assert shown.endswith("Next: frazil start payments")
    else:
        assert shown == "the catalog is away.\n  Next: frazil doctor"


def test_the_supervisor_says_why_a_stream_halts(world: World, connectors: Connectors) -> None:
    error = LastError("no such column.", "error", time.time(), "mend it")
    world.drive("payments", state="failed", error=error, lease_state="released", **dead_process())
    decision = {"action": "halt", "sentence": "payments has failed five times.", "fix": "frazil start payments"}
    note = SupervisorHeartbeat(time.time(), "host", 1, {"payments": decision})
    write_supervisor_heartbeat(state_store(world.settings), note)
    found = connectors.one("payments")
    assert (found.state, found.trace) == ("FAILED", "no such column.\n  Next: mend it")


def test_a_damaged_document_is_a_trace(world: World, connectors: Connectors) -> None:
    world.drive("payments", state="running")
    (world.folder("payments") / "control.json").write_text("{")
    found = connectors.one("payments")
    assert found.state == "UNASSIGNED"
    assert "cannot be read" in found.trace


def test_a_changed_file_is_shown_and_a_broken_one_as_it_was_launched(world: World, connectors: Connectors) -> None:
    world.drive("payments", state="running")
    assert connectors.one("payments").config["owner"] == "team:payments"
    file = world.file("payments")
    file.write_text(file.read_text().replace("team:payments", "team:lake"))
    assert connectors.one("payments", now=True).config["owner"] == "team:lake"
    file.write_text("stream: payments\nnonsense: 1\n")
    assert connectors.one("payments", now=True).state == "RUNNING"
    assert connectors.offsets("payments") == {}, "its table is not there"


def test_what_is_not_there(world: World, connectors: Connectors) -> None:
    with pytest.raises(UnknownConnector, match="Connector none not found"):
        connectors.one("none")


def test_a_cluster_that_does_not_answer_is_asked_once_a_minute(
    connectors: Connectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestration.connect_api import connectors as module

    asked = list[object]()

    def quick_kafka(settings: object) -> object:
        asked.append(settings)
        raise FrazilError("The local broker is not running.", fix="frazil up")

    monkeypatch.setattr(module, "quick_kafka", quick_kafka)
    assert [connectors.cluster_id(), connectors.cluster_id()] == [None, None]
    assert len(asked) == 1
