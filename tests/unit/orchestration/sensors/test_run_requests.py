"""The control runs that the sensor asks for: once each, and never held up by one whose process is gone."""

from __future__ import annotations

import dagster as dg
import pytest
from dagster._core.storage.tags import TagType, get_tag_type

from orchestration.jobs.control import JOB, ControlConfig, StreamAction, control_tags
from orchestration.jobs.runs import REQUEST_TAG, WORKER_TAG, give_up_if_gone, this_worker
from tests.unit.orchestration.reconcile.supervised_deployment import Sensor, World, dead_process

# Dagster warns about itself when one resource holds another.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")


def test_a_request_is_never_doubled(world: World, instance: dg.DagsterInstance) -> None:
    world.write("orders")
    sensor = Sensor(world, instance)
    (request,) = sensor.tick().run_requests
    config = request.run_config["ops"]["control"]["config"]
    assert (config["stream"], config["action"], config["request"]) == ("orders", "ensure_running", 1)
    job = sensor.definitions.resolve_job_def(JOB)
    run = instance.create_run_for_job(
        job, run_config=request.run_config, tags=request.tags, status=dg.DagsterRunStatus.STARTED
    )
    waiting = sensor.tick()
    assert waiting.run_requests == []
    assert f"orders: run {run.run_id[:8]} is under way" in waiting.skip_message
    # A lost cursor goes on from what Dagster still knows.
    sensor.cursor = None
    instance.report_run_failed(run)
    assert [each.tags[REQUEST_TAG] for each in sensor.tick().run_requests] == ["2"]


def test_a_lost_cursor_counts_on_however_many_actions_of_people_are_newer(
    world: World, instance: dg.DagsterInstance
) -> None:
    world.write("orders")
    sensor = Sensor(world, instance)
    job = sensor.definitions.resolve_job_def(JOB)

    def done(tags: dict[str, str]) -> None:
        config = request.run_config
        instance.create_run_for_job(job, run_config=config, tags=tags, status=dg.DagsterRunStatus.FAILURE)

    (request,) = sensor.tick().run_requests
    done({**request.tags, REQUEST_TAG: "41"})
    for action in [StreamAction.pause, StreamAction.resume] * 12:
        done(control_tags(ControlConfig(stream="orders", action=action, by="tester@here")))
    sensor.cursor = None
    (again,) = sensor.tick().run_requests
    assert (again.tags[REQUEST_TAG], again.run_key) == ("42", "orders:ensure_running:42")


def test_a_run_whose_process_is_gone_is_given_up(world: World, instance: dg.DagsterInstance) -> None:
    world.write("orders")
    sensor = Sensor(world, instance)
    (request,) = sensor.tick().run_requests
    job = sensor.definitions.resolve_job_def(JOB)
    dead = dead_process()

    def run_of(*changes: tuple[str, object]) -> str:
        run = instance.create_run_for_job(
            job, run_config=request.run_config, tags=request.tags, status=dg.DagsterRunStatus.STARTED
        )
        worker = this_worker(run.run_id)
        for was, now in changes:
            worker = worker.replace(was, str(now))
        instance.add_run_tags(run.run_id, {WORKER_TAG: worker})
        return run.run_id

    _, pid, started, boot, host = this_worker("").split(" ", 4)
    is_dead = (f" {pid} {started} ", f" {dead['pid']} {dead['started']} ")
    lives = run_of()
    elsewhere = run_of(is_dead, (host, "another-host"))
    killed = run_of(is_dead)
    before_a_boot = run_of((boot, "another-boot"))
    # Executed anew in the UI, it has the tags of the run before it, and has not written its own yet.
    anew = run_of(is_dead)
    instance.add_run_tags(anew, {WORKER_TAG: f"{killed} {dead['pid']} {dead['started']} {boot} {host}"})
    assert "is under way" in sensor.tick().skip_message
    found = {run.run_id: run.status for run in instance.get_runs()}
    assert found == {
        **dict.fromkeys([lives, elsewhere, anew], dg.DagsterRunStatus.STARTED),
        **dict.fromkeys([killed, before_a_boot], dg.DagsterRunStatus.FAILURE),
    }


def test_a_killed_control_run_holds_its_stream_up_for_no_longer_than_a_tick(
    world: World, instance: dg.DagsterInstance
) -> None:
    world.write("orders")
    sensor = Sensor(world, instance)
    (request,) = sensor.tick().run_requests
    job = sensor.definitions.resolve_job_def(JOB)
    run = instance.create_run_for_job(
        job, run_config=request.run_config, tags=request.tags, status=dg.DagsterRunStatus.STARTED
    )
    dead = dead_process()
    _, pid, started, _ = this_worker(run.run_id).split(" ", 3)
    gone = this_worker(run.run_id).replace(f" {pid} {started} ", f" {dead['pid']} {dead['started']} ")
    instance.add_run_tags(run.run_id, {WORKER_TAG: gone})
    # It had launched a driver, which was killed with it, before the supervisor's first look.
    world.drive("orders", **dead)
    (again,) = sensor.tick().run_requests
    assert again.tags[REQUEST_TAG] == "2"
    kept = instance.get_run_by_id(run.run_id)
    assert kept is not None
    assert kept.status is dg.DagsterRunStatus.FAILURE
    assert request.tags["dagster/max_runtime"] == job.tags["dagster/max_runtime"] == "1200"


def test_the_process_of_a_run_is_nothing_for_the_list_of_runs_and_former_runs_are_known(
    instance: dg.DagsterInstance,
) -> None:
    assert get_tag_type(WORKER_TAG) is TagType.HIDDEN

    @dg.job
    def job() -> None:
        pass

    dead = dead_process()
    for tag in (WORKER_TAG, "frazil/worker"):
        run = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
        _, pid, started, _ = this_worker(run.run_id).split(" ", 3)
        gone = this_worker(run.run_id).replace(f" {pid} {started} ", f" {dead['pid']} {dead['started']} ")
        instance.add_run_tags(run.run_id, {tag: gone})
        kept = instance.get_run_by_id(run.run_id)
        assert kept is not None
        assert give_up_if_gone(instance, kept)
