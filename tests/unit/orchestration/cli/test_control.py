"""Actions as runs of Dagster, and on the command line; drivers that only beat."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from jobs.base.errors import FrazilError
from jobs.base.system.processes import session_members
from jobs.clients.state_store.local_store import LocalStore
from jobs.local.broker.broker import LocalBroker
from jobs.streaming.supervision.control.lifecycle import ActionResult
from jobs.streaming.supervision.documents.launches import read_launched_process
from jobs.streaming.supervision.launchers.local_process import COMMAND_VARIABLE
from orchestration.cli.common.dagster_instance import dagster_instance, make_instance
from orchestration.cli.common.recorded_runs import open_recorder
from orchestration.cli.main import main
from orchestration.cli.streams import control
from orchestration.cli.streams.control import carry_out_control
from orchestration.jobs.control import ControlConfig, StreamAction, control_job, control_run_config
from orchestration.jobs.runs import WORKER_TAG, this_worker
from orchestration.sensors.reconcile import acting_runs
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.drivers import end_all
from tests.unit.streaming.supervision.worlds import STANDIN, World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv(COMMAND_VARIABLE, " ".join(STANDIN))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    made = World(tmp_path)
    yield made
    end_all(made)


def frazil(world: World, *arguments: str) -> Result:
    result = CliRunner().invoke(main, ["--home", str(world.home), *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def runs(world: World) -> list[dg.DagsterRun]:
    with dagster_instance(Deployment.at(world.home)) as instance:
        return list(instance.get_runs())


def in_process(world: World, instance: dg.DagsterInstance, **config: object) -> dg.ExecuteInProcessResult:
    return control_job.execute_in_process(
        run_config=control_run_config(ControlConfig(stream="payments", **config)),  # pyright: ignore[reportArgumentType]
        instance=instance,
        resources={"deployment": DeploymentResource.of(Deployment.at(world.home))},
        raise_on_error=False,
    )


def test_the_job_reports_the_driver_and_tags_a_run_that_has_no_tags(world: World) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        result = in_process(world, instance, action=StreamAction.start, reason="first light")
        assert result.success
        run = instance.get_run_by_id(result.run_id)
        assert run is not None
        assert {
            "frazil/stream": "payments",
            "frazil/action": "start",
            "frazil/reason": "first light",
            "frazil/by": "Dagster UI",
        }.items() <= run.tags.items()
        assert run.tags[WORKER_TAG] == this_worker(run.run_id)
        (output,) = [event for event in result.all_events if event.event_type_value == "STEP_OUTPUT"]
        metadata = output.step_output_data.metadata
        beat = world.beat()
        assert (metadata["driver_pid"].value, metadata["attempt"].value) == (beat.pid, 1)
        assert metadata["generation"].value == beat.generation
        assert metadata["driver_log"] == dg.MetadataValue.path(beat.log)
        assert "payments runs: process" in str(metadata["result"].value)


def test_a_run_that_cannot_be_tagged_acts_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("the storage is full")

    with dg.DagsterInstance.ephemeral() as instance:
        monkeypatch.setattr(type(instance), "add_run_tags", refuse)
        assert in_process(world, instance, action=StreamAction.start).success
    assert world.living() == [world.beat().pid]


def test_a_failed_action_says_why_and_what_next_and_is_not_tried_again(world: World) -> None:
    world.write("payments", "trigger: available_now\n")
    with dg.DagsterInstance.ephemeral() as instance:
        result = in_process(world, instance, action=StreamAction.restart)
        assert not result.success
        (failed,) = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
        told = failed.step_failure_data.user_failure_data
        assert told is not None
        assert told.metadata["next"].value == "frazil run payments"
        assert "has the trigger available_now" in str(told.description)


def test_the_run_config_is_what_the_supervisor_writes(world: World) -> None:
    config = ControlConfig(stream="payments", action=StreamAction.ensure_running, request=7, by="supervisor")
    written = control_run_config(config)["ops"]["control"]["config"]
    assert (written["action"], written["request"]) == ("ensure_running", 7)
    assert dg.validate_run_config(control_job, control_run_config(config))


def test_every_command_is_a_run_with_its_reason(world: World) -> None:
    started = frazil(world, "start", "payments", "--reason", "first light")
    assert (started.exit_code, started.stderr) == (0, "")
    assert started.stdout.startswith("payments runs: process ")
    assert frazil(world, "pause", "payments").stdout.startswith("payments is paused: process")
    assert frazil(world, "resume", "payments").stdout.startswith("payments runs: process")
    assert "Attempt 1 ended after its batch." in frazil(world, "restart", "payments").stdout
    flushed = json.loads(frazil(world, "flush", "payments", "--json").stdout)
    assert (flushed["sentence"], flushed["read"]) == ("payments has landed everything up to now: nothing waited.", 0)
    stopped = frazil(world, "stop", "--all", "--json")
    (facts,) = json.loads(stopped.stdout)["actions"]
    assert (facts["done"], facts["kept_as_run"], facts["driver"]["state"]) == (True, True, "stopped")
    kept = list(reversed(runs(world)))
    assert [run.tags["frazil/action"] for run in kept] == ["start", "pause", "resume", "restart", "flush", "stop"]
    assert kept[0].tags["frazil/reason"] == "first light"
    assert kept[1].tags["frazil/reason"] == "asked on the command line"
    assert all("@" in run.tags["frazil/by"] and run.is_success for run in kept)


def test_what_seems_to_be_misspelt_in_the_settings_is_told_with_a_start(world: World) -> None:
    properties = f"{{type: sql, uri: 'sqlite:///{world.home}/catalog.db', warehouse: 'file://{world.home}/w', scop: a}}"
    (world.home / "frazil.yaml").write_text(f"catalog: {{properties: {properties}}}\n")
    started = frazil(world, "start", "payments")
    assert started.exit_code == 0, started.output
    doubt = "catalog.properties.scop is no property of a catalog that frazil knows; did you mean 'scope'?"
    assert started.stderr == f"Warning: {doubt}\n"


def test_a_failure_is_a_sentence_and_the_next_command(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN", "fail")
    result = frazil(world, "start", "payments")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: the broker is made of cheese.\n  Next: eat it\n"
    assert [run.is_failure for run in runs(world)] == [True]


def test_one_stream_that_cannot_be_started_does_not_keep_the_others_from_it(world: World) -> None:
    world.write("refunds")
    world.write("broken", "x: 1\n")
    result = frazil(world, "start", "broken", "refunds", "payments", "--json")
    assert result.exit_code == 1
    assert [fact["done"] for fact in json.loads(result.stdout)["actions"]] == [False, True, True]
    assert frazil(world, "stop", "--all").exit_code == 0
    assert (world.living("payments"), world.living("refunds")) == ([], [])
    frazil(world, "start", "refunds")
    restarted = frazil(world, "restart", "--all")
    # The file that cannot be read has a stream that does not run.
    assert restarted.exit_code == 1 and "broken.yaml" in restarted.stderr
    assert "payments is stopped, and stays so; `frazil start payments` starts it" in restarted.stderr
    assert (world.living("payments"), len(world.living("refunds"))) == ([], 1)
    frazil(world, "stop", "refunds")


def test_who_ends_the_broker_is_told_which_streams_run_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    frazil(world, "start", "payments")
    monkeypatch.setattr(LocalBroker, "stop", lambda _: True)
    ended = frazil(world, "down", "--json")
    assert json.loads(ended.stdout)["broker"] == {"stopped": True}
    assert ended.stderr == "Running on, without a broker: payments.  (`frazil stop --all` ends them)\n"
    frazil(world, "stop", "payments")
    assert frazil(world, "down").stderr == ""


def test_the_streams_of_a_group_are_started_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in ("refunds", "orders"):
        world.write(stream, "group: small\n")
    both, alone = threading.Barrier(2, timeout=30), threading.Lock()

    def perform(deployment: Deployment, config: ControlConfig) -> ActionResult:
        if config.stream == "payments":
            assert alone.acquire(blocking=False)
        else:
            assert both.wait() < 2
        if config.stream == "refunds":
            raise FrazilError("the broker is made of cheese", fix="eat it")
        return ActionResult(f"{config.stream} runs", None)

    monkeypatch.setattr(control, "perform_control", perform)
    result = frazil(world, "start", "--all", "--json")
    done = {fact["stream"]: (fact["done"], fact["kept_as_run"]) for fact in json.loads(result.stdout)["actions"]}
    assert done == {"payments": (True, True), "refunds": (False, True), "orders": (True, True)}
    kept = {run.tags["frazil/stream"]: run.is_success for run in runs(world)}
    assert kept == {"payments": True, "refunds": False, "orders": True}


def test_streams_or_all_and_not_both(world: World) -> None:
    for arguments in ([], ["payments", "--all"]):
        result = frazil(world, "stop", *arguments)
        assert result.exit_code == 1
        assert "Next: frazil stop --all" in result.stderr


def test_a_stream_is_stopped_also_when_dagsters_storage_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    frazil(world, "start", "payments")
    elsewhere = world.home / "dagster"
    elsewhere.mkdir()
    (elsewhere / "dagster.yaml").write_text(
        "storage: {sqlite: {base_dir: /proc/no/such/folder}}\ntelemetry: {enabled: false}\n"
    )
    monkeypatch.setenv("DAGSTER_HOME", str(elsewhere))
    result = frazil(world, "stop", "payments")
    assert result.exit_code == 0
    assert "payments is stopped: attempt 1 ended after its batch." in result.stdout
    assert f"Dagster's storage in {elsewhere} cannot be used:" in result.stderr
    assert world.living() == []


def test_a_storage_that_fails_in_the_middle_does_not_do_it_twice(world: World) -> None:
    deployment = Deployment.at(world.home)
    frazil(world, "start", "payments")
    with open_recorder(deployment) as ledger:
        assert ledger.instance is not None
        database = world.home / ".frazil" / "dagster" / "history" / "runs"
        database.rename(database.with_name("gone"))
        database.write_text("no folder")
        config = ControlConfig(stream="payments", action=StreamAction.restart)
        try:
            done, problem = carry_out_control(ledger, config)
            assert problem is None or "cannot be used" in problem
            assert done.heartbeat is not None
            assert done.heartbeat.attempt == 2
        finally:
            database.unlink()
            database.with_name("gone").rename(database)
    assert world.living() == [world.beat().pid]


def test_two_processes_may_make_dagsters_storage_at_once(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from orchestration.cli.common.dagster_instance import make_instance; "
    command = [sys.executable, "-c", code + "make_instance(Path(sys.argv[1]))", str(tmp_path / "dagster")]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    for one in both:
        _, errors = one.communicate(timeout=300)
        assert one.returncode == 0, errors
    make_instance(tmp_path / "dagster")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_before_the_first_beat_leaves_no_driver(
    world: World, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv("STANDIN", "silent,grandchild")
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(world.home), "start", "payments"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: len(world.living()) == 2, "the driver and its grandchild")
        note = read_launched_process(LocalStore(world.folder()))
        assert note is not None
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
    assert session_members(note.pid) == []
    # Dagster makes both signals one.
    assert process.returncode in (130, 143), errors
    assert errors.strip() == "Stopped."


def test_an_unknown_stream_is_an_error_that_leaves_no_state(world: World) -> None:
    deployment = Deployment.at(world.home)
    with open_recorder(deployment) as ledger, pytest.raises(FrazilError, match="There is no stream 'paymets'"):
        carry_out_control(ledger, ControlConfig(stream="paymets", action=StreamAction.stop))
    assert not world.folder("paymets").exists()


def test_a_killed_run_worker_leaves_a_driver_that_goes_on(world: World) -> None:
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(world.home), "start", "payments"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(world.living, "the driver")
        process.kill()
    wait_for(lambda: (world.folder() / "heartbeat.json").exists(), "its first beat")
    assert not runs(world)[0].is_finished
    with dagster_instance(Deployment.at(world.home)) as instance:
        assert acting_runs(instance) == {}, "its process is gone, so it holds nothing up"
    assert [run.is_failure for run in runs(world)] == [True]
    began = time.monotonic()
    assert "payments runs already" in frazil(world, "start", "payments").stdout
    assert time.monotonic() - began < 300
    assert world.living() == [world.beat().pid]
    assert os.getsid(world.beat().pid) == world.beat().pid


def test_a_stream_that_is_driven_is_not_run_beside_its_driver(world: World) -> None:
    frazil(world, "start", "payments")
    result = frazil(world, "run", "payments")
    assert result.exit_code == 1
    assert f"Error: stream payments is driven by process {world.beat().pid} on " in result.stderr
    assert "frazil stop payments" in result.stderr
