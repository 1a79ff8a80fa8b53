"""`frazil status` on drivers that only beat."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from jobs.base.system.boot import boot_clock
from jobs.clients.catalog import catalog
from jobs.clients.state_store.lease import Lease
from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.driver.context.unknown_fields import UnknownField, UnknownFieldsRecord
from jobs.streaming.supervision.documents.control_request import ControlRequest, write_control
from jobs.streaming.supervision.documents.heartbeat import (
    Heartbeat,
    LastError,
    Recent,
    Work,
    write_heartbeat,
)
from orchestration.cli.main import main
from orchestration.reconcile.supervisor_heartbeat import SupervisorHeartbeat, write_supervisor_heartbeat
from resources.deployment import Deployment
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.drivers import end_all
from tests.unit.streaming.supervision.worlds import WHY, World

ROOT = Path(__file__).resolve().parents[5]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    end_all(made)


def frazil(world: World, *arguments: str, expect: int = 0) -> Result:
    result = CliRunner().invoke(main, ["--home", str(world.home), *arguments], env={"COLUMNS": "200"})
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
        watermark_ms=int(time.time() * 1000) - 3_600_000,
        late=12,
        late_by=(9, 0, 2, 0, 1),
        latest_ms=2 * 86_400_000 + 3_600_000,
        event_ms=(1_700_000_000_000, 1_700_003_600_000),
    )
    return msgspec.structs.replace(
        world.beat(), work=work, ui_url="http://127.0.0.1:4040", metrics_url="http://127.0.0.1:9100/metrics", **changes
    )


def test_status_tells_what_the_driver_says_and_asks_nobody(world: World) -> None:
    (world.home / "frazil.yaml").write_text("kafka: {bootstrap_servers: '127.0.0.1:1'}\n")
    world.control().start(*WHY)
    os.kill(world.beat().pid, signal.SIGSTOP)
    write_heartbeat(LocalStore(world.folder()), worked(world))
    found = facts(world)
    assert found["unknown"] == {}, "Kafka would not have answered"
    assert {"state": "waiting", "attempt": 1, "batch": 7, "lag": 3, "records_per_second": 10.0}.items() <= found.items()
    assert found["generation"] == found["wanted_generation"] == world.beat().generation
    assert found["driver"]["pid"] == world.beat().pid
    assert found["driver"]["uptime_seconds"] < 60
    assert found["lag_by_partition"] == {"payments.v1": {"0": 3, "1": 0}}
    assert found["position"] == {"payments.v1": {"0": 40, "1": 60}}
    assert found["last_commit"] is not None
    row = frazil(world, "status").stdout.splitlines()[1]
    assert "payments  orders.payments  waiting" in row
    assert row.split()[5:8] == ["7", "3", "10"]


def test_where_drivers_tell_all_nothing_is_imported_that_asks_tables_or_brokers(world: World) -> None:
    """A quarter of what the command takes."""
    world.control().start(*WHY)
    os.kill(world.beat().pid, signal.SIGSTOP)
    write_heartbeat(LocalStore(world.folder()), worked(world))
    heavy = {"pyiceberg.table", "pyiceberg.catalog", "confluent_kafka", "dagster"}
    code = (
        "import sys; from orchestration.cli.main import main\n"
        f"try: main(['--home', {str(world.home)!r}, 'status'])\n"
        f"except SystemExit: print({heavy} & {{*sys.modules}})"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "payments" in shown
    assert shown.endswith("\nset()\n")


def test_what_a_driver_said_before_it_fell_silent_is_not_told_of_now(world: World) -> None:
    world.control().start(*WHY)
    os.kill(world.beat().pid, signal.SIGSTOP)
    write_heartbeat(LocalStore(world.folder()), worked(world, beat=boot_clock() - 16))
    found = facts(world)
    assert (found["state"], found["lag"], found["lag_by_partition"]) == ("frozen", None, {})
    assert found["driver"]["beat_age_seconds"] > 16


def test_status_of_one_stream_shows_everything(world: World) -> None:
    world.control().start(*WHY)
    os.kill(world.beat().pid, signal.SIGSTOP)
    write_heartbeat(LocalStore(world.folder()), worked(world))
    shown = frazil(world, "status", "payments").stdout
    for line in (
        "desired           running by tester@here: a test",
        f"driver            process {world.beat().pid} on ",
        "malformed_json  2 since the driver started",
        "watermark         1 h 0 min ago\n",
        "event times       2023-11-14 22:13 UTC to 2023-11-14 23:13 UTC in the newest batch",
        "late              12 records since the driver started: 9 by up to 1m, 2 by up to 1h, 1 by more than 1d; the "
        "latest by 2 d 1 h",
        "Spark UI          http://127.0.0.1:4040",
        "metrics           http://127.0.0.1:9100/metrics",
        f"log               {world.beat().log}",
        "supervision       this deployment has never been supervised",
    ):
        assert line in shown, shown
    assert ["payments.v1", "0", "40", "3"] in [line.split() for line in shown.splitlines()]
    now = time.time()
    write_supervisor_heartbeat(LocalStore(world.home / ".frazil" / "state"), SupervisorHeartbeat(now - 5, "here", 1))
    assert "supervision       last looked 5 s ago, from here\n" in frazil(world, "status", "payments").stdout
    write_supervisor_heartbeat(LocalStore(world.home / ".frazil" / "state"), SupervisorHeartbeat(now - 300, "here", 1))
    assert (
        "no supervisor runs: last looked 5 min ago, from here; is Dagster's daemon running?"
        in frazil(world, "status").stdout
    )


def test_status_names_the_last_error_and_the_next_command(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN", "operator")
    with pytest.raises(Exception, match="made of cheese"):
        world.control().start(*WHY)
    shown = frazil(world, "status").stdout
    assert "! payments: halted: the broker is made of cheese.\n  Next: eat it\n" in shown
    assert facts(world)["error"]["kind"] == "operator"


def test_the_status_of_the_command_says_whether_somebody_has_to_act(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = LocalStore(world.home / ".frazil" / "state")
    write_supervisor_heartbeat(state, SupervisorHeartbeat(time.time() - 5, "here", 1))
    world.write("payments", "trigger: available_now\n")
    frazil(world, "status", "--check", expect=4)  # The local broker does not run, so nobody knows what waits.
    world.write("payments")
    world.control().start(*WHY)
    os.kill(world.beat().pid, signal.SIGSTOP)
    write_heartbeat(LocalStore(world.folder()), worked(world))
    frazil(world, "status", "--check")
    write_supervisor_heartbeat(state, SupervisorHeartbeat(time.time() - 300, "here", 1))
    assert "! supervision: " in frazil(world, "status", "--check", expect=3).stdout
    write_supervisor_heartbeat(state, SupervisorHeartbeat(time.time() - 5, "here", 1))
    error = LastError("500 of 580 records failed", "operator", time.time(), "frazil letters payments")
    write_heartbeat(LocalStore(world.folder()), worked(world, state="failed", error=error))
    for arguments in (["--check"], ["--check", "payments"], ["--check", "--json"]):
        frazil(world, "status", *arguments, expect=3)
    frazil(world, "status")
    away = LastError("Kafka is away", "away", time.time(), "frazil up")
    write_heartbeat(LocalStore(world.folder()), worked(world, state="retrying", error=away))
    shown = frazil(world, "status", "--check").stdout
    assert "~ payments: retrying: Kafka is away\n  Next: frazil up\n" in shown


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
    assert "file_problem" in frazil(world, "status", "payments", "--json", expect=1).stdout
    frazil(world, "status", "payments", "--check", expect=1)
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
    # None is silent for long, however long the test takes.
    later = boot_clock() + 300
    write_heartbeat(LocalStore(world.folder()), worked(world, beat=later))
    for number in range(50):
        world.write(f"s{number}")
        write_heartbeat(LocalStore(world.folder(f"s{number}")), worked(world, stream=f"s{number}", beat=later))
    began = time.monotonic()
    shown = frazil(world, "status").stdout
    assert time.monotonic() - began < 150
    assert shown.count("waiting") == 51


def test_what_a_silent_supervisor_said_is_of_no_account(world: World) -> None:
    world.control().start(*WHY)
    os.kill(world.beat().pid, signal.SIGKILL)
    wait_for(lambda: not world.living(), "the driver's end")
    halted = {"payments": {"action": "halt", "sentence": "it failed 8 times in a row", "fix": "mend it"}}
    state = world.home / ".frazil" / "state"
    write_supervisor_heartbeat(LocalStore(state), SupervisorHeartbeat(time.time() - 5, "here", 1, halted))
    found = facts(world)
    assert (found["state"], found["supervisor"]) == ("halted", "it failed 8 times in a row")
    write_supervisor_heartbeat(LocalStore(state), SupervisorHeartbeat(time.time() - 61, "here", 1, halted))
    found = facts(world)
    assert (found["state"], found["supervisor"], found["next"]) == ("dead", None, "frazil start payments")
    assert json.loads(frazil(world, "status", "--json").stdout)["supervisor"]["supervises"] is False
    assert "! supervision: no supervisor runs: last looked" in frazil(world, "status").stdout


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
    shown = frazil(world, "status").stdout
    assert f"~ payments: 1 keys are left out that the schema does not declare: {told}" in shown
    assert "Next: add `colour string` (the type is a guess) to decode.schema" in shown
    shown = frazil(world, "status", "payments").stdout
    assert "not declared      1 keys, since 2023-11-14 22:13 UTC" in shown
    assert "37.5% of 8 records" in shown
    assert "$.debug" not in shown


@pytest.mark.parametrize(
    ("problem", "asked"), [(ConnectionRefusedError(111, "refused"), 1), (FileNotFoundError(2, "no metadata"), 3)]
)
def test_an_object_store_that_is_away_is_asked_once_and_a_damaged_table_hides_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch, problem: OSError, asked: int
) -> None:
    (world.home / "frazil.yaml").write_text("kafka: {bootstrap_servers: '127.0.0.1:1'}\n")
    for name in ("refunds", "orders"):
        world.write(name)
    tables: list[str] = []

    class Away:
        name = "lake"

        def load_table(self, name: str) -> None:
            tables.append(name)
            raise problem

    monkeypatch.setattr(catalog, "quick_catalog", lambda settings: Away())
    shown = frazil(world, "status").stdout
    assert len(tables) == asked
    assert shown.count(f"? catalog: table {tables[0]}: {type(problem).__name__}: ") == 1
    assert [line.count("?") for line in shown.splitlines()[1:4]] == [4, 4, 4]
