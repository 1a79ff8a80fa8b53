"""How far rows are checked stands in the table, goes forward along its branch, and holds what was not checked."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.maintenance.run.snapshot_holds import reader_holds
from jobs.quality.incremental_scan.validated_position import (
    CheckSummary,
    ValidatedPosition,
    property_key,
    reader_key,
    record_validated,
    validated_position,
)
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.landed_table import NAME, LandedTable

NOW = datetime(2026, 3, 2, tzinfo=UTC)
P0 = TopicPartition("orders", 0)


@pytest.fixture
def landed(tmp_path: Path) -> LandedTable:
    return LandedTable(tmp_path / "home")


def position_of(landed: LandedTable, snapshot: int, at: datetime = NOW) -> ValidatedPosition:
    found = landed.table.metadata.snapshot_by_id(snapshot)
    assert found is not None
    return ValidatedPosition(snapshot, found.sequence_number or 0, {"orders": {P0: 4}}, at, CheckSummary(rows=4))


def recorded(landed: LandedTable, branch: str = "main") -> ValidatedPosition | None:
    return validated_position(landed.table.metadata.properties, "orders", branch)


def test_it_is_read_as_it_was_written() -> None:
    summary = CheckSummary(12, 3, {"critical": 1}, "abc")
    whole = ValidatedPosition(7, 3, {"orders": {P0: 4}, "orders~replay": {}}, NOW, summary)
    assert ValidatedPosition.from_json(whole.to_json()) == whole
    # As the first version wrote it.
    text = '{"v":1,"snapshot":7,"seq":3,"at":1772409600.0,"positions":{"orders":{"orders":{"0":4}},"orders~replay":{}},'
    text += '"rows":12,"expectations":3,"failed":{"critical":1},"contract":"abc"}'
    assert ValidatedPosition.from_json(text) == whole
    for text in ("{", '{"v":2}', "[]", '{"v":1}', "7"):
        assert validated_position({property_key("orders"): text}, "orders") is None


def test_it_never_goes_back(landed: LandedTable) -> None:
    first, second = landed.land((0, 0, 2)), landed.land((0, 2, 4))
    older, newer = position_of(landed, first), position_of(landed, second)
    assert record_validated(landed.catalog, NAME, "orders", newer)
    assert recorded(landed) == newer
    head = landed.table.metadata.current_snapshot_id
    assert not record_validated(landed.catalog, NAME, "orders", older)
    assert recorded(landed) == newer
    # The same rows once more: the newer of two checks counts.
    assert not record_validated(landed.catalog, NAME, "orders", newer)
    later = replace(newer, at=NOW + timedelta(minutes=1), summary=CheckSummary(rows=9))
    assert record_validated(landed.catalog, NAME, "orders", later) and recorded(landed) == later
    assert landed.table.metadata.current_snapshot_id == head, "it makes no snapshot"
    assert recorded(landed, "ingest") is None
    assert record_validated(landed.catalog, NAME, "orders", older, "ingest") and recorded(landed, "ingest") == older


def test_it_follows_a_branch_that_was_moved_back(landed: LandedTable) -> None:
    base, gone = landed.land((0, 0, 2)), landed.land((0, 2, 4))
    record_validated(landed.catalog, NAME, "orders", position_of(landed, gone))
    landed.roll_back(base)
    assert not record_validated(landed.catalog, NAME, "orders", position_of(landed, base)), "all of it was checked"
    after = landed.land((0, 2, 3))
    assert record_validated(landed.catalog, NAME, "orders", position_of(landed, after))
    landed.roll_back(gone)
    assert record_validated(landed.catalog, NAME, "orders", position_of(landed, gone))
    assert recorded(landed) == position_of(landed, gone)


def test_two_at_once_are_told_apart(landed: LandedTable) -> None:
    first, second = landed.land((0, 0, 2)), landed.land((0, 2, 4))
    behind = landed.catalog.load_table(NAME)
    real = landed.catalog.load_table
    answers = [behind]
    landed.catalog.load_table = lambda name: answers.pop() if answers else real(name)  # type: ignore[method-assign]
    # Another check records its position after this one has read the table.
    from jobs.clients.catalog.catalog import connect_catalog

    record_validated(connect_catalog(landed.settings), NAME, "orders", position_of(landed, second))
    assert not record_validated(landed.catalog, NAME, "orders", position_of(landed, first))
    assert recorded(landed) == position_of(landed, second)


def test_it_holds_what_was_not_checked(landed: LandedTable) -> None:
    first = landed.land((0, 0, 2))
    landed.land((0, 2, 4))
    record_validated(landed.catalog, NAME, "orders", position_of(landed, first))
    table = landed.table
    assert table.metadata.properties[reader_key("orders")] == str(first)
    (hold,) = reader_holds(table.metadata, datetime.now(UTC))
    snapshot = table.metadata.snapshot_by_id(first)
    assert snapshot is not None
    assert hold.what == "reader contract.orders" and not hold.warn
    assert hold.since == datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)


def test_a_reader_at_the_head_is_not_behind(landed: LandedTable) -> None:
    first = landed.land((0, 0, 2))
    record_validated(landed.catalog, NAME, "orders", position_of(landed, first))
    late = datetime.now(UTC) + timedelta(days=30)
    (hold,) = reader_holds(landed.table.metadata, late)
    assert not hold.warn
    landed.land((0, 2, 3))
    (hold,) = reader_holds(landed.table.metadata, late)
    assert hold.warn and "nothing keeps snapshots older" in hold.why
