"""What replays bring back is in its place: in the sink, though the ledger calls the record dead."""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.types import LongType, StringType

from jobs.dead_letters.replay.session import BATCHES, replay_id
from jobs.proof.audit.audit import audit
from jobs.proof.audit.audit_result import StreamAudit
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.dead_letter_table.retention import EXPIRED_BEFORE
from tests.helpers.real_stream import DEAD, SINK, TOPIC, RealStream
from tests.helpers.stream_history import FAILED, ROW, TOMBSTONE

P0 = TopicPartition(TOPIC, 0)


@pytest.fixture
def stream(tmp_path: Path) -> RealStream:
    """Records 0 to 4, of which 1 and 3 failed."""
    made = RealStream(tmp_path)
    made.land([ROW, FAILED, ROW, FAILED, TOMBSTONE])
    with_life(made)
    return made


def with_life(stream: RealStream) -> None:
    with stream.table(DEAD).update_schema() as update:
        update.add_column("state", StringType()).add_column("replay_snapshot_id", LongType())


def audited(stream: RealStream) -> StreamAudit:
    return audit(stream.spec, stream.settings, stream.catalog(), full=True)


def brought_back(
    stream: RealStream, offset: int, *, lands: bool = True, learns: bool = True, stands: bool = False
) -> None:
    """What a replay does.

    Args:
        lands: A row comes to stand in the sink.
        learns: The letters of the record know that they came back.
        stands: They learn that the row was there already.
    """
    if lands:
        stream.table().append(stream.sink_rows(P0, [offset]))
    if learns:
        letters = stream.table(DEAD)
        rows = letters.scan(row_filter=EqualTo("offset", offset)).to_arrow()
        snapshot = None if stands else stream.table().metadata.current_snapshot_id
        for name, value in (("state", "replayed"), ("replay_snapshot_id", snapshot)):
            index = rows.schema.get_field_index(name)
            told = rows.schema.field(index)
            rows = rows.set_column(index, told, pa.array([value] * len(rows), told.type))
        letters.overwrite(rows, overwrite_filter=EqualTo("offset", offset))


def expire(stream: RealStream, offset: int, at: datetime) -> None:
    """The letter of a record goes by its age, as all letters of before that time."""
    letters = stream.table(DEAD)
    letters.delete(EqualTo("offset", offset))
    with letters.transaction() as change:
        change.set_properties({EXPIRED_BEFORE: at.isoformat()})


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


@pytest.mark.parametrize("expired", [False, True])
def test_a_row_that_came_back_and_was_appended_again_is_found_by_its_offset(stream: RealStream, expired: bool) -> None:
    brought_back(stream, 1)
    brought_back(stream, 3)
    brought_back(stream, 1, learns=False)
    if expired:
        with stream.table(DEAD).transaction() as change:
            change.set_properties({EXPIRED_BEFORE: (datetime.now(UTC) - timedelta(days=30)).isoformat()})
    (problem,) = audited(stream).problems
    assert (problem.kind, problem.table, problem.records) == ("doubled", SINK, 1)
    assert (problem.where, problem.exact) == ((OffsetRange(1, 2),), True)


def test_a_row_doubled_after_a_replay_does_not_stand_for_one_that_is_gone(stream: RealStream) -> None:
    """The sum of the range is right."""
    brought_back(stream, 1)
    brought_back(stream, 1, learns=False)
    stream.table().delete(EqualTo("id", "p-0-2"))
    found = {problem.kind: problem for problem in audited(stream).problems}
    assert {kind: (each.records, each.where) for kind, each in found.items()} == {
        "doubled": (1, (OffsetRange(1, 2),)),
        "missing": (1, (OffsetRange(2, 3),)),
    }


def test_a_row_of_a_letter_that_did_not_come_back_is_told_once_with_its_offset(stream: RealStream) -> None:
    brought_back(stream, 1)
    brought_back(stream, 3, learns=False)
    (problem,) = audited(stream).problems
    assert (problem.kind, problem.table, problem.records) == ("unexpected", SINK, 1)
    assert (problem.where, problem.exact) == ((OffsetRange(3, 4),), True)


