"""Mirrors by the command, with Spark: killed at each step, made anew beside their readers, and what status says."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from jobs.commit.offsets import OffsetRange
from jobs.commit.proposals import ProposalOutcome
from jobs.commit.stamps import Stamp
from jobs.commit.target import Target
from jobs.mirror.changelog_hold import hold_property
from jobs.mirror.errors import RestoredSourceError
from jobs.mirror.merging import Merged
from jobs.mirror.merging_session import merging_session
from jobs.mirror.mirror_run import IncrementMerger, rebuild_mirror, run_mirror
from jobs.mirror.mirror_stamp import abandoned_branches
from jobs.state.stream_folder import stream_folder
from jobs.stream.mirror_process import mirror_process
from jobs.supervise.launches import launched_file
from jobs.supervise.waiting import wait_until
from orchestration.cli.main import main
from tests.unit.mirror.mirror_world import AT, CHANGELOG, MIRROR, MIRROR_STEPS, Change, MirrorWorld
from tests.unit.mirror.plain_merger import P0
from tests.unit.mirror.test_log_stretch import made_again

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]


def frazil(world: MirrorWorld, *words: str, step: str = "") -> str:
    """A command as a process of its own, which is killed at a step; what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "orchestration.cli.main", "--home", str(world.home), *words],
        cwd=ROOT,
        env={**os.environ, "FRAZIL_STEPS": f"{step}=kill" if step else "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == (-signal.SIGKILL if step else 0), done.stderr + done.stdout
    return done.stdout


def status(world: MirrorWorld) -> dict[str, Any]:
    """What `frazil mirror status` says of the one mirror."""
    result = CliRunner().invoke(main, ["--home", str(world.home), "mirror", "status", "customers", "--json"])
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)["mirrors"]
    return found


class Merges:
    """Merges with this process's Spark."""

    def __init__(self, world: MirrorWorld, spark: SparkSession) -> None:
        self.world: MirrorWorld = world
        # Of its own: a session keeps the catalog that it has met first.
        session = spark.newSession()
        self.session: SparkSession = session
        self.merger: IncrementMerger = IncrementMerger(world.settings, lambda: session)

    def run(self) -> Merged:
        with self.world.catalog() as catalog:
            return run_mirror(self.world.spec, self.world.mirror, self.world.settings, catalog, self.merger)

    def rebuild(self) -> Merged:
        with self.world.catalog() as catalog:
            return rebuild_mirror(self.world.spec, self.world.mirror, self.world.settings, catalog, self.merger)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("step", MIRROR_STEPS)
def test_a_command_that_is_killed_leaves_all_of_a_merge_or_nothing(
    tmp_path: Path, spark: SparkSession, step: str
) -> None:
    world = MirrorWorld(tmp_path)
    merges = Merges(world, spark)
    world.land(Change(1, "ann"), Change(2, "bob"))
    merges.run()
    world.land(Change(1, "anna"), Change(2, None), Change(3, "cid"), Change(2, "bert"))
    frazil(world, "mirror", "run", "customers", step=step)
    published = step == "mirror_after_publish"
    assert world.rows() == (world.source() if published else {1: "ann", 2: "bob"})
    world.check()
    world.forget_state()
    assert (merges.run().snapshot_id is None) == published
    assert world.rows() == world.source()
    world.check()
    assert not abandoned_branches(world.table().metadata)


def test_what_status_says_and_what_a_rebuild_does(tmp_path: Path, spark: SparkSession) -> None:
    world = MirrorWorld(tmp_path)
    merges = Merges(world, spark)
    world.land(Change(1, "ann"), Change(2, "bob"))
    assert status(world)["lag_rows"] == 2
    merges.run()
    world.land(Change(1, "anna"), Change(2, None), Change(3, "cid"))
    assert status(world)["lag_rows"] == 3
    merges.run()
    found = status(world)
    assert (found["lag_rows"], found["lag_seconds"], found["problem"]) == (0, 0.0, None)
    assert found["source_position"] == f"{world.end - 1:016x}" and found["source_lineage"] == "db"
    assert found["offsets"] == {"customers": {"0": world.end}}
    held = world.changelog().metadata.properties[hold_property(MIRROR)]
    assert world.changelog().metadata.snapshot_by_id(int(held)) is not None
    head = world.table().current_snapshot()
    assert head is not None and head.summary is not None
    assert int(head.summary["total-delete-files"] or 0) > 0, "rows are merged on read"

    session, name = merging_session(merges.session, world.settings), f"{world.settings.catalog.name}.{MIRROR}"
    session.sql(f"DELETE FROM {name} WHERE id = 1")
    assert len(status(world)["others_wrote"]) == 1
    merges.rebuild()
    assert world.rows() == world.source() == {1: "anna", 3: "cid"}
    assert not status(world)["others_wrote"]


