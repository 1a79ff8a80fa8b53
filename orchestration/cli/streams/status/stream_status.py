"""Status of a stream as data: what `frazil status` knows of it, and its JSON form."""

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
    """Which configuration was launched. The fields are keys of the JSON form.

    Attributes:
        generation: Of the configuration that runs, or ran last; `wanted_generation` that of the file.
        failures_in_a_row: Launches before the newest one that failed in a row.
    """

    generation: str | None = None
    wanted_generation: str | None = None
    attempt: int | None = None
    failures_in_a_row: int = 0


@dataclass(slots=True)
class Process:
    """Where the driver runs, and since when. The fields are keys of `driver` in the JSON form."""

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
    """How fresh the tables are, of a gated stream first as its branch has them.

    Attributes:
        through: Every record that had come by then is there; seconds since 1970, as the next one.
        watermark: No record with an earlier event time is awaited any more.
        event_times: The least and the greatest event time of the newest batch with any.
        main: Of a gated stream, what main lacks of its branch.
    """

    through: float | None = None
    watermark: float | None = None
    event_times: tuple[datetime, datetime] | None = None
    main: MainFreshness | None = None

    @property
    def complete_through(self) -> float | None:
        """Through when the tables are complete for their readers; seconds since 1970."""
        return self.main.through(self.through) if self.main else self.through

    @property
    def readers_watermark(self) -> float | None:
        """The watermark of what the readers have; seconds since 1970."""
        return self.main.watermark(self.watermark) if self.main else self.watermark


@dataclass(slots=True)
class Parked:
    """Since when a table is parked, and how many dead letters were made for it."""

    since: datetime
    dead_letters: int


@dataclass(slots=True)
class Tables:
    """What the tables hold. The fields are keys of the JSON form.

    Attributes:
        rows: Of the table, whoever wrote them.
        tables: Of a stream with a route, how many tables it has for rows, those that values have named among them.
        landed: Of such a stream, the records that became rows of any, or wait for one that is parked.
        parked: Of such a stream, its tables that are parked.
        dead: Rows of the dead-letter table.
        topics_without_id: Topics that the brokers give no id; None if that was not looked up.
    """

    rows: int | None = None
    tables: int | None = None
    landed: int | None = None
    parked: dict[str, Parked] = field(default_factory=dict)
    dead: int | None = None
    topics_without_id: tuple[str, ...] | None = None


@dataclass(slots=True)
class Undeclared:
    """Keys that the schema does not declare, under the present configuration.

    Attributes:
        unexpected: Those that the file does not leave out on purpose.
        facts: All of them as data.
    """

    known: UnknownFields | None = None
    unexpected: list[str] = field(default_factory=list)
    facts: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class StreamStatus:
    """What is known of a stream now; None where it could not be found out, and `unknown` says why.

    Attributes:
        state: One word, see `orchestration.reconcile.stream_state`.
        fix: The next command.
        holder: Process and host of the driver, or of what drains the stream.
        group: The group whose driver it is.
        control: What its operator wants.
        file_problem: What is wrong with the stream's file.
        decision: What the supervisor's last tick made of the stream.
        beat: The newest heartbeat, also of a driver that has ended.
        work: What the driver that lives has done. Where none lives, what the tables and the topics say of it.
        ahead: How far the branch of a gated stream is ahead of main.
        last_check: How far the table is checked against the stream's contract, and what that came to.
        last_checks: The same of the other tables of a route, by name, of those that the contract is about.
        unknown: By the name of the part, why it is not known.
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
        """Take figures of the work from the tables or the topics."""
        self.work = msgspec.structs.replace(self.work, **figures)

    @property
    def error(self) -> LastError | None:
        """The newest driver's error."""
        return self.beat and self.beat.error

    @property
    def hangs(self) -> bool:
        """Whether records have waited for the end of a transaction for longer than brokers let one be open."""
        since, waiting = self.work.undecided_since, self.work.total_undecided
        return bool(waiting) and since is not None and datetime.now(UTC).timestamp() - since > HANGING_SECONDS

    @property
    def driven(self) -> bool:
        """Whether a live driver's heartbeat says where the stream stands, so that nothing else need be asked."""
        return self.process.since is not None and bool(self.work.position)


def status_facts(status: StreamStatus) -> dict[str, Any]:
    """Offsets by topic and partition, times in UTC."""
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
    """A moment in UTC, from seconds since 1970."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def event_span(span_ms: tuple[int, int]) -> tuple[datetime, datetime] | None:
    """The least and the greatest event time, from milliseconds since 1970; None if one is beyond Python's calendar."""
    least, greatest = map(as_datetime, span_ms)
    return None if least is None or greatest is None else (least, greatest)


def _plain(value: Any) -> Any:
    """A value as JSON has it: groups of fields as objects, times as text."""
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
