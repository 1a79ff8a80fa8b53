"""Asset events reported without a run, at limited rates: snapshots, state, lag, watchdog restarts and checks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from assets import dagster_names
from assets.metadata import (
    branch_metadata,
    dead_letter_ratio,
    figures_metadata,
    in_reading_order,
    instant,
    look_up_metadata,
    snapshot_metadata,
    snapshot_tags,
)
from assets.stream_checks import ADDS_UP, CheckOutcome, adds_up, evaluation
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.context.unknown_fields import UnknownFields
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, Offsets
from jobs.streaming.supervision.documents.launches import Launch
from jobs.streaming.supervision.documents.measures import EVENT_TIMES, LATENESS, PROGRESS
from jobs.streaming.supervision.processes.actual import ActualState
from orchestration.reconcile.assessment import Assessment
from orchestration.reconcile.check_outcomes import with_next_command
from orchestration.reconcile.cursor import CHANGED_SECONDS, LONGEST_SECONDS, StreamCursor, checksum, due, report_seconds
from orchestration.reconcile.lag import Lag, by_event_time
from orchestration.reconcile.landed import Landed, landed_snapshots
from orchestration.reconcile.remote_queries import QueriedTable, RemoteQueries
from orchestration.reconcile.state_metadata import state_metadata
from orchestration.reconcile.stream_state import NEVER_RAN, StreamState
from orchestration.reconcile.table_reports import dead_letter_events, reported_freshness, routed_events

Event = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation

# All checks are reported again after so long, so that none of their figures is older.
CHECKS_SECONDS = 300
# The end of its topics was looked up this recently, or a stream does not count as caught up.
CAUGHT_UP_SECONDS = 120
SUPERVISOR_SECONDS = 120
_SHOWN_FIELDS = 20


def stream_events(
    spec: StreamSpec,
    assessed: Assessment,
    stands: StreamState,
    lag: Lag | None,
    found: Sequence[CheckOutcome],
    memory: StreamCursor,
    remote: RemoteQueries,
    now: float,
) -> Iterator[Event]:
    """The events to report of one stream in this tick; notes in its memory what was reported.

    Dagster shows a check as not evaluated if its asset was materialized since by another run than the one that
    evaluated it; what is reported without a run counts as one run. So all checks follow a materialization, every five
    minutes at most: after a run has materialized the table, as somebody may ask for by hand, those that the run does
    not evaluate may read "Not Evaluated" for so long.

    Args:
        spec: The stream, as its file says or as it was launched.
        stands: The stream's state, which every report of its tables carries.
        lag: The stream's lag, as its driver reports it or as it was looked up.
        found: What its checks say, but for whether its records add up.
        now: Seconds since 1970.
    """
    observed = assessed.observed
    key = dagster_names.table_key(observed.settings, spec.table.name)
    landed = landed_snapshots(spec, observed, stands, lag, memory, remote, now)
    report, facts = _of_table(spec, key, assessed, stands, landed, lag, memory, remote, now)
    if report is not None:
        yield report
        yield from routed_events(spec, observed, stands, landed, report, lag, memory, remote, now)
    yield from _keeper_events(key, observed.actual.launch, memory, now)
    yield from dead_letter_events(spec, observed, stands, landed, memory, remote, now)
    yield from _lags(spec, observed.heartbeat, lag, memory, now)
    told = list(_news(found, memory, now))
    if facts is not None:
        told.append(adds_up(spec.stream, facts.totals))
    elif told and stands.state == NEVER_RAN:
        told.append(CheckOutcome(ADDS_UP, True, "Nothing to check yet: no record has been read.", "none"))
    yield from (evaluation(verdict, key) for verdict in told)


def _news(found: Sequence[CheckOutcome], memory: StreamCursor, now: float) -> Sequence[CheckOutcome]:
    """Checks to report: all, so that their figures agree, if one has changed or five minutes have passed; else none."""
    codes = [checksum(verdict.code) & 0xFFFF for verdict in found]
    if not due(now, memory.checks_at, CHECKS_SECONDS if codes == memory.checks else CHANGED_SECONDS):
        return []
    memory.checks, memory.checks_at = codes, int(now)
    return found


def _of_table(
    spec: StreamSpec,
    key: dg.AssetKey,
    assessed: Assessment,
    stands: StreamState,
    landed: Landed,
    lag: Lag | None,
    memory: StreamCursor,
    remote: RemoteQueries,
    now: float,
) -> tuple[dg.AssetMaterialization | dg.AssetObservation | None, QueriedTable | None]:
    """The report of the stream's table if one is due, and what the table said.

    The table's page in Dagster shows the newest materialization and no observation. So a change of the stream's state
    is reported as a materialization, unless that would make a stale table read as fresh. While a stream is stuck, its
    state is reported as an observation every five minutes.
    """
    actual = assessed.observed.actual
    snapshot = landed.rows
    if gated := spec.publish is not None:
        # Rows on the branch do not count for readers before they are published.
        snapshot = memory.main.snapshot_id if memory.main is not None else None
    is_new = snapshot is not None and snapshot != memory.sink
    is_due = due(now, memory.sink_at, report_seconds(spec)) or (is_new and memory.sink is None)
    fresh = _reads_as_fresh(spec, landed, lag, now)
    published = lag is None or lag.branch is None or lag.branch.unpublished == 0
    at_the_end = fresh and _caught_up(actual) and published
    held = memory.main if memory.main is not None and memory.main.held else None
    code = stands.code if held is None else f"{stands.code}, held"
    news = memory.state_is_new(code, now)
    due_again = due(now, max(memory.sink_at, memory.state_at), LONGEST_SECONDS)
    if not (news or due_again or (is_due and (is_new or at_the_end))):
        return None, None
    memory.state_reported(code, now)
    named = snapshot if is_new else memory.sink
    told = state_metadata(stands, actual.heartbeat) | _work(actual.launch, landed.heartbeat, lag)
    if held is not None:
        told |= {"quarantined": held.held, "next": stands.fix or held.held_fix}
    if not (is_new or at_the_end or (news and (named is not None or held is not None))):
        told = in_reading_order(told)
        return dg.AssetObservation(key, description=_stands(stands), metadata=told, tags=snapshot_tags(named)), None
    facts = remote.table_rows(spec.table.name, spec.stream, named, memory.sink, on_main=gated)
    memory.sink, memory.sink_at = named, int(now)
    told, text = told | _unknown_fields(spec, assessed.unknown_fields), None
    if facts is not None:
        told = told | facts.metadata
    if not is_new:
        told = told | {"records_added": 0}
        text = "Nothing new: the stream is at the end of its topics." if at_the_end else _stands(stands)
    elif not fresh:
        text = "Observed only, so that the table does not count as fresh: it is further behind than freshness.warn."
    elif landed.by_run:
        text = "Landed by a one-off run."
    told = told | snapshot_metadata(named) | look_up_metadata(spec.stream, named, on_main=gated)
    event = dg.AssetMaterialization if fresh else dg.AssetObservation
    return event(key, description=text, metadata=in_reading_order(told), tags=snapshot_tags(named)), facts


def _stands(stands: StreamState) -> str:
    return with_next_command(
        f"The stream is {stands.state}" if stands.state != NEVER_RAN else "It never ran", stands.fix
    )


def _reads_as_fresh(spec: StreamSpec, landed: Landed, lag: Lag | None, now: float) -> bool:
    """Whether a materialization, which is all that Dagster's freshness policies count, would tell the truth."""
    if spec.freshness is None:
        return True
    beat = landed.heartbeat
    through = beat.work.complete_through if beat is not None else None
    if beat is not None and by_event_time(spec):
        through = None if beat.work.watermark_ms is None else beat.work.watermark_ms / 1000
    if beat is None or spec.publish is not None:
        through = lag.judged_through(spec) if lag is not None else None
    return through is not None and now - through <= spec.freshness.warn.total_seconds()


