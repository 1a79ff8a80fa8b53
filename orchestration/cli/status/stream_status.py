"""Status of a stream as data: what `frazil status` knows of it, and its JSON form."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from jobs.commit.lateness import LATENESS_NAMES, NONE_LATE, Lateness
from jobs.commit.offsets import TopicPartition, by_topic
from jobs.increment.validated_position import ValidatedPosition
from jobs.kafka.open_transactions import HANGING_SECONDS
from jobs.publish.ahead import BranchAhead
from jobs.publish.main_freshness import MainFreshness
from jobs.stream.unknown_fields import UnknownFields
from jobs.supervise.heartbeat import LastError


@dataclass(slots=True)
class StreamStatus:
    """What is known of a stream now; None where it could not be found out, and `unknown` says why.

    Attributes:
        state: One word, see `orchestration.reconcile.stream_state`.
        holder: Process and host of the driver, or of what drains the stream.
        group: The group whose driver it is.
        wish: What its operator wants; `wished_by` and `wished_for` say who, and why.
        generation: Of the configuration that runs, or ran last; `wanted_generation` that of the file.
        failures: Launches before the newest one that failed in a row.
        position: Next offset per partition.
        lag: Records between the position and the end of the log; `lag_by` per partition.
        undecided_records: Records of open transactions behind that end; `undecided_since` when the one that has waited
            longest was first seen, by a driver's word.
        topics_without_id: Topics that the brokers give no id; None if that was not looked up.
        rate: Records read per second within the last minutes.
        rows: Of the table, whoever wrote them.
        tables: Of a stream with a route, how many tables it has for rows, those that values have named among them.
        landed: Of such a stream, the records that became rows of any, or wait for one that is parked.
        parked: Of such a stream, its tables that are parked: since when, and how many dead letters were made for each.
        dead: Rows of the dead-letter table; `reasons` those since the driver started, by error class.
        unknown_fields: Keys that the schema does not declare, under the present configuration; `unexpected` those that
            the file does not leave out on purpose, and `unknown_field_facts` all of them as data.
        unpublished_letters: Dead letters that their topic lacks, as the newest driver said; `outbox_error` why.
        complete_through: Every record that had come by then is in the table, of a gated stream in main.
        watermark: No record with an earlier event time is awaited any more, of a gated stream by main; `late` so many
            came later than that, since the driver started, `late_by` by how much, and `latest_ms` the latest of them.
        event_span: The least and the greatest event time of the newest batch with any.
        branch_complete_through, branch_watermark: Of a gated stream, what its branch has.
        main: What main lacks of its branch.
        last_check: How far the table is checked against the stream's contract, and what that came to.
        last_checks: The same of the other tables of a route, by name, of those that the contract is about.
        file_problem: What is wrong with the stream's file.
        error: The newest driver's error; `fix` the next command, for it or for the state.
        decision: What the supervisor's last tick made of the stream.
        unknown: By the name of the part, why it is not known.
    """

    stream: str
    table: str
    dead_letter_table: str
    state: str = "never ran"
    holder: str | None = None
    group: str | None = None
    wish: str = "running"
    wished_by: str = ""
    wished_for: str = ""
    generation: str | None = None
    wanted_generation: str | None = None
    attempt: int | None = None
    failures: int = 0
    pid: int | None = None
    host: str | None = None
    launcher: str | None = None
    handle: str | None = None
    since: datetime | None = None
    beat_age_seconds: float | None = None
    log: str | None = None
    ui_url: str | None = None
    metrics_url: str | None = None
    file_problem: str | None = None
    error: LastError | None = None
    fix: str | None = None
    decision: str | None = None
    epoch: int | None = None
    batch: int | None = None
    position: dict[TopicPartition, int] = field(default_factory=dict)
    lag: int | None = None
    lag_by: dict[TopicPartition, int] = field(default_factory=dict)
    undecided_records: int | None = None
    undecided_since: datetime | None = None
    topics_without_id: tuple[str, ...] | None = None
    rate: float | None = None
    rows: int | None = None
    tables: int | None = None
    landed: int | None = None
    parked: dict[str, tuple[datetime, int]] = field(default_factory=dict)
    dead: int | None = None
    ahead: BranchAhead | None = None
    reasons: dict[str, int] = field(default_factory=dict)
    unknown_fields: UnknownFields | None = None
    unexpected: list[str] = field(default_factory=list)
    unknown_field_facts: list[dict[str, Any]] = field(default_factory=list)
    unpublished_letters: int | None = None
    outbox_error: LastError | None = None
    last_commit: datetime | None = None
    complete_through: datetime | None = None
    watermark: datetime | None = None
    branch_complete_through: datetime | None = None
    branch_watermark: datetime | None = None
    main: MainFreshness | None = None
    late: int | None = None
    late_by: Lateness = NONE_LATE
    latest_ms: int = 0
    event_span: tuple[datetime, datetime] | None = None
    last_check: ValidatedPosition | None = None
    last_checks: dict[str, ValidatedPosition] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)

    @property
    def hangs(self) -> bool:
        """Whether records have waited for the end of a transaction for longer than brokers let one be open."""
        since = self.undecided_since
        return since is not None and (datetime.now(UTC) - since).total_seconds() > HANGING_SECONDS

    @property
    def driven(self) -> bool:
        """Whether a live driver's heartbeat says where the stream stands, so that nothing else need be asked."""
        return self.since is not None and bool(self.position)


