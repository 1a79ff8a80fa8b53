"""Merging of rows whose key changed, by Spark: values that were not sent are those of the row under its former key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.expressions import AlwaysTrue

from jobs.mirrors.fold import refold
from jobs.mirrors.model.errors import MovedValuesError
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
            made.append(_move(step * count + n, former, place + 1, place, 0))
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
    if few_keys:
        return
    # A merge of all of it again, as where the changelog's snapshots since the last one have expired.
    world.land([change("u", 1_500, id=600, name="new", unavailable=["note"])])
    files = [task.file for task in world.changelog.scan(AlwaysTrue()).plan_files()]
    assert world.merged(files=files).counts.unresolved == 0
    expected[600,] = {"id": 600, "name": "new", "note": "note 0"}
    assert world.rows() == expected


def _notes(world: MirrorWorld) -> dict[int, str | None]:
    return {key: row["note"] for (key,), row in world.rows().items()}


def _move(key: int, former: int, offset: int, position: int, partition: int) -> Row:
    return change(
        "c", offset, position, partition=partition, id=key, name="moved", unavailable=["note"], old_key={"id": former}
    )


def test_a_mirror_stops_until_the_changes_of_a_former_key_are_there(tmp_path: Path, spark: SparkSession) -> None:
    """The partition of the former key lags: its last changes land behind the row with the new key."""
    world = MirrorWorld(tmp_path, spark, SMALL, ["id"])
    world.land([change("r", n, 0, id=n, name="first", note="old") for n in (1, 5)])
    world.merged()
    # The row has moved twice, and another one once.
    moved = [_move(2, 1, 0, 11, 1), change("d", 1, 14, partition=1, id=2), _move(3, 2, 2, 14, 1), _move(6, 5, 3, 16, 1)]
    world.land(moved)
    with pytest.raises(MovedValuesError, match=r"2 values of rows whose key changed"):
        world.merged(by="either")
    assert _notes(world) == {1: "old", 5: "old"}
    world.land([change("u", 7, 10, id=1, name="first", note="NEW"), change("d", 8, 11, id=1)])
    with pytest.raises(MovedValuesError, match=r"1 values of .* id = 6,"):
        world.merged(by="either")
    # The connector takes a snapshot of the rows: the last deletion may never come.
    world.land([change("r", 4, 17, partition=1, id=6, name="moved", note="sent")])
    assert world.merged(by="either").counts.unresolved == 0
    assert _notes(world) == {3: "NEW", 5: "old", 6: "sent"}
    world.land([change("u", 5, 19, partition=1, id=3, name="new", unavailable=["note"])])
    world.merged(by="process")
    assert world.rows()[(3,)] == {"id": 3, "name": "new", "note": "NEW"}


def test_a_mirror_that_is_made_of_what_is_left_has_no_value_that_is_not_there(
    tmp_path: Path, spark: SparkSession
) -> None:
    world = MirrorWorld(tmp_path, spark, SMALL, ["id"])
    world.land([change("u", 0, id=1, name="n", unavailable=["note"]), change("d", 1, id=1), _move(2, 1, 2, 1, 0)])
    with pytest.raises(MovedValuesError):
        world.merged()
    assert world.merged(incomplete=True).counts.unresolved == 1
    assert world.rows() == {(2,): {"id": 2, "name": "moved", "note": None}}


def test_a_change_that_comes_late_to_a_former_key_changes_the_rows_that_had_it(
    tmp_path: Path, spark: SparkSession
) -> None:
    """A dead letter of the former key is replayed after the row has moved, and moved again."""
    world = MirrorWorld(tmp_path, spark, SMALL, ["id"])
    world.land([change("r", 0, id=1, name="n", note="old"), change("c", 1, id=7, note="seven")])
    world.land([change("d", 3, id=1), _move(2, 1, 4, 3, 0)])
    assert world.merged().counts.unresolved == 0
    world.land([change("d", 5, id=2), _move(3, 2, 6, 5, 0)])
    world.merged()
    assert _notes(world) == {3: "old", 7: "seven"}
    world.land([change("u", 2, id=1, name="n", note="NEW")])
    late = world.merged()
    assert (late.counts.late, late.counts.refolded) == (1, 3)
    assert _notes(world) == {3: "NEW", 7: "seven"}
