"""Which checks are reported without a run: when, in which order, and in which words."""

from __future__ import annotations

import asyncio
from typing import Any

import dagster as dg
import pytest
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from assets.stream_checks import ADDS_UP, DESCRIPTIONS
from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.driver.context.unknown_fields import UnknownField, UnknownFieldsRecord
from jobs.streaming.supervision.documents.control_request import ControlRequest, write_control
from jobs.streaming.supervision.documents.heartbeat import LastError, Recent
from jobs.tables.commit.stamp.stamp_fields import Counts
from orchestration.reconcile.check_outcomes import with_next_command
from orchestration.sensors.reconcile import ReconcileTick
from tests.unit.orchestration.reconcile.sample_states import NOW
from tests.unit.orchestration.reconcile.supervised_deployment import (
    World,
    dead_process,
    events,
    make_table,
    told,
    values,
    work,
)

SINK = dg.AssetKey(["frazil", "orders", "orders"])


def test_checks_are_told_on_change_and_every_five_minutes(orders: World) -> None:
    def drive(at: float, **changes: Any) -> dict[str, bool]:
        orders.drive("orders", now=at, **changes)
        return {event.check_name: event.passed for event in events(orders.tick(at), dg.AssetCheckEvaluation)}

    fine = dict.fromkeys(DESCRIPTIONS, True)
    assert drive(NOW, work=work()) == fine
    assert drive(NOW + 10, work=work(3, lag_at=NOW + 10)) == {}, "other figures are no news"
    slow = work(9, busy_since=NOW - 1000, lag_at=NOW + 40)
    assert drive(NOW + 40, work=slow) == fine | {"batch_not_stalled": False}, "all, so that their figures agree"
    assert drive(NOW + 50, work=work()) == {}, "it flaps"
    assert drive(NOW + 70, work=work()) == fine
    assert drive(NOW + 360, work=work(valid_through_ms=int(NOW + 355) * 1000)) == {}
    assert drive(NOW + 370, work=work(valid_through_ms=int(NOW + 365) * 1000)) == fine


def test_keys_that_are_not_declared_warn_once_until_there_are_others(orders: World) -> None:
    note = UnknownFieldsRecord(LocalStore(orders.folder("orders")), orders.deployment.stream("orders").config_hash)
    snapshot = make_table(orders, Counts())

    def drive(at: float) -> dict[str, Any]:
        orders.drive("orders", now=at, work=work(lag_at=at, snapshot_id=snapshot, valid_through_ms=int(at) * 1000))
        tick = orders.tick(at)
        for event in told(tick, SINK):
            materialized.update(values(event))
        return {event.check_name: event for event in events(tick, dg.AssetCheckEvaluation)}

    materialized: dict[str, Any] = {}
    assert drive(NOW)["unknown_fields"].passed
    note.add(100, {"$.colour": UnknownField(40, "orders.v1", 1, 17, "$", "colour string")}, NOW)
    found = drive(NOW + 40)
    assert found["unknown_fields"].severity is dg.AssetCheckSeverity.WARN
    assert [name for name, each in found.items() if not each.passed] == ["unknown_fields"]
    assert found["unknown_fields"].description == (
        "Keys that the schema does not declare are left out since 2027-01-15T08:00+00:00: $.colour in 40.0% of 100 "
        "records, such as topic orders.v1, partition 1, offset 17. Next: add `colour string` (the type is a guess) to "
        "decode.schema, or '$.colour' to slo.unknown_fields in streams/orders.yaml"
    )
    note.add(100, {"$.colour": UnknownField(90)}, NOW + 50)
    assert drive(NOW + 80) == {}, "more of the same is no news"
    note.add(1, {"$.size": UnknownField(1)}, NOW + 85)
    again = drive(NOW + 120)
    assert [name for name, each in again.items() if not each.passed] == ["unknown_fields"]
    drive(NOW + 400)
    assert [(each["path"], each["records"]) for each in materialized["unknown_fields"]] == [
        ("$.colour", 130),
        ("$.size", 1),
    ]
    orders.write("orders", "slo: {unknown_fields: [$.colour, $.size]}\n")
    assert drive(NOW + 440)["unknown_fields"].passed
    orders.file("orders").write_text(orders.file("orders").read_text().replace("id string", "id string, size int"))
    assert drive(NOW + 1100)["unknown_fields"].description.startswith("No record of this configuration had a key")


