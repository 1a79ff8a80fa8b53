"""A flush as the driver follows it, and as its asker is told of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.driver.context.results import BatchDone
from jobs.streaming.driver.process.flush import FlushWatch
from jobs.streaming.driver.process.heartbeat_thread import HeartbeatThread
from jobs.streaming.supervision.control.stream_control import await_flush
from jobs.streaming.supervision.documents.flush_request import KEY, read_flush, request_flush
from jobs.streaming.supervision.documents.heartbeat import Flush
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts

P = TopicPartition("payments", 0)


class Logs:
    def __init__(self, end: int) -> None:
        self.end: int = end
        self.away: bool = False
        self.others: dict[TopicPartition, int] = {}

    def __call__(self) -> LogState:
        if self.away:
            raise FrazilError("no answer")
        ends = {P: self.end} | self.others
        return LogState({each.topic: "id" for each in ends}, dict.fromkeys(ends, 0), ends)


@pytest.fixture
def beat(tmp_path: Path) -> HeartbeatThread:
    made = HeartbeatThread(LocalStore(tmp_path), "payments", "g", 1, tmp_path)
    made.work.opened({P: 10})
    return made


def lands(beat: HeartbeatThread, to: int, dead: int = 0, others: Mapping[TopicPartition, int] | None = None) -> None:
    work = beat.work
    read = to - work.position()[P]
    done = BatchDone(0, Counts(read=read, landed=read - dead, dead=dead), 1.0, 0.5, 0.1, {}, None)
    work.done(done, {P: to, **(others or {})}, 1.0, snapshot_id=1, dead_letter_snapshot_id=None, refusals=0)


def told(beat: HeartbeatThread) -> Flush:
    return beat.current().work.flush


def test_a_flush_is_done_once_what_was_there_has_landed(beat: HeartbeatThread) -> None:
    logs, watch = Logs(30), FlushWatch(beat)
    assert not watch.look(logs)
    lands(beat, 12)
    assert request_flush(beat.store, "now", "tester") == 1
    assert watch.look(logs)
    # What comes in later is of another batch.
    logs.end = 90
    lands(beat, 25, dead=1)
    assert watch.look(logs)
    assert told(beat) == Flush(1, False, 1, 13, 12, 1)
    lands(beat, 31)
    assert not watch.look(logs)
    assert told(beat) == Flush(1, True, 2, 19, 18, 1)
    result = await_flush(beat.store, "payments", 1, 0.0)
    assert (
        result.sentence
        == "payments has landed everything up to now: 19 records in 2 batches, 18 landed, 1 dead letters."
    )
    assert result.facts == {"batches": 2, "read": 19, "landed": 18, "dead": 1}
    # A later flush counts from there.
    assert request_flush(beat.store, "again", "tester") == 2
    assert watch.look(logs)
    assert told(beat) == Flush(2)


def test_nothing_that_waits_is_done_at_once(beat: HeartbeatThread) -> None:
    request_flush(beat.store, "now", "tester")
    assert not FlushWatch(beat).look(Logs(10))
    assert await_flush(beat.store, "payments", 1, 0.0).sentence.endswith("nothing waited.")


def test_a_partition_that_the_query_does_not_read_yet_is_waited_for(beat: HeartbeatThread) -> None:
    """A topic of the pattern, or a partition, may be newer than the query that runs."""
    logs, watch, new = Logs(10), FlushWatch(beat), TopicPartition("refunds", 0)
    logs.others = {new: 7, TopicPartition("refunds", 1): 0}
    request_flush(beat.store, "now", "tester")
    assert watch.look(logs), "seven records wait in a topic that has just been created"
    lands(beat, 10, others={new: 3})
    assert watch.look(logs)
    lands(beat, 10, others={new: 7})
    assert not watch.look(logs)
    assert told(beat).done


def test_a_partition_that_is_gone_has_nothing_to_land(beat: HeartbeatThread) -> None:
    logs, watch, gone = Logs(10), FlushWatch(beat), TopicPartition("refunds", 0)
    beat.work.opened({P: 10, gone: 2})
    logs.others = {gone: 7}
    request_flush(beat.store, "now", "tester")
    assert watch.look(logs)
    beat.work.opened({P: 10})
    assert not watch.look(logs)


def test_brokers_that_are_away_are_asked_again(beat: HeartbeatThread) -> None:
    logs, watch = Logs(30), FlushWatch(beat)
    logs.away = True
    request_flush(beat.store, "now", "tester")
    assert not watch.look(logs)
    assert told(beat) == Flush()
    logs.away = False
    assert watch.look(logs)


def test_a_batch_is_hastened_once(beat: HeartbeatThread) -> None:
    watch = FlushWatch(beat)
    assert [watch.hastened(batches) for batches in (0, 0, 1, 1, 2)] == [False, True, False, True, False]


def test_a_driver_that_takes_over_does_what_was_asked_of_the_one_before(beat: HeartbeatThread, tmp_path: Path) -> None:
    request_flush(beat.store, "now", "tester")
    later = HeartbeatThread(beat.store, "payments", "g", 2, tmp_path)
    later.work.opened({P: 30})
    assert not FlushWatch(later).look(Logs(30))
    assert await_flush(beat.store, "payments", 1, 0.0).facts["read"] == 0


def test_a_document_that_is_damaged_or_lost_repeats_no_number(beat: HeartbeatThread) -> None:
    beat.store.put(KEY, b"{")
    assert read_flush(beat.store).number == 0
    assert request_flush(beat.store, "now", "tester", done=7) == 8
    beat.store.delete(KEY)
    assert request_flush(beat.store, "now", "tester", done=8) == 9


def test_one_that_takes_long_or_whose_driver_fails_is_told(beat: HeartbeatThread) -> None:
    with pytest.raises(FrazilError, match="no driver has reported yet"):
        await_flush(beat.store, "payments", 1, 0.0)
    beat.change(state="running")
    with pytest.raises(FrazilError, match=r"within 0 s: its driver \(running\) has not heard of it yet"):
        await_flush(beat.store, "payments", 1, 0.0)
    beat.work.flushing(Flush(1, read=5, batches=1))
    beat.write()
    with pytest.raises(FrazilError, match="5 records read so far in 1 batches"):
        await_flush(beat.store, "payments", 1, 0.0)
    beat.change(state="failed")
    with pytest.raises(FrazilError, match="stream payments: its driver failed"):
        await_flush(beat.store, "payments", 1, 60.0)


def test_the_pause_is_cut_and_only_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from types import SimpleNamespace

    from jobs.streaming.driver.process import query as query_module
    from jobs.streaming.driver.process.query import StreamQuery
    from tests.unit.streaming.driver.test_runner import spec

    class Runner:
        def __init__(self, *given: Any) -> None:
            pass

        def run(self, *given: Any) -> BatchDone:
            return BatchDone(0, Counts(read=1), 0.1, 0.1, 0.1, {}, None)

    monkeypatch.setattr(query_module, "_end_of", lambda *given: {})
    monkeypatch.setattr(query_module, "BatchRunner", Runner)
    stream: Any = SimpleNamespace(
        folder=SimpleNamespace(new_checkpoint=lambda: tmp_path),
        spec=spec(trigger={"every": "10m"}),
        lease=SimpleNamespace(verify=lambda: None),
    )
    landed = threading.Semaphore(0)
    none: Any = None
    query = StreamQuery(stream, none, drain=False, on_batch=lambda *given: landed.release())
    ends = threading.Event()

    def batches() -> None:
        for batch in range(2):
            query._land(none, batch)
        ends.set()

    thread = threading.Thread(target=batches, daemon=True)
    thread.start()
    assert landed.acquire(timeout=120)
    query.hasten()
    assert landed.acquire(timeout=120), "the next batch begins without the pause of ten minutes"
    assert not ends.wait(0.05), "and has its own pause again"
    query.ask_to_end()
    assert ends.wait(120)
    thread.join(300)
