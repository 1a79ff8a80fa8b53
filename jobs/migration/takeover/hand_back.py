"""Hand-back to a sink: a stream's positions become the offsets of the sink's group, and its floor is renewed.

A sink that goes on looks for its floor in the ancestors of the table's head, and expiry may have removed them. So each
table gets an empty snapshot with the sink's key at the end of the control topic: what was announced so far counts as
committed, and nothing is committed twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec
from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.migration.sink_protocol.announced_files import live_paths
from jobs.migration.sink_protocol.sink_floor import floor_text, sink_floor
from jobs.migration.takeover.control_topic import control_facts, ranges_to_read
from jobs.migration.takeover.sink import Sink, sink_of
from jobs.migration.takeover.sink_kafka import ControlLog, SinkKafka
from jobs.migration.takeover.takeover_record import is_of, record_of, recorded_sink
from jobs.migration.takeover.takeover_refusal import ONE_COMMIT, TakeoverRefusedError, refuse_running
from jobs.streaming.driver.tables.former_sink import TableHead, refuse_restarted_sink
from jobs.streaming.operator.reset import existing_targets
from jobs.streaming.supervision.documents.control_request import read_control
from jobs.tables.commit.history.branch import existing_table
from jobs.tables.commit.history.sink_record import ControlOffsets, TakeoverRecord, takeover_record
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.reset import complete_positions
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.errors import CommitRefusedError
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.target_positions import of_known_topics

HANDED_BACK_KEY = "frazil.handed-back-to"
"""In the summary of an empty snapshot that renews a sink's floor: the consumer group."""


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """Position of a stream.

    Attributes:
        positions: Next offset of each partition, the same on all tables.
        kept: Offsets that Kafka keeps, of partitions that exist.
        record: The record of the takeover; None if there was none.
    """

    stream: str
    positions: Mapping[TopicPartition, int]
    kept: Mapping[TopicPartition, OffsetRange]
    record: TakeoverRecord | None

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """Offsets at which the sink goes on. A partition that the stream has not begun starts at its first offset."""
        return {partition: self.positions.get(partition, kept.start) for partition, kept in self.kept.items()}

    def lag(self, partition: TopicPartition) -> int | None:
        """Offsets behind the position; None if the partition does not exist any more."""
        kept = self.kept.get(partition)
        return max(0, kept.end - self.positions[partition]) if kept else None


@dataclass(frozen=True, slots=True)
class HandBack:
    """Plan of the hand-back, or what was done.

    Attributes:
        groups: Groups that get the stream's positions.
        sink: The sink that has the group; None if it is not known. Then no table is changed.
        tables: Tables that get a snapshot with the sink's floor.
        floor: End of the control topic, by its partitions.
        obstacle: Why it cannot be done now; None if it can.
        others: Topics of the sink that the stream does not read; their offsets stay.
    """

    offsets: StreamOffsets
    groups: tuple[str, ...]
    sink: Sink | None
    tables: tuple[str, ...]
    floor: ControlOffsets
    obstacle: FrazilError | None = None
    others: tuple[str, ...] = ()


def stream_offsets(spec: StreamSpec, settings: Settings, catalog: Catalog) -> StreamOffsets:
    """Read where a stream stands.

    Raises:
        ResetRefusedError: It has never run, or its tables do not all stand at the same position.
        StreamStopped: A table was rolled back, dropped or recreated.
    """
    return _offsets_of(spec, settings, _existing_targets(spec, catalog))


def _existing_targets(spec: StreamSpec, catalog: Catalog) -> dict[str, Target]:
    return existing_targets(with_named_tables(spec, catalog), catalog, {})


def _offsets_of(spec: StreamSpec, settings: Settings, targets: Mapping[str, Target]) -> StreamOffsets:
    stamps = of_known_topics({name: target.newest for name, target in targets.items()}, spec.coordinator)
    positions = complete_positions(spec.stream, stamps, spec.coordinator)
    log: LogState = KafkaLog(settings.kafka.with_options(spec.source.options)).state(spec.source)
    ends = log.watermarks or log.latest
    kept = {partition: OffsetRange(at, ends[partition]) for partition, at in log.earliest.items()}
    record = takeover_record(targets[spec.coordinator].table.metadata, spec.stream)
    return StreamOffsets(spec.stream, dict(sorted(positions.items())), kept, record)


