"""Connect's queues: what is kept of their letters, how much is taken at once, and what is tried again. No Spark."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from jobs.commit.errors import HalfCommittedError
from jobs.kafka.topic_reader import TopicReader
from jobs.replay.connect import task
from jobs.replay.connect.dry_run import dry_run_queue
from jobs.replay.connect.importer import import_queue
from jobs.stream.opening import ensure_tables
from tests.integration.connect_queue import SOURCE, Queue
from tests.integration.pipeline import GOOD, NULL_AMOUNT, TRUNCATED, Pipeline
from tests.integration.topics import create_topic

pytestmark = pytest.mark.integration


@pytest.fixture
def queue(pipeline: Callable[..., Pipeline]) -> Queue:
    return Queue(pipeline(topic=False))


def test_what_connect_quotes_of_a_masked_stream_is_not_kept(queue: Queue) -> None:
    queue.pipeline.write_spec(errors={"dead_letters": {"mask": {"columns": ["note"]}}})
    queue.put(NULL_AMOUNT, 1, said=b"cannot convert secret")
    assert queue.take().dead == 1
    (letter,) = queue.pipeline.dead_table().scan().to_arrow().to_pylist()
    assert "(Kafka Connect: VALUE_CONVERTER, org.apache.kafka.connect.errors.DataException)" in letter["message"]
    assert "secret" not in str(letter)


def test_batches_are_bounded_in_bytes(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_tables(queue.pipeline.spec(), queue.pipeline.catalog())
    for offset in range(9):
        queue.put(GOOD, offset)
    monkeypatch.setattr(task, "FIRST_RECORDS", 2)
    monkeypatch.setattr(task, "MAX_BYTES", 1)
    for take in (dry_run_queue, import_queue):
        done: list[int] = []
        queue.take(take, on_progress=lambda told, done=done: done.append(told.done))
        assert done == [2, *range(3, 10)]
    assert len(queue.pipeline.landed()) == 9


def test_a_half_taken_batch_is_finished_by_taking_its_own_queue(queue: Queue) -> None:
    pipeline, other = queue.pipeline, f"{queue.topic}2"
    create_topic(pipeline.address, other, 1)
    queue.put(TRUNCATED, 1)
    queue.put(GOOD, 2)
    assert queue.command("after_anchor_commit=kill") == -signal.SIGKILL
    for record in (pipeline.folder().root / "connect").glob("pending-*.json"):
        record.unlink()
    with pytest.raises(HalfCommittedError, match=rf"{queue.topic}-0 \[0, 2\).*its pending record is lost") as refused:
        queue.take(topic=other)
    assert refused.value.fix is not None
    assert f"`frazil replay {pipeline.stream} --from-topic {queue.topic}`" in refused.value.fix
    assert (queue.take().dead, queue.take(topic=other).read) == (1, 0)
    assert pipeline.landed() == {(SOURCE, 3, 2): 1}
    assert pipeline.dead() == {(SOURCE, 3, 1): 1}


def test_what_passes_by_itself_is_tried_again(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    read, failures = TopicReader.read, [ConnectionResetError("once"), TimeoutError("twice")]

    def failing(*given: Any) -> Any:
        if failures:
            raise failures.pop()
        return read(*given)

    monkeypatch.setattr(TopicReader, "read", failing)
    queue.put(GOOD, 1)
    with pytest.raises(TimeoutError):
        queue.take()
    failures.append(TimeoutError("again"))
    queue.pipeline.write_spec(errors={"retry": {"timeout": "1m"}})
    assert queue.take().landed == 1
    assert failures == []
