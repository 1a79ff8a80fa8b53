"""The order of changes in merges by Spark, in first merges and later ones, and where keys are folded again."""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.expressions import AlwaysTrue

from jobs.commit.offsets import TopicPartition
from jobs.mirror import fold_here
from jobs.mirror.merge_plan import MirrorState
from tests.helpers.mirror_changes import SMALL
from tests.helpers.mirror_world import MirrorWorld, Row, change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def _names(world: MirrorWorld) -> dict[int, str]:
    return {key: row["name"] for (key,), row in world.rows().items()}


def _anew(world: MirrorWorld) -> None:
    """The mirror is made anew of all that its changelog has."""
    files = [task.file for task in world.changelog.scan(AlwaysTrue()).plan_files()]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Merge on read is not yet supported")
        world.mirror.delete(AlwaysTrue())
    world.merged(files=files, state=MirrorState())


def _unplaced(told: Row) -> Row:
    return told | {"_change_position": None, "_change_lineage": None}


@pytest.mark.parametrize("most_rows", [0, fold_here.MOST_ROWS])
def test_rows_that_are_read_anew_without_positions(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, most_rows: int
) -> None:
    """They are later than the changes before them, and than a truncate."""
    monkeypatch.setattr(fold_here, "MOST_ROWS", most_rows)
    world = MirrorWorld(tmp_path, spark, SMALL, ["id"])
    log = [
        change("c", 0, id=1, name="a"), change("u", 1, id=1, name="b"), change("c", 2, id=2, name="c"),
        change("d", 3, id=2), change("r", 4, id=1, name="read"), change("r", 5, id=2, name="read"), change("t", 6),
        change("r", 7, id=1, name="again"), change("r", 8, id=3, name="three"), change("u", 9, id=3, name="drei"),
        change("r", 11, id=3, name="last"),
    ]  # fmt: skip
    expected = {0: {}, 4: {1: "b"}, 6: {1: "read", 2: "read"}, 10: {1: "again", 3: "drei"}, 11: {1: "again", 3: "last"}}
    for start, end in pairwise(expected):
        world.land([_unplaced(each) for each in log[start:end]])
        world.merged()
        assert _names(world) == expected[end]
    # Folded again, as a change of the key comes late.
    world.land([_unplaced(change("u", 10, id=3, name="late"))])
    assert world.merged().counts.refolded == 1
    assert _names(world) == expected[11]
    _anew(world)
    assert _names(world) == expected[11]


def _failovers() -> list[Row]:
    """42 times two changes of the other of two servers, one of which is far ahead; three of all are of row 100."""
    log = list[Row]()
    for n in range(84):
        server, key = n // 2 % 2, 100 if n in (2, 18, 20) else n % 7
        log.append(change("u", n, n + 100 * server, id=key, name=f"n{n}", lineage=f"s{server}"))
    return log


def _after(log: list[Row]) -> dict[int, str]:
    return {each["id"]: each["name"] for each in sorted(log, key=lambda each: each["_kafka_offset"])}


def test_a_change_of_a_source_of_long_ago_comes_late(tmp_path: Path, spark: SparkSession) -> None:
    """The stamp has the newest sources alone; of the others the changelog tells."""
    log = _failovers()
    late = log.pop(2)
    world = MirrorWorld(tmp_path, spark, SMALL, ["id"])
    for start in (0, 30, 60):
        world.land(log[start : start + 30])
        world.merged(by="either")
        assert _names(world) == _after(log[: start + 30])
    world.land([late])
    assert world.merged().counts.refolded == 1
    assert _names(world) == _after(log)
    _anew(world)
    assert _names(world) == _after(log)


def test_changes_of_many_sources_beside_a_base(tmp_path: Path, spark: SparkSession) -> None:
    log = _failovers()
    late = log.pop(18)
    world = MirrorWorld(tmp_path, spark, SMALL, ["id"])
    world.land(log)
    world.merged(by="process")
    base = world.expire({TopicPartition("shop", 0): 10})
    world.land([late, change("u", 84, 1, id=5, name="new", lineage="s2")])
    assert world.merged().counts.refolded == 1
    expected = _after(log) | {5: "new"}
    assert _names(world) == expected
    world.rebuilt(base)
    assert _names(world) == expected
