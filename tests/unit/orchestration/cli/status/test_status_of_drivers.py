"""`frazil status` where the supervisor is silent, and where a stream is quiet."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from jobs.state.local_store import LocalStore
from jobs.stream.unknown_fields import UnknownField, UnknownFieldsRecord
from jobs.supervise.heartbeat import Work, write_heartbeat
from orchestration.cli.main import main
from orchestration.reconcile.supervisor_file import SupervisorNote, write_supervisor_note
from resources.deployment import Deployment
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.drivers import end_all
from tests.unit.supervise.worlds import WHY, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    end_all(made)


def frazil(world: World, *arguments: str) -> str:
    result = CliRunner().invoke(main, ["--home", str(world.home), *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def facts(world: World) -> dict[str, Any]:
    return json.loads(frazil(world, "status", "--json"))["streams"][0]


def test_what_a_silent_supervisor_said_is_of_no_account(world: World) -> None:
    world.control().start(*WHY)
    os.kill(world.beat().pid, signal.SIGKILL)
    wait_for(lambda: not world.living(), "the driver's end")
    halted = {"payments": {"action": "halt", "sentence": "it failed 8 times in a row", "fix": "mend it"}}
    state = world.home / ".frazil" / "state"
    write_supervisor_note(LocalStore(state), SupervisorNote(time.time() - 5, "here", 1, halted))
    found = facts(world)
    assert (found["state"], found["supervisor"]) == ("halted", "it failed 8 times in a row")
    write_supervisor_note(LocalStore(state), SupervisorNote(time.time() - 61, "here", 1, halted))
    found = facts(world)
    assert (found["state"], found["supervisor"], found["next"]) == ("dead", None, "frazil start payments")
    assert json.loads(frazil(world, "status", "--json"))["supervisor"]["supervises"] is False
    assert "! supervision: nobody supervises now: last looked" in frazil(world, "status")


def test_a_quiet_stream_is_complete_through_the_look_at_its_topics_end(world: World) -> None:
    world.control().start(*WHY)
    os.kill(world.beat().pid, signal.SIGSTOP)
    looked_at = time.time() - 1

    def through(lag: int) -> datetime:
        offsets = {"payments.v1": {"0": 40}}
        lags = {"payments.v1": {"0": lag}}
        done = Work(position=offsets, lag=lags, lag_at=looked_at, valid_through_ms=1_700_000_000_000)
        write_heartbeat(LocalStore(world.folder()), msgspec.structs.replace(world.beat(), work=done))
        return datetime.fromisoformat(facts(world)["complete_through"])

    assert abs(through(0).timestamp() - looked_at) < 0.01
    assert through(3) == datetime.fromtimestamp(1_700_000_000, UTC)


def test_keys_that_are_not_declared_are_told(world: World) -> None:
    spec = Deployment.at(world.home).stream("payments")
    assert facts(world)["unknown_fields"] == {"since": None, "records_landed": None, "fields": []}
    met = {"$.colour": UnknownField(3, "payments.v1", 1, 17, "$", "colour string"), "$.debug.a": UnknownField(8)}
    UnknownFieldsRecord(LocalStore(world.folder()), spec.config_hash).add(8, met, 1_700_000_000.0)
    world.write("payments", "slo: {unknown_fields: [$.debug]}\n")
    found = facts(world)["unknown_fields"]
    assert (found["since"], found["records_landed"]) == ("2023-11-14T22:13:20.000+00:00", 8)
    assert found["fields"] == [
        {
            "path": "$.debug.a", "records": 8, "share": 1.0, "expected": True,
            "example": None, "within": "$", "column": None,
        },
        {
            "path": "$.colour", "records": 3, "share": 0.375, "expected": False,
            "example": {"topic": "payments.v1", "partition": 1, "offset": 17}, "within": "$", "column": "colour string",
        },
    ]  # fmt: skip
    told = "$.colour in 37.5% of 8 records, such as topic payments.v1, partition 1, offset 17"
    shown = frazil(world, "status")
    assert f"~ payments: 1 keys are left out that the schema does not declare: {told}" in shown
    assert "Next: add `colour string` (the type is a guess) to decode.schema" in shown
    shown = frazil(world, "status", "payments")
    assert "not declared      1 keys, since 2023-11-14 22:13 UTC" in shown
    assert "37.5% of 8 records" in shown
    assert "$.debug" not in shown
