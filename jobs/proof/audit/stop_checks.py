"""Stop checks of a stream: whether it is stopped on a question that no operator has answered.

As long as one is open, nothing is complete. Three places show them: the tables, if one was rolled back, or if a sink
has committed to it since the takeover; the driver's last error; and Kafka, if it answers: a topic was recreated,
dropped or cut, or lost unread records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError, StreamStopped
from jobs.clients.kafka.metadata import KafkaLog, KafkaUnavailableError
from jobs.clients.state_store.lease_record import read_lease
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.proof.audit.audit_result import AuditProblem
from jobs.streaming.driver.context.continuity import log_departures
from jobs.streaming.driver.tables.former_sink import TableHead, refuse_restarted_sink
from jobs.streaming.supervision.documents.heartbeat import LastError, read_heartbeat
from jobs.tables.commit.history.parked_places import newest_stamps
from jobs.tables.commit.history.reissue import as_landed
from jobs.tables.commit.history.stamp_history import history, history_of, stamps_along_main
from jobs.tables.commit.recovery.recovery import half_committed
from jobs.tables.commit.recovery.rollback import lost_ranges, restored_tables
from jobs.tables.commit.recovery.starting_point import starting_point
from jobs.tables.commit.stamp.errors import HalfCommitted, SinkRestartedError, TopicLostError
from jobs.tables.commit.stamp.offsets import Positions, describe_ranges, pointwise_max
from jobs.tables.commit.stamp.target_positions import of_known_topics, restart_positions, target_positions

# Present metadata of the stream's existing tables, by name.
Tables = Mapping[str, TableMetadata]

# Longest time for the commits of one batch before an audit calls the batch undecided.
COMMIT_SECONDS = 10.0


def unanswered_rollback(name: str, table: Table, stream: str) -> AuditProblem | None:
    """Unanswered rollback of a table, or one that cannot be excluded; None without one."""
    past = history_of(table, stream)
    if not past.rolled_back:
        return None
    if past.doubt:
        what = "it cannot be shown that it still holds the stream's last commit, since the snapshots in between have "
        what += "expired"
    else:
        gone = f", which takes {describe_ranges(past.removed)} out of it" if past.removed else ""
        what = f"it was rolled back or replaced{gone}"
    sentence = f"{what}, and nobody has answered. Next: frazil accept {stream} --rollback keep, or reland"
    # The counts show how many rows that is.
    return AuditProblem("rolled_back", name, None, None, 0, sentence)


def half_committed_batch(spec: StreamSpec, tables: Tables) -> HalfCommitted | None:
    """Batch that the coordinator has and other tables lack; None if all tables agree.

    Args:
        tables: Existing tables of the stream.
    """
    return half_committed(of_known_topics(newest_stamps(spec, tables), spec.coordinator), spec.coordinator)


def half_sentence(stream: str, half: HalfCommitted) -> str:
    """Sentence about a half-committed batch, with what completes it."""
    return (
        f"the batch {describe_ranges(half.ranges)} is in {', '.join(half.have)} and not in {', '.join(half.lack)} yet; "
        f"the stream's next start completes it (frazil run {stream})"
    )


def await_commits(spec: StreamSpec, settings: Settings, tables: Callable[[], Tables]) -> None:
    """Wait a moment while a running driver commits a batch to one table after another."""
    deadline, store = time.monotonic() + COMMIT_SECONDS, stream_folder(settings, spec.stream).store
    while half_committed_batch(spec, tables()) is not None and time.monotonic() < deadline:
        lease = read_lease(store, spec.stream)
        if lease is None or not lease.held():
            return
        time.sleep(COMMIT_SECONDS / 40)


def restored_problems(spec: StreamSpec, tables: Tables) -> list[AuditProblem]:
    """Tables that were restored from older metadata, each with the records that it therefore lacks.

    Args:
        tables: Existing tables of the stream.
    """
    stamps = {name: history(metadata, spec.stream).newest for name, metadata in tables.items()}
    uuids = {name: str(metadata.table_uuid) for name, metadata in tables.items()}
    found: list[AuditProblem] = []
    for name in restored_tables(stamps, spec.coordinator, uuids):
        sentence = (
            "it was restored from older metadata and lacks these commits, and nobody has answered. Next: frazil accept "
            f"{spec.stream} --rollback keep, or reland"
        )
        lost = lost_ranges(stamps, spec.coordinator, name)
        found += [AuditProblem("gap", name, p, at, at.end - at.start, sentence, (at,)) for p, at in lost.items()]
        if not lost:
            found.append(AuditProblem("rolled_back", name, None, None, 0, sentence))
    return found


def unanswered_stops(
    spec: StreamSpec, settings: Settings, tables: Callable[[], Tables], kafka: Callable[[], KafkaLog] | None
) -> tuple[list[AuditProblem], list[str]]:
    """Open questions other than rollbacks; and notes on what could not be checked.

    Args:
        tables: Loads the stream's tables.
        kafka: Connects to Kafka; None: Kafka is not asked.
    """
    there = tables()
    if any(history(metadata, spec.stream).rolled_back for metadata in there.values()):
        # Until a rollback is answered, it is unknown where the stream goes on.
        return [], []
    message = _restarted_sink(spec, there) or _last_error(spec, settings, there)
    notes: list[str] = []
    if message is None and kafka is not None:
        try:
            message = _of_kafka(spec, kafka(), tables)
        except FrazilError as problem:
            notes.append(f"Kafka was not asked whether the stream can go on: {problem.message}")
    if message is None:
        return [], notes
    return [AuditProblem("stopped", spec.table.name, None, None, 0, f"the stream stands stopped: {message}")], notes


def _restarted_sink(spec: StreamSpec, tables: Tables) -> str | None:
    """The stop on a sink that was started again after the takeover, whether or not a driver has met it."""
    if (coordinator := tables.get(spec.coordinator)) is None:
        return None
    try:
        heads = [TableHead(name, spec.branch_of(name), metadata) for name, metadata in tables.items()]
        refuse_restarted_sink(spec.stream, coordinator, heads)
    except SinkRestartedError as problem:
        return _sentence(problem.message, problem.fix)
    return None


def _last_error(spec: StreamSpec, settings: Settings, tables: Tables) -> str | None:
    """The driver's last error, if nothing was landed or answered since."""
    heartbeat = read_heartbeat(stream_folder(settings, spec.stream).store)
    if heartbeat is None or heartbeat.state != "failed" or heartbeat.error is None or not _is_question(heartbeat.error):
        return None
    newest = max((_last_stamped(metadata, spec.stream) for metadata in tables.values()), default=0.0)
    if newest > heartbeat.error.at:
        return None
    since = datetime.fromtimestamp(heartbeat.error.at, UTC)
    return f"{_sentence(heartbeat.error.message, heartbeat.error.fix)} (since {since:%Y-%m-%d %H:%M} UTC)"


