"""Takeover from the real Iceberg sink, killed at five points; kills of the takeover; and the way back.

Counted over the joined table, by (topic, partition, offset): nothing missing, nothing doubled.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.migration.takeover.hand_back import hand_back
from jobs.migration.takeover.takeover import COMPLETED_KEY, look, take_over_from_sink
from jobs.migration.takeover.takeover_plan import TakeoverRefusedError
from jobs.migration.takeover.takeover_seam import seam_of
from jobs.proof.lookup.tags import tags_of
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import ROOT
from tests.integration.sink_world import SinkWorld

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

FIRST, SECOND, LATER = 60, 40, 30


def landed_once(world: SinkWorld) -> None:
    """Let the sink land the first records, so that its group has offsets."""
    world.start()
    world.produce(FIRST)
    world.wait_until_committed()


def killed_before_announcement(world: SinkWorld) -> None:
    """Files are written, and nobody was told."""
    landed_once(world)
    folder = world.pipeline.home / ".frazil" / "warehouse"
    before = set(folder.rglob("*.parquet"))
    world.produce(SECOND)
    wait_for(lambda: set(folder.rglob("*.parquet")) - before, "a file of the next commit")
    world.kill()


def killed_before_table_commit(world: SinkWorld) -> None:
    """Files are announced with their offsets, and the catalog takes no commit."""
    landed_once(world)
    with world.catalog_held():
        world.produce(SECOND)
        world.wait_until_announced()
        world.kill()


def killed_before_coordinator_commit(world: SinkWorld) -> None:
    """The table has the files, and the coordinator's group does not know."""
    landed_once(world)
    topic = TopicPartition(world.control_topic, 0)
    wait_for(lambda: world.coordinator().get(topic), "the coordinator's first commit")
    before = world.coordinator()
    world.produce(SECOND)
    world.wait_until_committed()
    world.kill()
    # Milliseconds lie between the two commits; where the kill came too late, the second one is taken back.
    wait_for(lambda: world.kafka().members(world.sink.coordinator_group) == 0, "the coordinator to leave its group")
    world.kafka().commit(world.sink.coordinator_group, before)


