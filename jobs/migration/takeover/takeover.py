"""Takeover of a sink's position by a stream: look, complete the sink's tables, tag them, stamp the start."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.state_store.epochs import Opener
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import misfit_fix
from jobs.config.stream.source import StartOffsets
from jobs.migration.connect_worker import ConnectWorker
from jobs.migration.sink_protocol.announced_files import data_file_of, live_paths, misfit_of
from jobs.migration.sink_protocol.sink_floor import ControlOffsets, SinkFloor, floor_text, sink_floor
from jobs.migration.takeover.record import TakeoverRecord, takeover_record
from jobs.migration.takeover.sink import Sink, connect_group
from jobs.migration.takeover.sink_kafka import SinkKafka
from jobs.migration.takeover.takeover_plan import (
    ControlFacts,
    PartitionStart,
    PassedOver,
    TableCompletion,
    TableFacts,
    TakeoverRefusedError,
    check_control_log,
    check_group,
    control_facts,
    plan_partitions,
    plan_tables,
    ranges_to_read,
)
from jobs.proof.lookup.tags import tag_snapshot, tags_of
from jobs.streaming.driver.context.source_topics import coordinator_stamp
from jobs.streaming.driver.opening.opening import opened
from jobs.streaming.operator.reset import control_lock, reset, reset_refusal
from jobs.streaming.operator.reset_plan import explicit_offsets
from jobs.streaming.operator.reset_request import reset_request
from jobs.tables.commit.history.branch import existing_table
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.accept import signed_answer
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.errors import CommitRefusedError
from jobs.tables.commit.stamp.offsets import OffsetRange, Positions, TopicPartition, by_topic
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp

COMPLETED_KEY = "frazil.completed-sink"
"""In the summary of a snapshot with files that a sink had announced: the connector."""
# Workers that were killed: their membership ends after 45 s (session.timeout.ms), their transactions after 60 s
# (transaction.timeout.ms), which a broker looks for every 10 s.
SETTLE_SECONDS = 120.0
_POLL_SECONDS = 0.5
_NOTED = 10
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
_OPENER = Opener("frazil takeover")

OnWait = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TakeoverRequest:
    """What an operator asks for.

    Attributes:
        sink: The sink.
        rest: The worker; None if nobody is to be asked.
        stop_connector: Whether the connector may be stopped.
        passed_over: What becomes of files that the sink's coordinator has gone past.
        trust_group: Whether the group is right where it disagrees with the control topic.
    """

    sink: Sink
    rest: ConnectWorker | None = None
    stop_connector: bool = False
    passed_over: PassedOver | None = None
    trust_group: bool = False


@dataclass(frozen=True, slots=True)
class TakeoverPlan:
    """What a takeover does, or did.

    Attributes:
        partitions: Where the stream starts.
        tables: What the sink's tables receive.
        floor: End of the control topic that was read: next offsets by its partitions.
        notes: What an operator should know, as sentences.
        obstacle: Why it cannot be done now; None if it can.
        passing: The obstacle passes by itself if the sink's tasks have ended: Kafka forgets their memberships.
        there: The stream stands at these offsets already.
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
    there: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def start(self) -> dict[TopicPartition, int]:
        """First offset that the stream reads, of every partition."""
        return {each.partition: each.start for each in self.partitions}

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """Offsets of the sink's group."""
        return {each.partition: each.committed for each in self.partitions if each.committed is not None}


def obstacle_of(request: TakeoverRequest, kafka: SinkKafka) -> TakeoverRefusedError | None:
    """Why the sink may still commit; None if it cannot."""
    return _connector_obstacle(request) or _member_obstacle(request.sink, kafka)


def _connector_obstacle(request: TakeoverRequest) -> TakeoverRefusedError | None:
    sink, rest = request.sink, request.rest
    state = rest.state(sink.name) if rest else None
    if state is None or state.stopped:
        return None
    paused = " A paused connector goes on writing what its tasks hold." if state.connector == "PAUSED" else ""
    return TakeoverRefusedError(
        f"connector {sink.name} is {state}, and may still commit.{paused}",
        fix="the same command with --stop-connector; or stop the connector (PUT /connectors/NAME/stop)",
    )


