"""What an operator does from the launchpad: a job per action, which knows the streams and opens filled in."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.streaming.supervision.documents.control_request import read_control
from jobs.streaming.supervision.launchers.local_process import COMMAND_VARIABLE
from orchestration.definitions import build_definitions
from orchestration.jobs.actions import ACTIONS, action_job_name
from orchestration.jobs.control import StreamAction
from orchestration.jobs.runs import ACTION_TAG, BY_TAG, STREAM_TAG
from resources.deployment import Deployment
from tests.unit.orchestration.deployments import deployment_in
from tests.unit.orchestration.drivers import end_all
from tests.unit.streaming.supervision.worlds import STANDIN, World

# Dagster warns about itself when one resource holds another.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv(COMMAND_VARIABLE, shlex.join(STANDIN))
    made = World(tmp_path)
    try:
        yield made
    finally:
        end_all(made)


def launchpad(definitions: dg.Definitions, job: str) -> dict[str, Any]:
    """What the launchpad of a job opens with."""
    # As Dagster's web server asks for it: the preset of a job with a configuration.
    config = definitions.resolve_job_def(job).run_config
    assert config is not None
    (op,) = config["ops"].values()
    return op["config"]


def test_the_launchpad_opens_with_what_a_person_is_asked(tmp_path: Path) -> None:
    one = build_definitions(Deployment.at(deployment_in(tmp_path / "one", "card-payments")))
    many = build_definitions(Deployment.at(deployment_in(tmp_path / "many", "orders", "mro", "card-payments")))
    for action in ACTIONS:
        asked = launchpad(one, action_job_name(action))
        assert asked == {"streams": ["card-payments"], "reason": "asked in Dagster"}
        # Nobody stops a stream by a slip.
        assert launchpad(many, action_job_name(action))["streams"] == []
    for job in ("frazil_replay", "frazil_reset_offsets", "frazil_discard", "frazil_release"):
        assert (launchpad(one, job)["stream"], launchpad(many, job)["stream"]) == ("card-payments", "")
        # What cannot be taken back is shown before it is done; the command line asks at these.
        assert launchpad(many, job)["dry_run"] is (job != "frazil_replay")
        assert not {"by", "request"} & launchpad(many, job).keys()


def test_a_stream_that_is_not_known_is_refused_before_anything_is_launched(tmp_path: Path) -> None:
    definitions = build_definitions(Deployment.at(deployment_in(tmp_path, "orders", "refunds")))
    job = definitions.resolve_job_def("frazil_stop")
    good = {"ops": {"stop": {"config": {"streams": ["orders", "refunds"]}}}}
    assert dg.validate_run_config(job, good)
    with pytest.raises(dg.DagsterInvalidConfigError, match=r"streams\[0\] not in enum type .* got order"):
        dg.validate_run_config(job, yaml.safe_load(yaml.safe_dump(good).replace("orders", "order")))


def test_without_a_stream_there_is_nothing_to_offer_and_nothing_breaks(tmp_path: Path) -> None:
    (tmp_path / "streams").mkdir()
    assert launchpad(build_definitions(Deployment.at(tmp_path)), "frazil_start")["streams"] == []


def execute(world: World, action: StreamAction, instance: dg.DagsterInstance, **config: Any) -> Any:
    job = build_definitions(Deployment.at(world.home)).resolve_job_def(action_job_name(action))
    return job.execute_in_process(
        run_config={"ops": {action.value: {"config": config}}}, instance=instance, raise_on_error=False
    )


def test_each_action_is_done_and_kept(running: World) -> None:
    folder = stream_folder(Deployment.at(running.home).settings(), "payments").root
    wishes = {"start": "running", "pause": "paused", "resume": "running", "restart": "running", "stop": "stopped"}
    wishes["flush"] = "running"
    with dg.DagsterInstance.ephemeral() as instance:
        for action in ACTIONS:
            result = execute(running, action, instance, streams=["payments"], reason="month end")
            assert result.success
            control = read_control(LocalStore(folder))
            expected = (wishes[action.value], "month end", "Dagster UI")
            assert (control.mode, control.reason, control.by) == expected
            run = instance.get_run_by_id(result.run_id)
            assert run is not None
            tags = (run.tags[STREAM_TAG], run.tags[ACTION_TAG], run.tags[BY_TAG])
            assert tags == ("payments", action.value, "Dagster UI")


def test_no_stream_is_an_error_that_names_the_field(running: World) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        result = execute(running, StreamAction.stop, instance, streams=[])
    assert not result.success
    (event,) = result.get_step_failure_events()
    assert "No stream is named." in event.step_failure_data.user_failure_data.description
    assert "ops.stop.config.streams" in event.step_failure_data.user_failure_data.metadata["next"].value


def test_one_streams_trouble_keeps_no_other_from_its_turn(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "orders", "refunds")
    settings = Deployment.at(home).settings()
    broken = stream_folder(settings, "orders").root
    broken.mkdir(parents=True)
    (broken / "control.json").write_text("{")
    job = build_definitions(Deployment.at(home)).resolve_job_def("frazil_stop")
    config = {"ops": {"stop": {"config": {"streams": ["orders", "refunds"]}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(run_config=config, instance=instance, raise_on_error=False)
    assert not result.success
    assert read_control(stream_folder(settings, "refunds").store).mode == "stopped"
