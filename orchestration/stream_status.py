"""How a stream stands: its lease, its stamps, the end of its topics. Starts no JVM; does without any of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.commit.history import history, stamps_along_main
from jobs.commit.offsets import TopicPartition
from jobs.commit.stamps import Stamp
from jobs.errors import FrazilError
from jobs.runtime.kafka_log import KafkaLog
from jobs.runtime.lease import Lease, LeaseRecord
from jobs.runtime.open_stream import stream_folder
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from orchestration.live import NoCatalogYet, find_table


@dataclass(slots=True)
class StreamStatus:
    """What is known of a stream now; None where it could not be found out, and `unknown` says why.

    Attributes:
        state: `running`, `idle`, or `never ran`.
        holder: Process and host of the driver, while it runs.
        position: Next offset per partition.
        lag: Records between the position and the end of the log.
        rows: Of the table, whoever wrote them.
        dead: Rows of the dead-letter table.
        complete_through: Every record with an older timestamp is in the table.
        unknown: By the name of the part, why it is not known.
    """

    stream: str
    table: str
    dead_letter_table: str
    state: str = "never ran"
    holder: str | None = None
    epoch: int | None = None
    batch: int | None = None
    position: dict[TopicPartition, int] = field(default_factory=dict)
    lag: int | None = None
    rows: int | None = None
    dead: int | None = None
    last_commit: datetime | None = None
    complete_through: datetime | None = None
    unknown: dict[str, str] = field(default_factory=dict)


def stream_status(
    spec: StreamSpec, settings: Settings, catalog: Catalog | FrazilError, kafka: KafkaLog | FrazilError
) -> StreamStatus:
    """Find out how a stream stands.

    Args:
        spec: The stream.
        settings: Where its state is.
        catalog: The catalog, or why there is none.
        kafka: The broker, or why there is none.
    """
    status = StreamStatus(spec.stream, spec.table.name, spec.dead_letter_table)
    _look_at_lease(status, settings)
    if isinstance(catalog, NoCatalogYet):
        pass
    elif isinstance(catalog, FrazilError):
        status.unknown["catalog"] = catalog.message
    else:
        _attempt(status, "catalog", lambda: _look_at_tables(status, catalog))
    if isinstance(kafka, FrazilError):
        status.unknown["kafka"] = kafka.message
    elif "catalog" not in status.unknown:
        _attempt(status, "kafka", lambda: _look_at_log(status, spec, kafka))
    return status


def _attempt(status: StreamStatus, part: str, look: Callable[[], None]) -> None:
    try:
        look()
    except FrazilError as problem:
        status.unknown[part] = problem.message


def read_lease(settings: Settings, stream: str) -> LeaseRecord | None:
    """Who runs or last ran a stream, without making its state folder."""
    folder = stream_folder(settings, stream).root
    return Lease(folder, stream, settings.lease_ttl.total_seconds()).read() if folder.is_dir() else None


def _look_at_lease(status: StreamStatus, settings: Settings) -> None:
    lease = read_lease(settings, status.stream)
    if lease is None:
        return
    status.epoch = lease.epoch
    status.state = "running" if lease.held() else "idle"
    if status.state == "running":
        status.holder = f"process {lease.pid} on {lease.host}"


def _look_at_tables(status: StreamStatus, catalog: Catalog) -> None:
    table = find_table(catalog, status.table)
    if table is None:
        return
    newest = history(table.metadata, status.stream).newest
    if newest is not None:
        if status.state == "never ran":
            status.state = "idle"
        status.epoch = max(newest.epoch, status.epoch or 0)
        status.batch = newest.batch if newest.batch >= 0 else None
        status.position = dict(newest.position)
        if newest.valid_through_ms is not None:
            status.complete_through = _instant(newest.valid_through_ms)
    status.rows = total_rows(table)
    status.last_commit = last_commit(table, status.stream)
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
    status.lag = sum(max(0, end - begin[at]) for at, end in kafka.latest(partitions).items())


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


def _instant(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)


def status_facts(status: StreamStatus) -> dict[str, Any]:
    """As `frazil status --json` prints it: the position by topic and partition, times in UTC."""
    topics: dict[str, dict[str, int]] = {}
    for at, offset in sorted(status.position.items()):
        topics.setdefault(at.topic, {})[str(at.partition)] = offset
    return {
        "stream": status.stream,
        "table": status.table,
        "dead_letter_table": status.dead_letter_table,
        "state": status.state,
        "holder": status.holder,
        "epoch": status.epoch,
        "batch": status.batch,
        "position": topics,
        "records_passed": sum(status.position.values()),
        "lag": status.lag,
        "rows": status.rows,
        "dead": status.dead,
        "last_commit": status.last_commit and status.last_commit.isoformat(timespec="milliseconds"),
        "complete_through": status.complete_through and status.complete_through.isoformat(timespec="milliseconds"),
        "unknown": status.unknown,
    }