def plan_hand_back(
    spec: StreamSpec, settings: Settings, catalog: Catalog, group: str, control_topic: str | None
) -> HandBack:
    """Find out what the hand-back would do; changes nothing.

    Args:
        group: Group that gets the positions.
        control_topic: Control topic of the sink that has the group; None for that of the takeover.

    Raises:
        TakeoverRefusedError: It cannot be done like this, whether or not stream and sink are stopped.
        SinkRestartedError: The sink has committed to the stream's tables since the takeover.
    """
    targets = _existing_targets(spec, catalog)
    coordinator = targets[spec.coordinator].table.metadata
    # The record of the hand-back would replace the one that shows these commits.
    heads = [TableHead(each.name, each.branch, each.table.metadata) for each in targets.values()]
    refuse_restarted_sink(spec.stream, coordinator, heads)
    offsets = _offsets_of(spec, settings, targets)
    kafka = SinkKafka(settings.kafka.with_options(spec.source.options))
    sink = _sink_of_group(offsets.record, group, control_topic)
    tables: tuple[str, ...] = ()
    floor: ControlOffsets = {}
    if sink is not None:
        control = _control_log(kafka, sink)
        _refuse_open_files(spec, catalog, kafka, sink, control, offsets.record)
        names = (name for name in spec.target_names if name != spec.dead_letter_table)
        tables, floor = tuple(name for name in names if catalog.table_exists(name)), control.end
    groups = tuple(dict.fromkeys((group, sink.offset_group, sink.member_group))) if sink else (group,)
    _refuse_unknown_group(offsets, kafka, group, sink)
    _refuse_elsewhere(offsets, kafka, sink)
    group_topics = kafka.topics_of(sink.offset_group) if sink else set()
    others = tuple(sorted(topic for topic in group_topics if not spec.source.reads(topic)))
    return HandBack(offsets, groups, sink, tables, floor, _obstacle(spec, settings, kafka, groups), others)


def _refuse_unknown_group(offsets: StreamOffsets, kafka: SinkKafka, group: str, sink: Sink | None) -> None:
    """Refuse a group without offsets that is not the one of the takeover: its name may be misspelt.

    The sink would go on at the offsets of its own group, and land again what the stream has landed.
    """
    record = offsets.record
    if sink is not None or record is None or record.handed_back is not None or kafka.topics_of(group):
        return
    raise TakeoverRefusedError(
        f"group {group} has no offsets, and connector {record.connector}, from which stream {offsets.stream} took "
        f"over, has group {record.offset_group}.",
        fix=f"--commit-to-group {record.offset_group}; for another sink, name its --control-topic as well; for any "
        f"other consumer: kafka-consumer-groups.sh --reset-offsets --group {group} with these offsets",
    )


def _refuse_elsewhere(offsets: StreamOffsets, kafka: SinkKafka, sink: Sink | None) -> None:
    """Refuse positions that Kafka does not keep, or that the sink has gone past."""
    stream, positions = offsets.stream, offsets.next_offsets
    for partition, kept in sorted(offsets.kept.items()):
        if not kept.start <= positions[partition] <= kept.end:
            raise TakeoverRefusedError(
                f"stream {stream} is at {positions[partition]} in {partition}, of which Kafka keeps {kept}.",
                fix=f"frazil run {stream}, whose message names the answer",
            )
    if sink is None:
        return
    group = sink.offset_group
    for partition, at in sorted(kafka.committed(group, sorted(positions)).items()):
        if at > positions[partition]:
            raise TakeoverRefusedError(
                f"group {group} is at {at} in {partition}, and stream {stream} at {positions[partition]}: the sink "
                "has continued by itself, and would land records twice if it were set back.",
                fix=f"frazil takeover {stream} --from-connect {sink.name}; if the group was moved by hand, set it back "
                "with kafka-consumer-groups.sh --reset-offsets, then run this again",
            )


def hand_back(
    spec: StreamSpec,
    settings: Settings,
    group: str,
    control_topic: str | None,
    by: str,
) -> HandBack:
    """Commit a stopped stream's positions as the offsets of a group, and renew the sink's floor in the tables.

    If it is ended in between, the same command goes on.

    Args:
        by: Who does it, and why.

    Raises:
        TakeoverRefusedError: The stream is not stopped, or the group has members.
    """
    with connect_catalog(settings) as catalog:
        plan = plan_hand_back(spec, settings, catalog, group, control_topic)
        if plan.obstacle is not None:
            raise plan.obstacle
        kafka = SinkKafka(settings.kafka.with_options(spec.source.options))
        for name in plan.tables:
            _renew_floor(spec, catalog, plan, name, by)
            step("hand_back_after_floor")
        if plan.sink is not None:
            topic, ends = plan.sink.control_topic, plan.floor
            kafka.commit(plan.sink.coordinator_group, {TopicPartition(topic, p): at for p, at in ends.items()})
        for group_name in plan.groups:
            kafka.commit(group_name, plan.offsets.next_offsets)
        step("hand_back_after_offsets")
    return plan


def _sink_of_group(record: TakeoverRecord | None, group: str, control_topic: str | None) -> Sink | None:
    known = recorded_sink(record) if record else None
    if known is not None and group in (known.offset_group, known.member_group, known.event_group):
        return replace(known, control_topic=control_topic or known.control_topic)
    if control_topic is None:
        return None
    name = group.removeprefix("connect-").removeprefix("cg-control-")
    generation = "tabular" if group.startswith("cg-control-") else "apache"
    return sink_of(name, generation, group=group, control_topic=control_topic)


