"""What an expiry is kept from, and what it sees to before it lets Iceberg delete. No Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.maintenance.plan.iceberg_procedures import Procedures
from jobs.maintenance.run.snapshot_expiry import StampsNotKeptError, expire, refuse_unless_stamps_are_kept
from jobs.proof.audit import ledger_fill
from jobs.tables.commit.history.lineage import line_of
from jobs.tables.commit.history.stamp_history import history, history_of
from jobs.tables.commit.stamp.offsets import OffsetRange
from jobs.tables.commit.stamp.stamps import property_key
from tests.helpers.lake import NAME, P0, STREAM, Lake, later
from tests.unit.maintenance.contexts import (
    EXPIRE,
    STEP,
    Started,
    held,
    set_properties,
    spark,
    table_context,
)
from tests.unit.maintenance.snapshot_metadata import hourly, stamp, table


def test_the_property_has_to_be_the_newest_stamp() -> None:
    newest, older = stamp(9, 3), stamp(5, 2)
    stamps = {2: older, 3: newest}
    refuse_unless_stamps_are_kept(
        table(hourly(4), stamps=stamps, properties={property_key("s"): newest.to_json()}), NAME
    )
    # Nothing but what came after it is left: the property is all there is.
    refuse_unless_stamps_are_kept(table(hourly(4), properties={property_key("s"): stamp(9, 0).to_json()}), NAME)
    for properties in ({}, {property_key("s"): older.to_json()}):
        with pytest.raises(StampsNotKeptError, match="is not the newest stamp of stream s"):
            refuse_unless_stamps_are_kept(table(hourly(4), stamps=stamps, properties=properties), NAME)


@pytest.mark.parametrize(
    ("stream", "command"), [("s", "frazil accept s --rollback"), ("s~replay", "frazil letters s --after-rollback")]
)
def test_what_tells_of_a_rollback_stays_until_it_is_answered(stream: str, command: str) -> None:
    stamps = {2: stamp(5, 2, stream), 3: stamp(9, 3, stream)}
    properties = {property_key(stream): stamps[3].to_json()}
    with pytest.raises(StampsNotKeptError, match="was rolled back") as refused:
        refuse_unless_stamps_are_kept(table(hourly(4), stamps=stamps, properties=properties, head=2), NAME)
    assert command in (refused.value.fix or "")


def test_a_stamp_of_another_version_is_refused() -> None:
    with pytest.raises(StampsNotKeptError, match="cannot be read"):
        refuse_unless_stamps_are_kept(table(hourly(1), properties={property_key("s"): '{"v":9}'}), NAME)


def test_the_ledger_is_filled_before_anything_expires(lake: Lake) -> None:
    with pytest.raises(Started):
        expire(table_context(lake, now=later), STEP)
    assert ledger_fill.fill_ledger(lake.catalog, lake.settings, [lake.spec]).rows == 0
    assert held(lake) == []


def test_a_readers_snapshot_stays_and_says_so(lake: Lake) -> None:
    (first, *_) = lake.table().snapshots()
    set_properties(lake.table(), **{"frazil.reader.dashboards": str(first.snapshot_id)})
    found = expire(table_context(lake, now=later), STEP)
    assert (found.done, found.files_before, found.files_after) == (False, 4, 4)
    assert "reader dashboards" in str(found.detail["held_by"])
    assert "4 snapshots stay, of which the policy keeps 2 at most" in str(found.detail["warning"])
    # The plan says so before.
    planned = lake.maintain(spark, EXPIRE, only={"expire"}, now=later, dry_run=True).plan
    assert planned.steps == ()
    assert "3 of those that are due stay, for reader dashboards" in planned.skips[0].reason


def test_a_changed_property_keeps_every_snapshot(lake: Lake) -> None:
    with lake.table().transaction() as transaction:
        transaction.remove_properties(property_key(STREAM))
    with pytest.raises(FrazilError, match="is not the newest stamp"):
        expire(table_context(lake, now=later), STEP)


def test_after_everything_has_expired_a_driver_begins_where_it_stood(lake: Lake) -> None:
    """In the metadata alone; `tests/integration/test_maintain.py` has Spark do it."""
    table = lake.table()
    table.append(table.scan().to_arrow().slice(0, 0))
    lake.forget()
    (only,) = lake.table().snapshots()
    assert only.summary is not None and "frazil.stamp" not in only.summary.additional_properties
    reached = lake.rows
    past = history(lake.table().metadata, STREAM)
    assert (past.stamped_ancestor, past.rolled_back) == (None, False)
    target = lake.take_over()
    assert lake.rows == reached and target.newest is not None
    assert target.newest.position == {P0: reached}
    lake.land(days=1, rows=1)
    assert lake.ids() == dict.fromkeys(range(lake.rows), 1)
    assert OffsetRange(reached, lake.rows) == OffsetRange(3, 4)


class Expired(Exception):
    """The procedure was called."""


class Expiring(Procedures):
    def __init__(self) -> None:
        pass

    def call(self, procedure: str, **arguments: object) -> dict[str, Any]:
        raise Expired


def test_before_snapshots_go_the_line_of_commits_is_moved_up_to_the_head(lake: Lake) -> None:
    """Others commit to the table of a stream that rests, which the expiry must not make look like a rollback."""

    for _ in range(2):
        for _ in range(3):
            table = lake.table()
            table.append(table.scan().to_arrow().slice(0, 0))
        with pytest.raises(Expired):
            expire(table_context(lake, procedures=Expiring(), now=later), STEP)
        metadata = lake.table().metadata
        line, head = line_of(metadata.properties), metadata.current_snapshot()
        assert line is not None and head is not None and line.snapshot_id == head.snapshot_id
        lake.forget()
    for entry in lake.table().metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file://")).unlink(missing_ok=True)
    past = history_of(lake.table(), STREAM)
    assert (past.stamped_ancestor, past.rolled_back, past.doubt) == (None, False, False)
