"""Plan of a takeover: what an operator asks for, and what it would do; read from Kafka, the worker and the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import misfit_fix
from jobs.migration.connect_worker import ConnectWorker
from jobs.migration.sink_protocol.sink_floor import sink_floor
from jobs.migration.takeover.completion_plan import PassedOver, TableCompletion, plan_tables
from jobs.migration.takeover.control_topic import ControlFacts, read_control_topic, refuse_other_brokers
from jobs.migration.takeover.sink import Sink
from jobs.migration.takeover.sink_kafka import SinkKafka
from jobs.migration.takeover.start_stamp import stands_at
from jobs.migration.takeover.stopped_sink import connector_obstacle, member_obstacle
from jobs.migration.takeover.stream_start import PartitionStart, check_group, plan_partitions
from jobs.migration.takeover.table_completion import read_table_facts
from jobs.migration.takeover.takeover_record import (
    answers_since,
    refuse_second_route,
    refuse_second_stream,
    written_tables,
)
from jobs.migration.takeover.takeover_refusal import TakeoverRefusedError
from jobs.streaming.driver.context.source_topics import coordinator_stamp
from jobs.tables.commit.history.branch import existing_table
from jobs.tables.commit.history.sink_record import (
    ControlOffsets,
    TakeoverRecord,
    commits_since_takeover,
    takeover_record,
)
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.write.table_creation import refuse_format

_NAMED = 10


@dataclass(frozen=True, slots=True)
class TakeoverRequest:
    """What an operator asks for.

    Attributes:
        sink: The sink.
        worker: Worker of the connector; None if none is to be asked.
        stop_connector: Whether the connector may be stopped.
        passed_over: What becomes of files that the sink's coordinator has gone past.
        trust_group: Whether the group is right where it disagrees with the control topic.
        others: Other streams whose `route.to` may name the stream's tables.
    """

    sink: Sink
    worker: ConnectWorker | None = None
    stop_connector: bool = False
    passed_over: PassedOver | None = None
    trust_group: bool = False
    others: tuple[StreamSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class TakeoverPlan:
    """What a takeover does, or did.

    Attributes:
        partitions: Where the stream starts.
        tables: Files that the sink's tables receive.
        floor: End of the control topic that was read: next offsets by its partitions.
        notes: Sentences that an operator should read.
        obstacle: Why it cannot be done now; None if it can.
        passing: The obstacle passes by itself if the sink's tasks have ended: Kafka forgets their memberships.
        position_set: The stream is at these offsets already.
        restarted: The sink has committed since the stream took over from it.
        tags: Name of the tag on the sink's last snapshot, by table.
    """

    stream: str
    sink: Sink
    partitions: tuple[PartitionStart, ...]
    tables: tuple[TableCompletion, ...]
    floor: ControlOffsets
    notes: tuple[str, ...] = ()
    obstacle: FrazilError | None = None
    passing: bool = False
    position_set: bool = False
    restarted: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def start(self) -> dict[TopicPartition, int]:
        """First offset that the stream reads, of every partition."""
        return {partition.partition: partition.start for partition in self.partitions}

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """Offsets of the sink's group."""
        return {
            partition.partition: partition.committed for partition in self.partitions if partition.committed is not None
        }


def plan_takeover(
    spec: StreamSpec,
    settings: Settings,
    request: TakeoverRequest,
    *,
    on_read: Callable[[int], None] = lambda _: None,
) -> TakeoverPlan:
    """Find out what a takeover would do; changes nothing.

    Args:
        on_read: Called with the number of control events that were read.

    Raises:
        TakeoverRefusedError: It cannot be done like this, whether or not the sink is stopped.
        FrazilError: A table is of a format version that frazil cannot commit to.
    """
    with connect_catalog(settings) as catalog:
        return plan_in_catalog(spec, settings, request, catalog, on_read)