def _is_question(error: LastError) -> bool:
    if error.kind != "operator":
        return False
    # A driver of an earlier version does not report it; a question that can be answered names the command.
    return error.question if error.question is not None else "frazil accept" in (error.fix or "")


def _last_stamped(metadata: TableMetadata, stream: str) -> float:
    """Time of the newest existing stamped commit; seconds since 1970, 0 without one."""
    times = {snapshot.snapshot_id: as_landed(snapshot).timestamp_ms / 1000 for snapshot in metadata.snapshots}
    # A claim answers nothing: a driver makes it before it checks whether it may go on.
    landed = (times[each] for each, stamp in stamps_along_main(metadata, stream) if stamp.kind != "claim")
    return next(landed, 0.0)


def _of_kafka(spec: StreamSpec, kafka: KafkaLog, tables: Callable[[], Tables]) -> str | None:
    """Reason why the stream could not begin at its stamps' position, by Kafka's present state; None if it could.

    A working stream moves meanwhile. So the tables are read before Kafka is asked, and once more if its answer does not
    fit them: only a stream that does not move is stuck.
    """
    before = _stands(spec, tables())
    try:
        _begin(spec, kafka, tables())
    except StreamStopped as problem:
        if _stands(spec, tables()) != before:
            return None
        return _sentence(problem.message, problem.fix)
    return None


def _begin(spec: StreamSpec, kafka: KafkaLog, tables: Tables) -> None:
    anchor = spec.coordinator
    newest = newest_stamps(spec, tables)
    stamps = of_known_topics(newest, anchor)
    anchored = stamps.get(anchor)
    if anchored is None:
        return
    log = kafka.state(spec.source)
    known = restart_positions(target_positions(stamps, anchor))
    reached = pointwise_max(stamp.position for stamp in stamps.values() if stamp)
    cut = log_departures(anchored, log, kafka)
    try:
        starting_point(spec.stream, known, anchored, log, known, spec.source.reads, reached, cut)
    except TopicLostError:
        hidden = {partition.topic for partition in known} - set(log.topics)
        if seen := sorted(kafka.identities(sorted(hidden))):
            raise KafkaUnavailableError(f"Kafka lists no topic {', '.join(seen)}, but knows it when asked") from None
        raise


def _stands(spec: StreamSpec, tables: Tables) -> dict[str, Positions]:
    return {name: newest.position for name, newest in newest_stamps(spec, tables).items() if newest}


def _sentence(message: str, fix: str | None) -> str:
    message = " ".join(message.split())
    return f"{message} Next: {' '.join(fix.split())}" if fix else message
