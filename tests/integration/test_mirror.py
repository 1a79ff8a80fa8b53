"""Merges with Spark: `frazil mirror run` starts it only if a merge needs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.mirror.mirror_world import Change, MirrorWorld

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
