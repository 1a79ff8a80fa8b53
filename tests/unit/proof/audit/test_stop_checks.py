"""No audit says complete while the stream stands stopped on a question, or where rows that were counted may be gone."""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from pyiceberg.table.update import RemoveSnapshotRefUpdate

from jobs.clients.kafka.metadata import KafkaLog, KafkaUnavailableError
from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.proof.audit.audit import audit
from jobs.proof.audit.audit_result import StreamAudit
from jobs.streaming.supervision.documents.heartbeat import (
    KEY,
    Heartbeat,
    LastError,
    write_heartbeat,
)
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.real_stream import DEAD, SINK, TOPIC, RealStream
from tests.helpers.stream_history import FAILED, ROW

P0 = TopicPartition(TOPIC, 0)


@pytest.fixture
def stream(tmp_path: Path) -> RealStream:
    made = RealStream(tmp_path)
    made.land([ROW, FAILED, ROW])
    made.land([ROW, ROW])
    return made


def audited(stream: RealStream, **options: Any) -> StreamAudit:
    return audit(stream.spec, stream.settings, stream.catalog(), **options)


def kinds(result: StreamAudit) -> list[tuple[str, str, int]]:
    return sorted((each.kind, each.table, each.records) for each in result.problems)


def roll_back(stream: RealStream, steps: int, name: str = SINK) -> None:
    table = stream.table(name)
    table.manage_snapshots().set_current_snapshot(snapshot_id=table.metadata.snapshots[-1 - steps].snapshot_id).commit()


def replace_table(stream: RealStream, rows: list[int]) -> None:
    """What CREATE OR REPLACE TABLE … AS SELECT leaves: uuid, properties, snapshots; main begins without a parent."""
    table = stream.table()
    table.catalog.commit_table(table, (), (RemoveSnapshotRefUpdate(ref_name="main"),))
    stream.table().append(stream.sink_rows(P0, rows))
    head = stream.table().current_snapshot()
    assert head is not None and head.parent_snapshot_id is None and len(stream.table().metadata.snapshots) > 1


@pytest.mark.parametrize("expired", [False, True])
def test_an_unanswered_rollback_is_not_complete_whatever_was_audited_before(stream: RealStream, expired: bool) -> None:
    assert audited(stream).verdict == "complete"
    roll_back(stream, 1)
    if expired:
        table = stream.table()
        table.maintenance.expire_snapshots().by_id(table.metadata.snapshots[-1].snapshot_id).commit()
    for full in (False, True):
        result = audited(stream, full=full)
        assert (result.verdict, kinds(result)) == ("incomplete", [("missing", SINK, 2), ("rolled_back", SINK, 0)])
    said = next(each.sentence for each in result.problems if each.kind == "rolled_back")
    assert "frazil accept payments --rollback keep" in said and "payments-0 [3, 5)" in said


def test_rolled_back_dead_letters_are_not_complete(stream: RealStream) -> None:
    stream.land([FAILED])
    audited(stream)
    roll_back(stream, 1, DEAD)
    assert kinds(audited(stream)) == [("missing", DEAD, 1), ("rolled_back", DEAD, 0)]


def test_an_answered_rollback_is_complete(stream: RealStream) -> None:
    audited(stream)
    stream.roll_back(1, "keep")
    assert audited(stream).problems == []
    stream.land([ROW])
    assert audited(stream).problems == []


def test_a_table_that_was_replaced_is_counted_anew(stream: RealStream) -> None:
    assert audited(stream).verdict == "complete"
    replace_table(stream, [0, 2, 3])
    result = audited(stream)
    assert kinds(result) == [("missing", SINK, 1), ("rolled_back", SINK, 0)] and result.verdict == "incomplete"
    (missing,) = (each for each in result.problems if each.kind == "missing")
    assert missing.partition == P0 and missing.range == (3, 5)
    # Also when somebody has expired all that it was before, and deleted the metadata that tell.
    table = stream.table()
    old = [each.snapshot_id for each in table.metadata.snapshots[:-1]]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    for entry in stream.table().metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file://")).unlink(missing_ok=True)
    (told,) = (each for each in audited(stream).problems if each.kind == "rolled_back")
    assert "cannot be shown that it still holds the stream's last commit" in told.sentence


def test_what_was_counted_is_not_counted_again_when_its_snapshot_has_expired(stream: RealStream) -> None:
    audited(stream)
    stream.land([ROW])
    for name in (SINK, DEAD):
        table = stream.table(name)
        old = [each.snapshot_id for each in table.metadata.snapshots[:-1]]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()
    result = audited(stream)
    assert (result.problems, result.scanned) == ([], 1)


def test_without_coordinates_a_batch_that_is_off_main_is_missing(tmp_path: Path) -> None:
    stream = RealStream(tmp_path, kafka_columns=False)
    stream.land([ROW])
    stream.land([ROW, ROW])
    assert audited(stream).verdict == "complete"
    roll_back(stream, 1)
    assert kinds(audited(stream)) == [("missing", SINK, 2), ("rolled_back", SINK, 0)]