def killed_in_partial_commit(world: SinkWorld) -> None:
    """One of two tasks has answered late: a commit without it is in the table, its own files are announced."""
    landed_once(world)
    world.produce(SECOND // 2, partition=0)
    world.wait_until_committed()
    with world.catalog_held():
        world.produce(SECOND // 2, partition=1)
        world.wait_until_announced()
        world.kill()


def killed_right_after_start(world: SinkWorld) -> None:
    """A second worker finds files that the first has announced, and dies before it commits them."""
    killed_before_table_commit(world)
    with world.catalog_held():
        world.start()
        world.kill()


KILLS: dict[str, Callable[[SinkWorld], None]] = {
    each.__name__: each
    for each in (
        killed_before_announcement,
        killed_before_table_commit,
        killed_before_coordinator_commit,
        killed_in_partial_commit,
        killed_right_after_start,
    )
}
# An idle task sits in its poll for so long, and commits go without it.
IDLE_TASK = {
    "worker_settings": {"offset.flush.interval.ms": "15000"},
    "sink_settings": {"iceberg.control.commit.timeout-ms": "1000"},
}
COMPLETED = {"killed_before_table_commit", "killed_in_partial_commit", "killed_right_after_start"}


class Worlds:
    """Sinks by the point at which they were killed, each made when it is first asked for."""

    def __init__(self, broker: str, folder: Path) -> None:
        self._broker: str = broker
        self._folder: Path = folder
        self._made: dict[str, SinkWorld] = {}

    def __getitem__(self, point: str) -> SinkWorld:
        if point not in self._made:
            options = IDLE_TASK if point == "killed_in_partial_commit" else {}
            self._made[point] = SinkWorld.make(self._folder / point, self._broker, point, **options)
            KILLS[point](self._made[point])
        return self._made[point]

    def stop(self) -> None:
        for world in self._made.values():
            if world.worker is not None:
                world.worker.stop()


@pytest.fixture(scope="module")
def worlds(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    made = Worlds(broker, tmp_path_factory.mktemp("sinks"))
    yield made
    made.stop()


@pytest.mark.parametrize("point", sorted(KILLS.keys() - {"killed_in_partial_commit"}))
def test_nothing_is_missing_or_doubled_over_the_seam(worlds: Worlds, spark: SparkSession, point: str) -> None:
    world, one = worlds[point], worlds[point].pipeline
    before = world.rows()
    one.numbers = FIRST + SECOND
    plan = take_over_from_sink(one.spec(), one.settings(), world.request(), "tester", "trying it")
    completed = sum(each.rows for each in plan.tables)
    assert completed == world.rows() - before, "what was completed is what came to the table"
    assert bool(completed) == (point in COMPLETED)
    assert sum(plan.start.values()) == world.rows(), "the sink's rows are those below the start, each once"
    world.produce(LATER)
    one.drain(spark)
    world.assert_joined()
    assert world.rows() == FIRST + SECOND + LATER
    seam = seam_of(one.spec(), one.settings(), one.catalog(), plan)
    assert (seam.missing, seam.doubled) == (0, 0)
    assert {each.gap for each in seam.partitions} == {0}
    assert seam.read == FIRST + SECOND + LATER - sum(plan.start.values())
    (tag,) = tags_of(one.table().metadata)
    assert tag.name == f"connect-{world.connector}"
    with pytest.raises(TakeoverRefusedError, match="has landed records itself"):
        look(one.spec(), one.settings(), world.request())


def run_takeover(world: SinkWorld, steps: str = "") -> subprocess.CompletedProcess[str]:
    one = world.pipeline
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(one.home), "takeover", one.stream]
    options = ["--from-connect", world.connector, "--control-topic", world.control_topic]
    return subprocess.run(
        [*command, *options, "--no-land", "--yes", "--reason", "trying it"],
        cwd=ROOT,
        env={**os.environ, "FRAZIL_STEPS": steps, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_takeover_that_is_killed_goes_on(worlds: Worlds, spark: SparkSession) -> None:
    world, one = worlds["killed_in_partial_commit"], worlds["killed_in_partial_commit"].pipeline
    one.numbers = FIRST + SECOND
    for step in (
        "takeover_before_files",
        "takeover_after_files",
        "tag_after_commit",
        "takeover_after_claim",
        "takeover_after_stamp",
    ):
        died = run_takeover(world, f"{step}=kill")
        assert died.returncode == -signal.SIGKILL, died.stderr
    done = run_takeover(world)
    assert done.returncode == 0, done.stderr
    summaries = [each.summary for each in one.table().metadata.snapshots if each.summary]
    assert sum(COMPLETED_KEY in each.additional_properties for each in summaries) == 1
    assert len(tags_of(one.table().metadata)) == 1
    world.produce(LATER)
    one.drain(spark)
    world.assert_joined()
    assert world.rows() == FIRST + SECOND + LATER


def test_the_sink_goes_on_where_the_stream_ended(worlds: Worlds, spark: SparkSession) -> None:
    world, one = worlds["killed_before_table_commit"], worlds["killed_before_table_commit"].pipeline
    before = world.rows()
    with pytest.raises(TakeoverRefusedError, match="is not stopped"):
        hand_back(one.spec(), one.settings(), world.sink.offset_group, None, "tester: back")
    one.control().stop("back to the sink", "tester")
    plan = hand_back(one.spec(), one.settings(), world.sink.offset_group, None, "tester: back")
    assert plan.tables == (one.table_name,)
    world.start()
    world.produce(LATER)
    world.wait_until_committed()
    world.assert_joined()
    assert world.rows() == before + LATER
    world.kill()
    # And over again: the stream goes on where the sink ended.
    plan = take_over_from_sink(one.spec(), one.settings(), world.request(), "tester", "over again")
    assert sum(plan.start.values()) == before + LATER
    world.produce(LATER)
    one.drain(spark)
    world.assert_joined()
    assert world.rows() == before + 2 * LATER
