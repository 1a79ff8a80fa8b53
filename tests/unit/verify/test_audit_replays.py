"""What replays bring back is in its place: in the sink, though the ledger calls the record dead."""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.types import StringType

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.deadletter.retention import EXPIRED_BEFORE
from jobs.verify.audit_facts import StreamAudit
from jobs.verify.audit_run import audit
from tests.unit.verify.audit_stream import DEAD, SINK, TOPIC, RealStream
from tests.unit.verify.audit_world import FAILED, ROW, TOMBSTONE

P0 = TopicPartition(TOPIC, 0)


@pytest.fixture
def stream(tmp_path: Path) -> RealStream:
    """Records 0 to 4, of which 1 and 3 failed."""
    made = RealStream(tmp_path)
    made.land([ROW, FAILED, ROW, FAILED, TOMBSTONE])
    with made.table(DEAD).update_schema() as update:
        update.add_column("state", StringType())
    return made


def audited(stream: RealStream) -> StreamAudit:
    return audit(stream.spec, stream.settings, stream.catalog(), full=True)


def brought_back(stream: RealStream, offset: int, *, lands: bool = True, learns: bool = True) -> None:
    if lands:
        stream.table().append(stream.sink_rows(P0, [offset]))
    if learns:
        letters = stream.table(DEAD)
        rows = letters.scan(row_filter=EqualTo("offset", offset)).to_arrow()
        state = rows.schema.get_field_index("state")
        told = rows.set_column(
            state, rows.schema.field(state), pa.array(["replayed"] * len(rows), rows.schema.field(state).type)
        )
        letters.overwrite(told, overwrite_filter=EqualTo("offset", offset))


def test_rows_that_came_back_are_complete(stream: RealStream) -> None:
    brought_back(stream, 1)
    assert (audited(stream).verdict, audited(stream).problems) == ("complete", [])


def test_a_row_that_is_not_there_is_missing(stream: RealStream) -> None:
    brought_back(stream, 1)
    brought_back(stream, 3, lands=False)
    (problem,) = audited(stream).problems
    assert (problem.kind, problem.table, problem.records) == ("missing", SINK, 1)
    assert problem.where == (OffsetRange(3, 4),)


def test_a_row_that_came_back_twice_is_too_many(stream: RealStream) -> None:
    brought_back(stream, 1)
    brought_back(stream, 1, learns=False)
    problems = audited(stream).problems
    assert SINK in {problem.table for problem in problems}
    assert {problem.kind for problem in problems} <= {"unexpected", "doubled", "both"}


def test_letters_that_have_expired_are_not_asked_for(stream: RealStream) -> None:
    letters = stream.table(DEAD)
    letters.delete(EqualTo("offset", 1))
    assert [problem.table for problem in audited(stream).problems] == [DEAD]
    with letters.transaction() as change:
        change.set_properties({EXPIRED_BEFORE: (datetime.now(UTC) + timedelta(minutes=1)).isoformat()})
    result = audited(stream)
    assert result.problems == []
    assert any("have expired" in note for note in result.notes)
