"""The word for how a stream stands, over what can come together; and `frazil status` on drivers that only beat."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from jobs.state.lease import Lease
from jobs.state.local_store import LocalStore
from jobs.state.stream_folder import StreamFolder
from jobs.supervise.actual import ActualState, LeaseHolder
from jobs.supervise.control_request import ControlRequest, write_control
from jobs.supervise.desired import DesiredState
from jobs.supervise.heartbeat import Heartbeat, LastError, Recent, State, Work, write_heartbeat
from jobs.supervise.launches import Launch, LaunchedProcess
from jobs.supervise.observation import Observation
from orchestration.cli.main import main
from orchestration.reconcile.stream_state import state_of
from orchestration.reconcile.supervisor_file import SupervisorNote, write_supervisor_note
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.drivers import end_all
from tests.unit.supervise.worlds import WHY, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    end_all(made)


def beat(state: State = "running", *, kind: Any = None, **fields: Any) -> Heartbeat:
    error = LastError("no", kind, 0.0) if kind else None
    return Heartbeat("payments", "g", 1, 5, "6", "b", "h", 0.0, state, 0.0, 0.0, 0.0, error=error, **fields)


def observed(newest: Heartbeat | None = None, *, lives: bool = False, **facts: Any) -> Observation:
    desired = DesiredState("payments", "valid", control=facts.pop("control", ControlRequest()))
    known: dict[str, Any] = {
        "heartbeat": newest,
        "process": lives if newest is not None else None,
        "launch": Launch(1, "g", "f", 0, 0.0) if newest is not None or lives else None,
        "launched_for": 1000.0,
    }
    if lives:
        known |= {"launched_process": LaunchedProcess(1, "g", 5, "6", "b", "h", 0.0), "launched_process_lives": True}
    settings: Any = None
    return Observation("payments", StreamFolder.at(Path("/none")), settings, desired, ActualState(**known | facts))


LATER = Launch(2, "g", "f", 0, 0.0)
NOTED = LaunchedProcess(2, "g", 5, "6", "b", "h", 0.0)
STRANGER = LeaseHolder("live", 1, 77, "7", "b", "h")


@pytest.mark.parametrize(
    ("now", "word"),
    [
        (observed(), "never ran"),
        (observed(lives=True), "starting"),
        (observed(beat("starting"), lives=True), "starting"),
        (observed(beat(), lives=True), "waiting"),
        (observed(beat(work=Work(busy_since=1.0)), lives=True), "running"),
        (observed(beat("paused"), lives=True), "paused"),
        (observed(beat("retrying", kind="away"), lives=True), "retrying"),
        (observed(beat("stopping"), lives=True), "stopping"),
        (observed(beat("stopped"), lives=True), "stopping"),
        (observed(beat(), lives=True, control=ControlRequest("stopped")), "stopping"),
        (observed(beat(), lives=True, control=ControlRequest(end_attempt=1)), "stopping"),
        (observed(beat(), lives=True, heartbeat_age=31.0), "frozen"),
        (observed(beat("failed"), lives=True, heartbeat_age=31.0), "frozen"),
        (observed(beat(), control=ControlRequest("paused")), "paused"),
        (observed(beat("failed", kind="error"), control=ControlRequest("stopped")), "stopped"),
        (observed(beat("failed", kind="error")), "failed"),
        (observed(beat("failed", kind="operator")), "halted"),
        (observed(beat("fenced")), "fenced"),
        (observed(beat("terminated")), "idle"),
        (observed(beat("running")), "dead"),
        (observed(beat("stopped"), launch=LATER), "dead"),
        (observed(None, launch=LATER), "dead"),
        # Launched on another host, or the process has not been noted yet; and known to be gone.
        (observed(None, launch=LATER, launched_process=NOTED, launched_for=80.0), "starting"),
        (observed(None, launch=LATER, launched_for=4.0), "starting"),
        (observed(None, launch=LATER, launched_for=4.0, control=ControlRequest("stopped")), "stopped"),
        (observed(None, launch=LATER, launched_process=NOTED, launched_process_lives=False, launched_for=1.0), "dead"),
        (observed(beat("stopped"), lease=STRANGER), "draining"),
    ],
)
def test_the_word_for_a_stream(now: Observation, word: str) -> None:
    assert state_of(now) == word


def test_what_the_supervisor_gave_up_is_halted() -> None:
    assert state_of(observed(beat("failed", kind="error")), "halt") == "halted"
    assert state_of(observed(None, launch=LATER), "halt") == "halted"


def test_a_stream_without_a_driver_is_not_dead_if_none_is_wanted() -> None:
    assert state_of(observed(beat("running")), "idle") == "idle"
    assert state_of(observed(beat("failed", kind="error")), "idle") == "failed"


def frazil(world: World, *arguments: str, expect: int = 0) -> Result:
    result = CliRunner().invoke(main, ["--home", str(world.home), *arguments])
    assert result.exit_code == expect, result.output
    assert "Traceback" not in result.output
    return result


def facts(world: World, *arguments: str) -> dict[str, Any]:
    (found,) = json.loads(frazil(world, "status", *arguments, "--json").stdout)["streams"]
    return found


def worked(world: World, **changes: Any) -> Heartbeat:
    work = Work(
        batch=7,
        read=100,
        last_commit_at=time.time() - 5,
        position={"payments.v1": {"0": 40, "1": 60}},
        lag={"payments.v1": {"0": 3, "1": 0}},
        lag_at=time.time(),
        valid_through_ms=int(time.time() * 1000) - 9000,
        reasons={"malformed_json": 2},
        recent=Recent(10.0, 100, 98, 2),
    )
    return msgspec.structs.replace(
        world.beat(), work=work, ui_url="http://127.0.0.1:4040", metrics_url="http://127.0.0.1:9100/metrics", **changes
    )


def test_status_tells_what_the_driver_says_and_asks_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.control().start(*WHY)
    os.kill(world.beat().pid, signal.SIGSTOP)
    write_heartbeat(LocalStore(world.folder()), worked(world))
    monkeypatch.setattr("orchestration.cli.status.command.quick_kafka", pytest.fail)
    monkeypatch.setattr("orchestration.cli.status.command.quick_catalog", pytest.fail)
    found = facts(world)
    assert {"state": "waiting", "attempt": 1, "batch": 7, "lag": 3, "records_per_second": 10.0}.items() <= found.items()
    assert found["generation"] == found["wanted_generation"] == world.beat().generation
    assert found["driver"]["pid"] == world.beat().pid
    assert found["driver"]["uptime_seconds"] < 60
    assert found["lag_by_partition"] == {"payments.v1": {"0": 3, "1": 0}}
    assert found["position"] == {"payments.v1": {"0": 40, "1": 60}}
    assert found["last_commit"] is not None
    row = frazil(world, "status").stdout.splitlines()[1]
    assert "payments  orders.payments waiting" in row
    assert " 7   3    10 " in row


def test_status_of_one_stream_shows_everything(world: World) -> None:
    world.control().start(*WHY)
    os.kill(world.beat().pid, signal.SIGSTOP)
    write_heartbeat(LocalStore(world.folder()), worked(world))
    shown = frazil(world, "status", "payments").stdout
    for line in (
        "wished            running, by tester@here: a test",
        f"driver            process {world.beat().pid} on ",
        "malformed_json  2 since the driver started",
        "Spark UI          http://127.0.0.1:4040",
        "metrics           http://127.0.0.1:9100/metrics",
        f"log               {world.beat().log}",
        "supervision       nobody has supervised this deployment yet",
    ):
        assert line in shown, shown
    assert ["payments.v1", "0", "40", "3"] in [line.split() for line in shown.splitlines()]
    now = time.time()
    write_supervisor_note(LocalStore(world.home / ".frazil" / "state"), SupervisorNote(now - 5, "here", 1))
    assert "supervision       last looked 5 s ago, from here\n" in frazil(world, "status", "payments").stdout
    write_supervisor_note(LocalStore(world.home / ".frazil" / "state"), SupervisorNote(now - 300, "here", 1))
    assert (
        "nobody supervises now: last looked 5 min ago, from here; is Dagster's daemon running?"
        in frazil(world, "status").stdout
    )


def test_status_names_the_last_error_and_the_next_command(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN", "operator")
    with pytest.raises(Exception, match="made of cheese"):
        world.control().start(*WHY)
    shown = frazil(world, "status").stdout
    assert "! payments: halted: the broker is made of cheese.\n  Next: eat it\n" in shown
    assert facts(world)["error"]["kind"] == "operator"


def test_status_after_a_kill_a_pause_and_a_stop(world: World) -> None:
    world.control().start(*WHY)
    world.control().pause(*WHY)
    assert facts(world)["state"] == "paused"
    assert facts(world)["next"] == "frazil resume payments"
    world.control().resume(*WHY)
    os.kill(world.beat().pid, signal.SIGKILL)
    wait_for(lambda: not world.living(), "the driver's end")
    assert facts(world)["state"] == "dead"
    assert facts(world)["holder"] is None
    world.control().stop(*WHY)
    assert (facts(world)["state"], facts(world)["next"]) == ("stopped", "frazil start payments")


def test_status_shows_a_file_that_changed_broke_or_went(world: World) -> None:
    world.control().start(*WHY)
    before = world.beat().generation
    path = world.write("payments", "trigger: {every: 30s}\n")
    wanted = facts(world)["wanted_generation"]
    assert wanted != before
    assert f"{before} -> {wanted}" in frazil(world, "status").stdout
    world.write("payments", "x: 1\n")
    broken = frazil(world, "status", expect=1)
    assert "! payments: its file has problems, and nothing is changed: " in broken.stdout
    assert "waiting" in broken.stdout
    assert "file_problem" in frazil(world, "status", "payments", "--json").stdout
    path.unlink()
    gone = frazil(world, "status").stdout
    assert "no file in " in gone
    assert "waiting" in gone


def test_status_of_a_drain_and_of_damage(world: World) -> None:
    lease = Lease(LocalStore(world.folder()), "payments", 30.0)
    lease.acquire(above=0)
    assert facts(world)["state"] == "draining"
    assert facts(world)["holder"].startswith(f"process {os.getpid()} on ")
    lease.release()
    assert facts(world)["state"] == "idle"
    write_control(LocalStore(world.folder()), ControlRequest())
    (world.folder() / "control.json").write_text("{")
    assert "control.json cannot be read" in frazil(world, "status").stdout


def test_fifty_streams_with_drivers_take_a_moment(world: World) -> None:
    world.control().start(*WHY)
    os.kill(world.beat().pid, signal.SIGSTOP)
    for number in range(50):
        world.write(f"s{number}")
        write_heartbeat(LocalStore(world.folder(f"s{number}")), worked(world, stream=f"s{number}"))
    began = time.monotonic()
    shown = frazil(world, "status").stdout
    assert time.monotonic() - began < 30
    assert shown.count("waiting") == 51
