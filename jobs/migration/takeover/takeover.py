"""Takeover of a sink's position by a stream: the sink's tables are completed and tagged, the start is stamped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyiceberg.catalog import Catalog

from jobs.base.failpoints import step
from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.migration.sink_protocol.sink_floor import sink_floor
from jobs.migration.takeover.sink_kafka import SinkKafka
from jobs.migration.takeover.start_stamp import finish_batch, move_position, needs_stamp, stamp_start, start_note
from jobs.migration.takeover.stopped_sink import OnWait, sink_obstacle, stop_connector, wait_until_stopped
from jobs.migration.takeover.table_completion import complete_table
from jobs.migration.takeover.takeover_plan import TakeoverPlan, TakeoverRequest, plan_in_catalog
from jobs.migration.takeover.takeover_record import name_coordinator, written_tables
from jobs.migration.takeover.takeover_refusal import TakeoverRefusedError, refuse_running
from jobs.proof.lookup.tags import tag_snapshot, tags_of
from jobs.tables.commit.history.branch import existing_table
from jobs.tables.commit.history.sink_record import tag_name
from jobs.tables.commit.stamp.offsets import OffsetRange


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
    """Complete the tables with what the sink has announced, and start the stream where the sink's group stands.

    If it is ended in between, the same command goes on. Files that a table has are not committed again: its floor says
    that it has them.

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
    sink, worker = request.sink, request.worker
    kafka = SinkKafka(settings.kafka.with_options(spec.source.options))
    refuse_running(spec, settings, "a takeover")
    if request.stop_connector and worker is not None:
        stop_connector(sink, worker, on_wait)
    wait_until_stopped(sink, worker, kafka, on_wait, stop_requested=request.stop_connector)
    with connect_catalog(settings) as catalog:
        # A batch that the stream's stop left behind would move the position while the takeover moves it.
        finish_batch(spec, settings, catalog)
        plan = plan_in_catalog(spec, settings, request, catalog, on_read)
        if plan.obstacle is not None:
            raise plan.obstacle
        step("takeover_before_files")
        for completion in plan.tables:
            complete_table(catalog, spec, sink, completion, plan.floor)
            step("takeover_after_files")
        plan = replace(plan, tags=_tag_last_snapshots(catalog, plan, who))
        _refuse_started_sink(kafka, plan, request)
        if not plan.position_set:
            move_position(spec, settings, sink, plan.start, who, reason)
        if not plan.position_set or plan.restarted or needs_stamp(spec, sink, catalog):
            note = start_note(sink, plan.partitions, plan.tables)
            stamp_start(spec, settings, catalog, sink, plan.start, plan.floor, note, f"{who}: {reason}")
        name_coordinator(catalog, spec, written_tables(spec, [completion.table for completion in plan.tables]))
        _refuse_started_sink(kafka, plan, request)
    return plan


def _tag_last_snapshots(catalog: Catalog, plan: TakeoverPlan, who: str) -> dict[str, str]:
    """Tag the sink's last snapshot in each table; returns the tag's name by table."""
    tags: dict[str, str] = {}
    for name in (completion.table for completion in plan.tables):
        table = existing_table(catalog, name, plan.sink.branch_of(name))
        snapshot_id = sink_floor(table.metadata, plan.sink.floor_key).snapshot_id if table is not None else None
        if table is None or snapshot_id is None:
            continue
        base = tag_name(plan.sink.name)
        taken = {tag.name: tag.snapshot_id for tag in tags_of(table.metadata)}
        taken |= {ref: 0 for ref in table.metadata.refs if ref not in taken}
        candidates = [base, *(f"{base}-{number}" for number in range(2, len(taken) + 3))]
        tag_of_snapshot = next((candidate for candidate in candidates if taken.get(candidate) == snapshot_id), None)
        if tag_of_snapshot is None:
            tag_of_snapshot = next(candidate for candidate in candidates if candidate not in taken)
            note = f"the last snapshot of connector {plan.sink.name}, which stream {plan.stream} took over from"
            tag_snapshot(catalog, name, tag_of_snapshot, snapshot_id, keep=None, note=note, by=who)
        tags[name] = tag_of_snapshot
    return tags


def _refuse_started_sink(kafka: SinkKafka, plan: TakeoverPlan, request: TakeoverRequest) -> None:
    """Refuse to go on if the sink was started again after the plan was made."""
    sink = plan.sink
    obstacle = sink_obstacle(sink, request.worker, kafka)
    committed = kafka.committed(sink.offset_group, [partition.partition for partition in plan.partitions])
    control = kafka.control_log(sink.control_topic)
    ranges = {
        partition: OffsetRange(offset, control.end[partition])
        for partition, offset in plan.floor.items()
        if control and partition in control.end
    }
    new_events = any(event.group == sink.event_group for event in kafka.events(sink.control_topic, ranges))
    if obstacle is None and committed == plan.committed and not new_events:
        return
    raise TakeoverRefusedError(
        f"connector {sink.name} was started while stream {plan.stream} took over from it. Nothing was landed.",
        fix="stop the connector, keep it stopped, then run this again",
    )