def test_rows_of_a_replay_whose_letters_do_not_know_it_yet_are_pending(stream: RealStream) -> None:
    brought_back(stream, 1)
    brought_back(stream, 3, learns=False)
    target = Target(stream.catalog(), SINK, replay_id("payments"))
    target.read()
    target.restamp(Stamp(replay_id("payments"), "batch", 0, 1, "config", start={BATCHES: 0}, position={BATCHES: 1}))
    result = audited(stream)
    assert (result.problems, len(result.pending)) == ([], 1)
    brought_back(stream, 3, learns=False)
    (problem,) = audited(stream).problems
    assert (problem.kind, problem.where) == ("doubled", (OffsetRange(3, 4),))


def test_letters_that_have_expired_are_not_asked_for(stream: RealStream) -> None:
    letters = stream.table(DEAD)
    letters.delete(EqualTo("offset", 1))
    assert [problem.table for problem in audited(stream).problems] == [DEAD]
    with letters.transaction() as change:
        change.set_properties({EXPIRED_BEFORE: (datetime.now(UTC) + timedelta(minutes=1)).isoformat()})
    result = audited(stream)
    assert result.problems == []
    assert any("have expired" in note for note in result.notes)


def test_a_row_whose_letter_has_expired_since_is_no_problem(stream: RealStream) -> None:
    brought_back(stream, 1)
    expire(stream, 1, datetime.now(UTC) + timedelta(minutes=1))
    result = audited(stream)
    assert (result.verdict, result.problems) == ("complete", [])
    assert any(f"table {SINK} has 1 row that no batch landed" in note for note in result.notes)
    # Not more than those that failed, which are two.
    brought_back(stream, 3, learns=False)
    assert audited(stream).problems == []
    stream.table().append(stream.sink_rows(P0, [4]))
    (problem,) = audited(stream).problems
    assert (problem.kind, problem.table, problem.records) == ("unexpected", SINK, 1)


def test_a_row_too_many_of_a_batch_whose_letters_are_all_there_is_told(stream: RealStream) -> None:
    brought_back(stream, 1)
    expire(stream, 1, datetime.now(UTC) - timedelta(days=30))
    assert ("unexpected", SINK) in {(problem.kind, problem.table) for problem in audited(stream).problems}


@pytest.mark.parametrize("again", [ROW, FAILED])
@pytest.mark.parametrize("before", [True, False])
def test_a_letter_of_a_record_that_was_read_twice(tmp_path: Path, again: str, before: bool) -> None:
    """Dead, then reset: landed by itself, so that the replay finds its row; or dead again, with two letters."""
    stream = RealStream(tmp_path)
    stream.land([ROW, FAILED])
    if before:
        with_life(stream)
        brought_back(stream, 1)
    stream.reset(0, 1)
    stream.land([again])
    if not before:
        with_life(stream)
        brought_back(stream, 1, lands=again == FAILED, stands=again == ROW)
    result = audited(stream)
    assert (result.verdict, result.problems) == ("complete", [])


def test_a_letter_from_before_a_rollback_whose_record_lands_by_itself(tmp_path: Path) -> None:
    stream = RealStream(tmp_path)
    stream.land([ROW])
    stream.land([FAILED, FAILED])
    stream.roll_back(1, "reland")
    stream.land([ROW, FAILED])
    with_life(stream)
    brought_back(stream, 1, lands=False, stands=True)
    assert [problem for problem in audited(stream).problems if problem.table == SINK] == []


def test_the_sink_alone_is_held_against_the_letters_as_well(stream: RealStream) -> None:
    brought_back(stream, 1)
    result = audit(stream.spec, stream.settings, stream.catalog(), table=SINK, full=True)
    assert (result.verdict, result.problems) == ("complete", [])