def plan_in_catalog(
    spec: StreamSpec,
    settings: Settings,
    request: TakeoverRequest,
    catalog: Catalog,
    on_read: Callable[[int], None],
) -> TakeoverPlan:
    """Find out what a takeover would do, as `plan_takeover`, in a connected catalog."""
    sink, options = request.sink, settings.kafka.with_options(spec.source.options)
    kafka, log = SinkKafka(options), KafkaLog(options).state(spec.source)
    row_tables = [name for name in spec.target_names if name != spec.dead_letter_table]
    tables = {name: existing_table(catalog, name, sink.branch_of(name)) for name in row_tables}
    _check_stream(spec, sink, tables)
    running = connector_obstacle(sink, request.worker)
    obstacle = running or member_obstacle(sink, kafka)
    refuse_other_brokers(spec, sink, kafka)
    committed = kafka.committed(sink.offset_group, sorted(log.earliest))
    check_group(sink, log, committed)
    refuse_second_route(spec, sink, catalog, request.others, log.topics)
    # Read again: a sink that runs may have read on since.
    log = KafkaLog(options).state(spec.source)
    floors = {name: sink_floor(table.metadata, sink.floor_key) for name, table in tables.items() if table}
    coordinator = existing_table(catalog, spec.coordinator)
    record = takeover_record(coordinator.metadata, spec.stream) if coordinator is not None else None
    facts = read_control_topic(sink, kafka, floors, answers_since(record, sink), on_read)
    # A sink that runs commits while its topic is read, so group and topic may differ for a moment.
    trust_group = request.trust_group or obstacle is not None
    partitions = plan_partitions(sink, log, committed, facts.progress, trust_group=trust_group)
    # Loaded again: if the sink runs, the tables must not be older than its topic and its groups.
    names = dict.fromkeys([*tables, *facts.tables])
    tables = {name: existing_table(catalog, name, sink.branch_of(name)) for name in names}
    written = {name: table for name in written_tables(spec, names) if (table := tables[name]) is not None}
    restarted = _is_restarted(spec, sink, record, catalog, written)
    both = partitions
    if restarted and (newest := coordinator_stamp(spec, catalog)) is not None:
        # Both have landed what lies below the other's position.
        ahead = newest.position
        both = tuple(replace(at, start=min(at.start, ahead.get(at.partition, 0))) for at in partitions)
        partitions = tuple(replace(at, start=max(at.start, ahead.get(at.partition, 0))) for at in partitions)
    start = {partition.partition: partition.start for partition in partitions}
    refuse_second_stream(spec, sink, catalog, written, {partition.topic for partition in start})
    table_facts = {name: read_table_facts(name, table, sink, facts) for name, table in tables.items()}
    completions = plan_tables(sink, facts, table_facts, request.passed_over)
    for completion in completions:
        table = tables[completion.table]
        if table is not None and (completion.files or completion.left_out):
            refuse_format(table.metadata, completion.table)
    position_set = stands_at(spec, sink, catalog, start, restarted=restarted)
    notes = [*_notes(spec, sink, facts, completions, row_tables, with_worker=request.worker is not None)]
    if stream_folder(settings, spec.stream).pending_records():
        notes.append(
            f"The last batch of stream {spec.stream} is not committed to all of its tables. The takeover commits it "
            "first, so the stream may start further on."
        )
    if restarted:
        ends = ", ".join(f"{at.partition} at {at.start}" for at in both[:_NAMED])
        more = f" and {len(both) - _NAMED} more" if len(both) > _NAMED else ""
        notes.append(
            f"Connector {sink.name} has committed since stream {spec.stream} took over from it. Records from the "
            f"connector's former end up to {ends}{more} exist twice, because both have landed them."
        )
    return TakeoverPlan(
        *(spec.stream, sink, partitions, completions, facts.log.end, tuple(notes), obstacle, running is None),
        position_set=position_set,
        restarted=restarted,
    )


def _is_restarted(
    spec: StreamSpec, sink: Sink, record: TakeoverRecord | None, catalog: Catalog, tables: Mapping[str, Table]
) -> bool:
    """Whether the sink of the stream's last takeover has committed to a table of the stream since.

    The commits stand under the control topic of the record. The sink may have another one by now.

    Args:
        tables: Existing tables that the stream may write; those that values have named are looked up.
    """
    if record is None or (record.connector, record.offset_group) != (sink.name, sink.offset_group):
        return False
    named = [name for name in with_named_tables(spec, catalog).target_names if name not in tables]
    others = [table for name in named if (table := existing_table(catalog, name, spec.branch_of(name))) is not None]
    return any(commits_since_takeover(table.metadata, record) for table in (*tables.values(), *others))


def _check_stream(spec: StreamSpec, sink: Sink, tables: Mapping[str, Table | None]) -> None:
    """Check that the stream can go on in the sink's tables."""
    for name, table in tables.items():
        if table is None:
            continue
        refuse_format(table.metadata, name)
        if spec.branch_of(name) != sink.branch_of(name):
            raise TakeoverRefusedError(
                f"stream {spec.stream} writes branch {spec.branch_of(name)} of table {name}, and the sink writes "
                f"{sink.branch_of(name)}: the two would not be one history.",
                fix=f"in streams/{spec.stream}.yaml write the sink's branch (leave table.branch out for main)",
            )
    main_table = tables.get(spec.table.name)
    if main_table is None:
        if not sink.dynamic and spec.route is None:
            raise TakeoverRefusedError(
                f"table {spec.table.name} does not exist, so it is not the one that connector {sink.name} writes.",
                fix=f"name the sink's table in table.name of streams/{spec.stream}.yaml",
            )
        return
    table_spec = spec.for_table(spec.table.name)
    if spec.coordinator_has_rows or not spec.own_columns:
        differences = table_spec.disagreements_with(main_table.schema(), properties=main_table.properties)
        if differences:
            raise TakeoverRefusedError(
                f"stream {spec.stream}: table {spec.table.name} cannot hold what the stream lands: "
                + "; ".join(differences),
                fix=misfit_fix(spec, main_table.schema()),
            )


def _notes(
    spec: StreamSpec,
    sink: Sink,
    facts: ControlFacts,
    completions: Iterable[TableCompletion],
    row_tables: Iterable[str],
    *,
    with_worker: bool,
) -> Iterator[str]:
    other_tables = sorted({completion.table for completion in completions if completion.files} - set(row_tables))
    if other_tables and not sink.dynamic:
        yield f"{', '.join(other_tables)} gets the sink's announced files; stream {spec.stream} does not write it."
    # The workers' progress names the topics that topics.regex matches.
    topics = sorted({*sink.topics, *(partition.topic for partition in facts.progress)})
    unread = [topic for topic in topics if not spec.source.reads(topic)]
    if unread:
        yield (
            f"The connector also reads {', '.join(unread)}, which stream {spec.stream} does not read. If it is to go "
            "on with them, give it another iceberg.control.topic first. Otherwise its next commit to a table of the "
            "stream stops the stream."
        )
    if not with_worker:
        yield "The worker was not asked (--connect URL): keep the connector stopped."
    if facts.cleanup_policy is None:
        yield (
            f"The user may not read the settings of control topic {sink.control_topic}: see that its cleanup.policy is "
            "delete, as compaction removes announced files."
        )
    unproved = [partition for partition in facts.log.end if partition not in facts.coordinator]
    if unproved:
        yield f"Group {sink.coordinator_group} has no offsets; the tables' own snapshots say what is committed."
