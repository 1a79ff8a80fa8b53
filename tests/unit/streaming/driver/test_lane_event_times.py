"""Event time of a stream whose tables have columns of their own: one watermark, by the column that each table has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.config.stream.event_time import EventTime
from jobs.proof.audit.audit import audit
from jobs.proof.audit.closed_periods import rows_by_period
from jobs.proof.audit.ledger_fill import fill_ledger
from tests.helpers.lane_stream import DEAD, OWN, LaneStream, Log

ROUTE: dict[str, Any] = {
    "by": "topic",
    "tables": [{"match": "a", "table": "lake.a"}, {"match": "b", "table": "lake.b", "columns": {"drop": ["n"]}}],
    "to": "lake.of_{value}",
}
TIMES: dict[str, Any] = {"value": {"format": "json", "infer": {"times": True}}, "schema": "infer"}
MORE: dict[str, Any] = {"decode": TIMES, "event_time": {"column": "at", "grace": "10m", "late": "dead_letter"}}
Opened = Callable[..., LaneStream]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    known: Log = {}

    def make(epoch: int = 1, route: dict[str, Any] = ROUTE, **more: Any) -> LaneStream:
        return LaneStream(tmp_path / "home", route, known, monkeypatch, epoch, **(MORE | more))

    return make


def at(hour: int, minute: int = 0) -> str:
    return f"2026-03-01T{hour:02d}:{minute:02d}:00Z"


def test_a_topic_without_a_table_holds_the_watermark_up_as_one_without_events_does(opened: Opened) -> None:
    one = opened()
    for topic in ("a", "b", "c"):
        one.produce(topic, {"id": 1, "n": 1, "at": at(12)})
    one.produce("bad", b"no JSON")
    one.land()
    assert one.stream.watermark_ms is None
    assert one.columns("lake.b") == {"id": "long", "at": "timestamptz"}


def test_a_record_behind_the_watermark_is_late_whichever_table_it_is_for(opened: Opened) -> None:
    one = opened()
    for topic, hour in (("a", 12), ("b", 13), ("c", 14)):
        one.produce(topic, {"id": 1, "n": 1, "at": at(hour)})
    one.land()
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC) - timedelta(minutes=10)
    assert one.stream.watermark_ms == round(noon.timestamp() * 1000)
    for topic in ("a", "b", "c"):
        one.produce(topic, {"id": 2, "at": at(11)}, {"id": 3, "at": at(12, 30)}, {"id": 4})
    one.land(1)
    assert set(one.letters()) == {("a", 1), ("b", 1), ("c", 1)}
    assert all(said.startswith("late: ") for said in one.letters().values())
    placed = one.placed()
    assert [len(placed[name]) for name in ("lake.a", "lake.b", "lake.of_c", DEAD)] == [3, 3, 3, 3]
    hour = round(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1000)
    event_time = EventTime.model_validate(MORE["event_time"])
    period = [(hour, hour + 3_600_000)]
    rows = {
        name: (rows_by_period(one.catalog.load_table(name), event_time, period) or {}).get(hour)
        for name in (OWN, "lake.a", "lake.b", "lake.of_c")
    }
    assert rows == {OWN: None, "lake.a": 2, "lake.b": 1, "lake.of_c": 1}
    # Whoever opens it next goes on from there.
    after = opened(epoch=2)
    assert after.stream.watermark_ms == one.stream.watermark_ms
    after.produce("b", {"id": 5, "at": at(1)})
    after.land(0)
    assert ("b", 4) in after.letters()
    fill_ledger(after.catalog, after.settings, [after.spec])
    found = audit(after.stream.spec, after.settings, after.catalog, full=True)
    assert not found.problems and not found.pending, (found.problems, found.pending)


def test_a_table_without_the_column_is_not_made_and_its_records_say_so(opened: Opened) -> None:
    one = opened()
    one.produce("c", {"id": 1})
    one.produce("d", {"id": 1, "at": "soon"})
    one.land()
    said = one.letters()
    assert "lake.of_c is not made yet" in said["c", 0] and "'at' is no column of the rows" in said["c", 0]
    assert "'at' is string; an event time is" in said["d", 0]
    one.produce("a", {"id": 1})
    with pytest.raises(FrazilError, match=r"table lake\.a, of topic a: .*event_time\.column: 'at' is no column"):
        one.land(1)


def test_a_table_that_has_lost_the_column_stops_the_stream_and_is_named(opened: Opened) -> None:
    one = opened()
    one.produce("a", {"id": 1, "at": at(12)})
    one.land()
    with one.catalog.load_table("lake.a").update_schema() as update:
        update.delete_column("at")
    one.produce("a", {"id": 2, "at": at(12)})
    for target in one.stream.targets.values():
        target.read()
    with pytest.raises(FrazilError, match=r"event_time, in table lake\.a: 'at' is no column of the rows"):
        one.land(1)
    with pytest.raises(FrazilError, match=r"table lake\.a: .*event_time\.column: 'at' is no column"):
        opened(epoch=2)


def test_the_time_of_kafka_is_there_in_each_table(opened: Opened) -> None:
    one = opened(event_time={"column": "_kafka_timestamp"})
    one.produce("a", {"id": 1})
    one.produce("c", {"other": "x"})
    one.land()
    assert len(one.placed()) == 2 and one.letters() == {}
