"""Iceberg sink in memory and a stream on real tables: Kafka's logs, groups and control topic are kept in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.stream.source import Source, StartOffsets
from jobs.migration.sink_protocol.control_events import ControlEvent
from jobs.migration.takeover import hand_back as hand_back_module
from jobs.migration.takeover import start_stamp, takeover, takeover_plan
from jobs.migration.takeover.hand_back import HandBack, hand_back
from jobs.migration.takeover.sink import Sink, sink_of
from jobs.migration.takeover.sink_kafka import ControlLog
from jobs.migration.takeover.takeover import take_over_from_sink
from jobs.migration.takeover.takeover_plan import TakeoverPlan, TakeoverRequest
from jobs.streaming.supervision.documents import control_request
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition
from tests.helpers.opened_stream import ROUTE, MemoryKafka, OpenedStream


class MemorySink:
    """Groups of a sink, and its control topic, as `SinkKafka` gives them.

    Attributes:
        groups: Committed offsets by group.
        running: Members by group.
        policy: Setting `cleanup.policy` of the control topic.
    """

    def __init__(self) -> None:
        self.groups: dict[str, dict[TopicPartition, int]] = {}
        self.running: dict[str, int] = {}
        self.log: ControlLog = ControlLog({0: 0}, {0: 12}, 0)
        # Sinks that have committed before have an event on their topic.
        groups = ("connect-sink", "connect-another", "my-control")
        self.written: list[ControlEvent] = [ControlEvent(0, 0, group, None) for group in groups]
        self.policy: str | None = "delete"
        self.brokers: frozenset[str] = frozenset({"kafka:9092"})
        self.reported: frozenset[str] = frozenset()

    def reported_brokers(self) -> frozenset[str]:
        return self.reported

    def members(self, group: str) -> int:
        return self.running.get(group, 0)

    def committed(self, group: str, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {p: at for p, at in self.groups.get(group, {}).items() if p in partitions}

    def commit(self, group: str, positions: Positions) -> None:
        self.groups.setdefault(group, {}).update(positions)

    def topics_of(self, group: str) -> set[str]:
        return {partition.topic for partition in self.groups.get(group, {})}

    def control_log(self, topic: str) -> ControlLog:
        return self.log

    def cleanup_policy(self, topic: str) -> str | None:
        return self.policy

    def events(self, topic: str, ranges: Mapping[int, Any], on_read: Any = None) -> list[ControlEvent]:
        return [event for event in self.written if ranges[event.partition].start <= event.offset]


class SinkAndStream:
    """A stream, and a sink of its topic.

    Args:
        home: The deployment's folder.
        route: Block `route` of the stream's file.
    """

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, route: dict[str, Any] | None = ROUTE) -> None:
        self.stream = OpenedStream(home, route)
        self.kafka: MemorySink = MemorySink()
        for module in (takeover, takeover_plan, hand_back_module):
            monkeypatch.setattr(module, "SinkKafka", lambda settings: self.kafka)
        for module in (takeover_plan, start_stamp, hand_back_module):
            monkeypatch.setattr(module, "KafkaLog", lambda settings: self.stream.kafka)
        monkeypatch.setattr(MemoryKafka, "first_start", _first_start)
        self.stop()

    def take_over(self, sink: Sink | None = None) -> TakeoverPlan:
        request = TakeoverRequest(sink or sink_of("sink", "apache", group=None, control_topic="control"))
        return take_over_from_sink(self.stream.spec, self.stream.settings, request, "ada", "trying it")

    def stop(self) -> None:
        store = stream_folder(self.stream.settings, "payments").store
        store.put(control_request.KEY, msgspec.json.encode(control_request.ControlRequest("stopped")))

    def offsets(self, group: str = "connect-sink") -> dict[TopicPartition, int]:
        return self.kafka.groups.get(group, {})

    def hand_back(self, group: str = "connect-sink", topic: str | None = None) -> HandBack:
        return hand_back(self.stream.spec, self.stream.settings, group, topic, "ada: back")


def _first_start(kafka: MemoryKafka, source: Source, log: object) -> dict[TopicPartition, int]:
    """The offsets of the stream's file."""
    assert isinstance(source.start, StartOffsets)
    return {
        TopicPartition(topic, number): offset
        for topic, offsets in source.start.offsets.items()
        for number, offset in offsets.items()
    }
