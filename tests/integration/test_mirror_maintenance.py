"""Maintenance of a mirror by Spark: its deletes are applied partition by partition, and merges come in between."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.config.services.maintenance_policy import Policy
from jobs.config.settings.maintained_tables import MaintainedTable
from jobs.maintenance.plan.results import StepProgress
from jobs.maintenance.run import table_maintenance
from jobs.maintenance.run.table_maintenance import maintain_table
from jobs.mirrors.run.mirror_run import run_mirror
from tests.integration.test_mirror import Merges
from tests.unit.mirrors.mirror_world import MIRROR, Change, MirrorWorld

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

POLICY = Policy.model_validate({"compact": {"max_delete_files": 1}})


@pytest.mark.timeout(900)
def test_deletes_are_applied_partition_by_partition_and_a_merge_comes_in_between(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each partition is a turn of its own.
    monkeypatch.setattr(table_maintenance, "_TURN_BYTES", 1)
    world = MirrorWorld(tmp_path, buckets=2)
    merges = Merges(world, spark)
    for round_ in range(2):
        world.land(*(Change(n, f"{round_} {n}") for n in range(round_, 60)))
        merges.run()
    problems: list[BaseException] = []

    def merge() -> None:
        try:
            with world.catalog() as catalog:
                run_mirror(world.spec, world.mirror, world.settings, catalog, merges.merger, wait_seconds=60)
        except BaseException as problem:
            problems.append(problem)

    merger = threading.Thread(target=merge)

    def told(progress: StepProgress) -> None:
        if progress.step.action == "compact" and progress.result is None and not merger.ident:
            # Lands while the first partition is rewritten, and waits for it.
            world.land(Change(7, "meanwhile"), Change(8, None), Change(100, "new"))
            merger.start()

    table = MaintainedTable(MIRROR, POLICY, "customers", "mirror")
    with world.catalog() as catalog:
        result = maintain_table(
            catalog,
            world.settings,
            table,
            spark=spark.newSession,
            specs=[world.spec],
            only={"compact", "position_deletes"},
            on_progress=told,
        )
    merger.join(300)
    assert not merger.is_alive() and problems == []
    assert result.errors == ()
    assert [each.step.action for each in result.done].count("compact") == 2
    assert result.after is not None
    assert result.before.delete_files > result.after.delete_files
    # The merge stands between two compactions, and nothing of it is lost.
    made = [each.summary.operation.value for each in world.table().snapshots()[-12:] if each.summary]
    merged = max(at for at, operation in enumerate(made) if operation in ("overwrite", "delete"))
    assert "replace" in made[:merged] and "replace" in made[merged:], made
    assert world.rows() == world.source()
    world.check()
