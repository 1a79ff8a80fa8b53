"""Ranges of a real log, read as a task reads them: every record that counts, and an end that is always found."""

from __future__ import annotations

import errno
import uuid
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.protocol import Py4JJavaError
from pyspark.errors import PythonException

from jobs.commit.offsets import OffsetRange, PartitionRange, TopicPartition
from jobs.kafka import range_reader
from jobs.kafka.consumer import LostOffsetsError, ReadError, consumer_options
from jobs.kafka.metadata import KafkaUnavailableError
from jobs.kafka.range_reader import read_split
from jobs.spec.settings import KafkaSettings
from jobs.stream.retry import is_transient
from jobs.stream.tasks import python_traceback

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from tests.integration.topics import idempotent_producer

pytestmark = pytest.mark.integration


class Log:
    """A topic, and what is read of it."""

    def __init__(self, address: str, partitions: int = 2) -> None:
        self.address: str = address
        self.topic: str = f"read-{uuid.uuid4().hex[:8]}"
        self.admin: AdminClient = AdminClient({"bootstrap.servers": address})
        # A broker would refuse the times of a producer that means another unit.
        config = {"message.timestamp.after.max.ms": str(2**63 - 1)}
        self.admin.create_topics([NewTopic(self.topic, partitions, 1, config=config)])[self.topic].result(30)
        self.options = consumer_options(
            KafkaSettings(bootstrap_servers=address, request_timeout=timedelta(seconds=10)), "test"
        )

    def produce(self, *values: bytes | None, partition: int = 0, **more: Any) -> None:
        producer = idempotent_producer(self.address, self.topic)
        for value in values:
            producer.produce(self.topic, value, partition=partition, **more)
        assert producer.flush(30) == 0

    def transaction(self, *values: bytes, abort: bool) -> None:
        """Its records, and one offset more for the mark at its end."""
        producer = Producer({"bootstrap.servers": self.address, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.topic, value, partition=0)
        producer.flush(30)
        (producer.abort_transaction if abort else producer.commit_transaction)(30)

    def piece(self, start: int, end: int, partition: int = 0) -> PartitionRange:
        return PartitionRange(TopicPartition(self.topic, partition), OffsetRange(start, end))

    def read(self, *pieces: PartitionRange) -> list[tuple[int, int, bytes | None]]:
        found: list[tuple[int, int, bytes | None]] = []
        for block in read_split(self.options, pieces, 10.0):
            columns = block.records.to_pydict()
            assert set(columns["topic"]) == {block.source.topic}
            found += list(zip(columns["partition"], columns["offset"], columns["value"], strict=True))
        return found


@pytest.fixture
def log(broker: str) -> Log:
    return Log(broker)


def test_pieces_are_read_in_order_and_to_their_ends(log: Log) -> None:
    log.produce(*(b"a%d" % i for i in range(25_000)))
    log.produce(b"b0", None, b"b2", partition=1)
    read = log.read(log.piece(3, 12_000), log.piece(1, 3, 1), log.piece(12_000, 25_000))
    assert read == [
        *((0, i, b"a%d" % i) for i in range(3, 12_000)),
        (1, 1, None),
        (1, 2, b"b2"),
        *((0, i, b"a%d" % i) for i in range(12_000, 25_000)),
    ]


def test_many_small_pieces_are_read_at_once(broker: str) -> None:
    """Of 60 partitions; some pieces begin late, end early, are empty, or hold all that a block may."""
    log = Log(broker, 60)
    producer = idempotent_producer(broker, log.topic)
    for number in range(60):
        for offset in range(12_000 if number == 30 else 40):
            producer.produce(log.topic, b"%d/%d" % (number, offset), partition=number)
        producer.poll(0)
    assert producer.flush(30) == 0
    pieces = [log.piece(number % 7, 12_000 if number == 30 else 40 - number % 5, number) for number in range(60)]
    wanted = [(s.partition, at, b"%d/%d" % (s.partition, at)) for s, (start, end) in pieces for at in range(start, end)]
    for _ in range(2):
        # Again on the same consumer: nothing is left of the assignments before.
        read = log.read(*pieces)
        assert sorted(read) == wanted
        assert all(before[1] < after[1] for before, after in pairwise(read) if before[0] == after[0])


def test_an_offset_lost_among_many_is_named(broker: str) -> None:
    log = Log(broker, 5)
    for number in range(5):
        log.produce(*(b"%d" % i for i in range(10)), partition=number)
    for future in log.admin.delete_records([ClientPartition(log.topic, 3, 6)]).values():
        future.result(30)
    with pytest.raises(LostOffsetsError, match=rf"topic {log.topic}, partition 3: .* offset 2"):
        log.read(*(log.piece(2, 10, number) for number in range(5)))


def test_what_was_aborted_is_not_read_and_marks_end_a_range(log: Log) -> None:
    """Offsets: 0 committed, 1 its mark, 2 and 3 aborted, 4 their mark, 5 committed, 6 its mark."""
    log.transaction(b"first", abort=False)
    log.transaction(b"no", b"never", abort=True)
    log.transaction(b"last", abort=False)
    assert log.read(log.piece(0, 7)) == [(0, 0, b"first"), (0, 5, b"last")]
    assert log.read(log.piece(1, 5)) == []
    assert log.read(log.piece(6, 7)) == []


def test_key_headers_and_type_are_there_for_those_that_are_asked_for(log: Log) -> None:
    log.produce(b"x", key=b"k", headers=[("h", b"\x00\xff"), ("h", None)], timestamp=1_790_000_000_123)
    log.produce(b"y", partition=0)
    (block,) = read_split(log.options, [log.piece(0, 2)], 10.0)
    first, second = block.whole([0, 1]).to_pylist()
    assert first["key"] == b"k"
    assert first["headers"] == [{"key": "h", "value": b"\x00\xff"}, {"key": "h", "value": None}]
    assert first["timestampType"] == 0
    assert first["timestamp"] == block.records.column("timestamp")[0].as_py()
    assert first["timestamp"].timestamp() == pytest.approx(1_790_000_000.123)
    assert (second["offset"], second["key"], second["headers"]) == (1, None, None)


def test_what_columns_are_made_of_is_fetched_of_every_record(log: Log) -> None:
    named = [("__value_schema_id", b"\x00\x00\x00\x00\x07")]
    log.produce(b"x", key=b"k", headers=[("h", b"\x00\xff"), ("h", None), *named], timestamp=1_790_000_000_123)
    log.produce(b"y", partition=0)
    parts = frozenset({"key", "headers", "timestamp_type", "value_schema_id"})
    (block,) = read_split(log.options, [log.piece(0, 2)], 10.0, parts)
    assert block.records.select(["key", "headers", "timestampType", "value_schema_id"]).to_pylist() == [
        {
            "key": b"k",
            "headers": [{"key": name, "value": value} for name, value in (("h", b"\x00\xff"), ("h", None), *named)],
            "timestampType": 0,
            "value_schema_id": named[0][1],
        },
        {"key": None, "headers": [], "timestampType": 0, "value_schema_id": None},
    ]


def test_a_block_is_bounded_by_bytes(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "MOST_BYTES", 100_000)
    log.produce(*(bytes(50_000) for _ in range(60)))
    small = {**log.options, "fetch.message.max.bytes": 100_000, "queued.max.messages.kbytes": 100}
    sizes = [block.records.num_rows for block in read_split(small, [log.piece(0, 60)], 10.0)]
    assert sum(sizes) == 60
    assert max(sizes) < 30


def test_an_offset_that_the_log_lost_is_named(log: Log) -> None:
    log.produce(*(b"%d" % i for i in range(10)))
    for future in log.admin.delete_records([ClientPartition(log.topic, 0, 6)]).values():
        future.result(30)
    with pytest.raises(LostOffsetsError, match=rf"topic {log.topic}, partition 0: .* offset 2"):
        log.read(log.piece(2, 10))
    assert [offset for _, offset, _ in log.read(log.piece(6, 10))] == [6, 7, 8, 9]


def test_what_never_comes_ends_with_the_place(log: Log) -> None:
    log.produce(b"only")
    with pytest.raises(KafkaUnavailableError, match=f"topic {log.topic}, partition 0 cannot be read at offset 1"):
        list(read_split(log.options, [log.piece(0, 2)], 3.0))


def test_what_a_task_raises_is_told_first_and_known_for_what_it_is(spark: SparkSession) -> None:
    def full(_: object) -> list[int]:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(Py4JJavaError) as failed:
        spark.sparkContext.parallelize([1], 1).mapPartitions(full).collect()
    said = python_traceback(str(failed.value))
    assert said.startswith("OSError: [Errno 28] No space left on device\n\nTraceback")
    assert is_transient(PythonException(message=said))


@pytest.mark.parametrize("millis", [1_790_000_000_123_000_000, 1_790_000_000_123_000])
def test_a_timestamp_that_no_calendar_has_stops_nothing(log: Log, millis: int) -> None:
    """A producer that gives nanoseconds, or microseconds, for milliseconds."""
    log.produce(b"x", timestamp=millis)
    log.produce(b"y")
    (block,) = read_split(log.options, [log.piece(0, 2)], 10.0)
    micros = block.records.column("timestamp").cast(pa.int64()).to_pylist()
    assert micros[0] == (millis * 1000 if millis * 1000 < 2**63 else None)
    assert micros == block.whole([0, 1]).column("timestamp").cast(pa.int64()).to_pylist()


def test_a_certificate_that_is_not_there_is_told_of() -> None:
    options = {
        "bootstrap.servers": "127.0.0.1:1",
        "group.id": "g",
        "security.protocol": "SSL",
        "ssl.ca.location": "/nowhere.pem",
    }
    with pytest.raises(ReadError, match="does not take its options"):
        list(read_split(options, [PartitionRange(TopicPartition("t", 0), OffsetRange(0, 1))], 1.0))
