"""What Dagster's sensors look at while a table of a stream is parked: closed hours, and letters to replay."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from jobs.config.settings.loading import load_stream
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.run import replay
from jobs.streaming.operator.accept import Answer, record_answer
from orchestration.sensors.closed_partitions import look
from orchestration.sensors.replay_proposal import find_proposal
from tests.helpers.routed_stream import ROUTE, RoutedStream

DELETES, ELSEWHERE = "orders.deletes", "orders.elsewhere"
PARK: dict[str, Any] = {**ROUTE, "on_table_error": "park"}
MORE: dict[str, Any] = {
    "decode": {"value": "json", "schema": "id string not null, type string, n int, at timestamptz as iso"},
    "event_time": {"column": "at", "grace": "10m", "closes": "hour"},
}


def opened(home: Path, epoch: int, before: RoutedStream | None = None) -> RoutedStream:
    one = RoutedStream(home, PARK, epoch=epoch, **MORE)
    one.log = list(before.log) if before else []
    return one


def records(minute: int) -> list[dict[str, Any]]:
    at = f"2026-03-01T{10 + minute // 60}:{minute % 60:02}:00Z"
    return [{"id": kind, "type": kind, "n": 1, "at": at} for kind in ("INS", "DEL", "OWN")]


def closed(one: RoutedStream) -> int:
    """How many hours have closed."""
    facts, _ = look(one.spec, one.settings, lambda: nullcontext(one.catalog), None, (), 1e9)  # type: ignore[arg-type]
    return len(facts.periods)


@pytest.mark.parametrize("back", [True, False], ids=["put back", "gone"])
def test_no_hour_closes_until_the_rows_of_a_parked_table_have_come(tmp_path: Path, back: bool) -> None:
    home = tmp_path / "home"
    one = opened(home, 1)
    one.land(*records(0))
    one.catalog.rename_table(DELETES, ELSEWHERE)
    after = opened(home, 20, one)
    after.land(*records(59), batch=0)
    after.land(*records(180), batch=1)
    after.land(*records(181), batch=2)
    if back:
        after.catalog.rename_table(ELSEWHERE, DELETES)
    assert closed(after) == 0
    record_answer(after.spec, after.settings, lambda: pytest.fail("no broker"), Answer(unpark=DELETES), "ada: back")
    third = opened(home, 30, after)
    third.land(*records(182), batch=0)
    assert closed(third) == 0, "its dead letters wait"
    replay(third.spec, third.settings, third.catalog, ReplayRequest())
    third.land(*records(183), batch=1)
    assert closed(third) == 2


def test_a_replay_is_proposed_while_a_table_is_parked_and_gone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    one = opened(home, 1)
    one.land(*records(0), {"id": "a", "type": "INS", "n": 1, "note": "x"})
    one.catalog.drop_table(DELETES)
    opened(home, 20, one).land(*records(1), batch=0)
    file = home / "streams" / "payments.yaml"
    found = find_proposal(load_stream(file), one.settings, lambda: nullcontext(one.catalog))  # type: ignore[arg-type]
    assert found.snapshot_id is not None