def last_word(stream: RealStream, kind: Any = "operator", *, state: Any = "failed", **more: Any) -> None:
    folder = stream_folder(stream.settings, "payments").root
    folder.mkdir(parents=True, exist_ok=True)
    now = time.time()
    error = LastError("offsets [5, 9) of payments-0 are gone", kind, **{"at": now, **more})
    beat = Heartbeat("payments", "g", 1, 1, "", "", "", now, state, now, 0.0, now, error=error)
    write_heartbeat(LocalStore(folder), beat)


@pytest.mark.parametrize("question", [True, None])
def test_a_stream_that_waits_for_an_answer_is_not_complete(stream: RealStream, question: bool | None) -> None:
    audited(stream)
    last_word(stream, fix="`frazil accept payments --lost-offsets` to go on behind them", question=question)
    result = audited(stream)
    assert (result.verdict, kinds(result)) == ("incomplete", [("stopped", SINK, 0)])
    assert "offsets [5, 9) of payments-0 are gone Next: `frazil accept payments" in result.problems[0].sentence
    # It was answered, or records were landed: either is a stamp.
    stream.land([ROW])
    assert audited(stream).problems == []


@pytest.mark.parametrize(
    "said",
    [
        {"kind": "operator", "question": False, "fix": "raise stop_above"},
        {"kind": "operator", "fix": "correct the producer"},
        {"kind": "away", "question": None, "fix": "frazil up"},
        {"kind": "error"},
        {"kind": "operator", "question": True, "state": "starting"},
    ],
)
def test_other_last_words_are_no_question(stream: RealStream, said: dict[str, Any]) -> None:
    last_word(stream, **said)
    assert audited(stream).verdict == "complete"


def test_a_last_word_of_an_earlier_version_is_read(stream: RealStream) -> None:
    last_word(stream, fix="`frazil accept payments --lost-offsets`")
    file = stream_folder(stream.settings, "payments").root / KEY
    beat = msgspec.json.decode(file.read_bytes())
    del beat["error"]["question"]
    file.write_bytes(msgspec.json.encode(beat))
    assert kinds(audited(stream)) == [("stopped", SINK, 0)]


@dataclass
class Log:
    """Kafka's side as `KafkaLog` tells it."""

    topics: dict[str, str]
    earliest: int = 0
    latest: int = 5
    hidden: bool = False

    def state(self, source: object) -> LogState:
        return LogState(self.topics, {P0: self.earliest}, {P0: self.latest})

    def identities(self, topics: list[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "id") if self.hidden else {}


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (Log({TOPIC: "id"}), None),
        (Log({TOPIC: "id"}, latest=90), None),
        (Log({TOPIC: "id"}, latest=3), "its log was cut or recreated. Next: `frazil accept payments --recreated"),
        (Log({TOPIC: "id"}, earliest=7, latest=9), "payments, partition 0, offsets [5, 7)"),
    ],
)
def test_kafka_is_asked_whether_the_stream_can_go_on(stream: RealStream, log: Log, said: str | None) -> None:
    result = audited(stream, kafka=lambda: cast(KafkaLog, log))
    assert [each.kind for each in result.problems] == ([] if said is None else ["stopped"])
    assert said is None or said in result.problems[0].sentence


def test_dead_letters_that_still_stand_in_a_retired_topic_do_not_stop_the_stream(stream: RealStream) -> None:
    gone = TopicPartition("gone", 0)
    source = stream.spec.source.model_copy(update={"topics": (TOPIC, gone.topic)})
    stream.spec = stream.spec.model_copy(update={"source": source})
    dead = Target(stream.catalog(), DEAD, "payments")
    newest = dead.read()
    assert newest is not None
    still = replace(newest.claimed(1), start={**newest.start, gone: 50}, position={**newest.position, gone: 60})
    dead.restamp(still)
    result = audited(stream, kafka=lambda: cast(KafkaLog, Log({TOPIC: "id"})))
    assert (result.problems, result.notes) == ([], [])


def test_a_stream_that_moves_is_not_stopped(stream: RealStream) -> None:
    """Retention has removed what it had read when the audit began, and it has gone on since."""

    class Moving(Log):
        def state(self, source: object) -> LogState:
            stream.land([ROW, ROW, ROW])
            return super().state(source)

    log = Moving({TOPIC: "id"}, earliest=6, latest=8)
    assert audited(stream, kafka=lambda: cast(KafkaLog, log)).problems == []


def test_a_kafka_that_does_not_answer_is_said_and_is_no_problem(stream: RealStream) -> None:
    def away() -> KafkaLog:
        raise KafkaUnavailableError("Kafka at there:9092: refused")

    result = audited(stream, kafka=away)
    assert result.verdict == "complete"
    assert result.notes == ["Kafka was not asked whether the stream can go on: Kafka at there:9092: refused"]