def _control_log(kafka: SinkKafka, sink: Sink) -> ControlLog:
    control = kafka.control_log(sink.control_topic)
    if control is None:
        # The sink would create it, and filter its new events by the floor of the former topic.
        raise TakeoverRefusedError(
            f"Kafka has no topic {sink.control_topic}, the control topic of {sink.name}.",
            fix="create it, or name the control topic that the connector will have with --control-topic",
        )
    return control


def _refuse_open_files(
    spec: StreamSpec, catalog: Catalog, kafka: SinkKafka, sink: Sink, control: ControlLog, record: TakeoverRecord | None
) -> None:
    """Refuse to raise the sink's floor past files that it has announced and no table has.

    A takeover has committed such files. If the sink has announced others since for a table of the stream, the stream
    has landed their records. But the connector may have gone on with other topics, into other tables.
    """
    known = record if record is not None and is_of(record, sink) else None
    since: ControlOffsets = known.control_end if known is not None else {}
    own_tables: tuple[str, ...] = ()
    if known is not None and known.handed_back is None:
        if not known.floor:
            # An earlier version took over, and did not record since when announcements count.
            return
        since, own_tables = known.floor, with_named_tables(spec, catalog).target_names
    partitions = [TopicPartition(sink.control_topic, number) for number in control.end]
    offsets = kafka.committed(sink.coordinator_group, partitions)
    coordinator = {partition.partition: offset for partition, offset in offsets.items()}
    loaded = {name: existing_table(catalog, name, sink.branch_of(name)) for name in spec.target_names}
    floors = [sink_floor(table.metadata, sink.floor_key) for table in loaded.values() if table is not None]
    events = kafka.events(sink.control_topic, ranges_to_read(control, coordinator, floors))
    facts = control_facts(sink, control, coordinator, events)
    tables = {name: existing_table(catalog, name, sink.branch_of(name)) for name in facts.tables}
    for partition, offset, announced in facts.announcements:
        table = tables[announced.table]
        if (
            table is None
            or announced.table in own_tables
            or announced.table_uuid not in (None, str(table.metadata.table_uuid))
        ):
            continue
        first_open = facts.first_open(sink_floor(table.metadata, sink.floor_key), partition)
        paths = {file["file_path"] for file in announced.data_files if file["record_count"]}
        if offset < max(first_open, since.get(partition, 0)) or not (paths or announced.delete_files):
            continue
        if announced.delete_files or paths - live_paths(table, paths, 0):
            raise TakeoverRefusedError(
                f"connector {sink.name} has announced files for table {announced.table} that no snapshot has (control "
                f"topic at {partition}:{offset}). After the hand-back it would count them as committed.",
                fix=ONE_COMMIT if known is not None else _ways_past_open_files(spec.stream, sink.offset_group),
            )


def _ways_past_open_files(stream: str, group: str) -> str:
    return (
        f"if stream {stream} began after their records: frazil offsets {stream} --commit-to-group {group}, without "
        f"--control-topic, and the connector commits them itself; if stream {stream} has landed their records: give "
        "the connector another iceberg.control.topic, and name that with --control-topic"
    )


def _obstacle(
    spec: StreamSpec, settings: Settings, kafka: SinkKafka, groups: tuple[str, ...]
) -> TakeoverRefusedError | None:
    folder = stream_folder(settings, spec.stream)
    try:
        refuse_running(spec, settings, "the way back")
    except TakeoverRefusedError as running:
        return running
    if read_control(folder.store).mode != "stopped":
        return TakeoverRefusedError(
            f"stream {spec.stream} is not stopped: a run of it would land what the sink lands.",
            fix=f"frazil stop {spec.stream} --reason 'back to the sink'",
        )
    if folder.pending_records():
        return TakeoverRefusedError(
            f"stream {spec.stream}: a batch is half committed.",
            fix=f"frazil run {spec.stream} --force, which completes it",
        )
    for group in groups:
        if members := kafka.members(group):
            return TakeoverRefusedError(
                f"group {group} has {members} members: its offsets cannot be set while they read.",
                fix="stop the connector, then run this again",
            )
    return None


def _renew_floor(spec: StreamSpec, catalog: Catalog, plan: HandBack, name: str, by: str) -> None:
    """Commit an empty snapshot with the sink's floor; on the coordinator with the record of the hand-back."""
    sink = plan.sink
    assert sink is not None, "only tables of a sink get a floor"
    target = Target(catalog, name, spec.stream, branch=spec.branch_of(name))
    properties: dict[str, str] = {}
    if name == spec.coordinator:
        # The record names the sink that gets the position. The stream may have it from another one.
        record = record_of(sink, time.time(), by, plan.floor)
        properties = msgspec.structs.replace(record, handed_back=record.at).properties(spec.stream)

    def attempt() -> None:
        target.history()
        summary = {sink.floor_key: floor_text(plan.floor), HANDED_BACK_KEY: sink.offset_group}
        target.commit(Append(), None, summary, properties)

    compare_and_swap(
        name, attempt, lambda message: CommitRefusedError(message, fix="let other writers finish, then run this again")
    )
