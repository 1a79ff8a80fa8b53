"""Stamp of a stream's start behind a sink: the stream is claimed there, with the record of the sink."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pyiceberg.catalog import Catalog

from jobs.base.failpoints import step
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.state_store.epochs import TAKEOVER
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.source import StartOffsets
from jobs.migration.takeover.completion_plan import TableCompletion
from jobs.migration.takeover.sink import Sink
from jobs.migration.takeover.stream_start import PartitionStart
from jobs.migration.takeover.takeover_record import answers_since, is_of, record_of
from jobs.migration.takeover.takeover_refusal import TakeoverRefusedError
from jobs.streaming.driver.context.source_topics import coordinator_stamp
from jobs.streaming.driver.opening.opening import opened
from jobs.streaming.operator.reset import control_lock, reset
from jobs.streaming.operator.reset_plan import explicit_offsets
from jobs.streaming.operator.reset_request import reset_request
from jobs.tables.commit.history.sink_record import ControlOffsets, TakeoverRecord, takeover_record
from jobs.tables.commit.recovery.accept import signed_answer
from jobs.tables.commit.stamp.offsets import Positions, TopicPartition, by_topic, pointwise_max
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp

_NAMED = 10


def stands_at(spec: StreamSpec, sink: Sink, catalog: Catalog, start: Positions, *, restarted: bool = False) -> bool:
    """Whether the stream is at these offsets already.

    Args:
        restarted: Whether the sink has committed since the stream took over from it.

    Raises:
        TakeoverRefusedError: It has landed records, and this sink did not get the position back since.
    """
    newest = coordinator_stamp(spec, catalog)
    if newest is None:
        return False
    # Partitions missing from the stamp start at 0.
    if all(newest.position.get(partition, 0) == offset for partition, offset in start.items()):
        return True
    if _has_landed_nothing(newest):
        return False
    record = takeover_record(catalog.load_table(spec.coordinator).metadata, spec.stream)
    position = {partition: newest.position.get(partition, 0) for partition in start}
    sink_is_behind = any(position[partition] > offset for partition, offset in start.items())
    returned = record is not None and record.handed_back is not None and record.offset_group == sink.offset_group
    if sink_is_behind or not (returned or restarted):
        raise _position_elsewhere(spec, sink, record, position, start)
    return False


def _position_elsewhere(
    spec: StreamSpec, sink: Sink, record: TakeoverRecord | None, position: Positions, start: Positions
) -> TakeoverRefusedError:
    """The refusal for a stream that has landed records itself. Its message names no offset that lands them twice."""
    stream, group, taken = spec.stream, sink.offset_group, record is not None and is_of(record, sink)
    if record is not None and taken and record.handed_back is not None:
        behind = [partition for partition in sorted(start) if start[partition] < position[partition]][:_NAMED]
        return TakeoverRefusedError(
            f"stream {stream} gave its position back. Group {group} was set back since, to "
            f"{', '.join(f'{partition} at {start[partition]}' for partition in behind)}: from there records would land "
            "twice.",
            fix="; ".join(
                f"kafka-consumer-groups.sh --reset-offsets --group {group} --topic {topic}:{number} --to-offset "
                f"{position[TopicPartition(topic, number)]} --execute"
                for topic, number in behind
            )
            + "; then run this again",
        )
    where = ", ".join(f"{partition} at {position[partition]}" for partition in sorted(start)[:_NAMED])
    furthest = pointwise_max([position, start])
    go_on = f"frazil {'start' if spec.continuous else 'run'} {stream}"
    passes = f"frazil reset-offsets {stream} --to {explicit_offsets(furthest)}"
    if taken:
        ahead = f" Group {group} is further on." if furthest != position else ""
        return TakeoverRefusedError(
            f"stream {stream} has taken over from connector {sink.name} already. It has landed records since, and is "
            f"at {where}.{ahead}",
            fix=f"{go_on}, which goes on there; frazil audit {stream} checks what it has landed"
            + (f"; only if the tables have what lies below the group's offsets: {passes}" if ahead else ""),
        )
    return TakeoverRefusedError(
        f"stream {stream} has landed records itself and is at {where}; the sink's group is elsewhere. Starting at the "
        "group's offsets would land records twice, or skip some.",
        fix=f"if the tables have what lies below the group's offsets: {passes}"
        if furthest != position
        else f"{go_on}, which goes on there; if records between the group's offsets and the stream's first one are "
        f"missing: frazil backfill {stream}",
    )


def _has_landed_nothing(newest: Stamp) -> bool:
    return newest.totals == Counts() and newest.batch == -1


def needs_stamp(spec: StreamSpec, sink: Sink, catalog: Catalog) -> bool:
    """Whether the coordinator of a stream that stands at the sink's offsets has no record of the takeover yet."""
    record = takeover_record(catalog.load_table(spec.coordinator).metadata, spec.stream)
    return record is None or record.handed_back is not None or not is_of(record, sink)