BY_EVENT_TIME = "event_time: {column: _kafka_timestamp, grace: 1m}\nfreshness: {warn: 5m, fail: 15m, by: event_time}\n"


def test_by_event_time_the_watermark_is_judged_and_not_what_has_come(orders: World) -> None:
    file = orders.file("orders")
    file.write_text(file.read_text().replace("freshness: {warn: 5m, fail: 15m}\n", "") + BY_EVENT_TIME)

    def drive(watermark: float | None) -> Any:
        ms = None if watermark is None else int(watermark) * 1000
        orders.drive("orders", now=NOW, work=work(5, valid_through_ms=int(NOW) * 1000, watermark_ms=ms))
        orders.memory.streams.clear()
        return {each.check_name: each for each in events(orders.tick(NOW), dg.AssetCheckEvaluation)}["lag_within_slo"]

    behind = drive(NOW - 901)
    assert not behind.passed
    assert "its watermark is 901 s behind; 900 s are allowed (freshness.fail)" in (behind.description or "")
    assert drive(NOW - 899).passed
    assert drive(None).passed, "not known yet"


def test_failed_checks_explain_themselves(orders: World) -> None:
    orders.write("orders", "slo: {lag_records: 100, lag_time: 10m, dead_letter_ratio: 0.01}\n")

    def drive(at: float, **changes: Any) -> dict[str, Any]:
        orders.drive("orders", now=at, **changes)
        orders.memory.streams.clear()
        found = events(orders.tick(at), dg.AssetCheckEvaluation)
        return {event.check_name: event for event in found if not event.passed}

    behind = drive(NOW, work=work(500, valid_through_ms=int(NOW - 3600) * 1000))
    assert behind["lag_within_slo"].description == (
        "500 records wait as of 08:00:00 UTC; slo.lag_records allows 100; the table is 3600 s behind; "
        "600 s are allowed (slo.lag_time). Next: frazil status orders"
    )
    many = drive(NOW, work=work(recent=Recent(300, 1000, 950, 50)))
    assert "50 of the newest 1000 records became dead letters (5.00%; 1.00% are allowed)" in (
        many["dead_letter_ratio"].description
    )
    stalled = drive(NOW, work=work(7, busy_since=NOW - 900))
    assert stalled["batch_not_stalled"].description == (
        "The driver has stalled since 2027-01-15T07:45:00Z: it has been at one batch for 900 s. "
        "Next: tail /state/driver.log; then frazil restart orders"
    )
    error = LastError("offsets [3, 9) of orders.v1-0 are gone", "operator", NOW, "frazil accept orders --lost-offsets")
    dead = drive(NOW, work=work(), state="failed", error=error, **dead_process())
    assert dead["driver_alive"].description == (
        "Attempt 1 failed: offsets [3, 9) of orders.v1-0 are gone. Starting it again would not help. "
        "Next: frazil accept orders --lost-offsets; then frazil start orders"
    )
    fix = "correct the producer; then frazil start orders"
    error = LastError("1911 of 1911 records of a batch failed", "operator", NOW, fix, failed=1911, read=1911)
    halted = drive(NOW, work=work(1911, batches=0, recent=Recent()), state="failed", error=error, **dead_process())
    assert list(halted) == ["driver_alive", "lag_within_slo", "dead_letter_ratio"]
    for check, said in (
        ("driver_alive", "Attempt 1 failed: 1911 of 1911 records of a batch failed. Starting it again would not help."),
        ("lag_within_slo", "1,911 records wait as of 08:00:00 UTC, and the stream is halted."),
        ("dead_letter_ratio", "1,911 of 1,911 records of the next batch failed."),
    ):
        assert halted[check].description == f"{said} Next: {fix}"
        assert halted[check].severity is dg.AssetCheckSeverity.ERROR
    control = LocalStore(orders.folder("orders"))
    write_control(control, ControlRequest("stopped", by="jo", at=NOW))
    stopped = drive(NOW, work=work(1911, batches=0, recent=Recent()), state="failed", error=error, **dead_process())
    assert "dead_letter_ratio" not in stopped, "the operator has answered"
    assert stopped["driver_alive"].severity is dg.AssetCheckSeverity.WARN
    write_control(control, ControlRequest("running", by="jo", at=NOW))
    away = drive(NOW, work=work(), state="retrying", error=LastError("Kafka is away", "away", NOW, "frazil up"))
    assert away["driver_alive"].severity is dg.AssetCheckSeverity.WARN
    rolled = drive(NOW, work=work(), generation="0" * 12)
    assert rolled["configuration"].severity is dg.AssetCheckSeverity.WARN
    assert "Generation 000000000000 runs" in rolled["configuration"].description