def _keeper_events(
    key: dg.AssetKey, launch: Launch | None, memory: StreamCursor, now: float
) -> Iterator[dg.AssetObservation]:
    """The watchdogs' restarts since the last report; those of a driver that crashes repeatedly are gathered."""
    if launch is None:
        return
    since = memory.kept
    if since is None or launch.kept < since:
        # Restarts of long ago are no news to a supervisor that has just begun.
        memory.kept = launch.kept
        return
    if launch.kept == since or not due(now, memory.kept_at, CHANGED_SECONDS):
        return
    memory.kept, memory.kept_at = launch.kept, int(now)
    count = launch.kept - since
    newest = "; ".join(each.why for each in launch.kept_newest[-count:])
    times = "" if count == 1 else f" {count} times"
    yield dg.AssetObservation(
        key,
        description=f"Its watchdog started the driver again{times}: {newest}.",
        metadata=_keeper_restarts(launch) | {"restarts": count, "attempt": launch.attempt},
    )


def _keeper_restarts(launch: Launch | None) -> dict[str, Any]:
    """Metadata about restarts by watchdogs: their number, and the newest one; empty without restarts."""
    if launch is None or not launch.kept_newest:
        return {}
    newest = launch.kept_newest[-1]
    return {
        "keeper_restarts": launch.kept,
        "keeper_restarted_at": instant(newest.at),
        "keeper_restarted_why": newest.why,
    }


