"""Which files of a changelog may go, where changes of one key are in several partitions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from jobs.maintenance.run.changelog_files import ChangesKeptError, landed_files
from jobs.maintenance.run.expiring_files import Expiring, Reads, expiring_files
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition
from tests.unit.mirrors.mirror_world import AT, CHANGELOG, MirrorWorld
from tests.unit.mirrors.plain_merger import P0

P1 = TopicPartition("customers", 1)
COLUMNS = ("_kafka_topic", "_kafka_partition", "_kafka_offset", "_kafka_timestamp")


def micros(day: float) -> int:
    return int((AT + timedelta(days=day)).timestamp() * 1_000_000)


def landed(home: Path, *files: Sequence[tuple[int, int, float]], without: str = "id") -> Table:
    """A changelog with a file of each of these: partition, offset, and on which day it came; a column has no bounds."""
    world = MirrorWorld(home)
    with world.changelog().transaction() as change:
        change.set_properties({f"write.metadata.metrics.column.{without}": "none"})
    for file in files:
        rows: list[dict[str, Any]] = [
            {
                "id": 1,
                "_change_op": "u",
                "_kafka_topic": "customers",
                "_kafka_partition": partition,
                "_kafka_offset": offset,
                "_kafka_timestamp": AT + timedelta(days=day),
            }
            for partition, offset, day in file
        ]
        table = world.changelog()
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for each in world.data_files(table, rows):
                append.append_data_file(each)
    return world.catalog().load_table(CHANGELOG)


def expiring(table: Table, limits: Positions, *, before: float = 30, gone: Positions | None = None) -> Expiring:
    files = landed_files(table, {})
    return expiring_files(
        table, files, COLUMNS, micros(before), limits, gone=gone or {}, covered=len(files), reads=Reads()
    )


def test_no_change_counts_any_more_that_came_before_one_that_is_gone(tmp_path: Path) -> None:
    # The row came in one partition, whose file was compacted with younger changes, and was deleted in the other.
    table = landed(tmp_path, [(0, 50, 1), (0, 51, 40)], [(1, 900, 2)])
    found = expiring(table, {P0: 60, P1: 1000})
    assert [each.file.record_count for each in found.files] == [1]
    assert found.offsets == {P0: 51, P1: 901}


def test_a_change_that_counts_holds_what_came_later_in_all_partitions(tmp_path: Path) -> None:
    table = landed(tmp_path, [(0, 40, 0)], [(0, 50, 1)], [(1, 900, 2)], [(1, 899, 0)])
    # A letter, or a mirror that lacks it.
    found = expiring(table, {P0: 50, P1: 1000})
    assert len(found.files) == 2
    assert found.offsets == {P0: 41, P1: 900}
    assert found.held == (micros(1), "customers-0, offsets from 50 on")
    assert len(expiring(table, {P0: 60, P1: 1000}).files) == 4


def test_changes_of_a_topic_that_is_read_no_more_stay_and_count_no_more(tmp_path: Path) -> None:
    table = landed(tmp_path, [(0, 50, 1), (0, 51, 3)], [(1, 900, 2)])
    found = expiring(table, {P1: 1000}, gone={P0: 60})
    # Or a row that came in it would be there again once its deletion has gone.
    assert len(found.files) == 1 and found.offsets == {P0: 51, P1: 901}
    # What a mirror lacks of it holds the others.
    assert expiring(table, {P1: 1000}, gone={P0: 50}).files == []
    # Of one that is read, and that a mirror has nothing of, nothing is known.
    assert expiring(table, {P1: 1000}).files == []


def test_mirrors_have_younger_changes_that_count_no_more_as_their_offsets_are_lower(tmp_path: Path) -> None:
    # The clock of a producer was ahead.
    table = landed(tmp_path, [(0, 52, 1)], [(0, 51, 40)], [(0, 53, 40)])
    found = expiring(table, {P0: 60})
    assert [each.sequence for each in found.files] == [1] and found.offsets == {P0: 53}
    assert found.sequence == 2


def test_all_stays_where_the_times_of_a_file_are_not_known(tmp_path: Path) -> None:
    table = landed(tmp_path, [(0, 50, 1)], without="_kafka_timestamp")
    with pytest.raises(ChangesKeptError, match="no bounds of column _kafka_timestamp"):
        expiring(table, {P0: 60})