def _member_obstacle(sink: Sink, kafka: SinkKafka) -> TakeoverRefusedError | None:
    # The coordinator commits to the tables, and is a member of a group of its own.
    # Without the worker's answer the options may name another group than the one in which its tasks are.
    for group in dict.fromkeys((sink.member_group, connect_group(sink.name), sink.coordinator_group)):
        if members := kafka.members(group):
            return TakeoverRefusedError(
                f"group {group} has {members} members: tasks of connector {sink.name} run, or have just ended.",
                fix="stop the connector, then run this again; pausing it is not enough",
            )
    return None


def look(
    spec: StreamSpec,
    settings: Settings,
    request: TakeoverRequest,
    *,
    on_read: Callable[[int], None] = lambda _: None,
) -> TakeoverPlan:
    """Find out what a takeover would do; changes nothing.

    Raises:
        TakeoverRefusedError: It cannot be done like this, whether or not the sink is stopped.
    """
    with connect_catalog(settings) as catalog:
        return _looked(spec, settings, request, catalog, on_read)


def take_over_from_sink(
    spec: StreamSpec,
    settings: Settings,
    request: TakeoverRequest,
    who: str,
    reason: str,
    *,
    on_wait: OnWait = lambda _: None,
    on_read: Callable[[int], None] = lambda _: None,
) -> TakeoverPlan:
    """Complete what the sink has announced, and start the stream where the sink's group stands.

    Whatever ends it in between: the same command goes on. Files that a table has are not committed again, as its floor
    says so.

    Args:
        who: Who does it.
        reason: Why; kept with the stamp.
        on_wait: Called with what is waited for.
        on_read: Called with the number of control events that were read.

    Returns:
        What was done.

    Raises:
        TakeoverRefusedError: The sink may still commit, or it cannot be done; the stream's position is as it was.
    """
    kafka = SinkKafka(settings.kafka.with_options(spec.source.options))
    refuse_running(spec, settings, "a takeover")
    if request.stop_connector and request.rest is not None:
        state = request.rest.state(request.sink.name)
        if state is not None and not state.stopped:
            on_wait(f"connector {request.sink.name} to stop")
            request.rest.stop(request.sink.name)
    wait_until_settled(request, kafka, on_wait)
    with connect_catalog(settings) as catalog:
        plan = _looked(spec, settings, request, catalog, on_read)
        if plan.obstacle is not None:
            raise plan.obstacle
        step("takeover_before_files")
        for completion in plan.tables:
            complete_table(catalog, spec, plan.sink, completion, plan.floor)
            step("takeover_after_files")
        plan = replace(plan, tags=_tagged(catalog, plan, who))
        _refuse_moved(kafka, plan, request)
        by = f"{who}: {reason}"
        if not plan.there:
            _move_position(spec, settings, plan, who, reason)
        own = existing_table(catalog, spec.coordinator)
        record = takeover_record(own.metadata, spec.stream) if own else None
        if not plan.there or record is None or record.handed_back is not None:
            _stamp_start(spec, settings, catalog, plan, by)
        _refuse_moved(kafka, plan, request)
    return plan


def wait_until_settled(request: TakeoverRequest, kafka: SinkKafka, on_wait: OnWait) -> None:
    """Wait until the sink's group is empty, and no transaction of its workers is open.

    Raises:
        TakeoverRefusedError: The sink runs, or it did not come to rest within two minutes.
    """
    topic = request.sink.control_topic
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        running = _connector_obstacle(request)
        if running is not None and not request.stop_connector:
            raise running
        obstacle = running or _member_obstacle(request.sink, kafka)
        if obstacle is not None:
            on_wait("the members of the sink's groups to leave")
        else:
            control = kafka.control_log(topic)
            if control is None or not control.undecided:
                return
            obstacle = TakeoverRefusedError(
                f"control topic {topic} holds an open transaction, as a worker leaves it that is killed.",
                fix="run this again in a minute: Kafka ends it after the worker's transaction.timeout.ms",
            )
            on_wait("Kafka to end the transaction of a worker")
        if time.monotonic() > deadline:
            raise obstacle
        time.sleep(_POLL_SECONDS)


def refuse_running(spec: StreamSpec, settings: Settings, what: str) -> None:
    """Refuse while a driver runs the stream, or may be started.

    Args:
        what: What needs the stream stopped, such as `a takeover`.

    Raises:
        TakeoverRefusedError: The message has the command that stops it.
    """
    obstacle = reset_refusal(spec, settings)
    if obstacle is not None:
        said = obstacle.message.replace("offsets are reset while it is stopped", f"{what} needs it stopped")
        raise TakeoverRefusedError(said, fix=(obstacle.fix or "").replace("reset offsets", what))


def _looked(
    spec: StreamSpec,
    settings: Settings,
    request: TakeoverRequest,
    catalog: Catalog,
    on_read: Callable[[int], None],
) -> TakeoverPlan:
    sink, options = request.sink, settings.kafka.with_options(spec.source.options)
    kafka, log = SinkKafka(options), KafkaLog(options).state(spec.source)
    rows = [name for name in spec.target_names if name != spec.dead_letter_table]
    tables = {name: existing_table(catalog, name, sink.branch_of(name)) for name in rows}
    _check_stream(spec, sink, tables)
    running = _connector_obstacle(request)
    obstacle = running or _member_obstacle(sink, kafka)
    committed = kafka.committed(sink.offset_group, sorted(log.earliest))
    check_group(sink, log, committed)
    # Looked at again: a sink that runs may have read on since.
    log = KafkaLog(options).state(spec.source)
    floors = {name: sink_floor(table.metadata, sink.floor_key) for name, table in tables.items() if table}
    facts = _control(sink, kafka, floors, on_read)
    # A sink that runs commits while its topic is read: that the two differ says nothing yet.
    trust = request.trust_group or obstacle is not None
    partitions = plan_partitions(sink, log, committed, facts.progress, trust_group=trust)
    # Loaded again: of a sink that runs, the tables may not be older than what its topic and its groups say.
    names = dict.fromkeys([*tables, *facts.tables])
    tables = {name: existing_table(catalog, name, sink.branch_of(name)) for name in names}
    completions = plan_tables(
        sink, facts, {name: _facts(name, table, sink, facts) for name, table in tables.items()}, request.passed_over
    )
    start = {each.partition: each.start for each in partitions}
    there = _stands_there(spec, sink, catalog, start)
    notes = tuple(_notes(spec, sink, facts, completions, rows, with_rest=request.rest is not None))
    return TakeoverPlan(
        spec.stream, sink, partitions, completions, facts.log.end, notes, obstacle, running is None, there
    )


def _check_stream(spec: StreamSpec, sink: Sink, tables: Mapping[str, Table | None]) -> None:
    """See that the stream can go on in the sink's tables."""
    for name, table in tables.items():
        if table is not None and spec.branch_of(name) != sink.branch_of(name):
            raise TakeoverRefusedError(
                f"stream {spec.stream} writes branch {spec.branch_of(name)} of table {name}, and the sink writes "
                f"{sink.branch_of(name)}: the two would not be one history.",
                fix=f"in streams/{spec.stream}.yaml write the sink's branch (leave table.branch out for main)",
            )
    own = tables.get(spec.table.name)
    if own is None:
        if not sink.dynamic and spec.route is None:
            raise TakeoverRefusedError(
                f"table {spec.table.name} does not exist, so it is not the one that connector {sink.name} writes.",
                fix=f"name the sink's table in table.name of streams/{spec.stream}.yaml",
            )
        return
    of_rows = spec.for_table(spec.table.name)
    if spec.coordinator_has_rows or not spec.own_columns:
        differences = of_rows.disagreements_with(own.schema(), properties=own.properties)
        if differences:
            raise TakeoverRefusedError(
                f"stream {spec.stream}: table {spec.table.name} cannot hold what the stream lands: "
                + "; ".join(differences),
                fix=misfit_fix(spec, own.schema()),
            )


def _control(
    sink: Sink, kafka: SinkKafka, floors: Mapping[str, SinkFloor], on_read: Callable[[int], None]
) -> ControlFacts:
    log = kafka.control_log(sink.control_topic)
    if log is None:
        raise TakeoverRefusedError(
            f"Kafka has no topic {sink.control_topic}, the control topic of connector {sink.name}.",
            fix="name it with --control-topic, as iceberg.control.topic of the connector says",
        )
    partitions = [TopicPartition(sink.control_topic, number) for number in log.end]
    offsets = kafka.committed(sink.coordinator_group, partitions)
    coordinator = {each.partition: at for each, at in offsets.items()}
    check_control_log(sink, log, coordinator, floors)
    ranges = ranges_to_read(log, coordinator, list(floors.values()))
    return control_facts(sink, log, coordinator, kafka.events(sink.control_topic, ranges, on_read))


def _facts(name: str, table: Table | None, sink: Sink, facts: ControlFacts) -> TableFacts:
    if table is None:
        return TableFacts(name, exists=False)
    metadata = table.metadata
    floor = sink_floor(metadata, sink.floor_key)
    files = facts.files_of(name, floor)
    # Where the floor does not say what was committed, any snapshot may have a file.
    after = floor.sequence if all(floor.knows(file.control_partition) for file in files) else 0
    live = live_paths(table, {file.path for file in files}, after)
    misfits: dict[str, str] = {}
    for file in files:
        if file.path in live:
            continue
        if misfit := misfit_of(file.fields, metadata):
            misfits[file.path] = misfit
        elif not table.io.new_input(file.path).exists():
            misfits[file.path] = "are gone from the store"
    return TableFacts(name, True, str(metadata.table_uuid), floor, frozenset(live), misfits)


def _notes(
    spec: StreamSpec,
    sink: Sink,
    facts: ControlFacts,
    completions: Iterable[TableCompletion],
    rows: Iterable[str],
    *,
    with_rest: bool,
) -> Iterable[str]:
    others = sorted({each.table for each in completions if each.files} - set(rows))
    if others and not sink.dynamic:
        yield f"{', '.join(others)} gets the sink's announced files; stream {spec.stream} does not write it."
    # What it has read shows where topics.regex, or nobody, names the topics.
    topics = sorted({*sink.topics, *(each.topic for each in facts.progress)})
    unread = [topic for topic in topics if not spec.source.reads(topic)]
    if unread:
        yield f"The connector also reads {', '.join(unread)}, which stream {spec.stream} does not read."
    if not with_rest:
        yield "The worker was not asked (--connect URL): see that nobody starts the connector again."
    unproved = [name for name in facts.log.end if name not in facts.coordinator]
    if unproved:
        yield f"Group {sink.coordinator_group} has no offsets; the tables' own snapshots say what is committed."


def _stands_there(spec: StreamSpec, sink: Sink, catalog: Catalog, start: Positions) -> bool:
    """Whether the stream stands at these offsets already.

    Raises:
        TakeoverRefusedError: It has landed records, and this sink did not get the position back since.
    """
    newest = coordinator_stamp(spec, catalog)
    if newest is None:
        return False
    if all(newest.position.get(partition) == at for partition, at in start.items()):
        return True
    if _never_landed(newest):
        return False
    record = takeover_record(catalog.load_table(spec.coordinator).metadata, spec.stream)
    behind = {p: OffsetRange(at, newest.position[p]) for p, at in start.items() if newest.position.get(p, 0) > at}
    returned = record is not None and record.handed_back is not None and record.offset_group == sink.offset_group
    if behind or not returned:
        where = ", ".join(f"{p} at {newest.position.get(p, 0)}" for p in sorted(start)[:_NOTED])
        raise TakeoverRefusedError(
            f"stream {spec.stream} has landed records itself and stands at {where}; the sink's group stands elsewhere. "
            "Starting at the group's offsets would land records twice, or pass over some.",
            fix=f"frazil status {spec.stream}; if you have decided which offsets are right: "
            f"frazil reset-offsets {spec.stream} --to {explicit_offsets(start)}",
        )
    return False