def test_an_operator_says_that_the_source_was_restored(tmp_path: Path, spark: SparkSession) -> None:
    world = MirrorWorld(tmp_path)
    merges = Merges(world, spark)
    world.land(Change(1, "ann"), Change(2, "bob"))
    merges.run()
    world.position_shift = -2
    world.land(Change(1, "anna"))
    with pytest.raises(RestoredSourceError, match="restored"):
        merges.run()
    assert world.rows() == {1: "ann", 2: "bob"}
    words = ["--home", str(world.home), "mirror", "accept", "customers", "--new-generation", "--reason", "a backup"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0 and "customers-0 offset 2" in result.output, result.output
    merges.run()
    assert world.rows() == {1: "anna", 2: "bob"}
    assert not abandoned_branches(world.table().metadata)


@pytest.mark.timeout(400)
def test_the_command_starts_spark_where_a_merge_needs_it(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path)
    log = world.settings.state / "spark" / "mirror.log"
    world.land(Change(1, "ann"))
    assert "1 changes are merged" in frazil(world, "mirror", "run", "customers")
    assert not log.exists()
    with world.table().transaction() as change:
        change.set_properties({"write.merge.mode": "copy-on-write"})
    world.land(Change(1, "anna"))
    assert "1 changes are merged" in frazil(world, "mirror", "run", "customers")
    log.unlink()
    world.check()
    assert "has all that changelog" in frazil(world, "mirror", "run", "customers")
    assert not log.exists()


@pytest.mark.timeout(400)
def test_beside_a_driver_it_is_merged_again_and_again(tmp_path: Path) -> None:
    world = MirrorWorld(tmp_path, every="5s")
    folder = stream_folder(world.settings, "customers")
    folder.root.mkdir(parents=True, exist_ok=True)
    shutil.copy(world.file, launched_file(folder))
    process = mirror_process(world.spec, ["--home", str(world.home)])
    try:
        process.ensure()
        for name in ("ann", "anna"):
            world.land(Change(1, name), Change(2, "bob"))
            assert wait_until(lambda: world.rows() == world.source(), 180, 0.5)
        world.position_shift = -3
        world.land(Change(1, "ann"))
        assert wait_until(lambda: "restored" in str(status(world)["problem"]), 60, 0.5)
    finally:
        process.end()
    assert process.pid is None
    world.check()


def test_letters_of_a_topic_that_was_made_again_count_where_they_were_in_the_source(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = MirrorWorld(tmp_path)
    world.lineage = "postgresql/shop/app"
    merges = Merges(world, spark)
    world.land(Change(1, "ann"), Change(2, "bob"), Change(3, "cid"))
    merges.run()
    # Two are dead letters.
    letters = [(4, "dot", world.end), (1, "former", world.end + 1)]
    world.end += 2
    world.land(Change(1, "anna"))
    made_again(world)
    world.land(Change(2, None), Change(3, "cyd"))
    replayed(world, letters)
    world.land(Change(2, "bert"))
    done = merges.run()
    assert done.result is not None and (done.result.counts.read, done.result.counts.late) == (6, 2)
    assert world.rows() == {1: "anna", 2: "bert", 3: "cyd", 4: "dot"}
    assert done.stamp is not None and done.stamp.state.next_offsets == {P0: 3}
    assert status(world)["offsets"] == {"customers": {"0": 3}}


def replayed(world: MirrorWorld, letters: list[tuple[int, str, int]]) -> None:
    """A replay lands letters: id, name, and the offset, which is the position, too."""
    name = "customers~replay"
    replays = Target(world.catalog(), CHANGELOG, name)
    replays.claim(1, lambda newest: Stamp(name, "claim", -1, 1, "c", start={P0: 0}, position={P0: 0}))
    replays.read()
    rows = [
        {
            "id": key, "name": text, "_change_op": "u", "_change_at": AT + timedelta(minutes=offset),
            "_change_position": f"{offset:016x}", "_change_lineage": world.lineage, "_change_key": {"id": key},
            "_kafka_topic": "customers", "_kafka_partition": 0, "_kafka_offset": offset,
            "_kafka_timestamp": AT + timedelta(minutes=offset),
        }
        for key, text, offset in letters
    ]  # fmt: skip
    stamp = Stamp(name, "batch", 0, 1, "c", start={P0: 0}, position={P0: 1})
    files, batch = world.data_files(replays.table, rows), {P0: OffsetRange(0, 1)}
    assert replays.land(stamp, files, seen=replays.seen(), batch=batch, position={P0: 0}) is ProposalOutcome.LANDED
