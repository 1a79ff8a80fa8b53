"""Those who read a remade branch: ledger, increments, publications, time travel; each commit counts once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.proof.audit.audit_totals import _left_out
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.proof.lookup.reading import published, reading
from jobs.quality.incremental_scan.increment import Increment, increment_since, snapshots_since
from jobs.quality.incremental_scan.validated_position import CheckSummary, ValidatedPosition
from jobs.tables.commit.history.branch import on_branch, seen_on
from jobs.tables.commit.history.stamp_history import stamps_along_main
from jobs.tables.commit.stamp.offsets import OffsetRange
from jobs.tables.ledger.ledger_row import LedgerRow
from jobs.tables.ledger.ledger_table import read_ledger
from tests.unit.quality.publishing.branch_world import NAME, P0, BranchWorld
from tests.unit.quality.publishing.test_remake import gated_world, made_again

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def world(tmp_path: Path) -> BranchWorld:
    return gated_world(tmp_path / "world")


def ledger(world: BranchWorld) -> list[tuple[Any, ...]]:
    fill_ledger(world.catalog(), world.settings, [world.spec])
    rows = read_ledger(world.catalog(), world.settings, "payments", NAME)
    return [
        (row.kind, row.range, row.sequence, row.snapshot_id, row.counts)
        for row in sorted(rows, key=lambda row: row.place)
    ]


def increment(world: BranchWorld, position: ValidatedPosition | None, **options: Any) -> Increment:
    table = world.table()
    return increment_since(table.metadata, table.io, "payments", position, branch="ingest", **options)


def validated(world: BranchWorld) -> ValidatedPosition:
    found = increment(world, None).validated(NOW, CheckSummary())
    assert found is not None
    return found


def test_the_ledger_has_each_stamp_once_whenever_it_is_filled(world: BranchWorld) -> None:
    world.land(2)
    world.publish()
    world.land(3)
    before = ledger(world)
    assert [each[1] for each in before] == [OffsetRange(0, 2), OffsetRange(2, 5)]
    made_again(world)
    assert ledger(world) == before
    world.land(1)
    snapshots = [id_ for id_, _ in stamps_along_main(seen_on(world.table().metadata, "ingest"), "payments")]
    # The ledger lacks the newest one, which is issued again, and again.
    made_again(world)
    made_again(world)
    after = ledger(world)
    assert after[:2] == before
    assert [each[1] for each in after] == [OffsetRange(0, 2), OffsetRange(2, 5), OffsetRange(5, 6)]
    assert after[2][3] == snapshots[0], "the ledger says which commit it was first"
    world.land(1)
    assert [each[1] for each in ledger(world)][3:] == [OffsetRange(6, 7)]


def test_an_increment_has_what_was_not_checked_and_nothing_twice(world: BranchWorld) -> None:
    world.land(2)
    world.publish()
    world.land(1)
    position = validated(world)
    world.land(3)
    world.land(1, "payments~replay")
    before = increment(world, position)
    made_again(world)
    after = increment(world, position)
    assert before.found == after.found == "files"
    assert {each.file_path for each in after.files} == {each.file_path for each in before.files}
    assert (after.ranges, after.first_at, after.last_at) == (before.ranges, before.first_at, before.last_at)
    found = snapshots_since(world.table().metadata, "payments", position.sequence, "ingest")
    assert len(found) == 2, "what is due goes by the commits that were not checked"
    now = validated(world)
    assert increment(world, now).empty
    world.land(2)
    made_again(world)
    assert sum(each.record_count for each in increment(world, now).files) == 2


def test_what_was_published_before_it_was_checked_is_sought_by_its_offsets(world: BranchWorld) -> None:
    world.land(2)
    position = validated(world)
    world.land(3)
    world.publish()
    world.land(1)
    fill_ledger(world.catalog(), world.settings, [world.spec])
    made_again(world)

    def recorded(after: int) -> list[LedgerRow]:
        return read_ledger(world.catalog(), world.settings, "payments", NAME, after)

    found = increment(world, position, ledger=recorded)
    assert found.found == "offsets"
    assert found.ranges == {P0: (OffsetRange(2, 6),)}
    assert increment(world, position, ledger=recorded, locatable=False).found == "table"


def test_a_commit_that_waits_is_in_main_once_it_is_published(world: BranchWorld) -> None:
    world.land(2)
    world.publish()
    world.land(1)
    world.land(1)
    metadata = world.table().metadata
    numbers = [stamp.sequence for _, stamp in stamps_along_main(seen_on(metadata, "ingest"), "payments")]
    made_again(world)
    now = world.table().metadata
    assert [published(now, "payments", "ingest", each).in_main for each in numbers[:3]] == [False, False, True]
    world.publish()
    now = world.table().metadata
    head = now.refs["main"].snapshot_id
    found = [published(now, "payments", "ingest", each) for each in numbers[:2]]
    assert [each.in_main for each in found] == [True, True]
    assert all(each.reading is not None and each.reading.snapshot_id == head for each in found)


def test_a_commit_is_read_where_it_stands_again(world: BranchWorld) -> None:
    world.land(2)
    world.publish()
    world.land(3)
    world.compact()
    old = seen_on(world.table().metadata, "ingest")
    (newest, stamp), (first, before), *_ = stamps_along_main(old, "payments")
    made_again(world)
    table = world.table()
    head = table.metadata.refs["ingest"].snapshot_id
    seen = seen_on(table.metadata, "ingest")
    found = reading(seen, newest, stamp.sequence)
    assert found is not None and found.exact and found.snapshot_id == newest, "it is there still"
    table.maintenance.expire_snapshots().by_ids([newest, first]).commit()
    seen = seen_on(world.table().metadata, "ingest")
    for snapshot_id, number, has in ((newest, stamp.sequence, 5), (first, before.sequence, 2)):
        found = reading(seen, snapshot_id, number)
        assert found is not None and not found.exact
        assert (found.snapshot_id == head) == (snapshot_id == newest)
        assert world.table().scan(snapshot_id=found.snapshot_id).to_arrow().num_rows == has


def test_a_table_whose_rows_say_nothing_is_audited_by_what_its_branch_has(world: BranchWorld) -> None:
    world.land(2)
    world.publish()
    world.land(1)
    before = {id_ for id_, _ in stamps_along_main(seen_on(world.table().metadata, "ingest"), "payments")}
    made_again(world)
    seen = on_branch(world.table(), "ingest").metadata
    assert not before & _left_out(seen, "ingest"), "what the branch was before is not missing from it"
    kept = seen.refs["ingest"].snapshot_id
    world.land(1)
    lost = world.table().metadata.refs["ingest"].snapshot_id
    with world.table().manage_snapshots() as change:
        change.remove_branch("ingest")
    with world.table().manage_snapshots() as change:
        change.create_branch(kept, "ingest")
    seen = on_branch(world.table(), "ingest").metadata
    assert lost in _left_out(seen, "ingest"), "what was moved back since is"


def test_times_are_those_of_the_first_commits(world: BranchWorld) -> None:
    world.land(2)
    before = increment(world, None)
    made_again(world)
    after = increment(world, None)
    assert after.first_at == before.first_at and after.first_at is not None
    assert after.first_at < datetime.now(UTC) + timedelta(seconds=1)