def _never_landed(newest: Stamp) -> bool:
    return newest.totals == Counts() and newest.batch == -1


def complete_table(
    catalog: Catalog, spec: StreamSpec, sink: Sink, completion: TableCompletion, floor: ControlOffsets
) -> None:
    """Commit a table's announced files with the sink's own key, so that the sink knows them as committed.

    Args:
        floor: Next offsets of the control topic through which the table then has everything.

    Raises:
        TakeoverRefusedError: The table changed so that the files do not fit any more, or the sink has committed.
    """
    branch = sink.branch_of(completion.table)
    # Files that are left out may be those of a table that was dropped.
    if not completion.files and (not completion.left or existing_table(catalog, completion.table) is None):
        return
    target = Target(catalog, completion.table, spec.stream, branch=branch)

    def attempt() -> None:
        target.history()
        metadata = target.table.metadata
        now = sink_floor(metadata, sink.floor_key)
        if (now.offsets or {}) != (completion.floor.offsets or {}):
            raise TakeoverRefusedError(
                f"table {completion.table}: somebody committed with the sink's key while the takeover looked.",
                fix="see that no worker runs the connector, then run this again",
            )
        _refuse_misfits(completion, metadata)
        merged = {p: max(floor.get(p, 0), now.of(p)) for p in {*floor, *(now.offsets or {})}}
        summary = {sink.floor_key: floor_text(merged), COMPLETED_KEY: sink.name}
        target.commit(Append([data_file_of(file.fields, metadata) for file in completion.files]), None, summary)

    compare_and_swap(completion.table, attempt, _given_up)


def _refuse_misfits(completion: TableCompletion, metadata: TableMetadata) -> None:
    for file in completion.files:
        misfit = misfit_of(file.fields, metadata)
        another = file.table_uuid is not None and file.table_uuid != str(metadata.table_uuid)
        if misfit or another:
            raise TakeoverRefusedError(
                f"table {completion.table} was changed while the takeover looked: the sink's file {file.path} "
                f"{misfit or 'was written for another table of that name'}.",
                fix="run this again, which looks anew",
            )


def _given_up(said: str) -> CommitRefusedError:
    return CommitRefusedError(said, fix="let other writers finish, then run this again: it goes on where it was")


def _tagged(catalog: Catalog, plan: TakeoverPlan, who: str) -> dict[str, str]:
    """Tag the snapshot of each table up to which it is the sink's; returns the names."""
    tags: dict[str, str] = {}
    for name in (each.table for each in plan.tables):
        table = existing_table(catalog, name, plan.sink.branch_of(name))
        snapshot_id = sink_floor(table.metadata, plan.sink.floor_key).snapshot_id if table is not None else None
        if table is None or snapshot_id is None:
            continue
        base = tag_name(plan.sink.name)
        taken = {each.name: each.snapshot_id for each in tags_of(table.metadata)}
        taken |= {each: 0 for each in table.metadata.refs if each not in taken}
        names = [base, *(f"{base}-{number}" for number in range(2, len(taken) + 3))]
        own = next((each for each in names if taken.get(each) == snapshot_id), None)
        if own is None:
            own = next(each for each in names if each not in taken)
            note = f"the last snapshot of connector {plan.sink.name}, which stream {plan.stream} took over from"
            tag_snapshot(catalog, name, own, snapshot_id, keep=None, note=note, by=who)
        tags[name] = own
    return tags


