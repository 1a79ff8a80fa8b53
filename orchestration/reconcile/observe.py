"""What is reported of streams without a run: snapshots, lags and checks; how often at most, `most_events_a_day`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from assets import names
from assets.letters import letter_metadata, letters_waiting
from assets.stream_checks import DESCRIPTIONS, Verdict, adds_up, evaluation
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.supervise.heartbeat import Heartbeat, Offsets
from orchestration.reconcile.facts import Actual
from orchestration.reconcile.kept import keeper_events, keeper_restarts
from orchestration.reconcile.letter_facts import replays_mark
from orchestration.reconcile.lookups import Lookups, TableFacts
from orchestration.reconcile.memory import CHANGED_SECONDS, StreamMemory, checksum, due
from orchestration.reconcile.progress import complete_through
from orchestration.reconcile.standing import Standing, instant, standing_metadata
from orchestration.reconcile.verdicts import Lag, with_next

Event = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation

SHORTEST_SECONDS, LONGEST_SECONDS = 60.0, 300.0
# All checks are told anew, so that none of their figures is older.
CHECKS_SECONDS = 300
# The end of its topics was looked up this recently, or a stream does not count as caught up.
CAUGHT_UP_SECONDS = 120
SUPERVISOR_SECONDS = 120
_DAY = 86_400
_SHOWN_FIELDS = 20


def report_seconds(spec: StreamSpec) -> float:
    """How often a stream's tables and lag are reported at most, and while it is caught up at least."""
    if spec.freshness is None:
        return LONGEST_SECONDS
    # Three reports before the policy warns: one may be late, and one lost.
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, spec.freshness.warn.total_seconds() / 3))