def finish_batch(spec: StreamSpec, settings: Settings, catalog: Catalog) -> None:
    """Commit what the stream's pending records hold, as its next driver would, so that its position is final."""
    folder = stream_folder(settings, spec.stream)
    if not folder.pending_records():
        return
    kafka = KafkaLog(settings.kafka.with_options(spec.source.options))
    with control_lock(folder, spec.stream), opened(spec, settings, catalog, kafka, TAKEOVER):
        pass


def move_position(spec: StreamSpec, settings: Settings, sink: Sink, start: Positions, who: str, reason: str) -> None:
    """Move a stream that was opened before, or that had handed its position back, to the sink's offsets.

    A stream without stamps is left alone.
    """
    with connect_catalog(settings) as catalog:
        if coordinator_stamp(spec, catalog) is None:
            return
    kafka = settings.kafka.with_options(spec.source.options)
    request = reset_request(explicit_offsets(start))
    reset(spec, settings, lambda: KafkaLog(kafka), request, who, f"{reason}; taken over from {sink.name}")


def stamp_start(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    sink: Sink,
    start: Positions,
    floor: ControlOffsets,
    note: str,
    by: str,
) -> None:
    """Claim the stream's tables at the sink's offsets, and record the sink on the coordinator.

    Args:
        floor: End of the control topic, see `TakeoverRecord`.
        note: See `start_note`.
        by: Who takes over, and why.

    Raises:
        TakeoverRefusedError: The stream was started at other offsets meanwhile.
    """
    offsets = {
        topic: {int(number): offset for number, offset in partitions.items()}
        for topic, partitions in by_topic(start).items()
    }
    source = spec.source.model_copy(update={"start": StartOffsets(offsets=offsets)})
    kafka = KafkaLog(settings.kafka.with_options(spec.source.options))
    step("takeover_before_stamp")
    with (
        control_lock(stream_folder(settings, spec.stream), spec.stream),
        opened(spec.model_copy(update={"source": source}), settings, catalog, kafka, TAKEOVER) as stream,
    ):
        step("takeover_after_claim")
        newest = stream.anchor.newest
        assert newest is not None, "it was claimed"
        if any(newest.position.get(partition, 0) != offset for partition, offset in start.items()):
            raise TakeoverRefusedError(
                f"stream {spec.stream} was started at other offsets while it took over.",
                fix="run this again, which looks again",
            )
        previous = takeover_record(stream.anchor.table.metadata, spec.stream)
        record = record_of(sink, time.time(), by, answers_since(previous, sink), floor)
        stamp = signed_answer(newest.decided(None), stream.epoch, f"{by} · {note}")
        stream.anchor.restamp(stamp, record.properties(spec.stream))
    step("takeover_after_stamp")


def start_note(sink: Sink, partitions: Sequence[PartitionStart], tables: Sequence[TableCompletion]) -> str:
    """Provenance of a start, for the stamp's note."""
    named = [f"{partition.partition} at {partition.start}" for partition in partitions[:_NAMED]]
    more = f" and {len(partitions) - _NAMED} more" if len(partitions) > _NAMED else ""
    completed = sum(len(completion.files) for completion in tables)
    left_out = sum(len(completion.left_out) for completion in tables)
    return (
        f"taken over from {sink.described}: {', '.join(named)}{more}"
        + (f"; {completed} announced files committed" if completed else "")
        + (f"; {left_out} announced files left out" if left_out else "")
    )
