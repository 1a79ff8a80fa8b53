"""How much a day of one stream writes to Dagster's event log, to the cursor and to its state folder."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets import dagster_names
from assets.stream_checks import DESCRIPTIONS
from jobs.base.system.boot import boot_clock
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.documents.heartbeat import Work
from jobs.tables.commit.stamp.stamp_fields import Counts
from orchestration.reconcile.asset_events import CHECKS_SECONDS, SUPERVISOR_SECONDS
from orchestration.reconcile.check_outcomes import DEFAULT_LAG_TIME, check_outcomes, lag_time
from orchestration.reconcile.cursor import StreamCursor, report_seconds
from orchestration.reconcile.decide import decide
from orchestration.reconcile.lag import Lag
from tests.unit.orchestration.reconcile.sample_states import NOW, actual, desired
from tests.unit.orchestration.reconcile.supervised_deployment import (
    WaitingTopics,
    World,
    dead_process,
    events,
    make_table,
    values,
    work,
)

# Half an hour, which a day has this many times.
TICKS = 180
HALF_HOURS = 48
DAY = 86_400


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "quiet"])
@pytest.mark.parametrize(("freshness", "most_mb"), [("", 28), ("freshness: {warn: 5m, fail: 15m}\n", 50)])
def test_a_day_of_one_stream_writes_a_bounded_amount(
    orders: World, tmp_path: Path, busy: bool, freshness: str, most_mb: float
) -> None:
    file = orders.file("orders")
    file.write_text(file.read_text().replace("freshness: {warn: 5m, fail: 15m}\n", freshness))
    snapshot = make_table(orders, Counts())
    counts = dict.fromkeys((dg.AssetMaterialization, dg.AssetObservation, dg.AssetCheckEvaluation), 0)
    cursor = sentence = 0
    home = tmp_path / "dagster"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        # The databases are made with their first event, and grow by whole pages.
        for _ in range(200):
            instance.report_runless_asset_event(dg.AssetMaterialization("warm"))
        before, clock = _bytes(home), boot_clock()
        for tick in range(TICKS):
            at = NOW + tick * 10
            new = snapshot + tick if busy else snapshot
            done_so_far = work(
                tick % 7 if busy else 0,
                lag_at=at,
                snapshot_id=new,
                dead_letter_snapshot_id=new,
                last_commit_at=at - 5,
                valid_through_ms=int(at - 5) * 1000,
            )
            orders.drive("orders", now=at, work=done_so_far)
            done = orders.tick(at, clock + tick * 10)
            assert done.requests == []
            for event in done.events:
                instance.report_runless_asset_event(event)
            for kind in counts:
                counts[kind] += len(events(done, kind))
            cursor = max(cursor, len(orders.memory.to_cursor()))
            sentence = max(sentence, len(done.sentence))
        grown = _bytes(home) - before
    files = [path for path in orders.settings.state.rglob("*") if path.is_file()]
    state = sum(path.stat().st_size for path in files)
    day = {kind: count * HALF_HOURS for kind, count in counts.items()}
    ticks = 8640 * (cursor + sentence) / 1e6
    told = ", ".join(f"{count} {kind.__name__}" for kind, count in day.items())
    print(f"\n{'busy' if busy else 'quiet'}, {freshness.strip() or 'no freshness'}: a day: {told}, in all ", end="")
    print(f"{sum(day.values())} events, {grown * HALF_HOURS / 1e6:.1f} MB of event log; ", end="")
    print(f"cursor {cursor} bytes, {ticks:.1f} MB of cursor and text; state {state} bytes")

    most = most_events_a_day(orders.deployment.stream("orders"))
    supervisor = DAY // SUPERVISOR_SECONDS
    # What a stream reports at once when it is first seen.
    first = HALF_HOURS
    assert day[dg.AssetMaterialization] <= most["table"] + (most["dead_letters"] if busy else 0) + supervisor + first
    assert day[dg.AssetObservation] <= (most["lag"] if busy else 0) + first
    assert day[dg.AssetCheckEvaluation] <= most["checks"] + 6 * first
    # SQLite keeps a runless event twice, and the evaluation of a check three times, some 1 to 4 kB each.
    assert grown * HALF_HOURS < most_mb * 1e6
    assert cursor < 400
    # The supervisor's clock is ahead of this machine's here, so it notes when it first saw the launch.
    kept = [path for path in files if not path.name.startswith(".seen-")]
    assert len(kept) == 5, "launch, its configuration, lease, heartbeat and the supervisor's note"
    assert state < 10_000


def most_events_a_day(spec: StreamSpec) -> dict[str, int]:
    """The most events that a day of one stream writes, by kind; a quiet one writes `table` and `checks`."""
    reports = math.ceil(DAY / report_seconds(spec))
    return {
        "table": reports,
        "dead_letters": reports,
        "lag": len(dagster_names.topic_keys(spec)) * reports,
        # Whether the records add up is told with each report, since the table has been asked anyhow; how many letters
        # wait with each report of those.
        "checks": len(DESCRIPTIONS) * (DAY // CHECKS_SECONDS) + 2 * reports,
    }


def _bytes(home: Path) -> int:
    for database in home.rglob("*.db"):
        with sqlite3.connect(database) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file())


TOPIC = dg.AssetKey(["kafka", "orders.v1"])


def lag_check(world: World, at: float) -> dg.AssetCheckEvaluation | None:
    found = [each for each in events(world.tick(at), dg.AssetCheckEvaluation) if each.check_name == "lag_within_slo"]
    return found[0] if found else None


def test_a_lag_that_grows_under_the_limit_is_told_every_five_minutes(orders: World) -> None:
    told: list[tuple[int, int]] = []
    for seconds in range(0, 901, 10):
        at = NOW + seconds
        orders.drive("orders", now=at, work=work(40 + seconds, lag_at=at - 3, valid_through_ms=int(at) * 1000))
        if (check := lag_check(orders, at)) is not None:
            assert check.passed
            assert values(check)["as_of"] == at - 3
            told.append((seconds, values(check)["consumer_lag_records"]))
    assert told == [(0, 40), (300, 340), (600, 640), (900, 940)]


def test_a_driver_that_dies_takes_its_lag_with_it(orders: World) -> None:
    asked = WaitingTopics(orders)
    orders.drive("orders", now=NOW, work=work(69))
    first = lag_check(orders, NOW)
    assert first is not None
    assert first.description == "69 records wait as of 08:00:00 UTC."
    asked.records = 7000
    orders.drive("orders", now=NOW + 35, work=work(69), **dead_process())
    tick = orders.tick(NOW + 35)
    (second,) = [each for each in events(tick, dg.AssetCheckEvaluation) if each.check_name == "lag_within_slo"]
    assert second.description == "7,000 records wait as of 08:00:35 UTC."
    # It was told of the topic just now; the next one comes from Kafka as well.
    later = orders.tick(NOW + 135)
    (seen,) = [each for each in events(later, dg.AssetObservation) if each.asset_key == TOPIC]
    assert (values(seen)["consumer_lag_records"], values(seen)["looked_up_at"]) == (7000, NOW + 135)


def test_a_lag_that_could_not_be_looked_up_keeps_its_age(orders: World) -> None:
    asked = WaitingTopics(orders)
    asked.records = 12
    orders.drive("orders", now=NOW, work=Work(), **dead_process())
    orders.tick(NOW)
    asked.records = None
    orders.tick(NOW + 200)
    check = lag_check(orders, NOW + 300)
    assert check is not None
    assert check.description == "12 records wait as of 08:00:00 UTC."


def test_a_driver_that_does_not_look_is_not_believed_for_long(orders: World) -> None:
    asked = WaitingTopics(orders)
    asked.records = 5000
    orders.drive("orders", now=NOW, state="paused", work=work(3))
    orders.tick(NOW)
    orders.drive("orders", now=NOW + 300, state="paused", work=work(3))
    check = lag_check(orders, NOW + 300)
    assert check is not None
    assert (values(check)["consumer_lag_records"], values(check)["as_of"]) == (5000, NOW + 300)


@pytest.mark.parametrize(
    ("more", "minutes", "by"),
    [
        ("", 16, "default"),
        ("trigger: {every: 10m}\n", 25, "default"),
        ("trigger: as_fast_as_possible\n", 15, "default"),
        ("trigger: available_now\n", None, ""),
        ("slo: {lag_records: 5}\n", None, ""),
        ("slo: {lag_time: 2h}\n", 120, "slo.lag_time"),
        ("freshness: {warn: 5m, fail: 20m}\n", 20, "freshness.fail"),
        ("freshness: {warn: 5m, fail: 20m}\nslo: {lag_time: 2h}\n", 120, "slo.lag_time"),
    ],
)
def test_how_far_a_table_may_be_behind(orders: World, more: str, minutes: int | None, by: str) -> None:
    file = orders.file("orders")
    file.write_text(file.read_text().replace("freshness: {warn: 5m, fail: 15m}\n", "") + more)
    spec = orders.deployment.stream("orders")
    longest, said_by = lag_time(spec)
    assert (longest.total_seconds() / 60 if longest else None, said_by) == (minutes, by)
    wanted, there = desired(spec=spec), actual()
    decision = decide(wanted, there, NOW)
    limit = (minutes or 0) * 60
    for behind, passes in ((limit - 1, True), (limit + 1, minutes is None)):
        lag = Lag(4, NOW, NOW - behind)
        (check,) = [v for v in check_outcomes(wanted, there, decision, None, lag, NOW) if v.name == "lag_within_slo"]
        assert check.passed is passes
        assert check.warn is (not passes and by == "default")
        assert check.figures.get("allowed_by", "") == by
    assert DEFAULT_LAG_TIME.total_seconds() == 900


def test_the_first_record_after_a_quiet_night_is_no_alarm(orders: World) -> None:
    """By the stamps, its table is complete through the evening before; it was complete a moment ago."""
    evening = int(NOW - 40_000) * 1000
    orders.drive("orders", now=NOW, work=work(0, lag_at=NOW - 2, valid_through_ms=evening))
    first = lag_check(orders, NOW)
    orders.drive("orders", now=NOW + 300, work=work(1, lag_at=NOW + 299, valid_through_ms=evening))
    second = lag_check(orders, NOW + 300)
    assert first is not None
    assert second is not None
    assert (first.passed, second.passed) == (True, True)
    assert values(second)["behind_seconds"] == 302
    orders.drive("orders", now=NOW + 1000, work=work(1, lag_at=NOW + 999, valid_through_ms=evening))
    late = lag_check(orders, NOW + 1000)
    assert late is not None
    assert not late.passed, "and if it is not landed, it is one"


def test_what_is_complete_does_not_fall_back_under_one_attempt() -> None:
    memory = StreamCursor()
    told: list[Any] = [memory.complete_through(at) for at in (NOW, NOW - 50, NOW + 1.5)]
    assert told == [NOW, NOW, NOW + 1.5]
    assert memory.complete_through(None) is None, "offsets were reset"
    assert memory.complete_through(NOW - 900) == NOW - 900
    memory.timed(actual(), 1.0)
    assert memory.through is None, "another attempt: offsets may have been reset before it"
