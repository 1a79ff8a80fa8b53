"""Conditions of a deployment that raise alarms: states of streams, failing checks, failed runs, a silent supervisor."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)

from assets import dagster_names
from assets.deployment_assets import SUPERVISOR_KEY
from jobs.base.errors import FrazilError
from jobs.clients.kafka.open_transactions import HANGING_SECONDS
from jobs.clients.state_store.stream_folder import state_store
from jobs.config.redaction import redacted
from jobs.config.services.monitoring import Severity
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.documents.heartbeat import Heartbeat
from jobs.streaming.supervision.state.desired import StreamFiles
from jobs.streaming.supervision.state.observation import Observation, observe
from orchestration.alerts.alarms import (
    ALARM_BY_ID,
    ALARM_BY_STATE,
    Alarm,
    alarm_of_check,
)
from orchestration.jobs.runs import STREAM_TAG
from orchestration.reconcile.decide import decide
from orchestration.reconcile.stream_files import stream_ids
from orchestration.reconcile.stream_state import StreamState, stream_state, unpark_command
from orchestration.reconcile.supervisor_heartbeat import read_supervisor_heartbeat

if TYPE_CHECKING:
    from dagster._core.storage.dagster_run import RunRecord

_PENDING_RUN = "dagster/will_retry"
_FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
# How long a tick reads states of streams. A shared store may need longer for hundreds of them.
STREAM_SECONDS = 15.0
# How long a tick reads checks, and how many with one query.
CHECK_SECONDS, _CHECKS_AT_ONCE = 3.0, 100
# More runs than that do not end within a tick; the rest is read by the next one.
_MOST_RUNS = 500
# A run may be stored a moment after a later one.
_OVERLAP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Condition:
    """Current condition of a stream, or of the deployment.

    Attributes:
        alarm: The alarm that reports the condition.
        stream: Id of the stream; empty if the condition concerns no single stream.
        subject: The part of the stream: a table, a check of an asset, a job; empty for the stream as a whole.
        severity: Severity that the alarm gives it; that of a check that only warns is `warning` at most.
        since: Time of its beginning; seconds since 1970.
        what: Sentence about the event.
        next: The next command.
        page: Path of its page below the address of Dagster's web UI.
    """

    alarm: Alarm
    stream: str
    subject: str
    severity: Severity
    since: float
    what: str
    next: str
    page: str = ""

    @property
    def key(self) -> str:
        """Key that identifies the condition."""
        return f"{self.alarm.id}/{self.stream}/{self.subject}"


@dataclass(slots=True)
class Conditions:
    """The conditions of one moment.

    Attributes:
        by_key: The conditions.
        unknown: Keys of conditions that could not be looked at, so that they count as before.
        unknown_streams: Streams whose state could not be looked at.
        unknown_checks: Subjects of checks whose stream is unknown.
        problems: Reasons for unknown conditions, as sentences.
    """

    by_key: dict[str, Condition] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    unknown_streams: set[str] = field(default_factory=set)
    unknown_checks: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def add(self, conditions: Iterable[Condition]) -> None:
        """Add conditions."""
        self.by_key |= {condition.key: condition for condition in conditions}

    def redact(self, settings: Settings) -> None:
        """Replace the values of secrets in all texts, as these go into the sensor's cursor and into messages."""
        self.by_key = {
            key: replace(condition, what=redacted(settings, condition.what), next=redacted(settings, condition.next))
            for key, condition in self.by_key.items()
        }

    def knows(self, alarm: str, stream: str, key: str) -> bool:
        """Whether a condition of this key would have been seen."""
        of_state = alarm_is_of_state(ALARM_BY_ID[alarm]) and stream in self.unknown_streams
        return key not in self.unknown and key.split("/", 2)[2] not in self.unknown_checks and not of_state


def alarm_is_of_state(alarm: Alarm) -> bool:
    """Whether an alarm follows from a stream's state folder, rather than from checks and runs."""
    return not alarm.checks and alarm.id not in ("contract_broken", "run_failed", "supervisor_silent")


def _condition(
    alarm: str | Alarm, stream: str, since: float, what: str, fix: str | None, *, subject: str = "", page: str = ""
) -> Condition:
    raised = ALARM_BY_ID[alarm] if isinstance(alarm, str) else alarm
    return Condition(
        alarm=raised,
        stream=stream,
        subject=subject,
        severity=raised.severity,
        since=since,
        what=what,
        next=fix or raised.next.format(stream=stream),
        page=page,
    )


