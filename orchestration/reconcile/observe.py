"""What is reported of streams without a run: new snapshots, lags and checks; how often at most, `most_events_a_day`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from assets import names
from assets.stream_checks import Verdict, evaluation
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.supervise.heartbeat import Heartbeat, Offsets
from orchestration.reconcile.facts import Actual
from orchestration.reconcile.lookups import Lookups, TableFacts
from orchestration.reconcile.memory import StreamMemory, checksum, due
from orchestration.reconcile.verdicts import complete_through

Event = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation

TABLE_SECONDS = 60
LAG_SECONDS = 60
CHECKS_SECONDS = 600
# A stream that flaps is told this often at most.
CHANGED_SECONDS = 30
CAUGHT_UP_SECONDS = 600
SUPERVISOR_SECONDS = 60
_DAY = 86_400


def most_events_a_day(topics: int = 1) -> dict[str, int]:
    """The most events that a day of one stream writes, by kind; a quiet one writes `caught_up` and `checks_steady`.

    Args:
        topics: How many topic assets the stream has.
    """
    return {
        "table": _DAY // TABLE_SECONDS,
        "dead_letters": _DAY // TABLE_SECONDS,
        "caught_up": _DAY // CAUGHT_UP_SECONDS,
        "lag": topics * _DAY // LAG_SECONDS,
        "checks_steady": 5 * _DAY // CHECKS_SECONDS,
        "checks_flapping": 5 * _DAY // CHANGED_SECONDS,
    }


def stream_events(
    spec: StreamSpec,
    settings: Settings,
    actual: Actual,
    found: Sequence[Verdict],
    memory: StreamMemory,
    lookups: Lookups,
    now: float,
) -> Iterator[Event]:
    """What there is to report of one stream in this tick; notes in its memory what was reported.

    Args:
        spec: The stream, as its file says or as it was launched.
        found: What its checks say.
        lookups: Where a table's rows are asked for.
        now: Seconds since 1970.
    """
    beat = actual.beat
    key = names.table_key(settings, spec.table.name)
    if beat is not None:
        yield from _snapshots(spec, settings, actual, beat, memory, lookups, now)
        yield from _lags(spec, beat, memory, now)
    yield from (evaluation(verdict, key) for verdict in _news(found, memory, now))


def _news(found: Sequence[Verdict], memory: StreamMemory, now: float) -> Sequence[Verdict]:
    """The checks that say something else than last time; every now and then all of them."""
    codes = [checksum(verdict.code) & 0xFFFF for verdict in found]
    if len(codes) != len(memory.checks) or due(now, memory.all_at, CHECKS_SECONDS):
        memory.checks, memory.checks_at, memory.all_at = codes, int(now), int(now)
        return found
    news = [verdict for verdict, code, last in zip(found, codes, memory.checks, strict=True) if code != last]
    if not news or not due(now, memory.checks_at, CHANGED_SECONDS):
        return []
    memory.checks, memory.checks_at = codes, int(now)
    return news


def _snapshots(
    spec: StreamSpec,
    settings: Settings,
    actual: Actual,
    beat: Heartbeat,
    memory: StreamMemory,
    lookups: Lookups,
    now: float,
) -> Iterator[dg.AssetMaterialization]:
    work = beat.work
    key = names.table_key(settings, spec.table.name)
    if work.snapshot_id is not None and work.snapshot_id != memory.sink:
        if due(now, memory.sink_at, TABLE_SECONDS):
            facts = lookups.table(spec.table.name, work.snapshot_id, memory.sink)
            memory.sink, memory.sink_at = work.snapshot_id, int(now)
            yield _materialized(key, work.snapshot_id, _facts(facts) | _work(actual, beat))
    elif _caught_up(actual, beat) and due(now, memory.sink_at, caught_up_seconds(spec)):
        memory.sink_at = int(now)
        text = "Nothing new: the stream stands at the end of its topics."
        yield _materialized(key, memory.sink, {"records_added": 0} | _work(actual, beat), text)
    dead = work.dead_letter_snapshot_id
    if dead is not None and dead != memory.dead and due(now, memory.dead_at, TABLE_SECONDS):
        facts = lookups.table(spec.dead_letter_table, dead, memory.dead)
        memory.dead, memory.dead_at = dead, int(now)
        told = _facts(facts) | {"records_dead": work.dead, "epoch": beat.epoch, "generation": beat.generation}
        if work.reasons:
            told["reasons"] = dg.MetadataValue.json(dict(sorted(work.reasons.items(), key=lambda each: -each[1])[:20]))
        yield _materialized(names.table_key(settings, spec.dead_letter_table), dead, told)


def caught_up_seconds(spec: StreamSpec) -> float:
    """How often a stream without new rows is reported as complete: often enough for its freshness policy."""
    if spec.freshness is None:
        return CAUGHT_UP_SECONDS
    return max(60.0, min(CAUGHT_UP_SECONDS, spec.freshness.warn.total_seconds() / 3))


def _caught_up(actual: Actual, beat: Heartbeat) -> bool:
    """Whether a live driver has just looked, and stands at the end of its topics."""
    work = beat.work
    if not (actual.driver_lives and actual.fresh and beat.state == "running" and work.lag):
        return False
    return work.total_lag == 0 and work.lag_at is not None and beat.beat_wall - work.lag_at < 2 * LAG_SECONDS


def _materialized(
    key: dg.AssetKey, snapshot_id: int | None, metadata: dict[str, Any], text: str | None = None
) -> dg.AssetMaterialization:
    tags = {} if snapshot_id is None else {"dagster/data_version": str(snapshot_id)}
    # As text: a snapshot id is greater than what JavaScript can count to.
    named = {} if snapshot_id is None else {"snapshot_id": str(snapshot_id)}
    return dg.AssetMaterialization(key, description=text, metadata=named | metadata, tags=tags)


def _facts(facts: TableFacts | None) -> dict[str, Any]:
    if facts is None:
        return {}
    told: dict[str, Any] = {"dagster/row_count": facts.rows}
    if facts.added is not None:
        told["records_added"] = facts.added
    return told


def _work(actual: Actual, beat: Heartbeat) -> dict[str, Any]:
    work = beat.work
    told: dict[str, Any] = {
        "offsets": dg.MetadataValue.json(work.position),
        "batch_duration_ms": round(work.last_batch_seconds * 1000),
        "commit_ms": round(work.last_commit_seconds * 1000),
        "records_per_second": round(work.recent.rate, 1),
        "epoch": beat.epoch,
        "generation": beat.generation,
        "attempt": beat.attempt,
    }
    if work.total_lag is not None:
        told["consumer_lag_records"] = work.total_lag
    through = complete_through(actual)
    if through is not None:
        told["complete_through"] = dg.MetadataValue.timestamp(datetime.fromtimestamp(through, UTC))
    return told


def _lags(spec: StreamSpec, beat: Heartbeat, memory: StreamMemory, now: float) -> Iterator[dg.AssetObservation]:
    work = beat.work
    if work.lag_at is None or not work.lag:
        return
    told = checksum(json.dumps(work.lag, sort_keys=True))
    if told == memory.lag or not due(now, memory.lag_at, LAG_SECONDS):
        return
    memory.lag, memory.lag_at = told, int(now)
    for key, lags in _by_asset(spec, work.lag).items():
        yield dg.AssetObservation(
            key,
            metadata={
                "stream": spec.stream,
                "consumer_lag_records": sum(sum(partitions.values()) for partitions in lags.values()),
                "lag": dg.MetadataValue.json(lags),
                "looked_up_at": dg.MetadataValue.timestamp(datetime.fromtimestamp(work.lag_at, UTC)),
            },
        )


def _by_asset(spec: StreamSpec, lag: Offsets) -> dict[dg.AssetKey, Offsets]:
    keys = names.topic_keys(spec)
    if spec.source.topics_pattern is not None:
        return {keys[0]: lag}
    return {key: {key.path[-1]: lag[key.path[-1]]} for key in keys if key.path[-1] in lag}
