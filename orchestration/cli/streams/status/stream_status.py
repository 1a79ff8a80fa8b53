"""Status of a stream as data for `frazil status`, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from jobs.clients.kafka.open_transactions import HANGING_SECONDS
from jobs.streaming.supervision.documents.control_request import ControlRequest
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, LastError, Work
from jobs.streaming.supervision.documents.measures import OF_DRIVER, OF_WORK, Measure
from jobs.tables.commit.stamp.event_times import as_datetime
from jobs.tables.commit.stamp.offsets import by_topic

if TYPE_CHECKING:
    from jobs.quality.incremental_scan.validated_position import ValidatedPosition
    from jobs.quality.publishing.main_freshness import BranchAhead, MainFreshness
    from jobs.streaming.driver.context.unknown_fields import UnknownFields


@dataclass(slots=True)
class Launched:
    """Launched configuration. The fields are keys of the JSON form.

    Attributes:
        generation: Generation of the configuration that runs, or ran last.
        wanted_generation: Generation of the configuration in the file.
        attempt: Number of the newest launch.
        failures_in_a_row: Number of consecutive failed launches before the newest one.
    """

    generation: str | None = None
    wanted_generation: str | None = None
    attempt: int | None = None
    failures_in_a_row: int = 0


@dataclass(slots=True)
class Process:
    """Process of the driver. The fields are keys of `driver` in the JSON form."""

    pid: int | None = None
    host: str | None = None
    launcher: str | None = None
    handle: str | None = None
    since: datetime | None = None
    uptime_seconds: float | None = None
    beat_age_seconds: float | None = None
    log: str | None = None
    spark_ui: str | None = None
    metrics: str | None = None


@dataclass(slots=True)
class Freshness:
    """Freshness of the tables. For a stream with publication, the figures are those of its branch.

    Attributes:
        through: Time up to which all records have landed, in seconds since 1970.
        watermark: Event time before which no more records are expected, in seconds since 1970.
        event_times: Least and greatest event time of the newest batch with event times.
        main: Freshness of main, for a stream that publishes from a branch.
    """

    through: float | None = None
    watermark: float | None = None
    event_times: tuple[datetime, datetime] | None = None
    main: MainFreshness | None = None

    @property
    def complete_through(self) -> float | None:
        """Time through which the tables are complete for their readers; seconds since 1970."""
        return self.main.through(self.through) if self.main else self.through

    @property
    def readers_watermark(self) -> float | None:
        """Watermark of the rows that readers see; seconds since 1970."""
        return self.main.watermark(self.watermark) if self.main else self.watermark


@dataclass(slots=True)
class Parked:
    """Suspension of a table: its beginning, and the number of dead letters for the table."""

    since: datetime
    dead_letters: int


@dataclass(slots=True)
class Tables:
    """Contents of the tables. The fields are keys of the JSON form.

    Attributes:
        rows: Number of rows in the main table, whoever wrote them.
        tables: Number of tables with rows of a stream with outputs, dynamic tables included.
        landed: Number of its records that landed in any of these tables, or wait for a suspended one.
        parked: Its suspended tables, by name.
        dead: Number of rows in the dead-letter table.
        topics_without_id: Topics to which the brokers give no id; None if not looked up.
    """

    rows: int | None = None
    tables: int | None = None
    landed: int | None = None
    parked: dict[str, Parked] = field(default_factory=dict)
    dead: int | None = None
    topics_without_id: tuple[str, ...] | None = None


@dataclass(slots=True)
class Undeclared:
    """Keys that the schema does not declare, under the current configuration.

    Attributes:
        known: The undeclared keys; None if unknown.
        unexpected: Paths of keys that the file does not leave out on purpose.
        facts: All undeclared keys as JSON.
    """

    known: UnknownFields | None = None
    unexpected: list[str] = field(default_factory=list)
    facts: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class StreamStatus:
    """Current status of a stream. A figure that could not be read is None, and `unknown` has the reason.

    Attributes:
        state: State in one word, see `orchestration.reconcile.stream_state`.
        fix: The next command.
        holder: Process and host of the driver, or of the stream's one-off run.
        group: Driver group that the stream runs in.
        control: The operator's request.
        file_problem: Problem of the stream's file.
        decision: Decision of the supervisor's last tick about the stream.
        beat: The newest heartbeat, even of a driver that has ended.
        work: Work of the running driver; without one, the figures come from tables and topics.
        ahead: Distance of a publishing stream's branch from main.
        last_check: Position and result of the main table's last contract check.
        last_checks: Positions and results of the other tables' last contract checks, by name.
        unknown: Reasons why parts are unknown, by the part's name.
    """

    stream: str
    table: str
    dead_letter_table: str
    state: str = "never ran"
    fix: str | None = None
    holder: str | None = None
    group: str | None = None
    control: ControlRequest = field(default_factory=ControlRequest)
    file_problem: str | None = None
    decision: str | None = None
    epoch: int | None = None
    beat: Heartbeat | None = None
    work: Work = field(default_factory=Work)
    launched: Launched = field(default_factory=Launched)
    process: Process = field(default_factory=Process)
    freshness: Freshness = field(default_factory=Freshness)
    tables: Tables = field(default_factory=Tables)
    undeclared: Undeclared = field(default_factory=Undeclared)
    ahead: BranchAhead | None = None
    last_check: ValidatedPosition | None = None
    last_checks: dict[str, ValidatedPosition] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)

    def learn(self, **figures: Any) -> None:
        """Set figures of the work from tables or topics."""
        self.work = msgspec.structs.replace(self.work, **figures)

    @property
    def error(self) -> LastError | None:
        """Error of the newest driver."""
        return self.beat and self.beat.error

    @property
    def hangs(self) -> bool:
        """Whether records wait longer for the end of a transaction than brokers keep one open."""
        since, waiting = self.work.undecided_since, self.work.total_undecided
        return bool(waiting) and since is not None and datetime.now(UTC).timestamp() - since > HANGING_SECONDS

    @property
    def driven(self) -> bool:
        """Whether a running driver's heartbeat has the stream's position, so that no service is asked."""
        return self.process.since is not None and bool(self.work.position)


def status_facts(status: StreamStatus) -> dict[str, Any]:
    """Status as JSON, with offsets by topic and partition, and times in UTC."""
    error, beat, ahead, freshness = status.error, status.beat, status.ahead, status.freshness
    known = status.undeclared.known
    return _plain(
        {
            "stream": status.stream,
            "table": status.table,
            "dead_letter_table": status.dead_letter_table,
            "state": status.state,
            "next": status.fix,
            "wish": {"state": status.control.mode, "by": status.control.by, "reason": status.control.reason},
            "holder": status.holder,
            "group": status.group,
            **_plain(status.launched),
            "driver": status.process,
            "error": error and _error_facts(error),
            "file_problem": status.file_problem,
            "supervisor": status.decision,
            "epoch": status.epoch,
            **{each.status: _figure(each, each.source(status.work)) for each in OF_WORK if each.status},
            **{each.status: beat and _figure(each, each.source(beat)) for each in OF_DRIVER if each.status},
            "records_passed": sum(sum(partitions.values()) for partitions in status.work.position.values()),
            **_plain(status.tables),
            "branch": ahead and _branch_facts(ahead, freshness),
            "unknown_fields": {
                "since": known and utc(known.since),
                "records_landed": known and known.landed,
                "fields": status.undeclared.facts,
            },
            "outbox_error": beat and beat.outbox_error and beat.outbox_error.message,
            "complete_through": utc(freshness.complete_through),
            "watermark": utc(freshness.readers_watermark),
            "newest_event_times": freshness.event_times,
            "last_check": status.last_check and _check_facts(status.last_check),
            "last_checks": {table: _check_facts(check) for table, check in status.last_checks.items()},
            "unknown": status.unknown,
        }
    )


def _error_facts(error: LastError) -> dict[str, Any]:
    told = {"message": error.message, "kind": error.kind, "at": utc(error.at)}
    return told | {"next": error.fix, "trace": error.trace}


def _figure(measure: Measure[Any], value: Any) -> Any:
    return utc(value) if measure.is_time else value


def _branch_facts(ahead: BranchAhead, freshness: Freshness) -> dict[str, Any]:
    gated = freshness.main is not None
    return {
        "name": ahead.branch,
        "unpublished_rows": ahead.rows,
        "unpublished_snapshots": ahead.snapshots,
        "unpublished_since": ahead.since,
        "complete_through": utc(freshness.through) if gated else None,
        "watermark": utc(freshness.watermark) if gated else None,
        "held": ahead.held
        and {
            "rows": ahead.held.rows,
            "from": by_topic({at: offsets.start for at, offsets in ahead.held.ranges.items()}),
            "to": by_topic({at: offsets.end for at, offsets in ahead.held.ranges.items()}),
            "since": ahead.held.since,
            "reasons": ahead.held.reasons,
        },
    }


def _check_facts(check: ValidatedPosition) -> dict[str, Any]:
    figures = {name: getattr(check.summary, name) for name in ("rows", "expectations", "failed")}
    return {"at": check.at, "through_snapshot": check.snapshot_id, **figures}


def utc(seconds: float | None) -> datetime | None:
    """Time in UTC from seconds since 1970."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def event_span(span_ms: tuple[int, int]) -> tuple[datetime, datetime] | None:
    """Least and greatest event time from milliseconds since 1970; None if one exceeds Python's calendar."""
    least, greatest = map(as_datetime, span_ms)
    return None if least is None or greatest is None else (least, greatest)


def _plain(value: Any) -> Any:
    """Value for JSON: dataclasses become objects, and times become text."""
    if is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    match value:
        case datetime():
            return value.isoformat(timespec="milliseconds")
        case Mapping():
            return {key: _plain(part) for key, part in value.items()}
        case list() | tuple():
            return [_plain(part) for part in value]
        case _:
            return value