def look_at_streams(
    conditions: Conditions,
    files: StreamFiles,
    settings: Settings,
    now: float,
    after: str = "",
    seconds: float = STREAM_SECONDS,
) -> str:
    """Add what the state folders of streams, and the supervisor's newest tick, show.

    Streams that there is no time for count as they were. A tick that takes too long is ended without its cursor, so
    that the next one would send the same messages again.

    Args:
        now: Seconds since 1970.
        after: The stream that was read last by the tick before; empty if all were.
        seconds: Time limit after which no further streams are read.

    Returns:
        The stream that was read last; empty if all were.
    """
    began, last = time.monotonic(), ""
    ordered = stream_ids(files, settings)
    first = bisect_right(ordered, after)
    left = deque([*ordered[first:], *ordered[:first]])
    while left and (not last or time.monotonic() - began < seconds):
        stream = last = left.popleft()
        try:
            observed = observe(stream, files, settings)
            if observed.desired.file == "none" and observed.driver is None:
                # Its file was removed, and nobody waits for it.
                continue
            decision = decide(observed.desired, observed.actual, now)
            stands = stream_state(observed, decision, now)
            if observed.actual.problem:
                conditions.unknown_streams.add(stream)
            conditions.add(stream_conditions(observed, stands, decision.sentence, now))
        except Exception as problem:
            # One stream's trouble is none of the others'.
            conditions.unknown_streams.add(stream)
            conditions.problems.append(f"{stream} cannot be looked at ({type(problem).__name__})")
    conditions.unknown_streams.update(left)
    _look_at_supervisor(conditions, settings, now)
    return last if left else ""


def _look_at_supervisor(conditions: Conditions, settings: Settings, now: float) -> None:
    try:
        note = read_supervisor_heartbeat(state_store(settings))
    except (FrazilError, OSError) as problem:
        conditions.unknown.add(_condition("supervisor_silent", "", now, "", None).key)
        conditions.problems.append(f"the supervisor's newest tick cannot be read ({type(problem).__name__})")
        return
    if note is not None and note.is_silent(now):
        text = f"The sensor frazil_reconcile looked last {note.silent_for(now):.0f} s ago, on {note.host}"
        conditions.add([_condition("supervisor_silent", "", note.at, text, None, page=asset_page(SUPERVISOR_KEY))])


def stream_conditions(observed: Observation, stands: StreamState, sentence: str, now: float) -> Iterator[Condition]:
    """The conditions of one stream by its state folder.

    Args:
        stands: The state of the stream.
        sentence: Sentence with the reason of the state.
        now: Seconds since 1970.
    """
    stream, heartbeat, spec = observed.stream, observed.heartbeat, observed.desired.spec
    page = asset_page(dagster_names.table_key(observed.settings, spec.table.name)) if spec is not None else ""
    if (alarm := ALARM_BY_STATE.get(stands.state)) is not None:
        since = now if stands.since is None else stands.since
        yield _condition(alarm, stream, since, sentence, stands.fix, page=page)
    if heartbeat is not None:
        yield from _of_heartbeat(heartbeat, page, now if stands.lives else None)


def _of_heartbeat(heartbeat: Heartbeat, page: str, now: float | None) -> Iterator[Condition]:
    """The conditions that a heartbeat shows.

    Args:
        now: Seconds since 1970; None for a driver that has ended, whose figures no longer count.
    """
    work = heartbeat.work
    for table, at_ms in sorted(work.parked.items()):
        fix = unpark_command(heartbeat.stream, table)
        letters = work.parked_letters.get(table, 0)
        text = f"Table {table} takes no commits; {letters:,} dead letters were written for it since the driver started"
        yield _condition("table_suspended", heartbeat.stream, at_ms / 1000, text, fix, subject=table, page=page)
    if now is None:
        return
    since = work.undecided_since
    if since is not None and work.total_undecided and now - since > HANGING_SECONDS:
        text = f"{work.total_undecided:,} records wait for the end of a transaction"
        yield _condition("transaction_open", heartbeat.stream, since, text, None, page=page)
    if heartbeat.unpublished_letters and (error := heartbeat.outbox_error) is not None:
        text = f"{heartbeat.unpublished_letters:,} dead letters are not in their topic: {error.message}"
        yield _condition("dead_letters_unpublished", heartbeat.stream, error.at, text, error.fix, page=page)


def look_at_checks(
    conditions: Conditions,
    instance: dg.DagsterInstance,
    keys: Collection[dg.AssetCheckKey],
    streams: Mapping[tuple[str, ...], str],
    after: str = "",
    seconds: float = CHECK_SECONDS,
    *,
    unsure: bool = False,
) -> str:
    """Add the asset checks whose newest evaluation failed; those not read in time count as before.

    Dagster finds the newest evaluation by reading all that it keeps of a check, so the checks are read in turn.

    Args:
        keys: The checks that Dagster has loaded.
        streams: Streams by the path of an asset's key. A check of another asset belongs to a stream whose file was
            removed, and is no condition.
        after: The check that was read last by the tick before; empty if all were.
        seconds: Time limit after which no further checks are read.
        unsure: Whether files cannot be read. A check of another asset counts as it was then.

    Returns:
        The check that was read last; empty if all were.
    """
    began = time.monotonic()
    watched: dict[str, tuple[dg.AssetCheckKey, Alarm]] = {}
    for key in keys:
        if (alarm := alarm_of_check(key.name)) is None:
            continue
        if _stream_of(key, streams):
            watched[_subject(key)] = key, alarm
        elif unsure:
            conditions.unknown_checks.add(_subject(key))
    ordered = sorted(watched)
    first = bisect_right(ordered, after)
    left = deque([*ordered[first:], *ordered[:first]])
    last = ""
    while left and (not last or time.monotonic() - began < seconds):
        part = [left.popleft() for _ in range(min(len(left), _CHECKS_AT_ONCE))]
        asked = [watched[subject][0] for subject in part]
        records = instance.event_log_storage.get_latest_asset_check_execution_by_key(asked)
        for key, record in records.items():
            _add_check(conditions, key, record, watched[_subject(key)][1], _stream_of(key, streams))
        last = part[-1]
    for subject in left:
        key, alarm = watched[subject]
        conditions.unknown.add(f"{alarm.id}/{_stream_of(key, streams)}/{subject}")
    return last if left else ""


