"""Whether a real Kafka still has a record, and the line that reads it back."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition as ClientPartition

from jobs.commit.offsets import TopicPartition
from jobs.spec.settings import KafkaSettings
from jobs.time_travel.source_record import source_logs
from tests.integration.test_range_reader import Log

pytestmark = pytest.mark.integration


def test_a_record_is_kept_removed_or_not_written_yet(broker: str) -> None:
    log = Log(broker)
    log.produce(*(b"%d" % i for i in range(10)))
    for future in log.admin.delete_records([ClientPartition(log.topic, 0, 6)]).values():
        future.result(30)
    at, empty = TopicPartition(log.topic, 0), TopicPartition(log.topic, 1)
    logs = source_logs(KafkaSettings(bootstrap_servers=broker), [at, empty, at])
    assert logs.bounds == {at: (6, 10), empty: (0, 0)}
    states = [logs.record(at, offset).state for offset in (5, 6, 9, 10)]
    assert states == ["removed", "kept", "kept", "not written"]
    assert logs.record(empty, 0).state == "not written"
    assert logs.record(at, 7, another=True).state == "another"
    assert f"-b {broker} -t {log.topic} -p 0 -o 7 -c 1" in logs.record(at, 7).command
    gone = source_logs(KafkaSettings(bootstrap_servers=broker), [TopicPartition("no-such-topic", 0)])
    assert gone.record(TopicPartition("no-such-topic", 0), 0).state == "unknown" and gone.why
