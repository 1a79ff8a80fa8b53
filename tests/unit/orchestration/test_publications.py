"""Gated streams in Dagster: the check that publishes or holds, and what asks for it, on a real table."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from jobs.quality.publishing.gated import release
from orchestration.definitions import build_definitions
from orchestration.jobs.publish import JOB, PUBLISHED_TAG
from orchestration.sensors.publications import SENSOR, PublicationsCursor, run_publications_tick
from resources.deployment import Deployment
from tests.unit.orchestration.cli.test_gated_publish import contract
from tests.unit.orchestration.deployments import connections
from tests.unit.quality.publishing.branch_world import BranchWorld

pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")


@pytest.fixture
def world(tmp_path: Path) -> BranchWorld:
    return BranchWorld(tmp_path / "home", contract=contract(3), publish={"gate": "contract", "every": "5m"})


def published(world: BranchWorld, instance: dg.DagsterInstance) -> dg.AssetCheckEvaluation:
    job = build_definitions(Deployment.at(world.home)).resolve_job_def(JOB)
    done = job.execute_in_process(instance=instance, raise_on_error=False)
    (found,) = done.get_asset_check_evaluations()
    assert found.check_name == "published"
    return found


def test_the_check_publishes_or_is_red(world: BranchWorld, instance: dg.DagsterInstance) -> None:
    ids = world.land(3)
    first = published(world, instance)
    assert (first.passed, world.rows()) == (True, Counter(ids))
    assert first.description == "3 rows were published."
    bad = world.land(2)
    held = published(world, instance)
    assert (held.passed, held.severity, world.rows()) == (False, dg.AssetCheckSeverity.ERROR, Counter(ids))
    assert "2 rows are quarantined, offsets payments-0 [3, 5)" in (held.description or "")
    assert "frazil release payments --reason TEXT" in (held.description or "")
    assert held.metadata["became"].value == "held"
    assert not published(world, instance).passed, "it stays red"
    release(world.spec, world.settings, world.catalog(), "tester", "known")
    assert published(world, instance).passed
    assert world.rows() == Counter(ids + bad)


def test_a_stream_without_a_gate_has_none_of_it(tmp_path: Path) -> None:
    world = BranchWorld(tmp_path / "home", contract=contract(3))
    found = build_definitions(Deployment.at(world.home))
    assert not [each for each in found.sensors or () if each.name == SENSOR]
    assert not [each for each in found.jobs or () if each.name == JOB]


def test_the_sensor_asks_for_a_run(world: BranchWorld, instance: dg.DagsterInstance) -> None:
    found = build_definitions(Deployment.at(world.home))
    (sensor,) = (each for each in found.sensors or () if each.name == SENSOR)

    def tick(cursor: str | None) -> dg.SensorResult:
        resources = connections(Deployment.at(world.home))
        resources.pop("kafka")
        with dg.build_sensor_context(
            instance=instance, cursor=cursor, resources=resources, repository_def=found.get_repository_def()
        ) as context:
            made = sensor(context)
            assert isinstance(made, dg.SensorResult)
            return made

    nothing = tick(None)
    assert not nothing.run_requests
    world.land(1)
    (asked,) = list(tick(nothing.cursor).run_requests or ())
    assert asked.tags[PUBLISHED_TAG] == "payments"
    assert [each.name for each in asked.asset_check_keys or ()] == ["published"]


class TestWhen:
    @pytest.fixture
    def tick(self, world: BranchWorld) -> Any:
        memory, deployment = PublicationsCursor(), Deployment.at(world.home)

        def look(now: float, under_way: tuple[str, ...] = ()) -> list[str]:
            found = run_publications_tick(deployment, world.catalog, memory, under_way, now)
            return [spec.stream for spec, _ in found.start]

        return look

    def test_as_often_as_the_file_says(self, world: BranchWorld, tick: Any) -> None:
        now = time.time()
        assert tick(now) == []
        world.land(1)
        assert tick(now + 30, ("payments",)) == [], "it is being published"
        assert tick(now + 30) == ["payments"]
        assert tick(now + 60) == []
        assert tick(now + 331) == ["payments"]
        world.publish()
        assert tick(now + 900) == [], "main has all of it"

    def test_what_is_held_is_left_alone_until_something_changes(
        self, world: BranchWorld, instance: dg.DagsterInstance, tick: Any
    ) -> None:
        now = time.time()
        world.land(4)
        assert tick(now) == ["payments"]
        published(world, instance)
        world.land(1)
        assert tick(now + 600) == []
        assert tick(now + 1200) == []
        world.write(contract=contract(9))
        assert tick(now + 1230) == ["payments"], "by another contract"

    def test_what_could_not_be_evaluated_is_asked_for_as_often_as_the_file_says(
        self, world: BranchWorld, instance: dg.DagsterInstance, tick: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = time.time()
        ids = world.land(2)
        assert tick(now) == ["payments"]

        def broken(*_: object) -> object:
            raise ValueError("nobody knows why")

        with monkeypatch.context() as patched:
            patched.setattr("jobs.quality.contracts.evaluation._Evaluation._batch", broken)
            assert not published(world, instance).passed
        assert tick(now + 30) == ["payments"], "it is held since"
        assert tick(now + 60) == []
        assert tick(now + 300) == []
        assert tick(now + 331) == ["payments"]
        assert published(world, instance).passed and world.rows() == Counter(ids)

    def test_the_check_turns_green_after_a_release(
        self, world: BranchWorld, instance: dg.DagsterInstance, tick: Any
    ) -> None:
        now = time.time()
        world.land(4)
        tick(now)
        published(world, instance)
        assert tick(now + 600) == []
        release(world.spec, world.settings, world.catalog(), "tester", "known")
        assert tick(now + 630) == ["payments"], "although nothing is to be published"
        assert tick(now + 660) == []
