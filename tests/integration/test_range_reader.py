"""Ranges of a real log, as a task reads them and as they are read again: every record that counts, and their end."""

from __future__ import annotations

import errno
import time
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

from jobs.clients.kafka import range_reader
from jobs.clients.kafka.consumer import LostOffsetsError, consumer_options
from jobs.clients.kafka.metadata import KafkaUnavailableError
from jobs.clients.kafka.range_reader import read_split
from jobs.clients.kafka.topic_reader import TopicReader
from jobs.config.settings.settings import KafkaSettings
from jobs.proof.lookup.source_record import source_logs
from jobs.streaming.driver.batch.retry import is_transient
from jobs.streaming.driver.batch.tasks import python_traceback
from jobs.tables.commit.stamp.offsets import OffsetRange, PartitionRange, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from tests.helpers.topics import idempotent_producer

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
        assert producer.flush(120) == 0

    def transaction(self, *values: bytes, abort: bool) -> None:
        """Its records, and one offset more for the mark at its end."""
        producer = Producer({"bootstrap.servers": self.address, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(120)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.topic, value, partition=0)
        producer.flush(120)
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


def test_many_small_pieces_are_read_at_once(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 partitions; some pieces begin late, end early, are empty, or hold more than a block may."""
    monkeypatch.setattr(range_reader, "MOST_RECORDS", 2_500)
    log = Log(broker, 20)
    producer = idempotent_producer(broker, log.topic)

    def value(number: int, offset: int) -> bytes | None:
        return None if offset == 20 else b"%d/%d" % (number, offset)

    for number in range(20):
        for offset in range(3_000 if number == 10 else 40):
            producer.produce(log.topic, value(number, offset), partition=number)
        producer.poll(0)
    assert producer.flush(120) == 0
    pieces = [log.piece(number % 7, 3_000 if number == 10 else 40 - number % 5, number) for number in range(19)]
    pieces.append(log.piece(7, 7, 19))
    wanted = [(s.partition, at, value(s.partition, at)) for s, (start, end) in pieces for at in range(start, end)]
    for _ in range(2):
        # Again on the same consumer: nothing is left of the assignments before.
        read = log.read(*pieces)
        assert sorted(read, key=lambda each: each[:2]) == wanted
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


def test_a_block_is_bounded_by_bytes(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "MOST_BYTES", 100_000)
    log.produce(*(bytes(50_000) for _ in range(60)))
    small = {**log.options, "fetch.message.max.bytes": 100_000, "queued.max.messages.kbytes": 100}
    sizes = [block.records.num_rows for block in read_split(small, [log.piece(0, 60)], 10.0)]
    assert sum(sizes) == 60
    assert max(sizes) < 30


def test_what_a_task_raises_is_told_first_and_known_for_what_it_is(spark: SparkSession) -> None:
    def full(_: object) -> list[int]:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(Py4JJavaError) as failed:
        spark.sparkContext.parallelize([1], 1).mapPartitions(full).collect()
    said = python_traceback(str(failed.value))
    assert said.startswith("OSError: [Errno 28] No space left on device\n\nTraceback")
    assert is_transient(PythonException(message=said))


def test_a_timestamp_that_no_calendar_has_stops_nothing(log: Log) -> None:
    """A producer that gives nanoseconds for milliseconds."""
    log.produce(b"x", timestamp=1_790_000_000_123_000_000)
    log.produce(b"y")
    (block,) = read_split(log.options, [log.piece(0, 2)], 10.0)
    micros = block.records.column("timestamp").cast(pa.int64()).to_pylist()
    assert micros[0] is None
    assert micros == block.whole([0, 1]).column("timestamp").cast(pa.int64()).to_pylist()


def read_again(log: Log, start: int, end: int, patience_seconds: int = 30) -> list[bytes | None]:
    """Values of partition 0, as replays, discards and audits read a range."""
    settings = KafkaSettings(bootstrap_servers=log.address, request_timeout=timedelta(seconds=patience_seconds))
    with TopicReader(settings, "test") as reader:
        lots = reader.read(TopicPartition(log.topic, 0), OffsetRange(start, end))
        return [message.value() for lot in lots for message in lot]


def test_small_ranges_are_read_again_without_waiting_for_more(log: Log) -> None:
    log.produce(*(b"%d" % number for number in range(20)))
    seconds: list[float] = []
    for start in range(10):
        began = time.monotonic()
        assert read_again(log, start, start + 3) == [b"%d" % number for number in range(start, start + 3)]
        seconds.append(time.monotonic() - began)
    # Each would wait a second or half of one: for a lot to fill, or for the broker's word about the end of the log.
    # On a busy machine some take as long without that.
    assert min(seconds) < 0.5


def test_a_range_that_is_read_again_ends_behind_what_was_aborted(log: Log) -> None:
    log.produce(b"0", b"1")
    log.transaction(b"seen", abort=False)
    log.transaction(b"aborted", abort=True)
    # Two records and the mark of each transaction.
    assert read_again(log, 0, 6) == [b"0", b"1", b"seen"]


def test_what_never_comes_again_is_told_with_its_place(log: Log) -> None:
    log.produce(b"only")
    with pytest.raises(KafkaUnavailableError) as caught:
        read_again(log, 0, 10, 3)
    assert f"topic {log.topic}, partition 0 cannot be read at offset 1: nothing came for 3 s" in caught.value.message


def test_a_record_is_kept_removed_or_not_written_yet(log: Log) -> None:
    log.produce(*(b"%d" % i for i in range(10)))
    for future in log.admin.delete_records([ClientPartition(log.topic, 0, 6)]).values():
        future.result(30)
    at, empty = TopicPartition(log.topic, 0), TopicPartition(log.topic, 1)
    settings = KafkaSettings(bootstrap_servers=log.address)
    logs = source_logs(settings, [at, empty, at])
    assert logs.bounds == {at: (6, 10), empty: (0, 0)}
    states = [logs.record(at, offset).state for offset in (5, 6, 9, 10)]
    assert states == ["removed", "kept", "kept", "not written"]
    assert logs.record(empty, 0).state == "not written"
    assert logs.record(at, 7, another=True).state == "another"
    assert f"-b {log.address} -t {log.topic} -p 0 -o 7 -c 1" in logs.record(at, 7).command
    gone = source_logs(settings, [TopicPartition("no-such-topic", 0)])
    assert gone.record(TopicPartition("no-such-topic", 0), 0).state == "unknown" and gone.why