def _caught_up(actual: ActualState) -> bool:
    """Whether a live driver has just looked, and stands at the end of its topics, all transactions included."""
    beat = actual.heartbeat
    if beat is None:
        return False
    work = beat.work
    if not (actual.driver_lives and actual.fresh and beat.state == "running" and work.lag):
        return False
    if not work.knows_lag or work.total_lag or work.total_undecided:
        return False
    return work.lag_at is not None and beat.beat_wall - work.lag_at < CAUGHT_UP_SECONDS


def _work(launch: Launch | None, beat: Heartbeat | None, lag: Lag | None) -> dict[str, Any]:
    """The driver's work; the stream's lag, and when it was looked up."""
    told = _keeper_restarts(launch)
    if lag is not None and lag.records is not None:
        told |= {"consumer_lag_records": lag.records, "lag_as_of": instant(lag.at)}
        if lag.undecided is not None:
            told["undecided_records"] = lag.undecided
    told |= reported_freshness(beat, lag)
    if lag is not None and lag.branch is not None:
        told |= branch_metadata(lag.branch.unpublished, lag.branch.valid_through, lag.branch.watermark)
    if beat is None:
        return told
    recent = beat.work.recent
    told |= dead_letter_ratio(recent.dead, recent.read)
    return told | figures_metadata(beat.work, PROGRESS + EVENT_TIMES + LATENESS)


def _unknown_fields(spec: StreamSpec, known: UnknownFields | None) -> dict[str, Any]:
    """Keys that the schema does not declare, those of most records first."""
    if known is None or known.config != spec.config_hash:
        return {}
    return {"unknown_fields": dg.MetadataValue.json(known.facts(spec.slo)[:_SHOWN_FIELDS])}


def _lags(
    spec: StreamSpec, beat: Heartbeat | None, looked_up: Lag | None, memory: StreamCursor, now: float
) -> Iterator[dg.AssetObservation]:
    """The lag of each topic, where it has changed; of a stream without a driver as it was looked up."""
    lag, at = (beat.work.lag, beat.work.lag_at) if beat is not None and beat.work.knows_lag else ({}, None)
    if looked_up is not None and looked_up.by:
        lag, at = looked_up.by, looked_up.at
    if at is None or not lag:
        return
    told = checksum(json.dumps(lag, sort_keys=True))
    if told == memory.lag or (memory.lag and not due(now, memory.lag_at, report_seconds(spec))):
        return
    memory.lag, memory.lag_at = told, int(now)
    for key, lags in _by_asset(spec, lag).items():
        yield dg.AssetObservation(
            key,
            metadata={
                "stream": spec.stream,
                "consumer_lag_records": sum(sum(partitions.values()) for partitions in lags.values()),
                "lag": dg.MetadataValue.json(lags),
                "looked_up_at": instant(at),
            },
        )


def _by_asset(spec: StreamSpec, lag: Offsets) -> dict[dg.AssetKey, Offsets]:
    keys = dagster_names.topic_keys(spec)
    if spec.source.topics_pattern is not None:
        return {keys[0]: lag}
    return {key: {key.path[-1]: lag[key.path[-1]]} for key in keys if key.path[-1] in lag}
