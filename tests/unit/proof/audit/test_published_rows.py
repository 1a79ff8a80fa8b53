"""The audit of a gated stream proves main, too: what was published stands there once, and nothing else does."""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.expressions import EqualTo

from jobs.proof.audit.audit import audit
from jobs.proof.audit.audit_result import StreamAudit, problem_sentence
from jobs.quality.publishing.publishing import answer_rollback
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.real_stream import SINK, TOPIC, RealStream
from tests.helpers.stream_history import FAILED, ROW, TOMBSTONE

P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
MAIN = f"main of {SINK}"


@pytest.fixture
def stream(tmp_path: Path) -> RealStream:
    made = RealStream(tmp_path, gated=True)
    made.land([ROW, FAILED, ROW, TOMBSTONE, ROW])
    made.land([ROW, ROW, ROW], partition=1)
    made.publish()
    made.land([ROW, ROW])
    return made


def audited(stream: RealStream, **options) -> StreamAudit:
    return audit(stream.spec, stream.settings, stream.catalog(), **options)


def found(result: StreamAudit) -> list[tuple]:
    return [(p.kind, p.table, p.partition, p.records, p.where) for p in result.problems]


@pytest.mark.parametrize("window", [3, 1_000])
def test_both_are_proven_and_what_is_not_published_is_named(stream: RealStream, window: int) -> None:
    result = audited(stream, window=window)
    assert (result.verdict, result.pending) == ("complete", [])
    assert result.main is not None
    assert (result.main.rows, result.main.unpublished) == (6, 2)
    (waits,) = [each for each in result.notes if each.startswith(MAIN)]
    assert f"{MAIN} lacks 2 rows of branch ingest that are not published yet, offsets payments-0 [5, 7)" in waits
    stream.publish(fit=False)
    assert any("2 rows are quarantined: not fit" in each for each in audited(stream).notes)
    stream.publish()
    result = audited(stream, full=True)
    assert (result.verdict, result.notes) == ("complete", [])
    assert result.main is not None
    assert (result.main.rows, result.main.unpublished) == (8, 0)


@pytest.mark.parametrize("before", [False, True], ids=["at once", "audited while it waited"])
def test_what_was_published_and_is_gone(stream: RealStream, before: bool) -> None:
    if before:
        assert audited(stream).verdict == "complete"
    stream.publish()
    stream.table().delete(EqualTo("id", "p-0-6"))
    result = audited(stream)
    assert found(result) == [("missing", MAIN, P0, 1, ((6, 7),))]
    assert result.verdict == "changed_since", "it is said who has deleted it"
    assert problem_sentence(result.problems[0]).startswith(
        f"{MAIN} payments-0 [6, 7): lacks 1 row of what was published"
    )
    assert audited(stream).verdict == "complete", "told once"
    assert audited(stream, full=True).verdict == "changed_since"


def test_what_is_there_twice_and_what_was_never_published(stream: RealStream) -> None:
    table = stream.table()
    table.append(stream.sink_rows(P1, [1]))
    table.append(stream.sink_rows(P0, [6]))
    table.append(stream.sink_rows(P0, [1]))
    result = audited(stream)
    assert sorted(found(result)) == [
        ("doubled", MAIN, P1, 1, ((1, 2),)),
        ("unexpected", MAIN, P0, 2, ((1, 2), (6, 7))),
    ]
    assert result.verdict == "incomplete"
    assert {problem.changes[0].rows for problem in result.problems} == {1}
    assert audited(stream).verdict == "incomplete", "until it is mended"


def test_a_replayed_row_that_main_lacks_is_found_though_its_range_was_audited(stream: RealStream) -> None:
    stream.publish()
    assert audited(stream).verdict == "complete"
    stream.replay(1)
    stream.publish()
    stream.table().delete(EqualTo("id", "p-0-1"))
    main = [each for each in found(audited(stream)) if each[1] == MAIN]
    assert main == [("missing", MAIN, P0, 1, ((1, 2),))]


def test_a_rollback_of_main_is_a_problem_until_it_is_answered(stream: RealStream) -> None:
    before = stream.table().current_snapshot()
    assert before is not None
    stream.publish()
    assert audited(stream).verdict == "complete"
    stream.table().manage_snapshots().set_current_snapshot(snapshot_id=before.snapshot_id).commit()
    result = audited(stream)
    (problem,) = result.problems
    assert (problem.kind, problem.table, result.verdict) == ("rolled_back", MAIN, "incomplete")
    assert "--after-rollback" in problem.sentence
    answer_rollback(stream.spec, stream.settings, stream.catalog(), "leave-out", "ada: wrong")
    result = audited(stream, full=True)
    assert result.verdict == "complete"
    assert result.main is not None
    assert result.main.left_out == 2
    assert f"{MAIN} lacks 2 rows that an operator has left out of it" in result.notes


def test_one_table_alone_and_a_stream_on_main(stream: RealStream, tmp_path: Path) -> None:
    assert audited(stream, table=stream.spec.dead_letter_table).main is None
    plain = RealStream(tmp_path / "plain")
    plain.land([ROW])
    assert audited(plain).main is None


def test_nothing_is_published_yet(tmp_path: Path) -> None:
    made = RealStream(tmp_path, gated=True)
    made.land([ROW, ROW])
    result = audited(made)
    assert result.verdict == "complete"
    assert result.main is not None
    assert (result.main.rows, result.main.unpublished) == (0, 2)
