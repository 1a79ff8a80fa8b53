"""The watermark of a quiet stream: its driver is killed before, in and behind the commit that moves it on."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from jobs.tables.commit.history.stamp_history import history, stamps_along_main
from jobs.tables.commit.stamp.stamps import Stamp
from tests.helpers.evolving_stream import SINK
from tests.helpers.forked import Forked
from tests.helpers.idle_driver import BLOCKS, look_until_it_moves
from tests.helpers.routed_stream import RoutedStream


def newest(world: RoutedStream) -> Stamp:
    found = history(world.catalog.load_table(SINK).metadata, "payments").newest
    assert found is not None
    return found


def watermark(world: RoutedStream) -> int:
    times = newest(world).event_time
    assert times is not None
    assert times.watermark_ms is not None
    return times.watermark_ms


def quiet_driver(home: Path, epoch: int, above_ms: int, steps: str = "") -> tuple[int, str]:
    process = Forked(look_until_it_moves, str(home), epoch, above_ms, env={"FRAZIL_STEPS": steps}, folder=home)
    return process.wait(), process.said()


# Opening the stream claims its two tables before.
@pytest.mark.parametrize("step", ["idle_before_stamp=kill", "inside_claim=kill@3", "idle_after_stamp=kill"])
def test_killed_it_moves_on_once_and_later_records_are_judged_by_it(tmp_path: Path, step: str) -> None:
    world = RoutedStream(tmp_path, **BLOCKS)
    world.land({"id": "a", "at": "2026-03-01T12:00:00Z"}, {"id": "b", "at": "2026-03-01T12:30:00Z"})
    first, position = watermark(world), dict(newest(world).position)
    status, said = quiet_driver(tmp_path, 2, first, step)
    name = step.partition("=")[0]
    assert (status, f"step {name}: SIGKILL" in said) == (-signal.SIGKILL, True), said
    killed = watermark(world)
    assert (killed > first) == (name == "idle_after_stamp"), "it is in the table, or nowhere"
    assert newest(world).position == position
    status, said = quiet_driver(tmp_path, 3, first)
    assert status == 0, said
    moved = watermark(world)
    assert moved >= killed
    assert moved > first
    assert int(said) == moved
    stamps = [each for _, each in stamps_along_main(world.catalog.load_table(SINK).metadata, "payments")]
    marks = {each.event_time.watermark_ms for each in stamps if each.event_time and each.event_time.watermark_ms}
    assert marks == {first, moved}, "it is moved once, and never back"
    assert newest(world).position == position
    again = RoutedStream(tmp_path, epoch=4, **BLOCKS)
    again.log = list(world.log)
    again.land({"id": "c", "at": "2026-03-01T12:40:00Z"})
    times = newest(again).event_time
    assert times is not None
    assert (times.watermark_ms, times.batch.late_records) == (moved, 1), "after the stamp it is late"
    assert again.offsets(SINK) == [0, 1, 2]
