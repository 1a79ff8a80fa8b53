"""Audits of a changelog of which changes have expired: those are no loss, and what is gone beside them is one."""

from __future__ import annotations

from pathlib import Path

from jobs.proof.audit.audit import audit
from jobs.proof.audit.audit_result import StreamAudit
from jobs.tables.commit.stamp.expired_changes import EXPIRED_CHANGES, ExpiredChanges
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from tests.helpers.real_stream import SINK, TOPIC, RealStream
from tests.helpers.stream_history import FAILED, ROW, TOMBSTONE
from tests.unit.proof.audit.test_replayed_rows import brought_back, with_life

P0 = TopicPartition(TOPIC, 0)


def audited(stream: RealStream) -> StreamAudit:
    return audit(stream.spec, stream.settings, stream.catalog(), full=True)


def test_changes_that_have_expired_are_not_missing_and_others_are(tmp_path: Path) -> None:
    stream = RealStream(tmp_path)
    stream.land([ROW, FAILED, ROW, ROW, TOMBSTONE])
    with_life(stream)
    brought_back(stream, 1)
    stream.land([ROW, ROW])
    stream.land([ROW, ROW], partition=1)
    stream.table().delete("_kafka_partition = 0 and _kafka_offset < 5")
    assert sum(problem.records for problem in audited(stream).problems) == 4
    said = ExpiredChanges("2026-11-11T00:00:00+00:00", 4, 2, {P0: 5}).to_json()
    with stream.table().transaction() as change:
        change.set_properties({EXPIRED_CHANGES: said})
    found = audited(stream)
    assert (found.verdict, found.problems) == ("complete", [])
    assert all(not each.unknown for each in found.tables)
    assert any("from before 2026-11-11" in note and "expired (4)" in note for note in found.notes)
    stream.table().delete("_kafka_partition = 0 and _kafka_offset = 6")
    (problem,) = audited(stream).problems
    assert (problem.kind, problem.table, problem.where) == ("missing", SINK, (OffsetRange(6, 7),))
