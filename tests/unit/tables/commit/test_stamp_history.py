"""What snapshots and properties of a real table say about a stream, after rollbacks, expiry and branches."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from jobs.tables.commit.history.stamp_history import greatest_epoch, history, stamps_along_main
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from tests.unit.tables.commit.conftest import NAME
from tests.unit.tables.commit.test_target import P0, first, land


@pytest.fixture
def target(catalog: SqlCatalog) -> Target:
    made = Target(catalog, NAME, "s")
    made.claim(1, first(1))
    return made


def foreign(catalog: SqlCatalog) -> Table:
    """Another writer's commit, such as a compaction."""
    table = catalog.load_table(NAME)
    table.append(table.scan().to_arrow())
    return table


def expire(catalog: SqlCatalog, *ids: int) -> Table:
    table = catalog.load_table(NAME)
    table.maintenance.expire_snapshots().by_ids(list(ids)).commit()
    return catalog.load_table(NAME)


def roll_back(catalog: SqlCatalog, snapshot_id: int) -> Table:
    catalog.load_table(NAME).manage_snapshots().set_current_snapshot(snapshot_id=snapshot_id).commit()
    return catalog.load_table(NAME)


def position(stamp: Stamp | None) -> int | None:
    return stamp.position[P0] if stamp else None


def head(target: Target) -> int:
    assert target.snapshot_id is not None
    return target.snapshot_id


def test_a_stream_that_never_was_here(catalog: SqlCatalog) -> None:
    foreign(catalog)
    past = history(catalog.load_table(NAME).metadata, "s")
    assert (past.newest, past.rolled_back, past.removed) == (None, False, {})


def test_the_newest_stamp_stands_behind_other_writers_commits(catalog: SqlCatalog, target: Target) -> None:
    land(target, 1, 0, 3)
    past = history(foreign(catalog).metadata, "s")
    assert (position(past.newest), position(past.stamped_ancestor), past.rolled_back) == (3, 3, False)


def test_a_rollback_is_told_with_the_records_it_removed(catalog: SqlCatalog, target: Target) -> None:
    land(target, 1, 0, 3)
    kept = head(target)
    land(target, 1, 3, 7)
    past = history(roll_back(catalog, kept).metadata, "s")
    assert past.rolled_back
    assert past.removed == {P0: OffsetRange(3, 7)}
    assert (position(past.newest), position(past.stamped_ancestor)) == (7, 3)
    assert history(foreign(catalog).metadata, "s").rolled_back, "also when others have committed since"


def test_a_rollback_past_the_first_stamp(catalog: SqlCatalog) -> None:
    before = foreign(catalog).metadata.current_snapshot_id
    target = Target(catalog, NAME, "s")
    target.claim(1, first(1))
    land(target, 1, 0, 3)
    assert before is not None
    past = history(roll_back(catalog, before).metadata, "s")
    assert (past.rolled_back, past.removed, past.stamped_ancestor) == (True, {P0: OffsetRange(0, 3)}, None)


def test_a_rollback_of_a_claim_removes_no_record(catalog: SqlCatalog, target: Target) -> None:
    land(target, 1, 0, 3)
    kept = head(target)
    target.claim(2, first(2))
    past = history(roll_back(catalog, kept).metadata, "s")
    assert not past.rolled_back
    assert past.newest is not None and past.newest.epoch == 2, "the older epoch stays fenced"
    assert greatest_epoch(catalog.load_table(NAME).metadata, "s") == 2


def test_when_all_stamped_snapshots_have_expired_the_property_decides(catalog: SqlCatalog, target: Target) -> None:
    claim = head(target)
    land(target, 1, 0, 3)
    landed = head(target)
    foreign(catalog)
    table = expire(catalog, claim, landed)
    past = history(table.metadata, "s")
    assert (position(past.newest), past.stamped_ancestor, past.rolled_back) == (3, None, False)
    assert stamps_along_main(table.metadata, "s") == []
    assert Target(catalog, NAME, "s").read() == past.newest


def test_when_the_older_stamps_have_expired(catalog: SqlCatalog, target: Target) -> None:
    claim = head(target)
    land(target, 1, 0, 3)
    past = history(expire(catalog, claim).metadata, "s")
    assert (position(past.newest), past.rolled_back) == (3, False)


def test_a_rollback_after_expiry_is_still_seen(catalog: SqlCatalog, target: Target) -> None:
    claim = head(target)
    land(target, 1, 0, 3)
    kept = head(target)
    land(target, 1, 3, 6)
    foreign(catalog)
    roll_back(catalog, kept)
    past = history(expire(catalog, claim).metadata, "s")
    assert (past.rolled_back, past.removed) == (True, {P0: OffsetRange(3, 6)})


def test_stamps_of_a_branch_do_not_count_but_its_epochs_do(catalog: SqlCatalog, target: Target) -> None:
    land(target, 1, 0, 3)
    table = catalog.load_table(NAME)
    table.manage_snapshots().create_branch(head(target), "audit").commit()
    stamp = Stamp("s", "batch", 9, 8, "c", start={P0: 3}, position={P0: 99})
    table = catalog.load_table(NAME)
    table.append(table.scan().to_arrow(), snapshot_properties={"frazil.stamp": stamp.to_json()}, branch="audit")
    metadata = catalog.load_table(NAME).metadata
    assert position(history(metadata, "s").newest) == 3
    assert [found.position[P0] for _, found in stamps_along_main(metadata, "s")] == [3, 0]
    assert greatest_epoch(metadata, "s") == 8


def test_streams_with_names_inside_each_other(catalog: SqlCatalog, target: Target) -> None:
    land(target, 1, 0, 3)
    other = Target(catalog, NAME, "ss")
    partition = TopicPartition("s", 0)
    other.claim(4, lambda newest: Stamp("ss", "claim", -1, 4, "c", start={partition: 1}, position={partition: 1}))
    metadata = catalog.load_table(NAME).metadata
    assert position(history(metadata, "s").newest) == 3
    assert (greatest_epoch(metadata, "s"), greatest_epoch(metadata, "ss")) == (1, 4)
