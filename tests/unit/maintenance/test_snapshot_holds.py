"""Who holds snapshots: readers, the ledger that lacks them, pending records, replays at work."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobs.base.errors import FrazilError
from jobs.clients.state_store.lease import Lease
from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.maintenance.plan.snapshot_retention import snapshot_time
from jobs.maintenance.run.snapshot_expiry import expire
from jobs.maintenance.run.snapshot_holds import (
    CEILING,
    fill_ledger_or_hold,
    holds,
    reader_holds,
    streams_of,
)
from jobs.tables.commit.history.sink_record import TakeoverRecord, floor_key
from jobs.tables.commit.stamp.stamps import property_key
from tests.helpers.lake import NAME, STREAM, Lake, later
from tests.unit.maintenance.contexts import STEP, held, set_properties, table_context
from tests.unit.maintenance.snapshot_metadata import (
    HOUR,
    NOW,
    hourly,
    stamp,
    table,
)


def test_what_the_ledger_does_not_have_stays(lake: Lake) -> None:
    # Nobody can fill it: somebody else's table has its name.
    lake.catalog.create_namespace_if_not_exists("frazil")
    lake.catalog.create_table("frazil.ledger", lake.table().schema())
    assert fill_ledger_or_hold(table_context(lake)) is not None
    with pytest.raises(FrazilError, match=r"frazil.ledger is no ledger"):
        expire(table_context(lake, now=later), STEP)
    lake.catalog.drop_table("frazil.ledger")
    assert held(lake) == ["ledger"]
    # A stream that no file names any more is not filled in by anybody: it holds for some days.
    assert held(lake, specs=[]) == ["ledger"]
    week = timedelta(days=8)
    (hold,) = holds(table_context(lake, specs=[]), lake.table(), datetime.now(UTC) + week)
    assert "which no file names any more" in hold.why and hold.since > datetime.now(UTC)


def test_replays_at_work_and_pending_records_hold(lake: Lake) -> None:
    fill_ledger_or_hold(table_context(lake))
    lease = Lease(LocalStore(stream_folder(lake.settings, STREAM).root / "replay"), "payments~replay", 30)
    lease.acquire(above=0)
    assert held(lake) == ["replay of payments"]
    lease.release()
    assert held(lake) == []
    lake.pend()
    assert held(lake) == ["pending record"]
    # The stream's own table only.
    other = lake.table(f"{NAME}_dead")
    assert holds(table_context(lake, name=f"{NAME}_dead"), other, datetime.now(UTC)) == []


def test_commits_of_a_connector_since_the_takeover_stay_until_the_stream_has_looked(lake: Lake) -> None:
    fill_ledger_or_hold(table_context(lake))
    groups = ("connect-sink", "connect-sink", "connect-sink")
    record = TakeoverRecord("sink", "apache", *groups, "control", 0.0, "ada", floor={0: 12})
    set_properties(lake.table(), **record.properties(STREAM))
    key, rows = floor_key("control", "connect-sink"), lake.table().scan().to_arrow()
    lake.table().append(rows, snapshot_properties={key: '{"0":12}'})
    assert held(lake) == []
    before = lake.table().metadata.current_snapshot()
    lake.table().append(rows, snapshot_properties={key: '{"0":13}'})
    assert held(lake) == [f"takeover of {STREAM}"]
    (hold,) = holds(table_context(lake), lake.table(), datetime.now(UTC))
    assert before is not None
    assert hold.since == snapshot_time(before)


def test_a_window_of_failures_holds(lake: Lake) -> None:
    fill_ledger_or_hold(table_context(lake))
    errors = {"stop_above": {"window": {"of": "2h", "ratio": 0.1}}}
    spec = type(lake.spec).model_validate(lake.spec.model_dump(mode="json") | {"errors": errors})
    assert held(lake, specs=[spec]) == ["errors.stop_above.window"]


@pytest.mark.parametrize(
    ("text", "since", "warns"),
    [
        ("30", NOW - HOUR * 18, False),
        ("999", NOW, True),
        ("2026-03-10T10:00:00Z", NOW - HOUR * 2, False),
        # Between two snapshots: the one before was the newest then.
        ("2026-03-10T10:30:00+00:00", NOW - HOUR * 2, False),
        ("2026-03-10T10:00:00", NOW - HOUR * 2, False),
        ("yesterday", NOW - CEILING, True),
        ("2026-01-01", NOW - CEILING, True),
    ],
)
def test_readers_register_in_the_tables_properties(text: str, since: datetime, warns: bool) -> None:
    metadata = table(hourly(48), properties={"frazil.reader.dashboards": text, "other": "1"})
    (hold,) = reader_holds(metadata, NOW)
    assert (hold.what, hold.since, hold.warn) == ("reader dashboards", since, warns)


def test_streams_are_found_by_property_and_by_snapshot() -> None:
    metadata = table(
        hourly(3), properties={property_key("a"): stamp(1, 1, "a").to_json()}, stamps={2: stamp(1, 2, "b")}
    )
    assert streams_of(metadata) == ["a", "b"]
