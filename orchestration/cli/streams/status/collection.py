"""Collection of a stream's status: from its state folder, its tables and the end of its topics; without a JVM."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NoReturn

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.base.errors import FrazilError
from jobs.base.system.deadline import DeadlineError
from jobs.clients.catalog.catalog import NoCatalogYet, find_table
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.kafka.open_transactions import find_hanging
from jobs.config.documents.validation import SpecError
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.quality.incremental_scan.validated_position import validated_position
from jobs.quality.publishing.gate import answers_to_held
from jobs.quality.publishing.main_freshness import (
    UNKNOWN,
    MainFreshness,
    branch_ahead,
    main_freshness,
)
from jobs.streaming.driver.context.completeness import settled_through
from jobs.streaming.driver.context.unknown_fields import read_unknown_fields
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, Work
from jobs.streaming.supervision.processes.actual import QUIET_SECONDS
from jobs.streaming.supervision.state.observation import Observation, observe
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
from jobs.tables.commit.stamp.event_times import as_datetime
from jobs.tables.commit.stamp.log_state import without_id
from jobs.tables.commit.stamp.offsets import TopicPartition, by_topic, from_topics
from orchestration.cli.streams.status.stream_status import (
    Freshness,
    Parked,
    Process,
    StreamStatus,
    Undeclared,
    utc,
)
from orchestration.reconcile.lag import waiting_records
from orchestration.reconcile.stream_files import read_files, stream_ids
from orchestration.reconcile.stream_state import next_command, state_word
from orchestration.reconcile.supervisor_heartbeat import SupervisorHeartbeat
from resources.deployment import Deployment

# By stream: how it was observed, and its spec.
Listed = dict[str, tuple[Observation, StreamSpec]]


def list_streams(deployment: Deployment, settings: Settings) -> tuple[Listed, tuple[SpecError, ...]]:
    """The streams by their files, and those that were launched and are there without a good file; and the bad files."""
    files, listed = read_files(deployment), Listed()
    for stream in stream_ids(files, settings):
        observed = observe(stream, files, settings)
        shown = observed.desired.file in ("valid", "invalid") or observed.driver is not None
        if shown and observed.desired.spec is not None:
            listed[stream] = observed, observed.desired.spec
    return listed, files.errors


def refuse_unlisted(deployment: Deployment, settings: Settings, stream: str) -> NoReturn:
    """Say why a stream is not listed.

    Raises:
        FrazilError: There is no such stream, or its file has problems and it was never launched.
    """
    for error in read_files(deployment).errors_of(stream, None, settings.home):
        raise error
    deployment.stream(stream)
    raise FrazilError(f"The state of stream {stream} cannot be told.", fix="run this again")


def status_from_state(observed: Observation, spec: StreamSpec, note: SupervisorHeartbeat | None = None) -> StreamStatus:
    """How a stream stands as far as its state folder tells.

    Args:
        spec: As its file says, or as it was launched last if its file has problems.
        note: The supervisor's last tick; of no account if that was long ago.
    """
    status = StreamStatus(spec.stream, spec.table.name, spec.dead_letter_table)
    desired, actual, driver = observed.desired, observed.actual, observed.driver
    if actual.problem:
        status.state, status.unknown["control"], status.fix = "unknown", actual.problem, actual.fix
        return status
    supervised = note is not None and not note.is_silent(time.time())
    decision = note.decisions.get(spec.stream, {}) if note is not None and supervised else {}
    status.decision = decision.get("sentence")
    status.state = state_word(observed, decision.get("action"))
    status.control = desired.control
    status.launched.wanted_generation = desired.generation
    if desired.file == "invalid":
        status.file_problem = desired.error.problems[0] if desired.error is not None else desired.problem
    elif desired.file != "valid":
        status.file_problem = f"no file in {observed.settings.home / 'streams'} names the stream any more"
    held_back = driver is not None and driver.generation != desired.generation
    if desired.file == "valid" and held_back and decision.get("action") == "halt":
        # The file can be read, and what it says could not run: the supervisor has asked the catalog.
        status.file_problem = decision.get("sentence")
    if actual.lease.state != "none":
        status.epoch = actual.lease.epoch
        status.state = "idle" if status.state == "never ran" else status.state
    status.fix = decision.get("fix") or next_command(observed, status.state)
    if actual.launch is not None:
        launched = status.launched
        launched.attempt, launched.generation = actual.launch.attempt, actual.launch.generation
        launched.failures_in_a_row = actual.launch.failures
    if (known := read_unknown_fields(observed.folder.store, spec.config_hash)) is not None:
        status.undeclared = Undeclared(known, known.unexpected(spec.slo), known.facts(spec.slo))
    if driver is not None:
        status.holder, status.group = driver.name, driver.group
        process = driver.process
        status.process = Process(driver.pid, driver.host, process.launcher, process.handle or None)
    elif actual.other_holder is not None:
        status.holder = actual.other_holder.name
    if actual.heartbeat is not None:
        lives = driver is not None and driver.heartbeat is not None
        _take_from_heartbeat(status, actual.heartbeat, actual.heartbeat_age, lives=lives)
        name_hanging(status, observed.settings.kafka.bootstrap_servers)
    return status


def name_hanging(status: StreamStatus, servers: str | None) -> None:
    """Name the command that finds a hanging transaction, if there is one and no other command comes first."""
    if status.hangs and not status.fix:
        (topic, partitions), *_ = status.work.undecided.items()
        status.fix = find_hanging(TopicPartition(topic, int(next(iter(partitions)))), servers or "…")


def _take_from_heartbeat(status: StreamStatus, beat: Heartbeat, age: float, *, lives: bool) -> None:
    launched, process, work = status.launched, status.process, beat.work
    status.beat, process.log = beat, beat.log or None
    launched.generation, launched.attempt = beat.generation, max(beat.attempt, launched.attempt or 0)
    if beat.error is not None and beat.error.fix and status.state not in ("idle", "draining"):
        status.fix = beat.error.fix
    if not lives:
        status.work = Work(reasons=work.reasons)
        return
    status.work, status.epoch = work, beat.epoch or status.epoch
    process.since, process.uptime_seconds = utc(beat.since), max(0.0, time.time() - beat.since)
    process.beat_age_seconds, process.spark_ui, process.metrics = age, beat.ui_url, beat.metrics_url
    status.freshness = Freshness(work.complete_through, work.watermark_ms and work.watermark_ms / 1000)
    if work.event_ms is not None:
        status.freshness.event_times = _span(work.event_ms)
    if work.lag_unknown_since is not None:
        since = f"{utc(work.lag_unknown_since):%Y-%m-%d %H:%M UTC}"
        status.unknown["kafka"] = f"the driver of {status.stream} has not been able to look up its lag since {since}"
    elif age > QUIET_SECONDS:
        status.learn(lag_unknown_since=beat.beat_wall)


def add_tables_and_topics(
    status: StreamStatus, spec: StreamSpec, catalog: Catalog | FrazilError, kafka: KafkaLog | FrazilError
) -> FrazilError | None:
    """Add what the tables say; and the lag, if no driver has told it.

    Returns:
        Why the catalog or its object store does not answer, whichever table is asked for; None if it does.
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
        # Where nothing waits there is nothing to land.
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
    """Whether a service did not answer, rather than that a table is damaged."""
    # Imported here: most looks meet no problem.
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
        # The tables are newer than the last beat, if anything.
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
            # A claim says nothing of the rows before it.
            batch = newest_batch(metadata, status.stream)
            span_ms = batch.event_time.batch.span_ms if batch and batch.event_time else None
            freshness.event_times = _span(span_ms) if span_ms else None
    tables.rows = total_rows(metadata)
    if spec.route is not None and newest is not None:
        # By the newest stamp alone: to ask each table would take as long as there are many.
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
        status.fix = status.fix or f"frazil accept {status.stream} --unpark {min(tables.parked)}, once it takes commits"


