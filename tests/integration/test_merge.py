"""Merging on real Spark and Iceberg: the mirror has what one change at a time would have made of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.mirror_world import MirrorWorld, change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

ROW = "id long, name string, note string"


def test_changes_of_rows(tmp_path: Path, spark: SparkSession) -> None:
    world = MirrorWorld(tmp_path, spark, ROW, ["id"])
    world.land([change("r", n, 0, id=n, name=f"n{n}", note="x") for n in range(6)])
    first = world.merged()
    assert (first.counts.read, first.counts.upserts, len(first.snapshots)) == (6, 6, 1)
    assert world.rows() == {(n,): {"id": n, "name": f"n{n}", "note": "x"} for n in range(6)}
    world.land(
        [
            change("u", 10, id=1, name="one", unavailable=["note"]),
            change("d", 11, id=2),
            change("d", 12, id=3),
            change("c", 13, id=3, name="three"),
            change("c", 14, id=9, name="nine", note="9"),
            change("u", 15, id=9, name="neun", unavailable=["note"]),
            change("c", 16, id=10, name="gone"),
            change("d", 17, id=10),
        ]
    )
    files = world.files
    second = world.merged()
    assert (second.counts.read, second.counts.upserts, second.counts.deletes) == (8, 3, 2)
    expected = {
        (0,): {"id": 0, "name": "n0", "note": "x"},
        (1,): {"id": 1, "name": "one", "note": "x"},
        (3,): {"id": 3, "name": "three", "note": None},
        (4,): {"id": 4, "name": "n4", "note": "x"},
        (5,): {"id": 5, "name": "n5", "note": "x"},
        (9,): {"id": 9, "name": "neun", "note": "9"},
    }
    assert world.rows() == expected
    # The same again, as if the stamp had been lost.
    again = world.merged(files=files, state=first.state)
    assert again.state == second.state
    assert world.rows() == expected