def status_facts(status: StreamStatus) -> dict[str, Any]:
    """Offsets by topic and partition, times in UTC."""
    error = status.error
    return {
        "stream": status.stream,
        "table": status.table,
        "dead_letter_table": status.dead_letter_table,
        "state": status.state,
        "next": status.fix,
        "wish": {"state": status.wish, "by": status.wished_by, "reason": status.wished_for},
        "holder": status.holder,
        "group": status.group,
        "generation": status.generation,
        "wanted_generation": status.wanted_generation,
        "attempt": status.attempt,
        "failures_in_a_row": status.failures,
        "driver": {
            "pid": status.pid,
            "host": status.host,
            "launcher": status.launcher,
            "handle": status.handle,
            "since": _time(status.since),
            "uptime_seconds": uptime_seconds(status),
            "beat_age_seconds": status.beat_age_seconds,
            "log": status.log,
            "spark_ui": status.ui_url,
            "metrics": status.metrics_url,
        },
        "error": error
        and {
            "message": error.message,
            "kind": error.kind,
            "at": _time(datetime.fromtimestamp(error.at, UTC)),
            "next": error.fix,
            "trace": error.trace,
        },
        "file_problem": status.file_problem,
        "supervisor": status.decision,
        "epoch": status.epoch,
        "batch": status.batch,
        "position": by_topic(status.position),
        "records_passed": sum(status.position.values()),
        "lag": status.lag,
        "lag_by_partition": by_topic(status.lag_by),
        "undecided_records": status.undecided_records,
        "undecided_since": _time(status.undecided_since),
        "topics_without_id": status.topics_without_id and list(status.topics_without_id),
        "records_per_second": status.rate,
        "rows": status.rows,
        "tables": status.tables,
        "landed": status.landed,
        "parked": {
            name: {"since": _time(since), "dead_letters": letters} for name, (since, letters) in status.parked.items()
        },
        "dead": status.dead,
        "branch": status.ahead
        and {
            "name": status.ahead.branch,
            "unpublished_rows": status.ahead.rows,
            "unpublished_snapshots": status.ahead.snapshots,
            "unpublished_since": _time(status.ahead.since),
            "complete_through": _time(status.branch_complete_through),
            "watermark": _time(status.branch_watermark),
            "held": status.ahead.held
            and {
                "rows": status.ahead.held.rows,
                "from": by_topic({p: range_.start for p, range_ in status.ahead.held.ranges.items()}),
                "to": by_topic({p: range_.end for p, range_ in status.ahead.held.ranges.items()}),
                "since": _time(status.ahead.held.since),
                "reasons": list(status.ahead.held.reasons),
            },
        },
        "dead_letters_by_reason": status.reasons,
        "unknown_fields": {
            "since": status.unknown_fields and _time(datetime.fromtimestamp(status.unknown_fields.since, UTC)),
            "records_landed": status.unknown_fields and status.unknown_fields.landed,
            "fields": status.unknown_field_facts,
        },
        "unpublished_letters": status.unpublished_letters,
        "outbox_error": status.outbox_error and status.outbox_error.message,
        "last_commit": _time(status.last_commit),
        "complete_through": _time(status.complete_through),
        "watermark": _time(status.watermark),
        "records_late": status.late,
        "late_by": None if status.late is None else dict(zip(LATENESS_NAMES, status.late_by, strict=True)),
        "latest_late_seconds": None if status.late is None else status.latest_ms / 1000,
        "newest_event_times": status.event_span and [_time(each) for each in status.event_span],
        "last_check": status.last_check and _check_facts(status.last_check),
        "last_checks": {table: _check_facts(each) for table, each in status.last_checks.items()},
        "unknown": status.unknown,
    }


def _check_facts(check: ValidatedPosition) -> dict[str, Any]:
    summary = check.summary
    return {
        "at": _time(check.at),
        "through_snapshot": check.snapshot_id,
        "rows": summary.rows,
        "expectations": summary.expectations,
        "failed": dict(summary.failed),
    }


def uptime_seconds(status: StreamStatus) -> float | None:
    """How long the driver has been running; None without one."""
    return None if status.since is None else max(0.0, (datetime.now(UTC) - status.since).total_seconds())


def _time(at: datetime | None) -> str | None:
    return at and at.isoformat(timespec="milliseconds")