def tag_name(connector: str) -> str:
    """Name of the tag on a sink's last snapshot."""
    return f"connect-{_NOT_IN_NAMES.sub('-', connector)}"[:90]


def _refuse_moved(kafka: SinkKafka, plan: TakeoverPlan, request: TakeoverRequest) -> None:
    """Refuse to go on if the sink was started again since the takeover looked."""
    obstacle = obstacle_of(request, kafka)
    sink = plan.sink
    committed = kafka.committed(sink.offset_group, [each.partition for each in plan.partitions])
    control = kafka.control_log(sink.control_topic)
    ranges = {p: OffsetRange(at, control.end[p]) for p, at in plan.floor.items() if control and p in control.end}
    alive = any(event.group == sink.event_group for event in kafka.events(sink.control_topic, ranges))
    if obstacle is None and committed == plan.committed and not alive:
        return
    raise TakeoverRefusedError(
        f"connector {sink.name} was started while stream {plan.stream} took over from it. Nothing was landed.",
        fix="stop the connector, see that nobody starts it, then run this again",
    )


def _move_position(spec: StreamSpec, settings: Settings, plan: TakeoverPlan, who: str, reason: str) -> None:
    """Move a stream that has stamps, as it was opened before, or had handed its position back to the sink."""
    with connect_catalog(settings) as catalog:
        if coordinator_stamp(spec, catalog) is None:
            return
    kafka = settings.kafka.with_options(spec.source.options)
    asked = reset_request(explicit_offsets(plan.start))
    reset(spec, settings, lambda: KafkaLog(kafka), asked, who, f"{reason}; taken over from {plan.sink.name}")


def _stamp_start(spec: StreamSpec, settings: Settings, catalog: Catalog, plan: TakeoverPlan, by: str) -> None:
    """Claim the stream's tables at the sink's offsets, and record where they come from."""
    offsets = {topic: {int(number): at for number, at in each.items()} for topic, each in by_topic(plan.start).items()}
    source = spec.source.model_copy(update={"start": StartOffsets(offsets=offsets)})
    kafka = KafkaLog(settings.kafka.with_options(spec.source.options))
    step("takeover_before_stamp")
    with (
        control_lock(stream_folder(settings, spec.stream), spec.stream),
        opened(spec.model_copy(update={"source": source}), settings, catalog, kafka, _OPENER) as stream,
    ):
        step("takeover_after_claim")
        newest = stream.anchor.newest
        assert newest is not None, "it was claimed"
        if any(newest.position.get(partition) != at for partition, at in plan.start.items()):
            raise TakeoverRefusedError(
                f"stream {spec.stream} was started at other offsets while it took over.",
                fix="run this again, which looks anew",
            )
        record = TakeoverRecord.of(plan.sink, time.time(), by)
        stamp = signed_answer(newest.decided(None), stream.epoch, f"{by} · {_note(plan)}")
        stream.anchor.restamp(stamp, record.properties(spec.stream))
    step("takeover_after_stamp")


def _note(plan: TakeoverPlan) -> str:
    """Provenance of a start, for the stamp."""
    named = [f"{each.partition} at {each.start}" for each in plan.partitions[:_NOTED]]
    more = f" and {len(plan.partitions) - _NOTED} more" if len(plan.partitions) > _NOTED else ""
    files = sum(len(each.files) for each in plan.tables)
    left = sum(len(each.left) for each in plan.tables)
    return (
        f"taken over from {plan.sink.described}: {', '.join(named)}{more}"
        + (f"; {files} announced files committed" if files else "")
        + (f"; {left} announced files left out" if left else "")
    )


def seam_offsets(plan: TakeoverPlan) -> dict[str, dict[str, int]]:
    """The start as a stream's file writes it in `source.start.offsets`."""
    return {topic: {str(number): at for number, at in each.items()} for topic, each in by_topic(plan.start).items()}
