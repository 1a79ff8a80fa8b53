"""Which pieces of a slice are read at once, and where a range ends, by a client that gives what a test says."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from jobs.clients.kafka import range_reader
from jobs.clients.kafka.consumer import LostOffsetsError, ReadError
from jobs.clients.kafka.metadata import KafkaUnavailableError
from jobs.clients.kafka.range_reader import MOST_RECORDS, bundles, read_split
from jobs.tables.commit.stamp.offsets import OffsetRange, PartitionRange, TopicPartition

SOURCE = TopicPartition("payments", 0)

PIECES = st.lists(
    st.builds(
        lambda partition, start, count: PartitionRange(
            TopicPartition("t", partition), OffsetRange(start, start + count)
        ),
        st.integers(0, 20),
        st.integers(0, 2**40),
        st.integers(1, 2 * MOST_RECORDS) | st.integers(1, 100),
    ),
    max_size=60,
)


def records(bundle: list[PartitionRange]) -> int:
    return sum(range_.end - range_.start for _, range_ in bundle)


@given(PIECES)
def test_bundles_keep_the_order_fill_a_block_and_hold_a_partition_once(pieces: list[PartitionRange]) -> None:
    found = list(bundles(pieces))
    assert [piece for bundle in found for piece in bundle] == pieces
    for bundle in found:
        assert len({source for source, _ in bundle}) == len(bundle)
        assert len(bundle) == 1 or records(bundle) <= MOST_RECORDS
    for bundle, following in itertools.pairwise(found):
        fits = records(bundle) + records(following[:1]) <= MOST_RECORDS
        assert not fits or following[0][0] in dict(bundle)


class ScriptedConsumer:
    """A consumer that gives prepared answers, one for each call, and nothing afterwards."""

    def __init__(self, answers: Sequence[list[Message]]) -> None:
        self._answers = iter(answers)

    def assign(self, partitions: object) -> None: ...

    def incremental_unassign(self, partitions: object) -> None: ...

    def unassign(self) -> None: ...

    def consume(self, count: int, seconds: float) -> list[Message]:
        return next(self._answers, [])


class ScriptedClient:
    """What the reader has around a consumer."""

    def __init__(self, answers: Sequence[list[Message]]) -> None:
        self.problem = None
        self.fetched: dict[TopicPartition, int] = {}
        self.servers = "broker:9092"
        self.consumer = ScriptedConsumer(answers)


def record(offset: int) -> Message:
    return Message(topic="payments", partition=0, offset=offset, value=b"%d" % offset, timestamp=(1, 5))


def event(code: int, offset: int) -> Message:
    return Message(topic="payments", partition=0, offset=offset, error=KafkaError(code))


def read_offsets(monkeypatch: pytest.MonkeyPatch, start: int, end: int, *answers: list[Message]) -> list[int]:
    """The offsets that a range of the source gives."""

    def client(options: Mapping[str, Any]) -> ScriptedClient:
        return ScriptedClient(answers)

    monkeypatch.setattr(range_reader, "MonitoredConsumer", client)
    monkeypatch.setattr(range_reader, "_kept", {})
    blocks = read_split({}, [PartitionRange(SOURCE, OffsetRange(start, end))], 0.05)
    return [offset for block in blocks for offset in block.records.column("offset").to_pylist()]


def test_a_range_ends_where_it_says_and_may_lack_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction leaves offsets out; records behind the range are not the task's."""
    answers = [record(3), record(4)], [record(8), record(9), record(10), record(11)]
    assert read_offsets(monkeypatch, 3, 10, *answers) == [3, 4, 8, 9]


def test_the_end_of_the_log_ends_a_range_that_ends_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind the marks of transactions, which no record follows."""
    answers = [record(3)], [event(KafkaError._PARTITION_EOF, 5)]
    assert read_offsets(monkeypatch, 3, 5, *answers) == [3]


def test_the_end_of_the_log_before_the_end_of_the_range_passes_over_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    end_of_log = event(KafkaError._PARTITION_EOF, 5)
    with pytest.raises(KafkaUnavailableError, match="topic payments, partition 0 cannot be read at offset 5"):
        read_offsets(monkeypatch, 3, 9, [record(3), record(4)], [end_of_log])
    # What comes later is read.
    answers = [record(3), record(4)], [end_of_log], [record(5), record(8)]
    assert read_offsets(monkeypatch, 3, 9, *answers) == [3, 4, 5, 8]


@pytest.mark.parametrize("code", [KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET])
def test_an_offset_that_the_log_does_not_have_is_lost(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    with pytest.raises(LostOffsetsError, match="partition 0: the log does not have offset 4 any more"):
        read_offsets(monkeypatch, 3, 9, [record(3)], [event(code, 4)])


def test_a_record_from_before_the_range_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ReadError, match="the client gave offset 2 of payments-0"):
        read_offsets(monkeypatch, 3, 9, [record(2), record(3)])


def test_a_certificate_that_does_not_exist_is_named() -> None:
    options = {
        "bootstrap.servers": "127.0.0.1:1",
        "group.id": "g",
        "security.protocol": "SSL",
        "ssl.ca.location": "/nowhere.pem",
    }
    with pytest.raises(ReadError, match="does not take its options"):
        list(read_split(options, [PartitionRange(SOURCE, OffsetRange(0, 1))], 1.0))
