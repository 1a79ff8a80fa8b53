"""Merging of rows whose key changed, by Spark: values that were not sent are those of the row under its former key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.expressions import AlwaysTrue

from jobs.mirror import refold
from jobs.mirror.merge_plan import MirrorState
from tests.helpers.mirror_changes import SMALL
from tests.helpers.mirror_world import MirrorWorld, Row, change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def _moved(count: int) -> list[Row]:
    """So many rows, each of which has had three keys; their notes were sent with the first one alone."""
    made = [change("c", n, id=n, name="first", note=f"note {n}") for n in range(count)]
    for step in (1, 2):
        for n in range(count):
            former, place = (step - 1) * count + n, len(made)
            made.append(change("d", place, id=former))
            made.append(
                change("c", place + 1, id=step * count + n, name="moved", unavailable=["note"], old_key={"id": former})
            )
    return made


@pytest.mark.parametrize("few_keys", [0, 1_000_000])
def test_rows_that_have_moved_may_be_many(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, few_keys: int
) -> None:
    """Whether their keys go to each task, or are too many for that."""
    monkeypatch.setattr(refold, "_FEW_KEYS", few_keys)
    world = MirrorWorld(tmp_path, spark, SMALL, ["id"])
    world.land(_moved(300))
    result = world.merged()
    assert (result.counts.refolded, result.counts.unresolved) == (300, 0)
    expected = {(600 + n,): {"id": 600 + n, "name": "moved", "note": f"note {n}"} for n in range(300)}
    assert world.rows() == expected
    # A merge of all of it again, as where the changelog's snapshots since the last one have expired.
    world.land([change("u", 1_500, id=600, name="new", unavailable=["note"])])
    files = [task.file for task in world.changelog.scan(AlwaysTrue()).plan_files()]
    assert world.merged(files=files).counts.unresolved == 0
    assert world.rows() == expected | {(600,): {"id": 600, "name": "new", "note": "note 0"}}


def test_a_changelog_that_begins_with_updates_without_all_values(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refold, "_FEW_KEYS", 3)
    world = MirrorWorld(tmp_path, spark, SMALL, ["id"])
    world.land([change("u", n, id=n, name=f"n{n}", unavailable=["note"]) for n in range(20)])
    result = world.merged(state=MirrorState())
    assert (result.counts.upserts, result.counts.unresolved) == (20, 20)
    assert {row["name"] for row in world.rows().values()} == {f"n{n}" for n in range(20)}
