"""Connect's dead letters from a real topic, each once over repeated, killed and failing runs. No Spark takes part."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from jobs.base.errors import FrazilError
from jobs.clients.kafka.topic_reader import TopicReader
from jobs.dead_letters.connect_queue.importer import dry_run_queue, import_queue
from jobs.dead_letters.expiry.dead_letter_states import set_states_by_rows
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.run import replay
from jobs.proof.audit.audit import audit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.errors import HalfCommittedError, RolledBackError
from jobs.tables.dead_letter_table.selection import Selection
from jobs.tables.write.target_writer import TargetWriter
from tests.helpers.topics import create_topic
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
    for topic, problem in ((pipeline.stream, "is one that the stream reads itself"), ("nowhere", "does not exist")):
        with pytest.raises(FrazilError, match=f"topic {topic} {problem}"):
            queue.take(topic=topic)


@pytest.mark.parametrize("step", ["inside_anchor_commit", "inside_dead_letters_commit"])
def test_killed_anywhere_each_record_is_taken_once(queue: Queue, step: str) -> None:
    for offset in range(6):
        queue.put(GOOD if offset % 2 else NULL_AMOUNT, offset, partition=offset % 2)
    assert queue.command(f"{step}=kill") == -signal.SIGKILL
    queue.take()
    pipeline = queue.pipeline
    assert pipeline.landed() == Counter({(SOURCE, 3, offset): 1 for offset in (1, 3, 5)})
    assert pipeline.dead() == Counter({(SOURCE, 3, offset): 1 for offset in (0, 2, 4)})
    assert queue.take().read == 0


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


def test_a_run_after_a_kill_takes_the_rest(queue: Queue) -> None:
    queue.put(GOOD, 1)
    assert queue.take().landed == 1
    for offset in range(2, 6):
        queue.put(GOOD, offset)
    assert queue.command("before_commit=kill@2", "--rate", "0.4") == -signal.SIGKILL
    queue.put(GOOD, 5)
    queue.put(TRUNCATED, 6)
    result = queue.take()
    assert result.landed < 4 and (result.dead, result.known) == (1, 1)
    assert queue.pipeline.landed() == {(SOURCE, 3, offset): 1 for offset in range(1, 6)}
    assert queue.take().read == 0


def test_what_connect_quotes_of_a_masked_stream_is_not_kept(queue: Queue) -> None:
    queue.pipeline.write_spec(errors={"dead_letters": {"mask": {"columns": ["note"]}}})
    queue.put(NULL_AMOUNT, 1, said=b"cannot convert secret")
    assert queue.take().dead == 1
    (letter,) = queue.pipeline.dead_table().scan().to_arrow().to_pylist()
    assert "(Kafka Connect: VALUE_CONVERTER, org.apache.kafka.connect.errors.DataException)" in letter["message"]
    assert "secret" not in str(letter)


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


def test_records_land_by_the_route_once_though_their_import_is_killed(queue: Queue) -> None:
    pipeline = queue.pipeline
    name = pipeline.table_name
    even = {"match": r"p-\d*[02468]", "table": f"{name}_even", "columns": ["id", "created_at"]}
    low = {"match": r"p-\d*[0-4]", "table": f"{name}_low", "branch": "side"}
    pipeline.write_spec(route={"by": "id", "tables": [even, low], "unmatched": {"table": name}})
    for offset in range(12):
        queue.put(GOOD, offset, partition=offset % 2)
    queue.put(TRUNCATED, 90)
    queue.put(GOOD, 3)
    assert queue.command("after_anchor_commit=kill") == -signal.SIGKILL
    left = list((pipeline.folder().root / "connect").glob("pending-*.json"))
    assert left
    for record in left:
        record.unlink()
    done = queue.take()
    # The stream's own table had its part of the batch before the kill; this run says what it took itself.
    assert (done.read, done.landed, done.dead, done.known) == (14, 0, 1, 0)
    assert queue.take().read == 0
    spec, catalog = pipeline.spec(), pipeline.catalog()

    def offsets(table: str) -> list[int]:
        rows = stream_table(catalog, spec, table).scan(selected_fields=("_kafka_offset",)).to_arrow()
        return sorted(rows.column("_kafka_offset").to_pylist())

    placed = {each: offsets(f"{name}{each}") for each in ("", "_even", "_low")}
    assert placed == {"": [5, 7, 9], "_even": [0, 2, 4, 6, 8, 10], "_low": [0, 1, 2, 3, 4, 10, 11]}
    assert pipeline.dead() == {(SOURCE, 3, 90): 1}
    fill_ledger(catalog, pipeline.settings(), [spec])
    audited = audit(spec, pipeline.settings(), catalog, full=True)
    assert not audited.problems and not audited.pending, audited.problems
