"""Control topic of a sink as a takeover reads it: announced files, workers' progress, and whether all of it is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from jobs.config.stream.models import StreamSpec
from jobs.migration.sink_protocol.control_events import Announcement, ControlEvent, Progress
from jobs.migration.sink_protocol.sink_floor import SinkFloor
from jobs.migration.takeover.sink import Sink
from jobs.migration.takeover.sink_kafka import ControlLog, SinkKafka
from jobs.migration.takeover.takeover_refusal import ONE_COMMIT, TakeoverRefusedError
from jobs.tables.commit.history.sink_record import ControlOffsets
from jobs.tables.commit.stamp.offsets import OffsetRange, Positions, TopicPartition

# Events below the floors that are read as well: they show how far the workers had read.
LOOK_BACK = 2_000


@dataclass(frozen=True, slots=True)
class AnnouncedFile:
    """A data file as a worker announced it, with the offset of the announcement."""

    control_partition: int
    control_offset: int
    table_uuid: str | None
    fields: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Location of the file."""
        return self.fields["file_path"]

    @property
    def rows(self) -> int:
        """Rows in the file."""
        return self.fields["record_count"]


@dataclass(frozen=True, slots=True)
class ControlFacts:
    """Content of a control topic.

    Attributes:
        log: The topic as Kafka keeps it.
        coordinator: Offsets through which the sink's coordinator has committed all tables.
        announcements: Announcements of the sink in order, each with its partition and offset.
        progress: Next offset of each source partition by the workers' newest answers.
        cleanup_policy: Setting `cleanup.policy` of the topic; None if it could not be read.
        has_events: Whether the topic holds an event of the sink.
    """

    log: ControlLog
    coordinator: ControlOffsets
    announcements: tuple[tuple[int, int, Announcement], ...]
    progress: Positions
    cleanup_policy: str | None = None
    has_events: bool = False

    def files_of(self, table: str, floor: SinkFloor) -> tuple[AnnouncedFile, ...]:
        """Files announced for a table at or above its floor, each path once, without empty ones."""
        files: dict[str, AnnouncedFile] = {}
        for partition, offset, announcement in self.announcements:
            if announcement.table != table or offset < self.first_open(floor, partition):
                continue
            for fields in announcement.data_files:
                if fields["record_count"] > 0:
                    file = AnnouncedFile(partition, offset, announcement.table_uuid, fields)
                    files.setdefault(file.path, file)
        return tuple(files.values())

    def first_open(self, floor: SinkFloor, partition: int) -> int:
        """First offset of the control topic whose announcements may be in no snapshot."""
        return floor.of(partition) if floor.knows(partition) else self.coordinator.get(partition, 0)

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables that files were announced for."""
        return tuple(dict.fromkeys(announcement.table for _, _, announcement in self.announcements))


def refuse_other_brokers(spec: StreamSpec, sink: Sink, kafka: SinkKafka) -> None:
    """Refuse a sink whose own configuration puts its topics, or the control topic, on other brokers than the stream's.

    For the control topic the addresses alone do not decide, as one cluster may be reached by several. So the stream's
    brokers must have no trace of the sink either. A trace proves nothing for its topics: the sink commits their offsets
    where the control topic is.

    Raises:
        TakeoverRefusedError: They are on other brokers.
    """
    topic, source, own = sink.control_topic, sink.source_brokers, ",".join(sorted(kafka.brokers))
    if source and not source & (kafka.brokers | kafka.reported_brokers()):
        raise TakeoverRefusedError(
            f"connector {sink.name} reads its topics from {','.join(sorted(source))} "
            f"(consumer.override.bootstrap.servers). Stream {spec.stream} reads from {own}, "
            "where topics of these names may hold other records.",
            fix="name the connector's brokers in kafka.bootstrap_servers; if both addresses are of the same brokers, "
            "name both there",
        )
    # Without addresses of its own, the control topic is on the worker's brokers, which are unknown.
    if sink.control_brokers & kafka.brokers or not (sink.control_brokers or source):
        return
    log = kafka.control_log(topic)
    if log is not None:
        recent = {
            partition: OffsetRange(max(log.earliest[partition], end - LOOK_BACK), end)
            for partition, end in log.end.items()
        }
        partitions = [TopicPartition(topic, partition) for partition in log.end]
        if kafka.committed(sink.coordinator_group, partitions):
            return
        if any(event.group == sink.event_group for event in kafka.events(topic, recent)):
            return
    control_brokers = ",".join(sorted(sink.control_brokers))
    place = f"{control_brokers} (iceberg.kafka.bootstrap.servers)" if control_brokers else "the worker's brokers"
    raise TakeoverRefusedError(
        f"connector {sink.name} keeps control topic {topic} on {place}. "
        f"Stream {spec.stream} reads from {own}, which have no event of the connector. "
        "Announced files are read from the stream's brokers only.",
        fix="let the connector commit once and stop it; write the next offsets of kafka-consumer-groups.sh --describe "
        f"--group {sink.offset_group} --bootstrap-server {control_brokers or 'WORKERS_BROKERS'} in source.start of "
        f"streams/{spec.stream}.yaml (start: {{offsets: …}}), then frazil run {spec.stream}",
    )


def read_control_topic(
    sink: Sink,
    kafka: SinkKafka,
    floors: Mapping[str, SinkFloor],
    answers_since: ControlOffsets,
    on_read: Callable[[int], None],
) -> ControlFacts:
    """Read what a takeover needs of a sink's control topic.

    Args:
        floors: Floor of each table of the stream.
        answers_since: Offsets of the control topic below which the workers' answers do not count.
        on_read: Called with the number of control events that were read.

    Raises:
        TakeoverRefusedError: The topic does not exist, is compacted, was recreated, lacks events that count, or is not
            the sink's.
    """
    log = kafka.control_log(sink.control_topic)
    if log is None:
        raise TakeoverRefusedError(
            f"Kafka has no topic {sink.control_topic}, the control topic of connector {sink.name}.",
            fix="name it with --control-topic, as in iceberg.control.topic of the connector",
        )
    cleanup_policy = kafka.cleanup_policy(sink.control_topic)
    _refuse_compaction(sink, cleanup_policy)
    partitions = [TopicPartition(sink.control_topic, number) for number in log.end]
    offsets = kafka.committed(sink.coordinator_group, partitions)
    coordinator = {partition.partition: offset for partition, offset in offsets.items()}
    check_control_log(sink, log, coordinator, floors)
    ranges = ranges_to_read(log, coordinator, list(floors.values()))
    events = kafka.events(sink.control_topic, ranges, on_read)
    facts = control_facts(sink, log, coordinator, events, answers_since)
    if not facts.has_events and not coordinator and all(floor.offsets is None for floor in floors.values()):
        # A sink commits source offsets together with events, so its own topic has some.
        raise TakeoverRefusedError(
            f"control topic {sink.control_topic} holds no event of group {sink.event_group}, and no table of the "
            f"stream has that group's offsets: connector {sink.name} has another control topic or group.",
            fix="name them with --control-topic and --group, as the connector's configuration says; if the connector "
            "has never landed anything, there is nothing to take over: frazil run",
        )
    return replace(facts, cleanup_policy=cleanup_policy)


def _refuse_compaction(sink: Sink, cleanup_policy: str | None) -> None:
    # Events are keyed by their producer. Compaction keeps only the last event of each worker.
    if "compact" in (cleanup_policy or ""):
        topic = sink.control_topic
        raise TakeoverRefusedError(
            f"control topic {topic} has cleanup.policy={cleanup_policy}: compaction removes announcements of files, "
            "which may be in no table yet.",
            fix=f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config "
            f"cleanup.policy=delete; then {ONE_COMMIT}",
        )


def control_facts(
    sink: Sink,
    log: ControlLog,
    coordinator: ControlOffsets,
    events: Iterable[ControlEvent],
    answers_since: ControlOffsets = MappingProxyType({}),
) -> ControlFacts:
    """Collect the announcements and the progress among a sink's own events.

    Args:
        answers_since: Offsets of the control topic below which the workers' answers do not count.
    """
    announcements: list[tuple[int, int, Announcement]] = []
    newest: dict[int, dict[TopicPartition, int]] = {}
    has_events = False
    for event in events:
        if event.group != sink.event_group:
            continue
        has_events = True
        if isinstance(event.payload, Announcement):
            announcements.append((event.partition, event.offset, event.payload))
        elif isinstance(event.payload, Progress) and event.offset >= answers_since.get(event.partition, 0):
            newest.setdefault(event.partition, {}).update(event.payload.offsets)
    progress: dict[TopicPartition, int] = {}
    for offsets in newest.values():
        for partition, offset in offsets.items():
            # If a partition went to another task, its newer answers stand on another control partition.
            progress[partition] = max(offset, progress.get(partition, 0))
    return ControlFacts(log, coordinator, tuple(announcements), progress, has_events=has_events)


def ranges_to_read(log: ControlLog, coordinator: ControlOffsets, floors: Sequence[SinkFloor]) -> dict[int, OffsetRange]:
    """Offsets of the control topic that decide a takeover, and some before them."""
    ranges: dict[int, OffsetRange] = {}
    for partition, end in log.end.items():
        known = [coordinator.get(partition, 0), *(floor.of(partition) for floor in floors if floor.knows(partition))]
        start = max(log.earliest[partition], min(known) - LOOK_BACK)
        ranges[partition] = OffsetRange(min(start, end), end)
    return ranges


def check_control_log(
    sink: Sink, log: ControlLog, coordinator: ControlOffsets, floors: Mapping[str, SinkFloor]
) -> None:
    """Refuse a control topic that is not the one which the tables know, or lacks events that count.

    Raises:
        TakeoverRefusedError: It was recreated, or retention has removed announcements that may be in no table.
    """
    topic = sink.control_topic
    for reader, offsets in [
        *((f"table {name}", floor.offsets or {}) for name, floor in floors.items()),
        (f"group {sink.coordinator_group}", coordinator),
    ]:
        beyond = {partition: offset for partition, offset in offsets.items() if offset > log.end.get(partition, 0)}
        if beyond:
            partition, offset = next(iter(sorted(beyond.items())))
            raise TakeoverRefusedError(
                f"control topic {topic} ends at {log.end.get(partition, 0)} in partition {partition}, and {reader} has "
                f"applied it up to {offset}: the topic was deleted and created again, or it is another one.",
                fix="name the topic that the sink writes with --control-topic; if it was created again, give the sink "
                "another control topic, let it commit once, stop it, then run this again",
            )
    for partition, earliest in log.earliest.items():
        if not earliest or coordinator.get(partition, 0) >= earliest:
            continue
        short = next((name for name, floor in floors.items() if floor.of(partition) < earliest), None)
        if short is not None or sink.dynamic:
            known = f", and table {short} has applied it up to {floors[short].of(partition)}" if short else ""
            raise TakeoverRefusedError(
                f"control topic {topic} keeps partition {partition} from offset {earliest} on{known}: files that were "
                "announced before may be in no table.",
                fix=ONE_COMMIT,
            )
