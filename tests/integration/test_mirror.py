"""Merges with Spark: `frazil mirror run`, which starts it where a merge needs it, and letters of a former log."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.commit.offsets import OffsetRange
from jobs.commit.proposals import ProposalOutcome
from jobs.commit.stamps import Stamp
from jobs.commit.target import Target
from jobs.mirror.merging import Merged
from jobs.mirror.mirror_run import IncrementMerger, rebuild_mirror, run_mirror
from jobs.mirror.mirror_status import mirror_status
from tests.unit.mirror.mirror_world import AT, CHANGELOG, Change, MirrorWorld
from tests.unit.mirror.plain_merger import P0
from tests.unit.mirror.test_log_stretch import made_again

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]


def frazil(world: MirrorWorld, *words: str) -> str:
    """The output of a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "orchestration.cli.main", "--home", str(world.home), *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


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


@pytest.mark.timeout(1200)
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
    assert mirror_status(world.spec, world.mirror, world.settings, world.catalog()).offsets == {P0: 3}


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
