"""Records of takeovers, compared with a sink; and the check that no second stream takes over the same topics.

A record stands on the stream's coordinator table. The stream's other tables name the coordinator, so that the
takeover of a second stream finds the record there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.config.stream.models import StreamSpec
from jobs.migration.takeover.sink import Sink
from jobs.migration.takeover.takeover_refusal import TakeoverRefusedError
from jobs.tables.commit.history.branch import existing_table
from jobs.tables.commit.history.sink_record import TAKEOVER_PREFIX, ControlOffsets, TakeoverRecord, takeover_record
from jobs.tables.commit.history.stamp_history import as_written, history
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap, conflicts_as_moved_head
from jobs.tables.commit.stamp.errors import CommitRefusedError

_COORDINATOR_PREFIX = "frazil.takeover-coordinator."


def record_of(
    sink: Sink, at: float, by: str, control_end: ControlOffsets, floor: ControlOffsets = MappingProxyType({})
) -> TakeoverRecord:
    """The record of a takeover from a sink; the arguments are attributes of `TakeoverRecord`."""
    groups = (sink.member_group, sink.offset_group, sink.event_group)
    known = (sink.name, sink.generation, *groups, sink.control_topic, at, by)
    return TakeoverRecord(*known, control_end=dict(control_end), floor=dict(floor))


def is_of(record: TakeoverRecord, sink: Sink) -> bool:
    """Whether a record is of a takeover from this sink."""
    known = (record.connector, record.offset_group, record.control_topic)
    return known == (sink.name, sink.offset_group, sink.control_topic)


def answers_since(record: TakeoverRecord | None, sink: Sink) -> ControlOffsets:
    """Offsets of the control topic since which the workers' answers count, as the hand-back moved the group."""
    return record.control_end if record is not None and is_of(record, sink) else {}


def recorded_sink(record: TakeoverRecord) -> Sink:
    """The sink of a record, as far as the hand-back needs it."""
    groups = (record.member_group, record.offset_group, record.event_group)
    return Sink(record.connector, record.generation, *groups, record.control_topic)


def written_tables(spec: StreamSpec, names: Iterable[str]) -> list[str]:
    """Select the tables that a stream writes among those of a sink.

    Args:
        names: Row tables of the stream's file, and tables that the sink has announced files for.
    """
    if spec.route is not None and spec.route.to is not None:
        # Values of records name tables, so the stream may write any of them.
        return list(names)
    return [name for name in names if name in spec.target_names]


def name_coordinator(catalog: Catalog, spec: StreamSpec, names: Iterable[str]) -> None:
    """Name the stream's coordinator in a property of its other tables.

    Args:
        names: Tables that the stream writes; those that do not exist are left out.
    """
    named = {f"{_COORDINATOR_PREFIX}{spec.stream}": spec.coordinator}

    def set_property(name: str) -> None:
        table = existing_table(catalog, name)
        if table is not None and not named.items() <= table.properties.items():
            with conflicts_as_moved_head(), table.transaction() as change:
                change.set_properties(named)

    for name in names:
        if name != spec.coordinator:
            compare_and_swap(name, lambda name=name: set_property(name), _commit_refused)


def refuse_second_stream(
    spec: StreamSpec, sink: Sink, catalog: Catalog, tables: Mapping[str, Table], topics: Collection[str]
) -> None:
    """Refuse a stream that would land topics of the sink in a table where another stream lands them.

    Args:
        tables: Existing tables that the stream writes, by name.
        topics: Topics that the stream takes over.

    Raises:
        TakeoverRefusedError: Another stream has taken over from the sink, and has not handed its position back.
    """
    for name, table in tables.items():
        for stream, coordinator in _other_takeovers(name, table.metadata, spec.stream):
            if taken := _taken_topic(stream, coordinator, sink, catalog, topics):
                raise _second_stream(spec, stream, *taken, f" into table {name}")


def refuse_second_route(
    spec: StreamSpec, sink: Sink, catalog: Catalog, others: Iterable[StreamSpec], topics: Collection[str]
) -> None:
    """Refuse a stream whose records may name the same tables as those of another stream of the same topics.

    Tables that records have not named yet carry no record of a takeover, so the other stream's coordinator is asked.

    Args:
        others: Streams whose `route.to` may name the same tables.
        topics: Topics that the stream takes over.

    Raises:
        TakeoverRefusedError: One of them has taken over from the sink, and has not handed its position back.
    """
    for other in others:
        if taken := _taken_topic(other.stream, other.coordinator, sink, catalog, topics):
            where = ", and route.to of both streams can name the same tables"
            raise _second_stream(spec, other.stream, *taken, where)


def _taken_topic(
    stream: str, coordinator: str, sink: Sink, catalog: Catalog, topics: Collection[str]
) -> tuple[TakeoverRecord, str] | None:
    """Record of another stream that has the sink's position, with one of the topics; None if it has none of them."""
    table = existing_table(catalog, coordinator)
    record = takeover_record(table.metadata, stream) if table is not None else None
    if table is None or record is None or record.handed_back is not None or record.offset_group != sink.offset_group:
        return None
    newest = history(as_written(table.metadata, stream), stream).newest
    shared = sorted({partition.topic for partition in newest.position} & set(topics)) if newest else []
    return (record, shared[0]) if shared else None


def _second_stream(
    spec: StreamSpec, other: str, record: TakeoverRecord, topic: str, where: str
) -> TakeoverRefusedError:
    return TakeoverRefusedError(
        f"stream {other} has taken over topic {topic} from connector {record.connector}{where}. Stream {spec.stream} "
        "would land its records there a second time.",
        fix=f"go on with stream {other}; or give its position back first: frazil stop {other}, then "
        f"frazil offsets {other} --commit-to-group {record.offset_group}",
    )


def _other_takeovers(name: str, metadata: TableMetadata, own: str) -> Iterator[tuple[str, str]]:
    """Other streams with a takeover that concerns a table, each with its coordinator table."""
    for key, value in sorted(metadata.properties.items()):
        for prefix, coordinator in ((TAKEOVER_PREFIX, name), (_COORDINATOR_PREFIX, value)):
            if key.startswith(prefix) and (stream := key.removeprefix(prefix)) != own:
                yield stream, coordinator


def _commit_refused(message: str) -> CommitRefusedError:
    return CommitRefusedError(message, fix="let other writers finish, then run this again: it goes on where it was")
