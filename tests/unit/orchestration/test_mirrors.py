"""Mirrors in Dagster: what a run merges, what is merged beside it and told once, and what the check says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.mirrors import MIRROR_CURRENT, mirror_key, mirror_outcome
from jobs.base.errors import FrazilError
from jobs.mirrors.run import mirror_run
from jobs.mirrors.run.mirror_status import MirrorStatus
from orchestration.definitions import build_definitions
from orchestration.sensors.mirrors import mirrors_sensor
from resources.deployment import Deployment
from tests.unit.mirrors.mirror_world import (
    CHANGELOG,
    MIRROR,
    Change,
    MirrorWorld,
)
from tests.unit.mirrors.plain_merger import PlainMerger
from tests.unit.orchestration.deployments import connections


class Place:
    """A deployment with a mirror, Dagster's instance, and the daemon's part of a sensor's tick."""

    def __init__(self, home: Path, instance: dg.DagsterInstance) -> None:
        self.world: MirrorWorld = MirrorWorld(home)
        self.deployment: Deployment = Deployment.at(home)
        self.key: dg.AssetKey = mirror_key(self.world.settings, self.world.mirror)
        self.instance: dg.DagsterInstance = instance
        self.cursor: str | None = None

    def tick(self) -> Sequence[Any]:
        """One tick of the sensor; what it reports is stored as the daemon stores it."""
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, resources=connections(self.deployment)
        ) as context:
            result: Any = mirrors_sensor()(context)
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        self.cursor = result.cursor
        return result.asset_events

    def merges(self) -> list[dict[str, Any]]:
        """The metadata of every merge that Dagster knows, oldest first."""
        found = self.instance.fetch_materializations(dg.AssetRecordsFilter(asset_key=self.key), limit=20).records
        return [
            {name: value.value for name, value in record.asset_materialization.metadata.items()}
            for record in reversed(found)
            if record.asset_materialization
        ]

    def materialize(self) -> dg.ExecuteInProcessResult:
        definitions = build_definitions(self.deployment)
        job = definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(asset_selection=[self.key], instance=self.instance, raise_on_error=False)


@pytest.fixture
def place(tmp_path: Path, instance: dg.DagsterInstance) -> Place:
    return Place(tmp_path, instance)


def test_a_mirror_stands_behind_its_changelog(place: Place) -> None:
    graph = build_definitions(place.deployment).resolve_asset_graph()
    changelog = dg.AssetKey([place.world.settings.catalog.name, *CHANGELOG.split(".")])
    assert graph.get(place.key).parent_keys == {changelog}
    assert dg.AssetCheckKey(place.key, MIRROR_CURRENT) in graph.asset_check_keys


def test_merges_beside_dagster_are_told_once_each(place: Place) -> None:
    world = place.world
    assert [each.passed for each in place.tick()] == [True]
    world.land(Change(1, "ann"), Change(2, "bob"))
    world.merge()
    merged, check = place.tick()
    assert isinstance(merged, dg.AssetMaterialization) and isinstance(check, dg.AssetCheckEvaluation)
    assert place.tick() == []
    world.land(Change(3, "cid"))
    world.merge()
    # Where the cursor is lost, Dagster's own record tells what was reported.
    place.tick()
    place.cursor = None
    assert not [each for each in place.tick() if isinstance(each, dg.AssetMaterialization)]
    first, second = place.merges()
    assert (first["dagster/row_count"], second["dagster/row_count"]) == (2, 3)
    stamp = world.stamp()
    assert stamp is not None
    assert second["changelog_snapshot"] == str(stamp.snapshot_id)
    assert (second["lag_rows"], second["source_position"]) == (0, f"{3:016x}")


def test_what_a_run_has_merged_is_not_told_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    class InProcess(PlainMerger):
        def __init__(self, *given: object) -> None:
            pass

    monkeypatch.setattr(mirror_run, "IncrementMerger", InProcess)
    world = place.world
    world.land(Change(1, "ann"), Change(2, "bob"), Change(2, None))
    done = place.materialize()
    assert done.success
    assert world.rows() == world.source()
    (told,) = place.merges()
    assert (told["changes_merged"], told["lag_rows"], told["dagster/row_count"]) == (3, 0, 1)
    # The comparison with the changelog is not made by a run that merges.
    (check,) = done.get_asset_check_evaluations()
    assert (check.check_name, check.passed) == (MIRROR_CURRENT, True)
    place.tick()
    assert len(place.merges()) == 1
    # A run that finds nothing to merge says how things stand.
    assert place.materialize().success
    assert place.merges()[-1]["changes_merged"] == 0


def test_a_run_that_cannot_merge_names_the_next_command(place: Place) -> None:
    world = place.world
    world.catalog().drop_table(CHANGELOG)
    done = place.materialize()
    assert not done.success
    (failed,) = [each for each in done.all_events if each.is_step_failure]
    assert "changelog shop.customers_changes does not exist yet" in str(failed.event_specific_data)
    assert "frazil run customers" in str(failed.event_specific_data)


def test_the_check_says_what_stands_in_the_way(place: Place) -> None:
    spec, mirror = place.world.spec, place.world.mirror
    fine = MirrorStatus(MIRROR, lag_rows=0)
    assert mirror_outcome(spec, mirror, fine).passed
    stopped = replace(fine, problem=FrazilError("The source was restored.", fix="frazil mirror accept customers"))
    for status, code, said in [
        (stopped, "problem", "The source was restored. Next: frazil mirror accept customers"),
        (replace(fine, others=(7,)), "others", "frazil mirror rebuild customers --table shop.customers"),
        (replace(fine, letters=2), "letters", "2 dead letters of stream customers have not come back"),
    ]:
        outcome = mirror_outcome(spec, mirror, status)
        assert (outcome.passed, outcome.code, outcome.warn) == (False, code, code == "letters")
        assert said in outcome.sentence


@pytest.mark.parametrize(("seconds", "passed"), [(200, True), (400, False)])
def test_a_mirror_that_its_driver_merges_is_late_after_ten_times_its_pause(
    place: Place, seconds: int, passed: bool
) -> None:
    mirror = place.world.mirror.model_copy(update={"every": timedelta(seconds=30)})
    since = datetime.now(UTC) - timedelta(seconds=seconds)
    outcome = mirror_outcome(place.world.spec, mirror, MirrorStatus(MIRROR, lag_rows=5, lag_since=since))
    assert outcome.passed is passed
    # One that is merged when somebody asks is never late.
    assert mirror_outcome(
        place.world.spec, place.world.mirror, MirrorStatus(MIRROR, lag_rows=5, lag_since=since)
    ).passed
