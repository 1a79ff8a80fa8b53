"""Maintenance that dies: the lock is free, stream and next run go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.maintenance.measure.maintenance_history import read_history, table_store
from tests.helpers.lake import Lake, later
from tests.integration.faults import at_step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

ROOT = Path(__file__).resolve().parents[2]
POLICY = {"compact": {"min_files": 2}, "expire": {"min_snapshots": 1}}
# It dies before it needs Spark.
PROCESS = f"""
import sys
from pathlib import Path
from tests.helpers.lake import Lake, later

def spark():
    raise AssertionError("Spark was asked for")

print(Lake(Path(sys.argv[1])).maintain(spark, {POLICY!r}, only={{"orphans"}}, now=later).errors)
"""


class Killed(BaseException):
    """Ends a run in this process as SIGKILL would; an exception of a step would only fail that step."""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "home")
    for _ in range(3):
        made.land(days=1)
    return made


def dies(lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, step: str, *actions: str) -> None:
    """Maintain in this process until the step."""

    def end() -> None:
        raise Killed(step)

    with at_step(monkeypatch, step, end), pytest.raises(Killed):
        lake.maintain(lambda: spark, POLICY, only=set(actions), now=later)


def rows_are_right(lake: Lake) -> None:
    assert lake.ids() == dict.fromkeys(range(lake.rows), 1)


def test_a_process_killed_before_it_removes_orphans_leaves_the_lock_free(lake: Lake, spark: SparkSession) -> None:
    orphan = lake.old_file("data/orphan.parquet")
    lake.forget()
    lake.land(days=1)
    files = lake.files()
    process = subprocess.run(
        [sys.executable, "-c", PROCESS, str(lake.settings.home)],
        cwd=ROOT,
        env={**os.environ, "FRAZIL_STEPS": "maintain_before_removal=kill", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL, process.stdout + process.stderr
    assert "step maintain_before_removal: SIGKILL" in process.stderr
    assert lake.files() == files
    lake.land(days=1)
    result = lake.maintain(lambda: spark, POLICY, only={"orphans"}, now=later)
    assert (result.errors, result.skipped) == ((), None)
    assert any(each.done for each in result.done)
    assert not orphan.exists()
    rows_are_right(lake)


def test_a_run_that_dies_before_it_expires_anything_is_made_again(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = lake.files()
    dies(lake, spark, monkeypatch, "maintain_before_expiry", "expire")
    assert lake.files() == files
    lake.land(days=1)
    result = lake.maintain(lambda: spark, POLICY, only={"expire"}, now=later)
    assert (result.errors, result.skipped) == ((), None)
    assert any(each.done for each in result.done)
    rows_are_right(lake)


def test_a_commit_that_nobody_has_noted_is_measured_by_the_next_run(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies(lake, spark, monkeypatch, "maintain_after_action", "compact", "expire")
    uuid = str(lake.table().metadata.table_uuid)
    assert read_history(table_store(lake.settings, uuid)).entries == {}
    rows_are_right(lake)
    lake.land(days=1)
    result = lake.maintain(lambda: spark, POLICY, now=later)
    assert (result.errors, result.skipped) == ((), None)
    # Two files in each partition, what was compacted and what came since, and one snapshot.
    assert result.after is not None and (result.after.snapshots, result.after.data_files) == (1, 2)
    rows_are_right(lake)