def _look_at_log(status: StreamStatus, spec: StreamSpec, kafka: KafkaLog) -> None:
    found = waiting_records(kafka, spec.source, from_topics(status.work.position))
    if found is None:
        status.unknown["kafka"] = "the topic does not exist"
        return
    waiting, undecided = found
    now = time.time()
    status.learn(lag=by_topic(waiting), undecided=by_topic(undecided), lag_at=now, lag_unknown_since=None)
    if not status.work.total_lag and not status.work.total_undecided:
        # As the checks see it: a stream that stands at the end of its topics is complete through now.
        status.freshness.through = now


def total_rows(metadata: TableMetadata) -> int:
    """Collected for the status: the rows of a table, as its newest snapshot counts them."""
    snapshot = metadata.current_snapshot()
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    return int(summary.get("total-records", 0))


def last_commit(table: Table, stream: str) -> float | None:
    """When the stream last committed records here, since 1970; None if never, or if that snapshot has expired."""
    for snapshot_id, stamp in stamps_along_main(as_written(table.metadata, stream), stream):
        snapshot = table.snapshot_by_id(snapshot_id)
        if stamp.kind == "batch" and snapshot is not None:
            return as_landed(snapshot).timestamp_ms / 1000
    return None


def _span(span_ms: tuple[int, int]) -> tuple[datetime, datetime] | None:
    least, greatest = map(as_datetime, span_ms)
    return None if least is None or greatest is None else (least, greatest)
