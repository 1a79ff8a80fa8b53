"""An increment has each row that a stream landed since a position, whatever becomes of files and snapshots."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.quality.incremental_scan.arrow_rows import arrow_batches
from jobs.quality.incremental_scan.increment import Increment, increment_since, snapshots_since
from jobs.quality.incremental_scan.row_selection import increment_rows
from jobs.quality.incremental_scan.validated_position import CheckSummary, ValidatedPosition
from jobs.records.schema.kafka_columns import NO_KAFKA_COLUMNS
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.ledger.ledger_row import LedgerRow
from tests.helpers.landed_table import COORDINATES, LandedTable

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOW = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.fixture
def landed(tmp_path: Path) -> LandedTable:
    return LandedTable(tmp_path / "home")


def since(
    landed: LandedTable, position: ValidatedPosition | None, stream: str = "orders", **options: object
) -> Increment:
    table = landed.table
    return increment_since(table.metadata, table.io, stream, position, **options)  # type: ignore[arg-type]


def here(landed: LandedTable, stream: str = "orders") -> ValidatedPosition:
    position = since(landed, None, stream).validated(NOW, CheckSummary())
    assert position is not None
    return position


def ids(landed: LandedTable, found: Increment) -> Counter[int]:
    rows = increment_rows(found, landed.table, COORDINATES, None)
    return Counter(each for batch in arrow_batches(rows, {"id"}) for each in batch.column("id").to_pylist())


def numbers(*ranges: Iterable[int]) -> Counter[int]:
    return Counter(each for range_ in ranges for each in range_)


def test_the_files_of_batches_and_replays_since_the_position(landed: LandedTable) -> None:
    landed.land((0, 0, 5))
    position = here(landed)
    assert since(landed, position).empty
    first = landed.land((0, 5, 8), (1, 0, 2))
    landed.land((0, 8, 9), empty=True)
    last = landed.replay([(0, 2)])
    landed.foreign([(3, 7)])
    found = since(landed, position)
    assert (found.found, found.why) == ("files", "")
    assert found.snapshots == (first, last) and found.begin == position.snapshot_id
    assert found.ranges == {P0: (OffsetRange(5, 9),), P1: (OffsetRange(0, 2),)}
    assert found.first_at is not None and found.last_at is not None
    assert found.first_at <= found.last_at
    assert ids(landed, found) == numbers([5, 6, 7, 100_000, 100_001, 2])
    since_then = snapshots_since(landed.table.metadata, "orders", position.sequence)
    assert [each.snapshot_id for each in since_then] == [first, last]
    assert snapshots_since(landed.table.metadata, "orders", position.sequence, "ingest") == []


def test_without_a_position_it_is_the_table(landed: LandedTable) -> None:
    assert since(landed, None).empty and since(landed, None).validated(NOW, CheckSummary()) is None
    landed.land((0, 0, 5))
    landed.foreign([(3, 7)])
    found = since(landed, None)
    assert found.found == "table" and "no check of its rows is recorded" in found.why
    assert ids(landed, found) == landed.ids()


def test_two_streams_on_one_table_have_increments_of_their_own(landed: LandedTable) -> None:
    landed.land((0, 0, 2))
    landed.land((1, 0, 2), stream="orders-eu")
    mine, theirs = here(landed), here(landed, "orders-eu")
    landed.land((1, 2, 4), stream="orders-eu")
    landed.land((0, 2, 3))
    landed.replay([(1, 0)], stream="orders-eu~replay")
    assert ids(landed, since(landed, mine)) == numbers([2])
    assert ids(landed, since(landed, theirs, "orders-eu")) == numbers([100_002, 100_003, 100_000])


def test_compaction_brings_no_row_and_takes_none(landed: LandedTable) -> None:
    landed.land((0, 0, 3))
    position = here(landed)
    landed.land((0, 3, 5))
    landed.compact()
    landed.land((0, 5, 6))
    found = since(landed, position)
    assert found.found == "files" and ids(landed, found) == numbers(range(3, 6))


def test_files_that_were_compacted_and_expired_are_sought_by_their_offsets(landed: LandedTable) -> None:
    landed.land((0, 0, 3))
    position = here(landed)
    lost = landed.land((0, 3, 5), (1, 0, 4))
    landed.compact()
    kept = landed.land((0, 5, 6))
    again = landed.replay([(1, 2), (0, 1)])
    landed.expire(position.snapshot_id, lost, delete=True)
    found = since(landed, position)
    assert found.found == "offsets" and "have expired" in found.why
    assert found.ranges == {P0: (OffsetRange(3, 6),), P1: (OffsetRange(0, 4),)}
    assert found.snapshots == (kept, again)
    # The head has what was replayed, too: the row of partition 1 comes with its range, twice as it stands there.
    expected = numbers(range(3, 6), range(100_000, 100_004), [100_002, 1])
    assert ids(landed, found) == expected


def test_an_expired_position_alone_loses_nothing(landed: LandedTable) -> None:
    first = landed.land((0, 0, 2))
    landed.land((0, 2, 3))
    position = here(landed)
    landed.land((0, 3, 5))
    landed.expire(first, position.snapshot_id)
    found = since(landed, position)
    assert found.found == "files" and ids(landed, found) == numbers([3, 4])


def test_a_kept_position_before_expired_snapshots_hides_none_of_them(landed: LandedTable) -> None:
    landed.land((0, 0, 2))
    position = here(landed)
    lost = landed.land((0, 2, 4))
    landed.land((0, 4, 5))
    landed.expire(lost)
    found = since(landed, position)
    assert found.found == "offsets" and ids(landed, found) == numbers([2, 3, 4])


def test_without_coordinates_it_is_the_table(tmp_path: Path) -> None:
    landed = LandedTable(tmp_path / "home", NO_KAFKA_COLUMNS)
    landed.land((0, 0, 2))
    position = here(landed)
    lost = landed.land((0, 2, 4))
    landed.land((0, 4, 5))
    assert since(landed, position, locatable=False).found == "files"
    landed.expire(position.snapshot_id, lost)
    found = since(landed, position, locatable=False)
    assert found.found == "table" and "do not say which record they are of" in found.why
    assert ids(landed, found) == numbers(range(5))


def test_rows_of_an_expired_replay_make_it_the_table(landed: LandedTable) -> None:
    landed.land((0, 0, 4))
    landed.replay([(0, 1)])
    position = here(landed)
    lost = landed.replay([(0, 2)])
    landed.land((0, 4, 5))
    landed.expire(position.snapshot_id, lost)
    found = since(landed, position)
    assert found.found == "table" and "rows of orders~replay among them" in found.why


def test_a_branch_that_was_moved_back_is_checked_from_where_both_were_the_same(landed: LandedTable) -> None:
    base = landed.land((0, 0, 3))
    abandoned = landed.land((0, 3, 6))
    position = here(landed)
    landed.roll_back(base)
    landed.newest["orders"] = landed.newest["orders"].decided(None)
    landed.land((0, 3, 4))
    found = since(landed, position)
    assert found.found == "files" and ids(landed, found) == numbers([3])
    # And forward again, to rows that the position after the rollback does not know.
    after = here(landed)
    landed.roll_back(abandoned)
    found = since(landed, after)
    assert found.found == "files" and ids(landed, found) == numbers([3, 4, 5])


def test_a_rollback_whose_traces_expired_loses_nothing(landed: LandedTable) -> None:
    base = landed.land((0, 0, 3))
    forward = landed.land((0, 3, 6))
    landed.roll_back(base)
    back = landed.land((0, 3, 4))
    position = here(landed)
    landed.roll_back(forward)
    landed.expire(base, back)
    found = since(landed, position)
    assert found.found == "offsets" and ids(landed, found) >= numbers([4, 5])


def test_what_was_read_a_second_time_is_known_by_the_ledger(landed: LandedTable) -> None:
    landed.land((0, 0, 4))
    position = here(landed)
    landed.reset(0, 2)
    again = landed.land((0, 2, 4))
    sequence = landed.table.metadata.snapshot_by_id(again).sequence_number  # type: ignore[union-attr]
    uuid = str(landed.table.metadata.table_uuid)
    landed.land((0, 4, 5))
    reset = landed.table.metadata.snapshot_by_id(again).parent_snapshot_id  # type: ignore[union-attr]
    assert reset is not None
    landed.expire(position.snapshot_id, reset, again)
    # By positions alone nothing is missing: the stream stands where it stood, and went on from there.
    assert ids(landed, since(landed, position)) == numbers([4])
    told = {"epoch": 1, "batch": 1, "committed_at": NOW, "config": "c", "anchor": True}
    row = LedgerRow(
        "orders", "lake.orders", uuid, kind="batch", partition=P0, range=OffsetRange(2, 4), sequence=sequence or 0,
        snapshot_id=again, **told,  # type: ignore[arg-type]
    )  # fmt: skip
    found = since(landed, position, ledger=lambda after: [row] if (sequence or 0) > after else [])
    assert found.found == "offsets" and ids(landed, found) == numbers([2, 2, 3, 3, 4])


def test_another_branch_has_an_increment_of_its_own(landed: LandedTable) -> None:
    landed.land((0, 0, 2))
    position = here(landed)
    assert since(landed, position, branch="ingest").empty
    head = landed.land((0, 2, 4))
    landed.table.manage_snapshots().create_branch(head, "ingest").commit()
    landed.roll_back(position.snapshot_id)
    assert since(landed, position).empty
    assert ids(landed, since(landed, position, branch="ingest")) == numbers([2, 3])


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_no_row_is_left_out(tmp_path: Path, seed: int) -> None:
    """Appends, replays, empty batches, compactions, others' rows, expiry: checks in between have seen each row."""
    chance = random.Random(seed)
    landed, position = LandedTable(tmp_path / "home"), None
    seen: Counter[int] = Counter()
    mine: Counter[int] = Counter()
    at = {0: 0, 1: 0}
    for _ in range(14):
        match chance.choice(["land", "land", "empty", "compact", "foreign", "replay", "expire", "check"]):
            case "land" | "empty" as what:
                p, size = chance.choice([0, 1]), chance.randint(1, 4)
                landed.land((p, at[p], at[p] + size), empty=what == "empty")
                if what == "land":
                    mine.update(100_000 * p + o for o in range(at[p], at[p] + size))
                at[p] += size
            case "compact" if landed.table.current_snapshot():
                landed.compact()
            case "foreign":
                landed.foreign([(7, chance.randint(0, 99))])
            case "replay":
                row = (5, chance.randint(0, 10**4))
                landed.replay([row])
                mine[100_000 * row[0] + row[1]] += 1
            case "expire":
                head = landed.table.metadata.current_snapshot_id
                others = [each.snapshot_id for each in landed.table.snapshots() if each.snapshot_id != head]
                if others:
                    landed.expire(*chance.sample(others, chance.randint(1, len(others))), delete=True)
            case "check":
                found = since(landed, position)
                seen += ids(landed, found)
                position = found.validated(NOW, CheckSummary()) or position
            case _:
                pass
    seen += ids(landed, since(landed, position))
    assert set(mine) <= set(seen)
