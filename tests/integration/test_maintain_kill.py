"""Maintenance killed with SIGKILL, as a process of its own: the lock is free, stream and next run go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.maintain.maintenance_history import read_history, table_store
from tests.helpers.lake import Lake, later

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

ROOT = Path(__file__).resolve().parents[2]
POLICY = {"compact": {"min_files": 2}, "expire": {"min_snapshots": 1}}
PROCESS = f"""
import sys
from pathlib import Path
from jobs.spark.session import start_session
from tests.helpers.lake import Lake, later

def spark():
    return start_session(small, "frazil maintain", work="sql")

lake = Lake(Path(sys.argv[1]))
conf = {{"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}}
session = lake.settings.spark.model_copy(update={{"driver_memory": "600m", "conf": conf}})
small = lake.settings.model_copy(update={{"spark": session}})
result = lake.maintain(spark, {POLICY!r}, only=set(sys.argv[2].split(",")), now=later)
print(result.errors)
"""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "home")
    for _ in range(3):
        made.land(days=1)
    return made


def killed(lake: Lake, step: str, *actions: str) -> None:
    """Maintain in another process, which dies at the step."""
    process = subprocess.run(
        [sys.executable, "-c", PROCESS, str(lake.settings.home), ",".join(actions)],
        cwd=ROOT,
        env={**os.environ, "FRAZIL_STEPS": f"{step}=kill", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL, process.stdout + process.stderr
    assert f"step {step}: SIGKILL" in process.stderr


def rows_are_right(lake: Lake) -> None:
    assert lake.ids() == dict.fromkeys(range(lake.rows), 1)


# None of these has Spark running yet.
@pytest.mark.parametrize(
    ("step", "actions"),
    [
        ("maintain_before_expiry", ("expire",)),
        ("maintain_before_removal", ("orphans",)),
    ],
)
def test_killed_before_anything_was_done(lake: Lake, spark: SparkSession, step: str, actions: tuple[str, ...]) -> None:
    orphan = lake.old_file("data/orphan.parquet")
    lake.forget()
    lake.land(days=1)
    files = lake.files()
    killed(lake, step, *actions)
    assert lake.files() == files
    lake.land(days=1)
    result = lake.maintain(lambda: spark, POLICY, only=set(actions), now=later)
    assert (result.errors, result.skipped) == ((), None)
    assert any(each.done for each in result.done)
    assert orphan.exists() == ("orphans" not in actions)
    rows_are_right(lake)


def test_killed_after_a_commit_that_nobody_has_noted(lake: Lake, spark: SparkSession) -> None:
    killed(lake, "maintain_after_action", "compact", "expire")
    uuid = str(lake.table().metadata.table_uuid)
    assert read_history(table_store(lake.settings, uuid)).entries == {}
    rows_are_right(lake)
    lake.land(days=1)
    result = lake.maintain(lambda: spark, POLICY, now=later)
    assert (result.errors, result.skipped) == ((), None)
    # Two files in each partition, what was compacted and what came since, and one snapshot.
    assert result.after is not None and (result.after.snapshots, result.after.data_files) == (1, 2)
    rows_are_right(lake)
