"""Merges with Spark: `frazil mirror run`, which starts it where a merge needs it, and letters of a former log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.mirrors.run.merging import Merged
from jobs.mirrors.run.mirror_run import IncrementMerger, rebuild_mirror, run_mirror
from tests.unit.mirrors.mirror_world import Change, MirrorWorld

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
