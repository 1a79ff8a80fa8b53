"""Figures from tables and topics in a stream's status; imported only if a status needs them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.base.errors import FrazilError
from jobs.base.system.deadline import DeadlineError
from jobs.clients.catalog.catalog import NoCatalogYet, find_table
from jobs.clients.kafka.metadata import KafkaLog
from jobs.config.stream.models import StreamSpec
from jobs.quality.incremental_scan.validated_position import validated_position
from jobs.quality.publishing.gate import answers_to_held
from jobs.quality.publishing.main_freshness import UNKNOWN, MainFreshness, branch_ahead, main_freshness
from jobs.streaming.driver.context.completeness import settled_through
from jobs.tables.commit.history.parked_places import parked_places
from jobs.tables.commit.history.reissue import as_landed
from jobs.tables.commit.history.stamp_history import (
    as_written,
    history,
    newest_batch,
    stamps_along_main,
    written_branch,
)
from jobs.tables.commit.protocol.named_tables import with_told_tables
from jobs.tables.commit.stamp.log_state import without_id
from jobs.tables.commit.stamp.offsets import by_topic, from_topics
from orchestration.cli.streams.status.stream_status import Parked, StreamStatus, event_span
from orchestration.reconcile.lag import waiting_records
from orchestration.reconcile.stream_state import unpark_command


def add_tables_and_topics(
    status: StreamStatus, spec: StreamSpec, catalog: Catalog | FrazilError, kafka: KafkaLog | FrazilError
) -> FrazilError | None:
    """Add figures from the tables; and the lag, unless a driver has reported it.

    Returns:
        Reason why the catalog or its object store does not answer for any table; None if it does.
    """
    away = None
    if isinstance(catalog, NoCatalogYet):
        pass
    elif isinstance(catalog, FrazilError):
        status.unknown["catalog"] = catalog.message
    else:
        away = _attempt(status, "catalog", lambda: _look_at_tables(status, spec, catalog))
    if status.work.knows_lag:
        pass
    elif isinstance(kafka, FrazilError):
        status.unknown["kafka"] = kafka.message
    elif "catalog" not in status.unknown:
        status.unknown.pop("kafka", None)
        _attempt(status, "kafka", lambda: _look_at_log(status, spec, kafka))
    if spec.publish is not None:
        status.freshness.main = status.freshness.main or (UNKNOWN if "catalog" in status.unknown else MainFreshness())
    start = f"frazil start {spec.stream}" if spec.continuous else f"frazil run {spec.stream}"
    if status.state == "idle" and status.fix in (None, start):
        # Without waiting records there is nothing to land.
        status.fix = start if status.work.total_lag else None
    elif status.state == "never ran" and status.fix == start and not spec.continuous and status.work.total_lag == 0:
        status.fix = None
    if status.ahead is not None and status.ahead.held is not None:
        status.fix = status.fix or answers_to_held(spec.stream)
    return away if away is not None and _is_away(away) else None


def _attempt(status: StreamStatus, part: str, look: Callable[[], None]) -> FrazilError | None:
    try:
        look()
    except FrazilError as problem:
        status.unknown[part] = problem.message
        return problem
    return None


def _is_away(problem: FrazilError) -> bool:
    """Whether the cause of a problem is an unavailable service, instead of a damaged table."""
    # Imported here: most reads have no problem.
    from jobs.streaming.driver.batch.retry import is_unavailable

    cause = problem.__cause__
    return isinstance(problem, DeadlineError) or (isinstance(cause, OSError) and is_unavailable(cause))


def _look_at_tables(status: StreamStatus, spec: StreamSpec, catalog: Catalog) -> None:
    table = find_table(catalog, status.table)
    if table is None:
        return
    metadata = as_written(table.metadata, status.stream)
    status.ahead = branch_ahead(table.metadata, status.stream, table=status.table)
    if status.ahead is not None and (problem := status.ahead.problem) is not None:
        status.unknown["gate"] = f"{problem.message} Next: {problem.fix}"
    freshness, tables = status.freshness, status.tables
    if status.ahead is not None and spec.publish is not None:
        freshness.main = main_freshness(table.metadata, status.stream, status.ahead.branch)
    newest = history(metadata, status.stream).newest
    if newest is not None:
        if status.state == "never ran":
            status.state = "idle"
        status.epoch = max(newest.epoch, status.epoch or 0)
        # The tables are at least as new as the last heartbeat.
        status.learn(
            batch=newest.batch if newest.batch >= 0 else status.work.batch,
            position=by_topic({**from_topics(status.work.position), **newest.position}),
        )
        tables.topics_without_id = without_id(newest.topics)
        if newest.valid_through_ms is not None and freshness.through is None:
            through_ms = settled_through(spec, catalog, table.metadata)
            freshness.through = through_ms / 1000 if through_ms is not None else None
        times = newest.event_time
        if times is not None and times.watermark_ms is not None and freshness.watermark is None:
            freshness.watermark = times.watermark_ms / 1000
        if times is not None and freshness.event_times is None:
            # A claim's stamp has no figures of the rows before it.
            batch = newest_batch(metadata, status.stream)
            span_ms = batch.event_time.batch.span_ms if batch and batch.event_time else None
            freshness.event_times = event_span(span_ms) if span_ms else None
    tables.rows = total_rows(metadata)
    if spec.route is not None and newest is not None:
        # The newest stamp suffices. Loading each table would be slow for many tables.
        told = with_told_tables(spec, table.metadata)
        tables.tables = sum(each.role == "rows" for each in told.targets)
        tables.landed = newest.totals.landed
    branch = written_branch(table.metadata, status.stream) or MAIN_BRANCH
    status.last_check = validated_position(table.metadata.properties, status.stream, branch)
    for name in spec.contract.tables if spec.contract is not None else ():
        other = find_table(catalog, name)
        checked = (
            validated_position(other.metadata.properties, status.stream, spec.branch_of(name))
            if other is not None
            else None
        )
        if checked is not None:
            status.last_checks[name] = checked
    if (committed := last_commit(table, status.stream)) is not None:
        status.learn(last_commit_at=committed)
    dead = find_table(catalog, status.dead_letter_table)
    tables.dead = total_rows(dead.metadata) if dead is not None else None
    if newest is not None and newest.parked:
        places = parked_places(dead.metadata, status.stream) if dead is not None else {}
        for name, at in sorted(newest.parked.items()):
            letters = places[name].totals.read if name in places else 0
            tables.parked[name] = Parked(datetime.fromtimestamp(at / 1000, UTC), letters)
        status.fix = status.fix or unpark_command(status.stream, min(tables.parked))


def _look_at_log(status: StreamStatus, spec: StreamSpec, kafka: KafkaLog) -> None:
    found = waiting_records(kafka, spec.source, from_topics(status.work.position))
    if found is None:
        status.unknown["kafka"] = "the topic does not exist"
        return
    waiting, undecided = found
    now = time.time()
    status.learn(lag=by_topic(waiting), undecided=by_topic(undecided), lag_at=now, lag_unknown_since=None)
    if not status.work.total_lag and not status.work.total_undecided:
        # Like the checks do: a stream at the end of its topics is complete through now.
        status.freshness.through = now


def total_rows(metadata: TableMetadata) -> int:
    """Number of rows in a table, as its newest snapshot counts them."""
    snapshot = metadata.current_snapshot()
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    return int(summary.get("total-records", 0))


def last_commit(table: Table, stream: str) -> float | None:
    """Time of the stream's last commit of records to a table, since 1970; None without one, or if it has expired."""
    for snapshot_id, stamp in stamps_along_main(as_written(table.metadata, stream), stream):
        snapshot = table.snapshot_by_id(snapshot_id)
        if stamp.kind == "batch" and snapshot is not None:
            return as_landed(snapshot).timestamp_ms / 1000
    return None
