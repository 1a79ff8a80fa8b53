"""Takeover from the real Iceberg sink that was killed; kills of the takeover itself; and the hand-back.

Rows are counted over the joined table by (topic, partition, offset): none is missing, none is doubled.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.migration.takeover.hand_back import hand_back
from jobs.migration.takeover.table_completion import COMPLETED_KEY
from jobs.migration.takeover.takeover import take_over_from_sink
from jobs.migration.takeover.takeover_plan import plan_takeover
from jobs.migration.takeover.takeover_refusal import TakeoverRefusedError
from jobs.migration.takeover.takeover_seam import seam_of
from jobs.proof.lookup.tags import tags_of
from jobs.streaming.driver.batch import batch
from jobs.tables.commit.stamp.errors import SinkRestartedError
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
    """Kill the sink after it has written files, before it announces them."""
    landed_once(world)
    folder = world.pipeline.home / ".frazil" / "warehouse"
    before = set(folder.rglob("*.parquet"))
    world.produce(SECOND)
    wait_for(lambda: set(folder.rglob("*.parquet")) - before, "a file of the next commit")
    world.kill()


def killed_before_table_commit(world: SinkWorld) -> None:
    """Kill the sink after it has announced files with their offsets, before the table commit."""
    landed_once(world)
    with world.catalog_held():
        world.produce(SECOND)
        world.wait_until_announced()
        world.kill()


def killed_before_coordinator_commit(world: SinkWorld) -> None:
    """Kill the sink after the table commit, before the coordinator commits its offsets of the control topic."""
    landed_once(world)
    topic = TopicPartition(world.control_topic, 0)
    wait_for(lambda: world.coordinator().get(topic), "the coordinator's first commit")
    before = world.coordinator()
    world.produce(SECOND)
    world.wait_until_committed()
    world.kill()
    # The two commits are milliseconds apart. If the kill came too late, the second one is taken back.
    wait_for(lambda: world.kafka().members(world.sink.coordinator_group) == 0, "the coordinator to leave its group")
    world.kafka().commit(world.sink.coordinator_group, before)


def killed_before_commit_of_late_files(world: SinkWorld) -> None:
    """Kill the sink after a partial commit, while files of the late task are announced and in no table."""
    landed_once(world)
    world.produce(SECOND // 2, partition=0)
    world.wait_until_committed()
    with world.catalog_held():
        world.produce(SECOND // 2, partition=1)
        world.wait_until_announced()
        world.kill()


def partial_commit_waits(world: SinkWorld, late: TopicPartition) -> bool:
    """Let the sink begin a commit, and the late task announce files behind it; False if the commit is not partial."""
    written = world.metadata_files()
    world.produce_until(lambda: world.metadata_files() - written, "the metadata of the partial commit", 0)
    if not world.committed_without_late_tasks():
        return False
    answered = world.announced_offsets()[late]
    world.produce_until(lambda: world.announced_offsets()[late] > answered, "files of the late task", 1)
    return True


@contextlib.contextmanager
def partial_commit_held(world: SinkWorld) -> Iterator[None]:
    """Hold a partial commit at the catalog for the length of the block; the late task has announced files meanwhile.

    Only records wake the tasks. Records of partition 0 make its task answer a commit, and the other task is late.
    """
    first, late = (TopicPartition(world.pipeline.stream, number) for number in (0, 1))
    world.start()
    world.produce_until(lambda: {first, late} <= world.announced_offsets().keys(), "an answer of both tasks", 0, 1)
    wait_for(lambda: world.rows() == sum(world.announced_offsets().values()), "the commit of all announced files")
    wait_for(world.coordinator, "the coordinator's first commit")
    for _ in range(_PARTIAL_COMMITS):
        with world.catalog_held():
            if partial_commit_waits(world, late):
                yield
                return
        # On a busy machine, records that were produced before woke the late task as well.
        wait_for(lambda: world.rows() == sum(world.announced_offsets().values()), "the commit of all announced files")
    raise AssertionError("no commit of the sink was partial")


def killed_during_partial_commit(world: SinkWorld) -> None:
    """Kill the sink while a partial commit waits for the catalog, and files of the late task are announced."""
    with partial_commit_held(world):
        world.kill()


def killed_after_partial_commit(world: SinkWorld) -> None:
    """Kill the sink after such a partial commit, before the coordinator commits its offsets of the control topic."""
    with partial_commit_held(world):
        rows, coordinator = world.rows(), world.coordinator()
    # The next commit, with the late files, comes no sooner than its own timeout.
    wait_for(lambda: world.rows() > rows, "the partial commit")
    world.kill()
    wait_for(lambda: world.kafka().members(world.sink.coordinator_group) == 0, "the coordinator to leave its group")
    world.kafka().commit(world.sink.coordinator_group, coordinator)


def killed_right_after_start(world: SinkWorld) -> None:
    """Kill a second worker before it commits the files that the first one had announced."""
    killed_before_table_commit(world)
    with world.catalog_held():
        world.start()
        world.kill()


KILLS: dict[str, Callable[[SinkWorld], None]] = {
    kill_point.__name__: kill_point
    for kill_point in (
        killed_before_announcement,
        killed_before_table_commit,
        killed_before_coordinator_commit,
        killed_before_commit_of_late_files,
        killed_during_partial_commit,
        killed_after_partial_commit,
        killed_right_after_start,
    )
}
_PARTIAL_COMMITS = 5
# A task without records stays in its poll until the worker flushes offsets, so commits do not wait for it.
WOKEN_BY_FLUSH: dict[str, dict[str, str]] = {
    "worker_settings": {"offset.flush.interval.ms": "15000"},
    "sink_settings": {"iceberg.control.commit.timeout-ms": "1000"},
}
WOKEN_BY_RECORDS: dict[str, dict[str, str]] = {
    "worker_settings": {"offset.flush.interval.ms": "600000"},
    "sink_settings": {"iceberg.control.commit.timeout-ms": "10000"},
}
OPTIONS = {
    "killed_before_commit_of_late_files": WOKEN_BY_FLUSH,
    "killed_during_partial_commit": WOKEN_BY_RECORDS,
    "killed_after_partial_commit": WOKEN_BY_RECORDS,
}
COMPLETED = KILLS.keys() - {"killed_before_announcement", "killed_before_coordinator_commit"}


class Worlds:
    """Killed sinks by the kill point, each started when it is first used."""

    def __init__(self, broker: str, folder: Path) -> None:
        self._broker: str = broker
        self._folder: Path = folder
        self._worlds: dict[str, SinkWorld] = {}

    def __getitem__(self, point: str) -> SinkWorld:
        if point not in self._worlds:
            options = OPTIONS.get(point, {})
            self._worlds[point] = SinkWorld.make(self._folder / point, self._broker, point, **options)
            KILLS[point](self._worlds[point])
        return self._worlds[point]

    def stop(self) -> None:
        for world in self._worlds.values():
            if world.worker is not None:
                world.worker.stop()


@pytest.fixture(scope="module")
def worlds(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    killed = Worlds(broker, tmp_path_factory.mktemp("sinks"))
    yield killed
    killed.stop()


@pytest.mark.parametrize("point", sorted(KILLS.keys() - {"killed_before_commit_of_late_files"}))
def test_nothing_is_missing_or_doubled_over_the_seam(worlds: Worlds, spark: SparkSession, point: str) -> None:
    world, pipeline = worlds[point], worlds[point].pipeline
    before = world.rows()
    plan = take_over_from_sink(pipeline.spec(), pipeline.settings(), world.request(), "tester", "trying it")
    completed = sum(completion.rows for completion in plan.tables)
    assert completed == world.rows() - before, "the table got exactly the completed rows"
    assert bool(completed) == (point in COMPLETED)
    assert sum(plan.start.values()) == world.rows(), "the sink landed every record below the start once"
    world.produce(LATER)
    pipeline.drain(spark)
    world.assert_joined()
    assert world.rows() == world.produced()
    seam = seam_of(pipeline.spec(), pipeline.settings(), pipeline.catalog(), plan)
    assert (seam.missing, seam.doubled) == (0, 0)
    assert {partition.gap for partition in seam.partitions} == {0}
    assert seam.read == world.produced() - sum(plan.start.values())
    (tag,) = tags_of(pipeline.table().metadata)
    assert tag.name == f"connect-{world.connector}"
    with pytest.raises(TakeoverRefusedError, match=r"has taken over from connector .* already"):
        plan_takeover(pipeline.spec(), pipeline.settings(), world.request())


def run_takeover(world: SinkWorld, steps: str = "") -> subprocess.CompletedProcess[str]:
    pipeline = world.pipeline
    command = [
        sys.executable,
        "-m",
        "orchestration.cli.main",
        "--home",
        str(pipeline.home),
        "takeover",
        pipeline.stream,
    ]
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
    world, pipeline = (
        worlds["killed_before_commit_of_late_files"],
        worlds["killed_before_commit_of_late_files"].pipeline,
    )
    for failpoint in (
        "takeover_before_files",
        "takeover_after_files",
        "tag_after_commit",
        "takeover_after_claim",
        "takeover_after_stamp",
    ):
        died = run_takeover(world, f"{failpoint}=kill")
        assert died.returncode == -signal.SIGKILL, died.stderr
    done = run_takeover(world)
    assert done.returncode == 0, done.stderr
    summaries = [snapshot.summary for snapshot in pipeline.table().metadata.snapshots if snapshot.summary]
    assert sum(COMPLETED_KEY in summary.additional_properties for summary in summaries) == 1
    assert len(tags_of(pipeline.table().metadata)) == 1
    world.produce(LATER)
    pipeline.drain(spark)
    world.assert_joined()
    assert world.rows() == FIRST + SECOND + LATER


def test_the_sink_goes_on_where_the_stream_ended(worlds: Worlds, spark: SparkSession) -> None:
    world, pipeline = worlds["killed_before_table_commit"], worlds["killed_before_table_commit"].pipeline
    before = world.rows()
    with pytest.raises(TakeoverRefusedError, match="is not stopped"):
        hand_back(pipeline.spec(), pipeline.settings(), world.sink.offset_group, None, "tester: back")
    pipeline.control().stop("back to the sink", "tester")
    plan = hand_back(pipeline.spec(), pipeline.settings(), world.sink.offset_group, None, "tester: back")
    assert plan.tables == (pipeline.table_name,)
    world.start()
    world.produce(LATER)
    world.wait_until_committed()
    world.assert_joined()
    assert world.rows() == before + LATER
    world.kill()
    # A second takeover: the stream goes on where the sink ended.
    plan = take_over_from_sink(pipeline.spec(), pipeline.settings(), world.request(), "tester", "second takeover")
    assert sum(plan.start.values()) == before + LATER
    world.produce(LATER)
    pipeline.drain(spark)
    world.assert_joined()
    assert world.rows() == before + 2 * LATER


def test_a_connector_that_is_started_again_beside_a_batch_stops_the_stream(
    worlds: Worlds, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, pipeline = worlds["killed_before_announcement"], worlds["killed_before_announcement"].pipeline
    if not tags_of(pipeline.table().metadata):
        take_over_from_sink(pipeline.spec(), pipeline.settings(), world.request(), "tester", "trying it")
        pipeline.drain(spark)
    assert world.kafka().reported_brokers()
    before, passed = world.rows(), batch.step

    def start_sink(failpoint: str) -> None:
        passed(failpoint)
        if failpoint == "after_tasks" and world.rows() == before:
            world.start()
            wait_for(lambda: world.rows() > before, "a commit of the sink")
            world.kill()

    world.produce(LATER)
    with monkeypatch.context() as patch:
        patch.setattr(batch, "step", start_sink)
        with pytest.raises(SinkRestartedError, match=f"connector {world.connector} was started again"):
            pipeline.drain(spark)
    with pytest.raises(SinkRestartedError) as stopped:
        pipeline.drain(spark)
    before_sink = re.search(r"rollback_to_snapshot\('.+', (\d+)\)", stopped.value.fix or "")
    assert before_sink is not None
    pipeline.table().manage_snapshots().rollback_to_snapshot(int(before_sink[1])).commit()
    pipeline.drain(spark)
    world.assert_joined()
    assert world.rows() == world.produced()
