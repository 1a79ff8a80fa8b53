"""What is reported of a stream's tables and topics without a run: when, as what, and with which metadata."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import dagster as dg
import msgspec
import pytest
from pyiceberg.catalog import load_catalog

from jobs.clients.state_store.local_store import LocalStore
from jobs.config.stream.event_time import Freshness
from jobs.streaming.supervision.documents.launches import KeptRestart, read_launch, write_launch
from orchestration.reconcile.asset_events import report_seconds
from orchestration.reconcile.cursor import due
from tests.unit.orchestration.reconcile.sample_states import NOW
from tests.unit.orchestration.reconcile.supervised_deployment import World, events, told, values, work

SINK = dg.AssetKey(["frazil", "orders", "orders"])
DEAD = dg.AssetKey(["frazil", "orders", "orders_dead"])
TOPIC = dg.AssetKey(["kafka", "orders.v1"])
# As the file of these tests promises: freshness.warn is 5 minutes.
EVERY = 100


def through(at: float) -> int:
    """Complete until just before."""
    return int(at - 5) * 1000


def test_a_new_snapshot_is_told_once_with_stable_names(orders: World) -> None:
    snapshot = 7_000_000_000_000_000_001
    orders.drive(
        "orders", now=NOW, work=work(5, snapshot_id=snapshot, dead_letter_snapshot_id=12, last_commit_at=NOW - 12)
    )
    tick = orders.tick(NOW)
    (sink,), (dead,) = told(tick, SINK), told(tick, DEAD)
    metadata = values(sink)
    assert metadata["snapshot_id"] == str(snapshot)
    assert sink.tags == {"dagster/data_version": str(snapshot)}
    assert metadata["offsets"] == {"orders.v1": {"0": 600, "1": 400}}
    assert (metadata["consumer_lag_records"], metadata["batch_duration_ms"], metadata["commit_ms"]) == (5, 1500, 250)
    assert (metadata["epoch"], metadata["generation"]) == (5, orders.generation("orders"))
    assert metadata["complete_through"] == NOW - 5
    assert {"snapshot_id": "12", "records_dead": 10, "reasons": {"wrong_type": 10}}.items() <= values(dead).items()
    for report in (sink, dead):
        carried = values(report)
        assert (carried["state"], carried["state_since"], carried["as_of"]) == ("waiting", NOW - 690, NOW)
        assert (carried["attempt"], carried["epoch"]) == (1, 5)
        assert carried["driver_log"] == "/state/driver.log"
    assert (metadata["lag_as_of"], metadata["last_commit"]) == (NOW, NOW - 12)
    assert told(orders.tick(NOW + 10), SINK) == []


def test_snapshots_are_gathered_and_the_first_is_told_at_once(orders: World) -> None:
    orders.drive("orders", now=NOW, work=work())
    assert len(told(orders.tick(NOW), SINK)) == 1, "it is at the end of its topics, and has no snapshot yet"
    reported: list[tuple[float, str]] = []
    for at in range(10, 300, 10):
        now = NOW + at
        orders.drive("orders", now=now, work=work(5, snapshot_id=at, lag_at=now, valid_through_ms=through(now)))
        reported += [(at, values(event)["snapshot_id"]) for event in told(orders.tick(now), SINK)]
    assert reported == [(10, "10"), (110, "110"), (210, "210")]


def test_a_stream_that_was_quiet_for_long_tells_its_new_snapshot_at_once(orders: World) -> None:
    orders.drive("orders", now=NOW, work=work(5, snapshot_id=1))
    orders.tick(NOW)
    at = NOW + EVERY + 10
    orders.drive("orders", now=at, work=work(5, snapshot_id=2, valid_through_ms=through(at)))
    assert len(told(orders.tick(at), SINK)) == 1


def test_a_quiet_stream_stays_fresh_only_while_it_stands_at_the_end(orders: World) -> None:
    def drive(at: float, lag: int, **changes: Any) -> list[dg.AssetMaterialization]:
        orders.drive("orders", now=at, work=work(lag, snapshot_id=100, lag_at=at - 10), **changes)
        return told(orders.tick(at), SINK)

    assert len(drive(NOW, 0)) == 1
    assert drive(NOW + 90, 0) == []
    (again,) = drive(NOW + 100, 0)
    assert again.description == "Nothing new: the stream is at the end of its topics."
    assert values(again)["records_added"] == 0
    # Complete through the moment at which the end was looked up, though nothing was committed since.
    assert values(again)["complete_through"] == NOW + 90
    assert drive(NOW + 300, 3) == []
    assert [values(each)["state"] for each in drive(NOW + 400, 0, state="retrying")] == ["retrying"]
    assert drive(NOW + 520, 0, state="retrying") == [], "a stream that is not at work is not told as fresh again"
    assert [values(each)["state"] for each in drive(NOW + 600, 0)] == ["waiting"]
    orders.drive("orders", now=NOW + 900, work=work(0, snapshot_id=100, lag_at=NOW + 600))
    assert told(orders.tick(NOW + 900), SINK) == [], "the end was looked up too long ago"
    nowhere = msgspec.structs.replace(work(snapshot_id=100, lag_at=NOW + 899), lag={})
    orders.drive("orders", now=NOW + 900, work=nowhere)
    assert told(orders.tick(NOW + 900), SINK) == [], "a topic without partitions has no end to stand at"


def test_fresh_means_complete_and_not_busy(orders: World) -> None:
    def drive(snapshot: int, at: float, complete: float | None, lag: int = 9) -> tuple[int, list[Any]]:
        ms = None if complete is None else int(complete) * 1000
        orders.drive("orders", now=at, work=work(lag, snapshot_id=snapshot, lag_at=at, valid_through_ms=ms))
        tick = orders.tick(at)
        observed = [event for event in events(tick, dg.AssetObservation) if event.asset_key == SINK]
        return len(told(tick, SINK)), observed

    assert drive(1, NOW, NOW - 299) == (1, [])
    count, (behind,) = drive(2, NOW + 100, NOW - 201)
    assert count == 0
    assert behind.description.startswith("Observed only, so that the table does not count as fresh")
    assert values(behind)["snapshot_id"] == "2"
    assert {"offsets", "consumer_lag_records", "complete_through", "batch_duration_ms"} <= values(behind).keys()
    assert drive(3, NOW + 150, NOW - 200) == (0, []), "observations are gathered too"
    # Offsets were reset: nothing is known of what it is complete through, and records wait.
    count, (unknown,) = drive(3, NOW + 200, None)
    assert count == 0
    assert "complete_through" not in values(unknown)
    # Nothing waits any more: complete, whatever the stamps say.
    assert drive(4, NOW + 300, None, lag=0) == (1, [])
    assert drive(5, NOW + 400, NOW + 395) == (1, [])


def test_by_event_time_fresh_means_that_the_watermark_is(orders: World) -> None:
    file = orders.file("orders")
    by = "event_time: {column: _kafka_timestamp, grace: 1m}\nfreshness: {warn: 5m, fail: 15m, by: event_time}\n"
    file.write_text(file.read_text().replace("freshness: {warn: 5m, fail: 15m}\n", "") + by)

    def drive(snapshot: int, at: float, watermark: float | None) -> Any:
        ms = None if watermark is None else int(watermark) * 1000
        told_of = work(9, snapshot_id=snapshot, lag_at=at, valid_through_ms=int(at) * 1000, watermark_ms=ms)
        orders.drive("orders", now=at, work=told_of)
        return told(orders.tick(at), SINK)

    assert drive(1, NOW, None) == [], "complete it is, but nobody knows of which event time"
    assert drive(2, NOW + 150, NOW + 150 - 301) == []
    (report,) = drive(3, NOW + 300, NOW + 300 - 299)
    assert values(report)["watermark"] == NOW + 1
    assert values(report)["watermark_lag_s"] >= 0


def test_a_stream_that_catches_up_without_a_new_snapshot_is_fresh_again(orders: World) -> None:
    orders.drive("orders", now=NOW, work=work(9, snapshot_id=1, valid_through_ms=through(NOW - 4000)))
    assert told(orders.tick(NOW), SINK) == []
    at = NOW + EVERY
    orders.drive("orders", now=at, work=work(0, snapshot_id=1, lag_at=at, valid_through_ms=through(NOW - 4000)))
    assert len(told(orders.tick(at), SINK)) == 1


def test_without_a_policy_every_report_is_a_materialization(orders: World) -> None:
    file = orders.file("orders")
    file.write_text(file.read_text().replace("freshness: {warn: 5m, fail: 15m}\n", ""))
    assert orders.deployment.stream("orders").freshness is None
    for snapshot, at in ((1, NOW), (2, NOW + 300)):
        orders.drive("orders", now=at, work=work(9, snapshot_id=snapshot, valid_through_ms=through(NOW - 4000)))
        assert len(told(orders.tick(at), SINK)) == 1


@pytest.mark.parametrize(("warn", "seconds"), [(1, 60), (2, 60), (5, 100), (15, 300), (1440, 300)])
def test_how_often_a_stream_is_told_follows_its_freshness_policy(orders: World, warn: int, seconds: int) -> None:
    spec = orders.deployment.stream("orders")
    policy = Freshness(warn=timedelta(minutes=warn), fail=timedelta(days=2))
    assert report_seconds(spec.model_copy(update={"freshness": policy})) == seconds
    assert report_seconds(spec.model_copy(update={"freshness": None})) == 300


def test_lag_is_observed_on_the_topic_when_it_changes_and_once_per_interval_at_most(orders: World) -> None:
    def drive(at: float, lag: int) -> list[dg.AssetObservation]:
        orders.drive("orders", now=at, work=work(lag))
        return [event for event in events(orders.tick(at), dg.AssetObservation) if event.asset_key == TOPIC]

    (first,) = drive(NOW, 5)
    assert first.asset_key == TOPIC
    assert values(first)["lag"] == {"orders.v1": {"0": 5, "1": 0}}
    assert values(first)["consumer_lag_records"] == 5
    assert drive(NOW + 30, 6) == []
    assert len(drive(NOW + EVERY, 6)) == 1
    assert drive(NOW + 600, 6) == []


def test_rows_come_from_the_table_when_its_snapshot_is_new(orders: World) -> None:
    import pyarrow as pa

    settings = orders.deployment.prepared_settings()
    catalog = load_catalog("frazil", **settings.catalog.revealed())
    catalog.create_namespace("orders")
    rows = pa.table({"id": [1, 2, 3]})
    table = catalog.create_table("orders.orders", rows.schema)
    ids: list[int] = []
    for _ in range(3):
        table.append(rows)
        snapshot = table.current_snapshot()
        assert snapshot is not None
        ids.append(snapshot.snapshot_id)
    orders.drive("orders", now=NOW, work=work(snapshot_id=ids[0]))
    (first,) = told(orders.tick(NOW), SINK)
    assert values(first)["dagster/row_count"] == 3
    orders.drive("orders", now=NOW + EVERY, work=work(snapshot_id=ids[2]))
    (last,) = told(orders.tick(NOW + EVERY), SINK)
    assert (values(last)["dagster/row_count"], values(last)["records_added"]) == (9, 6)


def test_a_clock_that_is_set_back_does_not_silence_the_reports(orders: World) -> None:
    assert due(NOW, int(NOW) + 50_000, 600)
    orders.drive("orders", now=NOW, work=work(snapshot_id=1))
    orders.tick(NOW)
    orders.drive("orders", now=NOW - 90_000, work=work(snapshot_id=2))
    assert len(told(orders.tick(NOW - 90_000), SINK)) == 1


def test_the_supervisor_tells_of_itself_every_two_minutes(orders: World) -> None:
    key = dg.AssetKey(["frazil", "supervisor"])
    assert [len(told(orders.tick(NOW + seconds), key)) for seconds in (0, 10, 110, 120, 230, 240)] == [1, 0, 0, 1, 0, 1]


def test_what_a_keeper_did_is_told_once_and_stays_in_the_metadata(orders: World) -> None:
    def kept(*whys: str, total: int, now: float) -> list[dg.AssetObservation]:
        orders.drive("orders", now=now, work=work(snapshot_id=int(now)))
        launch = read_launch(LocalStore(orders.folder("orders")))
        assert launch is not None
        newest = tuple(KeptRestart(number, now - 3, why) for number, why in enumerate(whys, start=2))
        noted = msgspec.structs.replace(launch, kept=total, kept_newest=newest)
        write_launch(LocalStore(orders.folder("orders")), noted, orders.file("orders").read_text())
        tick = orders.tick(now)
        return [each for each in events(tick, dg.AssetObservation) if "watchdog" in (each.description or "")]

    assert kept(total=0, now=NOW) == []
    (once,) = kept("attempt 1 (process 7) ended without a report", total=1, now=NOW + 10)
    assert once.asset_key == SINK
    assert once.description == ("Its watchdog started the driver again: attempt 1 (process 7) ended without a report.")
    assert values(once) == {
        "keeper_restarts": 1,
        "keeper_restarted_at": NOW + 7,
        "keeper_restarted_why": "attempt 1 (process 7) ended without a report",
        "restarts": 1,
        "attempt": 1,
    }
    assert kept("one", total=1, now=NOW + 50) == []
    assert kept("one", "two", "three", total=3, now=NOW + 60)[0].description == (
        "Its watchdog started the driver again 2 times: two; three."
    )
    assert kept("four", total=4, now=NOW + 70) == [], "one that crashes again and again is gathered"
    assert len(kept("four", total=4, now=NOW + 95)) == 1
    at = NOW + 500
    orders.drive("orders", now=at, work=work(snapshot_id=9, lag_at=at, valid_through_ms=through(at)))
    launch = read_launch(LocalStore(orders.folder("orders")))
    assert launch is not None
    again = msgspec.structs.replace(launch, kept=4, kept_newest=(KeptRestart(2, NOW, "four"),))
    write_launch(LocalStore(orders.folder("orders")), again, orders.file("orders").read_text())
    (sink,) = told(orders.tick(NOW + 500), SINK)
    assert (values(sink)["keeper_restarts"], values(sink)["keeper_restarted_why"]) == (4, "four")


def test_a_launch_of_the_release_before_is_read(orders: World) -> None:
    orders.drive("orders", now=NOW, work=work())
    path = orders.folder("orders") / "launch.json"
    document = msgspec.json.decode(path.read_bytes())
    del document["kept"], document["kept_newest"]
    path.write_bytes(msgspec.json.encode(document))
    launch = read_launch(LocalStore(orders.folder("orders")))
    assert launch is not None
    assert (launch.attempt, launch.kept, launch.kept_newest) == (1, 0, ())
    assert told(orders.tick(NOW), SINK)