def _subject(key: dg.AssetCheckKey) -> str:
    return f"{'/'.join(key.asset_key.path)}:{key.name}"


def _stream_of(key: dg.AssetCheckKey, streams: Mapping[tuple[str, ...], str]) -> str:
    path = tuple(key.asset_key.path)
    return streams.get(path) or streams.get(path[:-1], "")


def _add_check(
    conditions: Conditions, key: dg.AssetCheckKey, record: AssetCheckExecutionRecord, alarm: Alarm, stream: str
) -> None:
    subject, result = _subject(key), record.evaluation
    if record.status is AssetCheckExecutionRecordStatus.PLANNED or result is None or record.event is None:
        # It is being evaluated, or its run ended before it was.
        conditions.unknown.add(f"{alarm.id}/{stream}/{subject}")
    elif record.status is AssetCheckExecutionRecordStatus.FAILED:
        text, _, fix = (result.description or f"The check {key.name} failed").rpartition(" Next: ")
        raised = _condition(
            alarm,
            stream,
            record.event.timestamp,
            text or fix,
            fix if text else None,
            subject=subject,
            page=f"{asset_page(key.asset_key)}?view=checks",
        )
        if result.severity is dg.AssetCheckSeverity.WARN and alarm.severity == "critical":
            raised = replace(raised, severity="warning")
        conditions.add([raised])


def look_at_runs(
    conditions: Conditions,
    instance: dg.DagsterInstance,
    jobs: Collection[str],
    streams: Mapping[tuple[str, ...], str],
    after: float,
    location: str | None = None,
) -> tuple[set[str], float]:
    """Add the runs that have failed since, unless one of the same job and stream has succeeded after them.

    Args:
        jobs: Names of frazil's jobs.
        streams: Streams by the path of an asset's key.
        after: Seconds since 1970.
        location: Name of the code location. Only its runs count: other locations have jobs of the same names, such as

    Returns:
        Keys of the conditions that a later run has ended, and when the newest of the runs was updated.
    """
    since = dg.RunsFilter(statuses=_FINISHED, updated_after=datetime.fromtimestamp(after - _OVERLAP_SECONDS, UTC))
    records = instance.get_run_records(since, limit=_MOST_RUNS, order_by="update_timestamp", ascending=True)
    ended: set[str] = set()
    newest = after
    for record in records:
        newest = max(newest, record.update_timestamp.replace(tzinfo=UTC).timestamp())
        run = record.dagster_run
        if run.job_name not in jobs or run.tags.get(_PENDING_RUN) == "true" or not _is_of_location(run, location):
            continue
        condition = _failed_run(record, streams)
        if run.status is dg.DagsterRunStatus.FAILURE:
            conditions.add([condition])
            ended.discard(condition.key)
        else:
            conditions.by_key.pop(condition.key, None)
            ended.add(condition.key)
    return ended, newest


def _is_of_location(run: dg.DagsterRun, location: str | None) -> bool:
    origin = run.remote_job_origin
    return location is None or origin is None or origin.location_name == location


def _failed_run(record: RunRecord, streams: Mapping[tuple[str, ...], str]) -> Condition:
    run = record.dagster_run
    selected = [*(run.asset_selection or ()), *(check.asset_key for check in run.asset_check_selection or ())]
    of_assets = {streams.get(tuple(key.path), "") for key in selected}
    stream = run.tags.get(STREAM_TAG, "") or (of_assets.pop() if len(of_assets) == 1 else "")
    at = record.end_time or record.update_timestamp.replace(tzinfo=UTC).timestamp()
    text = f"Run {run.run_id[:8]} of job {run.job_name} failed"
    return _condition("run_failed", stream, at, text, None, subject=run.job_name, page=f"/runs/{run.run_id}")


def asset_page(key: dg.AssetKey) -> str:
    """Path of an asset's page below the address of Dagster's web UI."""
    return f"/assets/{'/'.join(key.path)}"


def streams_by_asset(specs: Iterable[StreamSpec], settings: Settings) -> dict[tuple[str, ...], str]:
    """Streams by the paths of their assets' keys: tables, dead letters and mirrors.

    Assets for a table's closed hours or days have the table's path with one more part.
    """
    streams: dict[tuple[str, ...], str] = {}
    for spec in specs:
        tables = [*spec.target_names, *(mirror.table for _, mirror in spec.mirrored)]
        if spec.route is not None and spec.route.to is not None:
            tables.append(spec.route.to)
        streams |= {tuple(dagster_names.table_key(settings, table).path): spec.stream for table in tables}
    return streams