def test_a_lag_that_nobody_can_look_up_is_not_taken_for_none(orders: World) -> None:
    orders.write("orders", "slo: {lag_time: 10m}\n")
    error = LastError("Kafka at there:9092: Connection refused (since 08:00:00 UTC)", "away", NOW, "frazil up")

    def drive(at: float, since: float | None) -> dict[str, Any]:
        ms = int(NOW - 5) * 1000
        orders.drive(
            "orders",
            now=at,
            work=work(lag_at=NOW - 5, lag_unknown_since=since, valid_through_ms=ms),
            state="running" if since is None else "retrying",
            error=None if since is None else error,
        )
        orders.memory.streams.clear()
        tick = orders.tick(at)
        assert [row.lag is not None and row.lag.records for row in tick.rows] == [0 if since is None else None]
        return {each.check_name: each for each in events(tick, dg.AssetCheckEvaluation) if not each.passed}

    assert drive(NOW, None) == {}
    away = drive(NOW + 30, NOW)
    assert {name: each.severity for name, each in away.items()} == dict.fromkeys(
        ["driver_alive", "lag_within_slo"], dg.AssetCheckSeverity.WARN
    )
    assert away["lag_within_slo"].description == (
        "How many records wait has not been known since 08:00:00 UTC: Kafka at there:9092: Connection refused (since "
        "08:00:00 UTC). Next: frazil up"
    )
    assert "consumer_lag_records" not in away["lag_within_slo"].metadata
    late = drive(NOW + 700, NOW)["lag_within_slo"]
    assert (late.severity, "the table is 705 s behind" in (late.description or "")) == (
        dg.AssetCheckSeverity.ERROR,
        True,
    )


def test_all_checks_follow_each_materialization_of_the_table(orders: World) -> None:
    snapshot = make_table(orders, Counts(read=10, landed=6, dead=3, tombstones=1))
    orders.drive("orders", now=NOW, work=work(snapshot_id=snapshot, dead_letter_snapshot_id=9))
    tick = orders.tick(NOW)
    materialized, *evaluated = (event for event in tick.events if event.asset_key == SINK)
    assert isinstance(materialized, dg.AssetMaterialization)
    assert evaluated == events(tick, dg.AssetCheckEvaluation)
    told_checks = {event.check_name: event for event in events(tick, dg.AssetCheckEvaluation)}
    assert list(told_checks) == [*DESCRIPTIONS, ADDS_UP]
    assert all(event.passed for event in told_checks.values())
    assert told_checks[ADDS_UP].metadata["records_unaccounted_for"].value == 0
    totals = told_checks[ADDS_UP].metadata["totals"].value
    assert totals.splitlines()[2] == "| since the first run | 10 | 6 | 3 | 1 | 0 |"
    assert told_checks["lag_within_slo"].metadata["records_per_second"].value == 0.0
    assert events(orders.tick(NOW + 50), dg.AssetCheckEvaluation) == []
    off = make_table(orders, Counts(read=10, landed=6, dead=3))
    orders.drive("orders", now=NOW + 100, work=work(snapshot_id=off, lag_at=NOW + 100))
    failed = [event for event in events(orders.tick(NOW + 100), dg.AssetCheckEvaluation) if not event.passed]
    assert [(event.check_name, event.description) for event in failed] == [
        (
            ADDS_UP,
            "Of 10 records that were read since the stream's first run, 9 are landed, dead letters or tombstones. "
            "Next: frazil status orders",
        )
    ]


def test_all_checks_follow_a_materialization_every_five_minutes_at_most(orders: World) -> None:
    told_at: dict[int, int] = {}
    for seconds in range(0, 700, 100):
        at = NOW + seconds
        snapshot = make_table(orders, Counts())
        done = work(5, snapshot_id=snapshot, lag_at=at, valid_through_ms=int(at) * 1000)
        orders.drive("orders", now=at, work=done)
        tick = orders.tick(at)
        assert len(told(tick, SINK)) == 1
        found = [event.check_name for event in events(tick, dg.AssetCheckEvaluation)]
        assert found[-1] == ADDS_UP
        told_at[seconds] = len(found)
    every = len(DESCRIPTIONS) + 1
    assert told_at == {0: every, 100: 1, 200: 1, 300: every, 400: 1, 500: 1, 600: every}


def test_dagster_takes_what_was_reported_for_evaluated(orders: World) -> None:
    """Also after a run has materialized the table and evaluated its checks."""

    def report(tick: ReconcileTick) -> None:
        for event in tick.events:
            instance.report_runless_asset_event(event)

    async def is_current(name: str) -> bool:
        context = LoadingContextForTest(instance)
        record = await AssetCheckExecutionRecord.gen(context, dg.AssetCheckKey(SINK, name))
        return record is not None and await record.targets_latest_materialization(context)

    @dg.asset(key=SINK, check_specs=[dg.AssetCheckSpec(ADDS_UP, asset=SINK)])
    def by_a_run() -> dg.MaterializeResult:
        return dg.MaterializeResult(check_results=[dg.AssetCheckResult(check_name=ADDS_UP, passed=True)])

    snapshot = make_table(orders, Counts())
    names = [*DESCRIPTIONS, ADDS_UP]
    with dg.DagsterInstance.ephemeral() as instance:
        orders.drive("orders", now=NOW, work=work(snapshot_id=snapshot))
        report(orders.tick(NOW))
        assert [name for name in names if asyncio.run(is_current(name))] == names
        dg.materialize([by_a_run], instance=instance)
        assert [name for name in names if asyncio.run(is_current(name))] == [ADDS_UP]
        orders.drive("orders", now=NOW + 100, work=work(snapshot_id=snapshot, lag_at=NOW + 100))
        tick = orders.tick(NOW + 100)
        assert len(told(tick, SINK)) == 1
        report(tick)
        assert [name for name in names if asyncio.run(is_current(name))] == names


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("it is stopped", "It is stopped."),
        ("attempt 3, which failed", "Attempt 3, which failed."),
        ("streams/orders.yaml:3: unknown key", "streams/orders.yaml:3: unknown key."),
        ("kafka.topics: unknown key", "kafka.topics: unknown key."),
        ("orders_dead is gone", "orders_dead is gone."),
    ],
)
def test_a_path_keeps_its_first_letter(said: str, told: str) -> None:
    assert with_next_command(said, None) == told
    assert with_next_command(said, "frazil validate") == f"{told} Next: frazil validate"
