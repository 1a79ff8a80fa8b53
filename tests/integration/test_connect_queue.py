"""Connect's queues: what is kept of their letters, how much is taken at once, and what is tried again. No Spark."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from jobs.commit.branch import stream_table
from jobs.commit.errors import HalfCommittedError
from jobs.kafka.topic_reader import TopicReader
from jobs.replay.connect import task
from jobs.replay.connect.dry_run import dry_run_queue
from jobs.replay.connect.importer import import_queue
from jobs.stream.opening import ensure_tables
from jobs.verify.audit import audit
from jobs.verify.ledger_fill import fill_ledger
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


@pytest.mark.parametrize(("killed_at", "lost"), [("after_anchor_commit", True), ("after_table_commit", False)])
def test_records_land_by_the_route_once_though_their_import_is_killed(queue: Queue, killed_at: str, lost: bool) -> None:
    pipeline = queue.pipeline
    name = pipeline.table_name
    even = {"match": r"p-\d*[02468]", "table": f"{name}_even", "columns": ["id", "created_at"]}
    low = {"match": r"p-\d*[0-4]", "table": f"{name}_low", "branch": "side"}
    pipeline.write_spec(route={"by": "id", "tables": [even, low], "unmatched": {"table": name}})
    for offset in range(12):
        queue.put(GOOD, offset, partition=offset % 2)
    queue.put(TRUNCATED, 90)
    queue.put(GOOD, 3)
    assert queue.command(f"{killed_at}=kill") == -signal.SIGKILL
    left = list((pipeline.folder().root / "connect").glob("pending-*.json"))
    assert left
    for record in left if lost else ():
        record.unlink()
    done = queue.take()
    assert (done.read, done.landed, done.dead, done.known) == (14, 12, 1, 1)
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
