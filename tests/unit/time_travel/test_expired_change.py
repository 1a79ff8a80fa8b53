"""What is said of a record whose row was a change that has expired."""

from __future__ import annotations

import warnings
from pathlib import Path

from jobs.commit.expired_changes import EXPIRED_CHANGES, ExpiredChanges
from jobs.commit.offsets import TopicPartition
from jobs.time_travel.record_fate import sentence
from jobs.time_travel.record_lookup import look_up_record
from jobs.time_travel.stream_tables import load_stream_tables
from jobs.verify.ledger_fill import fill_ledger
from tests.helpers.real_stream import TOPIC, RealStream
from tests.helpers.stream_history import ROW

PLACE = TopicPartition(TOPIC, 0)


def test_a_change_that_has_expired_was_not_deleted_by_somebody(tmp_path: Path) -> None:
    stream = RealStream(tmp_path, identity="id-payments")
    stream.land([ROW, ROW, ROW], 0)
    fill_ledger(stream.catalog(), stream.settings, [stream.spec])
    table = stream.table()
    landed = table.metadata.current_snapshot_id
    assert landed is not None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Delete operation did not match any records")
        table.delete("_kafka_offset < 2")
    gone = ExpiredChanges("2026-01-01T00:00:00+00:00", 1, 1, {PLACE: 1})
    with table.transaction() as change:
        change.set_properties({EXPIRED_CHANGES: gone.to_json()})
    table.maintenance.expire_snapshots().by_id(landed).commit()

    def said(offset: int) -> str:
        tables = load_stream_tables(stream.spec, stream.settings, stream.catalog())
        found = look_up_record(tables, PLACE, offset)
        return sentence(found.fate, found.landing.passage if found.landing else None, found.position, found.first)

    assert said(0) == "became a row, a change that has expired since (changes.keep)"
    assert said(1) == "became a row, which was deleted since"
    assert said(2) == "is a row"
