"""Connect's dead letters from a real topic, each once over repeated and killed runs. No Spark takes part."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

from jobs.commit.errors import RolledBackError
from jobs.commit.offsets import TopicPartition
from jobs.commit.operations import Append
from jobs.commit.pyiceberg_commit import commit_once
from jobs.commit.stamps import Stamp
from jobs.commit.target import Target
from jobs.deadletter.selection import Selection
from jobs.errors import FrazilError
from jobs.operator.dead_letter_states import set_states_by_rows
from jobs.replay.connect.dry_run import dry_run_queue
from jobs.replay.connect.importer import import_queue
from jobs.replay.request import ReplayRequest
from jobs.replay.run import replay
from jobs.stream.opening import ensure_tables
from jobs.write.target_writer import TargetWriter
from tests.integration.connect_queue import SOURCE, Queue
from tests.integration.pipeline import GOOD, NULL_AMOUNT, TOMBSTONE, TRUNCATED, Pipeline, payment

pytestmark = pytest.mark.integration


@pytest.fixture
def queue(pipeline: Callable[..., Pipeline]) -> Queue:
    return Queue(pipeline(topic=False))


def test_a_queue_of_connect_is_emptied_once(queue: Queue) -> None:
    pipeline = queue.pipeline
    ensure_tables(pipeline.spec(), pipeline.catalog())
    stands = pa.record_batch(
        {
            "id": ["p-5"],
            "amount": pa.array([Decimal(5)], pa.decimal128(12, 2)),
            "created_at": pa.array([0], pa.timestamp("us", "UTC")),
            "_kafka_topic": [SOURCE],
            "_kafka_partition": pa.array([3], pa.int32()),
            "_kafka_offset": [5],
        }
    )
    table = pipeline.table()
    writer = TargetWriter(table.metadata, table.io, file_prefix="main")
    writer.write(stands)
    commit_once(table, Append(writer.close()), summary={}, properties={})
    queue.put(GOOD, 1)
    queue.put(GOOD, 1, partition=1)
    queue.put(GOOD, 5)
    queue.put(TRUNCATED, 2, before=(("__connect.errors.topic", b"first.trip"), ("__connect.errors.offset", b"99")))
    queue.put(TRUNCATED, 2)
    queue.put(TOMBSTONE, 4)
    queue.put(GOOD, None)
    heads = [table.metadata.current_snapshot_id for table in (pipeline.table(), pipeline.dead_table())]
    dry = queue.take(dry_run_queue)
    assert heads == [table.metadata.current_snapshot_id for table in (pipeline.table(), pipeline.dead_table())]
    result = queue.take()
    assert replace(dry, dry_run=False, reasons=(), seconds=0) == replace(result, seconds=0)
    assert [(each.error_class, each.count, each.example) for each in dry.reasons] == [
        ("malformed_json", 1, (SOURCE, 3, 2)),
        ("no_coordinates", 1, (queue.topic, 0, 5)),
    ]
    assert (result.read, result.landed, result.dead, result.known, result.tombstones, result.without_coordinates) == (
        7,
        1,
        2,
        3,
        1,
        1,
    )
    assert pipeline.landed() == {(SOURCE, 3, 1): 1, (SOURCE, 3, 5): 1}
    assert pipeline.dead() == {(SOURCE, 3, 2): 1, (queue.topic, 0, 5): 1}
    letters = {row["error_class"]: row for row in pipeline.dead_table().scan().to_arrow().to_pylist()}
    assert letters.keys() == {"malformed_json", "no_coordinates"}
    letter = letters["malformed_json"]
    assert (letter["stream"], letter["epoch"], letter["batch_id"]) == (pipeline.stream, None, None)
    assert "VALUE_CONVERTER, org.apache.kafka.connect.errors.DataException, connector sink" in letter["message"]
    assert letter["headers"] == [{"key": "trace", "value": b"\x01"}]
    assert letter["value"] == payment(2, TRUNCATED)
    assert [queue.take(each).read for each in (dry_run_queue, import_queue)] == [0, 0]
    queue.put(GOOD, 7)
    assert queue.take().landed == 1
    # What said nothing of its origin is landed when somebody says so.
    assert replay(pipeline.spec(), pipeline.settings(), pipeline.catalog(), ReplayRequest()).selected == 1
    assert (queue.topic, 0, 5) not in pipeline.landed()
    named = ReplayRequest(Selection(reasons=("no_coordinates",)))
    assert replay(pipeline.spec(), pipeline.settings(), pipeline.catalog(), named).replayed == 1
    assert pipeline.landed()[queue.topic, 0, 5] == 1


@pytest.mark.parametrize(
    "step",
    ["after_tasks", "before_commit", "inside_anchor_commit", "after_anchor_commit", "inside_dead_letters_commit"],
)
def test_killed_anywhere_each_record_is_taken_once(queue: Queue, step: str) -> None:
    for offset in range(6):
        queue.put(GOOD if offset % 2 else NULL_AMOUNT, offset, partition=offset % 2)
    assert queue.command(f"{step}=kill") == -signal.SIGKILL
    result = queue.take()
    # Whatever the killed one had committed, and what it had only noted, is told with the rest.
    assert (result.read, result.landed, result.dead, result.known) == (6, 3, 3, 0)
    assert result.earlier == (0 if step == "after_tasks" else 6)
    pipeline = queue.pipeline
    assert pipeline.landed() == Counter({(SOURCE, 3, offset): 1 for offset in (1, 3, 5)})
    assert pipeline.dead() == Counter({(SOURCE, 3, offset): 1 for offset in (0, 2, 4)})
    assert queue.take().read == 0


def test_what_the_stream_reads_itself_is_left_to_it(queue: Queue) -> None:
    pipeline = queue.pipeline
    queue.source = pipeline.stream
    queue.put(GOOD, 1)
    queue.put(GOOD, 7)
    with pytest.raises(FrazilError, match="has never run"):
        queue.take()
    at = {TopicPartition(pipeline.stream, 3): 5}
    target = Target(pipeline.catalog(), pipeline.table_name, pipeline.stream)
    target.claim(1, lambda _: Stamp(pipeline.stream, "claim", -1, 1, "c", start=at, position=at))
    result = queue.take()
    assert (result.landed, result.left) == (1, 1)
    assert pipeline.landed() == {(pipeline.stream, 3, 1): 1}


def test_what_a_rollback_took_out_is_taken_from_the_queue_again(queue: Queue) -> None:
    queue.put(GOOD, 1)
    assert queue.take().landed == 1
    pipeline = queue.pipeline
    kept = pipeline.table().metadata.current_snapshot_id
    assert kept is not None
    queue.put(GOOD, 2)
    queue.put(TRUNCATED, 3)
    assert queue.take().landed == 1
    pipeline.table().manage_snapshots().set_current_snapshot(snapshot_id=kept).commit()
    with pytest.raises(RolledBackError, match=r"frazil letters .* --after-rollback WHY"):
        queue.take()
    set_states_by_rows(pipeline.spec(), pipeline.settings(), pipeline.catalog(), "me", "rolled back")
    again = queue.take()
    assert (again.landed, again.dead) == (1, 0)
    assert pipeline.landed() == {(SOURCE, 3, 1): 1, (SOURCE, 3, 2): 1}
    assert pipeline.dead() == {(SOURCE, 3, 3): 1}


def test_a_topic_that_is_none_is_told(queue: Queue) -> None:
    pipeline = queue.pipeline
    with pytest.raises(FrazilError, match="is one that the stream reads itself"):
        import_queue(pipeline.spec(), pipeline.settings(), pipeline.catalog(), pipeline.stream, ReplayRequest())
    with pytest.raises(FrazilError, match="topic nowhere does not exist"):
        import_queue(pipeline.spec(), pipeline.settings(), pipeline.catalog(), "nowhere", ReplayRequest())


def test_a_run_after_a_kill_tells_of_both(queue: Queue) -> None:
    queue.put(GOOD, 1)
    assert queue.take().landed == 1
    for offset in range(2, 6):
        queue.put(GOOD, offset)
    assert queue.command("before_commit=kill@2", "--rate", "0.4") == -signal.SIGKILL
    queue.put(GOOD, 5)
    queue.put(TRUNCATED, 6)
    result = queue.take()
    assert (result.read, result.landed, result.dead, result.known) == (6, 4, 1, 1)
    assert 0 < result.earlier < 6
    assert queue.take().read == 0
