"""How a stream stands: its lease, its stamps, the end of its topics. Starts no JVM; does without any of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.catalog import NoCatalogYet, find_table
from jobs.commit.history import history, stamps_along_main
from jobs.commit.offsets import TopicPartition
from jobs.commit.stamps import Stamp
from jobs.commit.topic_ids import without_id
from jobs.errors import FrazilError
from jobs.kafka.metadata import KafkaLog
from jobs.kafka.open_transactions import find_hanging
from jobs.spec.generation import generation
from jobs.spec.models import StreamSpec
from jobs.spec.problems import SpecError
from jobs.spec.settings import Settings
from jobs.state.lease import Lease, LeaseRecord
from jobs.state.paths import stream_folder
from jobs.stream.unknown_fields import read_unknown_fields
from jobs.supervise.heartbeat import Heartbeat
from jobs.supervise.situation import look_in
from jobs.supervise.wanted import Wanted
from orchestration.cli.status.model import StreamStatus
from orchestration.reconcile.progress import complete_through
from orchestration.reconcile.stream_state import next_command, state_of
from orchestration.reconcile.supervisor_file import SupervisorNote


def stream_status(
    spec: StreamSpec, settings: Settings, catalog: Catalog | FrazilError, kafka: KafkaLog | FrazilError
) -> StreamStatus:
    """Find out how a stream stands, its tables and topics included.

    Args:
        spec: The stream.
        settings: Where its state is.
        catalog: The catalog, or why there is none.
        kafka: The broker, or why there is none.
    """
    status = driver_status(spec, settings)
    look_further(status, spec, catalog, kafka)
    return status


def driver_status(
    spec: StreamSpec, settings: Settings, note: SupervisorNote | None = None, problem: SpecError | None = None
) -> StreamStatus:
    """How a stream stands as far as its state folder tells: reads some small files, and asks nobody.

    Args:
        spec: The stream, or what was launched last if its file has problems.
        note: The supervisor's last tick; of no account if that was long ago.
        problem: What is wrong with its file, or that it is gone.
    """
    status = StreamStatus(spec.stream, spec.table.name, spec.dead_letter_table)
    wanted = Wanted(spec if problem is None else None, None, problem, ())
    try:
        now = look_in(stream_folder(settings, spec.stream).root, settings, spec.stream, wanted)
    except FrazilError as damage:
        status.state, status.unknown["control"], status.fix = "unknown", damage.message, damage.fix
        return status
    supervised = note is not None and not note.is_silent(time.time())
    decision = note.decisions.get(spec.stream, {}) if note is not None and supervised else {}
    status.decision = decision.get("sentence")
    status.state = state_of(now, decision.get("action"))
    status.wish, status.wished_by, status.wished_for = now.control.wish, now.control.by, now.control.reason
    status.wanted_generation = generation(spec, settings) if problem is None else None
    status.file_problem = problem.problems[0] if problem is not None else None
    held_back = now.driver is not None and now.driver.generation != status.wanted_generation
    if problem is None and held_back and decision.get("action") == "halt":
        # The file can be read, and what it says could not run: the supervisor has asked the catalog.
        status.file_problem = decision.get("sentence")
    status.fix = decision.get("fix") or next_command(now, status.state)
    if now.launch is not None:
        status.attempt, status.generation = now.launch.attempt, now.launch.generation
        status.failures = now.launch.failures
    status.unknown_fields = read_unknown_fields(stream_folder(settings, spec.stream).root, spec.config_hash)
    if status.unknown_fields is not None:
        status.unexpected = status.unknown_fields.unexpected(spec.slo)
        status.unknown_field_facts = status.unknown_fields.facts(spec.slo)
    lease = read_lease(settings, spec.stream)
    status.epoch = lease.epoch if lease is not None else None
    if lease is not None and status.state == "never ran":
        status.state = "idle"
    if now.driver is not None:
        status.holder, status.pid, status.host = now.driver.name, now.driver.pid, now.driver.host
    elif now.holder is not None:
        status.holder = f"process {now.holder.pid} on {now.holder.host}"
    if now.beat is not None:
        _take_from_beat(status, now.beat, lives=now.driver is not None and now.driver.beat is not None)
        if status.hangs:
            (topic, partitions), *_ = now.beat.work.undecided.items()
            held = TopicPartition(topic, int(next(iter(partitions))))
            status.fix = status.fix or find_hanging(held, settings.kafka.bootstrap_servers or "…")
    return status


def _take_from_beat(status: StreamStatus, beat: Heartbeat, *, lives: bool) -> None:
    status.generation, status.attempt = beat.generation, max(beat.attempt, status.attempt or 0)
    status.log, status.error = beat.log or None, beat.error
    status.reasons = beat.work.reasons
    status.unpublished_letters, status.outbox_error = beat.unpublished_letters, beat.outbox_error
    if beat.error is not None and beat.error.fix:
        status.fix = beat.error.fix
    if not lives:
        return
    work = beat.work
    status.since, status.beat_age_seconds = _instant(beat.since * 1000), beat.age()
    status.ui_url, status.metrics_url = beat.ui_url, beat.metrics_url
    status.epoch = beat.epoch or status.epoch
    status.batch, status.rate, status.lag = work.batch, work.recent.rate, work.total_lag
    status.undecided_records = work.total_undecided
    if work.undecided_since is not None:
        status.undecided_since = _instant(work.undecided_since * 1000)
    status.position, status.lag_by = _flat(work.position), _flat(work.lag)
    if work.last_commit_at is not None:
        status.last_commit = _instant(work.last_commit_at * 1000)
    through = complete_through(beat)
    if through is not None:
        status.complete_through = _instant(through * 1000)


def look_further(
    status: StreamStatus, spec: StreamSpec, catalog: Catalog | FrazilError, kafka: KafkaLog | FrazilError
) -> None:
    """Add what the tables say; and the lag, if no driver has told it."""
    if isinstance(catalog, NoCatalogYet):
        pass
    elif isinstance(catalog, FrazilError):
        status.unknown["catalog"] = catalog.message
    else:
        _attempt(status, "catalog", lambda: _look_at_tables(status, catalog))
    if status.lag is not None:
        return
    if isinstance(kafka, FrazilError):
        status.unknown["kafka"] = kafka.message
    elif "catalog" not in status.unknown:
        _attempt(status, "kafka", lambda: _look_at_log(status, spec, kafka))


def _attempt(status: StreamStatus, part: str, look: Callable[[], None]) -> None:
    try:
        look()
    except FrazilError as problem:
        status.unknown[part] = problem.message


def read_lease(settings: Settings, stream: str) -> LeaseRecord | None:
    """Who runs or last ran a stream, without making its state folder."""
    folder = stream_folder(settings, stream).root
    return Lease(folder, stream, settings.lease_ttl.total_seconds()).read() if folder.is_dir() else None


def _look_at_tables(status: StreamStatus, catalog: Catalog) -> None:
    table = find_table(catalog, status.table)
    if table is None:
        return
    newest = history(table.metadata, status.stream).newest
    if newest is not None:
        if status.state == "never ran":
            status.state = "idle"
        status.epoch = max(newest.epoch, status.epoch or 0)
        # The tables are newer than the last beat, if anything.
        status.batch = newest.batch if newest.batch >= 0 else status.batch
        status.position = {**status.position, **newest.position}
        status.topics_without_id = without_id(newest.topics)
        if newest.valid_through_ms is not None and status.complete_through is None:
            status.complete_through = _instant(newest.valid_through_ms)
    status.rows = total_rows(table)
    status.last_commit = last_commit(table, status.stream) or status.last_commit
    dead = find_table(catalog, status.dead_letter_table)
    status.dead = total_rows(dead) if dead is not None else None


def _look_at_log(status: StreamStatus, spec: StreamSpec, kafka: KafkaLog) -> None:
    topics = kafka.topics(spec.source)
    partitions = [TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers]
    if not partitions:
        status.unknown["kafka"] = "the topic does not exist"
        return
    fresh = [at for at in partitions if at not in status.position]
    begin = (kafka.earliest(fresh) if fresh else {}) | status.position
    ends = kafka.ends(partitions)
    status.lag_by = {at: max(0, end - begin[at]) for at, end in ends.latest.items()}
    status.lag, status.undecided_records = sum(status.lag_by.values()), sum(ends.undecided().values())
    if status.lag == 0 and not status.undecided_records:
        # As the checks see it: a stream that stands at the end of its topics is complete through now.
        status.complete_through = datetime.now(UTC)


def total_rows(table: Table) -> int:
    """The rows of a table, as its newest snapshot counts them."""
    snapshot = table.current_snapshot()
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    return int(summary.get("total-records", 0))


def last_commit(table: Table, stream: str) -> datetime | None:
    """When the stream last committed records here; None if never, or if that snapshot has expired."""
    for snapshot_id, stamp in stamps_along_main(table.metadata, stream):
        snapshot = table.snapshot_by_id(snapshot_id)
        if stamp.kind == "batch" and snapshot is not None:
            return _instant(snapshot.timestamp_ms)
    return None


def newest_stamp(table: Table, stream: str) -> Stamp | None:
    """The newest stamp of a stream on a table."""
    return history(table.metadata, stream).newest


def _instant(millis: float) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)


def _flat(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }
