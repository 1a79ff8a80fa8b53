"""Closed hours are reported once, with what is in them, and trigger what is downstream once; late rows are told."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.closed_partitions import CLOSED_PARTITIONS, closed_asset, closed_key, closed_partitions_of, partition_key
from jobs.config.stream.event_time import EventTime
from jobs.config.stream.models import StreamSpec
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.tables.commit.history.stamp_history import stamps_along_main
from jobs.tables.commit.stamp.event_times import EventTimes
from jobs.tables.ledger.ledger_table import read_ledger
from orchestration.definitions import build_definitions
from orchestration.sensors import closed_partitions
from orchestration.sensors.closed_partitions import ClosedCursor, closed_partitions_sensor, unreported
from resources.deployment import Deployment
from tests.helpers.closed_tick import tick
from tests.helpers.event_stream import GATE, EventStream, hour, ms, write_file
from tests.helpers.forked import Forked
from tests.unit.orchestration.deployments import connections

HOUR = timedelta(hours=1)
PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "event-time.md"


class Place:
    """A deployment, its stream, Dagster's instance, and the daemon's part of a sensor's tick."""

    def __init__(
        self, home: Path, instance: dg.DagsterInstance, more: str, partition_by: str, besides: str = ""
    ) -> None:
        write_file(home, more, partition_by, besides)
        self.deployment: Deployment = Deployment.at(home)
        settings = self.deployment.prepared_settings()
        self.spec: StreamSpec = self.deployment.stream("payments")
        self.key: dg.AssetKey = closed_key(settings, self.spec)
        self.stream: EventStream = EventStream(settings, self.spec)
        self.instance: dg.DagsterInstance = instance
        self.cursor: str | None = None

    def tick(self) -> Sequence[Any]:
        """One tick of the sensor; what it reports is stored as the daemon stores it."""
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, resources=connections(self.deployment)
        ) as context:
            result: Any = closed_partitions_sensor()(context)
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        self.cursor = result.cursor
        return result.asset_events

    def closed(self) -> list[str | None]:
        """The partitions that a tick reports."""
        return [each.partition for each in self.tick() if isinstance(each, dg.AssetMaterialization)]

    def reported(self, partition: str) -> list[dict[str, Any]]:
        """The metadata of every materialization of a partition."""
        records = self.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=self.key, asset_partitions=[partition]), limit=10
        ).records
        return [
            {name: value.value for name, value in record.asset_materialization.metadata.items()}
            for record in records
            if record.asset_materialization
        ]


@pytest.fixture
def place(tmp_path: Path, instance: dg.DagsterInstance, request: pytest.FixtureRequest) -> Place:
    return Place(tmp_path, instance, *getattr(request, "param", ("closes: hour", "day(at)")))


@pytest.mark.parametrize("place", [("closes: hour", ""), ("closes: hour", "hour(at)")], indirect=True)
def test_an_hour_is_reported_once_when_the_watermark_has_passed_its_end(place: Place) -> None:
    place.stream.land([hour(10, 5), hour(10, 50), hour(11, 5), None], hour(10, 55))
    assert place.closed() == []
    place.stream.land([hour(10, 59), hour(11, 30)], hour(11, 20), late={})
    assert place.closed() == ["2026-03-01-10:00"]
    assert place.closed() == []
    (told,) = place.reported("2026-03-01-10:00")
    head = place.stream.table.current_snapshot()
    assert head is not None
    assert told["dagster/partition_row_count"] == 3
    assert (told["late_rows"], told["snapshot_id"], told["stream"]) == (0, str(head.snapshot_id), "payments")
    assert told["watermark"] == hour(11, 20).timestamp()
    assert (told["begins"], told["ends"]) == (hour(10).timestamp(), hour(11).timestamp())


def test_a_lost_cursor_reports_nothing_twice_and_forgets_nothing(place: Place) -> None:
    place.stream.land([hour(10), hour(12)], hour(12))
    assert place.closed() == ["2026-03-01-10:00", "2026-03-01-11:00"]
    place.cursor = None
    assert place.closed() == []
    place.cursor = "no json"
    place.stream.land([hour(13, 1)], hour(13, 1), late={hour(9): 1})
    assert place.closed() == ["2026-03-01-12:00"]
    assert len(place.reported("2026-03-01-10:00")) == 1


def test_what_was_reported_and_not_noted_is_not_reported_again(place: Place) -> None:
    """The daemon was killed between the two."""
    place.stream.land([hour(10), hour(12)], hour(12))
    before = place.cursor
    assert len(place.closed()) == 2
    place.cursor = before
    assert place.closed() == []


def test_a_quarter_is_caught_up_a_part_at_each_tick(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closed_partitions, "MOST_PER_TICK", 20)
    place.stream.land([hour(0), hour(50)], hour(50))
    spec = place.spec.event_time
    assert spec is not None
    times = EventTimes("at", ms(hour(24 * 90)), None, first_ms=ms(hour(0)))
    told: set[str] = set()
    through = None
    for _ in range(1_000):
        found, through = unreported(spec, times, through, told)
        told |= {partition_key(spec, start) for start, _ in found}
        assert len(found) <= 48
        if not found:
            break
    assert len(told) == 24 * 90


def test_a_batch_that_is_not_in_all_tables_closes_nothing(place: Place) -> None:
    place.stream.land([hour(10, 5)], hour(9))
    place.stream.land([hour(12)], hour(11, 50), letters=2)
    assert place.closed() == []
    # The dead letters get it; the next batch says so.
    place.stream.land([hour(12, 1)], hour(11, 51))
    assert place.closed() == ["2026-03-01-10:00"]


def test_hours_close_when_all_stamped_snapshots_have_expired(place: Place) -> None:
    place.stream.land([hour(10, 5), hour(11, 5)], hour(9))
    place.stream.land([hour(12)], hour(11, 50))
    place.stream.append_by_another([hour(13)])
    table = place.stream.table
    kept = table.metadata.current_snapshot_id
    old = [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id != kept]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    assert list(stamps_along_main(place.stream.table.metadata, "payments")) == []
    assert place.closed() == ["2026-03-01-10:00"]
    (told,) = place.reported("2026-03-01-10:00")
    assert (told["dagster/partition_row_count"], told["watermark"]) == (1, hour(11, 50).timestamp())


@pytest.mark.parametrize("filled", ["in time", "never", "by an earlier release", "without its columns"])
def test_late_rows_of_stamps_that_have_expired_are_told_by_the_ledger(place: Place, filled: str) -> None:
    stream = place.stream
    stream.land([hour(10, 5), hour(10, 50)], hour(10, 55))
    stream.land([hour(10, 6), hour(10, 7), hour(9)], hour(10, 55), late={hour(10): 2, hour(9): 1})
    stream.land([hour(10, 9)], hour(10, 55), late={hour(10): 1})
    if filled != "never":
        fill_ledger(stream.catalog, stream.settings, [place.spec])
        if filled != "in time":
            ledger = stream.catalog.load_table(stream.settings.ledger.table)
            with ledger.update_schema() as change:
                change.delete_column("late_rows")
                if filled == "without its columns":
                    change.delete_column("elsewhere")
    table = stream.table
    old = [
        each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id != table.metadata.current_snapshot_id
    ]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    stream.land([hour(12)], hour(11, 50))
    assert "2026-03-01-10:00" in place.closed()
    (told,) = place.reported("2026-03-01-10:00")
    assert told["late_rows"] == (3 if filled == "in time" else 1)
    # Filling goes on, with the columns that were missing.
    stream.land([hour(12)], hour(11, 55), late={hour(11): 4})
    fill_ledger(stream.catalog, stream.settings, [place.spec])
    assert [row.late for row in read_ledger(stream.catalog, stream.settings, "payments")][-1] == {ms(hour(11)): 4}


def test_a_table_that_was_rolled_back_closes_nothing(place: Place) -> None:
    place.stream.land([hour(10, 5)], hour(10))
    before = place.stream.table.current_snapshot()
    assert before is not None
    place.stream.land([hour(12)], hour(11, 50))
    table = place.stream.table
    table.manage_snapshots().set_current_snapshot(snapshot_id=before.snapshot_id).commit()
    assert place.closed() == []


def test_rows_that_come_into_a_closed_hour_are_told(place: Place) -> None:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    place.stream.land([now - 5 * HOUR, now - 2 * HOUR], now - 2 * HOUR)
    assert len(place.closed()) == 3
    place.stream.land([now - 5 * HOUR], now - 2 * HOUR, late={now - 5 * HOUR: 1})
    by_stream = place.stream.table.current_snapshot()
    assert by_stream is not None
    first = place.tick()
    key = f"{now - 5 * HOUR:%Y-%m-%d-%H}:00"
    (told,) = [each for each in first if isinstance(each, dg.AssetObservation)]
    assert (told.partition, told.metadata["late_rows"].value) == (key, 1)
    by_another = place.stream.append_by_another([now - 4 * HOUR, now - 4 * HOUR, now])
    second = place.tick()
    (told,) = [each for each in second if isinstance(each, dg.AssetObservation)]
    assert told.metadata["late_rows"].value == 2
    assert told.metadata["by"].value == "a replay or another writer"
    (check,) = [each for each in second if isinstance(each, dg.AssetCheckEvaluation)]
    assert (check.check_name, check.passed, check.severity) == (CLOSED_PARTITIONS, False, dg.AssetCheckSeverity.WARN)
    assert "3 rows came into hours that were closed" in (check.description or "")
    assert str(by_another) in (check.description or "")
    assert f"{key}: 1" in (check.description or "")
    # Told once; the check is not told again until it says something else.
    assert place.tick() == []


def test_late_rows_of_an_hour_that_is_open_are_no_news_of_closed_ones(place: Place) -> None:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    place.stream.land([now - 3 * HOUR, now - HOUR / 2], now - HOUR / 2)
    place.tick()
    place.stream.land([now - HOUR * 0.9], now - HOUR / 2, late={now - HOUR: 1})
    assert not [each for each in place.tick() if isinstance(each, dg.AssetObservation)]
    place.stream.land([now + HOUR / 2], now, late={})
    assert place.closed() == [f"{now - HOUR:%Y-%m-%d-%H}:00"]
    (told,) = place.reported(f"{now - HOUR:%Y-%m-%d-%H}:00")
    assert told["late_rows"] == 1


@pytest.mark.parametrize("place", [("closes: day, zone: Europe/Berlin", "")], indirect=True)
def test_days_are_those_of_the_zone(place: Place) -> None:
    at = datetime(2026, 3, 28, 23, 30, tzinfo=UTC)
    place.stream.land([at, at + timedelta(hours=22, minutes=29)], at + timedelta(hours=23))
    assert place.closed() == ["2026-03-29"]
    (told,) = place.reported("2026-03-29")
    assert told["dagster/partition_row_count"] == 2
    assert told["ends"] - told["begins"] == 23 * 3600


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize("closes", ["hour", "day"])
def test_dagster_s_partitions_are_the_same_hours_and_days(zone: str, closes: Any) -> None:
    event_time = EventTime.model_validate({"column": "at", "closes": closes, "zone": zone})
    partitions = closed_partitions_of(event_time)
    for begin in (datetime(2026, 3, 7, 12, tzinfo=UTC), datetime(2026, 10, 31, 12, tzinfo=UTC)):
        for start, end in event_time.periods(ms(begin), ms(begin + timedelta(days=3))):
            window = partitions.time_window_for_partition_key(partition_key(event_time, start))
            assert (ms(window.start), ms(window.end)) == (start, end)


@pytest.mark.parametrize(
    "condition",
    [
        dg.AutomationCondition.eager().without(dg.AutomationCondition.in_latest_time_window()),
        dg.AutomationCondition.eager(),
        dg.AutomationCondition.on_missing(),
        None,
    ],
    ids=["eager, any hour", "eager", "on_missing", "as documented"],
)
def test_what_is_downstream_is_asked_for_once(place: Place, condition: dg.AutomationCondition | None) -> None:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    report = hourly_report(place, condition) if condition else documented_asset()
    assert report.dependency_keys == {place.key}
    closed = closed_asset(place.spec, place.deployment.settings())
    assert closed is not None
    defs = dg.Definitions(assets=[closed, report])

    def evaluated(cursor: Any = None, at: datetime | None = None) -> Any:
        chosen = dg.AssetSelection.assets(report)
        return dg.evaluate_automation_conditions(
            defs, instance=place.instance, asset_selection=chosen, cursor=cursor, evaluation_time=at
        )

    # While that hour goes on.
    first = evaluated(at=now - HOUR / 2)
    assert first.total_requested == 0
    # The newest hour that is over.
    place.stream.land([now - HOUR, now], now)
    assert len(place.closed()) == 1
    second = evaluated(first.cursor)
    wanted = f"{now - HOUR:%Y-%m-%d-%H}:00"
    assert second.get_requested_partitions(report.key) == {wanted}
    place.tick()
    third = evaluated(second.cursor)
    assert third.total_requested == 0
    assert dg.materialize([report], partition_key=wanted, instance=place.instance).success


def hourly_report(place: Place, condition: dg.AutomationCondition) -> dg.AssetsDefinition:
    assert place.spec.event_time is not None

    @dg.asset(
        deps=[place.key], partitions_def=closed_partitions_of(place.spec.event_time), automation_condition=condition
    )
    def hourly_report() -> None: ...

    return hourly_report


def documented_asset() -> dg.AssetsDefinition:
    """The asset of docs/how-to/event-time.md."""
    found = re.search(r"```python\n(@dg\.asset\(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    names: dict[str, Any] = {"dg": dg}
    exec(found[1], names)
    return names["revenue_by_hour"]


def test_the_check_says_the_same_when_it_is_executed(place: Place) -> None:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    defs = build_definitions(place.deployment)
    checks = [each for each in defs.asset_checks or [] if CLOSED_PARTITIONS in {key.name for key in each.check_keys}]
    place.stream.land([now - 5 * HOUR, now - 2 * HOUR], now - 2 * HOUR)

    def executed() -> dg.AssetCheckEvaluation:
        done = dg.materialize(
            checks,
            instance=place.instance,
            resources=connections(place.deployment),
            selection=dg.AssetSelection.all_asset_checks(),
        )
        (found,) = done.get_asset_check_evaluations()
        return found

    assert executed().passed
    place.stream.land([now - 5 * HOUR], now - 2 * HOUR, late={now - 5 * HOUR: 7})
    found = executed()
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "7 rows" in (found.description or "")


def test_a_stream_without_it_is_not_looked_at(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    write_file(tmp_path, "idle_after: 1m")
    deployment = Deployment.at(tmp_path)
    with dg.build_sensor_context(instance=instance, resources=connections(deployment)) as context:
        result: Any = closed_partitions_sensor()(context)
    assert (list(result.asset_events), result.cursor) == ([], ClosedCursor().to_cursor())


@pytest.mark.parametrize("place", [("closes: hour", "", GATE)], indirect=True)
def test_an_hour_of_a_gated_stream_closes_once_its_rows_are_published(place: Place) -> None:
    stream = place.stream
    stream.land([hour(10, 5), hour(10, 50)], hour(10, 40))
    stream.land([hour(10, 59), hour(11, 5), hour(12, 30)], hour(12, 10))
    assert place.closed() == [], "its rows have landed, and readers have none of them"
    stream.publish(fit=False)
    assert place.closed() == [], "they are held"
    stream.publish()
    assert place.closed() == ["2026-03-01-10:00", "2026-03-01-11:00"]
    (told,) = place.reported("2026-03-01-10:00")
    head = stream.table.current_snapshot()
    assert head is not None
    assert (told["dagster/partition_row_count"], told["snapshot_id"]) == (3, str(head.snapshot_id))
    stream.quiet(hour(13, 20))
    assert place.closed() == ["2026-03-01-12:00"], "main has all that there is"
    stream.land([hour(14, 30)], hour(14, 20))
    stream.quiet(hour(15, 10))
    assert place.closed() == [], "what moved the watermark on is not published"
    stream.publish()
    assert place.closed() == ["2026-03-01-13:00", "2026-03-01-14:00"]


@pytest.mark.parametrize("place", [("closes: hour", "", GATE)], indirect=True)
def test_late_rows_of_a_gated_stream_are_told_when_they_are_published(place: Place) -> None:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    stream = place.stream
    stream.land([now - 5 * HOUR, now - 2 * HOUR], now - 2 * HOUR)
    stream.publish()
    assert len(place.closed()) == 3
    # The first one closes an hour; a row that comes late to that one comes with it, for readers.
    stream.land([now - HOUR], now - HOUR)
    stream.land([now - 2 * HOUR, now - 5 * HOUR], now - HOUR, late={now - 2 * HOUR: 1, now - 5 * HOUR: 1})
    assert place.tick() == [], "readers have none of it"
    stream.publish()
    events = place.tick()
    (told,) = [each for each in events if isinstance(each, dg.AssetObservation)]
    assert told.partition == f"{now - 5 * HOUR:%Y-%m-%d-%H}:00"
    assert (told.metadata["late_rows"].value, told.metadata["by"].value) == (1, "the stream")
    head = stream.table.current_snapshot()
    assert head is not None
    assert told.metadata["snapshot_id"].value == str(head.snapshot_id)
    (closed,) = [each for each in events if isinstance(each, dg.AssetMaterialization)]
    assert closed.partition == f"{now - 2 * HOUR:%Y-%m-%d-%H}:00"
    assert closed.metadata["late_rows"].value == 1
    assert closed.metadata["dagster/partition_row_count"].value == 2


HOURS = ["2026-03-01-10:00", "2026-03-01-11:00"]


def run(home: Path, reported: int | None = None, step: str = "") -> int:
    """A tick in a process of its own; its exit status."""
    steps = f"{step}=kill" if step else ""
    process = Forked(tick, str(home), reported, env={"FRAZIL_STEPS": steps}, folder=home)
    status = process.wait()
    assert status in (0, -signal.SIGKILL), process.said()
    return status


def materialized(home: Path, key: dg.AssetKey) -> Counter[str | None]:
    """How often Dagster's record has each hour."""
    with dg.DagsterInstance.local_temp(str(home / "dagster")) as instance:
        records = instance.fetch_materializations(key, limit=100).records
    return Counter(each.partition_key for each in records)


@pytest.mark.parametrize(
    ("reported", "step", "told"),
    [
        (None, "closed_before_report", []),
        (1, "", HOURS[:1]),
        # The check's result is the third.
        (3, "", HOURS),
    ],
    ids=["before it reports", "between two reports", "before its cursor is kept"],
)
def test_killed_it_reports_each_hour_once(tmp_path: Path, reported: int | None, step: str, told: list[str]) -> None:
    write_file(tmp_path, "closes: hour", "hour(at)")
    deployment = Deployment.at(tmp_path)
    settings, spec = deployment.prepared_settings(), deployment.stream("payments")
    stream, key = EventStream(settings, spec), closed_key(settings, spec)
    stream.land([hour(10), hour(12)], hour(12))
    assert run(tmp_path, reported, step) == -signal.SIGKILL
    assert not (tmp_path / "cursor.json").exists()
    assert materialized(tmp_path, key) == Counter(told)
    assert run(tmp_path) == 0
    assert materialized(tmp_path, key) == Counter(HOURS)
    stream.land([hour(13, 1)], hour(13, 1))
    assert run(tmp_path) == 0
    assert run(tmp_path) == 0
    assert materialized(tmp_path, key) == Counter([*HOURS, "2026-03-01-12:00"])
