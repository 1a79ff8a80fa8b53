"""Closed hours of a stream whose tables have columns of their own: those of the tables that topics have named, too."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.stream.models import StreamSpec
from orchestration.sensors.closed_partitions import look
from tests.helpers.lane_stream import LaneStream, document

ROUTE: dict[str, Any] = {
    "by": "topic",
    "tables": [{"match": "a", "table": "lake.a"}, {"match": "never", "table": "lake.never"}],
    "to": "lake.of_{value}",
}
MORE: dict[str, Any] = {
    "decode": {"value": {"format": "json", "infer": {"times": True}}, "schema": "infer"},
    "event_time": {"column": "at", "grace": "10m", "closes": "hour"},
}


def test_an_hour_counts_the_rows_of_all_tables_that_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = LaneStream(tmp_path / "home", ROUTE, {}, monkeypatch, **MORE)
    for topic, minutes in (("a", (0, 30)), ("b", (45,)), ("c", (10,))):
        one.produce(topic, *({"id": 1, "at": f"2026-03-01T12:{minute:02d}:00Z"} for minute in minutes))
    one.land()
    for topic in "abc":
        one.produce(topic, {"id": 2, "at": "2026-03-01T14:30:00Z"})
    one.land(1)
    # As the sensor has it: by the file alone.
    spec = StreamSpec.model_validate(document(ROUTE, **MORE))
    facts, _ = look(spec, one.settings, lambda: connect_catalog(one.settings), None, (), time.time())
    noon = round(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1000)
    assert facts.rows == {noon: 4, noon + 3_600_000: 0}
    assert [start for start, _ in facts.periods] == [noon, noon + 3_600_000]


def test_rows_in_tables_of_late_ones_are_of_no_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = MORE | {"event_time": MORE["event_time"] | {"late": "table"}}
    one = LaneStream(tmp_path / "home", ROUTE, {}, monkeypatch, **more)
    for number, hours in enumerate(((12,), (14, 11), (16, 12))):
        for topic in "ab":
            one.produce(topic, *({"id": 1, "at": f"2026-03-01T{hour}:30:00Z"} for hour in hours))
        one.land(number)
    assert len(one.placed()["lake.a_late"]) == len(one.placed()["lake.of_b_late"]) == 2
    spec = StreamSpec.model_validate(document(ROUTE, **more))
    facts, _ = look(spec, one.settings, lambda: connect_catalog(one.settings), None, (), time.time())
    noon = round(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1000)
    assert facts.rows == {noon + hour * 3_600_000: rows for hour, rows in ((0, 2), (1, 0), (2, 2), (3, 0))}
