"""How much a day of one stream writes to Dagster's event log, to the cursor and to its state folder."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import dagster as dg
import pytest

from assets import dagster_names
from assets.stream_checks import DESCRIPTIONS
from jobs.commit.stamp_fields import Counts
from jobs.spec.models import StreamSpec
from jobs.system.boot import boot_clock
from orchestration.reconcile.asset_events import CHECKS_SECONDS, SUPERVISOR_SECONDS
from orchestration.reconcile.cursor import report_seconds
from tests.unit.orchestration.reconcile.sample_states import NOW
from tests.unit.orchestration.reconcile.supervised_deployment import World, events, make_table, work

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