def most_events_a_day(spec: StreamSpec) -> dict[str, int]:
    """The most events that a day of one stream writes, by kind; a quiet one writes `table` and `checks`."""
    reports = math.ceil(_DAY / report_seconds(spec))
    return {
        "table": reports,
        # A change of its state is told at once.
        "table_flapping": _DAY // CHANGED_SECONDS,
        "dead_letters": reports,
        "lag": len(names.topic_keys(spec)) * reports,
        # Whether the records add up is told with each report, since the table has been asked anyhow; how many letters
        # wait with each report of those.
        "checks": len(DESCRIPTIONS) * (_DAY // CHECKS_SECONDS) + 2 * reports,
        "checks_flapping": len(DESCRIPTIONS) * _DAY // CHANGED_SECONDS,
    }


def stream_events(
    spec: StreamSpec,
    settings: Settings,
    actual: Actual,
    stands: Standing,
    lag: Lag | None,
    found: Sequence[Verdict],
    memory: StreamMemory,
    lookups: Lookups,
    now: float,
) -> Iterator[Event]:
    """What there is to report of one stream in this tick; notes in its memory what was reported.

    Dagster shows a check as not evaluated if its asset was materialized since by another run than the one that
    evaluated it; what is reported without a run counts as one run. So all checks follow a materialization, every five
    minutes at most: after a run has materialized the table, as somebody may ask for by hand, those that the run does
    not evaluate may read "Not Evaluated" for so long.

    Args:
        spec: The stream, as its file says or as it was launched.
        stands: Its state, which every report of its tables carries.
        lag: How far it is behind, as its driver says or as it was looked up.
        found: What its checks say, but for whether its records add up.
        lookups: Where a table's rows are asked for.
        now: Seconds since 1970.
    """
    beat = actual.beat
    key = names.table_key(settings, spec.table.name)
    report, facts = _of_table(spec, key, actual, stands, lag, memory, lookups, now)
    if report is not None:
        yield report
    yield from keeper_events(key, actual, memory, now)
    yield from _of_dead_letters(spec, settings, actual, stands, memory, lookups, now)
    yield from _lags(spec, beat, lag, memory, now)
    told = list(_news(found, memory, now))
    if facts is not None:
        told.append(adds_up(spec.stream, facts.totals))
    yield from (evaluation(verdict, key) for verdict in told)


def _news(found: Sequence[Verdict], memory: StreamMemory, now: float) -> Sequence[Verdict]:
    """All checks where one says something else than last time, so that their figures agree; and every five minutes."""
    codes = [checksum(verdict.code) & 0xFFFF for verdict in found]
    if not due(now, memory.checks_at, CHECKS_SECONDS if codes == memory.checks else CHANGED_SECONDS):
        return []
    memory.checks, memory.checks_at = codes, int(now)
    return found


def _of_table(
    spec: StreamSpec,
    key: dg.AssetKey,
    actual: Actual,
    stands: Standing,
    lag: Lag | None,
    memory: StreamMemory,
    lookups: Lookups,
    now: float,
) -> tuple[dg.AssetMaterialization | dg.AssetObservation | None, TableFacts | None]:
    """The report of the stream's table if one is due, and what the table said.

    The table's page in Dagster shows the newest materialization and no observation. So a change of the stream's state
    is told as a materialization, unless that would make a table read as fresh that is not. While a stream does not get
    on, how it stands is observed every five minutes.
    """
    snapshot = actual.beat.work.snapshot_id if actual.beat is not None else None
    is_new = snapshot is not None and snapshot != memory.sink
    is_due = due(now, memory.sink_at, report_seconds(spec)) or (is_new and memory.sink is None)
    fresh = _reads_as_fresh(spec, actual, now)
    at_the_end = fresh and _caught_up(actual)
    news = memory.news_of_state(stands.code, now)
    due_again = due(now, max(memory.sink_at, memory.state_at), LONGEST_SECONDS)
    if not (news or due_again or (is_due and (is_new or at_the_end))):
        return None, None
    memory.told_state(stands.code, now)
    named = snapshot if is_new else memory.sink
    told = standing_metadata(stands, actual) | _work(actual, lag)
    if not (is_new or at_the_end or (news and named is not None)):
        return dg.AssetObservation(key, description=_stands(stands), metadata=told, tags=_version(named)), None
    facts = lookups.table(spec.table.name, spec.stream, named, memory.sink)
    memory.sink, memory.sink_at = named, int(now)
    told, text = told | _facts(facts) | _unknown_fields(spec, actual), None
    if not is_new:
        told = told | {"records_added": 0}
        text = "Nothing new: the stream stands at the end of its topics." if at_the_end else _stands(stands)
    elif not fresh:
        text = "Observed only, so that the table does not read as fresh: it is further behind than freshness.warn."
    event = dg.AssetMaterialization if fresh else dg.AssetObservation
    return event(key, description=text, metadata=told | _named(named), tags=_version(named)), facts


def _stands(stands: Standing) -> str:
    return with_next(f"The stream is {stands.state}" if stands.state != "never ran" else "It never ran", stands.fix)


def _reads_as_fresh(spec: StreamSpec, actual: Actual, now: float) -> bool:
    """Whether a materialization, which is all that Dagster's freshness policies count, would tell the truth."""
    if spec.freshness is None:
        return True
    through = complete_through(actual.beat)
    return through is not None and now - through <= spec.freshness.warn.total_seconds()


def _of_dead_letters(
    spec: StreamSpec,
    settings: Settings,
    actual: Actual,
    stands: Standing,
    memory: StreamMemory,
    lookups: Lookups,
    now: float,
) -> Iterator[Event]:
    """The report of the stream's letters, if there are new ones or a replay was at work, and what their check says."""
    beat = actual.beat
    snapshot = beat.work.dead_letter_snapshot_id if beat is not None else None
    is_new = snapshot is not None and snapshot != memory.dead
    life = replays_mark(settings, spec.stream)
    if not (is_new or life != memory.life or memory.uncounted) or not due(now, memory.dead_at, report_seconds(spec)):
        return
    table = lookups.table(spec.dead_letter_table, spec.stream, snapshot, memory.dead) if is_new else None
    counted = lookups.letters(spec)
    key = names.table_key(settings, spec.dead_letter_table)
    newest = lookups.loaded(spec.dead_letter_table)
    told_of = counted.tally.snapshot_id if counted is not None else None
    memory.uncounted = newest is not None and told_of != newest.metadata.current_snapshot_id
    memory.life, memory.dead_at = life, int(now)
    memory.dead = snapshot if snapshot is not None else memory.dead
    if not is_new and counted is None:
        return
    named = counted.tally.snapshot_id if counted is not None else snapshot
    told = letter_metadata(counted.tally) if counted is not None else {}
    # A count that took long may tell of an earlier snapshot.
    earlier = newest.snapshot_by_id(told_of) if memory.uncounted and newest is not None and told_of else None
    counted_at = now if earlier is None else earlier.timestamp_ms / 1000
    if counted is not None:
        told["letters_as_of"] = instant(counted_at)
    told |= standing_metadata(stands, actual) | _named(named) | _facts(table)
    if beat is not None:
        told |= {"records_dead": beat.work.dead}
        if beat.work.reasons:
            first = sorted(beat.work.reasons.items(), key=lambda each: -each[1])[:20]
            told["reasons"] = dg.MetadataValue.json(dict(first))
    yield dg.AssetMaterialization(key, metadata=told, tags=_version(named))
    if counted is not None:
        memory.letters = counted.tally.waiting
        yield evaluation(letters_waiting(spec, counted.tally, counted.read, counted_at), key)


def _caught_up(actual: Actual) -> bool:
    """Whether a live driver has just looked, and stands at the end of its topics, all transactions included."""
    beat = actual.beat
    if beat is None:
        return False
    work = beat.work
    if not (actual.driver_lives and actual.fresh and beat.state == "running" and work.lag):
        return False
    if work.total_lag or work.total_undecided:
        return False
    return work.lag_at is not None and beat.beat_wall - work.lag_at < CAUGHT_UP_SECONDS


def _version(snapshot_id: int | None) -> dict[str, str]:
    return {} if snapshot_id is None else {"dagster/data_version": str(snapshot_id)}


def _named(snapshot_id: int | None) -> dict[str, str]:
    # As text: a snapshot id is greater than what JavaScript can count to.
    return {} if snapshot_id is None else {"snapshot_id": str(snapshot_id)}


def _facts(facts: TableFacts | None) -> dict[str, Any]:
    if facts is None:
        return {}
    told: dict[str, Any] = {"dagster/row_count": facts.rows}
    if facts.added is not None:
        told["records_added"] = facts.added
    return told


def _work(actual: Actual, lag: Lag | None) -> dict[str, Any]:
    """What the driver did; how far the stream is behind, and when that was looked up."""
    told = keeper_restarts(actual.launch)
    if lag is not None:
        told |= {"consumer_lag_records": lag.records, "lag_as_of": instant(lag.at)}
        if lag.undecided is not None:
            told["undecided_records"] = lag.undecided
    through = complete_through(actual.beat) if lag is None else lag.valid_through
    if through is not None:
        told["complete_through"] = instant(through)
    if actual.beat is None:
        return told
    work = actual.beat.work
    if work.last_commit_at is not None:
        told["last_commit"] = instant(work.last_commit_at)
    return told | {
        "offsets": dg.MetadataValue.json(work.position),
        "batch_duration_ms": round(work.last_batch_seconds * 1000),
        "commit_ms": round(work.last_commit_seconds * 1000),
        "records_per_second": round(work.recent.rate, 1),
    }


def _unknown_fields(spec: StreamSpec, actual: Actual) -> dict[str, Any]:
    """Keys that the schema does not declare, those of most records first."""
    known = actual.unknown_fields
    if known is None or known.config != spec.config_hash:
        return {}
    return {"unknown_fields": dg.MetadataValue.json(known.facts(spec.slo)[:_SHOWN_FIELDS])}


def _lags(
    spec: StreamSpec, beat: Heartbeat | None, looked_up: Lag | None, memory: StreamMemory, now: float
) -> Iterator[dg.AssetObservation]:
    """The lag of each topic, where it has changed; of a stream without a driver as it was looked up."""
    lag, at = (beat.work.lag, beat.work.lag_at) if beat is not None else ({}, None)
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
    keys = names.topic_keys(spec)
    if spec.source.topics_pattern is not None:
        return {keys[0]: lag}
    return {key: {key.path[-1]: lag[key.path[-1]]} for key in keys if key.path[-1] in lag}
